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

fn think(screen: &mut Screen) -> Vec<Effect> {
    screen.frame("agent_state", None, json!({"agentId": AGENT, "status": "thinking", "role": "assistant"}))
}

#[test]
fn the_question_of_another_screen_stands_above_its_reply_at_once() {
    let mut screen = Screen::new(60, 20);
    told(&mut screen, &[asked(1, "t1", "theirs", None, false)]);
    assert_eq!(think(&mut screen), []);
    token(&mut screen, "for them");
    assert_eq!(conversation(&mut screen), ["you", "  theirs", "assistant", "  for them"]);
    told(&mut screen, &[answered(2, "t1", "for them"), ended(3, "t1")]);
    assert_eq!(conversation(&mut screen), ["you", "  theirs", "assistant", "  for them"]);
}

#[test]
fn a_message_waits_at_the_end_until_its_turn_begins() {
    let mut screen = Screen::new(60, 24);
    screen.submit("one");
    told(&mut screen, &[asked(1, "t1", "one", Some("tui-1"), false)]);
    think(&mut screen);
    token(&mut screen, "first ");
    assert_eq!(screen.submit("two"), [chat(2, "two")]);
    told(&mut screen, &[asked(2, "t2", "two", Some("tui-2"), true)]);
    token(&mut screen, "answer");
    let first = ["you", "  one", "assistant", "  first answer"];
    assert_eq!(conversation(&mut screen), [&first[..], &["you · queued", "  two"]].concat());
    told(&mut screen, &[answered(3, "t1", "first answer"), ended(4, "t1"), begun(5, "t2")]);
    think(&mut screen);
    token(&mut screen, "second");
    let both = [&first[..], &["you", "  two", "assistant", "  second"]].concat();
    assert_eq!(conversation(&mut screen), both);
    told(&mut screen, &[answered(6, "t2", "second"), ended(7, "t2")]);
    assert_eq!(conversation(&mut screen), both);
}

#[test]
fn of_two_screens_messages_that_wait_the_one_that_was_first_is_answered_first() {
    let mut screen = Screen::new(60, 30);
    screen.submit("one");
    told(&mut screen, &[asked(1, "t1", "one", Some("tui-1"), false)]);
    think(&mut screen);
    // Another screen's message is stored now, before this one.
    screen.submit("mine");
    told(
        &mut screen,
        &[
            asked(2, "t2", "theirs", None, true),
            asked(3, "t3", "mine", Some("tui-2"), true),
            answered(4, "t1", "first"),
            ended(5, "t1"),
            begun(6, "t2"),
        ],
    );
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
fn a_message_that_waits_is_changed_and_taken_out_from_elsewhere_while_the_reply_goes_on() {
    let mut screen = Screen::new(60, 30);
    told(&mut screen, &[asked(1, "t1", "one", None, false)]);
    think(&mut screen);
    told(&mut screen, &[asked(2, "t2", "two", None, true), asked(3, "t3", "three", None, true)]);
    let edited = json!({"turnId": "t2", "messageId": "t2", "message": "two, better"});
    let removed = json!({"turnId": "t3", "messageId": "t3", "removed": true});
    let reason = "taken out of the queue";
    let end = json!({"turnId": "t3", "reason": reason, "usage": {"tokens": 0, "cost": 0.0}});
    told(
        &mut screen,
        &[
            frame("queue_update", Some(4), edited),
            frame("queue_update", Some(5), removed),
            frame("interrupted", Some(6), end),
        ],
    );
    let shown = ["you", "  one", "· a message that waited was taken out", "you · queued", "  two, better"];
    assert_eq!(conversation(&mut screen), shown);
    assert!(screen.drawn().contains("thinking"));
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
    told(&mut screen, &[asked(1, "t1", "theirs", None, false)]);
    think(&mut screen);
    screen.frame("tool_approve_request", Some(2), request("c1", "rm -rf build"));
    screen.frame("audit_entry", Some(3), audit("c1", "cancelled"));
    screen.frame("agent_state", None, json!({"agentId": AGENT, "status": "idle", "role": "assistant"}));
    let usage = json!({"tokens": 1, "cost": 0.0});
    let end = json!({"turnId": "t1", "reason": "cancelled", "usage": usage});
    screen.frame("interrupted", Some(4), end);
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
