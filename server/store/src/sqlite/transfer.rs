//! Sessions made from others: a fork copies a log within the file, an import gathers one aside and then does
//! the same. Both copy in SQL and read one row at a time, so a long log needs no memory.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use rusqlite::{Connection, OptionalExtension as _, params};
use tns_protocol::{ClientMessageId, DocumentId, MessageId, Seq, SessionId, Timestamp};
use tns_server_core::event::{BODY_VERSION, DurableEvent, EventKind};
use tns_server_core::store::{
    Collection, ImportKey, ImportedEvent, NewDocument, NewImport, NewSession, SessionKey, SessionRecord,
    SessionState, StoreError,
};

use super::append::EncodedEvent;
use super::error::{Fault, failed};
use super::session::{self, EncodedState};
use super::writer::{Company, Work, Write};
use super::{document, log, signed, unsigned};

/// Makes a session with a copy of the beginning of another's log.
pub(super) struct ForkSession {
    from: SessionKey,
    at_seq: Seq,
    new: NewSession,
    state: EncodedState,
}

impl ForkSession {
    pub(super) fn encode(from: SessionKey, at_seq: Seq, new: NewSession) -> Result<Self, StoreError> {
        let state = EncodedState::encode(&new.state)?;
        Ok(Self { from, at_seq, new, state })
    }

    /// Copies the session's own documents that the copied events added. Returns their new ids by their old ones.
    fn copy_documents(
        &self,
        write: &mut Write<'_>,
        key: SessionKey,
    ) -> Result<HashMap<DocumentId, DocumentId>, Fault> {
        let (old, new) = (Collection::Session(self.from), Collection::Session(key));
        let added = self.added(write.connection)?;
        let mut ids = HashMap::new();
        for id in document::living(write.connection, &old)? {
            if !added.contains(&id) {
                continue;
            }
            let Some(found) = document::read(write.connection, &old, &id)? else { continue };
            let copy = new.document_id(&found.content);
            ids.insert(id, copy.clone());
            let copied = NewDocument {
                collection: new.clone(),
                id: copy,
                content: found.content,
                metadata: found.metadata,
            };
            document::add(write, &copied)?;
        }
        Ok(ids)
    }

    /// Returns the documents that were added up to the place.
    fn added(&self, connection: &Connection) -> Result<HashSet<DocumentId>, Fault> {
        let mut statement = connection.prepare_cached(
            "SELECT body_version, body FROM events
             WHERE session_pk = ?1 AND seq <= ?2 AND kind = ?3 ORDER BY seq",
        )?;
        let kind = EventKind::KbAdded.as_str();
        let mut rows = statement.query(params![self.from.0, signed(self.at_seq), kind])?;
        let mut added = HashSet::new();
        while let Some(row) = rows.next()? {
            if let Ok(DurableEvent::KbAdded(id)) = log::body_of(row, 0) {
                added.insert(id);
            }
        }
        Ok(added)
    }
}

impl Work for ForkSession {
    type Output = (SessionRecord, bool);

    const COMPANY: Company = Company::Alone;

    fn run(&self, write: &mut Write<'_>) -> Result<Self::Output, Fault> {
        let source = session::head(write.connection, self.from)?;
        if self.at_seq > unsigned(source.seq) {
            let reason = format!("the log has {} events and can't be forked at {}", source.seq, self.at_seq);
            return Err(failed(reason).into());
        }
        if let Some(existing) = session::find(write.connection, &self.new.principal, &self.new.id)? {
            return Ok((existing, false));
        }
        let now = Timestamp::now();
        let made = session::insert(write, &self.new, &self.state, now, now)?;
        let ids = self.copy_documents(write, made.key)?;
        let base = write.numbers.take(self.at_seq);
        write.connection.execute(
            "INSERT INTO events (gseq, session_pk, seq, at, turn_id, kind, client_message_id, body_version, body)
             SELECT ?1 + seq, ?2, seq, at, turn_id, kind, client_message_id, body_version, body
             FROM events WHERE session_pk = ?3 AND seq <= ?4 ORDER BY seq",
            params![signed(base), made.key.0, self.from.0, signed(self.at_seq)],
        )?;
        name_copies(write.connection, made.key, &ids)?;
        write.connection.execute(
            "INSERT INTO feedback (session_pk, seq, score)
             SELECT ?1, seq, score FROM feedback WHERE session_pk = ?2 AND seq <= ?3",
            params![made.key.0, self.from.0, signed(self.at_seq)],
        )?;
        Ok((complete(write, made, self.at_seq)?, true))
    }
}

