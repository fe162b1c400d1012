//! The log on the wire (extension `events.1`): saying hello, reading what was missed, going on live.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::approval::ToolApproveRequest;
use crate::ids::{AgentId, MessageId, Seq};
use crate::rest::ServerLimits;

/// The extension whose event types a connection gets after `hello` names it.
pub const EXTENSION: &str = "events.1";
/// Most events of one `history_sync`.
pub const MAX_SYNC_EVENTS: usize = 500;
/// Bytes of stored events after which a `history_sync` ends; it holds at least one event.
pub const MAX_SYNC_BYTES: usize = 1 << 20;

/// A program on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// `hello`: from now on this connection knows the named extensions. With `lastSeq` it also resumes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Hello {
    /// The extensions that the client knows; others are passed over.
    pub ext: Vec<String>,
    /// Who connects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<Program>,
    /// The last place of the session's log that the client has; 0: it has nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seq: Option<Seq>,
    /// The store that `lastSeq` is of, as `welcome` named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<String>,
    /// The client only looks: no message that waits begins because it is there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub watch: bool,
}

/// `welcome`: the answer to `hello`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Welcome {
    /// The extensions that both sides know.
    pub ext: Vec<String>,
    /// Names the store; another one means that places of an earlier one say nothing.
    pub epoch: String,
    /// The log's last place.
    pub head_seq: Seq,
    /// Sizes that a client must keep.
    pub limits: ServerLimits,
    /// Who serves.
    pub server: Program,
}

/// `resume`: send what the log holds after `lastSeq`, then go on live.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resume {
    /// The last place that the client has; 0: it has nothing.
    pub last_seq: Seq,
    /// The store that it is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<String>,
}

/// `history_get`: read a page of the log. Answered by one `history_sync`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryGet {
    /// The events after this place, from the oldest on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_seq: Option<Seq>,
    /// The events before this place: the newest of them, unless `afterSeq` is given too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_seq: Option<Seq>,
    /// Most events: 1 to [`MAX_SYNC_EVENTS`], all of a page when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// A whole frame inside another one, kept as its text.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RawFrame(pub Box<RawValue>);

impl RawFrame {
    /// Wraps the text of a frame.
    ///
    /// # Errors
    /// When the text is no JSON.
    pub fn new(text: String) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text).map(Self)
    }

    /// Returns the frame's text.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }
}

impl PartialEq for RawFrame {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl JsonSchema for RawFrame {
    fn schema_name() -> Cow<'static, str> {
        "RawFrame".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({ "type": "object", "description": "A server's frame with its envelope." })
    }
}

/// `history_sync`: a page of the log, ascending and without gaps. At most [`MAX_SYNC_EVENTS`] events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistorySync {
    /// The durable events as their frames.
    pub events: Vec<RawFrame>,
    /// The place of the first one; of an empty page, the place after the one that was named.
    pub from_seq: Seq,
    /// The place of the last one; of an empty page, the place that was named.
    pub to_seq: Seq,
    /// More follow: in the next `history_sync` of a resume, or when asked for.
    pub more: bool,
}

/// A reply that is being written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActiveResponse {
    /// The reply.
    pub response_id: MessageId,
    /// Who writes.
    pub agent_id: AgentId,
    /// What is written of its running step: it is in no stored event yet.
    pub text_so_far: String,
    /// The place of the next piece in the reply's text, in characters.
    pub index: u64,
}

/// `resumed`: everything up to `headSeq` was sent; what follows is live.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resumed {
    /// The log's last place when the resume was taken up.
    pub head_seq: Seq,
    /// The reply that is being written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<ActiveResponse>,
    /// What waits for an answer, oldest first.
    pub pending_approvals: Vec<ToolApproveRequest>,
}

/// `resync_required`: the place that was named is not of this log. Forget it and resume from 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResyncRequired {
    /// Why, in a line for people.
    pub reason: String,
    /// The store's name.
    pub epoch: String,
    /// The log's last place.
    pub head_seq: Seq,
}

/// `lagged`: the client was too slow, and nothing more of this session is sent until it resumes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Lagged {
    /// The log's last place so far.
    pub head_seq: Seq,
}

/// How a history was shortened for the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Compaction {
    /// The agent whose history it is.
    pub agent_id: AgentId,
    /// From this place on the model still sees the events themselves; a summary stands for what is before.
    pub compacted_from_seq: Seq,
    /// Estimated tokens before.
    pub tokens_before: u64,
    /// Estimated tokens after.
    pub tokens_after: u64,
}
