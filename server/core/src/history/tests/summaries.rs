//! Where history may be cut, and what is seen then.

use super::*;
use crate::event::Compacted;
use crate::history::compaction::{Keep, MAX_SUMMARY_CHARS, Plan, summary};

fn compacted(plan: &Plan, words: &str) -> Compacted {
    Compacted {
        agent: agent("a").id,
        from_seq: plan.from_seq,
        read_from: plan.read_from,
        summary: words.to_owned(),
        tokens_before: 0,
        tokens_after: 0,
        step: None,
    }
}

fn plan(past: &Past, keep: Keep) -> Option<Plan> {
    Plan::of(past, &agent("a"), &[], keep, 10_000)
}

fn conversation(past: &Past) -> Vec<(ModelRole, Vec<Part>)> {
    shown(&Conversation::of(past, &agent("a"), &[], None))
}

/// A user's message, four steps with one or two calls and their results, the answer; then one message more.
fn long() -> Vec<StoredEvent> {
    let mut log = vec![("1", user("1", "a"))];
    for at in 0..4 {
        let calls: Vec<String> = (0..=at % 2).map(|call| format!("c{at}{call}")).collect();
        let parts = std::iter::once(text("x".repeat(400).as_str())).chain(calls.iter().map(|id| call(id)));
        log.push(("1", step("1", "a", parts.collect(), MessageStatus::Complete)));
        log.extend(calls.iter().map(|id| ("1", finished(id))));
    }
    log.push(("1", step("1", "a", vec![text("answer")], MessageStatus::Complete)));
    log.push(("2", user("2", "a")));
    rows(log)
}

#[test]
fn every_cut_leaves_what_providers_take_and_the_newest_message() {
    let past = Past::of(long(), None, None);
    let mut cuts = std::collections::BTreeSet::new();
    let keeps = (0..1_000).step_by(10).map(Keep::Tokens).chain([Keep::Least]);
    for plan in keeps.filter_map(|keep| plan(&past, keep)) {
        cuts.insert(plan.from_seq);
        let again = Past::of(long(), None, Some(compacted(&plan, "what was")));
        let seen = conversation(&again);
        acceptable(&seen).unwrap();
        let summaries = seen.iter().flat_map(|(_, parts)| parts);
        let summaries = summaries
            .filter(|part| matches!(part, Part::Note(Note::Text(words)) if words.ends_with("what was")));
        assert_eq!(summaries.count(), 1);
        assert_eq!(seen.last().unwrap().1.last(), Some(&text("ask 2")));
        // A cut within a reply keeps the message that it answers.
        let (role, first) = &seen[0];
        assert_eq!(*role, ModelRole::User);
        assert_eq!(first.contains(&text("ask 1")), plan.from_seq < 13, "{plan:?}");
    }
    // At each step but the first, and at the last message.
    assert_eq!(cuts.into_iter().collect::<Vec<_>>(), [4, 7, 9, 12, 13]);
}

#[test]
fn a_call_that_runs_stays_and_takes_its_result_after_the_cut() {
    let mut log = long();
    log.truncate(10);
    let past = Past::of(log.clone(), None, None);
    let plan = plan(&past, Keep::Least).unwrap();
    assert_eq!(plan.from_seq, 9);
    log.extend(long().drain(10..11));
    let seen = conversation(&Past::of(log, None, Some(compacted(&plan, "s"))));
    acceptable(&seen).unwrap();
    let parts = &seen.last().unwrap().1;
    assert_eq!(parts.iter().filter(|part| matches!(part, Part::ToolResult(_))).count(), 2);
}

#[test]
fn a_second_summary_is_made_from_the_first_and_stands_in_its_place() {
    let first = plan(&Past::of(long(), None, None), Keep::Tokens(250)).unwrap();
    let past = Past::of(long(), None, Some(compacted(&first, "the first summary")));
    let second = plan(&past, Keep::Least).unwrap();
    assert!(second.from_seq > first.from_seq);
    assert!(second.transcript.contains("the first summary"));
    assert!(!second.transcript.contains("c00"));
    let seen = conversation(&Past::of(long(), None, Some(compacted(&second, "the second"))));
    assert!(!format!("{seen:?}").contains("the first summary"));
}

