//! A tool's JSON Schema as Gemini takes it: a small subset, from which references, unions with null,
//! and keywords that it refuses are gone. Pure. What can't be said is said wider; the tool's own schema
//! still checks what comes.

use serde_json::{Map, Value, json};

/// Deepest nesting that is described; deeper parts keep their type alone. It is also where a schema
/// that contains itself ends.
const MAX_DEPTH: usize = 8;
/// Most schemas that one tool's is made of, for the same reason: a tree of references can grow fast.
const MAX_NODES: usize = 1000;
/// Most references that lead to one another.
const MAX_HOPS: usize = 16;

/// Formats that Gemini knows, by type.
const FORMATS: [(&str, &[&str]); 3] =
    [("STRING", &["enum", "date-time"]), ("NUMBER", &["float", "double"]), ("INTEGER", &["int32", "int64"])];
/// Keywords with a whole number that is not negative.
const COUNTS: [&str; 6] =
    ["minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"];

/// A JSON object.
type Object = Map<String, Value>;

/// Returns a tool's parameters; `None` for a tool that takes none.
///
/// # Errors
/// Why the schema is of no use to anybody: it refers to what is not there, or fits nothing.
pub(super) fn parameters(schema: &Value) -> Result<Option<Value>, String> {
    let mut writer = Writer { root: schema, nodes: 0 };
    let mut root = match schema {
        Value::Null | Value::Bool(true) => return Ok(None),
        schema => writer.flat(schema)?,
    };
    writer.join_variants(&mut root)?;
    let names_other = |kind: &Value| kind.as_str().is_some_and(|kind| kind != "object");
    if root.get("type").is_some_and(names_other) && !root.contains_key("properties") {
        return Err("its root is no object".to_owned());
    }
    root.insert("type".to_owned(), json!("object"));
    let written = writer.write_flat(root, 0)?;
    let has_properties =
        written.get("properties").and_then(Value::as_object).is_some_and(|all| !all.is_empty());
    Ok(has_properties.then_some(written))
}

/// Writes one tool's schema.
struct Writer<'a> {
    root: &'a Value,
    nodes: usize,
}

