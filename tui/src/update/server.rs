//! Frames of the server. Each is looked at twice: what it says of now (who works, what waits, what is
//! allowed), and what it adds to the written conversation. What the log tells of before adds only the latter,
//! so a restart and a lost connection show the same as being there.
#![warn(clippy::wildcard_enum_match_arm)]

use serde_json::{Map, Value};
use tns_protocol::agent::{AgentState, AgentStatus};
use tns_protocol::approval::{AuditDecision, RulesUpdate, ToolApproveRequest};
use tns_protocol::chat::{Done, Interrupted, QueueUpdate, StopReason};
use tns_protocol::live::{Notice, NoticeLevel};
use tns_protocol::log::Compaction;
use tns_protocol::{ClientMessageId, ErrorEvent, MessageId, ServerFrame, ServerMessage, ToolCallId};

use crate::model::{Effect, Model, Stage};
use crate::pane::transcript::entry::{self, Delivery, ToolState};
use crate::theme::Role;
use crate::update::{command, focus_after_change};

/// What is said of a turn that a person stopped.
const INTERRUPTED: &str = "interrupted";

/// Whether a frame happens now or is told of before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Live,
    Stored,
}

/// Whether a turn is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    GoesOn,
    Ended,
}

/// Takes in a frame that the server sent.
pub(super) fn on_frame(model: &mut Model, frame: ServerFrame) -> Vec<Effect> {
    if frame.session_id.as_ref().is_some_and(|session| *session != model.session) {
        return Vec::new();
    }
    let source = if model.stage == Stage::CatchingUp { Source::Stored } else { Source::Live };
    note_state(model, &frame, source);
    let ended = write(model, frame, source) == Turn::Ended;
    if ended && model.plain { vec![Effect::Load] } else { Vec::new() }
}

/// Adds an event that was read from the store.
pub(super) fn write_stored(model: &mut Model, frame: ServerFrame) {
    write(model, frame, Source::Stored);
}

/// A call waits for a person.
pub(super) fn ask(model: &mut Model, request: ToolApproveRequest) {
    model.approvals.ask(request, model.now);
    focus_after_change(model);
}

/// What a frame says of now.
fn note_state(model: &mut Model, frame: &ServerFrame, source: Source) {
    match &frame.message {
        ServerMessage::AgentState(state) => agent_state(model, state),
        ServerMessage::TeamUpdate(team) => model.set_roster(team.agents.clone()),
        // Which calls wait is told when the log is at its end.
        ServerMessage::ToolApproveRequest(_) if source == Source::Stored => {}
        ServerMessage::ToolApproveRequest(request) => ask(model, request.clone()),
        ServerMessage::AuditEntry(entry) => {
            settled(model, &entry.tool_call_id, entry.decision, entry.by.as_deref());
        }
        ServerMessage::ToolApprovalResolved(resolved) => {
            settled(model, &resolved.tool_call_id, resolved.decision, Some(&resolved.by));
        }
        ServerMessage::ToolStart(start) => {
            model.status.tool_began(&start.tool_call_id, &start.tool, model.now);
        }
        ServerMessage::ToolResult(result) => model.status.tool_ended(&result.tool_call_id),
        ServerMessage::AutonomyChanged(changed) => model.status.autonomy = Some(changed.level),
        // One that waited behind the running one.
        ServerMessage::Interrupted(end) if model.taken_out.as_ref() == Some(&end.turn_id) => {}
        ServerMessage::Done(_) | ServerMessage::Interrupted(_) => turn_ended(model),
        ServerMessage::SessionUpdated(updated) => model.status.set_title(updated.title.as_deref()),
        ServerMessage::SessionClosing(_) => {
            model.over = true;
            turn_ended(model);
        }
        ServerMessage::ErrorEvent(error) => {
            if frame.seq.is_some() || is_lost_turn(frame) {
                turn_ended(model);
            } else if error.ref_type.as_deref() == Some("tool_approve") {
                answer_refused(model, error);
            }
        }
        ServerMessage::Token(_)
        | ServerMessage::McpCall(_)
        | ServerMessage::IndexStart(_)
        | ServerMessage::IndexProgress(_)
        | ServerMessage::IndexDone(_)
        | ServerMessage::KbAdded(_)
        | ServerMessage::KbSearchResult(_)
        | ServerMessage::KbListResult(_)
        | ServerMessage::KbRemoved(_)
        | ServerMessage::UserMessage(_)
        | ServerMessage::AssistantMessage(_)
        | ServerMessage::QueueUpdate(_)
        | ServerMessage::Welcome(_)
        | ServerMessage::HistorySync(_)
        | ServerMessage::Resumed(_)
        | ServerMessage::ResyncRequired(_)
        | ServerMessage::Lagged(_)
        | ServerMessage::ResponseStart(_)
        | ServerMessage::ResponseEnd(_)
        | ServerMessage::ReasoningStart(_)
        | ServerMessage::ReasoningDelta(_)
        | ServerMessage::ImageDelta(_)
        | ServerMessage::ToolPending(_)
        | ServerMessage::ToolOutput(_)
        | ServerMessage::Notice(_)
        | ServerMessage::Compaction(_)
        | ServerMessage::SessionListResult(_)
        | ServerMessage::SessionForked(_)
        | ServerMessage::QueueListResult(_)
        | ServerMessage::FeedbackStored(_)
        | ServerMessage::RulesUpdate(_)
        | ServerMessage::RulesListResult(_) => {}
        ServerMessage::Unknown(name) => tracing::debug!(name, "event of a newer server"),
    }
}

