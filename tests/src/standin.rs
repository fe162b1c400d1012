//! Stand-ins for six providers on one free port of loopback: Anthropic Messages, OpenAI Responses,
//! Chat Completions, Gemini and Ollama, each with its list of models, its errors and its own events, and
//! ElevenLabs, which has lists only. As strict as the real ones: what they would refuse gets their 400. What
//! is answered is one [`Plan`], whatever the wire: the next one that a test set, else what directives in the
//! last paragraph of the user's last message ask for. What an account is like goes by its key.
//!
//! It must not know the engines: it reads wires as their providers document them.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderName, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::serve::ListenerExt;
use axum::{Json, Router};
use futures_util::{StreamExt, stream};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

mod anthropic;
mod chat;
mod conversation;
mod elevenlabs;
mod gemini;
mod lists;
mod memory;
mod ollama;
mod plan;
mod responses;
mod wire;

use lists::Price;
use memory::Memory;
pub use plan::{Fault, Plan};
use wire::{Answer, Heard, Incoming, Trouble, Wire, Written};

/// The key that is taken; so is any that begins with it and a dash.
pub const GOOD_KEY: &str = "good";
/// The key that is refused, as any unknown one is.
pub const BAD_KEY: &str = "bad";
/// The key of an account without credit; so is any that begins with it and a dash.
pub const BROKE_KEY: &str = "broke";
/// The key with which everything fails inside the provider; so is any that begins with it and a dash, as
/// are those below.
pub const OUTAGE_KEY: &str = "outage";
/// The key of an account that asks too often.
pub const SLOW_KEY: &str = "slow";
/// ElevenLabs only: the key of a plan that is used up, which comes with the status of a bad key.
pub const SPENT_KEY: &str = "spent";
/// ElevenLabs only: the key with which the service is too busy.
pub const BUSY_KEY: &str = "busy";

/// The provider that has voices and no text.
pub const VOICE_PROVIDER: &str = "elevenlabs";

/// The providers that are stood in for, and a model of each.
pub const PROVIDERS: [(&str, &str); 5] = [
    ("anthropic", "claude-opus-5-5"),
    ("openai", "gpt-6.2-sol"),
    ("gemini", "gemini-3.8-flash"),
    ("ollama", "qwen3:4b"),
    ("openai-compatible", "local-model"),
];

/// Where a redirect points: an address of this machine where nothing listens.
const MOVED: &str = "127.0.0.1:9";

/// The running stand-in. It stops when it is dropped.
pub struct Standin {
    origin: String,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

/// A request as it came.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// The provider that was asked.
    pub provider: &'static str,
    /// The path with its query.
    pub path: String,
    /// The key, from the header that the provider reads it from.
    pub key: Option<String>,
    /// The body; null where it was no JSON.
    pub body: Value,
}

#[derive(Debug, Default)]
struct Shared {
    plans: Mutex<VecDeque<Plan>>,
    requests: Mutex<Vec<Recorded>>,
    lists: Mutex<Vec<Recorded>>,
    complaints: Mutex<Vec<String>>,
    memory: Memory,
    serial: AtomicU64,
    /// Longer requests are refused; 0: none is.
    most_bytes: AtomicUsize,
}

impl Standin {
    /// Starts it on a free port of loopback.
    pub async fn start() -> Self {
        let shared = Arc::new(Shared::default());
        let router = Router::new()
            .route("/v1/messages", answers(&anthropic::Messages))
            .route("/v1/responses", answers(&responses::Responses))
            .route("/openai/v1/responses", answers(&responses::Responses))
            .route("/v1/chat/completions", answers(&chat::ChatCompletions))
            .route("/v1beta/models/{method}", answers(&gemini::Gemini))
            .route("/api/chat", answers(&ollama::Ollama))
            .merge(lists::routes())
            .with_state(Arc::clone(&shared));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        // Without it small writes wait for an acknowledgement.
        let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { origin, shared, _tasks: tasks }
    }

    /// Returns `HOST:PORT`.
    pub fn address(&self) -> &str {
        self.origin.strip_prefix("http://").unwrap()
    }

    /// Returns the variables that point a provider's engine here, with this key.
    pub fn variables(&self, provider: &str, key: &str) -> [(String, String); 2] {
        let name = provider.to_ascii_uppercase().replace('-', "_");
        let path = match provider {
            // Its list of models is another one than that of compatible servers.
            "openai" => "/openai/v1",
            "openai-compatible" => "/v1",
            _ => "",
        };
        [
            (format!("PROVIDER_BASE_URL_{name}"), format!("{}{path}", self.origin)),
            (format!("{name}_API_KEY"), key.to_owned()),
        ]
    }

