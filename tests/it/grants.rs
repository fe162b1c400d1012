//! What `always` covers: the same kind of call in the same session, and nothing more.

use serde_json::{Value, json};
use tns_server_core::approval::{Grant, MAX_GRANTS};
use tns_server_core::scripted::{Beat, Gate, Script, call};
use tns_server_core::store::{Append, LOCAL_PRINCIPAL, Store as _};
use tns_tests::http;
use tns_tests::socket::{of_type, types};
use tns_tests::{Socket, TestServer, session};

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

/// Asks for the rules and returns them.
async fn rules(socket: &mut Socket, session: &str) -> Vec<Value> {
    socket.send(session, "rules_list", json!({})).await;
    socket.expect("rules_list_result").await["rules"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_rule_is_told_to_every_client_listed_and_taken_back() {
    let setup = setup(turns((0..5).map(|at| write_file("a.txt", &at.to_string()))));
    let server = TestServer::start(&setup).await;
    let (mut socket, mut other) = (server.extended("s").await, server.extended("s").await);
    assert_eq!(rules(&mut socket, "s").await, [] as [Value; 0]);
    assert_eq!(ask(&mut socket, "s", "always").await, "always");
    let update = other.expect("rules_update").await;
    let [rule] = &rules(&mut socket, "s").await[..] else { panic!("not one rule") };
    assert_eq!((&update["rule"], &update["by"], update.get("removed")), (rule, &json!("local"), None));
    assert_eq!(
        (&rule["effect"], &rule["tool"], &rule["riskClass"], &rule["scope"], &rule["covers"]),
        (
            &json!("allow"),
            &json!("file_write"),
            &json!("WRITE"),
            &json!("session"),
            &json!("every WRITE call of file_write in this session")
        )
    );
    covered(&mut socket).await;

    socket.send("s", "rules_remove", json!({ "ruleId": rule["ruleId"], "reqId": "r" })).await;
    let update = other.expect("rules_update").await;
    assert_eq!((&update["rule"], &update["removed"]), (rule, &json!(true)));
    assert_eq!(rules(&mut socket, "s").await, [] as [Value; 0]);
    assert_eq!(ask(&mut socket, "s", "approve").await, "approved");
    socket.send("s", "rules_remove", json!({ "ruleId": rule["ruleId"] })).await;
    let refused = socket.expect("error").await;
    assert_eq!((&refused["code"], &refused["refType"]), (&json!("NOT_FOUND"), &json!("rules_remove")));
    // What was taken back stays so, and can be given again: it is the same rule.
    server.stop().await;
    let server = TestServer::start(&setup).await;
    let mut socket = server.extended("s").await;
    assert_eq!(rules(&mut socket, "s").await, [] as [Value; 0]);
    assert_eq!(ask(&mut socket, "s", "always").await, "always");
    assert_eq!(rules(&mut socket, "s").await, std::slice::from_ref(rule));
    covered(&mut socket).await;
}

#[tokio::test]
async fn a_rule_that_is_taken_back_while_a_turn_runs_covers_none_of_its_later_calls() {
    let gate = Gate::new();
    let script = Script::new()
        .step([write_file("a.txt", "1")])
        .step([Beat::Gate(gate.clone()), write_file("a.txt", "2")])
        .text("ok");
    let server = start(script).await;
    let mut socket = server.extended("s").await;
    socket.chat("s", "go").await;
    let request = socket.expect("tool_approve_request").await;
    socket.decide("s", call_id(&request), "always").await;
    socket.expect("tool_result").await;
    let rule = rules(&mut socket, "s").await[0]["ruleId"].clone();
    socket.send("s", "rules_remove", json!({ "ruleId": rule })).await;
    socket.expect("rules_update").await;
    gate.open();
    let request = socket.expect("tool_approve_request").await;
    socket.decide("s", call_id(&request), "reject").await;
    socket.until("done").await;
    assert_eq!(std::fs::read_to_string(server.workspace().join("a.txt")).unwrap(), "1");
}

/// A shell line that ends when the test makes a file.
const WAITS: &str = "while [ ! -e go ]; do sleep 0.01; done";

/// Begins a turn whose first call runs until the file `go` is there, with the next one decided already.
async fn decided_ahead(socket: &mut Socket) {
    socket.chat("s", "go on").await;
    let request = socket.expect("tool_approve_request").await;
    socket.decide("s", call_id(&request), "approve").await;
    assert_eq!(socket.expect("tool_start").await["tool"], "shell");
}

#[tokio::test]
async fn a_call_that_was_decided_ahead_is_looked_at_again_when_it_is_to_run() {
    let listing = || call("list_dir", json!({}));
    for (later, tool) in [(write_file("a.txt", "2"), "file_write"), (listing(), "list_dir")] {
        let first = Script::new().step([write_file("a.txt", "1")]).text("ok");
        let server = start(first.step([shell(WAITS), later]).text("ok")).await;
        let mut socket = server.extended("s").await;
        assert_eq!(ask(&mut socket, "s", "always").await, "always");
        let rule = rules(&mut socket, "s").await[0]["ruleId"].clone();
        decided_ahead(&mut socket).await;
        if tool == "file_write" {
            socket.send("s", "rules_remove", json!({ "ruleId": rule })).await;
            socket.expect("rules_update").await;
        } else {
            socket.send("s", "set_autonomy", json!({ "level": "MANUAL" })).await;
            socket.expect("autonomy_changed").await;
        }
        std::fs::write(server.workspace().join("go"), "").unwrap();
        let request = socket.expect("tool_approve_request").await;
        assert_eq!(request["tool"], tool);
        socket.decide("s", call_id(&request), "reject").await;
        let events = socket.until("done").await;
        assert!(of_type(&events, "tool_start").is_empty(), "{:?}", types(&events));
        assert_eq!(std::fs::read_to_string(server.workspace().join("a.txt")).unwrap(), "1");
        server.stop().await;
    }
}

#[tokio::test]
async fn a_cancel_settles_a_call_that_is_asked_about_again() {
    let script = Script::new()
        .step([write_file("a.txt", "1")])
        .text("ok")
        .step([shell(WAITS), write_file("a.txt", "2")])
        .text("never");
    let server = start(script).await;
    let mut socket = server.extended("s").await;
    assert_eq!(ask(&mut socket, "s", "always").await, "always");
    let rule = rules(&mut socket, "s").await[0]["ruleId"].clone();
    decided_ahead(&mut socket).await;
    socket.send("s", "rules_remove", json!({ "ruleId": rule })).await;
    socket.expect("rules_update").await;
    std::fs::write(server.workspace().join("go"), "").unwrap();
    socket.expect("tool_approve_request").await;
    socket.send("s", "cancel", json!({})).await;
    let events = socket.until("interrupted").await;
    assert_eq!(of_type(&events, "audit_entry")[0]["decision"], "cancelled");
    assert_eq!(std::fs::read_to_string(server.workspace().join("a.txt")).unwrap(), "1");
}

#[tokio::test]
async fn a_rule_that_an_older_program_kept_twice_is_taken_back_whole() {
    let setup = setup(turns([write_file("a.txt", "1"), write_file("a.txt", "2")]));
    let server = TestServer::start(&setup).await;
    let mut socket = server.extended("s").await;
    assert_eq!(ask(&mut socket, "s", "always").await, "always");
    server.stop().await;
    let record = setup.store.find_session(LOCAL_PRINCIPAL, &session("s")).await.unwrap().unwrap();
    let mut state = record.state;
    state.grants.push(state.grants[0].clone());
    setup.store.append(Append { state: Some(state), ..Append::new(record.key, Vec::new()) }).await.unwrap();

    let server = TestServer::start(&setup).await;
    let mut socket = server.extended("s").await;
    let rule = rules(&mut socket, "s").await[0]["ruleId"].clone();
    socket.send("s", "rules_remove", json!({ "ruleId": rule })).await;
    socket.expect("rules_update").await;
    assert_eq!(rules(&mut socket, "s").await, [] as [Value; 0]);
    assert_eq!(ask(&mut socket, "s", "reject").await, "rejected");
}

#[tokio::test]
async fn rules_are_listed_and_taken_back_over_http_and_hold_in_no_fork() {
    let server = start(turns([write_file("a.txt", "1"), write_file("a.txt", "2")])).await;
    let mut socket = server.socket().await;
    assert_eq!(ask(&mut socket, "s", "always").await, "always");
    let head = http::get(server.address(), "/api/sessions/s").await.json()["headSeq"].clone();
    let fork = json!({ "atSeq": head, "id": "copy" });
    http::call(server.address(), "POST", "/api/sessions/s/fork", Some(&fork)).await;
    let listed = async |id: &str| {
        let answer = http::get(server.address(), &format!("/api/sessions/{id}/rules")).await;
        assert_eq!(answer.status, 200);
        answer.json()["rules"].as_array().unwrap().clone()
    };
    assert_eq!(listed("copy").await, [] as [Value; 0]);
    let rule = listed("s").await[0]["ruleId"].as_str().unwrap().to_owned();
    for (id, rule, status) in [
        ("s", "rule-0", 404),
        ("copy", &*rule, 404),
        ("nobody", &*rule, 404),
        ("s", &*rule, 204),
        ("s", &*rule, 404),
    ] {
        let path = format!("/api/sessions/{id}/rules/{rule}");
        assert_eq!(http::call(server.address(), "DELETE", &path, None).await.status, status, "{path}");
    }
    assert_eq!(listed("s").await, [] as [Value; 0]);
    assert_eq!(ask(&mut socket, "s", "reject").await, "rejected");
}

#[tokio::test]
async fn a_session_has_so_many_rules_and_no_more() {
    let setup = setup(turns([
        write_file("a.txt", "1"),
        call("list_dir", json!({})),
        call("grep", json!({ "pattern": "x" })),
    ]));
    let server = TestServer::start(&setup).await;
    let mut socket = server.socket().await;
    socket.send("s", "set_autonomy", json!({ "level": "MANUAL" })).await;
    assert_eq!(ask(&mut socket, "s", "always").await, "always");
    server.stop().await;
    // As many as a person would need months to give.
    let record = setup.store.find_session(LOCAL_PRINCIPAL, &session("s")).await.unwrap().unwrap();
    let mut state = record.state;
    let more = (state.grants.len()..MAX_GRANTS - 1)
        .map(|at| Grant { tool: format!("t{at}"), ..state.grants[0].clone() });
    state.grants.extend(more.collect::<Vec<_>>());
    setup.store.append(Append { state: Some(state), ..Append::new(record.key, Vec::new()) }).await.unwrap();

    let server = TestServer::start(&setup).await;
    let mut socket = server.socket().await;
    assert_eq!(ask(&mut socket, "s", "always").await, "always");
    socket.chat("s", "go").await;
    let request = socket.expect("tool_approve_request").await;
    assert!(request.get("alwaysCovers").is_none());
    socket.decide("s", call_id(&request), "always").await;
    let events = socket.until("done").await;
    assert_eq!(of_type(&events, "audit_entry")[0]["decision"], "approved");
    let rules = http::get(server.address(), "/api/sessions/s/rules").await.json();
    assert_eq!(rules["rules"].as_array().unwrap().len(), MAX_GRANTS);
}
