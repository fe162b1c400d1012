//! An append: its events, the session's new state and its document, all or nothing.
//! It is encoded by the caller, so that the thread that writes only writes.

use rusqlite::{Connection, params};
use tns_protocol::{ClientMessageId, MessageId, Seq, Timestamp};
use tns_server_core::approval::AuditRecord;
use tns_server_core::event::{BODY_VERSION, DurableEvent};
use tns_server_core::store::{Append, Appended, Condition, Place, SessionKey, StoreError};
use tns_server_core::usage::UsageRow;

use super::error::{Fault, failed};
use super::session::{self, EncodedState};
use super::writer::{Work, Write};
use super::{document, signed, unsigned, usage};

/// Appends to a log.
pub(super) struct AppendEvents {
    session: SessionKey,
    events: Vec<EncodedEvent>,
    state: Option<EncodedState>,
    title: Option<Option<String>>,
    condition: Option<Condition>,
}

/// An event as it is stored.
pub(super) struct EncodedEvent {
    pub(super) turn: Option<MessageId>,
    pub(super) kind: &'static str,
    pub(super) client_message_id: Option<ClientMessageId>,
    pub(super) decided: Option<Decided>,
    pub(super) body: String,
    /// What a step adds to the sums. A copy of it adds nothing.
    usage: Option<UsageRow>,
}

/// What audit records are searched by.
pub(super) struct Decided {
    pub(super) at: Timestamp,
    pub(super) decision: &'static str,
}

impl AppendEvents {
    /// Encodes an append.
    pub(super) fn encode(append: Append) -> Result<Self, StoreError> {
        Ok(Self {
            session: append.session,
            events: append
                .events
                .iter()
                .map(|new| EncodedEvent::encode(new.turn.as_ref(), &new.event))
                .collect::<Result<_, StoreError>>()?,
            state: append.state.as_ref().map(EncodedState::encode).transpose()?,
            title: append.title,
            condition: append.condition,
        })
    }

    /// Carries out the condition. `false`: it does not hold, and nothing was written.
    fn condition_holds(&self, write: &mut Write<'_>) -> Result<bool, Fault> {
        match &self.condition {
            None => Ok(true),
            Some(Condition::NewMessage(id)) => Ok(!has_message(write.connection, self.session, id)?),
            Some(Condition::NewDocument(document)) => document::add(write, document),
            Some(Condition::RemoveDocument(collection, id)) => document::remove(write, collection, id),
        }
    }

    fn insert(
        &self,
        write: &mut Write<'_>,
        event: &EncodedEvent,
        seq: Seq,
        at: Timestamp,
    ) -> Result<Place, Fault> {
        let gseq = write.numbers.next_gseq();
        write
            .connection
            .prepare_cached(
                "INSERT INTO events (gseq, session_pk, seq, at, turn_id, kind, client_message_id, decided_at,
                 decision, body_version, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            )?
            .execute(params![
                signed(gseq),
                self.session.0,
                signed(seq),
                at.as_micros(),
                event.turn.as_ref().map(MessageId::as_str),
                event.kind,
                event.client_message_id.as_ref().map(ClientMessageId::as_str),
                event.decided.as_ref().map(|decided| decided.at.as_micros()),
                event.decided.as_ref().map(|decided| decided.decision),
                BODY_VERSION,
                event.body,
            ])?;
        Ok(Place { seq, gseq, at })
    }
}

impl Work for AppendEvents {
    type Output = Appended;

    fn run(&self, write: &mut Write<'_>) -> Result<Appended, Fault> {
        let session = session::head(write.connection, self.session)?;
        if !self.condition_holds(write)? {
            return Ok(Appended::Unchanged);
        }
        let at = Timestamp::now();
        let mut places = Vec::with_capacity(self.events.len());
        for (event, seq) in self.events.iter().zip(unsigned(session.seq) + 1..) {
            let place = self.insert(write, event, seq, at)?;
            if let Some(row) = &event.usage {
                usage::add(write.connection, Some(self.session), row)?;
            }
            places.push(place);
        }
        if let Some(last) = places.last() {
            write
                .connection
                .prepare_cached("UPDATE sessions SET head_seq = ?2, updated_at = ?3 WHERE pk = ?1")?
                .execute(params![self.session.0, signed(last.seq), at.as_micros()])?;
        }
        if let Some(state) = &self.state {
            state.write(write.connection, self.session)?;
        }
        if let Some(title) = &self.title {
            session::rename(write, self.session, &session, title.as_deref())?;
        }
        Ok(Appended::Stored(places))
    }
}

impl EncodedEvent {
    /// Encodes an event.
    pub(super) fn encode(turn: Option<&MessageId>, event: &DurableEvent) -> Result<Self, StoreError> {
        let body =
            serde_json::to_string(event).map_err(|error| failed(format!("write an event: {error}")))?;
        let client_message_id = match event {
            DurableEvent::UserMessage(message) => message.client_message_id.clone(),
            _ => None,
        };
        let decided = match event {
            DurableEvent::Audited(AuditRecord { at, decision, .. }) => {
                Some(Decided { at: *at, decision: decision.as_str() })
            }
            _ => None,
        };
        Ok(Self {
            turn: turn.cloned(),
            kind: event.kind().as_str(),
            client_message_id,
            decided,
            body,
            usage: UsageRow::of(event, Timestamp::now()),
        })
    }
}

fn has_message(connection: &Connection, session: SessionKey, id: &ClientMessageId) -> Result<bool, Fault> {
    Ok(connection
        .prepare_cached("SELECT 1 FROM events WHERE session_pk = ?1 AND client_message_id = ?2")?
        .exists(params![session.0, id.as_str()])?)
}
