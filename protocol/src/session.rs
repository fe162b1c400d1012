//! Sessions on the wire (extension `events.1`): their list, their names, their ends, and what waits in them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, MessageId, Seq, SessionId};
use crate::rest::SessionSummary;

/// Longest title of a session, in characters.
pub const MAX_TITLE_CHARS: usize = 200;

/// `session_list`: the sessions of whoever asks, the one whose log grew last first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SessionList {
    /// A `nextCursor` of an earlier answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Most sessions: 1 to 500, 100 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// `session_list_result`: the answer to `session_list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionListResult {
    /// The sessions.
    pub sessions: Vec<SessionSummary>,
    /// Give this as `cursor` for the next page; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// `session_rename`. Answered by `session_updated` to all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionRename {
    /// The title, at most [`MAX_TITLE_CHARS`] characters; null takes it away.
    #[serde(deserialize_with = "Option::deserialize")]
    pub title: Option<String>,
}

/// `session_delete`: erases the session with its log, audit and own documents. Answered by `session_closing`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SessionDelete {}

/// `session_fork`: a new session that begins with this one's events up to a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionFork {
    /// The last place that is taken over; it must end a turn.
    pub at_seq: Seq,
}

/// `session_forked`: the answer to `session_fork`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionForked {
    /// The new session.
    pub new_session_id: SessionId,
    /// Its log's last place.
    pub head_seq: Seq,
}

/// `session_updated`: the session's title changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionUpdated {
    /// The title; absent: it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// `session_closing`: the session ends; nothing follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionClosing {
    /// Why: `deleted`, `expired`.
    pub reason: String,
}

/// `queue_list`: which messages wait for their turn.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct QueueList {}

/// `compact`: summarises the older part of an agent's history now. Answered by `compaction` to all, or by a `notice`
/// that says why there is none; refused while a reply is written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Compact {
    /// Whose; absent: the first agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
}

/// `queue_remove`: takes a waiting message out. Answered by `queue_update` to all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueRemove {
    /// The waiting message.
    pub message_id: MessageId,
}

/// `queue_edit`: gives a waiting message other words. Answered by `queue_update` to all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueEdit {
    /// The waiting message.
    pub message_id: MessageId,
    /// Its new text; blank is refused.
    pub message: String,
}

/// A message that waits for its turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueuedMessage {
    /// The message.
    pub message_id: MessageId,
    /// Its text as it holds now.
    pub message: String,
}

/// `queue_list_result`: the answer to `queue_list`, first come first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueListResult {
    /// What waits.
    pub messages: Vec<QueuedMessage>,
}

/// What somebody thought of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FeedbackScore {
    /// Good.
    Up,
    /// Bad.
    Down,
    /// Taken back.
    None,
}

/// `feedback`: what somebody thought of a message. Kept beside it; the last word holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Feedback {
    /// The message.
    pub message_id: MessageId,
    /// The verdict.
    pub score: FeedbackScore,
}

/// `feedback_stored`: the answer to `feedback`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FeedbackStored {
    /// The message.
    pub message_id: MessageId,
    /// The verdict that holds now.
    pub score: FeedbackScore,
}
