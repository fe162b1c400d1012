//! Arguments against a JSON Schema. A schema may come from a client, so it never fetches a reference and
//! never runs a pattern that can backtrack.

use jsonschema::error::ValidationErrorKind;
use jsonschema::{Draft, PatternOptions, ValidationError};
use serde_json::Value;
use tns_server_core::tool::{Args, ArgumentCheck};

/// Longest problem that is handed to a model, in characters.
const MAX_PROBLEM_CHARS: usize = 300;

/// Most bytes that one compiled pattern of a schema may take.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// Checks arguments with the `jsonschema` crate: draft 2020-12 unless the schema names another.
#[derive(Debug, Clone, Copy, Default)]
pub struct SchemaCheck;

impl ArgumentCheck for SchemaCheck {
    fn check(&self, schema: &Value, args: &Args) -> Result<(), String> {
        let draft = Draft::default().detect(schema);
        let validator = jsonschema::options()
            .with_draft(draft)
            .offline()
            .with_pattern_options(PatternOptions::regex().size_limit(MAX_PATTERN_BYTES))
            .build(schema)
            .map_err(|error| one_line(&format!("the tool's schema can't be used: {}", error.masked())))?;
        let instance = Value::Object(args.clone());
        match validator.validate(&instance) {
            Ok(()) => Ok(()),
            Err(error) => Err(one_line(&problem(&error))),
        }
    }
}

/// Says what is wrong and where, without repeating the value.
fn problem(error: &ValidationError<'_>) -> String {
    match error.kind() {
        ValidationErrorKind::Required { property } => {
            let name = property.as_str().map_or_else(|| property.to_string(), str::to_owned);
            format!("{} lacks the required `{name}`", place(error))
        }
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            format!("{} has unknown fields: `{}`", place(error), unexpected.join("`, `"))
        }
        _ => {
            let text = error.masked_with("the value").to_string();
            format!("{}: {text}", place(error))
        }
    }
}

/// Names the part of the arguments that an error is about.
fn place(error: &ValidationError<'_>) -> String {
    let path = error.instance_path().as_str().trim_start_matches('/').replace('/', ".");
    if path.is_empty() { "the arguments object".to_owned() } else { format!("argument `{path}`") }
}

/// Makes one line of at most [`MAX_PROBLEM_CHARS`] characters.
fn one_line(text: &str) -> String {
    let flat: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match flat.char_indices().nth(MAX_PROBLEM_CHARS) {
        Some((end, _)) => format!("{}…", &flat[..end]),
        None => flat,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(schema: Value, args: Value) -> Result<(), String> {
        let Value::Object(args) = args else { panic!("arguments are an object") };
        SchemaCheck.check(&schema, &args)
    }

    fn schema() -> Value {
        json!({
            "type": "object",
            "properties": {"path": {"type": "string", "maxLength": 4}, "n": {"type": "integer", "minimum": 1}},
            "required": ["path"],
            "additionalProperties": false,
        })
    }

    #[test]
    fn valid_arguments_pass() {
        assert_eq!(check(schema(), json!({"path": "a", "n": 1})), Ok(()));
    }

    #[test]
    fn each_problem_is_one_line_that_names_the_field() {
        for (args, wanted) in [
            (json!({}), "the arguments object lacks the required `path`"),
            (json!({"path": "a", "x": 1}), "the arguments object has unknown fields: `x`"),
            (json!({"path": 3}), "argument `path`: the value is not of type \"string\""),
            (json!({"path": "a", "n": 0}), "argument `n`: the value is less than the minimum of 1"),
            (json!({"path": "abcde"}), "argument `path`: the value is longer than 4 characters"),
        ] {
            assert_eq!(check(schema(), args).unwrap_err(), wanted);
        }
    }

    #[test]
    fn a_huge_wrong_value_does_not_come_back_in_the_problem() {
        let problem = check(schema(), json!({"path": "secret".repeat(10_000)})).unwrap_err();
        assert!(!problem.contains("secretsecret"), "{problem}");
        let long = "f\n".repeat(1_000);
        let problem = check(schema(), json!({"path": "a", long: 1})).unwrap_err();
        assert_eq!(problem.chars().count(), MAX_PROBLEM_CHARS + 1);
        assert!(!problem.contains('\n'));
    }

    #[test]
    fn a_schema_with_a_remote_or_file_reference_is_refused_without_fetching() {
        for target in ["http://127.0.0.1:1/s.json", "https://example.com/s.json", "file:///etc/passwd"] {
            let problem = check(json!({"type": "object", "$ref": target}), json!({})).unwrap_err();
            assert!(problem.starts_with("the tool's schema can't be used"), "{problem}");
        }
    }

    #[test]
    fn local_references_and_2020_12_keywords_work() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {"pair": {"$ref": "#/$defs/pair"}},
            "$defs": {"pair": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]}},
        });
        assert_eq!(check(schema.clone(), json!({"pair": ["a", 1]})), Ok(()));
        assert!(check(schema, json!({"pair": ["a", "b"]})).unwrap_err().starts_with("argument `pair.1`"));
    }

    #[test]
    fn a_pattern_that_would_backtrack_ends_quickly() {
        let schema = json!({"type": "object", "properties": {"a": {"pattern": "^(a+)+$"}}});
        assert!(check(schema, json!({"a": format!("{}b", "a".repeat(50_000))})).is_err());
    }
}
