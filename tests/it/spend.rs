//! Spending limits through the whole server: what is let in, what is refused, and what is told of it.

use std::sync::Arc;

use serde_json::{Value, json};
use tns_protocol::rest::CreateSession;
use tns_server_core::engine::{Pricing, StepUsage};
use tns_server_core::scripted::{Beat, Gate, Script, ScriptedEngines};
use tns_tests::http;
use tns_tests::socket::{of_type, text};
use tns_tests::{Setup, Socket, TestServer, session};

use crate::{call_id, say, setup, shell};

/// What each step of these engines is expected to cost, in dollars.
const ESTIMATE: f64 = 0.1;

fn cost(dollars: f64) -> Beat {
    Beat::Used(StepUsage { input: 10, output: 5, cost: Some(dollars), ..StepUsage::default() })
}

fn limited(script: &Script, daily: Option<f64>, each: Option<f64>) -> Setup {
    Setup { spend: (daily, each), ..setup(script.clone()) }
}

async fn serve(setup: &Setup, pricing: Pricing) -> (TestServer, Socket) {
    let engines = ScriptedEngines::new(setup.script.clone(), &[]).priced(pricing, ESTIMATE);
    let server = TestServer::start_engines(setup, Arc::new(engines), "scripted").await;
    let socket = server.socket().await;
    (server, socket)
}

async fn refused(socket: &mut Socket, id: &str) -> Value {
    socket.chat(id, "hi").await;
    let error = socket.expect("error").await;
    assert_eq!(error["code"], "SPEND_CAP", "{error}");
    error
}

#[tokio::test]
async fn at_the_limit_no_model_is_called_and_the_next_server_knows_it() {
    let script = Script::new().step([say("one"), cost(0.6)]).step([say("two"), cost(0.4)]);
    let setup = limited(&script, Some(1.0), None);
    let (server, mut socket) = serve(&setup, Pricing::Known).await;
    for answer in ["one", "two"] {
        socket.chat("s", "hi").await;
        assert_eq!(text(&socket.until("done").await), answer);
    }
    let error = refused(&mut socket, "s").await;
    assert!(error["seq"].is_u64() && error["message"].as_str().unwrap().contains("midnight"), "{error}");
    refused(&mut socket, "another").await;
    let report = server.rest().usage(None, None).await.unwrap();
    assert_eq!((report.total.cost, report.total.steps), (1.0, 2));
    assert_eq!((report.limits.daily, report.limits.left_today), (Some(1.0), Some(0.0)));
    drop(server);

    let (server, mut socket) = serve(&setup, Pricing::Known).await;
    refused(&mut socket, "s").await;
    assert_eq!(script.requests().len(), 2);
    server.stop().await;
}

