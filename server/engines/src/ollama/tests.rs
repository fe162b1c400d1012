//! The engine against a local stand-in: opening, requests, refusals.

use std::time::Duration;

use serde_json::{Value, json};
use tns_server_core::engine::{EngineChoice, Engines, StepEvent, StepStop};

use super::*;
use crate::config::EngineConfig;
use crate::registry::EngineRegistry;
use crate::retry::Patience;
use crate::stand_in::{Reply, StandIn, Then, nobody};
use crate::step::fixtures;

const HI: &str = "{\"message\":{\"content\":\"Hi\"},\"done\":false}\n";
const DONE: &str =
    "{\"message\":{\"content\":\"\"},\"done\":true,\"prompt_eval_count\":4,\"eval_count\":2}\n";

type Event = Result<StepEvent, EngineError>;

fn tags(names: &[&str]) -> Reply {
    let models: Vec<_> = names.iter().map(|name| json!({"name": name, "model": name, "size": 1})).collect();
    Reply::whole("200 OK", &json!({ "models": models }).to_string())
}

fn shown(capabilities: &[&str]) -> Reply {
    Reply::whole("200 OK", &json!({"capabilities": capabilities, "license": "MIT"}).to_string())
}

fn lines(body: &str) -> Reply {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n";
    Reply { writes: vec![format!("{head}{body}").into_bytes()], then: Then::Close }
}

async fn opened(base_url: &str, model: Option<&str>) -> Result<Arc<dyn Engine>, OpenError> {
    let set = |name: &str| (name == "PROVIDER_BASE_URL_OLLAMA").then(|| base_url.to_owned());
    let patience = Patience {
        shortest_pause: Duration::from_millis(1),
        longest_pause: Duration::from_millis(2),
        ..Patience::default()
    };
    let registry = EngineRegistry::new(EngineConfig { patience, ..EngineConfig::from_env(set) });
    let choice = EngineChoice { provider: Some("ollama".into()), model: model.map(Into::into) };
    registry.open(&choice).await
}

fn hello() -> StepRequest {
    fixtures::step(vec![fixtures::user(vec![fixtures::text("Hello")])])
}

/// Runs one step against these answers to it.
async fn run(answers: impl IntoIterator<Item = Reply>) -> (Vec<Event>, StandIn) {
    let before = [tags(&["qwen3:4b"]), shown(&["completion", "tools"])];
    let stand_in = StandIn::start(before.into_iter().chain(answers)).await;
    let engine = opened(&stand_in.base_url(), None).await.unwrap();
    (fixtures::run(&*engine, hello()).await, stand_in)
}

fn text(words: &str) -> Event {
    Ok(StepEvent::Text(words.into()))
}

fn error(events: &[Event]) -> &EngineError {
    events.last().unwrap().as_ref().unwrap_err()
}

#[tokio::test]
async fn a_reply_streams_from_the_first_model() {
    for path in ["", "/", "/v1", "/v1/"] {
        let answers = [
            tags(&["nomic-embed-text:latest", "qwen3:4b", "llama3:latest"]),
            shown(&["completion", "tools", "vision"]),
            lines(&format!("{HI}{DONE}")),
        ];
        let stand_in = StandIn::start(answers).await;
        let base = stand_in.base_url().replace("/v1", "");
        let engine = opened(&format!("{base}{path}"), None).await.unwrap();
        assert_eq!(
            (engine.provider(), engine.model(), engine.accepts_images()),
            ("ollama", "qwen3:4b", true)
        );
        let events = fixtures::run(&*engine, hello()).await;
        assert_eq!(events[0], text("Hi"));
        let [_, Ok(StepEvent::Finished(outcome))] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!((outcome.stop, outcome.usage.cost), (StepStop::End, Some(0.0)));
        let [tags, show, chat] = stand_in.heard().try_into().unwrap();
        assert!(tags.starts_with("GET /api/tags "), "{tags}");
        assert!(show.starts_with("POST /api/show ") && show.ends_with("{\"model\":\"qwen3:4b\"}"), "{show}");
        let (head, body) = chat.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("POST /api/chat ") && !head.contains("authorization"), "{head}");
        let body: Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["messages"], json!([{"role": "user", "content": "Hello"}]));
    }
}

#[tokio::test]
async fn one_byte_writes_give_the_same_reply() {
    let mut reply = lines(&format!("{HI}{DONE}"));
    reply.writes = reply.writes.concat().chunks(1).map(<[u8]>::to_vec).collect();
    let (events, _) = run([reply]).await;
    assert!(events.len() == 2 && events[0] == text("Hi") && events[1].is_ok(), "{events:?}");
}

#[tokio::test]
async fn the_last_line_ends_the_step_although_the_connection_stays() {
    let answer = lines(&format!("{HI}{DONE}")).then(Then::Hold);
    let (events, stand_in) = tokio::time::timeout(Duration::from_secs(1), run([answer])).await.unwrap();
    assert!(matches!(events.last(), Some(Ok(StepEvent::Finished(_)))), "{events:?}");
    stand_in.client_left().await;
}

