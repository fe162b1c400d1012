//! How streams fail and vary, on every wire and through the whole server: writes of single bytes, ends that
//! come twice or never, errors inside a stream, pauses that are asked for, usage, reasoning that goes back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tns_server_core::engine::{EngineChoice, Engines, StepEvent, StepRequest};
use tns_server_core::message::{ModelMessage, ModelRole, Part};
use tns_server_core::scripted::Script;
use tns_tests::session;
use tns_tests::socket::{of_type, text, types};
use tns_tests::standin::{Fault, GOOD_KEY, PROVIDERS, Plan, Standin};

use crate::setup;
use crate::wired::{self, Wired};

const WORDS: &str = "東京 👩\u{200d}🔬 é";
const CALL: &str = "list_dir";

fn here() -> Value {
    json!({ "path": "." })
}

/// Chats with one planned answer and returns the events up to the first of this type.
async fn planned(wired: &mut Wired, plan: Plan, until: &str) -> Vec<Value> {
    wired.standin.plan([plan]);
    wired.chat("hi", until).await
}

#[tokio::test]
async fn single_bytes_make_the_same_reply() {
    for row in PROVIDERS {
        let mut wired = Wired::start(row, GOOD_KEY).await;
        let events = planned(&mut wired, Plan::text(&[WORDS, "b"]).fault(Fault::OneByteWrites), "done").await;
        assert_eq!(text(&events), format!("{WORDS}b"), "{}", row.0);
        let call = Plan::text(&[]).call(CALL, here()).fault(Fault::OneByteWrites);
        wired.standin.plan([call, Plan::text(&["fine"])]);
        let events = wired.chat("go", "done").await;
        assert_eq!((text(&events).as_str(), of_type(&events, "tool_result").len()), ("fine", 1), "{}", row.0);
        wired.end().await;
    }
}

#[tokio::test]
async fn an_end_that_comes_twice_runs_a_call_once() {
    for row in PROVIDERS {
        let mut wired = Wired::start(row, GOOD_KEY).await;
        let twice = Plan::text(&[]).call("shell", json!({ "command": "echo ran >> ran" }));
        wired.standin.plan([twice.fault(Fault::FinishTwice), Plan::text(&["fine"])]);
        let events = wired.chat("go", "done").await;
        assert_eq!(text(&events), "fine", "{}: {events:?}", row.0);
        assert_eq!(of_type(&events, "tool_start").len(), 1, "{}", row.0);
        assert_eq!(of_type(&events, "tool_result").len(), 1, "{}", row.0);
        let ran = std::fs::read_to_string(wired.server.workspace().join("ran")).unwrap();
        assert_eq!(ran, "ran\n", "{}", row.0);
        wired.end().await;
    }
}

#[tokio::test]
async fn pieces_of_calls_without_index_or_id_are_two_calls_with_two_results() {
    let row = PROVIDERS.into_iter().find(|row| row.0 == "openai-compatible").unwrap();
    for fault in [Fault::NoIndex, Fault::NoIds] {
        let mut wired = Wired::start(row, GOOD_KEY).await;
        let calls = Plan::text(&[]).call(CALL, here()).call(CALL, json!({ "path": "./" }));
        wired.standin.plan([calls.fault(fault), Plan::text(&["fine"])]);
        let events = wired.chat("go", "done").await;
        assert_eq!(text(&events), "fine", "{fault:?}");
        let starts = of_type(&events, "tool_start");
        assert_eq!(
            (&starts[0]["args"], &starts[1]["args"]),
            (&here(), &json!({ "path": "./" })),
            "{fault:?}"
        );
        let sent = wired.last_request();
        let messages = sent["messages"].as_array().unwrap();
        let ids: Vec<&Value> = messages.iter().filter_map(|message| message.get("tool_call_id")).collect();
        assert_eq!(ids.len(), 2, "{fault:?}");
        if fault == Fault::NoIndex {
            assert_eq!(ids, ["call_0_0", "call_0_1"]);
        }
        wired.end().await;
    }
}

