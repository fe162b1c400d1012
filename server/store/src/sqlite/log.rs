//! Reading logs: pages of one session, the stream of all, audit records; and what people think of messages.

use std::collections::BTreeMap;

use rusqlite::types::{FromSqlResult, ValueRef};
use rusqlite::{Connection, Row, params};
use tns_protocol::{MessageId, Seq, SessionId, Timestamp};
use tns_server_core::approval::AuditRecord;
use tns_server_core::event::{BODY_VERSION, DurableEvent, EventKind};
use tns_server_core::store::{
    AuditQuery, EventPage, EventQuery, MAX_PAGE_BYTES, MAX_PAGE_EVENTS, MAX_PAGE_SCAN, Place, Score,
    SessionKey, StoredEvent, StreamEvent, StreamPage, Take,
};

use super::error::Fault;
use super::writer::{Work, Write};
use super::{session, signed, unsigned};

/// Reads a page of a log. A body that can't be read is left out and logged.
pub(super) fn page(connection: &Connection, key: SessionKey, query: &EventQuery) -> Result<EventPage, Fault> {
    let session = session::head(connection, key)?;
    let mut page = EventPage {
        events: Vec::new(),
        more: false,
        head_seq: unsigned(session.seq),
        feedback: BTreeMap::new(),
    };
    let mut room = Room::new(query.limit);
    let mut statement = connection.prepare_cached(match query.take {
        Take::First => PAGE_SQL,
        Take::Last => LAST_PAGE_SQL,
    })?;
    let before = query.before.map_or(i64::MAX, signed);
    let mut rows = statement.query(params![key.0, signed(query.after), before])?;
    while let Some(row) = rows.next()? {
        if !wanted(query, row.get_ref(4)?) {
            continue;
        }
        let size = row.get_ref(6)?.as_bytes().map_or(0, <[u8]>::len);
        match event(row) {
            // Found only to know that there is more.
            Ok(_) if !room.takes(size) => {
                page.more = true;
                break;
            }
            Ok(event) => page.events.push(event),
            Err(why) => left_out(&session.id, row.get(0)?, &why),
        }
    }
    if query.take == Take::Last {
        page.events.reverse();
    }
    page.feedback = feedback(connection, key, &page.events)?;
    Ok(page)
}

/// Reads the events after a place of the whole store. One that can't be read is left out and logged.
pub(super) fn stream(
    connection: &Connection,
    after: u64,
    principal: Option<&str>,
    limit: usize,
) -> Result<StreamPage, Fault> {
    let mut page = StreamPage { events: Vec::new(), next: after, more: false };
    let mut room = Room::new(limit);
    let mut scanned = 0;
    let mut statement = connection.prepare_cached(
        "SELECT e.seq, e.gseq, e.at, e.turn_id, e.kind, e.body_version, e.body, s.principal, s.session_id
         FROM events e CROSS JOIN sessions s ON s.pk = e.session_pk WHERE e.gseq > ?1 ORDER BY e.gseq",
    )?;
    let mut rows = statement.query([signed(after)])?;
    while let Some(row) = rows.next()? {
        if scanned == MAX_PAGE_SCAN {
            page.more = true;
            break;
        }
        scanned += 1;
        let gseq: i64 = row.get(1)?;
        let whose = row.get_ref(7)?.as_str().map_err(rusqlite::Error::from)?;
        if principal.is_some_and(|principal| principal != whose) {
            page.next = unsigned(gseq);
            continue;
        }
        let size = row.get_ref(6)?.as_bytes().map_or(0, <[u8]>::len);
        match stream_event(row, whose) {
            Ok(_) if !room.takes(size) => {
                page.more = true;
                break;
            }
            Ok(event) => page.events.push(event),
            Err(why) => left_out(&row.get::<_, String>(8)?, row.get(0)?, &why),
        }
        page.next = unsigned(gseq);
    }
    Ok(page)
}

