//! The engine against a local stand-in, and refusals as the API words them.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use serde_json::{Value, json};
use tns_server_core::engine::{Pricing, StepEvent, StepStop, StepUsage};

use super::*;
use crate::origin::Key;
use crate::retry::Patience;
use crate::stand_in::{Reply, StandIn, Then};
use crate::step::fixtures::{KEY, call, engine, engine_with, quick, result, run, step, text, user};

const HI: &str = "event: message_start\n\
    data: {\"type\":\"message_start\",\"message\":{\"model\":\"claude-opus-5-5\",\"usage\":{\"input_tokens\":2}}}\n\n\
    event: content_block_start\n\
    data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n\
    event: content_block_delta\n\
    data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hi\"}}\n\n";
const STOP: &str = "event: message_delta\n\
    data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":1}}\n\n\
    event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";

fn hello() -> StepRequest {
    step(vec![user(vec![text("Hello")])])
}

#[tokio::test]
async fn a_reply_streams_and_the_key_goes_in_one_header() {
    let stand_in = StandIn::start([Reply::stream(&format!("{HI}{STOP}"))]).await;
    let engine = engine("anthropic", &stand_in.base_url(), None).await;
    assert_eq!((engine.provider(), engine.model()), ("anthropic", "claude-opus-5-5"));
    assert!(engine.accepts_images());
    let events = run(&*engine, hello()).await;
    assert_eq!(events[0], Ok(StepEvent::Text("Hi".into())));
    let Some(Ok(StepEvent::Finished(outcome))) = events.last() else { panic!("{events:?}") };
    assert_eq!((outcome.parts.as_slice(), outcome.stop), ([text("Hi")].as_slice(), StepStop::End));
    let [heard] = stand_in.heard().try_into().unwrap();
    let (head, body) = heard.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /v1/messages HTTP/1.1\r\n"), "{head}");
    for header in [
        "x-api-key: test-key-123",
        "anthropic-version: 2023-06-01",
        "anthropic-beta: thinking-binding-controls-2026-08-01",
        "content-type: application/json",
    ] {
        assert!(head.contains(header), "{header} in {head}");
    }
    assert_eq!(heard.matches(KEY).count(), 1);
    let body: Value = serde_json::from_str(body).unwrap();
    assert_eq!((&body["model"], &body["stream"]), (&json!("claude-opus-5-5"), &json!(true)));
}

#[tokio::test]
async fn what_a_broken_step_used_is_told_as_far_as_the_provider_told_it() {
    let stand_in = StandIn::start([Reply::stream(HI)]).await;
    let engine = engine("anthropic", &stand_in.base_url(), None).await;
    let events: Vec<_> = engine.step(hello()).collect().await;
    let told = events.iter().find_map(|event| match event {
        Ok(StepEvent::Usage(usage)) => Some(*usage),
        _ => None,
    });
    // 2 at $4 a million.
    assert_eq!(told, Some(StepUsage { input: 2, cost: Some(0.000_008), ..StepUsage::default() }));
    assert!(matches!(events.last(), Some(Err(error)) if error.kind == EngineErrorKind::StreamIncomplete));
}

#[tokio::test]
async fn a_whole_step_has_its_cost() {
    let stand_in = StandIn::start([Reply::stream(&format!("{HI}{STOP}"))]).await;
    let engine = engine("anthropic", &stand_in.base_url(), None).await;
    assert_eq!((engine.pricing(), engine.estimate(1_000_000, 1_000_000)), (Pricing::Known, 24.0));
    let events = run(&*engine, hello()).await;
    let Some(Ok(StepEvent::Finished(outcome))) = events.last() else { panic!("{events:?}") };
    // 2 at $4 and 1 at $20 a million.
    let usage = StepUsage { input: 2, output: 1, cost: Some(0.000_028), ..StepUsage::default() };
    assert_eq!(outcome.usage, usage);
}

#[tokio::test]
async fn thoughts_of_a_step_come_back_in_the_next_one() {
    let thought = "event: content_block_start\n\
        data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\" a\\n\",\"signature\":\"c2ln\"}}\n\n";
    let called = "event: content_block_start\n\
        data: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"echo\",\"input\":{}}}\n\n";
    let replies = [Reply::stream(&format!("{thought}{called}{STOP}")), Reply::stream(&format!("{HI}{STOP}"))];
    let stand_in = StandIn::start(replies).await;
    let engine = engine("anthropic", &stand_in.base_url(), None).await;
    let Some(Ok(StepEvent::Finished(outcome))) = run(&*engine, hello()).await.pop() else { panic!() };
    let mut turn = crate::step::fixtures::model(vec![call("t1", &json!({}))]);
    turn.native.extend(outcome.native);
    let next = step(vec![user(vec![text("Hello")]), turn, user(vec![result("t1", "x", false)])]);
    run(&*engine, next).await;
    let body = stand_in.heard()[1].split_once("\r\n\r\n").unwrap().1.to_owned();
    assert_eq!(
        serde_json::from_str::<Value>(&body).unwrap()["messages"][1]["content"],
        json!([
            {"type": "thinking", "thinking": " a\n", "signature": "c2ln"},
            {"type": "tool_use", "id": "t1", "name": "echo", "input": {}},
        ])
    );
}

