//! What one provider's format is to the stand-in, and the checks that several formats share.

use std::fmt::Debug;
use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::conversation::Turn;
use super::memory::Memory;
use super::plan::{Fault, Plan};

/// A request, as a wire's check sees it.
#[derive(Debug)]
pub(super) struct Incoming<'a> {
    pub(super) path: &'a str,
    pub(super) query: &'a str,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: &'a Value,
    pub(super) memory: &'a Memory,
}

/// What a right request says.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) model: String,
    pub(super) turns: Vec<Turn>,
    /// The reply begins with reasoning.
    pub(super) thinks: bool,
}

/// What is to be written.
#[derive(Debug)]
pub(super) struct Answer<'a> {
    pub(super) plan: &'a Plan,
    pub(super) model: &'a str,
    pub(super) thinks: bool,
    /// No other answer has it.
    pub(super) serial: u64,
}

impl Answer<'_> {
    /// Whether this goes wrong.
    pub(super) fn has(&self, fault: Fault) -> bool {
        self.plan.fault == Some(fault)
    }

    /// Returns the text of a call's arguments: whole, or of the first call what the plan says.
    pub(super) fn arguments(&self, at: usize) -> String {
        let mut text = self.plan.calls.get(at).map(|(_, args)| args.to_string()).unwrap_or_default();
        if at == 0
            && let Some(raw) = &self.plan.raw_arguments
        {
            return raw.clone();
        }
        if at == 0 && self.has(Fault::BadArgs) {
            text.pop();
        }
        text
    }

    /// Returns the same as JSON, where it is.
    pub(super) fn argument_json(&self, at: usize) -> Option<String> {
        let text = self.arguments(at);
        serde_json::from_str::<IgnoredAny>(&text).is_ok().then_some(text)
    }

    /// Returns the tokens to report, input and output; `usual` are the wire's own figures.
    pub(super) fn usage(&self, usual: (u64, u64)) -> (u64, u64) {
        self.plan.usage.unwrap_or(usual)
    }
}

/// Stands for a call's arguments until its event is written, since they may be what no value holds.
pub(super) const ARGUMENTS: &str = "<arguments>";

/// Puts JSON text in place of [`ARGUMENTS`].
pub(super) fn with_arguments(event: &str, json: &str) -> String {
    event.replace(&format!("\"{ARGUMENTS}\""), json)
}

/// An answer in a provider's format.
#[derive(Debug)]
pub(super) struct Written {
    /// The events, each as it goes over the line.
    pub(super) events: Vec<String>,
    /// How many of them come before the first call or the end.
    pub(super) before_calls: usize,
    /// The blocks to remember; none where nothing was signed.
    pub(super) signed: Vec<Value>,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy)]
pub(super) enum Trouble<'a> {
    /// With the key that came, if any did.
    BadKey(&'a str),
    NoCredit,
    /// What is wrong with the request.
    Malformed(&'a str),
    RateLimited(Option<Duration>),
    Overloaded,
    /// The request is longer than the model takes.
    TooLong,
    Broken,
}

/// A provider's format.
pub(super) trait Wire: Debug + Send + Sync {
    /// The provider's id, as configuration names it.
    fn provider(&self) -> &'static str;
    /// Whether a request without a key is refused.
    fn wants_key(&self) -> bool {
        true
    }
    /// Returns the key of a request.
    fn key(&self, headers: &HeaderMap) -> Option<String> {
        let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
        value.strip_prefix("Bearer ").map(str::to_owned)
    }
    /// Reads a request; the error is what the provider's 400 says.
    fn read(&self, incoming: &Incoming<'_>) -> Result<Heard, String>;
    /// Writes an answer.
    fn write(&self, answer: &Answer<'_>) -> Written;
    /// Writes the event by which a stream tells of a refusal.
    fn in_stream(&self, refusal: &Value) -> String;
    /// Returns the status and body of a refusal.
    fn refusal(&self, trouble: Trouble<'_>) -> (u16, Value);
    /// The type of a streamed body.
    fn content_type(&self) -> &'static str {
        "text/event-stream"
    }
}

/// Returns a field that must be text.
pub(super) fn text<'a>(value: &'a Value, name: &str) -> Result<&'a str, String> {
    value[name].as_str().ok_or_else(|| format!("{name}: Input should be a valid string, in {value}"))
}

/// Returns a field that must be a list.
pub(super) fn list<'a>(value: &'a Value, name: &str) -> Result<&'a Vec<Value>, String> {
    value[name].as_array().ok_or_else(|| format!("{name}: Input should be a valid list, in {value}"))
}

/// Returns a list that may be absent, but not empty.
pub(super) fn optional_list<'a>(value: &'a Value, name: &str) -> Result<&'a [Value], String> {
    match value.get(name) {
        None => Ok(&[]),
        Some(Value::Array(items)) if !items.is_empty() => Ok(items),
        Some(other) => Err(format!("{name}: should have at least 1 item, is {other}")),
    }
}

/// Checks a header's exact value.
pub(super) fn header(headers: &HeaderMap, name: &str, value: &str) -> Result<(), String> {
    match headers.get(name).and_then(|found| found.to_str().ok()) {
        Some(found) if found == value => Ok(()),
        found => Err(format!("{name}: header must be {value}, is {found:?}")),
    }
}

/// Checks that a stream is asked for.
pub(super) fn streams(body: &Value) -> Result<(), String> {
    if body["stream"] == true { Ok(()) } else { Err("stream: must be true here".to_owned()) }
}

/// Checks text that must be a JSON object, as the arguments of a call are.
pub(super) fn object_text(arguments: &str) -> Result<(), String> {
    match serde_json::from_str(arguments) {
        Ok(Value::Object(_)) => Ok(()),
        _ => Err(format!("arguments: must be a JSON object in a string, is {arguments:?}")),
    }
}

/// Checks a tool's name and schema as OpenAI and Anthropic do: `[a-zA-Z0-9_-]{1,64}`, an object with
/// properties at the root and no choice there.
pub(super) fn tool(name: &str, schema: &Value) -> Result<(), String> {
    tool_name(name)?;
    let is_object = schema["type"] == "object" && schema["properties"].is_object();
    let choices = ["oneOf", "anyOf", "allOf", "enum", "not"];
    if !is_object || choices.iter().any(|choice| schema.get(choice).is_some()) {
        return Err(format!(
            "Invalid schema for function '{name}': schema must have type 'object' and not have {choices:?} at \
            the top level: {schema}"
        ));
    }
    Ok(())
}

/// Checks a tool's name.
pub(super) fn tool_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if (1..=64).contains(&name.len()) && name.chars().all(fits) {
        return Ok(());
    }
    Err(format!("tools.name: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$', is {name:?}"))
}

/// Checks that no two tools have one name.
pub(super) fn distinct(mut names: Vec<&str>) -> Result<(), String> {
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("tools: Tool names must be unique: {}", pair[0])),
        None => Ok(()),
    }
}

/// Divides text in two at a character.
pub(super) fn halves(text: &str) -> [&str; 2] {
    let middle = (0..=text.len() / 2).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    let (head, tail) = text.split_at(middle);
    [head, tail]
}

/// Returns a server-sent event without a name.
pub(super) fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}
