//! What arrives at a client, in batches: frames that came together cost the consumer one wakeup.

use std::time::Duration;

use tns_protocol::approval::ToolApproveRequest;
use tns_protocol::log::ActiveResponse;
use tns_protocol::{ClientMessageId, ServerFrame, SessionId};
use tokio::sync::mpsc;

/// Batches that wait for the consumer. Full → the reader waits, and with it the socket and the server.
const INBOX_BATCHES: usize = 8;

/// Something that happened at the connection.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientEvent {
    /// The server sent a frame. Of each session that the client has joined, durable events (those with a
    /// `seq`) come exactly once, in order and without gaps, whatever became of the connection. The `token`s of
    /// a reply's running step are always the beginning of the text of the `assistant_message` that ends it.
    Frame(Box<ServerFrame>),
    /// The server welcomed the client to a session. Where the epoch is another one than the consumer's place
    /// is of, [`ClientEvent::Resync`] follows.
    Joined {
        /// The session.
        session: SessionId,
        /// Names the store that places of the log are of.
        epoch: String,
    },
    /// Everything that the log held was handed on; what follows happens now.
    CaughtUp {
        /// The session.
        session: SessionId,
        /// The reply that is being written, if one is. Tokens go on behind its text.
        active: Option<ActiveResponse>,
        /// What waits for an answer, oldest first; nothing else does.
        pending: Vec<ToolApproveRequest>,
    },
    /// The place that the consumer has is of another log: it must forget the session's events. Those of this
    /// log follow from the first on.
    Resync {
        /// The session.
        session: SessionId,
        /// Names the store that the events are of.
        epoch: String,
        /// Why, in words.
        reason: String,
    },
    /// The server does not know `events.1`: it can't say what was missed until now, and
    /// [`Rest::events`](crate::Rest::events) must be asked. Told of each session when that is found out and
    /// after every loss.
    Plain {
        /// The session.
        session: SessionId,
    },
    /// A message is given up: it was sent several times, and the connection was lost each time.
    Unsent {
        /// The session.
        session: SessionId,
        /// The message's own name.
        message: ClientMessageId,
        /// Why, in words.
        reason: String,
    },
    /// The connection is lost, or another attempt failed.
    Disconnected {
        /// What happened, in words.
        reason: String,
        /// When the next attempt begins, from now on.
        retry_in: Duration,
    },
    /// The connection is back. What each session missed follows, and ends with [`ClientEvent::CaughtUp`].
    /// A set of client tools left with the connection and must be sent again.
    Reconnected,
    /// The connection has ended for good; nothing comes after this.
    Closed {
        /// What happened, in words.
        reason: String,
    },
}

pub(crate) type Batch = Vec<ClientEvent>;
/// The receiving half of one connection.
pub struct Events {
    inbox: mpsc::Receiver<Batch>,
    ready: std::vec::IntoIter<ClientEvent>,
}

pub(crate) fn channel() -> (mpsc::Sender<Batch>, Events) {
    let (sender, inbox) = mpsc::channel(INBOX_BATCHES);
    (sender, Events { inbox, ready: Vec::new().into_iter() })
}

impl Events {
    /// Waits for the next event; `None` when the connection has ended and everything was taken.
    ///
    /// Cancel safe: an event is returned or stays.
    pub async fn next(&mut self) -> Option<ClientEvent> {
        loop {
            if let Some(event) = self.ready.next() {
                return Some(event);
            }
            self.ready = self.inbox.recv().await?.into_iter();
        }
    }

    /// Returns an event that has arrived already, if there is one.
    pub fn try_next(&mut self) -> Option<ClientEvent> {
        loop {
            if let Some(event) = self.ready.next() {
                return Some(event);
            }
            self.ready = self.inbox.try_recv().ok()?.into_iter();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(reason: &str) -> ClientEvent {
        ClientEvent::Closed { reason: reason.into() }
    }

    #[tokio::test]
    async fn batches_come_out_in_order_and_then_nothing() {
        let (sender, mut events) = channel();
        assert_eq!(events.try_next(), None);
        sender.send(vec![closed("1"), closed("2")]).await.unwrap();
        sender.send(vec![closed("3")]).await.unwrap();
        drop(sender);
        assert_eq!(events.next().await, Some(closed("1")));
        assert_eq!(events.try_next(), Some(closed("2")));
        assert_eq!(events.try_next(), Some(closed("3")));
        assert_eq!(events.try_next(), None);
        assert_eq!(events.next().await, None);
    }
}
