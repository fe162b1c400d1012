//! Request bodies as whole values; no network.

use std::sync::Arc;

use serde_json::json;
use tns_server_core::engine::Effort;
use tns_server_core::message::{Image, Note, ToolCall, ToolResult};

use super::*;
use crate::step::fixtures::{model, native, step, text, user};

fn call(id: &str, name: &str, args: &Value) -> Part {
    Part::ToolCall(ToolCall {
        id: ToolCallId::parse(id).unwrap(),
        provider_id: Some(format!("foreign-{id}")),
        name: name.into(),
        args: args.as_object().unwrap().clone(),
        problem: None,
    })
}

fn result(id: &str, name: &str, output: &str, is_error: bool) -> Part {
    Part::ToolResult(ToolResult {
        call: ToolCallId::parse(id).unwrap(),
        provider_id: None,
        name: name.into(),
        output: output.into(),
        is_error,
        untrusted_source: None,
    })
}

fn able(capabilities: &[&str]) -> Abilities {
    Abilities::of(&serde_json::from_value(json!({"capabilities": capabilities})).unwrap())
}

fn built(step: &StepRequest, abilities: &Abilities) -> Value {
    serde_json::from_slice(&build(step, "qwen3:4b", abilities, |needed| needed).unwrap()).unwrap()
}

fn messages(messages: Vec<ModelMessage>) -> Value {
    built(&step(messages), &Abilities::untold())["messages"].take()
}

fn with_a_tool() -> StepRequest {
    let spec = ToolSpec {
        name: "echo".into(),
        description: "Says it again.".into(),
        schema: json!({"type": "object"}),
    };
    StepRequest { tools: Arc::from([Arc::new(spec)]), ..step(vec![user(vec![text("go")])]) }
}

#[test]
fn a_request_asks_for_the_room_that_it_needs() {
    let reads = |window: u64| {
        let shown =
            json!({"capabilities": ["tools", "vision"], "model_info": {"qwen3.context_length": window}});
        Abilities::of(&serde_json::from_value(shown).unwrap())
    };
    let said = |length: usize| step(vec![user(vec![text(&"a ".repeat(length / 2))])]);
    let asked = |length: usize| built(&said(length), &reads(131_072))["options"]["num_ctx"].take();
    assert_eq!((asked(10), asked(30_000)), (json!(8_192), json!(16_384)));
    // A picture's bytes are no words.
    let picture = Part::Image(Image { mime: "image/png".into(), data: "QUJD".repeat(10_000).into() });
    let step = step(vec![user(vec![picture])]);
    assert_eq!(built(&step, &reads(131_072))["options"], json!({ "num_ctx": 8_192 }));
    assert_eq!(built(&step, &Abilities::untold()).get("options"), None);

    let refused = build(&said(100_000), "qwen3:4b", &reads(8_192), |needed| needed).unwrap_err();
    assert_eq!(refused.kind, EngineErrorKind::ContextOverflow);
    assert!(refused.message.contains("8192 tokens"), "{}", refused.message);
}

#[test]
fn a_whole_request_has_this_form() {
    let picture = Part::Image(Image { mime: "image/png".into(), data: "QUJD".into() });
    let note = Note::Text("Ann joined.".into());
    let step = StepRequest {
        system: "Be brief.".into(),
        effort: Some(Effort::Low),
        max_output_tokens: Some(100),
        temperature: Some(0.5),
        messages: vec![
            user(vec![Part::Note(note.clone()), text("Say hi."), picture]),
            model(vec![
                text("I will."),
                call("a", "echo", &json!({"text": "hi"})),
                call("b", "echo", &json!({})),
            ]),
            user(vec![result("b", "echo", "no text", true), result("a", "echo", "hi", false), text("More.")]),
        ],
        ..with_a_tool()
    };
    assert_eq!(
        built(&step, &able(&["completion", "tools", "vision", "thinking"])),
        json!({
            "model": "qwen3:4b",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {
                    "role": "user",
                    "content": format!("{}\n\nSay hi.", render::note(&note)),
                    "images": ["QUJD"],
                },
                {"role": "assistant", "content": "I will.", "tool_calls": [
                    {"function": {"name": "echo", "arguments": {"text": "hi"}}},
                    {"function": {"name": "echo", "arguments": {}}},
                ]},
                {"role": "tool", "tool_name": "echo", "content": "hi"},
                {"role": "tool", "tool_name": "echo", "content": "The tool failed:\nno text"},
                {"role": "user", "content": "More."},
            ],
            "tools": [{"type": "function", "function": {
                "name": "echo",
                "description": "Says it again.",
                "parameters": {"type": "object", "properties": {}},
            }}],
            "think": true,
            "keep_alive": "30m",
            "truncate": false,
            "shift": false,
            "options": {"temperature": 0.5, "num_predict": 100},
            "stream": true,
        })
    );
}

#[test]
fn what_the_model_can_not_take_is_left_out() {
    let picture = Part::Image(Image { mime: "image/png".into(), data: "QUJD".into() });
    let step = StepRequest {
        messages: vec![user(vec![text("What is it?"), picture])],
        effort: Some(Effort::High),
        ..with_a_tool()
    };
    assert_eq!(
        built(&step, &able(&["completion"])),
        json!({
            "model": "qwen3:4b",
            "messages": [{
                "role": "user",
                "content": "What is it?\n\n(A picture, image/png, is left out: this model takes none.)",
            }],
            "keep_alive": "30m",
            "truncate": false,
            "shift": false,
            "stream": true,
        })
    );
}

#[test]
fn no_message_is_empty() {
    assert_eq!(
        messages(vec![
            user(vec![text(""), text("go")]),
            model(vec![text("")]),
            model(vec![text(""), call("a", "echo", &json!({}))]),
            user(vec![result("a", "echo", "", false), text("")]),
        ]),
        json!([
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "echo", "arguments": {}}}]},
            {"role": "tool", "tool_name": "echo", "content": "(no output)"},
        ])
    );
}

#[test]
fn a_models_own_reasoning_goes_back_with_its_calls_and_no_one_elses() {
    let turn = |provider: &str, blocks: &str| {
        let native = vec![native(provider, blocks)];
        let message = ModelMessage { native, ..model(vec![call("a", "echo", &json!({}))]) };
        messages(vec![user(vec![text("go")]), message])[1]["thinking"].take()
    };
    assert_eq!(turn("ollama", "{\"thinking\":\" plan\\n\"}"), json!(" plan\n"));
    assert_eq!(turn("anthropic", "{\"thinking\":\"secret\"}"), Value::Null);
    assert_eq!(turn("ollama", "[]"), Value::Null);
}

#[test]
fn the_same_step_gives_the_same_bytes() {
    let step = StepRequest {
        messages: vec![user(vec![text("go")]), model(vec![call("c", "t", &json!({"b": 1, "a": 2}))])],
        ..with_a_tool()
    };
    let body = || build(&step, "m", &Abilities::untold(), |needed| needed).unwrap();
    assert_eq!(body(), body());
}
