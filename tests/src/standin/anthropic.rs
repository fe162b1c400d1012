//! Anthropic Messages: `POST /v1/messages` (<https://platform.claude.com/docs/en/api/messages>).

use axum::http::HeaderMap;
use serde_json::{Value, json};

use super::conversation::{self, Author, Matching, Said, Turn};
use super::lists::{self, Params};
use super::memory::Blocks;
use super::wire::{self, Answer, Heard, Incoming, Trouble, Wire, Written};

/// Anthropic's wire.
#[derive(Debug)]
pub(super) struct Messages;

const BLOCKS: Blocks = Blocks {
    call: |block| if block["type"] == "tool_use" { block["id"].as_str() } else { None },
    is_signed: |block| block["type"] == "thinking" || block["type"] == "redacted_thinking",
};

/// Returns a page of the list of models, the newest first.
pub(super) fn models(params: &Params) -> Result<Value, String> {
    let model = |id: &str, name: &str, window: u64, sees: bool| {
        let can = |supported: bool| json!({ "supported": supported });
        json!({ "type": "model", "id": id, "display_name": name, "created_at": "2026-09-01T00:00:00Z",
            "max_input_tokens": window, "max_tokens": 128_000,
            "capabilities": { "image_input": can(sees), "pdf_input": can(sees), "batch": can(true) } })
    };
    let all = [
        model("claude-haiku-5-5", "Claude Haiku 5.5", 1_000_000, true),
        model("claude-opus-5-5", "Claude Opus 5.5", 1_000_000, true),
        model("claude-sonnet-5-5", "Claude Sonnet 5.5", 1_000_000, true),
        model("claude-fable-5-1", "Claude Fable 5.1", 1_000_000, true),
        model("claude-opus-4-5-20251101", "Claude Opus 4.5", 200_000, true),
        model("claude-haiku-4-5-20251001", "Claude Haiku 4.5", 200_000, false),
    ];
    let from = match params.get("after_id") {
        Some(after) => {
            1 + all.iter().position(|model| model["id"] == **after).ok_or("after_id: not found")?
        }
        None => 0,
    };
    let (data, next) = lists::page(&all, params.get("limit"), 1..=1000, from)?;
    let id = |model: Option<&Value>| model.map_or(Value::Null, |model| model["id"].clone());
    let (first, last) = (id(data.first()), id(data.last()));
    Ok(json!({ "data": data, "has_more": next.is_some(), "first_id": first, "last_id": last }))
}

