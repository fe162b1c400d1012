//! Sessions: making, finding, listing, renaming and erasing them. Their logs are elsewhere.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use tns_protocol::{SessionId, Timestamp};
use tns_server_core::store::{
    Collection, MAX_PAGE_SESSIONS, NewSession, SessionCursor, SessionKey, SessionPage, SessionRecord,
    SessionState, StoreError,
};
use uuid::Uuid;

use super::error::{Fault, failed};
use super::index::{self, Change, Direction};
use super::writer::{Company, Work, Write};
use super::{document, unsigned};

/// Version of the stored form of [`SessionState`]. A field is only ever added, with a default.
const STATE_VERSION: i64 = 1;

/// Completes a query that gives the columns of [`record`].
macro_rules! select_sessions {
    ($rest:literal) => {
        concat!(
            "SELECT s.pk, s.principal, s.session_id, s.title, s.workspace, s.epoch, s.created_at, ",
            "s.updated_at, s.head_seq, t.version, t.body ",
            "FROM sessions s JOIN session_states t ON t.session_pk = s.pk ",
            $rest
        )
    };
}

/// A state as it is stored.
pub(super) struct EncodedState {
    body: String,
    has_open_turns: bool,
}

impl EncodedState {
    pub(super) fn encode(state: &SessionState) -> Result<Self, StoreError> {
        let body = serde_json::to_string(state).map_err(|error| failed(format!("write a state: {error}")))?;
        Ok(Self { body, has_open_turns: !state.open_turns.is_empty() })
    }

    /// Puts it in the place of the session's state so far.
    pub(super) fn write(&self, connection: &Connection, session: SessionKey) -> Result<(), Fault> {
        connection
            .prepare_cached(
                "INSERT INTO session_states (session_pk, has_open_turns, version, body) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT DO UPDATE SET has_open_turns = ?2, version = ?3, body = ?4",
            )?
            .execute(params![session.0, self.has_open_turns, STATE_VERSION, self.body])?;
        Ok(())
    }
}

/// Makes a session unless it exists.
pub(super) struct CreateSession {
    new: NewSession,
    state: EncodedState,
}

impl CreateSession {
    pub(super) fn encode(new: NewSession) -> Result<Self, StoreError> {
        let state = EncodedState::encode(&new.state)?;
        Ok(Self { new, state })
    }
}

impl Work for CreateSession {
    type Output = (SessionRecord, bool);

    fn run(&self, write: &mut Write<'_>) -> Result<Self::Output, Fault> {
        if let Some(existing) = find(write.connection, &self.new.principal, &self.new.id)? {
            return Ok((existing, false));
        }
        let now = Timestamp::now();
        Ok((insert(write, &self.new, &self.state, now, now)?, true))
    }
}

/// Makes a session with an empty log. There must be none with its principal and id.
pub(super) fn insert(
    write: &mut Write<'_>,
    new: &NewSession,
    state: &EncodedState,
    created_at: Timestamp,
    updated_at: Timestamp,
) -> Result<SessionRecord, Fault> {
    // Its own, so that a session which is made anew under the same id is told apart.
    let epoch = Uuid::new_v4().simple().to_string();
    write
        .connection
        .prepare_cached(
            "INSERT INTO sessions (principal, session_id, title, workspace, epoch, created_at, updated_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![
            new.principal,
            new.id.as_str(),
            new.title,
            new.workspace.as_os_str().as_bytes(),
            epoch,
            created_at.as_micros(),
            updated_at.as_micros(),
        ])?;
    let key = SessionKey(write.connection.last_insert_rowid());
    state.write(write.connection, key)?;
    if let Some(title) = &new.title {
        write.titles.push(Change::title(key, &new.principal, title, Direction::In));
    }
    Ok(SessionRecord {
        key,
        principal: new.principal.clone(),
        id: new.id.clone(),
        title: new.title.clone(),
        workspace: new.workspace.clone(),
        epoch,
        created_at,
        updated_at,
        head_seq: 0,
        state: new.state.clone(),
    })
}

/// Erases a session.
pub(super) struct DeleteSession(pub(super) SessionKey);

impl Work for DeleteSession {
    type Output = bool;

    const COMPANY: Company = Company::AloneErasing;

    fn run(&self, write: &mut Write<'_>) -> Result<bool, Fault> {
        let session = match head(write.connection, self.0) {
            Err(Fault::Store(StoreError::NoSession)) => return Ok(false),
            other => other?,
        };
        index::forget_session(write, self.0, &session)?;
        document::remove_all(write, &Collection::Session(self.0))?;
        // What is left of imports may hold the same text.
        write.connection.prepare_cached("DELETE FROM imports WHERE dead")?.execute([])?;
        // The log, the state and the feedback go with their session.
        write.connection.prepare_cached("DELETE FROM sessions WHERE pk = ?1")?.execute([self.0.0])?;
        write.numbers.keep(write.connection)
    }
}

/// Sets or clears a title; its finding follows.
pub(super) fn rename(
    write: &mut Write<'_>,
    key: SessionKey,
    session: &Head,
    title: Option<&str>,
) -> Result<(), Fault> {
    write
        .connection
        .prepare_cached("UPDATE sessions SET title = ?2 WHERE pk = ?1")?
        .execute(params![key.0, title])?;
    for (title, direction) in [(session.title.as_deref(), Direction::Out), (title, Direction::In)] {
        write.titles.extend(title.map(|title| Change::title(key, &session.principal, title, direction)));
    }
    Ok(())
}

