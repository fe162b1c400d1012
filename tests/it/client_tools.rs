//! Tools that a client runs itself: names, who is asked, and every way in which an answer fails to come.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tns_protocol::approval::RiskClass;
use tns_server_core::scripted::Script;
use tns_tests::socket::{of_type, text, types};
use tns_tests::{Socket, TestServer, results};

use crate::{call_id, setup, start};

fn tool(server: &str, name: &str, description: &str) -> Value {
    json!({ "server": server, "name": name, "description": description })
}

async fn register(socket: &mut Socket, tools: &[Value]) {
    socket.send("s", "mcp_tools", json!({ "tools": tools })).await;
}

/// A script of turns that call `mcp_fs_search`, each followed by a text.
fn searches(count: usize) -> Script {
    (0..count).fold(Script::new(), |script, at| {
        script.call("mcp_fs_search", json!({ "at": at })).text(&format!("end {at}"))
    })
}

/// Opens a socket of a FULL_AUTO session that has `fs/search`.
async fn with_search(server: &TestServer) -> Socket {
    let mut socket = server.socket().await;
    socket.send("s", "set_autonomy", json!({ "level": "FULL_AUTO" })).await;
    register(&mut socket, &[tool("fs", "search", "Finds.")]).await;
    socket.settle("s").await;
    socket
}

async fn answer(socket: &mut Socket, call: &Value, answer: Value) {
    let mut answer = answer;
    answer["toolCallId"] = json!(call_id(call));
    socket.send("s", "mcp_result", answer).await;
}

/// Returns what the model was told by the last request: output and whether it is an error.
fn told(script: &Script) -> (String, bool) {
    let request = script.requests().pop().unwrap();
    let last = results(&request).pop().unwrap().clone();
    (last.output, last.is_error)
}

/// Runs another turn whose call is answered, so that nothing is stuck.
async fn works_on(socket: &mut Socket, script: &Script) {
    socket.chat("s", "again").await;
    let call = socket.expect("mcp_call").await;
    answer(socket, &call, json!({ "result": "fine" })).await;
    socket.until("done").await;
    assert_eq!(told(script), ("fine".to_owned(), false));
}

