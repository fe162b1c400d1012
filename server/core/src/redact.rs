//! Takes secrets out of text that leaves the server for other eyes. Pure.
//!
//! Two kinds of evidence count: a form that only a secret has (a provider's prefix, a private key's frame, a
//! credential in a header or an address), and a name that says so beside a value that looks random. What is taken
//! out becomes [`MARK`]; doing it again changes nothing. Ids are not text and are never looked at.

mod event;
mod form;
mod named;

use std::borrow::Cow;
use std::ops::Range;

pub use event::{agent, event};

/// What stands in place of a secret.
pub const MARK: &str = "[redacted]";

/// Returns the text without the secrets that it holds.
pub fn text(text: &str) -> Cow<'_, str> {
    let mut found: Vec<Range<usize>> = Vec::new();
    form::private_keys(text, &mut found);
    form::tokens(text, &mut found);
    form::addresses(text, &mut found);
    form::credentials(text, &mut found);
    named::assignments(text, &mut found);
    if found.is_empty() {
        return Cow::Borrowed(text);
    }
    found.sort_unstable_by_key(|range| (range.start, range.end));
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for range in found {
        if range.start >= at {
            out.push_str(&text[at..range.start]);
            out.push_str(MARK);
        }
        // One that overlaps the one before it only makes that one longer.
        at = at.max(range.end);
    }
    out.push_str(&text[at..]);
    Cow::Owned(out)
}

/// Returns how many bytes from a place on are of a set.
fn run(text: &str, from: usize, takes: impl Fn(u8) -> bool) -> usize {
    text.as_bytes()[from..].iter().take_while(|byte| takes(**byte)).count()
}

/// Characters that tokens are made of: base64 for addresses.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

/// Whether a word may begin here: at the beginning, behind anything else than a letter, digit, `-` or `_`, and
/// behind an escaped line break or tab of JSON in text.
fn begins_word(text: &str, at: usize) -> bool {
    let before = &text.as_bytes()[..at];
    match before {
        [] => true,
        [.., b'\\', b'n' | b'r' | b't'] => true,
        [.., last] => !is_token(*last),
    }
}

#[cfg(test)]
mod tests;
