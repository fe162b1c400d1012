//! Bodies of every wire, as the stand-ins write them, to the decoders of the engines: cut at every byte, in
//! every legal framing, with bytes that are no UTF-8. No server and no network.

use serde_json::json;
use tns_server_core::engine::{StepEvent, StepStop};
use tns_server_core::message::Part;
use tns_server_engines::decode::{Decoded, StreamFault, WireFormat, stream};
use tns_tests::standin::{Fault, Plan, events};

/// Characters of two, three and four bytes, and some that are joined from several.
const WORDS: &str = "東京 👩\u{200d}🔬 é";

fn body(format: WireFormat, plan: &Plan) -> String {
    events(format.provider(), plan, true).concat()
}

fn whole(format: WireFormat, body: &[u8]) -> Decoded {
    stream(format, "asked", [body])
}

/// A reply with all there is: reasoning, text in pieces, two calls, usage.
fn everything() -> Plan {
    let args = json!({ "path": "é \"q\"\n", "n": [1, { "x": null }] });
    Plan::text(&[WORDS, " b"]).call("echo", args).call("list_dir", json!({})).usage(30, 20)
}

fn assert_every_cut(format: WireFormat, body: &[u8]) -> Decoded {
    let expected = whole(format, body);
    for cut in 0..=body.len() {
        let (head, tail) = body.split_at(cut);
        let name = format.provider();
        assert_eq!(stream(format, "asked", [head, tail]), expected, "{name} cut at {cut}");
    }
    assert_eq!(stream(format, "asked", body.chunks(1)), expected, "{} byte by byte", format.provider());
    expected
}

