//! Facts that a session announces. The log stores the durable ones; a face translates them for its wire.

mod answer;
mod live;

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tns_protocol::approval::{AuditDecision, AutonomyLevel, RiskClass};
use tns_protocol::chat::{StopReason, Usage};
use tns_protocol::{
    AgentId, ClientMessageId, Day, DocumentId, ErrorCode, MessageId, RequestId, Seq, SessionId, Timestamp,
    ToolCallId,
};

use crate::agent::Agent;
use crate::approval::{ApprovalRequest, AuditRecord, Grant};
use crate::engine::StepUsage;
use crate::message::{Native, Note, Part};
use crate::tool::Args;

pub use answer::{ActiveReply, Answer, Log, Refusal, ResumePoint};
pub use live::LiveEvent;

/// A durable event: stored with its `seq` before any connection is sent it.
///
/// The serialised form is the store's, versioned by [`BODY_VERSION`]; a field is only ever added, with a default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DurableEvent {
    /// A person's message; its id names the turn that answers it.
    UserMessage(UserMessage),
    /// One step of a reply.
    AssistantMessage(AssistantMessage),
    /// A call waits for a person.
    ApprovalRequested(ApprovalRequest),
    /// A waiting call is settled.
    ApprovalResolved(ApprovalResolved),
    /// A decision about a call.
    Audited(AuditRecord),
    /// A call runs.
    ToolStarted(ToolStarted),
    /// A call ended, or was refused.
    ToolFinished(ToolFinished),
    /// The whole roster after a change.
    TeamUpdated(TeamUpdated),
    /// The level changed.
    AutonomyChanged(AutonomyLevel),
    /// Something is covered from now on, or no more.
    RuleChanged(RuleChanged),
    /// A document came to a knowledge base.
    KbAdded(DocumentId),
    /// A document left a knowledge base.
    KbRemoved(DocumentId),
    /// A waiting message's turn began.
    QueueStarted(MessageId),
    /// A waiting message has other words.
    QueueEdited(QueueEdited),
    /// A waiting message was taken out; its turn ends with the next event.
    QueueRemoved(MessageId),
    /// A summary stands for the older part of an agent's history from now on.
    Compacted(Compacted),
    /// The session's title changed.
    Renamed(Renamed),
    /// The session ends, and why; always the last event of a log.
    Closing(String),
    /// A turn ended well.
    Done(TurnDone),
    /// A turn was cancelled.
    Interrupted(TurnInterrupted),
    /// A turn failed.
    TurnFailed(TurnFailed),
}

/// Version of the stored form of [`DurableEvent`].
pub const BODY_VERSION: i64 = 1;

impl DurableEvent {
    /// Returns the kind under which the log stores it.
    pub fn kind(&self) -> EventKind {
        match self {
            Self::UserMessage(_) => EventKind::UserMessage,
            Self::AssistantMessage(_) => EventKind::AssistantMessage,
            Self::ApprovalRequested(_) => EventKind::ApprovalRequested,
            Self::ApprovalResolved(_) => EventKind::ApprovalResolved,
            Self::Audited(_) => EventKind::Audited,
            Self::ToolStarted(_) => EventKind::ToolStarted,
            Self::ToolFinished(_) => EventKind::ToolFinished,
            Self::TeamUpdated(_) => EventKind::TeamUpdated,
            Self::AutonomyChanged(_) => EventKind::AutonomyChanged,
            Self::RuleChanged(_) => EventKind::RuleChanged,
            Self::KbAdded(_) => EventKind::KbAdded,
            Self::KbRemoved(_) => EventKind::KbRemoved,
            Self::QueueStarted(_) => EventKind::QueueStarted,
            Self::QueueEdited(_) => EventKind::QueueEdited,
            Self::QueueRemoved(_) => EventKind::QueueRemoved,
            Self::Compacted(_) => EventKind::Compacted,
            Self::Renamed(_) => EventKind::Renamed,
            Self::Closing(_) => EventKind::Closing,
            Self::Done(_) => EventKind::Done,
            Self::Interrupted(_) => EventKind::Interrupted,
            Self::TurnFailed(_) => EventKind::TurnFailed,
        }
    }

    /// Whether it ends its turn.
    pub fn ends_turn(&self) -> bool {
        matches!(self, Self::Done(_) | Self::Interrupted(_) | Self::TurnFailed(_))
    }
}

