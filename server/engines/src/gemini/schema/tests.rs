//! Schemas as tools have them, and as they are sent.

use super::*;

fn sent(schema: &Value) -> Value {
    let sent = parameters(schema).unwrap().unwrap();
    assert_is_taken(&sent);
    sent
}

/// Refuses what the API refuses.
fn assert_is_taken(schema: &Value) {
    const KEYS: [&str; 14] = [
        "type",
        "format",
        "description",
        "nullable",
        "enum",
        "items",
        "properties",
        "required",
        "minimum",
        "maximum",
        "pattern",
        "minLength",
        "maxLength",
        "maxItems",
    ];
    let known = schema.as_object().unwrap();
    if let Some(variants) = known.get("anyOf") {
        assert_eq!(known.len(), 1, "{schema}");
        return variants.as_array().unwrap().iter().for_each(assert_is_taken);
    }
    assert!(known.keys().all(|key| KEYS.contains(&key.as_str())), "{schema}");
    let kind = known["type"].as_str().unwrap();
    assert!(["STRING", "NUMBER", "INTEGER", "BOOLEAN", "OBJECT", "ARRAY"].contains(&kind), "{schema}");
    assert_eq!(known.contains_key("items"), kind == "ARRAY", "{schema}");
    assert!(!known.contains_key("enum") || kind == "STRING", "{schema}");
    known.get("items").into_iter().for_each(assert_is_taken);
    let properties = known.get("properties").and_then(Value::as_object);
    properties.into_iter().flatten().for_each(|(_, property)| assert_is_taken(property));
    let required = known.get("required").and_then(Value::as_array).into_iter().flatten();
    assert!(required.into_iter().all(|name| properties.unwrap().contains_key(name.as_str().unwrap())));
}

/// Returns how a property with this schema is sent.
fn property(schema: &Value) -> Value {
    sent(&json!({"type": "object", "properties": {"p": schema}}))["properties"]["p"].take()
}

fn text_of(schema: &Value) -> String {
    sent(schema).to_string()
}

#[test]
fn references_are_replaced_by_what_they_name() {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": {"Q": {"type": "object", "properties": {"n": {"type": "integer", "enum": [1, 2]}}}},
        "type": "object",
        "properties": {"q": {"$ref": "#/$defs/Q", "description": "What to ask."}},
        "required": ["q", "gone"],
        "additionalProperties": false,
    });
    assert_eq!(
        sent(&schema),
        json!({
            "type": "OBJECT",
            "properties": {"q": {
                "type": "OBJECT",
                "properties": {"n": {"type": "INTEGER", "description": "One of: 1, 2."}},
                "description": "What to ask.",
            }},
            "required": ["q"],
        })
    );
    let root =
        json!({"$ref": "#/definitions/Q", "definitions": {"Q": {"properties": {"n": {"type": "string"}}}}});
    assert_eq!(sent(&root), json!({"type": "OBJECT", "properties": {"n": {"type": "STRING"}}}));
}

