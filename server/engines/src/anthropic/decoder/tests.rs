//! Streams as the API sends them, cut at every byte; no network.

use serde_json::{Value, json};
use tns_protocol::ToolCallId;
use tns_server_core::engine::StepEvent;
use tns_server_core::message::{Part, ToolCall};

use super::*;
use crate::step::playback::{self, Decoded};

fn decode<'a>(writes: impl IntoIterator<Item = &'a [u8]>) -> Decoded {
    playback::decode(StreamDecoder::new("asked"), writes)
}

fn decode_every_cut(body: &[u8]) -> Decoded {
    playback::decode_every_cut(|| StreamDecoder::new("asked"), body)
}

fn event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap())
}

fn start(usage: &Value) -> String {
    event(&json!({"type": "message_start", "message": {"id": "msg_1", "type": "message",
        "role": "assistant", "content": [], "model": "claude-opus-5-5", "stop_reason": null,
        "stop_sequence": null, "usage": usage}}))
}

fn block(index: u64, begun: &Value, deltas: &[Value]) -> String {
    let deltas = deltas
        .iter()
        .map(|delta| event(&json!({"type": "content_block_delta", "index": index, "delta": delta})));
    event(&json!({"type": "content_block_start", "index": index, "content_block": begun}))
        + &deltas.collect::<String>()
        + &event(&json!({"type": "content_block_stop", "index": index}))
}

fn text_block(index: u64, pieces: &[&str]) -> String {
    let deltas: Vec<_> = pieces.iter().map(|text| json!({"type": "text_delta", "text": text})).collect();
    block(index, &json!({"type": "text", "text": ""}), &deltas)
}

fn call_block(index: u64, id: &str, name: &str, pieces: &[&str]) -> String {
    let deltas: Vec<_> =
        pieces.iter().map(|piece| json!({"type": "input_json_delta", "partial_json": piece})).collect();
    block(index, &json!({"type": "tool_use", "id": id, "name": name, "input": {}}), &deltas)
}

fn stop(reason: &str, usage: &Value) -> String {
    event(&json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null},
        "usage": usage}))
        + &event(&json!({"type": "message_stop"}))
}

/// A whole body around some blocks.
fn body(blocks: &str, reason: &str) -> String {
    start(&json!({"input_tokens": 1, "output_tokens": 1})) + blocks + &stop(reason, &json!({}))
}

fn text(words: &str) -> StepEvent {
    StepEvent::Text(words.into())
}

fn call(number: u32, provider_id: &str, name: &str, args: &Value) -> Part {
    Part::ToolCall(ToolCall {
        id: ToolCallId::parse(format!("call_{number}")).unwrap(),
        provider_id: Some(provider_id.into()),
        name: name.into(),
        args: args.as_object().unwrap().clone(),
        problem: None,
    })
}

fn content(outcome: &StepOutcome) -> Value {
    serde_json::from_str(outcome.native.as_ref().unwrap().blocks.get()).unwrap()
}

#[test]
fn text_survives_every_cut_and_pings_say_nothing() {
    let words = "東京 👩\u{200d}🔬 é";
    let body = event(&json!({"type": "ping"}))
        + &body(&(text_block(0, &[words, " \"b\"\n"]) + &event(&json!({"type": "ping"}))), "end_turn");
    let (events, outcome) = decode_every_cut(body.as_bytes()).unwrap();
    assert_eq!(events, [text(words), text(" \"b\"\n")]);
    assert_eq!(
        outcome,
        StepOutcome {
            parts: vec![Part::Text(format!("{words} \"b\"\n"))],
            model: "claude-opus-5-5".into(),
            stop: StepStop::End,
            usage: StepUsage { input: 1, output: 1, ..StepUsage::default() },
            native: None,
        }
    );
}

#[test]
fn a_bad_byte_costs_one_character_and_the_stream_goes_on() {
    let mut body = body(&text_block(0, &["a?b"]), "end_turn").into_bytes();
    *body.iter_mut().find(|byte| **byte == b'?').unwrap() = 0xFF;
    assert_eq!(decode_every_cut(&body).unwrap().0, [text("a\u{FFFD}b")]);
}

#[test]
fn usage_is_the_last_report_and_not_the_sum() {
    let first = json!({"input_tokens": 30, "output_tokens": 2});
    let body = start(&first)
        + &text_block(0, &["Good."])
        + &stop("end_turn", &json!({"input_tokens": 30, "output_tokens": 20}));
    let usage = decode_every_cut(body.as_bytes()).unwrap().1.usage;
    assert_eq!((usage.input, usage.cached_input, usage.output), (30, 0, 20));
}

