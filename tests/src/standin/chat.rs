//! Chat Completions: `POST /v1/chat/completions`, which many servers speak.

use serde_json::{Value, json};

use super::conversation::{self, Author, Matching, Said, Turn};
use super::plan::Fault;
use super::responses;
use super::wire::{self, Answer, Heard, Incoming, Trouble, Wire, Written};

/// The wire of compatible servers.
#[derive(Debug)]
pub(super) struct ChatCompletions;

/// Returns the list of models, as vLLM writes it.
pub(super) fn models() -> Value {
    let model = |id: &str, window: u64| {
        json!({ "id": id, "object": "model", "created": 0, "owned_by": "standin", "root": id,
            "max_model_len": window })
    };
    json!({ "object": "list", "data": [model("local-model", 32_768), model("nomic-embed-text-v1.5", 2048)] })
}

impl Wire for ChatCompletions {
    fn provider(&self) -> &'static str {
        "openai-compatible"
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
        let turns = conversation(wire::list(body, "messages")?, said)?;
        conversation::check(&turns, Matching::ById)?;
        Ok(Heard { model, turns, thinks: false })
    }

    fn write(&self, answer: &Answer<'_>) -> Written {
        let chunk = |delta: Value, finish: Value| {
            wire::data(&json!({ "id": format!("chatcmpl-{}", answer.serial), "model": answer.model,
                "object": "chat.completion.chunk", "created": 0,
                "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] }))
        };
        let (input, output) = answer.usage((7, 3));
        let usage = |output: u64| {
            wire::data(&json!({ "model": answer.model, "choices": [], "usage": { "prompt_tokens": input,
                "completion_tokens": output, "total_tokens": input + output } }))
        };
        let mut events = vec![chunk(json!({ "role": "assistant", "content": "" }), Value::Null)];
        for (at, piece) in answer.plan.text.iter().enumerate() {
            events.push(chunk(json!({ "content": piece }), Value::Null));
            if answer.has(Fault::RunningUsage) {
                events.push(usage(output.min(at as u64)));
            }
        }
        let before_calls = events.len();
        let piece_of = |at: usize, fields: Value| {
            let mut piece = fields;
            if !answer.has(Fault::NoIndex) {
                piece["index"] = json!(at);
            }
            piece
        };
        let mut whole_calls = Vec::new();
        for (at, (name, _)) in answer.plan.calls.iter().enumerate() {
            let whole = answer.arguments(at);
            let id = format!("call_{}_{at}", answer.serial);
            let mut begun = json!({ "type": "function", "function": { "name": name, "arguments": "" } });
            if !answer.has(Fault::NoIds) {
                begun["id"] = json!(id);
            }
            events.push(chunk(json!({ "tool_calls": [piece_of(at, begun)] }), Value::Null));
            for piece in wire::halves(&whole) {
                // Only the first piece of a call carries its id.
                let more = piece_of(at, json!({ "function": { "arguments": piece } }));
                events.push(chunk(json!({ "tool_calls": [more] }), Value::Null));
            }
            let function = json!({ "name": name, "arguments": whole });
            whole_calls.push(piece_of(at, json!({ "id": id, "type": "function", "function": function })));
        }
        let finish = if answer.plan.calls.is_empty() { "stop" } else { "tool_calls" };
        if !answer.has(Fault::NoFinish) {
            events.push(chunk(json!({}), json!(finish)));
        }
        if answer.has(Fault::FinishTwice) {
            events.push(chunk(json!({ "tool_calls": whole_calls }), json!(finish)));
        }
        events.push(usage(output));
        events.push("data: [DONE]\n\n".to_owned());
        Written { events, before_calls, signed: Vec::new() }
    }

    fn in_stream(&self, refusal: &Value) -> String {
        wire::data(refusal)
    }

    fn refusal(&self, trouble: Trouble<'_>) -> (u16, Value) {
        responses::refusal(trouble)
    }
}

/// Reads messages of one role each into turns; `said` reads one. Results and the user's words after them
/// are one turn.
pub(super) fn conversation(
    messages: &[Value],
    said: impl Fn(&str, &Value) -> Result<Vec<Said>, String>,
) -> Result<Vec<Turn>, String> {
    let mut turns = Vec::new();
    let mut before = "";
    for (at, message) in messages.iter().enumerate() {
        let role = wire::text(message, "role")?;
        if role == before && role != "tool" {
            return Err(format!("messages.{at}: two messages of {role} follow each other"));
        }
        before = role;
        let author = match role {
            "system" if at == 0 && !wire::text(message, "content")?.trim().is_empty() => continue,
            "user" | "tool" => Author::User,
            "assistant" => Author::Model,
            role => return Err(format!("messages.{at}: {role} is out of place")),
        };
        conversation::add(&mut turns, author, said(role, message)?);
    }
    Ok(turns)
}

fn said(role: &str, message: &Value) -> Result<Vec<Said>, String> {
    if role == "tool" {
        wire::text(message, "content")?;
        return Ok(vec![Said::Result(wire::text(message, "tool_call_id")?.to_owned())]);
    }
    let mut said = match &message["content"] {
        Value::Null if role == "assistant" => Vec::new(),
        Value::String(text) => vec![Said::Text(text.clone())],
        Value::Array(parts) => {
            let part = |part: &Value| match wire::text(part, "type")? {
                "text" => Ok(Said::Text(wire::text(part, "text")?.to_owned())),
                "image_url" => Ok(Said::Other),
                kind => Err(format!("content: Invalid value: {kind:?}")),
            };
            parts.iter().map(part).collect::<Result<_, _>>()?
        }
        content => return Err(format!("content: Invalid type: {content}")),
    };
    for call in wire::optional_list(message, "tool_calls")? {
        if call["type"] != "function" || role != "assistant" {
            return Err(format!("tool_calls: Invalid value: {call}"));
        }
        wire::tool_name(wire::text(&call["function"], "name")?)?;
        wire::object_text(wire::text(&call["function"], "arguments")?)?;
        said.push(Said::Call(wire::text(call, "id")?.to_owned()));
    }
    Ok(said)
}
