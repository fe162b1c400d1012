//! Secrets taken out of an event: of every text that a person, a model or a tool wrote, and of nothing else.
//! Exhaustive on purpose: whoever adds a field decides here whether it is text.
#![warn(clippy::wildcard_enum_match_arm)]

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use super::{MARK, named, text};
use crate::agent::Agent;
use crate::approval::{Coverage, Grant};
use crate::event::{AssistantMessage, DurableEvent, MessageContext, UserMessage};
use crate::message::{Note, Part, ToolCall, ToolResult};
use crate::tool::Args;

/// Takes the secrets out of an event. A provider's own blocks go whole: they are signed, so that they can't be
/// changed, and repeat what the text says.
pub fn event(event: &mut DurableEvent) {
    match event {
        DurableEvent::UserMessage(message) => user_message(message),
        DurableEvent::AssistantMessage(message) => assistant_message(message),
        DurableEvent::ApprovalRequested(request) => {
            lines(&mut request.reasons);
            words(&mut request.summary);
            maybe(&mut request.diff);
            object(&mut request.args);
            request.grant.iter_mut().for_each(grant);
        }
        DurableEvent::ApprovalResolved(resolved) => {
            resolved.grant.iter_mut().for_each(grant);
        }
        DurableEvent::RuleChanged(changed) => grant(&mut changed.grant),
        DurableEvent::Audited(record) => {
            lines(&mut record.reasons);
            words(&mut record.summary);
        }
        DurableEvent::ToolStarted(started) => object(&mut started.args),
        DurableEvent::ToolFinished(finished) => tool_result(&mut finished.result),
        DurableEvent::TeamUpdated(team) => team.agents.iter_mut().for_each(agent),
        DurableEvent::QueueEdited(edited) => edited.parts.iter_mut().for_each(part),
        DurableEvent::Compacted(compacted) => words(&mut compacted.summary),
        DurableEvent::Renamed(renamed) => maybe(&mut renamed.title),
        DurableEvent::Closing(reason) => words(reason),
        DurableEvent::Interrupted(interrupted) => words(&mut interrupted.reason),
        DurableEvent::TurnFailed(failed) => words(&mut failed.message),
        DurableEvent::AutonomyChanged(_)
        | DurableEvent::KbAdded(_)
        | DurableEvent::KbRemoved(_)
        | DurableEvent::QueueStarted(_)
        | DurableEvent::QueueRemoved(_)
        | DurableEvent::Done(_) => {}
    }
}

/// Takes the secrets out of what an agent was told to be.
pub fn agent(agent: &mut Agent) {
    maybe(&mut agent.goal);
    maybe(&mut agent.domain);
    for role in &mut agent.roles {
        words(&mut role.goal);
        words(&mut role.domain);
    }
    if let Cow::Owned(clean) = text(&agent.system) {
        agent.system = Arc::from(clean);
    }
}

fn user_message(message: &mut UserMessage) {
    message.parts.iter_mut().for_each(part);
    if let Some(MessageContext { description, metadata, .. }) = &mut message.context {
        maybe(description);
        if let Some(metadata) = metadata {
            object(metadata);
        }
    }
}

fn assistant_message(message: &mut AssistantMessage) {
    message.parts.iter_mut().for_each(part);
    message.notes.iter_mut().for_each(note);
    message.native = None;
}

fn part(part: &mut Part) {
    match part {
        Part::Text(said) => words(said),
        // A picture can't be read here, and is base64, in which anything may seem to stand.
        Part::Image(_) => {}
        Part::ToolCall(ToolCall { args, problem, .. }) => {
            object(args);
            maybe(problem);
        }
        Part::ToolResult(result) => tool_result(result),
        Part::Note(shown) => note(shown),
    }
}

fn tool_result(result: &mut ToolResult) {
    words(&mut result.output);
    maybe(&mut result.untrusted_source);
}

fn note(note: &mut Note) {
    match note {
        Note::Knowledge(passages) => passages.iter_mut().for_each(|passage| {
            words(&mut passage.text);
            words(&mut passage.source);
        }),
        Note::Text(said) => words(said),
    }
}

fn grant(grant: &mut Grant) {
    let Grant { covers, summary, .. } = grant;
    maybe(summary);
    match covers {
        Coverage::Key(key) => words(key),
        // Digests.
        Coverage::Tool | Coverage::Exact(_) | Coverage::Pinned(_) => {}
    }
}

fn words(said: &mut String) {
    if let Cow::Owned(clean) = text(said) {
        *said = clean;
    }
}

fn maybe(said: &mut Option<String>) {
    if let Some(said) = said {
        words(said);
    }
}

fn lines(said: &mut [String]) {
    said.iter_mut().for_each(words);
}

fn object(members: &mut Args) {
    for (name, value) in members {
        match value.as_str().is_some_and(|said| named::is_secret(name, said)) {
            true => *value = MARK.into(),
            false => inside(value),
        }
    }
}

fn inside(value: &mut Value) {
    match value {
        Value::String(said) => words(said),
        Value::Array(items) => items.iter_mut().for_each(inside),
        Value::Object(members) => object(members),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
