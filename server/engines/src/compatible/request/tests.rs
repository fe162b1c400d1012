//! Request bodies as whole values; no network.

use std::sync::Arc;

use serde_json::json;
use tns_protocol::{DocumentId, ToolCallId};
use tns_server_core::message::{Image, Note, Passage, ToolCall, ToolResult};

use super::*;

fn user(parts: Vec<Part>) -> ModelMessage {
    ModelMessage { role: ModelRole::User, parts, native: Vec::new() }
}

fn model(parts: Vec<Part>) -> ModelMessage {
    ModelMessage { role: ModelRole::Assistant, parts, native: Vec::new() }
}

fn text(words: &str) -> Part {
    Part::Text(words.into())
}

fn call(id: &str, provider_id: Option<&str>, name: &str, args: &Value) -> Part {
    Part::ToolCall(ToolCall {
        id: ToolCallId::parse(id).unwrap(),
        provider_id: provider_id.map(Into::into),
        name: name.into(),
        args: args.as_object().unwrap().clone(),
        problem: None,
    })
}

fn result(id: &str, provider_id: Option<&str>, output: &str) -> Part {
    Part::ToolResult(ToolResult {
        call: ToolCallId::parse(id).unwrap(),
        provider_id: provider_id.map(Into::into),
        name: "echo".into(),
        output: output.into(),
        is_error: false,
        untrusted_source: None,
    })
}

fn request(messages: Vec<ModelMessage>) -> StepRequest {
    StepRequest {
        system: "".into(),
        tools: Arc::from([]),
        messages,
        effort: None,
        max_output_tokens: None,
        temperature: None,
    }
}

fn spec(schema: Value) -> Arc<ToolSpec> {
    Arc::new(ToolSpec { name: "echo".into(), description: "Says it again.".into(), schema })
}

fn built(request: &StepRequest, accepts_images: bool) -> Value {
    serde_json::from_slice(&build(request, "m", accepts_images).unwrap()).unwrap()
}

fn messages(messages: Vec<ModelMessage>) -> Value {
    built(&request(messages), false)["messages"].take()
}

#[test]
fn a_whole_request_has_this_form() {
    let knowledge = Note::Knowledge(vec![Passage {
        number: 1,
        document: DocumentId::parse("d").unwrap(),
        source: "a.md:1".into(),
        text: "Alpha.".into(),
    }]);
    let request = StepRequest {
        system: "Be brief.".into(),
        tools: Arc::from([spec(json!({"type": "object", "properties": {"text": {"type": "string"}}}))]),
        messages: vec![
            user(vec![Part::Note(knowledge.clone()), text("Say hi.")]),
            model(vec![text("I will."), call("ours-1", Some("c1"), "echo", &json!({"text": "hi"}))]),
            user(vec![text("And now?"), result("ours-1", Some("c1"), "hi")]),
        ],
        effort: Some(Effort::High),
        max_output_tokens: Some(100),
        temperature: Some(0.7),
    };
    let body = String::from_utf8(build(&request, "m", false).unwrap()).unwrap();
    let expected = json!({
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": format!("{}\n\nSay hi.", render::note(&knowledge))},
            {"role": "assistant", "content": "I will.", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "echo", "arguments": "{\"text\":\"hi\"}"}},
            ]},
            {"role": "tool", "tool_call_id": "c1", "content": "hi"},
            {"role": "user", "content": "And now?"},
        ],
        "tools": [{"type": "function", "function": {
            "name": "echo",
            "description": "Says it again.",
            "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
        }}],
        "reasoning_effort": "high",
        "max_tokens": 100,
        "temperature": 0.7,
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    assert_eq!(body, expected.to_string());
}

#[test]
fn no_empty_text_is_sent() {
    assert_eq!(
        messages(vec![
            user(vec![text(""), text("go")]),
            model(vec![text(""), call("ours-1", None, "echo", &json!({}))]),
            user(vec![result("ours-1", None, "")]),
            model(vec![text("")]),
        ]),
        json!([
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "ours-1", "type": "function", "function": {"name": "echo", "arguments": "{}"}},
            ]},
            {"role": "tool", "tool_call_id": "ours-1", "content": "(no output)"},
        ])
    );
}

#[test]
fn pictures_go_to_models_that_take_them() {
    let picture = Part::Image(Image { mime: "image/png".into(), data: "QUJD".into() });
    let request = request(vec![user(vec![text("What is it?"), picture])]);
    assert_eq!(
        built(&request, true)["messages"][0]["content"],
        json!([
            {"type": "text", "text": "What is it?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
        ])
    );
    assert_eq!(
        built(&request, false)["messages"][0]["content"],
        "What is it?\n\n(A picture, image/png, is left out: this model takes none.)"
    );
}

#[test]
fn the_same_step_gives_the_same_bytes() {
    let step =
        request(vec![user(vec![text("go")]), model(vec![call("c", None, "t", &json!({"b": 1, "a": 2}))])]);
    let body = || build(&step, "m", true).unwrap();
    assert_eq!(body(), body());
}
