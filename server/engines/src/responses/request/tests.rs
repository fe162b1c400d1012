//! Request bodies as whole values; no network.

use std::sync::Arc;

use serde_json::json;
use tns_server_core::message::{Image, Note};

use super::*;
use crate::step::fixtures::{call, echo, model, native, result, step, text, user};

const MODEL: &str = "gpt-6.2-sol";

fn built(step: &StepRequest, model: &str) -> Value {
    serde_json::from_slice(&build(step, model).unwrap()).unwrap()
}

fn input(turns: Vec<ModelMessage>) -> Value {
    built(&step(turns), MODEL)["input"].take()
}

#[test]
fn a_whole_request_has_this_form() {
    let request = StepRequest {
        system: "Be brief.".into(),
        tools: Arc::from([echo(json!({"type": "object", "properties": {"text": {"type": "string"}}}))]),
        messages: vec![
            user(vec![
                Part::Note(Note::Text("Ann joined.".into())),
                text("Say hi."),
                Part::Image(Image { mime: "image/png".into(), data: "QUJD".into() }),
            ]),
            model(vec![text("I will."), call("call_1", &json!({"text": "hi"})), call("call_2", &json!({}))]),
            user(vec![text("And now?"), result("call_1", "hi", false), result("call_2", "no", true)]),
        ],
        effort: Some(Effort::High),
        max_output_tokens: Some(100),
        temperature: Some(0.5),
    };
    let body = String::from_utf8(build(&request, MODEL).unwrap()).unwrap();
    let expected = json!({
        "model": MODEL,
        "instructions": "Be brief.",
        "input": [
            {"type": "message", "role": "user", "content": [
                {"type": "input_text", "text": "<context>\nAnn joined.\n</context>"},
                {"type": "input_text", "text": "Say hi."},
                {"type": "input_image", "image_url": "data:image/png;base64,QUJD"},
            ]},
            {"type": "message", "role": "assistant", "content": "I will."},
            {"type": "function_call", "call_id": "call_1", "name": "echo", "arguments": "{\"text\":\"hi\"}"},
            {"type": "function_call", "call_id": "call_2", "name": "echo", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_1", "output": "hi"},
            {"type": "function_call_output", "call_id": "call_2", "output": "The tool failed:\nno"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "And now?"}]},
        ],
        "tools": [{"type": "function", "name": "echo", "description": "Says it again.",
            "parameters": {"type": "object", "properties": {"text": {"type": "string"}}}, "strict": false}],
        "reasoning": {"effort": "high"},
        "include": ["reasoning.encrypted_content"],
        "max_output_tokens": 100,
        "temperature": 0.5,
        "store": false,
        "stream": true,
    });
    assert_eq!(body, expected.to_string());
}

#[test]
fn where_nothing_is_asked_for_nothing_is_set() {
    assert_eq!(
        built(&step(vec![user(vec![text("go")])]), "gpt-4o"),
        json!({"model": "gpt-4o", "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
        ], "store": false, "stream": true})
    );
}

#[test]
fn only_models_that_reason_are_asked_for_reasoning() {
    for (model, asked) in [
        ("gpt-6.2-sol", true),
        ("o4-mini", true),
        ("gpt-5-mini", true),
        ("gpt-5-chat-latest", false),
        ("gpt-4.1", false),
        ("gpt-4o-mini", false),
        ("chatgpt-4o-latest", false),
    ] {
        assert_eq!(reasons(model), asked, "{model}");
    }
}

#[test]
fn kept_items_go_back_untouched_to_the_model_that_made_them() {
    let items = "{\"type\":\"reasoning\",\"id\":\"rs_1\",\"summary\":[],\"encrypted_content\":\"gAA= =\"},\
         {\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"ok\"}]},\
         {\"type\":\"function_call\",\"id\":\"fc_1\",\"call_id\":\"call_1\",\"name\":\"echo\",\"arguments\":\"{ }\"}";
    let kept = |model: &str| native("openai", &format!("{{\"model\":\"{model}\",\"items\":[{items}]}}"));
    let sent = |natives| {
        let turn = ModelMessage { native: natives, ..model(vec![text("ok"), call("call_1", &json!({}))]) };
        let request = step(vec![user(vec![text("go")]), turn, user(vec![result("call_1", "x", false)])]);
        String::from_utf8(build(&request, MODEL).unwrap()).unwrap()
    };
    let output = ",{\"type\":\"function_call_output\",\"call_id\":\"call_1\",\"output\":\"x\"}";
    let body = sent(vec![native("anthropic", "[]"), kept(MODEL)]);
    assert!(body.contains(&format!("{items}{output}")), "{body}");
    let anew = "{\"type\":\"message\",\"role\":\"assistant\",\"content\":\"ok\"},\
         {\"type\":\"function_call\",\"call_id\":\"call_1\",\"name\":\"echo\",\"arguments\":\"{}\"}";
    for natives in [vec![kept("gpt-5.4")], vec![native("anthropic", "[]")], vec![]] {
        let body = sent(natives);
        assert!(body.contains(&format!("{anew}{output}")) && !body.contains("reasoning\""), "{body}");
    }
}

#[test]
fn items_of_several_steps_go_back_in_order() {
    let kept = |words: &str| {
        native(
            "openai",
            &format!(
                "{{\"model\":\"{MODEL}\",\"items\":[{{\"type\":\"reasoning\",\"encrypted_content\":\"{words}\"}},\
             {{\"type\":\"message\",\"content\":[{{\"text\":\"{words}\"}}]}}]}}"
            ),
        )
    };
    let turn =
        ModelMessage { native: vec![kept("a"), kept("b")], ..model(vec![text("a"), text("cut"), text("b")]) };
    let sent = input(vec![user(vec![text("go")]), turn]);
    let kinds: Vec<_> = sent
        .as_array()
        .unwrap()
        .iter()
        .map(|item| {
            item["encrypted_content"]
                .as_str()
                .or(item["content"].as_str())
                .or(item["content"][0]["text"].as_str())
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(kinds, ["go", "a", "a", "cut", "b", "b"]);
}

#[test]
fn no_empty_text_and_no_empty_message_is_sent() {
    assert_eq!(
        input(vec![
            user(vec![text(" "), text("go")]),
            model(vec![text("\n"), call("c", &json!({}))]),
            user(vec![result("c", "", false)]),
            model(vec![text("")]),
        ]),
        json!([
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
            {"type": "function_call", "call_id": "c", "name": "echo", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "(no output)"},
        ])
    );
}
