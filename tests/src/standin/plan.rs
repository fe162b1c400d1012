//! What the stand-in answers, whatever the wire: text, calls, and what goes wrong. A plan comes from a
//! test, or from directives in the user's last words. It knows no provider.

use std::time::Duration;

use serde_json::{Value, json};

/// One answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    /// Pieces of text, each an event of its own.
    pub text: Vec<String>,
    /// Tools to call after the text, with their arguments.
    pub calls: Vec<(String, Value)>,
    /// What goes wrong.
    pub fault: Option<Fault>,
}

/// What goes wrong with an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Refused: too many requests; with the pause that is asked for.
    RateLimited(Option<Duration>),
    /// Refused: an error inside the provider.
    Broken,
    /// The text is written, then the stream tells of an overload.
    OverloadedInStream,
    /// The connection breaks after so many bytes of the body.
    Cut(usize),
    /// The text is written, then nothing comes until the client leaves.
    Stall,
    /// The first call's arguments are no JSON.
    BadArgs,
}

impl Plan {
    /// Plans text in these pieces.
    pub fn text(pieces: &[&str]) -> Self {
        Self { text: pieces.iter().map(|&piece| piece.to_owned()).collect(), ..Self::default() }
    }

    /// Plans another call.
    pub fn call(mut self, tool: &str, args: Value) -> Self {
        self.calls.push((tool.to_owned(), args));
        self
    }

    /// Plans a fault.
    pub fn fault(mut self, fault: Fault) -> Self {
        self.fault = Some(fault);
        self
    }

    /// Reads `[[text:…]]`, `[[tool:NAME {…}]]`, `[[fault:429 retry-after=2]]`, `[[fault:500]]`,
    /// `[[fault:overloaded-in-stream]]`, `[[fault:cut=N]]`, `[[fault:stall]]` and `[[fault:bad-args]]`
    /// anywhere in text; anything else there is passed over. Without a directive it answers `done`.
    pub fn from_words(words: &str) -> Self {
        let mut plan = Self::default();
        let mut rest = words;
        while let Some((_, after)) = rest.split_once("[[") {
            rest = plan.read(after).unwrap_or(after);
        }
        if plan.fault == Some(Fault::BadArgs) && plan.calls.is_empty() {
            plan = plan.call("shell", json!({ "command": "ls" }));
        }
        if plan.text.is_empty() && plan.calls.is_empty() {
            plan.text.push("done".to_owned());
        }
        plan
    }

    /// Reads one directive after its brackets and returns what follows it.
    fn read<'a>(&mut self, directive: &'a str) -> Option<&'a str> {
        if let Some(call) = directive.strip_prefix("tool:") {
            let (name, json) = call.split_once(' ')?;
            let mut values = serde_json::Deserializer::from_str(json).into_iter::<Value>();
            let args = values.next()?.ok().filter(Value::is_object)?;
            let rest = json.get(values.byte_offset()..)?.trim_start().strip_prefix("]]")?;
            self.calls.push((name.to_owned(), args));
            return Some(rest);
        }
        let (directive, rest) = directive.split_once("]]")?;
        if let Some(text) = directive.strip_prefix("text:") {
            self.text.push(text.to_owned());
        } else {
            self.fault = Some(read_fault(directive.strip_prefix("fault:")?)?);
        }
        Some(rest)
    }
}

fn read_fault(words: &str) -> Option<Fault> {
    match words.trim() {
        "429" => Some(Fault::RateLimited(None)),
        "500" => Some(Fault::Broken),
        "overloaded-in-stream" => Some(Fault::OverloadedInStream),
        "stall" => Some(Fault::Stall),
        "bad-args" => Some(Fault::BadArgs),
        words => match words.split_once('=')? {
            ("429 retry-after", seconds) => {
                Some(Fault::RateLimited(Some(Duration::from_secs(seconds.parse().ok()?))))
            }
            ("cut", bytes) => Some(Fault::Cut(bytes.parse().ok()?)),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_are_read_wherever_they_stand() {
        let words =
            r#"please [[text:a b]] and [[tool:x {"k": "]]"}]][[tool:y {} ]] [[other]] [[fault:cut=7]]"#;
        let plan = Plan::text(&["a b"]).call("x", json!({ "k": "]]" })).call("y", json!({}));
        assert_eq!(Plan::from_words(words), plan.fault(Fault::Cut(7)));
    }

    #[test]
    fn every_fault_has_a_directive() {
        for (words, fault) in [
            ("429", Fault::RateLimited(None)),
            ("429 retry-after=2", Fault::RateLimited(Some(Duration::from_secs(2)))),
            ("500", Fault::Broken),
            ("overloaded-in-stream", Fault::OverloadedInStream),
            ("stall", Fault::Stall),
            ("bad-args", Fault::BadArgs),
        ] {
            assert_eq!(Plan::from_words(&format!("[[fault:{words}]]")).fault, Some(fault));
        }
        assert_eq!(Plan::from_words("[[fault:cut=x]] [[tool:x [] ]] [["), Plan::text(&["done"]));
    }
}
