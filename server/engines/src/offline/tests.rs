//! The engine without a model, as tables of what is asked and what it answers.

use serde_json::json;
use tns_protocol::{DocumentId, ToolCallId};
use tns_server_core::message::{ModelMessage, ModelRole, Note, Passage, ToolResult};
use tns_server_core::tool::ToolSpec;

use super::*;

fn user(parts: Vec<Part>) -> ModelMessage {
    ModelMessage { role: ModelRole::User, parts, native: Vec::new() }
}

fn said(text: &str) -> ModelMessage {
    user(vec![Part::Text(text.into())])
}

fn knowing(text: &str) -> ModelMessage {
    let passage = |number, source: &str, text: &str| Passage {
        number,
        document: DocumentId::parse("d").unwrap(),
        source: source.into(),
        text: text.into(),
    };
    let passages =
        vec![passage(1, "notes.md:3", "The port is 8080.\nIt is fixed."), passage(2, "b.md:9", "Ports.")];
    user(vec![Part::Note(Note::Knowledge(passages)), Part::Text(text.into())])
}

fn called(tool: &str) -> ModelMessage {
    let id = ToolCallId::parse("call_1").unwrap();
    let call = ToolCall { id, provider_id: None, name: tool.into(), args: Map::new(), problem: None };
    ModelMessage { role: ModelRole::Assistant, parts: vec![Part::ToolCall(call)], native: Vec::new() }
}

fn gave(tool: &str, output: &str, is_error: bool) -> ModelMessage {
    user(vec![Part::ToolResult(ToolResult {
        call: ToolCallId::parse("call_1").unwrap(),
        provider_id: None,
        name: tool.into(),
        output: output.into(),
        is_error,
        untrusted_source: None,
    })])
}

fn request(messages: Vec<ModelMessage>, tools: &[&str]) -> StepRequest {
    let spec = |name: &&str| {
        Arc::new(ToolSpec {
            name: (*name).to_owned(),
            description: String::new(),
            schema: json!({"type": "object"}),
        })
    };
    StepRequest {
        system: "".into(),
        tools: tools.iter().map(spec).collect(),
        messages,
        effort: None,
        max_output_tokens: None,
        temperature: None,
    }
}

const ALL: [&str; 3] = ["shell", "file_read", "file_write"];

fn answer_to(messages: Vec<ModelMessage>) -> Answer {
    answer::answer(&request(messages, &ALL))
}

fn say(answer: Answer) -> String {
    match answer {
        Answer::Say(text) => text,
        Answer::Call { .. } => panic!("{answer:?}"),
    }
}

#[test]
fn fixed_forms_call_their_tool() {
    for (text, tool, args) in [
        ("!ls -la", "shell", json!({"command": "ls -la"})),
        ("read notes.md", "file_read", json!({"path": "notes.md"})),
        ("write a.txt: one: two", "file_write", json!({"path": "a.txt", "content": "one: two"})),
        ("what is in README.md?", "file_read", json!({"path": "README.md"})),
        ("how does Node.js do it", "file_read", json!({"path": "Node.js"})),
    ] {
        let args = args.as_object().unwrap().clone();
        assert_eq!(answer_to(vec![said(text)]), Answer::Call { tool, args }, "{text}");
    }
}

#[test]
fn a_tool_that_is_not_on_offer_is_said() {
    for (text, tool) in [
        ("!ls", "shell"),
        ("read a.md", "file_read"),
        ("write a: b", "file_write"),
        ("what is in a.md", "file_read"),
    ] {
        let answer = say(answer::answer(&request(vec![said(text)], &["grep"])));
        assert_eq!(answer, format!("That takes the tool `{tool}`, which is not on offer here."));
    }
}

#[test]
fn output_comes_verbatim_and_failures_in_plain_words() {
    for (text, tool, output, is_error, answer) in [
        ("!ls", "shell", "a\n  b\n\n", false, "a\n  b\n\n"),
        ("!true", "shell", "", false, "(no output)"),
        ("read a.md", "file_read", "# A\n", false, "# A\n"),
        ("!ls", "shell", "rejected by the user\n", true, "`shell` failed: rejected by the user"),
        ("!ls x", "shell", "no x\nexit status 2", true, "`shell` failed:\nno x\nexit status 2"),
        ("what is in a.md?", "file_read", "no such file", true, "a.md can't be read: no such file"),
    ] {
        assert_eq!(
            say(answer_to(vec![said(text), called(tool), gave(tool, output, is_error)])),
            answer,
            "{text}"
        );
    }
}