#[tokio::test]
async fn silent_thoughts_are_given_their_own_time_and_no_more() {
    let thinks = "event: content_block_start\n\
        data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}\n\n";
    let brief = Duration::from_millis(50);
    let patience = Patience { silence: brief, first_token: brief * 4, thinking: brief * 8, ..quick() };
    let stand_in = StandIn::start([Reply::stream(thinks).then(Then::Hold)]).await;
    let engine = engine_with("anthropic", &stand_in.base_url(), None, patience).await;
    let begun = Instant::now();
    let events = run(&*engine, hello()).await;
    assert!(begun.elapsed() >= patience.thinking, "{:?}", begun.elapsed());
    let [Err(error)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(error.kind, EngineErrorKind::StreamIncomplete);
}

#[tokio::test]
async fn an_overloaded_provider_is_tried_again_and_one_in_the_stream_is_named() {
    let overloaded =
        "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}";
    let replies = [
        Reply::whole("529 Overloaded", overloaded),
        Reply::stream(&format!("{HI}event: error\ndata: {overloaded}\n\n")),
    ];
    let stand_in = StandIn::start(replies).await;
    let events = run(&*engine("anthropic", &stand_in.base_url(), None).await, hello()).await;
    let [Ok(StepEvent::Waiting { reason, .. }), Ok(StepEvent::Text(_)), Err(error)] = events.as_slice()
    else {
        panic!("{events:?}")
    };
    assert_eq!(reason, "anthropic is down or overloaded (HTTP 529): Overloaded");
    let message = "anthropic is down or overloaded: Overloaded".to_owned();
    assert_eq!(*error, EngineError { kind: EngineErrorKind::Unavailable, message });
}

#[test]
fn refusals_mean_what_the_api_says() {
    use EngineErrorKind::{BadKey, ContextOverflow, NoCredit, Provider, RateLimited, Unavailable};
    let endpoint = Endpoint::new(PROVIDER, "https://api.anthropic.com", Some(Key::of_test(KEY))).unwrap();
    for (status, kind_word, message, kind) in [
        (Some(401), "authentication_error", "invalid x-api-key", BadKey),
        (Some(403), "permission_error", "no access to this model", BadKey),
        (Some(402), "billing_error", "check your payment details", NoCredit),
        (Some(400), "billing_error", "x", NoCredit),
        (Some(400), "invalid_request_error", "Your credit balance is too low", NoCredit),
        (
            Some(400),
            "invalid_request_error",
            "You have reached your specified API usage limits. You will regain access on 2026-12-01",
            NoCredit,
        ),
        (
            Some(400),
            "invalid_request_error",
            "prompt is too long: 210000 tokens > 200000 maximum",
            ContextOverflow,
        ),
        (
            Some(400),
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000",
            ContextOverflow,
        ),
        (Some(413), "request_too_large", "Request exceeds the maximum size", ContextOverflow),
        (Some(400), "invalid_request_error", "`temperature` is deprecated for this model.", Provider),
        (Some(404), "not_found_error", "model: claude-x", Provider),
        (Some(429), "rate_limit_error", "slow down", RateLimited),
        (Some(500), "api_error", "Internal server error", Unavailable),
        (Some(504), "timeout_error", "Request timeout", Unavailable),
        (Some(529), "overloaded_error", "Overloaded", Unavailable),
        (None, "api_error", "Internal server error", Unavailable),
        (None, "timeout_error", "Request timeout", Unavailable),
        (None, "rate_limit_error", "slow down", RateLimited),
        (None, "authentication_error", "invalid x-api-key", BadKey),
    ] {
        let body = json!({"type": "error", "error": {"type": kind_word, "message": message}}).to_string();
        let error =
            refusal::refused(&endpoint, "m", status, &body, |status, said| Messages.kind(status, said));
        assert_eq!(error.kind, kind, "{status:?} {kind_word}: {message}");
    }
}

#[tokio::test]
async fn no_error_shows_the_key() {
    let echo = format!(
        "{{\"type\":\"error\",\"error\":{{\"type\":\"invalid_request_error\",\"message\":\"you sent {KEY}\"}}}}"
    );
    let in_stream = Reply::stream(&format!("event: error\ndata: {echo}\n\n"));
    let stand_in =
        StandIn::start([Reply::whole("400 Bad", &echo), Reply::whole("403 No", &echo), in_stream]).await;
    let engine = engine("anthropic", &stand_in.base_url(), Some("m")).await;
    for _ in 0..3 {
        let events = run(&*engine, hello()).await;
        let [Err(error)] = events.as_slice() else { panic!("{events:?}") };
        assert!(error.message.contains("***") && !format!("{error:?}").contains(KEY), "{error:?}");
    }
}
