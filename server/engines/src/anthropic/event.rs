//! One event of a Messages stream as it stands on the wire. Fields that are not needed are not read, and
//! kinds that are not known are read over, as the API's versioning asks. It decides nothing.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use tns_server_core::engine::StepUsage;

/// An event; `kind` says which of the fields are there.
#[derive(Debug, Deserialize)]
pub(super) struct Event<'a> {
    #[serde(rename = "type", borrow)]
    pub(super) kind: Cow<'a, str>,
    /// The place of a block in the message.
    #[serde(default)]
    pub(super) index: u64,
    /// In `message_start`.
    #[serde(default)]
    pub(super) message: Option<Message>,
    /// In `content_block_start`.
    #[serde(default)]
    pub(super) content_block: Option<Fields>,
    /// In `content_block_delta` and `message_delta`.
    #[serde(default, borrow)]
    pub(super) delta: Option<Delta<'a>>,
    /// In `message_delta`.
    #[serde(default)]
    pub(super) usage: Option<Usage>,
}

/// A block's fields, each as the JSON text that came.
pub(super) type Fields = BTreeMap<String, Box<RawValue>>;

/// The message as it begins.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Message {
    pub(super) model: Option<String>,
    pub(super) usage: Option<Usage>,
}

/// What a block, or the message, gains.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Delta<'a> {
    #[serde(borrow)]
    pub(super) text: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) partial_json: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) thinking: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) signature: Cow<'a, str>,
    pub(super) stop_reason: Option<String>,
}

/// Counters since the start of the message; a later report replaces an earlier one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Usage {
    /// Input that is neither read from the cache nor written to it.
    pub(super) input_tokens: Option<u64>,
    pub(super) cache_creation_input_tokens: Option<u64>,
    pub(super) cache_read_input_tokens: Option<u64>,
    pub(super) output_tokens: Option<u64>,
}

impl Usage {
    /// Takes what a later report says; what it leaves out stays.
    pub(super) fn update(&mut self, later: Self) {
        self.input_tokens = later.input_tokens.or(self.input_tokens);
        self.cache_creation_input_tokens =
            later.cache_creation_input_tokens.or(self.cache_creation_input_tokens);
        self.cache_read_input_tokens = later.cache_read_input_tokens.or(self.cache_read_input_tokens);
        self.output_tokens = later.output_tokens.or(self.output_tokens);
    }

    /// Returns the tokens so far.
    pub(super) fn counted(&self) -> StepUsage {
        let counted = |count: Option<u64>| count.unwrap_or_default();
        StepUsage {
            input: counted(self.input_tokens)
                .saturating_add(counted(self.cache_creation_input_tokens))
                .saturating_add(counted(self.cache_read_input_tokens)),
            cached_input: counted(self.cache_read_input_tokens),
            cache_written: counted(self.cache_creation_input_tokens),
            output: counted(self.output_tokens),
            cost: None,
        }
    }
}
