//! One event of a Responses stream as it stands on the wire. Fields that are not needed are not read. It
//! decides nothing.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use tns_server_core::engine::StepUsage;

/// An event; `kind` says which of the fields are there.
#[derive(Debug, Deserialize)]
pub(super) struct Event<'a> {
    #[serde(rename = "type", borrow)]
    pub(super) kind: Cow<'a, str>,
    /// The place of an item in the answer.
    #[serde(default)]
    pub(super) output_index: u64,
    /// A piece of text, reasoning or arguments.
    #[serde(default, borrow)]
    pub(super) delta: Option<&'a RawValue>,
    /// All of a call's arguments.
    #[serde(default)]
    pub(super) arguments: Option<String>,
    /// An item as it begins or ends.
    #[serde(default, borrow)]
    pub(super) item: Option<&'a RawValue>,
    /// The answer as it begins or ends.
    #[serde(default)]
    pub(super) response: Option<Response>,
}

impl<'a> Event<'a> {
    /// Returns the piece of text; one that is no text counts as empty.
    pub(super) fn piece(&self) -> Cow<'a, str> {
        #[derive(Deserialize)]
        struct Piece<'a>(#[serde(borrow)] Cow<'a, str>);
        let piece = self.delta.and_then(|delta| serde_json::from_str::<Piece<'a>>(delta.get()).ok());
        piece.map(|piece| piece.0).unwrap_or_default()
    }
}

/// The answer's own fields.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Response {
    pub(super) model: Option<String>,
    pub(super) error: Option<Box<RawValue>>,
    pub(super) incomplete_details: Option<Incomplete>,
    pub(super) usage: Option<Usage>,
}

/// Why an answer is not whole.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Incomplete {
    pub(super) reason: Option<String>,
}

/// The counters of the whole answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Usage {
    /// All input, from the cache and into it included.
    pub(super) input_tokens: Option<u64>,
    pub(super) input_tokens_details: Option<InputDetails>,
    /// All output, reasoning included.
    pub(super) output_tokens: Option<u64>,
}

impl Usage {
    /// Returns the tokens so far.
    pub(super) fn counted(&self) -> StepUsage {
        let details = self.input_tokens_details.as_ref();
        StepUsage {
            input: self.input_tokens.unwrap_or_default(),
            cached_input: details.and_then(|details| details.cached_tokens).unwrap_or_default(),
            cache_written: details.and_then(|details| details.cache_write_tokens).unwrap_or_default(),
            output: self.output_tokens.unwrap_or_default(),
            cost: None,
        }
    }
}

/// Of the input.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct InputDetails {
    pub(super) cached_tokens: Option<u64>,
    pub(super) cache_write_tokens: Option<u64>,
}

/// An item of the answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Item {
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// The id that a call's result names.
    pub(super) call_id: Option<String>,
    pub(super) name: Option<String>,
    pub(super) arguments: Option<String>,
    pub(super) encrypted_content: Option<String>,
    /// Of a message: its texts.
    pub(super) content: Option<Vec<Content>>,
    /// Of a message: comment or final answer.
    pub(super) phase: Option<String>,
}

/// A text of a message.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Content {
    pub(super) text: Option<String>,
    pub(super) refusal: Option<String>,
}

impl Item {
    /// Returns the text of a message.
    pub(super) fn text(&self) -> String {
        let content = self.content.iter().flatten();
        content.flat_map(|content| content.text.iter().chain(&content.refusal)).map(String::as_str).collect()
    }
}
