//! The transcript: layout, scrolling, streaming and its looks.

use insta::assert_snapshot;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::fixture;
use tns_protocol::MessageId;

fn agent() -> AgentId {
    AgentId::parse("assistant-0a1b2c3d").unwrap()
}

fn call(id: &str) -> ToolCallId {
    ToolCallId::parse(id).unwrap()
}

fn message(id: &str) -> ClientMessageId {
    ClientMessageId::parse(id).unwrap()
}

fn turn(id: &str) -> MessageId {
    MessageId::parse(id).unwrap()
}

fn token(transcript: &mut Transcript, piece: &str) {
    transcript.token(&agent(), 0, "assistant", piece);
}

fn drawn(transcript: &mut Transcript, width: u16, height: u16) -> String {
    transcript.lay_out(width, height);
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| transcript.view(frame.area(), frame.buffer_mut(), Theme::Plain)).unwrap();
    fixture::text_of(terminal.backend().buffer())
}

/// What a person reads of the drawn rows, without the frame of the snapshot.
fn words(transcript: &mut Transcript, width: u16, height: u16) -> Vec<String> {
    let drawn = drawn(transcript, width, height);
    let rows = drawn.lines().map(|row| row.trim().to_owned());
    rows.filter(|row| !row.is_empty()).collect()
}

fn conversation() -> Transcript {
    let mut transcript = Transcript::default();
    transcript.user_stored(None, &turn("t"), "Which tables are there? 有哪些表？", false);
    token(&mut transcript, "I look into the folder.\n");
    transcript.tool(&call("1"), "shell", "ls -la 职员表 部门表", ToolState::Running);
    let ok = ToolState::Done { ok: true, millis: 12 };
    transcript.tool_done(&call("1"), "shell", ok, "12\tstaff.csv\n7\t部门.csv\na\nb\nc\n", false);
    transcript.tool(&call("2"), "shell", "rm -rf build", ToolState::Waiting);
    transcript.tool_settled(&call("2"), AuditDecision::Rejected, Some("mei"));
    let failed = ToolState::Done { ok: false, millis: 3_400 };
    transcript.tool_done(&call("3"), "read_file", failed, "no such file", false);
    token(&mut transcript, "There are two: 职员表 holds the staff, 部门表 the departments 👩\u{200D}👧. ");
    token(&mut transcript, "Nothing was removed.");
    transcript.notice(Role::Bad, "the provider asks to slow down (RATE_LIMITED)");
    transcript
}

#[test]
fn looks_at_80_columns() {
    assert_snapshot!(drawn(&mut conversation(), 80, 21));
}

#[test]
fn looks_at_40_columns() {
    assert_snapshot!(drawn(&mut conversation(), 40, 9));
}

#[test]
fn looks_empty() {
    assert_snapshot!(drawn(&mut Transcript::default(), 40, 2), @"");
}

#[test]
fn a_token_lays_out_one_entry_whatever_the_history() {
    let mut transcript = Transcript::default();
    for n in 0..2_000 {
        transcript.user_stored(None, &turn("t"), &format!("question {n}"), false);
        token(&mut transcript, "answer");
        transcript.settle();
    }
    token(&mut transcript, "begin");
    transcript.lay_out(80, 24);
    for _ in 0..100 {
        token(&mut transcript, " more");
        assert_eq!(transcript.lay_out(80, 24), 1);
    }
    assert_eq!(transcript.lay_out(80, 24), 0);
    // A new width lays out what is in view, not the history.
    assert!(transcript.lay_out(60, 24) <= 24);
}

#[test]
fn a_sequence_split_between_tokens_is_shown_and_the_name_is_cleaned() {
    let mut transcript = Transcript::default();
    for piece in ["a\u{1b}", "]52;c;cm0=\u{7}b"] {
        transcript.token(&agent(), 0, "evil\u{1b}[2J", piece);
    }
    assert_eq!(words(&mut transcript, 40, 4), ["evil\\u{1B}[2J", "a\\u{1B}]52;c;cm0=\\u{7}b"]);
}

