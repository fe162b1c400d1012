//! Which candidates have what is asked, how well, and the line around it.

use std::ops::Range;

use tns_protocol::Timestamp;

use super::words::{Piece, Question, Terms, normal};

/// How soon a word said again counts no more.
const SATURATION: f64 = 1.2;
/// How much a long text is held against it: 0 to 1.
const LENGTH_WEIGHT: f64 = 0.75;
/// After so many days a message counts halfway between its first weight and its last.
const HALF_AGE_DAYS: f64 = 30.0;
/// What age leaves of a score.
const OLD_WEIGHT: f64 = 0.5;
/// Longest line around a match, in characters.
const SNIPPET_CHARS: usize = 160;
/// How much of it stands before the first match, in characters.
const LEAD_CHARS: usize = 48;
/// Most places that are shown in a line.
const MAX_MARKS: usize = 32;

/// What was found in a text.
#[derive(Debug, Clone, PartialEq)]
pub struct Match {
    /// How often each piece of the question occurs.
    frequencies: Vec<u32>,
    /// How many terms the text has.
    length: usize,
    /// One line of text around the first match.
    pub snippet: String,
    /// The matches in it, as ranges of bytes.
    pub marks: Vec<Range<usize>>,
}

impl Question {
    /// Looks for everything that is asked in a text. `None`: something is missing.
    pub fn find_in(&self, text: &str) -> Option<Match> {
        if self.is_empty() {
            return None;
        }
        let normal = normal(text);
        let terms = Terms::of(&normal);
        let mut frequencies = Vec::with_capacity(self.pieces.len());
        let mut places: Vec<Range<usize>> = Vec::new();
        for piece in &self.pieces {
            let mut frequency = 0;
            for at in 0..terms.len() {
                if piece.is_at(&terms, at) {
                    frequency += 1;
                    if frequency as usize <= MAX_MARKS {
                        places.push(piece.place(&terms, at, &normal));
                    }
                }
            }
            if frequency == 0 {
                return None;
            }
            frequencies.push(frequency);
        }
        let (snippet, marks) = line(&normal, &joined(places));
        Some(Match { frequencies, length: terms.len(), snippet, marks })
    }
}

impl Piece {
    fn is_at(&self, terms: &Terms, at: usize) -> bool {
        let last = self.terms.len() - 1;
        self.terms.iter().enumerate().all(|(number, wanted)| {
            terms.get(at + number).is_some_and(|term| {
                if self.open && number == last { term.starts_with(wanted.as_str()) } else { term == wanted }
            })
        })
    }

    fn place(&self, terms: &Terms, at: usize, normal: &str) -> Range<usize> {
        let (first, last) = (terms.place(at), terms.place(at + self.terms.len() - 1));
        // One character that stands for all pairs that begin with it.
        let lone = self.open && self.terms.len() == 1 && self.terms[0].chars().nth(1).is_none();
        let end = if lone {
            first.start + normal[first.start..].chars().next().map_or(0, char::len_utf8)
        } else {
            last.end
        };
        first.start..end
    }
}

/// Sorts ranges and joins those that touch.
fn joined(mut places: Vec<Range<usize>>) -> Vec<Range<usize>> {
    places.sort_by_key(|place| place.start);
    let mut joined: Vec<Range<usize>> = Vec::with_capacity(places.len());
    for place in places {
        match joined.last_mut() {
            Some(last) if place.start <= last.end => last.end = last.end.max(place.end),
            _ => joined.push(place),
        }
    }
    joined
}

/// Cuts one line around the first place and says where the places are in it.
fn line(text: &str, places: &[Range<usize>]) -> (String, Vec<Range<usize>>) {
    let first = places.first().map_or(0, |place| place.start);
    let start = text[..first].char_indices().rev().take(LEAD_CHARS).last().map_or(first, |(at, _)| at);
    let mut snippet = String::with_capacity(2 * SNIPPET_CHARS);
    let mut marks: Vec<Range<usize>> = Vec::new();
    if start > 0 {
        snippet.push('…');
    }
    let mut place = places.iter().skip_while(|place| place.end <= start).peekable();
    let mut began = None;
    let mut gap = true;
    let mut end = text.len();
    for (number, (at, c)) in text[start..].char_indices().enumerate() {
        let at = start + at;
        if number == SNIPPET_CHARS {
            end = at;
            break;
        }
        if place.peek().is_some_and(|place| place.end <= at) {
            marks.extend(began.take().map(|began| began..snippet.len()));
            place.next();
        }
        if began.is_none() && place.peek().is_some_and(|place| place.start <= at) {
            began = Some(snippet.len());
        }
        if c.is_whitespace() || c.is_control() {
            if !gap {
                snippet.push(' ');
            }
            gap = true;
        } else {
            snippet.push(c);
            gap = false;
        }
    }
    marks.extend(began.map(|began| began..snippet.len()));
    snippet.truncate(snippet.trim_end().len());
    if end < text.len() {
        snippet.push('…');
    }
    (snippet, marks)
}

/// Something that was found and may be shown.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate<T> {
    /// What it is.
    pub item: T,
    /// How old it is.
    pub at: Timestamp,
    /// What was found in it.
    pub found: Match,
}

/// A candidate in its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranked<T> {
    /// The candidate.
    pub candidate: Candidate<T>,
    /// How well it fits: above 0, finite.
    pub score: f64,
}

/// Puts the best first; of equals, the one that was given first.
pub fn rank<T>(candidates: Vec<Candidate<T>>) -> Vec<Ranked<T>> {
    let count = candidates.len().max(1) as f64;
    let mean = candidates.iter().map(|c| c.found.length as f64).sum::<f64>() / count;
    // Age counts from the newest one, not from now, so that the next page has the same order.
    let newest = candidates.iter().map(|c| c.at.as_micros()).max().unwrap_or_default();
    let mut ranked: Vec<Ranked<T>> = candidates
        .into_iter()
        .map(|candidate| {
            let score = fit(&candidate.found, mean) * weight(newest, candidate.at.as_micros());
            Ranked { candidate, score }
        })
        .collect();
    ranked.sort_by(|a, b| b.score.total_cmp(&a.score));
    ranked
}

fn fit(found: &Match, mean: f64) -> f64 {
    let length = found.length as f64 / mean.max(1.0);
    let damping = SATURATION * (1.0 - LENGTH_WEIGHT + LENGTH_WEIGHT * length);
    found
        .frequencies
        .iter()
        .map(|count| f64::from(*count))
        .map(|n| n * (SATURATION + 1.0) / (n + damping))
        .sum()
}

fn weight(newest: i64, at: i64) -> f64 {
    const DAY: f64 = 24.0 * 60.0 * 60.0 * 1e6;
    let days = newest.saturating_sub(at).max(0) as f64 / DAY;
    OLD_WEIGHT + (1.0 - OLD_WEIGHT) * (-days / HALF_AGE_DAYS).exp2()
}
