//! Tools on the wire: a running call, its result, and the tools that a client runs.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::approval::Risk;
use crate::ids::{AgentId, ToolCallId};

/// `tool_start`: a call runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolStart {
    /// Who called.
    pub agent_id: AgentId,
    /// The call.
    pub tool_call_id: ToolCallId,
    /// The tool's name as offered to the model.
    pub tool: String,
    /// The arguments that run.
    pub args: Map<String, Value>,
    /// The coarse label.
    pub risk: Risk,
}

/// `tool_result`: a call ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolResult {
    /// Who called.
    pub agent_id: AgentId,
    /// The call.
    pub tool_call_id: ToolCallId,
    /// The tool's name as offered to the model.
    pub tool: String,
    /// How long it ran, in whole milliseconds.
    pub duration: u64,
    /// Its output, cut to the server's limit.
    pub result: String,
    /// It failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// The output was longer than the limit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// The call did not run, and this is what the model was told. Only connections with `events.1` are sent it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
}

/// A tool that the connection runs itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientToolDef {
    /// The client's server that has the tool.
    pub server: String,
    /// The tool's bare name.
    pub name: String,
    /// What it does, for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema of its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Value>,
    /// Hints; they may only raise the risk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Value>,
}

/// `mcp_tools`: replaces this connection's tools for the session; an empty list removes them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct McpTools {
    /// The whole set.
    pub tools: Vec<ClientToolDef>,
}

/// `mcp_call`: run this tool; sent only to the connection that registered it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpCall {
    /// The call to answer.
    pub tool_call_id: ToolCallId,
    /// The client's server that has the tool.
    pub server: String,
    /// The tool's bare name.
    pub tool: String,
    /// The arguments.
    pub args: Map<String, Value>,
}

/// `mcp_result`: the answer to an `mcp_call`, one of `result` and `error`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpResult {
    /// The call.
    pub tool_call_id: ToolCallId,
    /// Any JSON, null too; what is not text reaches the model as JSON text.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Value>,
}

/// Reads a field that is there, so that null is a value and not an absence.
pub(crate) fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_of_null_is_a_result() {
        let read = |text: &str| serde_json::from_str::<McpResult>(text).unwrap().result;
        assert_eq!(read(r#"{"toolCallId":"c","result":null}"#), Some(Value::Null));
        assert_eq!(read(r#"{"toolCallId":"c"}"#), None);
    }
}
