//! The engine against a local stand-in: requests, tries, refusals, keys.

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Value, json};
use tns_server_core::engine::{EngineChoice, Engines, StepEvent, StepStop};
use tns_server_core::message::ModelMessage;

use super::*;
use crate::config::EngineConfig;
use crate::registry::EngineRegistry;
use crate::retry::Patience;
use crate::stand_in::{Reply, StandIn, Then, nobody};
use crate::step::fixtures::{self, KEY};

const HI: &str = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Hi\"}]}}]}\n\n";
const THOUGHT: &str =
    "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"hm\",\"thought\":true}]}}]}\n\n";
const STOP: &str = "data: {\"candidates\":[{\"finishReason\":\"STOP\"}]}\n\n";
const SLIP: &str = "data: {\"candidates\":[{\"finishReason\":\"MALFORMED_FUNCTION_CALL\"}]}\n\n";

type Event = Result<StepEvent, EngineError>;

/// Opens the engine at an address; `None` for the model is the default.
async fn opened(base_url: &str, model: Option<&str>) -> Result<Arc<dyn Engine>, OpenError> {
    let config = EngineConfig::from_env(|name| match name {
        "PROVIDER_BASE_URL_GEMINI" => Some(base_url.to_owned()),
        "GEMINI_API_KEY" => Some(KEY.to_owned()),
        _ => None,
    });
    let patience = Patience {
        shortest_pause: Duration::from_millis(1),
        longest_pause: Duration::from_millis(2),
        ..Patience::default()
    };
    let registry = EngineRegistry::new(EngineConfig { patience, ..config });
    let choice = EngineChoice { provider: Some("gemini".into()), model: model.map(Into::into) };
    registry.open(&choice).await
}

fn hello() -> StepRequest {
    fixtures::step(vec![fixtures::user(vec![fixtures::text("Hello")])])
}

async fn run(base_url: &str) -> Vec<Event> {
    fixtures::run(&*opened(base_url, None).await.unwrap(), hello()).await
}

/// The stand-in's address without the path of other providers.
fn base(stand_in: &StandIn) -> String {
    stand_in.base_url().replace("/v1", "")
}

fn text(words: &str) -> Event {
    Ok(StepEvent::Text(words.into()))
}

fn is_finished(event: &Event) -> bool {
    matches!(event, Ok(StepEvent::Finished(outcome)) if outcome.stop == StepStop::End)
}

fn error(events: &[Event]) -> &EngineError {
    events.last().unwrap().as_ref().unwrap_err()
}

#[tokio::test]
async fn a_reply_streams_and_the_key_goes_in_one_header() {
    for path in ["", "/", "/v1beta", "/v1beta/"] {
        let stand_in = StandIn::start([Reply::stream(&format!("{HI}{STOP}"))]).await;
        let events = run(&format!("{}{path}", base(&stand_in))).await;
        assert_eq!(events[0], text("Hi"));
        assert!(events.len() == 2 && is_finished(&events[1]), "{events:?}");
        let [heard] = stand_in.heard().try_into().unwrap();
        let (head, body) = heard.split_once("\r\n\r\n").unwrap();
        let line = "POST /v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse HTTP/1.1\r\n";
        assert!(head.starts_with(line), "{head}");
        assert!(head.contains("x-goog-api-key: test-key-123"), "{head}");
        assert_eq!(heard.matches(KEY).count(), 1);
        let body: Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["contents"], json!([{"role": "user", "parts": [{"text": "Hello"}]}]));
    }
}

#[tokio::test]
async fn one_byte_writes_give_the_same_reply() {
    let mut reply = Reply::stream(&format!("{HI}{STOP}"));
    reply.writes = reply.writes.concat().chunks(1).map(<[u8]>::to_vec).collect();
    let stand_in = StandIn::start([reply]).await;
    let events = run(&base(&stand_in)).await;
    assert!(events.len() == 2 && events[0] == text("Hi") && is_finished(&events[1]), "{events:?}");
}

#[tokio::test]
async fn a_slip_before_the_answer_is_tried_again_and_after_it_is_an_error() {
    let slip = |before: &str| Reply::stream(&format!("{before}{SLIP}"));
    let stand_in = StandIn::start([slip(""), slip(THOUGHT), Reply::stream(&format!("{HI}{STOP}"))]).await;
    let events = run(&base(&stand_in)).await;
    let waits = events.iter().filter(|event| {
        matches!(event, Ok(StepEvent::Waiting { reason, .. }) if reason.contains("MALFORMED_FUNCTION_CALL"))
    });
    assert_eq!(waits.count(), 2);
    assert!(is_finished(events.last().unwrap()), "{events:?}");
    assert_eq!(stand_in.heard().len(), 3);

    let stand_in = StandIn::start([slip(""), slip(""), slip("")]).await;
    let events = run(&base(&stand_in)).await;
    assert_eq!(error(&events).kind, EngineErrorKind::Provider);
    let address = base(&stand_in).replace("http://", "");
    assert_eq!(
        error(&events).message,
        format!("gemini at {address} gave the reply up (MALFORMED_FUNCTION_CALL); try again")
    );

    let stand_in = StandIn::start([slip(HI)]).await;
    let events = run(&base(&stand_in)).await;
    assert_eq!((events.len(), &events[0]), (2, &text("Hi")));
    assert_eq!((error(&events).kind, stand_in.heard().len()), (EngineErrorKind::Provider, 1));
}

