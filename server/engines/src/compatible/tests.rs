//! The engine against a local stand-in: tries, waits, ends of streams, cancelling, keys.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use serde_json::{Value, json};
use tns_server_core::engine::{
    EngineChoice, EngineErrorKind, Engines, StepEvent, StepOutcome, StepStop, StepUsage,
};
use tns_server_core::message::{ModelMessage, ModelRole, Part};

use super::*;
use crate::config::EngineConfig;
use crate::registry::EngineRegistry;
use crate::retry::Patience;
use crate::stand_in::{Reply, StandIn, Then, nobody};

const HI: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n";
const STOP: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
const KEY: &str = "test-key-123";

fn quick() -> Patience {
    Patience {
        shortest_pause: Duration::from_millis(1),
        longest_pause: Duration::from_millis(2),
        ..Patience::default()
    }
}

async fn engine(base_url: &str, patience: Patience) -> Arc<dyn Engine> {
    let config = EngineConfig::from_env(|name| match name {
        "PROVIDER_BASE_URL_OPENAI_COMPATIBLE" => Some(base_url.to_owned()),
        "OPENAI_COMPATIBLE_API_KEY" => Some(KEY.to_owned()),
        _ => None,
    });
    let registry = EngineRegistry::new(EngineConfig { patience, ..config });
    let choice = EngineChoice { provider: Some("openai-compatible".into()), model: Some("m".into()) };
    registry.open(&choice).await.unwrap()
}

fn request() -> StepRequest {
    let parts = vec![Part::Text("Hello".into())];
    StepRequest {
        system: "".into(),
        tools: Arc::from([]),
        messages: vec![ModelMessage { role: ModelRole::User, parts, native: Vec::new() }],
        effort: None,
        max_output_tokens: None,
        temperature: None,
    }
}

async fn run(engine: &dyn Engine) -> Vec<Result<StepEvent, EngineError>> {
    crate::step::fixtures::run(engine, request()).await
}

async fn run_at(stand_in: &StandIn, patience: Patience) -> Vec<Result<StepEvent, EngineError>> {
    run(&*engine(&stand_in.base_url(), patience).await).await
}

fn hi() -> Vec<Result<StepEvent, EngineError>> {
    vec![
        Ok(StepEvent::Text("Hi".into())),
        Ok(StepEvent::Finished(StepOutcome {
            parts: vec![Part::Text("Hi".into())],
            model: "m".into(),
            stop: StepStop::End,
            usage: StepUsage::default(),
            native: None,
        })),
    ]
}

fn error(events: &[Result<StepEvent, EngineError>]) -> &EngineError {
    events.last().unwrap().as_ref().unwrap_err()
}

fn chunked(body: &str) -> Reply {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    let writes = vec![format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len()).into_bytes()];
    Reply { writes, then: Then::Serve }
}

#[tokio::test]
async fn a_reply_streams_and_the_key_goes_in_one_header() {
    let stand_in = StandIn::start([Reply::stream(&format!("{HI}{STOP}"))]).await;
    assert_eq!(run_at(&stand_in, quick()).await, hi());
    let [heard] = stand_in.heard().try_into().unwrap();
    let (head, body) = heard.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("authorization: Bearer test-key-123"), "{head}");
    assert_eq!(heard.matches(KEY).count(), 1);
    let body: Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["messages"], json!([{"role": "user", "content": "Hello"}]));
}

#[tokio::test]
async fn one_byte_writes_give_the_same_reply() {
    let mut reply = Reply::stream(&format!("{HI}{STOP}"));
    reply.writes = reply.writes.concat().chunks(1).map(<[u8]>::to_vec).collect();
    let stand_in = StandIn::start([reply]).await;
    assert_eq!(run_at(&stand_in, quick()).await, hi());
}

#[tokio::test]
async fn steps_share_one_connection() {
    let body = format!("{HI}{STOP}");
    let stand_in = StandIn::start([chunked(&body), chunked(&body), chunked(&body)]).await;
    let engine = engine(&stand_in.base_url(), quick()).await;
    for _ in 0..3 {
        assert_eq!(run(&*engine).await, hi());
    }
    assert_eq!(stand_in.connections(), 1);
}

