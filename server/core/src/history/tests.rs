//! What a model sees, for every order in which rows may have been stored.

use proptest::prelude::*;
use serde_json::Map;
use tns_protocol::{AgentId, Timestamp};

use super::*;
use crate::event::ToolFinished;
use crate::store::Place;

fn agent(id: &str) -> Agent {
    Agent {
        id: AgentId::parse(id).unwrap(),
        name: id.to_owned(),
        role: "assistant".into(),
        goal: None,
        domain: None,
        roles: Vec::new(),
        engine: Default::default(),
        provider: "p".into(),
        model: "m".into(),
        system: "s".into(),
    }
}

fn message_id(id: &str) -> MessageId {
    MessageId::parse(id).unwrap()
}

fn user(turn: &str, agent: &str) -> DurableEvent {
    DurableEvent::UserMessage(UserMessage {
        id: message_id(turn),
        agent: AgentId::parse(agent).unwrap(),
        parts: vec![Part::Text(format!("ask {turn}"))],
        client_message_id: None,
        context: None,
        queued: false,
    })
}

fn call(id: &str) -> Part {
    Part::ToolCall(ToolCall {
        id: ToolCallId::parse(id).unwrap(),
        provider_id: None,
        name: "echo".into(),
        args: Map::new(),
        problem: None,
    })
}

fn step(agent: &str, parts: Vec<Part>, status: MessageStatus) -> DurableEvent {
    DurableEvent::AssistantMessage(AssistantMessage {
        id: message_id("step"),
        agent: AgentId::parse(agent).unwrap(),
        parts,
        model: "m".into(),
        native: None,
        notes: Vec::new(),
        status,
        response: None,
        usage: None,
        provider: None,
        counted_on: None,
    })
}

fn result(id: &str) -> ToolResult {
    ToolResult {
        call: ToolCallId::parse(id).unwrap(),
        provider_id: None,
        name: "echo".into(),
        output: "out".into(),
        is_error: false,
        untrusted_source: None,
    }
}

fn finished(id: &str) -> DurableEvent {
    DurableEvent::ToolFinished(ToolFinished {
        agent: AgentId::parse("a").unwrap(),
        result: result(id),
        ran: true,
        duration_ms: 1,
        truncated: false,
    })
}

fn rows(events: Vec<(&str, DurableEvent)>) -> Vec<StoredEvent> {
    let place = |seq| Place { seq, gseq: seq, at: Timestamp::from_micros(0) };
    let numbered = events.into_iter().zip(1..);
    numbered
        .map(|((turn, event), seq)| StoredEvent { place: place(seq), turn: Some(message_id(turn)), event })
        .collect()
}

fn text(text: &str) -> Part {
    Part::Text(text.into())
}

fn seen(rows: &[StoredEvent]) -> Vec<(ModelRole, Vec<Part>)> {
    let conversation = Conversation::of(rows, &agent("a"), &[agent("a"), agent("b")], &[]);
    conversation.messages().into_iter().map(|message| (message.role, message.parts)).collect()
}

#[test]
fn a_message_that_came_during_a_reply_stands_after_it() {
    let rows = rows(vec![
        ("1", user("1", "a")),
        ("1", step("a", vec![call("c")], MessageStatus::Complete)),
        ("2", user("2", "a")),
        ("1", finished("c")),
        ("1", step("a", vec![text("answer 1")], MessageStatus::Complete)),
    ]);
    assert_eq!(
        seen(&rows),
        [
            (ModelRole::User, vec![text("ask 1")]),
            (ModelRole::Assistant, vec![call("c")]),
            (ModelRole::User, vec![Part::ToolResult(result("c"))]),
            (ModelRole::Assistant, vec![text("answer 1")]),
            (ModelRole::User, vec![text("ask 2")]),
        ]
    );
}

