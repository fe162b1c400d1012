//! What waits to be written to one connection. Delivering never waits, so a slow reader slows nobody.
//!
//! Bounded in events and bytes. Half full, pieces of the same reply are joined into one event, which
//! loses nothing; full, the connection is closed with 1013, and the client reads the rest from the log.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::ws::{CloseFrame, Utf8Bytes, close_code};
use bytes::Bytes;
use tns_protocol::AgentId;
use tns_server_core::event::{Event, LiveEvent, Published, Subscriber};
use tokio::sync::Notify;

use super::translate::{self, Face};

/// Most events that wait. Full → the connection is closed with 1013.
pub(crate) const MAX_EVENTS: usize = 1_024;
/// Bytes from which on nothing more may wait; the event that reaches them still does, whatever its size. Full → the connection is closed with 1013.
pub(crate) const MAX_BYTES: usize = 1 << 20;
/// Half full: from here on pieces of a reply are joined.
const JOIN_FROM: usize = MAX_EVENTS / 2;

/// What waits to be written to one connection.
#[derive(Default)]
pub(crate) struct Outbox {
    queue: Mutex<Queue>,
    wake: Notify,
    closing: Notify,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    bytes: usize,
    close: Option<CloseFrame>,
}

enum Item {
    /// A frame as it is sent to every connection.
    Frame { frame: Bytes, reply: Option<Arc<Published>> },
    /// Several pieces of a reply, joined for this connection.
    Joined { first: Arc<Published>, text: String },
}

/// What is to be written next.
pub(crate) enum Outgoing {
    Frames(Vec<Utf8Bytes>),
    Close(CloseFrame),
}

impl Outbox {
    /// Waits for something to write: everything that waits, in order, then the close.
    pub(crate) async fn next(&self) -> Outgoing {
        loop {
            let woken = self.wake.notified();
            if let Some(outgoing) = self.take() {
                return outgoing;
            }
            woken.await;
        }
    }

    fn take(&self) -> Option<Outgoing> {
        let mut queue = self.lock();
        if queue.items.is_empty() {
            return queue.close.clone().map(Outgoing::Close);
        }
        queue.bytes = 0;
        let items = std::mem::take(&mut queue.items);
        drop(queue);
        Some(Outgoing::Frames(items.into_iter().filter_map(Item::into_frame).collect()))
    }

    /// Writes one frame to this connection only.
    pub(crate) fn push(&self, frame: String) {
        let mut queue = self.lock();
        queue.add(Item::Frame { frame: Bytes::from(frame), reply: None });
        drop(queue);
        self.woken();
    }

    /// Closes the connection when what waits is written. The first reason stays.
    pub(crate) fn close(&self, code: u16, reason: &'static str) {
        self.lock().close.get_or_insert(CloseFrame { code, reason: reason.into() });
        self.woken();
    }

    fn woken(&self) {
        self.wake.notify_one();
        if self.lock().close.is_some() {
            self.closing.notify_one();
        }
    }

    /// Waits until the connection is to be closed, and then `grace`.
    pub(crate) async fn closing(&self, grace: std::time::Duration) {
        loop {
            let closing = self.closing.notified();
            if self.lock().close.is_some() {
                break;
            }
            closing.await;
        }
        tokio::time::sleep(grace).await;
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn add(&mut self, item: Item) {
        if self.close.is_some() {
            return;
        }
        let size = item.size();
        let fits = self.items.len() < MAX_EVENTS && self.bytes < MAX_BYTES;
        if !fits {
            // What waits is given up: the client reads it from the log when it is back.
            self.items.clear();
            self.bytes = 0;
            self.close = Some(CloseFrame {
                code: close_code::AGAIN,
                reason: "too slow: read the rest from the log".into(),
            });
            return;
        }
        self.bytes += size;
        self.items.push_back(item);
    }

    /// Joins a piece of a reply to the one before it; `false`: it can't be.
    fn join(&mut self, next: &Arc<Published>) -> bool {
        let (Some((session, agent, more)), Some(last)) = (piece(next), self.items.back_mut()) else {
            return false;
        };
        let first = match last {
            Item::Frame { reply: Some(first), .. } | Item::Joined { first, .. } => first.clone(),
            Item::Frame { reply: None, .. } => return false,
        };
        let Some((first_session, first_agent, first_text)) = piece(&first) else { return false };
        if first_session != session || first_agent != agent || self.bytes + more.len() > MAX_BYTES {
            return false;
        }
        match last {
            Item::Joined { text, .. } => text.push_str(more),
            Item::Frame { .. } => {
                *last = Item::Joined { text: format!("{first_text}{more}"), first: first.clone() }
            }
        }
        self.bytes += more.len();
        true
    }
}

impl Item {
    fn size(&self) -> usize {
        match self {
            Self::Frame { frame, .. } => frame.len(),
            Self::Joined { text, .. } => text.len(),
        }
    }

