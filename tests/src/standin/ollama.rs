//! Ollama: `POST /api/chat`, answered in lines of JSON (<https://docs.ollama.com/api>).

use serde_json::{Value, json};

use super::chat;
use super::conversation::{self, Matching, Said};
use super::memory::Memory;
use super::wire::{self, Answer, Heard, Incoming, Trouble, Wire, Written};

/// Ollama's wire.
#[derive(Debug)]
pub(super) struct Ollama;

/// Returns the installed models (`/api/tags`).
pub(super) fn models() -> Value {
    let model = |name: &str, family: &str| {
        json!({ "name": name, "model": name, "modified_at": "2026-11-01T00:00:00Z",
            "size": 2_600_000_000_u64, "digest": "0", "details": { "format": "gguf", "family": family } })
    };
    json!({ "models": [model("qwen3:4b", "qwen3"), model("nomic-embed-text:latest", "nomic-bert"),
        model("gemma4:latest", "gemma4")] })
}

/// Returns what a model can do (`/api/show`).
pub(super) fn shown(body: &Value) -> Result<Value, String> {
    let (family, window, can): (_, _, &[&str]) = match wire::text(body, "model")? {
        "qwen3:4b" => ("qwen3", 40_960, &["completion", "tools", "thinking"]),
        "gemma4:latest" => ("gemma4", 131_072, &["completion", "vision"]),
        "nomic-embed-text:latest" => ("nomic-bert", 2048, &["embedding"]),
        name => return Err(format!("model '{name}' not found")),
    };
    let mut info = json!({ "general.architecture": family });
    info[format!("{family}.context_length")] = json!(window);
    Ok(json!({ "capabilities": can, "details": { "family": family }, "model_info": info }))
}

/// What comes of a pull.
pub(super) struct Pull {
    /// The lines that are told.
    pub(super) lines: String,
    pub(super) end: PullEnd,
}

/// How the telling ends.
pub(super) enum PullEnd {
    /// With its last line.
    Whole,
    /// The connection breaks.
    Cut,
    /// Nothing more comes until the client leaves.
    Held,
}

/// Pulls a model (`/api/pull`). `tiny` comes whole; with the tag `cut` the connection breaks in the middle, with
/// `held` nothing more comes there, with `full` the disk is full there. Of another name there is no model, which
/// is told within a stream that began well, as with the real one.
pub(super) fn pull(body: &Value) -> Result<Pull, String> {
    if body["stream"] != true {
        return Err("stream: only streams are stood in for".to_owned());
    }
    let layer = |completed: Option<u64>| {
        let mut line =
            json!({ "status": "pulling 8eeb52dfb3bb", "digest": "sha256:8eeb52dfb3bb", "total": 4_096 });
        if let Some(completed) = completed {
            line["completed"] = json!(completed);
        }
        line
    };
    let mut lines = vec![json!({ "status": "pulling manifest" })];
    let middle = [layer(None), layer(Some(1_024)), layer(Some(2_048))];
    let end = match wire::text(body, "model")?.split_once(':').unwrap_or_default() {
        ("tiny", "1b") => {
            lines.extend(middle);
            lines.push(layer(Some(4_096)));
            // A later one could say something that none says today.
            let told = ["verifying sha256 digest", "writing\u{1b}[31m manifest", "success"];
            lines.extend(told.map(|status| json!({ "status": status })));
            PullEnd::Whole
        }
        ("tiny", "full") => {
            lines.extend(middle);
            lines.push(json!({ "error": "write /models/8eeb52dfb3bb: no space left on device" }));
            PullEnd::Whole
        }
        ("tiny", tag @ ("cut" | "held")) => {
            lines.extend(middle);
            if tag == "cut" { PullEnd::Cut } else { PullEnd::Held }
        }
        _ => {
            lines.push(json!({ "error": "pull model manifest: file does not exist" }));
            PullEnd::Whole
        }
    };
    Ok(Pull { lines: lines.iter().map(|line| format!("{line}\n")).collect(), end })
}

