//! Approvals on the wire: risk, level, request, decision, audit.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ids::{AgentId, RuleId, ToolCallId};
use crate::time::Timestamp;

/// What a call may do, ascending; a call has the highest class of its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RiskClass {
    /// Reads the workspace; changes nothing.
    ReadOnly,
    /// A known build, test, lint or check runner; runs the project's code by design.
    BuildTest,
    /// A recoverable change inside the workspace.
    Write,
    /// Reads secrets, the environment, or outside the workspace.
    Sensitive,
    /// Talks beyond the machine.
    Network,
    /// Runs code that the call does not show.
    Exec,
    /// Irreversible loss, persistence, writes out of scope, the agent's own rules.
    Destructive,
    /// Not fully understood: the highest class that may still be asked.
    Unknown,
    /// A change of privilege, or the server's own controls: always rejected, never asked.
    Escalation,
}

impl RiskClass {
    /// Every class, ascending.
    pub const ALL: [Self; 9] = [
        Self::ReadOnly,
        Self::BuildTest,
        Self::Write,
        Self::Sensitive,
        Self::Network,
        Self::Exec,
        Self::Destructive,
        Self::Unknown,
        Self::Escalation,
    ];

    /// Returns the coarse label that strict v1 clients show.
    pub fn label(self) -> Risk {
        match self {
            Self::ReadOnly | Self::BuildTest => Risk::Low,
            Self::Write | Self::Network => Risk::Medium,
            Self::Sensitive | Self::Exec | Self::Destructive | Self::Unknown => Risk::High,
            Self::Escalation => Risk::Critical,
        }
    }

    /// Returns the class as it stands on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "READ_ONLY",
            Self::BuildTest => "BUILD_TEST",
            Self::Write => "WRITE",
            Self::Sensitive => "SENSITIVE",
            Self::Network => "NETWORK",
            Self::Exec => "EXEC",
            Self::Destructive => "DESTRUCTIVE",
            Self::Unknown => "UNKNOWN",
            Self::Escalation => "ESCALATION",
        }
    }
}

/// The coarse risk label of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Risk {
    /// Reads, builds, tests.
    Low,
    /// Writes inside the workspace, talks to the network.
    Medium,
    /// Secrets, hidden code, loss, or not understood.
    High,
    /// A change of privilege.
    Critical,
}

/// How much a session's agents may do without asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum AutonomyLevel {
    /// Everything but an escalation runs unasked; needs a sandbox.
    FullAuto,
    /// Reading runs unasked, and building and testing in a trusted workspace.
    #[default]
    Supervised,
    /// Only reading runs unasked.
    Cautious,
    /// Everything asks.
    Manual,
}

impl AutonomyLevel {
    /// Every level, from the freest.
    pub const ALL: [Self; 4] = [Self::FullAuto, Self::Supervised, Self::Cautious, Self::Manual];

    /// Returns the level as it stands on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FullAuto => "FULL_AUTO",
            Self::Supervised => "SUPERVISED",
            Self::Cautious => "CAUTIOUS",
            Self::Manual => "MANUAL",
        }
    }

    /// Returns the level with this wire name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == text)
    }
}

/// A person's answer to an approval request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// Run this call, this once.
    Approve,
    /// Don't run it; the model reads why.
    Reject,
    /// Run it, and what the risk class allows to cover, for the rest of the session.
    Always,
}

impl Decision {
    /// Returns the decision with this wire name.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "approve" => Some(Self::Approve),
            "reject" => Some(Self::Reject),
            "always" => Some(Self::Always),
            _ => None,
        }
    }

    /// Returns the decision as it stands on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Reject => "reject",
            Self::Always => "always",
        }
    }
}

/// How a call was decided, as the audit records it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuditDecision {
    /// The autonomy level lets it pass.
    AutoApproved,
    /// A person approved it once.
    Approved,
    /// A person approved it and what it covers.
    Always,
    /// An earlier `always` or a rule covers it.
    Trusted,
    /// A person rejected it.
    Rejected,
    /// It is never allowed, or a rule denies it.
    Blocked,
    /// The turn was cancelled while it waited.
    Cancelled,
    /// Nobody answered in time.
    Timeout,
}

impl AuditDecision {
    /// Returns the decision as it stands on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AutoApproved => "auto_approved",
            Self::Approved => "approved",
            Self::Always => "always",
            Self::Trusted => "trusted",
            Self::Rejected => "rejected",
            Self::Blocked => "blocked",
            Self::Cancelled => "cancelled",
            Self::Timeout => "timeout",
        }
    }
}

