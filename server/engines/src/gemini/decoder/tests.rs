//! Streams as the API sends them, cut at every byte; no network.

use serde_json::{Value, json};
use tns_protocol::ToolCallId;
use tns_server_core::engine::StepEvent;
use tns_server_core::message::{Part, ToolCall};

use super::*;
use crate::step::playback::{self, Decoded};
use crate::step::reply::MAX_CALLS;

fn decoder() -> StreamDecoder {
    StreamDecoder::new("gemini-3.8-flash")
}

fn decode(body: &str) -> Decoded {
    playback::decode_every_cut(decoder, body.as_bytes())
}

fn parts_event(parts: &Value) -> String {
    format!(
        "data: {}\r\n\r\n",
        json!({"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}]})
    )
}

fn finish(reason: &str) -> String {
    let end = json!({
        "candidates": [{"content": {"role": "model", "parts": []}, "finishReason": reason, "index": 0}],
        "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 2, "totalTokenCount": 12},
        "modelVersion": "gemini-3.8-flash",
    });
    format!("data: {end}\r\n\r\n")
}

fn say(words: &str) -> String {
    parts_event(&json!([{"text": words}]))
}

fn call(number: u32, name: &str, args: &Value) -> Part {
    Part::ToolCall(ToolCall {
        id: ToolCallId::parse(format!("call_{number}")).unwrap(),
        provider_id: None,
        name: name.into(),
        args: args.as_object().unwrap().clone(),
        problem: None,
    })
}

fn native(outcome: &StepOutcome) -> Option<Value> {
    outcome.native.as_ref().map(|native| {
        assert_eq!(native.provider, "gemini");
        serde_json::from_str(native.blocks.get()).unwrap()
    })
}

#[test]
fn text_survives_every_cut() {
    let words = "東京 👩\u{200d}🔬 é";
    let (events, outcome) = decode(&(say(words) + &say(" \"b\"\n") + &finish("STOP"))).unwrap();
    assert_eq!(events, [StepEvent::Text(words.into()), StepEvent::Text(" \"b\"\n".into())]);
    assert_eq!(
        outcome,
        StepOutcome {
            parts: vec![Part::Text(format!("{words} \"b\"\n"))],
            model: "gemini-3.8-flash".into(),
            stop: StepStop::End,
            usage: StepUsage { input: 10, output: 2, ..StepUsage::default() },
            native: None,
        }
    );
}

#[test]
fn a_bad_byte_costs_one_character_and_the_stream_goes_on() {
    let mut body = say("a#b").into_bytes();
    let at = body.iter().position(|byte| *byte == b'#').unwrap();
    body[at] = 0xFF;
    body.extend_from_slice(finish("STOP").as_bytes());
    let (events, _) = playback::decode_every_cut(decoder, &body).unwrap();
    assert_eq!(events, [StepEvent::Text("a\u{FFFD}b".into())]);
}

#[test]
fn calls_come_whole_and_are_told_of_once_each() {
    let body = say("I look.")
        + &parts_event(&json!([
            {"functionCall": {"name": "echo", "args": {"text": "a"}}},
            {"functionCall": {"name": "_.3d", "args": {}}},
            {"functionCall": {"name": "list"}},
        ]))
        + &finish("STOP");
    let (events, outcome) = decode(&body).unwrap();
    let started = |name: &str| StepEvent::ToolStart { name: name.into() };
    assert_eq!(events, [StepEvent::Text("I look.".into()), started("echo"), started("3d"), started("list")]);
    assert_eq!(outcome.stop, StepStop::ToolUse);
    assert_eq!(
        outcome.parts,
        [
            Part::Text("I look.".into()),
            call(1, "echo", &json!({"text": "a"})),
            call(2, "3d", &json!({})),
            call(3, "list", &json!({})),
        ]
    );
    // Nothing in it that could not be said in our own words.
    assert_eq!(native(&outcome), None);
}

#[test]
fn arguments_that_are_no_object_come_empty_with_the_problem() {
    for args in ["[]", "\"ls\"", "5"] {
        let body = format!(
            "data: {{\"candidates\":[{{\"content\":{{\"parts\":[{{\"functionCall\":{{\"name\":\"sh\",\"args\":{args}}}}}]}}}}]}}\n\n"
        ) + &finish("STOP");
        let (_, outcome) = decode(&body).unwrap();
        let [Part::ToolCall(call)] = outcome.parts.as_slice() else { panic!("{:?}", outcome.parts) };
        assert_eq!((call.args.len(), call.problem.as_deref()), (0, Some("the arguments are no JSON object")));
    }
}

#[test]
fn signed_parts_are_kept_to_the_byte() {
    // Spaces and the order of keys are the provider's.
    let signed = "{ \"thoughtSignature\":\"c2lnMQ==\",\"functionCall\":{\"args\":{\"text\": \"hi\"},\"name\":\"echo\",\"id\":\"x1\"} }";
    let second = "{\"functionCall\":{\"name\":\"echo\",\"args\":{}}}";
    let body = parts_event(&json!([{"text": " plan\n", "thought": true}]))
        + &say("o")
        + &say("k")
        + &format!("data: {{\"candidates\":[{{\"content\":{{\"parts\":[{signed},{second}]}}}}]}}\n\n")
        + &parts_event(&json!([{"text": "", "thoughtSignature": "ZW5k"}]))
        + &finish("STOP");
    let (events, outcome) = decode(&body).unwrap();
    assert_eq!(
        events[..3],
        [StepEvent::Reasoning(" plan\n".into()), StepEvent::Text("o".into()), StepEvent::Text("k".into()),]
    );
    let native = outcome.native.unwrap();
    let kept = "{\"model\":\"gemini-3.8-flash\",\"parts\":[{\"text\":\"ok\"},".to_owned()
        + signed
        + ","
        + second
        + ",{\"text\":\"\",\"thoughtSignature\":\"ZW5k\"}]}";
    assert_eq!(native.blocks.get(), kept);
    assert!(events.iter().all(|event| !format!("{event:?}").contains("c2lnMQ")));
}

#[test]
fn between_summaries_of_reasoning_the_model_is_known_to_think() {
    let mut decoder = decoder();
    let mut thinks = |body: String| {
        assert_eq!(decoder.push(body.as_bytes(), &mut Events::new()), Ok(Progress::More));
        decoder.thinks_silently()
    };
    assert!(!thinks(": keepalive\n\n".into()));
    assert!(thinks(parts_event(&json!([{"text": "plan", "thought": true}]))));
    assert!(!thinks(say("a")));
}

#[test]
fn usage_is_the_last_report_and_not_the_sum() {
    let report = |usage: &Value| format!("data: {}\n\n", json!({"usageMetadata": usage}));
    let body = report(&json!({"promptTokenCount": 100, "candidatesTokenCount": 5}))
        + &report(&json!({
            "promptTokenCount": 100, "cachedContentTokenCount": 60, "toolUsePromptTokenCount": 7,
            "candidatesTokenCount": 20, "thoughtsTokenCount": 30, "totalTokenCount": 157,
        }))
        + &report(&json!({"candidatesTokenCount": 21}))
        + "data: {\"candidates\":[{\"finishReason\":\"STOP\"}]}\n\n";
    let (_, outcome) = decode(&body).unwrap();
    let StepUsage { input, cached_input, output, .. } = outcome.usage;
    assert_eq!((input, cached_input, output), (107, 60, 51));
}

#[test]
fn each_finish_reason_has_its_stop() {
    for (reason, stop) in [
        ("STOP", StepStop::End),
        ("MAX_TOKENS", StepStop::MaxTokens),
        ("SAFETY", StepStop::Refusal),
        ("RECITATION", StepStop::Refusal),
        ("BLOCKLIST", StepStop::Refusal),
        ("PROHIBITED_CONTENT", StepStop::Refusal),
        ("SPII", StepStop::Refusal),
        ("LANGUAGE", StepStop::Refusal),
    ] {
        let (_, outcome) = decode(&(say("a") + &finish(reason))).unwrap();
        assert_eq!(outcome.stop, stop, "{reason}");
    }
}

#[test]
fn a_blocked_prompt_is_a_refusal_without_words() {
    let (events, outcome) = decode("data: {\"promptFeedback\":{\"blockReason\":\"SAFETY\"}}\n\n").unwrap();
    assert_eq!((events, outcome.parts, outcome.stop), (vec![], vec![], StepStop::Refusal));
}

#[test]
fn a_slip_of_the_model_is_told_with_its_reason() {
    let slip = |body: &str| decode(body).unwrap_err();
    assert_eq!(
        slip(&finish("MALFORMED_FUNCTION_CALL")).1,
        StreamFault::Slip("MALFORMED_FUNCTION_CALL".into())
    );
    let why = json!({"candidates": [{"finishReason": "OTHER", "finishMessage": "lost"}]});
    let (events, fault) = slip(&format!("{}data: {why}\n\n", say("a")));
    assert_eq!((events, fault), (vec![StepEvent::Text("a".into())], StreamFault::Slip("OTHER: lost".into())));
}

#[test]
fn a_stream_that_ends_without_a_reason_is_incomplete() {
    let expected = || Err((vec![StepEvent::Text("Mor".into())], StreamFault::Incomplete));
    assert_eq!(decode(&say("Mor")), expected());
    let cut = say("Mor") + "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"e";
    assert_eq!(playback::decode(decoder(), [cut.as_bytes()]), expected());
    assert_eq!(decode(""), Err((vec![], StreamFault::Incomplete)));
    // The last event may lack its blank line.
    assert!(decode((say("a") + &finish("STOP")).trim_end()).is_ok());
}

#[test]
fn an_error_in_the_stream_ends_it_with_its_body() {
    let error =
        "{\"error\":{\"code\":503,\"message\":\"The model is overloaded.\",\"status\":\"UNAVAILABLE\"}}";
    assert_eq!(
        decode(&format!("{}data: {error}\n\n", say("Part"))),
        Err((vec![StepEvent::Text("Part".into())], StreamFault::Refused(error.into())))
    );
}

#[test]
fn what_is_no_event_is_a_fault() {
    for body in ["data: {oops\n\n", "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":5}]}}]}\n\n"] {
        let Err((_, StreamFault::Unreadable(_))) = decode(&format!("{body}{}", finish("STOP"))) else {
            panic!("{body}")
        };
    }
}

