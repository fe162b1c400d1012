//! Asking the index, and the end of the log that it does not hold yet. What a term is and which rows fit is the
//! core's to say; here is only FTS5, and nothing of a question reaches it but terms between quotes.

use rusqlite::{Connection, Row, params};
use tns_protocol::{SessionId, Timestamp};
use tns_server_core::search::{
    Candidate, MAX_CANDIDATE_BYTES, MAX_CANDIDATES, MAX_TITLES, Question, rank, text_of,
};
use tns_server_core::store::{SearchHit, SearchPage, SearchQuery, SearchSource, SessionKey};

use super::error::Fault;
use super::index::{self, Block, Covered, MAX_BEHIND};
use super::{log, signed, unsigned};

/// Most terms that the index is asked for; all are looked for in what it gives.
const MAX_TERMS: usize = 48;

/// Most bytes of the log's end that a search reads. Where long messages came just now, the older ones of them are
/// found a moment later.
const MAX_BEHIND_BYTES: usize = 16 << 20;

/// Searches one principal's messages and titles.
pub(super) fn search(connection: &Connection, query: &SearchQuery, head: u64) -> Result<SearchPage, Fault> {
    let head = query.after.map_or(head, |cursor| cursor.head);
    let covered = Covered::read(connection)?;
    let mut complete = covered.from == 0 && !index::is_damaged(connection)?;
    let search = Search { connection, principal: &query.principal, question: Question::parse(&query.text) };
    let mut candidates = Vec::new();
    if !search.question.is_empty() {
        let mut found = Messages::default();
        complete &= search.behind(&mut found, covered.to, head)?;
        search.indexed(&mut found, covered, head)?;
        candidates = found.candidates;
        candidates.extend(search.titles()?);
    }
    Ok(SearchPage { complete, ..SearchPage::of(rank(candidates), query, head) })
}

/// What is asked, and where.
struct Search<'a> {
    connection: &'a Connection,
    principal: &'a str,
    question: Question,
}

/// The newest messages that were found so far.
#[derive(Default)]
struct Messages {
    candidates: Vec<Candidate<SearchHit>>,
    looked_at: usize,
    bytes: usize,
}

impl Messages {
    fn are_enough(&self) -> bool {
        self.looked_at == MAX_CANDIDATES || self.bytes >= MAX_CANDIDATE_BYTES
    }

    fn look_at(&mut self, text: &str) {
        self.looked_at += 1;
        self.bytes += text.len();
    }
}

/// The columns that [`hit`] reads, and the event behind them.
macro_rules! select_messages {
    ($rest:literal) => {
        concat!(
            "SELECT s.pk, s.session_id, s.title, e.seq, e.at, e.body_version, e.body, e.kind FROM ",
            $rest
        )
    };
}

impl Search<'_> {
    /// Writes what the index is asked of a block. The terms hold letters, digits and marks only.
    fn asked(&self, block: Block) -> String {
        let mut asked = String::from("\"");
        block.push_owner(self.principal, &mut asked);
        asked.push('"');
        for term in self.question.terms().take(MAX_TERMS) {
            asked.push_str(" AND \"");
            block.push_term(term.text, &mut asked);
            asked.push_str(if term.open { "\"*" } else { "\"" });
        }
        asked
    }

    /// Looks through the end of the log that the index does not hold yet. `false`: not through all of it.
    fn behind(&self, found: &mut Messages, to: u64, head: u64) -> Result<bool, Fault> {
        let mut statement = self.connection.prepare_cached(select_messages!(
            "events e CROSS JOIN sessions s ON s.pk = e.session_pk
             WHERE e.gseq > ?1 AND e.gseq <= ?2 AND s.principal = ?3 ORDER BY e.gseq DESC"
        ))?;
        let mut rows = statement.query(params![signed(to), signed(head), self.principal])?;
        let (mut events, mut bytes) = (0, 0);
        while let Some(row) = rows.next()? {
            if found.are_enough() {
                break;
            }
            if events == MAX_BEHIND || bytes >= MAX_BEHIND_BYTES {
                return Ok(false);
            }
            events += 1;
            if !index::is_searched(row.get_ref(7)?.as_str().unwrap_or_default()) {
                continue;
            }
            let body = row.get_ref(6)?.as_str().unwrap_or_default();
            bytes += body.len();
            if !self.question.may_be_in(body) {
                continue;
            }
            let Ok(event) = log::body_of(row, 5) else { continue };
            let Some((source, text)) = text_of(&event) else { continue };
            // Counted as the index would give them, so that the next page has the same ranking.
            if self.question.has_terms_in(&text) {
                found.look_at(&text);
                found.candidates.extend(self.candidate(row, source, &text)?);
            }
        }
        Ok(true)
    }

    /// Looks through the index, the newest block first.
    fn indexed(&self, found: &mut Messages, covered: Covered, head: u64) -> Result<(), Fault> {
        let mut statement = self.connection.prepare_cached(select_messages!(
            "search f CROSS JOIN events e ON e.gseq = f.rowid CROSS JOIN sessions s ON s.pk = e.session_pk
             WHERE f.search MATCH ?1 AND f.rowid BETWEEN 1 AND ?2 AND s.principal = ?3 ORDER BY f.rowid DESC"
        ))?;
        let head = head.min(covered.to);
        let mut next = Some(Block::of(head));
        while let Some(block) = next.filter(|block| block.last() >= covered.from) {
            let mut rows = statement.query(params![self.asked(block), signed(head), self.principal])?;
            while let Some(row) = rows.next()? {
                if found.are_enough() {
                    return Ok(());
                }
                let Ok(event) = log::body_of(row, 5) else { continue };
                let Some((source, text)) = text_of(&event) else { continue };
                found.look_at(&text);
                found.candidates.extend(self.candidate(row, source, &text)?);
            }
            next = block.before();
        }
        Ok(())
    }

    fn candidate(
        &self,
        row: &Row<'_>,
        source: SearchSource,
        text: &str,
    ) -> Result<Option<Candidate<SearchHit>>, Fault> {
        let Some(found) = self.question.find_in(text) else { return Ok(None) };
        let (seq, at): (i64, i64) = (row.get(3)?, row.get(4)?);
        let at = Timestamp::from_micros(at);
        let item = hit(row, source, Some(unsigned(seq)), at)?;
        Ok(item.map(|item| Candidate { item, at, found }))
    }

    fn titles(&self) -> Result<Vec<Candidate<SearchHit>>, Fault> {
        let mut statement = self.connection.prepare_cached(
            "SELECT s.pk, s.session_id, s.title, s.created_at FROM search f
             CROSS JOIN sessions s ON s.pk = -f.rowid
             WHERE f.search MATCH ?1 AND f.rowid < 0 AND s.principal = ?2 ORDER BY f.rowid LIMIT ?3",
        )?;
        let limit = i64::try_from(MAX_TITLES).unwrap_or(i64::MAX);
        let mut rows = statement.query(params![self.asked(Block::TITLES), self.principal, limit])?;
        let mut candidates = Vec::new();
        while let Some(row) = rows.next()? {
            let title: Option<String> = row.get(2)?;
            let Some(found) = title.and_then(|title| self.question.find_in(&title)) else { continue };
            let at = Timestamp::from_micros(row.get(3)?);
            let Some(item) = hit(row, SearchSource::Title, None, at)? else { continue };
            candidates.push(Candidate { item, at, found });
        }
        Ok(candidates)
    }
}

/// Reads the session of a row; its line is added when the page is made.
fn hit(
    row: &Row<'_>,
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