fn stream_event(row: &Row<'_>, principal: &str) -> Result<StreamEvent, String> {
    Ok(StreamEvent {
        principal: principal.to_owned(),
        session: SessionId::parse(text(row, 8)?).map_err(|error| error.to_string())?,
        event: event(row)?,
    })
}

const PAGE_SQL: &str = "SELECT seq, gseq, at, turn_id, kind, body_version, body FROM events
    WHERE session_pk = ?1 AND seq > ?2 AND seq < ?3 ORDER BY seq";
const LAST_PAGE_SQL: &str = "SELECT seq, gseq, at, turn_id, kind, body_version, body FROM events
    WHERE session_pk = ?1 AND seq > ?2 AND seq < ?3 ORDER BY seq DESC";

/// What fits into a page.
struct Room {
    events: usize,
    bytes: usize,
    taken: usize,
}

impl Room {
    fn new(limit: usize) -> Self {
        Self { events: limit.min(MAX_PAGE_EVENTS), bytes: MAX_PAGE_BYTES, taken: 0 }
    }

    /// Whether one more body fits; a page has room for one, whatever its size.
    fn takes(&mut self, size: usize) -> bool {
        if self.taken >= self.events || (self.taken > 0 && size > self.bytes) {
            return false;
        }
        self.taken += 1;
        self.bytes = self.bytes.saturating_sub(size);
        true
    }
}

fn feedback(
    connection: &Connection,
    key: SessionKey,
    events: &[StoredEvent],
) -> Result<BTreeMap<Seq, Score>, Fault> {
    let (Some(first), Some(last)) = (events.first(), events.last()) else { return Ok(BTreeMap::new()) };
    let mut statement = connection
        .prepare_cached("SELECT seq, score FROM feedback WHERE session_pk = ?1 AND seq BETWEEN ?2 AND ?3")?;
    let mut rows = statement.query(params![key.0, signed(first.place.seq), signed(last.place.seq)])?;
    let mut feedback = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let seq = unsigned(row.get(0)?);
        let here = events.binary_search_by_key(&seq, |event| event.place.seq).is_ok();
        if here && let Some(score) = Score::from_i8(row.get(1)?) {
            feedback.insert(seq, score);
        }
    }
    Ok(feedback)
}

/// Finds the place of a message.
pub(super) fn place_of(
    connection: &Connection,
    key: SessionKey,
    message: &MessageId,
) -> Result<Option<Seq>, Fault> {
    session::head(connection, key)?;
    // A body that doesn't hold the id anywhere need not be understood.
    let mut statement = connection.prepare_cached(
        "SELECT seq, gseq, at, turn_id, kind, body_version, body FROM events
         WHERE session_pk = ?1 AND kind IN (?2, ?3) AND instr(body, ?4) > 0 ORDER BY seq",
    )?;
    let kinds = (EventKind::UserMessage.as_str(), EventKind::AssistantMessage.as_str());
    let mut rows = statement.query(params![key.0, kinds.0, kinds.1, message.as_str()])?;
    while let Some(row) = rows.next()? {
        if let Ok(event) = event(row)
            && event.message() == Some(message)
        {
            return Ok(Some(event.place.seq));
        }
    }
    Ok(None)
}

/// Keeps or forgets what a person thinks of the message at a place.
pub(super) struct Rate {
    pub(super) session: SessionKey,
    pub(super) seq: Seq,
    pub(super) score: Option<Score>,
}

impl Work for Rate {
    type Output = ();

    fn run(&self, write: &mut Write<'_>) -> Result<(), Fault> {
        session::head(write.connection, self.session)?;
        let seq = signed(self.seq);
        match self.score {
            Some(score) => write
                .connection
                .prepare_cached(
                    "INSERT INTO feedback (session_pk, seq, score) VALUES (?1, ?2, ?3)
                     ON CONFLICT DO UPDATE SET score = ?3",
                )?
                .execute(params![self.session.0, seq, score.as_i8()])?,
            None => write
                .connection
                .prepare_cached("DELETE FROM feedback WHERE session_pk = ?1 AND seq = ?2")?
                .execute([self.session.0, seq])?,
        };
        Ok(())
    }
}

