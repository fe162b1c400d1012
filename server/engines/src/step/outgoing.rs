//! Pieces of a request that are alike on most wires: ids, names, schemas, pictures as text. Pure.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};
use tns_protocol::ToolCallId;
use tns_server_core::message::{Image, ToolCall, ToolResult};

/// Most characters of a tool's name that providers take.
const MAX_NAME: usize = 64;
/// Most characters of a call's id that providers take.
const MAX_ID: usize = 64;

/// Returns the id under which a provider knows a call.
pub(crate) fn call_id(call: &ToolCall) -> &str {
    call.provider_id.as_deref().unwrap_or(call.id.as_str())
}

/// Returns the id of the call that a result answers, as its provider knows it.
pub(crate) fn result_id(result: &ToolResult) -> &str {
    result.provider_id.as_deref().unwrap_or(result.call.as_str())
}

/// The ids under which one request names its calls: the provider's own where it fits and no earlier call
/// has it, else ours. Some servers count their calls anew in every reply.
#[derive(Debug, Default)]
pub(crate) struct CallIds {
    sent: HashMap<ToolCallId, String>,
    taken: HashSet<String>,
}

impl CallIds {
    /// Names a call, once.
    pub(crate) fn name(&mut self, call: &ToolCall) -> String {
        let own = fitting(call_id(call), MAX_ID).into_owned();
        let id = if self.taken.contains(&own) { fitting(call.id.as_str(), MAX_ID).into_owned() } else { own };
        self.taken.insert(id.clone());
        self.sent.insert(call.id.clone(), id.clone());
        id
    }

    /// Notes a call that goes out under the provider's own id as it came.
    pub(crate) fn keep(&mut self, call: &ToolCall) {
        self.taken.insert(call_id(call).to_owned());
        self.sent.insert(call.id.clone(), call_id(call).to_owned());
    }

    /// Returns the name of the call that a result answers.
    pub(crate) fn answered(&self, result: &ToolResult) -> String {
        let sent = self.sent.get(&result.call).cloned();
        sent.unwrap_or_else(|| fitting(result_id(result), MAX_ID).into_owned())
    }
}

/// Returns a picture as a URL that holds its bytes.
pub(crate) fn data_url(image: &Image) -> String {
    format!("data:{};base64,{}", image.mime, image.data)
}

/// Returns what stands in for a picture where the model takes none.
pub(crate) fn picture_left_out(image: &Image) -> String {
    format!("(A picture, {}, is left out: this model takes none.)", image.mime)
}

/// Returns a name as providers take it, `[A-Za-z0-9_-]{1,64}`; a model may have called what was never
/// offered.
pub(crate) fn tool_name(name: &str) -> Cow<'_, str> {
    fitting(name, MAX_NAME)
}

/// Returns text of `[A-Za-z0-9_-]`, at most `limit` of them and at least one; what fits stays as it is.
pub(crate) fn fitting(text: &str, limit: usize) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if (1..=limit).contains(&text.len()) && text.chars().all(fits) {
        return Cow::Borrowed(text);
    }
    let fitted: String = text.chars().take(limit).map(|c| if fits(c) { c } else { '_' }).collect();
    Cow::Owned(if fitted.is_empty() { "_".to_owned() } else { fitted })
}

/// Words that providers refuse at the root of a tool's schema, and whether a value must fit every part of them.
const JOINED: [(&str, bool); 3] = [("anyOf", false), ("oneOf", false), ("allOf", true)];

/// Returns a schema whose root is an object with `properties` and no choice of schemas, without which some
/// providers refuse the whole request. What the parts of a choice say is joined: the arguments are checked against
/// the tool's own schema anyway, so this may say less than that, never more.
pub(crate) fn parameters(schema: &Value) -> Cow<'_, Value> {
    if schema.get("type").is_some_and(|kind| kind == "object")
        && schema.get("properties").is_some_and(Value::is_object)
        && JOINED.iter().all(|(word, _)| schema.get(word).is_none())
    {
        return Cow::Borrowed(schema);
    }
    let mut root = schema.as_object().cloned().unwrap_or_default();
    root.insert("type".to_owned(), Value::from("object"));
    let mut properties = match root.remove("properties") {
        Some(Value::Object(properties)) => properties,
        _ => Map::new(),
    };
    let mut required = names(root.remove("required").as_ref());
    for (word, every) in JOINED {
        let Some(Value::Array(parts)) = root.remove(word) else { continue };
        let parts: Vec<&Value> = parts.iter().map(|part| resolved(schema, part)).collect();
        for part in &parts {
            for (name, member) in part.get("properties").and_then(Value::as_object).into_iter().flatten() {
                properties.entry(name.clone()).or_insert_with(|| member.clone());
            }
        }
        let demands: Vec<Vec<String>> = parts.iter().map(|part| names(part.get("required"))).collect();
        for name in demands.iter().flatten() {
            let demanded = every || demands.iter().all(|all| all.contains(name));
            if demanded && !required.contains(name) {
                required.push(name.clone());
            }
        }
    }
    root.insert("properties".to_owned(), Value::Object(properties));
    if !required.is_empty() {
        root.insert("required".to_owned(), Value::from(required));
    }
    Cow::Owned(Value::Object(root))
}

