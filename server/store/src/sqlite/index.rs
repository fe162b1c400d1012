//! The index of messages and titles: which row has which terms. What a term is is the core's to say; nothing is
//! asked here.
//!
//! * It is behind the log. An append leaves it alone, since a row of it costs more than the append; what is not in
//!   it yet is found in the log itself. It follows while nothing is written, and at once where it is further behind
//!   than [`MAX_BEHIND`].
//! * A term begins with its block, a stretch of the log, so that a search goes from the newest block to older ones
//!   and only reads what it needs. A term for the owner stands in every row, so that a search looks at one
//!   principal's rows only.
//! * It keeps no text: what is found is read from the log, and what is forgotten is derived from it once more. So a
//!   change of how terms are made needs a migration that fills the index anew.

use rusqlite::{Connection, Row, params};
use tns_server_core::event::DurableEvent;
use tns_server_core::search::{KINDS, index_terms, text_of};
use tns_server_core::store::{SessionKey, hex};

use super::error::Fault;
use super::session::Head;
use super::writer::Write;
use super::{log, signed, unsigned};

/// Most places of the log that the index is to be behind: a search reads as many events. An append beyond waits for a
/// few steps of the index, some milliseconds each.
pub(super) const MAX_BEHIND: u64 = 8_192;
/// Messages of one step, and about how many bytes of text: some milliseconds.
const STEP_MESSAGES: usize = 200;
const STEP_BYTES: usize = 256 << 10;
/// Rows that one step looks at.
const STEP_ROWS: usize = 4_000;
/// Begins the term for the owner. It is for private use, so no term of a text has it.
const OWNER: char = '\u{E000}';
/// The facts that say from which place on, and up to which, messages are in the index.
const FROM: &str = "search_from";
const TO: &str = "search_to";
/// The fact that says that it is to be made anew.
const DAMAGED: &str = "search_damaged";

/// A stretch of the log; titles have one for themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block(u64);

impl Block {
    /// Where titles are.
    pub(super) const TITLES: Self = Self(0);
    /// Places of one block, as a power of two. What begins with two letters is merged in a millisecond then, and a
    /// rare word looked for in 31 blocks of a million events in some.
    const BITS: u32 = 15;
    /// Characters that it takes in a term: for 3 · 10¹⁰ events.
    const DIGITS: usize = 4;

    /// Returns the block of a place in the log.
    pub(super) fn of(gseq: u64) -> Self {
        Self(1 + (gseq >> Self::BITS))
    }

    /// Returns the block of the places before.
    pub(super) fn before(self) -> Option<Self> {
        (self.0 > 1).then(|| Self(self.0 - 1))
    }

    /// Returns its last place.
    pub(super) fn last(self) -> u64 {
        (self.0 << Self::BITS) - 1
    }

    /// Writes a term of it.
    pub(super) fn push_term(self, term: &str, into: &mut String) {
        const ALPHABET: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";
        for digit in (0..Self::DIGITS).rev() {
            let digit = self.0 >> (5 * digit) & 31;
            into.push(char::from(ALPHABET[digit as usize]));
        }
        into.push_str(term);
    }

    /// Writes the term that all rows of a principal have.
    pub(super) fn push_owner(self, principal: &str, into: &mut String) {
        self.push_term(&format!("{OWNER}{}", hex(principal.as_bytes())), into);
    }

    fn row(self, principal: &str, terms: &str) -> String {
        let words = terms.split(' ').filter(|term| !term.is_empty());
        let mut row = String::with_capacity(2 * terms.len());
        self.push_owner(principal, &mut row);
        for term in words {
            row.push(' ');
            self.push_term(term, &mut row);
        }
        row
    }
}

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
    /// A title that comes or goes.
    pub(super) fn title(key: SessionKey, principal: &str, title: &str, direction: Direction) -> Self {
        Self { row: -key.0, terms: Block::TITLES.row(principal, &index_terms(title)), direction }
    }

    fn message(gseq: u64, principal: &str, event: &DurableEvent, direction: Direction) -> Option<Self> {
        let (_, text) = text_of(event)?;
        Some(Self {
            row: signed(gseq),
            terms: Block::of(gseq).row(principal, &index_terms(&text)),
            direction,
        })
    }
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
        .execute(params![change.row, change.terms])
        .map_err(Fault::Index)?;
    }
    Ok(())
}