#[tokio::test]
async fn a_model_that_went_away_is_named_before_and_within_a_reply() {
    let gone = "{\"error\":\"model 'qwen3:4b' not found\"}";
    let (events, stand_in) = run([Reply::whole("404 Not Found", gone)]).await;
    assert_eq!(error(&events).kind, EngineErrorKind::Provider);
    assert!(error(&events).message.contains("model 'qwen3:4b' not found"), "{events:?}");
    assert_eq!(stand_in.heard().len(), 3);

    let (events, _) = run([lines(&format!("{HI}{gone}\n{DONE}"))]).await;
    assert_eq!((events.len(), &events[0]), (2, &text("Hi")));
    let message = "ollama answered with an error: model 'qwen3:4b' not found".to_owned();
    assert_eq!(error(&events), &EngineError { kind: EngineErrorKind::Provider, message });
}

#[tokio::test]
async fn what_would_fail_again_is_not_tried_again() {
    for (line, message, kind, tries) in [
        (
            "500 Oops",
            "model requires more system memory (9 GiB) than is available",
            EngineErrorKind::Provider,
            1,
        ),
        ("400 Bad", "the input exceeds the context length", EngineErrorKind::ContextOverflow, 1),
        ("401 No", "unauthorized", EngineErrorKind::BadKey, 1),
        ("503 Busy", "server busy, please try again", EngineErrorKind::Unavailable, 3),
    ] {
        let body = json!({ "error": message }).to_string();
        let (events, stand_in) = run(vec![Reply::whole(line, &body); 3]).await;
        assert_eq!((error(&events).kind, stand_in.heard().len()), (kind, 2 + tries), "{line}");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_incomplete() {
    let (events, _) = run([lines(HI)]).await;
    assert_eq!((&events[0], error(&events).kind), (&text("Hi"), EngineErrorKind::StreamIncomplete));
}

#[tokio::test]
async fn an_unknown_model_is_refused_with_those_there_are() {
    let stand_in =
        StandIn::start([tags(&["qwen3:4b", "llama3:latest"]), shown(&[]), tags(&["a"]), tags(&[])]).await;
    let base = stand_in.base_url();
    assert_eq!(opened(&base, Some("llama3")).await.unwrap().model(), "llama3:latest");
    let OpenError(message) = opened(&base, Some("b")).await.err().unwrap();
    assert_eq!(
        message,
        "ollama has no model b; it has a: take one, or get it with `tns models pull --ollama b`"
    );
    let OpenError(message) = opened(&base, None).await.err().unwrap();
    assert!(message.ends_with("has no model: get one with `tns models pull --ollama NAME`"), "{message}");
}

#[tokio::test]
async fn a_server_that_does_not_tell_what_a_model_can_do_is_used_all_the_same() {
    let stand_in = StandIn::start([tags(&["m"]), Reply::whole("404 Not Found", "404 page not found")]).await;
    let engine = opened(&stand_in.base_url(), None).await.unwrap();
    assert_eq!((engine.model(), engine.accepts_images()), ("m", false));
}

#[tokio::test]
async fn where_no_ollama_is_the_error_says_so() {
    let address = nobody().await;
    let OpenError(message) = opened(&format!("http://{address}"), None).await.err().unwrap();
    assert_eq!(message, format!("can't reach ollama at {address} (connection refused); is it running?"));
    let stand_in = StandIn::start([Reply::whole("200 OK", "<html>")]).await;
    let OpenError(message) = opened(&stand_in.base_url(), None).await.err().unwrap();
    assert!(
        message.ends_with("answers as something other than Ollama; check PROVIDER_BASE_URL_OLLAMA"),
        "{message}"
    );
}

#[tokio::test]
async fn a_request_that_was_guessed_too_short_is_asked_again_with_all_that_the_model_reads() {
    let known = json!({"capabilities": ["completion"], "model_info": {"qwen3.context_length": 40_960}});
    let refused = |status, words: &str| Reply::whole(status, &json!({ "error": words }).to_string());
    let answers = [
        tags(&["qwen3:4b"]),
        Reply::whole("200 OK", &known.to_string()),
        refused("400 Bad Request", "the input length exceeds the context length"),
        lines(&format!("{HI}{DONE}")),
        refused("500 Internal Server Error", "model requires more system memory (9.1 GiB) than is available"),
        lines(&format!("{HI}{DONE}")),
    ];
    let stand_in = StandIn::start(answers).await;
    let engine = opened(&stand_in.base_url(), None).await.unwrap();
    let mut kinds = Vec::new();
    for _ in 0..4 {
        kinds.push(fixtures::run(&*engine, hello()).await.pop().unwrap().err().map(|error| error.kind));
    }
    let (overflow, refusal) = (Some(EngineErrorKind::ContextOverflow), Some(EngineErrorKind::Provider));
    assert_eq!(kinds, [overflow, None, refusal, None]);
    let asked = stand_in.heard().into_iter().skip(2).map(|heard| {
        let body: Value = serde_json::from_str(heard.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        body["options"]["num_ctx"].as_u64()
    });
    assert_eq!(asked.flatten().collect::<Vec<_>>(), [8_192, 32_768, 32_768, 8_192]);
}
