//! Agents of a session: adding, removing, and what the roster shows.

use serde_json::{Value, json};
use tns_server_core::agent::MAX_AGENTS;
use tns_server_core::scripted::{Gate, Script};
use tns_tests::socket::{of_type, text, types};
use tns_tests::{Socket, session};

use crate::{call_id, say, start, write_file};

/// Adds an agent; returns its state and the roster.
async fn add(socket: &mut Socket, fields: Value) -> (Value, Value) {
    socket.send("s", "agent_add", fields).await;
    let mut events = socket.until("team_update").await;
    assert_eq!(types(&events), ["agent_state", "team_update"]);
    let team = events.pop().unwrap();
    (events.pop().unwrap(), team)
}

fn last(team: &Value) -> &Value {
    team["agents"].as_array().unwrap().last().unwrap()
}

fn assert_id(agent: &Value, name: &str) {
    let id = agent["agentId"].as_str().unwrap();
    let hex = id.strip_prefix(name).and_then(|rest| rest.strip_prefix('-')).unwrap_or_else(|| panic!("{id}"));
    assert!(hex.len() == 8 && hex.bytes().all(|b| b"0123456789abcdef".contains(&b)), "{id}");
}

#[tokio::test]
async fn a_session_begins_with_one_assistant() {
    let server = start(Script::new()).await;
    server.socket().await.join("s").await;
    let detail = serde_json::to_value(server.rest().session(&session("s")).await.unwrap()).unwrap();
    let agents = detail["agents"].as_array().unwrap();
    assert_eq!(agents.len(), 1);
    assert_id(&agents[0], "assistant");
    let id = agents[0]["agentId"].clone();
    assert_eq!(
        agents[0],
        json!({ "agentId": id, "name": "assistant", "role": "assistant", "status": "idle",
            "provider": "scripted", "model": "script", "roles": [],
            "tools": ["file_read", "file_write", "list_dir", "grep", "shell"] })
    );
    assert_eq!(detail["autonomy"], "SUPERVISED");
}

#[tokio::test]
async fn an_added_agent_is_idle_with_its_live_engine_and_then_in_the_roster() {
    let server = start(Script::new()).await;
    let (mut socket, mut other) = (server.socket().await, server.socket().await);
    other.join("s").await;
    let fields = json!({ "role": "code reviewer", "goal": "find faults", "domain": "rust", "model": "m-2" });
    let (state, team) = add(&mut socket, fields).await;
    let agent = last(&team);
    assert_id(agent, "code reviewer");
    assert_eq!(
        [&state["agentId"], &state["status"], &state["role"], &state["provider"], &state["model"]],
        [&agent["agentId"], &json!("idle"), &json!("code reviewer"), &json!("scripted"), &json!("m-2")]
    );
    assert_eq!(
        (&agent["name"], &agent["goal"], &agent["domain"]),
        (&json!("code reviewer"), &json!("find faults"), &json!("rust"))
    );
    assert_eq!(team["strategy"], "SINGLE");
    assert!(team["seq"].is_u64() && state.get("seq").is_none());
    assert_eq!(other.until("team_update").await, [state, team]);
}

#[tokio::test]
async fn a_provider_that_is_absent_null_or_blank_is_the_default_one() {
    let server = start(Script::new()).await;
    let mut socket = server.socket().await;
    for provider in [None, Some(Value::Null), Some(json!("")), Some(json!("  "))] {
        let mut fields = json!({ "role": "helper" });
        if let Some(provider) = provider {
            fields["provider"] = provider;
        }
        let (state, _) = add(&mut socket, fields).await;
        assert_eq!(state["provider"], "scripted");
    }
    add(&mut socket, json!({ "role": "helper", "provider": "ollama", "model": "m" })).await;
}

#[tokio::test]
async fn a_provider_that_is_not_set_up_adds_nothing() {
    let server = start(Script::new()).await;
    let mut socket = server.socket().await;
    for provider in ["openai", "Ollama", "nope"] {
        socket.send("s", "agent_add", json!({ "role": "x", "provider": provider })).await;
        let error = socket.expect("error").await;
        assert_eq!((&error["code"], &error["refType"]), (&json!("AGENT_ADD_FAILED"), &json!("agent_add")));
        assert_eq!(socket.settle("s").await, [] as [Value; 0]);
    }
    assert_eq!(server.rest().session(&session("s")).await.unwrap().agents.len(), 1);
}

#[tokio::test]
async fn roles_win_over_goal_and_domain_and_stand_in_the_prompt() {
    let script = Script::new().text("hi");
    let server = start(script.clone()).await;
    let mut socket = server.socket().await;
    let roles = json!([{ "name": "frontend", "goal": "pages", "domain": "web" }, { "name": "backend", "goal": "api" }]);
    let fields = json!({ "role": "dev", "name": "Fay Wu", "goal": "lost", "domain": "lost", "roles": roles });
    let (_, team) = add(&mut socket, fields).await;
    let agent = last(&team);
    assert_id(agent, "Fay Wu");
    assert_eq!((&agent["roles"], &agent["name"], &agent["role"]), (&roles, &json!("Fay Wu"), &json!("dev")));
    assert!(agent.get("goal").is_none() && agent.get("domain").is_none());
    socket.send("s", "chat", json!({ "message": "hi", "agentId": agent["agentId"] })).await;
    socket.until("done").await;
    let system = script.requests()[0].system.clone();
    assert!(system.contains("- frontend: pages (field: web)\n- backend: api\n"), "{system}");
    assert!(system.contains("- assistant (assistant)") && !system.contains("lost"), "{system}");
}

