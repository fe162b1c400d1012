//! A session's event → a frame. One exhaustive match, so that an event can't be forgotten.
#![warn(clippy::wildcard_enum_match_arm)]

use bytes::Bytes;
use tns_protocol::agent::{AgentInfo, AgentRole, AgentState, AgentStatus, Strategy, TeamUpdate};
use tns_protocol::approval::{AuditEntry, AutonomyChanged, ToolApprovalResolved, ToolApproveRequest};
use tns_protocol::chat::{
    AssistantMessage, ChatContext, ContentPart, Done, Interrupted, Origin, QueueUpdate, Token, UserMessage,
};
use tns_protocol::error::ErrorEvent;
use tns_protocol::knowledge::{DocumentInfo, KbAdded, KbListResult, KbRemoved, KbSearchResult, SearchHit};
use tns_protocol::tool::{McpCall, ToolResult, ToolStart};
use tns_protocol::{ErrorCode, ServerFrame, ServerMessage, SessionId, encode_server};
use tns_server_core::agent::Agent;
use tns_server_core::approval::{ApprovalRequest, AuditRecord};
use tns_server_core::event::{
    self, Answer, DurableEvent, Event, LiveEvent, MessageOrigin, MessageStatus, Published,
};
use tns_server_core::message::Part;
use tns_server_core::store::{self, StoredEvent};
use tns_server_core::text_of;

/// For whom an event is translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Face {
    /// A connection that knows only the event types of protocol v1.
    V1,
    /// A reader of the whole log.
    Log,
}

/// Returns the event's frame for a v1 connection, encoded once for all of them. `None`: it has none.
pub(crate) fn frame(published: &Published) -> Option<Bytes> {
    if let Some(frame) = published.encoded.get() {
        return Some(frame.clone());
    }
    let text = encode(published, &published.event, Face::V1)?;
    Some(published.encoded.get_or_init(|| Bytes::from(text)).clone())
}

/// Encodes `event` with the envelope of `published`.
pub(crate) fn encode(published: &Published, event: &Event, face: Face) -> Option<String> {
    let message = message(event, face)?;
    Some(encode_server(&ServerFrame {
        session_id: Some(published.session.clone()),
        date: Some(published.at),
        seq: published.seq,
        turn_id: published.turn.clone(),
        re: published.re.clone(),
        message,
    }))
}

/// Encodes a stored event for a reader of the log. `None`: no face shows it.
pub(crate) fn stored(session: &SessionId, row: &StoredEvent) -> Option<String> {
    let message = durable(&row.event, row.turn.as_ref(), Face::Log)?;
    Some(encode_server(&ServerFrame {
        session_id: Some(session.clone()),
        date: Some(row.place.at),
        seq: Some(row.place.seq),
        turn_id: row.turn.clone(),
        re: None,
        message,
    }))
}

fn message(event: &Event, face: Face) -> Option<ServerMessage> {
    match event {
        Event::Durable(event) => durable(event, None, face),
        Event::Live(event) => Some(live(event)),
        Event::Answer(answer) => self::answer(answer),
    }
}