impl Writer<'_> {
    fn write(&mut self, schema: &Value, depth: usize) -> Result<Value, String> {
        self.nodes += 1;
        match schema {
            Value::Bool(false) => Err("a part of it fits no value".to_owned()),
            Value::Object(_) => {
                let flat = self.flat(schema)?;
                self.write_flat(flat, depth)
            }
            Value::Null | Value::Bool(true) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Ok(anything())
            }
        }
    }

    /// Returns a schema without `$ref` and `allOf`: what they say stands in it.
    fn flat(&self, schema: &Value) -> Result<Object, String> {
        self.flat_after(schema, 0)
    }

    fn flat_after(&self, schema: &Value, hops: usize) -> Result<Object, String> {
        if hops > MAX_HOPS {
            return Err("a reference in it leads to itself".to_owned());
        }
        let mut flat: Object = match schema {
            Value::Object(schema) => schema
                .iter()
                .filter(|(key, _)| !matches!(key.as_str(), "$defs" | "definitions"))
                .map(owned)
                .collect(),
            Value::Bool(false) => return Err("a part of it fits no value".to_owned()),
            Value::Null | Value::Bool(true) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Object::new()
            }
        };
        if let Some(reference) = flat.remove("$ref") {
            let target = self.target(&reference)?;
            merge(&mut flat, self.flat_after(target, hops + 1)?);
        }
        if let Some(Value::Array(all)) = flat.remove("allOf") {
            for part in &all {
                merge(&mut flat, self.flat_after(part, hops + 1)?);
            }
        }
        Ok(flat)
    }

    fn target(&self, reference: &Value) -> Result<&Value, String> {
        let pointer = reference.as_str().and_then(|reference| reference.strip_prefix('#'));
        let target = pointer.and_then(|pointer| self.root.pointer(pointer));
        target.ok_or_else(|| format!("it refers to {reference}, which is not there"))
    }

    /// Makes one object of a root that is a choice of objects: only what all variants demand is demanded.
    fn join_variants(&self, root: &mut Object) -> Result<(), String> {
        let variants = ["anyOf", "oneOf"].iter().find_map(|name| root.remove(*name));
        let Some(Value::Array(variants)) = variants else { return Ok(()) };
        let mut demanded: Option<Vec<Value>> = None;
        for variant in &variants {
            let variant = self.flat(variant)?;
            let demands = match variant.get("required") {
                Some(Value::Array(names)) => names.clone(),
                _ => Vec::new(),
            };
            demanded = Some(match demanded {
                None => demands,
                Some(names) => names.into_iter().filter(|name| demands.contains(name)).collect(),
            });
            let mut taken = Object::new();
            taken.extend(variant.into_iter().filter(|(key, _)| key == "properties"));
            merge(root, taken);
        }
        merge(root, Object::from_iter([("required".to_owned(), json!(demanded.unwrap_or_default()))]));
        Ok(())
    }

    fn write_flat(&mut self, mut schema: Object, depth: usize) -> Result<Value, String> {
        let (kinds, mut nullable) = kinds(&schema);
        nullable |= schema.get("nullable") == Some(&Value::Bool(true));
        let variants = ["anyOf", "oneOf"].iter().find_map(|name| match schema.remove(*name) {
            Some(Value::Array(variants)) if !variants.is_empty() => Some(variants),
            _ => None,
        });
        let mut written = if let Some(variants) = variants {
            self.one_of(&schema, variants, &mut nullable, depth)?
        } else if kinds.len() > 1 {
            let typed = kinds.iter().map(|kind| {
                let mut one = schema.clone();
                one.remove("description");
                one.insert("type".to_owned(), json!(kind));
                Value::Object(one)
            });
            self.one_of(&Object::new(), typed.collect(), &mut nullable, depth)?
        } else if let Some(kind) = kinds.first() {
            self.typed(&schema, kind, depth)?
        } else {
            anything()
        };
        describe(&mut written, schema.get("description").and_then(Value::as_str));
        if nullable {
            each_variant(&mut written, |variant| {
                variant.insert("nullable".to_owned(), Value::Bool(true));
            });
        }
        Ok(written)
    }

    /// Writes a choice. `anyOf` stands alone, since Gemini takes nothing beside it.
    fn one_of(
        &mut self,
        outer: &Object,
        variants: Vec<Value>,
        nullable: &mut bool,
        depth: usize,
    ) -> Result<Value, String> {
        let mut choices = Vec::new();
        for variant in variants {
            let mut variant = self.flat(&variant)?;
            if variant.get("type") == Some(&json!("null")) || variant.get("const") == Some(&Value::Null) {
                *nullable = true;
                continue;
            }
            // What stands beside the choice holds for every variant.
            merge(
                &mut variant,
                outer
                    .iter()
                    .filter(|(key, _)| !matches!(key.as_str(), "description" | "nullable"))
                    .map(owned)
                    .collect(),
            );
            if self.is_full(depth) {
                return Ok(anything());
            }
            self.nodes += 1;
            match self.write_flat(variant, depth + 1)? {
                Value::Object(mut written) if written.contains_key("anyOf") => {
                    if let Some(Value::Array(inner)) = written.remove("anyOf") {
                        choices.extend(inner);
                    }
                }
                written => choices.push(written),
            }
        }
        choices.dedup();
        Ok(match choices.len() {
            0 => anything(),
            1 => choices.remove(0),
            _ => json!({ "anyOf": choices }),
        })
    }

    fn typed(&mut self, schema: &Object, kind: &str, depth: usize) -> Result<Value, String> {
        let kind = kind.to_ascii_uppercase();
        let mut written = Object::from_iter([("type".to_owned(), json!(kind))]);
        if let Some(Value::String(format)) = schema.get("format")
            && FORMATS.iter().any(|(of, known)| *of == kind && known.contains(&format.as_str()))
        {
            written.insert("format".to_owned(), json!(format));
        }
        for (key, value) in schema {
            let kept = match key.as_str() {
                "minimum" | "maximum" => value.is_number(),
                "pattern" => value.is_string(),
                count => COUNTS.contains(&count) && value.as_u64().is_some_and(|count| count < 1 << 31),
            };
            if kept && belongs(key, &kind) {
                written.insert(key.clone(), value.clone());
            }
        }
        self.add_values(schema, &kind, &mut written);
        if self.is_full(depth) {
            if kind == "ARRAY" {
                written.insert("items".to_owned(), anything());
            }
            return Ok(Value::Object(written));
        }
        match kind.as_str() {
            "OBJECT" => self.add_properties(schema, &mut written, depth)?,
            "ARRAY" => {
                let items = match (schema.get("prefixItems"), schema.get("items")) {
                    (Some(Value::Array(each)), _) | (None, Some(Value::Array(each))) => {
                        self.one_of(&Object::new(), each.clone(), &mut false, depth)?
                    }
                    (_, Some(items @ Value::Object(_))) => self.write(items, depth + 1)?,
                    _ => anything(),
                };
                written.insert("items".to_owned(), items);
            }
            _ => {}
        }
        Ok(Value::Object(written))
    }

    /// Adds the values that are allowed: as `enum`, which is for strings only, or else in words.
    fn add_values(&self, schema: &Object, kind: &str, written: &mut Object) {
        let values = match (schema.get("enum"), schema.get("const")) {
            (Some(Value::Array(values)), _) => values.clone(),
            (_, Some(value)) => vec![value.clone()],
            _ => return,
        };
        let values: Vec<Value> = values.into_iter().filter(|value| !value.is_null()).collect();
        let fits = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
        if kind == "STRING" && values.iter().all(fits) && !values.is_empty() {
            written.insert("enum".to_owned(), Value::Array(values));
            return;
        }
        let words: Vec<String> = values.iter().map(Value::to_string).collect();
        if !words.is_empty() {
            written.insert("description".to_owned(), json!(format!("One of: {}.", words.join(", "))));
        }
    }

    fn add_properties(&mut self, schema: &Object, written: &mut Object, depth: usize) -> Result<(), String> {
        let mut properties = Object::new();
        for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            // One that may not be given at all.
            if *property != Value::Bool(false) {
                properties.insert(name.clone(), self.write(property, depth + 1)?);
            }
        }
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        let known = |name: &&Value| name.as_str().is_some_and(|name| properties.contains_key(name));
        let mut names: Vec<Value> = required.filter(known).cloned().collect();
        names.dedup();
        if !properties.is_empty() {
            written.insert("properties".to_owned(), Value::Object(properties));
        }
        if !names.is_empty() {
            written.insert("required".to_owned(), Value::Array(names));
        }
        Ok(())
    }

    fn is_full(&self, depth: usize) -> bool {
        depth >= MAX_DEPTH || self.nodes >= MAX_NODES
    }
}

