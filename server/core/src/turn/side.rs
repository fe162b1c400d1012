//! A model call beside replies: nobody is shown what it writes, and it is counted like any other.

use super::driver::TurnTask;
use crate::engine::{Engine, Pricing, StepEvent, StepOutcome, StepRequest, StepUsage};
use crate::message::{ModelMessage, ModelRole, Part};
use futures_util::StreamExt;

/// How such a call ended, and what it used as far as that is known.
pub(super) enum Written {
    Whole(StepOutcome),
    Failed(Option<StepUsage>),
    Cancelled(Option<StepUsage>),
}

impl Written {
    pub(super) fn usage(&self) -> Option<StepUsage> {
        match self {
            Self::Whole(outcome) => Some(outcome.usage),
            Self::Failed(usage) | Self::Cancelled(usage) => *usage,
        }
    }
}

/// Makes a request of one text, without tools.
pub(super) fn request(system: &str, text: String) -> StepRequest {
    let asked = ModelMessage { role: ModelRole::User, parts: vec![Part::Text(text)], native: Vec::new() };
    StepRequest {
        system: system.into(),
        tools: [].into(),
        messages: vec![asked],
        effort: None,
        max_output_tokens: None,
        temperature: None,
    }
}

/// Whether people are told that the call waits before it is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits {
    Told,
    Untold,
}

/// Calls the model for an agent's task.
pub(super) async fn call(
    task: &TurnTask,
    engine: &dyn Engine,
    request: StepRequest,
    waits: Waits,
) -> Written {
    let cancel = &task.context.cancel;
    let mut stream = engine.step(request);
    let (mut told, mut begun) = (None, false);
    loop {
        let event = tokio::select! {
            biased;
            () = cancel.cancelled() => return Written::Cancelled(used(engine, told, begun)),
            event = stream.next() => event,
        };
        match event {
            Some(Ok(StepEvent::Finished(outcome))) => return Written::Whole(outcome),
            Some(Ok(StepEvent::Usage(usage))) => told = Some(usage),
            Some(Ok(StepEvent::Text(_) | StepEvent::Reasoning(_) | StepEvent::ToolStart { .. })) => {
                begun = true
            }
            Some(Ok(StepEvent::Waiting { delay, reason })) => {
                if waits == Waits::Told {
                    let text = format!("waits {:.1} s: {reason}", delay.as_secs_f32());
                    task.context.port.emit(task.waiting(text).into()).await;
                }
            }
            Some(Err(error)) => {
                tracing::warn!(model = engine.model(), %error, "a call beside a reply failed");
                return Written::Failed(used(engine, told, begun));
            }
            None => return Written::Failed(used(engine, told, begun)),
        }
    }
}

/// Returns what a call that was cut used. One that has begun to answer has used something, though nobody told what.
pub(super) fn used(engine: &dyn Engine, told: Option<StepUsage>, begun: bool) -> Option<StepUsage> {
    let cost = (engine.pricing() == Pricing::Free).then_some(0.0);
    told.or(begun.then_some(StepUsage { cost, ..StepUsage::default() }))
}
