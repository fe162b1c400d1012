//! Builds the body of a Gemini request. Pure: the same step gives the same bytes, so that the
//! provider's cache can match what was sent before.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tns_protocol::ToolCallId;
use tns_server_core::engine::{Effort, StepRequest};
use tns_server_core::message::{ModelMessage, ModelRole, Part, ToolResult};
use tns_server_core::tool::ToolSpec;

use super::name::to_wire;
use super::{native, schema};
use crate::render;
use crate::step::outgoing;

/// Stands in for a signature on a call that this model did not make itself, such as one from before a
/// change of the model; Gemini names it for this. Without any it refuses calls of the current turn.
const FOREIGN_CALL: &str = "skip_thought_signature_validator";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<SystemInstruction<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tools<'a>>,
    contents: Vec<Content<'a>>,
    generation_config: GenerationConfig,
}

#[derive(Serialize)]
struct SystemInstruction<'a> {
    parts: [TextPart<'a>; 1],
}

#[derive(Serialize)]
struct TextPart<'a> {
    text: Cow<'a, str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tools<'a> {
    function_declarations: Vec<Declaration<'a>>,
}

#[derive(Serialize)]
struct Declaration<'a> {
    name: Cow<'a, str>,
    description: &'a str,
    /// Absent for a tool without parameters: an object without properties is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GenerationConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_config: Option<ThinkingConfig>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ThinkingConfig {
    include_thoughts: bool,
    /// Models from Gemini 3 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_level: Option<&'static str>,
    /// Gemini 2.5, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_budget: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    User,
    Model,
}