fn agent_state(model: &mut Model, state: &AgentState) {
    match state.status {
        AgentStatus::Thinking => model.status.begin(&state.agent_id),
        AgentStatus::Idle => model.status.rest(&state.agent_id),
    }
    if let Some(agent) = model.roster.iter_mut().find(|agent| agent.agent_id == state.agent_id) {
        agent.status = state.status;
    }
}

/// Whether an error says that the running turn could not be stored: it answers no request and has no place.
fn is_lost_turn(frame: &ServerFrame) -> bool {
    let ServerMessage::ErrorEvent(error) = &frame.message else { return false };
    frame.seq.is_none() && frame.re.is_none() && frame.session_id.is_some() && error.ref_type.is_none()
}

fn turn_ended(model: &mut Model) {
    model.status.set_running(false);
    model.ended_at = Some(model.now);
    if model.hint == Some("interrupting") {
        model.hint = None;
    }
}

/// A request was settled, here or elsewhere.
fn settled(model: &mut Model, id: &ToolCallId, how: AuditDecision, by: Option<&str>) {
    if let Some(answered) = model.approvals.settle(id, model.now) {
        // The end of an interrupted turn tells of its calls too.
        if answered.is_none() && how != AuditDecision::Cancelled {
            let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
            model
                .transcript
                .notice(Role::Faint, &format!("approval settled: {}{by}", entry::settled_word(how)));
        }
        focus_after_change(model);
    }
}

/// The server did not take an answer. A call that is unknown to it was settled before.
fn answer_refused(model: &mut Model, error: &ErrorEvent) {
    if error.code == Some(tns_protocol::ErrorCode::UnknownToolCall) {
        for id in model.approvals.answered() {
            model.approvals.settle(&id, model.now);
        }
        focus_after_change(model);
    } else {
        model.approvals.unanswer();
    }
}

