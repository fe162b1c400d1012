//! Terms → hits over one state of the index: BM25, the best passage of each document, a score from 0 to 1.
//!
//! It reads and never writes; the state it is given decides what it sees.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashSet};

use serde_json::Value;
use tantivy::collector::TopDocs;
use tantivy::query::{BooleanQuery, ConstScoreQuery, Occur, Query, TermQuery};
use tantivy::schema::{IndexRecordOption, Value as _};
use tantivy::{Searcher, TantivyDocument, TantivyError, Term};
use tns_protocol::DocumentId;
use tns_server_core::store::Hit;

use crate::catalog::{Fields, Passage};

/// Most hits of one search, whatever limit it names.
pub const MAX_HITS: usize = 100;
/// Most terms that are looked for: the rarest of a long question.
const MAX_TERMS: usize = 64;
/// Fewest passages that are ranked.
const MIN_PASSAGES: usize = 50;
/// Most passages that are ranked, should one document have nearly all the best ones.
const MAX_PASSAGES: usize = 10_000;
/// Scores closer than this are a tie; it hides in which order numbers were added.
const SCORE_STEP: f64 = 1e-6;

/// A state of the index.
#[derive(Clone)]
pub(crate) struct Snapshot {
    pub(crate) searcher: Searcher,
    pub(crate) fields: Fields,
    /// It has read the store's changes up to here.
    pub(crate) at: u64,
}

/// What to find, with [`question_terms`](crate::words::question_terms) for `terms`.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) collections: Vec<String>,
    pub(crate) terms: Vec<String>,
    pub(crate) limit: usize,
    pub(crate) threshold: f64,
}

/// Finds the best passage of each of the best documents.
pub(crate) fn find(snapshot: &Snapshot, request: &Request) -> tantivy::Result<Vec<Hit>> {
    let limit = request.limit.min(MAX_HITS);
    let weighed = weigh(snapshot, &request.terms)?;
    if limit == 0 || weighed.terms.is_empty() {
        return Ok(Vec::new());
    }
    let query = query(snapshot, &request.collections, weighed.terms)?;
    let mut most = (4 * limit).max(MIN_PASSAGES);
    loop {
        let best = snapshot.searcher.search(&query, &TopDocs::with_limit(most).order_by_score())?;
        let is_all = best.len() < most || most == MAX_PASSAGES;
        let mut ranking = Ranking::new(limit);
        let mut is_full = false;
        for (score, address) in best {
            let score = normalise(f64::from(score), weighed.full);
            is_full = score < request.threshold || ranking.is_decided(score);
            if is_full {
                break;
            }
            let stored: TantivyDocument = snapshot.searcher.doc(address)?;
            ranking.add(score, passage(snapshot.fields, &stored)?);
        }
        if is_full || is_all {
            return Ok(ranking.into_hits());
        }
        most = (most * 4).min(MAX_PASSAGES);
    }
}

/// The terms that occur, and what a passage would score that has every term of the question.
struct Weighed {
    terms: Vec<Term>,
    full: f64,
}

/// Picks at most [`MAX_TERMS`] terms, the rarest first. Terms that occur nowhere are not looked for, but weigh in
/// the full score as if they occurred once: a passage can't answer what it doesn't mention.
fn weigh(snapshot: &Snapshot, terms: &[String]) -> tantivy::Result<Weighed> {
    let passages = passages(&snapshot.searcher);
    let mut found = Vec::new();
    let mut missing = 0;
    for term in terms {
        let term = Term::from_field_text(snapshot.fields.body, term);
        match snapshot.searcher.doc_freq(&term)? {
            0 => missing += 1,
            frequency => found.push((frequency, term)),
        }
    }
    found.sort_by_key(|(frequency, _)| *frequency);
    found.truncate(MAX_TERMS);
    missing = missing.min(MAX_TERMS - found.len());
    let full = found.iter().map(|(frequency, _)| rarity(*frequency, passages)).sum::<f64>()
        + missing as f64 * rarity(1, passages);
    Ok(Weighed { terms: found.into_iter().map(|(_, term)| term).collect(), full })
}

/// The weight of a term in BM25 (the formula of Lucene and tantivy): `ln(1 + (N − n + ½) / (n + ½))`.
fn rarity(frequency: u64, passages: u64) -> f64 {
    let (frequency, passages) = (frequency as f64, passages as f64);
    (1.0 + (passages - frequency + 0.5) / (frequency + 0.5)).ln()
}

/// Maps a BM25 score to 0–1 by the share of the question that a passage covers.
///
/// In BM25 a term that occurs once in a passage of average length adds just its rarity, so `full`, the sum of the
/// rarities, is the score of a passage that has every term once. The result is `1 − 2^(−2·score/full)`: 0.5 when
/// half of the question's weight is there, 0.75 when all of it is, more when it is there again and again, and
/// 0.3 (a useful threshold) when a quarter is. It rises strictly with the score and does not depend on how many
/// documents there are.
fn normalise(score: f64, full: f64) -> f64 {
    let share = if full > 0.0 { (score / full).max(0.0) } else { 0.0 };
    let score = 1.0 - (-2.0 * share).exp2();
    (score / SCORE_STEP).round() * SCORE_STEP
}