#[tokio::test]
async fn signatures_that_are_refused_are_left_out_once() {
    let blocks =
        "{\"model\":\"gemini-3.8-flash\",\"parts\":[{\"text\":\"ok\",\"thoughtSignature\":\"c2ln\"}]}";
    let own = ModelMessage {
        native: vec![fixtures::native(PROVIDER, blocks)],
        ..fixtures::model(vec![fixtures::text("ok")])
    };
    let hello = || fixtures::user(vec![fixtures::text("Hello")]);
    let step = || fixtures::step(vec![hello(), own.clone(), hello()]);
    let refusal = json!({"error": {"status": "INVALID_ARGUMENT", "message": "Corrupted thought signature."}});
    let refused = || Reply::whole("400 Bad", &refusal.to_string());

    let stand_in = StandIn::start([refused(), Reply::stream(&format!("{HI}{STOP}"))]).await;
    let engine = opened(&base(&stand_in), None).await.unwrap();
    let events = fixtures::run(&*engine, step()).await;
    assert!(events.len() == 2 && events[0] == text("Hi") && is_finished(&events[1]), "{events:?}");
    let [first, second] = stand_in.heard().try_into().unwrap();
    assert!(first.contains("c2ln") && !second.contains("c2ln") && second.contains("{\"text\":\"ok\"}"));

    // Not for ever, and not where there were none.
    for (step, tries) in [(step(), 2), (fixtures::step(vec![hello()]), 1)] {
        let stand_in = StandIn::start([refused(), refused(), refused()]).await;
        let engine = opened(&base(&stand_in), None).await.unwrap();
        let events = fixtures::run(&*engine, step).await;
        assert_eq!((events.len(), error(&events).kind), (1, EngineErrorKind::Provider));
        assert_eq!(stand_in.heard().len(), tries);
    }
}

