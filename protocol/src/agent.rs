//! Agents on the wire: adding, removing, the roster, their state.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::AgentId;

/// One of several roles that an agent plays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentRole {
    /// The role's name.
    pub name: String,
    /// What it is to reach.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub goal: String,
    /// Its field.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub domain: String,
}

/// `agent_add`: one more agent for the session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct AgentAdd {
    /// What the agent is: 1 to 64 characters, no control characters.
    pub role: String,
    /// Whose models; absent or blank: the server's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Which model; alone, a model of the default provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What it is to reach; `roles` wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
    /// Its field; `roles` wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Its name; absent: the role. 1 to 64 characters, no control characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Several roles in one agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roles: Option<Vec<AgentRole>>,
}

/// `agent_update` (extension `events.1`): changes an agent from its next turn on; its id stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentUpdate {
    /// Which agent.
    pub agent_id: AgentId,
    /// Whose models; absent: as before, unless `model` is given alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Which model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Its name: 1 to 64 characters, no control characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it is to reach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
}

/// `set_strategy` (extension `events.1`): how the agents of the session share the work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetStrategy {
    /// A [`Strategy`] by its wire name; others are refused.
    pub strategy: String,
}

/// `agent_remove`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentRemove {
    /// Which agent.
    pub agent_id: AgentId,
}

/// Whether an agent works on a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AgentStatus {
    /// Works on a reply.
    Thinking,
    /// Waits for a message.
    Idle,
}

/// `agent_state`: an agent's status changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentState {
    /// Which agent.
    pub agent_id: AgentId,
    /// Its status.
    pub status: AgentStatus,
    /// Its role.
    pub role: String,
    /// Whose models its live engine uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The model of its live engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// A finer state in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// One agent of the roster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentInfo {
    /// Its id.
    pub agent_id: AgentId,
    /// Its name.
    pub name: String,
    /// Its role.
    pub role: String,
    /// Its status.
    pub status: AgentStatus,
    /// Whose models its engine uses.
    pub provider: String,
    /// The model of its engine.
    pub model: String,
    /// What it is to reach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
    /// Its field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// The tools it is offered, by name.
    pub tools: Vec<String>,
    /// Its roles; empty for a single-role agent.
    pub roles: Vec<AgentRole>,
}

/// How the agents of a session share the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Strategy {
    /// The first agent answers, unless a message names another.
    #[default]
    Single,
}

/// `team_update`: the whole roster after a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TeamUpdate {
    /// All agents, the first one answers.
    pub agents: Vec<AgentInfo>,
    /// How they share the work.
    pub strategy: Strategy,
}