/// What a frame adds to the conversation.
#[expect(clippy::too_many_lines, reason = "one exhaustive match, an arm an event")]
fn write(model: &mut Model, frame: ServerFrame, source: Source) -> Turn {
    let seq = frame.seq;
    let lost = is_lost_turn(&frame);
    let asks = matches!(frame.message, ServerMessage::UserMessage(_) | ServerMessage::QueueUpdate(_));
    if let (false, Some(turn)) = (asks, &frame.turn_id) {
        model.transcript.begin_turn(turn);
    }
    match frame.message {
        ServerMessage::Token(token) => {
            let (place, name) = model.speaker(&token.agent_id);
            model.transcript.token(&token.agent_id, place, &name, &token.content);
        }
        ServerMessage::UserMessage(message) => {
            let id = message.client_message_id.as_ref();
            model.transcript.user_stored(id, &message.message_id, &message.message, message.queued);
        }
        ServerMessage::AssistantMessage(message) => {
            let (place, name) = model.speaker(&message.agent_id);
            model.transcript.agent_stored(&message.agent_id, place, &name, &message.message);
        }
        ServerMessage::ToolApproveRequest(request) => {
            let detail = request.args.as_ref().map_or(request.summary.clone(), detail_of);
            model.transcript.tool(&request.tool_call_id, &request.tool, &detail, ToolState::Waiting);
        }
        ServerMessage::ToolStart(start) => {
            let detail = detail_of(&start.args);
            model.transcript.tool(&start.tool_call_id, &start.tool, &detail, ToolState::Running);
        }
        ServerMessage::ToolOutput(output) => {
            model.transcript.tool_writes(&output.tool_call_id, &output.content);
        }
        // A refused call shows its decision, which the audit tells.
        ServerMessage::ToolResult(result) if result.refused => {}
        ServerMessage::ToolResult(result) => {
            let outcome = ToolState::Done { ok: !result.is_error, millis: result.duration };
            let id = &result.tool_call_id;
            model.transcript.tool_done(id, &result.tool, outcome, &result.result, result.truncated);
        }
        ServerMessage::AuditEntry(audit) => {
            if entry::runs(audit.decision) {
                model.transcript.tool_settled(&audit.tool_call_id, audit.decision, audit.by.as_deref());
            } else {
                let state = ToolState::Refused { how: audit.decision, by: audit.by };
                model.transcript.tool(&audit.tool_call_id, &audit.tool, &audit.summary, state);
            }
        }
        ServerMessage::ToolApprovalResolved(resolved) => {
            model.transcript.tool_settled(&resolved.tool_call_id, resolved.decision, Some(&resolved.by));
        }
        ServerMessage::Done(done) => {
            model.status.count(seq, &done.usage);
            done_notice(model, &done);
            model.transcript.settle();
            return Turn::Ended;
        }
        ServerMessage::Interrupted(end) => {
            model.status.count(seq, &end.usage);
            return interrupted(model, &end);
        }
        ServerMessage::ErrorEvent(error) => {
            error_notice(model, &error, frame.re.as_ref().map(|re| re.as_str()), seq.is_some());
            if lost || seq.is_some() {
                model.transcript.settle();
                return Turn::Ended;
            }
        }
        ServerMessage::AutonomyChanged(changed) => {
            model.transcript.notice(Role::Text, &format!("autonomy is now {}", changed.level.as_str()));
        }
        ServerMessage::ReasoningStart(start) => model.transcript.reasoning(&start.agent_id, ""),
        ServerMessage::ReasoningDelta(delta) => {
            model.transcript.reasoning(&delta.agent_id, &delta.content);
        }
        ServerMessage::Notice(Notice { level, message, .. }) => {
            let role = match level {
                NoticeLevel::Info => Role::Faint,
                NoticeLevel::Warning => Role::Warn,
            };
            model.transcript.notice(role, &message);
        }
        ServerMessage::Compaction(Compaction { tokens_before, tokens_after, .. }) => {
            let (before, after) = tokens(tokens_before, tokens_after);
            let text = format!("history summarised: {before} → {after} tokens");
            model.transcript.notice(Role::Faint, &text);
        }
        // Its first message gave it its title, which the status line shows.
        ServerMessage::SessionUpdated(_) if frame.turn_id.is_some() => {}
        ServerMessage::SessionUpdated(updated) => match updated.title {
            Some(title) => passing(model, source, &format!("the session is called {title} now")),
            None => passing(model, source, "the session has no title now"),
        },
        ServerMessage::SessionClosing(closing) => {
            let text = format!("this session has ended: {}", closing.reason);
            model.transcript.notice(Role::Warn, &text);
        }
        ServerMessage::QueueUpdate(update) => queue_update(model, &update),
        ServerMessage::AgentState(_)
        | ServerMessage::TeamUpdate(_)
        | ServerMessage::McpCall(_)
        | ServerMessage::IndexProgress(_)
        | ServerMessage::KbSearchResult(_)
        | ServerMessage::KbListResult(_)
        | ServerMessage::Welcome(_)
        | ServerMessage::HistorySync(_)
        | ServerMessage::Resumed(_)
        | ServerMessage::ResyncRequired(_)
        | ServerMessage::Lagged(_)
        | ServerMessage::ResponseStart(_)
        | ServerMessage::ResponseEnd(_)
        | ServerMessage::ImageDelta(_)
        | ServerMessage::ToolPending(_)
        | ServerMessage::SessionListResult(_)
        | ServerMessage::SessionForked(_)
        | ServerMessage::QueueListResult(_)
        | ServerMessage::FeedbackStored(_)
        | ServerMessage::Unknown(_) => {}
        ServerMessage::RulesUpdate(RulesUpdate { rule, removed, .. }) => {
            // A log may be another session's up to a place, whose rules do not hold here.
            let text = match removed {
                true => format!("asks again: {}", rule.covers),
                false => format!("runs unasked from now on: {} · /rules takes it back", rule.covers),
            };
            passing(model, source, &text);
        }
        ServerMessage::RulesListResult(list) => command::show_rules(model, list.rules),
        ServerMessage::KbAdded(added) if !added.duplicate => {
            passing(model, source, &format!("document {} added", added.document_id));
        }
        ServerMessage::KbRemoved(removed) if removed.found => {
            passing(model, source, &format!("document {} removed", removed.document_id));
        }
        ServerMessage::KbAdded(_) | ServerMessage::KbRemoved(_) => {}
        ServerMessage::IndexStart(start) => {
            passing(model, source, &format!("indexing {}: {} files", start.path, start.total_files));
        }
        ServerMessage::IndexDone(done) => {
            passing(
                model,
                source,
                &format!("indexed: {} files, {} chunks", done.file_count, done.chunk_count),
            );
        }
    }
    Turn::GoesOn
}

