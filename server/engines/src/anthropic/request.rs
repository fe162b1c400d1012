//! Builds the body of a Messages request. Pure: the same step gives the same bytes. A conversation only
//! grows at its end, so that the provider's cache, and its check of earlier thoughts, find it unchanged.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tns_server_core::engine::{Effort, StepRequest};
use tns_server_core::message::{Image, ModelMessage, ModelRole, Part, ToolResult};

use super::PROVIDER;
use super::event::Fields;
use super::model::{Thinking, default_max_tokens};
use crate::render;
use crate::step::outgoing::{self, CallIds};
use crate::step::replay::{self, Said, Stretch};

/// The media types of pictures that the provider takes.
const PICTURES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// How many of the last user turns are marked for the cache. With the system prompt and the tools these
/// are the four marks that a request may hold; the last but one finds what the step before wrote.
const MARKED_TURNS: usize = 2;

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Block<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<ToolChoice>,
    messages: Vec<Message<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<ThinkingConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    stream: bool,
}

#[derive(Serialize)]
struct Tool<'a> {
    name: Cow<'a, str>,
    description: &'a str,
    input_schema: Cow<'a, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
struct ToolChoice {
    r#type: &'static str,
}

#[derive(Serialize)]
struct ThinkingConfig {
    r#type: &'static str,
    display: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    block_binding: Option<BlockBinding>,
}

#[derive(Serialize)]
struct BlockBinding {
    prefix_mismatch_behavior: &'static str,
}

#[derive(Serialize)]
struct OutputConfig {
    effort: &'static str,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Vec<Content<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    /// As the model wrote it.
    AsItCame(&'a RawValue),
    Block(Block<'a>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text {
        text: Cow<'a, str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    Image {
        source: ImageSource<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    ToolUse {
        id: String,
        name: Cow<'a, str>,
        input: &'a Map<String, Value>,
    },
    ToolResult {
        tool_use_id: String,
        content: String,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
}

#[derive(Serialize)]
struct ImageSource<'a> {
    r#type: &'static str,
    media_type: &'a str,
    data: &'a str,
}

/// Marks the end of what is to be cached, for the usual five minutes.
#[derive(Debug, Clone, Copy, Serialize)]
struct CacheControl {
    r#type: &'static str,
}

const CACHED: Option<CacheControl> = Some(CacheControl { r#type: "ephemeral" });

/// Returns the body as JSON.
///
/// # Errors
/// When a value can't be written as JSON.
pub(super) fn build(
    step: &StepRequest,
    model: &str,
    thinking: Option<Thinking>,
) -> serde_json::Result<Vec<u8>> {
    let system = match step.system.trim() {
        "" => Vec::new(),
        _ => vec![Block::Text { text: Cow::Borrowed(&*step.system), cache_control: CACHED }],
    };
    let (tools, tool_choice) = tools(step);
    serde_json::to_vec(&Body {
        model,
        max_tokens: step.max_output_tokens.unwrap_or_else(|| default_max_tokens(model)),
        system,
        tools,
        tool_choice,
        messages: messages(&step.messages)?,
        thinking: thinking.map(|Thinking { is_bound }| ThinkingConfig {
            r#type: "adaptive",
            display: "summarized",
            block_binding: is_bound.then_some(BlockBinding { prefix_mismatch_behavior: "drop_block" }),
        }),
        output_config: step.effort.map(|effort| OutputConfig { effort: effort_word(effort) }),
        temperature: step.temperature,
        stream: true,
    })
}

/// Returns the tools on offer. A history with calls must come with tools, so where none are on offer,
/// those that were called are named and may not be called.
fn tools(step: &StepRequest) -> (Vec<Tool<'_>>, Option<ToolChoice>) {
    let mut tools: Vec<Tool<'_>> = step
        .tools
        .iter()
        .map(|spec| Tool {
            name: Cow::Borrowed(spec.name.as_str()),
            description: &spec.description,
            input_schema: outgoing::parameters(&spec.schema),
            cache_control: None,
        })
        .collect();
    let mut tool_choice = None;
    if tools.is_empty() {
        let called: BTreeSet<Cow<'_, str>> =
            step.messages.iter().flat_map(|message| &message.parts).filter_map(called).collect();
        tools = called
            .into_iter()
            .map(|name| Tool {
                name,
                description: "No longer available.",
                input_schema: Cow::Owned(outgoing::parameters(&Value::Null).into_owned()),
                cache_control: None,
            })
            .collect();
        tool_choice = (!tools.is_empty()).then_some(ToolChoice { r#type: "none" });
    }
    if let Some(last) = tools.last_mut() {
        last.cache_control = CACHED;
    }
    (tools, tool_choice)
}

fn called(part: &Part) -> Option<Cow<'_, str>> {
    match part {
        Part::ToolCall(call) => Some(outgoing::tool_name(&call.name)),
        Part::Text(_) | Part::Image(_) | Part::ToolResult(_) | Part::Note(_) => None,
    }
}

fn messages(turns: &[ModelMessage]) -> serde_json::Result<Vec<Message<'_>>> {
    let mut messages: Vec<Message<'_>> = Vec::with_capacity(turns.len());
    let mut ids = CallIds::default();
    for turn in turns {
        let (role, content) = match turn.role {
            ModelRole::User => ("user", user(turn, &ids)?),
            ModelRole::Assistant => ("assistant", assistant(turn, &mut ids)),
        };
        match messages.last_mut() {
            _ if content.is_empty() => {}
            // A turn between was left out.
            Some(last) if last.role == role => last.content.extend(content),
            _ => messages.push(Message { role, content }),
        }
    }
    let users = messages.iter_mut().rev().filter(|message| message.role == "user");
    for message in users.take(MARKED_TURNS) {
        if let Some(Content::Block(last)) = message.content.last_mut() {
            last.mark();
        }
    }
    Ok(messages)
}

/// Returns a user turn: results first, since they must follow the calls that they answer.
fn user<'a>(turn: &'a ModelMessage, ids: &CallIds) -> serde_json::Result<Vec<Content<'a>>> {
    let (mut results, mut others) = (Vec::new(), Vec::new());
    for part in &turn.parts {
        match part {
            _ if replay::is_blank(part) => {}
            Part::ToolResult(result) => results.push(Content::Block(tool_result(result, ids))),
            Part::Text(text) => others.push(text_block(Cow::Borrowed(text.as_str()))),
            Part::Note(note) => others.push(text_block(Cow::Owned(render::note(note)))),
            Part::Image(image) => others.push(picture(image)),
            // A call is the model's; as the user's words it can only be told.
            Part::ToolCall(call) => others.push(text_block(Cow::Owned(serde_json::to_string(call)?))),
        }
    }
    results.extend(others);
    Ok(results)
}

fn assistant<'a>(turn: &'a ModelMessage, ids: &mut CallIds) -> Vec<Content<'a>> {
    let mut content = Vec::new();
    for stretch in replay::stretches(turn, PROVIDER, said) {
        match stretch {
            Stretch::AsItCame { blocks, parts } => {
                for part in parts {
                    if let Part::ToolCall(call) = part {
                        ids.keep(call);
                    }
                }
                // Read before, by `said`.
                let blocks: Vec<&RawValue> = serde_json::from_str(blocks.get()).unwrap_or_default();
                content.extend(blocks.into_iter().map(Content::AsItCame));
            }
            Stretch::Anew(Part::Text(text)) => content.push(text_block(Cow::Borrowed(text.as_str()))),
            Stretch::Anew(Part::ToolCall(call)) => content.push(Content::Block(Block::ToolUse {
                id: ids.name(call),
                name: outgoing::tool_name(&call.name),
                input: &call.args,
            })),
            // The model says none of these.
            Stretch::Anew(Part::Image(_) | Part::ToolResult(_) | Part::Note(_)) => {}
        }
    }
    content
}

