//! The loop around a model, on every wire: calls that are cut, cancelled, broken, empty or endless, and that
//! the conversation is sound afterwards. The stand-in refuses what the real provider would.

use serde_json::{Value, json};
use tns_server_core::scripted::Script;
use tns_tests::socket::{of_type, text};
use tns_tests::standin::{Fault, GOOD_KEY, PROVIDERS, Plan};

use crate::setup;
use crate::wired::Wired;

/// Most model calls of a turn in these tests.
const ROUNDS: usize = 10;

fn file(wired: &Wired, name: &str, content: &str) {
    std::fs::write(wired.server.workspace().join(name), content).unwrap();
}

#[tokio::test]
async fn a_cancel_while_the_second_call_runs_leaves_both_with_a_result() {
    for row in PROVIDERS {
        let mut wired = Wired::start(row, GOOD_KEY).await;
        file(&wired, "known-file", "x");
        let calls = Plan::text(&[]).call("list_dir", json!({ "path": "." }));
        wired.standin.plan([calls.call("shell", json!({ "command": "sleep 30" }))]);
        wired.chat("go", "tool_result").await;
        let events = wired.cancel().await;
        let results = of_type(&events, "tool_result");
        assert_eq!((results.len(), &results[0]["isError"]), (1, &json!(true)), "{}", row.0);
        wired.expect_reply("again [[text:fine]]", "fine").await;
        let sent = wired.last_request().to_string();
        assert_eq!(sent.matches("known-file").count(), 1, "{}: {sent}", row.0);
        assert_eq!(sent.matches("[cancelled; ").count(), 1, "{}: {sent}", row.0);
        wired.end().await;
    }
}

#[tokio::test]
async fn a_cancel_while_arguments_are_written_leaves_no_half_call() {
    for row in PROVIDERS {
        let mut wired = Wired::start(row, GOOD_KEY).await;
        // Still within the arguments: far beyond what stands before them.
        let args = json!({ "path": "a.txt", "content": "x".repeat(50_000) });
        let stalled = Plan::text(&["Mor"]).call("file_write", args).fault(Fault::StallAfter(20_000));
        wired.standin.plan([stalled]);
        wired.chat("go", "token").await;
        let events = wired.cancel().await;
        assert!(of_type(&events, "tool_start").is_empty(), "{}: {events:?}", row.0);
        assert!(!wired.server.workspace().join("a.txt").exists(), "{}", row.0);
        wired.expect_reply("again [[text:fine]]", "fine").await;
        assert!(!wired.last_request().to_string().contains("xxxx"), "{}", row.0);
        wired.end().await;
    }
}

#[tokio::test]
async fn a_cancel_before_the_first_word_leaves_nothing_empty() {
    for row in PROVIDERS {
        let mut wired = Wired::start(row, GOOD_KEY).await;
        wired.standin.plan([Plan::text(&["never"]).fault(Fault::StallAfter(0))]);
        wired.socket.chat("s", "go").await;
        wired.asked(1).await;
        let events = wired.cancel().await;
        assert_eq!(text(&events), "", "{}", row.0);
        wired.expect_reply("again [[text:fine]]", "fine").await;
        wired.end().await;
    }
}

#[tokio::test]
async fn a_turn_of_calls_alone_and_blank_texts_leave_no_empty_text() {
    for row in PROVIDERS {
        let mut wired = Wired::start(row, GOOD_KEY).await;
        file(&wired, "empty", "");
        for before in [&[] as &[&str], &[""], &["\n\n"], &[" ", "\n"]] {
            let call = Plan::text(before).call("file_read", json!({ "path": "empty" }));
            wired.standin.plan([call, Plan::text(&["fine"])]);
            let events = wired.chat("go", "done").await;
            assert!(text(&events).ends_with("fine"), "{} {before:?}: {events:?}", row.0);
            assert_eq!(of_type(&events, "tool_result").len(), 1, "{} {before:?}", row.0);
        }
        for reply in [&[] as &[&str], &[""], &["\n"]] {
            wired.standin.plan([Plan::text(reply)]);
            wired.chat("say nothing", "done").await;
        }
        let before = wired.standin.requests().len();
        wired.socket.chat("s", "   ").await;
        assert_eq!(wired.socket.error_code().await, "INVALID_MESSAGE", "{}", row.0);
        assert_eq!(wired.standin.requests().len(), before, "{}", row.0);
        wired.expect_reply("again [[text:fine]]", "fine").await;
        wired.end().await;
    }
}

