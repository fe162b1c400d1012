//! Turns of several screens and of messages that wait, and when keys are dead.

use super::*;

/// A stored message of a person, which names the turn that answers it.
fn asked(seq: u64, turn: &str, text: &str, own: Option<&str>, queued: bool) -> ServerFrame {
    let mut body = json!({"turnId": turn, "messageId": turn, "message": text, "queued": queued});
    if let Some(own) = own {
        body["clientMessageId"] = json!(own);
    }
    frame("user_message", Some(seq), body)
}

fn answered(seq: u64, turn: &str, text: &str) -> ServerFrame {
    let body = json!({"turnId": turn, "messageId": "r", "agentId": AGENT, "message": text, "model": "small"});
    frame("assistant_message", Some(seq), body)
}

fn ended(seq: u64, turn: &str) -> ServerFrame {
    frame("done", Some(seq), json!({"turnId": turn, "usage": {"tokens": 1, "cost": 0.0}}))
}

fn begun(seq: u64, turn: &str) -> ServerFrame {
    frame("queue_update", Some(seq), json!({"turnId": turn, "messageId": turn, "started": true}))
}

fn tokens(screen: &mut Screen, text: &str) -> Vec<Effect> {
    screen.frame("token", None, json!({"agentId": AGENT, "content": text}))
}

fn think(screen: &mut Screen) -> Vec<Effect> {
    screen.frame("agent_state", None, json!({"agentId": AGENT, "status": "thinking", "role": "assistant"}))
}

#[test]
fn the_question_of_another_screen_stands_above_its_reply_at_once() {
    let mut screen = Screen::new(60, 20);
    assert_eq!(think(&mut screen), [Effect::Load(From::After(0))]);
    assert_eq!(tokens(&mut screen, "for "), []);
    screen.loaded(&[asked(1, "t1", "theirs", None, false)], true);
    assert_eq!(tokens(&mut screen, "them"), []);
    assert_eq!(conversation(&mut screen), ["you", "  theirs", "assistant", "  for them"]);
    assert_eq!(done(&mut screen, 3), [Effect::Load(From::After(0))]);
    let stored = [asked(1, "t1", "theirs", None, false), answered(2, "t1", "for them"), ended(3, "t1")];
    screen.loaded(&stored, false);
    assert_eq!(conversation(&mut screen), ["you", "  theirs", "assistant", "  for them"]);
}

#[test]
fn a_reply_or_an_approval_that_nothing_here_asked_for_reads_its_question_too() {
    let mut screen = Screen::new(60, 20);
    assert_eq!(tokens(&mut screen, "late"), [Effect::Load(From::After(0))]);
    // Once is enough, also when the answer takes its time.
    assert_eq!(tokens(&mut screen, "r"), []);
    screen.loaded(&[asked(1, "t1", "theirs", None, false)], true);
    assert_eq!(conversation(&mut screen), ["you", "  theirs", "assistant", "  later"]);

    let mut screen = Screen::new(60, 20);
    let ask = request("c1", "rm -rf build");
    assert_eq!(screen.frame("tool_approve_request", Some(2), ask.clone()), [Effect::Load(From::After(0))]);
    assert_eq!(screen.model.approvals.waiting(), 1);
    let stored = [asked(1, "t1", "clean", None, false), frame("tool_approve_request", Some(2), ask)];
    screen.loaded(&stored, true);
    let shown = ["you", "  clean", "  shell rm -rf build · waits for approval"];
    assert_eq!(conversation(&mut screen), shown);
}

