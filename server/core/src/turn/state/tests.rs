//! Transitions of a turn: no clock, no engine, no store.

use proptest::prelude::*;
use serde_json::Map;

use super::*;
use crate::engine::{EngineErrorKind, StepUsage};

fn id(text: &str) -> ToolCallId {
    ToolCallId::parse(text).unwrap()
}

fn call(name: &str) -> ToolCall {
    ToolCall { id: id(name), provider_id: None, name: "echo".into(), args: Map::new(), problem: None }
}

fn step(text: &str, calls: &[&str]) -> StepOutcome {
    let mut parts = Vec::new();
    if !text.is_empty() {
        parts.push(Part::Text(text.into()));
    }
    parts.extend(calls.iter().map(|name| Part::ToolCall(call(name))));
    StepOutcome {
        parts,
        model: "m".into(),
        stop: if calls.is_empty() { StepStop::End } else { StepStop::ToolUse },
        usage: StepUsage { input: 10, output: 5, cost: Some(0.5), ..StepUsage::default() },
        native: None,
    }
}

fn partial(text: &str) -> Partial {
    Partial { text: text.into(), usage: None }
}

fn finished(name: &str) -> FinishedCall {
    FinishedCall { ran: true, ..not_run(&call(name), "out".into()) }
}

fn run(class: RiskClass) -> Decided {
    Decided::Run { class }
}

fn begun(rounds: u32) -> TurnState {
    let mut state = TurnState::new(rounds);
    assert_eq!(state.next(TurnInput::Begin), [TurnEffect::CallModel { tools: rounds > 1 }]);
    state
}

fn decide(state: &mut TurnState, name: &str, decided: Decided) -> Vec<TurnEffect> {
    state.next(TurnInput::Decided { call: id(name), decided })
}

fn usage(steps: u64) -> Usage {
    Usage { tokens: 15 * steps, cost: 0.5 * steps as f64, unpriced: false }
}

#[test]
fn a_plain_answer_ends_the_turn() {
    let mut state = begun(50);
    assert_eq!(
        state.next(TurnInput::StepFinished(step("hi", &[]))),
        [
            TurnEffect::StoreStep(step("hi", &[])),
            TurnEffect::End(TurnEnd::Done { usage: usage(1), stop: StopReason::End }),
        ]
    );
}

#[test]
fn a_call_is_decided_run_stored_and_the_model_is_called_again() {
    let mut state = begun(50);
    assert_eq!(
        state.next(TurnInput::StepFinished(step("", &["a"]))),
        [TurnEffect::StoreStep(step("", &["a"])), TurnEffect::Decide(call("a"))]
    );
    assert_eq!(decide(&mut state, "a", run(RiskClass::Write)), [TurnEffect::RunTool(id("a"))]);
    assert_eq!(
        state.next(TurnInput::ToolFinished(finished("a"))),
        [TurnEffect::StoreResult(finished("a")), TurnEffect::CallModel { tools: true }]
    );
}

#[test]
fn reads_run_beside_each_other_and_everything_else_in_order() {
    let mut state = begun(50);
    state.next(TurnInput::StepFinished(step("", &["a", "b", "c"])));
    assert_eq!(decide(&mut state, "b", run(RiskClass::ReadOnly)), []);
    assert_eq!(
        decide(&mut state, "a", run(RiskClass::ReadOnly)),
        [TurnEffect::RunTool(id("a")), TurnEffect::RunTool(id("b"))]
    );
    assert_eq!(decide(&mut state, "c", run(RiskClass::Write)), []);
    // `b` ends first, but results are stored in call order.
    assert_eq!(state.next(TurnInput::ToolFinished(finished("b"))), []);
    assert_eq!(
        state.next(TurnInput::ToolFinished(finished("a"))),
        [
            TurnEffect::StoreResult(finished("a")),
            TurnEffect::StoreResult(finished("b")),
            TurnEffect::RunTool(id("c")),
        ]
    );
}

