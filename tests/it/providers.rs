//! Every provider's engine behind the server, against a stand-in as strict as the provider: what the real
//! one would refuse with a 400 is a complaint there, and no test may leave one.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use tns_tests::http;
use tns_tests::socket::{of_type, text, types};
use tns_tests::standin::{BAD_KEY, BROKE_KEY, Fault, GOOD_KEY, PROVIDERS, Plan, Standin};

use crate::wired::Wired;

/// Two calls of one tool in one reply, which only ids or their order tell apart.
const TWO_CALLS: &str = r#"[[text:looking ]] [[tool:list_dir {"path":"."}]] [[tool:list_dir {"path":"./"}]]"#;

#[tokio::test]
async fn two_calls_of_one_reply_and_their_results_pass_every_providers_check() {
    for row in PROVIDERS {
        let mut bench = Wired::start(row, GOOD_KEY).await;
        let events = bench.chat(TWO_CALLS, "done").await;
        assert_eq!(text(&events), "looking done", "{}", row.0);
        let results = of_type(&events, "tool_result");
        assert_eq!((of_type(&events, "tool_start").len(), results.len()), (2, 2), "{}", row.0);
        bench.expect_reply("and now? [[text:f]][[text:ine]]", "fine").await;
        assert_eq!(bench.standin.requests().len(), 3, "{}", row.0);
        bench.end().await;
    }
}

#[tokio::test]
async fn after_a_cancel_while_a_call_runs_the_next_request_passes_every_providers_check() {
    for row in PROVIDERS {
        let mut bench = Wired::start(row, GOOD_KEY).await;
        let calls = r#"[[tool:list_dir {"path":"."}]] [[tool:shell {"command":"sleep 30"}]]"#;
        bench.chat(calls, "tool_result").await;
        bench.socket.send("s", "cancel", json!({})).await;
        assert_eq!(bench.until("done").await.last().unwrap()["cancelled"], true);
        bench.expect_reply("again [[text:fine]]", "fine").await;
        bench.expect_reply(TWO_CALLS, "looking done").await;
        bench.end().await;
    }
}

#[tokio::test]
async fn a_cancel_while_the_reply_stands_still_leaves_a_conversation_that_passes() {
    for row in PROVIDERS {
        let mut bench = Wired::start(row, GOOD_KEY).await;
        bench.chat("[[text:Mor]] [[fault:stall]]", "token").await;
        bench.socket.send("s", "cancel", json!({})).await;
        assert_eq!(bench.until("done").await.last().unwrap()["cancelled"], true);
        bench.expect_reply("again [[text:fine]]", "fine").await;
        bench.end().await;
    }
}

#[tokio::test]
async fn a_refused_key_and_an_empty_account_are_told_apart() {
    for row in PROVIDERS {
        for (key, code) in [(BAD_KEY, "BAD_KEY"), (BROKE_KEY, "NO_CREDIT")] {
            let mut bench = Wired::start(row, key).await;
            for _ in 0..2 {
                let events = bench.chat("hi", "error").await;
                assert_eq!(events.last().unwrap()["code"], code, "{}: {events:?}", row.0);
            }
            // No use in trying again.
            assert_eq!(bench.standin.requests().len(), 2, "{}", row.0);
            bench.end().await;
        }
    }
}

#[tokio::test]
async fn every_fault_has_its_code_and_the_next_chat_works() {
    for row in PROVIDERS {
        let mut bench = Wired::start(row, GOOD_KEY).await;
        // Ollama's errors are words alone, and those inside a stream have no status either.
        let overloaded = if row.0 == "ollama" { "PROVIDER_ERROR" } else { "PROVIDER_UNAVAILABLE" };
        for (fault, code, tries) in [
            ("429", "RATE_LIMITED", 3),
            ("429 retry-after=3600", "RATE_LIMITED", 1),
            ("500", "PROVIDER_UNAVAILABLE", 3),
            ("overloaded-in-stream", overloaded, 1),
        ] {
            let before = bench.standin.requests().len();
            let events = bench.chat(&format!("[[text:Mor]] [[fault:{fault}]]"), "error").await;
            assert_eq!(events.last().unwrap()["code"], code, "{} {fault}: {events:?}", row.0);
            let shown = if fault.starts_with("overloaded") { "Mor" } else { "" };
            assert_eq!(text(&events), shown, "{} {fault}", row.0);
            assert_eq!(bench.standin.requests().len() - before, tries, "{} {fault}", row.0);
            bench.expect_reply("again [[text:fine]]", "fine").await;
        }
        bench.end().await;
    }
}