fn durable(
    event: &DurableEvent,
    turn: Option<&tns_protocol::MessageId>,
    face: Face,
) -> Option<ServerMessage> {
    let extended = |message: ServerMessage| (face == Face::Log).then_some(message);
    match event {
        DurableEvent::UserMessage(message) => extended(user_message(message).into()),
        DurableEvent::AssistantMessage(step) => extended(assistant_message(step).into()),
        DurableEvent::ApprovalRequested(request) => Some(approval_request(request).into()),
        DurableEvent::ApprovalResolved(resolved) => extended(
            ToolApprovalResolved {
                tool_call_id: resolved.call.clone(),
                decision: resolved.decision,
                by: resolved.by.clone(),
            }
            .into(),
        ),
        DurableEvent::Audited(record) => Some(audit_entry(record).into()),
        DurableEvent::ToolStarted(started) => Some(
            ToolStart {
                agent_id: started.agent.clone(),
                tool_call_id: started.call.clone(),
                tool: started.tool.clone(),
                args: started.args.clone(),
                risk: started.class.label(),
            }
            .into(),
        ),
        // A refused call has no result on the wire; the model was told.
        DurableEvent::ToolFinished(finished) if !finished.ran => None,
        DurableEvent::ToolFinished(finished) => Some(tool_result(finished).into()),
        DurableEvent::TeamUpdated(team) => Some(
            TeamUpdate {
                agents: team.agents.iter().map(|agent| agent_info(agent, &team.tools, false)).collect(),
                strategy: Strategy::Single,
            }
            .into(),
        ),
        DurableEvent::AutonomyChanged(level) => Some(AutonomyChanged { level: *level }.into()),
        DurableEvent::KbAdded(id) => Some(KbAdded { document_id: id.clone(), duplicate: false }.into()),
        DurableEvent::KbRemoved(id) => Some(KbRemoved { document_id: id.clone(), found: true }.into()),
        DurableEvent::QueueStarted(id) => extended(
            QueueUpdate { message_id: id.clone(), message: None, removed: false, started: true }.into(),
        ),
        DurableEvent::Done(done) => {
            Some(Done { usage: done.usage, stop_reason: Some(done.stop), cancelled: false }.into())
        }
        DurableEvent::Interrupted(interrupted) => Some(match (face, turn) {
            (Face::Log, Some(turn)) => Interrupted {
                turn_id: turn.clone(),
                reason: interrupted.reason.clone(),
                usage: interrupted.usage,
            }
            .into(),
            (Face::Log, None) | (Face::V1, _) => {
                Done { usage: interrupted.usage, stop_reason: None, cancelled: true }.into()
            }
        }),
        DurableEvent::TurnFailed(failed) => Some(error(failed.code, &failed.message, None)),
    }
}

fn live(event: &LiveEvent) -> ServerMessage {
    match event {
        LiveEvent::Token { agent, text } => Token { agent_id: agent.clone(), content: text.clone() }.into(),
        LiveEvent::AgentState { agent, thinking, detail } => AgentState {
            agent_id: agent.id.clone(),
            status: status(*thinking),
            role: agent.role.clone(),
            provider: Some(agent.provider.clone()),
            model: Some(agent.model.clone()),
            detail: detail.clone(),
        }
        .into(),
        LiveEvent::Failed(failed) => error(failed.code, &failed.message, None),
    }
}

fn answer(answer: &Answer) -> Option<ServerMessage> {
    Some(match answer {
        Answer::Done => return None,
        Answer::Refused(refusal) => error(refusal.code, &refusal.message, Some(refusal.request)),
        Answer::KbAdded { document, duplicate } => {
            KbAdded { document_id: document.clone(), duplicate: *duplicate }.into()
        }
        Answer::KbRemoved { document, found } => {
            KbRemoved { document_id: document.clone(), found: *found }.into()
        }
        Answer::KbHits(hits) => KbSearchResult { results: hits.iter().map(search_hit).collect() }.into(),
        Answer::KbDocuments(documents) => kb_list(documents).into(),
        Answer::CallTool { call, server, tool, args } => McpCall {
            tool_call_id: call.clone(),
            server: server.clone(),
            tool: tool.clone(),
            args: args.clone(),
        }
        .into(),
    })
}

/// Makes an error event.
pub(crate) fn error(code: ErrorCode, message: &str, request: Option<&str>) -> ServerMessage {
    ErrorEvent { message: message.to_owned(), code: Some(code), ref_type: request.map(str::to_owned) }.into()
}

fn status(thinking: bool) -> AgentStatus {
    if thinking { AgentStatus::Thinking } else { AgentStatus::Idle }
}