#[test]
fn a_call_without_a_result_is_answered_as_an_error() {
    let rows = rows(vec![
        ("1", user("1", "a")),
        ("1", step("a", vec![call("c"), call("d")], MessageStatus::Complete)),
        ("1", finished("c")),
        ("2", user("2", "a")),
    ]);
    let Part::ToolCall(open) = call("d") else { unreachable!() };
    assert_eq!(
        seen(&rows)[2].1,
        [Part::ToolResult(result("c")), Part::ToolResult(unanswered(&open)), text("ask 2")]
    );
}

#[test]
fn a_cut_reply_is_marked_and_another_agents_reply_is_told_as_such() {
    let rows = rows(vec![
        ("1", user("1", "a")),
        ("1", step("a", vec![text("hal")], MessageStatus::Interrupted)),
        ("2", user("2", "b")),
        ("2", step("b", vec![text("fine")], MessageStatus::Complete)),
        ("3", user("3", "a")),
    ]);
    assert_eq!(
        seen(&rows)[2].1,
        [
            Part::Note(Note::Text(CUT.into())),
            text("ask 2"),
            Part::Note(Note::Text("b answered: fine".into())),
            text("ask 3"),
        ]
    );
}

#[test]
fn turns_that_wait_are_not_seen() {
    let rows = rows(vec![("1", user("1", "a")), ("2", user("2", "a"))]);
    let conversation = Conversation::of(&rows, &agent("a"), &[agent("a")], &[message_id("2")]);
    assert_eq!(conversation.messages().len(), 1);
}

proptest! {
    /// Rows of three turns, interleaved and cut anywhere: what the model sees is always acceptable.
    #[test]
    fn every_interleaving_gives_alternating_turns_with_paired_calls(
        picks in proptest::collection::vec(0usize..3, 0..24)
    ) {
        let turns = ["1", "2", "3"];
        let mut scripts: Vec<Vec<DurableEvent>> = turns
            .iter()
            .map(|turn| {
                let calls = [format!("{turn}-c"), format!("{turn}-d")];
                vec![
                    user(turn, "a"),
                    step("a", vec![call(&calls[0]), call(&calls[1])], MessageStatus::Complete),
                    finished(&calls[1]),
                    finished(&calls[0]),
                    step("a", vec![text("end")], MessageStatus::Complete),
                ]
            })
            .collect();
        let mut events = Vec::new();
        for pick in picks {
            if !scripts[pick].is_empty() {
                events.push((turns[pick], scripts[pick].remove(0)));
            }
        }
        let rows = rows(events);
        let messages = seen(&rows);
        prop_assert_eq!(&messages, &seen(&rows));
        let mut open: Vec<ToolCallId> = Vec::new();
        for (at, (role, parts)) in messages.iter().enumerate() {
            prop_assert_eq!(*role == ModelRole::User, at % 2 == 0);
            prop_assert!(!parts.is_empty());
            for part in parts {
                match part {
                    Part::ToolCall(call) => open.push(call.id.clone()),
                    Part::ToolResult(result) => {
                        let place = open.iter().position(|id| *id == result.call);
                        prop_assert!(place.is_some());
                        open.remove(place.unwrap());
                    }
                    _ => {}
                }
            }
            if *role == ModelRole::User {
                prop_assert!(open.is_empty());
            }
        }
        prop_assert!(open.is_empty());
    }
}

#[test]
fn a_reply_of_blank_text_alone_is_not_seen_and_parts_no_turns() {
    let rows = rows(vec![
        ("1", user("1", "a")),
        ("1", step("a", vec![text(" \n")], MessageStatus::Complete)),
        ("2", user("2", "a")),
        ("2", step("a", vec![text(""), call("c")], MessageStatus::Complete)),
        ("2", finished("c")),
    ]);
    assert_eq!(
        seen(&rows),
        [
            (ModelRole::User, vec![text("ask 1"), text("ask 2")]),
            (ModelRole::Assistant, vec![call("c")]),
            (ModelRole::User, vec![Part::ToolResult(result("c"))]),
        ]
    );
}
