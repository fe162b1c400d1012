//! The seam to models: one [`Engine`] is one provider's model, one `step` is one streamed call.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use serde::{Deserialize, Serialize};
use tns_protocol::ErrorCode;

use crate::message::{ModelMessage, Native, Part};
use crate::tool::ToolSpec;

/// One model call.
#[derive(Debug, Clone)]
pub struct StepRequest {
    /// The agent's fixed system prompt.
    pub system: Arc<str>,
    /// The tools on offer; empty on the last allowed call of a turn.
    pub tools: Arc<[Arc<ToolSpec>]>,
    /// The conversation: roles alternate, the first turn is the user's.
    pub messages: Vec<ModelMessage>,
    /// How hard the model should think; `None` is the provider's default.
    pub effort: Option<Effort>,
    /// Most tokens of the answer; `None` is the provider's default.
    pub max_output_tokens: Option<u32>,
    /// Randomness; `None` is the provider's default.
    pub temperature: Option<f32>,
}

/// How hard a model should think.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// Little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
}

/// What a running step says.
#[derive(Debug, Clone, PartialEq)]
pub enum StepEvent {
    /// A piece of the answer; never empty.
    Text(String),
    /// A piece of the model's reasoning; never part of the answer.
    Reasoning(String),
    /// A tool call begins; its arguments are still being written.
    ToolStart {
        /// The tool's name as offered.
        name: String,
    },
    /// The call waits before it is tried again.
    Waiting {
        /// How long.
        delay: Duration,
        /// Why, in a line for people.
        reason: String,
    },
    /// What the step used so far, as its provider told; in place of what was told before.
    Usage(StepUsage),
    /// The step is over; always the last event.
    Finished(StepOutcome),
}

/// The result of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct StepOutcome {
    /// Text and tool calls, in the model's order; no empty text.
    pub parts: Vec<Part>,
    /// The model that answered; may differ from the one asked for.
    pub model: String,
    /// Why it stopped.
    pub stop: StepStop,
    /// What it used.
    pub usage: StepUsage,
    /// The provider's own blocks, to be replayed to it.
    pub native: Option<Native>,
}

/// Why a step stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepStop {
    /// The model was done.
    End,
    /// The model wants tools.
    ToolUse,
    /// The output limit was reached.
    MaxTokens,
    /// The model refused.
    Refusal,
}

/// What a step used.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StepUsage {
    /// All input tokens, cached ones included.
    pub input: u64,
    /// Of these, read from the provider's cache.
    pub cached_input: u64,
    /// Of all input, written to the provider's cache, where it tells.
    pub cache_written: u64,
    /// All output tokens, reasoning included.
    pub output: u64,
    /// US dollars; `None` where the model's price is not known.
    pub cost: Option<f64>,
}

impl StepUsage {
    /// Returns both together; the cost is known where both are.
    pub fn plus(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            cached_input: self.cached_input.saturating_add(other.cached_input),
            cache_written: self.cache_written.saturating_add(other.cache_written),
            output: self.output.saturating_add(other.output),
            cost: self.cost.zip(other.cost).map(|(one, two)| one + two),
        }
    }
}

/// Why a step failed. `message` is fit to show to anybody: it holds no key and no address with one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct EngineError {
    /// What kind of failure.
    pub kind: EngineErrorKind,
    /// One line for people that says what to do.
    pub message: String,
}

/// Kinds of [`EngineError`]; a kind is what a caller acts on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineErrorKind {
    /// The key was refused.
    BadKey,
    /// The account has no credit.
    NoCredit,
    /// Too many requests.
    RateLimited,
    /// Not reachable, or overloaded.
    Unavailable,
    /// The conversation is too long for the model.
    ContextOverflow,
    /// Any other refusal; retrying won't help.
    Provider,
    /// The stream ended before its end mark.
    StreamIncomplete,
}

impl EngineErrorKind {
    /// Returns the wire's code for it.
    pub fn code(self) -> ErrorCode {
        match self {
            Self::BadKey => ErrorCode::BadKey,
            Self::NoCredit => ErrorCode::NoCredit,
            Self::RateLimited => ErrorCode::RateLimited,
            Self::Unavailable => ErrorCode::ProviderUnavailable,
            Self::ContextOverflow => ErrorCode::ContextOverflow,
            Self::Provider => ErrorCode::ProviderError,
            Self::StreamIncomplete => ErrorCode::StreamIncomplete,
        }
    }

    /// Whether the engine is useless from now on, so that the session opens a new one for the next reply.
    pub fn is_fatal(self) -> bool {
        matches!(self, Self::BadKey | Self::NoCredit)
    }
}

/// Whether an engine's steps can be counted in dollars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pricing {
    /// They cost nothing.
    Free,
    /// The model has a price.
    Known,
    /// Nobody told a price: under a spending limit the engine is not called.
    #[default]
    Unknown,
}

/// A running step. Dropping it cancels the call.
pub type StepStream = BoxStream<'static, Result<StepEvent, EngineError>>;

/// One provider's model. An agent has its own instance.
pub trait Engine: Send + Sync + 'static {
    /// Returns the provider's id, such as `openai`.
    fn provider(&self) -> &str;

    /// Returns the model's name as the provider takes it.
    fn model(&self) -> &str;

    /// Whether the model takes pictures.
    fn accepts_images(&self) -> bool {
        false
    }

    /// Whether a language model answers. What answers by rule writes no summary.
    fn is_model(&self) -> bool {
        true
    }

    /// Returns how many tokens the model takes in one request, answer included; `None`: that is not known.
    fn context_window(&self) -> Option<u64> {
        None
    }

    /// Whether its steps can be counted in dollars, known before the first of them.
    fn pricing(&self) -> Pricing {
        Pricing::Unknown
    }

    /// Returns what so many tokens of new input and of output cost, in US dollars; 0 where that is not known.
    fn estimate(&self, input: u64, output: u64) -> f64 {
        let _ = (input, output);
        0.0
    }

    /// Starts one streamed call. Nothing happens before the stream is polled; after
    /// [`StepEvent::Finished`] or an error the stream ends.
    fn step(&self, request: StepRequest) -> StepStream;
}

/// Which engine an agent asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EngineChoice {
    /// The provider; `None` is the server's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The model; `None` is the provider's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// Makes engines.
#[async_trait]
pub trait Engines: Send + Sync + 'static {
    /// Opens an engine; may ask a local provider which models it has.
    ///
    /// # Errors
    /// [`OpenError`] when the provider is not offered here, can't be reached, or lacks the model.
    async fn open(&self, choice: &EngineChoice) -> Result<Arc<dyn Engine>, OpenError>;
}

/// An engine could not be opened; the text says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OpenError(pub String);
