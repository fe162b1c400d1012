//! How messages are found, the same way in every store. Pure: a store only keeps which message has which
//! term, gives the newest that have all of them, and this decides which of them fit and how well.
//!
//! * A text is looked at in compatibility form (NFKC: `ＧＰＵ` is `GPU`) without case and accents.
//! * Words are runs of letters and digits. Scripts written without spaces give overlapping pairs of characters
//!   and the last character, so that any run of characters is found, a single one by the pairs it begins.
//! * Nothing in a question is syntax. All of its words must occur; words that were joined by something else
//!   than a space, `foo_bar`, must follow each other; the last word may go on.
//! * The newest [`MAX_CANDIDATES`] that have all words are ranked: BM25 over them, weakened with age. Older ones
//!   of a word that is everywhere are not found by it alone; a rarer word beside it finds them. No message has
//!   a word that another lacks, so how rare a word is would say nothing and is left out.
//!
//! What is searched of a log are the users' and the models' words. Outputs of tools are many times longer,
//! rarely what is remembered, and stand beside the messages that are found.

mod rank;
mod words;

use std::borrow::Cow;

use crate::event::{DurableEvent, EventKind};
use crate::message::Part;
use crate::store::SearchSource;

pub use rank::{Candidate, Match, Ranked, rank};
pub use words::{Question, Term, index_terms};

/// Most messages that are ranked, the newest; all others that have the words are not looked at.
pub const MAX_CANDIDATES: usize = 600;
/// Most titles that are ranked beside them, those of the newest sessions.
pub const MAX_TITLES: usize = 200;
/// Most text that a search reads, in bytes: with long messages fewer of them are ranked. The first is always read.
pub const MAX_CANDIDATE_BYTES: usize = 2 << 20;
/// How much of a message is searched, in bytes from its beginning.
pub const MAX_TEXT_BYTES: usize = 128 << 10;

/// The kinds of events that [`text_of`] may give a text of.
pub const KINDS: [EventKind; 3] =
    [EventKind::UserMessage, EventKind::QueueEdited, EventKind::AssistantMessage];

/// Returns what is searched of an event, if anything is. An edited message is found by both its texts, each where
/// the log has it.
pub fn text_of(event: &DurableEvent) -> Option<(SearchSource, Cow<'_, str>)> {
    let (source, parts) = match event {
        DurableEvent::UserMessage(message) => (SearchSource::User, &message.parts),
        DurableEvent::QueueEdited(edited) => (SearchSource::User, &edited.parts),
        DurableEvent::AssistantMessage(message) => (SearchSource::Assistant, &message.parts),
        _ => return None,
    };
    let mut texts = parts.iter().filter_map(|part| match part {
        Part::Text(text) if !text.trim().is_empty() => Some(text.as_str()),
        _ => None,
    });
    let first = texts.next()?;
    let mut whole = Cow::Borrowed(first);
    for text in texts {
        let whole = whole.to_mut();
        whole.push('\n');
        whole.push_str(text);
    }
    Some((source, cut(whole)))
}

/// Returns the beginning of a text that is searched.
fn cut(text: Cow<'_, str>) -> Cow<'_, str> {
    if text.len() <= MAX_TEXT_BYTES {
        return text;
    }
    let end = text.floor_char_boundary(MAX_TEXT_BYTES);
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(&text[..end]),
        Cow::Owned(mut text) => {
            text.truncate(end);
            Cow::Owned(text)
        }
    }
}

#[cfg(test)]
mod tests;