#[tokio::test]
async fn an_error_inside_a_stream_is_one_error_in_the_providers_words_and_nothing_is_said_again() {
    for row in PROVIDERS {
        let mut wired = Wired::start(row, GOOD_KEY).await;
        for (fault, shown) in [(Fault::OverloadedInStream, "Part"), (Fault::OverloadedAtOnce, "")] {
            let before = wired.standin.requests().len();
            let mut events = planned(&mut wired, Plan::text(&["Part"]).fault(fault), "error").await;
            let error = events.last().unwrap().clone();
            let message = error["message"].as_str().unwrap().to_lowercase();
            assert!(message.contains("overloaded"), "{} {fault:?}: {error}", row.0);
            assert_eq!(events[events.len() - 2]["status"], "idle", "{} {fault:?}", row.0);
            assert_eq!(wired.standin.requests().len(), before + 1, "{} {fault:?}", row.0);
            events.extend(planned(&mut wired, Plan::text(&["fine"]), "done").await);
            assert_eq!(text(&events), format!("{shown}fine"), "{} {fault:?}", row.0);
            // The half of an answer does not pass for a whole one: the model does not see what failed.
            assert!(!wired.last_request().to_string().contains("Part"), "{} {fault:?}", row.0);
            assert_eq!(of_type(&events, "error").len(), 1, "{} {fault:?}", row.0);
            assert_eq!(of_type(&events, "done").len(), 1, "{} {fault:?}", row.0);
        }
        wired.end().await;
    }
}

#[tokio::test]
async fn a_reply_that_breaks_off_is_kept_as_cut_and_is_no_success() {
    for row in PROVIDERS {
        let mut wired = Wired::start(row, GOOD_KEY).await;
        let events = planned(&mut wired, Plan::text(&["Mor"]).fault(Fault::CutAfterText), "error").await;
        assert_eq!(events.last().unwrap()["code"], "STREAM_INCOMPLETE", "{}: {events:?}", row.0);
        assert_eq!((text(&events).as_str(), of_type(&events, "done").len()), ("Mor", 0), "{}", row.0);
        let stored = wired.server.rest().messages(&session("s"), 0, None).await.unwrap().messages;
        assert_eq!((stored[1].content.as_str(), stored[1].failed), ("Mor", true), "{}", row.0);
        wired.expect_reply("again [[text:fine]]", "fine").await;
        wired.end().await;
    }
}

#[tokio::test]
async fn a_call_that_breaks_off_is_never_asked_about() {
    for row in PROVIDERS {
        let mut wired = Wired::start(row, GOOD_KEY).await;
        wired.socket.send("s", "set_autonomy", json!({ "level": "MANUAL" })).await;
        // Within the arguments: far beyond what stands before them.
        let args = json!({ "path": "a.txt", "content": "x".repeat(50_000) });
        let cut = Plan::text(&[]).call("file_write", args).fault(Fault::Cut(20_000));
        let events = planned(&mut wired, cut, "error").await;
        assert_eq!(events.last().unwrap()["code"], "STREAM_INCOMPLETE", "{}: {events:?}", row.0);
        for kind in ["tool_approve_request", "tool_start", "tool_result", "done"] {
            assert!(of_type(&events, kind).is_empty(), "{} {kind}", row.0);
        }
        wired.expect_reply("again [[text:fine]]", "fine").await;
        wired.end().await;
    }
}

#[tokio::test]
async fn a_reply_ends_although_its_connection_stays() {
    join_all(PROVIDERS.map(async |row| {
        let mut wired = Wired::start(row, GOOD_KEY).await;
        // Silence alone would end it much later, as an error.
        let events = planned(&mut wired, Plan::text(&["fine"]).fault(Fault::HeldOpen), "done").await;
        assert_eq!(text(&events), "fine", "{}", row.0);
        wired.expect_reply("again [[text:fine]]", "fine").await;
        wired.end().await;
    }))
    .await;
}

#[tokio::test]
async fn an_end_mark_without_a_reason_is_an_end() {
    let row = PROVIDERS.into_iter().find(|row| row.0 == "openai-compatible").unwrap();
    let mut wired = Wired::start(row, GOOD_KEY).await;
    let events = planned(&mut wired, Plan::text(&["Mor"]).fault(Fault::NoFinish), "done").await;
    assert_eq!(text(&events), "Mor");
    assert!(events.last().unwrap().get("cancelled").is_none());
    wired.end().await;
}

