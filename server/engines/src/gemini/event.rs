//! One event of a Gemini stream as it stands on the wire (`GenerateContentResponse`). Lenient by
//! intent: fields come and go between models. It decides nothing.

use serde::Deserialize;
use serde_json::value::RawValue;
use tns_server_core::engine::StepUsage;

/// A piece of the answer, or an error in place of it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Event<'a> {
    #[serde(borrow)]
    pub(super) candidates: Option<Vec<Candidate<'a>>>,
    pub(super) prompt_feedback: Option<PromptFeedback>,
    pub(super) usage_metadata: Option<Usage>,
    pub(super) model_version: Option<String>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// One answer; we never ask for a second one.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Candidate<'a> {
    pub(super) index: Option<i64>,
    #[serde(borrow)]
    pub(super) content: Option<Content<'a>>,
    pub(super) finish_reason: Option<String>,
    /// The provider's words about the reason.
    pub(super) finish_message: Option<String>,
}

/// What an event adds. The parts are kept as text, since some must go back byte for byte.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Content<'a> {
    #[serde(borrow)]
    pub(super) parts: Option<Vec<&'a RawValue>>,
}

/// A part, as far as this engine knows parts; all of it may be missing.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Part<'a> {
    pub(super) text: Option<String>,
    /// The text is a summary of the model's reasoning.
    pub(super) thought: Option<bool>,
    /// Opaque, in base64; the part goes back as it came.
    pub(super) thought_signature: Option<String>,
    #[serde(borrow)]
    pub(super) function_call: Option<FunctionCall<'a>>,
}

/// A call of a tool, always whole.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct FunctionCall<'a> {
    /// Only newer models give one.
    pub(super) id: Option<String>,
    pub(super) name: Option<String>,
    #[serde(borrow)]
    pub(super) args: Option<&'a RawValue>,
}

/// Why a prompt was not answered at all.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PromptFeedback {
    pub(super) block_reason: Option<String>,
}

/// Running counters of the whole step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Usage {
    /// Cached ones included.
    prompt_token_count: Option<u64>,
    cached_content_token_count: Option<u64>,
    /// What the provider's own tools put into the prompt.
    tool_use_prompt_token_count: Option<u64>,
    /// Reasoning not included.
    candidates_token_count: Option<u64>,
    thoughts_token_count: Option<u64>,
}

impl Usage {
    /// Takes over a later report; a counter that it leaves out keeps its value.
    pub(super) fn update(&mut self, later: Self) {
        *self = Self {
            prompt_token_count: later.prompt_token_count.or(self.prompt_token_count),
            cached_content_token_count: later.cached_content_token_count.or(self.cached_content_token_count),
            tool_use_prompt_token_count: later
                .tool_use_prompt_token_count
                .or(self.tool_use_prompt_token_count),
            candidates_token_count: later.candidates_token_count.or(self.candidates_token_count),
            thoughts_token_count: later.thoughts_token_count.or(self.thoughts_token_count),
        };
    }

    /// Returns the tokens so far. Caches are written unasked, and nothing is told of it.
    pub(super) fn counted(&self) -> StepUsage {
        StepUsage {
            input: sum(self.prompt_token_count, self.tool_use_prompt_token_count),
            cached_input: self.cached_content_token_count.unwrap_or_default(),
            output: sum(self.candidates_token_count, self.thoughts_token_count),
            ..StepUsage::default()
        }
    }
}

fn sum(one: Option<u64>, other: Option<u64>) -> u64 {
    one.unwrap_or_default().saturating_add(other.unwrap_or_default())
}
