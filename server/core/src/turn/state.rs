//! The turn as a state machine. Pure: no clock, no IO, no async. An input goes in, effects come out.
#![warn(clippy::wildcard_enum_match_arm)]

use std::collections::VecDeque;

use tns_protocol::ErrorCode;
use tns_protocol::ToolCallId;
use tns_protocol::approval::RiskClass;
use tns_protocol::chat::{StopReason, Usage};

use super::calls::CANCELLED;
use crate::engine::{EngineError, StepOutcome, StepStop, StepUsage};
use crate::event::MessageStatus;
use crate::message::{Part, ToolCall, ToolResult};

/// Most tool calls of one step; the rest are answered with an error.
pub const MAX_CALLS_PER_STEP: usize = 64;
/// Most calls of one step that are checked or wait for a person at the same time; since one turn of a session
/// runs at a time, also of the session.
pub const MAX_CALLS_AT_ONCE: usize = 32;

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum TurnInput {
    /// The user's message is known; begin.
    Begin,
    /// A model call ended.
    StepFinished(StepOutcome),
    /// A model call failed.
    StepFailed {
        /// What was left of it.
        partial: Partial,
        /// Why.
        error: EngineError,
    },
    /// A model call beside the reply, such as one for a summary, used this.
    Used(StepUsage),
    /// A spending limit is reached: the model was not called.
    SpendCap {
        /// One line for people.
        message: String,
    },
    /// A call was decided.
    Decided {
        /// Which.
        call: ToolCallId,
        /// How.
        decided: Decided,
    },
    /// A call ended.
    ToolFinished(FinishedCall),
    /// The turn was cancelled.
    Cancel {
        /// What was left of the running model call.
        partial: Partial,
    },
}

/// What is left of a model call that was cut.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Partial {
    /// What was shown.
    pub text: String,
    /// What it used, as far as its provider had told; without a cost where nothing was told of it.
    pub usage: Option<StepUsage>,
}

impl Partial {
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.usage.is_none()
    }
}

/// How a call was decided.
#[derive(Debug, Clone, PartialEq)]
pub enum Decided {
    /// It may run.
    Run {
        /// The class of its worst part.
        class: RiskClass,
    },
    /// It must not; the model reads why.
    Refused {
        /// Why.
        reason: String,
    },
}

/// A call that ended, or was refused.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedCall {
    /// What the model reads.
    pub result: ToolResult,
    /// It ran.
    pub ran: bool,
    /// How long, in milliseconds.
    pub duration_ms: u64,
    /// The output was longer than the limit and is cut.
    pub truncated: bool,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum TurnEffect {
    /// Call the model, with tools or without.
    CallModel {
        /// Offer tools.
        tools: bool,
    },
    /// Store a step and show it to the model from now on.
    StoreStep(StepOutcome),
    /// Store what is left of a step that was cut, and how it was.
    StorePartial(Partial, MessageStatus),
    /// Find out whether a call may run.
    Decide(ToolCall),
    /// Run a call.
    RunTool(ToolCallId),
    /// Stop a running call and report it as finished.
    StopTool(ToolCallId),
    /// Store a call's result and show it to the model from now on. Comes in call order.
    StoreResult(FinishedCall),
    /// The turn is over; always the last effect of a turn.
    End(TurnEnd),
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq)]
pub enum TurnEnd {
    /// Well.
    Done {
        /// What it used.
        usage: Usage,
        /// Why the reply ended.
        stop: StopReason,
    },
    /// By a cancel.
    Interrupted {
        /// What it used.
        usage: Usage,
    },
    /// By a failure.
    Failed {
        /// What kind.
        code: ErrorCode,
        /// One line for people.
        message: String,
    },
}

/// Where a call of the running step stands.
#[derive(Debug, Clone, PartialEq)]
enum Phase {
    Waiting,
    Deciding,
    Ready { class: RiskClass },
    Running { class: RiskClass },
    Finished(FinishedCall),
}

#[derive(Debug, Clone, PartialEq)]
struct Slot {
    call: ToolCall,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// A model call runs, with tools or without.
    Model {
        tools: bool,
    },
    /// Calls of a step are decided and run.
    Tools,
    /// The turn was cancelled; running calls are being stopped.
    Stopping,
    Ended,
}

/// The state of one turn.
#[derive(Debug, Clone)]
pub struct TurnState {
    rounds: u32,
    used: u32,
    usage: Usage,
    /// Something was said, so the turn has an answer of a kind.
    has_text: bool,
    mode: Mode,
    slots: VecDeque<Slot>,
}

impl TurnState {
    /// Makes the state of a turn that may call the model `rounds` times; at least once.
    pub fn new(rounds: u32) -> Self {
        Self {
            rounds: rounds.max(1),
            used: 0,
            usage: Usage::default(),
            has_text: false,
            mode: Mode::Ended,
            slots: VecDeque::new(),
        }
    }