#[tokio::test]
async fn the_pause_in_a_refusal_is_kept() {
    let details = json!([{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.3s"}]);
    let slow_down = json!({"error": {
        "code": 429, "status": "RESOURCE_EXHAUSTED", "message": "Quota exceeded", "details": details,
    }});
    let replies = [Reply::whole("429 Slow", &slow_down.to_string()), Reply::stream(&format!("{HI}{STOP}"))];
    let stand_in = StandIn::start(replies).await;
    let begun = std::time::Instant::now();
    let events = run(&base(&stand_in)).await;
    assert!(begun.elapsed() >= Duration::from_millis(300));
    let delay = Duration::from_millis(300);
    let reason = "gemini asks to slow down: Quota exceeded".to_owned();
    assert_eq!(events[..2], [Ok(StepEvent::Waiting { delay, reason }), text("Hi")]);
}

#[tokio::test]
async fn refusals_are_read_as_google_words_them() {
    use EngineErrorKind::{BadKey, ContextOverflow, NoCredit, Provider, RateLimited};
    let refusal = |status: &str, message: &str, reason: Option<&str>| {
        let details: Vec<Value> = reason.map(|reason| json!({"reason": reason})).into_iter().collect();
        json!({"error": {"status": status, "message": message, "details": details}}).to_string()
    };
    for (line, body, kind) in [
        ("400 Bad", refusal("INVALID_ARGUMENT", "API key not valid.", Some("API_KEY_INVALID")), BadKey),
        ("403 No", refusal("PERMISSION_DENIED", "No permission.", None), BadKey),
        ("401 No", refusal("UNAUTHENTICATED", "No key.", None), BadKey),
        ("400 Bad", refusal("FAILED_PRECONDITION", "Please enable billing.", None), NoCredit),
        ("403 No", refusal("PERMISSION_DENIED", "Billing is off.", Some("BILLING_DISABLED")), NoCredit),
        ("429 No", refusal("RESOURCE_EXHAUSTED", "Your prepayment credits are depleted.", None), NoCredit),
        ("400 Bad", refusal("FAILED_PRECONDITION", "User location is not supported.", None), BadKey),
        (
            "400 Bad",
            refusal(
                "INVALID_ARGUMENT",
                "The input token count (2000000) exceeds the maximum number of tokens allowed (1048576).",
                None,
            ),
            ContextOverflow,
        ),
        ("400 Bad", refusal("INVALID_ARGUMENT", "Unknown name \"x\".", None), Provider),
        ("404 No", refusal("NOT_FOUND", "models/x is not found.", None), Provider),
        ("429 Slow\nRetry-After: 3600", refusal("RESOURCE_EXHAUSTED", "Quota exceeded", None), RateLimited),
        ("302 Found\nLocation: http://127.0.0.1:9/?key=test-key-123", String::new(), Provider),
    ] {
        let stand_in = StandIn::start([Reply::whole(line, &body)]).await;
        let events = run(&base(&stand_in)).await;
        assert_eq!((events.len(), error(&events).kind), (1, kind), "{line} {body}");
        assert_eq!(stand_in.heard().len(), 1, "{line} {body}");
    }
}

#[tokio::test]
async fn an_overloaded_provider_is_tried_three_times_in_all() {
    for (line, status) in
        [("500 Oops", "INTERNAL"), ("503 Busy", "UNAVAILABLE"), ("504 Late", "DEADLINE_EXCEEDED")]
    {
        let body = json!({"error": {"status": status, "message": "x"}}).to_string();
        let busy = || Reply::whole(line, &body);
        let stand_in = StandIn::start([busy(), busy(), busy()]).await;
        let events = run(&base(&stand_in)).await;
        assert_eq!(
            (error(&events).kind, stand_in.heard().len()),
            (EngineErrorKind::Unavailable, 3),
            "{line}"
        );
    }
}

#[tokio::test]
async fn errors_in_the_stream_and_its_early_end_are_told() {
    let failed = "data: {\"error\":{\"code\":503,\"message\":\"The model is overloaded.\",\"status\":\"UNAVAILABLE\"}}\n\n";
    for (body, kind) in [
        (format!("{HI}{failed}"), EngineErrorKind::Unavailable),
        (HI.to_owned(), EngineErrorKind::StreamIncomplete),
    ] {
        let stand_in = StandIn::start([Reply::stream(&body)]).await;
        let events = run(&base(&stand_in)).await;
        assert_eq!((events.len(), &events[0], error(&events).kind), (2, &text("Hi"), kind));
        assert_eq!(stand_in.heard().len(), 1);
    }
}

#[tokio::test]
async fn dropping_a_step_closes_its_connection() {
    let stand_in = StandIn::start([Reply::stream(HI).then(Then::Hold)]).await;
    let mut step = opened(&base(&stand_in), None).await.unwrap().step(hello());
    assert_eq!(step.next().await, Some(text("Hi")));
    drop(step);
    stand_in.client_left().await;
}

#[tokio::test]
async fn no_error_shows_the_key() {
    let echo = json!({"error": {"message": format!("you sent {KEY}")}}).to_string();
    let slip =
        format!("data: {{\"candidates\":[{{\"finishReason\":\"OTHER\",\"finishMessage\":\"{KEY}\"}}]}}\n\n");
    let in_url = |address: String| format!("http://u:{KEY}@{address}/?key={KEY}");
    let stand_in = StandIn::start([
        Reply::whole("400 Bad", &echo),
        Reply::whole("403 No", &echo),
        Reply::stream(&format!("{HI}{slip}")),
    ])
    .await;
    let here = base(&stand_in).replace("http://", "");
    let away = nobody().await.to_string();
    for address in [here.clone(), here.clone(), here, away] {
        let events = run(&in_url(address)).await;
        assert!(!format!("{events:?}").contains(KEY), "{events:?}");
        assert!(events.last().unwrap().is_err());
    }
}

#[tokio::test]
async fn a_model_is_named_as_the_api_names_it_or_refused() {
    let named =
        async |model| opened("http://127.0.0.1:1", model).await.map(|engine| engine.model().to_owned());
    assert_eq!(named(None).await, Ok("gemini-3.8-flash".into()));
    assert_eq!(named(Some("models/gemini-4-argon")).await, Ok("gemini-4-argon".into()));
    for bad in ["../x", "a/b", "x?key=1", ".", "models/", "a b"] {
        let OpenError(message) = named(Some(bad)).await.unwrap_err();
        assert!(message.ends_with("is no name of a gemini model; one is gemini-3.8-flash"), "{message}");
    }
}

#[tokio::test]
async fn a_finished_reply_ends_although_the_connection_stays() {
    let stand_in = StandIn::start([Reply::stream(&format!("{HI}{STOP}")).then(Then::Hold)]).await;
    let ended = tokio::time::timeout(Duration::from_secs(20), run(&base(&stand_in))).await;
    let events = ended.unwrap();
    assert!(events.len() == 2 && events[0] == text("Hi") && is_finished(&events[1]), "{events:?}");
    stand_in.client_left().await;
}
