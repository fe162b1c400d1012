//! Gemini: `POST /v1beta/models/MODEL:streamGenerateContent?alt=sse` (<https://ai.google.dev/api>).

use axum::http::HeaderMap;
use serde_json::{Value, json};

use super::conversation::{self, Author, Matching, Said, Turn};
use super::lists::{self, Params};
use super::memory::Blocks;
use super::wire::{self, Answer, Heard, Incoming, Trouble, Wire, Written};

/// Gemini's wire.
#[derive(Debug)]
pub(super) struct Gemini;

const BLOCKS: Blocks = Blocks {
    call: |part| part["functionCall"]["id"].as_str(),
    is_signed: |part| part.get("thoughtSignature").is_some_and(|signature| signature != FOREIGN),
};

/// The signature that is taken on calls of another model.
const FOREIGN: &str = "skip_thought_signature_validator";

/// What a schema may say (<https://ai.google.dev/api/caching#Schema>).
const SCHEMA_FIELDS: [&str; 22] = [
    "type",
    "format",
    "title",
    "description",
    "nullable",
    "enum",
    "maxItems",
    "minItems",
    "properties",
    "required",
    "minProperties",
    "maxProperties",
    "minLength",
    "maxLength",
    "pattern",
    "example",
    "anyOf",
    "propertyOrdering",
    "default",
    "items",
    "minimum",
    "maximum",
];

/// Returns a page of the list of models.
pub(super) fn models(params: &Params) -> Result<Value, String> {
    let model = |id: &str, name: &str, window: u64, methods: &[&str]| {
        json!({ "name": format!("models/{id}"), "version": "001", "displayName": name, "description": name,
            "inputTokenLimit": window, "outputTokenLimit": 65_536, "supportedGenerationMethods": methods,
            "temperature": 1, "topP": 0.95, "topK": 64 })
    };
    let (chat, live) = (["generateContent", "countTokens"], ["bidiGenerateContent", "countTokens"]);
    let all = [
        model("gemini-3.5-flash-lite", "Gemini 3.5 Flash-Lite", 1_048_576, &chat),
        model("gemini-3.8-flash", "Gemini 3.8 Flash", 1_048_576, &chat),
        model("gemini-4-argon", "Gemini 4 Argon", 1_048_576, &chat),
        model("gemma-4-31b-it", "Gemma 4 31B", 131_072, &chat),
        model("gemini-3-pro-image", "Nano Banana Pro", 65_536, &chat),
        model("gemini-3.8-flash-tts", "Gemini 3.8 Flash TTS", 8192, &["countTokens", "generateContent"]),
        model("gemini-3.5-transcribe", "Gemini 3.5 Transcribe", 131_072, &["generateContent"]),
        model("gemini-3.8-live", "Gemini 3.8 Live", 131_072, &live),
        model("gemini-embedding-2", "Gemini Embedding 2", 8192, &["embedContent", "asyncBatchEmbedContent"]),
        model("imagen-4.0-generate-001", "Imagen 4", 480, &["predict"]),
    ];
    let from = match params.get("pageToken") {
        Some(token) => token.strip_prefix("at=").and_then(|at| at.parse().ok()).ok_or("bad pageToken")?,
        None => 0,
    };
    let (models, next) = lists::page(&all, params.get("pageSize"), 1..=1000, from)?;
    let mut list = json!({ "models": models });
    if let Some(next) = next {
        list["nextPageToken"] = json!(format!("at={next}"));
    }
    Ok(list)
}

