//! Text → terms, the same way for documents and questions. Pure; never interprets a question as query syntax.
//!
//! - Compatibility forms are folded (NFKC: `ＧＰＵ` is `GPU`) and case is folded (`GRÖSSE` is `größe`).
//! - Scripts written without spaces give overlapping pairs of characters; a lone character gives itself.
//! - Words of code are kept whole and in parts: `parseHTTPHeader` gives itself, `parse`, `http`, `header`.
//! - What looks like encoded data (a digest, Base64) is kept whole only, and a very long word by its beginning.
//! - `C++` and `C#` stay words. English endings are stripped, words that carry no meaning are left out.

use std::borrow::Cow;
use std::collections::HashSet;

use icu_normalizer::ComposingNormalizerBorrowed;
use tantivy::tokenizer::{Language, Stemmer, TextAnalyzer, Token, TokenStream, Tokenizer};

use crate::segment::characters;

/// Longest word in bytes. Of a longer one (a digest, an encoded file) the beginning stands for the whole.
const MAX_WORD_BYTES: usize = 128;
/// Longest word in bytes that is taken apart whatever its parts are.
const MAX_RAGGED_BYTES: usize = 20;
/// Fewest bytes that the parts of a longer word have on average. In a name they have four or more, in digests and
/// encoded data (`3f9a0c…`, `dGhlIHF…`) two: nobody searches those parts, so such a word is kept whole only.
const MIN_MEAN_PART_BYTES: f64 = 2.5;
/// How much of a question is read, in bytes.
const MAX_QUESTION_BYTES: usize = 32 * 1024;
/// Most distinct terms read from a question.
const MAX_QUESTION_TERMS: usize = 1024;

/// English words that say nothing about what a text is about, sorted.
const STOP_WORDS: &[&str] = &[
    "a", "about", "an", "and", "are", "as", "at", "be", "been", "but", "by", "can", "could", "did", "didn",
    "do", "does", "doesn", "don", "for", "from", "had", "has", "have", "how", "i", "if", "in", "into", "is",
    "isn", "it", "its", "me", "my", "no", "not", "of", "on", "or", "our", "should", "so", "such", "than",
    "that", "the", "their", "them", "then", "there", "these", "they", "this", "those", "to", "was", "we",
    "were", "what", "when", "where", "which", "who", "why", "will", "with", "would", "you", "your",
];

/// What may follow an apostrophe without being a word: `server's`, `don't`, `we'll`.
const ENDINGS_AFTER_APOSTROPHE: &[&str] = &["d", "ll", "m", "re", "s", "t", "ve"];

/// Which side of a search the text is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// A document: pairs and single characters of scripts without spaces, so that one character is findable.
    Document,
    /// A question: pairs only, since single characters match too much.
    Question,
}

/// Builds the analyzer of a side.
pub(crate) fn analyzer(side: Side) -> TextAnalyzer {
    TextAnalyzer::builder(Words { side }).filter(Stemmer::new(Language::English)).build()
}

/// Returns the distinct terms of a question in their order, at most [`MAX_QUESTION_TERMS`] from its first
/// [`MAX_QUESTION_BYTES`]. Empty when it has no words or only words without meaning.
pub(crate) fn question_terms(text: &str) -> Vec<String> {
    let text = &text[..text.floor_char_boundary(MAX_QUESTION_BYTES)];
    let mut analyzer = analyzer(Side::Question);
    let mut stream = analyzer.token_stream(text);
    let mut seen = HashSet::new();
    let mut terms = Vec::new();
    while terms.len() < MAX_QUESTION_TERMS && stream.advance() {
        let term = &stream.token().text;
        if !seen.contains(term.as_str()) {
            seen.insert(term.clone());
            terms.push(term.clone());
        }
    }
    terms
}

#[derive(Debug, Clone)]
struct Words {
    side: Side,
}

impl Tokenizer for Words {
    type TokenStream<'a> = WordStream<'a>;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> WordStream<'a> {
        let text = if text.is_ascii() {
            Cow::Borrowed(text)
        } else {
            ComposingNormalizerBorrowed::new_nfkc().normalize(text)
        };
        WordStream { text, side: self.side, at: 0, pending: Pending::default(), token: Token::default() }
    }
}

/// The terms of a text, one run of characters at a time.
struct WordStream<'a> {
    text: Cow<'a, str>,
    side: Side,
    at: usize,
    pending: Pending,
    token: Token,
}