/// Returns what kept blocks say.
fn said(blocks: &RawValue) -> Option<Vec<Said>> {
    let blocks: Vec<Fields> = serde_json::from_str(blocks.get()).ok()?;
    let field = |block: &Fields, name: &str| {
        block.get(name).and_then(|value| serde_json::from_str::<String>(value.get()).ok())
    };
    let mut all = Vec::new();
    for block in &blocks {
        match field(block, "type")?.as_str() {
            "text" => all.push(Said::Text(field(block, "text")?)),
            "tool_use" => all.push(Said::Call(field(block, "id")?)),
            _ => {}
        }
    }
    Some(all)
}

fn text_block(text: Cow<'_, str>) -> Content<'_> {
    Content::Block(Block::Text { text, cache_control: None })
}

fn picture(image: &Image) -> Content<'_> {
    if !PICTURES.contains(&image.mime.as_str()) {
        return text_block(Cow::Owned(outgoing::picture_left_out(image)));
    }
    let source = ImageSource { r#type: "base64", media_type: &image.mime, data: &image.data };
    Content::Block(Block::Image { source, cache_control: None })
}

fn tool_result(result: &ToolResult, ids: &CallIds) -> Block<'static> {
    Block::ToolResult {
        tool_use_id: ids.answered(result),
        content: render::tool_words(result),
        is_error: result.is_error,
        cache_control: None,
    }
}

fn effort_word(effort: Effort) -> &'static str {
    match effort {
        Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High => "high",
    }
}

impl Block<'_> {
    /// Asks for everything up to here to be cached.
    fn mark(&mut self) {
        match self {
            Self::Text { cache_control, .. }
            | Self::Image { cache_control, .. }
            | Self::ToolResult { cache_control, .. } => *cache_control = CACHED,
            Self::ToolUse { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests;
