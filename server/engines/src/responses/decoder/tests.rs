//! Streams as the API sends them, cut at every byte; no network.

use serde_json::{Value, json};
use tns_protocol::ToolCallId;
use tns_server_core::engine::StepEvent;
use tns_server_core::message::{Part, ToolCall};

use super::*;
use crate::step::playback::{self, Decoded};

const MODEL: &str = "gpt-6.2-sol";

fn decode<'a>(writes: impl IntoIterator<Item = &'a [u8]>) -> Decoded {
    playback::decode(StreamDecoder::new(MODEL), writes)
}

fn decode_every_cut(body: &[u8]) -> Decoded {
    playback::decode_every_cut(|| StreamDecoder::new(MODEL), body)
}

fn event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap())
}

fn created() -> String {
    event(&json!({"type": "response.created", "sequence_number": 0,
        "response": {"id": "resp_1", "model": "gpt-6.2-sol-2026-11-12", "status": "in_progress", "usage": null}}))
}

fn added(index: u64, item: &Value) -> String {
    event(&json!({"type": "response.output_item.added", "output_index": index, "item": item}))
}

fn done(index: u64, item: &Value) -> String {
    event(&json!({"type": "response.output_item.done", "output_index": index, "item": item}))
}

fn delta(kind: &str, index: u64, piece: &str) -> String {
    event(&json!({"type": format!("response.{kind}.delta"), "output_index": index, "delta": piece}))
}

fn message(words: &str) -> Value {
    json!({"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": words, "annotations": []}]})
}

fn said(index: u64, pieces: &[&str]) -> String {
    let pieces_sent: String = pieces.iter().map(|piece| delta("output_text", index, piece)).collect();
    added(index, &json!({"id": "msg_1", "type": "message", "role": "assistant", "content": []}))
        + &pieces_sent
        + &done(index, &message(&pieces.concat()))
}

fn function_call(call_id: &str, arguments: &str) -> Value {
    json!({"id": "fc_1", "type": "function_call", "status": "completed", "call_id": call_id, "name": "echo",
        "arguments": arguments})
}

fn called(index: u64, call_id: &str, pieces: &[&str]) -> String {
    let sent: String = pieces.iter().map(|piece| delta("function_call_arguments", index, piece)).collect();
    let whole = pieces.concat();
    added(index, &function_call(call_id, ""))
        + &sent
        + &event(
            &json!({"type": "response.function_call_arguments.done", "output_index": index, "arguments": whole}),
        )
        + &done(index, &function_call(call_id, &whole))
}

fn completed() -> String {
    event(&json!({"type": "response.completed", "response": {"model": "gpt-6.2-sol-2026-11-12",
        "status": "completed", "usage": {"input_tokens": 1000, "input_tokens_details":
        {"cached_tokens": 400, "cache_write_tokens": 100}, "output_tokens": 100, "total_tokens": 1100}}}))
}

fn text(words: &str) -> StepEvent {
    StepEvent::Text(words.into())
}

fn call(number: u32, provider_id: &str, args: &Value) -> Part {
    Part::ToolCall(ToolCall {
        id: ToolCallId::parse(format!("call_{number}")).unwrap(),
        provider_id: Some(provider_id.into()),
        name: "echo".into(),
        args: args.as_object().unwrap().clone(),
        problem: None,
    })
}

fn kept(outcome: &StepOutcome) -> Value {
    serde_json::from_str(outcome.native.as_ref().unwrap().blocks.get()).unwrap()
}

#[test]
fn text_survives_every_cut() {
    let words = "東京 👩\u{200d}🔬 é";
    let body = created() + &said(0, &[words, " \"b\"\n"]) + &completed();
    let (events, outcome) = decode_every_cut(body.as_bytes()).unwrap();
    assert_eq!(events, [text(words), text(" \"b\"\n")]);
    assert_eq!(
        outcome,
        StepOutcome {
            parts: vec![Part::Text(format!("{words} \"b\"\n"))],
            model: "gpt-6.2-sol-2026-11-12".into(),
            stop: StepStop::End,
            usage: StepUsage { input: 1000, cached_input: 400, cache_written: 100, output: 100, cost: None },
            native: None,
        }
    );
}

