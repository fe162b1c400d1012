//! Puts a summary in the place of the older part of a history that grows too long for its model.
//!
//! The agent's own engine writes it, in a call of its own that nobody is shown. What fails here leaves the history as
//! it was: the next turn tries again.

use super::{Driver, Outgoing};
use crate::engine::EngineErrorKind;
use crate::event::{CountedStep, DurableEvent, LiveEvent, MessageStatus};
use crate::history::{self, Keep, Past, Plan, text_of};
use crate::spend::StepToCome;
use crate::tokens::{self, CHARS_PER_TOKEN};
use crate::turn::side::{self, Waits, Written};
use crate::turn::state::{Partial, TurnInput};
use crate::usage::Money;

/// The part of a model's window that a conversation may fill, in percent.
const WINDOW_PERCENT: u64 = 80;
/// The part of the room for what is said that is kept word for word beside a summary: one in so many.
const KEPT_SHARE: u64 = 4;
/// Less than this part of the limit is not worth a summary: one in so many.
const WORTH_SHARE: u64 = 8;
/// The part of the limit that the text may have from which a summary is made: one in so many.
const TRANSCRIPT_SHARE: u64 = 2;
/// The same after the model refused a request for its length, of the length that it refused: its limit isn't known.
const REFUSED_SHARE: u64 = 8;

/// Whether history may be compacted now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Readiness {
    Ready,
    /// It was just done: not before the model has made another step.
    Done,
    /// It failed: not in this turn.
    Failed,
}

/// How an attempt ended.
enum Attempt {
    Done,
    NotDone,
    Cancelled,
}

/// Says what to do where a request stays too long.
fn advised(mut input: TurnInput) -> TurnInput {
    if let TurnInput::StepFailed { error, .. } = &mut input
        && error.kind == EngineErrorKind::ContextOverflow
    {
        let message = error.message.trim_end_matches('.');
        error.message = format!("{message}; begin a new session, or choose a model that takes more");
    }
    input
}

impl Driver {
    /// Calls the model; makes room before that where the history is long, and after it where the model says so.
    pub(super) async fn call_model(&mut self, tools: bool) -> TurnInput {
        let limit = self.limit();
        let mut request = self.request(tools);
        let mut length = tokens::of_request(&request);
        let said = tokens::of_messages(&request.messages);
        // Where what is said is little of it, a summary would not help.
        if length > limit && said > limit / WORTH_SHARE {
            let room = limit.saturating_sub(length - said);
            let keep = Keep::Tokens(room / KEPT_SHARE);
            let chars = limit * CHARS_PER_TOKEN / TRANSCRIPT_SHARE;
            match self.compact(keep, chars).await {
                Attempt::Done => {
                    request = self.request(tools);
                    length = tokens::of_request(&request);
                    if length > limit {
                        // Once more would not help either.
                        self.readiness = Readiness::Failed;
                    }
                }
                Attempt::NotDone => {}
                Attempt::Cancelled => return TurnInput::Cancel { partial: Partial::default() },
            }
        }
        let input = self.step(request).await;
        let overflowed = matches!(&input, TurnInput::StepFailed { partial, error }
            if error.kind == EngineErrorKind::ContextOverflow && partial.is_empty());
        if !overflowed {
            if matches!(input, TurnInput::StepFinished(_)) && self.readiness == Readiness::Done {
                self.readiness = Readiness::Ready;
            }
            return input;
        }
        let chars = length.min(limit) * CHARS_PER_TOKEN / REFUSED_SHARE;
        match self.compact(Keep::Least, chars).await {
            Attempt::Done => advised(self.step(self.request(tools)).await),
            Attempt::NotDone => advised(input),
            Attempt::Cancelled => TurnInput::Cancel { partial: Partial::default() },
        }
    }

    /// Summarises as much as may be, because somebody asked for it.
    pub(super) async fn compact_now(&mut self) {
        let length = tokens::of_request(&self.request(true));
        let chars = length.min(self.limit()) * CHARS_PER_TOKEN / TRANSCRIPT_SHARE;
        if let Attempt::NotDone = self.compact(Keep::Least, chars).await
            && self.readiness == Readiness::Ready
        {
            let text = if self.engine.is_model() {
                "there is nothing to summarise yet"
            } else {
                "no model is set up, so nothing is summarised"
            };
            self.notice(text.to_owned()).await;
        }
    }

    /// Returns how many tokens a request may have before it is made shorter.
    fn limit(&self) -> u64 {
        let window = self.engine.context_window().map(|window| window / 100 * WINDOW_PERCENT);
        let limit = self.task.deps.limits.compact_at;
        window.map_or(limit, |window| window.min(limit))
    }