impl Wire for Ollama {
    fn provider(&self) -> &'static str {
        "ollama"
    }

    fn wants_key(&self) -> bool {
        false
    }

    fn read(&self, incoming: &Incoming<'_>) -> Result<Heard, String> {
        let body = incoming.body;
        let model = wire::text(body, "model")?.to_owned();
        wire::streams(body)?;
        let tools = wire::optional_list(body, "tools")?;
        for tool in tools {
            wire::tool(wire::text(&tool["function"], "name")?, &tool["function"]["parameters"])?;
        }
        wire::distinct(tools.iter().filter_map(|tool| tool["function"]["name"].as_str()).collect())?;
        let messages = wire::list(body, "messages")?;
        for message in messages.iter().filter(|message| message["role"] == "assistant") {
            check_thinking(incoming.memory, message)?;
        }
        let turns = chat::conversation(messages, said)?;
        conversation::check(&turns, Matching::ByOrder)?;
        Ok(Heard { model, turns, thinks: body["think"] != false })
    }

    fn write(&self, answer: &Answer<'_>) -> Written {
        let line = |message: Value| {
            let line = json!({ "model": answer.model, "created_at": "2026-11-01T00:00:00Z",
                "message": message, "done": false });
            format!("{line}\n")
        };
        let mut events = Vec::new();
        let thought = format!(" plan\nning {} ", answer.serial);
        if answer.thinks {
            for piece in wire::halves(&thought) {
                events.push(line(json!({ "role": "assistant", "content": "", "thinking": piece })));
            }
        }
        let text = |piece| line(json!({ "role": "assistant", "content": piece }));
        events.extend(answer.plan.text.iter().map(text));
        let before_calls = events.len();
        let mut calls = Vec::new();
        for (at, (name, _)) in answer.plan.calls.iter().enumerate() {
            // An object, but some servers of this format send its text.
            let arguments =
                answer.argument_json(at).unwrap_or_else(|| json!(answer.arguments(at)).to_string());
            let call = json!({ "function": { "name": name, "arguments": wire::ARGUMENTS } });
            let event = line(json!({ "role": "assistant", "content": "", "tool_calls": [call] }));
            events.push(wire::with_arguments(&event, &arguments));
            calls.push(call);
        }
        let (input, output) = answer.usage((7, 3));
        let end = json!({ "model": answer.model, "created_at": "2026-11-01T00:00:01Z",
            "message": { "role": "assistant", "content": "" }, "done": true, "done_reason": "stop",
            "prompt_eval_count": input, "eval_count": output });
        events.push(format!("{end}\n"));
        let content = answer.plan.text.concat();
        let content = if content.trim().is_empty() { "" } else { &content };
        let whole = json!({ "content": content, "thinking": thought, "tool_calls": calls });
        let is_kept = answer.thinks && !calls.is_empty();
        Written { events, before_calls, signed: if is_kept { vec![whole] } else { Vec::new() } }
    }

    fn in_stream(&self, refusal: &Value) -> String {
        format!("{refusal}\n")
    }

    fn refusal(&self, trouble: Trouble<'_>) -> (u16, Value) {
        match trouble {
            Trouble::BadKey(_) => (401, json!({ "error": "unauthorized" })),
            Trouble::NoCredit => (402, json!({ "error": "you have used up this month's credit" })),
            Trouble::Malformed(why) => (400, json!({ "error": why })),
            Trouble::RateLimited(_) => (429, json!({ "error": "too many requests" })),
            Trouble::Overloaded => (503, json!({ "error": "server overloaded, please retry shortly" })),
            Trouble::TooLong => (400, json!({ "error": "the input exceeds the context length" })),
            Trouble::Broken => (500, json!({ "error": "model runner has unexpectedly stopped" })),
        }
    }

    fn content_type(&self) -> &'static str {
        "application/x-ndjson"
    }
}

/// Returns what a message says; calls and results are named by their tool.
fn said(role: &str, message: &Value) -> Result<Vec<Said>, String> {
    let content = wire::text(message, "content")?;
    if role == "tool" {
        return Ok(vec![Said::Result(wire::text(message, "tool_name")?.to_owned())]);
    }
    let calls = wire::optional_list(message, "tool_calls")?;
    let mut said = Vec::new();
    // The field is not optional, so that calls alone come with an empty one.
    if !content.is_empty() || calls.is_empty() {
        said.push(Said::Text(content.to_owned()));
    }
    for call in calls {
        if role != "assistant" || !call["function"]["arguments"].is_object() {
            return Err(format!("tool_calls: arguments must be an object: {call}"));
        }
        said.push(Said::Call(wire::text(&call["function"], "name")?.to_owned()));
    }
    Ok(said)
}

/// Checks that reasoning before calls goes back as it came. Calls have no ids, so a message is known by
/// its text and the tools that it calls.
fn check_thinking(memory: &Memory, message: &Value) -> Result<(), String> {
    let names = |message: &Value| -> Vec<Value> {
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        calls.map(|call| call["function"]["name"].clone()).collect()
    };
    let is_it = |kept: &Value| kept["content"] == message["content"] && names(kept) == names(message);
    let is_whole = |kept: &Value| is_it(kept) && kept["thinking"] == message["thinking"];
    let is_known = memory.has(is_whole);
    if memory.has(is_it) && !is_known {
        return Err(format!("the reasoning of a message was lost or changed: {message}"));
    }
    // Of a message without calls it may stay or go.
    if message.get("thinking").is_some() && !is_known && !names(message).is_empty() {
        return Err(format!("this reasoning was never written: {message}"));
    }
    Ok(())
}