#[test]
fn all_input_is_what_was_read_written_and_neither() {
    let first = json!({"input_tokens": 10, "cache_creation_input_tokens": 1000,
        "cache_read_input_tokens": 2000, "output_tokens": 1});
    let body = start(&first) + &text_block(0, &["a"]) + &stop("end_turn", &json!({"output_tokens": 100}));
    let usage = decode([body.as_bytes()]).unwrap().1.usage;
    let (input, cached_input, cache_written, output) = (3010, 2000, 1000, 100);
    assert_eq!(usage, StepUsage { input, cached_input, cache_written, output, cost: None });
}

#[test]
fn thoughts_are_kept_to_the_byte_and_are_no_part_of_the_answer() {
    let blocks = block(
        0,
        &json!({"type": "thinking", "thinking": "", "signature": ""}),
        &[
            json!({"type": "thinking_delta", "thinking": " plan\n"}),
            json!({"type": "thinking_delta", "thinking": "ning  "}),
            json!({"type": "signature_delta", "signature": "c2lnMQ=="}),
        ],
    ) + &block(1, &json!({"type": "redacted_thinking", "data": "ZGF0YQ=="}), &[])
        + &text_block(2, &["ok"])
        + &call_block(3, "t1", "echo", &["", "{\"te", "xt\": \"hi\", \"n\": 1.50}"]);
    let (events, outcome) = decode_every_cut(body(&blocks, "tool_use").as_bytes()).unwrap();
    assert_eq!(
        events,
        [
            StepEvent::Reasoning(" plan\n".into()),
            StepEvent::Reasoning("ning  ".into()),
            text("ok"),
            StepEvent::ToolStart { name: "echo".into() },
        ]
    );
    assert_eq!(
        outcome.parts,
        [Part::Text("ok".into()), call(1, "t1", "echo", &json!({"text": "hi", "n": 1.5}))]
    );
    assert_eq!(outcome.stop, StepStop::ToolUse);
    assert_eq!(
        content(&outcome),
        json!([
            {"type": "thinking", "thinking": " plan\nning  ", "signature": "c2lnMQ=="},
            {"type": "redacted_thinking", "data": "ZGF0YQ=="},
            {"type": "text", "text": "ok"},
            {"type": "tool_use", "id": "t1", "name": "echo", "input": {"text": "hi", "n": 1.5}},
        ])
    );
    let kept = outcome.native.unwrap();
    assert_eq!(kept.provider, "anthropic");
    assert!(kept.blocks.get().contains("{\"text\": \"hi\", \"n\": 1.50}"), "{}", kept.blocks.get());
}

#[test]
fn hidden_thoughts_are_known_to_go_on_and_are_kept() {
    let begun = json!({"type": "thinking", "thinking": "", "signature": ""});
    let mut decoder = StreamDecoder::new("asked");
    let mut events = Events::new();
    let opened = start(&json!({}))
        + &event(&json!({"type": "content_block_start", "index": 0, "content_block": begun}));
    assert!(!decoder.thinks_silently());
    assert_eq!(decoder.push(opened.as_bytes(), &mut events), Ok(Progress::More));
    assert!(decoder.thinks_silently() && events.is_empty());
    let closed = event(&json!({"type": "content_block_stop", "index": 0}));
    assert_eq!(decoder.push(closed.as_bytes(), &mut events), Ok(Progress::More));
    assert!(!decoder.thinks_silently());

    let signed = block(0, &begun, &[json!({"type": "signature_delta", "signature": "c2ln"})]);
    let body = body(&(signed + &text_block(1, &["a"])), "end_turn");
    let (events, outcome) = decode([body.as_bytes()]).unwrap();
    assert_eq!(events, [text("a")]);
    assert_eq!(content(&outcome)[0], json!({"type": "thinking", "thinking": "", "signature": "c2ln"}));
}

#[test]
fn what_would_be_refused_when_it_goes_back_is_not_kept() {
    let blocks = block(0, &json!({"type": "redacted_thinking", "data": "eA=="}), &[])
        + &text_block(1, &["\n\n"])
        + &call_block(2, "t1", "echo", &["{\"te"])
        + &block(3, &json!({"type": "thinking", "thinking": "cut", "signature": ""}), &[]);
    let (_, outcome) = decode([body(&blocks, "max_tokens").as_bytes()]).unwrap();
    assert_eq!(outcome.stop, StepStop::MaxTokens);
    assert_eq!(
        content(&outcome),
        json!([
            {"type": "redacted_thinking", "data": "eA=="},
            {"type": "tool_use", "id": "t1", "name": "echo", "input": {}},
        ])
    );
    let Some(Part::ToolCall(call)) = outcome.parts.last() else { panic!("{:?}", outcome.parts) };
    assert!(call.problem.is_some() && call.args.is_empty());
}

#[test]
fn a_block_of_a_new_kind_goes_back_as_it_began() {
    let newer = json!({"type": "server_tool_use", "id": "srv", "name": "web", "input": {"q": "x"}});
    let body = body(&(block(0, &newer, &[]) + &text_block(1, &["a"])), "pause_turn");
    let (_, outcome) = decode([body.as_bytes()]).unwrap();
    assert_eq!((content(&outcome)[0].clone(), outcome.stop), (newer, StepStop::End));
}