#[tokio::test]
async fn a_limit_that_is_reached_within_a_turn_ends_it_after_what_was_said() {
    let script = Script::new().step([say("I look. "), shell("true"), cost(1.0)]).text("never");
    let (server, mut socket) = serve(&limited(&script, Some(1.0), None), Pricing::Known).await;
    socket.send("s", "set_autonomy", json!({ "level": "FULL_AUTO" })).await;
    socket.chat("s", "go").await;
    let events = socket.until("done").await;
    let done = events.last().unwrap();
    assert_eq!((text(&events).as_str(), &done["stopReason"]), ("I look. ", &json!("spend_cap")));
    assert_eq!(done["usage"], json!({ "tokens": 15, "cost": 1.0 }));
    assert_eq!(of_type(&events, "tool_result").len(), 1);
    assert_eq!(script.requests().len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn a_session_has_its_limit_and_a_budget_is_kept_with_it() {
    let step = || [say("x"), cost(0.5)];
    let script = Script::new().step(step()).step(step()).step(step());
    let setup = limited(&script, None, Some(1.0));
    let (server, mut socket) = serve(&setup, Pricing::Known).await;
    let new = CreateSession { id: Some(session("b")), budget: Some(0.5), ..CreateSession::default() };
    server.rest().create_session(new).await.unwrap();
    for id in ["b", "s", "s"] {
        socket.chat(id, "hi").await;
        socket.expect("done").await;
    }
    assert!(refused(&mut socket, "s").await["message"].as_str().unwrap().contains("another session"));
    server.stop().await;
    // Both are known to the next server, and others may still spend.
    let (server, mut socket) = serve(&setup, Pricing::Known).await;
    refused(&mut socket, "s").await;
    assert!(refused(&mut socket, "b").await["message"].as_str().unwrap().contains("--budget"));
    socket.chat("new", "hi").await;
    socket.expect("done").await;
    server.stop().await;
}

#[tokio::test]
async fn what_a_temporary_session_spent_outlives_it() {
    let script = Script::new().step([say("x"), cost(1.0)]);
    let setup = limited(&script, Some(1.0), None);
    let (server, mut socket) = serve(&setup, Pricing::Known).await;
    let new = CreateSession { id: Some(session("t")), temp: true, ..CreateSession::default() };
    server.rest().create_session(new).await.unwrap();
    socket.chat("t", "hi").await;
    socket.expect("done").await;
    refused(&mut socket, "s").await;
    server.stop().await;
    let (server, mut socket) = serve(&setup, Pricing::Known).await;
    refused(&mut socket, "s").await;
    assert_eq!(server.rest().usage(None, None).await.unwrap().total.cost, 1.0);
    server.stop().await;
}

#[tokio::test]
async fn a_budget_is_an_amount() {
    let server = crate::start(Script::new()).await;
    for budget in [-1.0, f64::MAX * 2.0] {
        let body = CreateSession { budget: Some(budget), ..CreateSession::default() };
        // What is no number is null in JSON, which is absent.
        let made = server.rest().create_session(body).await;
        assert_eq!(made.is_err(), budget < 0.0, "{budget}");
    }
    server.stop().await;
}

#[tokio::test]
async fn an_unpriced_model_is_refused_under_a_limit_and_told_of_without_one() {
    let unpriced = Beat::Used(StepUsage { input: 10, output: 5, cost: None, ..StepUsage::default() });
    let script = Script::new().step([say("x"), unpriced]);
    let (server, mut socket) = serve(&limited(&script, Some(5.0), None), Pricing::Unknown).await;
    let error = refused(&mut socket, "s").await;
    assert!(error["message"].as_str().unwrap().contains("[prices]"), "{error}");
    assert_eq!(script.requests().len(), 0);
    server.stop().await;

    let (server, mut socket) = serve(&limited(&script, None, None), Pricing::Unknown).await;
    socket.send("s", "agent_add", json!({ "role": "helper" })).await;
    let state = socket.expect("agent_state").await;
    assert!(state["detail"].as_str().unwrap().contains("no price is known"), "{state}");
    socket.chat("s", "hi").await;
    let done = socket.expect("done").await;
    assert_eq!(done["usage"], json!({ "tokens": 15, "cost": 0.0, "unpriced": true }));
    let report = server.rest().usage(None, None).await.unwrap();
    assert_eq!((report.total.cost, report.total.unpriced_steps), (0.0, 1));
    server.stop().await;
}

#[tokio::test]
async fn a_free_model_works_at_every_limit() {
    let script = Script::new().text("free");
    let (server, mut socket) = serve(&limited(&script, Some(0.0), Some(0.0)), Pricing::Free).await;
    socket.chat("s", "hi").await;
    assert_eq!(text(&socket.until("done").await), "free");
    server.stop().await;
}

/// The limit holds one and a half estimates: two steps are let in, the third waits for nobody and is refused.
#[tokio::test]
async fn sessions_side_by_side_go_over_by_no_more_than_the_last_step() {
    let gate = Gate::new();
    let step = || [Beat::Gate(gate.clone()), say("x"), cost(ESTIMATE)];
    let script = Script::new().step(step()).step(step()).step(step());
    let (server, mut socket) = serve(&limited(&script, Some(1.5 * ESTIMATE), None), Pricing::Known).await;
    for id in ["a", "b"] {
        socket.chat(id, "hi").await;
        socket.expect("agent_state").await;
    }
    // Both are with their model when the third asks.
    while script.requests().len() < 2 {
        tokio::task::yield_now().await;
    }
    refused(&mut socket, "c").await;
    gate.open();
    gate.open();
    socket.expect("done").await;
    socket.expect("done").await;
    let report = server.rest().usage(None, None).await.unwrap();
    assert_eq!((report.total.steps, report.total.cost), (2, 2.0 * ESTIMATE));
    refused(&mut socket, "c").await;
    server.stop().await;
}

#[tokio::test]
async fn a_cancelled_step_counts_as_far_as_it_was_told() {
    let unpriced = Beat::Used(StepUsage { input: 10, output: 5, cost: None, ..StepUsage::default() });
    for (told, usage) in [
        (vec![cost(0.5)], json!({ "tokens": 15, "cost": 0.5 })),
        (vec![unpriced], json!({ "tokens": 15, "cost": 0.0, "unpriced": true })),
        (vec![], json!({ "tokens": 0, "cost": 0.0, "unpriced": true })),
    ] {
        let beats = told.into_iter().chain([say("x"), Beat::Gate(Gate::new())]);
        let script = Script::new().step(beats);
        let (server, mut socket) = serve(&limited(&script, None, None), Pricing::Known).await;
        socket.chat("s", "hi").await;
        socket.expect("token").await;
        socket.send("s", "cancel", json!({})).await;
        let done = socket.expect("done").await;
        assert_eq!((&done["cancelled"], &done["usage"]), (&json!(true), &usage));
        let log = server.rest().events(&session("s"), 0).await.unwrap();
        assert_eq!(log.events.last().unwrap()["usage"], usage);
        let report = server.rest().usage(None, None).await.unwrap();
        assert_eq!((report.total.steps, report.total.cost), (1, usage["cost"].as_f64().unwrap()));
        server.stop().await;
    }
}

#[tokio::test]
async fn a_day_that_is_none_is_answered_in_one_line() {
    let server = crate::start(Script::new()).await;
    for query in
        ["day=today", "day=2026-02-30", "from=2026-01-02&to=2026-01-01", "day=2026-01-01&to=2026-01-01"]
    {
        let request = format!(
            "GET /api/usage?{query} HTTP/1.1\r\nHost: localhost:{}\r\nConnection: close\r\n\r\n",
            server.address().rsplit_once(':').unwrap().1
        );
        let answer = http::send(server.address(), request.as_bytes()).await;
        assert_eq!(answer.status, 400, "{query}: {answer:?}");
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(!message.contains('\n') && message.len() < 100, "{query}: {message}");
    }
    let days = |from: &str, to: &str| (Some(from.parse().unwrap()), Some(to.parse().unwrap()));
    let (from, to) = days("2024-01-01", "2024-12-31");
    assert_eq!(server.rest().usage(from, to).await.unwrap().total.steps, 0);
    let (from, to) = days("2024-01-01", "2025-01-01");
    assert!(server.rest().usage(from, to).await.unwrap_err().to_string().contains("at most 366 days"));
    server.stop().await;
}

#[tokio::test]
async fn a_call_that_waits_for_a_person_is_not_lost_to_a_limit() {
    let script = Script::new().step([say("I run it."), shell("true"), cost(1.0)]);
    let (server, mut socket) = serve(&limited(&script, Some(1.0), None), Pricing::Known).await;
    socket.send("s", "set_autonomy", json!({ "level": "MANUAL" })).await;
    socket.chat("s", "go").await;
    let request = socket.expect("tool_approve_request").await;
    socket.decide("s", call_id(&request), "approve").await;
    let events = socket.until("done").await;
    assert_eq!(of_type(&events, "tool_result").len(), 1);
    assert_eq!(events.last().unwrap()["stopReason"], "spend_cap");
    server.stop().await;
}
