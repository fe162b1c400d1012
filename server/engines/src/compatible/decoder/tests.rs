//! Streams as real servers send them, cut at every byte; no network.

use serde_json::{Value, json};
use tns_protocol::ToolCallId;
use tns_server_core::engine::StepEvent;
use tns_server_core::message::{Part, ToolCall};

use super::*;
use crate::step::playback::{self, Decoded};
use crate::step::reply::{MAX_ARGUMENT_DEPTH, MAX_CALLS, MAX_REPLY_BYTES, UNNAMED};

fn decode<'a>(writes: impl IntoIterator<Item = &'a [u8]>) -> Decoded {
    playback::decode(StreamDecoder::new("asked"), writes)
}

fn decode_every_cut(body: &[u8]) -> Decoded {
    playback::decode_every_cut(|| StreamDecoder::new("asked"), body)
}

fn event(delta: &Value) -> String {
    format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]}))
}

fn finish(reason: &str) -> String {
    format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}))
}

const DONE: &str = "data: [DONE]\n\n";

/// A body of deltas of tool calls, with its proper end.
fn calls_body(deltas: &[Value]) -> String {
    let events: String = deltas.iter().map(|calls| event(&json!({"tool_calls": calls}))).collect();
    events + &finish("tool_calls") + DONE
}

fn text(words: &str) -> StepEvent {
    StepEvent::Text(words.into())
}

fn call(number: u32, provider_id: Option<&str>, name: &str, args: &Value) -> Part {
    Part::ToolCall(ToolCall {
        id: ToolCallId::parse(format!("call_{number}")).unwrap(),
        provider_id: provider_id.map(Into::into),
        name: name.into(),
        args: args.as_object().unwrap().clone(),
        problem: None,
    })
}

fn parts(body: &str) -> Vec<Part> {
    decode_every_cut(body.as_bytes()).unwrap().1.parts
}

#[test]
fn text_and_usage_survive_every_cut() {
    let words = "東京 👩\u{200d}🔬 é";
    let body = event(&json!({"role": "assistant", "content": ""}))
        + &event(&json!({"content": words}))
        + &event(&json!({"content": " \"b\"\n"}))
        + &finish("stop")
        + "data: {\"model\":\"m-1\",\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":2,\
           \"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n"
        + DONE;
    let (events, outcome) = decode_every_cut(body.as_bytes()).unwrap();
    assert_eq!(events, [text(words), text(" \"b\"\n")]);
    assert_eq!(
        outcome,
        StepOutcome {
            parts: vec![Part::Text(format!("{words} \"b\"\n"))],
            model: "m-1".into(),
            stop: StepStop::End,
            usage: StepUsage { input: 10, cached_input: 4, output: 2, ..StepUsage::default() },
            native: None,
        }
    );
}

#[test]
fn a_bad_byte_costs_one_character_and_the_stream_goes_on() {
    let body = [b"data: {\"choices\":[{\"delta\":{\"content\":\"a\xFFb\"}}]}\n\n", DONE.as_bytes()].concat();
    assert_eq!(decode_every_cut(&body).unwrap().0, [text("a\u{FFFD}b")]);
}

