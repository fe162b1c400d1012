//! The built-in tools through a whole turn: what the wire shows and what the model reads.

use serde_json::{Value, json};
use tns_server_core::scripted::{Beat, Script, call};
use tns_tests::socket::{of_type, text, types};
use tns_tests::{TestServer, results};

use crate::{call_id, setup, shell, start, write_file};

/// Returns the outputs that the model was shown by its last request, and whether each is an error.
fn told(script: &Script) -> Vec<(String, bool)> {
    let request = script.requests().pop().unwrap();
    results(&request).into_iter().map(|result| (result.output.clone(), result.is_error)).collect()
}

fn file(server: &TestServer, name: &str, content: &str) {
    std::fs::write(server.workspace().join(name), content).unwrap();
}

#[tokio::test]
async fn reading_tools_run_unasked_and_beside_each_other_and_answer_in_call_order() {
    let script = Script::new()
        .step([
            call("file_read", json!({ "path": "b.txt" })),
            call("list_dir", json!({})),
            call("grep", json!({ "pattern": "needle" })),
            call("file_read", json!({ "path": "missing.txt" })),
        ])
        .text("read");
    let server = start(script.clone()).await;
    file(&server, "a.txt", "hay\nneedle here\n");
    file(&server, "b.txt", "the text");
    let mut socket = server.socket().await;
    socket.chat("s", "go").await;
    let events = socket.until("done").await;
    assert!(of_type(&events, "tool_approve_request").is_empty());
    let started: Vec<&str> = of_type(&events, "tool_start").into_iter().map(call_id).collect();
    let ended: Vec<&str> = of_type(&events, "tool_result").into_iter().map(call_id).collect();
    assert_eq!(started.len(), 4);
    assert_eq!(ended, started);
    for audit in of_type(&events, "audit_entry") {
        assert_eq!((&audit["decision"], &audit["by"]), (&json!("auto_approved"), &json!("level SUPERVISED")));
    }
    let told = told(&script);
    assert_eq!(told[0], ("the text".to_owned(), false));
    assert_eq!(told[1], ("a.txt\nb.txt\n".to_owned(), false));
    assert_eq!(told[2], ("a.txt:2:needle here".to_owned(), false));
    assert!(told[3].1 && told[3].0.contains("missing.txt"), "{:?}", told[3]);
    assert_eq!(of_type(&events, "tool_result")[3]["isError"], true);
}

#[tokio::test]
async fn a_write_shows_its_diff_before_it_runs() {
    let script = Script::new().step([write_file("a.txt", "one\nTWO\n")]).text("written");
    let server = start(script).await;
    file(&server, "a.txt", "one\ntwo\n");
    let mut socket = server.socket().await;
    socket.chat("s", "go").await;
    let request = socket.expect("tool_approve_request").await;
    assert_eq!(request["diff"], "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+TWO\n");
    assert_eq!(std::fs::read_to_string(server.workspace().join("a.txt")).unwrap(), "one\ntwo\n");
    socket.decide("s", call_id(&request), "approve").await;
    socket.until("done").await;
    assert_eq!(std::fs::read_to_string(server.workspace().join("a.txt")).unwrap(), "one\nTWO\n");
}

#[tokio::test]
async fn the_shell_works_in_the_workspace_and_its_failure_is_a_result() {
    let script = Script::new().step([shell("cat a.txt; exit 3")]).text("seen");
    let server = start(script.clone()).await;
    file(&server, "a.txt", "content\n");
    let mut socket = server.socket().await;
    socket.chat("s", "go").await;
    let request = socket.expect("tool_approve_request").await;
    assert_eq!(request["summary"], "cat a.txt; exit 3");
    socket.decide("s", call_id(&request), "approve").await;
    let events = socket.until("done").await;
    assert_eq!(text(&events), "seen");
    let told = told(&script);
    assert!(told[0].1 && told[0].0.contains("content") && told[0].0.contains('3'), "{told:?}");
}

#[tokio::test]
async fn arguments_that_do_not_fit_never_run_and_nobody_is_asked() {
    let wrong = [
        call("shell", json!({ "cmd": "ls" })),
        call("shell", json!({ "command": 5 })),
        call("shell", json!({})),
        call("shell", json!({ "command": "ls", "more": 1 })),
        Beat::BrokenCall("shell".into(), "The arguments are no JSON object.".into()),
        call("no_such_tool", json!({})),
    ];
    let script = wrong.into_iter().fold(Script::new(), |script, beat| script.step([beat]).text("go on"));
    let server = start(script.clone()).await;
    let mut socket = server.socket().await;
    let expected = [
        "the arguments object has unknown fields: `cmd`",
        "argument `command`",
        "the arguments object lacks the required `command`",
        "the arguments object has unknown fields: `more`",
        "The arguments are no JSON object.",
        "There is no tool named no_such_tool.",
    ];
    for expected in expected {
        socket.chat("s", "go").await;
        let events = socket.until("done").await;
        assert_eq!(
            types(&events),
            ["agent_state", "agent_state", "token", "agent_state", "done"],
            "{expected}"
        );
        let (output, is_error) = told(&script).pop().unwrap();
        assert!(is_error && output.contains(expected), "{output}");
    }
    // Every call of the history has its one result.
    assert_eq!(told(&script).len(), expected.len());
}

