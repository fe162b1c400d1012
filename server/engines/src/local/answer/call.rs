//! The calls within a tag: names and arguments out of the JSON that a model wrote. What can't be read is
//! handed on as it is, so that the model hears what was wrong with it. Pure.

use serde_json::{Deserializer, Map, Value};

/// A call as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Called {
    /// Empty where none was written.
    pub(super) name: String,
    /// JSON text, or what stands in its place.
    pub(super) arguments: String,
    /// It is what calls look like.
    pub(super) whole: bool,
}

impl Called {
    /// A call whose name can't be read.
    pub(super) fn nameless(written: &str) -> Self {
        Self { name: String::new(), arguments: written.trim().to_owned(), whole: false }
    }
}

/// A call that is being written.
#[derive(Debug, Clone, Copy)]
pub(super) enum Begin<'a> {
    Json(&'a str),
    /// Mistral's: JSON, or a name before its arguments.
    Named(&'a str),
    /// `NAME>JSON`.
    Function(&'a str),
}

/// Stands between name and arguments with newer Mistral models.
const ARGUMENTS: &str = "[ARGS]";
/// Stands between name and id with some of them.
const ID: &str = "[CALL_ID]";
/// Begins another call with them.
const AGAIN: &str = "[TOOL_CALLS]";
/// Longest begin of a call that is looked through for its name, in bytes.
const LOOKED_THROUGH: usize = 4_096;

/// Returns the name of the call that is being written, as soon as it stands there whole.
pub(super) fn early_name(begin: Begin<'_>) -> Option<String> {
    let name = match begin {
        Begin::Json(text) => json_name(text)?,
        Begin::Named(text)
            if text.trim_start().starts_with(['[', '{']) && !text.trim_start().starts_with(ARGUMENTS) =>
        {
            json_name(text)?
        }
        Begin::Named(text) => text.split_once(['[', '{'])?.0,
        Begin::Function(text) => text.split_once('>')?.0,
    };
    let name = name.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// Returns the name of an object, or of a list's first, that begins with it.
fn json_name(text: &str) -> Option<&str> {
    if text.len() > LOOKED_THROUGH {
        return None;
    }
    let text = text.trim_start();
    let text = text.strip_prefix('[').map_or(text, str::trim_start);
    let text = text.strip_prefix('{')?.trim_start().strip_prefix("\"name\"")?;
    let text = text.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    let (name, _) = text.split_once('"')?;
    (!name.contains('\\')).then_some(name)
}

/// Whether text that begins with a bracket may still become a call: its first key says so.
pub(super) fn may_be_bare(text: &str) -> bool {
    let mut rest = text;
    if let Some(list) = rest.strip_prefix('[') {
        rest = list.trim_start();
    }
    if rest.is_empty() {
        return true;
    }
    let Some(object) = rest.strip_prefix('{') else { return false };
    let key = object.trim_start();
    ["\"name\"", "\"type\"", "\"function\"", "\"parameters\"", "\"arguments\""]
        .iter()
        .any(|known| known.starts_with(key) || key.starts_with(known))
}

/// Returns the calls in a text of one JSON value or several, between which `;` and `,` may stand.
pub(super) fn calls(written: &str) -> Vec<Called> {
    let mut found = Vec::new();
    let mut rest = unfenced(written.trim());
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ';' || c == ',');
        if rest.is_empty() {
            return found;
        }
        let mut values = Deserializer::from_str(rest).into_iter::<Value>();
        match values.next() {
            Some(Ok(value)) => {
                let read = values.byte_offset();
                add(value, &mut found);
                rest = rest.get(read..).unwrap_or_default();
            }
            Some(Err(_)) | None => {
                let name = json_name(rest).unwrap_or_default().to_owned();
                found.push(Called { name, arguments: rest.to_owned(), whole: false });
                return found;
            }
        }
    }
}

/// Returns text without a fence of Markdown around it.
fn unfenced(text: &str) -> &str {
    let inner = text.strip_prefix("```").and_then(|text| text.strip_suffix("```"));
    inner.map_or(text, |inner| inner.strip_prefix("json").unwrap_or(inner).trim())
}

/// Adds the calls of a value.
fn add(value: Value, found: &mut Vec<Called>) {
    match value {
        Value::Array(values) => values.into_iter().for_each(|value| match value {
            Value::Object(call) => found.push(of(call)),
            other => found.push(Called::nameless(&other.to_string())),
        }),
        Value::Object(call) => found.push(of(call)),
        other => found.push(Called::nameless(&other.to_string())),
    }
}

/// Reads a call, in one of the forms in which models write them.
fn of(mut call: Map<String, Value>) -> Called {
    if let Some(Value::Object(function)) = call.get("function") {
        call = function.clone();
    }
    let name = match call.get("name").or_else(|| call.get("function")) {
        Some(Value::String(name)) => name.clone(),
        _ => String::new(),
    };
    let arguments = call.get("arguments").or_else(|| call.get("parameters"));
    let whole = !name.is_empty() && arguments.is_some();
    let arguments = match arguments {
        None | Some(Value::Null) => "{}".to_owned(),
        // Some write the arguments as a text of JSON.
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    Called { name, arguments, whole }
}

/// Reads Mistral's calls: a list, or a name before each call's arguments.
pub(super) fn named(written: &str) -> Vec<Called> {
    let trimmed = written.trim();
    if trimmed.is_empty() {
        return vec![Called::nameless("")];
    }
    if trimmed.starts_with(['[', '{']) && !trimmed.starts_with(ARGUMENTS) {
        return calls(trimmed);
    }
    let one = |text: &str| {
        let (name, arguments) = match text.split_once(ARGUMENTS) {
            Some(parts) => parts,
            None => text.split_at(text.find('{').unwrap_or(text.len())),
        };
        let name = name.split(ID).next().unwrap_or_default().trim();
        Called { name: name.to_owned(), arguments: arguments.trim().to_owned(), whole: !name.is_empty() }
    };
    trimmed.split(AGAIN).map(str::trim).filter(|text| !text.is_empty()).map(one).collect()
}

/// Reads `NAME>JSON`.
pub(super) fn function(written: &str) -> Called {
    let (name, arguments) = written.split_once('>').unwrap_or((written, ""));
    Called { name: name.trim().to_owned(), arguments: arguments.trim().to_owned(), whole: true }
}
