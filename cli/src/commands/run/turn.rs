//! What a run learns from the server's frames. Pure: it decides what to show and how the run went, and does
//! neither.

#![warn(clippy::wildcard_enum_match_arm)]

use serde::Serialize;
use serde_json::{Map, Value};
use tns_protocol::approval::{AuditDecision, ToolApproveRequest};
use tns_protocol::chat::{Done, Interrupted, StopReason};
use tns_protocol::log::ActiveResponse;
use tns_protocol::tool::{ToolResult, ToolStart};
use tns_protocol::{ClientMessageId, ErrorCode, ErrorEvent, ServerFrame, ServerMessage, ToolCallId};

use crate::commands::run::standing::Standing;
use crate::exit::Exit;

/// Whose turns the frames of the session are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Owner {
    /// The session is new: all are this run's.
    Whole,
    /// Others use the session too: only the turn of this run's message is, once it is known.
    Shared(Standing),
}

/// One tool call as `--json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Call {
    tool_call_id: ToolCallId,
    tool: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<AuditDecision>,
    /// Who rejected it, where this run did.
    #[serde(skip)]
    rejected_by: Option<Rejecter>,
    /// Milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    duration: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_error: bool,
}

/// Who rejected a call in this run's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rejecter {
    /// The person on the terminal.
    Person,
    /// The run itself, as there is nobody to ask.
    Nobody,
}

/// Why a call was not allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    Never,
    OnTerminal,
    Elsewhere,
    TooLate,
    NobodyAsked,
}

/// Something to do about a frame.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// A piece of the answer.
    Text(String),
    /// The text so far was the answer to somebody else.
    Discard,
    /// Something to know.
    Note(String),
    /// A tool waits for a decision.
    Ask(Box<ToolApproveRequest>),
    /// A decision was made.
    Settled(ToolCallId),
}

#[derive(Debug, Clone, PartialEq)]
enum End {
    Done(Done),
    Failed(ErrorEvent),
}

/// The turn so far.
#[derive(Debug)]
pub(super) struct Turn {
    owner: Owner,
    text: String,
    /// What has come of the running step, as it was written.
    step: String,
    /// A tool ran since the last piece of text.
    step_ended: bool,
    calls: Vec<Call>,
    end: Option<End>,
}

impl Turn {
    pub(super) fn new(owner: Owner) -> Self {
        let (text, step) = (String::new(), String::new());
        Self { owner, text, step, step_ended: false, calls: Vec::new(), end: None }
    }

    /// Whether it takes the log to tell whose frame this is.
    pub(super) fn must_ask_about(&self, frame: &ServerFrame) -> bool {
        match &self.owner {
            Owner::Whole | Owner::Shared(Standing::Ended(_)) => false,
            Owner::Shared(Standing::Absent) => frame.turn_id.is_some() || is_lost_turn(frame),
            Owner::Shared(Standing::Waiting(_)) => frame.turn_id.is_none() && is_lost_turn(frame),
            Owner::Shared(Standing::Running(_)) => false,
        }
    }

    /// Whether all turns of the session are this run's.
    pub(super) fn is_whole(&self) -> bool {
        self.owner == Owner::Whole
    }

    /// Learns where this run's message stands in a session of several clients.
    pub(super) fn stands(&mut self, standing: Standing) {
        self.owner = Owner::Shared(standing);
    }

    /// Learns the same from an event of the log.
    pub(super) fn learn(&mut self, event: &ServerFrame, message: &ClientMessageId) {
        if let Owner::Shared(standing) = &mut self.owner {
            *standing = std::mem::replace(standing, Standing::Absent).after(event, message);
        }
    }

    /// Goes on with a reply of which a part was not heard.
    pub(super) fn go_on(&mut self, active: &ActiveResponse) -> Vec<Step> {
        match self.owner {
            Owner::Whole | Owner::Shared(Standing::Running(_)) => self.catch_up(&active.text_so_far),
            Owner::Shared(_) => Vec::new(),
        }
    }