#[test]
fn an_answer_that_comes_as_one_list_is_read() {
    let body = json!([
        {"candidates": [{"index": 1}, {"content": {"parts": [{"text": "hi"}]}}]},
        {"candidates": [{"finishReason": "STOP"}]},
    ]);
    let whole = |body: &Value| {
        let mut events = Events::new();
        decoder().whole(&body.to_string(), &mut events).map(|()| Vec::from(events))
    };
    assert_eq!(whole(&body), Ok(vec![StepEvent::Text("hi".into())]));
    assert_eq!(whole(&json!([])), Err(StreamFault::Incomplete));
    assert_eq!(whole(&json!({"candidates": [{"finishReason": "STOP"}]})), Ok(vec![]));
}

#[test]
fn the_most_calls_pass_and_one_more_does_not() {
    let body = |count: usize| {
        let calls: Vec<Value> = (0..count).map(|_| json!({"functionCall": {"name": "t"}})).collect();
        parts_event(&json!(calls)) + &finish("STOP")
    };
    let decode = |count| playback::decode(decoder(), [body(count).as_bytes()]);
    assert_eq!(decode(MAX_CALLS).unwrap().1.parts.len(), MAX_CALLS);
    assert!(matches!(decode(MAX_CALLS + 1), Err((_, StreamFault::TooLarge(_)))));
}

