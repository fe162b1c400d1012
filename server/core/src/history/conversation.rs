//! Rows in turn order become the alternating turns that a model request carries. Pure.

use std::collections::{HashMap, HashSet};

use tns_protocol::MessageId;

use super::past::Past;
use super::team::Told;
use super::{calls, text_of, unanswered, user_parts};
use crate::agent::Agent;
use crate::event::{AssistantMessage, DurableEvent, MessageStatus, UserMessage};
use crate::message::{ModelMessage, ModelRole, Native, Note, Part, ToolCall};
use crate::store::StoredEvent;

/// What the model reads after a reply that was cut.
pub(super) const CUT: &str = "The reply above was cut before its end.";
/// What the model reads before a summary of what it is not shown any more.
pub(super) const SUMMARY: &str = "The earlier part of this conversation is summarised here; go on from it.";

/// Alternating turns that begin with the user's; none is empty, and no text of one is blank.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Conversation {
    messages: Vec<ModelMessage>,
}

/// The message that is being answered, with what only the model is shown before it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) message: &'a UserMessage,
    pub(crate) notes: &'a [Note],
}

/// What became of messages while they waited.
#[derive(Default)]
pub(super) struct Queue<'a> {
    started: HashSet<&'a MessageId>,
    removed: HashSet<&'a MessageId>,
    edited: HashMap<&'a MessageId, &'a [Part]>,
}

impl<'a> Queue<'a> {
    pub(super) fn of(rows: &'a [StoredEvent]) -> Self {
        let mut queue = Self::default();
        for row in rows {
            match &row.event {
                DurableEvent::QueueStarted(id) => drop(queue.started.insert(id)),
                DurableEvent::QueueRemoved(id) => drop(queue.removed.insert(id)),
                DurableEvent::QueueEdited(edited) => {
                    queue.edited.insert(&edited.id, &edited.parts);
                }
                _ => {}
            }
        }
        queue
    }

    /// Whether a model sees the message: it waits no more, and was not taken out.
    pub(super) fn shows(&self, message: &UserMessage) -> bool {
        let waits = message.queued && !self.started.contains(&message.id);
        !waits && !self.removed.contains(&message.id)
    }

    /// Returns the message as it holds now, if a model sees it.
    fn shown(&self, message: &UserMessage) -> Option<UserMessage> {
        if !self.shows(message) {
            return None;
        }
        let parts =
            self.edited.get(&message.id).map_or_else(|| message.parts.clone(), |parts| parts.to_vec());
        Some(UserMessage { parts, ..message.clone() })
    }
}

impl Conversation {
    /// Builds what `reader` sees of the past, and then the message that is being answered, if one is. `team` names
    /// the others.
    pub(crate) fn of(past: &Past, reader: &Agent, team: &[Agent], asked: Option<Asked<'_>>) -> Self {
        let mut conversation = Self::default();
        if let Some(summary) = &past.summary {
            conversation.user(vec![Part::Note(Note::Text(format!("{SUMMARY}\n\n{summary}")))]);
        }
        let queue = Queue::of(&past.rows);
        let mut told = Told::new(&reader.id, past.team.as_deref());
        // Whoever is renamed or removed later was called so when it was read.
        let first_roster = past.rows.iter().find_map(|row| match &row.event {
            DurableEvent::TeamUpdated(roster) => Some(&roster.agents[..]),
            _ => None,
        });
        let mut answered = false;
        for turn in past.rows.chunk_by(|one, next| one.turn.is_some() && one.turn == next.turn) {
            if let DurableEvent::TeamUpdated(roster) = &turn[0].event {
                let changes = told.changes(&roster.agents);
                conversation.user(changes.into_iter().map(|text| Part::Note(Note::Text(text))).collect());
                continue;
            }
            let is_asked = asked.is_some_and(|asked| turn[0].turn.as_ref() == Some(&asked.message.id));
            if is_asked && !turn.iter().any(|row| matches!(row.event, DurableEvent::AssistantMessage(_))) {
                continue;
            }
            answered |= is_asked;
            let team = told.roster().or(first_roster).unwrap_or(team);
            conversation.turn(turn, &queue, reader, team);
        }
        if let Some(Asked { message, notes }) = asked.filter(|_| !answered) {
            conversation.user(user_parts(message, notes.to_vec()));
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
    pub(crate) fn messages(&self) -> &[ModelMessage] {
        &self.messages
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

    fn turn(&mut self, rows: &[StoredEvent], queue: &Queue<'_>, reader: &Agent, team: &[Agent]) {
        let message = rows.iter().find_map(|row| match &row.event {
            DurableEvent::UserMessage(message) => Some(message),
            _ => None,
        });
        let steps = || rows.iter().filter_map(step);
        // Whoever wrote the reply: the agent that was asked may have been removed meanwhile.
        let author = steps().next().map(|step| &step.agent).or(message.map(|message| &message.agent));
        let own = author == Some(&reader.id);
        let shown = message.map(|message| queue.shown(message));
        match shown {
            Some(Some(message)) => {
                let notes = steps().find(|_| own).map(|step| step.notes.clone()).unwrap_or_default();
                self.user(user_parts(&message, notes));
            }
            // It waits, or was taken out.
            Some(None) => return,
            // A damaged log: what was written is shown all the same.
            None => {}
        }
        if own {
            self.own_reply(rows);
        } else {
            for step in steps() {
                self.others_step(step, team);
            }
        }
    }

    fn own_reply(&mut self, rows: &[StoredEvent]) {
        let mut open: Vec<&ToolCall> = Vec::new();
        for row in rows {
            match &row.event {
                // What a failing step said is nowhere but on the screen.
                DurableEvent::AssistantMessage(step) if step.status != MessageStatus::Failed => {
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

    fn others_step(&mut self, step: &AssistantMessage, team: &[Agent]) {
        let text = text_of(&step.parts);
        if step.status != MessageStatus::Failed && !text.is_empty() {
            let name = team.iter().find(|agent| agent.id == step.agent).map_or("another agent", |a| &a.name);
            self.user(vec![Part::Note(Note::Text(format!("{name} answered: {text}")))]);
        }
    }
}

fn step(row: &StoredEvent) -> Option<&AssistantMessage> {
    match &row.event {
        DurableEvent::AssistantMessage(step) => Some(step),
        _ => None,
    }
}