    pub(super) fn ended(&self) -> bool {
        self.end.is_some()
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn calls(&self) -> &[Call] {
        &self.calls
    }

    pub(super) fn done(&self) -> Option<&Done> {
        match &self.end {
            Some(End::Done(done)) => Some(done),
            Some(End::Failed(_)) | None => None,
        }
    }

    /// Notes that this run rejected a call; the server's own record of it may come too late.
    pub(super) fn refused(&mut self, id: &ToolCallId, by: Rejecter) {
        if let Some(call) = self.calls.iter_mut().find(|call| call.tool_call_id == *id) {
            call.decision = Some(AuditDecision::Rejected);
            call.rejected_by = Some(by);
        }
    }

    /// Forgets the text so far, which answers somebody else.
    pub(super) fn forget_text(&mut self) {
        self.text.clear();
        self.step.clear();
        self.step_ended = false;
    }

    /// Takes a frame of the session.
    pub(super) fn take(&mut self, frame: ServerFrame) -> Vec<Step> {
        if self.is_foreign(&frame) {
            return self.take_foreign(&frame.message);
        }
        let ends = frame.seq.is_some() || is_lost_turn(&frame);
        match frame.message {
            ServerMessage::Token(token) => {
                self.step.push_str(&token.content);
                vec![Step::Text(self.push(&token.content))]
            }
            ServerMessage::AssistantMessage(stored) => {
                let steps = self.catch_up(&stored.message);
                self.step.clear();
                steps
            }
            ServerMessage::ToolStart(start) => self.started(start),
            // A refused call is told by its decision.
            ServerMessage::ToolResult(result) if result.refused => Vec::new(),
            ServerMessage::ToolResult(result) => self.finished(result),
            ServerMessage::ToolApproveRequest(request) => {
                self.call(&request.tool_call_id, &request.tool).args.clone_from(&request.args);
                vec![Step::Ask(Box::new(request))]
            }
            ServerMessage::AuditEntry(entry) => {
                self.call(&entry.tool_call_id, &entry.tool).decision = Some(entry.decision);
                let mut steps = vec![Step::Settled(entry.tool_call_id)];
                if refusal(entry.decision, None).is_some() {
                    steps.push(Step::Note(format!("{}: {}", entry.tool, entry.decision.as_str())));
                }
                steps
            }
            ServerMessage::Done(done) => {
                self.end = Some(End::Done(done));
                Vec::new()
            }
            ServerMessage::Interrupted(Interrupted { usage, .. }) => {
                self.end = Some(End::Done(Done { usage, stop_reason: None, cancelled: true }));
                Vec::new()
            }
            // Else it answers another request of this connection.
            ServerMessage::ErrorEvent(error) if ends || error.ref_type.as_deref() == Some("chat") => {
                self.end = Some(End::Failed(error));
                Vec::new()
            }
            ServerMessage::ErrorEvent(error) if error.code == Some(ErrorCode::UnknownToolCall) => {
                vec![Step::Note("the call was decided elsewhere".into())]
            }
            ServerMessage::ErrorEvent(error) => vec![Step::Note(error.message)],
            ServerMessage::AgentState(_)
            | ServerMessage::TeamUpdate(_)
            | ServerMessage::McpCall(_)
            | ServerMessage::IndexStart(_)
            | ServerMessage::IndexProgress(_)
            | ServerMessage::IndexDone(_)
            | ServerMessage::AutonomyChanged(_)
            | ServerMessage::KbAdded(_)
            | ServerMessage::KbSearchResult(_)
            | ServerMessage::KbListResult(_)
            | ServerMessage::KbRemoved(_)
            | ServerMessage::UserMessage(_)
            | ServerMessage::ToolApprovalResolved(_)
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
            | ServerMessage::SessionUpdated(_)
            | ServerMessage::SessionClosing(_)
            | ServerMessage::SessionListResult(_)
            | ServerMessage::SessionForked(_)
            | ServerMessage::QueueListResult(_)
            | ServerMessage::FeedbackStored(_)
            | ServerMessage::RulesUpdate(_)
            | ServerMessage::RulesListResult(_)
            | ServerMessage::Unknown(_) => Vec::new(),
        }
    }

    /// Returns what went wrong: how to end, and the line for it.
    pub(super) fn verdict(&self) -> Option<(Exit, String)> {
        let failed = |exit, message: &str| Some((exit, message.to_owned()));
        let done = match self.end.as_ref()? {
            End::Failed(error) => {
                let exit = error.code.map_or(Exit::Failed, Exit::of_code);
                let code = error.code.map(|code| format!(" ({})", code.as_str())).unwrap_or_default();
                return Some((exit, format!("{}{code}", error.message)));
            }
            End::Done(done) => done,
        };
        if done.cancelled {
            return failed(Exit::Interrupted, "the turn was cancelled from elsewhere");
        }
        match done.stop_reason {
            Some(StopReason::RoundLimit) => {
                return failed(Exit::Limit, "the turn used all its model calls; ask for less at a time");
            }
            Some(StopReason::SpendCap) => return failed(Exit::Limit, "the spending limit is reached"),
            Some(StopReason::MaxTokens) => {
                return failed(Exit::Limit, "the answer is cut: the model's output limit is reached");
            }
            Some(StopReason::Refusal) => return failed(Exit::Failed, "the model refused to answer"),
            Some(StopReason::End) | None => {}
        }
        let reasons = self.refusals();
        if reasons.is_empty() {
            return None;
        }
        Some((Exit::NotAllowed, reasons.join("; ")))
    }

    /// Says which tools were not allowed and what can be done about it, each reason once.
    fn refusals(&self) -> Vec<String> {
        let mut refused: Vec<(Refusal, Vec<&str>)> = Vec::new();
        for call in &self.calls {
            let Some(why) = call.decision.and_then(|decision| refusal(decision, call.rejected_by)) else {
                continue;
            };
            match refused.iter_mut().find(|(known, _)| *known == why) {
                Some((_, tools)) if tools.contains(&call.tool.as_str()) => {}
                Some((_, tools)) => tools.push(&call.tool),
                None => refused.push((why, vec![&call.tool])),
            }
        }
        refused.into_iter().map(|(why, tools)| why.tell(&tools.join(", "))).collect()
    }

    fn is_foreign(&self, frame: &ServerFrame) -> bool {
        let Owner::Shared(standing) = &self.owner else { return false };
        match &frame.turn_id {
            Some(theirs) => standing.turn() != Some(theirs),
            // What waited when this run joined is for others to decide.
            None if matches!(frame.message, ServerMessage::ToolApproveRequest(_)) => true,
            // What is lost is the turn that runs.
            None => is_lost_turn(frame) && !matches!(standing, Standing::Running(_)),
        }
    }

    fn take_foreign(&mut self, message: &ServerMessage) -> Vec<Step> {
        let ends = matches!(
            message,
            ServerMessage::Done(_) | ServerMessage::Interrupted(_) | ServerMessage::ErrorEvent(_)
        );
        if ends {
            self.forget_text();
            return vec![Step::Discard];
        }
        Vec::new()
    }

    /// Takes the running step's text as the server has it: what did not come yet is new.
    fn catch_up(&mut self, text: &str) -> Vec<Step> {
        match missing(&self.step, text) {
            Some("") => Vec::new(),
            Some(rest) => {
                self.step.push_str(rest);
                vec![Step::Text(self.push(rest))]
            }
            None => vec![Step::Note(
                "the stored answer is not the one that was shown; it is in the session".into(),
            )],
        }
    }

    /// Appends a piece of the answer and returns it; the steps of a turn are paragraphs.
    fn push(&mut self, content: &str) -> String {
        let gap = self.step_ended && !self.text.is_empty() && !self.text.ends_with("\n\n");
        self.step_ended = false;
        let piece =
            if gap { format!("\n\n{}", content.trim_start_matches('\n')) } else { content.to_owned() };
        self.text.push_str(&piece);
        piece
    }

    fn call(&mut self, id: &ToolCallId, tool: &str) -> &mut Call {
        self.step_ended = true;
        let at = match self.calls.iter().position(|call| call.tool_call_id == *id) {
            Some(at) => at,
            None => {
                self.calls.push(Call {
                    tool_call_id: id.clone(),
                    tool: tool.to_owned(),
                    args: None,
                    decision: None,
                    rejected_by: None,
                    duration: None,
                    result: None,
                    is_error: false,
                });
                self.calls.len() - 1
            }
        };
        &mut self.calls[at]
    }

    fn started(&mut self, start: ToolStart) -> Vec<Step> {
        let note = format!("{} {}", start.tool, brief(&start.args));
        self.call(&start.tool_call_id, &start.tool).args = Some(start.args);
        vec![Step::Note(note.trim_end().to_owned())]
    }

    fn finished(&mut self, result: ToolResult) -> Vec<Step> {
        let how = if result.is_error { "failed" } else { "done" };
        let note = format!("{} {how} in {} ms", result.tool, result.duration);
        let call = self.call(&result.tool_call_id, &result.tool);
        call.duration = Some(result.duration);
        call.is_error = result.is_error;
        call.result = Some(result.result);
        vec![Step::Note(note)]
    }
}

/// Returns what a stored text has behind its beginning; `None` where it begins otherwise. The parts of a text
/// are stored with a line's end between them, which its pieces don't have.
fn missing<'a>(begun: &str, stored: &'a str) -> Option<&'a str> {
    let mut rest = stored.chars();
    for wanted in begun.chars() {
        while rest.next()? != wanted {
            // Checked on what was just passed.
            if !stored[..stored.len() - rest.as_str().len()].ends_with('\n') {
                return None;
            }
        }
    }
    Some(rest.as_str())
}

