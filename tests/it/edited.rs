//! Approvals with edited arguments: what runs is what was edited, rated anew.

use serde_json::{Value, json};
use tns_server_core::scripted::Script;
use tns_tests::socket::{of_type, types};
use tns_tests::{Socket, results};

use crate::{call_id, shell, start, write_file};

async fn approve_edited(socket: &mut Socket, request: &Value, args: Value) {
    let answer = json!({ "toolCallId": call_id(request), "decision": "approve", "editedArgs": args });
    socket.send("s", "tool_approve", answer).await;
}

#[tokio::test]
async fn edited_arguments_run_in_place_of_the_models() {
    let script = Script::new().step([write_file("a.txt", "model")]).text("ok");
    let server = start(script.clone()).await;
    let mut socket = server.socket().await;
    socket.chat("s", "go").await;
    let request = socket.expect("tool_approve_request").await;
    let args = json!({ "path": "b.txt", "content": "person" });
    approve_edited(&mut socket, &request, args.clone()).await;
    let events = socket.until("done").await;
    assert_eq!(types(&events), ["audit_entry", "tool_start", "tool_result", "token", "agent_state", "done"]);
    assert_eq!(
        (&events[0]["decision"], &events[0]["summary"]),
        (&json!("approved"), &json!("write b.txt (6 bytes)"))
    );
    assert_eq!(events[1]["args"], args);
    assert!(!server.workspace().join("a.txt").exists());
    assert_eq!(std::fs::read_to_string(server.workspace().join("b.txt")).unwrap(), "person");
}

#[tokio::test]
async fn arguments_edited_to_something_riskier_ask_again() {
    let server = start(Script::new().step([write_file("a.txt", "x")]).text("ok")).await;
    let mut socket = server.socket().await;
    socket.chat("s", "go").await;
    let request = socket.expect("tool_approve_request").await;
    let args = json!({ "path": ".git/hooks/pre-commit", "content": "x" });
    approve_edited(&mut socket, &request, args.clone()).await;
    let again = socket.until("tool_approve_request").await;
    assert_eq!(types(&again), ["tool_approve_request"]);
    let again = &again[0];
    assert_eq!((call_id(again), &again["args"]), (call_id(&request), &args));
    assert_eq!((&request["riskClass"], &again["riskClass"]), (&json!("WRITE"), &json!("DESTRUCTIVE")));
    assert!(again.get("alwaysCovers").is_none());
    socket.decide("s", call_id(again), "reject").await;
    let events = socket.until("done").await;
    assert_eq!(types(&events), ["audit_entry", "token", "agent_state", "done"]);
    assert_eq!(
        (&events[0]["decision"], &events[0]["riskClass"]),
        (&json!("rejected"), &json!("DESTRUCTIVE"))
    );
    assert_eq!(std::fs::read_dir(server.workspace()).unwrap().count(), 0);
}

#[tokio::test]
async fn arguments_edited_to_an_escalation_are_blocked() {
    let script = Script::new().step([shell("touch x")]).text("ok");
    let server = start(script.clone()).await;
    let mut socket = server.socket().await;
    socket.chat("s", "go").await;
    let request = socket.expect("tool_approve_request").await;
    approve_edited(&mut socket, &request, json!({ "command": "sudo id" })).await;
    let events = socket.until("done").await;
    assert_eq!(types(&events), ["audit_entry", "token", "agent_state", "done"]);
    assert_eq!((&events[0]["decision"], &events[0]["riskClass"]), (&json!("blocked"), &json!("ESCALATION")));
    assert!(results(&script.requests()[1])[0].output.contains("never allowed"));
}

#[tokio::test]
async fn edited_arguments_that_do_not_fit_the_tool_never_run_and_close_the_request() {
    let script = Script::new().step([write_file("a.txt", "x")]).text("ok");
    let server = start(script.clone()).await;
    let mut socket = server.socket().await;
    socket.chat("s", "go").await;
    let request = socket.expect("tool_approve_request").await;
    approve_edited(&mut socket, &request, json!({ "path": "b.txt" })).await;
    let events = socket.until("done").await;
    assert_eq!(types(&events), ["audit_entry", "token", "agent_state", "done"]);
    assert_eq!((call_id(&events[0]), &events[0]["decision"]), (call_id(&request), &json!("rejected")));
    let told = script.requests()[1].clone();
    let told = &results(&told)[0].output;
    assert!(told.contains("lacks the required `content`"), "{told}");
    assert_eq!(std::fs::read_dir(server.workspace()).unwrap().count(), 0);
}

#[tokio::test]
async fn an_always_with_edited_arguments_counts_once() {
    let script =
        Script::new().step([write_file("a.txt", "x")]).text("ok").step([write_file("c.txt", "x")]).text("ok");
    let server = start(script).await;
    let mut socket = server.socket().await;
    socket.chat("s", "go").await;
    let request = socket.expect("tool_approve_request").await;
    let args = json!({ "path": "b.txt", "content": "y" });
    let answer = json!({ "toolCallId": call_id(&request), "decision": "always", "editedArgs": args });
    socket.send("s", "tool_approve", answer).await;
    let events = socket.until("done").await;
    assert_eq!(of_type(&events, "audit_entry")[0]["decision"], "approved");
    socket.chat("s", "again").await;
    socket.expect("tool_approve_request").await;
}
