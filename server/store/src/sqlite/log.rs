//! Reading logs: pages of one session, and audit records of one or all.

use rusqlite::types::{FromSqlResult, ValueRef};
use rusqlite::{Connection, Row, params};
use tns_protocol::{MessageId, SessionId, Timestamp};
use tns_server_core::approval::AuditRecord;
use tns_server_core::event::{BODY_VERSION, DurableEvent};
use tns_server_core::store::{
    AuditQuery, EventPage, EventQuery, MAX_PAGE_BYTES, MAX_PAGE_EVENTS, Place, SessionKey, StoredEvent,
};

use super::error::Fault;
use super::{session, signed, unsigned};

/// Reads a page of a log. A body that can't be read is left out and logged.
pub(super) fn page(connection: &Connection, key: SessionKey, query: &EventQuery) -> Result<EventPage, Fault> {
    let (session, head_seq) = session::head(connection, key)?;
    let limit = query.limit.min(MAX_PAGE_EVENTS);
    let mut page = EventPage { events: Vec::new(), more: false, head_seq: unsigned(head_seq) };
    let mut bytes = 0;
    let mut statement = connection.prepare_cached(
        "SELECT seq, gseq, at, turn_id, kind, body_version, body FROM events
         WHERE session_pk = ?1 AND seq > ?2 AND seq < ?3 ORDER BY seq",
    )?;
    let before = query.before.map_or(i64::MAX, signed);
    let mut rows = statement.query(params![key.0, signed(query.after), before])?;
    while let Some(row) = rows.next()? {
        if !wanted(query, row.get_ref(4)?) {
            continue;
        }
        let size = row.get_ref(6)?.as_bytes().map_or(0, <[u8]>::len);
        let full = page.events.len() >= limit || (!page.events.is_empty() && bytes + size > MAX_PAGE_BYTES);
        match event(row) {
            // Found only to know that there is more.
            Ok(_) if full => {
                page.more = true;
                break;
            }
            Ok(event) => {
                bytes += size;
                page.events.push(event);
            }
            Err(why) => {
                let seq: i64 = row.get(0)?;
                tracing::error!(%session, seq, why, "a stored event can't be read and is left out");
            }
        }
    }
    Ok(page)
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
        event: body(number(5)?, text(row, 6)?)?,
    })
}

fn audit_record(row: &Row<'_>) -> Result<(SessionId, AuditRecord), String> {
    let session = SessionId::parse(text(row, 0)?).map_err(|error| error.to_string())?;
    match body(integer(row, 2)?, text(row, 3)?)? {
        DurableEvent::Audited(record) => Ok((session, record)),
        other => Err(format!("it is a {}", other.kind().as_str())),
    }
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
