//! What a model sees, for every order in which rows may have been stored, and the eight properties of turn order.

mod summaries;

use proptest::prelude::*;
use tns_protocol::{Seq, ToolCallId};

use super::conversation::{Asked, CUT, Conversation};
use super::fixtures::{
    agent, call, edited, finished, id, message, queued, result, row, rows, seen, shown, started, step, team,
    text, user,
};
use super::order::in_turn_order;
use super::past::Past;
use super::unanswered;
use crate::agent::Agent;
use crate::event::{DurableEvent, MessageStatus};
use crate::message::{ModelRole, Note, Part};
use crate::store::StoredEvent;

fn note(words: &str) -> Part {
    Part::Note(Note::Text(words.to_owned()))
}

#[test]
fn a_message_that_came_during_a_reply_stands_after_it() {
    let rows = rows(vec![
        ("1", user("1", "a")),
        ("1", step("1", "a", vec![call("c")], MessageStatus::Complete)),
        ("2", queued("2", "a", Some("1"))),
        ("1", finished("c")),
        ("1", step("1", "a", vec![text("answer 1")], MessageStatus::Complete)),
        ("2", started("2")),
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
        ("1", step("1", "a", vec![call("c"), call("d")], MessageStatus::Complete)),
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
fn a_cut_reply_is_marked_a_failed_one_is_not_seen_and_anothers_is_told_as_such() {
    let rows = rows(vec![
        ("1", user("1", "a")),
        ("1", step("1", "a", vec![text("hal")], MessageStatus::Interrupted)),
        ("2", user("2", "b")),
        ("2", step("2", "b", vec![text("fine")], MessageStatus::Complete)),
        ("3", user("3", "a")),
        ("3", step("3", "a", vec![text("brok")], MessageStatus::Failed)),
        ("4", user("4", "b")),
        ("4", step("4", "b", vec![text("brok")], MessageStatus::Failed)),
        ("5", user("5", "a")),
    ]);
    let after = ["ask 3", "ask 4", "ask 5"].map(text);
    let before = [note(CUT), text("ask 2"), note("b answered: fine")];
    assert_eq!(seen(&rows)[2].1, [&before[..], &after[..]].concat());
}

#[test]
fn a_message_that_waits_is_not_seen_until_its_turn_and_then_with_its_last_words() {
    let mut log =
        vec![("1", user("1", "a")), ("2", queued("2", "a", Some("1"))), ("2", edited("2", "new words"))];
    assert_eq!(seen(&rows(log.clone())), [(ModelRole::User, vec![text("ask 1")])]);
    log.push(("2", started("2")));
    assert_eq!(seen(&rows(log.clone())), [(ModelRole::User, vec![text("ask 1"), text("new words")])]);
    log[3] = ("2", DurableEvent::QueueRemoved(id("2")));
    assert_eq!(seen(&rows(log)), [(ModelRole::User, vec![text("ask 1")])]);
}

#[test]
fn a_reply_of_blank_text_alone_is_not_seen_and_parts_no_turns() {
    let rows = rows(vec![
        ("1", user("1", "a")),
        ("1", step("1", "a", vec![text(" \n")], MessageStatus::Complete)),
        ("2", user("2", "a")),
        ("2", step("2", "a", vec![text(""), call("c")], MessageStatus::Complete)),
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

#[test]
fn an_agent_is_told_of_changes_in_its_team_before_the_next_turn() {
    let (a, b) = (Agent { name: "assistant".into(), ..agent("a") }, agent("b"));
    let bob = Agent { name: "Bob".into(), ..b.clone() };
    let me = Agent { name: "Ann".into(), goal: Some("review".into()), ..a.clone() };
    let log = rows(vec![
        ("1", user("1", "a")),
        ("", team(&[a.clone(), b.clone()])),
        ("1", step("1", "a", vec![text("one")], MessageStatus::Complete)),
        ("2", queued("2", "a", None)),
        ("", team(&[me.clone(), bob])),
        ("2", started("2")),
        ("", team(&[me])),
        ("2", step("2", "a", vec![text("two")], MessageStatus::Complete)),
        ("3", user("3", "a")),
    ]);
    let told = |words: &[&str]| words.iter().map(|words| note(words)).collect::<Vec<_>>();
    let of_two = told(&[
        "b (assistant) joined the team.",
        "You are called Ann from now on.",
        "Your goal from now on: review",
        "b of the team is now called Bob.",
    ]);
    assert_eq!(seen(&log)[2].1, [of_two, vec![text("ask 2")]].concat());
    assert_eq!(seen(&log)[4].1, [told(&["Bob (assistant) left the team."]), vec![text("ask 3")]].concat());
    // Its prompt names those who were there when it came.
    let past = Past::of(log, None, None);
    let other = Conversation::of(&past, &b, &[], None);
    let words: Vec<Part> = other.messages().iter().flat_map(|message| message.parts.clone()).collect();
    assert_eq!(
        words.iter().filter(|part| **part == note("assistant of the team is now called Ann.")).count(),
        1
    );
    assert!(!words.contains(&note("b (assistant) joined the team.")));
}

#[test]
fn the_first_change_of_a_roster_is_told_and_names_stay_as_they_were_read() {
    let first = Agent { name: "assistant".into(), ..agent("a") };
    let me = Agent { name: "Ann".into(), goal: Some("review".into()), ..first.clone() };
    let bob = Agent { name: "Bob".into(), ..agent("b") };
    let log = rows(vec![
        ("1", user("1", "a")),
        ("", team(&[me.clone(), agent("b")])),
        ("2", user("2", "b")),
        ("2", step("2", "b", vec![text("fine")], MessageStatus::Complete)),
        ("", team(&[me.clone(), bob])),
        ("", team(&[me])),
        ("3", user("3", "a")),
    ]);
    let told = [
        text("ask 1"),
        note("You are called Ann from now on."),
        note("Your goal from now on: review"),
        note("b (assistant) joined the team."),
        text("ask 2"),
        note("b answered: fine"),
        note("b of the team is now called Bob."),
        note("Bob (assistant) left the team."),
        text("ask 3"),
    ];
    assert_eq!(seen(&log), [(ModelRole::User, told.to_vec())]);
    // A cut keeps what was told of the roster before it.
    let whole = Past::of(log.clone(), None, None);
    let cut = whole.from(7).unwrap();
    let conversation = Conversation::of(&cut, &agent("a"), &[], None);
    assert_eq!(shown(&conversation), [(ModelRole::User, vec![text("ask 3")])]);
}

/// A session as its rows tell it, and the requests that were made on the way.
#[derive(Default)]
struct Story {
    rows: Vec<StoredEvent>,
    turns: usize,
    /// The turn that runs, its calls without a result, and the place at which it began.
    running: Option<(String, Vec<String>, Seq)>,
    queue: Vec<String>,
    agents: Vec<Agent>,
    /// For each request: how many rows there were, the turn, and the place at which it began.
    requests: Vec<(usize, String, Seq)>,
}

impl Story {
    fn push(&mut self, turn: Option<&str>, event: DurableEvent) -> Seq {
        let seq = self.rows.len() as Seq + 1;
        self.rows.push(row(seq, turn, event));
        seq
    }

    fn begin(&mut self, turn: String, at: Seq) {
        self.running = Some((turn.clone(), Vec::new(), at));
        self.requests.push((self.rows.len(), turn, at));
    }

    fn begin_next(&mut self) {
        if self.running.is_none() && !self.queue.is_empty() {
            let turn = self.queue.remove(0);
            let at = self.push(Some(&turn), started(&turn));
            self.begin(turn, at);
        }
    }

    fn happens(&mut self, what: u8, count: usize) {
        match (what, self.running.clone()) {
            (0, running) => {
                self.turns += 1;
                let turn = self.turns.to_string();
                if running.is_none() && self.queue.is_empty() {
                    let at = self.push(Some(&turn), user(&turn, "a"));
                    self.begin(turn, at);
                } else {
                    let during = running.map(|(turn, ..)| turn);
                    self.push(Some(&turn), queued(&turn, "a", during.as_deref()));
                    self.queue.push(turn);
                }
            }
            (1, Some((turn, open, at))) if open.is_empty() => {
                let calls: Vec<String> =
                    (0..count).map(|call| format!("{turn}-{}-{call}", self.rows.len())).collect();
                let mut parts = vec![text(&format!("says {}", self.rows.len()))];
                parts.extend(calls.iter().map(|id| call(id)));
                self.push(Some(&turn), step(&turn, "a", parts, MessageStatus::Complete));
                self.running = (!calls.is_empty()).then_some((turn, calls, at));
                self.begin_next();
            }
            (2, Some((turn, mut open, at))) if !open.is_empty() => {
                let call = open.remove(0);
                self.push(Some(&turn), finished(&call));
                if open.is_empty() {
                    self.requests.push((self.rows.len(), turn.clone(), at));
                }
                self.running = Some((turn, open, at));
            }
            (3, _) => {
                if self.agents.is_empty() {
                    self.agents.push(agent("a"));
                }
                self.agents.push(agent(&format!("b{}", self.rows.len())));
                let event = team(&self.agents);
                self.push(None, event);
            }
            // A cancel, a crash or a failure, perhaps with a part of a step.
            (4, Some((turn, ..))) => {
                let status = [MessageStatus::Interrupted, MessageStatus::Failed].get(count).copied();
                if let Some(status) = status {
                    self.push(Some(&turn), step(&turn, "a", vec![text("cut")], status));
                }
                self.running = None;
                self.begin_next();
            }
            (5, _) if !self.queue.is_empty() => {
                let at = count % self.queue.len();
                if count == 0 {
                    let turn = self.queue.remove(at);
                    self.push(Some(&turn), DurableEvent::QueueRemoved(id(&turn)));
                } else {
                    let turn = self.queue[at].clone();
                    let words = format!("edited {}", self.rows.len());
                    self.push(Some(&turn), edited(&turn, &words));
                }
            }
            _ => {}
        }
    }

    fn of(happenings: &[(u8, usize)]) -> Self {
        let mut story = Self::default();
        happenings.iter().for_each(|(what, count)| story.happens(*what, *count));
        story
    }

    /// What a request held: the log as its turn found it, and the turn's own rows.
    fn request(&self, at: usize) -> Vec<(ModelRole, Part)> {
        let (count, turn, began) = &self.requests[at];
        let known = |row: &&StoredEvent| row.place.seq <= *began || row.turn == Some(id(turn));
        let rows: Vec<StoredEvent> = self.rows[..*count].iter().filter(known).cloned().collect();
        let words = rows.iter().rev().find_map(|row| match &row.event {
            DurableEvent::QueueEdited(edited) if edited.id == id(turn) => Some(edited.parts.clone()),
            _ => None,
        });
        let message = message(turn, "a");
        let parts = words.unwrap_or_else(|| message.parts.clone());
        let message = crate::event::UserMessage { parts, ..message };
        let past = Past::of(rows, None, None);
        let asked = Asked { message: &message, notes: &[] };
        flat(&Conversation::of(&past, &agent("a"), &self.agents, Some(asked)))
    }
}

fn flat(conversation: &Conversation) -> Vec<(ModelRole, Part)> {
    let turns = shown(conversation).into_iter();
    turns.flat_map(|(role, parts)| parts.into_iter().map(move |part| (role, part))).collect()
}

fn happenings() -> impl Strategy<Value = Vec<(u8, usize)>> {
    let what =
        prop_oneof![3 => Just(0u8), 5 => Just(1), 4 => Just(2), 1 => Just(3), 1 => Just(4), 1 => Just(5)];
    proptest::collection::vec((what, 0usize..3), 0..48)
}

/// The turn of the row at each place, where it is of one.
fn turn_at(rows: &[StoredEvent], wanted: impl Fn(&DurableEvent) -> bool) -> Vec<usize> {
    rows.iter().enumerate().filter(|(_, row)| wanted(&row.event)).map(|(at, _)| at).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Properties 1, 2 and 8: results stand directly behind their calls, a reply's steps stand together, and the order
    /// is a matter of the rows alone.
    #[test]
    fn the_order_keeps_pairs_and_replies_together_and_depends_on_the_rows_alone(
        happenings in happenings(), shuffle in any::<prop::sample::Index>()
    ) {
        let rows = Story::of(&happenings).rows;
        let ordered = in_turn_order(rows.clone());
        prop_assert_eq!(in_turn_order(ordered.clone()), ordered.clone());
        let mut turned = rows.clone();
        turned.rotate_left(if rows.is_empty() { 0 } else { shuffle.index(rows.len()) });
        prop_assert_eq!(&in_turn_order(turned), &ordered);
        let mut places: Vec<Seq> = ordered.iter().map(|row| row.place.seq).collect();
        places.sort_unstable();
        prop_assert_eq!(places, (1..=rows.len() as Seq).collect::<Vec<_>>());
        for at in turn_at(&ordered, |event| matches!(event, DurableEvent::ToolFinished(_))) {
            let before = ordered[..at].iter().rev().find(|row| !matches!(row.event, DurableEvent::ToolFinished(_)));
            let DurableEvent::ToolFinished(finished) = &ordered[at].event else { unreachable!() };
            let called = before.is_some_and(|row| matches!(&row.event, DurableEvent::AssistantMessage(step)
                if step.parts.iter().any(|part| matches!(part, Part::ToolCall(call) if call.id == finished.result.call))));
            prop_assert!(called, "a result at {at} stands behind another's call");
        }
        let turns: Vec<_> = ordered.chunk_by(|one, next| one.turn == next.turn).map(|rows| rows[0].turn.clone()).collect();
        let mut named: Vec<_> = turns.iter().flatten().collect();
        let count = named.len();
        named.sort();
        named.dedup();
        prop_assert_eq!(named.len(), count, "a turn's rows are apart");
    }

    /// Properties 3 and 4: a message that came during a reply stands behind it, whatever its place.
    #[test]
    fn a_message_during_a_reply_stands_behind_it(happenings in happenings(), back in 0u64..100) {
        let mut rows = Story::of(&happenings).rows;
        // Its place tells nothing: it may even be the first.
        for row in &mut rows {
            if matches!(&row.event, DurableEvent::UserMessage(message) if message.during.is_some()) {
                row.place.seq = row.place.seq.saturating_sub(back);
            }
        }
        let ordered = in_turn_order(rows);
        for at in turn_at(&ordered, |event| matches!(event, DurableEvent::UserMessage(_))) {
            let DurableEvent::UserMessage(message) = &ordered[at].event else { unreachable!() };
            let Some(reply) = &message.during else { continue };
            let of_reply = turn_at(&ordered, |event| matches!(event, DurableEvent::AssistantMessage(step)
                if step.response.as_ref() == Some(reply)));
            prop_assert!(of_reply.iter().all(|step| *step < at));
        }
    }

    /// Properties 5 and 6: what was sent stays as it was sent, and what is asked now comes last.
    #[test]
    fn each_request_goes_on_from_the_one_before_it_and_ends_with_what_is_asked(happenings in happenings()) {
        let story = Story::of(&happenings);
        let mut before: Vec<(ModelRole, Part)> = Vec::new();
        for at in 0..story.requests.len() {
            let request = story.request(at);
            prop_assert!(request.starts_with(&before), "request {at}: {request:#?}\nbefore: {before:#?}");
            let (count, turn, _) = &story.requests[at];
            let steps = story.rows[..*count].iter().filter(|row| row.turn == Some(id(turn))
                && matches!(row.event, DurableEvent::AssistantMessage(_)));
            let last = &request[request.len() - 1];
            prop_assert_eq!(last.0, ModelRole::User);
            if steps.count() == 0 {
                let Part::Text(words) = &last.1 else { panic!("{last:?}") };
                let asked = format!("ask {turn}");
                prop_assert!(*words == asked || words.starts_with("edited"));
            }
            before = request;
        }
    }

    /// Property 7: a provider takes every request: roles alternate, no turn is empty, each call has its result.
    #[test]
    fn every_request_is_one_that_providers_take(happenings in happenings()) {
        let story = Story::of(&happenings);
        for (count, ..) in &story.requests {
            acceptable(&seen(&story.rows[..*count]))?;
        }
        acceptable(&seen(&story.rows))?;
    }
}

/// Checks what providers refuse.
fn acceptable(messages: &[(ModelRole, Vec<Part>)]) -> Result<(), TestCaseError> {
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
    Ok(())
}
