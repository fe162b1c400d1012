//! Bodies of the REST face, shared by server and client.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::agent::AgentInfo;
use crate::approval::{AuditEntry, AutonomyLevel, ToolApproveRequest};
use crate::error::ErrorCode;
use crate::ids::{DocumentId, MessageId, Seq, SessionId};
use crate::knowledge::SearchHit;
use crate::session::FeedbackScore;
use crate::time::Timestamp;
use crate::tool::ClientToolDef;

/// Every error answer: `{"error": {"code", "message"}}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorBody {
    /// What went wrong.
    pub error: ErrorDetail,
}

/// The inside of an [`ErrorBody`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorDetail {
    /// The kind.
    pub code: ErrorCode,
    /// One line for people.
    pub message: String,
}

/// How a component is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum HealthStatus {
    /// Works.
    Up,
    /// Works in part.
    Degraded,
    /// Does not work.
    Down,
}

/// GET `/health`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// The worst of the components.
    pub status: HealthStatus,
    /// Each component.
    pub components: HealthComponents,
}

/// The components of [`Health`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HealthComponents {
    /// Accepts connections.
    pub server: HealthStatus,
    /// Stores.
    pub store: HealthStatus,
    /// Has an engine.
    pub engine: HealthStatus,
    /// Finds.
    pub knowledge: HealthStatus,
}

/// GET `/health/live`, GET `/health/ready`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Liveness {
    /// `UP` or `DOWN`.
    pub status: HealthStatus,
}

/// GET `/api/info`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerInfo {
    /// `tns`.
    pub name: String,
    /// The server's version.
    pub version: String,
    /// The protocol version.
    pub protocol: u64,
    /// Extensions beyond v1.
    pub extensions: Vec<String>,
    /// Sessions in memory.
    pub active_sessions: u64,
    /// Seconds since the start.
    pub uptime_seconds: u64,
    /// Whose models a new agent uses.
    pub default_provider: String,
    /// Which model a new agent uses.
    pub default_model: String,
    /// Why that provider was chosen.
    pub default_reason: String,
    /// The server's roots.
    pub workspaces: Vec<String>,
    /// Sizes that a client must keep.
    pub limits: ServerLimits,
}

/// Sizes that a client must keep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerLimits {
    /// Largest `chat`, `kb_add` and `mcp_result`, in bytes.
    pub max_message_bytes: u64,
    /// Largest frame of any other type, in bytes.
    pub max_small_message_bytes: u64,
}

/// POST `/api/sessions`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CreateSession {
    /// The id; absent: the server makes one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<SessionId>,
    /// A title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The folder that its tools work in; absent: the server's first root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// It lives in memory only, is in no list, and is gone a minute after its last client left.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub temp: bool,
    /// Most that the session may spend, in US dollars; absent: no more limit than the server's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<f64>,
}

/// PATCH `/api/sessions/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RenameSession {
    /// The title; null takes it away.
    #[serde(deserialize_with = "Option::deserialize")]
    pub title: Option<String>,
}

/// The answer to a [`RenameSession`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Renamed {
    /// The title that holds now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// When the session's log last grew.
    pub updated_at: Timestamp,
}

/// POST `/api/sessions/{id}/fork`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForkSession {
    /// The last place that is taken over; it must end a turn.
    pub at_seq: Seq,
    /// The new session's id; absent: the server makes one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<SessionId>,
    /// The new session's title; absent: the first one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// The answer to POST `/api/sessions/{id}/messages`: the message is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Accepted {
    /// The message, whose id names its turn.
    pub message_id: MessageId,
    /// Its place in the log.
    pub seq: Seq,
}

/// POST `/api/sessions/{id}/approvals/{toolCallId}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalAnswer {
    /// `approve`, `reject` or `always`; another word is `INVALID_DECISION`, and the call goes on waiting.
    pub decision: String,
    /// Why; the model reads it on reject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Run these arguments instead; they are rated first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited_args: Option<Map<String, Value>>,
}

/// The first event, `stream`, of GET `/api/sessions/{id}/events?tools=1`. It has no `id`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StreamOpened {
    /// The stream's name; only whoever reads it is told.
    pub stream: String,
}

/// POST `/api/sessions/{id}/tools`: replaces the tools of a stream's client, which is sent `mcp_call` on that stream and
/// nowhere else. They leave with the stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RegisterTools {
    /// The stream's name.
    pub stream: String,
    /// The whole set; an empty one takes it away.
    pub tools: Vec<ClientToolDef>,
}

/// POST `/api/sessions/{id}/tools/{toolCallId}/result`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ToolAnswer {
    /// The stream that was asked; absent: whichever stream of the session it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// Any JSON, null too; what is not text reaches the model as JSON text.
    #[serde(default, deserialize_with = "crate::tool::present", skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Value>,
}

/// GET `/api/sessions/search`: best first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SearchList {
    /// The hits.
    pub results: Vec<Found>,
    /// Give this as `cursor` for the next page; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// Every message can be found; false while some are being indexed, such as after an upgrade.
    pub complete: bool,
}