#[test]
fn where_nothing_stands_before_the_newest_there_is_nothing_to_sum_up() {
    for log in [vec![], vec![("1", user("1", "a"))]] {
        assert_eq!(plan(&Past::of(rows(log), None, None), Keep::Least), None);
    }
    let one_step =
        vec![("1", user("1", "a")), ("1", step("1", "a", vec![call("c")], MessageStatus::Complete))];
    assert_eq!(plan(&Past::of(rows(one_step), None, None), Keep::Least), None);
    assert_eq!(summary(" \n"), None);
    assert_eq!(summary(&"s".repeat(MAX_SUMMARY_CHARS + 1)).unwrap().len(), MAX_SUMMARY_CHARS);
}

#[test]
fn a_message_that_waits_over_the_cut_is_read_again() {
    let log = rows(vec![
        ("1", user("1", "a")),
        ("1", step("1", "a", vec![call("c")], MessageStatus::Complete)),
        ("2", queued("2", "a", Some("1"))),
        ("1", finished("c")),
        ("1", step("1", "a", vec![call("d")], MessageStatus::Complete)),
        ("1", finished("d")),
        ("2", started("2")),
    ]);
    let plan = plan(&Past::of(log[..6].to_vec(), None, None), Keep::Least).unwrap();
    assert_eq!((plan.from_seq, plan.read_from), (5, 1));
    let kept: Vec<StoredEvent> = log.into_iter().filter(|row| row.place.seq >= plan.read_from).collect();
    let seen = conversation(&Past::of(kept, None, Some(compacted(&plan, "s"))));
    acceptable(&seen).unwrap();
    assert_eq!(seen.last().unwrap().1.last(), Some(&text("ask 2")));
}

#[test]
fn a_transcript_is_short_however_long_its_parts_are() {
    let mut log = vec![
        ("1", user("1", "a")),
        ("1", step("1", "a", vec![text(&"y".repeat(100_000))], MessageStatus::Complete)),
    ];
    log.push(("2", user("2", "a")));
    let past = Past::of(rows(log), None, None);
    let long = Plan::of(&past, &agent("a"), &[], Keep::Least, 10_000).unwrap().transcript;
    assert!(long.starts_with("user: ask 1\nassistant: yyy"));
    assert!((2_000..2_200).contains(&long.len()), "{}", long.len());
    let short = Plan::of(&past, &agent("a"), &[], Keep::Least, 1_000).unwrap().transcript;
    assert!((1_000..1_100).contains(&short.chars().count()));
}

proptest! {
    /// Whatever happened, whatever is kept, once and once more: providers take what is seen, and nothing of the newest
    /// turn's message is lost.
    #[test]
    fn every_summary_of_every_story_leaves_an_acceptable_history(
        happenings in happenings(), keep in 0u64..60, again in 0u64..20
    ) {
        let rows = Story::of(&happenings).rows;
        let mut past = Past::of(rows.clone(), None, None);
        for keep in [keep, again] {
            let Some(plan) = plan(&past, Keep::Tokens(keep)) else { return Ok(()) };
            let newest = conversation(&past).last().cloned();
            let kept = rows.iter().filter(|row| row.place.seq >= plan.read_from).cloned().collect();
            past = Past::of(kept, None, Some(compacted(&plan, "s")));
            let seen = conversation(&past);
            acceptable(&seen)?;
            let last = |messages: Option<&(ModelRole, Vec<Part>)>| messages.and_then(|(_, parts)| parts.last().cloned());
            prop_assert_eq!(last(seen.last()), last(newest.as_ref()));
        }
    }
}
