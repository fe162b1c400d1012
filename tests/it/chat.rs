//! One conversation over `/chat`: streaming, order of events, several clients, cancel, queue, resend.

use std::time::Duration;

use serde_json::json;
use tns_server_core::engine::EngineErrorKind;
use tns_server_core::scripted::{Beat, Gate, Script, call};
use tns_tests::socket::{text, types};

use crate::{say, start};

#[tokio::test]
async fn a_reply_streams_between_thinking_and_idle_and_ends_with_done() {
    let server = start(Script::new().step([say("Hel"), say("lo")])).await;
    let mut socket = server.socket().await;
    socket.chat("s", "hi").await;
    let events = socket.until("done").await;
    assert_eq!(types(&events), ["agent_state", "token", "agent_state", "done"]);
    assert_eq!(text(&events), "Hello");
    assert_eq!(events[0]["status"], "thinking");
    assert_eq!(events[0]["provider"], "scripted");
    assert_eq!(events[3]["status"], "idle");
    let done = &events[4];
    assert_eq!(done["usage"], json!({ "tokens": 2, "cost": 0.0 }));
    assert_eq!(done["stopReason"], "end");
    // The user's message is 1, the title that it gives the session 2, the reply 3, the end 4; live events have no
    // place.
    assert_eq!(done["seq"], 4);
    assert!(events[1].get("seq").is_none());
    for event in &events {
        assert_eq!(event["v"], 1);
        assert_eq!(event["sessionId"], "s");
        assert!(event["date"].as_str().unwrap().ends_with('Z'));
    }
}

#[tokio::test]
async fn two_clients_of_a_session_see_the_same_events() {
    let gate = Gate::new();
    let server = start(Script::new().step([say("a"), Beat::Gate(gate.clone()), say("b")])).await;
    let (mut one, mut two) = (server.socket().await, server.socket().await);
    two.send("s", "kb_list", json!({})).await;
    two.expect("kb_list_result").await;
    one.chat("s", "hi").await;
    gate.open();
    let seen = one.until("done").await;
    assert_eq!(seen, two.until("done").await);
    assert_eq!(text(&seen), "ab");
}

#[tokio::test]
async fn one_connection_may_use_several_sessions() {
    let server = start(Script::new().text("one").text("two")).await;
    let mut socket = server.socket().await;
    socket.chat("a", "hi").await;
    assert!(socket.until("done").await.iter().all(|event| event["sessionId"] == "a"));
    socket.chat("b", "hi").await;
    assert!(socket.until("done").await.iter().all(|event| event["sessionId"] == "b"));
}

#[tokio::test]
async fn cancel_keeps_what_was_shown_and_the_session_works_on() {
    let gate = Gate::new();
    let script = Script::new().step([say("part"), Beat::Gate(gate), say("never")]).text("next");
    let server = start(script.clone()).await;
    let mut socket = server.socket().await;
    socket.chat("s", "hi").await;
    socket.expect("token").await;
    socket.send("s", "cancel", json!({})).await;
    let events = socket.until("done").await;
    assert_eq!(types(&events), ["agent_state", "done"]);
    assert_eq!(events[1]["cancelled"], true);
    socket.chat("s", "again").await;
    assert_eq!(text(&socket.until("done").await), "next");
    // The model is shown what was written, marked as cut.
    let last = script.requests().pop().unwrap();
    let shown = format!("{:?}", last.messages);
    assert!(shown.contains("part") && shown.contains("cut before its end"), "{shown}");
}

#[tokio::test]
async fn cancel_with_nothing_running_does_nothing() {
    let server = start(Script::new().text("hi")).await;
    let mut socket = server.socket().await;
    socket.chat("s", "hi").await;
    socket.until("done").await;
    socket.send("s", "cancel", json!({})).await;
    assert_eq!(socket.settle("s").await, [] as [serde_json::Value; 0]);
}

#[tokio::test]
async fn a_message_during_a_reply_waits_for_its_own_turn() {
    let gate = Gate::new();
    let script = Script::new().step([say("first"), Beat::Gate(gate.clone())]).text("second");
    let server = start(script.clone()).await;
    let (mut one, mut two) = (server.socket().await, server.socket().await);
    one.chat("s", "A").await;
    one.expect("token").await;
    two.chat("s", "B").await;
    two.settle("s").await;
    gate.open();
    let first = one.until("done").await;
    assert_eq!(types(&first), ["agent_state", "done"]);
    let second = one.until("done").await;
    assert_eq!(types(&second), ["agent_state", "token", "agent_state", "done"]);
    assert_eq!(text(&second), "second");
    let requests = script.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0].messages.len(), 1);
    assert_eq!(requests[1].messages.len(), 3);
}

