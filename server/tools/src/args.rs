//! From a call's arguments to a tool's own struct. It checks nothing that the schema already checks.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tns_protocol::approval::RiskClass;
use tns_server_core::tool::{Args, Rating};

/// Reads arguments into `T`.
///
/// # Errors
/// One line that names the problem; it occurs only where the schema was not checked before.
pub(crate) fn parse<T: DeserializeOwned>(args: &Args) -> Result<T, String> {
    serde_json::from_value(Value::Object(args.clone())).map_err(|error| format!("bad arguments: {error}"))
}

/// Returns the rating of a call whose arguments can't be read.
pub(crate) fn unreadable(tool: &str, problem: String) -> Rating {
    Rating::new(RiskClass::Unknown, problem, tool)
}

/// Returns a schema of an object that takes these properties and no others.
pub(crate) fn closed_object(properties: Value, required: &[&str]) -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}