#[test]
fn an_id_on_the_first_piece_only_and_a_repeated_finish_make_one_call() {
    let opening = json!([{"index": 0, "id": "call_a", "type": "function",
        "function": {"name": "echo", "arguments": ""}}]);
    let piece =
        |arguments: &str| event(&json!({"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]}));
    let again = json!({"choices": [{"index": 0, "finish_reason": "tool_calls", "delta": {"tool_calls":
        [{"index": 0, "id": "call_a", "function": {"name": "echo", "arguments": "{\"text\":\"hi\"}"}}]}}],
        "usage": {"total_tokens": 12}});
    let body = event(&json!({"tool_calls": opening}))
        + &piece("{\"te")
        + &piece("xt\":\"hi\"}")
        + &finish("tool_calls")
        + &format!("data: {again}\n\n")
        + DONE;
    let (events, outcome) = decode_every_cut(body.as_bytes()).unwrap();
    assert_eq!(events, [StepEvent::ToolStart { name: "echo".into() }]);
    assert_eq!(outcome.parts, [call(1, Some("call_a"), "echo", &json!({"text": "hi"}))]);
    assert_eq!(outcome.stop, StepStop::ToolUse);
    assert_eq!(outcome.usage.input + outcome.usage.output, 12);
}

#[test]
fn calls_without_an_index_stay_apart() {
    let a = json!({"id": "c1", "function": {"name": "echo", "arguments": "{\"text\":\"a\"}"}});
    let b = json!({"id": "c2", "function": {"name": "echo", "arguments": "{\"text\":\"b\"}"}});
    let expected = [
        call(1, Some("c1"), "echo", &json!({"text": "a"})),
        call(2, Some("c2"), "echo", &json!({"text": "b"})),
    ];
    assert_eq!(parts(&calls_body(&[json!([a]), json!([b])])), expected);
    assert_eq!(parts(&calls_body(&[json!([a, b])])), expected);
    let split = [
        json!([{"id": "c1", "function": {"name": "echo", "arguments": "{\"te"}}]),
        json!([{"function": {"arguments": "xt\":\"a\"}"}}]),
        json!([b]),
    ];
    assert_eq!(parts(&calls_body(&split)), expected);
    let id_on_every_piece = [
        json!([{"id": "c1", "function": {"name": "echo", "arguments": "{\"te"}}]),
        json!([{"id": "c1", "function": {"name": "echo", "arguments": "xt\":\"a\"}"}}]),
        json!([b]),
    ];
    assert_eq!(parts(&calls_body(&id_on_every_piece)), expected);
}

#[test]
fn calls_that_share_the_index_0_stay_apart() {
    let call_delta = |id: Option<&str>, text: &str| json!([{"index": 0, "id": id, "function": {"name": "echo", "arguments": json!({"text": text}).to_string()}}]);
    assert_eq!(
        parts(&calls_body(&[call_delta(Some("c1"), "a"), call_delta(Some("c2"), "b")])),
        [
            call(1, Some("c1"), "echo", &json!({"text": "a"})),
            call(2, Some("c2"), "echo", &json!({"text": "b"}))
        ]
    );
    assert_eq!(
        parts(&calls_body(&[call_delta(None, "a"), call_delta(None, "b")])),
        [call(1, None, "echo", &json!({"text": "a"})), call(2, None, "echo", &json!({"text": "b"}))]
    );
}

#[test]
fn interleaved_calls_are_told_by_index() {
    let piece = |index, id: &str, name: &str, arguments: &str| json!([{"index": index, "id": id, "function": {"name": name, "arguments": arguments}}]);
    let body = calls_body(&[
        piece(0, "x", "one", "{"),
        piece(1, "x", "two", "{\"a\""),
        piece(0, "", "", "}"),
        piece(1, "", "", ":1}"),
    ]);
    // The second call's id is the first one's, so it can't be used.
    assert_eq!(parts(&body), [call(1, Some("x"), "one", &json!({})), call(2, None, "two", &json!({"a": 1}))]);
}

#[test]
fn arguments_may_be_an_object_or_absent() {
    let body = calls_body(&[json!([
        {"index": 0, "id": "a", "function": {"name": "one", "arguments": {"x": [1]}}},
        {"index": 1, "id": "b", "function": {"name": "two"}},
    ])]);
    assert_eq!(
        parts(&body),
        [call(1, Some("a"), "one", &json!({"x": [1]})), call(2, Some("b"), "two", &json!({}))]
    );
}

#[test]
fn arguments_that_are_no_json_object_come_empty_with_the_problem() {
    let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth - 1), "]".repeat(depth - 1));
    for (arguments, problem) in [
        ("{\"command\": \"ls\"", Some("not valid JSON")),
        ("command\": \"ls\"}", Some("not valid JSON")),
        ("\"ls\"", Some("no JSON object")),
        ("[]", Some("no JSON object")),
        ("null", Some("no JSON object")),
        ("{\"command\":\"a\nb\"}", Some("not valid JSON")),
        (&nested(200), Some("deeper than 64 levels")),
        (&nested(MAX_ARGUMENT_DEPTH + 1), Some("deeper than 64 levels")),
        (&nested(MAX_ARGUMENT_DEPTH), None),
        ("{\"a\":\"[[[ \\\" {{{\"}", None),
    ] {
        let body = calls_body(&[
            json!([{"index": 0, "id": "a", "function": {"name": "shell", "arguments": arguments}}]),
        ]);
        let Ok((_, outcome)) = decode([body.as_bytes()]) else { panic!("{arguments}") };
        let [Part::ToolCall(call)] = outcome.parts.as_slice() else { panic!("{arguments}") };
        assert_eq!(call.problem.is_some(), problem.is_some(), "{arguments}: {:?}", call.problem);
        assert!(call.problem.as_deref().unwrap_or_default().contains(problem.unwrap_or_default()));
        assert_eq!(call.args.is_empty(), problem.is_some());
    }
}

#[test]
fn a_call_without_a_name_can_be_stored_and_does_not_run() {
    let body = calls_body(&[json!([{"index": 0, "function": {"arguments": "{}"}}])]);
    let parts = parts(&body);
    let [Part::ToolCall(call)] = parts.as_slice() else { panic!("{parts:?}") };
    assert_eq!((call.name.as_str(), call.problem.as_deref()), (UNNAMED, Some("the call names no tool")));
}

#[test]
fn text_and_calls_keep_their_order() {
    let open =
        |id: &str| event(&json!({"tool_calls": [{"id": id, "function": {"name": "t", "arguments": "{}"}}]}));
    let say = |words: &str| event(&json!({"content": words}));
    let body = say("a") + &open("1") + &say("b") + &say("c") + &open("2") + DONE;
    assert_eq!(
        parts(&body),
        [
            Part::Text("a".into()),
            call(1, Some("1"), "t", &json!({})),
            Part::Text("bc".into()),
            call(2, Some("2"), "t", &json!({})),
        ]
    );
}

#[test]
fn reasoning_is_no_part_of_the_answer_and_comes_once() {
    let body = event(&json!({"reasoning_content": "hm", "reasoning": "hm"}))
        + &event(&json!({"reasoning": "so", "content": null}))
        + &event(&json!({"content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]}))
        + DONE;
    let (events, outcome) = decode_every_cut(body.as_bytes()).unwrap();
    assert_eq!(events, [StepEvent::Reasoning("hm".into()), StepEvent::Reasoning("so".into()), text("xy")]);
    assert_eq!(outcome.parts, [Part::Text("xy".into())]);
}

#[test]
fn usage_is_the_last_report_and_not_the_sum() {
    let report = |usage: &Value| format!("data: {}\n\n", json!({"choices": [], "usage": usage}));
    for (usages, expected) in [
        (
            vec![json!({"total_tokens": 10}), json!({"total_tokens": 11}), json!({"total_tokens": 12})],
            (12, 0),
        ),
        (vec![json!({"prompt_tokens": 5, "total_tokens": 7})], (5, 2)),
        (vec![json!({"completion_tokens": 5, "total_tokens": 7})], (2, 5)),
        (vec![json!({"prompt_tokens": 5, "completion_tokens": 1}), json!(null)], (5, 1)),
        (vec![json!({"prompt_tokens": "many"})], (0, 0)),
    ] {
        let body: String = usages.iter().map(report).collect::<String>() + DONE;
        let (_, StepOutcome { usage, .. }) = decode([body.as_bytes()]).unwrap();
        assert_eq!((usage.input, usage.output), expected, "{usages:?}");
    }
}

#[test]
fn each_finish_reason_has_its_stop() {
    for (reason, stop) in [
        ("stop", StepStop::End),
        ("eos", StepStop::End),
        ("length", StepStop::MaxTokens),
        ("content_filter", StepStop::Refusal),
        ("tool_calls", StepStop::End),
    ] {
        let body = event(&json!({"content": "a"})) + &finish(reason);
        assert_eq!(decode([body.as_bytes()]).unwrap().1.stop, stop, "{reason}");
    }
    let body = event(&json!({"refusal": "I can't."})) + &finish("stop");
    let (events, outcome) = decode([body.as_bytes()]).unwrap();
    assert_eq!((events, outcome.stop), (vec![text("I can't.")], StepStop::Refusal));
}

#[test]
fn a_stream_that_just_ends_is_incomplete_and_an_end_mark_alone_is_enough() {
    let mor = event(&json!({"content": "Mor"}));
    assert_eq!(decode_every_cut(mor.as_bytes()), Err((vec![text("Mor")], StreamFault::Incomplete)));
    for done in ["data: [DONE]\n\n", "data:[DONE]\r\n\r\n", "data: [DONE] \n\n", "data: [done]"] {
        let (events, outcome) = decode_every_cut(format!("{mor}{done}").as_bytes()).unwrap();
        assert_eq!((events, outcome.stop), (vec![text("Mor")], StepStop::End), "{done:?}");
    }
    let cut_in_the_last_event = mor + "data: {\"choices\":[{\"delta\":{\"content\":\"e";
    assert_eq!(decode([cut_in_the_last_event.as_bytes()]), Err((vec![text("Mor")], StreamFault::Incomplete)));
    assert_eq!(decode([b"".as_slice()]), Err((vec![], StreamFault::Incomplete)));
}

#[test]
fn what_follows_the_end_mark_is_not_read() {
    let body =
        event(&json!({"content": "a"})) + DONE + "data: nonsense\n\n" + &event(&json!({"content": "b"}));
    assert_eq!(decode_every_cut(body.as_bytes()).unwrap().0, [text("a")]);
}

#[test]
fn an_error_in_the_stream_ends_it_with_its_body() {
    for error in [
        "{\"error\":{\"message\":\"engine overloaded\",\"type\":\"server_error\",\"code\":500}}",
        "{\"error\":\"engine overloaded\"}",
        "{\"object\":\"error\",\"message\":\"engine overloaded\",\"code\":400}",
        "{\"detail\":\"engine overloaded\"}",
        "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"error\"}]}",
    ] {
        let body = event(&json!({"content": "Part"})) + "data: " + error + "\n\n";
        assert_eq!(
            decode_every_cut(body.as_bytes()),
            Err((vec![text("Part")], StreamFault::Refused(error.into()))),
            "{error}"
        );
    }
}

#[test]
fn an_event_that_is_no_json_is_a_fault() {
    let Err((events, StreamFault::Unreadable(_))) = decode([b"data: {oops\n\ndata: [DONE]\n\n".as_slice()])
    else {
        panic!()
    };
    assert!(events.is_empty());
}

#[test]
fn an_answer_that_comes_whole_is_read() {
    let mut events = Events::new();
    let mut decoder = StreamDecoder::new("asked");
    let body = json!({"model": "m", "choices": [{"index": 1}, {"index": 0, "message": {"role": "assistant", "content": "hi"},
        "finish_reason": "stop"}], "usage": {"prompt_tokens": 1, "completion_tokens": 2}});
    assert_eq!(decoder.whole(&body.to_string(), &mut events), Ok(()));
    assert_eq!(events, [text("hi")]);
    let mut decoder = StreamDecoder::new("asked");
    assert_eq!(decoder.whole("{\"object\":\"list\"}", &mut events), Err(StreamFault::Incomplete));
}

#[test]
fn the_most_calls_pass_and_one_more_does_not() {
    let body = |count: usize| {
        let calls: Vec<_> = (0..count)
            .map(|at| json!({"index": at, "id": at.to_string(), "function": {"name": "t"}}))
            .collect();
        calls_body(&[Value::from(calls)])
    };
    assert_eq!(decode([body(MAX_CALLS).as_bytes()]).unwrap().1.parts.len(), MAX_CALLS);
    assert_eq!(
        decode([body(MAX_CALLS + 1).as_bytes()]).unwrap_err().1,
        StreamFault::TooLarge("more than 128 tool calls")
    );
}

#[test]
fn the_longest_reply_passes_and_one_byte_more_does_not() {
    const PIECE: usize = 4 << 20;
    let full = event(&json!({"content": "x".repeat(PIECE)}));
    let mut writes: Vec<&[u8]> = vec![full.as_bytes(); MAX_REPLY_BYTES / PIECE];
    writes.push(DONE.as_bytes());
    assert!(decode(writes.clone()).is_ok());
    let one_more = event(&json!({"content": "x"}));
    writes.insert(0, one_more.as_bytes());
    assert_eq!(decode(writes).unwrap_err().1, StreamFault::TooLarge("a reply of more than 32 MiB"));
}

#[test]
fn ids_count_as_part_of_the_reply() {
    let id = "x".repeat(7 << 20);
    let opened = |at: usize| {
        event(&json!({"tool_calls": [{"index": at, "id": format!("{id}{at}"), "function": {"name": "t"}}]}))
    };
    let decoded = decode([(0..5).map(opened).collect::<String>().as_bytes()]);
    assert_eq!(decoded.unwrap_err().1, StreamFault::TooLarge("a reply of more than 32 MiB"));
}
