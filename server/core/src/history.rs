//! What a model sees of the log. Pure: stored events in, alternating turns out.
//!
//! Rows of one turn stay together, in the order of the turns' user messages: a message that came
//! during a reply stands after it, and earlier history keeps the order in which it was sent.

use std::borrow::Cow;
use std::collections::HashMap;

use tns_protocol::{MessageId, Seq, ToolCallId};

use crate::agent::Agent;
use crate::event::{AssistantMessage, DurableEvent, EventKind, MessageOrigin, MessageStatus, UserMessage};
use crate::message::{ModelMessage, ModelRole, Native, Note, Part, ToolCall, ToolResult};
use crate::store::{EventQuery, SessionKey, Store, StoreError, StoredEvent};

/// The kinds of events that a conversation is made of.
pub(crate) const CONVERSATION: &[EventKind] = &[
    EventKind::UserMessage,
    EventKind::AssistantMessage,
    EventKind::ToolFinished,
    EventKind::QueueEdited,
    EventKind::QueueRemoved,
];

/// What the model reads in place of a result that never came.
const NO_RESULT: &str = "The call was interrupted before it gave a result.";
/// What the model reads after a reply that was cut.
const CUT: &str = "The reply above was cut before its end.";

/// Reads the rows of these kinds of a session, all pages, up to the place `before`.
///
/// # Errors
/// The store's.
pub(crate) async fn load(
    store: &dyn Store,
    session: SessionKey,
    kinds: &'static [EventKind],
    before: Option<Seq>,
) -> Result<Vec<StoredEvent>, StoreError> {
    let mut rows = Vec::new();
    pages(store, session, kinds, before, |row| rows.push(row)).await?;
    Ok(rows)
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
    pages(store, session, kinds, None, visit).await
}

async fn pages(
    store: &dyn Store,
    session: SessionKey,
    kinds: &'static [EventKind],
    before: Option<Seq>,
    mut visit: impl FnMut(StoredEvent) + Send,
) -> Result<(), StoreError> {
    let mut after = 0;
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

/// Alternating turns that begin with the user's; none is empty, and no text of one is blank.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Conversation {
    messages: Vec<ModelMessage>,
}

impl Conversation {
    /// Builds what `reader` sees of the rows. Turns in `left_out` (waiting, or being begun) are not seen.
    pub(crate) fn of(rows: &[StoredEvent], reader: &Agent, team: &[Agent], left_out: &[MessageId]) -> Self {
        let mut order: Vec<Cow<'_, UserMessage>> = Vec::new();
        let mut replies: HashMap<&MessageId, Vec<&DurableEvent>> = HashMap::new();
        for row in rows {
            match (&row.event, &row.turn) {
                (DurableEvent::UserMessage(message), _) if !left_out.contains(&message.id) => {
                    order.push(Cow::Borrowed(message))
                }
                (DurableEvent::QueueEdited(edited), _) => {
                    if let Some(message) = order.iter_mut().find(|message| message.id == edited.id) {
                        message.to_mut().parts.clone_from(&edited.parts);
                    }
                }
                (DurableEvent::QueueRemoved(id), _) => order.retain(|message| message.id != *id),
                (DurableEvent::AssistantMessage(_) | DurableEvent::ToolFinished(_), Some(turn)) => {
                    replies.entry(turn).or_default().push(&row.event);
                }
                _ => {}
            }
        }
        let mut conversation = Self::default();
        for message in order {
            let reply = replies.remove(&message.id).unwrap_or_default();
            // Whoever wrote the reply: the agent that was asked may have been removed meanwhile.
            let author = reply.iter().find_map(|event| match event {
                DurableEvent::AssistantMessage(step) => Some(&step.agent),
                _ => None,
            });
            let own = *author.unwrap_or(&message.agent) == reader.id;
            let notes = reply.iter().find_map(|event| match event {
                DurableEvent::AssistantMessage(step) if own => Some(step.notes.clone()),
                _ => None,
            });
            conversation.user(user_parts(&message, notes.unwrap_or_default()));
            if own {
                conversation.own_reply(&reply);
            } else {
                conversation.others_reply(&reply, team);
            }
        }
        conversation
    }

    /// Adds what the user, a note or a tool says.
    pub(crate) fn user(&mut self, parts: Vec<Part>) {
        self.push(ModelRole::User, parts, None);
    }

    /// Adds a step of the model.
    pub(crate) fn assistant(&mut self, parts: Vec<Part>, native: Option<Native>) {
        self.push(ModelRole::Assistant, parts, native);
    }

    /// Returns the turns as a request carries them.
    pub(crate) fn messages(&self) -> Vec<ModelMessage> {
        self.messages.clone()
    }

    fn push(&mut self, role: ModelRole, mut parts: Vec<Part>, native: Option<Native>) {
        // Providers refuse text without a visible character, and a turn of nothing else would part two turns
        // of the user's.
        parts.retain(|part| !matches!(part, Part::Text(text) if text.trim().is_empty()));
        if parts.is_empty() {
            return;
        }
        match self.messages.last_mut() {
            Some(last) if last.role == role => {
                last.parts.extend(parts);
                last.native.extend(native);
            }
            _ => self.messages.push(ModelMessage { role, parts, native: native.into_iter().collect() }),
        }
    }

    fn own_reply(&mut self, reply: &[&DurableEvent]) {
        let mut open: Vec<&ToolCall> = Vec::new();
        for event in reply {
            match event {
                DurableEvent::AssistantMessage(step) => {
                    self.close(&mut open);
                    self.assistant(step.parts.clone(), step.native.clone());
                    open.extend(calls(step));
                    // A step that was cut before its first word was never seen.
                    if step.status == MessageStatus::Interrupted && !step.parts.is_empty() {
                        self.close(&mut open);
                        self.user(vec![Part::Note(Note::Text(CUT.to_owned()))]);
                    }
                }
                DurableEvent::ToolFinished(finished) => {
                    // A result without its call would be refused by a provider.
                    let before = open.len();
                    open.retain(|call| call.id != finished.result.call);
                    if open.len() < before {
                        self.user(vec![Part::ToolResult(finished.result.clone())]);
                    }
                }
                _ => {}
            }
        }
        self.close(&mut open);
    }

    /// Answers every open call, so that no provider refuses the history.
    fn close(&mut self, open: &mut Vec<&ToolCall>) {
        for call in open.drain(..) {
            self.user(vec![Part::ToolResult(unanswered(call))]);
        }
    }

    fn others_reply(&mut self, reply: &[&DurableEvent], team: &[Agent]) {
        for event in reply {
            let DurableEvent::AssistantMessage(step) = event else { continue };
            let text = text_of(&step.parts);
            if !text.is_empty() {
                let name =
                    team.iter().find(|agent| agent.id == step.agent).map_or("another agent", |a| &a.name);
                self.user(vec![Part::Note(Note::Text(format!("{name} answered: {text}")))]);
            }
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
