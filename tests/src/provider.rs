//! A local model server that speaks Chat Completions from a script: one body for each request.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// A local model server.
pub struct ModelServer {
    base_url: String,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

#[derive(Default)]
struct Shared {
    bodies: Mutex<VecDeque<String>>,
    requests: Mutex<Vec<Value>>,
}

impl ModelServer {
    /// Starts it on a free port of loopback. When the bodies are used up it answers `done`.
    pub async fn start(bodies: impl IntoIterator<Item = String>) -> Self {
        let shared = Arc::new(Shared::default());
        shared.bodies.lock().unwrap().extend(bodies);
        let router = Router::new()
            .route("/v1/models", get(|| async { axum::Json(json!({ "data": [{ "id": "local-model" }] })) }))
            .route("/v1/chat/completions", post(complete))
            .with_state(shared.clone());
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { base_url, shared, _tasks: tasks }
    }

    /// Returns its base URL, to which `/chat/completions` is appended.
    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    /// Returns the bodies of the requests so far.
    pub fn requests(&self) -> Vec<Value> {
        self.shared.requests.lock().unwrap().clone()
    }
}

async fn complete(State(shared): State<Arc<Shared>>, body: Bytes) -> impl IntoResponse {
    shared.requests.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
    let body = shared.bodies.lock().unwrap().pop_front().unwrap_or_else(|| text_body(&["done"]));
    ([(CONTENT_TYPE, "text/event-stream")], body)
}

/// Returns the body of a reply in these pieces.
pub fn text_body(pieces: &[&str]) -> String {
    let deltas = pieces.iter().map(|piece| json!({ "content": piece }));
    body(deltas, "stop")
}

/// Returns the body of a reply that calls one tool.
pub fn call_body(id: &str, tool: &str, args: &Value) -> String {
    let call = json!({ "index": 0, "id": id, "type": "function",
        "function": { "name": tool, "arguments": args.to_string() } });
    body([json!({ "tool_calls": [call] })].into_iter(), "tool_calls")
}

fn body(deltas: impl Iterator<Item = Value>, finish: &str) -> String {
    let mut text: String = deltas
        .map(|delta| json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] }))
        .map(|chunk| format!("data: {chunk}\n\n"))
        .collect();
    let last = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": finish }],
        "usage": { "prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10 } });
    text.push_str(&format!("data: {last}\n\ndata: [DONE]\n\n"));
    text
}