/// Where a hit was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FoundIn {
    /// The session's title.
    Title,
    /// A person's message.
    User,
    /// A reply.
    Assistant,
}

/// A message or a title that has all words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Found {
    /// The session.
    pub session_id: SessionId,
    /// Its title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What was found.
    pub found_in: FoundIn,
    /// The message's place; a title has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<Seq>,
    /// When the message was stored, or the session made.
    pub date: Timestamp,
    /// One line of text around the first match.
    pub snippet: String,
    /// How well it fits; comparable within one search only.
    pub score: f64,
}

/// Media types of a session's export in JSON Lines; the first is what the server writes.
pub const EXPORT_TYPES: [&str; 3] = ["application/jsonl", "application/x-ndjson", "application/ndjson"];

/// One row of GET `/api/sessions`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionSummary {
    /// The session.
    pub id: SessionId,
    /// Its title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When its log last grew.
    pub updated_at: Timestamp,
    /// The last event's place.
    pub head_seq: Seq,
    /// The folder that its tools work in.
    pub workspace: String,
}

/// GET `/api/sessions`: newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionList {
    /// The rows.
    pub sessions: Vec<SessionSummary>,
    /// Give this as `cursor` for the next page; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// GET `/api/sessions/{id}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionDetail {
    /// The session.
    pub id: SessionId,
    /// Its title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Lives in memory only.
    pub temp: bool,
    /// When it was made.
    pub created_at: Timestamp,
    /// When its log last grew.
    pub updated_at: Timestamp,
    /// The last event's place.
    pub head_seq: Seq,
    /// What its agents may do without asking.
    pub autonomy: AutonomyLevel,
    /// The folder that its tools work in.
    pub workspace: String,
    /// Its first agent's model takes pictures.
    pub supports_image_input: bool,
    /// Its first agent's model makes pictures.
    pub supports_image_output: bool,
    /// Its agents.
    pub agents: Vec<AgentInfo>,
    /// What waits for an answer.
    pub pending_approvals: Vec<ToolApproveRequest>,
    /// A turn runs.
    pub running: bool,
}

/// Who wrote a stored message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MessageRole {
    /// A person.
    User,
    /// An agent.
    Assistant,
    /// A tool.
    Tool,
}

/// One stored message of GET `/api/sessions/{id}/messages`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoredMessage {
    /// Its place in the log.
    pub seq: Seq,
    /// The turn it belongs to.
    pub turn_id: MessageId,
    /// Its id; a tool's result has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<MessageId>,
    /// What somebody thought of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feedback: Option<FeedbackScore>,
    /// Who wrote it.
    pub role: MessageRole,
    /// The agent, for a reply or a tool's result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The text, or the tool's result.
    pub content: String,
    /// The tool, for a result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// It was cut by a cancel or a failure, or the tool failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// When it was stored.
    pub created_at: Timestamp,
}

/// GET `/api/sessions/{id}/messages`: oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MessageList {
    /// The messages.
    pub messages: Vec<StoredMessage>,
    /// The log's last place.
    pub head_seq: Seq,
    /// There are more after the last one; ask with its `seq` as `afterSeq`.
    pub more: bool,
}

/// GET `/api/sessions/{id}/events?after=N&live=0`: the durable events as their frames.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventList {
    /// The frames, ascending by `seq`.
    pub events: Vec<Value>,
    /// The log's last place.
    pub head_seq: Seq,
    /// There are more; ask with the last `seq` as `after`.
    pub more: bool,
}

/// GET `/api/audit`: oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditList {
    /// The session; absent when the whole server was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// The entries.
    pub entries: Vec<AuditEntry>,
    /// How many.
    pub count: u64,
}

/// Which collection a document is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum KbScope {
    /// This session only.
    Session,
    /// Every session of the session's workspace.
    #[default]
    Project,
    /// Every session of the user.
    User,
}

/// POST `/api/kb`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KbAddRequest {
    /// The session whose collections are meant.
    pub session_id: SessionId,
    /// The text; blank is refused.
    pub content: String,
    /// Anything that should come back with a hit, such as `source`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// Which collection.
    #[serde(default)]
    pub scope: KbScope,
}

/// POST `/api/kb/search`, POST `/api/search`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SearchRequest {
    /// The session whose collections are searched.
    pub session_id: SessionId,
    /// The question or words; blank is refused.
    pub query: String,
    /// Most hits: 1 to 50, 5 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Lowest score: 0 to 1, 0 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
}

/// The answer to a [`SearchRequest`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SearchResponse {
    /// The hits, best first.
    pub results: Vec<SearchHit>,
    /// How many.
    pub count: u64,
}

/// The answer to POST `/api/kb`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KbAddResponse {
    /// The document.
    pub document_id: DocumentId,
    /// The same content was there already.
    pub duplicate: bool,
}
