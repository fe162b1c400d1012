//! `cancel` while something waits or runs: it ends soon, nothing is left behind, the session works on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tns_server_core::scripted::Script;
use tns_tests::socket::{of_type, text, types};
use tns_tests::troubled_store::TroubledStore;
use tns_tests::{Socket, TestServer, results, session};

use crate::{call_id, setup, shell, start, write_file};

/// How long a cancel may take on a slow machine; half a second is what is promised on an idle one.
const SOON: Duration = Duration::from_secs(5);
/// How long a started process may take to show up, and an ended one to leave.
const PROCESS: Duration = Duration::from_secs(20);

/// Cancels and returns the events up to the end of the turn.
async fn cancel(socket: &mut Socket) -> Vec<Value> {
    let began = Instant::now();
    socket.send("s", "cancel", json!({})).await;
    let events = socket.until("done").await;
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    assert_eq!(events.last().unwrap()["cancelled"], true);
    assert_eq!(events[events.len() - 2]["status"], "idle");
    events
}

/// Returns how many processes have this text among their arguments.
fn processes(marker: &str) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(marker)).count()
}

async fn until_processes(marker: &str, wanted: impl Fn(usize) -> bool) {
    let began = Instant::now();
    while !wanted(processes(marker)) {
        assert!(began.elapsed() < PROCESS, "{} processes of {marker}", processes(marker));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Returns an argument of `sleep` that no other process has.
fn marker(seconds: u32) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    format!("{seconds}.{}{:09}", std::process::id(), now.subsec_nanos())
}

#[tokio::test]
async fn cancel_ends_a_call_that_waits_for_approval() {
    let script = Script::new().step([write_file("a.txt", "x")]).text("next");
    let server = start(script.clone()).await;
    let mut socket = server.socket().await;
    socket.chat("s", "go").await;
    let request = socket.expect("tool_approve_request").await;
    let events = cancel(&mut socket).await;
    assert_eq!(types(&events), ["audit_entry", "agent_state", "done"]);
    assert_eq!((call_id(&events[0]), &events[0]["decision"]), (call_id(&request), &json!("cancelled")));
    socket.chat("s", "again").await;
    assert_eq!(text(&socket.until("done").await), "next");
    let requests = script.requests();
    let told = results(&requests[1]);
    assert_eq!((told.len(), told[0].is_error), (1, true));
    assert_eq!(told[0].output, "The user cancelled the call.");
}

#[tokio::test]
async fn cancel_settles_every_call_of_a_step_and_late_approvals_find_nothing() {
    let gated = (0..3).map(|at| write_file(&format!("{at}.txt"), "x"));
    let script = Script::new().step(gated).text("next");
    let server = start(script.clone()).await;
    let (mut socket, mut other) = (server.socket().await, server.socket().await);
    other.join("s").await;
    socket.chat("s", "go").await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(call_id(&socket.expect("tool_approve_request").await).to_owned());
    }
    let events = cancel(&mut socket).await;
    assert_eq!(types(&events), ["audit_entry", "audit_entry", "audit_entry", "agent_state", "done"]);
    let settled: Vec<_> = events[..3].iter().map(|entry| (call_id(entry), &entry["decision"])).collect();
    let cancelled = json!("cancelled");
    assert_eq!(settled, ids.iter().map(|id| (id.as_str(), &cancelled)).collect::<Vec<_>>());
    assert_eq!(of_type(&other.until("done").await, "audit_entry").len(), 3);
    for id in &ids {
        socket.decide("s", id, "approve").await;
        assert_eq!(socket.error_code().await, "UNKNOWN_TOOL_CALL");
    }
    socket.chat("s", "again").await;
    let next = socket.until("done").await;
    assert_eq!(text(&next), "next");
    assert_eq!(results(&script.requests()[1]).len(), 3);
    assert_eq!(std::fs::read_dir(server.workspace()).unwrap().count(), 0);
    assert_eq!(server.rest().session(&session("s")).await.unwrap().pending_approvals, []);
}

#[tokio::test]
async fn after_a_cancel_at_the_first_request_no_call_is_begun() {
    const ROUNDS: usize = 10;
    let mut script = Script::new();
    for _ in 0..ROUNDS {
        script = script.step((0..8).map(|at| write_file(&format!("{at}.txt"), "x")));
    }
    // While one request is being stored, the others are on their way and the cancel overtakes them.
    let setup = setup(script);
    let store = Arc::new(TroubledStore::new(setup.store.clone(), Duration::from_millis(3)));
    let server = TestServer::start_over(&setup, store, setup.store.clone()).await;
    let mut socket = server.socket().await;
    for _ in 0..ROUNDS {
        socket.chat("s", "go").await;
        let mut events = socket.until("tool_approve_request").await;
        events.extend(cancel(&mut socket).await);
        // Each request that was shown is closed, and none comes after the first was.
        let asked: Vec<&str> = of_type(&events, "tool_approve_request").into_iter().map(call_id).collect();
        let closed: Vec<&str> = of_type(&events, "audit_entry").into_iter().map(call_id).collect();
        assert!(asked.iter().all(|id| closed.contains(id)), "{asked:?} {closed:?}");
        let first_closed = events.iter().position(|event| event["type"] == "audit_entry").unwrap();
        let after = &events[first_closed..];
        assert!(of_type(after, "tool_approve_request").is_empty());
        assert!(of_type(&events, "tool_start").is_empty());
        assert!(of_type(&events, "audit_entry").iter().all(|entry| entry["decision"] == "cancelled"));
    }
    assert_eq!(std::fs::read_dir(server.workspace()).unwrap().count(), 0);
}