    /// Takes an input and returns what is to be done, in order. Inputs that come too late do nothing.
    pub fn next(&mut self, input: TurnInput) -> Vec<TurnEffect> {
        let mut effects = Vec::new();
        match input {
            TurnInput::Begin => self.call_model(&mut effects),
            TurnInput::StepFinished(outcome) => self.step_finished(outcome, &mut effects),
            TurnInput::StepFailed { partial, error } => self.step_failed(partial, error, &mut effects),
            TurnInput::Used(usage) => self.count(&usage),
            TurnInput::SpendCap { message } => self.spend_cap(message, &mut effects),
            TurnInput::Decided { call, decided } => self.decided(&call, decided, &mut effects),
            TurnInput::ToolFinished(finished) => self.tool_finished(finished, &mut effects),
            TurnInput::Cancel { partial } => self.cancel(partial, &mut effects),
        }
        effects
    }

    fn call_model(&mut self, effects: &mut Vec<TurnEffect>) {
        self.used += 1;
        let tools = self.used < self.rounds;
        self.mode = Mode::Model { tools };
        effects.push(TurnEffect::CallModel { tools });
    }

    fn step_finished(&mut self, mut outcome: StepOutcome, effects: &mut Vec<TurnEffect>) {
        let Mode::Model { tools } = self.mode else { return };
        self.count(&outcome.usage);
        if !tools {
            // Nothing was on offer: a call all the same has no tool, and must not stay without a result.
            let before = outcome.parts.len();
            outcome.parts.retain(|part| !matches!(part, Part::ToolCall(_)));
            if outcome.parts.len() < before {
                outcome.native = None;
            }
        }
        let calls: Vec<ToolCall> = outcome
            .parts
            .iter()
            .filter_map(|part| match part {
                Part::ToolCall(call) => Some(call.clone()),
                Part::Text(_) | Part::Image(_) | Part::ToolResult(_) | Part::Note(_) => None,
            })
            .collect();
        let stop = outcome.stop;
        let has_text = outcome.parts.iter().any(|part| matches!(part, Part::Text(_)));
        self.has_text |= has_text;
        // What was used is kept with the step, though it said nothing.
        if !outcome.parts.is_empty() || outcome.usage.input > 0 || outcome.usage.output > 0 {
            effects.push(TurnEffect::StoreStep(outcome));
        }
        if !calls.is_empty() {
            self.mode = Mode::Tools;
            self.slots = calls.into_iter().enumerate().map(|(at, call)| Slot::new(at, call)).collect();
            return self.advance(effects);
        }
        let end = if tools || self.rounds == 1 {
            TurnEnd::Done { usage: self.usage, stop: stop_reason(stop) }
        } else if has_text {
            TurnEnd::Done { usage: self.usage, stop: StopReason::RoundLimit }
        } else {
            let message =
                format!("the turn used all its {} model calls without an answer; ask again", self.rounds);
            TurnEnd::Failed { code: ErrorCode::RoundLimit, message }
        };
        self.end(end, effects);
    }

    fn count(&mut self, step: &StepUsage) {
        // A provider may count anything.
        let tokens = step.input.saturating_add(step.output);
        self.usage.tokens = self.usage.tokens.saturating_add(tokens);
        self.usage.cost += step.cost.unwrap_or_default();
        self.usage.unpriced |= step.cost.is_none();
    }

    fn cut(&mut self, partial: Partial, status: MessageStatus, effects: &mut Vec<TurnEffect>) {
        if let Some(usage) = &partial.usage {
            self.count(usage);
        }
        if !partial.is_empty() {
            effects.push(TurnEffect::StorePartial(partial, status));
        }
    }

    fn spend_cap(&mut self, message: String, effects: &mut Vec<TurnEffect>) {
        let Mode::Model { .. } = self.mode else { return };
        let end = if self.has_text {
            TurnEnd::Done { usage: self.usage, stop: StopReason::SpendCap }
        } else {
            TurnEnd::Failed { code: ErrorCode::SpendCap, message }
        };
        self.end(end, effects);
    }

    fn step_failed(&mut self, partial: Partial, error: EngineError, effects: &mut Vec<TurnEffect>) {
        let Mode::Model { .. } = self.mode else { return };
        self.cut(partial, MessageStatus::Failed, effects);
        self.end(TurnEnd::Failed { code: error.kind.code(), message: error.message }, effects);
    }

    fn decided(&mut self, call: &ToolCallId, decided: Decided, effects: &mut Vec<TurnEffect>) {
        let Some(slot) = self.slots.iter_mut().find(|slot| slot.call.id == *call) else { return };
        if slot.phase != Phase::Deciding {
            return;
        }
        slot.phase = match decided {
            Decided::Run { class } => Phase::Ready { class },
            Decided::Refused { reason } => Phase::Finished(not_run(&slot.call, reason)),
        };
        self.advance(effects);
    }

