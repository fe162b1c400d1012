//! Request bodies as whole values; no network.

use std::sync::Arc;

use serde_json::json;
use tns_protocol::DocumentId;
use tns_server_core::message::{Note, Passage};

use super::*;
use crate::step::fixtures::{call, echo, model, native, result, step, text, user};

const MODEL: &str = "claude-opus-4-5";

fn built(step: &StepRequest) -> Value {
    serde_json::from_slice(&build(step, MODEL, None).unwrap()).unwrap()
}

/// The messages of a step without the marks for the cache.
fn messages(turns: Vec<ModelMessage>) -> Value {
    let mut messages = built(&step(turns))["messages"].take();
    for message in messages.as_array_mut().unwrap() {
        for block in message["content"].as_array_mut().unwrap() {
            block.as_object_mut().unwrap().remove("cache_control");
        }
    }
    messages
}

fn image(mime: &str) -> Part {
    Part::Image(Image { mime: mime.into(), data: "QUJD".into() })
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
        tools: Arc::from([
            echo(json!({"type": "object", "properties": {"text": {"type": "string"}}})),
            Arc::new(tns_server_core::tool::ToolSpec {
                name: "other".into(),
                description: "".into(),
                schema: json!({}),
            }),
        ]),
        messages: vec![
            user(vec![Part::Note(knowledge.clone()), text("Say hi."), image("image/png")]),
            model(vec![
                text("I will."),
                call("toolu_1", &json!({"text": "hi"})),
                call("toolu_2", &json!({})),
            ]),
            user(vec![text("And now?"), result("toolu_1", "hi", false), result("toolu_2", "no", true)]),
        ],
        effort: Some(Effort::High),
        max_output_tokens: Some(100),
        temperature: Some(0.5),
    };
    let body = String::from_utf8(build(&request, MODEL, None).unwrap()).unwrap();
    let cached = json!({"type": "ephemeral"});
    let expected = json!({
        "model": MODEL,
        "max_tokens": 100,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": cached}],
        "tools": [
            {"name": "echo", "description": "Says it again.",
                "input_schema": {"type": "object", "properties": {"text": {"type": "string"}}}},
            {"name": "other", "description": "", "input_schema": {"type": "object", "properties": {}},
                "cache_control": cached},
        ],
        "messages": [
            {"role": "user", "content": [
                {"type": "text", "text": render::note(&knowledge)},
                {"type": "text", "text": "Say hi."},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"},
                    "cache_control": cached},
            ]},
            {"role": "assistant", "content": [
                {"type": "text", "text": "I will."},
                {"type": "tool_use", "id": "toolu_1", "name": "echo", "input": {"text": "hi"}},
                {"type": "tool_use", "id": "toolu_2", "name": "echo", "input": {}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "hi"},
                {"type": "tool_result", "tool_use_id": "toolu_2", "content": "no", "is_error": true},
                {"type": "text", "text": "And now?", "cache_control": cached},
            ]},
        ],
        "output_config": {"effort": "high"},
        "temperature": 0.5,
        "stream": true,
    });
    assert_eq!(body, expected.to_string());
}

#[test]
fn thoughts_are_asked_for_in_the_form_that_the_model_takes() {
    let sent = |is_bound| {
        let body = build(&step(vec![user(vec![text("go")])]), MODEL, Some(Thinking { is_bound })).unwrap();
        serde_json::from_slice::<Value>(&body).unwrap()["thinking"].take()
    };
    assert_eq!(sent(false), json!({"type": "adaptive", "display": "summarized"}));
    assert_eq!(
        sent(true),
        json!({"type": "adaptive", "display": "summarized",
            "block_binding": {"prefix_mismatch_behavior": "drop_block"}})
    );
}

#[test]
fn where_nothing_is_asked_for_only_what_the_wire_demands_is_sent() {
    let body = built(&step(vec![user(vec![text("go")])]));
    assert_eq!(
        body,
        json!({"model": MODEL, "max_tokens": 32_000, "messages": [{"role": "user", "content": [
            {"type": "text", "text": "go", "cache_control": {"type": "ephemeral"}}]}], "stream": true})
    );
}

