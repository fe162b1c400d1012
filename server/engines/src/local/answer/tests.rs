//! Answers of every family, cut at every character, and by chance.

use proptest::prelude::*;
use serde_json::{Value, json};
use tns_protocol::ToolCallId;
use tns_server_core::engine::StepEvent;

use super::*;

/// What came out: text and calls in order, thoughts, and the tools that were announced.
#[derive(Debug, Clone, PartialEq, Default)]
struct Out {
    parts: Vec<Value>,
    text: String,
    thoughts: String,
    starts: Vec<String>,
}

fn read<'a>(pieces: impl IntoIterator<Item = &'a str>, thinks: bool) -> Out {
    let mut answer = Answer::new(["echo".to_owned(), "ls".to_owned()], thinks);
    let mut events = Events::new();
    for piece in pieces {
        answer.push(piece, &mut events).unwrap();
    }
    answer.end(&mut events).unwrap();
    let mut out = Out::default();
    for event in events {
        match event {
            StepEvent::Text(text) => {
                assert!(!text.is_empty());
                out.text.push_str(&text);
            }
            StepEvent::Reasoning(text) => out.thoughts.push_str(&text),
            StepEvent::ToolStart { name } => out.starts.push(name),
            other => panic!("{other:?}"),
        }
    }
    let mut count = 0;
    let parts = answer.into_parts(&mut || {
        count += 1;
        ToolCallId::parse(format!("call_{count}"))
    });
    out.parts = parts.unwrap().iter().map(told).collect();
    out
}

fn told(part: &Part) -> Value {
    match part {
        Part::Text(text) => json!(text),
        Part::ToolCall(call) => match &call.problem {
            None => json!({&call.name: call.args}),
            Some(problem) => json!({&call.name: problem}),
        },
        other => panic!("{other:?}"),
    }
}

/// Reads an answer whole, and cut in two at every character, and character by character.
fn every_cut(text: &str) -> Out {
    let whole = read([text], false);
    for (cut, _) in text.char_indices() {
        let (head, tail) = text.split_at(cut);
        assert_eq!(read([head, tail], false), whole, "cut at {cut} of {text}");
    }
    let characters: Vec<String> = text.chars().map(String::from).collect();
    assert_eq!(read(characters.iter().map(String::as_str), false), whole, "{text}");
    whole
}

fn parts(text: &str) -> Vec<Value> {
    every_cut(text).parts
}

#[test]
fn text_is_text() {
    for (text, told) in [
        ("Hello.", "Hello."),
        ("\n\n  Hello,\n\n world. \n", "Hello,\n\n world."),
        ("a < b, a <b> c, [x], {y}", "a < b, a <b> c, [x], {y}"),
        ("{\"a\": 1}", "{\"a\": 1}"),
        ("[1, 2]", "[1, 2]"),
        ("{\"name\": \"Ann\", \"age\": 7}", "{\"name\": \"Ann\", \"age\": 7}"),
        ("{\"name\": \"other\", \"arguments\": {}}", "{\"name\": \"other\", \"arguments\": {}}"),
        ("<tool>x</tool> <th", "<tool>x</tool> <th"),
        ("a </think>b", "a b"),
    ] {
        let out = every_cut(text);
        let shown = told.strip_suffix("<th").map_or(told, str::trim_end);
        assert_eq!((out.parts.as_slice(), out.text.as_str()), ([json!(shown)].as_slice(), shown), "{text}");
        assert!(out.starts.is_empty());
    }
    assert!(parts("").is_empty());
    assert!(parts(" \n").is_empty());
}

#[test]
fn calls_of_every_family_are_read() {
    let echo = json!({"echo": {"text": "a<b"}});
    let ls = json!({"ls": {}});
    for (text, expected) in [
        // Hermes, Qwen.
        ("<tool_call>\n{\"name\": \"echo\", \"arguments\": {\"text\": \"a<b\"}}\n</tool_call>", vec![&echo]),
        (
            "<tool_call>{\"name\":\"echo\",\"arguments\":{\"text\":\"a<b\"}}</tool_call>\n<tool_call>\n\
             {\"name\": \"ls\", \"arguments\": {}}\n</tool_call>",
            vec![&echo, &ls],
        ),
        // The order of keys, text instead of JSON, no closing tag, a fence, two in one.
        ("<tool_call>{\"arguments\": {}, \"name\": \"ls\"}</tool_call>", vec![&ls]),
        ("<tool_call>{\"name\": \"ls\", \"arguments\": \"{}\"}</tool_call>", vec![&ls]),
        ("<tool_call>{\"name\": \"ls\"}", vec![&ls]),
        ("<tool_call>```json\n{\"name\": \"ls\", \"arguments\": null}\n```</tool_call>", vec![&ls]),
        ("<tool_call>{\"name\": \"ls\"}\n{\"name\": \"ls\"}</tool_call>", vec![&ls, &ls]),
        (
            "<tool_call>{\"type\":\"function\",\"function\":{\"name\":\"ls\",\"arguments\":{}}}</tool_call>",
            vec![&ls],
        ),
        // Llama 3.
        ("{\"name\": \"echo\", \"parameters\": {\"text\": \"a<b\"}}", vec![&echo]),
        ("{\"type\": \"function\", \"name\": \"ls\", \"parameters\": {}}", vec![&ls]),
        ("{\"name\": \"ls\", \"parameters\": {}}; {\"name\": \"ls\", \"parameters\": {}}", vec![&ls, &ls]),
        ("<|python_tag|>{\"name\": \"ls\", \"parameters\": {}}", vec![&ls]),
        ("<function=echo>{\"text\": \"a<b\"}</function>", vec![&echo]),
        // Mistral.
        ("[TOOL_CALLS] [{\"name\": \"echo\", \"arguments\": {\"text\": \"a<b\"}}]", vec![&echo]),
        (
            "[TOOL_CALLS][{\"name\": \"ls\", \"arguments\": {}}, {\"name\": \"ls\", \"arguments\": {}}]",
            vec![&ls, &ls],
        ),
        ("[TOOL_CALLS]echo[ARGS]{\"text\": \"a<b\"}", vec![&echo]),
        ("[TOOL_CALLS]ls[CALL_ID]123456789[ARGS]{}[TOOL_CALLS]ls{}", vec![&ls, &ls]),
        // Phi 4.
        ("<|tool_call|>[{\"name\": \"ls\", \"arguments\": {}}]<|/tool_call|>", vec![&ls]),
    ] {
        let out = every_cut(text);
        assert_eq!(out.parts.iter().collect::<Vec<_>>(), expected, "{text}");
        assert_eq!(out.text, "", "{text}");
        assert_eq!(out.starts.len(), expected.len());
    }
}

