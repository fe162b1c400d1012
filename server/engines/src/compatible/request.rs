//! Builds the body of a Chat Completions request. Pure: the same step gives the same bytes, so that
//! a provider's prompt cache can match what was sent before.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;
use tns_server_core::engine::{Effort, StepRequest};
use tns_server_core::message::{ModelMessage, ModelRole, Part};
use tns_server_core::tool::ToolSpec;

use crate::render;
use crate::step::outgoing;

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<Message<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    stream: bool,
    stream_options: StreamOptions,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum Message<'a> {
    System {
        content: &'a str,
    },
    User {
        content: Content<'a>,
    },
    Assistant {
        content: Option<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<Call<'a>>,
    },
    Tool {
        tool_call_id: &'a str,
        content: String,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(String),
    Blocks(Vec<Block<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text { text: Cow<'a, str> },
    ImageUrl { image_url: ImageUrl },
}

#[derive(Serialize)]
struct ImageUrl {
    url: String,
}

#[derive(Serialize)]
struct Call<'a> {
    id: &'a str,
    r#type: &'static str,
    function: CalledFunction<'a>,
}

#[derive(Serialize)]
struct CalledFunction<'a> {
    name: Cow<'a, str>,
    /// A JSON object in a string.
    arguments: String,
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    function: OfferedFunction<'a>,
}

#[derive(Serialize)]
struct OfferedFunction<'a> {
    name: &'a str,
    description: &'a str,
    parameters: Cow<'a, Value>,
}

/// Returns the body as JSON. Pictures become a line of text unless the model takes them.
///
/// # Errors
/// When a value can't be written as JSON.
pub(super) fn build(request: &StepRequest, model: &str, accepts_images: bool) -> serde_json::Result<Vec<u8>> {
    let mut messages = Vec::with_capacity(request.messages.len() + 1);
    if !request.system.trim().is_empty() {
        messages.push(Message::System { content: &request.system });
    }
    for message in &request.messages {
        match message.role {
            ModelRole::User => add_user(&mut messages, message, accepts_images)?,
            ModelRole::Assistant => add_assistant(&mut messages, message)?,
        }
    }
    serde_json::to_vec(&Body {
        model,
        messages,
        tools: request.tools.iter().map(|spec| tool(spec)).collect(),
        reasoning_effort: request.effort.map(effort_word),
        max_tokens: request.max_output_tokens,
        temperature: request.temperature,
        stream: true,
        stream_options: StreamOptions { include_usage: true },
    })
}

/// Adds a user turn: tool results first, since they must follow the calls that they answer.
fn add_user<'a>(
    messages: &mut Vec<Message<'a>>,
    message: &'a ModelMessage,
    accepts_images: bool,
) -> serde_json::Result<()> {
    let mut blocks: Vec<Block<'a>> = Vec::new();
    for part in &message.parts {
        let block = match part {
            Part::ToolResult(result) => {
                let content = render::tool_output(result);
                messages.push(Message::Tool { tool_call_id: outgoing::result_id(result), content });
                continue;
            }
            Part::Text(text) => Block::Text { text: Cow::Borrowed(text) },
            Part::Note(note) => Block::Text { text: Cow::Owned(render::note(note)) },
            Part::Image(image) if accepts_images => {
                Block::ImageUrl { image_url: ImageUrl { url: outgoing::data_url(image) } }
            }
            Part::Image(image) => Block::Text { text: Cow::Owned(outgoing::picture_left_out(image)) },
            // A call is the model's; as the user's words it can only be told.
            Part::ToolCall(call) => Block::Text { text: Cow::Owned(serde_json::to_string(call)?) },
        };
        if !matches!(&block, Block::Text { text } if text.is_empty()) {
            blocks.push(block);
        }
    }
    if !blocks.is_empty() {
        messages.push(Message::User { content: join(blocks) });
    }
    Ok(())
}

/// Returns text alone as one string, which every server takes.
fn join(blocks: Vec<Block<'_>>) -> Content<'_> {
    let texts: Option<Vec<&str>> = blocks
        .iter()
        .map(|block| match block {
            Block::Text { text } => Some(text.as_ref()),
            Block::ImageUrl { .. } => None,
        })
        .collect();
    match texts {
        Some(texts) => Content::Text(texts.join("\n\n")),
        None => Content::Blocks(blocks),
    }
}

fn add_assistant<'a>(messages: &mut Vec<Message<'a>>, message: &'a ModelMessage) -> serde_json::Result<()> {
    let mut content = String::new();
    let mut tool_calls = Vec::new();
    for part in &message.parts {
        match part {
            Part::Text(text) => content.push_str(text),
            Part::ToolCall(call) => tool_calls.push(Call {
                id: outgoing::call_id(call),
                r#type: "function",
                function: CalledFunction {
                    name: outgoing::tool_name(&call.name),
                    arguments: serde_json::to_string(&call.args)?,
                },
            }),
            // The model says none of these.
            Part::Image(_) | Part::ToolResult(_) | Part::Note(_) => {}
        }
    }
    let content = Some(content).filter(|text| !text.trim().is_empty());
    if content.is_some() || !tool_calls.is_empty() {
        messages.push(Message::Assistant { content, tool_calls });
    }
    Ok(())
}

fn tool(spec: &ToolSpec) -> Tool<'_> {
    let parameters = outgoing::parameters(&spec.schema);
    let function = OfferedFunction { name: &spec.name, description: &spec.description, parameters };
    Tool { r#type: "function", function }
}

fn effort_word(effort: Effort) -> &'static str {
    match effort {
        Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High => "high",
    }
}

#[cfg(test)]
mod tests;