    /// Plans the next answers; each replaces what the user's words ask for.
    pub fn plan(&self, plans: impl IntoIterator<Item = Plan>) {
        self.shared.plans.lock().unwrap().extend(plans);
    }

    /// From now on a longer request is refused as too long for the model.
    pub fn takes_at_most(&self, bytes: usize) {
        self.shared.most_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Returns the requests for answers so far.
    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// Returns the questions for lists and accounts so far.
    pub fn lists(&self) -> Vec<Recorded> {
        self.shared.lists.lock().unwrap().clone()
    }

    /// Returns what was wrong with requests so far: each got a 400.
    pub fn complaints(&self) -> Vec<String> {
        self.shared.complaints.lock().unwrap().clone()
    }
}

fn answers(wire: &'static dyn Wire) -> axum::routing::MethodRouter<Arc<Shared>> {
    post(move |State(shared): State<Arc<Shared>>, uri: Uri, headers: HeaderMap, body: Bytes| async move {
        answer(&shared, wire, &uri, &headers, &body)
    })
}

fn is_key(key: &str, kind: &str) -> bool {
    key.strip_prefix(kind).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

fn answer(shared: &Shared, wire: &dyn Wire, uri: &Uri, headers: &HeaderMap, body: &Bytes) -> Response {
    let key = wire.key(headers);
    let length = body.len();
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let path = uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let recorded = Recorded { provider: wire.provider(), path, key: key.clone(), body: body.clone() };
    shared.requests.lock().unwrap().push(recorded);
    if let Some(trouble) = lists::objection(wire.wants_key(), key.as_deref(), Price::Paid) {
        return refuse(wire, trouble);
    }
    let most = shared.most_bytes.load(Ordering::Relaxed);
    if most > 0 && length > most {
        return refuse(wire, Trouble::TooLong);
    }
    let query = uri.query().unwrap_or_default();
    let incoming = Incoming { path: uri.path(), query, headers, body: &body, memory: &shared.memory };
    let heard = match read(wire, &incoming) {
        Ok(heard) => heard,
        Err(why) => {
            shared.complaints.lock().unwrap().push(format!("{}: {why}", wire.provider()));
            return refuse(wire, Trouble::Malformed(&why));
        }
    };
    let plan = shared.plans.lock().unwrap().pop_front();
    let plan = plan.unwrap_or_else(|| Plan::from_words(conversation::last_words(&heard.turns)));
    match plan.fault {
        Some(Fault::RateLimited(pause)) => refuse(wire, Trouble::RateLimited(pause)),
        Some(Fault::RateLimitedUntil(pause)) if wire.provider() != "gemini" => {
            let (status, body) = wire.refusal(Trouble::RateLimited(None));
            (StatusCode::from_u16(status).unwrap(), [(RETRY_AFTER, date_after(pause))], Json(body))
                .into_response()
        }
        Some(Fault::RateLimitedUntil(pause)) => refuse(wire, Trouble::RateLimited(Some(pause))),
        Some(Fault::Refused) => {
            let refusal = refuse(wire, Trouble::Malformed("no such parameter"));
            (after(Duration::from_secs(1)), refusal).into_response()
        }
        Some(Fault::Redirected) => {
            (StatusCode::FOUND, [(LOCATION, format!("http://{MOVED}{}", uri.path()))]).into_response()
        }
        Some(Fault::Broken) => refuse(wire, Trouble::Broken),
        Some(Fault::TooLong) => refuse(wire, Trouble::TooLong),
        _ => stream_of(shared, wire, &heard, &plan),
    }
}

/// Returns when a pause that begins now is over: the next whole second that is not before it.
fn date_after(pause: Duration) -> String {
    let end = jiff::Timestamp::now() + pause + Duration::from_millis(999);
    jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&end).unwrap()
}

/// Returns the wire of a provider.
fn wire_of(provider: &str) -> &'static dyn Wire {
    let wires: [&dyn Wire; 5] = [
        &anthropic::Messages,
        &responses::Responses,
        &chat::ChatCompletions,
        &gemini::Gemini,
        &ollama::Ollama,
    ];
    wires.into_iter().find(|wire| wire.provider() == provider).expect("a provider of the list")
}

/// Returns the events of an answer as they go over the line; one that thinks begins with reasoning.
pub fn events(provider: &str, plan: &Plan, thinks: bool) -> Vec<String> {
    let wire = wire_of(provider);
    let answer = Answer { plan, model: "model", thinks, serial: 0 };
    planned(wire, wire.write(&answer), plan.fault).0
}