#[test]
fn a_message_waits_at_the_end_until_its_turn_begins() {
    let mut screen = Screen::new(60, 24);
    screen.submit("one");
    assert_eq!(think(&mut screen), []);
    token(&mut screen, "first ");
    assert_eq!(screen.submit("two"), [chat(2, "two")]);
    token(&mut screen, "answer");
    let first = ["you", "  one", "assistant", "  first answer"];
    assert_eq!(conversation(&mut screen), [&first[..], &["you · queued", "  two"]].concat());
    assert_eq!(done(&mut screen, 4), []);
    // Its turn begins: the log says whose it is.
    assert_eq!(think(&mut screen), [Effect::Load(From::After(0))]);
    let mut stored = vec![
        asked(1, "t1", "one", Some("tui-1"), false),
        asked(2, "t2", "two", Some("tui-2"), true),
        answered(3, "t1", "first answer"),
        ended(4, "t1"),
        begun(5, "t2"),
    ];
    screen.loaded(&stored, true);
    token(&mut screen, "second");
    let both = [&first[..], &["you", "  two", "assistant", "  second"]].concat();
    assert_eq!(conversation(&mut screen), both);
    assert_eq!(done(&mut screen, 7), [Effect::Load(From::After(0))]);
    stored.extend([answered(6, "t2", "second"), ended(7, "t2")]);
    screen.loaded(&stored, false);
    assert_eq!(conversation(&mut screen), both);
    assert_eq!(screen.model.synced, 7);
}

#[test]
fn of_two_screens_messages_that_wait_the_one_that_was_first_is_answered_first() {
    let mut screen = Screen::new(60, 30);
    screen.submit("one");
    think(&mut screen);
    // Another screen's message is stored now, before this one.
    screen.submit("mine");
    done(&mut screen, 5);
    think(&mut screen);
    let stored = [
        asked(1, "t1", "one", Some("tui-1"), false),
        asked(2, "t2", "theirs", None, true),
        asked(3, "t3", "mine", Some("tui-2"), true),
        answered(4, "t1", "first"),
        ended(5, "t1"),
        begun(6, "t2"),
    ];
    screen.loaded(&stored, true);
    token(&mut screen, "second");
    let shown = [
        "you",
        "  one",
        "assistant",
        "  first",
        "you",
        "  theirs",
        "assistant",
        "  second",
        "you · queued",
        "  mine",
    ];
    assert_eq!(conversation(&mut screen), shown);
}

#[test]
fn a_question_that_another_screen_asked_during_this_ones_turn_is_found() {
    let mut screen = Screen::new(60, 24);
    screen.submit("mine");
    think(&mut screen);
    token(&mut screen, "first");
    assert_eq!(done(&mut screen, 4), []);
    assert_eq!(screen.model.synced, 4);
    // It was stored before the end that this screen has seen.
    assert_eq!(think(&mut screen), [Effect::Load(From::After(0))]);
    let stored = [
        asked(1, "t1", "mine", Some("tui-1"), false),
        asked(2, "t2", "theirs", None, true),
        answered(3, "t1", "first"),
        ended(4, "t1"),
        begun(5, "t2"),
    ];
    screen.loaded(&stored, true);
    let shown = ["you", "  mine", "assistant", "  first", "you", "  theirs"];
    assert_eq!(conversation(&mut screen), shown);
}

#[test]
fn a_refused_message_leaves_the_running_one_alone() {
    let mut screen = Screen::new(60, 20);
    screen.submit("one");
    think(&mut screen);
    token(&mut screen, "par");
    screen.submit("two");
    screen.frame("error", None, json!({"message": "full", "code": "QUEUE_FULL", "refType": "chat"}));
    let shown = ["you", "  one", "assistant", "  par", "you · not sent", "  two", "! full (QUEUE_FULL)"];
    assert_eq!(conversation(&mut screen), shown);
}

#[test]
fn an_interrupted_turn_says_so_once() {
    let mut screen = Screen::new(60, 20);
    think(&mut screen);
    screen.loaded(&[asked(1, "t1", "theirs", None, false)], true);
    screen.frame("tool_approve_request", Some(2), request("c1", "rm -rf build"));
    screen.frame("audit_entry", Some(3), audit("c1", "cancelled"));
    screen.frame("agent_state", None, json!({"agentId": AGENT, "status": "idle", "role": "assistant"}));
    let usage = json!({"tokens": 1, "cost": 0.0});
    screen.frame("done", Some(4), json!({"turnId": "t1", "usage": usage, "cancelled": true}));
    let interrupted = json!({"turnId": "t1", "reason": "cancelled", "usage": usage});
    let stored = [
        asked(1, "t1", "theirs", None, false),
        frame("tool_approve_request", Some(2), request("c1", "rm -rf build")),
        frame("audit_entry", Some(3), audit("c1", "cancelled")),
        frame("interrupted", Some(4), interrupted),
    ];
    screen.loaded(&stored, false);
    let shown = ["you", "  theirs", "  shell rm -rf build · cancelled by mei", "! interrupted"];
    assert_eq!(conversation(&mut screen), shown);
}