fn left_out(session: &str, seq: i64, why: &str) {
    tracing::error!(session, seq, why, "a stored event can't be read and is left out");
}

/// Reads audit records, the newest `limit` that fit, oldest first. Those that can't be read are left out and logged.
pub(super) fn audit(
    connection: &Connection,
    query: &AuditQuery,
) -> Result<Vec<(SessionId, AuditRecord)>, Fault> {
    let mut statement = connection.prepare_cached(AUDIT_SQL)?;
    let mut rows = statement.query(params![
        query.session.map(|key| key.0),
        query.since.map(Timestamp::as_micros),
        query.decision.map(|decision| decision.as_str()),
    ])?;
    let mut records = Vec::new();
    while records.len() < query.limit
        && let Some(row) = rows.next()?
    {
        match audit_record(row) {
            Ok(record) => records.push(record),
            Err(why) => {
                let (session, seq): (String, i64) = (row.get(0)?, row.get(1)?);
                tracing::error!(%session, seq, why, "a stored audit record can't be read and is left out");
            }
        }
    }
    records.reverse();
    Ok(records)
}

// CROSS JOIN keeps the order of the tables: the small index is read backwards until enough is found.
pub(super) const AUDIT_SQL: &str = "SELECT s.session_id, e.seq, e.body_version, e.body
    FROM events e INDEXED BY events_audited CROSS JOIN sessions s ON s.pk = e.session_pk
    WHERE e.decided_at IS NOT NULL AND (?1 IS NULL OR e.session_pk = ?1)
      AND (?2 IS NULL OR e.decided_at >= ?2) AND (?3 IS NULL OR e.decision = ?3)
    ORDER BY e.gseq DESC";

fn wanted(query: &EventQuery, kind: ValueRef<'_>) -> bool {
    let Some(kinds) = query.kinds else { return true };
    kind.as_str().is_ok_and(|kind| kinds.iter().any(|wanted| wanted.as_str() == kind))
}

fn event(row: &Row<'_>) -> Result<StoredEvent, String> {
    let number = |column| integer(row, column);
    Ok(StoredEvent {
        place: Place {
            seq: unsigned(number(0)?),
            gseq: unsigned(number(1)?),
            at: Timestamp::from_micros(number(2)?),
        },
        turn: text_or_null(row, 3)?.map(MessageId::parse).transpose().map_err(|e| e.to_string())?,
        event: body_of(row, 5)?,
    })
}

fn audit_record(row: &Row<'_>) -> Result<(SessionId, AuditRecord), String> {
    let session = SessionId::parse(text(row, 0)?).map_err(|error| error.to_string())?;
    match body_of(row, 2)? {
        DurableEvent::Audited(record) => Ok((session, record)),
        other => Err(format!("it is a {}", other.kind().as_str())),
    }
}

/// Reads the event of a row that has its version and, behind that, its body.
pub(super) fn body_of(row: &Row<'_>, column: usize) -> Result<DurableEvent, String> {
    body(integer(row, column)?, text(row, column + 1)?)
}

fn body(version: i64, text: &str) -> Result<DurableEvent, String> {
    if version > BODY_VERSION {
        return Err(format!("it has the newer form {version}"));
    }
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn integer(row: &Row<'_>, column: usize) -> Result<i64, String> {
    read(row, column, |value| value.as_i64())
}

fn text<'a>(row: &'a Row<'_>, column: usize) -> Result<&'a str, String> {
    read(row, column, |value| value.as_str())
}

fn text_or_null<'a>(row: &'a Row<'_>, column: usize) -> Result<Option<&'a str>, String> {
    read(row, column, |value| value.as_str_or_null())
}

fn read<'a, T>(
    row: &'a Row<'_>,
    column: usize,
    get: impl FnOnce(ValueRef<'a>) -> FromSqlResult<T>,
) -> Result<T, String> {
    let value = row.get_ref(column).map_err(|error| error.to_string())?;
    get(value).map_err(|error| error.to_string())
}
