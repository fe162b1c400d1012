//! What is shown of a reply while it is written (extension `events.1`); none of it is stored.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, MessageId, ToolCallId};

/// What a reply is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ResponseType {
    /// Words.
    Text,
    /// A picture.
    Image,
}

/// `response_start`: an agent begins a reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResponseStart {
    /// The reply.
    pub response_id: MessageId,
    /// Who writes.
    pub agent_id: AgentId,
    /// What it is made of.
    pub response_type: ResponseType,
}

/// `response_end`: the reply is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResponseEnd {
    /// The reply.
    pub response_id: MessageId,
    /// Who wrote it.
    pub agent_id: AgentId,
}

/// `reasoning_start`: the model thinks before it goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReasoningStart {
    /// The reply.
    pub response_id: MessageId,
    /// Who thinks.
    pub agent_id: AgentId,
}

/// `reasoning_delta`: a piece of the model's reasoning; never part of the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReasoningDelta {
    /// The reply.
    pub response_id: MessageId,
    /// Who thinks.
    pub agent_id: AgentId,
    /// The piece.
    pub content: String,
}

/// `image_delta`: a piece of a picture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageDelta {
    /// The reply.
    pub response_id: MessageId,
    /// Who draws.
    pub agent_id: AgentId,
    /// Its media type, such as `image/png`.
    pub mime: String,
    /// The piece in base64.
    pub data: String,
}

/// `tool_pending`: the model begins to write a call; its arguments are not there yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolPending {
    /// The reply.
    pub response_id: MessageId,
    /// Who calls.
    pub agent_id: AgentId,
    /// The tool's name.
    pub tool: String,
}

/// `tool_output`: what a running tool has written so far, piece by piece; its `tool_result` has all of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolOutput {
    /// Who called.
    pub agent_id: AgentId,
    /// The running call.
    pub tool_call_id: ToolCallId,
    /// The piece.
    pub content: String,
}

/// How much a notice matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NoticeLevel {
    /// For whoever wonders.
    Info,
    /// Something does not go as it should, and goes on.
    Warning,
}

/// `notice`: something that people may want to know, such as that a provider asked to wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Notice {
    /// How much it matters.
    pub level: NoticeLevel,
    /// One line.
    pub message: String,
    /// The agent it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
}
