//! What arrives at a client, in batches: frames that came together cost the consumer one wakeup.

use std::time::Duration;

use tns_protocol::ServerFrame;
use tokio::sync::mpsc;

/// Batches that wait for the consumer. Full → the reader waits, and with it the socket and the server.
const INBOX_BATCHES: usize = 8;

/// Something that happened at the connection.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientEvent {
    /// The server sent a frame.
    Frame(Box<ServerFrame>),
    /// The connection is lost, or another attempt failed.
    Disconnected {
        /// What happened, in words.
        reason: String,
        /// When the next attempt begins, from now on.
        retry_in: Duration,
    },
    /// The connection is back, and its sessions are joined again. Frames sent meanwhile are not repeated:
    /// [`Rest::events`](crate::Rest::events) has those that carry a `seq`.
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