#[tokio::test]
async fn a_connection_that_breaks_keeps_what_was_shown_and_runs_no_call() {
    for row in PROVIDERS {
        let mut bench = Wired::start(row, GOOD_KEY).await;
        // Within the arguments of the call: far beyond what stands before it.
        let args = json!({ "path": "a.txt", "content": "x".repeat(50_000) });
        let cut = Plan::text(&["Mor"]).call("file_write", args).fault(Fault::Cut(20_000));
        bench.standin.plan([cut]);
        let events = bench.chat("hi", "error").await;
        assert_eq!(events.last().unwrap()["code"], "STREAM_INCOMPLETE", "{}: {events:?}", row.0);
        assert_eq!(text(&events), "Mor", "{}", row.0);
        assert!(of_type(&events, "tool_start").is_empty(), "{}", row.0);
        assert!(!bench.server.workspace().join("a.txt").exists(), "{}", row.0);
        bench.expect_reply("again [[text:fine]]", "fine").await;
        bench.end().await;
    }
}

#[tokio::test]
async fn broken_arguments_never_run_and_go_back_as_an_object() {
    for row in PROVIDERS {
        let mut bench = Wired::start(row, GOOD_KEY).await;
        let broken = Plan::text(&[]).call("shell", json!({ "command": "touch ran" }));
        bench.standin.plan([broken.fault(Fault::BadArgs), Plan::text(&["sorry"])]);
        let events = bench.chat("go", "done").await;
        assert_eq!(text(&events), "sorry", "{}: {events:?}", row.0);
        assert!(!bench.server.workspace().join("ran").exists(), "{}", row.0);
        bench.expect_reply("again [[text:fine]]", "fine").await;
        bench.end().await;
    }
}

#[tokio::test]
async fn a_pause_that_a_provider_asks_for_is_kept() {
    const PAUSE: Duration = Duration::from_secs(1);
    join_all(PROVIDERS.map(async |row| {
        let mut bench = Wired::start(row, GOOD_KEY).await;
        bench.standin.plan([Plan::default().fault(Fault::RateLimited(Some(PAUSE))), Plan::text(&["fine"])]);
        let began = Instant::now();
        bench.expect_reply("hi", "fine").await;
        assert!(began.elapsed() >= PAUSE, "{}: {:?}", row.0, began.elapsed());
        assert_eq!(bench.standin.requests().len(), 2, "{}", row.0);
        bench.end().await;
    }))
    .await;
}

/// Returns what the second request of a tool turn sends back of the model's own.
async fn sent_back(provider: &str) -> (Value, Vec<Value>) {
    let row = *PROVIDERS.iter().find(|(id, _)| *id == provider).unwrap();
    let mut bench = Wired::start(row, GOOD_KEY).await;
    let events = bench.chat(TWO_CALLS, "done").await;
    assert_eq!(text(&events), "looking done");
    // Turns that are over, and a second tool turn, pass as well.
    bench.expect_reply(TWO_CALLS, "looking done").await;
    let body = bench.standin.requests()[1].body.clone();
    bench.end().await;
    (body, events)
}

#[tokio::test]
async fn thinking_blocks_go_back_byte_for_byte_and_in_place() {
    let (body, events) = sent_back("anthropic").await;
    let content = body["messages"][1]["content"].as_array().unwrap();
    let thinking = json!({ "type": "thinking", "thinking": " plan\nning  ", "signature": "c2ln0==" });
    assert_eq!(content[..2], [thinking, json!({ "type": "redacted_thinking", "data": "ZGF00==" })]);
    let kinds: Vec<&Value> = content[2..].iter().map(|block| &block["type"]).collect();
    assert_eq!(kinds, ["text", "tool_use", "tool_use"]);
    assert!(!json!(of_type(&events, "token")).to_string().contains("ning"));
}

#[tokio::test]
async fn reasoning_items_go_back_as_they_ended_before_their_calls() {
    let (body, _) = sent_back("openai").await;
    let input = body["input"].as_array().unwrap();
    let kinds: Vec<&Value> = input.iter().map(|item| &item["type"]).collect();
    let (call, output) = ("function_call", "function_call_output");
    assert_eq!(kinds, ["message", "reasoning", "message", call, call, output, output]);
    assert_eq!(input[1]["encrypted_content"], "whole  0");
}

#[tokio::test]
async fn thought_signatures_go_back_on_the_call_that_carried_them() {
    let (body, _) = sent_back("gemini").await;
    let parts = body["contents"][1]["parts"].as_array().unwrap();
    let signatures: Vec<&Value> = parts.iter().map(|part| &part["thoughtSignature"]).collect();
    assert_eq!(signatures, [&Value::Null, &json!("c2ln0=="), &Value::Null]);
}

#[tokio::test]
async fn ollamas_reasoning_goes_back_with_its_calls() {
    let (body, _) = sent_back("ollama").await;
    let messages = body["messages"].as_array().unwrap();
    let called = messages.iter().find(|message| message["role"] == "assistant").unwrap();
    assert_eq!(called["thinking"], " plan\nning 0 ");
}

