//! Agents and the roster of a session. The first agent answers unless a message names another.

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tns_protocol::AgentId;
use uuid::Uuid;

use crate::engine::{Engine, EngineChoice};
use crate::prompt;

/// Most agents of a session.
pub const MAX_AGENTS: usize = 16;

/// What an agent is asked to be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewAgent {
    /// What it is.
    pub role: String,
    /// Its name; `None`: the role.
    pub name: Option<String>,
    /// What it is to reach; `roles` wins.
    pub goal: Option<String>,
    /// Its field; `roles` wins.
    pub domain: Option<String>,
    /// Several roles in one agent.
    pub roles: Vec<AgentRole>,
    /// Which engine it wants.
    pub engine: EngineChoice,
}

/// One of several roles of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentRole {
    /// The role's name.
    pub name: String,
    /// What it is to reach.
    pub goal: String,
    /// Its field.
    pub domain: String,
}

/// An agent of a session, as stored. Its engine is opened from `engine` when it is first needed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agent {
    /// `{name}-{8 hex digits}`.
    pub id: AgentId,
    /// Its name.
    pub name: String,
    /// What it is.
    pub role: String,
    /// What it is to reach.
    pub goal: Option<String>,
    /// Its field.
    pub domain: Option<String>,
    /// Its roles; empty for a single-role agent.
    pub roles: Vec<AgentRole>,
    /// Which engine it asked for.
    pub engine: EngineChoice,
    /// Whose model its engine was when it was last opened.
    pub provider: String,
    /// The model of its engine when it was last opened.
    pub model: String,
    /// Its system prompt, fixed when it was added.
    pub system: Arc<str>,
}

impl Agent {
    /// Makes an agent that joins `team`. Its id is `{name}-{8 hex digits}`; spaces are kept.
    pub(crate) fn new(new: &NewAgent, engine: &dyn Engine, team: &[Agent], workspace: &Path) -> Self {
        let name = new.name.clone().unwrap_or_else(|| new.role.clone());
        let alone = new.roles.is_empty();
        Self {
            id: agent_id(&name),
            role: new.role.clone(),
            goal: new.goal.clone().filter(|_| alone),
            domain: new.domain.clone().filter(|_| alone),
            roles: new.roles.clone(),
            engine: new.engine.clone(),
            provider: engine.provider().to_owned(),
            model: engine.model().to_owned(),
            system: prompt::system(new, &name, team, workspace),
            name,
        }
    }
}

fn agent_id(name: &str) -> AgentId {
    let hex = Uuid::new_v4().simple().to_string();
    match AgentId::parse(format!("{name}-{}", &hex[..8])) {
        Ok(id) => id,
        // Names are checked where they come in; the longest makes an id within the limit.
        Err(_) => agent_id("agent"),
    }
}
