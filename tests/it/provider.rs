//! The whole way to a model and back: a local model server behind a real engine behind the server.

use std::sync::Arc;

use serde_json::{Value, json};
use tns_server_core::engine::EngineChoice;
use tns_server_core::scripted::Script;
use tns_server_engines::{EngineConfig, EngineRegistry};
use tns_tests::provider::{ModelServer, Reply, call_body, cut_body, text_body};
use tns_tests::socket::{of_type, text, types};
use tns_tests::{TestServer, session};

use crate::{call_id, setup};

const PROVIDER: &str = "openai-compatible";
/// Must show up nowhere but in the header that it is sent in.
const KEY: &str = "sk-canary-5f2c91d0";

/// Starts a server whose default engine talks to `models`.
async fn start(models: &ModelServer) -> TestServer {
    let base_url = models.base_url().to_owned();
    let mut config = EngineConfig::from_env(|name| match name {
        "PROVIDER_BASE_URL_OPENAI_COMPATIBLE" => Some(base_url.clone()),
        "OPENAI_COMPATIBLE_API_KEY" => Some(KEY.to_owned()),
        _ => None,
    });
    config.flag = EngineChoice { provider: Some(PROVIDER.into()), model: Some("local-model".into()) };
    config.local_servers = Vec::new();
    let engines = Arc::new(EngineRegistry::new(config));
    TestServer::start_engines(&setup(Script::new()), engines, PROVIDER).await
}

/// Returns the conversation of a request without its system prompt.
fn messages(request: &Value) -> Vec<Value> {
    let all = request["messages"].as_array().unwrap();
    all.iter()
        .filter(|message| message["role"] != "system" && message["role"] != "developer")
        .cloned()
        .collect()
}

#[tokio::test]
async fn a_reply_streams_from_the_model_to_the_client() {
    let models = ModelServer::start([text_body(&["Hel", "lo ", "東京"])]).await;
    let server = start(&models).await;
    let mut socket = server.socket().await;
    socket.chat("s", "hi").await;
    let events = socket.until("done").await;
    assert_eq!(types(&events), ["agent_state", "token", "agent_state", "done"]);
    assert_eq!(text(&events), "Hello 東京");
    assert_eq!((&events[0]["provider"], &events[0]["model"]), (&json!(PROVIDER), &json!("local-model")));
    let done = events.last().unwrap();
    assert_eq!(done["usage"], json!({ "tokens": 10, "cost": 0.0, "unpriced": true }));
    let requests = models.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(messages(&requests[0]), [json!({ "role": "user", "content": "hi" })]);
    assert_eq!((&requests[0]["model"], &requests[0]["stream"]), (&json!("local-model"), &json!(true)));
    assert_eq!(models.keys(), [format!("Bearer {KEY}")]);
}

#[tokio::test]
async fn a_call_is_approved_runs_and_its_result_goes_back_under_the_models_own_id() {
    let args = json!({ "path": "a.txt", "content": "hi" });
    let models =
        ModelServer::start([call_body("call_abc", "file_write", &args), text_body(&["written"])]).await;
    let server = start(&models).await;
    let mut socket = server.socket().await;
    socket.chat("s", "write it").await;
    let request = socket.expect("tool_approve_request").await;
    assert_eq!(request["args"], args);
    socket.decide("s", call_id(&request), "approve").await;
    let events = socket.until("done").await;
    assert_eq!(text(&events), "written");
    assert_eq!(events.last().unwrap()["usage"]["tokens"], 20);
    let requests = models.requests();
    let sent = messages(&requests[1]);
    assert_eq!(sent.len(), 3);
    assert_eq!(
        (&sent[0]["role"], &sent[1]["role"], &sent[2]["role"]),
        (&json!("user"), &json!("assistant"), &json!("tool"))
    );
    let call = &sent[1]["tool_calls"][0];
    assert_eq!((&call["id"], &call["function"]["name"]), (&json!("call_abc"), &json!("file_write")));
    let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments, args);
    assert_eq!(sent[2]["tool_call_id"], "call_abc");
    assert!(sent[2]["content"].as_str().unwrap().contains("wrote 2 bytes to a.txt"), "{}", sent[2]);
    let offered: Vec<&Value> =
        requests[0]["tools"].as_array().unwrap().iter().map(|tool| &tool["function"]["name"]).collect();
    assert_eq!(offered, ["file_read", "file_write", "list_dir", "grep", "shell"]);
}

