//! A session's event → a frame. One exhaustive match, so that an event can't be forgotten.
#![warn(clippy::wildcard_enum_match_arm)]

use bytes::Bytes;
use tns_protocol::agent::{AgentInfo, AgentRole, AgentState, AgentStatus, Strategy, TeamUpdate};
use tns_protocol::approval::{
    AuditEntry, AutonomyChanged, Rule, RuleEffect, RuleScope, RulesListResult, RulesUpdate,
    ToolApprovalResolved, ToolApproveRequest,
};
use tns_protocol::chat::{
    AssistantMessage, ChatContext, ContentPart, Done, Interrupted, Origin, QueueUpdate, Token, UserMessage,
};
use tns_protocol::error::ErrorEvent;
use tns_protocol::knowledge::{DocumentInfo, KbAdded, KbListResult, KbRemoved, KbSearchResult, SearchHit};
use tns_protocol::live::{
    Notice, NoticeLevel, ReasoningDelta, ReasoningStart, ResponseEnd, ResponseStart, ResponseType,
    ToolOutput, ToolPending,
};
use tns_protocol::log::{
    ActiveResponse, Compaction, EXTENSION, HistorySync, Lagged, Program, RawFrame, Resumed, ResyncRequired,
    Welcome,
};
use tns_protocol::session::{QueueListResult, QueuedMessage, SessionClosing, SessionUpdated};
use tns_protocol::tool::{McpCall, ToolResult, ToolStart};
use tns_protocol::{
    ClientMessageId, ErrorCode, MessageId, RequestId, Seq, ServerFrame, ServerMessage, SessionId, Timestamp,
    encode_server,
};
use tns_server_core::agent::Agent;
use tns_server_core::approval::{ApprovalRequest, AuditRecord, Grant};
use tns_server_core::event::{
    self, Answer, DurableEvent, Event, LiveEvent, MessageOrigin, Published, ResumePoint,
};
use tns_server_core::message::Part;
use tns_server_core::store::{self, StoredEvent};
use tns_server_core::text_of;

use super::Gateway;

/// For whom an event is translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Face {
    /// A connection that knows only the event types of protocol v1.
    V1,
    /// A reader of the whole log.
    Log,
}

/// Returns the event's frame for connections of a face, encoded once for all of them. `None`: it has none.
pub(crate) fn frame(published: &Published, face: Face) -> Option<Bytes> {
    let slot = &published.encoded[face as usize];
    if let Some(frame) = slot.get() {
        return Some(frame.clone());
    }
    let other = &published.encoded[1 - face as usize];
    if looks_alike(&published.event)
        && let Some(frame) = other.get()
    {
        return Some(frame.clone());
    }
    let text = encode(published, &published.event, face)?;
    Some(slot.get_or_init(|| Bytes::from(text)).clone())
}

/// Whether the event's frame is the same for every face that has one; pieces of replies are what matters.
fn looks_alike(event: &Event) -> bool {
    matches!(event, Event::Live(LiveEvent::Token { .. } | LiveEvent::AgentState { .. }))
}

/// Encodes several pieces of a reply as one, with the envelope of the first.
pub(crate) fn joined(first: &Published, text: String) -> Option<String> {
    let Event::Live(LiveEvent::Token { agent, response, index, .. }) = &first.event else { return None };
    let (agent, response, index) = (agent.clone(), response.clone(), *index);
    encode(first, &Event::Live(LiveEvent::Token { agent, text, response, index }), Face::V1)
}