    async fn compact(&mut self, keep: Keep, max_chars: u64) -> Attempt {
        if self.readiness != Readiness::Ready || !self.engine.is_model() {
            return Attempt::NotDone;
        }
        // What was reported is in the log when this is answered.
        if !self.task.context.port.commit(Vec::new()).await {
            return if self.task.context.cancel.is_cancelled() {
                Attempt::Cancelled
            } else {
                Attempt::NotDone
            };
        }
        let agent = self.task.agent.clone();
        let store = self.task.deps.store.clone();
        let past = match Past::load(store.as_ref(), self.task.identity.key, &agent.id, None).await {
            Ok(mut past) => {
                let turn = self.task.message.as_ref().map(|message| &message.id);
                past.as_of(self.task.head_seq, turn);
                past
            }
            Err(error) => {
                tracing::warn!(session = %self.task.identity.id, %error, "the history can't be read again");
                return Attempt::NotDone;
            }
        };
        let max_chars = usize::try_from(max_chars).unwrap_or(usize::MAX);
        let Some(plan) = Plan::of(&past, &agent, &self.task.team, keep, max_chars) else {
            return Attempt::NotDone;
        };
        let attempt = self.replace(&past, &plan).await;
        self.readiness = match attempt {
            Attempt::Done => Readiness::Done,
            Attempt::NotDone | Attempt::Cancelled => Readiness::Failed,
        };
        attempt
    }

    /// Has the summary written and stored, and goes on with it.
    async fn replace(&mut self, past: &Past, plan: &Plan) -> Attempt {
        let text = format!("<transcript>\n{}</transcript>\n\nWrite the summary.", plan.transcript);
        let request = side::request(history::SYSTEM, text);
        let step = StepToCome { engine: self.engine.as_ref(), request: &request, session: self.spend };
        let hold = match self.task.deps.ledger.admit(step) {
            Ok(hold) => hold,
            Err(refusal) => {
                // The reply's own call says so.
                if self.task.message.is_none() {
                    self.notice(refusal.to_string()).await;
                }
                return Attempt::NotDone;
            }
        };
        let mut events = vec![self.task.thinking("summarises the conversation".to_owned())];
        self.report(&mut events).await;
        let written = side::call(&self.task, self.engine.as_ref(), request, Waits::Told).await;
        let usage = written.usage();
        if let Some(usage) = &usage {
            self.counted_on = Some(hold.settle(usage));
            self.spend.spent = self.spend.spent.plus(Money::of_step(usage));
            self.used.push(*usage);
        }
        let (attempt, outcome) = match written {
            Written::Whole(outcome) => (Attempt::NotDone, Some(outcome)),
            Written::Failed(_) => (Attempt::NotDone, None),
            Written::Cancelled(_) => (Attempt::Cancelled, None),
        };
        let mut why = if outcome.is_some() { "the model gave none" } else { "the model could not be asked" };
        let summary = outcome.as_ref().and_then(|outcome| history::summary(&text_of(&outcome.parts)));
        if let (Some(outcome), Some(summary)) = (outcome, summary) {
            let (agent, team) = (&self.task.agent, &self.task.team);
            let seen = plan.seen(past, agent, team, &summary, self.task.asked(&self.notes));
            let before = tokens::of_request(&self.request(true));
            let whole = std::mem::replace(&mut self.conversation, seen);
            let after = tokens::of_request(&self.request(true));
            if after < before {
                let step = CountedStep {
                    provider: self.engine.provider().to_owned(),
                    model: outcome.model,
                    usage: outcome.usage,
                    counted_on: self.counted_on,
                };
                let compacted = plan.compacted(&agent.id, summary, (before, after), step);
                let event = Outgoing::durable(DurableEvent::Compacted(compacted));
                if self.task.context.port.commit(vec![event]).await {
                    return Attempt::Done;
                }
            }
            why = "it was no shorter than what it stands for";
            self.conversation = whole;
            tracing::info!(session = %self.task.identity.id, before, after, "a summary is not used");
        }
        if let Some(usage) = usage {
            // Nothing was said, but something was used.
            let model = self.engine.model().to_owned();
            let event = self.assistant_message(Vec::new(), model, None, MessageStatus::Failed, Some(usage));
            self.report(&mut vec![event]).await;
        }
        if self.task.context.cancel.is_cancelled() {
            return Attempt::Cancelled;
        }
        if matches!(attempt, Attempt::NotDone) {
            self.notice(format!("no summary of the conversation: {why}; it goes on as it is")).await;
        }
        attempt
    }

    async fn notice(&self, text: String) {
        let agent = self.task.agent.id.clone();
        self.report(&mut vec![Outgoing::Live(LiveEvent::Notice { agent, text })]).await;
    }
}