#[tokio::test]
async fn every_asked_pause_is_kept_and_shown() {
    const PAUSE: Duration = Duration::from_secs(1);
    join_all(PROVIDERS.map(async |row| {
        let mut wired = Wired::start(row, GOOD_KEY).await;
        let pauses = [Fault::RateLimited(Some(PAUSE)), Fault::RateLimitedUntil(PAUSE)];
        wired.standin.plan(pauses.map(|fault| Plan::default().fault(fault)));
        wired.standin.plan([Plan::text(&["fine"])]);
        let began = Instant::now();
        let events = wired.chat("hi", "done").await;
        assert!(began.elapsed() >= 2 * PAUSE, "{}: {:?}", row.0, began.elapsed());
        assert_eq!((text(&events).as_str(), wired.standin.requests().len()), ("fine", 3), "{}", row.0);
        let waits = of_type(&events, "agent_state")
            .iter()
            .filter(|state| state.to_string().contains("waits"))
            .count();
        assert_eq!(waits, 2, "{}: {events:?}", row.0);
        wired.end().await;
    }))
    .await;
}

#[tokio::test]
async fn a_refusal_that_no_pause_changes_is_not_tried_again_and_a_long_pause_is_named() {
    for row in PROVIDERS {
        let mut wired = Wired::start(row, GOOD_KEY).await;
        let events = planned(&mut wired, Plan::default().fault(Fault::Refused), "error").await;
        let message = events.last().unwrap()["message"].to_string();
        assert!(message.contains("no such parameter"), "{}: {message}", row.0);
        assert_eq!(wired.standin.requests().len(), 1, "{}", row.0);
        let hour = Fault::RateLimited(Some(Duration::from_secs(3600)));
        let events = planned(&mut wired, Plan::default().fault(hour), "error").await;
        let error = events.last().unwrap();
        assert_eq!(error["code"], "RATE_LIMITED", "{}: {error}", row.0);
        assert!(error["message"].to_string().contains("3600 s"), "{}: {error}", row.0);
        assert_eq!(wired.standin.requests().len(), 2, "{}", row.0);
        let events = planned(&mut wired, Plan::default().fault(Fault::Redirected), "error").await;
        let message = events.last().unwrap()["message"].to_string();
        assert!(message.contains("points elsewhere"), "{}: {message}", row.0);
        assert_eq!(wired.standin.requests().len(), 3, "{}", row.0);
        wired.expect_reply("again [[text:fine]]", "fine").await;
        wired.end().await;
    }
}

#[tokio::test]
async fn a_cancel_while_a_pause_is_kept_ends_it_and_no_request_follows() {
    for row in PROVIDERS {
        let mut wired = Wired::start(row, GOOD_KEY).await;
        let pause = Fault::RateLimited(Some(Duration::from_secs(25)));
        wired.standin.plan([Plan::default().fault(pause)]);
        wired.socket.chat("s", "hi").await;
        while !wired.socket.expect("agent_state").await.to_string().contains("waits") {}
        wired.cancel().await;
        assert_eq!(wired.standin.requests().len(), 1, "{}", row.0);
        wired.expect_reply("again [[text:fine]]", "fine").await;
        assert_eq!(wired.standin.requests().len(), 2, "{}", row.0);
        wired.end().await;
    }
}

#[tokio::test]
async fn tokens_of_a_turn_are_the_sum_of_its_calls_and_each_the_last_figure() {
    for row in PROVIDERS {
        let mut wired = Wired::start(row, GOOD_KEY).await;
        let running = Plan::text(&["a", "b", "c"]).usage(9, 3).fault(Fault::RunningUsage);
        let events = planned(&mut wired, running, "done").await;
        assert_eq!(events.last().unwrap()["usage"]["tokens"], 12, "{}", row.0);
        let call = Plan::text(&[]).call(CALL, here()).usage(10, 2);
        wired.standin.plan([call, Plan::text(&["fine"]).usage(20, 10)]);
        let events = wired.chat("go", "done").await;
        assert_eq!(events.last().unwrap()["usage"]["tokens"], 42, "{}", row.0);
        wired.end().await;
    }
}

