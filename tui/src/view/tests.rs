//! The whole screen at its sizes.

use crossterm::event::KeyCode;
use insta::assert_snapshot;
use serde_json::json;
use tns_client::ClientEvent;

use crate::fixture::{AGENT, Screen, info, request};
use crate::model::Msg;
use crate::update::update;

/// A turn that waits for an approval, with a draft in the composer.
fn waiting(columns: u16, rows: u16) -> Screen {
    let mut screen = Screen::new(columns, rows);
    screen.submit("Clean up, please 请清理");
    screen.frame("agent_state", None, json!({"agentId": AGENT, "status": "thinking", "role": "assistant"}));
    screen.frame("token", None, json!({"agentId": AGENT, "content": "I remove the build folder 构建."}));
    screen.frame("tool_approve_request", Some(2), request("c1", "rm -rf build"));
    screen.after(400);
    screen
}

#[test]
fn the_first_screen_says_which_engine_answers_and_how_to_get_a_better_one() {
    assert_snapshot!("first_80x24", Screen::new(80, 24).drawn());
    assert_snapshot!("first_40x12", Screen::new(40, 12).drawn());
    let mut keyed = Screen::new(80, 24);
    keyed.model.info = info("anthropic");
    assert!(!keyed.drawn().contains("is no language model"));
}

#[test]
fn an_approval_is_pinned_above_the_composer() {
    assert_snapshot!("approval_80x24", waiting(80, 24).drawn());
    assert_snapshot!("approval_40x12", waiting(40, 12).drawn());
}

/// A command that runs and has written something.
fn running(columns: u16, rows: u16) -> Screen {
    let mut screen = Screen::new(columns, rows);
    screen.submit("Test it, please 请测试");
    screen.frame("agent_state", None, json!({"agentId": AGENT, "status": "thinking", "role": "assistant"}));
    let start = json!({
        "agentId": AGENT, "toolCallId": "c1", "tool": "shell", "args": {"command": "cargo test"}, "risk": "medium",
    });
    screen.frame("tool_start", Some(2), start);
    let pieces = [
        "running 6 tests\ntest a ... ok\ntest b .",
        ".. ok\ntest 部门表 ... ok\n\u{1b}[31mtest d ... FAILED\u{1b}[0m\n",
    ];
    for content in pieces {
        screen.frame("tool_output", None, json!({"agentId": AGENT, "toolCallId": "c1", "content": content}));
    }
    let long = format!("test {} ... ok\n1/2\r2/2", "long_name_".repeat(9));
    screen.frame("tool_output", None, json!({"agentId": AGENT, "toolCallId": "c1", "content": long}));
    screen.after(1_400);
    screen
}

#[test]
fn a_running_command_shows_its_last_lines_until_its_result_comes() {
    let mut screen = running(80, 24);
    assert_snapshot!("running_80x24", screen.drawn());
    assert_snapshot!("running_40x12", running(40, 12).drawn());
    let result =
        json!({"agentId": AGENT, "toolCallId": "c1", "tool": "shell", "duration": 1_500, "result": "fine"});
    screen.frame("tool_result", Some(3), result);
    let drawn = screen.drawn();
    assert!(
        drawn.contains("shell cargo test · ok · 1.5 s\n    fine\n") && !drawn.contains("FAILED"),
        "{drawn}"
    );
    // What comes late, or of a call that nobody knows, shows nothing.
    for call in ["c1", "c2"] {
        screen.frame("tool_output", None, json!({"agentId": AGENT, "toolCallId": call, "content": "late"}));
    }
    assert_eq!(screen.drawn(), drawn);
}

#[test]
fn a_lost_connection_is_said_and_the_composer_stays_usable() {
    let mut screen = Screen::new(40, 12);
    let lost = ClientEvent::Disconnected {
        reason: "the server left".into(),
        retry_in: std::time::Duration::from_secs(2),
    };
    screen.take(Msg::Client(lost));
    screen.write("still here 还在");
    assert_snapshot!("lost_40x12", screen.drawn());
}

#[test]
fn the_smallest_screen_keeps_every_part() {
    let drawn = waiting(40, 10).drawn();
    for part in ["approval", "rm -rf build", "a approve", "›", "waits for you"] {
        assert!(drawn.contains(part), "{part} in\n{drawn}");
    }
}

#[test]
fn a_screen_that_is_too_small_says_so_in_one_line() {
    for (columns, rows) in [(39, 10), (40, 9)] {
        let drawn = waiting(columns, rows).drawn();
        let words: Vec<&str> = drawn.lines().filter(|row| row.contains(char::is_alphanumeric)).collect();
        assert_eq!(words.len(), 1, "{drawn}");
        assert!(words[0].contains(&format!("tns needs 40×10, this is {columns}×{rows}")));
    }
    // One column wide: still no panic.
    waiting(1, 1).drawn();
}

#[test]
fn the_help_names_keys_and_commands() {
    let mut screen = Screen::new(80, 24);
    screen.key(KeyCode::F(1));
    assert_snapshot!("help_80x24", screen.drawn());
    screen.key(KeyCode::End);
    assert!(screen.drawn().contains("to the shell; fg comes back"));
}

#[test]
fn the_help_is_whole_on_a_narrow_screen_and_begins_with_the_commands() {
    let mut screen = Screen::new(40, 12);
    screen.submit("/help");
    let mut shown = screen.drawn();
    assert_snapshot!("help_40x12", shown);
    while !shown.contains(" 0 rows below") {
        screen.key(KeyCode::Down);
        shown = screen.drawn();
        assert!(!shown.contains('…'), "{shown}");
    }
    // A wider screen has fewer rows of it: one key scrolls it still.
    screen.take(Msg::Resize(80, 24));
    assert!(screen.drawn().contains(" 0 rows below"));
    screen.key(KeyCode::Up);
    assert!(screen.drawn().contains(" 1 rows below"));
}

#[test]
fn drawing_changes_nothing() {
    let mut screen = waiting(80, 24);
    let first = screen.drawn();
    assert_eq!(screen.drawn(), first);
    let now = screen.now;
    update(&mut screen.model, now, Msg::Tick);
    assert_eq!(screen.drawn(), first);
}

#[test]
fn every_size_draws_without_a_panic() {
    for (columns, rows) in (40..60).flat_map(|columns| (10..30).map(move |rows| (columns, rows))) {
        let mut screen = waiting(columns, rows);
        screen.drawn();
        screen.key(KeyCode::Char('v'));
        screen.drawn();
    }
}