#[test]
fn a_refused_call_and_one_with_broken_arguments_are_answered_without_running() {
    let mut state = begun(50);
    let mut outcome = step("", &["a", "b"]);
    let broken = ToolCall { problem: Some("the arguments are not JSON".into()), ..call("b") };
    outcome.parts[1] = Part::ToolCall(broken.clone());
    state.next(TurnInput::StepFinished(outcome));
    assert_eq!(
        decide(&mut state, "a", Decided::Refused { reason: "no".into() }),
        [
            TurnEffect::StoreResult(not_run(&call("a"), "no".into())),
            TurnEffect::StoreResult(not_run(&broken, "the arguments are not JSON".into())),
            TurnEffect::CallModel { tools: true },
        ]
    );
}

#[test]
fn the_last_allowed_call_is_made_without_tools() {
    let mut state = begun(2);
    state.next(TurnInput::StepFinished(step("", &["a"])));
    decide(&mut state, "a", run(RiskClass::ReadOnly));
    let effects = state.next(TurnInput::ToolFinished(finished("a")));
    assert_eq!(effects.last(), Some(&TurnEffect::CallModel { tools: false }));
    let mut silent = state.clone();
    assert_eq!(
        state.next(TurnInput::StepFinished(step("so far", &["b"]))),
        [
            TurnEffect::StoreStep(StepOutcome { stop: StepStop::ToolUse, ..step("so far", &[]) }),
            TurnEffect::End(TurnEnd::Done { usage: usage(2), stop: StopReason::RoundLimit }),
        ]
    );
    let effects = silent.next(TurnInput::StepFinished(step("", &["b"])));
    assert!(
        // Without a word, but its tokens count.
        matches!(
            &effects[..],
            [TurnEffect::StoreStep(_), TurnEffect::End(TurnEnd::Failed { code: ErrorCode::RoundLimit, .. })]
        ),
        "{effects:?}"
    );
}

#[test]
fn cancel_keeps_what_was_shown() {
    let mut state = begun(50);
    assert_eq!(
        state.next(TurnInput::Cancel { partial: partial("hal") }),
        [
            TurnEffect::StorePartial(partial("hal"), MessageStatus::Interrupted),
            TurnEffect::End(TurnEnd::Interrupted { usage: usage(0) })
        ]
    );
    assert_eq!(state.next(TurnInput::StepFinished(step("late", &[]))), []);
}

#[test]
fn cancel_answers_every_call_and_waits_for_those_that_run() {
    let mut state = begun(50);
    state.next(TurnInput::StepFinished(step("", &["a", "b"])));
    decide(&mut state, "a", run(RiskClass::Exec));
    assert_eq!(
        state.next(TurnInput::Cancel { partial: Partial::default() }),
        [TurnEffect::StopTool(id("a"))]
    );
    assert_eq!(decide(&mut state, "b", run(RiskClass::Exec)), []);
    assert_eq!(
        state.next(TurnInput::ToolFinished(finished("a"))),
        [
            TurnEffect::StoreResult(finished("a")),
            TurnEffect::StoreResult(not_run(&call("b"), "The user cancelled the call.".into())),
            TurnEffect::End(TurnEnd::Interrupted { usage: usage(1) }),
        ]
    );
}

#[test]
fn a_failed_step_ends_the_turn_with_the_engines_code() {
    let mut state = begun(50);
    let error = EngineError { kind: EngineErrorKind::StreamIncomplete, message: "cut".into() };
    assert_eq!(
        state.next(TurnInput::StepFailed { partial: partial("Mor"), error }),
        [
            TurnEffect::StorePartial(partial("Mor"), MessageStatus::Failed),
            TurnEffect::End(TurnEnd::Failed { code: ErrorCode::StreamIncomplete, message: "cut".into() }),
        ]
    );
}

