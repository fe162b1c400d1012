//! Text → terms, the same way for what is stored and for what is asked. Never query syntax.

use std::borrow::Cow;
use std::ops::Range;

use icu_normalizer::{ComposingNormalizerBorrowed, DecomposingNormalizerBorrowed};

/// Longest term in bytes; of a longer word (a digest, encoded data) the beginning stands for the whole.
const MAX_TERM_BYTES: usize = 64;
/// How much of a question is read, in bytes.
const MAX_QUESTION_BYTES: usize = 4 << 10;
/// Most pieces of a question that are looked for; the first ones.
const MAX_PIECES: usize = 16;
/// Fewest characters of a last word that may go on. A single letter begins too much to find anything by it.
const MIN_BEGINNING: usize = 2;

/// The terms of a text, in their order, and where they stand in its normal form.
#[derive(Debug, Default)]
pub(super) struct Terms {
    folded: String,
    spans: Vec<Span>,
}

#[derive(Debug, Clone)]
struct Span {
    /// In the folded terms.
    term: Range<usize>,
    /// In the normalised text.
    text: Range<usize>,
}

impl Terms {
    /// Reads the terms of a text that is in normal form.
    pub(super) fn of(normal: &str) -> Self {
        let mut terms = Self::default();
        let mut run: Option<(Kind, usize)> = None;
        for (at, c) in normal.char_indices() {
            let now = kind(c);
            match run {
                Some((kind, _)) if kind == now => {}
                _ => {
                    terms.push_run(normal, run, at);
                    run = Some((now, at));
                }
            }
        }
        terms.push_run(normal, run, normal.len());
        terms
    }

    /// Returns how many there are.
    pub(super) fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns one of them.
    pub(super) fn get(&self, at: usize) -> Option<&str> {
        self.spans.get(at).map(|span| &self.folded[span.term.clone()])
    }

    /// Returns where it stands in the normalised text.
    pub(super) fn place(&self, at: usize) -> Range<usize> {
        self.spans.get(at).map_or(0..0, |span| span.text.clone())
    }

    fn push_run(&mut self, normal: &str, run: Option<(Kind, usize)>, end: usize) {
        match run {
            Some((Kind::Word, start)) => self.push(normal, start..end),
            Some((Kind::Dense, start)) => self.push_pairs(normal, start..end),
            Some((Kind::Gap, _)) | None => {}
        }
    }

    fn push_pairs(&mut self, normal: &str, run: Range<usize>) {
        let mut last = None;
        for (at, c) in normal[run.clone()].char_indices() {
            let (start, end) = (run.start + at, run.start + at + c.len_utf8());
            if let Some(before) = last {
                self.push(normal, before..end);
            }
            last = Some(start);
        }
        if let Some(start) = last {
            self.push(normal, start..run.end);
        }
    }

    fn push(&mut self, normal: &str, text: Range<usize>) {
        let start = self.folded.len();
        fold_into(&normal[text.clone()], &mut self.folded);
        let length = self.folded.len() - start;
        if length > MAX_TERM_BYTES {
            let end = start + self.folded[start..].floor_char_boundary(MAX_TERM_BYTES);
            self.folded.truncate(end);
        }
        if self.folded.len() > start {
            self.spans.push(Span { term: start..self.folded.len(), text });
        }
    }
}

/// Returns the terms of a text, joined by spaces, as an index takes them. A term has no space, and no character
/// for private use but where the text has one in a word: never.
pub fn index_terms(text: &str) -> String {
    let normal = normal(text);
    let terms = Terms::of(&normal);
    let mut joined = String::with_capacity(terms.folded.len() + terms.len());
    for at in 0..terms.len() {
        if at > 0 {
            joined.push(' ');
        }
        joined.push_str(terms.get(at).unwrap_or_default());
    }
    joined
}

/// Returns the text in composed compatibility form.
pub(super) fn normal(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        Cow::Borrowed(text)
    } else {
        ComposingNormalizerBorrowed::new_nfkc().normalize(text)
    }
}

/// What is asked, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    pub(super) pieces: Vec<Piece>,
}

/// Terms that must follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) terms: Vec<String>,
    /// The last one may go on.
    pub(super) open: bool,
}

/// A term that a message must have to be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Term<'a> {
    /// Letters, digits and marks only.
    pub text: &'a str,
    /// A term that begins so will do.
    pub open: bool,
}

impl Question {
    /// Reads a question: its first pieces.
    pub fn parse(text: &str) -> Self {
        let text = &text[..text.floor_char_boundary(MAX_QUESTION_BYTES)];
        let normal = normal(text);
        let mut pieces: Vec<Piece> = Vec::new();
        for word in normal.split_whitespace() {
            let piece = Piece::of(word);
            if !piece.terms.is_empty() && !pieces.contains(&piece) {
                pieces.push(piece);
            }
            if pieces.len() == MAX_PIECES {
                break;
            }
        }
        if let Some(last) = pieces.last_mut()
            && normal.ends_with(|c| kind(c) == Kind::Word)
            && last.terms.last().is_some_and(|term| term.chars().count() >= MIN_BEGINNING)
        {
            last.open = true;
        }
        Self { pieces }
    }