#[derive(Serialize)]
struct Content<'a> {
    role: Role,
    parts: Vec<WirePart<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum WirePart<'a> {
    Text(TextPart<'a>),
    Picture(PicturePart<'a>),
    Call(CallPart<'a>),
    Response(ResponsePart<'a>),
    /// A part of this model's own, byte for byte.
    AsItCame(&'a RawValue),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PicturePart<'a> {
    inline_data: InlineData<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InlineData<'a> {
    mime_type: &'a str,
    data: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CallPart<'a> {
    function_call: Call<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thought_signature: Option<&'static str>,
}

#[derive(Serialize)]
struct Call<'a> {
    name: Cow<'a, str>,
    args: &'a Map<String, Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResponsePart<'a> {
    function_response: Response<'a>,
}

#[derive(Serialize)]
struct Response<'a> {
    /// The id of the call, where the call was sent with one.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    name: Cow<'a, str>,
    response: Outcome,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Output(String),
    Error(String),
}

/// Returns the body as JSON. Pictures become a line of text unless the model takes them. A tool whose
/// schema is of no use is left out with a warning, so that it does not end the whole conversation.
///
/// # Errors
/// When a value can't be written as JSON.
pub(super) fn build(step: &StepRequest, model: &str, accepts_images: bool) -> serde_json::Result<Vec<u8>> {
    let mut turns = Turns { model, accepts_images, contents: Vec::new(), open: Vec::new() };
    for message in &step.messages {
        match message.role {
            ModelRole::User => turns.user(message)?,
            ModelRole::Assistant => turns.assistant(message),
        }
    }
    let function_declarations: Vec<_> = step.tools.iter().filter_map(|spec| declaration(spec)).collect();
    let tools =
        if function_declarations.is_empty() { Vec::new() } else { vec![Tools { function_declarations }] };
    let system = (!step.system.trim().is_empty()).then(|| SystemInstruction { parts: [text(&*step.system)] });
    serde_json::to_vec(&Body {
        system_instruction: system,
        tools,
        contents: turns.contents,
        generation_config: GenerationConfig {
            temperature: step.temperature,
            max_output_tokens: step.max_output_tokens,
            thinking_config: thinking(model, step.effort),
        },
    })
}

fn text<'a>(text: impl Into<Cow<'a, str>>) -> TextPart<'a> {
    TextPart { text: text.into() }
}

/// Turns so far; they alternate, and none is empty.
struct Turns<'a> {
    model: &'a str,
    accepts_images: bool,
    contents: Vec<Content<'a>>,
    /// The calls of the last model turn, in order, with the ids under which they are sent.
    open: Vec<(&'a ToolCallId, Option<String>)>,
}

impl<'a> Turns<'a> {
    fn push(&mut self, role: Role, parts: Vec<WirePart<'a>>) {
        match self.contents.last_mut() {
            _ if parts.is_empty() => {}
            Some(last) if last.role == role => last.parts.extend(parts),
            _ => self.contents.push(Content { role, parts }),
        }
    }

    /// Adds a user turn. Responses stand first and in the order of the calls: Gemini tells the ones of a
    /// tool apart by their place.
    fn user(&mut self, message: &'a ModelMessage) -> serde_json::Result<()> {
        let mut responses: Vec<(usize, WirePart<'a>)> = Vec::new();
        let mut parts = Vec::new();
        for part in &message.parts {
            let words: Cow<'a, str> = match part {
                Part::ToolResult(result) => {
                    responses.push(self.response(result));
                    continue;
                }
                Part::Image(image) if self.accepts_images => {
                    let inline_data = InlineData { mime_type: &image.mime, data: &image.data };
                    parts.push(WirePart::Picture(PicturePart { inline_data }));
                    continue;
                }
                Part::Text(words) => Cow::Borrowed(words),
                Part::Note(note) => Cow::Owned(render::note(note)),
                Part::Image(image) => Cow::Owned(outgoing::picture_left_out(image)),
                // A call is the model's; as the user's words it can only be told.
                Part::ToolCall(call) => Cow::Owned(serde_json::to_string(call)?),
            };
            if !words.trim().is_empty() {
                parts.push(WirePart::Text(text(words)));
            }
        }
        responses.sort_by_key(|(place, _)| *place);
        let responses = responses.into_iter().map(|(_, response)| response);
        self.push(Role::User, responses.chain(parts).collect());
        Ok(())
    }

    fn response(&self, result: &'a ToolResult) -> (usize, WirePart<'a>) {
        let place = self.open.iter().position(|(call, _)| **call == result.call);
        let id = place.and_then(|place| self.open.get(place)?.1.clone());
        let words = render::tool_words(result);
        let response = if result.is_error { Outcome::Error(words) } else { Outcome::Output(words) };
        let function_response = Response { id, name: to_wire(&result.name), response };
        (place.unwrap_or(usize::MAX), WirePart::Response(ResponsePart { function_response }))
    }

    /// Adds a model turn: as it came, where this model wrote it, else in our words.
    fn assistant(&mut self, message: &'a ModelMessage) {
        let calls = message.parts.iter().filter_map(|part| match part {
            Part::ToolCall(call) => Some(call),
            Part::Text(_) | Part::Image(_) | Part::ToolResult(_) | Part::Note(_) => None,
        });
        if let Some(replay) = native::replay(message, self.model) {
            self.open = calls.map(|call| &call.id).zip(replay.ids).collect();
            self.push(Role::Model, replay.parts.into_iter().map(WirePart::AsItCame).collect());
            return;
        }
        self.open = calls.map(|call| (&call.id, None)).collect();
        // Only the first of several calls carries a signature.
        let mut signature = demands_signatures(self.model).then_some(FOREIGN_CALL);
        let parts = message.parts.iter().filter_map(|part| match part {
            Part::Text(words) => (!words.trim().is_empty()).then(|| WirePart::Text(text(words))),
            Part::ToolCall(call) => Some(WirePart::Call(CallPart {
                function_call: Call { name: to_wire(&call.name), args: &call.args },
                thought_signature: signature.take(),
            })),
            // The model says none of these.
            Part::Image(_) | Part::ToolResult(_) | Part::Note(_) => None,
        });
        let parts = parts.collect();
        self.push(Role::Model, parts);
    }
}

fn declaration(spec: &ToolSpec) -> Option<Declaration<'_>> {
    match schema::parameters(&spec.schema) {
        Ok(parameters) => {
            Some(Declaration { name: to_wire(&spec.name), description: &spec.description, parameters })
        }
        Err(reason) => {
            tracing::warn!(tool = spec.name, reason, "a tool's schema is of no use and the tool is left out");
            None
        }
    }
}

/// Whether calls need signatures: with every model from Gemini 3 on.
fn demands_signatures(model: &str) -> bool {
    model.starts_with("gemini-") && !model.starts_with("gemini-1") && !model.starts_with("gemini-2")
}

/// Returns how a model is told to think. Budgets are those that Google itself takes for the words
/// low, medium and high where it offers another provider's format.
fn thinking(model: &str, effort: Option<Effort>) -> Option<ThinkingConfig> {
    let (level, budget) = match effort {
        None => (None, None),
        Some(Effort::Low) => (Some("LOW"), Some(1024)),
        Some(Effort::Medium) => (Some("MEDIUM"), Some(8192)),
        Some(Effort::High) => (Some("HIGH"), Some(24_576)),
    };
    if demands_signatures(model) {
        Some(ThinkingConfig { include_thoughts: true, thinking_level: level, thinking_budget: None })
    } else if model.starts_with("gemini-2.5") {
        Some(ThinkingConfig { include_thoughts: true, thinking_level: None, thinking_budget: budget })
    } else {
        // It does not think, and would refuse to be told how.
        None
    }
}

#[cfg(test)]
mod tests;