#[tokio::test]
async fn roles_and_names_have_their_limits_at_the_edge() {
    let server = start(Script::new()).await;
    let mut socket = server.socket().await;
    let (_, team) = add(&mut socket, json!({ "role": "職".repeat(64), "name": "é".repeat(64) })).await;
    assert_id(last(&team), &"é".repeat(64));
    for wrong in [
        json!({ "role": "職".repeat(65) }),
        json!({ "role": "" }),
        json!({ "role": "a\u{7}" }),
        json!({ "role": "a", "name": "" }),
        json!({ "role": "a", "name": "n".repeat(65) }),
        json!({ "role": "a", "name": "a\nb" }),
        json!({ "role": "a", "roles": [{ "name": "" }] }),
        json!({ "role": 5 }),
        json!({}),
    ] {
        socket.send("s", "agent_add", wrong.clone()).await;
        assert_eq!(socket.error_code().await, "INVALID_MESSAGE", "{wrong}");
    }
    assert_eq!(server.rest().session(&session("s")).await.unwrap().agents.len(), 2);
}

#[tokio::test]
async fn a_session_takes_agents_up_to_its_limit() {
    let server = start(Script::new()).await;
    let mut socket = server.socket().await;
    for _ in 1..MAX_AGENTS {
        add(&mut socket, json!({ "role": "helper" })).await;
    }
    socket.send("s", "agent_add", json!({ "role": "helper" })).await;
    assert_eq!(socket.error_code().await, "LIMIT");
    assert_eq!(server.rest().session(&session("s")).await.unwrap().agents.len(), MAX_AGENTS);
}

#[tokio::test]
async fn an_agent_is_removed_unless_it_is_unknown_or_the_last() {
    let server = start(Script::new()).await;
    let mut socket = server.socket().await;
    let (_, team) = add(&mut socket, json!({ "role": "helper" })).await;
    let (first, second) = (&team["agents"][0]["agentId"], &team["agents"][1]["agentId"]);
    socket.send("s", "agent_remove", json!({ "agentId": "nobody-00000000" })).await;
    assert_eq!(socket.error_code().await, "AGENT_NOT_FOUND");
    socket.send("s", "agent_remove", json!({ "agentId": first })).await;
    let left = socket.expect("team_update").await;
    assert_eq!(left["agents"], json!([team["agents"][1]]));
    socket.send("s", "agent_remove", json!({ "agentId": second })).await;
    assert_eq!(socket.error_code().await, "AGENT_REMOVE_FAILED");
    socket.send("s", "agent_remove", json!({ "agentId": first })).await;
    assert_eq!(socket.error_code().await, "AGENT_NOT_FOUND");
    assert_eq!(socket.settle("s").await, [] as [Value; 0]);
}

#[tokio::test]
async fn removing_an_agent_interrupts_its_turn_and_the_queue_goes_on() {
    let script = Script::new().step([write_file("a.txt", "x")]).text("from the first");
    let server = start(script).await;
    let mut socket = server.socket().await;
    let (_, team) = add(&mut socket, json!({ "role": "helper" })).await;
    let second = &team["agents"][1]["agentId"];
    for _ in 0..2 {
        socket.send("s", "chat", json!({ "message": "go", "agentId": second })).await;
    }
    let request = socket.expect("tool_approve_request").await;
    socket.send("s", "agent_remove", json!({ "agentId": second })).await;
    let events = socket.until("done").await;
    assert_eq!(of_type(&events, "team_update").len(), 1);
    assert_eq!(of_type(&events, "audit_entry")[0]["decision"], "cancelled");
    assert_eq!(events.last().unwrap()["cancelled"], true);
    socket.decide("s", call_id(&request), "approve").await;
    // What waited for the one that is gone is answered by the first.
    let events = socket.until("done").await;
    assert_eq!(text(&events), "from the first");
    assert_eq!(of_type(&events, "token")[0]["agentId"], team["agents"][0]["agentId"]);
    assert!(!server.workspace().join("a.txt").exists());
}

#[tokio::test]
async fn the_roster_shows_who_works() {
    let gate = Gate::new();
    let script = Script::new().step([say("a"), tns_server_core::scripted::Beat::Gate(gate.clone())]);
    let server = start(script).await;
    let mut socket = server.socket().await;
    socket.chat("s", "go").await;
    socket.expect("token").await;
    let rest = server.rest();
    let status = async || rest.session(&session("s")).await.unwrap().agents[0].status;
    assert_eq!(status().await, tns_protocol::agent::AgentStatus::Thinking);
    gate.open();
    socket.until("done").await;
    assert_eq!(status().await, tns_protocol::agent::AgentStatus::Idle);
}

#[tokio::test]
async fn a_message_to_an_agent_that_is_not_there_starts_no_turn() {
    let script = Script::new().text("never");
    let server = start(script.clone()).await;
    let mut socket = server.socket().await;
    socket.send("s", "chat", json!({ "message": "go", "agentId": "nobody-00000000" })).await;
    assert_eq!(socket.error_code().await, "AGENT_NOT_FOUND");
    assert_eq!(socket.settle("s").await, [] as [Value; 0]);
    assert_eq!(script.requests().len(), 0);
}
