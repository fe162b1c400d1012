//! The log as it is read: places, pages, audit records, the stream of the whole store.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tns_protocol::approval::AuditDecision;
use tns_protocol::{MessageId, Seq, SessionId, Timestamp};

use super::{SessionKey, SessionRecord};
use crate::event::{DurableEvent, EventKind};

/// Where an event was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Its place in the session's log: from 1, without gaps.
    pub seq: Seq,
    /// Its place in the store: rises strictly in commit order, may have gaps.
    pub gseq: u64,
    /// When it was stored.
    pub at: Timestamp,
}

/// A stored event.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredEvent {
    /// Where.
    pub place: Place,
    /// The turn it belongs to.
    pub turn: Option<MessageId>,
    /// The event.
    pub event: DurableEvent,
}

impl StoredEvent {
    /// Returns the id of the message that it is, if it is one.
    pub fn message(&self) -> Option<&MessageId> {
        match &self.event {
            DurableEvent::UserMessage(message) => Some(&message.id),
            DurableEvent::AssistantMessage(message) => Some(&message.id),
            _ => None,
        }
    }
}

/// Which events of a log to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventQuery {
    /// Only those after this place.
    pub after: Seq,
    /// Only those before this place; `None`: to the end.
    pub before: Option<Seq>,
    /// At most so many.
    pub limit: usize,
    /// Only these kinds; `None`: all.
    pub kinds: Option<&'static [EventKind]>,
    /// Which of them, where they are more than a page holds.
    pub take: Take,
}

impl Default for EventQuery {
    /// The first page of the whole log.
    fn default() -> Self {
        Self { after: 0, before: None, limit: MAX_PAGE_EVENTS, kinds: None, take: Take::First }
    }
}

/// Which end of a range a page is taken from. A page is ascending either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Take {
    /// The first ones: go on with `after`, the last place of the page.
    #[default]
    First,
    /// The last ones: go on backwards with `before`, the first place of the page.
    Last,
}

/// Most events of one page.
pub const MAX_PAGE_EVENTS: usize = 500;
/// Most bytes of stored bodies in one page; a page holds at least one event.
pub const MAX_PAGE_BYTES: usize = 1 << 20;

/// A page of a log, ascending.
#[derive(Debug, Clone, PartialEq)]
pub struct EventPage {
    /// The events.
    pub events: Vec<StoredEvent>,
    /// The range holds more: after the last one, or before the first where the last ones were asked for.
    pub more: bool,
    /// The log's last place.
    pub head_seq: Seq,
    /// What people think of messages on this page, by place.
    pub feedback: BTreeMap<Seq, Score>,
}

/// What a person thinks of a message. Kept beside the log, since it may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Score {
    /// Good.
    Up,
    /// Bad.
    Down,
}

impl Score {
    /// Returns it as a number: 1 or -1.
    pub fn as_i8(self) -> i8 {
        match self {
            Self::Up => 1,
            Self::Down => -1,
        }
    }

    /// Returns the score of a number; `None` for any but 1 and -1.
    pub fn from_i8(number: i8) -> Option<Self> {
        match number {
            1 => Some(Self::Up),
            -1 => Some(Self::Down),
            _ => None,
        }
    }
}

/// Most rows that one page of the whole store looks at, so that a reader of one principal's events is not kept
/// waiting by everybody else's.
pub const MAX_PAGE_SCAN: usize = 20_000;

/// A page of the events of all sessions, in the store's order.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamPage {
    /// The events, ascending by `gseq`; none may be left though there are more.
    pub events: Vec<StreamEvent>,
    /// Where to go on: everything up to this place was looked at.
    pub next: u64,
    /// There may be more after that.
    pub more: bool,
}

/// An event with its session.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamEvent {
    /// Whose.
    pub principal: String,
    /// The session.
    pub session: SessionId,
    /// The event.
    pub event: StoredEvent,
}

/// Most sessions of one page.
pub const MAX_PAGE_SESSIONS: usize = 500;

/// A page of sessions, the one whose log grew last first.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionPage {
    /// The sessions.
    pub sessions: Vec<SessionRecord>,
    /// Give this for the next page.
    pub next: Option<SessionCursor>,
}

/// Where a page of sessions goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionCursor {
    /// Sessions whose log grew at or before this time …
    pub updated_at: Timestamp,
    /// … and, at the same time, with a smaller key.
    pub key: SessionKey,
}

/// Which audit records to read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditQuery {
    /// Of this session; `None`: of the whole store.
    pub session: Option<SessionKey>,
    /// Only those at or after this time.
    pub since: Option<Timestamp>,
    /// Only those decided so.
    pub decision: Option<AuditDecision>,
    /// At most so many, the newest; given back oldest first.
    pub limit: usize,
}