#[tokio::test]
async fn another_provider_is_sent_nothing_that_one_signed() {
    let calls = Plan::text(&["looking "]).call(CALL, here());
    for (at, first) in PROVIDERS.into_iter().enumerate() {
        let setup = setup(Script::new());
        let mut wired = Wired::start_over(&setup, first, GOOD_KEY).await;
        wired.standin.plan([calls.clone(), Plan::text(&["done"])]);
        assert_eq!(text(&wired.chat("go", "done").await), "looking done", "{}", first.0);
        wired.end().await;
        // Over the same store: its stand-in never wrote what the first one signed.
        let second = PROVIDERS[(at + 1) % PROVIDERS.len()];
        let mut wired = Wired::start_over(&setup, second, GOOD_KEY).await;
        wired.expect_reply("and now? [[text:fine]]", "fine").await;
        let sent = wired.last_request().to_string();
        assert!(sent.contains("looking"), "{}: {sent}", second.0);
        for signed in ["c2ln", "ZGF0", "encrypted_content\":", "\\nning", "fc-0"] {
            assert!(!sent.contains(signed), "{} after {}: {signed} in {sent}", second.0, first.0);
        }
        wired.end().await;
    }
}

#[tokio::test]
async fn no_thought_and_no_signature_is_shown() {
    for row in PROVIDERS {
        let mut wired = Wired::start(row, GOOD_KEY).await;
        let calls = Plan::text(&["looking "]).call(CALL, here());
        wired.standin.plan([calls, Plan::text(&["done"])]);
        let events = wired.chat("go", "done").await;
        assert!(types(&events).contains(&"token"), "{}", row.0);
        let tokens = json!(of_type(&events, "token")).to_string();
        let all = json!(events).to_string();
        assert!(!tokens.contains("plan") && !tokens.contains("ning"), "{}: {tokens}", row.0);
        assert!(
            !all.contains("c2ln") && !all.contains("ZGF0") && !all.contains("whole  "),
            "{}: {all}",
            row.0
        );
        wired.end().await;
    }
}

/// Runs a step of an engine to the end of its stream.
async fn step(standin: &Standin, row: (&str, &str)) -> Vec<Result<StepEvent, String>> {
    let engines = Arc::new(wired::engines(standin, row, GOOD_KEY));
    let engine = engines.open(&EngineChoice::default()).await.unwrap();
    let hi = ModelMessage { role: ModelRole::User, parts: vec![Part::Text("hi".into())], native: Vec::new() };
    let request = StepRequest {
        system: "".into(),
        tools: Arc::from([]),
        messages: vec![hi],
        effort: None,
        max_output_tokens: None,
        temperature: None,
    };
    engine.step(request).map(|event| event.map_err(|error| error.message)).collect().await
}

#[tokio::test]
async fn whatever_goes_wrong_a_step_has_one_end_and_it_is_the_last_event() {
    let faults = [
        Fault::RateLimited(None),
        Fault::Refused,
        Fault::Redirected,
        Fault::Broken,
        Fault::OverloadedAtOnce,
        Fault::OverloadedInStream,
        Fault::Cut(300),
        Fault::CutAfterText,
        Fault::OneByteWrites,
        Fault::BadArgs,
        Fault::FinishTwice,
        Fault::NoIndex,
        Fault::NoFinish,
    ];
    for row in PROVIDERS {
        for fault in faults {
            let standin = Standin::start().await;
            let plan = Plan::text(&["a", "b"]).call(CALL, here()).fault(fault);
            standin.plan([plan.clone(), plan.clone(), plan]);
            let events = step(&standin, row).await;
            let ends = events.iter().filter(|event| matches!(event, Err(_) | Ok(StepEvent::Finished(_))));
            assert_eq!(ends.count(), 1, "{} {fault:?}: {events:?}", row.0);
            let last = events.last().unwrap();
            assert!(matches!(last, Err(_) | Ok(StepEvent::Finished(_))), "{} {fault:?}: {last:?}", row.0);
        }
    }
}