#[test]
fn a_schema_that_contains_itself_ends_at_a_fixed_depth() {
    let tree = json!({
        "type": "object",
        "properties": {"value": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#"}}},
    });
    let mut node = &sent(&tree);
    let mut depth = 0;
    while let Some(children) = node.pointer("/properties/children/items") {
        node = children;
        depth += 2;
    }
    assert_eq!((depth, node), (MAX_DEPTH, &json!({"type": "OBJECT"})));

    let many: Object = (0..50).map(|n| (format!("p{n}"), json!({"$ref": "#"}))).collect();
    let bush = json!({"type": "object", "properties": many});
    assert!(text_of(&bush).matches("OBJECT").count() < MAX_NODES + 50 * MAX_DEPTH + 2);
}

#[test]
fn what_no_value_fits_or_leads_nowhere_is_hopeless() {
    let with = |property: Value| json!({"type": "object", "properties": {"p": property}});
    for (schema, reason) in [
        (with(json!({"$ref": "#/$defs/Q"})), "it refers to \"#/$defs/Q\", which is not there"),
        (with(json!({"$ref": "https://example.org/q.json"})), "which is not there"),
        (with(json!({"$ref": 5})), "which is not there"),
        (with(json!({"allOf": [false]})), "fits no value"),
        (json!({"$ref": "#"}), "leads to itself"),
        (
            json!({"$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}, "$ref": "#/$defs/A"}),
            "leads to itself",
        ),
        (json!(false), "fits no value"),
        (json!({"type": "array", "items": {"type": "string"}}), "its root is no object"),
    ] {
        let refused = parameters(&schema).unwrap_err();
        assert!(refused.contains(reason), "{refused}");
    }
}

#[test]
fn a_tool_without_parameters_has_none() {
    for schema in [
        json!(null),
        json!(true),
        json!({}),
        json!({"type": "object"}),
        json!({"type": "object", "properties": {}, "additionalProperties": false}),
        json!({"type": "object", "properties": {"never": false}}),
        json!({"type": ["object", "null"]}),
    ] {
        assert_eq!(parameters(&schema), Ok(None), "{schema}");
    }
}

#[test]
fn null_makes_nullable() {
    let nullable = json!({"type": "STRING", "nullable": true});
    for schema in [
        json!({"type": ["string", "null"]}),
        json!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
        json!({"oneOf": [{"type": "null"}, {"type": "string"}]}),
        json!({"anyOf": [{"type": "string"}, {"const": null}]}),
        json!({"type": "string", "nullable": true}),
    ] {
        assert_eq!(property(&schema), nullable, "{schema}");
    }
    assert_eq!(
        property(&json!({"enum": ["a", null]})),
        json!({"type": "STRING", "enum": ["a"], "nullable": true})
    );
}

#[test]
fn a_choice_stands_alone_and_its_words_go_to_every_variant() {
    assert_eq!(
        property(&json!({
            "description": "Where.",
            "anyOf": [{"type": "string", "description": "A name."}, {"type": "integer"}, {"type": "null"}],
        })),
        json!({"anyOf": [
            {"type": "STRING", "description": "Where. A name.", "nullable": true},
            {"type": "INTEGER", "description": "Where.", "nullable": true},
        ]})
    );
    assert_eq!(
        property(&json!({"type": ["string", "integer"], "description": "Where.", "minLength": 1})),
        json!({"anyOf": [
            {"type": "STRING", "minLength": 1, "description": "Where."},
            {"type": "INTEGER", "description": "Where."},
        ]})
    );
    // What stands beside a choice holds for all of it, and a choice within a choice is one choice.
    assert_eq!(
        property(&json!({
            "type": "object",
            "properties": {"a": {"type": "string"}},
            "anyOf": [{"required": ["a"]}, {"anyOf": [{"type": "string"}, {"type": "boolean"}]}],
        })),
        json!({"anyOf": [
            {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}, "required": ["a"]},
            {"type": "STRING"},
            {"type": "BOOLEAN"},
        ]})
    );
}

#[test]
fn a_root_that_is_a_choice_becomes_one_object() {
    let schema = json!({
        "type": "object",
        "properties": {"id": {"type": "string"}},
        "required": ["id"],
        "oneOf": [
            {"properties": {"by": {"type": "string"}, "a": {"type": "integer"}}, "required": ["by", "a"]},
            {"properties": {"by": {"type": "string"}, "b": {"type": "boolean"}}, "required": ["b", "by"]},
        ],
    });
    assert_eq!(
        sent(&schema),
        json!({
            "type": "OBJECT",
            "properties": {
                "id": {"type": "STRING"},
                "by": {"type": "STRING"},
                "a": {"type": "INTEGER"},
                "b": {"type": "BOOLEAN"},
            },
            "required": ["id", "by"],
        })
    );
}

#[test]
fn all_of_is_joined() {
    assert_eq!(
        property(&json!({"allOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"properties": {"b": {"type": "number"}}, "required": ["b"]},
        ]})),
        json!({
            "type": "OBJECT",
            "properties": {"a": {"type": "STRING"}, "b": {"type": "NUMBER"}},
            "required": ["a", "b"],
        })
    );
}

#[test]
fn only_what_belongs_to_a_type_is_kept() {
    for (schema, kept) in [
        (json!({"type": "string", "properties": {"a": {}}, "items": {}}), json!({"type": "STRING"})),
        (
            json!({"type": "string", "format": "date-time", "pattern": "^a", "maxLength": 9, "minimum": 1}),
            json!({"type": "STRING", "format": "date-time", "pattern": "^a", "maxLength": 9}),
        ),
        (json!({"type": "string", "format": "uri", "minLength": -1}), json!({"type": "STRING"})),
        (
            json!({"type": "integer", "minimum": 1, "exclusiveMaximum": 9, "multipleOf": 2, "default": 3}),
            json!({"type": "INTEGER", "minimum": 1}),
        ),
        (
            json!({"type": "boolean", "const": true}),
            json!({"type": "BOOLEAN", "description": "One of: true."}),
        ),
        (json!({"const": "a"}), json!({"type": "STRING", "enum": ["a"]})),
        (json!({"enum": ["", "a"]}), json!({"type": "STRING", "description": "One of: \"\", \"a\"."})),
        (
            json!({"type": "array", "items": {"type": "string"}, "maxItems": 3, "uniqueItems": true}),
            json!({"type": "ARRAY", "maxItems": 3, "items": {"type": "STRING"}}),
        ),
        (
            json!({"type": "array", "prefixItems": [{"type": "string"}, {"type": "string"}]}),
            json!({"type": "ARRAY", "items": {"type": "STRING"}}),
        ),
        (json!({"type": "array"}), json!({"type": "ARRAY", "items": anything()})),
        (json!({"minimum": 0}), json!({"type": "NUMBER", "minimum": 0})),
        (json!({"type": "file"}), anything()),
        (json!({}), anything()),
        (json!(true), anything()),
    ] {
        assert_eq!(property(&schema), kept, "{schema}");
    }
}