impl Wire for Gemini {
    fn provider(&self) -> &'static str {
        "gemini"
    }

    fn key(&self, headers: &HeaderMap) -> Option<String> {
        headers.get("x-goog-api-key")?.to_str().ok().map(str::to_owned)
    }

    fn read(&self, incoming: &Incoming<'_>) -> Result<Heard, String> {
        if incoming.query != "alt=sse" {
            return Err(format!("the query must be alt=sse, is {:?}", incoming.query));
        }
        let name = incoming.path.rsplit_once('/').map_or(incoming.path, |(_, name)| name);
        let model = name.strip_suffix(":streamGenerateContent").ok_or("unknown method")?.to_owned();
        let body = incoming.body;
        for tool in wire::optional_list(body, "tools")? {
            let declarations = wire::list(tool, "functionDeclarations")?;
            for declaration in declarations {
                tool_name(wire::text(declaration, "name")?)?;
                if let Some(schema) = declaration.get("parameters") {
                    check_schema(schema)?;
                }
            }
            wire::distinct(declarations.iter().filter_map(|one| one["name"].as_str()).collect())?;
        }
        let thinks = model.starts_with("gemini-3");
        let mut turns: Vec<Turn> = Vec::new();
        for (at, content) in wire::list(body, "contents")?.iter().enumerate() {
            let parts = wire::list(content, "parts")?;
            let author = match wire::text(content, "role")? {
                "user" => Author::User,
                "model" => Author::Model,
                role => return Err(format!("Please use a valid role: user, model; not {role:?}.")),
            };
            let said = parts.iter().map(|part| said(author, part)).collect::<Result<Vec<_>, _>>()?;
            if let (Author::User, Some(before)) = (author, turns.last()) {
                check_ids(at, body, before)?;
            }
            if author == Author::Model && thinks {
                check_signatures(at, parts, incoming)?;
            }
            turns.push(Turn { author, said });
        }
        conversation::check(&turns, Matching::ByOrder)?;
        Ok(Heard { model, turns, thinks })
    }

    fn write(&self, answer: &Answer<'_>) -> Written {
        let (input, output) = answer.usage((7, 3));
        // What was counted so far.
        let counted = |pieces: usize| output.min(pieces as u64);
        let chunk = |parts: Value, finish: Option<&str>, output: u64| {
            let mut candidate = json!({ "index": 0, "content": { "role": "model", "parts": parts } });
            if let Some(finish) = finish {
                candidate["finishReason"] = json!(finish);
            }
            wire::data(&json!({ "candidates": [candidate], "modelVersion": answer.model,
                "usageMetadata": { "promptTokenCount": input, "candidatesTokenCount": output,
                "totalTokenCount": input + output } }))
        };
        let mut events = Vec::new();
        let mut parts = Vec::new();
        if answer.thinks {
            events.push(chunk(json!([{ "text": "planning", "thought": true }]), None, 0));
        }
        let text = answer.plan.text.iter().enumerate();
        events.extend(text.map(|(at, piece)| chunk(json!([{ "text": piece }]), None, counted(at + 1))));
        if !answer.plan.text.concat().trim().is_empty() {
            parts.push(json!({ "text": answer.plan.text.concat() }));
        }
        let before_calls = events.len();
        for (at, (name, args)) in answer.plan.calls.iter().enumerate() {
            let Some(arguments) = answer.argument_json(at) else {
                // Arguments come whole, so that broken ones end the answer.
                events.push(chunk(json!([]), Some("MALFORMED_FUNCTION_CALL"), output));
                return Written { events, before_calls, signed: Vec::new() };
            };
            let id = format!("fc-{}-{at}", answer.serial);
            let mut part = json!({ "functionCall": { "id": id, "name": name, "args": wire::ARGUMENTS } });
            if at == 0 && answer.thinks {
                // Only the first of several calls is signed.
                part["thoughtSignature"] = json!(format!("c2ln{}==", answer.serial));
            }
            events.push(wire::with_arguments(&chunk(json!([part]), None, output), &arguments));
            // What can't go back as it came goes back without.
            let is_raw = at == 0 && answer.plan.raw_arguments.is_some();
            part["functionCall"]["args"] = match serde_json::from_str(&arguments) {
                Ok(Value::Object(raw)) => Value::Object(raw),
                _ if is_raw => json!({}),
                _ => args.clone(),
            };
            parts.push(part);
        }
        events.push(chunk(json!([{ "text": "" }]), Some("STOP"), output));
        let signed = if answer.thinks && !answer.plan.calls.is_empty() { parts } else { Vec::new() };
        Written { events, before_calls, signed }
    }

    fn in_stream(&self, refusal: &Value) -> String {
        wire::data(refusal)
    }

    fn refusal(&self, trouble: Trouble<'_>) -> (u16, Value) {
        match trouble {
            Trouble::BadKey(_) => {
                let details = json!([{ "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "reason": "API_KEY_INVALID", "domain": "googleapis.com" }]);
                let words = "API key not valid. Please pass a valid API key.";
                (400, error(400, "INVALID_ARGUMENT", words, details))
            }
            Trouble::NoCredit => {
                let words = "Please enable billing on your project in Google AI Studio.";
                (400, error(400, "FAILED_PRECONDITION", words, json!([])))
            }
            Trouble::Malformed(why) => (400, error(400, "INVALID_ARGUMENT", why, json!([]))),
            Trouble::RateLimited(pause) => {
                let details = pause.map(|pause| {
                    json!({ "@type": "type.googleapis.com/google.rpc.RetryInfo",
                        "retryDelay": format!("{}s", pause.as_secs()) })
                });
                let details = json!(details.into_iter().collect::<Vec<_>>());
                (429, error(429, "RESOURCE_EXHAUSTED", "Resource has been exhausted.", details))
            }
            Trouble::Overloaded => {
                let words = "The model is overloaded. Please try again later.";
                (503, error(503, "UNAVAILABLE", words, json!([])))
            }
            Trouble::TooLong => {
                let words =
                    "The input token count (1048600) exceeds the maximum number of tokens allowed (1048576).";
                (400, error(400, "INVALID_ARGUMENT", words, json!([])))
            }
            Trouble::Broken => (500, error(500, "INTERNAL", "An internal error has occurred.", json!([]))),
        }
    }
}

fn error(code: u16, status: &str, message: &str, details: Value) -> Value {
    json!({ "error": { "code": code, "message": message, "status": status, "details": details } })
}

fn tool_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':' | '-');
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if begins && name.len() <= 128 && name.chars().all(fits) {
        return Ok(());
    }
    Err(format!("Invalid function name: {name:?}. Must start with a letter or an underscore."))
}