#[test]
fn a_scrolled_up_view_holds_still_while_text_arrives() {
    let mut transcript = Transcript::default();
    token(&mut transcript, &(0..50).map(|n| format!("row {n}\n")).collect::<String>());
    transcript.lay_out(40, 10);
    transcript.page(Scroll::Up);
    let before = words(&mut transcript, 40, 10);
    assert_eq!(before.last().unwrap(), "row 40                          ↓ End");
    token(&mut transcript, "row 50\nrow 51\n");
    transcript.notice(Role::Text, "later");
    let after = words(&mut transcript, 40, 10);
    assert_eq!(before[..9], after[..9]);
    assert_eq!(after.last().unwrap(), "row 40                  ↓ 2 new · End");
    transcript.follow();
    assert_eq!(words(&mut transcript, 40, 10).last().unwrap(), "· later");
}

#[test]
fn scrolling_reaches_both_ends_and_the_end_follows_again() {
    let mut transcript = Transcript::default();
    for n in 0..30 {
        transcript.notice(Role::Text, &format!("row {n}"));
    }
    transcript.lay_out(40, 10);
    for _ in 0..9 {
        transcript.page(Scroll::Up);
        transcript.lay_out(40, 10);
    }
    assert_eq!(words(&mut transcript, 40, 10)[0], "· row 0");
    transcript.scroll(Scroll::Down, 1);
    assert_eq!(words(&mut transcript, 40, 10)[0], "· row 1");
    for _ in 0..9 {
        transcript.page(Scroll::Down);
    }
    assert!(!transcript.is_held());
    assert_eq!(words(&mut transcript, 40, 10)[9], "· row 29");
}

#[test]
fn a_shorter_text_leaves_nothing_of_the_one_before() {
    let mut transcript = Transcript::default();
    let mut terminal = Terminal::new(TestBackend::new(40, 3)).unwrap();
    let mut draw = |transcript: &mut Transcript| {
        transcript.lay_out(40, 3);
        terminal.draw(|frame| transcript.view(frame.area(), frame.buffer_mut(), Theme::Plain)).unwrap();
        fixture::text_of(terminal.backend().buffer())
    };
    transcript.notice(Role::Text, "a long row of text 职员表 and more");
    draw(&mut transcript);
    transcript.clear();
    transcript.notice(Role::Text, "short");
    assert_eq!(draw(&mut transcript), drawn(&mut transcript, 40, 3));
}

#[test]
fn a_message_on_its_way_is_stored_once() {
    let mut transcript = Transcript::default();
    transcript.user_sends(message("m1"), "hello", false);
    transcript.user_stored(Some(&message("m1")), &turn("m1"), "hello", true);
    assert_eq!(words(&mut transcript, 40, 4), ["you · queued", "hello"]);
    transcript.user_sends(message("m2"), "again", false);
    transcript.refuse_newest();
    let shown = ["you · not sent", "again", "you · queued", "hello"];
    assert_eq!(words(&mut transcript, 40, 9), shown);
}

#[test]
fn messages_that_wait_stand_at_the_end_dim_until_their_turn_begins() {
    let mut transcript = Transcript::default();
    transcript.user_sends(message("m1"), "one", false);
    token(&mut transcript, "first");
    transcript.user_sends(message("m2"), "two", true);
    transcript.user_stored(None, &turn("t3"), "three", true);
    token(&mut transcript, " answer");
    transcript.notice(Role::Text, "noted");
    let waiting = ["you · queued", "two", "you · queued", "three"];
    let answered = ["you", "one", "assistant", "first answer", "· noted"];
    assert_eq!(words(&mut transcript, 40, 20), [&answered[..], &waiting[..]].concat());
    let faint = Theme::Plain.style(Role::Faint);
    assert_eq!(transcript.entries[3].row(2, 40, Theme::Plain).style, faint);
    transcript.settle();
    transcript.begin_turn(&turn("t3"));
    assert_eq!(words(&mut transcript, 40, 20)[5..], ["you", "three", "you · queued", "two"]);
    transcript.user_stored(Some(&message("m2")), &turn("t2"), "two", false);
    token(&mut transcript, "second");
    assert_eq!(words(&mut transcript, 40, 20)[7..], ["you", "two", "assistant", "second"]);
}

#[test]
fn a_waiting_message_can_be_changed_and_taken_out_and_survives_clearing() {
    let mut transcript = Transcript::default();
    transcript.notice(Role::Text, "before");
    transcript.user_stored(None, &turn("t1"), "one", true);
    transcript.user_stored(None, &turn("t2"), "two", true);
    transcript.edit_queued(&turn("t2"), "changed");
    transcript.drop_queued(&turn("t1"));
    transcript.clear();
    assert_eq!(words(&mut transcript, 40, 9), ["you · queued", "changed"]);
}