/// Arguments that must not run, and a word of what the model is told. Where a wire carries arguments as JSON,
/// text that is none is the provider's own slip, and some of these are other text there.
fn bad_arguments() -> Vec<(String, &'static str)> {
    let deep = format!("{{\"command\":{}{}}}", "[".repeat(200), "]".repeat(200));
    vec![
        ("{\"command\": \"ls".to_owned(), "not valid JSON"),
        ("command\": \"ls\"}".to_owned(), "not valid JSON"),
        ("\"ls\"".to_owned(), "JSON"),
        ("[]".to_owned(), "no JSON object"),
        ("null".to_owned(), "JSON object|command"),
        ("{\"cmd\":\"ls\"}".to_owned(), "`cmd`"),
        ("{\"command\":5}".to_owned(), "string"),
        ("{\"command\":\"ls\n\"}".to_owned(), "not valid JSON"),
        (deep, "nested"),
    ]
}

#[tokio::test]
async fn arguments_that_are_broken_never_run_and_the_model_is_told_why() {
    for row in PROVIDERS {
        let mut wired = Wired::start(row, GOOD_KEY).await;
        // Whatever would run would be asked about first.
        wired.socket.send("s", "set_autonomy", json!({ "level": "MANUAL" })).await;
        for (raw, told) in bad_arguments() {
            let broken = Plan::text(&[]).call("shell", json!({})).raw_arguments(&raw);
            wired.standin.plan([broken, Plan::text(&["sorry"])]);
            let events = wired.chat("go", "done").await;
            assert_eq!(text(&events), "sorry", "{} {raw}: {events:?}", row.0);
            for kind in ["tool_approve_request", "tool_start", "error"] {
                assert!(of_type(&events, kind).is_empty(), "{} {raw}: {events:?}", row.0);
            }
            let is_json = serde_json::from_str::<&serde_json::value::RawValue>(&raw).is_ok();
            if row.0 != "gemini" || is_json {
                let results = results(row.0, &wired.last_request());
                let last = results.last().unwrap();
                let is_told = told.split('|').any(|told| last.contains(told));
                assert!(is_told, "{} {raw}: {last}", row.0);
            }
            wired.expect_reply("again [[text:fine]]", "fine").await;
        }
        assert_eq!(std::fs::read_dir(wired.server.workspace()).unwrap().count(), 0, "{}", row.0);
        wired.end().await;
    }
}

/// Returns the results of calls that a request holds, as text.
fn results(provider: &str, body: &Value) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let is_result = |one: &Value| match provider {
        "anthropic" => one["type"] == "tool_result",
        "openai" => one["type"] == "function_call_output",
        "gemini" => one.get("functionResponse").is_some(),
        _ => one["role"] == "tool",
    };
    let all: Vec<Value> = match provider {
        "anthropic" => list(&body["messages"]).iter().flat_map(|message| list(&message["content"])).collect(),
        "openai" => list(&body["input"]),
        "gemini" => list(&body["contents"]).iter().flat_map(|content| list(&content["parts"])).collect(),
        _ => list(&body["messages"]),
    };
    all.iter().filter(|one| is_result(one)).map(Value::to_string).collect()
}

#[tokio::test]
async fn a_model_that_repeats_its_call_is_stopped_at_the_limit_and_the_next_message_is_answered() {
    let same = |_: usize| Plan::text(&[]).call("list_dir", json!({ "path": "." }));
    let in_turn = |at: usize| match at % 2 {
        0 => same(at),
        _ => Plan::text(&[]).call("grep", json!({ "pattern": "x" })),
    };
    let failing = |_: usize| Plan::text(&[]).call("file_read", json!({ "path": "no-such-file" }));
    for row in PROVIDERS {
        let mut setup = setup(Script::new());
        setup.limits.rounds = ROUNDS as u32;
        let mut wired = Wired::start_over(&setup, row, GOOD_KEY).await;
        let kinds: [&dyn Fn(usize) -> Plan; 3] = [&same, &in_turn, &failing];
        for (at, calls) in kinds.into_iter().enumerate() {
            let before = wired.standin.requests().len();
            // The last call is made without tools; a model may heed that or not.
            let heeds = at == 0;
            wired.standin.plan((0..ROUNDS - usize::from(heeds)).map(calls));
            let (last, until) = if heeds { ("end", "done") } else { ("", "error") };
            wired.standin.plan(heeds.then(|| Plan::text(&[last])));
            let events = wired.chat("go", until).await;
            let end = events.last().unwrap();
            assert_eq!(wired.standin.requests().len() - before, ROUNDS, "{} {at}", row.0);
            assert_eq!(events[events.len() - 2]["status"], "idle", "{} {at}: {end}", row.0);
            let field =
                if heeds { (&end["stopReason"], "round_limit") } else { (&end["code"], "ROUND_LIMIT") };
            assert_eq!(field.0, field.1, "{} {at}: {end}", row.0);
            // Each message has its own rounds, and what was left open is closed.
            wired.expect_reply("again [[text:fine]]", "fine").await;
        }
        wired.end().await;
    }
}
