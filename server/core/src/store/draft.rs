//! What is written of a step that runs: it is in no event yet, and people have seen it.

use serde::{Deserialize, Serialize};
use tns_protocol::{AgentId, MessageId};

/// Which step of which reply is being written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DraftStep {
    /// The turn.
    pub turn: MessageId,
    /// The reply.
    pub response: MessageId,
    /// Who writes.
    pub agent: AgentId,
    /// With which model.
    pub model: String,
    /// Steps of the reply that are stored before it.
    pub after: usize,
}

/// What is written of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// Which step.
    pub step: DraftStep,
    /// What is written of it.
    pub text: String,
}