#[test]
fn calls_over_the_limit_are_answered_with_an_error() {
    let names: Vec<String> = (0..=MAX_CALLS_PER_STEP).map(|at| format!("c{at}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut state = begun(50);
    let effects = state.next(TurnInput::StepFinished(step("", &names)));
    let decides = effects.iter().filter(|effect| matches!(effect, TurnEffect::Decide(_))).count();
    assert_eq!(decides, MAX_CALLS_AT_ONCE);
    for (at, name) in names.iter().enumerate().take(MAX_CALLS_PER_STEP) {
        let effects = decide(&mut state, name, Decided::Refused { reason: "no".into() });
        let stored = effects.iter().filter(|effect| matches!(effect, TurnEffect::StoreResult(_))).count();
        // The one over the limit is stored with the last one before it.
        assert_eq!(stored, if at + 1 == MAX_CALLS_PER_STEP { 2 } else { 1 });
    }
}

proptest! {
    /// Whatever comes in whatever order: each call gets one result, in call order, and the turn one end.
    #[test]
    fn every_order_of_inputs_gives_one_result_a_call_and_one_end(
        choices in proptest::collection::vec((0usize..6, 0usize..3, any::<bool>()), 1..60)
    ) {
        let names = ["a", "b", "c"];
        let mut state = TurnState::new(4);
        let mut effects = state.next(TurnInput::Begin);
        for (what, which, read) in choices {
            let class = if read { RiskClass::ReadOnly } else { RiskClass::Exec };
            effects.extend(match what {
                0 => state.next(TurnInput::StepFinished(step("t", &names))),
                1 => decide(&mut state, names[which], run(class)),
                2 => decide(&mut state, names[which], Decided::Refused { reason: "no".into() }),
                3 => state.next(TurnInput::ToolFinished(finished(names[which]))),
                4 => state.next(TurnInput::StepFinished(step("end", &[]))),
                _ => state.next(TurnInput::Cancel { partial: partial("p") }),
            });
        }
        let ends = effects.iter().filter(|effect| matches!(effect, TurnEffect::End(_))).count();
        prop_assert!(ends <= 1);
        if ends == 1 {
            prop_assert!(matches!(effects.last(), Some(TurnEffect::End(_))));
        }
        let stored: Vec<&str> = effects.iter().filter_map(|effect| match effect {
            TurnEffect::StoreResult(finished) => Some(finished.result.call.as_str()),
            TurnEffect::CallModel { .. }
            | TurnEffect::StoreStep(_)
            | TurnEffect::StorePartial(..)
            | TurnEffect::Decide(_)
            | TurnEffect::RunTool(_)
            | TurnEffect::StopTool(_)
            | TurnEffect::End(_) => None,
        }).collect();
        for (at, name) in stored.iter().enumerate() {
            prop_assert_eq!(*name, names[at % 3]);
        }
        if ends == 1 {
            prop_assert_eq!(stored.len() % 3, 0);
        }
    }
}

#[test]
fn a_spending_limit_before_the_first_step_is_an_error() {
    let mut state = begun(50);
    assert_eq!(
        state.next(TurnInput::SpendCap { message: "enough".into() }),
        [TurnEffect::End(TurnEnd::Failed { code: ErrorCode::SpendCap, message: "enough".into() })]
    );
}

#[test]
fn a_spending_limit_after_words_ends_the_turn_with_its_reason() {
    for (words, end) in [
        ("so far", TurnEnd::Done { usage: usage(1), stop: StopReason::SpendCap }),
        ("", TurnEnd::Failed { code: ErrorCode::SpendCap, message: "enough".into() }),
    ] {
        let mut state = begun(50);
        state.next(TurnInput::StepFinished(step(words, &["a"])));
        decide(&mut state, "a", Decided::Refused { reason: "no".into() });
        let effects = state.next(TurnInput::SpendCap { message: "enough".into() });
        assert_eq!(effects, [TurnEffect::End(end)], "{words}");
    }
}

#[test]
fn what_a_cut_step_used_is_stored_and_counted() {
    let told = StepUsage { input: 7, output: 3, cost: None, ..StepUsage::default() };
    let cut = Partial { text: String::new(), usage: Some(told) };
    let mut state = begun(50);
    let usage = Usage { tokens: 10, cost: 0.0, unpriced: true };
    assert_eq!(
        state.next(TurnInput::Cancel { partial: cut.clone() }),
        [
            TurnEffect::StorePartial(cut, MessageStatus::Interrupted),
            TurnEffect::End(TurnEnd::Interrupted { usage })
        ]
    );
}

#[test]
fn a_step_that_says_nothing_is_stored_for_what_it_used() {
    let mut state = begun(50);
    let effects = state.next(TurnInput::StepFinished(step("", &[])));
    assert_eq!(effects[0], TurnEffect::StoreStep(step("", &[])));
    let mut state = begun(50);
    let free = StepOutcome { usage: StepUsage::default(), ..step("", &[]) };
    assert!(matches!(state.next(TurnInput::StepFinished(free))[..], [TurnEffect::End(_)]));
}
