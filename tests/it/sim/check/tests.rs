//! The checker must be able to fail: a good history passes, and each way to break it is caught.

use super::check;
use crate::sim::told::{Client, Ended, History, Kind, Seen, Told, What};

fn event(seq: u64, turn: &str, name: &str, what: What) -> Told {
    Told { name: name.to_owned(), seq: Some(seq), turn: Some(turn.to_owned()), what }
}

fn user(seq: u64, turn: &str, client: &str) -> Told {
    let (id, client) = (turn.to_owned(), Some(client.to_owned()));
    event(seq, turn, "user_message", What::User { id, client, queued: false })
}

fn step(seq: u64, turn: &str, text: &str) -> Told {
    let what = What::Step { response: Some(format!("r-{turn}")), text: text.into(), interrupted: false };
    event(seq, turn, "assistant_message", what)
}

fn done(seq: u64, turn: &str) -> Told {
    event(seq, turn, "done", What::Ended(Ended::Done))
}

fn token(turn: &str, index: u64, text: &str) -> Told {
    let what = What::Token { response: format!("r-{turn}"), index, text: text.to_owned() };
    Told { name: "token".to_owned(), seq: None, turn: None, what }
}

/// Two turns: one that only says something, and one with a call that a person approved.
fn good() -> History {
    let call = || "call".to_owned();
    let log = vec![
        user(1, "t1", "c1"),
        step(2, "t1", "hello"),
        done(3, "t1"),
        user(4, "t2", "c2"),
        step(5, "t2", "I look."),
        event(6, "t2", "tool_approve_request", What::Asked(call())),
        event(7, "t2", "tool_approval_resolved", What::Settled { call: call(), decision: "approved".into() }),
        event(8, "t2", "audit_entry", What::Audited(call())),
        event(9, "t2", "tool_start", What::Started(call())),
        event(10, "t2", "tool_result", What::Finished(call())),
        step(11, "t2", " Done."),
        done(12, "t2"),
    ];
    let shown = [
        (1, token("t1", 0, "hel")),
        (1, token("t1", 3, "lo")),
        (4, token("t2", 0, "I look.")),
        (10, token("t2", 7, " Done.")),
    ];
    let tells = |row: &Told| {
        let after = shown
            .iter()
            .filter(|(after, _)| Some(*after) == row.seq)
            .map(|(_, token)| Seen::Told(token.clone()));
        std::iter::once(Seen::Told(row.clone())).chain(after).collect::<Vec<_>>()
    };
    let joined = [Seen::Opened, Seen::CaughtUp { active: None }];
    let whole = joined.clone().into_iter().chain(log.iter().flat_map(tells)).collect();
    let strict: Vec<Told> = log.iter().filter_map(|row| row.for_v1(|_| true)).collect();
    let strict = std::iter::once(Seen::Opened).chain(strict.into_iter().map(Seen::Told)).collect();
    let tail =
        [Seen::Opened, Seen::JoinedEnd].into_iter().chain(log[3..].iter().cloned().map(Seen::Told)).collect();
    History {
        log,
        clients: vec![
            Client { name: "whole".into(), kind: Kind::Whole, seen: whole },
            Client { name: "strict".into(), kind: Kind::Strict, seen: strict },
            Client { name: "tail".into(), kind: Kind::Tail, seen: tail },
        ],
        acknowledged: vec![("t1".into(), "c1".into(), 1), ("t2".into(), "c2".into(), 4)],
        runs: vec![("call".into(), 1)],
        all_shown: false,
    }
}

/// Breaks the good history and asserts that what is wrong is told in words that begin so.
#[track_caller]
fn caught(expected: &str, breaks: impl FnOnce(&mut History)) {
    let mut history = good();
    breaks(&mut history);
    let faults = check(&history);
    assert!(faults.iter().any(|fault| fault.contains(expected)), "expected {expected:?}, found {faults:#?}");
}

/// Returns where the client was told an event.
fn at(client: &Client, seq: u64) -> usize {
    let is = |seen: &Seen| matches!(seen, Seen::Told(told) if told.seq == Some(seq));
    client.seen.iter().position(is).unwrap()
}

#[test]
fn a_good_history_has_no_fault() {
    assert_eq!(check(&good()), Vec::<String>::new());
}

#[test]
fn a_gap_is_caught_in_the_log_and_at_every_kind_of_client() {
    caught("E1: the log's event 5 has the place Some(6)", |history| drop(history.log.remove(4)));
    for (client, seq, expected) in [
        (0, 5, "whole: E2: expected event 5 and was told Some(6)"),
        (1, 9, "strict: E8: told"),
        (2, 7, "tail: E2: expected event 7 and was told Some(8)"),
    ] {
        caught(expected, |history| {
            let client = &mut history.clients[client];
            drop(client.seen.remove(at(client, seq)));
        });
    }
}