#[test]
fn esc_twice_empties_the_composer_and_up_brings_it_back() {
    let mut screen = Screen::new(60, 20);
    screen.write("draft");
    assert_eq!(screen.key(KeyCode::Esc), []);
    assert_eq!(screen.model.composer.text(), "draft");
    assert!(screen.drawn().contains("Esc again empties this"));
    // Another key in between takes it back.
    screen.key(KeyCode::Left);
    screen.key(KeyCode::Esc);
    assert_eq!(screen.model.composer.text(), "draft");
    screen.key(KeyCode::Esc);
    assert_eq!(screen.model.composer.text(), "");
    screen.key(KeyCode::Up);
    assert_eq!(screen.model.composer.text(), "draft");
}

#[test]
fn the_first_esc_interrupts_a_running_reply_and_the_second_empties_the_composer() {
    let mut screen = Screen::new(60, 20);
    screen.submit("one");
    think(&mut screen);
    screen.write("draft");
    assert_eq!(screen.key(KeyCode::Esc), sends(Cancel::default()));
    assert_eq!(screen.model.composer.text(), "draft");
    assert_eq!(screen.key(KeyCode::Esc), []);
    assert_eq!(screen.model.composer.text(), "");
}

#[test]
fn the_word_that_there_is_no_connection_goes_when_there_is_one() {
    let mut screen = Screen::new(60, 20);
    disconnect(&mut screen);
    screen.submit("keep me");
    assert!(screen.drawn().contains("kept here, send it later"));
    screen.take(Msg::Client(ClientEvent::Reconnected));
    assert!(!screen.drawn().contains("kept here"));
}

#[test]
fn an_approval_that_is_not_drawn_is_not_answered() {
    for key in ['a', 'r', 'A'] {
        let mut screen = Screen::new(80, 24);
        screen.submit("clean");
        screen.frame("tool_approve_request", Some(2), request("c1", "rm -rf build"));
        screen.after(400);
        for (columns, rows) in [(39, 24), (80, 9)] {
            screen.take(Msg::Resize(columns, rows));
            assert!(!screen.drawn().contains("rm -rf build"));
            assert_eq!(screen.after(1_000).key(KeyCode::Char(key)), [], "{key} at {columns}×{rows}");
        }
        // In view again, it waits until it has been quiet.
        screen.after(1_000).take(Msg::Resize(80, 24));
        assert!(screen.drawn().contains("rm -rf build"));
        assert_eq!(screen.after(299).key(KeyCode::Char(key)), []);
        assert_eq!(screen.after(300).key(KeyCode::Char(key)).len(), 1);
    }
}

#[test]
fn a_key_between_a_resize_and_its_frame_answers_nothing() {
    let mut screen = Screen::new(80, 24);
    screen.frame("tool_approve_request", Some(2), request("c1", "rm -rf build"));
    screen.after(400);
    let now = screen.now;
    let approve = crossterm::event::KeyEvent::from(KeyCode::Char('a'));
    update(&mut screen.model, now, Msg::Resize(100, 30));
    assert_eq!(update(&mut screen.model, now, Msg::Key(approve)), []);
}

#[test]
fn the_help_over_an_approval_begins_the_quiet_anew_when_it_closes() {
    let mut screen = Screen::new(80, 24);
    screen.frame("tool_approve_request", Some(2), request("c1", "rm -rf build"));
    screen.after(400).key(KeyCode::F(1));
    screen.after(1_000).key(KeyCode::Esc);
    assert_eq!(screen.after(299).key(KeyCode::Char('a')), []);
    assert_eq!(screen.after(300).key(KeyCode::Char('a')), decision("c1", "approve"));
}
