//! What `always` covers: the same kind of call in the same session, and nothing more.

use serde_json::json;
use tns_server_core::scripted::{Beat, Script, call};
use tns_tests::socket::{of_type, types};
use tns_tests::{Socket, TestServer};

use crate::{call_id, setup, shell, start, write_file};

/// One turn for each beat.
fn turns(beats: impl IntoIterator<Item = Beat>) -> Script {
    beats.into_iter().fold(Script::new(), |script, beat| script.step([beat]).text("ok"))
}

/// Runs a turn whose call asks, and answers it.
async fn ask(socket: &mut Socket, session: &str, decision: &str) -> String {
    socket.chat(session, "go").await;
    let request = socket.expect("tool_approve_request").await;
    socket.decide(session, call_id(&request), decision).await;
    let events = socket.until("done").await;
    of_type(&events, "audit_entry")[0]["decision"].as_str().unwrap().to_owned()
}

/// Runs a turn whose call is covered.
async fn covered(socket: &mut Socket) {
    socket.chat("s", "go").await;
    let events = socket.until("done").await;
    assert!(of_type(&events, "tool_approve_request").is_empty(), "{:?}", types(&events));
    let audit = of_type(&events, "audit_entry");
    assert_eq!((&audit[0]["decision"], &audit[0]["by"]), (&json!("trusted"), &json!("an earlier always")));
    assert_eq!(of_type(&events, "tool_result").len(), 1);
}

#[tokio::test]
async fn always_covers_the_same_tool_and_class_but_nothing_riskier() {
    let script = turns([
        write_file("a.txt", "1"),
        write_file("b.txt", "2"),
        write_file(".git/config", "3"),
        write_file("c.txt", "4"),
    ]);
    let server = start(script).await;
    let mut socket = server.socket().await;
    assert_eq!(ask(&mut socket, "s", "always").await, "always");
    covered(&mut socket).await;
    assert_eq!(ask(&mut socket, "s", "reject").await, "rejected");
    covered(&mut socket).await;
    let mut names: Vec<_> = std::fs::read_dir(server.workspace())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["a.txt", "b.txt", "c.txt"]);
}

#[tokio::test]
async fn always_covers_no_other_session_and_no_other_tool() {
    let script = turns([write_file("a.txt", "1"), write_file("b.txt", "2"), shell("touch c.txt")]);
    let server = start(script).await;
    let mut socket = server.socket().await;
    assert_eq!(ask(&mut socket, "s", "always").await, "always");
    assert_eq!(ask(&mut socket, "other", "reject").await, "rejected");
    assert_eq!(ask(&mut socket, "s", "reject").await, "rejected");
}

#[tokio::test]
async fn always_for_a_command_covers_no_longer_line() {
    const LINE: &str = "rm -rf build";
    let risky = [
        "rm -rf build && rm -rf src",
        "rm -rf build; touch x",
        "rm -rf build | sh",
        "rm -rf build || touch x",
        "rm -rf build & touch x",
        "rm -rf build --force",
        "rm -rf buildx",
        "rm -rf build\ntouch x",
    ];
    let beats = [LINE].into_iter().chain(risky).map(shell);
    let server = start(turns(beats)).await;
    let mut socket = server.socket().await;
    ask(&mut socket, "s", "always").await;
    for line in risky {
        assert_eq!(ask(&mut socket, "s", "reject").await, "rejected", "{line}");
    }
    assert!(!server.workspace().join("x").exists());
}

#[tokio::test]
async fn where_always_covers_nothing_it_counts_once_and_the_request_says_so() {
    let script = turns([write_file(".git/config", "1"), write_file(".git/config", "1")]);
    let server = start(script).await;
    let mut socket = server.socket().await;
    socket.chat("s", "go").await;
    let request = socket.expect("tool_approve_request").await;
    assert!(request.get("alwaysCovers").is_none());
    socket.decide("s", call_id(&request), "always").await;
    let events = socket.until("done").await;
    assert_eq!(of_type(&events, "audit_entry")[0]["decision"], "approved");
    assert_eq!(ask(&mut socket, "s", "reject").await, "rejected");
}

#[tokio::test]
async fn always_survives_leaving_and_a_restart_of_the_server() {
    let setup = setup(turns((0..3).map(|at| write_file("a.txt", &at.to_string()))));
    let server = TestServer::start(&setup).await;
    let mut socket = server.socket().await;
    assert_eq!(ask(&mut socket, "s", "always").await, "always");
    drop(socket);
    covered(&mut server.socket().await).await;
    server.stop().await;
    let server = TestServer::start(&setup).await;
    covered(&mut server.socket().await).await;
    assert_eq!(std::fs::read_to_string(server.workspace().join("a.txt")).unwrap(), "2");
}

#[tokio::test]
async fn at_manual_an_always_for_reading_covers_the_tools_reads() {
    let script = turns([
        call("list_dir", json!({})),
        call("list_dir", json!({ "path": "." })),
        call("grep", json!({ "pattern": "x" })),
    ]);
    let server = start(script).await;
    let mut socket = server.socket().await;
    socket.send("s", "set_autonomy", json!({ "level": "MANUAL" })).await;
    assert_eq!(ask(&mut socket, "s", "always").await, "always");
    covered(&mut socket).await;
    assert_eq!(ask(&mut socket, "s", "reject").await, "rejected");
}