fn check_schema(schema: &Value) -> Result<(), String> {
    let fields = schema.as_object().ok_or_else(|| format!("a schema is an object, not {schema}"))?;
    if let Some(name) = fields.keys().find(|name| !SCHEMA_FIELDS.contains(&name.as_str())) {
        return Err(format!("Invalid JSON payload received. Unknown name \"{name}\": Cannot find field."));
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    let is_object = schema["type"].as_str().is_some_and(|kind| kind.eq_ignore_ascii_case("object"));
    if is_object && properties.is_none_or(|all| all.is_empty()) {
        return Err("properties: should be non-empty for OBJECT type".to_owned());
    }
    let nested = properties.into_iter().flat_map(|all| all.values());
    let choices = schema.get("anyOf").and_then(Value::as_array).into_iter().flatten();
    nested.chain(choices).chain(schema.get("items")).try_for_each(check_schema)
}

/// Returns what a part says; calls and results are named by their tool.
fn said(author: Author, part: &Value) -> Result<Said, String> {
    if let Some(call) = part.get("functionCall").filter(|_| author == Author::Model) {
        if call.get("args").is_some_and(|args| !args.is_object()) {
            return Err(format!("functionCall.args must be an object: {part}"));
        }
        tool_name(wire::text(call, "name")?)?;
        return Ok(Said::Call(wire::text(call, "name")?.to_owned()));
    }
    if let Some(response) = part.get("functionResponse").filter(|_| author == Author::User) {
        if !response["response"].is_object() {
            return Err(format!("functionResponse.response must be an object: {part}"));
        }
        return Ok(Said::Result(wire::text(response, "name")?.to_owned()));
    }
    if part.get("inlineData").is_some() {
        return Ok(Said::Other);
    }
    match part.get("text").and_then(Value::as_str) {
        Some(text) => Ok(Said::Text(text.to_owned())),
        None => Err(format!("contents.parts must have one initialized field: {part}")),
    }
}

/// Checks that results carry the ids of the calls in the turn `before`, where those have any.
fn check_ids(at: usize, body: &Value, before: &Turn) -> Result<(), String> {
    let ids = |turn: usize, kind: &str| -> Vec<Value> {
        let parts = body["contents"][turn]["parts"].as_array().into_iter().flatten();
        parts.filter_map(|part| Some(part.get(kind)?["id"].clone())).collect()
    };
    let (calls, results) = (ids(at - 1, "functionCall"), ids(at, "functionResponse"));
    if before.author == Author::Model && calls != results {
        return Err(format!("contents.{at}: function calls have the ids {calls:?}, responses {results:?}"));
    }
    Ok(())
}

/// Checks that a turn's first call is signed, and that what was signed is as it was.
fn check_signatures(at: usize, parts: &[Value], incoming: &Incoming<'_>) -> Result<(), String> {
    incoming.memory.check(parts, BLOCKS)?;
    let Some(first) = parts.iter().find(|part| part.get("functionCall").is_some()) else { return Ok(()) };
    let call = &first["functionCall"];
    let is_own = |kept: &Value| {
        kept["functionCall"]["name"] == call["name"] && kept["functionCall"]["args"] == call["args"]
    };
    match first.get("thoughtSignature") {
        None => {
            let name = &call["name"];
            Err(format!("Function call {name} in the {at}. content block is missing a `thought_signature`."))
        }
        Some(signature) if signature == FOREIGN && incoming.memory.has(is_own) => {
            Err(format!("Function call in the {at}. content block lost its `thought_signature`."))
        }
        Some(_) => Ok(()),
    }
}
