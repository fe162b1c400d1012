//! Answers as Ollama sends them, cut at every byte; no network.

use serde_json::{Value, json};
use tns_protocol::ToolCallId;
use tns_server_core::engine::StepEvent;
use tns_server_core::message::{Part, ToolCall};

use super::super::line::MAX_LINE_BYTES;
use super::*;
use crate::step::playback::{self, Decoded};
use crate::step::reply::MAX_CALLS;

const A: &str = "{\"message\":{\"role\":\"assistant\",\"content\":\"a\"},\"done\":false}";
const B: &str = "{\"message\":{\"role\":\"assistant\",\"content\":\"b\"},\"done\":false}";
const DONE: &str = "{\"message\":{\"content\":\"\"},\"done\":true,\"prompt_eval_count\":4,\"eval_count\":2}";

fn decode(body: impl AsRef<[u8]>) -> Decoded {
    playback::decode_every_cut(|| LineDecoder::new("qwen3:4b"), body.as_ref())
}

fn text(words: &str) -> StepEvent {
    StepEvent::Text(words.into())
}

fn line(message: &Value) -> String {
    format!("{}\n", json!({"model": "qwen3:4b", "message": message, "done": false}))
}

#[test]
fn lines_are_read_however_they_are_divided() {
    for body in [
        format!("{A}\n{B}\n{DONE}\n"),
        format!("{A}\n{B}\n{DONE}"),
        format!("\n\n{A}\r\n\r\n  \n{B}\n\n{DONE}\r\n"),
        format!("{A}{B}{DONE}"),
        format!("{A} {B}\n{DONE}\n{A}\nnonsense"),
    ] {
        let (events, outcome) = decode(&body).unwrap();
        assert_eq!(events, [text("a"), text("b")], "{body}");
        assert_eq!(
            outcome,
            StepOutcome {
                parts: vec![Part::Text("ab".into())],
                model: "qwen3:4b".into(),
                stop: StepStop::End,
                usage: StepUsage { input: 4, output: 2, ..StepUsage::default() },
                native: None,
            }
        );
    }
}

#[test]
fn characters_survive_every_cut_and_a_bad_byte_costs_one() {
    let words = "東京 👩\u{200d}🔬 é";
    let (events, _) = decode(format!("{}{DONE}\n", line(&json!({"content": words})))).unwrap();
    assert_eq!(events, [text(words)]);
    let body = [b"{\"message\":{\"content\":\"a\xFFb\"}}\n", DONE.as_bytes()].concat();
    assert_eq!(decode(body).unwrap().0, [text("a\u{FFFD}b")]);
}

#[test]
fn an_error_line_ends_the_answer_with_its_body() {
    let error = "{\"error\":\"model not found\"}";
    assert_eq!(
        decode(format!("{A}\n{error}\n{DONE}\n")),
        Err((vec![text("a")], StreamFault::Refused(error.into())))
    );
    assert_eq!(decode(error), Err((vec![], StreamFault::Refused(error.into()))));
}

#[test]
fn an_answer_without_its_last_line_is_incomplete() {
    let expected = || Err((vec![text("a")], StreamFault::Incomplete));
    assert_eq!(decode(format!("{A}\n")), expected());
    assert_eq!(decode(A), expected());
    let cut = format!("{A}\n{}", &DONE[..40]);
    assert_eq!(playback::decode(LineDecoder::new("m"), [cut.as_bytes()]), expected());
    assert_eq!(decode(""), Err((vec![], StreamFault::Incomplete)));
}

#[test]
fn a_line_that_is_no_json_is_a_fault() {
    for bad in ["{oops", "5", "{\"message\":{\"content\":5}}"] {
        let Err((events, StreamFault::Unreadable(_))) = decode(format!("{A}\n{bad}\n{DONE}\n")) else {
            panic!("{bad}")
        };
        assert_eq!(events, [text("a")]);
    }
}