/// Shows an agent of the roster.
pub(crate) fn agent_info(agent: &Agent, tools: &[String], thinking: bool) -> AgentInfo {
    AgentInfo {
        agent_id: agent.id.clone(),
        name: agent.name.clone(),
        role: agent.role.clone(),
        status: status(thinking),
        provider: agent.provider.clone(),
        model: agent.model.clone(),
        goal: agent.goal.clone(),
        domain: agent.domain.clone(),
        tools: tools.to_vec(),
        roles: agent
            .roles
            .iter()
            .map(|role| AgentRole {
                name: role.name.clone(),
                goal: role.goal.clone(),
                domain: role.domain.clone(),
            })
            .collect(),
    }
}

/// Shows a waiting call.
pub(crate) fn approval_request(request: &ApprovalRequest) -> ToolApproveRequest {
    ToolApproveRequest {
        agent_id: request.agent.clone(),
        tool_call_id: request.call.clone(),
        tool: request.tool.clone(),
        risk: request.class.label(),
        summary: request.summary.clone(),
        risk_class: Some(request.class),
        reasons: request.reasons.clone(),
        args: Some(request.args.clone()),
        diff: request.diff.clone(),
        always_covers: request.grant.as_ref().map(|grant| grant.describe()),
        expires_at: None,
    }
}

/// Shows an audit record.
pub(crate) fn audit_entry(record: &AuditRecord) -> AuditEntry {
    AuditEntry {
        tool_call_id: record.call.clone(),
        agent_id: record.agent.clone(),
        tool: record.tool.clone(),
        risk: record.class.label(),
        risk_class: Some(record.class),
        decision: record.decision,
        timestamp: record.at,
        summary: record.summary.clone(),
        by: Some(record.by.clone()),
    }
}

fn tool_result(finished: &event::ToolFinished) -> ToolResult {
    ToolResult {
        agent_id: finished.agent.clone(),
        tool_call_id: finished.result.call.clone(),
        tool: finished.result.name.clone(),
        duration: finished.duration_ms,
        result: finished.result.output.clone(),
        is_error: finished.result.is_error,
        truncated: finished.truncated,
    }
}

fn user_message(message: &event::UserMessage) -> UserMessage {
    UserMessage {
        message_id: message.id.clone(),
        message: text_of(&message.parts),
        content: message.parts.iter().filter_map(picture).collect(),
        agent_id: Some(message.agent.clone()),
        client_message_id: message.client_message_id.clone(),
        context: message.context.as_ref().map(|context| ChatContext {
            origin: match context.origin {
                MessageOrigin::User => Origin::User,
                MessageOrigin::System => Origin::System,
                MessageOrigin::Event => Origin::Event,
            },
            description: context.description.clone(),
            source_id: context.source_id.clone(),
            metadata: context.metadata.clone(),
        }),
        queued: message.queued,
    }
}

fn picture(part: &Part) -> Option<ContentPart> {
    match part {
        Part::Image(image) => {
            Some(ContentPart::Image { mime: image.mime.clone(), data: image.data.to_string() })
        }
        Part::Text(_) | Part::ToolCall(_) | Part::ToolResult(_) | Part::Note(_) => None,
    }
}

fn assistant_message(step: &event::AssistantMessage) -> AssistantMessage {
    AssistantMessage {
        message_id: step.id.clone(),
        agent_id: step.agent.clone(),
        message: text_of(&step.parts),
        model: step.model.clone(),
        interrupted: step.status == MessageStatus::Interrupted,
    }
}

/// Shows a hit.
pub(crate) fn search_hit(hit: &store::Hit) -> SearchHit {
    SearchHit {
        document_id: hit.document.clone(),
        content: hit.content.clone(),
        score: hit.score,
        metadata: hit.metadata.clone(),
    }
}

/// Shows the documents of a collection.
pub(crate) fn kb_list(documents: &[store::DocumentInfo]) -> KbListResult {
    let info = |document: &store::DocumentInfo| DocumentInfo {
        document_id: document.id.clone(),
        preview: document.preview.clone(),
        content_length: document.content_length,
        metadata: document.metadata.clone(),
    };
    KbListResult { documents: documents.iter().map(info).collect(), total_count: documents.len() as u64 }
}
