//! Transitions of the screen: keys and events as values.

use crossterm::event::KeyCode;
use insta::assert_snapshot;
use serde_json::json;
use tns_protocol::approval::{SetAutonomy, ToolApprove};
use tns_protocol::chat::Cancel;
use tns_protocol::{ClientMessage, ServerFrame, ToolCallId};

use super::*;
use crate::fixture::{AGENT, Screen, detail, frame, request};

fn chat(n: u32, text: &str) -> Effect {
    send_chat(ClientMessageId::parse(format!("tui-{n}")).unwrap(), text.into())
}

fn sends(message: impl Into<ClientMessage>) -> Vec<Effect> {
    vec![Effect::Send(Box::new(message.into()))]
}

fn decision(call: &str, decision: &str) -> Vec<Effect> {
    let tool_call_id = ToolCallId::parse(call).unwrap();
    sends(ToolApprove { tool_call_id, decision: decision.into(), reason: None, edited_args: None })
}

fn thinking(screen: &mut Screen) {
    screen.frame("agent_state", None, json!({"agentId": AGENT, "status": "thinking", "role": "assistant"}));
}

fn token(screen: &mut Screen, text: &str) {
    assert_eq!(screen.frame("token", None, json!({"agentId": AGENT, "content": text})), []);
}

fn done(screen: &mut Screen, seq: u64) -> Vec<Effect> {
    screen.frame("agent_state", None, json!({"agentId": AGENT, "status": "idle", "role": "assistant"}));
    screen.frame("done", Some(seq), json!({"usage": {"tokens": 1, "cost": 0.0}}))
}

fn disconnect(screen: &mut Screen) {
    let retry_in = Duration::from_secs(1);
    screen.take(Msg::Client(ClientEvent::Disconnected { reason: "gone".into(), retry_in }));
}

/// The rows of the conversation, without empty ones.
fn conversation(screen: &mut Screen) -> Vec<String> {
    let drawn = screen.drawn();
    let rows = drawn.lines().map(|row| row.to_owned());
    rows.take_while(|row| !row.starts_with("──")).filter(|row| !row.is_empty()).collect()
}

fn stored_turn(text: &str, reply: &str, first: u64, id: Option<&str>) -> Vec<ServerFrame> {
    let mut user = json!({"messageId": "m", "message": text});
    if let Some(id) = id {
        user["clientMessageId"] = json!(id);
    }
    vec![
        frame("user_message", Some(first), user),
        frame(
            "assistant_message",
            Some(first + 1),
            json!({
                "messageId": "r", "agentId": AGENT, "message": reply, "model": "small",
            }),
        ),
        frame("done", Some(first + 2), json!({"usage": {"tokens": 10, "cost": 0.0}})),
    ]
}

#[test]
fn a_message_is_sent_after_the_stored_conversation_is_shown() {
    let (mut screen, effects) = Screen::opening(Some("and now?"), 60, 20);
    assert_eq!(effects, [Effect::Load]);
    let effects = screen.loaded(&stored_turn("hello", "hi 你好", 1, None), false);
    assert_eq!(effects, [Effect::Join(Cursor::at(3)), chat(1, "and now?")]);
    assert_eq!(conversation(&mut screen), ["you", "  hello", "assistant", "  hi 你好", "you", "  and now?"]);
}

#[test]
fn enter_sends_and_the_reply_is_streamed() {
    let mut screen = Screen::new(60, 20);
    assert_eq!(screen.submit("hello"), [chat(1, "hello")]);
    thinking(&mut screen);
    token(&mut screen, "one ");
    token(&mut screen, "two");
    assert!(screen.drawn().contains("thinking"));
    assert_eq!(done(&mut screen, 3), []);
    assert_eq!(conversation(&mut screen), ["you", "  hello", "assistant", "  one two"]);
    assert!(screen.drawn().contains("idle"));
}

#[test]
fn tool_calls_are_one_line_from_start_to_outcome() {
    let mut screen = Screen::new(60, 20);
    screen.submit("list");
    screen.frame("tool_start", Some(2), json!({
        "agentId": AGENT, "toolCallId": "c1", "tool": "shell", "args": {"command": "ls -la"}, "risk": "low",
    }));
    assert_eq!(conversation(&mut screen)[2..], ["  shell ls -la · running"]);
    screen.frame(
        "tool_result",
        Some(3),
        json!({
            "agentId": AGENT, "toolCallId": "c1", "tool": "shell", "duration": 12, "result": "1/2\r2/2\nok\n",
        }),
    );
    assert_eq!(conversation(&mut screen)[2..], ["  shell ls -la · ok · 12 ms", "    2/2", "    ok"]);
}