/// A message that waited begins, changes or goes.
fn queue_update(model: &mut Model, update: &QueueUpdate) {
    if let Some(text) = &update.message {
        model.transcript.edit_queued(&update.message_id, text);
    }
    if update.removed {
        model.transcript.drop_queued(&update.message_id);
        model.transcript.notice(Role::Faint, "a message that waited was taken out");
        model.taken_out = Some(update.message_id.clone());
    } else if update.started {
        model.transcript.begin_turn(&update.message_id);
    }
}

fn interrupted(model: &mut Model, end: &Interrupted) -> Turn {
    // It waited behind the running turn, which goes on.
    if model.taken_out.take_if(|turn: &mut MessageId| *turn == end.turn_id).is_some() {
        return Turn::GoesOn;
    }
    model.transcript.close_streams();
    match end.reason.as_str() {
        "cancelled" => model.transcript.notice(Role::Warn, INTERRUPTED),
        reason => model.transcript.notice(Role::Warn, &format!("{INTERRUPTED}: {reason}")),
    }
    model.transcript.settle();
    Turn::Ended
}

fn done_notice(model: &mut Model, done: &Done) {
    model.transcript.close_streams();
    let note = match (done.cancelled, done.stop_reason) {
        (true, _) => INTERRUPTED,
        (false, None | Some(StopReason::End)) => return,
        (false, Some(StopReason::MaxTokens)) => "the reply was cut: the model's output limit is reached",
        (false, Some(StopReason::Refusal)) => "the model refused to answer",
        (false, Some(StopReason::RoundLimit)) => "the turn ended: it used all its model calls",
        (false, Some(StopReason::SpendCap)) => "the turn ended: the spending limit is reached",
    };
    model.transcript.notice(Role::Warn, note);
}

fn error_notice(model: &mut Model, error: &ErrorEvent, re: Option<&str>, stored: bool) {
    let code = error.code.map(|code| format!(" ({})", code.as_str())).unwrap_or_default();
    if !stored && error.ref_type.as_deref() == Some("chat") {
        // A message goes under its own name.
        let named = re.and_then(|re| ClientMessageId::parse(re).ok());
        if !named.is_some_and(|id| model.transcript.deliver(&id, Delivery::Failed)) {
            model.transcript.refuse_newest();
        }
    } else {
        model.transcript.close_streams();
    }
    model.transcript.notice(Role::Bad, &format!("{}{code}", error.message));
}

/// Writes two numbers of tokens as people say them, in as many digits as tell them apart.
fn tokens(before: u64, after: u64) -> (String, String) {
    let short = (thousands(before), thousands(after));
    let is_small = before.max(after) < 10_000;
    if is_small || (short.0 == short.1 && before != after) {
        return (digits(before), digits(after));
    }
    short
}

/// Writes a number with three digits or fewer, from a thousand on in thousands.
fn thousands(count: u64) -> String {
    match count {
        0..1_000 => count.to_string(),
        1_000..9_950 => {
            let tenths = (count + 50) / 100;
            format!("{}.{}k", tenths / 10, tenths % 10)
        }
        _ => format!("{}k", digits(count.saturating_add(500) / 1_000)),
    }
}

/// Writes a number whole.
fn digits(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Says what is worth knowing while it happens, and not later.
fn passing(model: &mut Model, source: Source, note: &str) {
    match source {
        Source::Live => model.transcript.notice(Role::Faint, note),
        Source::Stored => {}
    }
}

/// What a call does, from its arguments: the command or the path where there is one, else all of them.
fn detail_of(args: &Map<String, Value>) -> String {
    let main = ["command", "path", "query", "url"].iter().find_map(|name| args.get(*name)?.as_str());
    match main {
        Some(text) => text.to_owned(),
        None if args.is_empty() => String::new(),
        None => Value::Object(args.clone()).to_string(),
    }
}
