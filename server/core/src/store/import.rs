//! A session that comes from elsewhere, such as an export, in pages of a bounded size.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tns_protocol::{MessageId, SessionId, Timestamp};

use crate::event::DurableEvent;

/// A session to be taken in. What holds in it is known when its last event is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewImport {
    /// Whose.
    pub principal: String,
    /// Its id.
    pub id: SessionId,
    /// Its title.
    pub title: Option<String>,
    /// The folder its tools work in.
    pub workspace: PathBuf,
    /// When it was made.
    pub created_at: Timestamp,
}

/// A store's own key of an import that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ImportKey(pub i64);

/// An event to be taken in.
#[derive(Debug, Clone, PartialEq)]
pub struct ImportedEvent {
    /// When it was first stored.
    pub at: Timestamp,
    /// The turn it belongs to.
    pub turn: Option<MessageId>,
    /// The event.
    pub event: DurableEvent,
}
