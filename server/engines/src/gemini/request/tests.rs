//! Request bodies as whole values; no network.

use std::sync::Arc;

use serde_json::json;
use tns_protocol::DocumentId;
use tns_server_core::message::{Image, Note, Passage, ToolCall};

use super::*;
use crate::step::fixtures::{model, native, step, text, user};

const MODEL: &str = "gemini-3.8-flash";

fn with_native(message: ModelMessage, provider: &str, blocks: &str) -> ModelMessage {
    ModelMessage { native: vec![native(provider, blocks)], ..message }
}

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
        provider_id: Some(format!("foreign-{id}")),
        name: name.into(),
        output: output.into(),
        is_error,
        untrusted_source: None,
    })
}

fn spec(name: &str, schema: Value) -> Arc<ToolSpec> {
    Arc::new(ToolSpec { name: name.into(), description: "Says it again.".into(), schema })
}

fn built(step: &StepRequest, model: &str) -> Value {
    serde_json::from_slice(&build(step, model, true).unwrap()).unwrap()
}

fn contents(messages: Vec<ModelMessage>) -> Value {
    built(&step(messages), MODEL)["contents"].take()
}

#[test]
fn a_whole_request_has_this_form() {
    let knowledge = Note::Knowledge(vec![Passage {
        number: 1,
        document: DocumentId::parse("d").unwrap(),
        source: "a.md:1".into(),
        text: "Alpha.".into(),
    }]);
    let picture = Part::Image(Image { mime: "image/png".into(), data: "QUJD".into() });
    let step = StepRequest {
        system: "Be brief.".into(),
        tools: Arc::from([
            spec(
                "echo",
                json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}),
            ),
            spec("3d", json!({"type": "object"})),
        ]),
        effort: Some(Effort::Medium),
        max_output_tokens: Some(100),
        temperature: Some(0.5),
        ..step(vec![
            user(vec![Part::Note(knowledge.clone()), text("Say hi."), picture]),
            model(vec![
                text("I will."),
                call("a", "echo", &json!({"text": "hi"})),
                call("b", "3d", &json!({})),
            ]),
            user(vec![result("b", "3d", "no such model", true), result("a", "echo", "hi", false)]),
            model(vec![text("Done.")]),
            user(vec![text("Thanks.")]),
        ])
    };
    assert_eq!(
        built(&step, MODEL),
        json!({
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "tools": [{"functionDeclarations": [
                {
                    "name": "echo",
                    "description": "Says it again.",
                    "parameters": {"type": "OBJECT", "properties": {"text": {"type": "STRING"}}, "required": ["text"]},
                },
                {"name": "_.3d", "description": "Says it again."},
            ]}],
            "contents": [
                {"role": "user", "parts": [
                    {"text": render::note(&knowledge)},
                    {"text": "Say hi."},
                    {"inlineData": {"mimeType": "image/png", "data": "QUJD"}},
                ]},
                {"role": "model", "parts": [
                    {"text": "I will."},
                    {
                        "functionCall": {"name": "echo", "args": {"text": "hi"}},
                        "thoughtSignature": "skip_thought_signature_validator",
                    },
                    {"functionCall": {"name": "_.3d", "args": {}}},
                ]},
                {"role": "user", "parts": [
                    {"functionResponse": {"name": "echo", "response": {"output": "hi"}}},
                    {"functionResponse": {"name": "_.3d", "response": {"error": "no such model"}}},
                ]},
                {"role": "model", "parts": [{"text": "Done."}]},
                {"role": "user", "parts": [{"text": "Thanks."}]},
            ],
            "generationConfig": {
                "temperature": 0.5,
                "maxOutputTokens": 100,
                "thinkingConfig": {"includeThoughts": true, "thinkingLevel": "MEDIUM"},
            },
        })
    );
}

#[test]
fn turns_alternate_and_no_text_is_empty() {
    assert_eq!(
        contents(vec![
            user(vec![text("go")]),
            model(vec![text("")]),
            user(vec![text(""), text("on")]),
            model(vec![text(" \n"), call("a", "echo", &json!({}))]),
            user(vec![text("and this"), result("a", "echo", "", false)]),
        ]),
        json!([
            {"role": "user", "parts": [{"text": "go"}, {"text": "on"}]},
            {"role": "model", "parts": [{
                "functionCall": {"name": "echo", "args": {}},
                "thoughtSignature": "skip_thought_signature_validator",
            }]},
            {"role": "user", "parts": [
                {"functionResponse": {"name": "echo", "response": {"output": "(no output)"}}},
                {"text": "and this"},
            ]},
        ])
    );
}

/// What this model once sent, with keys and spaces as it had them.
const BLOCKS: &str = "{\"model\":\"gemini-3.8-flash\",\"parts\":[{\"text\":\"ok\"},\
    { \"thoughtSignature\":\"c2ln\", \"functionCall\":{\"name\":\"echo\",\"args\":{\"n\":1.0},\"id\":\"x1\"}},\
    {\"functionCall\":{\"name\":\"echo\",\"args\":{},\"id\":\"x2\"}},{\"text\":\"\",\"thoughtSignature\":\"ZQ==\"}]}";

fn signed_turn() -> ModelMessage {
    model(vec![text("ok"), call("a", "echo", &json!({"n": 1.0})), call("b", "echo", &json!({}))])
}

fn turn_with(blocks: &str, provider: &str, model: &str) -> String {
    let messages = vec![
        user(vec![text("go")]),
        with_native(signed_turn(), provider, blocks),
        user(vec![result("b", "echo", "B", false), result("a", "echo", "A", false)]),
    ];
    String::from_utf8(build(&step(messages), model, true).unwrap()).unwrap()
}

