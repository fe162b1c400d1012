//! What waits to be written to one connection. Delivering never waits, so a slow reader slows nobody.
//!
//! Bounded in events and bytes. Half full, pieces of the same reply are joined into one event, which
//! loses nothing. Full, a connection of protocol v1 is closed with 1013, and its client reads the rest from
//! the log; one that knows `events.1` first loses what is only shown, then is told that it lags: nothing
//! more of that session is sent until it resumes. A resume takes its place in the queue, and the log is
//! read, a page at a time, when the writer comes to it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::ws::{CloseFrame, Utf8Bytes, close_code};
use bytes::Bytes;
use tns_protocol::{AgentId, MessageId, RequestId, Seq, SessionId};
use tns_server_core::event::{Answer, Event, LiveEvent, Published, ResumePoint, Subscriber};
use tokio::sync::Notify;

use super::translate::{self, Face};

/// Most events that wait. Full → see the module's page.
pub(crate) const MAX_EVENTS: usize = 1_024;
/// Bytes from which on nothing more may wait; the event that reaches them still does, whatever its size. One event
/// that is as large by itself is not counted: who reads gets it and what is stored with it. Full → see the module's page.
pub(crate) const MAX_BYTES: usize = 1 << 20;
/// Half full: from here on pieces of a reply are joined.
const JOIN_FROM: usize = MAX_EVENTS / 2;

/// What waits to be written to one connection.
pub(crate) struct Outbox {
    queue: Mutex<Queue>,
    wake: Notify,
    closing: Notify,
}

struct Queue {
    face: Face,
    /// What is only shown is taken too.
    takes_live: bool,
    items: VecDeque<Item>,
    bytes: usize,
    /// Sessions of which nothing is sent until they resume, with the log's last place so far.
    lagging: BTreeMap<SessionId, Seq>,
    close: Option<CloseFrame>,
}

enum Item {
    /// A frame as it is sent to every connection of its face; `of` is the session's event, if it is one.
    Frame { frame: Bytes, of: Option<Arc<Published>> },
    /// Several pieces of a reply, joined for this connection.
    Joined { first: Arc<Published>, text: String },
    /// Read the log from here.
    Backlog(Backlog),
    /// This session lags.
    Lagged(SessionId),
}

/// A resume whose turn has come.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Backlog {
    pub(crate) session: SessionId,
    /// The client's name for the request.
    pub(crate) re: Option<RequestId>,
    pub(crate) point: ResumePoint,
}

/// What is to be written next.
pub(crate) enum Outgoing {
    Frames(Vec<Frame>),
    /// The log, then what the resume's answer says.
    Backlog(Backlog),
    /// The session lags behind its log, which ends at this place so far.
    Lagged(SessionId, Seq),
    Close(CloseFrame),
}

/// A frame to be written.
pub(crate) struct Frame {
    pub(crate) text: Utf8Bytes,
    /// A durable event's place.
    pub(crate) seq: Option<Seq>,
}

impl Default for Outbox {
    /// Makes the outbox of a connection that knows only protocol v1.
    fn default() -> Self {
        Self::new(Face::V1, true)
    }
}

impl Outbox {
    pub(crate) fn new(face: Face, takes_live: bool) -> Self {
        let queue = Queue {
            face,
            takes_live,
            items: VecDeque::new(),
            bytes: 0,
            lagging: BTreeMap::new(),
            close: None,
        };
        Self { queue: Mutex::new(queue), wake: Notify::new(), closing: Notify::new() }
    }

    /// The connection knows `events.1` from now on.
    pub(crate) fn extend(&self) {
        self.lock().face = Face::Log;
    }

