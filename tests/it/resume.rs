//! Extension `events.1`: hello, resuming from the log, going on live, and what a slow reader is told.

use serde_json::{Value, json};
use tns_protocol::log::MAX_SYNC_EVENTS;
use tns_server_core::agent::MAX_AGENTS;
use tns_server_core::scripted::{Beat, Gate, Script};
use tns_tests::socket::{of_type, text, types};
use tns_tests::{Socket, TestServer};

use crate::{call_id, say, setup, start, write_file};

/// Says hello to a session and returns what it is welcomed with.
async fn hello(socket: &mut Socket, fields: Value) -> Value {
    let mut fields = fields;
    fields["ext"] = json!(["events.1"]);
    socket.send("s", "hello", fields).await;
    socket.expect("welcome").await
}

/// Resumes and returns the events of the log up to the live ones, with the answer that ends it.
async fn resume(socket: &mut Socket, last_seq: u64) -> (Vec<Value>, Value) {
    socket.send("s", "resume", json!({ "lastSeq": last_seq, "reqId": "again" })).await;
    let mut events = socket.until("resumed").await;
    let resumed = events.pop().unwrap();
    (synced(&events), resumed)
}

/// Returns the events inside pages of the log, which must follow each other.
fn synced(frames: &[Value]) -> Vec<Value> {
    let mut all = Vec::new();
    let pages = of_type(frames, "history_sync");
    for (at, page) in pages.iter().enumerate() {
        assert_eq!(page["more"], json!(at + 1 < pages.len()), "{page}");
        all.extend(page["events"].as_array().unwrap().iter().cloned());
    }
    all
}

fn places(events: &[Value]) -> Vec<u64> {
    events.iter().filter_map(|event| event["seq"].as_u64()).collect()
}

#[tokio::test]
async fn hello_is_answered_with_the_store_and_the_end_of_the_log() {
    let server = start(Script::new().text("hi")).await;
    let mut socket = server.socket().await;
    socket.chat("s", "hello").await;
    let head = socket.expect("done").await["seq"].clone();
    let mut other = server.socket().await;
    other.send("s", "hello", json!({ "ext": ["later.9", "events.1"], "reqId": "h" })).await;
    let welcome = other.expect("welcome").await;
    assert_eq!(
        (&welcome["headSeq"], &welcome["ext"], &welcome["re"]),
        (&head, &json!(["events.1"]), &json!("h"))
    );
    assert!(welcome["epoch"].as_str().is_some_and(|epoch| !epoch.is_empty()));
    assert!(welcome.get("seq").is_none());
    server.stop().await;
}

#[tokio::test]
async fn what_belongs_to_the_extension_needs_a_hello_that_names_it() {
    let server = start(Script::new()).await;
    let mut socket = server.socket().await;
    for (type_name, fields) in
        [("resume", json!({ "lastSeq": 0 })), ("queue_list", json!({})), ("hello", json!({ "ext": ["x"] }))]
    {
        socket.send("s", type_name, fields).await;
        let error = socket.expect("error").await;
        assert_eq!((&error["code"], &error["refType"]), (&json!("INVALID_MESSAGE"), &json!(type_name)));
    }
    server.stop().await;
}