#[test]
fn blank_text_and_a_continued_line_are_not_sent() {
    let mut screen = Screen::new(60, 20);
    assert_eq!(screen.submit("  "), []);
    screen.model.composer.take();
    assert_eq!(screen.submit("a\\"), []);
    screen.write("b");
    assert_eq!(screen.key(KeyCode::Enter), [chat(1, "a\nb")]);
}

#[test]
fn a_paste_with_newlines_is_not_sent() {
    let mut screen = Screen::new(60, 20);
    assert_eq!(screen.take(Msg::Paste("one\r\ntwo\n".into())), []);
    assert_eq!(screen.model.composer.text(), "one\ntwo\n");
}

#[test]
fn esc_and_ctrl_c_interrupt_and_the_second_ctrl_c_quits() {
    let mut screen = Screen::new(60, 20);
    thinking(&mut screen);
    assert_eq!(screen.key(KeyCode::Esc), sends(Cancel::default()));
    assert_eq!(screen.ctrl('c'), sends(Cancel::default()));
    // Another key in between takes the quitting back.
    screen.key(KeyCode::Left);
    assert_eq!(screen.ctrl('c'), sends(Cancel::default()));
    assert!(screen.drawn().contains("Ctrl-C again quits"));
    assert_eq!(screen.ctrl('c'), [Effect::Quit]);
}

#[test]
fn ctrl_c_and_ctrl_d_quit_when_nothing_runs_and_nothing_is_written() {
    let mut screen = Screen::new(60, 20);
    screen.write("draft");
    assert_eq!(screen.ctrl('d'), []);
    assert_eq!(screen.ctrl('c'), []);
    screen.model.composer.take();
    screen.key(KeyCode::Left);
    assert_eq!(screen.ctrl('d'), [Effect::Quit]);
    assert_eq!(screen.ctrl('c'), [Effect::Quit]);
    // One that was meant for the reply that has just ended asks first.
    screen.turn(9, "x");
    assert_eq!(screen.after(100).ctrl('c'), []);
}