#[test]
fn a_view_that_holds_still_does_so_while_text_grows_above_what_waits() {
    let mut transcript = Transcript::default();
    token(&mut transcript, &(0..50).map(|n| format!("row {n}\n")).collect::<String>());
    transcript.user_sends(message("m1"), "waits", true);
    transcript.lay_out(40, 10);
    transcript.page(Scroll::Up);
    let before = words(&mut transcript, 40, 10);
    transcript.notice(Role::Text, "later");
    assert_eq!(words(&mut transcript, 40, 10)[..8], before[..8]);
}

#[test]
fn a_partial_reply_gives_way_to_what_is_written_and_then_to_its_stored_text() {
    let mut transcript = Transcript::default();
    token(&mut transcript, "1 2 3 ");
    transcript.written_so_far(&agent(), 0, "assistant", "1 2 3 4 ");
    token(&mut transcript, "5");
    assert_eq!(words(&mut transcript, 40, 9), ["assistant", "1 2 3 4 5"]);
    transcript.agent_stored(&agent(), 0, "assistant", "1 2 3 4 5 6");
    transcript.written_so_far(&agent(), 0, "assistant", "");
    assert_eq!(words(&mut transcript, 40, 9), ["assistant", "1 2 3 4 5 6"]);
    transcript.written_so_far(&agent(), 0, "assistant", "next");
    assert_eq!(words(&mut transcript, 40, 9), ["assistant", "1 2 3 4 5 6", "assistant", "next"]);
}

#[test]
fn what_the_log_told_is_forgotten_and_what_it_may_not_have_stays() {
    let mut transcript = Transcript::default();
    transcript.user_stored(None, &turn("t"), "stored", false);
    token(&mut transcript, "answer");
    transcript.user_sends(message("m1"), "on its way", false);
    transcript.forget_stored();
    transcript.user_stored(None, &turn("t"), "stored", false);
    assert_eq!(words(&mut transcript, 40, 9), ["you", "stored", "you · queued", "on its way"]);
}

#[test]
fn a_thought_is_one_faint_row_unless_it_is_unfolded() {
    let mut transcript = Transcript::default();
    transcript.reasoning(&agent(), "The user asks\nabout ");
    transcript.reasoning(&agent(), "tables 表, so I look at the folder\u{1b}[2J.");
    assert_eq!(words(&mut transcript, 40, 9), ["thinks: … look at the folder\\u{1B}[2J."]);
    assert_eq!(transcript.entries[0].row(0, 40, Theme::Plain).style, Theme::Plain.style(Role::Faint));
    token(&mut transcript, "Two.");
    assert_eq!(words(&mut transcript, 40, 9), ["thought: The user asks about tables …", "assistant", "Two."]);
    transcript.fold_reasoning();
    let whole = ["thought", "The user asks", "about tables 表, so I look at the", "folder\\u{1B}[2J."];
    assert_eq!(words(&mut transcript, 40, 9)[..4], whole);
    transcript.fold_reasoning();
    assert_eq!(words(&mut transcript, 40, 9).len(), 3);
}

#[test]
fn what_calls_write_stands_under_each_and_goes_with_the_turn_that_brings_no_result() {
    let mut transcript = Transcript::default();
    for id in ["1", "2"] {
        transcript.tool(&call(id), "shell", id, ToolState::Running);
    }
    for (id, piece) in [("2", "b\n"), ("1", "a\n"), ("2", "c 职\n")] {
        transcript.tool_writes(&call(id), piece);
    }
    let both = ["shell 1 · running", "a", "shell 2 · running", "b", "c 职"];
    assert_eq!(words(&mut transcript, 40, 9), both);
    assert_eq!(transcript.entries[0].row(1, 40, Theme::Plain).style, Theme::Plain.style(Role::Faint));
    transcript.tool_done(&call("1"), "shell", ToolState::Done { ok: true, millis: 1 }, "whole", false);
    transcript.settle();
    assert_eq!(words(&mut transcript, 40, 9), ["shell 1 · ok · 1 ms", "whole", "shell 2 · running"]);
}

#[test]
fn the_oldest_entries_go_when_there_are_too_many() {
    let mut transcript = Transcript::default();
    for n in 0..=MAX_ENTRIES {
        transcript.notice(Role::Text, &n.to_string());
    }
    assert_eq!(transcript.entries.len(), MAX_ENTRIES - FORGOTTEN_AT_ONCE + 1);
    assert_eq!(transcript.entries[0].text(), FORGOTTEN_AT_ONCE.to_string());
}
