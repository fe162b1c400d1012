//! Conversation on the wire: a message, its reply, its end.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ids::{AgentId, ClientMessageId, MessageId};

/// `chat`: a message to the session's first agent, or to the named one.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Chat {
    /// The text; blank is refused.
    pub message: String,
    /// Address this agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    /// Makes a resend idempotent: the same id starts no second turn, and with other words is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_message_id: Option<ClientMessageId>,
    /// More parts than the text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<ContentPart>,
    /// Where the message comes from, when it is not the user's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<ChatContext>,
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum ContentPart {
    /// Words.
    Text {
        /// The words.
        text: String,
    },
    /// A picture.
    Image {
        /// Its media type, such as `image/png`.
        mime: String,
        /// Its bytes in base64.
        data: String,
    },
}

/// Who speaks in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Origin {
    /// The user.
    #[default]
    User,
    /// The system around the session.
    System,
    /// Something that happened.
    Event,
}

/// Where a message comes from. `SYSTEM` and `EVENT` reach the model marked as such.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChatContext {
    /// Who speaks.
    pub origin: Origin,
    /// What it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Which source sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_id: Option<String>,
    /// Anything more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
}

/// `cancel`: stops the running turn and settles what waits.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cancel {
    /// Only this agent's turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
}

/// `token`: a piece of the reply as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    /// Who writes.
    pub agent_id: AgentId,
    /// The piece.
    pub content: String,
    /// The reply that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_id: Option<MessageId>,
    /// Where the piece begins in the reply's text, in characters (Unicode scalar values).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
}

/// What a turn used.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// All input and output tokens of the whole tool loop.
    pub tokens: u64,
    /// US dollars; 0 where a model has no known price.
    pub cost: f64,
    /// Set when a part of the cost is not known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unpriced: bool,
}

/// Why a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model was done.
    End,
    /// The output limit was reached.
    MaxTokens,
    /// The model refused.
    Refusal,
    /// The turn used all its model calls.
    RoundLimit,
    /// The spending limit was reached.
    SpendCap,
}

/// `done`: the end of a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Done {
    /// What the turn used.
    pub usage: Usage,
    /// Why the reply ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// The turn was cancelled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancelled: bool,
}

/// `user_message` (extension `events.1`): a stored message of a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserMessage {
    /// Its id, which names the turn that answers it.
    pub message_id: MessageId,
    /// The text.
    pub message: String,
    /// More parts than the text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<ContentPart>,
    /// The agent it addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    /// The sender's own id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_message_id: Option<ClientMessageId>,
    /// Where it comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<ChatContext>,
    /// It waits for an earlier reply to end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub queued: bool,
    /// The reply that was being written when it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub during_response_id: Option<MessageId>,
}

/// `assistant_message` (extension `events.1`): one stored step of a reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AssistantMessage {
    /// Its id.
    pub message_id: MessageId,
    /// Who wrote it.
    pub agent_id: AgentId,
    /// The text.
    pub message: String,
    /// The model that wrote it.
    pub model: String,
    /// It was cut by a cancel or a failure.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    /// The reply that it is a step of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_id: Option<MessageId>,
}

/// `interrupted` (extension `events.1`): the stored end of a cancelled turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Interrupted {
    /// The turn.
    pub turn_id: MessageId,
    /// Why.
    pub reason: String,
    /// What the turn used.
    pub usage: Usage,
    /// The reply that was cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_id: Option<MessageId>,
}

/// `queue_update` (extension `events.1`): a waiting message was edited, removed or begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueUpdate {
    /// The waiting message.
    pub message_id: MessageId,
    /// Its new text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// It was taken out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
    /// Its turn has begun.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub started: bool,
}