    fn into_frame(self) -> Option<Utf8Bytes> {
        match self {
            // Frames are encoded from text.
            Self::Frame { frame, .. } => Utf8Bytes::try_from(frame).ok(),
            Self::Joined { first, text } => {
                let (_, agent, _) = piece(&first)?;
                let live = Event::Live(LiveEvent::Token { agent: agent.clone(), text });
                translate::encode(&first, &live, Face::V1).map(Utf8Bytes::from)
            }
        }
    }
}

fn piece(published: &Published) -> Option<(&str, &AgentId, &str)> {
    match &published.event {
        Event::Live(LiveEvent::Token { agent, text }) => Some((published.session.as_str(), agent, text)),
        _ => None,
    }
}

impl Subscriber for Outbox {
    fn deliver(&self, events: &[Arc<Published>]) {
        let mut queue = self.lock();
        for event in events {
            if queue.items.len() >= JOIN_FROM && queue.join(event) {
                continue;
            }
            if let Some(frame) = translate::frame(event) {
                let reply = piece(event).is_some().then(|| event.clone());
                queue.add(Item::Frame { frame, reply });
            }
        }
        drop(queue);
        self.woken();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use super::*;
    use tns_protocol::{ServerMessage, SessionId, Timestamp, decode_server};

    fn token(text: &str) -> Arc<Published> {
        Arc::new(Published {
            session: SessionId::parse("s").unwrap(),
            at: Timestamp::from_micros(0),
            seq: None,
            turn: None,
            re: None,
            event: Event::Live(LiveEvent::Token { agent: AgentId::parse("a").unwrap(), text: text.into() }),
            encoded: OnceLock::new(),
        })
    }

    fn texts(outgoing: Outgoing) -> Vec<String> {
        let Outgoing::Frames(frames) = outgoing else { panic!("closed") };
        let text = |frame: Utf8Bytes| match decode_server(&frame).unwrap().message {
            ServerMessage::Token(token) => token.content,
            other => panic!("{other:?}"),
        };
        frames.into_iter().map(text).collect()
    }

    #[test]
    fn pieces_stay_apart_while_there_is_room_and_are_joined_without_loss_beyond() {
        let outbox = Outbox::default();
        let all: Vec<_> = (0..JOIN_FROM + 100).map(|at| token(&format!("{at} "))).collect();
        outbox.deliver(&all[..JOIN_FROM]);
        outbox.deliver(&all[JOIN_FROM..]);
        let texts = texts(outbox.take().unwrap());
        assert_eq!(texts.len(), JOIN_FROM);
        let expected: String = (0..JOIN_FROM + 100).map(|at| format!("{at} ")).collect();
        assert_eq!(texts.concat(), expected);
        assert!(outbox.take().is_none());
    }

    #[test]
    fn a_reader_that_stops_is_closed_at_the_limit_of_bytes() {
        let outbox = Outbox::default();
        let big = token(&"x".repeat(MAX_BYTES / 4));
        for _ in 0..4 {
            outbox.deliver(std::slice::from_ref(&big));
        }
        // The fourth reaches the limit, and still waits.
        assert!(outbox.lock().bytes >= MAX_BYTES && outbox.lock().close.is_none());
        outbox.deliver(&[big]);
        let Some(Outgoing::Close(close)) = outbox.take() else { panic!("open") };
        assert_eq!(close.code, close_code::AGAIN);
        assert_eq!(outbox.lock().bytes, 0);
    }

    #[test]
    fn a_reader_that_stops_is_closed_at_the_limit_of_events() {
        let outbox = Outbox::default();
        for _ in 0..MAX_EVENTS {
            outbox.push("{}".into());
        }
        assert!(outbox.lock().close.is_none());
        outbox.push("{}".into());
        assert!(matches!(outbox.take(), Some(Outgoing::Close(_))));
    }

    #[test]
    fn what_waits_is_written_before_the_close() {
        let outbox = Outbox::default();
        outbox.push("{}".into());
        outbox.close(close_code::SIZE, "too large");
        outbox.close(close_code::AWAY, "later");
        assert!(matches!(outbox.take(), Some(Outgoing::Frames(frames)) if frames.len() == 1));
        let Some(Outgoing::Close(close)) = outbox.take() else { panic!("open") };
        assert_eq!(close.code, close_code::SIZE);
    }
}