impl TokenStream for WordStream<'_> {
    fn advance(&mut self) -> bool {
        while self.pending.next >= self.pending.ends.len() {
            self.pending.clear();
            if !read_run(&self.text, &mut self.at, self.side, &mut self.pending) {
                return false;
            }
        }
        self.token.text.clear();
        self.token.text.push_str(self.pending.take());
        self.token.position = self.token.position.wrapping_add(1);
        true
    }

    fn token(&self) -> &Token {
        &self.token
    }

    fn token_mut(&mut self) -> &mut Token {
        &mut self.token
    }
}

/// Terms that were made and not yet given out, in one buffer.
#[derive(Debug, Default)]
struct Pending {
    text: String,
    ends: Vec<usize>,
    next: usize,
}

impl Pending {
    fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
        self.next = 0;
    }

    fn take(&mut self) -> &str {
        let start = if self.next == 0 { 0 } else { self.ends[self.next - 1] };
        let end = self.ends[self.next];
        self.next += 1;
        &self.text[start..end]
    }

    /// Adds a term as it is.
    fn push(&mut self, term: &str) {
        self.text.push_str(term);
        self.ends.push(self.text.len());
    }

    /// Adds the case-folded text followed by `symbol`, unless that is a word without meaning.
    fn push_folded(&mut self, word: &str, symbol: &str) {
        let start = self.text.len();
        for piece in singular(word).split('_') {
            fold_into(piece, &mut self.text);
        }
        self.text.push_str(symbol);
        if STOP_WORDS.binary_search(&&self.text[start..]).is_ok() {
            self.text.truncate(start);
        } else {
            self.ends.push(self.text.len());
        }
    }
}

/// Takes the plural from capitals, `GPUs`, which the stemmer would keep once they are folded.
fn singular(word: &str) -> &str {
    let capitals = word.strip_suffix('s').filter(|word| word.len() > 1);
    capitals.filter(|word| word.bytes().all(|byte| byte.is_ascii_uppercase())).unwrap_or(word)
}

/// Folds case by way of upper case, which also joins `ß` with `ss` and the forms of sigma.
fn fold_into(text: &str, into: &mut String) {
    if text.is_ascii() {
        into.extend(text.bytes().map(|byte| char::from(byte.to_ascii_lowercase())));
    } else {
        into.extend(text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase));
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Gap,
    Word,
    /// Of a script that is written without spaces.
    Dense,
}

/// Returns the kind and the end of the character (with its marks) at `at`.
fn unit(text: &str, at: usize) -> Option<(Kind, usize)> {
    let bytes = text.as_bytes();
    let first = *bytes.get(at)?;
    if first.is_ascii() && bytes.get(at + 1).is_none_or(u8::is_ascii) {
        let is_word = first.is_ascii_alphanumeric() || first == b'_';
        return Some((if is_word { Kind::Word } else { Kind::Gap }, at + 1));
    }
    let (_, grapheme) = characters(&text[at..]).next()?;
    let first = grapheme.chars().next()?;
    let kind = match first {
        _ if !first.is_alphanumeric() && first != '_' => Kind::Gap,
        _ if is_dense(first) => Kind::Dense,
        _ => Kind::Word,
    };
    Some((kind, at + grapheme.len()))
}

/// Whether the character belongs to a script that is searched by pairs: Thai, Lao, Myanmar, Hangul, Khmer, Kana,
/// Bopomofo, Han. The ranges are Unicode blocks.
fn is_dense(c: char) -> bool {
    matches!(u32::from(c),
        0x0E00..=0x0EFF | 0x1000..=0x109F | 0x1100..=0x11FF | 0x1780..=0x17FF | 0x3005..=0x3007
        | 0x3040..=0x31FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xA960..=0xA97F | 0xA9E0..=0xA9FF
        | 0xAA60..=0xAA7F | 0xAC00..=0xD7FF | 0xF900..=0xFAFF | 0x1B000..=0x1B16F | 0x20000..=0x3FFFF)
}

