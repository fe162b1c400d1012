//! The client side of a tns server: one `/chat` socket and the REST calls beside it.
//!
//! [`Client::connect`] opens the socket and returns the sending half, which is cheap to clone, and the
//! [`Events`] that arrive. [`Rest`] works without a socket. This crate shows nothing to people, keeps
//! nothing on disk and never sees the server's code.

mod address;
mod connection;
mod events;
mod reconnect;
mod rest;

use std::sync::{Arc, Mutex, PoisonError};

use tns_protocol::{ClientFrame, ClientMessage, ErrorCode, RequestId, SessionId, encode_client};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::address::Address;
pub use crate::events::{ClientEvent, Events};
pub use crate::rest::Rest;

/// Frames that wait to be written. Full → [`Client::send`] waits.
const OUTBOX_FRAMES: usize = 64;
/// Sessions that a new connection joins again after a loss. More → the longest unused is left out.
const MAX_REJOINED_SESSIONS: usize = 64;

/// What goes wrong between a client and its server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// Nobody answers at the address, or the address is not one.
    #[error("reach the server: {0}")]
    Unreachable(String),
    /// The server answered and said no.
    #[error("{message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The kind of refusal.
        code: ErrorCode,
        /// The server's own line for people.
        message: String,
    },
    /// The peer is not a tns server, or speaks another version.
    #[error("understand the server: {0}")]
    Protocol(String),
    /// The connection has ended for good.
    #[error("send: the connection is closed")]
    Closed,
}

/// What a client does when its connection is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reconnect {
    /// Ends with [`ClientEvent::Closed`].
    Never,
    /// Tries again, at first after a quarter of a second, later every eight seconds, until the client is dropped.
    Backoff,
}

/// Where to connect and how.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// The server's address: `http://host:port`.
    pub url: String,
    /// What to do when the connection is lost.
    pub reconnect: Reconnect,
}

/// The sending half of one connection. The connection ends when the last clone is dropped.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    outbox: mpsc::Sender<String>,
    rest: Rest,
    joined: Arc<Joined>,
    closing: CancellationToken,
    /// Holds the connection's task, which is stopped with the last clone of the client.
    _tasks: JoinSet<()>,
}

/// The sessions that this client has joined, the latest used last.
#[derive(Default)]
pub(crate) struct Joined(Mutex<Vec<SessionId>>);

impl Joined {
    fn remember(&self, session: &SessionId) {
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sessions.last() == Some(session) {
            return;
        }
        sessions.retain(|known| known != session);
        if sessions.len() == MAX_REJOINED_SESSIONS {
            sessions.remove(0);
        }
        sessions.push(session.clone());
    }

    pub(crate) fn sessions(&self) -> Vec<SessionId> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Client {
    /// Opens the socket. The first connection is tried once, whatever `config.reconnect` says.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`] when nobody answers, [`ClientError::Refused`] when the server refuses
    /// the connection, [`ClientError::Protocol`] when the peer is no tns server.
    pub async fn connect(config: ClientConfig) -> Result<(Self, Events), ClientError> {
        let address = Address::parse(&config.url)?;
        let socket = connection::open(&address).await?;
        let (outbox, queue) = mpsc::channel(OUTBOX_FRAMES);
        let (sender, events) = events::channel();
        let joined = Arc::new(Joined::default());
        let closing = CancellationToken::new();
        let link = connection::Link { queue, events: sender, closing: closing.clone() };
        let rest = Rest::at(address.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(reconnect::keep(socket, link, address, config.reconnect, Arc::clone(&joined)));
        let inner = Inner { outbox, rest, joined, closing, _tasks: tasks };
        Ok((Self { inner: Arc::new(inner) }, events))
    }

    /// Queues a message for a session; its first message joins the session. Waits while the queue is full.
    ///
    /// A queued message is written at most once: one that was being written when the connection broke may
    /// be lost, and is safe to send again only where the message itself is idempotent.
    ///
    /// # Errors
    /// [`ClientError::Closed`] when the connection has ended for good.
    pub async fn send(
        &self,
        session: &SessionId,
        message: impl Into<ClientMessage>,
    ) -> Result<(), ClientError> {
        self.queue(ClientFrame { session_id: session.clone(), req_id: None, message: message.into() }).await
    }

    /// Queues a message under a name of the caller's; an answer to it carries that name as `re`.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub async fn request(
        &self,
        session: &SessionId,
        id: RequestId,
        message: impl Into<ClientMessage>,
    ) -> Result<(), ClientError> {
        self.queue(ClientFrame { session_id: session.clone(), req_id: Some(id), message: message.into() })
            .await
    }

    async fn queue(&self, frame: ClientFrame) -> Result<(), ClientError> {
        let text = encode_client(&frame);
        self.inner.joined.remember(&frame.session_id);
        self.inner.outbox.send(text).await.map_err(|_| ClientError::Closed)
    }

    /// Returns the REST calls of the same server.
    pub fn rest(&self) -> &Rest {
        &self.inner.rest
    }

    /// Writes what is queued, says goodbye and waits until the connection has ended, about a second at most.
    pub async fn close(&self) {
        self.inner.closing.cancel();
        self.inner.outbox.closed().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_unused_session_is_forgotten_at_the_limit() {
        let joined = Joined::default();
        let id = |n: usize| SessionId::parse(format!("s{n}")).unwrap();
        for n in 0..MAX_REJOINED_SESSIONS {
            joined.remember(&id(n));
        }
        joined.remember(&id(0));
        assert_eq!(joined.sessions().len(), MAX_REJOINED_SESSIONS);
        joined.remember(&id(MAX_REJOINED_SESSIONS));
        let sessions = joined.sessions();
        assert_eq!(sessions.len(), MAX_REJOINED_SESSIONS);
        assert!(sessions.contains(&id(0)) && !sessions.contains(&id(1)));
    }
}