/// `tool_approve`: a client's answer. `decision` is text here, so that a wrong one can be told apart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolApprove {
    /// The pending call.
    pub tool_call_id: ToolCallId,
    /// `approve`, `reject` or `always`.
    pub decision: String,
    /// Why; goes to the model on reject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Run these arguments instead; they are rated first, and ask again where they are riskier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited_args: Option<Map<String, Value>>,
}

/// `set_autonomy`. `level` is text here, so that a wrong one can be told apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetAutonomy {
    /// `FULL_AUTO`, `SUPERVISED`, `CAUTIOUS` or `MANUAL`.
    pub level: String,
}

/// `autonomy_changed`: holds for every agent of the session from the next call on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AutonomyChanged {
    /// The level that holds now.
    pub level: AutonomyLevel,
}

/// `tool_approve_request`: a call waits for a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolApproveRequest {
    /// Who asks.
    pub agent_id: AgentId,
    /// The call to answer.
    pub tool_call_id: ToolCallId,
    /// The tool's name as offered to the model.
    pub tool: String,
    /// The coarse label.
    pub risk: Risk,
    /// What would run, rendered by the server from the exact bytes; no model text in it.
    pub summary: String,
    /// The fine class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk_class: Option<RiskClass>,
    /// Why it has that class, one plain sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// The arguments, whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Map<String, Value>>,
    /// What would change in files, as a unified diff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// What `always` would cover; absent where it would cover nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub always_covers: Option<String>,
    /// When it is rejected by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// `tool_approval_resolved` (extension `events.1`): the request is settled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolApprovalResolved {
    /// The call.
    pub tool_call_id: ToolCallId,
    /// How it was settled.
    pub decision: AuditDecision,
    /// Who settled it: a principal, or `server`.
    pub by: String,
}

/// What a rule does with the calls that it covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RuleEffect {
    /// They run unasked.
    Allow,
}

/// How long a rule holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RuleScope {
    /// In its session, until it is taken back.
    Session,
}

/// A rule about calls. An `always` makes one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// Names it.
    pub rule_id: RuleId,
    /// What it does.
    pub effect: RuleEffect,
    /// The tool's name as offered to the model.
    pub tool: String,
    /// The class of the calls; one of another class is never covered.
    pub risk_class: RiskClass,
    /// How long it holds.
    pub scope: RuleScope,
    /// Which calls it covers, in words.
    pub covers: String,
}

/// `rules_list` (extension `events.1`): which rules hold in the session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RulesList {}

/// `rules_list_result`: the answer to `rules_list`, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RulesListResult {
    /// The rules.
    pub rules: Vec<Rule>,
}

/// `rules_remove` (extension `events.1`): takes a rule back. What it covered asks again from the next call on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RulesRemove {
    /// The rule.
    pub rule_id: RuleId,
}

/// `rules_update` (extension `events.1`): a rule holds from now on, or no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RulesUpdate {
    /// The rule.
    pub rule: Rule,
    /// It holds no more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
    /// Who made it or took it back: a principal.
    pub by: String,
}

/// `audit_entry`: one decision, recorded before the tool runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    /// The call.
    pub tool_call_id: ToolCallId,
    /// Who called.
    pub agent_id: AgentId,
    /// The tool's name as offered to the model.
    pub tool: String,
    /// The coarse label.
    pub risk: Risk,
    /// The fine class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk_class: Option<RiskClass>,
    /// How it was decided.
    pub decision: AuditDecision,
    /// When.
    pub timestamp: Timestamp,
    /// What was to run, shortened.
    pub summary: String,
    /// The level, rule or person that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_names_agree_with_serde() {
        for class in RiskClass::ALL {
            assert_eq!(serde_json::to_value(class).unwrap(), class.as_str());
        }
        for level in AutonomyLevel::ALL {
            assert_eq!(serde_json::to_value(level).unwrap(), level.as_str());
            assert_eq!(AutonomyLevel::parse(level.as_str()), Some(level));
        }
        for decision in [Decision::Approve, Decision::Reject, Decision::Always] {
            assert_eq!(serde_json::to_value(decision).unwrap(), decision.as_str());
            assert_eq!(Decision::parse(decision.as_str()), Some(decision));
        }
    }
}