#[test]
fn a_turn_of_this_model_goes_back_byte_for_byte_with_its_ids() {
    let sent = turn_with(BLOCKS, "gemini", MODEL);
    let parts = BLOCKS.strip_prefix("{\"model\":\"gemini-3.8-flash\",").unwrap().strip_suffix('}').unwrap();
    assert!(sent.contains(&format!("{{\"role\":\"model\",{parts}}}")), "{sent}");
    let sent: Value = serde_json::from_str(&sent).unwrap();
    assert_eq!(
        sent["contents"][2]["parts"],
        json!([
            {"functionResponse": {"id": "x1", "name": "echo", "response": {"output": "A"}}},
            {"functionResponse": {"id": "x2", "name": "echo", "response": {"output": "B"}}},
        ])
    );
}

#[test]
fn blocks_of_others_or_of_another_turn_are_left_out() {
    let other_text = BLOCKS.replace("\"ok\"", "\"no\"");
    let other_call = BLOCKS.replacen("\"echo\"", "\"shell\"", 1);
    for (blocks, provider, model) in [
        (BLOCKS, "anthropic", MODEL),
        (BLOCKS, "gemini", "gemini-4-argon"),
        (&other_text, "gemini", MODEL),
        (&other_call, "gemini", MODEL),
        ("{}", "gemini", MODEL),
        ("{\"model\":\"gemini-3.8-flash\",\"parts\":[]}", "gemini", MODEL),
    ] {
        let sent = turn_with(blocks, provider, model);
        assert!(!sent.contains("c2ln") && !sent.contains("\"x1\"") && !sent.contains("foreign"), "{sent}");
        assert_eq!(sent.matches(FOREIGN_CALL).count(), 1);
    }
}

#[test]
fn older_models_get_no_stand_in_for_a_signature() {
    let messages = || vec![user(vec![text("go")]), signed_turn(), user(vec![text("on")])];
    for (model, count) in [("gemini-2.5-pro", 0), ("gemma-4-31b-it", 0), ("gemini-flash-latest", 1)] {
        let sent = built(&step(messages()), model).to_string();
        assert_eq!(sent.matches(FOREIGN_CALL).count(), count, "{model}");
    }
}

#[test]
fn each_generation_of_models_is_told_to_think_in_its_own_way() {
    let thinking = |model: &str, effort| {
        let step = StepRequest { effort, ..step(vec![user(vec![text("go")])]) };
        built(&step, model)["generationConfig"].clone()
    };
    let shown = json!({"thinkingConfig": {"includeThoughts": true}});
    assert_eq!(thinking(MODEL, None), shown);
    assert_eq!(thinking("gemini-2.5-flash", None), shown);
    assert_eq!(thinking("gemma-4-31b-it", Some(Effort::High)), json!({}));
    for (effort, level, budget) in
        [(Effort::Low, "LOW", 1024), (Effort::Medium, "MEDIUM", 8192), (Effort::High, "HIGH", 24_576)]
    {
        let level = json!({"thinkingConfig": {"includeThoughts": true, "thinkingLevel": level}});
        assert_eq!(thinking("gemini-4-argon", Some(effort)), level);
        let budget = json!({"thinkingConfig": {"includeThoughts": true, "thinkingBudget": budget}});
        assert_eq!(thinking("gemini-2.5-pro", Some(effort)), budget);
    }
}

#[test]
fn a_hopeless_schema_costs_its_tool_and_nothing_else() {
    let nowhere = json!({"type": "object", "properties": {"q": {"$ref": "#/$defs/Q"}}});
    let offered = |tools: Vec<Arc<ToolSpec>>| {
        built(&StepRequest { tools: tools.into(), ..step(vec![user(vec![text("go")])]) }, MODEL)["tools"]
            .take()
    };
    let tools = offered(vec![spec("lost", nowhere.clone()), spec("echo", json!({}))]);
    assert_eq!(tools, json!([{"functionDeclarations": [{"name": "echo", "description": "Says it again."}]}]));
    assert_eq!(offered(vec![spec("lost", nowhere)]), Value::Null);
}

#[test]
fn pictures_become_a_line_where_the_model_takes_none() {
    let picture = Part::Image(Image { mime: "image/png".into(), data: "QUJD".into() });
    let sent = build(&step(vec![user(vec![picture])]), "gemma-4-31b-it", false).unwrap();
    let sent: Value = serde_json::from_slice(&sent).unwrap();
    assert_eq!(
        sent["contents"][0]["parts"],
        json!([{"text": "(A picture, image/png, is left out: this model takes none.)"}])
    );
}

#[test]
fn the_same_step_gives_the_same_bytes() {
    let step = step(vec![user(vec![text("go")]), model(vec![call("c", "t", &json!({"b": 1, "a": 2}))])]);
    let body = || build(&step, MODEL, true).unwrap();
    assert_eq!(body(), body());
}

#[test]
fn blank_text_that_was_not_kept_does_not_keep_the_rest_back() {
    let parts =
        vec![text(" \n"), text("ok"), call("a", "echo", &json!({"n": 1.0})), call("b", "echo", &json!({}))];
    let message = with_native(model(parts), "gemini", BLOCKS);
    let sent = contents(vec![
        user(vec![text("go")]),
        message,
        user(vec![result("a", "echo", "x", false), result("b", "echo", "y", false)]),
    ]);
    assert_eq!(sent[1]["parts"][1]["thoughtSignature"], "c2ln", "{sent}");
}