/// The kind of a durable event, by which a log is queried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is documented at its event")]
pub enum EventKind {
    UserMessage,
    AssistantMessage,
    ApprovalRequested,
    ApprovalResolved,
    Audited,
    ToolStarted,
    ToolFinished,
    TeamUpdated,
    AutonomyChanged,
    RuleChanged,
    KbAdded,
    KbRemoved,
    QueueStarted,
    QueueEdited,
    QueueRemoved,
    Compacted,
    Renamed,
    Closing,
    Done,
    Interrupted,
    TurnFailed,
}

impl EventKind {
    /// Returns the stable text of the kind, as a store keeps it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UserMessage => "user_message",
            Self::AssistantMessage => "assistant_message",
            Self::ApprovalRequested => "approval_requested",
            Self::ApprovalResolved => "approval_resolved",
            Self::Audited => "audited",
            Self::ToolStarted => "tool_started",
            Self::ToolFinished => "tool_finished",
            Self::TeamUpdated => "team_updated",
            Self::AutonomyChanged => "autonomy_changed",
            Self::RuleChanged => "rule_changed",
            Self::KbAdded => "kb_added",
            Self::KbRemoved => "kb_removed",
            Self::QueueStarted => "queue_started",
            Self::QueueEdited => "queue_edited",
            Self::QueueRemoved => "queue_removed",
            Self::Compacted => "compacted",
            Self::Renamed => "renamed",
            Self::Closing => "closing",
            Self::Done => "done",
            Self::Interrupted => "interrupted",
            Self::TurnFailed => "turn_failed",
        }
    }
}

/// A person's message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UserMessage {
    /// Its id, which names its turn.
    pub id: MessageId,
    /// The agent that answers it.
    pub agent: AgentId,
    /// What was said.
    pub parts: Vec<Part>,
    /// The sender's own id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_message_id: Option<ClientMessageId>,
    /// Where it comes from, when not from the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<MessageContext>,
    /// It came while a reply was written and waits for its own turn.
    #[serde(default)]
    pub queued: bool,
    /// The reply that was being written when it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub during: Option<MessageId>,
}

impl UserMessage {
    /// Whether it is the user's own words.
    pub fn is_users(&self) -> bool {
        self.context.as_ref().is_none_or(|context| context.origin == MessageOrigin::User)
    }
}

/// Who speaks in a message that is not the user's own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageOrigin {
    /// The user.
    User,
    /// The system around the session.
    System,
    /// Something that happened.
    Event,
}

/// Where a message comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MessageContext {
    /// Who speaks.
    pub origin: MessageOrigin,
    /// What it is about.
    pub description: Option<String>,
    /// Which source sent it.
    pub source_id: Option<String>,
    /// Anything more.
    pub metadata: Option<Map<String, Value>>,
}

/// One step of a reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AssistantMessage {
    /// Its id.
    pub id: MessageId,
    /// Who wrote it.
    pub agent: AgentId,
    /// Text and tool calls; empty where a step used tokens and gave neither.
    pub parts: Vec<Part>,
    /// The model that wrote it.
    pub model: String,
    /// The provider's own blocks; none for an interrupted step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<Native>,
    /// What only the model was shown before this step, such as passages of the knowledge base. It
    /// belongs before the user's message of the turn and never leaves the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
    /// How it ended.
    pub status: MessageStatus,
    /// The reply that it is a step of; absent in logs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<MessageId>,
    /// What it used; of a step that was cut, as far as its provider had told. Absent where nothing is known of a
    /// step, as of those of older logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<StepUsage>,
    /// Whose model wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The day on which it counts against the limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_on: Option<Day>,
}

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageStatus {
    /// Whole.
    Complete,
    /// Cut by a cancel or by the end of the server: kept as far as it was shown, without native blocks; the
    /// model is told that it was cut.
    Interrupted,
    /// Cut by a failure of its provider: kept for people; no model sees it.
    Failed,
}

impl MessageStatus {
    /// Whether it is not whole.
    pub fn is_cut(self) -> bool {
        match self {
            Self::Complete => false,
            Self::Interrupted | Self::Failed => true,
        }
    }
}

/// A waiting message has other words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueueEdited {
    /// The waiting message.
    pub id: MessageId,
    /// What is said now.
    pub parts: Vec<Part>,
}

/// A summary stands for the older part of an agent's history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compacted {
    /// Whose history.
    pub agent: AgentId,
    /// The model still sees the events from this place on, in turn order: there a turn begins, or a step of a
    /// reply, whose message it sees as well.
    pub from_seq: Seq,
    /// The first place of an event that it still sees: messages that waited stand before their turns.
    #[serde(default)]
    pub read_from: Seq,
    /// What stands for those before it. Only the model sees it.
    pub summary: String,
    /// Estimated tokens before.
    pub tokens_before: u64,
    /// Estimated tokens after.
    pub tokens_after: u64,
    /// The model call that wrote the summary; absent where nothing is known of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<CountedStep>,
}

