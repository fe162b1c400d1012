//! Finding messages over all sessions: what is asked and what comes back. How is told in [`crate::search`].

use std::ops::Range;

use tns_protocol::{Seq, SessionId, Timestamp};

use super::SessionKey;
use crate::search::Ranked;

/// Most hits of one page.
pub const MAX_PAGE_HITS: usize = 50;

/// What to look for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchQuery {
    /// Whose sessions.
    pub principal: String,
    /// Words, all of which a hit has; the last one may be the beginning of a word.
    pub text: String,
    /// At most so many hits, and at most [`MAX_PAGE_HITS`].
    pub limit: usize,
    /// Where the page before ended.
    pub after: Option<SearchCursor>,
}

/// Where a page of hits goes on. The pages are those of one ranking as long as no session is renamed or deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchCursor {
    /// Messages stored after this place are not looked at.
    pub head: u64,
    /// Hits on the pages before.
    pub offset: usize,
}

/// A page of hits, best first.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchPage {
    /// The hits.
    pub hits: Vec<SearchHit>,
    /// Give this for the next page.
    pub next: Option<SearchCursor>,
    /// Every message can be found. `false` while some are being indexed: older ones after an upgrade or after damage,
    /// or of very many that came just now.
    pub complete: bool,
}

impl SearchPage {
    /// Cuts the page that was asked for out of a ranking, and gives its hits their line and score.
    pub fn of(ranked: Vec<Ranked<SearchHit>>, query: &SearchQuery, head: u64) -> Self {
        let begin = query.after.map_or(0, |cursor| cursor.offset).min(ranked.len());
        let end = begin.saturating_add(query.limit.min(MAX_PAGE_HITS)).min(ranked.len());
        let next = (end < ranked.len()).then_some(SearchCursor { head, offset: end });
        let hits =
            ranked.into_iter().skip(begin).take(end - begin).map(|Ranked { candidate, score }| SearchHit {
                snippet: candidate.found.snippet,
                matches: candidate.found.marks,
                score,
                ..candidate.item
            });
        Self { hits: hits.collect(), next, complete: true }
    }
}

/// A message or a title that has all words.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchHit {
    /// The session's key.
    pub key: SessionKey,
    /// The session.
    pub session: SessionId,
    /// Its title.
    pub title: Option<String>,
    /// What was found.
    pub source: SearchSource,
    /// The message's place; `None` for a title.
    pub seq: Option<Seq>,
    /// When the message was stored; for a title, when its session was made.
    pub at: Timestamp,
    /// One line of text around the first match, without control characters, in composed Unicode form.
    pub snippet: String,
    /// The matches in the snippet, as ranges of bytes, ascending and apart.
    pub matches: Vec<Range<usize>>,
    /// How well it fits: above 0, finite, comparable within one search only.
    pub score: f64,
}

/// Where a hit was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchSource {
    /// The session's title.
    Title,
    /// A person's message.
    User,
    /// A reply.
    Assistant,
}