/// Whether a frame says that a turn could not be stored: such an error answers no request and has no place in
/// the log. One about the connection names no session.
fn is_lost_turn(frame: &ServerFrame) -> bool {
    let ServerMessage::ErrorEvent(error) = &frame.message else { return false };
    frame.seq.is_none() && frame.re.is_none() && frame.session_id.is_some() && error.ref_type.is_none()
}

/// Returns why a decision did not allow its call; `None` where it did, or where the turn was cancelled.
fn refusal(decision: AuditDecision, rejected_by: Option<Rejecter>) -> Option<Refusal> {
    match (decision, rejected_by) {
        (AuditDecision::Blocked, _) => Some(Refusal::Never),
        (AuditDecision::Timeout, _) => Some(Refusal::TooLate),
        (AuditDecision::Rejected, Some(Rejecter::Person)) => Some(Refusal::OnTerminal),
        (AuditDecision::Rejected, Some(Rejecter::Nobody)) => Some(Refusal::NobodyAsked),
        (AuditDecision::Rejected, None) => Some(Refusal::Elsewhere),
        (
            AuditDecision::AutoApproved
            | AuditDecision::Approved
            | AuditDecision::Always
            | AuditDecision::Trusted
            | AuditDecision::Cancelled,
            _,
        ) => None,
    }
}

impl Refusal {
    fn tell(self, tools: &str) -> String {
        match self {
            Self::Never => {
                format!("{tools} was refused as an escalation, which is never allowed, whatever the level")
            }
            Self::OnTerminal => format!("{tools} was needed and rejected on this terminal"),
            Self::Elsewhere => format!("{tools} was needed and rejected by another client of the session"),
            Self::TooLate => format!("{tools} was needed and nobody decided about it in time"),
            Self::NobodyAsked => format!(
                "{tools} was needed and not allowed; run on a terminal to be asked, or set --autonomy"
            ),
        }
    }
}

/// Characters of a call's arguments in a note.
const BRIEF_CHARS: usize = 100;

/// The arguments on one line.
fn brief(args: &Map<String, Value>) -> String {
    let values: Vec<String> = args
        .values()
        .map(|value| match value.as_str() {
            Some(text) => text.replace('\n', "⏎"),
            None => value.to_string(),
        })
        .collect();
    let line = values.join(" ");
    match line.char_indices().nth(BRIEF_CHARS) {
        Some((cut, _)) => format!("{}…", &line[..cut]),
        None => line,
    }
}

#[cfg(test)]
mod tests;