/// Finds a session.
pub(super) fn find(
    connection: &Connection,
    principal: &str,
    id: &SessionId,
) -> Result<Option<SessionRecord>, Fault> {
    let mut statement =
        connection.prepare_cached(select_sessions!("WHERE s.principal = ?1 AND s.session_id = ?2"))?;
    let mut rows = statement.query(params![principal, id.as_str()])?;
    rows.next()?.map(record).transpose()
}

/// Lists a principal's sessions, the one whose log grew last first.
pub(super) fn list(
    connection: &Connection,
    principal: &str,
    after: Option<SessionCursor>,
    limit: usize,
) -> Result<SessionPage, Fault> {
    let limit = limit.min(MAX_PAGE_SESSIONS);
    let (updated_at, key) = after.map_or((i64::MAX, i64::MAX), |c| (c.updated_at.as_micros(), c.key.0));
    let mut statement = connection.prepare_cached(select_sessions!(
        "WHERE s.principal = ?1 AND (s.updated_at, s.pk) < (?2, ?3) ORDER BY s.updated_at DESC, s.pk DESC"
    ))?;
    let mut rows = statement.query(params![principal, updated_at, key])?;
    let mut page = SessionPage { sessions: Vec::new(), next: None };
    while let Some(row) = rows.next()? {
        let Some(session) = readable(record(row))? else { continue };
        if page.sessions.len() == limit {
            let cursor = |last: &SessionRecord| SessionCursor { updated_at: last.updated_at, key: last.key };
            page.next = page.sessions.last().map(cursor);
            break;
        }
        page.sessions.push(session);
    }
    Ok(page)
}

/// Lists the sessions with turns that have no end, of every principal.
pub(super) fn with_open_turns(connection: &Connection) -> Result<Vec<SessionRecord>, Fault> {
    let mut statement =
        connection.prepare_cached(select_sessions!("WHERE t.has_open_turns ORDER BY t.session_pk"))?;
    let mut rows = statement.query([])?;
    let mut sessions = Vec::new();
    while let Some(row) = rows.next()? {
        sessions.extend(readable(record(row))?);
    }
    Ok(sessions)
}

/// Lists the sessions whose log has not grown since before a time, the longest idle first.
pub(super) fn idle_since(
    connection: &Connection,
    before: Timestamp,
    limit: usize,
) -> Result<Vec<SessionRecord>, Fault> {
    let limit = i64::try_from(limit.min(MAX_PAGE_SESSIONS)).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(select_sessions!(
        "WHERE s.pk IN (SELECT pk FROM sessions WHERE updated_at < ?1 ORDER BY updated_at, pk LIMIT ?2)
         ORDER BY s.updated_at, s.pk"
    ))?;
    let mut rows = statement.query(params![before.as_micros(), limit])?;
    let mut sessions = Vec::new();
    while let Some(row) = rows.next()? {
        sessions.extend(readable(record(row))?);
    }
    Ok(sessions)
}

/// What a write needs of a session.
pub(super) struct Head {
    pub(super) id: String,
    pub(super) principal: String,
    pub(super) title: Option<String>,
    pub(super) seq: i64,
}

/// Reads the head of a session.
pub(super) fn head(connection: &Connection, session: SessionKey) -> Result<Head, Fault> {
    connection
        .prepare_cached("SELECT session_id, principal, title, head_seq FROM sessions WHERE pk = ?1")?
        .query_row([session.0], |row| {
            Ok(Head { id: row.get(0)?, principal: row.get(1)?, title: row.get(2)?, seq: row.get(3)? })
        })
        .optional()?
        .ok_or_else(|| StoreError::NoSession.into())
}

/// Counts all sessions.
pub(super) fn count(connection: &Connection) -> Result<i64, Fault> {
    Ok(connection.prepare_cached("SELECT count(*) FROM sessions")?.query_row([], |row| row.get(0))?)
}

/// Leaves out a session that can't be read, so that it doesn't hide the others.
fn readable(record: Result<SessionRecord, Fault>) -> Result<Option<SessionRecord>, Fault> {
    match record {
        Ok(record) => Ok(Some(record)),
        Err(Fault::Store(error)) => {
            tracing::error!(%error, "a session is left out of a list");
            Ok(None)
        }
        Err(fault) => Err(fault),
    }
}

/// Reads a row of `select_sessions!`. A [`Fault::Store`] concerns this row only.
fn record(row: &Row<'_>) -> Result<SessionRecord, Fault> {
    let id: String = row.get(2)?;
    let unreadable = |why: String| failed(format!("session {id} can't be read: {why}"));
    let version: i64 = row.get(9)?;
    if version > STATE_VERSION {
        return Err(unreadable(format!("its state has the newer form {version}")).into());
    }
    let body = row.get_ref(10)?.as_str().map_err(|error| unreadable(error.to_string()))?;
    let state = serde_json::from_str(body).map_err(|error| unreadable(error.to_string()))?;
    let workspace = row.get_ref(4)?.as_blob().map_err(|error| unreadable(error.to_string()))?;
    Ok(SessionRecord {
        key: SessionKey(row.get(0)?),
        principal: row.get(1)?,
        id: SessionId::parse(id.as_str()).map_err(|error| unreadable(error.to_string()))?,
        title: row.get(3)?,
        workspace: Path::new(OsStr::from_bytes(workspace)).to_owned(),
        epoch: row.get(5)?,
        created_at: Timestamp::from_micros(row.get(6)?),
        updated_at: Timestamp::from_micros(row.get(7)?),
        head_seq: unsigned(row.get(8)?),
        state,
    })
}