#[test]
fn a_bad_byte_costs_one_character_and_the_stream_goes_on() {
    let mut body = (delta("output_text", 0, "a?b") + &completed()).into_bytes();
    *body.iter_mut().find(|byte| **byte == b'?').unwrap() = 0xFF;
    assert_eq!(decode_every_cut(&body).unwrap().0, [text("a\u{FFFD}b")]);
}

#[test]
fn reasoning_is_kept_as_it_ended_with_all_that_followed() {
    let begun = json!({"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "half"});
    let ended = json!({"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "whole=="});
    let body = created()
        + &added(0, &begun)
        + &delta("reasoning_summary_text", 0, "hm")
        + &done(0, &ended)
        + &said(1, &["ok"])
        + &called(2, "call_a", &["", "{\"te", "xt\":\"hi\"}"])
        + &completed();
    let (events, outcome) = decode_every_cut(body.as_bytes()).unwrap();
    assert_eq!(
        events,
        [StepEvent::Reasoning("hm".into()), text("ok"), StepEvent::ToolStart { name: "echo".into() }]
    );
    assert_eq!(outcome.parts, [Part::Text("ok".into()), call(1, "call_a", &json!({"text": "hi"}))]);
    assert_eq!(outcome.stop, StepStop::ToolUse);
    let expected = json!({"model": MODEL, "items": [ended, message("ok"), function_call("call_a", "{\"text\":\"hi\"}")]});
    assert_eq!(kept(&outcome), expected);
    assert_eq!(outcome.native.unwrap().blocks.get(), expected.to_string());
}

#[test]
fn reasoning_is_known_to_go_on_until_it_ends() {
    let item = json!({"id": "rs_1", "type": "reasoning", "summary": []});
    let mut decoder = StreamDecoder::new(MODEL);
    let mut events = Events::new();
    let mut thinks = |body: String| {
        assert_eq!(decoder.push(body.as_bytes(), &mut events), Ok(Progress::More));
        decoder.thinks_silently()
    };
    assert!(!thinks(created()));
    assert!(thinks(added(0, &item)));
    assert!(!thinks(done(0, &item)));
}

#[test]
fn what_would_be_refused_when_it_goes_back_is_not_kept() {
    let reasoning =
        |content: Value| json!({"type": "reasoning", "summary": [], "encrypted_content": content});
    let body = done(0, &reasoning(json!(null)))
        + &done(1, &reasoning(json!("x==")))
        + &done(2, &message(" "))
        + &called(3, "a", &["{\"te"])
        + &done(4, &reasoning(json!("y==")))
        + &completed();
    let (_, outcome) = decode([body.as_bytes()]).unwrap();
    assert_eq!(kept(&outcome)["items"], json!([reasoning(json!("x==")), function_call("a", "{}")]));
    let Some(Part::ToolCall(call)) = outcome.parts.last() else { panic!("{:?}", outcome.parts) };
    assert!(call.problem.is_some() && call.args.is_empty());

    let only_reasoning = done(0, &reasoning(json!("x=="))) + &completed();
    assert_eq!(decode([only_reasoning.as_bytes()]).unwrap().1.native, None);
}

#[test]
fn a_phase_is_worth_keeping() {
    let mut item = message("On it.");
    item["phase"] = json!("commentary");
    let body = delta("output_text", 0, "On it.") + &done(0, &item) + &completed();
    assert_eq!(kept(&decode([body.as_bytes()]).unwrap().1)["items"], json!([item]));
}

#[test]
fn what_did_not_come_in_pieces_is_taken_from_the_end_of_its_item() {
    let body = done(0, &message("hi")) + &done(1, &function_call("a", "{\"x\":1}")) + &completed();
    let (events, outcome) = decode_every_cut(body.as_bytes()).unwrap();
    assert_eq!(events, [text("hi"), StepEvent::ToolStart { name: "echo".into() }]);
    assert_eq!(outcome.parts, [Part::Text("hi".into()), call(1, "a", &json!({"x": 1}))]);
}

#[test]
fn calls_interleave_by_their_place() {
    let piece = |index, piece| delta("function_call_arguments", index, piece);
    let body = added(0, &function_call("a", ""))
        + &added(1, &function_call("b", ""))
        + &piece(1, "{\"x\":")
        + &piece(0, "{}")
        + &piece(1, "1}")
        + &completed();
    let (_, outcome) = decode_every_cut(body.as_bytes()).unwrap();
    assert_eq!(outcome.parts, [call(1, "a", &json!({})), call(2, "b", &json!({"x": 1}))]);
}

#[test]
fn an_answer_that_is_not_whole_says_why() {
    let incomplete = |details: Value| {
        delta("output_text", 0, "a")
            + &event(&json!({"type": "response.incomplete", "response": {"incomplete_details": details,
                "usage": {"input_tokens": 1, "output_tokens": 2}}}))
    };
    for (details, stop) in [
        (json!({"reason": "max_output_tokens"}), StepStop::MaxTokens),
        (json!({"reason": "content_filter"}), StepStop::Refusal),
        (json!(null), StepStop::MaxTokens),
    ] {
        let (_, outcome) = decode([incomplete(details).as_bytes()]).unwrap();
        assert_eq!((outcome.stop, outcome.usage.output), (stop, 2));
    }
    let refused = delta("refusal", 0, "I can't.") + &completed();
    let (events, outcome) = decode([refused.as_bytes()]).unwrap();
    assert_eq!((events, outcome.stop), (vec![text("I can't.")], StepStop::Refusal));
    let whole = done(0, &json!({"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}));
    let (events, outcome) = decode([(whole + &completed()).as_bytes()]).unwrap();
    assert_eq!((events, outcome.stop), (vec![text("No.")], StepStop::Refusal));
}

#[test]
fn errors_in_the_stream_end_it_with_their_body() {
    let failed = event(&json!({"type": "response.failed", "response": {"status": "failed",
        "error": {"code": "server_error", "message": "Broken"}}}));
    let error =
        json!({"type": "error", "code": "rate_limit_exceeded", "message": "Slow down", "param": null});
    for (ending, body) in [
        (failed, "{\"error\":{\"code\":\"server_error\",\"message\":\"Broken\"}}".to_owned()),
        (event(&error), error.to_string()),
    ] {
        let stream = delta("output_text", 0, "Part") + &ending;
        let expected = Err((vec![text("Part")], StreamFault::Refused(body.clone())));
        assert_eq!(decode_every_cut(stream.as_bytes()), expected);
        assert_eq!(decode([ending.as_bytes()]), Err((vec![], StreamFault::Refused(body))));
    }
}

#[test]
fn a_stream_without_its_end_mark_is_incomplete() {
    let mor = created() + &said(0, &["Mor"]);
    assert_eq!(decode_every_cut(mor.as_bytes()), Err((vec![text("Mor")], StreamFault::Incomplete)));
    let with_mark = mor + "data: [DONE]\n\n";
    assert_eq!(decode([with_mark.as_bytes()]).unwrap_err().1, StreamFault::Incomplete);
    assert_eq!(decode([b"".as_slice()]), Err((vec![], StreamFault::Incomplete)));
}

#[test]
fn what_can_not_be_read_is_a_fault() {
    for body in ["data: {oops\n\n", "data: []\n\n"] {
        let Err((_, StreamFault::Unreadable(_))) = decode([body.as_bytes()]) else { panic!("{body}") };
    }
}

#[test]
fn the_most_items_pass_and_one_more_does_not() {
    let body = |count: usize| {
        let items: String = (0..count).map(|at| done(at as u64, &message("a"))).collect();
        items + &completed()
    };
    assert!(decode([body(MAX_ITEMS).as_bytes()]).is_ok());
    assert_eq!(
        decode([body(MAX_ITEMS + 1).as_bytes()]).unwrap_err().1,
        StreamFault::TooLarge("more than 256 items")
    );
}

#[test]
fn endless_items_of_nothing_are_stopped() {
    let empty: String = (0..=MAX_ITEMS as u64).map(|at| delta("output_text", at, "")).collect();
    let decoded = decode([(created() + &empty).as_bytes()]);
    assert_eq!(decoded.unwrap_err().1, StreamFault::TooLarge("more than 256 items"));
    let id = "x".repeat(7 << 20);
    let begun: String = (0..5).map(|at| added(at, &function_call(&id, ""))).collect();
    let decoded = decode([(created() + &begun).as_bytes()]);
    assert_eq!(decoded.unwrap_err().1, StreamFault::TooLarge("a reply of more than 32 MiB"));
}