/// The session's title changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "StoredRenamed", into = "StoredRenamed")]
pub struct Renamed {
    /// The title; `None`: it has none.
    pub title: Option<String>,
    /// The model call that wrote it.
    pub step: Option<CountedStep>,
}

impl Renamed {
    /// Returns a title that no model wrote.
    pub fn to(title: Option<String>) -> Self {
        Self { title, step: None }
    }
}

/// How [`Renamed`] is stored: as the title alone where no model wrote it.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum StoredRenamed {
    Title(Option<String>),
    Written { title: Option<String>, step: CountedStep },
}

impl From<StoredRenamed> for Renamed {
    fn from(stored: StoredRenamed) -> Self {
        match stored {
            StoredRenamed::Title(title) => Self { title, step: None },
            StoredRenamed::Written { title, step } => Self { title, step: Some(step) },
        }
    }
}

impl From<Renamed> for StoredRenamed {
    fn from(Renamed { title, step }: Renamed) -> Self {
        match step {
            None => Self::Title(title),
            Some(step) => Self::Written { title, step },
        }
    }
}

/// A model call outside a reply, as it is counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CountedStep {
    /// Whose model.
    pub provider: String,
    /// The model that wrote.
    pub model: String,
    /// What it used.
    pub usage: StepUsage,
    /// The day on which it counts against the limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_on: Option<Day>,
}

/// The whole roster after a change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TeamUpdated {
    /// The agents; the first one answers.
    pub agents: Vec<Agent>,
    /// The tools that every agent is offered, by name.
    pub tools: Vec<String>,
}

/// How a waiting call was settled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ApprovalResolved {
    /// The call.
    pub call: ToolCallId,
    /// How.
    pub decision: AuditDecision,
    /// Who: a principal, or `server`.
    pub by: String,
    /// What is covered from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<Grant>,
}

/// A grant was given or taken back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleChanged {
    /// The grant.
    pub grant: Grant,
    /// It was taken back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
    /// Who: a principal.
    pub by: String,
}

/// A call runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolStarted {
    /// The call.
    pub call: ToolCallId,
    /// Who calls.
    pub agent: AgentId,
    /// The tool's name as offered.
    pub tool: String,
    /// The arguments that run.
    pub args: Args,
    /// The class of its worst part.
    pub class: RiskClass,
}

/// A call ended, or was refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolFinished {
    /// Who called.
    pub agent: AgentId,
    /// What the model reads.
    pub result: crate::message::ToolResult,
    /// It ran; a refused call did not, and no wire shows a result for it.
    pub ran: bool,
    /// How long it ran, in milliseconds.
    pub duration_ms: u64,
    /// The output was longer than the limit and is cut.
    pub truncated: bool,
}

/// A turn ended well.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnDone {
    /// What the whole turn used.
    pub usage: Usage,
    /// Why the reply ended.
    pub stop: StopReason,
}

/// A turn was cancelled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnInterrupted {
    /// What the turn used so far.
    pub usage: Usage,
    /// Why.
    pub reason: String,
    /// The reply that was cut; absent in logs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<MessageId>,
}

/// A turn failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnFailed {
    /// What kind of failure.
    pub code: ErrorCode,
    /// One line for people.
    pub message: String,
}

/// Any event of a session.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Stored and sent to all. Boxed, since most events are small live ones.
    Durable(Box<DurableEvent>),
    /// Sent to all, not stored.
    Live(LiveEvent),
    /// Sent to one.
    Answer(Answer),
}

/// An event on its way to the connections of a session.
#[derive(Debug)]
pub struct Published {
    /// The session.
    pub session: SessionId,
    /// When it happened; for a durable event, when it was stored.
    pub at: Timestamp,
    /// A durable event's place in the log.
    pub seq: Option<Seq>,
    /// The turn of a durable event.
    pub turn: Option<MessageId>,
    /// The request that an answer answers.
    pub re: Option<RequestId>,
    /// The event.
    pub event: Event,
    /// Slots in which two faces keep their encodings, so that each is made once and not once a connection.
    pub encoded: [OnceLock<Bytes>; 2],
}

/// Where a session's events go. Delivering never waits: a full receiver drops or disconnects by its own rule.
pub trait Subscriber: Send + Sync + 'static {
    /// Takes events in their order.
    fn deliver(&self, events: &[Arc<Published>]);
}