#[test]
fn calls_come_whole_and_reasoning_is_kept_with_them() {
    let body = line(&json!({"content": "", "thinking": " pl"}))
        + &line(&json!({"content": "", "thinking": "an\n"}))
        + &line(&json!({"content": "I look."}))
        + &line(&json!({"content": "", "tool_calls": [
            {"function": {"name": "echo", "arguments": {"text": "a"}}},
            {"function": {"index": 1, "name": "echo", "arguments": "{\"text\":\"b\"}"}},
        ]}))
        + &line(&json!({"tool_calls": [{"function": {"name": "list"}}, {}]}))
        + "{\"done\":true,\"done_reason\":\"stop\"}\n";
    let (events, outcome) = decode(&body).unwrap();
    let started = |name: &str| StepEvent::ToolStart { name: name.into() };
    let thought = |words: &str| StepEvent::Reasoning(words.into());
    assert_eq!(
        events,
        [thought(" pl"), thought("an\n"), text("I look."), started("echo"), started("echo"), started("list")]
    );
    let call = |number: u32, name: &str, args: &Value| {
        Part::ToolCall(ToolCall {
            id: ToolCallId::parse(format!("call_{number}")).unwrap(),
            provider_id: None,
            name: name.into(),
            args: args.as_object().unwrap().clone(),
            problem: None,
        })
    };
    assert_eq!(
        outcome.parts,
        [
            Part::Text("I look.".into()),
            call(1, "echo", &json!({"text": "a"})),
            call(2, "echo", &json!({"text": "b"})),
            call(3, "list", &json!({})),
        ]
    );
    assert_eq!(outcome.stop, StepStop::ToolUse);
    let native = outcome.native.unwrap();
    assert_eq!((native.provider.as_str(), native.blocks.get()), ("ollama", "{\"thinking\":\" plan\\n\"}"));
}

#[test]
fn reasoning_of_a_reply_without_calls_is_not_kept() {
    let body = line(&json!({"content": "x", "thinking": "hm"})) + DONE;
    assert_eq!(decode(body).unwrap().1.native, None);
}

#[test]
fn arguments_that_are_no_object_come_empty_with_the_problem() {
    for arguments in ["[]", "\"ls\"", "5", "\"{\\\"a\\\": \""] {
        let body = format!(
            "{{\"message\":{{\"tool_calls\":[{{\"function\":{{\"name\":\"sh\",\"arguments\":{arguments}}}}}]}}}}\n{DONE}\n"
        );
        let (_, outcome) = decode(body).unwrap();
        let [Part::ToolCall(call)] = outcome.parts.as_slice() else { panic!("{arguments}") };
        assert!(call.args.is_empty() && call.problem.is_some(), "{arguments}: {:?}", call.problem);
    }
}

#[test]
fn the_limit_of_output_is_told_from_the_end() {
    for (reason, stop) in [("stop", StepStop::End), ("length", StepStop::MaxTokens), ("load", StepStop::End)]
    {
        let body = format!("{A}\n{}\n", json!({"done": true, "done_reason": reason}));
        assert_eq!(decode(body).unwrap().1.stop, stop);
    }
}

#[test]
fn an_answer_that_comes_whole_is_read() {
    let mut events = Events::new();
    let whole = json!({"message": {"content": "hi"}, "done": true}).to_string();
    assert_eq!(LineDecoder::new("m").whole(&whole, &mut events), Ok(()));
    assert_eq!(events, [text("hi")]);
    assert_eq!(LineDecoder::new("m").whole("{}", &mut events), Err(StreamFault::Incomplete));
}

#[test]
fn the_longest_line_passes_and_one_byte_more_does_not() {
    for (size, passes) in [(MAX_LINE_BYTES, true), (MAX_LINE_BYTES + 1, false)] {
        let mut body = A.as_bytes().to_vec();
        body.resize(size, b' ');
        body.extend_from_slice(b"\n");
        body.extend_from_slice(DONE.as_bytes());
        let decoded = playback::decode(LineDecoder::new("m"), body.chunks(1 << 16));
        assert_eq!(decoded.is_ok(), passes);
        assert!(passes || matches!(decoded, Err((_, StreamFault::TooLarge(_)))));
    }
}

#[test]
fn the_most_calls_pass_and_one_more_does_not() {
    let decode = |count: usize| {
        let calls: Vec<Value> = (0..count).map(|_| json!({"function": {"name": "t"}})).collect();
        let body = line(&json!({"tool_calls": calls})) + DONE;
        playback::decode(LineDecoder::new("m"), [body.as_bytes()])
    };
    assert_eq!(decode(MAX_CALLS).unwrap().1.parts.len(), MAX_CALLS);
    assert!(matches!(decode(MAX_CALLS + 1), Err((_, StreamFault::TooLarge(_)))));
}