/// The part of the log whose messages are in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Covered {
    /// Its first place; 0: nothing lies before it that should be there too.
    pub(super) from: u64,
    /// Its last place.
    pub(super) to: u64,
}

impl Covered {
    /// Reads how far the index is.
    pub(super) fn read(connection: &Connection) -> Result<Self, Fault> {
        let mut statement = connection.prepare_cached("SELECT value FROM meta WHERE key = ?1")?;
        let mut place = |key: &str| -> Result<u64, Fault> {
            let value: String = statement.query_row([key], |row| row.get(0))?;
            Ok(value.parse().unwrap_or(0))
        };
        Ok(Self { from: place(FROM)?, to: place(TO)? })
    }

    fn holds(self, gseq: u64) -> bool {
        (self.from..=self.to).contains(&gseq)
    }
}

fn set(connection: &Connection, key: &str, place: u64) -> Result<(), Fault> {
    connection
        .prepare_cached("UPDATE meta SET value = ?2 WHERE key = ?1")?
        .execute(params![key, place.to_string()])?;
    Ok(())
}

/// Whether events of this kind may have a text that is searched.
pub(super) fn is_searched(kind: &str) -> bool {
    KINDS.iter().any(|searched| searched.as_str() == kind)
}

/// Adds some of the messages that the index is behind, the oldest first, and returns how far it is: at `head`, the
/// last place, it has all.
pub(super) fn follow(connection: &Connection, head: u64) -> Result<u64, Fault> {
    let reached = add_some(
        connection,
        "SELECT e.gseq, e.kind, s.principal, e.body_version, e.body FROM events e
         CROSS JOIN sessions s ON s.pk = e.session_pk WHERE e.gseq > ?1 ORDER BY e.gseq",
        Covered::read(connection)?.to,
    )?;
    let reached = reached.unwrap_or(head);
    set(connection, TO, reached)?;
    flush(connection)?;
    Ok(reached)
}

/// Hands the rows that FTS5 keeps back until the commit to the file, so that an index that can't take them tells
/// it here.
pub(super) fn flush(connection: &Connection) -> Result<(), Fault> {
    let mut statement = connection.prepare_cached("INSERT INTO search (search) VALUES ('flush')")?;
    statement.execute([]).map(drop).map_err(Fault::Index)
}

/// Notes that it is damaged, so that the next start knows as well.
pub(super) fn mark_damaged(connection: &Connection) -> Result<(), Fault> {
    let sql = "INSERT INTO meta (key, value) VALUES (?1, '1') ON CONFLICT DO NOTHING";
    connection.prepare_cached(sql)?.execute([DAMAGED])?;
    Ok(())
}

/// Whether it is to be made anew.
pub(super) fn is_damaged(connection: &Connection) -> Result<bool, Fault> {
    Ok(connection.prepare_cached("SELECT 1 FROM meta WHERE key = ?1")?.exists([DAMAGED])?)
}

/// Empties a damaged index and adds the titles; the messages are added by and by.
pub(super) fn renew(connection: &Connection, head: u64) -> Result<(), Fault> {
    connection.execute("INSERT INTO search (search) VALUES ('delete-all')", [])?;
    connection.execute("INSERT INTO search (search, rank) VALUES ('secure-delete', 1)", [])?;
    connection.execute("DELETE FROM meta WHERE key = ?1", [DAMAGED])?;
    set(connection, FROM, head + 1)?;
    set(connection, TO, head)?;
    add_titles(connection)?;
    flush(connection)
}