#[tokio::test]
async fn events_that_came_together_are_given_out_without_waiting() {
    let stand_in = StandIn::start([Reply::stream(&HI.repeat(20)).then(Then::Hold)]).await;
    let mut step = engine(&stand_in.base_url(), quick()).await.step(request());
    assert!(step.next().await.unwrap().is_ok());
    for _ in 1..20 {
        assert!(step.next().now_or_never().unwrap().unwrap().is_ok());
    }
    assert!(step.next().now_or_never().is_none());
}

#[tokio::test]
async fn an_overloaded_provider_is_tried_three_times_in_all() {
    let busy = || Reply::whole("503 Busy", "{\"error\":{\"message\":\"busy\"}}");
    let stand_in = StandIn::start([busy(), busy(), Reply::stream(&format!("{HI}{STOP}"))]).await;
    let events = run_at(&stand_in, quick()).await;
    let waits = events.iter().filter(|event| {
        matches!(event, Ok(StepEvent::Waiting { reason, .. }) if reason == "openai-compatible is down or overloaded (HTTP 503): busy")
    });
    assert_eq!(waits.count(), 2);
    assert_eq!(events[2..], hi());

    let stand_in = StandIn::start([busy(), busy(), busy()]).await;
    let events = run_at(&stand_in, quick()).await;
    assert_eq!(error(&events).kind, EngineErrorKind::Unavailable);
    assert_eq!(stand_in.heard().len(), 3);
}

#[tokio::test]
async fn an_asked_pause_is_kept() {
    let slow_down = |header: &str| Reply::whole(&format!("429 Slow\n{header}"), "{}");
    let replies = [
        slow_down("Retry-After: 0.2"),
        slow_down("retry-after-ms: 150"),
        Reply::stream(&format!("{HI}{STOP}")),
    ];
    let stand_in = StandIn::start(replies).await;
    let begun = Instant::now();
    let events = run_at(&stand_in, quick()).await;
    assert!(begun.elapsed() >= Duration::from_millis(350));
    let delays: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Ok(StepEvent::Waiting { delay, .. }) => Some(delay.as_millis()),
            _ => None,
        })
        .collect();
    assert_eq!((delays, &events[2..]), (vec![200, 150], hi().as_slice()));
}

#[tokio::test]
async fn a_pause_that_is_too_long_is_an_error_that_names_it() {
    let stand_in = StandIn::start([Reply::whole("429 Slow\nRetry-After: 3600", "{}")]).await;
    let events = run_at(&stand_in, quick()).await;
    assert_eq!(error(&events).kind, EngineErrorKind::RateLimited);
    assert!(error(&events).message.contains("3600 s"), "{}", error(&events).message);
    assert_eq!(stand_in.heard().len(), 1);
}

#[tokio::test]
async fn what_would_fail_again_is_not_tried_again() {
    for (status, body, kind) in [
        ("400 Bad", "{\"error\":{\"message\":\"no\"}}", EngineErrorKind::Provider),
        ("401 No", "{}", EngineErrorKind::BadKey),
        ("429 Quota", "{\"error\":{\"type\":\"insufficient_quota\"}}", EngineErrorKind::NoCredit),
        ("302 Found\nLocation: http://127.0.0.1:9/?key=test-key-123", "", EngineErrorKind::Provider),
    ] {
        let stand_in = StandIn::start([Reply::whole(status, body)]).await;
        let events = run_at(&stand_in, quick()).await;
        assert_eq!((events.len(), error(&events).kind), (1, kind), "{status}");
        assert_eq!(stand_in.heard().len(), 1, "{status}");
    }
}

#[tokio::test]
async fn an_error_in_the_stream_is_not_tried_again() {
    let failed =
        "data: {\"error\":{\"message\":\"engine overloaded\",\"type\":\"server_error\",\"code\":500}}\n\n";
    for shown in [HI, ""] {
        let stand_in = StandIn::start([Reply::stream(&format!("{shown}{failed}"))]).await;
        let events = run_at(&stand_in, quick()).await;
        assert_eq!(events[..events.len() - 1], hi()[..usize::from(!shown.is_empty())]);
        assert!(error(&events).message.contains("engine overloaded"));
        assert_eq!(stand_in.heard().len(), 1);
    }
}

