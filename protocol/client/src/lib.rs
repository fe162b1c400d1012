//! The client side of a tns server: one `/chat` socket and the REST calls beside it.
//!
//! [`Client::connect`] opens the socket and returns the sending half, which is cheap to clone, and the
//! [`Events`] that arrive. A session that is joined is followed: its durable events come exactly once, in
//! order, across lost connections and restarts of the server. [`Rest`] works without a socket. This crate
//! shows nothing to people, keeps nothing on disk and never sees the server's code.

mod address;
mod config;
mod connection;
mod cursor;
mod events;
mod network;
mod reconnect;
mod rest;
mod sessions;

use std::sync::Arc;

use tns_protocol::{
    ClientFrame, ClientMessage, ErrorCode, RequestId, SessionId, encode_client, message_limit,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::address::{Address, SharedAddress};
pub use crate::config::{ClientConfig, Reconnect, Rediscover};
use crate::connection::Followed;
pub use crate::cursor::Cursor;
pub use crate::events::{ClientEvent, Events};
pub use crate::network::{Network, Stream};
pub use crate::rest::{Download, ExportFormat, ImportTarget, Rest};
use crate::sessions::{Chat, MAX_SESSIONS, Outgoing};

/// Messages that wait to be written. Full → [`Client::send`] waits.
const OUTBOX_FRAMES: usize = 64;

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
    /// The message is larger than the server takes.
    #[error("send: the message has {bytes} bytes, and {limit} are taken")]
    TooLarge {
        /// Its size as it would be written.
        bytes: usize,
        /// The most for its type.
        limit: usize,
    },
    /// This client follows as many sessions as it may.
    #[error("join the session: one connection follows at most {MAX_SESSIONS}; open another")]
    TooManySessions,
}

/// The sending half of one connection. The connection ends when the last clone is dropped.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    outbox: mpsc::Sender<Outgoing>,
    rest: Rest,
    followed: Arc<Followed>,
    closing: CancellationToken,
    /// Holds the connection's task, which is stopped with the last clone of the client.
    _tasks: JoinSet<()>,
}

impl Client {
    /// Opens the socket. The first connection is tried once, whatever `config.reconnect` says.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`] when nobody answers, [`ClientError::Refused`] when the server refuses
    /// the connection, [`ClientError::Protocol`] when the peer is no tns server.
    pub async fn connect(config: ClientConfig) -> Result<(Self, Events), ClientError> {
        let ClientConfig { url, reconnect: policy, rediscover, network, watch } = config;
        let address = Address::parse(&url)?;
        let socket = connection::open(&network, &address).await?;
        let (outbox, queue) = mpsc::channel(OUTBOX_FRAMES);
        let (sender, events) = events::channel();
        let followed = Arc::new(Followed::new(watch));
        let closing = CancellationToken::new();
        let link = connection::Link {
            queue,
            followed: Arc::clone(&followed),
            events: sender,
            closing: closing.clone(),
        };
        let address = SharedAddress::new(address);
        let rest = Rest::at(address.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(reconnect::keep(socket, link, reconnect::Again { address, policy, rediscover, network }));
        let inner = Inner { outbox, rest, followed, closing, _tasks: tasks };
        Ok((Self { inner: Arc::new(inner) }, events))
    }

    /// Follows a session from a place in its log: the durable events behind it come, then
    /// [`ClientEvent::CaughtUp`], then what happens. A session that is followed already is followed from that
    /// place anew. One that does not exist is made.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub async fn join(&self, session: &SessionId, from: Cursor) -> Result<(), ClientError> {
        self.admit(session)?;
        self.queue(Outgoing::Join(session.clone(), from)).await
    }

    /// Queues a message for a session; one that was not joined is from now on followed from its log's end.
    /// Waits while the queue is full.
    ///
    /// A queued message is written once. A `chat` with a `clientMessageId` that was being written when the
    /// connection broke is written again, unless the log has it; any other one may be lost then.
    ///
    /// # Errors
    /// [`ClientError::Closed`] when the connection has ended for good, [`ClientError::TooLarge`] and
    /// [`ClientError::TooManySessions`] for what is not to be sent at all.
    pub async fn send(
        &self,
        session: &SessionId,
        message: impl Into<ClientMessage>,
    ) -> Result<(), ClientError> {
        self.frame(ClientFrame { session_id: session.clone(), req_id: None, message: message.into() }).await
    }

    /// Queues a message under a name of the caller's; an answer to it carries that name as `re`. A `chat`
    /// that is sent without one goes under its `clientMessageId`. Names that begin with `tns-log-` are taken.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub async fn request(
        &self,
        session: &SessionId,
        id: RequestId,
        message: impl Into<ClientMessage>,
    ) -> Result<(), ClientError> {
        self.frame(ClientFrame { session_id: session.clone(), req_id: Some(id), message: message.into() })
            .await
    }

    async fn frame(&self, mut frame: ClientFrame) -> Result<(), ClientError> {
        let mut chat = None;
        if let ClientMessage::Chat(sent) = &frame.message
            && let Some(message) = &sent.client_message_id
        {
            // The two have the same letters and length.
            if frame.req_id.is_none() {
                frame.req_id = RequestId::parse(message.as_str()).ok();
            }
            chat = frame.req_id.clone().map(|request| Chat { message: message.clone(), request });
        }
        let text = encode_client(&frame);
        let limit = message_limit(frame.message.type_name());
        if text.len() > limit {
            return Err(ClientError::TooLarge { bytes: text.len(), limit });
        }
        self.admit(&frame.session_id)?;
        self.queue(Outgoing::Message { session: frame.session_id, text, chat }).await
    }

    fn admit(&self, session: &SessionId) -> Result<(), ClientError> {
        match self.inner.followed.lock().admit(session) {
            true => Ok(()),
            false => Err(ClientError::TooManySessions),
        }
    }

    async fn queue(&self, outgoing: Outgoing) -> Result<(), ClientError> {
        self.inner.outbox.send(outgoing).await.map_err(|_| ClientError::Closed)
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
