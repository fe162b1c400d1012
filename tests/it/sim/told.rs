//! What a client was told and what a log holds, in one form, so that they compare.

use std::sync::Arc;

use tns_protocol::{ServerFrame, ServerMessage};
use tns_server_core::event::DurableEvent;
use tns_server_core::store::StoredEvent;
use tns_server_core::text_of;

/// An event, as far as the invariants speak of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Told {
    pub(super) name: String,
    pub(super) seq: Option<u64>,
    pub(super) turn: Option<String>,
    pub(super) what: What,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum What {
    User { id: String, client: Option<String>, queued: bool },
    Step { response: Option<String>, text: Arc<str>, interrupted: bool },
    Asked(String),
    Settled { call: String, decision: String },
    Audited(String),
    Started(String),
    Finished(String),
    Ended(Ended),
    Token { response: String, index: u64, text: String },
    Other,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Ended {
    Done,
    Cancelled,
    Failed(String),
}

impl What {
    pub(super) fn ends_turn(&self) -> bool {
        matches!(self, Self::Ended(_))
    }
}

impl Told {
    /// Takes a frame of the wire.
    pub(super) fn frame(frame: &ServerFrame) -> Self {
        let what = match &frame.message {
            ServerMessage::UserMessage(message) => What::User {
                id: message.message_id.to_string(),
                client: message.client_message_id.as_ref().map(ToString::to_string),
                queued: message.queued,
            },
            ServerMessage::AssistantMessage(step) => What::Step {
                response: step.response_id.as_ref().map(ToString::to_string),
                text: step.message.as_str().into(),
                interrupted: step.interrupted,
            },
            ServerMessage::ToolApproveRequest(request) => What::Asked(request.tool_call_id.to_string()),
            ServerMessage::ToolApprovalResolved(resolved) => What::Settled {
                call: resolved.tool_call_id.to_string(),
                decision: format!("{:?}", resolved.decision),
            },
            ServerMessage::AuditEntry(entry) => What::Audited(entry.tool_call_id.to_string()),
            ServerMessage::ToolStart(start) => What::Started(start.tool_call_id.to_string()),
            ServerMessage::ToolResult(result) => What::Finished(result.tool_call_id.to_string()),
            ServerMessage::Done(done) if done.cancelled => What::Ended(Ended::Cancelled),
            ServerMessage::Done(_) => What::Ended(Ended::Done),
            ServerMessage::Interrupted(_) => What::Ended(Ended::Cancelled),
            ServerMessage::ErrorEvent(error) if frame.seq.is_some() => {
                What::Ended(Ended::Failed(format!("{:?}", error.code)))
            }
            ServerMessage::Token(token) => What::Token {
                response: token.response_id.as_ref().map(ToString::to_string).unwrap_or_default(),
                index: token.index.unwrap_or_default(),
                text: token.content.clone(),
            },
            _ => What::Other,
        };
        let name = frame.message.type_name().to_owned();
        Self { name, seq: frame.seq, turn: frame.turn_id.as_ref().map(ToString::to_string), what }
    }

    /// Takes an event of the log, under the name that the wire gives it.
    pub(super) fn stored(row: &StoredEvent) -> Self {
        let (name, what) = match &row.event {
            DurableEvent::UserMessage(message) => (
                "user_message",
                What::User {
                    id: message.id.to_string(),
                    client: message.client_message_id.as_ref().map(ToString::to_string),
                    queued: message.queued,
                },
            ),
            DurableEvent::AssistantMessage(step) => (
                "assistant_message",
                What::Step {
                    response: step.response.as_ref().map(ToString::to_string),
                    text: text_of(&step.parts).into(),
                    interrupted: step.status.is_cut(),
                },
            ),
            DurableEvent::ApprovalRequested(request) => {
                ("tool_approve_request", What::Asked(request.call.to_string()))
            }
            DurableEvent::ApprovalResolved(resolved) => (
                "tool_approval_resolved",
                What::Settled {
                    call: resolved.call.to_string(),
                    decision: format!("{:?}", resolved.decision),
                },
            ),
            DurableEvent::Audited(record) => ("audit_entry", What::Audited(record.call.to_string())),
            DurableEvent::ToolStarted(started) => ("tool_start", What::Started(started.call.to_string())),
            DurableEvent::ToolFinished(finished) => {
                ("tool_result", What::Finished(finished.result.call.to_string()))
            }
            DurableEvent::TeamUpdated(_) => ("team_update", What::Other),
            DurableEvent::AutonomyChanged(_) => ("autonomy_changed", What::Other),
            DurableEvent::RuleChanged(_) => ("rules_update", What::Other),
            DurableEvent::KbAdded(_) => ("kb_added", What::Other),
            DurableEvent::KbRemoved(_) => ("kb_removed", What::Other),
            DurableEvent::QueueStarted(_) | DurableEvent::QueueEdited(_) | DurableEvent::QueueRemoved(_) => {
                ("queue_update", What::Other)
            }
            DurableEvent::Compacted(_) => ("compaction", What::Other),
            DurableEvent::Renamed(_) => ("session_updated", What::Other),
            DurableEvent::Closing(_) => ("session_closing", What::Other),
            DurableEvent::Done(_) => ("done", What::Ended(Ended::Done)),
            DurableEvent::Interrupted(_) => ("interrupted", What::Ended(Ended::Cancelled)),
            DurableEvent::TurnFailed(failed) => {
                ("error", What::Ended(Ended::Failed(format!("{:?}", Some(failed.code)))))
            }
        };
        let turn = row.turn.as_ref().map(ToString::to_string);
        Self { name: name.to_owned(), seq: Some(row.place.seq), turn, what }
    }

    /// Returns the event as a connection of protocol v1 is told it, if it is.
    pub(super) fn for_v1(&self, ran: impl Fn(&str) -> bool) -> Option<Self> {
        let at = ServerMessage::TYPES.iter().position(|name| *name == self.name);
        match &self.what {
            What::Ended(Ended::Cancelled) => Some(Self { name: "done".to_owned(), ..self.clone() }),
            // A call that did not run has no result there.
            What::Finished(call) if !ran(call) => None,
            _ => at.filter(|at| *at < ServerMessage::V1_TYPES).map(|_| self.clone()),
        }
    }
}

/// Something that happened at a client.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Seen {
    Told(Told),
    /// The client has all of the log, and perhaps a reply is being written: its name, and the text of its
    /// running step.
    CaughtUp {
        active: Option<(String, String)>,
    },
    /// The client goes on from the log's end, wherever that is.
    JoinedEnd,
    /// The connection is gone.
    Lost,
    /// A connection is there, and nothing of its session was told yet.
    Opened,
}

/// How a client keeps its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Has everything from the log's beginning on.
    Whole,
    /// Has everything from where the log ended when it came.
    Tail,
    /// Knows protocol v1 only: has what each of its connections was told.
    Strict,
}

/// What one client saw, from the first to the last.
#[derive(Debug, Clone)]
pub(super) struct Client {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) seen: Vec<Seen>,
}

/// What a run left of one session.
#[derive(Debug, Clone)]
pub(super) struct History {
    pub(super) log: Vec<Told>,
    pub(super) clients: Vec<Client>,
    /// Messages that were acknowledged: the message's id, its sender's id, and its place.
    pub(super) acknowledged: Vec<(String, String, u64)>,
    /// How often each call ran.
    pub(super) runs: Vec<(String, u32)>,
    /// Nobody read slowly, so nobody lost what is only shown.
    pub(super) all_shown: bool,
}

impl History {
    /// Whether the log has something of a call.
    pub(super) fn names(&self, call: &str) -> bool {
        self.log.iter().any(|row| matches!(&row.what, What::Started(named) if named == call))
    }
}
