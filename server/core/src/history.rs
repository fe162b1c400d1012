//! What a model sees of the log: `past` reads the rows that one agent may see, `order` puts them in the order in
//! which they are read, `conversation` makes alternating turns of them, `compaction` says what a summary may stand
//! for. All but the reading is pure.

mod compaction;
mod conversation;
#[cfg(test)]
mod fixtures;
mod order;
mod past;
mod team;

use tns_protocol::{Seq, ToolCallId};

use crate::event::{AssistantMessage, EventKind, MessageOrigin, UserMessage};
use crate::message::{Note, Part, ToolCall, ToolResult};
use crate::store::{EventQuery, SessionKey, Store, StoreError, StoredEvent, Take};

pub(crate) use compaction::{Keep, Plan, SYSTEM, summary};
pub(crate) use conversation::{Asked, Conversation};
pub(crate) use past::Past;

/// What the model reads in place of a result that never came.
const NO_RESULT: &str = "The call was interrupted before it gave a result.";

/// Reads the rows of these kinds of a session, all pages, between two places.
///
/// # Errors
/// The store's.
pub(crate) async fn load(
    store: &dyn Store,
    session: SessionKey,
    kinds: &'static [EventKind],
    range: Range,
) -> Result<Vec<StoredEvent>, StoreError> {
    let mut rows = Vec::new();
    pages(store, session, kinds, range, |row| rows.push(row)).await?;
    Ok(rows)
}

/// A part of a log, without its bounds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Range {
    /// The place before the first.
    pub(crate) after: Seq,
    /// The place behind the last; `None`: to the end.
    pub(crate) before: Option<Seq>,
}

/// Returns what `pick` makes of the last row of these kinds that it takes, read from the end backwards.
///
/// # Errors
/// The store's.
pub(crate) async fn last<T>(
    store: &dyn Store,
    session: SessionKey,
    kinds: &'static [EventKind],
    before: Option<Seq>,
    mut pick: impl FnMut(StoredEvent) -> Option<T> + Send,
) -> Result<Option<T>, StoreError> {
    let mut query = EventQuery { before, kinds: Some(kinds), take: Take::Last, ..EventQuery::default() };
    loop {
        let page = store.events(session, query.clone()).await?;
        query.before = page.events.first().map(|event| event.place.seq);
        if let Some(found) = page.events.into_iter().rev().find_map(&mut pick) {
            return Ok(Some(found));
        }
        if !page.more {
            return Ok(None);
        }
    }
}

/// Returns what `pick` makes of the first row of these kinds behind a place that it takes.
///
/// # Errors
/// The store's.
pub(crate) async fn first<T>(
    store: &dyn Store,
    session: SessionKey,
    kinds: &'static [EventKind],
    after: Seq,
    mut pick: impl FnMut(StoredEvent) -> Option<T> + Send,
) -> Result<Option<T>, StoreError> {
    let mut query = EventQuery { after, kinds: Some(kinds), ..EventQuery::default() };
    loop {
        let page = store.events(session, query.clone()).await?;
        query.after = page.events.last().map_or(query.after, |event| event.place.seq);
        if let Some(found) = page.events.into_iter().find_map(&mut pick) {
            return Ok(Some(found));
        }
        if !page.more {
            return Ok(None);
        }
    }
}

/// Gives every row of these kinds of a session to `visit`, a page at a time in memory.
///
/// # Errors
/// The store's.
pub(crate) async fn visit(
    store: &dyn Store,
    session: SessionKey,
    kinds: &'static [EventKind],
    visit: impl FnMut(StoredEvent) + Send,
) -> Result<(), StoreError> {
    pages(store, session, kinds, Range::default(), visit).await
}

async fn pages(
    store: &dyn Store,
    session: SessionKey,
    kinds: &'static [EventKind],
    range: Range,
    mut visit: impl FnMut(StoredEvent) + Send,
) -> Result<(), StoreError> {
    let Range { mut after, before } = range;
    loop {
        let query = EventQuery { after, before, kinds: Some(kinds), ..EventQuery::default() };
        let page = store.events(session, query).await?;
        after = page.events.last().map_or(after, |event| event.place.seq);
        page.events.into_iter().for_each(&mut visit);
        if !page.more {
            return Ok(());
        }
    }
}

/// Returns the parts of a user's message as the model reads them; notes come first.
pub(crate) fn user_parts(message: &UserMessage, notes: Vec<Note>) -> Vec<Part> {
    let mut parts: Vec<Part> = notes.into_iter().map(Part::Note).collect();
    match message.context.as_ref().map(|context| (context.origin, &context.description)) {
        None | Some((MessageOrigin::User, _)) => parts.extend(message.parts.iter().cloned()),
        Some((origin, description)) => {
            let who = match origin {
                MessageOrigin::System => "the system around this session",
                MessageOrigin::User | MessageOrigin::Event => "an event",
            };
            let about = description.as_ref().map(|text| format!(" ({text})")).unwrap_or_default();
            let text = text_of(&message.parts);
            let note = format!("This comes from {who}{about}, not from the user: {text}");
            parts.push(Part::Note(Note::Text(note)));
            parts.extend(message.parts.iter().filter(|part| matches!(part, Part::Image(_))).cloned());
        }
    }
    parts
}

/// Returns the result that stands in for one that never came.
pub(crate) fn unanswered(call: &ToolCall) -> ToolResult {
    ToolResult {
        call: call.id.clone(),
        provider_id: call.provider_id.clone(),
        name: call.name.clone(),
        output: NO_RESULT.to_owned(),
        is_error: true,
        untrusted_source: None,
    }
}

/// Returns the calls of a step that have no result among `answered`.
pub(crate) fn open_calls<'a>(
    steps: impl Iterator<Item = &'a AssistantMessage>,
    answered: &[ToolCallId],
) -> Vec<&'a ToolCall> {
    steps.flat_map(calls).filter(|call| !answered.contains(&call.id)).collect()
}

fn calls(step: &AssistantMessage) -> impl Iterator<Item = &ToolCall> {
    step.parts.iter().filter_map(|part| match part {
        Part::ToolCall(call) => Some(call),
        Part::Text(_) | Part::Image(_) | Part::ToolResult(_) | Part::Note(_) => None,
    })
}

/// Returns the words of a message.
pub fn text_of(parts: &[Part]) -> String {
    let words = parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.as_str()),
        Part::Image(_) | Part::ToolCall(_) | Part::ToolResult(_) | Part::Note(_) => None,
    });
    words.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests;