#[tokio::test]
async fn cancel_ends_a_running_command_and_leaves_no_process() {
    let (plain, stubborn) = (marker(300), marker(301));
    let lines = [format!("sleep {plain} & sleep {plain}"), format!("(trap '' TERM; sleep {stubborn})")];
    for (line, marker) in lines.iter().zip([&plain, &stubborn]) {
        let script = Script::new().step([shell(line)]).text("next");
        let server = start(script.clone()).await;
        let mut socket = server.socket().await;
        socket.send("s", "set_autonomy", json!({ "level": "FULL_AUTO" })).await;
        socket.chat("s", "go").await;
        socket.expect("tool_start").await;
        until_processes(&format!("\0{marker}"), |count| count > 0).await;
        let events = cancel(&mut socket).await;
        assert_eq!(types(&events), ["tool_result", "agent_state", "done"]);
        assert_eq!(events[0]["isError"], true);
        until_processes(marker, |count| count == 0).await;
        socket.chat("s", "again").await;
        assert_eq!(text(&socket.until("done").await), "next");
        let told = script.requests().pop().unwrap();
        assert_eq!(results(&told).len(), 1);
    }
}

#[tokio::test]
async fn what_a_command_leaves_in_the_background_is_gone_when_it_ends() {
    let marker = marker(302);
    let script = Script::new().step([shell(&format!("sleep {marker} & echo started"))]).text("next");
    let server = start(script).await;
    let mut socket = server.socket().await;
    socket.send("s", "set_autonomy", json!({ "level": "FULL_AUTO" })).await;
    socket.chat("s", "go").await;
    let result = socket.expect("tool_result").await;
    assert!(result["result"].as_str().unwrap().contains("started"), "{result}");
    socket.until("done").await;
    until_processes(&marker, |count| count == 0).await;
}

#[tokio::test]
async fn cancel_ends_a_call_that_waits_for_a_client() {
    let script = Script::new().call("mcp_fs_search", json!({})).text("next");
    let server = start(script.clone()).await;
    let mut socket = server.socket().await;
    socket.send("s", "set_autonomy", json!({ "level": "FULL_AUTO" })).await;
    let tools = json!({ "tools": [{ "server": "fs", "name": "search" }] });
    socket.send("s", "mcp_tools", tools).await;
    socket.chat("s", "go").await;
    let call = socket.expect("mcp_call").await;
    let events = cancel(&mut socket).await;
    assert_eq!(types(&events), ["tool_result", "agent_state", "done"]);
    let late = json!({ "toolCallId": call_id(&call), "result": "late" });
    socket.send("s", "mcp_result", late).await;
    assert_eq!(socket.error_code().await, "UNKNOWN_TOOL_CALL");
    socket.chat("s", "again").await;
    assert_eq!(text(&socket.until("done").await), "next");
    let told = script.requests().pop().unwrap();
    assert_eq!(results(&told).iter().map(|result| result.is_error).collect::<Vec<_>>(), [true]);
}

#[tokio::test]
async fn cancel_leaves_the_queue_and_its_next_message_starts() {
    let script = Script::new().step([write_file("a.txt", "x")]).text("second");
    let server = start(script.clone()).await;
    let mut socket = server.socket().await;
    socket.chat("s", "A").await;
    socket.expect("tool_approve_request").await;
    socket.chat("s", "B").await;
    socket.settle("s").await;
    cancel(&mut socket).await;
    let second = socket.until("done").await;
    assert_eq!(text(&second), "second");
    assert!(second.last().unwrap().get("cancelled").is_none());
}

#[tokio::test]
async fn cancel_of_an_agent_leaves_the_turn_of_another() {
    let script = Script::new().step([write_file("a.txt", "x")]).text("ok");
    let server = start(script).await;
    let mut socket = server.socket().await;
    socket.send("s", "agent_add", json!({ "role": "second" })).await;
    let team = socket.expect("team_update").await;
    socket.chat("s", "go").await;
    let request = socket.expect("tool_approve_request").await;
    socket.send("s", "cancel", json!({ "agentId": team["agents"][1]["agentId"] })).await;
    socket.decide("s", call_id(&request), "approve").await;
    let events = socket.until("done").await;
    assert_eq!(of_type(&events, "tool_result").len(), 1);
    assert!(events.last().unwrap().get("cancelled").is_none());
}