/// Reads on to the next run of one kind and makes its terms; `false` at the end of the text.
fn read_run(text: &str, at: &mut usize, side: Side, pending: &mut Pending) -> bool {
    let Some((kind, mut end)) = unit(text, *at) else { return false };
    let start = *at;
    while let Some((next, next_end)) = unit(text, end)
        && next == kind
    {
        end = next_end;
    }
    *at = end;
    match kind {
        Kind::Gap => {}
        Kind::Dense => push_dense(&text[start..end], side, pending),
        Kind::Word => {
            let symbol = symbol_after(&text[start..end], &text[end..]);
            *at += symbol.len();
            if !is_ending(&text[..start], &text[start..end]) {
                push_word(&text[start..end], symbol, pending);
            }
        }
    }
    true
}

/// Returns the `++` or `#` that belongs to the word, as in `C++` and `C#`.
fn symbol_after<'a>(word: &str, rest: &'a str) -> &'a str {
    if !word.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        return "";
    }
    let length = if rest.starts_with("++") { 2 } else { usize::from(rest.starts_with('#')) };
    let (symbol, after) = rest.split_at(length);
    let goes_on = after.starts_with(['+', '#']) || unit(after, 0).is_some_and(|(kind, _)| kind != Kind::Gap);
    if goes_on { "" } else { symbol }
}

/// Whether the word is only the ending of the word before it.
fn is_ending(before: &str, word: &str) -> bool {
    let Some(before) = before.strip_suffix(['\'', '’']) else { return false };
    before.ends_with(char::is_alphanumeric)
        && ENDINGS_AFTER_APOSTROPHE.iter().any(|ending| word.eq_ignore_ascii_case(ending))
}

fn push_dense(run: &str, side: Side, pending: &mut Pending) {
    let mut last: Option<(usize, &str)> = None;
    let mut pairs = 0;
    for (start, grapheme) in characters(run) {
        if side == Side::Document {
            pending.push(grapheme);
        }
        if let Some((last_start, _)) = last {
            pending.push(&run[last_start..start + grapheme.len()]);
            pairs += 1;
        }
        last = Some((start, grapheme));
    }
    if side == Side::Question && pairs == 0 {
        pending.push(run);
    }
}

fn push_word(word: &str, symbol: &str, pending: &mut Pending) {
    let word = word.trim_matches('_');
    if word.is_empty() {
        return;
    }
    if word.len() > MAX_WORD_BYTES {
        pending.push_folded(&word[..word.floor_char_boundary(MAX_WORD_BYTES)], "");
        return;
    }
    if !symbol.is_empty() {
        pending.push_folded(word, symbol);
        if word.len() == 1 {
            return;
        }
    }
    pending.push_folded(word, "");
    if is_ragged(word) {
        return;
    }
    for part in parts(word) {
        let says_something = part.len() > 1 || part.bytes().all(|byte| byte.is_ascii_digit());
        if part.len() < word.len() && says_something && part != "_" {
            pending.push_folded(part, "");
        }
    }
}

/// Whether a word is too long for parts as small as its own.
fn is_ragged(word: &str) -> bool {
    word.len() > MAX_RAGGED_BYTES
        && (parts(word).filter(|part| *part != "_").count() as f64) * MIN_MEAN_PART_BYTES > word.len() as f64
}

/// Returns the parts of a word of code in their order; together they are the word.
fn parts(word: &str) -> impl Iterator<Item = &str> {
    let mut rest = word;
    std::iter::from_fn(move || {
        let (part, after) = rest.split_at(part_length(rest));
        rest = after;
        (!part.is_empty()).then_some(part)
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Upper,
    Lower,
    Digit,
    Underscore,
}

fn class(c: char) -> Class {
    match c {
        '_' => Class::Underscore,
        _ if c.is_numeric() => Class::Digit,
        _ if c.is_uppercase() => Class::Upper,
        _ => Class::Lower,
    }
}

/// Returns how long the first part of a word of code is, in bytes: `camel|Case`, `HTTP|Server`, `snake|_|case`,
/// `utf|8`. The plural of capitals, `GPUs`, is one part.
fn part_length(word: &str) -> usize {
    let mut chars = word.char_indices().map(|(at, c)| (at, class(c)));
    let Some((_, mut last)) = chars.next() else { return 0 };
    let mut last_start = 0;
    for (at, now) in chars {
        let splits = match (last, now) {
            (Class::Upper, Class::Lower) if last_start > 0 && &word[at..] != "s" => return last_start,
            (Class::Upper, Class::Lower) => false,
            _ => last != now,
        };
        if splits {
            return at;
        }
        (last, last_start) = (now, at);
    }
    word.len()
}

#[cfg(test)]
mod tests;
