//! The approval prompt: its keys, its text and its looks.

use insta::assert_snapshot;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::{Value, json};

use super::*;
use crate::fixture;

const LATER: Duration = Duration::from_secs(1);

fn asked(id: &str, command: &str, more: Value) -> ToolApproveRequest {
    let mut request = fixture::request(id, command);
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(request).unwrap()
}

fn approvals(requests: Vec<ToolApproveRequest>) -> Approvals {
    let mut approvals = Approvals::default();
    for request in requests {
        assert!(approvals.ask(request, Duration::ZERO));
    }
    approvals
}

fn drawn(approvals: &mut Approvals, width: u16, most: u16) -> String {
    let height = approvals.lay_out(width, 24).min(most);
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| approvals.view(frame.area(), frame.buffer_mut(), Theme::Plain, LATER, true))
        .unwrap();
    fixture::text_of(terminal.backend().buffer())
}

/// The full page at a scroll position, its rows joined as they would run.
fn page(approvals: &mut Approvals, width: u16, height: u16) -> String {
    approvals.lay_out(width, height);
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| approvals.view_page(frame.area(), frame.buffer_mut(), Theme::Plain, LATER))
        .unwrap();
    fixture::text_of(terminal.backend().buffer())
}

fn diff() -> Value {
    json!({
        "tool": "write_file", "risk": "medium", "riskClass": "WRITE", "reasons": ["changes a file of the workspace"],
        "diff": "--- a/职员.csv\n+++ b/职员.csv\n@@ -1 +1 @@\n-name,部门\n+name,department\n",
        "alwaysCovers": "write_file inside /home/mei/职员, for this session", "expiresAt": "2026-01-02T03:14:05Z",
    })
}

#[test]
fn looks_at_80_columns() {
    assert_snapshot!(drawn(&mut approvals(vec![asked("1", "write 职员.csv", diff())]), 80, 24));
    let more = asked("2", "ls", json!({}));
    assert_snapshot!(drawn(&mut approvals(vec![asked("1", "rm -rf build", json!({})), more]), 80, 24));
}

#[test]
fn looks_at_40_columns() {
    assert_snapshot!(drawn(&mut approvals(vec![asked("1", "write 职员.csv", diff())]), 40, 7));
}

#[test]
fn looks_empty() {
    assert_eq!(Approvals::default().lay_out(80, 24), 0);
}

#[test]
fn a_long_command_counts_what_is_hidden_and_shows_its_end() {
    let sixty = (1..60).map(|n| format!("echo {n}\n")).collect::<String>() + "rm -rf build";
    let spaces = format!("echo{}rm -rf build", " ".repeat(3_000));
    for command in [sixty, spaces] {
        let mut approvals = approvals(vec![asked("1", &command, json!({}))]);
        let drawn = drawn(&mut approvals, 80, 9);
        assert!(drawn.contains("hidden · v shows all") && drawn.contains("rm -rf build"), "{drawn}");
        approvals.lay_out(80, 24);
        approvals.scroll_page(Scroll::Down, 10_000);
        let end = page(&mut approvals, 80, 24);
        assert!(end.contains("rm -rf build") && end.contains("approve") && end.contains("↓0"), "{end}");
    }
    let command = format!("echo {} && rm -rf build", "a".repeat(400));
    let drawn = drawn(&mut approvals(vec![asked("1", &command, json!({}))]), 80, 24);
    assert!(drawn.replace('\n', "").contains(&command), "{drawn}");
}

#[test]
fn the_page_scrolls_by_rows_and_stops_at_both_ends() {
    let command = (1..40).map(|n| format!("echo {n}\n")).collect::<String>();
    let mut approvals = approvals(vec![asked("1", &command, json!({"reasons": []}))]);
    approvals.lay_out(40, 12);
    let mut place = |direction, rows| {
        approvals.scroll_page(direction, rows);
        approvals.page_top
    };
    assert_eq!([place(Scroll::Up, 1), place(Scroll::Down, 1), place(Scroll::Down, 9)], [0, 1, 10]);
    // 39 rows of the call and one of what is covered, ten in view.
    assert_eq!([place(Scroll::Down, 99), place(Scroll::Up, 1)], [30, 29]);
}

#[test]
fn what_always_covers_is_whole_on_the_page() {
    let covers = format!("{}the end", "a folder, ".repeat(30));
    let mut approvals = approvals(vec![asked("1", "ls", json!({"alwaysCovers": covers}))]);
    let box_rows = drawn(&mut approvals, 40, 24);
    assert!(box_rows.contains("v shows all") && !box_rows.contains("the end"), "{box_rows}");
    assert!(page(&mut approvals, 40, 24).contains("the end"));
}

