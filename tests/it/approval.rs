//! Approvals over `/chat`: who may answer, what an answer does, and how the others learn of it.

use std::time::Duration;

use serde_json::{Value, json};
use tns_protocol::approval::AuditDecision;
use tns_server_core::scripted::Script;
use tns_tests::socket::{of_type, text, types};
use tns_tests::{Socket, TestServer, results, session};

use crate::{call_id, shell, start, write_file};

/// Adds an agent and returns its id.
async fn add_agent(socket: &mut Socket, role: &str) -> String {
    socket.send("s", "agent_add", json!({ "role": role })).await;
    let team = socket.expect("team_update").await;
    team["agents"].as_array().unwrap().last().unwrap()["agentId"].as_str().unwrap().to_owned()
}

/// Waits until the session's turn is over, without being connected to it.
async fn until_idle(server: &TestServer) {
    let (rest, id) = (server.rest(), session("s"));
    while rest.session(&id).await.unwrap().running {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_call_keeps_one_id_from_its_request_to_its_result() {
    let server = start(Script::new().step([write_file("a.txt", "hi\n")]).text("written")).await;
    let mut socket = server.socket().await;
    socket.chat("s", "go").await;
    let mut events = socket.until("tool_approve_request").await;
    let id = call_id(events.last().unwrap()).to_owned();
    socket.decide("s", &id, "approve").await;
    events.extend(socket.until("done").await);
    let expected = [
        "agent_state",
        "agent_state",
        "tool_approve_request",
        "audit_entry",
        "tool_start",
        "tool_result",
        "token",
        "agent_state",
        "done",
    ];
    assert_eq!(types(&events), expected);
    for event in &events[2..6] {
        assert_eq!(call_id(event), id);
        assert_eq!(event["tool"], "file_write");
        assert_eq!(event["turnId"], events.last().unwrap()["turnId"]);
    }
    let args = json!({ "path": "a.txt", "content": "hi\n" });
    let request = &events[2];
    assert_eq!(request["args"], args);
    assert_eq!((&request["risk"], &request["riskClass"]), (&json!("medium"), &json!("WRITE")));
    assert_eq!(request["summary"], "write a.txt (3 bytes)");
    assert_eq!(request["diff"], "--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1 @@\n+hi\n");
    assert_eq!(request["alwaysCovers"], "every WRITE call of file_write in this session");
    assert_eq!((&events[3]["decision"], &events[3]["risk"]), (&json!("approved"), &json!("medium")));
    assert_eq!((&events[4]["args"], &events[4]["risk"]), (&args, &json!("medium")));
    assert_eq!(events[5]["result"], "wrote 3 bytes to a.txt");
    assert!(events[5]["duration"].is_u64());
    assert!(events[5].get("isError").is_none());
    let seqs: Vec<u64> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert!(seqs.is_sorted(), "{seqs:?}");
    assert_eq!(std::fs::read_to_string(server.workspace().join("a.txt")).unwrap(), "hi\n");
}

#[tokio::test]
async fn either_client_may_approve_and_the_other_sees_the_request_closed() {
    let server = start(Script::new().step([write_file("a.txt", "hi")]).text("written")).await;
    let (mut one, mut two) = (server.socket().await, server.socket().await);
    two.join("s").await;
    one.chat("s", "go").await;
    let request = one.expect("tool_approve_request").await;
    assert_eq!(two.expect("tool_approve_request").await, request);
    two.decide("s", call_id(&request), "approve").await;
    let closed = one.expect("audit_entry").await;
    assert_eq!((call_id(&closed), &closed["decision"]), (call_id(&request), &json!("approved")));
    assert_eq!(two.expect("audit_entry").await, closed);
    assert_eq!(one.until("done").await, two.until("done").await);
    one.decide("s", call_id(&request), "reject").await;
    assert_eq!(one.error_code().await, "UNKNOWN_TOOL_CALL");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_hundred_opposite_answers_at_once_one_each_counts() {
    const ROUNDS: usize = 100;
    let mut script = Script::new();
    for _ in 0..ROUNDS {
        script = script.step([shell("echo ran >> log")]).text("next");
    }
    let server = start(script.clone()).await;
    let (mut one, mut two) = (server.socket().await, server.socket().await);
    let mut asker = server.socket().await;
    one.join("s").await;
    two.join("s").await;
    let mut approved = 0;
    for round in 0..ROUNDS {
        asker.chat("s", "go").await;
        let request = one.expect("tool_approve_request").await;
        two.expect("tool_approve_request").await;
        let id = call_id(&request);
        let approve = one.decide("s", id, "approve");
        let reject = two.decide("s", id, "reject");
        // Each is the first one to be sent in half of the rounds.
        if round % 2 == 0 {
            tokio::join!(approve, reject);
        } else {
            tokio::join!(reject, approve);
        }
        let (seen_by_one, seen_by_two) = tokio::join!(one.until("done"), two.until("done"));
        let audits = of_type(&seen_by_one, "audit_entry");
        assert_eq!(audits.len(), 1);
        let approve_won = audits[0]["decision"] == "approved";
        assert!(approve_won || audits[0]["decision"] == "rejected");
        let runs = usize::from(approve_won);
        assert_eq!(of_type(&seen_by_one, "tool_start").len(), runs);
        assert_eq!(of_type(&seen_by_one, "tool_result").len(), runs);
        approved += runs;
        let (winner, loser, seen_by_loser) = if approve_won {
            (&seen_by_one, &mut two, &seen_by_two)
        } else {
            (&seen_by_two, &mut one, &seen_by_one)
        };
        assert_eq!(of_type(winner, "error"), [] as [&Value; 0]);
        // Only the loser is told that its answer came too late, be it after the end of the turn.
        let error = match of_type(seen_by_loser, "error")[..] {
            [] => loser.expect("error").await,
            [error] => error.clone(),
            ref more => panic!("{more:?}"),
        };
        assert_eq!(
            (&error["code"], &error["refType"]),
            (&json!("UNKNOWN_TOOL_CALL"), &json!("tool_approve"))
        );
    }
    assert_eq!(one.settle("s").await, [] as [Value; 0]);
    assert_eq!(two.settle("s").await, [] as [Value; 0]);
    let log = std::fs::read_to_string(server.workspace().join("log")).unwrap_or_default();
    assert_eq!(log.lines().count(), approved);
    assert_eq!(script.requests().len(), 2 * ROUNDS);
}

#[tokio::test]
async fn a_second_answer_of_the_same_client_is_refused() {
    let server = start(Script::new().step([write_file("a.txt", "hi")]).text("ok")).await;
    let mut socket = server.socket().await;
    socket.chat("s", "go").await;
    let request = socket.expect("tool_approve_request").await;
    socket.decide("s", call_id(&request), "reject").await;
    socket.decide("s", call_id(&request), "approve").await;
    assert_eq!(socket.error_code().await, "UNKNOWN_TOOL_CALL");
    socket.settle("s").await;
    assert!(!server.workspace().join("a.txt").exists());
}

#[tokio::test]
async fn a_wrong_decision_leaves_the_call_waiting() {
    let server = start(Script::new().step([write_file("a.txt", "hi")]).text("ok")).await;
    let mut socket = server.socket().await;
    socket.chat("s", "go").await;
    let request = socket.expect("tool_approve_request").await;
    let id = call_id(&request).to_owned();
    for wrong in ["aprove", "APPROVE", "", "yes"] {
        socket.decide("s", &id, wrong).await;
        assert_eq!(socket.error_code().await, "INVALID_DECISION", "{wrong:?}");
    }
    socket.send("s", "tool_approve", json!({ "toolCallId": id })).await;
    assert_eq!(socket.error_code().await, "INVALID_MESSAGE");
    let pending = server.rest().session(&session("s")).await.unwrap().pending_approvals;
    assert_eq!(pending.iter().map(|call| call.tool_call_id.as_str()).collect::<Vec<_>>(), [id.as_str()]);
    socket.decide("s", &id, "approve").await;
    assert_eq!(of_type(&socket.until("done").await, "tool_result").len(), 1);
}

#[tokio::test]
async fn an_id_of_nowhere_or_of_another_session_changes_nothing() {
    let script = Script::new().step([write_file("a.txt", "hi")]).text("ok");
    let server = start(script).await;
    let mut socket = server.socket().await;
    socket.join("other").await;
    socket.chat("s", "go").await;
    let request = socket.expect("tool_approve_request").await;
    socket.decide("s", "call-nowhere", "approve").await;
    assert_eq!(socket.error_code().await, "UNKNOWN_TOOL_CALL");
    socket.decide("other", call_id(&request), "approve").await;
    let error = socket.expect("error").await;
    assert_eq!((&error["code"], &error["sessionId"]), (&json!("UNKNOWN_TOOL_CALL"), &json!("other")));
    socket.decide("missing", call_id(&request), "approve").await;
    assert_eq!(socket.error_code().await, "SESSION_NOT_FOUND");
    let detail = server.rest().session(&session("s")).await.unwrap();
    assert_eq!((detail.pending_approvals.len(), detail.running), (1, true));
    assert!(!server.workspace().join("a.txt").exists());
    assert_eq!(server.rest().sessions(None, None).await.unwrap().sessions.len(), 2);
}

#[tokio::test]
async fn an_approval_of_the_second_agents_call_reaches_that_call() {
    let script = Script::new().step([shell("echo second > who")]).text("done by the second");
    let server = start(script).await;
    let mut socket = server.socket().await;
    let second = add_agent(&mut socket, "reviewer").await;
    socket.send("s", "chat", json!({ "message": "go", "agentId": second })).await;
    let request = socket.expect("tool_approve_request").await;
    assert_eq!(request["agentId"], second);
    socket.decide("s", call_id(&request), "approve").await;
    let events = socket.until("done").await;
    assert_eq!(of_type(&events, "error"), [] as [&Value; 0]);
    assert_eq!(of_type(&events, "tool_result")[0]["agentId"], second);
    assert_eq!(text(&events), "done by the second");
    assert_eq!(std::fs::read_to_string(server.workspace().join("who")).unwrap(), "second\n");
}

#[tokio::test]
async fn agents_that_ask_in_turn_are_each_answered_for_their_own_call() {
    let script = Script::new()
        .step([write_file("first.txt", "1")])
        .text("one")
        .step([write_file("second.txt", "2")])
        .text("two");
    let server = start(script.clone()).await;
    let mut socket = server.socket().await;
    let second = add_agent(&mut socket, "reviewer").await;
    socket.chat("s", "go").await;
    socket.send("s", "chat", json!({ "message": "go", "agentId": second })).await;
    let of_first = socket.expect("tool_approve_request").await;
    assert_ne!(of_first["agentId"], second);
    socket.decide("s", call_id(&of_first), "reject").await;
    assert_eq!(text(&socket.until("done").await), "one");
    let of_second = socket.expect("tool_approve_request").await;
    assert_eq!(of_second["agentId"], second);
    // What is settled stays settled, whoever asked.
    socket.decide("s", call_id(&of_first), "approve").await;
    assert_eq!(socket.error_code().await, "UNKNOWN_TOOL_CALL");
    socket.decide("s", call_id(&of_second), "approve").await;
    assert_eq!(text(&socket.until("done").await), "two");
    assert!(!server.workspace().join("first.txt").exists());
    assert_eq!(std::fs::read_to_string(server.workspace().join("second.txt")).unwrap(), "2");
}

#[tokio::test]
async fn a_rejected_call_neither_starts_nor_ends_on_the_wire_and_its_reason_reaches_the_model() {
    let script = Script::new().step([write_file("a.txt", "hi")]).text("as you wish");
    let server = start(script.clone()).await;
    let mut socket = server.socket().await;
    socket.chat("s", "go").await;
    let request = socket.expect("tool_approve_request").await;
    let answer = json!({ "toolCallId": call_id(&request), "decision": "reject", "reason": "use b.txt" });
    socket.send("s", "tool_approve", answer).await;
    let events = socket.until("done").await;
    assert_eq!(types(&events), ["audit_entry", "token", "agent_state", "done"]);
    assert_eq!(events[0]["decision"], "rejected");
    let requests = script.requests();
    let told = results(&requests[1]);
    assert_eq!(told.len(), 1);
    assert_eq!(
        (told[0].call.as_str(), told[0].output.as_str(), told[0].is_error),
        (call_id(&request), "The call was rejected: use b.txt", true)
    );
    let events = server.rest().events(&session("s"), 0).await.unwrap().events;
    // A reader of the log is shown what the model was told, marked as such.
    let shown = of_type(&events, "tool_result");
    assert_eq!((of_type(&events, "tool_start").len(), shown.len()), (0, 1));
    assert_eq!((&shown[0]["refused"], &shown[0]["isError"]), (&json!(true), &json!(true)));
}

#[tokio::test]
async fn a_connection_that_joins_is_sent_what_waits_and_rest_shows_it() {
    let server = start(Script::new().step([write_file("a.txt", "hi")]).text("ok")).await;
    let mut one = server.socket().await;
    one.chat("s", "go").await;
    let request = one.expect("tool_approve_request").await;
    let mut two = server.socket().await;
    assert_eq!(two.join("s").await, std::slice::from_ref(&request));
    let shown = &server.rest().session(&session("s")).await.unwrap().pending_approvals;
    let shown = serde_json::to_value(shown).unwrap();
    for (key, value) in shown[0].as_object().unwrap() {
        assert_eq!(request[key], *value, "{key}");
    }
    // The one who asked may leave; whoever is there answers.
    drop(one);
    two.decide("s", call_id(&request), "approve").await;
    assert_eq!(of_type(&two.until("done").await, "tool_result").len(), 1);
    let mut three = server.socket().await;
    assert_eq!(three.join("s").await, [] as [Value; 0]);
    assert_eq!(server.rest().session(&session("s")).await.unwrap().pending_approvals, []);
}

#[tokio::test]
async fn a_call_that_waits_while_nobody_is_connected_is_rejected_after_a_while() {
    let mut setup = crate::setup(Script::new().step([write_file("a.txt", "hi")]).text("nobody there"));
    setup.limits.unattended_approval = Duration::from_millis(50);
    let server = TestServer::start(&setup).await;
    let mut socket = server.socket().await;
    socket.chat("s", "go").await;
    socket.expect("tool_approve_request").await;
    drop(socket);
    until_idle(&server).await;
    let audit = server.rest().audit(&session("s")).await.unwrap();
    let decisions: Vec<_> = audit.entries.iter().map(|entry| entry.decision).collect();
    assert_eq!(decisions, [AuditDecision::Timeout]);
    let told = &setup.script.requests()[1];
    assert_eq!(results(told)[0].output, "Nobody was there to approve the call in time.");
    assert!(!server.workspace().join("a.txt").exists());
}

#[tokio::test]
async fn a_call_waits_for_the_connected_no_longer_than_its_limit() {
    let mut setup = crate::setup(Script::new().step([write_file("a.txt", "hi")]).text("too late"));
    setup.limits.approval = Some(Duration::from_millis(50));
    let server = TestServer::start(&setup).await;
    let mut socket = server.socket().await;
    socket.chat("s", "go").await;
    let request = socket.expect("tool_approve_request").await;
    let events = socket.until("done").await;
    assert_eq!(types(&events), ["audit_entry", "token", "agent_state", "done"]);
    assert_eq!(events[0]["decision"], "timeout");
    socket.decide("s", call_id(&request), "approve").await;
    assert_eq!(socket.error_code().await, "UNKNOWN_TOOL_CALL");
    assert!(!server.workspace().join("a.txt").exists());
}

#[tokio::test]
async fn a_request_carries_the_whole_command_with_hidden_characters_made_visible() {
    let long = format!("echo {} && rm -rf build", "a".repeat(400));
    let lines = format!("{}rm -rf build", "echo x\n".repeat(59));
    let hidden = "echo \u{202e}gnp.x \u{1b}[2K\r";
    let mut script = Script::new();
    for command in [&long, &lines, hidden] {
        script = script.step([shell(command)]).text("ok");
    }
    let server = start(script).await;
    let mut socket = server.socket().await;
    for (command, shown) in
        [(long.as_str(), "&& rm -rf build"), (lines.as_str(), "rm -rf build"), (hidden, "\\u{202E}gnp.x")]
    {
        socket.chat("s", "go").await;
        let request = socket.expect("tool_approve_request").await;
        assert_eq!(request["args"], json!({ "command": command }));
        let summary = request["summary"].as_str().unwrap();
        assert!(summary.contains(shown), "{summary}");
        assert!(!summary.contains(['\u{202e}', '\u{1b}', '\r']), "{summary:?}");
        socket.decide("s", call_id(&request), "reject").await;
        socket.until("done").await;
    }
}