/// Lets the copied events name the copied documents.
fn name_copies(
    connection: &Connection,
    key: SessionKey,
    ids: &HashMap<DocumentId, DocumentId>,
) -> Result<(), Fault> {
    if ids.is_empty() {
        return Ok(());
    }
    let mut statement = connection.prepare_cached(
        "SELECT gseq, body_version, body FROM events WHERE session_pk = ?1 AND kind IN (?2, ?3)",
    )?;
    let mut update = connection.prepare_cached("UPDATE events SET body = ?2 WHERE gseq = ?1")?;
    let kinds = (EventKind::KbAdded.as_str(), EventKind::KbRemoved.as_str());
    let mut rows = statement.query(params![key.0, kinds.0, kinds.1])?;
    while let Some(row) = rows.next()? {
        let renamed = match log::body_of(row, 1) {
            Ok(DurableEvent::KbAdded(id)) => ids.get(&id).cloned().map(DurableEvent::KbAdded),
            Ok(DurableEvent::KbRemoved(id)) => ids.get(&id).cloned().map(DurableEvent::KbRemoved),
            _ => None,
        };
        if let Some(event) = renamed {
            let gseq: i64 = row.get(0)?;
            update.execute(params![gseq, EncodedEvent::encode(None, &event)?.body])?;
        }
    }
    Ok(())
}

/// Gives the session the head of its copied log.
fn complete(write: &mut Write<'_>, made: SessionRecord, head_seq: Seq) -> Result<SessionRecord, Fault> {
    write
        .connection
        .prepare_cached("UPDATE sessions SET head_seq = ?2 WHERE pk = ?1")?
        .execute(params![made.key.0, signed(head_seq)])?;
    Ok(SessionRecord { head_seq, ..made })
}

/// Begins to take a session in.
pub(super) struct BeginImport(pub(super) NewImport);

/// What the column for a state holds: it is known only at the end.
const NO_STATE: &str = "{}";

impl Work for BeginImport {
    type Output = Option<ImportKey>;

    fn run(&self, write: &mut Write<'_>) -> Result<Option<ImportKey>, Fault> {
        let Self(new) = self;
        if session::find(write.connection, &new.principal, &new.id)?.is_some() {
            return Ok(None);
        }
        write
            .connection
            .prepare_cached(
                "INSERT INTO imports (principal, session_id, title, workspace, created_at, state)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute(params![
                new.principal,
                new.id.as_str(),
                new.title,
                new.workspace.as_os_str().as_bytes(),
                new.created_at.as_micros(),
                NO_STATE,
            ])?;
        Ok(Some(ImportKey(write.connection.last_insert_rowid())))
    }
}

/// Adds events to an import.
pub(super) struct ImportEvents {
    import: ImportKey,
    events: Vec<(Timestamp, EncodedEvent)>,
}

impl ImportEvents {
    pub(super) fn encode(import: ImportKey, events: Vec<ImportedEvent>) -> Result<Self, StoreError> {
        let encode =
            |event: ImportedEvent| Ok((event.at, EncodedEvent::encode(event.turn.as_ref(), &event.event)?));
        Ok(Self { import, events: events.into_iter().map(encode).collect::<Result<_, StoreError>>()? })
    }
}

impl Work for ImportEvents {
    type Output = ();

