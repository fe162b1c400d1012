//! The faces of the server: what comes in over the network, and what goes out.
//!
//! `accept` takes connections, `door` lets in or turns away, `ws` is the `/chat` face with `dispatch`
//! (a client's event → a command) and `translate` (a session's event → a frame), `rest` is the REST face,
//! `stream` the event streams beside it, `routes` the one table of what can be called.

mod accept;
mod bounds;
mod dispatch;
mod door;
mod error;
mod outbox;
mod patient;
mod peer;
mod rest;
mod routes;
mod stream;
mod translate;
mod ws;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::middleware;
use tns_protocol::rest::ServerLimits;
use tns_protocol::{ErrorCode, MAX_MESSAGE_BYTES, MAX_SMALL_MESSAGE_BYTES};
use tns_server_core::engine::Pricing;
use tns_server_core::session::registry::Registry;
use tns_server_core::session::{ConnectionId, SessionDeps};
use tns_server_engines::Catalogue;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use accept::Acceptor;
pub(crate) use door::Door;
use error::ApiError;
pub(crate) use peer::Peer;
use rest::tools::ToolStreams;
pub(crate) use routes::page as openapi;

/// Most sessions in memory; more → `LIMIT`. One that nobody uses leaves memory by itself.
const MAX_ACTIVE_SESSIONS: usize = 10_000;
/// Largest body of a REST request: as large as the largest frame, and some room around it.
const MAX_BODY_BYTES: usize = MAX_MESSAGE_BYTES + (1 << 20);

/// What every connection and request shares.
pub(crate) struct Gateway {
    pub(crate) registry: Registry,
    pub(crate) deps: SessionDeps,
    /// The server's roots: absolute and canonical. The first is where sessions of `/chat` work.
    pub(crate) roots: Vec<PathBuf>,
    /// The engine of new agents: provider, model, and why.
    pub(crate) engine: EngineLabel,
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) started: Instant,
    pub(crate) draining: AtomicBool,
    /// Fires when `/chat` connections are to be closed: every turn has ended by then.
    pub(crate) closing: CancellationToken,
    /// Readers of event streams that say goodbye to their sessions.
    goodbyes: TaskTracker,
    /// Event streams whose clients may run tools.
    tool_streams: ToolStreams,
    /// `/chat` connections and event streams.
    pub(crate) connections: watch::Sender<usize>,
    next_connection: AtomicU64,
    /// Milliseconds after `started` when something last happened.
    last_activity: AtomicU64,
}

/// Which engine new agents use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineLabel {
    /// Whose models.
    pub provider: String,
    /// Which model.
    pub model: String,
    /// Why it was chosen, in one line.
    pub reason: String,
    /// Whether its steps can be counted in dollars.
    pub pricing: Pricing,
}

impl Gateway {
    pub(crate) fn new(
        deps: SessionDeps,
        roots: Vec<PathBuf>,
        engine: EngineLabel,
        catalogue: Arc<Catalogue>,
    ) -> Self {
        Self {
            registry: Registry::new(deps.clone()),
            deps,
            roots,
            engine,
            catalogue,
            started: Instant::now(),
            draining: AtomicBool::new(false),
            closing: CancellationToken::new(),
            goodbyes: TaskTracker::new(),
            tool_streams: ToolStreams::default(),
            connections: watch::Sender::new(0),
            next_connection: AtomicU64::new(1),
            last_activity: AtomicU64::new(0),
        }
    }

    /// Refuses one more session in memory where there are too many.
    fn check_room(&self) -> Result<(), ApiError> {
        if self.registry.active() < MAX_ACTIVE_SESSIONS {
            return Ok(());
        }
        let message = format!("the server has {MAX_ACTIVE_SESSIONS} sessions open; close some first");
        Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, ErrorCode::Limit, message))
    }

    /// Whether the server takes nothing new, since it stops.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    fn connection_id(&self) -> ConnectionId {
        ConnectionId(self.next_connection.fetch_add(1, Ordering::Relaxed))
    }

    /// Notes that somebody uses the server.
    fn touch(&self) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_activity.store(now, Ordering::Relaxed);
    }

    /// Returns how long nothing has happened: no connection, no running turn, no REST call.
    pub(crate) fn idle_for(&self) -> Duration {
        if *self.connections.borrow() > 0 || self.registry.active() > 0 {
            self.touch();
        }
        let last = Duration::from_millis(self.last_activity.load(Ordering::Relaxed));
        self.started.elapsed().saturating_sub(last)
    }

    fn limits() -> ServerLimits {
        ServerLimits {
            max_message_bytes: MAX_MESSAGE_BYTES as u64,
            max_small_message_bytes: MAX_SMALL_MESSAGE_BYTES as u64,
        }
    }
}

/// Builds the router: every route behind the door, every refusal as JSON.
pub(crate) fn router(gateway: Arc<Gateway>, door: Door) -> Router {
    routes::handlers()
        .fold(Router::new(), |router, (path, handler)| router.route(path, handler))
        .fallback(rest::not_found)
        .method_not_allowed_fallback(rest::method_not_allowed)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn_with_state(gateway.clone(), rest::note_activity))
        .layer(middleware::from_fn_with_state(door, door::check))
        .layer(middleware::from_fn(bounds::check))
        .with_state(gateway)
}