/// Encodes `event` with the envelope of `published`.
fn encode(published: &Published, event: &Event, face: Face) -> Option<String> {
    let message = message(event, published.turn.as_ref(), face)?;
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

fn message(event: &Event, turn: Option<&MessageId>, face: Face) -> Option<ServerMessage> {
    match event {
        Event::Durable(event) => durable(event, turn, face),
        Event::Live(event) => live(event, face),
        Event::Answer(answer) => self::answer(answer),
    }
}

fn durable(event: &DurableEvent, turn: Option<&MessageId>, face: Face) -> Option<ServerMessage> {
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
        // Protocol v1 has no result for a refused call; a reader of the log sees what the model was told.
        DurableEvent::ToolFinished(finished) if !finished.ran => extended(tool_result(finished).into()),
        DurableEvent::ToolFinished(finished) => Some(tool_result(finished).into()),
        DurableEvent::TeamUpdated(team) => Some(
            TeamUpdate {
                agents: team.agents.iter().map(|agent| agent_info(agent, &team.tools, false)).collect(),
                strategy: Strategy::Single,
            }
            .into(),
        ),
        DurableEvent::AutonomyChanged(level) => Some(AutonomyChanged { level: *level }.into()),
        DurableEvent::RuleChanged(changed) => extended(
            RulesUpdate { rule: rule(&changed.grant), removed: changed.removed, by: changed.by.clone() }
                .into(),
        ),
        DurableEvent::KbAdded(id) => Some(KbAdded { document_id: id.clone(), duplicate: false }.into()),
        DurableEvent::KbRemoved(id) => Some(KbRemoved { document_id: id.clone(), found: true }.into()),
        DurableEvent::QueueStarted(id) => extended(queue_update(id, QueueChange::Started).into()),
        DurableEvent::QueueEdited(edited) => {
            extended(queue_update(&edited.id, QueueChange::Edited(text_of(&edited.parts))).into())
        }
        DurableEvent::QueueRemoved(id) => extended(queue_update(id, QueueChange::Removed).into()),
        DurableEvent::Compacted(compacted) => extended(
            Compaction {
                agent_id: compacted.agent.clone(),
                compacted_from_seq: compacted.from_seq,
                tokens_before: compacted.tokens_before,
                tokens_after: compacted.tokens_after,
            }
            .into(),
        ),
        DurableEvent::Renamed(renamed) => extended(SessionUpdated { title: renamed.title.clone() }.into()),
        DurableEvent::Closing(reason) => extended(SessionClosing { reason: reason.clone() }.into()),
        DurableEvent::Done(done) => {
            Some(Done { usage: done.usage, stop_reason: Some(done.stop), cancelled: false }.into())
        }
        DurableEvent::Interrupted(interrupted) => Some(match (face, turn) {
            (Face::Log, Some(turn)) => Interrupted {
                turn_id: turn.clone(),
                reason: interrupted.reason.clone(),
                usage: interrupted.usage,
                response_id: interrupted.response.clone(),
            }
            .into(),
            (Face::Log, None) | (Face::V1, _) => {
                Done { usage: interrupted.usage, stop_reason: None, cancelled: true }.into()
            }
        }),
        DurableEvent::TurnFailed(failed) => Some(error(failed.code, &failed.message, None)),
    }
}

fn live(event: &LiveEvent, face: Face) -> Option<ServerMessage> {
    let extended = |message: ServerMessage| (face == Face::Log).then_some(message);
    match event {
        LiveEvent::Token { agent, text, response, index } => Some(
            Token {
                agent_id: agent.clone(),
                content: text.clone(),
                response_id: Some(response.clone()),
                index: Some(*index),
            }
            .into(),
        ),
        LiveEvent::ResponseStarted { agent, response } => extended(
            ResponseStart {
                response_id: response.clone(),
                agent_id: agent.clone(),
                response_type: ResponseType::Text,
            }
            .into(),
        ),
        LiveEvent::ResponseEnded { agent, response } => {
            extended(ResponseEnd { response_id: response.clone(), agent_id: agent.clone() }.into())
        }
        LiveEvent::ReasoningStarted { agent, response } => {
            extended(ReasoningStart { response_id: response.clone(), agent_id: agent.clone() }.into())
        }
        LiveEvent::Reasoning { agent, text, response } => extended(
            ReasoningDelta { response_id: response.clone(), agent_id: agent.clone(), content: text.clone() }
                .into(),
        ),
        LiveEvent::ToolPending { agent, tool, response } => extended(
            ToolPending { response_id: response.clone(), agent_id: agent.clone(), tool: tool.clone() }.into(),
        ),
        LiveEvent::ToolOutput { agent, call, text } => extended(
            ToolOutput { agent_id: agent.clone(), tool_call_id: call.clone(), content: text.clone() }.into(),
        ),
        LiveEvent::Notice { agent, text } => extended(
            Notice { level: NoticeLevel::Warning, message: text.clone(), agent_id: Some(agent.clone()) }
                .into(),
        ),
        LiveEvent::AgentState { agent, thinking, detail } => Some(
            AgentState {
                agent_id: agent.id.clone(),
                status: status(*thinking),
                role: agent.role.clone(),
                provider: Some(agent.provider.clone()),
                model: Some(agent.model.clone()),
                detail: detail.clone(),
            }
            .into(),
        ),
        LiveEvent::Failed(failed) => Some(error(failed.code, &failed.message, None)),
    }
}

