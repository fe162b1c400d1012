//! The one list of error codes, and the error event.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Every error code of the protocol. A code is stable; the message beside it is for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ErrorCode {
    /// `v` is missing, or is not the number 1.
    ProtocolMismatch,
    /// The agent was not added; nothing changed.
    AgentAddFailed,
    /// The frame is not a JSON object in a text frame.
    InvalidJson,
    /// A field is missing or wrong; the message names it.
    InvalidMessage,
    /// The `type` is not known to this server.
    UnknownType,
    /// No agent of the session has this id.
    AgentNotFound,
    /// The agent was not removed: a session keeps at least one.
    AgentRemoveFailed,
    /// No pending call has this id: never asked, already settled, or another session's.
    UnknownToolCall,
    /// The decision is none of `approve`, `reject`, `always`; the call stays pending.
    InvalidDecision,
    /// The level is none of `FULL_AUTO`, `SUPERVISED`, `CAUTIOUS`, `MANUAL`.
    InvalidAutonomyLevel,
    /// The provider refused the key.
    BadKey,
    /// The provider's account has no credit left.
    NoCredit,
    /// The provider asks to slow down.
    RateLimited,
    /// The provider can't be reached or is overloaded.
    ProviderUnavailable,
    /// The provider answered with an error that retrying won't mend.
    ProviderError,
    /// The provider's stream ended before its end mark; what was shown is kept as interrupted.
    StreamIncomplete,
    /// The conversation is longer than the model takes.
    ContextOverflow,
    /// The turn used all its model calls without an answer.
    RoundLimit,
    /// The spending limit is reached; no call was made.
    SpendCap,
    /// A client-side tool did not answer in time.
    McpTimeout,
    /// A client-side tool failed.
    McpError,
    /// The knowledge base failed; what it held before is unchanged.
    KbError,
    /// Indexing failed; the earlier index is unchanged.
    IndexFailed,
    /// An index run is already going on.
    IndexBusy,
    /// The message is larger than its limit.
    PayloadTooLarge,
    /// The session's queue of waiting messages is full.
    QueueFull,
    /// A limit of the server is reached; the message names it.
    Limit,
    /// The disk is full; nothing was acknowledged.
    StorageFull,
    /// The store is busy; nothing was acknowledged, try again.
    StorageBusy,
    /// Who connects is not known.
    Unauthorized,
    /// Who connects may not do this.
    Forbidden,
    /// No session has this id.
    SessionNotFound,
    /// The server was restarted while the turn ran.
    ServerRestarted,
    /// REST only: no such path or thing.
    NotFound,
    /// REST only: the operation is not offered by this server.
    NotImplemented,
    /// A bug of the server; its log says more.
    Internal,
}

impl ErrorCode {
    /// Returns the code as it stands on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ProtocolMismatch => "PROTOCOL_MISMATCH",
            Self::AgentAddFailed => "AGENT_ADD_FAILED",
            Self::InvalidJson => "INVALID_JSON",
            Self::InvalidMessage => "INVALID_MESSAGE",
            Self::UnknownType => "UNKNOWN_TYPE",
            Self::AgentNotFound => "AGENT_NOT_FOUND",
            Self::AgentRemoveFailed => "AGENT_REMOVE_FAILED",
            Self::UnknownToolCall => "UNKNOWN_TOOL_CALL",
            Self::InvalidDecision => "INVALID_DECISION",
            Self::InvalidAutonomyLevel => "INVALID_AUTONOMY_LEVEL",
            Self::BadKey => "BAD_KEY",
            Self::NoCredit => "NO_CREDIT",
            Self::RateLimited => "RATE_LIMITED",
            Self::ProviderUnavailable => "PROVIDER_UNAVAILABLE",
            Self::ProviderError => "PROVIDER_ERROR",
            Self::StreamIncomplete => "STREAM_INCOMPLETE",
            Self::ContextOverflow => "CONTEXT_OVERFLOW",
            Self::RoundLimit => "ROUND_LIMIT",
            Self::SpendCap => "SPEND_CAP",
            Self::McpTimeout => "MCP_TIMEOUT",
            Self::McpError => "MCP_ERROR",
            Self::KbError => "KB_ERROR",
            Self::IndexFailed => "INDEX_FAILED",
            Self::IndexBusy => "INDEX_BUSY",
            Self::PayloadTooLarge => "PAYLOAD_TOO_LARGE",
            Self::QueueFull => "QUEUE_FULL",
            Self::Limit => "LIMIT",
            Self::StorageFull => "STORAGE_FULL",
            Self::StorageBusy => "STORAGE_BUSY",
            Self::Unauthorized => "UNAUTHORIZED",
            Self::Forbidden => "FORBIDDEN",
            Self::SessionNotFound => "SESSION_NOT_FOUND",
            Self::ServerRestarted => "SERVER_RESTARTED",
            Self::NotFound => "NOT_FOUND",
            Self::NotImplemented => "NOT_IMPLEMENTED",
            Self::Internal => "INTERNAL",
        }
    }
}

/// Something went wrong. With `seq` it ends its turn. Without one it answers a request, which it names as
/// `refType`; or, with neither, its turn could not be stored and ends all the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErrorEvent {
    /// One line for people that says what to do.
    pub message: String,
    /// What kind of error it is; left out by servers that know none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
    /// The `type` of the request that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ref_type: Option<String>,
}