#[test]
fn arguments_may_come_whole_or_not_at_all() {
    let begun = |id: &str, input: &Value| json!({"type": "tool_use", "id": id, "name": "t", "input": input});
    let blocks = block(0, &begun("a", &json!({"x": 1})), &[]) + &block(1, &begun("b", &json!({})), &[]);
    let (_, outcome) = decode([body(&blocks, "tool_use").as_bytes()]).unwrap();
    assert_eq!(outcome.parts, [call(1, "a", "t", &json!({"x": 1})), call(2, "b", "t", &json!({}))]);
}

#[test]
fn calls_interleave_by_index() {
    let open = |index: u64, id: &str| {
        event(&json!({"type": "content_block_start", "index": index,
            "content_block": {"type": "tool_use", "id": id, "name": "t", "input": {}}}))
    };
    let piece = |index: u64, json: &str| {
        event(&json!({"type": "content_block_delta", "index": index,
            "delta": {"type": "input_json_delta", "partial_json": json}}))
    };
    let blocks = open(0, "a")
        + &open(1, "b")
        + &piece(0, "{")
        + &piece(1, "{\"x\":")
        + &piece(0, "}")
        + &piece(1, "1}");
    let (_, outcome) = decode_every_cut(body(&blocks, "tool_use").as_bytes()).unwrap();
    assert_eq!(outcome.parts, [call(1, "a", "t", &json!({})), call(2, "b", "t", &json!({"x": 1}))]);
    assert_eq!(outcome.native, None);
}

#[test]
fn each_stop_reason_has_its_stop() {
    for (reason, stop) in [
        ("end_turn", StepStop::End),
        ("stop_sequence", StepStop::End),
        ("pause_turn", StepStop::End),
        ("something_new", StepStop::End),
        ("max_tokens", StepStop::MaxTokens),
        ("model_context_window_exceeded", StepStop::MaxTokens),
        ("refusal", StepStop::Refusal),
    ] {
        let body = body(&text_block(0, &["a"]), reason);
        assert_eq!(decode([body.as_bytes()]).unwrap().1.stop, stop, "{reason}");
    }
}

#[test]
fn an_error_in_the_stream_ends_it_with_its_body() {
    let error = "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}";
    let failed = format!("event: error\ndata: {error}\n\n");
    let part = start(&json!({}))
        + &event(&json!({"type": "content_block_start", "index": 0,
        "content_block": {"type": "text", "text": "Part"}}));
    assert_eq!(
        decode_every_cut(format!("{part}{failed}").as_bytes()),
        Err((vec![text("Part")], StreamFault::Refused(error.into())))
    );
    assert_eq!(decode([failed.as_bytes()]), Err((vec![], StreamFault::Refused(error.into()))));
}

#[test]
fn a_stream_without_its_end_mark_is_incomplete() {
    let whole = body(&text_block(0, &["Mor"]), "end_turn");
    let cut = whole.split("event: message_stop").next().unwrap();
    assert_eq!(decode_every_cut(cut.as_bytes()), Err((vec![text("Mor")], StreamFault::Incomplete)));
    let half_a_call = start(&json!({})) + &call_block(0, "a", "t", &["{\"path\":\"a"]);
    assert_eq!(decode([half_a_call.as_bytes()]).unwrap_err().1, StreamFault::Incomplete);
    assert_eq!(decode([b"".as_slice()]), Err((vec![], StreamFault::Incomplete)));
}

#[test]
fn what_can_not_be_read_is_a_fault() {
    let stray = event(&json!({"type": "content_block_delta", "index": 7, "delta": {"text": "a"}}));
    for body in ["data: {oops\n\n", "data: []\n\n", &stray] {
        let Err((_, StreamFault::Unreadable(_))) = decode([body.as_bytes()]) else { panic!("{body}") };
    }
}

#[test]
fn the_most_blocks_pass_and_one_more_does_not() {
    let body = |count: usize| {
        let blocks: String = (0..count).map(|at| text_block(at as u64, &["a"])).collect();
        body(&blocks, "end_turn")
    };
    assert!(decode([body(MAX_BLOCKS).as_bytes()]).is_ok());
    assert_eq!(
        decode([body(MAX_BLOCKS + 1).as_bytes()]).unwrap_err().1,
        StreamFault::TooLarge("more than 256 blocks")
    );
}

#[test]
fn what_is_kept_beside_the_text_counts_too() {
    // Six MiB a block: in a field's name, and in a value.
    let long = "x".repeat(3 << 20);
    let blocks: String =
        (0..6).map(|at| block(at, &json!({"type": "newer", "a": long, long.as_str(): 1}), &[])).collect();
    let decoded = decode([body(&blocks, "end_turn").as_bytes()]);
    assert_eq!(decoded.unwrap_err().1, StreamFault::TooLarge("a reply of more than 32 MiB"));
}
