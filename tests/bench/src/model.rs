//! A model server that writes as fast as it is told: Chat Completions over SSE, one write a token.
//! The last user message says how: `[[tokens=N rate=R ttft=MS noted=1]]`; rate 0 is as fast as possible, and
//! `noted` keeps when each token was written.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::stream;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Tokens that are handed over in one chunk when there is no rate.
const BURST: usize = 64;

/// The running model server.
pub(crate) struct Model {
    pub(crate) port: u16,
    notes: Notes,
    _tasks: JoinSet<()>,
}

/// What the model server remembers.
#[derive(Clone, Default)]
struct Notes {
    calls: Arc<Mutex<Vec<Call>>>,
    written: Arc<Mutex<Vec<Instant>>>,
}

/// When a request was received and its first token written.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub(crate) received: Instant,
    pub(crate) first: Instant,
}

impl Model {
    /// Returns the last call's times and forgets all of them.
    pub(crate) fn take_last(&self) -> Option<Call> {
        let mut calls = self.notes.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.drain(..).next_back()
    }

    /// Returns when each token was written that was to be noted, and forgets it.
    pub(crate) fn take_written(&self) -> Vec<Instant> {
        std::mem::take(&mut *self.notes.written.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the base URL.
    pub(crate) fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }
}

/// Starts it on a free port of loopback.
pub(crate) async fn start() -> Result<Model> {
    let notes = Notes::default();
    let router = Router::new()
        .route("/v1/models", get(|| async { Json(serde_json::json!({ "data": [{ "id": "bench" }] })) }))
        .route("/v1/chat/completions", post(complete))
        .with_state(notes.clone());
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let port = listener.local_addr()?.port();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        use axum::serve::ListenerExt;
        // Without it small writes wait for an acknowledgement.
        let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
        if let Err(error) = axum::serve(listener, router).await {
            eprintln!("the model server ended: {error}");
        }
    });
    Ok(Model { port, notes, _tasks: tasks })
}

fn number(text: &str, name: &str) -> Option<u64> {
    let at = text.rfind(&format!("{name}="))? + name.len() + 1;
    let digits: String = text[at..].chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

async fn complete(State(notes): State<Notes>, body: Bytes) -> impl IntoResponse {
    let received = Instant::now();
    let text = String::from_utf8_lossy(&body).into_owned();
    let tokens = number(&text, "tokens").unwrap_or(200) as usize;
    let rate = number(&text, "rate").unwrap_or(0);
    let ttft = Duration::from_millis(number(&text, "ttft").unwrap_or(0));
    let noted = number(&text, "noted") == Some(1);
    let pace = (rate > 0).then(|| Duration::from_secs_f64(1.0 / rate as f64));
    let stream = stream::unfold(0, move |at| {
        let notes = notes.clone();
        async move {
            if at == 0 {
                tokio::time::sleep(ttft).await;
                let call = Call { received, first: Instant::now() };
                notes.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
            } else if let Some(pace) = pace {
                // By the clock from the first token on: a late one does not delay those behind it.
                let due = received + ttft + pace.mul_f64(at as f64);
                tokio::time::sleep_until(due.into()).await;
            }
            if at > tokens {
                return None;
            }
            let count = if pace.is_some() || at == 0 { 1 } else { BURST };
            let until = (at + count).min(tokens);
            let mut chunk = String::new();
            for token in at..until {
                chunk.push_str(&delta(token));
            }
            if noted {
                let mut written = notes.written.lock().unwrap_or_else(PoisonError::into_inner);
                written.resize(until, Instant::now());
            }
            if until == tokens {
                chunk.push_str(END);
            }
            let next = if until == tokens { tokens + 1 } else { until };
            Some((Ok::<_, Infallible>(Bytes::from(chunk)), next))
        }
    });
    ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(stream))
}

const END: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1,\"total_tokens\":2}}\n\ndata: [DONE]\n\n";

fn delta(token: usize) -> String {
    let word = ["alpha ", "beta ", "gamma ", "delta ", "epsilon "][token % 5];
    format!(
        "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{word}\"}},\"finish_reason\":null}}]}}\n\n"
    )
}