    /// Whether it has no words, so that it finds nothing.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Whether a text may be found in what it is stored as, without reading that: JSON, or anything else that keeps
    /// letters and digits as they are. Where this says no, [`Question::find_in`] finds nothing.
    pub fn may_be_in(&self, stored: &str) -> bool {
        if !stored.is_ascii() {
            return true;
        }
        // An ASCII text has no other terms than the runs of letters and digits in it.
        let stored = stored.to_ascii_lowercase();
        self.terms().all(|term| stored.contains(term.text))
    }

    /// Whether a text has all terms, wherever they stand in it.
    pub fn has_terms_in(&self, text: &str) -> bool {
        let normal = normal(text);
        let terms = Terms::of(&normal);
        let all = (0..terms.len()).filter_map(|at| terms.get(at));
        self.terms().all(|wanted| {
            let is_it =
                |term: &str| if wanted.open { term.starts_with(wanted.text) } else { term == wanted.text };
            all.clone().any(is_it)
        })
    }

    /// Returns all terms; a message without one of them need not be looked at.
    pub fn terms(&self) -> impl Iterator<Item = Term<'_>> {
        self.pieces.iter().flat_map(|piece| {
            let last = piece.terms.len().saturating_sub(1);
            piece
                .terms
                .iter()
                .enumerate()
                .map(move |(at, term)| Term { text: term, open: piece.open && at == last })
        })
    }
}

impl Piece {
    fn of(word: &str) -> Self {
        let terms = Terms::of(word);
        let mut texts: Vec<String> =
            (0..terms.len()).filter_map(|at| terms.get(at)).map(str::to_owned).collect();
        // The last character of a run without spaces asks for the end of a run. Where pairs stand before it they
        // say enough; alone, it is the beginning of a pair or the end of a run.
        let place = terms.place(terms.len().saturating_sub(1));
        let mut last = word[place.clone()].chars();
        let single = last.next().is_some_and(|c| kind(c) == Kind::Dense) && last.next().is_none();
        let after_pair = terms.len() > 1 && terms.place(terms.len() - 2).end == place.end;
        if single && after_pair {
            texts.pop();
        }
        Self { terms: texts, open: single && !after_pair }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Gap,
    Word,
    /// Of a script that is written without spaces.
    Dense,
}

fn kind(c: char) -> Kind {
    if c.is_ascii() {
        return if c.is_ascii_alphanumeric() { Kind::Word } else { Kind::Gap };
    }
    match c {
        _ if is_dense(c) => Kind::Dense,
        _ if c.is_alphanumeric() || is_accent(c) => Kind::Word,
        _ => Kind::Gap,
    }
}

/// Whether it is a mark on the letter before it that is left out when words are compared.
fn is_accent(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36F}')
}

/// Whether the character belongs to a script that is searched by pairs: Thai, Lao, Myanmar, Hangul, Khmer, Kana,
/// Bopomofo, Han. The ranges are Unicode blocks without their punctuation.
fn is_dense(c: char) -> bool {
    matches!(u32::from(c),
        0x0E01..=0x0E2E | 0x0E30..=0x0E3A | 0x0E40..=0x0E4E | 0x0E50..=0x0E59 | 0x0E80..=0x0EFF
        | 0x1000..=0x1049 | 0x1050..=0x109F | 0x1100..=0x11FF | 0x1780..=0x17D3 | 0x17DC..=0x17FF
        | 0x3005..=0x3007 | 0x3041..=0x309F | 0x30A1..=0x30FA | 0x30FC..=0x31FF | 0x3400..=0x4DBF
        | 0x4E00..=0x9FFF | 0xA960..=0xA97F | 0xA9E0..=0xA9FF | 0xAA60..=0xAA7F | 0xAC00..=0xD7FF
        | 0xF900..=0xFAFF | 0x1B000..=0x1B16F | 0x20000..=0x3FFFF)
}

/// Folds case by way of upper case, which also joins `ß` with `ss`, and leaves accents out.
fn fold_into(text: &str, into: &mut String) {
    if text.is_ascii() {
        into.extend(text.bytes().map(|byte| char::from(byte.to_ascii_lowercase())));
        return;
    }
    let apart = DecomposingNormalizerBorrowed::new_nfd().normalize(text);
    let bare: String = apart
        .chars()
        .filter(|c| !is_accent(*c))
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
        .filter(|c| !is_accent(*c))
        .collect();
    into.push_str(&ComposingNormalizerBorrowed::new_nfc().normalize(&bare));
}
