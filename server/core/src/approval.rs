//! Vocabulary of approvals: grants, requests and audit records. `policy` decides, `broker` waits.

pub mod broker;
pub mod policy;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tns_protocol::approval::{AuditDecision, RiskClass};
use tns_protocol::{AgentId, Timestamp, ToolCallId};

use crate::store::hex;
use crate::tool::Args;

/// Most grants of a session; beyond, an `always` covers nothing and counts once.
pub const MAX_GRANTS: usize = 200;

/// What a person's `always` covers for the rest of the session. It never covers another class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The tool's name as offered.
    pub tool: String,
    /// The class that was approved.
    pub class: RiskClass,
    /// Which calls of the tool.
    pub covers: Coverage,
    /// What was to run, where that alone is covered: one line for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

/// Which calls of a tool a [`Grant`] covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Coverage {
    /// Every call of the granted class.
    Tool,
    /// Calls with this program and sub-command.
    Key(String),
    /// Calls with exactly these arguments: their digest.
    Exact(String),
    /// Calls of a client's tool while its name, description and schema have this digest.
    Pinned(String),
}

/// A call that waits for a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ApprovalRequest {
    /// The call.
    pub call: ToolCallId,
    /// Who calls.
    pub agent: AgentId,
    /// The tool's name as offered.
    pub tool: String,
    /// The class of its worst part.
    pub class: RiskClass,
    /// Why, one plain sentence each.
    pub reasons: Vec<String>,
    /// What would run.
    pub summary: String,
    /// What would change in files.
    pub diff: Option<String>,
    /// The arguments.
    pub args: Args,
    /// What `always` would cover.
    pub grant: Option<Grant>,
}

/// One decision about a call, recorded before the tool runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// The call.
    pub call: ToolCallId,
    /// Who called.
    pub agent: AgentId,
    /// The tool's name as offered.
    pub tool: String,
    /// The class of its worst part.
    pub class: RiskClass,
    /// Why it has that class.
    pub reasons: Vec<String>,
    /// How it was decided.
    pub decision: AuditDecision,
    /// The level, grant or principal that decided.
    pub by: String,
    /// When.
    pub at: Timestamp,
    /// What was to run.
    pub summary: String,
    /// SHA-256 of the canonical arguments, in hex.
    pub args_digest: String,
}

impl AuditRecord {
    /// Makes the record of how a waiting call was settled, now.
    pub(crate) fn of_request(request: &ApprovalRequest, decision: AuditDecision, by: &str) -> Self {
        Self {
            call: request.call.clone(),
            agent: request.agent.clone(),
            tool: request.tool.clone(),
            class: request.class,
            reasons: request.reasons.clone(),
            decision,
            by: by.to_owned(),
            at: Timestamp::now(),
            summary: request.summary.clone(),
            args_digest: args_digest(&request.args),
        }
    }
}

/// Returns the SHA-256 of the arguments as canonical JSON (keys sorted, no spaces), in hex.
pub fn args_digest(args: &Args) -> String {
    let mut text = String::new();
    write_object(&mut text, args);
    hex(&Sha256::digest(text.as_bytes()))
}

fn write_object(out: &mut String, object: &Args) {
    let mut members: Vec<_> = object.iter().collect();
    members.sort_unstable_by_key(|(key, _)| *key);
    out.push('{');
    for (at, (key, value)) in members.into_iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        out.push_str(&Value::from(key.as_str()).to_string());
        out.push(':');
        write_value(out, value);
    }
    out.push('}');
}

fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::Object(object) => write_object(out, object),
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_value(out, item);
            }
            out.push(']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            out.push_str(&value.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_does_not_depend_on_the_order_of_keys() {
        let args = |text: &str| serde_json::from_str::<Args>(text).unwrap();
        let one = args_digest(&args(r#"{"a":1,"b":{"x":[1,{"p":1,"q":2}],"y":2}}"#));
        assert_eq!(one, args_digest(&args(r#"{"b":{"y":2,"x":[1,{"q":2,"p":1}]},"a":1}"#)));
        assert_ne!(one, args_digest(&args(r#"{"a":1,"b":{"x":[{"p":1,"q":2},1],"y":2}}"#)));
    }
}