/// Posts to the stand-in with every header that any of the providers wants.
async fn post(standin: &Standin, path: &str, body: &Value) -> http::Answer {
    let body = body.to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n\
        Authorization: Bearer good\r\nx-api-key: good\r\nx-goog-api-key: good\r\n\
        anthropic-version: 2023-06-01\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    http::send(standin.address(), head.as_bytes()).await
}

#[tokio::test]
async fn the_stand_in_refuses_a_call_without_a_result_on_every_wire() {
    let standin = Standin::start().await;
    let chat_call = json!({ "id": "c", "type": "function", "function": { "name": "t", "arguments": "{}" } });
    let own_call = json!({ "function": { "name": "t", "arguments": {} } });
    let user = json!({ "role": "user", "content": "hi" });
    let rows = [
        (
            "/v1/messages",
            json!({ "model": "m", "max_tokens": 1, "stream": true, "messages": [
                { "role": "user", "content": [{ "type": "text", "text": "hi" }] },
                { "role": "assistant", "content": [{ "type": "tool_use", "id": "c", "name": "t", "input": {} }] },
                { "role": "user", "content": [{ "type": "text", "text": "hi" }] } ] }),
        ),
        (
            "/v1/responses",
            json!({ "model": "m", "stream": true, "input": [
                { "type": "message", "role": "user", "content": "hi" },
                { "type": "function_call", "call_id": "c", "name": "t", "arguments": "{}" },
                { "type": "message", "role": "user", "content": "hi" } ] }),
        ),
        (
            "/v1/chat/completions",
            json!({ "model": "m", "stream": true, "messages":
                [user, { "role": "assistant", "content": null, "tool_calls": [chat_call] }, user] }),
        ),
        (
            "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
            json!({ "contents": [
                { "role": "user", "parts": [{ "text": "hi" }] },
                { "role": "model", "parts": [{ "functionCall": { "name": "t", "args": {} } }] },
                { "role": "user", "parts": [{ "text": "hi" }] } ] }),
        ),
        (
            "/api/chat",
            json!({ "model": "m", "stream": true, "messages":
                [user, { "role": "assistant", "content": "", "tool_calls": [own_call] }, user] }),
        ),
    ];
    for (path, body) in rows {
        let answer = post(&standin, path, &body).await;
        assert_eq!(answer.status, 400, "{path}: {answer:?}");
        assert!(answer.body.contains("calls") && answer.json().get("error").is_some(), "{path}: {answer:?}");
    }
    assert_eq!(standin.complaints().len(), PROVIDERS.len());
    let keyed =
        post(&standin, "/v1beta/models/gemini-2.5-pro:streamGenerateContent?key=good", &json!({})).await;
    assert!(keyed.status == 400 && keyed.body.contains("URL"), "{keyed:?}");
}

#[tokio::test]
async fn usage_of_a_tool_turn_is_the_sum_of_its_calls_on_every_wire() {
    for row in PROVIDERS {
        let mut bench = Wired::start(row, GOOD_KEY).await;
        let first = Plan::text(&["looking "]).call("list_dir", json!({ "path": "." })).usage(8, 4);
        bench.standin.plan([first, Plan::text(&["done"]).usage(20, 10)]);
        let done = bench.chat("go", "done").await.pop().unwrap();
        assert_eq!(done["usage"]["tokens"], 42, "{}: {done}", row.0);
        let unpriced = row.0 == "openai-compatible";
        assert_eq!(done["usage"]["unpriced"] == true, unpriced, "{}: {done}", row.0);
        let report = bench.server.rest().usage(None, None).await.unwrap();
        assert_eq!((report.total.steps, report.total.unpriced_steps), (2, u64::from(unpriced) * 2));
        assert_eq!((report.total.input_tokens, report.total.output_tokens), (28, 14), "{}", row.0);
        assert_eq!(report.models[0].provider, row.0);
        assert!((report.total.cost - done["usage"]["cost"].as_f64().unwrap()).abs() < 1e-9, "{}", row.0);
        assert_eq!(report.total.cost > 0.0, !["ollama", "openai-compatible"].contains(&row.0), "{}", row.0);
        bench.end().await;
    }
}

#[tokio::test]
async fn a_good_turn_has_the_usual_events_on_every_wire() {
    for row in PROVIDERS {
        let mut bench = Wired::start(row, GOOD_KEY).await;
        let events = bench.chat("hi [[text:東京]][[text: 👩‍🔬]]", "done").await;
        let events: Vec<Value> = events.into_iter().filter(|event| event["type"] != "audit_entry").collect();
        assert!(types(&events).ends_with(&["token", "agent_state", "done"]), "{}: {events:?}", row.0);
        assert_eq!(text(&events), "東京 👩‍🔬", "{}", row.0);
        let tokens = if row.0 == "anthropic" { 50 } else { 10 };
        assert_eq!(events.last().unwrap()["usage"]["tokens"], tokens, "{}", row.0);
        bench.end().await;
    }
}
