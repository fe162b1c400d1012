//! The rules that every input is held to, beyond not to panic: the cuts change nothing, what is shown is what
//! the reply says, nothing grows beyond the input, and a second reading agrees where there is one.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::mem::discriminant;

use serde::de::IgnoredAny;
use serde_json::Value;
use tns_server_core::engine::StepEvent;
use tns_server_core::message::Part;
use tns_server_engines::decode::{self, Decoded, StreamFault, WireFormat};

use crate::random::Random;
use crate::reference;
use crate::target::Target;

/// The model that is asked for; no answer names it.
const MODEL: &str = "asked";
/// Most pieces that an input is cut into at random.
const MAX_CUTS: usize = 8;
/// One input in so many is cut into single bytes as well.
const BYTEWISE: usize = 8;
/// How many bytes may come of one: a byte that is no UTF-8 becomes three, a control character six where it is
/// kept as JSON, and text stands in the events, in the reply and in what is kept of it.
const GROWTH: usize = 24;
/// What an empty answer may hold.
const BASE: usize = 4 << 10;
/// Most calls of a reply, as the product has it.
const MAX_CALLS: usize = 128;
/// Deepest arguments, as the product has it.
const MAX_DEPTH: usize = 64;

/// Judges an input; the number stands for its kind of answer.
///
/// # Errors
/// The rule that it breaks.
pub(crate) fn judge(target: Target, input: &[u8], random: &mut Random) -> Result<u64, String> {
    match target {
        Target::Wire(format) => judge_wire(format, input, random),
        Target::EventStream => judge_events(input, random),
        Target::Arguments => judge_arguments(input),
    }
}

fn judge_wire(format: WireFormat, input: &[u8], random: &mut Random) -> Result<u64, String> {
    let whole = decode::stream(format, MODEL, [input]);
    let pieces = cut(input, random);
    agree(&whole, &decode::stream(format, MODEL, pieces.iter().copied()), || lengths(&pieces))?;
    if random.once_in(BYTEWISE) {
        agree(&whole, &decode::stream(format, MODEL, input.chunks(1)), || "single bytes".to_owned())?;
    }
    holds(&whole, input.len())?;
    holds(&decode::whole(format, MODEL, &String::from_utf8_lossy(input)), input.len())?;
    Ok(kind(&whole))
}

fn judge_events(input: &[u8], random: &mut Random) -> Result<u64, String> {
    let whole = decode::event_stream([input]);
    let pieces = cut(input, random);
    agree(&whole, &decode::event_stream(pieces.iter().copied()), || lengths(&pieces))?;
    if random.once_in(BYTEWISE) {
        agree(&whole, &decode::event_stream(input.chunks(1)), || "single bytes".to_owned())?;
    }
    let events = whole.map_err(|(_, fault)| format!("a short stream fails: {fault:?}"))?;
    let expected = reference::events(input);
    if events != expected {
        return Err(format!("{events:?} is read where {expected:?} stands"));
    }
    let mut hasher = DefaultHasher::new();
    for event in events.iter().take(16) {
        event.len().min(8).hash(&mut hasher);
    }
    Ok(hasher.finish())
}

fn judge_arguments(input: &[u8]) -> Result<u64, String> {
    let text = String::from_utf8_lossy(input);
    let mut hasher = DefaultHasher::new();
    match decode::arguments(&text) {
        Ok(read) if text.trim().is_empty() => check(read.is_empty(), "blank text is no arguments")?,
        Ok(read) => {
            let expected: Value =
                serde_json::from_str(&text).map_err(|error| format!("{error}, yet it is read"))?;
            let read = Value::Object(read);
            check(read == expected, "something else is read than stands there")?;
            check(depth(&read) <= MAX_DEPTH, "arguments are nested deeper than the limit")?;
            (depth(&read), read.as_object().map(serde_json::Map::len)).hash(&mut hasher);
        }
        Err(problem) => {
            check(!problem.trim().is_empty(), "a problem has no words")?;
            // What an object says twice counts for the depth, although one of the two is read.
            let is_fine = written_depth(&text) <= MAX_DEPTH
                && serde_json::from_str::<Value>(&text).is_ok_and(|value| value.is_object());
            check(!is_fine, "usable arguments are refused")?;
            problem.chars().filter(|c| !c.is_ascii_digit()).collect::<String>().hash(&mut hasher);
        }
    }
    Ok(hasher.finish())
}

fn check(holds: bool, rule: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("against the rule: {rule}")) }
}

fn agree<T: PartialEq + std::fmt::Debug>(whole: &T, cut: &T, how: impl Fn() -> String) -> Result<(), String> {
    if whole == cut {
        return Ok(());
    }
    Err(format!("cut into {} it says {cut:?}, whole {whole:?}", how()))
}

fn cut<'a>(input: &'a [u8], random: &mut Random) -> Vec<&'a [u8]> {
    let mut at: Vec<usize> = (0..1 + random.below(MAX_CUTS)).map(|_| random.below(input.len() + 1)).collect();
    at.sort_unstable();
    let mut pieces = Vec::with_capacity(at.len() + 1);
    let mut from = 0;
    for to in at.into_iter().chain([input.len()]) {
        pieces.push(&input[from..to]);
        from = to;
    }
    pieces
}