#[test]
fn what_is_missing_at_the_end_is_caught() {
    caught("whole: E2: the log ends at 12, and it was told up to 11", |history| {
        drop(history.clients[0].seen.pop())
    });
    caught("strict: E8: the log ends with", |history| drop(history.clients[1].seen.pop()));
    caught("tail: E2: the log ends at 12, and it was told up to 11", |history| {
        drop(history.clients[2].seen.pop())
    });
}

#[test]
fn a_repeat_is_caught() {
    for (client, expected) in [
        (0, "whole: E2: expected event 10 and was told Some(9)"),
        (1, "strict: E8: told"),
        (2, "tail: E2: expected"),
    ] {
        caught(expected, |history| {
            let client = &mut history.clients[client];
            let twice = at(client, 9);
            client.seen.insert(twice, client.seen[twice].clone());
        });
    }
}

#[test]
fn a_swap_is_caught() {
    for (client, expected) in [
        (0, "whole: E2: expected event 9 and was told Some(10)"),
        (1, "strict: E8: told"),
        (2, "tail: E2: expected"),
    ] {
        caught(expected, |history| {
            let client = &mut history.clients[client];
            let (one, other) = (at(client, 9), at(client, 10));
            client.seen.swap(one, other);
        });
    }
}

#[test]
fn an_event_that_is_told_otherwise_than_it_is_stored_is_caught() {
    caught("whole: E8: event 2 is stored as", |history| {
        let client = &mut history.clients[0];
        let told = at(client, 2);
        client.seen[told] = Seen::Told(step(2, "t1", "hullo"));
    });
}

#[test]
fn a_place_on_what_is_only_shown_is_caught_and_so_is_none_on_what_is_stored() {
    caught("E3: token has the place", |history| {
        history.clients[1].seen.push(Seen::Told(Told { seq: Some(13), ..token("t2", 0, "I") }));
    });
    caught("E3: done has no place", |history| {
        history.clients[1].seen.push(Seen::Told(Told { seq: None, ..done(13, "t2") }));
    });
}

#[test]
fn two_ends_none_and_one_too_early_are_caught() {
    caught("E4: turn t2 has 2 ends", |history| history.log.push(done(13, "t2")));
    caught("E5: turn t2 has no end", |history| drop(history.log.pop()));
    caught("E4: turn t2 goes on after its end", |history| history.log.push(step(13, "t2", "more")));
    caught("E4: turn t1 begins with", |history| drop(history.log.remove(0)));
}

#[test]
fn a_call_without_a_result_and_a_question_without_an_answer_are_caught() {
    caught("E5: call call began and has no result", |history| drop(history.log.remove(9)));
    caught("E5: turn t2 asked about", |history| drop(history.log.remove(6)));
}

#[test]
fn a_tool_that_ran_twice_and_one_that_no_log_knows_are_caught() {
    caught("call call ran 2 times", |history| history.runs[0].1 = 2);
    caught("call other ran, and no log has its start", |history| history.runs.push(("other".into(), 1)));
    caught("E4: twice in turn t2", |history| {
        history.log.insert(9, event(10, "t2", "tool_start", What::Started("call".into())));
    });
}

#[test]
fn a_message_that_is_stored_twice_is_caught() {
    caught("E9: message c1 is stored 2 times", |history| {
        history.log.extend([user(13, "t3", "c1"), done(14, "t3")]);
    });
}

#[test]
fn a_lost_acknowledged_message_is_caught() {
    caught("message c3 was acknowledged as t3 at 13, and is not there", |history| {
        history.acknowledged.push(("t3".into(), "c3".into(), 13));
    });
    caught("message c2 was acknowledged as t2 at 5, and is not there", |history| {
        history.acknowledged[1].2 = 5
    });
}

#[test]
fn wrong_joined_text_is_caught() {
    let replace = |history: &mut History, index: u64, text: &str| {
        let client = &mut history.clients[0];
        let is = |seen: &&mut Seen| matches!(seen, Seen::Told(told) if *told == token("t1", 3, "lo"));
        *client.seen.iter_mut().find(is).unwrap() = Seen::Told(token("t1", index, text));
    };
    caught("whole: shows \"la\"… at 3 of reply r-t1, which is not its text", |history| {
        replace(history, 3, "la")
    });
    caught("whole: shows \"hella\" of a step of r-t1 that is \"hello\"", |history| replace(history, 3, "la"));
    caught("at 3 of reply r-t1", |history| replace(history, 3, "lol"));
    // Less than all of it is wrong where nobody read slowly.
    caught("whole: shows \"hel\" of a step of r-t1 that is \"hello\"", |history| {
        history.all_shown = true;
        let client = &mut history.clients[0];
        client.seen.retain(|seen| *seen != Seen::Told(token("t1", 3, "lo")));
    });
}
