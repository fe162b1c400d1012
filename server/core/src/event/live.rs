//! What is shown of a session and not stored.

use std::sync::Arc;

use tns_protocol::{AgentId, MessageId, ToolCallId};

use super::TurnFailed;
use crate::agent::Agent;

/// An event that is shown and not stored.
#[derive(Debug, Clone, PartialEq)]
pub enum LiveEvent {
    /// A piece of a reply.
    Token {
        /// Who writes.
        agent: AgentId,
        /// The piece.
        text: String,
        /// The reply.
        response: MessageId,
        /// Where the piece begins in the reply's text, in characters.
        index: u64,
    },
    /// An agent begins a reply.
    ResponseStarted {
        /// Who writes.
        agent: AgentId,
        /// The reply.
        response: MessageId,
    },
    /// The reply is over.
    ResponseEnded {
        /// Who wrote.
        agent: AgentId,
        /// The reply.
        response: MessageId,
    },
    /// The model thinks before it goes on.
    ReasoningStarted {
        /// Who thinks.
        agent: AgentId,
        /// The reply.
        response: MessageId,
    },
    /// A piece of the model's reasoning.
    Reasoning {
        /// Who thinks.
        agent: AgentId,
        /// The piece.
        text: String,
        /// The reply.
        response: MessageId,
    },
    /// The model begins to write a call.
    ToolPending {
        /// Who calls.
        agent: AgentId,
        /// The tool's name as offered.
        tool: String,
        /// The reply.
        response: MessageId,
    },
    /// What a running tool has written.
    ToolOutput {
        /// Who called.
        agent: AgentId,
        /// The running call.
        call: ToolCallId,
        /// The piece.
        text: String,
    },
    /// Something that people may want to know.
    Notice {
        /// The agent it is about.
        agent: AgentId,
        /// One line.
        text: String,
    },
    /// An agent's status.
    AgentState {
        /// The agent.
        agent: Arc<Agent>,
        /// Whether it works on a reply.
        thinking: bool,
        /// A finer state in words.
        detail: Option<String>,
    },
    /// An error that could not be stored, since the store failed.
    Failed(TurnFailed),
}