fn answer(answer: &Answer) -> Option<ServerMessage> {
    Some(match answer {
        Answer::Done | Answer::Accepted { .. } => return None,
        Answer::Greeting { epoch, head_seq } => Welcome {
            ext: vec![EXTENSION.to_owned()],
            epoch: epoch.clone(),
            head_seq: *head_seq,
            limits: Gateway::limits(),
            server: Program { name: "tns".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() },
        }
        .into(),
        Answer::Resume(point) => resumed(point).into(),
        Answer::ResyncRequired { reason, epoch, head_seq } => {
            ResyncRequired { reason: reason.clone(), epoch: epoch.clone(), head_seq: *head_seq }.into()
        }
        Answer::Queue(queue) => {
            let waiting = queue
                .iter()
                .map(|(id, text)| QueuedMessage { message_id: id.clone(), message: text.clone() });
            QueueListResult { messages: waiting.collect() }.into()
        }
        Answer::Grants(grants) => RulesListResult { rules: grants.iter().map(rule).collect() }.into(),
        Answer::IdUsed(id) => error(ErrorCode::InvalidMessage, &id_used(id), Some("chat")),
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

/// Shows a grant as the rule that it is.
pub(crate) fn rule(grant: &Grant) -> Rule {
    Rule {
        rule_id: grant.id(),
        effect: RuleEffect::Allow,
        tool: grant.tool.clone(),
        risk_class: grant.class,
        scope: RuleScope::Session,
        covers: grant.describe(),
    }
}

/// Says where a resume goes over to live events.
fn resumed(point: &ResumePoint) -> Resumed {
    Resumed {
        head_seq: point.head_seq,
        active: point.active.as_ref().map(|active| ActiveResponse {
            response_id: active.response.clone(),
            agent_id: active.agent.clone(),
            text_so_far: active.text.clone(),
            index: active.index,
        }),
        pending_approvals: point.pending.iter().map(approval_request).collect(),
    }
}

enum QueueChange {
    Started,
    Edited(String),
    Removed,
}

fn queue_update(id: &MessageId, change: QueueChange) -> QueueUpdate {
    let update = QueueUpdate { message_id: id.clone(), message: None, removed: false, started: false };
    match change {
        QueueChange::Started => QueueUpdate { started: true, ..update },
        QueueChange::Edited(text) => QueueUpdate { message: Some(text), ..update },
        QueueChange::Removed => QueueUpdate { removed: true, ..update },
    }
}

/// Makes a page of the log a frame. An empty page stands where `after` does.
pub(crate) fn history_sync(
    session: &SessionId,
    re: Option<RequestId>,
    after: Seq,
    page: &[StoredEvent],
    more: bool,
) -> String {
    let frames = page.iter().filter_map(|row| RawFrame::new(stored(session, row)?).ok());
    let from_seq = page.first().map_or(after + 1, |row| row.place.seq);
    let to_seq = page.last().map_or(after, |row| row.place.seq);
    let sync = HistorySync { events: frames.collect(), from_seq, to_seq, more };
    to_one(session, re, sync.into())
}

/// Encodes what one connection is told about a session.
pub(crate) fn to_one(session: &SessionId, re: Option<RequestId>, message: ServerMessage) -> String {
    encode_server(&ServerFrame {
        session_id: Some(session.clone()),
        date: Some(Timestamp::now()),
        seq: None,
        turn_id: None,
        re,
        message,
    })
}

/// Encodes the end of a resume's history.
pub(crate) fn resume_end(session: &SessionId, re: Option<RequestId>, point: &ResumePoint) -> String {
    to_one(session, re, resumed(point).into())
}

/// Encodes that a session lags.
pub(crate) fn lagged(session: &SessionId, head_seq: Seq) -> String {
    to_one(session, None, Lagged { head_seq }.into())
}

/// Says that a sender's own id of a message was used for another one.
pub(crate) fn id_used(id: &ClientMessageId) -> String {
    format!("the id {id} was used for another message of this session; send this one with an id of its own")
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
        refused: !finished.ran,
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
        during_response_id: message.during.clone(),
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
        interrupted: step.status.is_cut(),
        response_id: step.response.clone(),
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