    /// Whether the connection knows `events.1`.
    pub(crate) fn is_extended(&self) -> bool {
        self.lock().face == Face::Log
    }

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
        match queue.items.front() {
            None => return queue.close.clone().map(Outgoing::Close),
            Some(Item::Backlog(_) | Item::Lagged(_)) => {
                return match queue.items.pop_front()? {
                    Item::Backlog(backlog) => Some(Outgoing::Backlog(backlog)),
                    Item::Lagged(session) => {
                        let head = queue.lagging.get(&session).copied().unwrap_or_default();
                        Some(Outgoing::Lagged(session, head))
                    }
                    Item::Frame { .. } | Item::Joined { .. } => None,
                };
            }
            Some(Item::Frame { .. } | Item::Joined { .. }) => {}
        }
        let is_frame = |item: &Item| matches!(item, Item::Frame { .. } | Item::Joined { .. });
        let end = queue.items.iter().position(|item| !is_frame(item)).unwrap_or(queue.items.len());
        let rest = queue.items.split_off(end);
        let items = std::mem::replace(&mut queue.items, rest);
        queue.bytes = queue.items.iter().map(Item::size).sum();
        drop(queue);
        Some(Outgoing::Frames(items.into_iter().filter_map(Item::into_frame).collect()))
    }

    /// Writes one frame to this connection only.
    pub(crate) fn push(&self, frame: String) {
        let mut queue = self.lock();
        queue.add(Item::Frame { frame: Bytes::from(frame), of: None });
        drop(queue);
        self.woken();
    }

    /// Sends nothing more of a session until it resumes: its log could not be read.
    pub(crate) fn lag(&self, session: &SessionId, head: Seq) {
        self.lock().lag([(session.clone(), head)].into());
        self.woken();
    }

    /// Takes a session's events again without a resume: its reader reads the log by itself.
    pub(crate) fn forgive(&self, session: &SessionId) {
        self.lock().lagging.remove(session);
    }

    /// Closes the connection when what waits is written. The first reason stays.
    pub(crate) fn close(&self, code: u16, reason: &'static str) {
        self.lock().close.get_or_insert(CloseFrame { code, reason: reason.into() });
        self.woken();
    }

    fn woken(&self) {
        self.wake.notify_one();
        self.closing.notify_waiters();
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
    fn fits(&self) -> bool {
        self.items.len() < MAX_EVENTS && (self.bytes < MAX_BYTES || self.bytes - self.oversized() < MAX_BYTES)
    }

    /// Returns the size of the largest item that reaches the limit by itself; 0: there is none.
    fn oversized(&self) -> usize {
        self.items.iter().map(Item::size).filter(|size| *size >= MAX_BYTES).max().unwrap_or(0)
    }

    fn add(&mut self, item: Item) {
        if self.close.is_some() {
            return;
        }
        if !self.fits() && self.face == Face::Log {
            self.retain(|item| !item.is_live());
            if !self.fits() {
                let behind = self.items.iter().chain([&item]).filter_map(Item::place);
                self.lag(behind.collect());
            }
            if item.is_live() || item.place().is_some_and(|(session, _)| self.lagging.contains_key(&session))
            {
                return;
            }
        }
        if !self.fits() {
            // What waits is given up: the client reads it from the log when it is back.
            self.items.clear();
            self.bytes = 0;
            self.close = Some(CloseFrame {
                code: close_code::AGAIN,
                reason: "too slow: read the rest from the log".into(),
            });
            return;
        }
        self.bytes += item.size();
        self.items.push_back(item);
    }

    /// Gives up what waits of these sessions; `behind` may name one several times.
    fn lag(&mut self, behind: Vec<(SessionId, Seq)>) {
        for (session, seq) in behind {
            let known = self.lagging.insert(session.clone(), seq);
            if let Some(known) = known {
                self.lagging.insert(session, seq.max(known));
            } else {
                self.retain(|item| item.session() != Some(&session) || item.is_answer());
                self.items.push_back(Item::Lagged(session));
            }
        }
    }

    fn retain(&mut self, keep: impl Fn(&Item) -> bool) {
        self.items.retain(keep);
        self.bytes = self.items.iter().map(Item::size).sum();
    }

    fn deliver(&mut self, event: &Arc<Published>) {
        if let Event::Answer(Answer::Resume(point)) = &event.event {
            // What waits of the session is in the log; what comes after this follows it.
            self.lagging.remove(&event.session);
            self.retain(|item| item.session() != Some(&event.session) || item.is_answer());
            let (session, re) = (event.session.clone(), event.re.clone());
            return self.add(Item::Backlog(Backlog { session, re, point: (**point).clone() }));
        }
        let is_answer = matches!(event.event, Event::Answer(_));
        if !is_answer && let Some(head) = self.lagging.get_mut(&event.session) {
            *head = event.seq.unwrap_or(*head);
            return;
        }
        if matches!(event.event, Event::Live(_)) && !self.takes_live {
            return;
        }
        if self.items.len() >= JOIN_FROM && self.join(event) {
            return;
        }
        if let Some(frame) = translate::frame(event, self.face) {
            self.add(Item::Frame { frame, of: Some(event.clone()) });
        }
    }

    /// Joins a piece of a reply to the one before it; `false`: it can't be.
    fn join(&mut self, next: &Arc<Published>) -> bool {
        let (Some(piece), Some(last)) = (Piece::of(next), self.items.back_mut()) else {
            return false;
        };
        let first = match last {
            Item::Frame { of: Some(first), .. } | Item::Joined { first, .. } => first.clone(),
            Item::Frame { of: None, .. } | Item::Backlog(_) | Item::Lagged(_) => return false,
        };
        let Some(before) = Piece::of(&first) else { return false };
        let same = first.session == next.session && before.response == piece.response;
        if !same || self.bytes + piece.text.len() > MAX_BYTES {
            return false;
        }
        match last {
            Item::Joined { text, .. } => text.push_str(piece.text),
            Item::Frame { .. } | Item::Backlog(_) | Item::Lagged(_) => {
                *last = Item::Joined { text: format!("{}{}", before.text, piece.text), first: first.clone() }
            }
        }
        self.bytes += piece.text.len();
        true
    }
}