#[test]
fn signed_parts_count_as_they_are_kept() {
    let part = parts_event(&json!([{"text": "", "thoughtSignature": "a", "more": "x".repeat(7 << 20)}]));
    let decoded = playback::decode(decoder(), [part.repeat(5).as_bytes()]);
    assert_eq!(decoded.unwrap_err().1, StreamFault::TooLarge("a reply of more than 32 MiB"));
}

#[test]
fn a_call_that_would_be_refused_when_it_goes_back_is_kept_without_its_arguments() {
    let deep = "[".repeat(200) + &"]".repeat(200);
    for args in ["\"ls\"", "[]", "5", "null", &format!("{{\"a\":{deep}}}")] {
        let call = format!(
            "{{\"candidates\":[{{\"content\":{{\"parts\":[{{\"functionCall\":{{\"id\":\"x\",\"name\":\"t\",\
            \"args\":{args}}},\"thoughtSignature\":\"c2ln\"}}]}}}}]}}"
        );
        let body = format!("data: {call}\n\n") + &parts_event(&json!([{"text": "\n"}])) + &finish("STOP");
        let (_, outcome) = decode(&body).unwrap();
        let Part::ToolCall(call) = &outcome.parts[0] else { panic!("{:?}", outcome.parts) };
        assert!(call.problem.is_some() != (args == "null") && call.args.is_empty(), "{args}");
        let kept =
            json!([{"functionCall": {"id": "x", "name": "t", "args": {}}, "thoughtSignature": "c2ln"}]);
        assert_eq!(native(&outcome).unwrap()["parts"], kept, "{args}");
    }
}
