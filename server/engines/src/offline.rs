//! The engine without a model: quotes what fits from the knowledge base and from named files, and runs
//! a tool when asked in a fixed form. Its answer is a pure function of the request; it never pretends
//! to be a language model, and never reaches for a network.

use std::sync::Arc;

use futures_util::{FutureExt, StreamExt, stream};
use serde_json::{Map, Value};
use tns_server_core::engine::{
    Engine, EngineError, EngineErrorKind, OpenError, Pricing, StepEvent, StepOutcome, StepRequest, StepStop,
    StepStream, StepUsage,
};
use tns_server_core::message::{Part, ToolCall};

use crate::call_id::new_call_id;
use crate::provider::{Opened, Opening};

mod answer;
mod intent;
mod quote;
mod turn;

/// The provider's id.
pub(crate) const PROVIDER: &str = "offline";
/// Its only model.
pub(crate) const MODEL: &str = "offline";

/// What the engine does in a step.
#[derive(Debug, Clone, PartialEq)]
enum Answer {
    Say(String),
    Call { tool: &'static str, args: Map<String, Value> },
}

#[derive(Debug)]
struct Offline;

pub(crate) fn open(opening: Opening) -> Opened {
    let opened: Result<Arc<dyn Engine>, OpenError> = match opening.model.as_deref() {
        None | Some(MODEL) => Ok(Arc::new(Offline)),
        Some(model) => Err(OpenError(format!(
            "no model is set up, so there is no {}: start Ollama, or set a provider's key such as OPENAI_API_KEY",
            crate::http::one_line(model, 64)
        ))),
    };
    async move { opened }.boxed()
}

impl Engine for Offline {
    fn provider(&self) -> &str {
        PROVIDER
    }

    fn model(&self) -> &str {
        MODEL
    }

    fn is_model(&self) -> bool {
        false
    }

    fn pricing(&self) -> Pricing {
        Pricing::Free
    }

    fn step(&self, request: StepRequest) -> StepStream {
        stream::once(async move { stream::iter(events(answer::answer(&request))) }).flatten().boxed()
    }
}

/// Returns an answer as a model's stream would bring it.
fn events(answer: Answer) -> Vec<Result<StepEvent, EngineError>> {
    let mut events = Vec::new();
    let (parts, stop) = match answer {
        Answer::Say(text) => {
            events.extend(words(&text).map(|word| Ok(StepEvent::Text(word.to_owned()))));
            (vec![Part::Text(text)], StepStop::End)
        }
        Answer::Call { tool, args } => match new_call_id() {
            Ok(id) => {
                events.push(Ok(StepEvent::ToolStart { name: tool.to_owned() }));
                let call = ToolCall { id, provider_id: None, name: tool.to_owned(), args, problem: None };
                (vec![Part::ToolCall(call)], StepStop::ToolUse)
            }
            Err(error) => {
                return vec![Err(EngineError {
                    kind: EngineErrorKind::Provider,
                    message: error.to_string(),
                })];
            }
        },
    };
    let usage = StepUsage { cost: Some(0.0), ..StepUsage::default() };
    events.push(Ok(StepEvent::Finished(StepOutcome {
        parts,
        model: MODEL.to_owned(),
        stop,
        usage,
        native: None,
    })));
    events
}

/// Cuts text after each run of white space, so that the pieces make up the text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let word = rest.trim_start();
        if rest.is_empty() {
            return None;
        }
        let lead = rest.len() - word.len();
        let end = word.find(char::is_whitespace).unwrap_or(word.len());
        let gap = word[end..].len() - word[end..].trim_start().len();
        let (piece, after) = rest.split_at(lead + end + gap);
        rest = after;
        Some(piece)
    })
}

#[cfg(test)]
mod tests;
