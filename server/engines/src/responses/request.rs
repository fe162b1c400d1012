//! Builds the body of a Responses request. Pure: the same step gives the same bytes, so that the
//! provider's prompt cache can match what was sent before.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tns_server_core::engine::{Effort, StepRequest};
use tns_server_core::message::{ModelMessage, ModelRole, Part};

use super::{PROVIDER, native};
use crate::render;
use crate::step::outgoing::{self, CallIds};
use crate::step::replay::{self, Stretch};

/// Makes reasoning come as encrypted items, which go back in place of what is not stored.
const ENCRYPTED_REASONING: &str = "reasoning.encrypted_content";

/// Models that do not reason: they refuse to be asked for reasoning.
const PLAIN_MODELS: [&str; 3] = ["gpt-3", "gpt-4", "chatgpt-"];

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
    input: Vec<Item<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<Reasoning>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    include: &'static [&'static str],
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    store: bool,
    stream: bool,
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    name: &'a str,
    description: &'a str,
    parameters: Cow<'a, Value>,
    /// The default demands schemas of a narrower form than tools have.
    strict: bool,
}

#[derive(Serialize)]
struct Reasoning {
    effort: &'static str,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Item<'a> {
    /// As the model wrote it.
    AsItCame(&'a RawValue),
    Own(OwnItem<'a>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum OwnItem<'a> {
    Message { role: &'static str, content: Content<'a> },
    FunctionCall { call_id: String, name: Cow<'a, str>, arguments: String },
    FunctionCallOutput { call_id: String, output: String },
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(&'a str),
    Parts(Vec<Input<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Input<'a> {
    InputText { text: Cow<'a, str> },
    InputImage { image_url: String },
}

/// Returns the body as JSON.
///
/// # Errors
/// When a value can't be written as JSON.
pub(super) fn build(step: &StepRequest, model: &str) -> serde_json::Result<Vec<u8>> {
    let mut input = Vec::with_capacity(step.messages.len());
    let mut ids = CallIds::default();
    for turn in &step.messages {
        match turn.role {
            ModelRole::User => add_user(&mut input, turn, &ids)?,
            ModelRole::Assistant => add_assistant(&mut input, turn, model, &mut ids)?,
        }
    }
    serde_json::to_vec(&Body {
        model,
        instructions: Some(&*step.system).filter(|system| !system.trim().is_empty()),
        input,
        tools: step
            .tools
            .iter()
            .map(|spec| Tool {
                r#type: "function",
                name: &spec.name,
                description: &spec.description,
                parameters: outgoing::parameters(&spec.schema),
                strict: false,
            })
            .collect(),
        reasoning: step.effort.map(|effort| Reasoning { effort: effort_word(effort) }),
        include: if reasons(model) { &[ENCRYPTED_REASONING] } else { &[] },
        max_output_tokens: step.max_output_tokens,
        temperature: step.temperature,
        store: false,
        stream: true,
    })
}

/// Adds a user turn: results first, since they must follow the calls that they answer.
fn add_user<'a>(input: &mut Vec<Item<'a>>, turn: &'a ModelMessage, ids: &CallIds) -> serde_json::Result<()> {
    let mut content = Vec::new();
    for part in &turn.parts {
        let text = match part {
            _ if replay::is_blank(part) => continue,
            Part::ToolResult(result) => {
                let output = render::tool_output(result);
                let call_id = ids.answered(result);
                input.push(Item::Own(OwnItem::FunctionCallOutput { call_id, output }));
                continue;
            }
            Part::Image(image) => {
                content.push(Input::InputImage { image_url: outgoing::data_url(image) });
                continue;
            }
            Part::Text(text) => Cow::Borrowed(text.as_str()),
            Part::Note(note) => Cow::Owned(render::note(note)),
            // A call is the model's; as the user's words it can only be told.
            Part::ToolCall(call) => Cow::Owned(serde_json::to_string(call)?),
        };
        content.push(Input::InputText { text });
    }
    if !content.is_empty() {
        input.push(Item::Own(OwnItem::Message { role: "user", content: Content::Parts(content) }));
    }
    Ok(())
}

fn add_assistant<'a>(
    input: &mut Vec<Item<'a>>,
    turn: &'a ModelMessage,
    model: &str,
    ids: &mut CallIds,
) -> serde_json::Result<()> {
    let said = |blocks| native::said(&native::items(blocks, model)?);
    for stretch in replay::stretches(turn, PROVIDER, said) {
        match stretch {
            Stretch::AsItCame { blocks, parts } => {
                for part in parts {
                    if let Part::ToolCall(call) = part {
                        ids.keep(call);
                    }
                }
                // Read before, by `said`.
                let items = native::items(blocks, model).unwrap_or_default();
                input.extend(items.into_iter().map(Item::AsItCame));
            }
            Stretch::Anew(Part::Text(text)) => {
                input.push(Item::Own(OwnItem::Message { role: "assistant", content: Content::Text(text) }));
            }
            Stretch::Anew(Part::ToolCall(call)) => input.push(Item::Own(OwnItem::FunctionCall {
                call_id: ids.name(call),
                name: outgoing::tool_name(&call.name),
                arguments: serde_json::to_string(&call.args)?,
            })),
            // The model says none of these.
            Stretch::Anew(Part::Image(_) | Part::ToolResult(_) | Part::Note(_)) => {}
        }
    }
    Ok(())
}

fn reasons(model: &str) -> bool {
    !PLAIN_MODELS.iter().any(|plain| model.starts_with(plain)) && !model.contains("-chat")
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
