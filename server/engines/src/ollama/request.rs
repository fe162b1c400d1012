//! Builds the body of an Ollama request. Pure: the same step gives the same bytes, so that the model
//! need not read again what it read before.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Map, Value};
use tns_protocol::ToolCallId;
use tns_server_core::engine::{EngineError, EngineErrorKind, StepRequest};
use tns_server_core::message::{ModelMessage, ModelRole, Part};
use tns_server_core::tool::ToolSpec;

use super::abilities::{Abilities, Think};
use super::context::{Size, TooLong};
use super::thought;
use crate::render;
use crate::step::{outgoing, unwritable};

/// How long the model stays in memory after a step: a person who thinks about an approval should not
/// wait for it to load again. Ollama's own default is five minutes.
const KEEP_ALIVE: &str = "30m";

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<Message<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    think: Option<Think>,
    keep_alive: &'static str,
    /// What does not fit is refused, not cut. Older releases know no such word and cut.
    truncate: bool,
    /// A reply ends where the context is full; nothing is dropped to make room for more of it.
    shift: bool,
    #[serde(skip_serializing_if = "Options::is_empty")]
    options: Options,
    stream: bool,
}

#[derive(Serialize)]
struct Options {
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    num_predict: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    num_ctx: Option<u64>,
}

impl Options {
    fn is_empty(&self) -> bool {
        self.temperature.is_none() && self.num_predict.is_none() && self.num_ctx.is_none()
    }
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum Message<'a> {
    System {
        content: &'a str,
    },
    User {
        content: String,
        /// Base64 of their bytes.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        images: Vec<&'a str>,
    },
    Assistant {
        content: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        thinking: Option<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<Call<'a>>,
    },
    Tool {
        tool_name: &'a str,
        content: String,
    },
}

#[derive(Serialize)]
struct Call<'a> {
    function: CalledFunction<'a>,
}

#[derive(Serialize)]
struct CalledFunction<'a> {
    name: &'a str,
    arguments: &'a Map<String, Value>,
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

/// Returns the body as JSON. What the model is not able to take is left out: pictures become a line of
/// text, tools and an effort are not sent.
///
/// # Errors
/// When a value can't be written as JSON, or the request can't fit into what the model reads.
pub(super) fn build(
    step: &StepRequest,
    model: &str,
    abilities: &Abilities,
    never_less: impl FnOnce(u64) -> u64,
) -> Result<Vec<u8>, EngineError> {
    let mut messages = Vec::with_capacity(step.messages.len() + 1);
    if !step.system.trim().is_empty() {
        messages.push(Message::System { content: &step.system });
    }
    let mut open = Vec::new();
    for message in &step.messages {
        match message.role {
            ModelRole::User => {
                add_user(&mut messages, message, &open, abilities).map_err(|error| unwritable(&error))?
            }
            ModelRole::Assistant => open = add_assistant(&mut messages, message),
        }
    }
    let tools = step.tools.iter().filter(|_| abilities.tools);
    let mut body = Body {
        model,
        messages,
        tools: tools.map(|spec| tool(spec)).collect(),
        think: step.effort.and_then(|effort| abilities.think(effort)),
        keep_alive: KEEP_ALIVE,
        truncate: false,
        shift: false,
        options: Options {
            temperature: step.temperature,
            num_predict: step.max_output_tokens,
            num_ctx: None,
        },
        stream: true,
    };
    body.options.num_ctx = abilities.room.needed(body.size()?).map_err(too_long)?.map(never_less);
    serde_json::to_vec(&body).map_err(|error| unwritable(&error))
}

impl Body<'_> {
    fn size(&self) -> Result<Size, EngineError> {
        let mut size = Size { reply: self.options.num_predict, ..Size::default() };
        size.add(&json(&self.tools)?);
        for message in &self.messages {
            match message {
                Message::System { content } => size.add(content),
                Message::User { content, images } => {
                    size.add(content);
                    size.pictures += images.len() as u64;
                }
                Message::Assistant { content, thinking, tool_calls } => {
                    size.add(content);
                    size.add(thinking.as_deref().unwrap_or_default());
                    size.add(&json(tool_calls)?);
                }
                Message::Tool { content, .. } => size.add(content),
            }
        }
        Ok(size)
    }
}

fn json(value: &impl Serialize) -> Result<String, EngineError> {
    serde_json::to_string(value).map_err(|error| unwritable(&error))
}

fn too_long(TooLong(window): TooLong) -> EngineError {
    let message = format!(
        "the request is longer than the {window} tokens that the model is given to read; choose one that reads more, or \
         set OLLAMA_CONTEXT_LENGTH where the model could"
    );
    EngineError { kind: EngineErrorKind::ContextOverflow, message }
}

/// Adds a user turn: tool results first and in the order of the `open` calls, since nothing but their
/// place tells two results of one tool apart.
fn add_user<'a>(
    messages: &mut Vec<Message<'a>>,
    message: &'a ModelMessage,
    open: &[&ToolCallId],
    abilities: &Abilities,
) -> serde_json::Result<()> {
    let mut results = Vec::new();
    let mut texts: Vec<Cow<'a, str>> = Vec::new();
    let mut images = Vec::new();
    for part in &message.parts {
        texts.push(match part {
            Part::ToolResult(result) => {
                results.push(result);
                continue;
            }
            Part::Image(image) if abilities.pictures => {
                images.push(&*image.data);
                continue;
            }
            Part::Text(text) => Cow::Borrowed(text),
            Part::Note(note) => Cow::Owned(render::note(note)),
            Part::Image(image) => Cow::Owned(outgoing::picture_left_out(image)),
            // A call is the model's; as the user's words it can only be told.
            Part::ToolCall(call) => Cow::Owned(serde_json::to_string(call)?),
        });
    }
    let place = |call: &ToolCallId| open.iter().position(|known| *known == call).unwrap_or(usize::MAX);
    results.sort_by_key(|result| place(&result.call));
    messages.extend(
        results
            .into_iter()
            .map(|result| Message::Tool { tool_name: &result.name, content: render::tool_output(result) }),
    );
    texts.retain(|text| !text.is_empty());
    if !texts.is_empty() || !images.is_empty() {
        messages.push(Message::User { content: texts.join("\n\n"), images });
    }
    Ok(())
}

/// Adds a model turn and returns its calls.
fn add_assistant<'a>(messages: &mut Vec<Message<'a>>, message: &'a ModelMessage) -> Vec<&'a ToolCallId> {
    let mut content = String::new();
    let mut tool_calls = Vec::new();
    let mut open = Vec::new();
    for part in &message.parts {
        match part {
            Part::Text(text) => content.push_str(text),
            Part::ToolCall(call) => {
                open.push(&call.id);
                tool_calls
                    .push(Call { function: CalledFunction { name: &call.name, arguments: &call.args } });
            }
            // The model says none of these.
            Part::Image(_) | Part::ToolResult(_) | Part::Note(_) => {}
        }
    }
    if content.trim().is_empty() {
        content.clear();
    }
    if !content.is_empty() || !tool_calls.is_empty() {
        messages.push(Message::Assistant { content, thinking: thought::kept(message), tool_calls });
    }
    open
}

fn tool(spec: &ToolSpec) -> Tool<'_> {
    let parameters = outgoing::parameters(&spec.schema);
    let function = OfferedFunction { name: &spec.name, description: &spec.description, parameters };
    Tool { r#type: "function", function }
}

#[cfg(test)]
mod tests;