/// Returns the events with what goes wrong among them, and the blocks to remember.
fn planned(wire: &dyn Wire, written: Written, fault: Option<Fault>) -> (Vec<String>, Vec<Value>) {
    let Written { mut events, before_calls, signed } = written;
    match fault {
        Some(Fault::OverloadedAtOnce) => (vec![told(wire, Trouble::Overloaded)], Vec::new()),
        Some(Fault::TooLongAtOnce) => (vec![told(wire, Trouble::TooLong)], Vec::new()),
        Some(Fault::OverloadedInStream) => {
            events.truncate(before_calls);
            events.push(told(wire, Trouble::Overloaded));
            (events, Vec::new())
        }
        Some(Fault::Stall | Fault::CutAfterText) => {
            events.truncate(before_calls);
            (events, Vec::new())
        }
        Some(Fault::FinishTwice) => {
            events.extend(events.last().cloned());
            (events, signed)
        }
        Some(Fault::Cut(_) | Fault::StallAfter(_)) => (events, Vec::new()),
        _ => (events, signed),
    }
}

/// Returns the event by which a stream tells of trouble.
fn told(wire: &dyn Wire, trouble: Trouble<'_>) -> String {
    wire.in_stream(&wire.refusal(trouble).1)
}

/// Reads a request: what all providers demand of it, then what this one does.
fn read(wire: &dyn Wire, incoming: &Incoming<'_>) -> Result<Heard, String> {
    wire::header(incoming.headers, CONTENT_TYPE.as_str(), "application/json")?;
    if incoming.query.contains("key") {
        return Err("a key stands in the URL".to_owned());
    }
    if !incoming.body.is_object() {
        return Err("the body is no JSON object".to_owned());
    }
    wire.read(incoming)
}

fn refuse(wire: &dyn Wire, trouble: Trouble<'_>) -> Response {
    let (status, body) = wire.refusal(trouble);
    let status = StatusCode::from_u16(status).unwrap();
    match trouble {
        // Gemini says it in the body.
        Trouble::RateLimited(Some(pause)) if wire.provider() != "gemini" => {
            (status, after(pause), Json(body)).into_response()
        }
        _ => (status, Json(body)).into_response(),
    }
}

fn after(pause: Duration) -> [(HeaderName, String); 1] {
    [(RETRY_AFTER, pause.as_secs().to_string())]
}

fn stream_of(shared: &Shared, wire: &dyn Wire, heard: &Heard, plan: &Plan) -> Response {
    let serial = shared.serial.fetch_add(1, Ordering::Relaxed);
    let answer = Answer { plan, model: &heard.model, thinks: heard.thinks, serial };
    let (events, signed) = planned(wire, wire.write(&answer), plan.fault);
    if !signed.is_empty() {
        shared.memory.keep(signed);
    }
    let pieces = |events: Vec<String>| stream::iter(events.into_iter().map(Ok::<_, Infallible>));
    let body = match plan.fault {
        Some(Fault::Stall | Fault::HeldOpen) => Body::from_stream(pieces(events).chain(stream::pending())),
        Some(Fault::StallAfter(bytes)) => {
            let shown = stream::iter([Ok::<_, Infallible>(head(&events, bytes))]);
            Body::from_stream(shown.chain(stream::pending()))
        }
        Some(Fault::Cut(bytes)) => broken(head(&events, bytes)),
        Some(Fault::CutAfterText) => broken(events.concat().into_bytes()),
        Some(Fault::OneByteWrites) => {
            Body::from_stream(stream::iter(events.concat().into_bytes()).then(async |byte| {
                // What was written goes out before the next.
                tokio::task::yield_now().await;
                Ok::<_, Infallible>(vec![byte])
            }))
        }
        _ => Body::from_stream(pieces(events)),
    };
    ([(CONTENT_TYPE, wire.content_type())], body).into_response()
}

/// Tells of a pull as it goes on.
fn pull_stream(wire: &dyn Wire, pull: ollama::Pull) -> Response {
    let lines = pull.lines.into_bytes();
    let body = match pull.end {
        ollama::PullEnd::Whole => Body::from(lines),
        ollama::PullEnd::Cut => broken(lines),
        ollama::PullEnd::Held => {
            Body::from_stream(stream::iter([Ok::<_, Infallible>(lines)]).chain(stream::pending()))
        }
    };
    ([(CONTENT_TYPE, wire.content_type())], body).into_response()
}

fn head(events: &[String], bytes: usize) -> Vec<u8> {
    let mut text = events.concat().into_bytes();
    text.truncate(bytes);
    text
}

/// Writes bytes and breaks the connection.
fn broken(bytes: Vec<u8>) -> Body {
    let shown = stream::iter([Ok::<_, io::Error>(bytes)]);
    Body::from_stream(shown.chain(stream::once(async {
        // What was written goes out before the connection breaks.
        tokio::task::yield_now().await;
        Err(io::ErrorKind::ConnectionReset.into())
    })))
}