#[test]
fn every_character_of_a_command_is_on_the_page() {
    let command = format!("echo  {}  x && rm -rf build", "职 ".repeat(40));
    let mut approvals = approvals(vec![asked("1", &command, json!({"reasons": []}))]);
    approvals.lay_out(40, 24);
    let body = &approvals.shown().unwrap().body;
    let rows: String = (0..body.rows()).map(|index| body.row(index, Theme::Plain).to_string()).collect();
    assert_eq!(rows, command);
}

#[test]
fn characters_that_deceive_are_shown_with_a_warning() {
    let command = "cat a\u{202E}gnp.x\u{200B} \u{1b}[2K\recho ex\u{430}mple\u{8}";
    let more = json!({"tool": "she\u{202E}ll", "alwaysCovers": "a\u{2066}b"});
    let drawn = drawn(&mut approvals(vec![asked("1", command, more)]), 80, 24);
    for shown in [
        "cat a\\u{202E}gnp.x\\u{200B} \\u{1B}[2K\\u{D}echo ex\\u{430}mple\\u{8}",
        "she\\u{202E}ll",
        "a\\u{2066}b",
    ] {
        assert!(drawn.contains(shown), "{shown} in {drawn}");
    }
    assert!(drawn.contains("! 8 characters could hide or imitate something"), "{drawn}");
}

#[test]
fn ordinary_writing_brings_no_warning() {
    let command = "echo 职员 مرحبا café привет > out.txt";
    let drawn = drawn(&mut approvals(vec![asked("1", command, json!({}))]), 80, 24);
    assert!(!drawn.contains('!'), "{drawn}");
}

#[test]
fn keys_wait_until_it_has_been_quiet() {
    let millis = Duration::from_millis;
    let mut approvals = approvals(vec![asked("1", "ls", json!({}))]);
    approvals.come_into_view((80, 24), millis(0));
    assert_eq!(approvals.next_change(millis(0)), Some(QUIET));
    assert!(!approvals.accepts_key(millis(299)));
    // That key began the quiet anew.
    assert!(!approvals.accepts_key(millis(598)));
    assert!(approvals.accepts_key(millis(898)));
    assert_eq!(approvals.next_change(millis(898)), None);
}

#[test]
fn a_request_that_is_not_drawn_is_never_answered_and_a_new_size_begins_the_quiet_anew() {
    let millis = Duration::from_millis;
    let mut approvals = approvals(vec![asked("1", "ls", json!({}))]);
    assert!(!approvals.accepts_key(LATER));
    approvals.come_into_view((80, 24), millis(1_000));
    // The same request at the same size: one quiet.
    approvals.come_into_view((80, 24), millis(1_200));
    assert!(approvals.accepts_key(millis(1_300)));
    approvals.hide();
    assert!(!approvals.accepts_key(LATER));
    approvals.come_into_view((80, 24), millis(2_000));
    assert!(!approvals.accepts_key(millis(2_299)));
    approvals.come_into_view((80, 23), millis(3_000));
    assert!(approvals.accepts_key(millis(3_300)));
}

#[test]
fn the_next_request_is_not_answered_by_the_key_for_the_one_before() {
    let mut approvals = approvals(vec![asked("1", "ls", json!({})), asked("2", "rm x", json!({}))]);
    let first = approvals.answer(Decision::Approve).unwrap();
    assert_eq!(approvals.answer(Decision::Approve), None);
    assert_eq!(approvals.settle(&first, LATER), Some(Some(Decision::Approve)));
    assert!(!approvals.accepts_key(LATER));
    assert_eq!(approvals.answer(Decision::Reject).unwrap().as_str(), "2");
}

#[test]
fn the_same_request_twice_is_one() {
    let mut approvals = approvals(vec![asked("1", "ls", json!({}))]);
    assert!(!approvals.ask(asked("1", "ls", json!({})), LATER));
    assert_eq!(approvals.waiting(), 1);
    approvals.come_into_view((80, 24), Duration::ZERO);
    assert!(approvals.accepts_key(LATER));
    // With another text it is another question.
    assert!(!approvals.ask(asked("1", "rm x", json!({})), LATER));
    assert!(!approvals.accepts_key(LATER));
}

#[test]
fn requests_settled_during_a_loss_go_and_the_others_stay() {
    let (one, two) = (asked("1", "ls", json!({})), asked("2", "rm x", json!({})));
    let mut approvals = approvals(vec![one, two.clone()]);
    approvals.doubt_all();
    let gone = approvals.keep_only(&[two], LATER);
    assert_eq!(gone.iter().map(ToolCallId::as_str).collect::<Vec<_>>(), ["1"]);
    assert_eq!(approvals.waiting(), 1);
}