fn lengths(pieces: &[&[u8]]) -> String {
    format!("{:?} bytes", pieces.iter().map(|piece| piece.len()).collect::<Vec<_>>())
}

/// Checks what came of an answer against itself and its length.
fn holds(decoded: &Decoded, length: usize) -> Result<(), String> {
    let (Ok((events, _)) | Err((events, _))) = decoded;
    let mut size = 0;
    let (mut shown, mut started) = (String::new(), Vec::new());
    for event in events {
        match event {
            StepEvent::Text(text) => {
                check(!text.is_empty(), "a piece of text holds something")?;
                size += text.len();
                shown.push_str(text);
            }
            StepEvent::Reasoning(text) => {
                check(!text.is_empty(), "a piece of reasoning holds something")?;
                size += text.len();
            }
            StepEvent::ToolStart { name } => {
                check(!name.trim().is_empty(), "a call that is told of has a name")?;
                size += name.len();
                started.push(name.as_str());
            }
            StepEvent::Waiting { .. } | StepEvent::Usage(_) | StepEvent::Finished(_) => {
                return Err("against the rule: a decoder neither waits, counts nor finishes".to_owned());
            }
        }
    }
    if let Ok((_, outcome)) = decoded {
        let (mut said, mut called, mut calls) = (String::new(), Vec::new(), 0);
        for part in &outcome.parts {
            match part {
                Part::Text(text) => {
                    check(!text.is_empty(), "no part is empty")?;
                    said.push_str(text);
                }
                Part::ToolCall(call) => {
                    calls += 1;
                    // Such a call may have good arguments.
                    if call.problem.as_deref() != Some("the call names no tool") {
                        called.push(call.name.as_str());
                        check(call.problem.is_none() || call.args.is_empty(), "broken arguments are none")?;
                    }
                    size += serde_json::to_string(&call.args).map_err(|error| error.to_string())?.len();
                    size += call.provider_id.as_deref().map_or(0, str::len);
                }
                Part::Image(_) | Part::ToolResult(_) | Part::Note(_) => {
                    return Err("against the rule: a model says text and calls".to_owned());
                }
            }
        }
        started.sort_unstable();
        called.sort_unstable();
        check(said == shown, "the reply's text is what was shown")?;
        check(called == started, "the reply's calls are those that were told of")?;
        check(calls <= MAX_CALLS, "calls have a limit")?;
        check(!outcome.model.is_empty(), "a reply has a model")?;
        check(outcome.usage.cost.is_none_or(f64::is_finite), "a cost is a number")?;
        if let Some(native) = &outcome.native {
            let blocks = native.blocks.get();
            check(serde_json::from_str::<IgnoredAny>(blocks).is_ok(), "what is kept is JSON")?;
            size += blocks.len();
        }
        size += said.len() + outcome.model.len();
    }
    check(size <= BASE + GROWTH * length, "a short answer stays short")
}

/// Returns a number for the kind of an answer.
fn kind(decoded: &Decoded) -> u64 {
    let mut hasher = DefaultHasher::new();
    let (Ok((events, _)) | Err((events, _))) = decoded;
    for event in events.iter().take(12) {
        discriminant(event).hash(&mut hasher);
    }
    match decoded {
        Ok((_, outcome)) => {
            discriminant(&outcome.stop).hash(&mut hasher);
            outcome.native.is_some().hash(&mut hasher);
            for part in outcome.parts.iter().take(12) {
                discriminant(part).hash(&mut hasher);
                if let Part::ToolCall(call) = part {
                    (call.problem.is_some(), call.provider_id.is_some(), call.args.len().min(3))
                        .hash(&mut hasher);
                }
            }
        }
        Err((_, fault)) => {
            discriminant(fault).hash(&mut hasher);
            match fault {
                StreamFault::Unreadable(why) | StreamFault::Slip(why) => {
                    why.chars()
                        .filter(char::is_ascii_alphabetic)
                        .take(16)
                        .collect::<String>()
                        .hash(&mut hasher);
                }
                StreamFault::TooLarge(what) => what.hash(&mut hasher),
                StreamFault::Refused(_) | StreamFault::Incomplete => {}
            }
        }
    }
    hasher.finish()
}

/// Returns how deep brackets stand in text, strings left out.
fn written_depth(text: &str) -> usize {
    let (mut level, mut deepest, mut rest) = (0_usize, 0, text.chars());
    while let Some(c) = rest.next() {
        match c {
            '"' => {
                while let Some(inner) = rest.next() {
                    match inner {
                        '\\' => drop(rest.next()),
                        '"' => break,
                        _ => {}
                    }
                }
            }
            '{' | '[' => {
                level += 1;
                deepest = deepest.max(level);
            }
            '}' | ']' => level = level.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

fn depth(value: &Value) -> usize {
    let mut deepest = 0;
    let mut open = vec![(value, 1)];
    while let Some((value, level)) = open.pop() {
        let children: Vec<&Value> = match value {
            Value::Array(items) => items.iter().collect(),
            Value::Object(fields) => fields.values().collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => continue,
        };
        deepest = deepest.max(level);
        open.extend(children.into_iter().map(|child| (child, level + 1)));
    }
    deepest
}