#[tokio::test]
async fn a_closed_stream_is_incomplete() {
    let stand_in = StandIn::start([Reply::stream(HI)]).await;
    let events = run_at(&stand_in, quick()).await;
    assert_eq!((&events[0], error(&events).kind), (&hi()[0], EngineErrorKind::StreamIncomplete));
}

#[tokio::test]
async fn the_end_mark_ends_the_step_although_the_connection_stays() {
    let stand_in = StandIn::start([Reply::stream(&format!("{HI}{STOP}")).then(Then::Hold)]).await;
    let ended = tokio::time::timeout(Duration::from_secs(1), run_at(&stand_in, quick())).await;
    assert_eq!(ended.unwrap(), hi());
    stand_in.client_left().await;
}

#[tokio::test]
async fn silence_is_an_error_before_and_within_the_reply() {
    let brief = Duration::from_millis(100);
    let silent = |shown| StandIn::start([Reply::stream(shown).then(Then::Hold)]);
    let patience = Patience { first_token: brief, ..quick() };
    let events = run_at(&silent(": keepalive\n\n").await, patience).await;
    assert_eq!(error(&events).kind, EngineErrorKind::Unavailable);
    let patience = Patience { silence: brief, ..quick() };
    let events = run_at(&silent(HI).await, patience).await;
    assert_eq!((&events[0], error(&events).kind), (&hi()[0], EngineErrorKind::StreamIncomplete));
}

#[tokio::test]
async fn dropping_a_step_closes_its_connection() {
    let stand_in = StandIn::start([Reply::stream(HI).then(Then::Hold)]).await;
    let mut step = engine(&stand_in.base_url(), quick()).await.step(request());
    assert_eq!(step.next().await, Some(hi().remove(0)));
    drop(step);
    stand_in.client_left().await;
}

#[tokio::test]
async fn nothing_is_sent_before_a_step_is_polled() {
    let stand_in = StandIn::start([]).await;
    drop(engine(&stand_in.base_url(), quick()).await.step(request()));
    assert_eq!(stand_in.connections(), 0);
}

#[tokio::test]
async fn an_address_where_nothing_listens_is_named_at_once() {
    let address = nobody().await;
    let events = run(&*engine(&format!("http://{address}/v1"), quick()).await).await;
    let message = format!("can't reach openai-compatible at {address} (connection refused); is it running?");
    assert_eq!(events, [Err(EngineError { kind: EngineErrorKind::Unavailable, message })]);
}

#[tokio::test]
async fn no_error_shows_the_key() {
    let echo = format!("{{\"error\":{{\"message\":\"you sent {KEY}\"}}}}");
    let in_url = |address: String| format!("http://u:{KEY}@{address}/v1?key={KEY}");
    let stand_in = StandIn::start([Reply::whole("400 Bad", &echo), Reply::whole("403 No", &echo)]).await;
    let here = stand_in.base_url().replace("http://", "").replace("/v1", "");
    for base_url in [in_url(here.clone()), in_url(here), in_url(nobody().await.to_string())] {
        let events = run(&*engine(&base_url, quick()).await).await;
        assert!(!format!("{events:?}").contains(KEY), "{events:?}");
    }
}

#[tokio::test]
async fn an_answer_that_comes_whole_and_a_web_page_are_told_apart() {
    let whole = json!({"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}).to_string();
    let stand_in = StandIn::start([
        Reply::whole("200 OK\nContent-Type: application/json; charset=utf-8", &whole),
        Reply::whole("200 OK\nContent-Type: text/html", "<html>"),
    ])
    .await;
    assert_eq!(run_at(&stand_in, quick()).await, hi());
    let events = run_at(&stand_in, quick()).await;
    assert!(error(&events).message.contains("web page"), "{}", error(&events).message);
}

#[tokio::test]
async fn a_finished_reply_without_an_end_mark_ends_although_the_connection_stays() {
    let finish = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    let stand_in = StandIn::start([Reply::stream(&format!("{HI}{finish}")).then(Then::Hold)]).await;
    let ended = tokio::time::timeout(Duration::from_secs(20), run_at(&stand_in, quick())).await;
    let events = ended.unwrap();
    assert_eq!((events.len(), &events[0]), (2, &hi()[0]));
    assert!(matches!(&events[1], Ok(StepEvent::Finished(_))), "{events:?}");
    stand_in.client_left().await;
}