#[test]
fn text_and_calls_keep_their_order_and_no_tag_is_shown() {
    let out = every_cut(
        "I look. \n<tool_call>\n{\"name\": \"ls\"}\n</tool_call>\n Then <tool_call>{\"name\": \"ls\"}</tool_call>",
    );
    assert_eq!(out.parts, [json!("I look."), json!({"ls": {}}), json!("Then"), json!({"ls": {}})]);
    assert_eq!(out.text, "I look.Then");
    for cut in ["Hello <tool_c", "Hello <|pyth", "Hello [TOOL_CALLS", "Hello <think"] {
        assert_eq!(every_cut(cut).text, "Hello", "{cut}");
    }
}

#[test]
fn what_can_not_be_read_is_a_call_with_a_problem() {
    let problem = |text: &str| {
        let parts = parts(text);
        let [Value::Object(call)] = parts.as_slice() else { panic!("{text}: {parts:?}") };
        let (name, problem) = call.iter().next().unwrap();
        (name.clone(), problem.as_str().unwrap_or_else(|| panic!("{text}: {problem}")).to_owned())
    };
    for (text, name, says) in [
        ("<tool_call>{\"name\": \"echo\", \"arguments\": {\"text\": \"cut of", "echo", "not valid JSON"),
        ("<tool_call>{\"name\": \"echo\", \"arguments\": {text: 1}}</tool_call>", "echo", "not valid JSON"),
        ("<tool_call>{\"name\": \"echo\", \"arguments\": [1]}</tool_call>", "echo", "no JSON object"),
        ("<tool_call>ls -la</tool_call>", "unnamed", "names no tool"),
        ("<tool_call></tool_call>", "unnamed", "names no tool"),
        ("<tool_call>", "unnamed", "names no tool"),
        ("<tool_call>\"ls\"</tool_call>", "unnamed", "names no tool"),
        ("<tool_call>{\"arguments\": {}}</tool_call>", "unnamed", "names no tool"),
        ("[TOOL_CALLS]echo[ARGS]{\"text\":", "echo", "not valid JSON"),
        ("<function=echo>{", "echo", "not valid JSON"),
        ("<|python_tag|>print(1)", "unnamed", "names no tool"),
    ] {
        let (named, said) = problem(text);
        assert_eq!(named, name, "{text}");
        assert!(said.contains(says), "{text}: {said}");
    }
    let deep = format!("<tool_call>{{\"name\": \"echo\", \"arguments\": {}", "[".repeat(5_000));
    assert_eq!(read([deep.as_str()], false).parts.len(), 1);
}

#[test]
fn thoughts_are_no_part_of_the_answer() {
    let out = every_cut("<think>\nParis < Rome?\n</think>\n\nParis.");
    assert_eq!((out.parts, out.thoughts.as_str()), (vec![json!("Paris.")], "\nParis < Rome?\n"));
    let out = every_cut("<think>x</think>{\"name\": \"ls\", \"parameters\": {}}");
    assert_eq!(out.parts, [json!({"ls": {}})]);
    assert_eq!(every_cut("<think>never ends </thi").thoughts, "never ends ");
    let begun = read(["so it is", "</think>", "Yes."], true);
    assert_eq!((begun.parts, begun.thoughts.as_str()), (vec![json!("Yes.")], "so it is"));
}

proptest! {
    /// Pieces of tags and text in any order, cut anywhere: the same comes out, and no tag is ever shown.
    #[test]
    fn cuts_change_nothing(
        chosen in proptest::collection::vec(0_usize..16, 0..10),
        cuts in proptest::collection::vec(0_usize..400, 0..8),
    ) {
        const PIECES: [&str; 16] = [
            "<tool_call>", "</tool_call>", "<|python_tag|>", "[TOOL_CALLS]", "<think>", "</think>", "<function=",
            "</function>", "{\"name\": \"ls\", \"arguments\": {}}", "echo[ARGS]{}", " \n", "é<", "[", "text ", "<tool",
            "ls>{}",
        ];
        let text: String = chosen.iter().map(|at| PIECES[*at]).collect();
        let whole = read([text.as_str()], false);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).filter(|cut| text.is_char_boundary(*cut)).collect();
        cuts.sort_unstable();
        let mut pieces = Vec::new();
        let mut from = 0;
        for cut in cuts {
            pieces.push(&text[from..cut]);
            from = cut;
        }
        pieces.push(&text[from..]);
        prop_assert_eq!(read(pieces, false), whole.clone());
        for tag in ["<tool_call>", "<|python_tag|>", "[TOOL_CALLS]", "<think>", "</think>", "<function="] {
            prop_assert!(!whole.text.contains(tag), "{:?} shows {}", text, whole.text);
        }
    }
}
