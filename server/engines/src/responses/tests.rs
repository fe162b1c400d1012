//! The engine against a local stand-in, and refusals as the API words them.

use serde_json::{Value, json};
use tns_server_core::engine::{EngineErrorKind, StepEvent, StepStop};

use super::*;
use crate::http::Endpoint;
use crate::origin::Key;
use crate::refusal;
use crate::stand_in::{Reply, StandIn};
use crate::step::fixtures::{KEY, call, engine, model, result, run, step, text, user};

const HI: &str = "data: {\"type\":\"response.output_text.delta\",\"output_index\":0,\"delta\":\"Hi\"}\n\n";
const STOP: &str = "data: {\"type\":\"response.completed\",\"response\":{\"model\":\"gpt-6.2-sol\",\
    \"usage\":{\"input_tokens\":2,\"output_tokens\":1}}}\n\n";

fn hello() -> StepRequest {
    step(vec![user(vec![text("Hello")])])
}

fn body(heard: &str) -> Value {
    serde_json::from_str(heard.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[tokio::test]
async fn a_reply_streams_and_the_key_goes_in_one_header() {
    let stand_in = StandIn::start([Reply::stream(&format!("{HI}{STOP}"))]).await;
    let engine = engine("openai", &stand_in.base_url(), None).await;
    assert_eq!((engine.provider(), engine.model()), ("openai", "gpt-6.2-sol"));
    assert!(engine.accepts_images());
    let events = run(&*engine, hello()).await;
    assert_eq!(events[0], Ok(StepEvent::Text("Hi".into())));
    let Some(Ok(StepEvent::Finished(outcome))) = events.last() else { panic!("{events:?}") };
    assert_eq!((outcome.parts.as_slice(), outcome.stop), ([text("Hi")].as_slice(), StepStop::End));
    let [heard] = stand_in.heard().try_into().unwrap();
    let head = heard.split_once("\r\n\r\n").unwrap().0;
    assert!(head.starts_with("POST /v1/responses HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("authorization: Bearer test-key-123"), "{head}");
    assert_eq!(heard.matches(KEY).count(), 1);
    let body = body(&heard);
    assert_eq!((&body["model"], &body["store"]), (&json!("gpt-6.2-sol"), &json!(false)));
}

#[tokio::test]
async fn reasoning_of_a_step_comes_back_in_the_next_one() {
    let item = |at: u32, item: &Value| {
        let done = json!({"type": "response.output_item.done", "output_index": at, "item": item});
        format!("data: {done}\n\n")
    };
    let reasoning = json!({"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAA=="});
    let called =
        json!({"id": "fc_1", "type": "function_call", "call_id": "c1", "name": "echo", "arguments": "{}"});
    let first = item(0, &reasoning) + &item(1, &called) + STOP;
    let stand_in = StandIn::start([Reply::stream(&first), Reply::stream(&format!("{HI}{STOP}"))]).await;
    let engine = engine("openai", &stand_in.base_url(), None).await;
    let Some(Ok(StepEvent::Finished(outcome))) = run(&*engine, hello()).await.pop() else { panic!() };
    let mut turn = model(vec![call("c1", &json!({}))]);
    turn.native.extend(outcome.native);
    run(&*engine, step(vec![user(vec![text("Hello")]), turn, user(vec![result("c1", "x", false)])])).await;
    assert_eq!(body(&stand_in.heard()[1])["input"].as_array().unwrap()[1..3], [reasoning, called]);
}

#[tokio::test]
async fn an_error_in_the_stream_is_named_and_not_tried_again() {
    let failed = "data: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"server_error\",\"message\":\"Broken\"}}}\n\n";
    let stand_in = StandIn::start([Reply::stream(&format!("{HI}{failed}"))]).await;
    let events = run(&*engine("openai", &stand_in.base_url(), None).await, hello()).await;
    let message = "openai is down or overloaded: Broken".to_owned();
    let error = EngineError { kind: EngineErrorKind::Unavailable, message };
    assert_eq!(events, [Ok(StepEvent::Text("Hi".into())), Err(error)]);
    assert_eq!(stand_in.heard().len(), 1);
}

#[test]
fn refusals_mean_what_the_api_says() {
    use EngineErrorKind::{BadKey, ContextOverflow, NoCredit, Provider, RateLimited, Unavailable};
    let endpoint = Endpoint::new(PROVIDER, "https://api.openai.com/v1", Some(Key::of_test(KEY))).unwrap();
    let answer = |kind_word: &str, code: &str| {
        json!({"error": {"message": "x", "type": kind_word, "param": null, "code": code}}).to_string()
    };
    let in_stream =
        |code: &str| json!({"type": "error", "code": code, "message": "x", "param": null}).to_string();
    for (status, body, kind) in [
        (Some(401), answer("invalid_request_error", "invalid_api_key"), BadKey),
        (Some(403), answer("request_forbidden", "unsupported_country_region_territory"), BadKey),
        (Some(429), answer("insufficient_quota", "insufficient_quota"), NoCredit),
        (Some(429), answer("requests", "rate_limit_exceeded"), RateLimited),
        (Some(400), answer("invalid_request_error", "context_length_exceeded"), ContextOverflow),
        (Some(400), answer("invalid_request_error", "unsupported_parameter"), Provider),
        (Some(404), answer("invalid_request_error", "model_not_found"), Provider),
        (Some(500), answer("server_error", ""), Unavailable),
        (Some(503), answer("service_unavailable_error", "slow_down"), Unavailable),
        (None, in_stream("insufficient_quota"), NoCredit),
        (None, in_stream("credit_balance_exhausted"), NoCredit),
        (None, in_stream("rate_limit_exceeded"), RateLimited),
        (None, in_stream("server_is_overloaded"), Unavailable),
        (None, in_stream("context_length_exceeded"), ContextOverflow),
        (None, in_stream("invalid_prompt"), Provider),
    ] {
        let error =
            refusal::refused(&endpoint, "m", status, &body, |status, said| Responses.kind(status, said));
        assert_eq!(error.kind, kind, "{status:?} {body}");
    }
}

#[tokio::test]
async fn no_error_shows_the_key() {
    let echo = format!("{{\"error\":{{\"message\":\"you sent {KEY}\"}}}}");
    let in_stream =
        Reply::stream(&format!("data: {{\"type\":\"error\",\"message\":\"you sent {KEY}\"}}\n\n"));
    let stand_in =
        StandIn::start([Reply::whole("400 Bad", &echo), Reply::whole("403 No", &echo), in_stream]).await;
    let engine = engine("openai", &stand_in.base_url(), Some("m")).await;
    for _ in 0..3 {
        let events = run(&*engine, hello()).await;
        let [Err(error)] = events.as_slice() else { panic!("{events:?}") };
        assert!(error.message.contains("***") && !format!("{error:?}").contains(KEY), "{error:?}");
    }
}
