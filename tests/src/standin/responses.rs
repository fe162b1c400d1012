//! OpenAI Responses: `POST /v1/responses` (<https://developers.openai.com/api/reference/resources/responses>).

use serde_json::{Value, json};

use super::conversation::{self, Author, Matching, Said, Turn};
use super::memory::Blocks;
use super::wire::{self, Answer, Heard, Incoming, Trouble, Wire, Written};

/// The wire of OpenAI's own service.
#[derive(Debug)]
pub(super) struct Responses;

const BLOCKS: Blocks = Blocks {
    call: |item| if item["type"] == "function_call" { item["call_id"].as_str() } else { None },
    is_signed: |item| item["type"] == "reasoning",
};

/// Returns the list of models: ids only, in no order, usable here or not.
pub(super) fn models() -> Value {
    let ids = [
        "gpt-4o-mini-tts",
        "gpt-realtime-2.1",
        "text-embedding-3-small",
        "gpt-6-luna",
        "gpt-image-2.6-flare",
        "whisper-1",
        "gpt-transcribe",
        "gpt-5.4-mini",
        "gpt-6.2-sol",
        "omni-moderation-latest",
        "gpt-live-1",
        "gpt-realtime-translate",
        "text-embedding-3-large",
        "gpt-audio-1.5",
        "o3",
        "tts-1-hd",
        "sora-2",
    ];
    let models: Vec<Value> = (1_780_000_000_u64..)
        .zip(ids)
        .map(|(created, id)| json!({ "id": id, "object": "model", "created": created, "owned_by": "system" }))
        .collect();
    json!({ "object": "list", "data": models })
}

impl Wire for Responses {
    fn provider(&self) -> &'static str {
        "openai"
    }

    fn read(&self, incoming: &Incoming<'_>) -> Result<Heard, String> {
        let body = incoming.body;
        let model = wire::text(body, "model")?.to_owned();
        wire::streams(body)?;
        if body["max_output_tokens"].as_u64().is_some_and(|most| most < 16) {
            return Err(
                "Invalid 'max_output_tokens': integer below minimum value. Expected >= 16.".to_owned()
            );
        }
        let tools = wire::optional_list(body, "tools")?;
        for tool in tools {
            if tool["type"] != "function" || tool["strict"] != false {
                return Err(format!("tools: a loose function is expected: {tool}"));
            }
            wire::tool(wire::text(tool, "name")?, &tool["parameters"])?;
        }
        wire::distinct(tools.iter().filter_map(|tool| tool["name"].as_str()).collect())?;
        let mut turns: Vec<Turn> = Vec::new();
        let mut written: Vec<Value> = Vec::new();
        let mut asked = false;
        for item in wire::list(body, "input")? {
            let (author, said) = said(item)?;
            let is_words = author == Author::User && item["type"] == "message";
            if is_words && asked {
                return Err("input: two messages of the user follow each other".to_owned());
            }
            asked = is_words;
            match author {
                Author::Model => written.push(item.clone()),
                Author::User => check_turn(incoming, &std::mem::take(&mut written))?,
            }
            conversation::add(&mut turns, author, said);
        }
        conversation::check(&turns, Matching::ById)?;
        let included = body["include"]
            .as_array()
            .is_some_and(|all| all.iter().any(|one| one == "reasoning.encrypted_content"));
        Ok(Heard { model, turns, thinks: included && body["store"] == false })
    }

    fn write(&self, answer: &Answer<'_>) -> Written {
        let (model, usage) = (answer.model.to_owned(), answer.usage((7, 3)));
        let mut reply = Reply { events: Vec::new(), items: Vec::new(), model, usage };
        let response = reply.response("in_progress");
        reply.event(json!({ "type": "response.created", "response": response }));
        if answer.thinks {
            let item = |content: &str| {
                json!({ "id": format!("rs_{}", answer.serial), "type": "reasoning",
                "summary": [], "encrypted_content": content })
            };
            // What stands there at the start is not whole yet.
            reply.begin(item("part"));
            reply.end(item(&format!("whole  {}", answer.serial)));
        }
        if !answer.plan.text.is_empty() {
            let item = |status: &str, content: Value| {
                json!({ "id": format!("msg_{}", answer.serial),
                "type": "message", "status": status, "role": "assistant", "content": content })
            };
            let index = reply.begin(item("in_progress", json!([])));
            for piece in &answer.plan.text {
                reply.event(json!({ "type": "response.output_text.delta", "output_index": index,
                    "content_index": 0, "delta": piece }));
            }
            let text = json!({ "type": "output_text", "text": answer.plan.text.concat(), "annotations": [] });
            reply.end(item("completed", json!([text])));
        }
        let before_calls = reply.events.len();
        for (at, (name, _)) in answer.plan.calls.iter().enumerate() {
            let whole = answer.arguments(at);
            let item = |status: &str, arguments: &str| {
                json!({ "id": format!("fc_{}_{at}", answer.serial),
                "type": "function_call", "status": status, "call_id": format!("call_{}_{at}", answer.serial),
                "name": name, "arguments": arguments })
            };
            let index = reply.begin(item("in_progress", ""));
            for piece in wire::halves(&whole) {
                reply.event(json!({ "type": "response.function_call_arguments.delta",
                    "output_index": index, "delta": piece }));
            }
            reply.event(json!({ "type": "response.function_call_arguments.done", "output_index": index,
                "arguments": whole }));
            reply.end(item("completed", &whole));
        }
        let response = reply.response("completed");
        reply.event(json!({ "type": "response.completed", "response": response }));
        let is_blank =
            |item: &Value| item["content"][0]["text"].as_str().is_some_and(|text| text.trim().is_empty());
        let signed = if answer.thinks { reply.items } else { Vec::new() };
        let signed = signed.into_iter().filter(|item| !is_blank(item)).collect();
        Written { events: reply.events, before_calls, signed }
    }

    fn in_stream(&self, refusal: &Value) -> String {
        let (code, message) = (&refusal["error"]["code"], &refusal["error"]["message"]);
        let error = json!({ "type": "error", "sequence_number": 99, "param": null,
            "code": code, "message": message });
        format!("event: error\n{}", wire::data(&error))
    }

    fn refusal(&self, trouble: Trouble<'_>) -> (u16, Value) {
        refusal(trouble)
    }
}