#[tokio::test]
async fn the_queue_is_bounded() {
    let gate = Gate::new();
    let server = start(Script::new().step([Beat::Gate(gate)])).await;
    let mut socket = server.socket().await;
    for at in 0..=tns_server_core::session::MAX_QUEUED {
        socket.chat("s", &format!("m{at}")).await;
    }
    assert!(socket.settle("s").await.iter().all(|event| event["type"] != "error"));
    socket.chat("s", "one too many").await;
    assert_eq!(socket.expect("error").await["code"], "QUEUE_FULL");
}

#[tokio::test]
async fn the_same_client_message_id_starts_no_second_turn() {
    let script = Script::new().text("once").text("twice");
    let server = start(script.clone()).await;
    let mut socket = server.socket().await;
    let chat = json!({ "message": "hi", "clientMessageId": "m-1" });
    socket.send("s", "chat", chat.clone()).await;
    socket.until("done").await;
    socket.send("s", "chat", chat).await;
    assert_eq!(socket.settle("s").await, [] as [serde_json::Value; 0]);
    socket.chat("s", "another").await;
    assert_eq!(text(&socket.until("done").await), "twice");
    assert_eq!(server.rest().session(&tns_tests::session("s")).await.unwrap().head_seq, 7);
}

#[tokio::test]
async fn a_failing_engine_ends_the_turn_with_its_code_and_the_next_one_works() {
    let fail = Beat::Fail(EngineErrorKind::RateLimited, "slow down; try in 2 s".into());
    let server = start(Script::new().step([say("Part"), fail]).text("fine")).await;
    let mut socket = server.socket().await;
    socket.chat("s", "hi").await;
    let events = socket.until("error").await;
    assert_eq!(types(&events), ["agent_state", "token", "agent_state", "error"]);
    assert_eq!(events[3]["code"], "RATE_LIMITED");
    assert_eq!(events[3]["message"], "slow down; try in 2 s");
    assert!(events[3]["seq"].is_u64());
    socket.chat("s", "again").await;
    assert_eq!(text(&socket.until("done").await), "fine");
}

#[tokio::test]
async fn a_reply_goes_on_while_nobody_is_connected() {
    let gate = Gate::new();
    let server = start(Script::new().step([say("a"), Beat::Gate(gate.clone()), say("b")])).await;
    let mut socket = server.socket().await;
    socket.chat("s", "hi").await;
    socket.expect("token").await;
    drop(socket);
    gate.open();
    let rest = server.rest();
    let id = tns_tests::session("s");
    let stored = loop {
        let detail = rest.session(&id).await.unwrap();
        if !detail.running {
            break rest.messages(&id, 0, None).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!(stored.messages[1].content, "ab");
}

#[tokio::test]
async fn twenty_thousand_pieces_arrive_whole_and_in_order() {
    let pieces: Vec<String> = (0..20_000).map(|at| format!("{at} ")).collect();
    let server = start(Script::new().step(pieces.iter().map(|piece| say(piece)))).await;
    let mut socket = server.socket().await;
    socket.chat("s", "hi").await;
    assert_eq!(text(&socket.until("done").await), pieces.concat());
}

#[tokio::test]
async fn the_turn_ends_at_its_round_limit_with_what_the_model_says_without_tools() {
    let mut script = Script::new();
    for _ in 0..2 {
        script = script.step([call("list_dir", json!({}))]);
    }
    let mut setup = crate::setup(script.text("that is all"));
    setup.limits.rounds = 3;
    let server = tns_tests::TestServer::start(&setup).await;
    let mut socket = server.socket().await;
    socket.chat("s", "go").await;
    let done = socket.until("done").await.pop().unwrap();
    assert_eq!(done["stopReason"], "round_limit");
    let requests = setup.script.requests();
    assert_eq!(requests.len(), 3);
    assert!(!requests[1].tools.is_empty() && requests[2].tools.is_empty());
}