/// Any of the terms within the collections. Where there is nothing but these collections the filter is left out:
/// without it tantivy skips what can't be among the best.
fn query(snapshot: &Snapshot, collections: &[String], terms: Vec<Term>) -> tantivy::Result<BooleanQuery> {
    let within: BTreeSet<Term> =
        collections.iter().map(|name| Term::from_field_text(snapshot.fields.collection, name)).collect();
    let about = any_of(terms, IndexRecordOption::WithFreqs);
    let mut inside = 0;
    for collection in &within {
        inside += snapshot.searcher.doc_freq(collection)?;
    }
    if inside == passages(&snapshot.searcher) {
        return Ok(about);
    }
    let within = any_of(within, IndexRecordOption::Basic);
    let within = ConstScoreQuery::new(Box::new(within), 0.0);
    Ok(BooleanQuery::new(vec![(Occur::Must, Box::new(within)), (Occur::Must, Box::new(about))]))
}

/// Counts the passages as [`Searcher::doc_freq`] does: with removed ones that are not merged away yet.
fn passages(searcher: &Searcher) -> u64 {
    searcher.segment_readers().iter().map(|reader| u64::from(reader.max_doc())).sum()
}

fn any_of(terms: impl IntoIterator<Item = Term>, option: IndexRecordOption) -> BooleanQuery {
    let query = |term| Box::new(TermQuery::new(term, option)) as Box<dyn Query>;
    BooleanQuery::union(terms.into_iter().map(query).collect())
}

fn passage(fields: Fields, stored: &TantivyDocument) -> tantivy::Result<Passage> {
    let text = stored.get_first(fields.passage).and_then(|value| value.as_str()).unwrap_or_default();
    serde_json::from_str(text)
        .map_err(|error| TantivyError::InternalError(format!("a stored passage: {error}")))
}

/// Passages in order, the best one first, as far as they can still matter.
struct Ranking {
    limit: usize,
    passages: Vec<(f64, Passage)>,
    /// Documents and texts that are sure to be hits; ties may still put others before them.
    documents: HashSet<DocumentId>,
    texts: HashSet<String>,
    /// The score of the last document that fits.
    last: f64,
}

impl Ranking {
    fn new(limit: usize) -> Self {
        Self { limit, passages: Vec::new(), documents: HashSet::new(), texts: HashSet::new(), last: 0.0 }
    }

    /// Whether a passage with this score can't change the hits any more.
    fn is_decided(&self, score: f64) -> bool {
        self.documents.len() >= self.limit && score < self.last
    }

    fn add(&mut self, score: f64, passage: Passage) {
        let is_new = !self.documents.contains(&passage.document) && !self.texts.contains(&passage.content);
        if is_new && self.documents.len() < self.limit {
            self.documents.insert(passage.document.clone());
            self.texts.insert(passage.content.clone());
            self.last = score;
        }
        self.passages.push((score, passage));
    }

    /// Returns each document once with its best passage, and each text once. Ties go by the document's id.
    fn into_hits(mut self) -> Vec<Hit> {
        self.passages.sort_by(|(one, a), (two, b)| {
            let by_place = || a.document.cmp(&b.document).then(a.start_line.cmp(&b.start_line));
            two.partial_cmp(one).unwrap_or(Ordering::Equal).then_with(by_place)
        });
        let mut documents = HashSet::new();
        let mut texts = HashSet::new();
        let mut hits = Vec::new();
        for (score, passage) in self.passages {
            if hits.len() == self.limit {
                break;
            }
            if !documents.contains(&passage.document) && texts.insert(passage.content.clone()) {
                documents.insert(passage.document.clone());
                hits.push(hit(score, passage));
            }
        }
        hits
    }
}

fn hit(score: f64, passage: Passage) -> Hit {
    let mut metadata = passage.metadata;
    metadata.insert("startLine".to_owned(), Value::from(passage.start_line));
    metadata.insert("endLine".to_owned(), Value::from(passage.end_line));
    if !passage.heading_path.is_empty() {
        metadata.insert("headingPath".to_owned(), Value::from(passage.heading_path));
    }
    Hit { document: passage.document, content: passage.content, score, metadata }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_say_how_much_of_the_question_is_covered() {
        let shares = [(0.0, 0.0), (0.25, 0.292_893), (0.5, 0.5), (1.0, 0.75), (2.2, 0.952_634)];
        for (share, score) in shares {
            assert!((normalise(share * 7.0, 7.0) - score).abs() < SCORE_STEP, "{share}");
        }
    }

    #[test]
    fn scores_rise_and_stay_between_0_and_1() {
        let scores: Vec<f64> = (0..220).map(|step| normalise(f64::from(step), 100.0)).collect();
        assert!(scores.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(scores.iter().all(|score| (0.0..1.0).contains(score)));
        assert_eq!(normalise(1.0, 0.0), 0.0);
        assert_eq!(normalise(f64::NAN, 1.0), 0.0);
    }

    #[test]
    fn rare_terms_weigh_more_and_none_weighs_nothing() {
        assert!(rarity(1, 1_000) > rarity(10, 1_000));
        assert!(rarity(1_000, 1_000) > 0.0);
    }
}