#[tokio::test]
async fn the_client_is_asked_by_bare_names_and_its_answer_reaches_the_model() {
    let script = searches(2);
    let server = start(script.clone()).await;
    let (mut socket, mut other) = (with_search(&server).await, server.socket().await);
    other.join("s").await;
    socket.chat("s", "go").await;
    let mut events = socket.until("mcp_call").await;
    let call = events.last().unwrap().clone();
    assert!(call.get("seq").is_none());
    let fields = json!({ "server": "fs", "tool": "search", "args": { "at": 0 } });
    for (key, value) in fields.as_object().unwrap() {
        assert_eq!(call[key], *value);
    }
    answer(&mut socket, &call, json!({ "result": { "hits": [1, 2] } })).await;
    events.extend(socket.until("done").await);
    let order = [
        "agent_state",
        "agent_state",
        "audit_entry",
        "tool_start",
        "mcp_call",
        "tool_result",
        "token",
        "agent_state",
        "done",
    ];
    assert_eq!(types(&events), order);
    for event in [&events[2], &events[3], &events[5]] {
        assert_eq!((call_id(event), &event["tool"]), (call_id(&call), &json!("mcp_fs_search")));
    }
    assert_eq!(events[5]["result"], r#"{"hits":[1,2]}"#);
    assert_eq!(told(&script), (r#"{"hits":[1,2]}"#.to_owned(), false));
    // The others see the call but are not asked.
    let seen = other.until("done").await;
    assert!(of_type(&seen, "mcp_call").is_empty());
    assert_eq!(of_type(&seen, "tool_result").len(), 1);
    works_on(&mut socket, &script).await;
}

#[tokio::test]
async fn equal_names_stay_apart_doubles_fall_together_and_builtins_keep_their_meaning() {
    let server = start(searches(1)).await;
    let mut socket = server.socket().await;
    let tools = async |socket: &mut Socket| -> Vec<String> {
        socket.settle("s").await;
        let detail = server.rest().session(&tns_tests::session("s")).await.unwrap();
        detail.agents[0]
            .tools
            .iter()
            .filter(|name| name.contains("mcp_") || *name == "shell")
            .cloned()
            .collect()
    };
    let set = [
        tool("fs", "search", "one"),
        tool("git", "search", "two"),
        tool("fs", "search", "one"),
        tool("x", "shell", "not the shell"),
    ];
    let expected = ["shell", "mcp_fs_search", "mcp_git_search", "mcp_x_shell"];
    register(&mut socket, &set).await;
    assert_eq!(tools(&mut socket).await, expected);
    register(&mut socket, &set).await;
    assert_eq!(tools(&mut socket).await, expected);
    let mut second = server.socket().await;
    register(&mut second, &set).await;
    assert_eq!(tools(&mut second).await, expected);
    register(&mut socket, &[]).await;
    register(&mut second, &set[..1]).await;
    assert_eq!(tools(&mut second).await, ["shell", "mcp_fs_search"]);
    assert_eq!(tools(&mut socket).await, ["shell", "mcp_fs_search"]);
    register(&mut second, &[]).await;
    assert_eq!(tools(&mut second).await, ["shell"]);
}

#[tokio::test]
async fn a_call_goes_to_the_server_that_its_name_says() {
    let script = Script::new().call("mcp_git_search", json!({})).call("mcp_fs_search", json!({})).text("ok");
    let server = start(script.clone()).await;
    let mut socket = server.socket().await;
    socket.send("s", "set_autonomy", json!({ "level": "FULL_AUTO" })).await;
    register(&mut socket, &[tool("fs", "search", "f"), tool("git", "search", "g")]).await;
    socket.chat("s", "go").await;
    for expected in ["git", "fs"] {
        let call = socket.expect("mcp_call").await;
        assert_eq!((&call["server"], &call["tool"]), (&json!(expected), &json!("search")));
        answer(&mut socket, &call, json!({ "result": expected })).await;
    }
    socket.until("done").await;
    let requests = script.requests();
    let outputs: Vec<_> = results(&requests[2]).iter().map(|result| result.output.clone()).collect();
    assert_eq!(outputs, ["git", "fs"]);
    let offered: Vec<_> = requests[0].tools.iter().map(|tool| tool.name.clone()).collect();
    assert!(offered.ends_with(&["mcp_fs_search".into(), "mcp_git_search".into()]), "{offered:?}");
}

#[tokio::test]
async fn a_call_that_is_never_answered_fails_at_its_limit() {
    let script = searches(2);
    let mut setup = setup(script.clone());
    setup.limits.tool = Duration::from_millis(300);
    let server = TestServer::start(&setup).await;
    let mut socket = with_search(&server).await;
    socket.chat("s", "go").await;
    let call = socket.expect("mcp_call").await;
    let events = socket.until("done").await;
    assert_eq!(types(&events), ["tool_result", "token", "agent_state", "done"]);
    assert_eq!(events[0]["isError"], true);
    assert!(told(&script).1);
    answer(&mut socket, &call, json!({ "result": "late" })).await;
    assert_eq!(socket.error_code().await, "UNKNOWN_TOOL_CALL");
    works_on(&mut socket, &script).await;
}

#[tokio::test]
async fn a_call_whose_client_leaves_fails_at_once_and_another_takes_over() {
    let script = searches(2);
    let server = start(script.clone()).await;
    let mut other = with_search(&server).await;
    let mut socket = with_search(&server).await;
    other.chat("s", "go").await;
    // The latest registration serves.
    socket.expect("mcp_call").await;
    let began = Instant::now();
    drop(socket);
    let events = other.until("done").await;
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    assert!(of_type(&events, "mcp_call").is_empty());
    assert_eq!(told(&script), ("The client that runs this tool has left.".to_owned(), true));
    works_on(&mut other, &script).await;
}

#[tokio::test]
async fn the_tools_of_a_connection_leave_with_it() {
    let script = Script::new().text("one").call("mcp_fs_search", json!({})).text("two");
    let server = start(script.clone()).await;
    let mut other = server.socket().await;
    other.join("s").await;
    let mut socket = with_search(&server).await;
    socket.chat("s", "go").await;
    socket.until("done").await;
    other.until("done").await;
    let mut connections = server.running().connections();
    drop(socket);
    connections.wait_for(|count| *count == 1).await.unwrap();
    // The connection is counted out after it has left its sessions.
    other.settle("s").await;
    other.chat("s", "again").await;
    assert_eq!(text(&other.until("done").await), "two");
    let requests = script.requests();
    let offers = |at: usize| requests[at].tools.iter().any(|tool| tool.name == "mcp_fs_search");
    assert!(offers(0) && !offers(1));
    assert_eq!(told(&script), ("There is no tool named mcp_fs_search.".to_owned(), true));
}

#[tokio::test]
async fn a_second_answer_is_refused_and_changes_nothing() {
    let script = searches(2);
    let server = start(script.clone()).await;
    let mut socket = with_search(&server).await;
    socket.chat("s", "go").await;
    let call = socket.expect("mcp_call").await;
    answer(&mut socket, &call, json!({ "result": "first" })).await;
    answer(&mut socket, &call, json!({ "result": "second" })).await;
    let mut events = socket.until("done").await;
    events.extend(socket.settle("s").await);
    let errors: Vec<&Value> = of_type(&events, "error").iter().map(|error| &error["code"]).collect();
    assert_eq!(errors, [&json!("UNKNOWN_TOOL_CALL")]);
    assert_eq!(told(&script), ("first".to_owned(), false));
    works_on(&mut socket, &script).await;
}

#[tokio::test]
async fn only_the_connection_that_was_asked_may_answer() {
    let script = searches(2);
    let server = start(script.clone()).await;
    let mut socket = with_search(&server).await;
    let mut other = server.socket().await;
    other.join("s").await;
    socket.chat("s", "go").await;
    let call = socket.expect("mcp_call").await;
    answer(&mut other, &call, json!({ "result": "not mine" })).await;
    assert_eq!(other.error_code().await, "UNKNOWN_TOOL_CALL");
    answer(&mut socket, &call, json!({ "result": "mine" })).await;
    socket.until("done").await;
    assert_eq!(told(&script), ("mine".to_owned(), false));
    works_on(&mut socket, &script).await;
}

#[tokio::test]
async fn an_error_and_an_empty_answer_are_errors_that_the_model_reads() {
    let script = searches(4);
    let server = start(script.clone()).await;
    let mut socket = with_search(&server).await;
    for (given, expected) in [
        (json!({ "error": "no such index" }), "no such index"),
        (json!({ "error": { "code": 7 } }), r#"{"code":7}"#),
        (json!({}), "The client answered with neither a result nor an error."),
    ] {
        socket.chat("s", "go").await;
        let call = socket.expect("mcp_call").await;
        answer(&mut socket, &call, given).await;
        let result = socket.expect("tool_result").await;
        assert_eq!((&result["result"], &result["isError"]), (&json!(expected), &json!(true)));
        socket.until("done").await;
        assert_eq!(told(&script), (expected.to_owned(), true));
    }
    works_on(&mut socket, &script).await;
}

#[tokio::test]
async fn a_clients_tool_asks_where_reading_passes_and_always_pins_its_definition() {
    let script = searches(4);
    let server = start(script.clone()).await;
    let mut socket = server.socket().await;
    register(&mut socket, &[tool("fs", "search", "Finds.")]).await;
    socket.chat("s", "go").await;
    let request = socket.expect("tool_approve_request").await;
    assert_eq!(request["riskClass"], RiskClass::Unknown.as_str());
    assert_eq!(request["risk"], "high");
    socket.decide("s", call_id(&request), "always").await;
    let call = socket.expect("mcp_call").await;
    assert_eq!(call_id(&call), call_id(&request));
    answer(&mut socket, &call, json!({ "result": "ok" })).await;
    socket.until("done").await;
    // The same definition, registered again: covered.
    register(&mut socket, &[tool("fs", "search", "Finds.")]).await;
    socket.chat("s", "go").await;
    let before = socket.until("mcp_call").await;
    assert!(of_type(&before, "tool_approve_request").is_empty());
    answer(&mut socket, before.last().unwrap(), json!({ "result": "ok" })).await;
    socket.until("done").await;
    // Another description, another schema: asked again.
    let schema = json!({ "server": "fs", "name": "search", "description": "Finds.", "inputSchema": { "type": "object" } });
    for changed in [tool("fs", "search", "Deletes."), schema] {
        register(&mut socket, &[changed]).await;
        socket.chat("s", "go").await;
        let request = socket.expect("tool_approve_request").await;
        socket.decide("s", call_id(&request), "reject").await;
        socket.until("done").await;
    }
}

#[tokio::test]
async fn an_answer_for_a_session_that_is_not_there_makes_none() {
    let server = start(Script::new()).await;
    let mut socket = server.socket().await;
    socket.send("s", "mcp_result", json!({ "toolCallId": "call-1", "result": "x" })).await;
    assert_eq!(socket.error_code().await, "SESSION_NOT_FOUND");
    socket.send("s", "cancel", json!({})).await;
    assert_eq!(socket.error_code().await, "SESSION_NOT_FOUND");
    assert_eq!(server.rest().sessions(None, None).await.unwrap().sessions, []);
}

#[tokio::test]
async fn every_agent_has_the_clients_tools_also_one_that_comes_later() {
    let script = searches(2);
    let server = start(script.clone()).await;
    let mut socket = with_search(&server).await;
    socket.send("s", "agent_add", json!({ "role": "later" })).await;
    let team = socket.expect("team_update").await;
    for agent in team["agents"].as_array().unwrap() {
        assert!(agent["tools"].as_array().unwrap().contains(&json!("mcp_fs_search")), "{agent}");
        let chat = json!({ "message": "go", "agentId": agent["agentId"] });
        socket.send("s", "chat", chat).await;
        let call = socket.expect("mcp_call").await;
        answer(&mut socket, &call, json!({ "result": "ok" })).await;
        assert_eq!(socket.expect("tool_result").await["agentId"], agent["agentId"]);
        socket.until("done").await;
    }
}

#[tokio::test]
async fn a_tool_that_can_not_be_offered_is_refused_and_the_set_stays() {
    let server = start(searches(1)).await;
    let mut socket = with_search(&server).await;
    for (wrong, code) in [
        (json!({ "server": "a b", "name": "x" }), "INVALID_MESSAGE"),
        (json!({ "server": "a", "name": "" }), "INVALID_MESSAGE"),
        (json!({ "server": "a" }), "INVALID_MESSAGE"),
        (
            json!({ "server": "a", "name": "x", "inputSchema": { "description": "x".repeat(64 << 10) } }),
            "LIMIT",
        ),
    ] {
        register(&mut socket, &[wrong]).await;
        assert_eq!(socket.error_code().await, code);
    }
    socket.chat("s", "go").await;
    let call = socket.expect("mcp_call").await;
    answer(&mut socket, &call, json!({ "result": "ok" })).await;
    socket.until("done").await;
}