#[tokio::test]
async fn a_strict_connection_is_sent_no_type_of_the_extension() {
    let script = Script::new()
        .step([Beat::Reasoning("hm".into()), say("I look."), write_file("a", "b")])
        .step([say("done")]);
    let server = start(script).await;
    let (mut strict, mut extended) = (server.socket().await, server.socket().await);
    strict.send("s", "set_autonomy", json!({ "level": "FULL_AUTO" })).await;
    strict.expect("autonomy_changed").await;
    hello(&mut extended, json!({})).await;
    strict.chat("s", "go").await;
    let shown = strict.until("done").await;
    for event in &shown {
        let at = tns_protocol::ServerMessage::TYPES.iter().position(|name| event["type"] == *name).unwrap();
        assert!(at < tns_protocol::ServerMessage::V1_TYPES, "{event}");
    }
    let all = extended.until("done").await;
    assert_eq!(
        types(&all),
        [
            "user_message",
            "session_updated",
            "agent_state",
            "response_start",
            "reasoning_start",
            "reasoning_delta",
            "token",
            "agent_state",
            "tool_pending",
            "assistant_message",
            "audit_entry",
            "tool_start",
            "tool_result",
            "token",
            "assistant_message",
            "response_end",
            "agent_state",
            "done"
        ]
    );
    let response = &of_type(&all, "response_start")[0]["responseId"];
    for type_name in ["token", "reasoning_delta", "tool_pending", "assistant_message", "response_end"] {
        assert!(of_type(&all, type_name).iter().all(|event| event["responseId"] == *response), "{type_name}");
    }
    let places_of = |events: &[Value]| {
        of_type(events, "token").iter().map(|event| event["index"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(places_of(&all), [json!(0), json!(7)]);
    server.stop().await;
}

#[tokio::test]
async fn a_resume_has_every_event_once_and_then_goes_on_live() {
    let server = start(Script::new().text("one").text("two").text("three")).await;
    let mut socket = server.socket().await;
    hello(&mut socket, json!({})).await;
    for words in ["a", "b"] {
        socket.chat("s", words).await;
        socket.until("done").await;
    }
    let mut other = server.socket().await;
    let welcome = hello(&mut other, json!({ "lastSeq": 0 })).await;
    let head = welcome["headSeq"].as_u64().unwrap();
    let frames = other.until("resumed").await;
    let whole = synced(&frames);
    assert_eq!(places(&whole), (1..=head).collect::<Vec<_>>());
    for after in 0..=head {
        let (events, resumed) = resume(&mut other, after).await;
        assert_eq!(events, whole[after as usize..], "after {after}");
        assert_eq!((&resumed["headSeq"], &resumed["pendingApprovals"]), (&json!(head), &json!([])));
        assert_eq!(resumed["re"], "again");
        assert!(resumed.get("active").is_none());
    }
    socket.chat("s", "c").await;
    let live = other.until("done").await;
    assert_eq!(places(&live), (head + 1..head + 1 + places(&live).len() as u64).collect::<Vec<_>>());
    server.stop().await;
}

#[tokio::test]
async fn who_comes_in_the_middle_of_a_reply_is_told_what_is_written_and_what_waits() {
    let gate = Gate::new();
    let script = Script::new().step([say("Let me "), say("write: "), write_file("a", "b")]).step([
        say("well, "),
        Beat::Gate(gate.clone()),
        say("done"),
    ]);
    let server = start(script).await;
    let mut socket = server.socket().await;
    socket.chat("s", "go").await;
    let request = socket.expect("tool_approve_request").await;
    let mut other = server.socket().await;
    hello(&mut other, json!({ "lastSeq": 0 })).await;
    let mut frames = other.until("resumed").await;
    let resumed = frames.pop().unwrap();
    // The step is stored, so nothing of it is told again; the request is in the log and waits.
    assert_eq!(resumed["active"]["textSoFar"], "");
    assert_eq!(resumed["active"]["index"], 14);
    assert_eq!(call_id(&resumed["pendingApprovals"][0]), call_id(&request));
    assert_eq!(of_type(&synced(&frames), "tool_approve_request").len(), 1);
    other.decide("s", call_id(&request), "approve").await;
    while text(&other.until("token").await) != "well, " {}
    let mut third = server.socket().await;
    hello(&mut third, json!({})).await;
    let (_, resumed) = resume(&mut third, 0).await;
    assert_eq!(
        (&resumed["active"]["textSoFar"], &resumed["active"]["index"]),
        (&json!("well, "), &json!(20))
    );
    gate.open();
    assert_eq!(text(&third.until("done").await), "done");
    server.stop().await;
}

#[tokio::test]
async fn a_place_of_another_log_asks_for_a_new_beginning() {
    let server = start(Script::new().text("x")).await;
    let mut socket = server.socket().await;
    let welcome = hello(&mut socket, json!({})).await;
    let head = welcome["headSeq"].as_u64().unwrap();
    for fields in [json!({ "lastSeq": head + 1 }), json!({ "lastSeq": 0, "epoch": "another" })] {
        socket.send("s", "resume", fields).await;
        let required = socket.expect("resync_required").await;
        assert_eq!((&required["headSeq"], &required["epoch"]), (&json!(head), &welcome["epoch"]));
    }
    socket.send("s", "resume", json!({ "lastSeq": head, "epoch": welcome["epoch"] })).await;
    socket.expect("resumed").await;
    server.stop().await;
}

#[tokio::test]
async fn pages_of_the_log_are_bounded_and_can_be_asked_for() {
    let setup = setup(Script::new());
    let server = TestServer::start(&setup).await;
    let mut socket = server.socket().await;
    hello(&mut socket, json!({})).await;
    let total = MAX_SYNC_EVENTS + 1;
    for at in 0..total {
        // Within what a connection may send in a second.
        let level = if at % 2 == 0 { "MANUAL" } else { "CAUTIOUS" };
        let rest = server.rest();
        rest.kb_add(tns_protocol::rest::KbAddRequest {
            session_id: tns_tests::session("s"),
            content: format!("{at} {level}"),
            metadata: None,
            scope: Default::default(),
        })
        .await
        .unwrap();
        if at % 64 == 0 {
            socket.settle("s").await;
        }
    }
    socket.settle("s").await;
    socket.send("s", "resume", json!({ "lastSeq": 0 })).await;
    let frames = socket.until("resumed").await;
    let sizes: Vec<_> = of_type(&frames, "history_sync")
        .iter()
        .map(|page| page["events"].as_array().unwrap().len())
        .collect();
    assert_eq!(sizes, [MAX_SYNC_EVENTS, 1]);
    assert_eq!(places(&synced(&frames)), (1..=total as u64).collect::<Vec<_>>());
    for (fields, from, to, more) in [
        (json!({ "limit": 2 }), 1, 2, true),
        (json!({ "beforeSeq": 10, "limit": 3 }), 7, 9, true),
        (json!({ "afterSeq": total - 1, "limit": 5 }), total, total, false),
        (json!({ "afterSeq": 3, "beforeSeq": 6 }), 4, 5, false),
        (json!({ "afterSeq": total }), total + 1, total, false),
    ] {
        socket.send("s", "history_get", fields.clone()).await;
        let page = socket.expect("history_sync").await;
        assert_eq!((&page["fromSeq"], &page["toSeq"]), (&json!(from), &json!(to)), "{fields}");
        assert_eq!(page["more"], json!(more), "{fields}");
    }
    for limit in [0, MAX_SYNC_EVENTS + 1] {
        socket.send("s", "history_get", json!({ "limit": limit })).await;
        assert_eq!(socket.error_code().await, "INVALID_MESSAGE");
    }
    server.stop().await;
}

#[tokio::test]
async fn what_waits_over_a_restart_does_not_begin_for_a_client_that_only_looks() {
    let script = Script::new().step([say("one"), Beat::Gate(Gate::new())]).text("two");
    let setup = setup(script);
    let server = TestServer::start(&setup).await;
    let mut socket = server.socket().await;
    socket.chat("s", "first").await;
    socket.expect("token").await;
    socket.chat("s", "second").await;
    socket.settle("s").await;
    server.stop().await;
    let server = TestServer::start(&setup).await;
    let mut watcher = server.socket().await;
    hello(&mut watcher, json!({ "watch": true, "lastSeq": 0 })).await;
    watcher.until("resumed").await;
    watcher.send("s", "queue_list", json!({})).await;
    assert_eq!(watcher.expect("queue_list_result").await["messages"].as_array().unwrap().len(), 1);
    assert_eq!(setup.script.requests().len(), 1);
    let mut socket = server.socket().await;
    hello(&mut socket, json!({})).await;
    watcher.until("done").await;
    assert_eq!(setup.script.requests().len(), 2);
    server.stop().await;
}

#[tokio::test]
async fn what_waits_can_be_listed_edited_and_taken_out() {
    let gate = Gate::new();
    let script = Script::new().step([say("one"), Beat::Gate(gate.clone())]).text("two");
    let setup = setup(script);
    let server = TestServer::start(&setup).await;
    let mut socket = server.socket().await;
    hello(&mut socket, json!({})).await;
    socket.chat("s", "first").await;
    socket.expect("token").await;
    let mut ids = Vec::new();
    for words in ["second", "third"] {
        socket.chat("s", words).await;
        ids.push(socket.expect("user_message").await["messageId"].as_str().unwrap().to_owned());
    }
    socket.send("s", "queue_edit", json!({ "messageId": ids[0], "message": "second, better" })).await;
    assert_eq!(socket.expect("queue_update").await["message"], "second, better");
    socket.send("s", "queue_remove", json!({ "messageId": ids[1] })).await;
    let update = socket.expect("queue_update").await;
    assert_eq!((&update["removed"], &update["turnId"]), (&json!(true), &json!(ids[1])));
    let end = socket.expect("interrupted").await;
    assert_eq!((&end["turnId"], &end["reason"]), (&json!(ids[1]), &json!("taken out of the queue")));
    socket.send("s", "queue_list", json!({})).await;
    let list = socket.expect("queue_list_result").await;
    assert_eq!(list["messages"], json!([{ "messageId": ids[0], "message": "second, better" }]));
    for (type_name, fields) in [
        ("queue_edit", json!({ "messageId": ids[1], "message": "x" })),
        ("queue_remove", json!({ "messageId": "nobody" })),
    ] {
        socket.send("s", type_name, fields).await;
        assert_eq!(socket.error_code().await, "NOT_FOUND");
    }
    socket.send("s", "queue_edit", json!({ "messageId": ids[0], "message": " " })).await;
    assert_eq!(socket.error_code().await, "INVALID_MESSAGE");
    gate.open();
    socket.until("done").await;
    socket.until("done").await;
    let asked: Vec<String> =
        setup.script.requests().iter().map(|request| format!("{:?}", request.messages.last())).collect();
    assert_eq!(asked.len(), 2);
    assert!(asked[1].contains("second, better") && !asked[1].contains("third"), "{}", asked[1]);
    server.stop().await;
}

#[tokio::test]
async fn an_agent_changes_from_its_next_turn_on_and_keeps_its_id() {
    let server = start(Script::new().text("one").text("two")).await;
    let mut socket = server.socket().await;
    hello(&mut socket, json!({})).await;
    let id = server.rest().session(&tns_tests::session("s")).await.unwrap().agents[0].agent_id.to_string();
    let fields = json!({ "agentId": id, "name": "Ann", "model": "other", "goal": "be brief" });
    socket.send("s", "agent_update", fields).await;
    let team = socket.expect("team_update").await;
    let agent = &team["agents"][0];
    assert_eq!(
        (&agent["agentId"], &agent["name"], &agent["model"], &agent["goal"]),
        (&json!(id), &json!("Ann"), &json!("other"), &json!("be brief"))
    );
    for (fields, code) in [
        (json!({ "agentId": "nobody-1" }), "AGENT_NOT_FOUND"),
        (json!({ "agentId": id, "provider": "nobody" }), "AGENT_ADD_FAILED"),
        (json!({ "agentId": id, "name": "" }), "INVALID_MESSAGE"),
    ] {
        socket.send("s", "agent_update", fields).await;
        assert_eq!(socket.error_code().await, code);
    }
    socket.chat("s", "go").await;
    socket.until("done").await;
    server.stop().await;
}

#[tokio::test]
async fn a_reader_that_stops_is_told_that_it_lags_and_resumes_without_loss() {
    let server = start(Script::new()).await;
    let mut socket = server.socket().await;
    hello(&mut socket, json!({})).await;
    // More than an outbox and the kernel's buffers take, while this socket reads nothing.
    // The roster goes out whole each time, so its size grows with every agent: 15 MiB together.
    let goal = "x".repeat(128 << 10);
    let added = MAX_AGENTS as u64 - 1;
    let mut writer = server.socket().await;
    writer.join("s").await;
    for at in 0..added {
        writer.send("s", "agent_add", json!({ "role": format!("r{at}"), "goal": goal })).await;
        writer.expect("team_update").await;
    }
    let mut last = 0;
    let head = loop {
        let event = socket.next().await;
        if event["type"] == "lagged" {
            break event["headSeq"].as_u64().unwrap();
        }
        if let Some(seq) = event["seq"].as_u64() {
            assert_eq!(seq, last + 1);
            last = seq;
        }
    };
    assert_eq!(head, added);
    let (events, resumed) = resume(&mut socket, last).await;
    assert_eq!(places(&events), (last + 1..=head).collect::<Vec<_>>());
    assert_eq!(resumed["headSeq"], json!(head));
    writer.send("s", "set_autonomy", json!({ "level": "MANUAL" })).await;
    assert_eq!(socket.expect("autonomy_changed").await["seq"], json!(head + 1));
    server.stop().await;
}