/// Adds some of the messages that were stored before the index was made, the newest first.
/// `false`: none is left.
pub(super) fn fill(connection: &Connection) -> Result<bool, Fault> {
    let from = Covered::read(connection)?.from;
    if from == 0 {
        return Ok(false);
    }
    let reached = add_some(
        connection,
        "SELECT e.gseq, e.kind, s.principal, e.body_version, e.body FROM events e
         CROSS JOIN sessions s ON s.pk = e.session_pk WHERE e.gseq < ?1 ORDER BY e.gseq DESC",
        from,
    )?;
    set(connection, FROM, reached.unwrap_or(0))?;
    flush(connection)?;
    Ok(reached.is_some())
}

/// Adds the messages of one step and returns the place of the last row; `None`: there are no more rows.
fn add_some(connection: &Connection, sql: &str, beyond: u64) -> Result<Option<u64>, Fault> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([signed(beyond)])?;
    let (mut reached, mut scanned, mut added, mut bytes) = (None, 0, 0, 0);
    while let Some(row) = rows.next()? {
        if scanned == STEP_ROWS || added == STEP_MESSAGES || bytes >= STEP_BYTES {
            return Ok(reached);
        }
        scanned += 1;
        let gseq = unsigned(row.get(0)?);
        reached = Some(gseq);
        let principal = row.get_ref(2)?.as_str().unwrap_or_default();
        if let Some(change) = change(row, gseq, principal, Direction::In, 3)? {
            added += 1;
            bytes += change.terms.len();
            write(connection, &[change])?;
        }
    }
    Ok(None)
}

/// Makes the change of a row: its kind is in the second column, its body in the one after `version`.
fn change(
    row: &Row<'_>,
    gseq: u64,
    principal: &str,
    direction: Direction,
    version: usize,
) -> Result<Option<Change>, Fault> {
    if !is_searched(row.get_ref(1)?.as_str().unwrap_or_default()) {
        return Ok(None);
    }
    // One that can't be read is found by nobody; reading its page tells of it.
    let event = log::body_of(row, version).ok();
    Ok(event.and_then(|event| Change::message(gseq, principal, &event, direction)))
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

/// Removes a session's messages and its title. One that is damaged must not keep them either: it is emptied.
pub(super) fn forget_session(write: &mut Write<'_>, key: SessionKey, session: &Head) -> Result<(), Fault> {
    match remove(write.connection, key, session) {
        Err(fault) if fault.is_of_index() => {
            // Else the new index would have its title.
            write.connection.execute("UPDATE sessions SET title = NULL WHERE pk = ?1", [key.0])?;
            renew(write.connection, write.numbers.last_gseq)
        }
        done => done,
    }
}

fn remove(connection: &Connection, key: SessionKey, session: &Head) -> Result<(), Fault> {
    let covered = Covered::read(connection)?;
    let mut statement = connection.prepare_cached(
        "SELECT gseq, kind, body_version, body FROM events WHERE session_pk = ?1 ORDER BY seq",
    )?;
    let mut rows = statement.query([key.0])?;
    while let Some(row) = rows.next()? {
        let gseq = unsigned(row.get(0)?);
        if covered.holds(gseq)
            && let Some(change) = change(row, gseq, &session.principal, Direction::Out, 2)?
        {
            write(connection, &[change])?;
        }
    }
    let title = session.title.as_deref();
    let title = title.map(|title| Change::title(key, &session.principal, title, Direction::Out));
    write(connection, title.as_slice())?;
    flush(connection)
}

#[cfg(test)]
mod tests {
    use super::Block;

    #[test]
    fn a_block_begins_its_terms_with_four_characters_and_ends_before_the_next() {
        for (gseq, begin) in [(0, "0001x"), (32_767, "0001x"), (32_768, "0002x"), (33 << 15, "0012x")] {
            let mut term = String::new();
            Block::of(gseq).push_term("x", &mut term);
            assert_eq!(term, begin, "{gseq}");
        }
        let block = Block::of(40_000);
        assert_eq!((block.last(), Block::of(block.last() + 1)), (65_535, Block(3)));
        assert_eq!((block.before(), Block(1).before()), (Some(Block(1)), None));
    }
}