#[tokio::test]
async fn after_a_cancelled_call_the_next_request_answers_it() {
    let models = ModelServer::start([
        call_body("call_1", "shell", &json!({ "command": "make" })),
        text_body(&["fine"]),
    ])
    .await;
    let server = start(&models).await;
    let mut socket = server.socket().await;
    socket.chat("s", "build").await;
    socket.expect("tool_approve_request").await;
    socket.send("s", "cancel", json!({})).await;
    socket.until("done").await;
    socket.chat("s", "again").await;
    assert_eq!(text(&socket.until("done").await), "fine");
    let sent = messages(&models.requests()[1]);
    let roles: Vec<&Value> = sent.iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "user"]);
    assert_eq!(sent[2]["tool_call_id"], "call_1");
    assert!(sent[2]["content"].as_str().unwrap().contains("cancelled"));
}

#[tokio::test]
async fn broken_arguments_never_run_and_are_sent_back_as_an_object() {
    let broken = call_body("call_1", "shell", &json!("ls"));
    let models = ModelServer::start([broken, text_body(&["sorry"]), text_body(&["hello"])]).await;
    let server = start(&models).await;
    let mut socket = server.socket().await;
    socket.chat("s", "go").await;
    let events = socket.until("done").await;
    assert!(of_type(&events, "tool_approve_request").is_empty() && of_type(&events, "tool_start").is_empty());
    assert_eq!(text(&events), "sorry");
    socket.chat("s", "hi").await;
    assert_eq!(text(&socket.until("done").await), "hello");
    for request in &models.requests()[1..] {
        let sent = messages(request);
        let arguments = sent[1]["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
        assert!(serde_json::from_str::<Value>(arguments).unwrap().is_object(), "{arguments}");
        assert_eq!(sent[2]["role"], "tool");
    }
}

#[tokio::test]
async fn a_refused_key_is_said_without_the_key_and_the_next_chat_works() {
    let refusal = Reply::refusal(401, &format!("Incorrect API key provided: {KEY}."));
    let models = ModelServer::start([refusal, text_body(&["hello"]).into()]).await;
    let server = start(&models).await;
    let mut socket = server.socket().await;
    socket.chat("s", "hi").await;
    let mut events = socket.until("error").await;
    assert_eq!(events.last().unwrap()["code"], "BAD_KEY");
    assert_eq!(events[events.len() - 2]["status"], "idle");
    socket.chat("s", "again").await;
    events.extend(socket.until("done").await);
    assert_eq!(text(&events), "hello");
    let rest = server.rest();
    events.extend(rest.events(&session("s"), 0).await.unwrap().events);
    events.push(serde_json::to_value(rest.messages(&session("s"), 0, None).await.unwrap()).unwrap());
    events.push(serde_json::to_value(rest.info().await.unwrap()).unwrap());
    assert!(!json!(events).to_string().contains("canary"), "{events:?}");
    assert!(!json!(models.requests()).to_string().contains("canary"));
}

#[tokio::test]
async fn a_stream_that_is_cut_keeps_what_was_shown_and_the_next_chat_works() {
    let models = ModelServer::start([cut_body(&["Mor", "e"]), text_body(&["whole"])]).await;
    let server = start(&models).await;
    let mut socket = server.socket().await;
    socket.chat("s", "hi").await;
    let events = socket.until("error").await;
    assert_eq!(types(&events), ["agent_state", "token", "agent_state", "error"]);
    assert_eq!(text(&events), "More");
    assert_eq!(events.last().unwrap()["code"], "STREAM_INCOMPLETE");
    let stored = server.rest().messages(&session("s"), 0, None).await.unwrap().messages;
    assert_eq!((stored[1].content.as_str(), stored[1].failed), ("More", true));
    socket.chat("s", "again").await;
    assert_eq!(text(&socket.until("done").await), "whole");
    assert_eq!(models.requests().len(), 2);
}

#[tokio::test]
async fn an_agent_may_name_another_configured_provider_and_no_other() {
    let models = ModelServer::start([] as [String; 0]).await;
    let server = start(&models).await;
    let mut socket = server.socket().await;
    socket.send("s", "agent_add", json!({ "role": "x", "provider": "offline" })).await;
    assert_eq!(socket.expect("agent_state").await["provider"], "offline");
    for provider in ["openai", "no-such"] {
        socket.send("s", "agent_add", json!({ "role": "x", "provider": provider })).await;
        assert_eq!(socket.error_code().await, "AGENT_ADD_FAILED", "{provider}");
    }
}