/// Returns OpenAI's refusals.
pub(super) fn refusal(trouble: Trouble<'_>) -> (u16, Value) {
    let error = |kind: &str, code: Value, message: &str| json!({ "error": { "message": message, "type": kind, "param": null, "code": code } });
    match trouble {
        Trouble::BadKey(key) => {
            let words = format!("Incorrect API key provided: {key}.");
            (401, error("invalid_request_error", json!("invalid_api_key"), &words))
        }
        Trouble::NoCredit => {
            let words = "You exceeded your current quota, please check your plan and billing details.";
            (429, error("insufficient_quota", json!("insufficient_quota"), words))
        }
        Trouble::Malformed(why) => (400, error("invalid_request_error", Value::Null, why)),
        Trouble::RateLimited(_) => {
            (429, error("requests", json!("rate_limit_exceeded"), "Rate limit reached for requests."))
        }
        Trouble::Overloaded => {
            let words = "Our servers are currently overloaded.";
            (503, error("server_error", json!("server_is_overloaded"), words))
        }
        Trouble::TooLong => {
            let words = "Your input exceeds the context window of this model. Please adjust your input.";
            (400, error("invalid_request_error", json!("context_length_exceeded"), words))
        }
        Trouble::Broken => (500, error("server_error", Value::Null, "The server had an error.")),
    }
}

fn said(item: &Value) -> Result<(Author, Vec<Said>), String> {
    Ok(match wire::text(item, "type")? {
        "message" => {
            let author = match wire::text(item, "role")? {
                "user" => Author::User,
                "assistant" => Author::Model,
                role => return Err(format!("input: Invalid value: {role:?}")),
            };
            (author, texts(&item["content"])?)
        }
        "reasoning" if item["encrypted_content"].is_string() => (Author::Model, vec![Said::Other]),
        "function_call" => {
            wire::tool_name(wire::text(item, "name")?)?;
            wire::object_text(wire::text(item, "arguments")?)?;
            (Author::Model, vec![Said::Call(wire::text(item, "call_id")?.to_owned())])
        }
        "function_call_output" => {
            wire::text(item, "output")?;
            (Author::User, vec![Said::Result(wire::text(item, "call_id")?.to_owned())])
        }
        kind => return Err(format!("input: Invalid value: {kind:?}: {item}")),
    })
}

fn texts(content: &Value) -> Result<Vec<Said>, String> {
    if let Some(text) = content.as_str() {
        return Ok(vec![Said::Text(text.to_owned())]);
    }
    let parts = content.as_array().filter(|parts| !parts.is_empty()).ok_or("content: must not be empty")?;
    let said = parts.iter().map(|part| match wire::text(part, "type")? {
        "input_text" | "output_text" => Ok(Said::Text(wire::text(part, "text")?.to_owned())),
        "input_image" => Ok(Said::Other),
        kind => Err(format!("input: Invalid value: {kind:?}")),
    });
    said.collect()
}

fn check_turn(incoming: &Incoming<'_>, items: &[Value]) -> Result<(), String> {
    if let Some(last) = items.last().filter(|last| last["type"] == "reasoning") {
        return Err(format!(
            "Item of type 'reasoning' was provided without its required following item: {last}"
        ));
    }
    incoming.memory.check(items, BLOCKS)
}

/// An answer so far.
struct Reply {
    events: Vec<String>,
    items: Vec<Value>,
    model: String,
    /// Input and output tokens.
    usage: (u64, u64),
}

impl Reply {
    fn event(&mut self, mut event: Value) {
        event["sequence_number"] = json!(self.events.len());
        let name = event["type"].as_str().unwrap_or_default();
        self.events.push(format!("event: {name}\n{}", wire::data(&event)));
    }

    fn begin(&mut self, item: Value) -> usize {
        let index = self.items.len();
        self.event(json!({ "type": "response.output_item.added", "output_index": index, "item": item }));
        index
    }

    fn end(&mut self, item: Value) {
        let index = self.items.len();
        self.event(json!({ "type": "response.output_item.done", "output_index": index, "item": item }));
        self.items.push(item);
    }

    fn response(&self, status: &str) -> Value {
        let (input, output) = self.usage;
        let usage = (status == "completed").then(|| {
            json!({ "input_tokens": input, "input_tokens_details": { "cached_tokens": 0 },
                "output_tokens": output, "output_tokens_details": { "reasoning_tokens": 0 },
                "total_tokens": input + output })
        });
        json!({ "id": "resp_1", "object": "response", "status": status, "model": self.model,
            "output": self.items, "error": null, "incomplete_details": null, "usage": usage })
    }
}