#[test]
fn the_last_two_user_turns_are_marked_for_the_cache_and_no_others() {
    let turns = vec![
        user(vec![text("1")]),
        model(vec![text("a")]),
        user(vec![text("2")]),
        model(vec![text("b")]),
        user(vec![text("3")]),
    ];
    let body = built(&step(turns));
    let marked: Vec<_> = body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["content"][0].get("cache_control").is_some())
        .collect();
    assert_eq!(marked, [false, false, true, false, true]);
}

#[test]
fn thoughts_go_back_untouched_and_in_their_place() {
    let blocks = "[{\"signature\":\"c2lnMQ==\",\"thinking\":\" plan\\nning  \",\"type\":\"thinking\"},\
         {\"type\":\"redacted_thinking\",\"data\":\"ZGF0YQ==\"},{\"type\":\"text\",\"text\":\"ok\"},\
         {\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"echo\",\"input\":{\"n\":1.50}}]";
    let turn = ModelMessage {
        native: vec![native("openai", "[]"), native("anthropic", blocks)],
        ..model(vec![text("ok"), call("t1", &json!({"n": 1.5}))])
    };
    let request = step(vec![user(vec![text("go")]), turn, user(vec![result("t1", "done", false)])]);
    let body = String::from_utf8(build(&request, MODEL, None).unwrap()).unwrap();
    assert!(body.contains(&format!("{{\"role\":\"assistant\",\"content\":{blocks}}}")), "{body}");
    assert!(body.contains("{\"type\":\"tool_result\",\"tool_use_id\":\"t1\",\"content\":\"done\""), "{body}");
}

#[test]
fn other_providers_blocks_are_left_out() {
    let turn = ModelMessage {
        native: vec![native("gemini", "[{\"type\":\"text\",\"text\":\"ok\"}]")],
        ..model(vec![text("ok")])
    };
    assert_eq!(
        messages(vec![user(vec![text("go")]), turn])[1],
        json!({"role": "assistant", "content": [{"type": "text", "text": "ok"}]})
    );
}

#[test]
fn no_empty_text_and_no_empty_turn_is_sent() {
    assert_eq!(
        messages(vec![
            user(vec![text(""), text("go")]),
            model(vec![text("\n\n"), call("t1", &json!({}))]),
            user(vec![result("t1", "", false)]),
            model(vec![text(" ")]),
            user(vec![text("again")]),
        ]),
        json!([
            {"role": "user", "content": [{"type": "text", "text": "go"}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "echo", "input": {}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "(no output)"},
                {"type": "text", "text": "again"},
            ]},
        ])
    );
}

#[test]
fn calls_of_other_providers_get_ids_that_fit() {
    let sent = messages(vec![
        user(vec![text("go")]),
        model(vec![call("a.b", &json!({}))]),
        user(vec![result("a.b", "x", false)]),
    ]);
    assert_eq!(
        (&sent[1]["content"][0]["id"], &sent[2]["content"][0]["tool_use_id"]),
        (&json!("a_b"), &json!("a_b"))
    );
}

#[test]
fn a_history_with_calls_names_their_tools_where_none_is_on_offer() {
    let body = built(&step(vec![
        user(vec![text("go")]),
        model(vec![call("t1", &json!({})), call("t2", &json!({}))]),
        user(vec![result("t1", "x", false), result("t2", "x", false)]),
    ]));
    assert_eq!(
        (&body["tools"], &body["tool_choice"]),
        (
            &json!([{"name": "echo", "description": "No longer available.",
                "input_schema": {"type": "object", "properties": {}}, "cache_control": {"type": "ephemeral"}}]),
            &json!({"type": "none"})
        )
    );
}

#[test]
fn a_picture_of_a_kind_that_is_not_taken_becomes_text() {
    assert_eq!(
        messages(vec![user(vec![image("image/tiff")])])[0]["content"],
        json!([{"type": "text", "text": "(A picture, image/tiff, is left out: this model takes none.)"}])
    );
}
