//! Logs for tests of history.

use serde_json::Map;
use tns_protocol::{AgentId, MessageId, Seq, Timestamp, ToolCallId};

use super::conversation::Conversation;
use super::past::Past;
use crate::agent::Agent;
use crate::event::{
    AssistantMessage, DurableEvent, MessageStatus, QueueEdited, TeamUpdated, ToolFinished, UserMessage,
};
use crate::message::{ModelRole, Part, ToolCall, ToolResult};
use crate::store::{Place, StoredEvent};

pub(super) fn agent(id: &str) -> Agent {
    Agent {
        id: AgentId::parse(id).unwrap(),
        name: id.to_owned(),
        role: "assistant".into(),
        goal: None,
        domain: None,
        roles: Vec::new(),
        engine: Default::default(),
        provider: "p".into(),
        model: "m".into(),
        system: "s".into(),
    }
}

pub(super) fn id(id: &str) -> MessageId {
    MessageId::parse(id).unwrap()
}

pub(super) fn text(text: &str) -> Part {
    Part::Text(text.into())
}

pub(super) fn message(turn: &str, agent: &str) -> UserMessage {
    UserMessage {
        id: id(turn),
        agent: AgentId::parse(agent).unwrap(),
        parts: vec![text(&format!("ask {turn}"))],
        client_message_id: None,
        context: None,
        queued: false,
        during: None,
    }
}

pub(super) fn user(turn: &str, agent: &str) -> DurableEvent {
    DurableEvent::UserMessage(message(turn, agent))
}

pub(super) fn queued(turn: &str, agent: &str, during: Option<&str>) -> DurableEvent {
    DurableEvent::UserMessage(UserMessage {
        queued: true,
        during: during.map(|reply| id(&format!("reply-{reply}"))),
        ..message(turn, agent)
    })
}

pub(super) fn started(turn: &str) -> DurableEvent {
    DurableEvent::QueueStarted(id(turn))
}

pub(super) fn edited(turn: &str, words: &str) -> DurableEvent {
    DurableEvent::QueueEdited(QueueEdited { id: id(turn), parts: vec![text(words)] })
}

pub(super) fn call(id: &str) -> Part {
    Part::ToolCall(ToolCall {
        id: ToolCallId::parse(id).unwrap(),
        provider_id: None,
        name: "echo".into(),
        args: Map::new(),
        problem: None,
    })
}

/// A step of the reply to a turn's message.
pub(super) fn step(turn: &str, agent: &str, parts: Vec<Part>, status: MessageStatus) -> DurableEvent {
    DurableEvent::AssistantMessage(AssistantMessage {
        id: id("step"),
        agent: AgentId::parse(agent).unwrap(),
        parts,
        model: "m".into(),
        native: None,
        notes: Vec::new(),
        status,
        response: Some(id(&format!("reply-{turn}"))),
        usage: None,
        provider: None,
        counted_on: None,
    })
}

pub(super) fn result(id: &str) -> ToolResult {
    ToolResult {
        call: ToolCallId::parse(id).unwrap(),
        provider_id: None,
        name: "echo".into(),
        output: "out".into(),
        is_error: false,
        untrusted_source: None,
    }
}

pub(super) fn finished(id: &str) -> DurableEvent {
    DurableEvent::ToolFinished(ToolFinished {
        agent: AgentId::parse("a").unwrap(),
        result: result(id),
        ran: true,
        duration_ms: 1,
        truncated: false,
    })
}

pub(super) fn team(agents: &[Agent]) -> DurableEvent {
    DurableEvent::TeamUpdated(TeamUpdated { agents: agents.to_vec(), tools: Vec::new() })
}

pub(super) fn row(seq: Seq, turn: Option<&str>, event: DurableEvent) -> StoredEvent {
    let place = Place { seq, gseq: seq, at: Timestamp::from_micros(0) };
    StoredEvent { place, turn: turn.map(id), event }
}

/// Gives events their places; one of the turn `""` is of none.
pub(super) fn rows(events: Vec<(&str, DurableEvent)>) -> Vec<StoredEvent> {
    let numbered = events.into_iter().zip(1..);
    numbered.map(|((turn, event), seq)| row(seq, Some(turn).filter(|turn| !turn.is_empty()), event)).collect()
}

/// What agent `a` sees of rows.
pub(super) fn seen(rows: &[StoredEvent]) -> Vec<(ModelRole, Vec<Part>)> {
    let past = Past::of(rows.to_vec(), None, None);
    shown(&Conversation::of(&past, &agent("a"), &[agent("a"), agent("b")], None))
}

pub(super) fn shown(conversation: &Conversation) -> Vec<(ModelRole, Vec<Part>)> {
    conversation.messages().iter().map(|message| (message.role, message.parts.clone())).collect()
}