    fn run(&self, write: &mut Write<'_>) -> Result<(), Fault> {
        let head: i64 = write
            .connection
            .prepare_cached("SELECT head_seq FROM imports WHERE pk = ?1 AND NOT dead")?
            .query_row([self.import.0], |row| row.get(0))
            .optional()?
            .ok_or(StoreError::NoSession)?;
        let mut statement = write.connection.prepare_cached(
            "INSERT INTO import_events (import_pk, seq, at, turn_id, kind, client_message_id, decided_at, decision,
             body_version, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )?;
        let mut seq = head;
        for (at, event) in &self.events {
            seq += 1;
            statement.execute(params![
                self.import.0,
                seq,
                at.as_micros(),
                event.turn.as_ref().map(MessageId::as_str),
                event.kind,
                event.client_message_id.as_ref().map(ClientMessageId::as_str),
                event.decided.as_ref().map(|decided| decided.at.as_micros()),
                event.decided.as_ref().map(|decided| decided.decision),
                BODY_VERSION,
                event.body,
            ])?;
        }
        write
            .connection
            .prepare_cached("UPDATE imports SET head_seq = ?2 WHERE pk = ?1")?
            .execute([self.import.0, seq])?;
        Ok(())
    }
}

/// Makes the session of an import.
pub(super) struct FinishImport {
    import: ImportKey,
    /// What holds after the last event.
    holds: SessionState,
    state: EncodedState,
}

impl FinishImport {
    pub(super) fn encode(import: ImportKey, holds: SessionState) -> Result<Self, StoreError> {
        let state = EncodedState::encode(&holds)?;
        Ok(Self { import, holds, state })
    }
}

impl Work for FinishImport {
    type Output = Option<SessionRecord>;

    const COMPANY: Company = Company::Alone;

    fn run(&self, write: &mut Write<'_>) -> Result<Self::Output, Fault> {
        let (new, head_seq) = gathered(write.connection, self.import)?;
        bury(write.connection, self.import)?;
        if session::find(write.connection, &new.principal, &new.id)?.is_some() {
            return Ok(None);
        }
        let NewImport { principal, id, title, workspace, created_at } = new;
        let new = NewSession { principal, id, title, workspace, state: self.holds.clone() };
        let made = session::insert(write, &new, &self.state, created_at, Timestamp::now())?;
        let base = write.numbers.take(head_seq);
        write.connection.execute(
            "INSERT INTO events (gseq, session_pk, seq, at, turn_id, kind, decided_at, decision, body_version, body)
             SELECT ?1 + seq, ?2, seq, at, turn_id, kind, decided_at, decision, body_version, body
             FROM import_events WHERE import_pk = ?3 ORDER BY seq",
            params![signed(base), made.key.0, self.import.0],
        )?;
        // A log from elsewhere may have one sender's id twice; this store's never has.
        write.connection.execute(
            "UPDATE OR IGNORE events SET client_message_id =
             (SELECT client_message_id FROM import_events i WHERE i.import_pk = ?1 AND i.seq = events.seq)
             WHERE session_pk = ?2 AND kind = ?3",
            params![self.import.0, made.key.0, EventKind::UserMessage.as_str()],
        )?;
        Ok(Some(complete(write, made, head_seq)?))
    }
}

/// Throws an import away.
pub(super) struct AbandonImport(pub(super) ImportKey);

impl Work for AbandonImport {
    type Output = ();

    // So that the chore that follows is done soon.
    const COMPANY: Company = Company::Alone;

    fn run(&self, write: &mut Write<'_>) -> Result<(), Fault> {
        bury(write.connection, self.0)
    }
}

/// Leaves the rest to a chore.
fn bury(connection: &Connection, import: ImportKey) -> Result<(), Fault> {
    connection.prepare_cached("UPDATE imports SET dead = 1 WHERE pk = ?1")?.execute([import.0])?;
    Ok(())
}

fn gathered(connection: &Connection, import: ImportKey) -> Result<(NewImport, Seq), Fault> {
    let mut statement = connection.prepare_cached(
        "SELECT principal, session_id, title, workspace, created_at, head_seq FROM imports
         WHERE pk = ?1 AND NOT dead",
    )?;
    let mut rows = statement.query([import.0])?;
    let Some(row) = rows.next()? else { return Err(StoreError::NoSession.into()) };
    let id: String = row.get(1)?;
    let workspace: Vec<u8> = row.get(3)?;
    let new = NewImport {
        principal: row.get(0)?,
        id: SessionId::parse(id).map_err(|error| failed(error.to_string()))?,
        title: row.get(2)?,
        workspace: OsString::from_vec(workspace).into(),
        created_at: Timestamp::from_micros(row.get(4)?),
    };
    Ok((new, unsigned(row.get(5)?)))
}
