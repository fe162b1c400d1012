//! The index of messages and titles: which row has which terms. What a term is and which rows fit is the
//! core's to say; here is only FTS5, and nothing of a question reaches it but terms between quotes.
//!
//! A term for the owner stands in every row, so that a search looks at one principal's rows only. The index
//! keeps no text: what is found is read from the log, and what is forgotten is derived from it once more. So a
//! change of how terms are made needs a migration that fills the index anew.

use rusqlite::{Connection, params};
use tns_protocol::{SessionId, Timestamp};
use tns_server_core::event::DurableEvent;
use tns_server_core::search::{
    Candidate, KINDS, MAX_CANDIDATE_BYTES, MAX_CANDIDATES, MAX_TITLES, Question, index_terms, rank, text_of,
};
use tns_server_core::store::{SearchHit, SearchPage, SearchQuery, SearchSource, SessionKey, hex};

use super::error::Fault;
use super::session::Head;
use super::{log, signed, unsigned};

/// Begins the term for the owner. It is for private use, so no term of a text has it.
const OWNER: char = '\u{E000}';
/// Most terms that the index is asked for; all are looked for in what it gives.
const MAX_TERMS: usize = 48;
/// Events of one step of filling, and about how many bytes of text: some milliseconds.
const FILL_EVENTS: usize = 200;
const FILL_BYTES: usize = 256 << 10;
/// Rows that one step of filling looks at.
const FILL_SCAN: usize = 4_000;
/// The fact that says from which place on events are in the index.
const FROM: &str = "search_from";

/// Whether a row comes or goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    In,
    Out,
}

/// A change of the index.
#[derive(Debug)]
pub(super) struct Change {
    row: i64,
    terms: String,
    direction: Direction,
}

impl Change {
    /// A message that comes, by its terms.
    pub(super) fn message(gseq: u64, principal: &str, terms: &str) -> Self {
        Self { row: signed(gseq), terms: owned(principal, terms), direction: Direction::In }
    }

    /// A title that comes or goes.
    pub(super) fn title(key: SessionKey, principal: &str, title: &str, direction: Direction) -> Self {
        Self { row: -key.0, terms: owned(principal, &index_terms(title)), direction }
    }
}

/// Returns what an event is found by.
pub(super) fn terms_of(event: &DurableEvent) -> Option<String> {
    text_of(event).map(|(_, text)| index_terms(&text))
}

fn owner(principal: &str) -> String {
    format!("{OWNER}{}", hex(principal.as_bytes()))
}

fn owned(principal: &str, terms: &str) -> String {
    format!("{} {terms}", owner(principal))
}

/// Makes changes, in their order.
pub(super) fn write(connection: &Connection, changes: &[Change]) -> Result<(), Fault> {
    for change in changes {
        match change.direction {
            Direction::In => {
                connection.prepare_cached("INSERT INTO search (rowid, terms) VALUES (?1, ?2)")?
            }
            Direction::Out => connection
                .prepare_cached("INSERT INTO search (search, rowid, terms) VALUES ('delete', ?1, ?2)")?,
        }
        .execute(params![change.row, change.terms])?;
    }
    Ok(())
}

/// Adds the messages of a whole log that was made within this transaction.
pub(super) fn add_session(connection: &Connection, key: SessionKey, principal: &str) -> Result<(), Fault> {
    change_session(connection, key, principal, 0, Direction::In)
}

/// Removes a session's messages and its title.
pub(super) fn forget_session(connection: &Connection, key: SessionKey, session: &Head) -> Result<(), Fault> {
    change_session(connection, key, &session.principal, filled_from(connection)?, Direction::Out)?;
    let title = session.title.as_deref();
    let title = title.map(|title| Change::title(key, &session.principal, title, Direction::Out));
    write(connection, title.as_slice())
}

/// Adds all titles, once, when the index is made.
pub(super) fn add_titles(connection: &Connection) -> Result<(), Fault> {
    let mut statement =
        connection.prepare("SELECT pk, principal, title FROM sessions WHERE title IS NOT NULL")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (key, principal, title): (i64, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        write(connection, &[Change::title(SessionKey(key), &principal, &title, Direction::In)])?;
    }
    Ok(())
}

/// Adds some of the messages that were stored before the index was made, the newest first.
/// `false`: none is left.
pub(super) fn fill(connection: &Connection) -> Result<bool, Fault> {
    let from = filled_from(connection)?;
    if from == 0 {
        return Ok(false);
    }
    let mut statement = connection.prepare_cached(
        "SELECT e.gseq, e.kind, s.principal, e.body_version, e.body FROM events e
         CROSS JOIN sessions s ON s.pk = e.session_pk WHERE e.gseq < ?1 ORDER BY e.gseq DESC",
    )?;
    let mut rows = statement.query([from])?;
    let (mut reached, mut scanned, mut added, mut bytes) = (0, 0, 0, 0);
    while let Some(row) = rows.next()? {
        if scanned == FILL_SCAN || added == FILL_EVENTS || bytes >= FILL_BYTES {
            break;
        }
        scanned += 1;
        reached = row.get(0)?;
        if !is_searched(row.get_ref(1)?.as_str().unwrap_or_default()) {
            continue;
        }
        // One that can't be read is found by nobody; reading its page tells of it.
        let Some(terms) = log::body_of(row, 3).ok().as_ref().and_then(terms_of) else { continue };
        added += 1;
        bytes += terms.len();
        let principal: String = row.get(2)?;
        write(connection, &[Change::message(unsigned(reached), &principal, &terms)])?;
    }
    let left = scanned > 0;
    set_filled_from(connection, if left { reached } else { 0 })?;
    Ok(left)
}