impl Item {
    fn size(&self) -> usize {
        match self {
            Self::Frame { frame, .. } => frame.len(),
            Self::Joined { text, .. } => text.len(),
            Self::Backlog(_) | Self::Lagged(_) => 0,
        }
    }

    fn is_live(&self) -> bool {
        match self {
            Self::Frame { of: Some(of), .. } => matches!(of.event, Event::Live(_)),
            Self::Joined { .. } => true,
            Self::Frame { of: None, .. } | Self::Backlog(_) | Self::Lagged(_) => false,
        }
    }

    fn is_answer(&self) -> bool {
        match self {
            Self::Frame { of: Some(of), .. } => matches!(of.event, Event::Answer(_)),
            Self::Frame { of: None, .. } => true,
            Self::Joined { .. } | Self::Backlog(_) | Self::Lagged(_) => false,
        }
    }

    fn session(&self) -> Option<&SessionId> {
        match self {
            Self::Frame { of: Some(of), .. } | Self::Joined { first: of, .. } => Some(&of.session),
            Self::Frame { of: None, .. } => None,
            Self::Backlog(Backlog { session, .. }) | Self::Lagged(session) => Some(session),
        }
    }

    /// Returns where the log of the item's session ends, as far as the item tells.
    fn place(&self) -> Option<(SessionId, Seq)> {
        match self {
            Self::Frame { of: Some(of), .. } => Some((of.session.clone(), of.seq?)),
            Self::Backlog(backlog) => Some((backlog.session.clone(), backlog.point.head_seq)),
            Self::Frame { of: None, .. } | Self::Joined { .. } | Self::Lagged(_) => None,
        }
    }

    fn into_frame(self) -> Option<Frame> {
        let (text, seq) = match self {
            // Frames are encoded from text.
            Self::Frame { frame, of } => (Utf8Bytes::try_from(frame).ok()?, of.and_then(|of| of.seq)),
            Self::Joined { first, text } => (translate::joined(&first, text)?.into(), None),
            Self::Backlog(_) | Self::Lagged(_) => return None,
        };
        Some(Frame { text, seq })
    }
}

/// A piece of a reply.
struct Piece<'a> {
    response: (&'a AgentId, &'a MessageId),
    text: &'a str,
}

impl<'a> Piece<'a> {
    fn of(published: &'a Published) -> Option<Self> {
        match &published.event {
            Event::Live(LiveEvent::Token { agent, text, response, .. }) => {
                Some(Self { response: (agent, response), text })
            }
            Event::Live(_) | Event::Durable(_) | Event::Answer(_) => None,
        }
    }
}

impl Subscriber for Outbox {
    fn deliver(&self, events: &[Arc<Published>]) {
        let mut queue = self.lock();
        for event in events {
            queue.deliver(event);
        }
        drop(queue);
        self.woken();
    }
}

#[cfg(test)]
mod tests;
