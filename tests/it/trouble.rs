//! Clients that leave at once, stores that fail, events that are large: nothing hangs and nothing is lost.

mod each_call;
mod walk;

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tns_protocol::MessageId;
use tns_protocol::approval::{AuditDecision, AutonomyLevel};
use tns_protocol::{Day, Timestamp};
use tns_server_core::event::{DurableEvent, UserMessage};
use tns_server_core::message::Part;
use tns_server_core::recovery;
use tns_server_core::scripted::{Beat, Gate, Script, call};
use tns_server_core::store::{
    Append, EventQuery, LOCAL_PRINCIPAL, NewEvent, OpenTurn, Store, StoreError, StoredEvent,
};
use tns_tests::socket::{text, types};
use tns_tests::troubled_store::{Call, TroubledStore};
use tns_tests::{Setup, TestServer, session};

use crate::{say, setup};

async fn troubled(setup: &Setup, commit: Duration) -> (TestServer, Arc<TroubledStore>) {
    let store = Arc::new(TroubledStore::new(setup.store.clone(), commit));
    (TestServer::start_over(setup, store.clone(), setup.store.clone()).await, store)
}

/// Returns the log of session `s` once its last turn has ended.
async fn ended_log(setup: &Setup) -> Vec<StoredEvent> {
    let store = &setup.store;
    loop {
        if let Some(record) = store.find_session(LOCAL_PRINCIPAL, &session("s")).await.unwrap() {
            let query = EventQuery::default();
            let events = store.events(record.key, query).await.unwrap().events;
            if events.last().is_some_and(|row| row.event.ends_turn()) && record.state.open_turns.is_empty() {
                return events;
            }
        }
        tokio::task::yield_now().await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_message_of_a_client_that_leaves_at_once_is_answered() {
    let setup = setup(Script::new().text("answered"));
    let (server, _store) = troubled(&setup, Duration::from_millis(20)).await;
    let mut socket = server.socket().await;
    socket.chat("s", "hi").await;
    drop(socket);
    let log = ended_log(&setup).await;
    assert!(matches!(log.last().unwrap().event, DurableEvent::Done(_)), "{log:?}");
}

#[tokio::test]
async fn full_auto_does_not_outlive_the_flag_that_allowed_it() {
    let mut setup = setup(Script::new().call("shell", json!({ "command": "touch made" })).text("done"));
    let server = TestServer::start(&setup).await;
    let mut socket = server.socket().await;
    socket.send("s", "set_autonomy", json!({ "level": "FULL_AUTO" })).await;
    socket.expect("autonomy_changed").await;
    server.stop().await;
    setup.unsandboxed = false;
    let server = TestServer::start(&setup).await;
    let detail = server.rest().session(&session("s")).await.unwrap();
    assert_eq!(detail.autonomy, AutonomyLevel::Supervised);
    let mut socket = server.socket().await;
    socket.chat("s", "go").await;
    socket.expect("tool_approve_request").await;
    assert!(!server.workspace().join("made").exists());
}

#[tokio::test]
async fn a_store_that_fails_mid_turn_ends_it_and_the_next_turn_works() {
    let gate = Gate::new();
    let script = Script::new().step([say("part"), Beat::Gate(gate.clone())]).text("fine");
    let setup = setup(script);
    let (server, store) = troubled(&setup, Duration::ZERO).await;
    let mut socket = server.socket().await;
    socket.chat("s", "one").await;
    socket.expect("token").await;
    store.fail_with(Some(StoreError::Full));
    gate.open();
    let events = socket.until("error").await;
    assert_eq!(types(&events), ["agent_state", "error"]);
    assert_eq!(events[1]["code"], "STORAGE_FULL");
    assert!(events[1].get("seq").is_none() && events[1].get("refType").is_none());
    assert!(events[1]["turnId"].is_string());
    // Refused, since it could not be stored; nothing is begun.
    socket.chat("s", "two").await;
    let refused = socket.expect("error").await;
    assert_eq!((&refused["code"], &refused["refType"]), (&json!("STORAGE_FULL"), &json!("chat")));
    store.fail_with(None);
    socket.chat("s", "three").await;
    let events = socket.until("done").await;
    assert_eq!(text(&events), "fine");
    // The first turn has its one end now, before the next one begins.
    let log = ended_log(&setup).await;
    let ends: Vec<bool> = log
        .iter()
        .filter(|row| row.event.ends_turn())
        .map(|row| matches!(row.event, DurableEvent::TurnFailed(_)))
        .collect();
    assert_eq!(ends, [true, false]);
}

#[tokio::test]
async fn a_turn_whose_end_was_not_stored_is_ended_when_somebody_comes_back() {
    let gate = Gate::new();
    let setup = setup(Script::new().step([say("part"), Beat::Gate(gate.clone())]));
    let (server, store) = troubled(&setup, Duration::ZERO).await;
    let mut socket = server.socket().await;
    socket.chat("s", "one").await;
    socket.expect("token").await;
    store.fail_with(Some(StoreError::Busy));
    gate.open();
    assert_eq!(socket.expect("error").await["code"], "STORAGE_BUSY");
    drop(socket);
    store.fail_with(None);
    let mut socket = server.socket().await;
    socket.send("s", "kb_list", json!({})).await;
    socket.expect("kb_list_result").await;
    let log = ended_log(&setup).await;
    assert_eq!(log.iter().filter(|row| row.event.ends_turn()).count(), 1);
}

/// Returns the calls whose approval was asked for and never settled.
fn unsettled(log: &[StoredEvent]) -> usize {
    let count = |wanted: fn(&DurableEvent) -> bool| log.iter().filter(|row| wanted(&row.event)).count();
    count(|event| matches!(event, DurableEvent::ApprovalRequested(_)))
        - count(|event| matches!(event, DurableEvent::ApprovalResolved(_)))
}

#[tokio::test]
async fn an_approval_that_waits_when_the_server_dies_is_settled_in_the_log() {
    let setup = setup(Script::new().call("shell", json!({ "command": "touch made" })));
    let server = TestServer::start(&setup).await;
    let mut socket = server.socket().await;
    socket.chat("s", "go").await;
    socket.expect("tool_approve_request").await;
    // Dropped, the server is gone as in a crash.
    drop(server);
    let server = TestServer::start(&setup).await;
    let log = ended_log(&setup).await;
    assert_eq!(unsettled(&log), 0, "{log:?}");
    let audit = server.rest().audit(&session("s")).await.unwrap();
    assert_eq!(audit.entries.last().unwrap().decision, AuditDecision::Cancelled);
}

#[tokio::test]
async fn an_approval_that_waits_when_the_store_fails_is_settled_when_it_works_again() {
    let setup = setup(Script::new().call("shell", json!({ "command": "touch made" })).text("fine"));
    let (server, store) = troubled(&setup, Duration::ZERO).await;
    let mut socket = server.socket().await;
    socket.chat("s", "go").await;
    let request = socket.expect("tool_approve_request").await;
    store.fail_with(Some(StoreError::Full));
    socket.decide("s", request["toolCallId"].as_str().unwrap(), "approve").await;
    assert_eq!(socket.expect("error").await["code"], "STORAGE_FULL");
    // The answer was refused, so the call goes on waiting; the cancel ends it, though nothing can be stored.
    socket.send("s", "cancel", json!({})).await;
    socket.expect("error").await;
    store.fail_with(None);
    socket.chat("s", "again").await;
    socket.expect("done").await;
    let log = ended_log(&setup).await;
    assert_eq!(unsettled(&log), 0, "{log:?}");
    assert!(!server.workspace().join("made").exists());
}

#[tokio::test]
async fn a_message_that_was_refused_may_be_sent_again() {
    let setup = setup(Script::new().text("unseen").text("answered"));
    let (server, store) = troubled(&setup, Duration::ZERO).await;
    let mut socket = server.socket().await;
    socket.send("s", "kb_list", json!({})).await;
    socket.expect("kb_list_result").await;
    let chat = json!({ "message": "hi", "clientMessageId": "m-1" });
    store.fail_with(Some(StoreError::Busy));
    socket.send("s", "chat", chat.clone()).await;
    assert_eq!(socket.expect("error").await["code"], "STORAGE_BUSY");
    store.fail_with(None);
    socket.send("s", "chat", chat).await;
    assert!(!text(&socket.until("done").await).is_empty());
}

#[tokio::test]
async fn one_large_event_does_not_cost_a_healthy_reader_its_connection() {
    let content = "x".repeat(3 << 20);
    let script =
        Script::new().call("file_write", json!({ "path": "big.txt", "content": content })).text("done");
    let setup = setup(script);
    let server = TestServer::start(&setup).await;
    let mut socket = server.socket().await;
    socket.send("s", "set_autonomy", json!({ "level": "FULL_AUTO" })).await;
    socket.chat("s", "write").await;
    let events = socket.until("done").await;
    let start = events.iter().find(|event| event["type"] == "tool_start").unwrap();
    assert_eq!(start["args"]["content"].as_str().unwrap().len(), content.len());
    assert_eq!(std::fs::read(server.workspace().join("big.txt")).unwrap().len(), content.len());
}

#[tokio::test]
async fn a_resend_does_not_call_the_model_again() {
    let setup = setup(Script::new().text("once").text("twice"));
    let server = TestServer::start(&setup).await;
    let mut socket = server.socket().await;
    let chat = json!({ "message": "hi", "clientMessageId": "m-1" });
    socket.send("s", "chat", chat.clone()).await;
    socket.until("done").await;
    socket.send("s", "chat", chat).await;
    socket.settle("s").await;
    assert_eq!(setup.script.requests().len(), 1);
}

#[tokio::test]
async fn other_words_under_a_used_id_are_refused_though_the_server_was_started_anew() {
    let setup = setup(Script::new().text("once"));
    let server = TestServer::start(&setup).await;
    let mut socket = server.socket().await;
    let chat = |words: &str| json!({ "message": words, "clientMessageId": "m-1", "reqId": "r" });
    socket.send("s", "chat", chat("hi")).await;
    socket.until("done").await;
    server.stop().await;
    // It remembers no id, so the store is who knows.
    let server = TestServer::start(&setup).await;
    let mut socket = server.socket().await;
    for _ in 0..2 {
        socket.send("s", "chat", chat("bye")).await;
        let error = socket.expect("error").await;
        assert_eq!(
            (&error["code"], &error["refType"], &error["re"]),
            (&json!("INVALID_MESSAGE"), &json!("chat"), &json!("r"))
        );
    }
    socket.send("s", "chat", chat("hi")).await;
    let events = socket.settle("s").await;
    assert!(!types(&events).contains(&"error"), "{events:?}");
    assert_eq!(setup.script.requests().len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn a_message_for_an_agent_that_was_removed_is_its_heirs_own_conversation() {
    let gate = Gate::new();
    let script = Script::new()
        .step([Beat::Gate(gate.clone()), say("first")])
        .step([call("list_dir", json!({}))])
        .text("listed")
        .text("more");
    let setup = setup(script);
    let server = TestServer::start(&setup).await;
    let mut socket = server.socket().await;
    socket.send("s", "agent_add", json!({ "role": "reviewer" })).await;
    let team = socket.expect("team_update").await;
    let reviewer = team["agents"][1]["agentId"].clone();
    socket.chat("s", "one").await;
    socket.expect("agent_state").await;
    socket.send("s", "chat", json!({ "message": "two", "agentId": reviewer })).await;
    socket.send("s", "agent_remove", json!({ "agentId": reviewer })).await;
    socket.expect("team_update").await;
    gate.open();
    socket.until("done").await;
    socket.until("done").await;
    socket.chat("s", "three").await;
    socket.until("done").await;
    let last = setup.script.requests().pop().unwrap();
    let shown = format!("{:?}", last.messages);
    assert!(shown.contains("ToolCall(") && shown.contains("ToolResult("), "{shown}");
    assert!(!shown.contains("answered:"), "{shown}");
}

#[tokio::test]
async fn a_turn_whose_end_can_not_be_stored_is_ended_before_the_next_begins() {
    let gate = Gate::new();
    let setup = setup(Script::new().step([say("part"), Beat::Gate(gate.clone())]).text("fine"));
    let (server, store) = troubled(&setup, Duration::ZERO).await;
    let mut socket = server.socket().await;
    socket.chat("s", "one").await;
    socket.expect("token").await;
    store.fail_with(Some(StoreError::Busy));
    gate.open();
    socket.expect("error").await;
    store.fail_with(None);
    // The end of the first turn can't be stored once more, what follows can.
    store.fail_once(Call::Append, 0, StoreError::Busy);
    socket.chat("s", "two").await;
    socket.until("done").await;
    let log = ended_log(&setup).await;
    let turns = log.iter().filter(|row| row.event.ends_turn()).map(|row| row.turn.clone());
    let asked = log.iter().filter_map(|row| match &row.event {
        DurableEvent::UserMessage(message) => Some(Some(message.id.clone())),
        _ => None,
    });
    assert_eq!(turns.collect::<Vec<_>>(), asked.collect::<Vec<_>>());
    server.stop().await;
}

#[tokio::test]
async fn a_start_that_fails_between_two_lost_turns_leaves_the_second_one_to_the_next_start() {
    let setup = setup(Script::new().step([say("part"), Beat::Gate(Gate::new())]));
    let (server, store) = troubled(&setup, Duration::ZERO).await;
    let mut socket = server.socket().await;
    socket.chat("s", "one").await;
    socket.expect("token").await;
    drop(server);
    let record = setup.store.find_session(LOCAL_PRINCIPAL, &session("s")).await.unwrap().unwrap();
    // Of another turn, the end was lost to a failing store before.
    let mut state = record.state.clone();
    let lost = MessageId::parse("lost").unwrap();
    let agent = state.agents[0].id.clone();
    state.open_turns.push(OpenTurn { id: lost.clone(), agent: agent.clone(), waiting: false });
    let asked = UserMessage {
        id: lost.clone(),
        agent,
        parts: vec![Part::Text("two".to_owned())],
        client_message_id: None,
        context: None,
        queued: false,
        during: None,
    };
    let asked = NewEvent { turn: Some(lost), event: DurableEvent::UserMessage(asked) };
    let append = Append { state: Some(state), ..Append::new(record.key, vec![asked]) };
    setup.store.append(append).await.unwrap();
    let open = || async {
        let record = setup.store.find_session(LOCAL_PRINCIPAL, &session("s")).await.unwrap().unwrap();
        record.state.open_turns.len()
    };
    assert_eq!(open().await, 2);
    store.fail_once(Call::Append, 1, StoreError::Full);
    assert_eq!(recovery::end_open_turns(store.as_ref()).await, Err(StoreError::Full));
    assert_eq!(open().await, 1);
    assert_eq!(recovery::end_open_turns(store.as_ref()).await, Ok(1));
    let log = ended_log(&setup).await;
    assert_eq!(log.iter().filter(|row| row.event.ends_turn()).count(), 2);
}

#[tokio::test]
async fn a_turn_whose_draft_cant_be_read_is_ended_without_it() {
    let gate = Gate::new();
    let setup = setup(Script::new().step([say("part"), Beat::Gate(gate.clone())]).text("fine"));
    let (server, store) = troubled(&setup, Duration::ZERO).await;
    let mut socket = server.socket().await;
    socket.chat("s", "one").await;
    socket.expect("token").await;
    store.fail_with(Some(StoreError::Full));
    gate.open();
    assert_eq!(socket.expect("error").await["code"], "STORAGE_FULL");
    // The session has tried to store the end in vain by then.
    socket.settle("s").await;
    store.fail_once(Call::Draft, 0, StoreError::Busy);
    store.fail_with(None);
    socket.chat("s", "two").await;
    assert_eq!(text(&socket.until("done").await), "fine");
    assert!(!store.failure_waits());
    let log = ended_log(&setup).await;
    assert_eq!(log.iter().filter(|row| row.event.ends_turn()).count(), 2);
}

#[tokio::test]
async fn a_message_that_waits_is_answered_when_the_store_works_again_though_its_sender_only_waits() {
    let gate = Gate::new();
    let script = Script::new().step([say("part"), Beat::Gate(gate.clone())]).text("answered");
    let setup = setup(script);
    let (server, store) = troubled(&setup, Duration::ZERO).await;
    let mut socket = server.socket().await;
    socket.chat("s", "one").await;
    socket.expect("token").await;
    socket.chat("s", "two").await;
    socket.settle("s").await;
    store.fail_with(Some(StoreError::Full));
    gate.open();
    assert_eq!(socket.expect("error").await["code"], "STORAGE_FULL");
    store.fail_with(None);
    assert_eq!(text(&socket.until("done").await), "answered");
}

#[tokio::test]
async fn a_database_that_another_process_holds_is_told_and_used_again_when_it_is_free() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tns.db");
    let store = Arc::new(tns_server_store::open(&file).unwrap());
    let gate = Gate::new();
    let setup = setup(Script::new().step([say("part"), Beat::Gate(gate.clone())]).text("fine"));
    let server = TestServer::start_over(&setup, store.clone(), store.clone()).await;
    let mut socket = server.socket().await;
    socket.chat("s", "one").await;
    socket.expect("token").await;
    let stranger = rusqlite::Connection::open(&file).unwrap();
    stranger.execute_batch("BEGIN IMMEDIATE").unwrap();
    gate.open();
    // After as long as a write waits for another process.
    assert_eq!(socket.expect("error").await["code"], "STORAGE_BUSY");
    stranger.execute_batch("ROLLBACK").unwrap();
    socket.chat("s", "two").await;
    assert_eq!(text(&socket.until("done").await), "fine");
    let key = store.find_session(LOCAL_PRINCIPAL, &session("s")).await.unwrap().unwrap().key;
    let log = store.events(key, EventQuery::default()).await.unwrap().events;
    let ends: Vec<bool> = log
        .iter()
        .filter(|row| row.event.ends_turn())
        .map(|row| matches!(row.event, DurableEvent::TurnFailed(_)))
        .collect();
    assert_eq!(ends, [true, false]);
}

#[tokio::test]
async fn what_a_temporary_session_used_is_added_up_when_the_store_takes_it_again() {
    let setup = setup(Script::new().text("one").text("two"));
    let (server, store) = troubled(&setup, Duration::ZERO).await;
    let new = json!({ "id": "s", "temp": true });
    let made = tns_tests::http::call(server.address(), "POST", "/api/sessions", Some(&new)).await;
    assert_eq!(made.status, 201);
    store.fail_once(Call::AddUsage, 0, StoreError::Full);
    let mut socket = server.socket().await;
    for _ in 0..2 {
        socket.chat("s", "go").await;
        socket.until("done").await;
    }
    assert!(!store.failure_waits());
    let today = Day::of(Timestamp::now());
    let rows = setup.store.usage(today..=today).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.steps).sum::<u64>(), 2);
}
