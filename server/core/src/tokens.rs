//! How many tokens a text is likely to be: a quarter of its characters, and 1,600 for each picture. Providers count
//! in their own ways; this is for deciding when a history is long and what a step may cost. Pure.

use serde_json::{Map, Value};

use crate::engine::StepRequest;
use crate::message::{ModelMessage, Note, Part};

/// Characters that make about one token.
pub(crate) const CHARS_PER_TOKEN: u64 = 4;
/// Tokens that a picture counts for.
const PICTURE_TOKENS: u64 = 1_600;

/// Estimates parts of a message.
pub(crate) fn of_parts(parts: &[Part]) -> u64 {
    parts.iter().map(chars).sum::<u64>() / CHARS_PER_TOKEN
}

/// Estimates what is said in a request.
pub(crate) fn of_messages(messages: &[ModelMessage]) -> u64 {
    messages.iter().map(message_chars).sum::<u64>() / CHARS_PER_TOKEN
}

/// Estimates a whole request: the system prompt, the tools on offer, and what is said.
pub(crate) fn of_request(request: &StepRequest) -> u64 {
    let tools = request.tools.iter().map(|tool| count(&tool.description) + count(&tool.schema.to_string()));
    let said = request.messages.iter().map(message_chars);
    (count(&request.system) + tools.sum::<u64>() + said.sum::<u64>()) / CHARS_PER_TOKEN
}

/// A provider's own blocks hold the parts again, or are not sent.
fn message_chars(message: &ModelMessage) -> u64 {
    let parts: u64 = message.parts.iter().map(chars).sum();
    let native: u64 = message.native.iter().map(|native| count(native.blocks.get())).sum();
    parts.max(native)
}

fn chars(part: &Part) -> u64 {
    match part {
        Part::Text(text) | Part::Note(Note::Text(text)) => count(text),
        Part::Image(_) => PICTURE_TOKENS * CHARS_PER_TOKEN,
        Part::ToolCall(call) => count(&call.name) + args_chars(&call.args),
        Part::ToolResult(result) => count(&result.output),
        Part::Note(Note::Knowledge(passages)) => {
            passages.iter().map(|passage| count(&passage.source) + count(&passage.text)).sum()
        }
    }
}

fn args_chars(args: &Map<String, Value>) -> u64 {
    // What can't be written has no length either.
    serde_json::to_string(args).map_or(0, |text| count(&text))
}

fn count(text: &str) -> u64 {
    text.chars().count() as u64
}
