//! Every event of the wire, as two enums. Variants only; payloads live in their area's file.
//!
//! Adding an event: its payload in its area's file, one line here, one sample under `tests/golden/`.
//! The compiler then names the places that translate it.

use schemars::{Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::agent::{AgentAdd, AgentRemove, AgentState, AgentUpdate, SetStrategy, TeamUpdate};
use crate::approval::{
    AuditEntry, AutonomyChanged, RulesList, RulesListResult, RulesRemove, RulesUpdate, SetAutonomy,
    ToolApprovalResolved, ToolApprove, ToolApproveRequest,
};
use crate::chat::{AssistantMessage, Cancel, Chat, Done, Interrupted, QueueUpdate, Token, UserMessage};
use crate::error::ErrorEvent;
use crate::knowledge::{
    IndexDone, IndexProgress, IndexStart, KbAdd, KbAdded, KbList, KbListResult, KbRemove, KbRemoved,
    KbSearch, KbSearchResult,
};
use crate::live::{
    ImageDelta, Notice, ReasoningDelta, ReasoningStart, ResponseEnd, ResponseStart, ToolOutput, ToolPending,
};
use crate::log::{
    Compaction, Hello, HistoryGet, HistorySync, Lagged, Resume, Resumed, ResyncRequired, Welcome,
};
use crate::session::{
    Compact, Feedback, FeedbackStored, QueueEdit, QueueList, QueueListResult, QueueRemove, SessionClosing,
    SessionDelete, SessionFork, SessionForked, SessionList, SessionListResult, SessionRename, SessionUpdated,
};
use crate::tool::{McpCall, McpResult, McpTools, ToolResult, ToolStart};

/// The name and payload schema of one event.
pub(crate) type EventSchema = (&'static str, fn(&mut SchemaGenerator) -> Schema);

macro_rules! messages {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $wire:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        #[allow(missing_docs, reason = "each payload type documents its event")]
        pub enum $name {
            $($variant($variant),)*
            /// An event that a newer peer sends: its name. Never an error.
            Unknown(String),
        }

        impl $name {
            /// Every event's wire name, in the order of the protocol page.
            pub const TYPES: &'static [&'static str] = &[$($wire),*];

            /// Every event with the schema of its payload.
            pub(crate) const SCHEMAS: &'static [EventSchema] =
                &[$(($wire, |generator| generator.subschema_for::<$variant>())),*];

            /// Returns the event's wire name.
            pub fn type_name(&self) -> &str {
                match self {
                    $(Self::$variant(_) => $wire,)*
                    Self::Unknown(name) => name,
                }
            }

            /// Reads the payload of the event named `type_name` with `read`.
            pub(crate) fn read<E>(type_name: &str, reader: impl ReadPayload<Error = E>) -> Result<Self, E> {
                match type_name {
                    $($wire => reader.read().map(Self::$variant),)*
                    other => Ok(Self::Unknown(other.to_owned())),
                }
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Self::$variant(payload) => payload.serialize(serializer),)*
                    Self::Unknown(_) => serde_json::Map::new().serialize(serializer),
                }
            }
        }

        $(impl From<$variant> for $name {
            fn from(payload: $variant) -> Self {
                Self::$variant(payload)
            }
        })*
    };
}

/// A frame's text that turns into whichever payload its `type` names.
pub(crate) trait ReadPayload {
    type Error;
    fn read<T: DeserializeOwned>(self) -> Result<T, Self::Error>;
}

impl ReadPayload for &RawValue {
    type Error = serde_json::Error;
    fn read<T: DeserializeOwned>(self) -> Result<T, Self::Error> {
        serde_json::from_str(self.get())
    }
}

impl ReadPayload for serde_json::Map<String, serde_json::Value> {
    type Error = serde_json::Error;
    fn read<T: DeserializeOwned>(self) -> Result<T, Self::Error> {
        serde_json::from_value(serde_json::Value::Object(self))
    }
}

messages! {
    /// What a client asks. The types of extension `events.1` are at the end; any connection may send them.
    ClientMessage {
        Chat = "chat",
        AgentAdd = "agent_add",
        AgentRemove = "agent_remove",
        ToolApprove = "tool_approve",
        Cancel = "cancel",
        McpTools = "mcp_tools",
        McpResult = "mcp_result",
        SetAutonomy = "set_autonomy",
        KbAdd = "kb_add",
        KbSearch = "kb_search",
        KbList = "kb_list",
        KbRemove = "kb_remove",
        Hello = "hello",
        Resume = "resume",
        HistoryGet = "history_get",
        AgentUpdate = "agent_update",
        SetStrategy = "set_strategy",
        SessionList = "session_list",
        SessionRename = "session_rename",
        SessionDelete = "session_delete",
        SessionFork = "session_fork",
        QueueList = "queue_list",
        QueueRemove = "queue_remove",
        QueueEdit = "queue_edit",
        Feedback = "feedback",
        Compact = "compact",
        RulesList = "rules_list",
        RulesRemove = "rules_remove",
    }
}

messages! {
    /// What the server says. The types of extension `events.1` are at the end; a strict v1
    /// connection is never sent one.
    ServerMessage {
        Token = "token",
        ToolStart = "tool_start",
        ToolApproveRequest = "tool_approve_request",
        ToolResult = "tool_result",
        AgentState = "agent_state",
        TeamUpdate = "team_update",
        Done = "done",
        ErrorEvent = "error",
        McpCall = "mcp_call",
        IndexStart = "index_start",
        IndexProgress = "index_progress",
        IndexDone = "index_done",
        AutonomyChanged = "autonomy_changed",
        AuditEntry = "audit_entry",
        KbAdded = "kb_added",
        KbSearchResult = "kb_search_result",
        KbListResult = "kb_list_result",
        KbRemoved = "kb_removed",
        UserMessage = "user_message",
        AssistantMessage = "assistant_message",
        ToolApprovalResolved = "tool_approval_resolved",
        Interrupted = "interrupted",
        QueueUpdate = "queue_update",
        Welcome = "welcome",
        HistorySync = "history_sync",
        Resumed = "resumed",
        ResyncRequired = "resync_required",
        Lagged = "lagged",
        ResponseStart = "response_start",
        ResponseEnd = "response_end",
        ReasoningStart = "reasoning_start",
        ReasoningDelta = "reasoning_delta",
        ImageDelta = "image_delta",
        ToolPending = "tool_pending",
        ToolOutput = "tool_output",
        Notice = "notice",
        Compaction = "compaction",
        SessionUpdated = "session_updated",
        SessionClosing = "session_closing",
        SessionListResult = "session_list_result",
        SessionForked = "session_forked",
        QueueListResult = "queue_list_result",
        FeedbackStored = "feedback_stored",
        RulesUpdate = "rules_update",
        RulesListResult = "rules_list_result",
    }
}

impl ClientMessage {
    /// How many of [`Self::TYPES`] belong to protocol v1; the rest are of extension `events.1`.
    pub const V1_TYPES: usize = 12;

    /// Whether the event belongs to extension `events.1`.
    pub fn is_extension(&self) -> bool {
        Self::TYPES[Self::V1_TYPES..].contains(&self.type_name())
    }
}

impl ServerMessage {
    /// How many of [`Self::TYPES`] belong to protocol v1; the rest are of extension `events.1`.
    pub const V1_TYPES: usize = 18;
}