    fn tool_finished(&mut self, finished: FinishedCall, effects: &mut Vec<TurnEffect>) {
        let Some(slot) = self.slots.iter_mut().find(|slot| slot.call.id == finished.result.call) else {
            return;
        };
        if !matches!(slot.phase, Phase::Running { .. }) {
            return;
        }
        slot.phase = Phase::Finished(finished);
        self.advance(effects);
    }

    fn cancel(&mut self, partial: Partial, effects: &mut Vec<TurnEffect>) {
        match self.mode {
            Mode::Ended | Mode::Stopping => return,
            Mode::Model { .. } => self.cut(partial, MessageStatus::Interrupted, effects),
            Mode::Tools => {}
        }
        self.mode = Mode::Stopping;
        for slot in &mut self.slots {
            match slot.phase {
                Phase::Waiting | Phase::Deciding | Phase::Ready { .. } => {
                    slot.phase = Phase::Finished(not_run(&slot.call, CANCELLED.to_owned()));
                }
                Phase::Running { .. } => effects.push(TurnEffect::StopTool(slot.call.id.clone())),
                Phase::Finished(_) => {}
            }
        }
        self.advance(effects);
    }

    /// Stores what is finished, in call order; then goes on: more calls, the next model call, or the end.
    fn advance(&mut self, effects: &mut Vec<TurnEffect>) {
        while let Some(Slot { phase: Phase::Finished(finished), .. }) = self.slots.front() {
            effects.push(TurnEffect::StoreResult(finished.clone()));
            self.slots.pop_front();
        }
        match self.mode {
            Mode::Stopping if self.slots.is_empty() => {
                self.end(TurnEnd::Interrupted { usage: self.usage }, effects);
            }
            Mode::Tools if self.slots.is_empty() => self.call_model(effects),
            Mode::Tools => self.start_calls(effects),
            Mode::Stopping | Mode::Model { .. } | Mode::Ended => {}
        }
    }

    fn start_calls(&mut self, effects: &mut Vec<TurnEffect>) {
        let deciding = |slot: &&Slot| matches!(slot.phase, Phase::Deciding);
        let mut room = MAX_CALLS_AT_ONCE.saturating_sub(self.slots.iter().filter(deciding).count());
        for slot in &mut self.slots {
            if slot.phase == Phase::Waiting && room > 0 {
                room -= 1;
                slot.phase = Phase::Deciding;
                effects.push(TurnEffect::Decide(slot.call.clone()));
            }
        }
        // In call order; only calls that change nothing run beside each other.
        let mut only_reads_before = true;
        for (at, slot) in self.slots.iter_mut().enumerate() {
            match slot.phase {
                Phase::Ready { class } => {
                    if at > 0 && !(only_reads_before && class == RiskClass::ReadOnly) {
                        break;
                    }
                    slot.phase = Phase::Running { class };
                    effects.push(TurnEffect::RunTool(slot.call.id.clone()));
                    only_reads_before &= class == RiskClass::ReadOnly;
                }
                Phase::Running { class } => only_reads_before &= class == RiskClass::ReadOnly,
                Phase::Finished(_) => {}
                Phase::Waiting | Phase::Deciding => break,
            }
        }
    }

    fn end(&mut self, end: TurnEnd, effects: &mut Vec<TurnEffect>) {
        self.mode = Mode::Ended;
        effects.push(TurnEffect::End(end));
    }
}

impl Slot {
    fn new(at: usize, call: ToolCall) -> Self {
        let problem = if at >= MAX_CALLS_PER_STEP {
            Some(format!(
                "Too many calls in one step: the limit is {MAX_CALLS_PER_STEP}. Call again with fewer."
            ))
        } else {
            call.problem.clone()
        };
        let phase = problem.map_or(Phase::Waiting, |problem| Phase::Finished(not_run(&call, problem)));
        Self { call, phase }
    }
}

/// Returns the result of a call that did not run.
pub(crate) fn not_run(call: &ToolCall, reason: String) -> FinishedCall {
    FinishedCall {
        result: ToolResult {
            call: call.id.clone(),
            provider_id: call.provider_id.clone(),
            name: call.name.clone(),
            output: reason,
            is_error: true,
            untrusted_source: None,
        },
        ran: false,
        duration_ms: 0,
        truncated: false,
    }
}

fn stop_reason(stop: StepStop) -> StopReason {
    match stop {
        StepStop::End | StepStop::ToolUse => StopReason::End,
        StepStop::MaxTokens => StopReason::MaxTokens,
        StepStop::Refusal => StopReason::Refusal,
    }
}

#[cfg(test)]
mod tests;