#[test]
fn commands_act_and_unknown_ones_say_so() {
    let mut screen = Screen::new(60, 20);
    assert_eq!(screen.submit("/autonomy full-auto"), sends(SetAutonomy { level: "FULL_AUTO".into() }));
    assert_eq!(screen.submit("/autonomy wild"), []);
    assert_eq!(screen.submit("/nonsense\u{1b}[2J"), []);
    assert_eq!(screen.submit("/agents"), []);
    assert_eq!(screen.submit("/quit now"), []);
    assert_snapshot!(conversation(&mut screen).join("\n"), @r"
    ! wild is no level; there are full_auto, supervised,
      cautious, manual
    ! /nonsense\u{1B}[2J is not known; /help lists the commands
    · assistant (assistant) · offline/small · idle
    ! write /quit
    ");
    screen.submit("/clear");
    assert!(screen.model.transcript.is_empty());
    screen.submit("/help");
    assert_eq!(screen.model.page, Some(Page::Help(0)));
    screen.key(KeyCode::Esc);
    assert_eq!(screen.submit("/quit"), [Effect::Quit]);
}

#[test]
fn an_approval_takes_the_keys_and_is_answered_after_the_quiet() {
    let mut screen = Screen::new(60, 20);
    screen.submit("clean");
    thinking(&mut screen);
    screen.frame("tool_approve_request", Some(2), request("c1", "rm -rf build"));
    assert_eq!(screen.after(299).key(KeyCode::Char('a')), []);
    assert_eq!(screen.after(300).key(KeyCode::Enter), []);
    assert_eq!(screen.key(KeyCode::Char('a')), decision("c1", "approve"));
    assert_eq!(screen.key(KeyCode::Char('r')), []);
    screen.frame("audit_entry", Some(3), audit("c1", "approved"));
    assert!(screen.model.approvals.is_empty());
    assert_eq!(screen.model.focus, Focus::Composer);
    assert!(conversation(&mut screen).contains(&"  shell rm -rf build · approved".to_owned()));
}

fn audit(call: &str, decision: &str) -> serde_json::Value {
    json!({
        "toolCallId": call, "agentId": AGENT, "tool": "shell", "risk": "high", "decision": decision,
        "timestamp": "2026-01-02T03:04:05Z", "summary": "rm -rf build", "by": "mei",
    })
}

#[test]
fn reject_and_always_are_sent_as_such_also_from_the_full_page() {
    for (key, word) in [('r', "reject"), ('A', "always")] {
        let mut screen = Screen::new(60, 20);
        screen.frame("tool_approve_request", Some(2), request("c1", "rm -rf build"));
        screen.after(300).key(KeyCode::Char('v'));
        assert_eq!(screen.model.page, Some(Page::Approval));
        assert_eq!(screen.key(KeyCode::Char(key)), decision("c1", word));
        assert_eq!(screen.model.page, None);
    }
}

#[test]
fn somebody_who_writes_approves_nothing() {
    let mut screen = Screen::new(60, 20);
    screen.write("ple");
    screen.frame("tool_approve_request", Some(2), request("c1", "rm -rf build"));
    screen.after(400).write("ase a r A");
    assert_eq!(screen.model.composer.text(), "please a r A");
    screen.key(KeyCode::Tab);
    assert_eq!(screen.key(KeyCode::Char('r')), decision("c1", "reject"));
}

#[test]
fn typing_that_began_just_before_a_request_does_not_answer_it() {
    let mut screen = Screen::new(60, 20);
    screen.frame("tool_approve_request", Some(2), request("c1", "rm -rf build"));
    for c in "what about a".chars() {
        assert_eq!(screen.after(120).key(KeyCode::Char(c)), []);
    }
    assert_eq!(screen.model.approvals.waiting(), 1);
}

#[test]
fn sending_gives_the_keys_to_a_waiting_request_and_tab_takes_them_back() {
    let mut screen = Screen::new(60, 20);
    screen.write("wait");
    screen.frame("tool_approve_request", Some(2), request("c1", "rm -rf build"));
    screen.after(400);
    assert_eq!(screen.key(KeyCode::Enter), [chat(1, "wait")]);
    assert_eq!(screen.model.focus, Focus::Approval);
    assert_eq!(screen.key(KeyCode::Char('a')), []);
    screen.key(KeyCode::Tab);
    screen.write("a");
    assert_eq!(screen.model.composer.text(), "a");
}

#[test]
fn a_request_that_is_settled_elsewhere_closes_and_says_by_whom() {
    let mut screen = Screen::new(60, 20);
    screen.submit("clean");
    screen.frame("tool_approve_request", Some(2), request("c1", "rm -rf build"));
    screen.after(400).key(KeyCode::Char('v'));
    screen.frame(
        "tool_approval_resolved",
        Some(3),
        json!({"toolCallId": "c1", "decision": "rejected", "by": "mei"}),
    );
    assert_eq!((screen.model.approvals.is_empty(), screen.model.page), (true, None));
    let shown = conversation(&mut screen);
    assert!(shown.contains(&"  shell rm -rf build · rejected by mei".to_owned()), "{shown:?}");
    assert!(shown.contains(&"· approval settled: rejected by mei".to_owned()), "{shown:?}");
}

#[test]
fn a_late_answer_that_the_server_does_not_know_closes_the_request() {
    let mut screen = Screen::new(60, 20);
    screen.frame("tool_approve_request", Some(2), request("c1", "rm -rf build"));
    screen.after(400).key(KeyCode::Char('a'));
    let refused = json!({"message": "no such call", "code": "UNKNOWN_TOOL_CALL", "refType": "tool_approve"});
    screen.frame("error", None, refused);
    assert!(screen.model.approvals.is_empty());
    // Another refusal leaves it to be answered again.
    screen.frame("tool_approve_request", Some(3), request("c2", "ls"));
    screen.after(400).key(KeyCode::Char('a'));
    screen.frame("error", None, json!({"message": "busy", "code": "LIMIT", "refType": "tool_approve"}));
    assert_eq!(screen.key(KeyCode::Char('a')), decision("c2", "approve"));
}

#[test]
fn while_disconnected_a_message_is_kept_and_nothing_is_answered() {
    let mut screen = Screen::new(60, 20);
    screen.frame("tool_approve_request", Some(2), request("c1", "ls"));
    disconnect(&mut screen);
    assert_eq!(screen.after(400).key(KeyCode::Char('a')), []);
    screen.key(KeyCode::Tab);
    assert_eq!(screen.submit("keep me"), []);
    assert_eq!(screen.model.composer.text(), "keep me");
    assert!(screen.drawn().contains("not connected"));
}

/// Hands over what the log tells after a loss.
fn told(screen: &mut Screen, events: &[ServerFrame]) {
    for event in events {
        assert_eq!(screen.take(Msg::Client(ClientEvent::Frame(Box::new(event.clone())))), []);
    }
}

#[test]
fn what_was_missed_while_the_line_was_down_is_shown_once() {
    let mut screen = Screen::new(60, 20);
    screen.submit("count");
    told(&mut screen, &stored_turn("count", "", 1, Some("tui-1"))[..1]);
    thinking(&mut screen);
    token(&mut screen, "1 2 3 ");
    disconnect(&mut screen);
    assert_eq!(screen.take(Msg::Client(ClientEvent::Reconnected)), []);
    // The turn still runs.
    assert_eq!(screen.caught_up(Some("1 2 3 4 5 6 "), &[]), []);
    token(&mut screen, "7 8");
    assert_eq!(conversation(&mut screen), ["you", "  count", "assistant", "  1 2 3 4 5 6 7 8"]);
    assert!(screen.drawn().contains("thinking"));
    told(&mut screen, &stored_turn("count", "1 2 3 4 5 6 7 8", 1, Some("tui-1"))[1..]);
    assert_eq!(conversation(&mut screen), ["you", "  count", "assistant", "  1 2 3 4 5 6 7 8"]);
    assert!(screen.drawn().contains("idle"));
}

#[test]
fn a_turn_that_ended_while_the_line_was_down_is_over_with_its_call_and_its_approval() {
    let mut screen = Screen::new(60, 20);
    screen.submit("clean");
    told(&mut screen, &stored_turn("clean", "", 1, Some("tui-1"))[..1]);
    thinking(&mut screen);
    screen.frame("tool_approve_request", Some(2), request("c1", "rm -rf build"));
    assert_eq!(screen.model.focus, Focus::Approval);
    disconnect(&mut screen);
    screen.take(Msg::Client(ClientEvent::Reconnected));
    screen.frame("audit_entry", Some(3), audit("c1", "approved"));
    screen.frame("tool_start", Some(4), json!({
        "agentId": AGENT, "toolCallId": "c1", "tool": "shell", "args": {"command": "rm -rf build"}, "risk": "high",
    }));
    screen.frame(
        "tool_result",
        Some(5),
        json!({
            "agentId": AGENT, "toolCallId": "c1", "tool": "shell", "duration": 12, "result": "gone",
        }),
    );
    // One that was asked and settled in the gap takes no keys.
    screen.frame("tool_approve_request", Some(6), request("c2", "ls"));
    assert!(screen.model.approvals.is_empty());
    screen.frame("audit_entry", Some(7), audit("c2", "rejected"));
    let done = json!({"usage": {"tokens": 1, "cost": 0.0}});
    screen.frame("done", Some(8), done);
    screen.caught_up(None, &[]);
    let shown = [
        "you",
        "  clean",
        "  shell rm -rf build · ok · 12 ms",
        "    gone",
        "· approval settled: approved by mei",
        "  shell ls · rejected by mei",
    ];
    let mut rows = conversation(&mut screen);
    rows.sort();
    let mut expected: Vec<String> = shown.iter().map(|row| (*row).to_owned()).collect();
    expected.sort();
    assert_eq!(rows, expected);
    assert!(screen.drawn().contains("idle"));
    assert_eq!(screen.model.focus, Focus::Composer);
}

#[test]
fn an_approval_of_the_gap_is_asked_when_the_log_is_at_its_end() {
    let mut screen = Screen::new(60, 20);
    screen.submit("clean");
    screen.frame("tool_approve_request", Some(2), request("c1", "ls"));
    disconnect(&mut screen);
    screen.take(Msg::Client(ClientEvent::Reconnected));
    screen.frame("audit_entry", Some(3), audit("c1", "approved"));
    screen.frame("tool_approve_request", Some(4), request("c2", "rm -rf build"));
    let pending = serde_json::from_value(request("c2", "rm -rf build")).unwrap();
    screen.caught_up(Some(""), &[pending]);
    assert_eq!(screen.model.approvals.waiting(), 1);
    assert_eq!(screen.after(400).key(KeyCode::Char('a')), decision("c2", "approve"));
}

#[test]
fn a_log_that_begins_anew_replaces_what_was_shown_and_keeps_what_is_on_its_way() {
    let mut screen = Screen::new(60, 20);
    told(&mut screen, &stored_turn("old", "gone", 1, None));
    screen.submit("mine");
    let session = screen.model.session.clone();
    let resync = ClientEvent::Resync { session, epoch: "e".into(), reason: "made anew".into() };
    screen.take(Msg::Client(resync));
    told(&mut screen, &stored_turn("new", "here", 1, None));
    screen.caught_up(None, &[]);
    let shown = [
        "! the conversation is told from its beginning: made anew",
        "you",
        "  new",
        "assistant",
        "  here",
        "you · queued",
        "  mine",
    ];
    assert_eq!(conversation(&mut screen), shown);
}

#[test]
fn a_server_that_tells_no_log_is_read_anew_after_each_turn() {
    let mut screen = Screen::new(60, 20);
    let session = screen.model.session.clone();
    assert_eq!(screen.take(Msg::Client(ClientEvent::Plain { session })), [Effect::Load]);
    assert_eq!(screen.loaded(&[], false), []);
    screen.submit("hello");
    thinking(&mut screen);
    token(&mut screen, "par");
    assert_eq!(done(&mut screen, 3), [Effect::Load]);
    assert_eq!(screen.loaded(&stored_turn("hello", "part", 1, Some("tui-1")), false), []);
    assert_eq!(conversation(&mut screen), ["you", "  hello", "assistant", "  part"]);
}

#[test]
fn what_is_sent_before_the_session_is_joined_follows_the_joining() {
    let (mut screen, _) = Screen::opening(None, 60, 20);
    assert_eq!(screen.submit("early"), []);
    assert_eq!(screen.loaded(&[], false), [Effect::Join(Cursor::at(0)), chat(1, "early")]);
}

#[test]
fn a_message_that_is_given_up_says_so() {
    let mut screen = Screen::new(60, 20);
    screen.submit("poison");
    let session = screen.model.session.clone();
    let message = ClientMessageId::parse("tui-1").unwrap();
    screen.take(Msg::Client(ClientEvent::Unsent { session, message, reason: "too often".into() }));
    assert_eq!(conversation(&mut screen), ["you · not sent", "  poison", "! not sent: too often"]);
}

#[test]
fn a_summary_names_two_sizes_that_can_be_told_apart() {
    let mut screen = Screen::new(80, 20);
    for (seq, (before, after)) in (1..).zip([
        (1_240, 310),
        (1_249, 1_151),
        (84_000, 9_200),
        (84_400, 83_600),
        (9_999, 9_960),
        (12_000, 9_960),
        (1_240_000, 999),
        (7, 7),
    ]) {
        let sizes =
            json!({"agentId": AGENT, "compactedFromSeq": 9, "tokensBefore": before, "tokensAfter": after});
        screen.frame("compaction", Some(seq), sizes);
    }
    assert_snapshot!(conversation(&mut screen).join("\n").replace("history summarised: ", ""), @r"
    · 1,240 → 310 tokens
    · 1,249 → 1,151 tokens
    · 84k → 9.2k tokens
    · 84,400 → 83,600 tokens
    · 9,999 → 9,960 tokens
    · 12k → 10k tokens
    · 1,240k → 999 tokens
    · 7 → 7 tokens
    ");
}

#[test]
fn what_is_worth_knowing_stands_between_the_messages() {
    let mut screen = Screen::new(60, 20);
    screen.frame("notice", None, json!({"level": "warning", "message": "waits 2.0 s: overloaded\u{1b}[2J"}));
    let compaction =
        json!({"agentId": AGENT, "compactedFromSeq": 9, "tokensBefore": 101_400, "tokensAfter": 9_100});
    screen.frame("compaction", Some(1), compaction);
    screen.frame("session_updated", Some(2), json!({"title": "职员 tables"}));
    assert!(screen.drawn().contains(" · 职员 tables · connected"), "{}", screen.drawn());
    screen.frame("session_closing", Some(3), json!({"reason": "deleted"}));
    assert_snapshot!(conversation(&mut screen).join("\n"), @r"
    ! waits 2.0 s: overloaded\u{1B}[2J
    · history summarised: 101k → 9.1k tokens
    · the session is called 职员 tables now
    ! this session has ended: deleted
    ");
    assert_eq!(screen.submit("hello?"), []);
    assert!(screen.drawn().contains("this session has ended: /quit"));
}

#[test]
fn a_conversation_that_cannot_be_read_is_no_reason_not_to_write() {
    let (mut screen, _) = Screen::opening(Some("hello"), 60, 20);
    let effects = screen.take(Msg::Loaded(Err("no answer".into())));
    assert_eq!(effects, [Effect::Join(Cursor::default()), chat(1, "hello")]);
    assert_eq!(conversation(&mut screen)[0], "! the stored conversation can't be read: no answer");
}

#[test]
fn pending_requests_of_the_session_are_asked_once() {
    let (mut screen, _) = Screen::opening(None, 60, 20);
    let pending = serde_json::from_value(request("c1", "ls")).unwrap();
    screen.frame("tool_approve_request", Some(2), request("c1", "ls"));
    let history = History { detail: Some(detail(2, true, &[pending])), ..History::default() };
    screen.take(Msg::Loaded(Ok(Box::new(history))));
    assert_eq!(screen.model.approvals.waiting(), 1);
}

#[test]
fn a_refused_message_says_so_and_an_error_ends_the_turn() {
    let mut screen = Screen::new(60, 20);
    screen.submit("hello");
    let full = json!({"message": "too many wait", "code": "QUEUE_FULL", "refType": "chat", "re": "tui-1"});
    screen.frame("error", None, full);
    assert_eq!(conversation(&mut screen), ["you · not sent", "  hello", "! too many wait (QUEUE_FULL)"]);
    screen.submit("again");
    thinking(&mut screen);
    screen.frame("error", Some(4), json!({"message": "the key is\u{1b}[2J wrong", "code": "BAD_KEY"}));
    assert!(!screen.model.status.is_busy());
    assert_eq!(conversation(&mut screen).last().unwrap(), "! the key is\\u{1B}[2J wrong (BAD_KEY)");
}

#[test]
fn a_turn_that_could_not_be_stored_ends_and_is_shown_once() {
    let mut screen = Screen::new(60, 20);
    screen.submit("hello");
    thinking(&mut screen);
    token(&mut screen, "par");
    let lost = json!({"message": "the disk is full", "code": "STORAGE_FULL"});
    assert_eq!(screen.frame("error", None, lost), []);
    assert!(!screen.model.status.is_busy());
    let shown = ["you", "  hello", "assistant", "  par", "! the disk is full (STORAGE_FULL)"];
    assert_eq!(conversation(&mut screen), shown);
}

#[test]
fn an_error_about_a_request_ends_no_turn() {
    let mut screen = Screen::new(60, 20);
    screen.submit("hello");
    thinking(&mut screen);
    screen.frame("error", None, json!({"message": "no", "code": "INVALID_MESSAGE", "refType": "kb_add"}));
    screen.frame("error", None, json!({"message": "no", "code": "STORAGE_BUSY", "re": "r-1"}));
    assert!(screen.model.status.is_busy());
}

#[test]
fn frames_of_other_sessions_and_newer_servers_change_nothing() {
    let mut screen = Screen::new(60, 20);
    let before = screen.drawn();
    let mut other = frame("token", None, json!({"agentId": AGENT, "content": "not ours"}));
    other.session_id = tns_protocol::SessionId::parse("other").ok();
    screen.take(Msg::Client(ClientEvent::Frame(Box::new(other))));
    screen.frame("hologram", None, json!({}));
    assert_eq!(screen.drawn(), before);
}

#[test]
fn nothing_changes_by_itself_while_nothing_runs() {
    let mut screen = Screen::new(60, 20);
    assert_eq!(screen.model.next_change(), None);
    screen.turn(3, "x");
    assert_eq!(screen.model.next_change(), None);
    screen.frame("tool_approve_request", Some(4), request("c1", "ls"));
    assert!(screen.model.next_change().is_some());
}

mod turns;
