//! Kills at moments that are known: what becomes of a tool that runs and of an approval that waits.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tns_tests::http;
use tns_tests::provider::{ModelServer, call_body};

use super::check::{Waiting, check_log, log};
use crate::binary::{Home, processes_with, until};

#[tokio::test]
async fn a_tool_that_ran_when_the_server_was_killed_is_gone_and_is_not_run_again() {
    let seconds = "86393.125";
    let command = format!("echo ran >> ran; setsid sleep {seconds} & sleep {seconds}");
    let model = ModelServer::start([call_body("c1", "shell", &json!({ "command": command }))]).await;
    let home = Home::with_model(&model);
    let server = home.serve(&["--dangerously-unsandboxed"]).await;
    let mut socket = server.socket().await;
    socket.send("s", "set_autonomy", json!({ "level": "FULL_AUTO" })).await;
    socket.chat("s", "go").await;
    let start = socket.expect("tool_start").await;
    until("both sleeps run", || processes_with(&format!("sleep {seconds}")).len() >= 2).await;
    server.kill().await;
    until("nothing of the tool is left", || processes_with(seconds).is_empty()).await;

    let server = home.serve(&["--dangerously-unsandboxed"]).await;
    let stored = log(&server, "s").await;
    check_log(&stored, Waiting::Over);
    let [.., result, end] = stored.as_slice() else { panic!("{stored:?}") };
    assert_eq!((&result["type"], &result["toolCallId"]), (&json!("tool_result"), &start["toolCallId"]));
    assert_eq!(result["isError"], true);
    assert_eq!((&end["type"], &end["code"]), (&json!("error"), &json!("SERVER_RESTARTED")));
    let mut socket = server.socket().await;
    socket.chat("s", "again").await;
    socket.until("done").await;
    assert_eq!(fs::read_to_string(home.folder().join("ran")).unwrap(), "ran\n");
    assert_eq!(processes_with(seconds), [] as [u32; 0]);
    // The model is told that it can't know how far the call came.
    assert_eq!(model.requests().len(), 2);
    assert!(
        model.requests()[1].to_string().contains("interrupted before it gave a result"),
        "{}",
        model.requests()[1]
    );
}

#[tokio::test]
async fn an_approval_that_waited_when_the_server_was_killed_is_void() {
    let home = Home::new();
    let server = home.serve(&[]).await;
    let mut socket = server.socket().await;
    socket.chat("s", "!touch made").await;
    let request = socket.expect("tool_approve_request").await;
    let call = request["toolCallId"].as_str().unwrap();
    server.kill().await;

    let server = home.serve(&[]).await;
    let session = http::get(server.address(), "/api/sessions/s").await.json();
    assert_eq!((&session["pendingApprovals"], &session["running"]), (&json!([]), &json!(false)));
    let stored = log(&server, "s").await;
    check_log(&stored, Waiting::Over);
    assert!(stored.contains(&request));
    assert_eq!(stored.last().unwrap()["code"], "SERVER_RESTARTED");
    let mut socket = server.socket().await;
    assert_eq!(
        tns_tests::socket::of_type(&socket.join("s").await, "tool_approve_request"),
        [] as [&Value; 0]
    );
    socket.decide("s", call, "approve").await;
    assert_eq!(socket.error_code().await, "UNKNOWN_TOOL_CALL");
    socket.chat("s", "hello").await;
    socket.until("done").await;
    assert!(!home.has("made"));
    server.signal(Signal::SIGTERM);
    assert_eq!(server.ended().await.0.code(), Some(0));
}