impl Wire for Messages {
    fn provider(&self) -> &'static str {
        "anthropic"
    }

    fn key(&self, headers: &HeaderMap) -> Option<String> {
        headers.get("x-api-key")?.to_str().ok().map(str::to_owned)
    }

    fn read(&self, incoming: &Incoming<'_>) -> Result<Heard, String> {
        wire::header(incoming.headers, "anthropic-version", "2023-06-01")?;
        let body = incoming.body;
        let model = wire::text(body, "model")?.to_owned();
        wire::streams(body)?;
        if body["max_tokens"].as_u64().is_none_or(|most| most == 0) {
            return Err("max_tokens: Field required".to_owned());
        }
        for block in wire::optional_list(body, "system")? {
            said(Author::User, block)?;
        }
        let tools = wire::optional_list(body, "tools")?;
        for tool in tools {
            wire::tool(wire::text(tool, "name")?, &tool["input_schema"])?;
        }
        wire::distinct(tools.iter().filter_map(|tool| tool["name"].as_str()).collect())?;
        let mut turns = Vec::new();
        for message in wire::list(body, "messages")? {
            let author = match wire::text(message, "role")? {
                "user" => Author::User,
                "assistant" => Author::Model,
                role => return Err(format!("messages: Unexpected role {role:?}")),
            };
            let content = wire::list(message, "content")?;
            if author == Author::Model {
                incoming.memory.check(content, BLOCKS)?;
            }
            let said = content.iter().map(|block| said(author, block)).collect::<Result<_, _>>()?;
            turns.push(Turn { author, said });
        }
        conversation::check(&turns, Matching::ById)?;
        let calls = turns.iter().flat_map(|turn| &turn.said).any(|said| matches!(said, Said::Call(_)));
        if calls && tools.is_empty() {
            return Err("tools: Requests which include `tool_use` blocks must define tools".to_owned());
        }
        let marks = body.to_string().matches("\"cache_control\"").count();
        if marks > 4 {
            return Err(format!("A maximum of 4 blocks with cache_control may be provided. Found {marks}."));
        }
        let thinks = body["thinking"]["type"] == "adaptive" || body["thinking"]["type"] == "enabled";
        Ok(Heard { model, turns, thinks })
    }

    fn write(&self, answer: &Answer<'_>) -> Written {
        let mut reply = Reply::default();
        let (input, output) = answer.usage((30, 20));
        reply.event(json!({ "type": "message_start", "message": { "id": format!("msg_{}", answer.serial),
            "type": "message", "role": "assistant", "model": answer.model, "content": [], "stop_reason": null,
            "usage": { "input_tokens": input, "output_tokens": 2 } } }));
        reply.event(json!({ "type": "ping" }));
        if answer.thinks {
            let (thought, signature) = ([" plan\n", "ning  "], format!("c2ln{}==", answer.serial));
            let mut deltas: Vec<Value> =
                thought.iter().map(|piece| json!({ "type": "thinking_delta", "thinking": piece })).collect();
            deltas.push(json!({ "type": "signature_delta", "signature": signature }));
            let begun = json!({ "type": "thinking", "thinking": "", "signature": "" });
            let whole = json!({ "type": "thinking", "thinking": thought.concat(), "signature": signature });
            reply.block(begun, deltas, whole);
            let hidden = json!({ "type": "redacted_thinking", "data": format!("ZGF0{}==", answer.serial) });
            reply.block(hidden.clone(), Vec::new(), hidden);
        }
        if !answer.plan.text.is_empty() {
            let deltas = answer.plan.text.iter().map(|piece| json!({ "type": "text_delta", "text": piece }));
            let whole = json!({ "type": "text", "text": answer.plan.text.concat() });
            reply.block(json!({ "type": "text", "text": "" }), deltas.collect(), whole);
        }
        let before_calls = reply.events.len();
        for (at, (name, args)) in answer.plan.calls.iter().enumerate() {
            let id = format!("toolu_{}_{at}", answer.serial);
            let arguments = answer.arguments(at);
            let deltas = wire::halves(&arguments)
                .map(|piece| json!({ "type": "input_json_delta", "partial_json": piece }));
            let block = |input: Value| json!({ "type": "tool_use", "id": id, "name": name, "input": input });
            reply.block(block(json!({})), deltas.into(), block(args.clone()));
        }
        let stop = if answer.plan.calls.is_empty() { "end_turn" } else { "tool_use" };
        reply
            .event(json!({ "type": "message_delta", "delta": { "stop_reason": stop, "stop_sequence": null },
            "usage": { "input_tokens": input, "output_tokens": output } }));
        reply.event(json!({ "type": "message_stop" }));
        let signed = if answer.thinks { reply.blocks } else { Vec::new() };
        Written { events: reply.events, before_calls, signed }
    }

    fn in_stream(&self, refusal: &Value) -> String {
        named(refusal)
    }

    fn refusal(&self, trouble: Trouble<'_>) -> (u16, Value) {
        match trouble {
            Trouble::BadKey(_) => (401, error("authentication_error", "invalid x-api-key")),
            Trouble::NoCredit => {
                let words = "Your credit balance is too low to access the Anthropic API.";
                (400, error("invalid_request_error", words))
            }
            Trouble::Malformed(why) => (400, error("invalid_request_error", why)),
            Trouble::RateLimited(_) => {
                (429, error("rate_limit_error", "This request would exceed your rate limit."))
            }
            Trouble::Overloaded => (529, error("overloaded_error", "Overloaded")),
            Trouble::TooLong => {
                (400, error("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"))
            }
            Trouble::Broken => (500, error("api_error", "Internal server error")),
        }
    }
}

fn error(kind: &str, message: &str) -> Value {
    json!({ "type": "error", "error": { "type": kind, "message": message } })
}

fn said(author: Author, block: &Value) -> Result<Said, String> {
    Ok(match (wire::text(block, "type")?, author) {
        ("text", _) => Said::Text(wire::text(block, "text")?.to_owned()),
        ("image", Author::User) => Said::Other,
        ("tool_result", Author::User) => Said::Result(wire::text(block, "tool_use_id")?.to_owned()),
        ("tool_use", Author::Model) => {
            wire::tool_name(wire::text(block, "name")?)?;
            if !block["input"].is_object() {
                return Err(format!("tool_use.input: Input should be a valid dictionary: {block}"));
            }
            // Ids and names have one pattern here.
            wire::tool_name(wire::text(block, "id")?)?;
            Said::Call(wire::text(block, "id")?.to_owned())
        }
        ("thinking" | "redacted_thinking", Author::Model) => Said::Other,
        (kind, _) => return Err(format!("messages: Input tag {kind:?} is out of place")),
    })
}

/// An answer so far.
#[derive(Default)]
struct Reply {
    events: Vec<String>,
    /// What goes back as it came: all but blank text.
    blocks: Vec<Value>,
    begun: usize,
}

impl Reply {
    fn event(&mut self, event: Value) {
        self.events.push(named(&event));
    }

    fn block(&mut self, begun: Value, deltas: Vec<Value>, whole: Value) {
        let index = self.begun;
        self.begun += 1;
        self.event(json!({ "type": "content_block_start", "index": index, "content_block": begun }));
        for delta in deltas {
            self.event(json!({ "type": "content_block_delta", "index": index, "delta": delta }));
        }
        self.event(json!({ "type": "content_block_stop", "index": index }));
        if whole["text"].as_str().is_none_or(|text| !text.trim().is_empty()) {
            self.blocks.push(whole);
        }
    }
}

/// Returns an event that carries its type as its name too.
fn named(event: &Value) -> String {
    format!("event: {}\n{}", event["type"].as_str().unwrap_or_default(), wire::data(event))
}
