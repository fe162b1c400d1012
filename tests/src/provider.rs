//! A local model server that speaks Chat Completions from a script: one reply for each request.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// A local model server.
pub struct ModelServer {
    base_url: String,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

/// One answer of the model server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    status: StatusCode,
    body: String,
    pace: Pace,
}

/// How an answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// At once.
    Whole,
    /// An event at a time, with this pause before each.
    Slow(Duration),
    /// At once, and then nothing: the stream stays open until the client leaves.
    Held,
}

impl Reply {
    /// Refuses with a status and a provider's error message.
    pub fn refusal(status: u16, message: &str) -> Self {
        let body = json!({ "error": { "message": message, "type": "invalid_request_error" } }).to_string();
        Self { status: StatusCode::from_u16(status).unwrap(), body, pace: Pace::Whole }
    }

    /// Answers with a body an event at a time, with a pause before each.
    pub fn slow(body: String, pause: Duration) -> Self {
        Self { status: StatusCode::OK, body, pace: Pace::Slow(pause) }
    }

    /// Answers in these pieces and never ends.
    pub fn held(pieces: &[&str]) -> Self {
        Self { status: StatusCode::OK, body: cut_body(pieces), pace: Pace::Held }
    }
}

impl From<String> for Reply {
    fn from(body: String) -> Self {
        Self { status: StatusCode::OK, body, pace: Pace::Whole }
    }
}

#[derive(Default)]
struct Shared {
    replies: Mutex<VecDeque<Reply>>,
    requests: Mutex<Vec<Value>>,
    keys: Mutex<Vec<String>>,
}

impl ModelServer {
    /// Starts it on a free port of loopback. When the replies are used up it answers `done`.
    pub async fn start(replies: impl IntoIterator<Item = impl Into<Reply>>) -> Self {
        let shared = Arc::new(Shared::default());
        shared.replies.lock().unwrap().extend(replies.into_iter().map(Into::into));
        let router = Router::new()
            .route("/v1/models", get(|| async { axum::Json(json!({ "data": [{ "id": "local-model" }] })) }))
            .route("/v1/chat/completions", post(complete))
            .with_state(shared.clone());
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
        // Without it small writes wait for an acknowledgement.
        let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { base_url, shared, _tasks: tasks }
    }

    /// Returns its base URL, to which `/chat/completions` is appended.
    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    /// Replaces the replies that are left.
    pub fn script(&self, replies: impl IntoIterator<Item = impl Into<Reply>>) {
        *self.shared.replies.lock().unwrap() = replies.into_iter().map(Into::into).collect();
    }

    /// Returns the bodies of the requests so far.
    pub fn requests(&self) -> Vec<Value> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// Returns the `Authorization` headers of the requests so far.
    pub fn keys(&self) -> Vec<String> {
        self.shared.keys.lock().unwrap().clone()
    }
}

async fn complete(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> impl IntoResponse {
    shared.requests.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
    let key = headers.get(AUTHORIZATION).map(|key| key.to_str().unwrap().to_owned());
    shared.keys.lock().unwrap().extend(key);
    let reply = shared.replies.lock().unwrap().pop_front().unwrap_or_else(|| text_body(&["done"]).into());
    let kind = if reply.status.is_success() { "text/event-stream" } else { "application/json" };
    let body = match reply.pace {
        Pace::Whole => Body::from(reply.body),
        Pace::Slow(pause) => {
            let events: Vec<String> = reply.body.split_inclusive("\n\n").map(str::to_owned).collect();
            Body::from_stream(stream::iter(events).then(move |event| async move {
                tokio::time::sleep(pause).await;
                Ok::<_, Infallible>(event)
            }))
        }
        Pace::Held => {
            let shown = stream::iter([Ok::<_, Infallible>(reply.body)]);
            Body::from_stream(shown.chain(stream::pending()))
        }
    };
    (reply.status, [(CONTENT_TYPE, kind)], body)
}

/// Returns the body of a reply in these pieces.
pub fn text_body(pieces: &[&str]) -> String {
    let deltas = pieces.iter().map(|piece| json!({ "content": piece }));
    body(deltas, "stop")
}

/// Returns the body of a reply that calls one tool.
pub fn call_body(id: &str, tool: &str, args: &Value) -> String {
    calls_body(&[(id, tool, args.clone())])
}

/// Returns the body of a reply that calls tools at once, each with its id and its arguments.
pub fn calls_body(calls: &[(&str, &str, Value)]) -> String {
    let calls = calls.iter().enumerate().map(|(index, (id, tool, args))| {
        json!({ "index": index, "id": id, "type": "function",
            "function": { "name": tool, "arguments": args.to_string() } })
    });
    body([json!({ "tool_calls": calls.collect::<Vec<_>>() })].into_iter(), "tool_calls")
}

/// Returns the body of a reply that ends in the middle: no finish, no end mark.
pub fn cut_body(pieces: &[&str]) -> String {
    pieces.iter().map(|piece| chunk(&json!({ "content": piece }))).collect()
}

fn chunk(delta: &Value) -> String {
    let chunk = json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] });
    format!("data: {chunk}\n\n")
}

fn body(deltas: impl Iterator<Item = Value>, finish: &str) -> String {
    let mut text: String = deltas.map(|delta| chunk(&delta)).collect();
    let last = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": finish }],
        "usage": { "prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10 } });
    text.push_str(&format!("data: {last}\n\ndata: [DONE]\n\n"));
    text
}