/// Adds what `other` says: properties and demands are joined, else the first word counts.
fn merge(into: &mut Object, other: Object) {
    for (key, value) in other {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(mine)), Value::Object(theirs)) if key == "properties" => {
                for (name, property) in theirs {
                    mine.entry(name).or_insert(property);
                }
            }
            (Some(Value::Array(mine)), Value::Array(theirs)) if key == "required" => {
                mine.extend(theirs);
            }
            (Some(_), _) => {}
            (None, value) => {
                into.insert(key, value);
            }
        }
    }
}

/// Returns the types that a schema names or implies, and whether null is one of them.
fn kinds(schema: &Object) -> (Vec<String>, bool) {
    let named: Vec<&str> = match schema.get("type") {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let has_null = named.contains(&"null")
        || schema.get("enum").and_then(Value::as_array).is_some_and(|values| values.contains(&Value::Null));
    let known =
        |kind: &&str| matches!(*kind, "string" | "number" | "integer" | "boolean" | "object" | "array");
    let kinds: Vec<String> = named.iter().copied().filter(known).map(str::to_owned).collect();
    if kinds.is_empty() {
        (implied(schema).into_iter().map(str::to_owned).collect(), has_null)
    } else {
        (kinds, has_null)
    }
}

fn implied(schema: &Object) -> Option<&'static str> {
    let values = match (schema.get("enum"), schema.get("const")) {
        (Some(Value::Array(values)), _) => values.as_slice(),
        (_, Some(value)) => std::slice::from_ref(value),
        _ => &[],
    };
    match values.iter().find(|value| !value.is_null()) {
        Some(Value::String(_)) => return Some("string"),
        Some(Value::Number(number)) => return Some(if number.is_f64() { "number" } else { "integer" }),
        Some(Value::Bool(_)) => return Some("boolean"),
        _ => {}
    }
    let has = |keys: &[&str]| keys.iter().any(|key| schema.contains_key(*key));
    if has(&["properties", "required"]) {
        Some("object")
    } else if has(&["items", "prefixItems", "minItems", "maxItems"]) {
        Some("array")
    } else if has(&["pattern", "minLength", "maxLength", "format"]) {
        Some("string")
    } else if has(&["minimum", "maximum"]) {
        Some("number")
    } else {
        None
    }
}

fn belongs(key: &str, kind: &str) -> bool {
    match key {
        "minimum" | "maximum" => matches!(kind, "NUMBER" | "INTEGER"),
        "pattern" | "minLength" | "maxLength" => kind == "STRING",
        "minItems" | "maxItems" => kind == "ARRAY",
        "minProperties" | "maxProperties" => kind == "OBJECT",
        _ => false,
    }
}

/// Returns the schema of any value, lists excepted; Gemini wants a type everywhere.
fn anything() -> Value {
    json!({ "anyOf": [{ "type": "STRING" }, { "type": "NUMBER" }, { "type": "BOOLEAN" }, { "type": "OBJECT" }] })
}

/// Puts words before what a schema already says of itself.
fn describe(schema: &mut Value, words: Option<&str>) {
    let Some(words) = words.map(str::trim).filter(|words| !words.is_empty()) else { return };
    each_variant(schema, |variant| {
        let whole = match variant.get("description").and_then(Value::as_str) {
            Some(own) => format!("{words} {own}"),
            None => words.to_owned(),
        };
        variant.insert("description".to_owned(), Value::String(whole));
    });
}

fn each_variant(schema: &mut Value, mut change: impl FnMut(&mut Object)) {
    let Value::Object(schema) = schema else { return };
    match schema.get_mut("anyOf") {
        Some(Value::Array(variants)) => variants.iter_mut().filter_map(Value::as_object_mut).for_each(change),
        _ => change(schema),
    }
}

fn owned((key, value): (&String, &Value)) -> (String, Value) {
    (key.clone(), value.clone())
}

#[cfg(test)]
mod tests;
