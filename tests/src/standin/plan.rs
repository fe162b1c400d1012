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
    /// In place of the first call's arguments: this text, whether it is JSON or not.
    pub raw_arguments: Option<String>,
    /// The input and output tokens to report; `None`: figures of the wire's own.
    pub usage: Option<(u64, u64)>,
    /// What goes wrong.
    pub fault: Option<Fault>,
}

/// What goes wrong with an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Refused: too many requests; with the pause that is asked for.
    RateLimited(Option<Duration>),
    /// The same, with the pause as the date of its end, where it stands in a header.
    RateLimitedUntil(Duration),
    /// Refused: something about the request, which no pause would change, although one is named.
    Refused,
    /// Sent elsewhere.
    Redirected,
    /// Refused: the request is too long for the model.
    TooLong,
    /// Refused: an error inside the provider.
    Broken,
    /// The stream tells of an overload and of nothing else.
    OverloadedAtOnce,
    /// The stream tells that the request is too long for the model, and of nothing else.
    TooLongAtOnce,
    /// The text is written, then the stream tells of an overload.
    OverloadedInStream,
    /// The connection breaks after so many bytes of the body.
    Cut(usize),
    /// The connection breaks after the text.
    CutAfterText,
    /// The text is written, then nothing comes until the client leaves.
    Stall,
    /// Nothing comes after so many bytes of the body.
    StallAfter(usize),
    /// Everything is written, and the connection stays.
    HeldOpen,
    /// Each byte is a write of its own.
    OneByteWrites,
    /// The first call's arguments are no JSON.
    BadArgs,
    /// What ends the answer comes twice; in Chat Completions with the calls and the usage.
    FinishTwice,
    /// Usage is reported with every piece of text as well, as it runs up, where the wire has a place for it.
    RunningUsage,
    /// In Chat Completions: no piece of a call says which call it is of.
    NoIndex,
    /// In Chat Completions: calls have no ids.
    NoIds,
    /// In Chat Completions: the end mark comes without a reason for the end.
    NoFinish,
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

    /// Plans this text as the first call's arguments.
    pub fn raw_arguments(mut self, text: &str) -> Self {
        self.raw_arguments = Some(text.to_owned());
        self
    }

    /// Plans the input and output tokens that are reported.
    pub fn usage(mut self, input: u64, output: u64) -> Self {
        self.usage = Some((input, output));
        self
    }

    /// Plans a fault.
    pub fn fault(mut self, fault: Fault) -> Self {
        self.fault = Some(fault);
        self
    }

    /// Reads `[[text:…]]`, `[[tool:NAME {…}]]` and `[[fault:…]]` anywhere in text; anything else there is
    /// passed over. Without a directive it answers `done`. The faults are `429`, `429 retry-after=SECONDS`,
    /// `429 until=SECONDS`, `400`, `500`, `too-long`, `too-long-at-once`, `redirect`, `overloaded-at-once`,
    /// `overloaded-in-stream`,
    /// `cut=BYTES`, `cut-after-text`, `stall`, `stall-after=BYTES`, `held-open`, `one-byte-writes`,
    /// `bad-args`, `finish-twice`, `running-usage`, `no-index`, `no-ids` and `no-finish`.
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
        "400" => Some(Fault::Refused),
        "500" => Some(Fault::Broken),
        "too-long" => Some(Fault::TooLong),
        "too-long-at-once" => Some(Fault::TooLongAtOnce),
        "redirect" => Some(Fault::Redirected),
        "overloaded-at-once" => Some(Fault::OverloadedAtOnce),
        "overloaded-in-stream" => Some(Fault::OverloadedInStream),
        "cut-after-text" => Some(Fault::CutAfterText),
        "stall" => Some(Fault::Stall),
        "held-open" => Some(Fault::HeldOpen),
        "one-byte-writes" => Some(Fault::OneByteWrites),
        "bad-args" => Some(Fault::BadArgs),
        "finish-twice" => Some(Fault::FinishTwice),
        "running-usage" => Some(Fault::RunningUsage),
        "no-index" => Some(Fault::NoIndex),
        "no-ids" => Some(Fault::NoIds),
        "no-finish" => Some(Fault::NoFinish),
        words => match words.split_once('=')? {
            ("429 retry-after", seconds) => {
                Some(Fault::RateLimited(Some(Duration::from_secs(seconds.parse().ok()?))))
            }
            ("429 until", seconds) => {
                Some(Fault::RateLimitedUntil(Duration::from_secs(seconds.parse().ok()?)))
            }
            ("cut", bytes) => Some(Fault::Cut(bytes.parse().ok()?)),
            ("stall-after", bytes) => Some(Fault::StallAfter(bytes.parse().ok()?)),
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
            ("429 until=2", Fault::RateLimitedUntil(Duration::from_secs(2))),
            ("400", Fault::Refused),
            ("500", Fault::Broken),
            ("too-long", Fault::TooLong),
            ("too-long-at-once", Fault::TooLongAtOnce),
            ("redirect", Fault::Redirected),
            ("overloaded-at-once", Fault::OverloadedAtOnce),
            ("overloaded-in-stream", Fault::OverloadedInStream),
            ("cut=7", Fault::Cut(7)),
            ("cut-after-text", Fault::CutAfterText),
            ("stall", Fault::Stall),
            ("stall-after=7", Fault::StallAfter(7)),
            ("held-open", Fault::HeldOpen),
            ("one-byte-writes", Fault::OneByteWrites),
            ("bad-args", Fault::BadArgs),
            ("finish-twice", Fault::FinishTwice),
            ("running-usage", Fault::RunningUsage),
            ("no-index", Fault::NoIndex),
            ("no-ids", Fault::NoIds),
            ("no-finish", Fault::NoFinish),
        ] {
            assert_eq!(Plan::from_words(&format!("[[fault:{words}]]")).fault, Some(fault));
        }
        assert_eq!(Plan::from_words("[[fault:cut=x]] [[tool:x [] ]] [["), Plan::text(&["done"]));
    }
}