#[test]
fn a_question_about_a_file_quotes_its_lines() {
    let answer = say(answer_to(vec![
        said("which port does README.md name?"),
        called("file_read"),
        gave("file_read", "# Harbour\n\nIt listens on port 8080.\n", false),
    ]));
    assert!(answer.ends_with("[1] README.md:3\n> It listens on port 8080."), "{answer}");
}

#[test]
fn passages_are_quoted_with_their_source() {
    assert_eq!(
        say(answer_to(vec![knowing("which port?")])),
        "No model is set up; these are the best matches.\n\n\
         [1] notes.md:3\n> The port is 8080.\n> It is fixed.\n\n[2] b.md:9\n> Ports."
    );
}

#[test]
fn a_file_that_is_asked_for_goes_before_passages_and_one_that_is_only_named_after() {
    assert!(matches!(
        answer_to(vec![knowing("what is in README.md?")]),
        Answer::Call { tool: "file_read", .. }
    ));
    assert!(say(answer_to(vec![knowing("which port has Node.js?")])).contains("notes.md:3"));
}

#[test]
fn a_greeting_is_answered_in_three_lines_and_a_question_that_nothing_fits_plainly() {
    let greeting = say(answer_to(vec![said("Hello!")]));
    assert_eq!(greeting.lines().count(), 3);
    for part in
        ["No model is set up", "`!command`", "`read FILE`", "`tns kb add`", "Ollama", "OPENAI_API_KEY"]
    {
        assert!(greeting.contains(part), "{part}: {greeting}");
    }
    let answer = say(answer_to(vec![said("why is the sky blue?")]));
    assert!(answer.starts_with("Nothing in the knowledge base fits that."), "{answer}");
}

#[test]
fn only_the_last_turn_counts() {
    let before = vec![knowing("!ls"), called("shell"), gave("shell", "old", false)];
    let then = |message| [before.clone(), vec![message]].concat();
    assert_eq!(say(answer_to(before.clone())), "old");
    assert_eq!(say(answer_to(then(said("hello")))).lines().count(), 3);
    // A result in the same message answers a call before it.
    let mut mixed = gave("shell", "old", true);
    mixed.parts.push(Part::Text("!pwd".into()));
    assert!(matches!(answer_to(then(mixed)), Answer::Call { tool: "shell", .. }));
    assert_eq!(say(answer_to(Vec::new())).lines().count(), 3);
}

#[test]
fn words_make_up_the_text() {
    for text in ["", " ", "a", "  a\n\n b  c\n", "東京 é\u{a0}x"] {
        let pieces: Vec<_> = words(text).collect();
        assert_eq!(pieces.concat(), text);
        assert!(pieces.iter().all(|piece| !piece.is_empty()));
    }
    assert_eq!(words("one two\nthree").collect::<Vec<_>>(), ["one ", "two\n", "three"]);
}

#[tokio::test]
async fn a_step_streams_words_and_costs_nothing() {
    let events: Vec<_> = Offline.step(request(vec![said("!x")], &[])).map(Result::unwrap).collect().await;
    let text = "That takes the tool `shell`, which is not on offer here.";
    let outcome = StepOutcome {
        parts: vec![Part::Text(text.into())],
        model: MODEL.into(),
        stop: StepStop::End,
        usage: StepUsage { cost: Some(0.0), ..StepUsage::default() },
        native: None,
    };
    let mut expected: Vec<_> = text.split_inclusive(' ').map(|word| StepEvent::Text(word.into())).collect();
    expected.push(StepEvent::Finished(outcome));
    assert_eq!(events, expected);
}

#[tokio::test]
async fn a_call_is_announced_and_has_an_id_of_its_own() {
    let step = || Offline.step(request(vec![said("!x")], &ALL)).map(Result::unwrap).collect::<Vec<_>>();
    let id = |events: &[StepEvent]| {
        let [StepEvent::ToolStart { name }, StepEvent::Finished(outcome)] = events else {
            panic!("{events:?}")
        };
        let [Part::ToolCall(call)] = outcome.parts.as_slice() else { panic!("{outcome:?}") };
        assert_eq!((name.as_str(), call.name.as_str(), outcome.stop), ("shell", "shell", StepStop::ToolUse));
        call.id.clone()
    };
    assert_ne!(id(&step().await), id(&step().await));
}