fn names(required: Option<&Value>) -> Vec<String> {
    let names = required.and_then(Value::as_array).into_iter().flatten();
    names.filter_map(|name| name.as_str().map(str::to_owned)).collect()
}

/// Follows one reference inside the schema; one that leads nowhere stays as it is.
fn resolved<'a>(schema: &'a Value, part: &'a Value) -> &'a Value {
    let pointer = part.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
    pointer.and_then(|pointer| schema.pointer(pointer)).unwrap_or(part)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_id_that_an_earlier_call_has_is_replaced_for_call_and_result() {
        let call = |id: &str, provider_id: Option<&str>| ToolCall {
            id: ToolCallId::parse(id).unwrap(),
            provider_id: provider_id.map(Into::into),
            name: "t".into(),
            args: Map::new(),
            problem: None,
        };
        let result = |id: &str, provider_id: Option<&str>| ToolResult {
            call: ToolCallId::parse(id).unwrap(),
            provider_id: provider_id.map(Into::into),
            name: "t".into(),
            output: String::new(),
            is_error: false,
            untrusted_source: None,
        };
        let mut ids = CallIds::default();
        assert_eq!(ids.name(&call("a", Some("call_0"))), "call_0");
        assert_eq!(ids.name(&call("b", Some("call_0"))), "b");
        assert_eq!(ids.name(&call("c", Some("x.y/z"))), "x_y_z");
        ids.keep(&call("d", Some("toolu_1")));
        for (id, provider_id, sent) in [
            ("a", Some("call_0"), "call_0"),
            ("b", Some("call_0"), "b"),
            ("c", Some("x.y/z"), "x_y_z"),
            ("d", Some("toolu_1"), "toolu_1"),
            ("gone", None, "gone"),
        ] {
            assert_eq!(ids.answered(&result(id, provider_id)), sent);
        }
    }

    #[test]
    fn a_name_that_was_never_offered_is_made_to_fit() {
        assert_eq!(tool_name("mcp_a-b"), "mcp_a-b");
        assert_eq!(tool_name("a.b/ü"), "a_b__");
        assert_eq!(tool_name(""), "_");
        assert_eq!(tool_name(&"x".repeat(MAX_NAME + 1)).len(), MAX_NAME);
        assert_eq!(tool_name(&"x".repeat(MAX_NAME)).len(), MAX_NAME);
    }

    #[test]
    fn every_schema_has_an_object_with_properties_at_its_root() {
        for (schema, sent) in [
            (json!({"type": "object", "properties": {}}), json!({"type": "object", "properties": {}})),
            (json!({"type": "object"}), json!({"type": "object", "properties": {}})),
            (json!({}), json!({"type": "object", "properties": {}})),
            (json!(true), json!({"type": "object", "properties": {}})),
            (
                json!({"type": ["object"], "properties": null, "x": 1}),
                json!({"type": "object", "properties": {}, "x": 1}),
            ),
        ] {
            assert_eq!(*parameters(&schema), sent);
        }
    }

    #[test]
    fn a_choice_at_the_root_of_a_schema_is_joined() {
        let schema = json!({
            "$defs": { "Far": { "properties": { "c": { "type": "string" } }, "required": ["a", "c"] } },
            "properties": { "a": { "type": "integer" } },
            "oneOf": [{ "properties": { "b": { "type": "boolean" } }, "required": ["a", "b"] }, { "$ref": "#/$defs/Far" }],
        });
        let joined = parameters(&schema).into_owned();
        assert_eq!(joined["type"], "object");
        assert_eq!(
            joined["properties"],
            json!({ "a": { "type": "integer" }, "b": { "type": "boolean" }, "c": { "type": "string" } })
        );
        assert_eq!(joined["required"], json!(["a"]));
        assert!(JOINED.iter().all(|(word, _)| joined.get(word).is_none()));
        let every = json!({ "type": "object", "allOf": [{ "required": ["a"] }, { "required": ["b"] }] });
        assert_eq!(parameters(&every)["required"], json!(["a", "b"]));
        let plain = json!({ "type": "object", "properties": {}, "required": ["x"] });
        assert_eq!(*parameters(&plain), plain);
    }
}