/// Returns the place from which on events are in the index; 0: all are.
fn filled_from(connection: &Connection) -> Result<i64, Fault> {
    let from = connection
        .prepare_cached("SELECT value FROM meta WHERE key = ?1")?
        .query_row([FROM], |row| row.get::<_, String>(0))?;
    Ok(from.parse().unwrap_or(0))
}

fn set_filled_from(connection: &Connection, from: i64) -> Result<(), Fault> {
    connection
        .prepare_cached("UPDATE meta SET value = ?2 WHERE key = ?1")?
        .execute(params![FROM, from.to_string()])?;
    Ok(())
}

fn is_searched(kind: &str) -> bool {
    KINDS.iter().any(|searched| searched.as_str() == kind)
}

fn change_session(
    connection: &Connection,
    key: SessionKey,
    principal: &str,
    from: i64,
    direction: Direction,
) -> Result<(), Fault> {
    let mut statement = connection.prepare_cached(
        "SELECT gseq, kind, body_version, body FROM events WHERE session_pk = ?1 ORDER BY seq",
    )?;
    let mut rows = statement.query([key.0])?;
    while let Some(row) = rows.next()? {
        let gseq: i64 = row.get(0)?;
        if gseq < from || !is_searched(row.get_ref(1)?.as_str().unwrap_or_default()) {
            continue;
        }
        if let Some(terms) = log::body_of(row, 2).ok().as_ref().and_then(terms_of) {
            let change = Change::message(unsigned(gseq), principal, &terms);
            write(connection, &[Change { direction, ..change }])?;
        }
    }
    Ok(())
}

/// Searches one principal's messages and titles.
pub(super) fn search(connection: &Connection, query: &SearchQuery, head: u64) -> Result<SearchPage, Fault> {
    let head = query.after.map_or(head, |cursor| cursor.head);
    let question = Question::parse(&query.text);
    let mut candidates = Vec::new();
    if !question.is_empty() {
        let asked = asked(&query.principal, &question);
        candidates = messages(connection, query, &question, &asked, head)?;
        candidates.extend(titles(connection, query, &question, &asked)?);
    }
    let page = SearchPage::of(rank(candidates), query, head);
    Ok(SearchPage { complete: filled_from(connection)? == 0, ..page })
}

/// Writes what the index is asked. The terms hold letters, digits and marks only.
fn asked(principal: &str, question: &Question) -> String {
    let mut asked = format!("\"{}\"", owner(principal));
    for term in question.terms().take(MAX_TERMS) {
        asked.push_str(" AND \"");
        asked.push_str(term.text);
        asked.push_str(if term.open { "\"*" } else { "\"" });
    }
    asked
}

fn messages(
    connection: &Connection,
    query: &SearchQuery,
    question: &Question,
    asked: &str,
    head: u64,
) -> Result<Vec<Candidate<SearchHit>>, Fault> {
    let mut statement = connection.prepare_cached(
        "SELECT s.pk, s.session_id, s.title, e.seq, e.at, e.body_version, e.body FROM search f
         CROSS JOIN events e ON e.gseq = f.rowid CROSS JOIN sessions s ON s.pk = e.session_pk
         WHERE f.search MATCH ?1 AND f.rowid BETWEEN 1 AND ?2 AND s.principal = ?3 ORDER BY f.rowid DESC",
    )?;
    let mut rows = statement.query(params![asked, signed(head), query.principal])?;
    let (mut looked_at, mut bytes) = (0, 0);
    let mut candidates = Vec::new();
    while let Some(row) = rows.next()? {
        if looked_at == MAX_CANDIDATES || bytes >= MAX_CANDIDATE_BYTES {
            break;
        }
        looked_at += 1;
        let Ok(event) = log::body_of(row, 5) else { continue };
        let Some((source, text)) = text_of(&event) else { continue };
        bytes += text.len();
        let Some(found) = question.find_in(&text) else { continue };
        let (seq, at): (i64, i64) = (row.get(3)?, row.get(4)?);
        let at = Timestamp::from_micros(at);
        let Some(item) = hit(row, source, Some(unsigned(seq)), at)? else { continue };
        candidates.push(Candidate { item, at, found });
    }
    Ok(candidates)
}

fn titles(
    connection: &Connection,
    query: &SearchQuery,
    question: &Question,
    asked: &str,
) -> Result<Vec<Candidate<SearchHit>>, Fault> {
    let mut statement = connection.prepare_cached(
        "SELECT s.pk, s.session_id, s.title, s.created_at FROM search f CROSS JOIN sessions s ON s.pk = -f.rowid
         WHERE f.search MATCH ?1 AND f.rowid < 0 AND s.principal = ?2 ORDER BY f.rowid LIMIT ?3",
    )?;
    let limit = i64::try_from(MAX_TITLES).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![asked, query.principal, limit])?;
    let mut candidates = Vec::new();
    while let Some(row) = rows.next()? {
        let title: Option<String> = row.get(2)?;
        let Some(found) = title.and_then(|title| question.find_in(&title)) else { continue };
        let at = Timestamp::from_micros(row.get(3)?);
        let Some(item) = hit(row, SearchSource::Title, None, at)? else { continue };
        candidates.push(Candidate { item, at, found });
    }
    Ok(candidates)
}

/// Reads the session of a row; its line is added when the page is made.
fn hit(
    row: &rusqlite::Row<'_>,
    source: SearchSource,
    seq: Option<u64>,
    at: Timestamp,
) -> Result<Option<SearchHit>, Fault> {
    let id: String = row.get(1)?;
    let Ok(session) = SessionId::parse(id) else { return Ok(None) };
    Ok(Some(SearchHit {
        key: SessionKey(row.get(0)?),
        session,
        title: row.get(2)?,
        source,
        seq,
        at,
        snippet: String::new(),
        matches: Vec::new(),
        score: 0.0,
    }))
}
