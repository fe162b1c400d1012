//! The lines of a JSON Lines file, and how they are written.

use serde::{Deserialize, Serialize};
use tns_protocol::{MessageId, Seq, SessionId, Timestamp};
use tns_server_core::agent::Agent;
use tns_server_core::event::DurableEvent;
use tns_server_core::redact;
use tns_server_core::store::{EventPage, Score, SessionRecord, SessionState, StoredEvent};

/// What the first line calls the format.
pub(super) const FORMAT: &str = "tns-session";
/// The version of the format. It rises when a reader of this one would misunderstand a file; a field that may be
/// passed over does not raise it.
pub(super) const VERSION: u32 = 1;

/// The first line. It names no store, so that a file is the same wherever it was written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Header {
    pub(super) format: String,
    pub(super) version: u32,
    /// The session.
    pub(crate) id: SessionId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<String>,
    /// The folder its tools work in.
    pub(crate) workspace: String,
    /// When it was made, in microseconds since the epoch.
    created_at: i64,
    /// How many lines follow.
    pub(crate) events: u64,
    /// Secrets were taken out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) redacted: bool,
    /// Its agents, where no event tells them.
    agents: Vec<Agent>,
    /// Data of class SENSITIVE was read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    read_sensitive: bool,
    /// Most that it may spend, in US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    budget: Option<f64>,
}

impl Header {
    /// Describes a session up to its last event.
    pub(crate) fn of(record: &SessionRecord, redacted: bool) -> Self {
        let mut header = Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            id: record.id.clone(),
            title: record.title.clone(),
            workspace: record.workspace.display().to_string(),
            created_at: record.created_at.as_micros(),
            events: record.head_seq,
            redacted,
            agents: record.state.agents.clone(),
            read_sensitive: record.state.read_sensitive,
            budget: record.state.budget,
        };
        if redacted {
            header.title = header.title.map(|title| redact::text(&title).into_owned());
            header.agents.iter_mut().for_each(redact::agent);
        }
        header
    }

    /// Returns when the session was made.
    pub(crate) fn created_at(&self) -> Timestamp {
        Timestamp::from_micros(self.created_at)
    }

    /// Returns what held before the first event, as far as no event tells it.
    pub(crate) fn begins(&self) -> SessionState {
        SessionState {
            agents: self.agents.clone(),
            read_sensitive: self.read_sensitive,
            budget: self.budget,
            ..SessionState::default()
        }
    }

    /// Writes the line.
    ///
    /// # Errors
    /// A value that JSON does not have.
    pub(crate) fn line(&self) -> Result<Vec<u8>, serde_json::Error> {
        line(self)
    }
}

/// A line of an event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// Its place in the log.
    pub(super) seq: Seq,
    /// When it was stored, in microseconds since the epoch.
    pub(super) at: i64,
    /// The turn it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) turn: Option<MessageId>,
    /// What somebody thinks of the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) feedback: Option<Score>,
    pub(super) event: DurableEvent,
}

impl Entry {
    /// Makes the entries of a page.
    pub(crate) fn of_page(page: EventPage, redacted: bool) -> impl Iterator<Item = Self> {
        let EventPage { events, feedback, .. } = page;
        events.into_iter().map(move |StoredEvent { place, turn, mut event }| {
            if redacted {
                redact::event(&mut event);
            }
            let feedback = feedback.get(&place.seq).copied();
            Self { seq: place.seq, at: place.at.as_micros(), turn, feedback, event }
        })
    }

    /// Returns its place in the log.
    pub(crate) fn seq(&self) -> Seq {
        self.seq
    }

    /// Writes the line.
    ///
    /// # Errors
    /// A value that JSON does not have.
    pub(crate) fn line(&self) -> Result<Vec<u8>, serde_json::Error> {
        line(self)
    }
}

fn line(value: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    let mut line = serde_json::to_vec(value)?;
    // Only between the tokens of a provider's own block can one stand unescaped.
    line.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    line.push(b'\n');
    Ok(line)
}