#[tokio::test]
async fn a_long_result_is_cut_in_its_middle_for_the_wire_and_the_model() {
    let script = Script::new()
        .step([
            call("file_read", json!({ "path": "edge.txt" })),
            call("file_read", json!({ "path": "long.txt" })),
        ])
        .text("read");
    let server = start(script.clone()).await;
    file(&server, "edge.txt", &"職".repeat(20_000));
    file(&server, "long.txt", &format!("{}{}", "a".repeat(15_000), "z".repeat(15_000)));
    let mut socket = server.socket().await;
    socket.chat("s", "go").await;
    let events = socket.until("done").await;
    let shown = of_type(&events, "tool_result");
    assert_eq!(shown[0]["result"], "職".repeat(20_000));
    assert!(shown[0].get("truncated").is_none());
    let cut = format!("{}\n[… 10000 characters left out …]\n{}", "a".repeat(10_000), "z".repeat(10_000));
    assert_eq!((&shown[1]["result"], &shown[1]["truncated"]), (&json!(cut), &json!(true)));
    assert_eq!(told(&script)[1], (cut, false));
}

#[tokio::test]
async fn two_megabytes_of_output_keep_the_client_connected() {
    let script = Script::new().step([shell("head -c 2000000 /dev/zero | tr '\\0' x")]).text("fine");
    let server = start(script).await;
    let mut socket = server.socket().await;
    socket.send("s", "set_autonomy", json!({ "level": "FULL_AUTO" })).await;
    socket.chat("s", "go").await;
    let result = socket.expect("tool_result").await;
    assert_eq!(result["truncated"], true);
    assert!(result["result"].as_str().unwrap().chars().count() < 20_100);
    assert_eq!(text(&socket.until("done").await), "fine");
}

#[tokio::test]
async fn a_tool_that_runs_over_its_limit_is_stopped_and_the_turn_goes_on() {
    let script = Script::new()
        .step([call("shell", json!({ "command": "yes | sleep 300", "timeoutMs": 1000 }))])
        .text("on");
    let server = start(script.clone()).await;
    let mut socket = server.socket().await;
    socket.send("s", "set_autonomy", json!({ "level": "FULL_AUTO" })).await;
    socket.chat("s", "go").await;
    let events = socket.until("done").await;
    assert_eq!(text(&events), "on");
    let (output, is_error) = told(&script).remove(0);
    assert!(is_error && output.contains("limit"), "{output}");
}

#[tokio::test]
async fn more_calls_than_a_step_may_have_are_each_answered() {
    let calls = (0..70).map(|_| call("list_dir", json!({})));
    let script = Script::new().step(calls).text("ok");
    let server = start(script.clone()).await;
    let mut socket = server.socket().await;
    socket.chat("s", "go").await;
    let events = socket.until("done").await;
    assert_eq!(of_type(&events, "tool_result").len(), 64);
    let told = told(&script);
    assert_eq!(told.len(), 70);
    assert!(told[64..].iter().all(|(output, is_error)| *is_error && output.starts_with("Too many calls")));
}

#[tokio::test]
async fn a_loop_of_calls_ends_at_the_round_limit_and_the_next_message_is_answered() {
    let mut script = Script::new();
    for _ in 0..10 {
        script = script.step([call("list_dir", json!({}))]);
    }
    let mut setup = setup(script.text("hello"));
    setup.limits.rounds = 10;
    let server = TestServer::start(&setup).await;
    let mut socket = server.socket().await;
    socket.chat("s", "go").await;
    let end = socket.until("error").await.pop().unwrap();
    assert_eq!(end["code"], "ROUND_LIMIT");
    assert!(end["seq"].is_u64());
    let requests = setup.script.requests();
    assert_eq!(requests.len(), 10);
    assert!(requests[..9].iter().all(|request| !request.tools.is_empty()) && requests[9].tools.is_empty());
    socket.chat("s", "hi").await;
    assert_eq!(text(&socket.until("done").await), "hello");
    let last = setup.script.requests().pop().unwrap();
    assert_eq!(results(&last).len(), 9);
}

#[tokio::test]
async fn agents_share_the_tools() {
    let read = || call("file_read", json!({ "path": "a.txt" }));
    let script = Script::new().step([read()]).text("one").step([read()]).text("two");
    let server = start(script.clone()).await;
    file(&server, "a.txt", "shared");
    let mut socket = server.socket().await;
    socket.send("s", "agent_add", json!({ "role": "second" })).await;
    let team = socket.expect("team_update").await;
    let agents = team["agents"].as_array().unwrap();
    assert_eq!(agents[0]["tools"], agents[1]["tools"]);
    assert_eq!(agents[0]["tools"], json!(["file_read", "file_write", "list_dir", "grep", "shell"]));
    for agent in agents {
        socket.send("s", "chat", json!({ "message": "go", "agentId": agent["agentId"] })).await;
        let events = socket.until("done").await;
        let results: Vec<&Value> =
            of_type(&events, "tool_result").iter().map(|result| &result["result"]).collect();
        assert_eq!(results, [&json!("shared")]);
    }
    let requests = script.requests();
    assert_eq!(requests[0].tools, requests[2].tools);
}

#[tokio::test]
async fn an_output_of_nothing_does_not_break_the_turn() {
    let script = Script::new().step([call("file_read", json!({ "path": "empty" }))]).text("empty");
    let server = start(script.clone()).await;
    file(&server, "empty", "");
    let mut socket = server.socket().await;
    socket.chat("s", "go").await;
    assert_eq!(text(&socket.until("done").await), "empty");
    assert_eq!(told(&script), [(String::new(), false)]);
}