fn shown(events: &[StepEvent]) -> String {
    let texts = events.iter().filter_map(|event| match event {
        StepEvent::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

#[test]
fn reasoning_text_calls_and_usage_are_the_same_whatever_the_cuts() {
    for format in WireFormat::ALL {
        let name = format.provider();
        let (events, outcome) = assert_every_cut(format, body(format, &everything()).as_bytes()).unwrap();
        assert_eq!(shown(&events), format!("{WORDS} b"), "{name}");
        let reasons = events.iter().any(|event| matches!(event, StepEvent::Reasoning(_)));
        // Encrypted at OpenAI; Chat Completions has no word for it.
        assert_eq!(reasons, !name.starts_with("openai"), "{name}");
        let starts = events.iter().filter(|event| matches!(event, StepEvent::ToolStart { .. })).count();
        assert_eq!((starts, outcome.stop), (2, StepStop::ToolUse), "{name}");
        assert_eq!((outcome.usage.input, outcome.usage.output), (30, 20), "{name}");
        let [Part::Text(text), Part::ToolCall(first), Part::ToolCall(second)] = &*outcome.parts else {
            panic!("{name}: {:?}", outcome.parts)
        };
        assert_eq!(text, &format!("{WORDS} b"), "{name}");
        assert_eq!(json!(first.args), everything().calls[0].1, "{name}");
        assert_eq!((first.name.as_str(), second.name.as_str()), ("echo", "list_dir"), "{name}");
        assert!(first.problem.is_none() && second.problem.is_none(), "{name}");
    }
}

#[test]
fn errors_and_early_ends_are_the_same_whatever_the_cuts() {
    for format in WireFormat::ALL {
        let name = format.provider();
        for (fault, text) in [(Fault::OverloadedInStream, WORDS), (Fault::OverloadedAtOnce, "")] {
            let body = body(format, &Plan::text(&[WORDS]).fault(fault));
            let (events, found) = assert_every_cut(format, body.as_bytes()).unwrap_err();
            assert_eq!(shown(&events), text, "{name}");
            let StreamFault::Refused(words) = found else { panic!("{name}: {found:?}") };
            assert!(words.to_lowercase().contains("overloaded"), "{name}: {words}");
        }
        let cut = body(format, &everything().fault(Fault::CutAfterText));
        let (events, found) = assert_every_cut(format, cut.as_bytes()).unwrap_err();
        assert_eq!((shown(&events), found), (format!("{WORDS} b"), StreamFault::Incomplete), "{name}");
    }
}

#[test]
fn a_body_that_breaks_off_anywhere_is_incomplete_and_has_no_call_to_run() {
    for format in WireFormat::ALL {
        let name = format.provider();
        let body = body(format, &everything());
        let expected = whole(format, body.as_bytes()).unwrap().0;
        let mut ends = 0;
        for cut in 0..body.len() {
            match whole(format, &body.as_bytes()[..cut]) {
                // The end mark is there but for what no reply needs: line ends, usage, `[DONE]`.
                Ok((events, outcome)) => {
                    ends += 1;
                    assert_eq!((events, outcome.parts.len()), (expected.clone(), 3), "{name} cut at {cut}");
                }
                Err((events, fault)) => {
                    assert_eq!(fault, StreamFault::Incomplete, "{name} cut at {cut}");
                    assert!(expected.starts_with(&events), "{name} cut at {cut}: {events:?}");
                }
            }
        }
        assert!(ends < body.len() / 4, "{name}: {ends} of {}", body.len());
    }
}

#[test]
fn one_bad_byte_is_one_replacement_character_and_the_reply_goes_on() {
    for format in WireFormat::ALL {
        let mut body = body(format, &Plan::text(&["a?b", "c"])).into_bytes();
        // OpenAI says its text again at the end, where nothing is shown of it.
        for byte in body.iter_mut().filter(|byte| **byte == b'?') {
            *byte = 0xFF;
        }
        let (events, outcome) = assert_every_cut(format, &body).unwrap();
        assert_eq!(shown(&events), "a\u{FFFD}bc", "{}", format.provider());
        assert_eq!(outcome.stop, StepStop::End, "{}", format.provider());
    }
}

/// Frames of the same events, each legal.
fn framings(body: &str) -> Vec<(&'static str, String)> {
    let with_data = |prefix: &str| body.replace("data: ", &format!("{prefix}data: "));
    vec![
        ("every line end is CRLF", body.replace('\n', "\r\n")),
        ("every line end is CR", body.replace('\n', "\r")),
        ("no space after the colon", body.replace("data: ", "data:")),
        (
            "comments between events",
            format!(": keepalive\n\n:\n{}", body.replace("\n\n", "\n\n: keepalive\n\n:\n")),
        ),
        ("comments within events", with_data(": keepalive\n:\n")),
        ("other fields", with_data("id:1\nevent:message\nretry:3000\n")),
        ("JSON over two lines", body.replace("data: {", "data: {\ndata: ")),
        ("a byte order mark", format!("\u{FEFF}{body}")),
        ("no blank line at the end", body.trim_end().to_owned()),
        ("blank lines", format!("\n\n{}", body.replace("\n\n", "\n\n\n\n"))),
    ]
}

#[test]
fn every_legal_framing_gives_the_same_events_on_every_wire() {
    let event_streams = WireFormat::ALL.into_iter().filter(|format| *format != WireFormat::Ollama);
    for format in event_streams {
        for plan in [Plan::text(&["a", "b", "c"]), everything()] {
            let body = body(format, &plan);
            let expected = whole(format, body.as_bytes());
            assert!(expected.is_ok(), "{}: {expected:?}", format.provider());
            for (what, framed) in framings(&body) {
                let pieces = framed.as_bytes().chunks(1);
                assert_eq!(whole(format, framed.as_bytes()), expected, "{}: {what}", format.provider());
                assert_eq!(stream(format, "asked", pieces), expected, "{}: {what}", format.provider());
            }
            let crlf = body.replace('\n', "\r\n");
            assert_eq!(assert_every_cut(format, crlf.as_bytes()), expected, "{}", format.provider());
        }
    }
}

#[test]
fn lines_of_json_are_read_however_they_are_divided() {
    for plan in [Plan::text(&["a", "b", "c"]), everything()] {
        let body = body(WireFormat::Ollama, &plan);
        let expected = whole(WireFormat::Ollama, body.as_bytes());
        assert!(expected.is_ok(), "{expected:?}");
        for framed in [
            body.replace('\n', "\r\n"),
            body.replace('\n', "\n\n \n"),
            body.trim_end().to_owned(),
            body.replace("}\n{", "}{"),
            format!("\n{body}\n"),
        ] {
            assert_eq!(assert_every_cut(WireFormat::Ollama, framed.as_bytes()), expected, "{framed}");
        }
    }
}

#[test]
fn an_end_that_comes_twice_ends_once() {
    for format in WireFormat::ALL {
        let body = |plan: Plan| body(format, &plan);
        let (once, twice) = (body(everything()), body(everything().fault(Fault::FinishTwice)));
        assert_ne!(once, twice);
        assert_eq!(assert_every_cut(format, twice.as_bytes()), whole(format, once.as_bytes()));
    }
}

#[test]
fn pieces_of_calls_without_index_or_id_stay_apart_whatever_the_cuts() {
    let calls = Plan::text(&[]).call("echo", json!({ "text": "a" })).call("echo", json!({ "text": "b" }));
    for fault in [Fault::NoIndex, Fault::NoIds] {
        let body = body(WireFormat::ChatCompletions, &calls.clone().fault(fault));
        let (_, outcome) = assert_every_cut(WireFormat::ChatCompletions, body.as_bytes()).unwrap();
        let args = outcome.parts.iter().map(|part| match part {
            Part::ToolCall(call) => json!(call.args),
            other => panic!("{other:?}"),
        });
        assert_eq!(args.collect::<Vec<_>>(), [json!({ "text": "a" }), json!({ "text": "b" })], "{fault:?}");
    }
}

#[test]
fn usage_that_runs_up_is_the_last_figure_on_every_wire() {
    let plan = Plan::text(&["a", "b", "c"]).usage(9, 3).fault(Fault::RunningUsage);
    for format in WireFormat::ALL {
        let (_, outcome) = whole(format, body(format, &plan).as_bytes()).unwrap();
        assert_eq!((outcome.usage.input, outcome.usage.output), (9, 3), "{}", format.provider());
    }
}
