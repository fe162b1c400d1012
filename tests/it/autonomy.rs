//! The levels: what runs unasked, what never runs, and who may change the level.

use serde_json::{Value, json};
use tns_server_core::scripted::{Script, call};
use tns_tests::socket::{of_type, types};
use tns_tests::{Socket, TestServer, results, session};

use crate::{call_id, setup, shell, start, write_file};

const LEVELS: [&str; 4] = ["MANUAL", "CAUTIOUS", "SUPERVISED", "FULL_AUTO"];

async fn set_level(socket: &mut Socket, level: &str) {
    socket.send("s", "set_autonomy", json!({ "level": level })).await;
    assert_eq!(socket.expect("autonomy_changed").await["level"], level);
}

/// Runs a turn and rejects what it asks about; returns the audited decisions.
async fn decisions(socket: &mut Socket) -> Vec<String> {
    socket.chat("s", "go").await;
    let mut decisions = Vec::new();
    loop {
        let event = socket.next().await;
        match event["type"].as_str().unwrap() {
            "tool_approve_request" => socket.decide("s", call_id(&event), "reject").await,
            "audit_entry" => decisions.push(event["decision"].as_str().unwrap().to_owned()),
            "done" => return decisions,
            _ => {}
        }
    }
}

#[tokio::test]
async fn each_level_lets_pass_what_it_says() {
    let mut script = Script::new();
    for _ in LEVELS {
        // Reads; builds; writes; is not understood.
        for beat in
            [call("list_dir", json!({})), shell("cargo test"), write_file("a.txt", "x"), shell("true | true")]
        {
            script = script.step([beat]).text("ok");
        }
    }
    let server = start(script).await;
    let mut socket = server.socket().await;
    let expected = [
        ("MANUAL", ["rejected", "rejected", "rejected", "rejected"]),
        ("CAUTIOUS", ["auto_approved", "rejected", "rejected", "rejected"]),
        // The folder is not trusted, so building asks as well.
        ("SUPERVISED", ["auto_approved", "rejected", "rejected", "rejected"]),
        ("FULL_AUTO", ["auto_approved", "auto_approved", "auto_approved", "auto_approved"]),
    ];
    for (level, expected) in expected {
        set_level(&mut socket, level).await;
        for expected in expected {
            assert_eq!(decisions(&mut socket).await, [expected], "{level}");
        }
    }
}

#[tokio::test]
async fn an_escalation_is_blocked_at_every_level_without_a_question() {
    let lines = ["sudo id", "true && sudo id", "su -c id", "env -i doas id", "pkexec id"];
    let mut script = Script::new();
    for _ in LEVELS {
        for line in lines {
            script = script.step([shell(line)]).text("ok");
        }
    }
    let server = start(script.clone()).await;
    let mut socket = server.socket().await;
    for level in LEVELS {
        set_level(&mut socket, level).await;
        for line in lines {
            socket.chat("s", "go").await;
            let events = socket.until("done").await;
            let expected = ["agent_state", "agent_state", "audit_entry", "token", "agent_state", "done"];
            assert_eq!(types(&events), expected, "{level}: {line}");
            let audit = &events[2];
            assert_eq!(
                [&audit["decision"], &audit["riskClass"], &audit["risk"], &audit["summary"]],
                [&json!("blocked"), &json!("ESCALATION"), &json!("critical"), &json!(line)]
            );
            let told = script.requests().pop().unwrap();
            let told = results(&told).pop().unwrap().clone();
            assert!(told.is_error && told.output.starts_with("The call was refused: "), "{}", told.output);
        }
    }
}

#[tokio::test]
async fn full_auto_is_forbidden_without_a_sandbox_and_the_level_stays() {
    let mut setup = setup(Script::new().step([write_file("a.txt", "x")]).text("ok"));
    setup.unsandboxed = false;
    let server = TestServer::start(&setup).await;
    let mut socket = server.socket().await;
    set_level(&mut socket, "CAUTIOUS").await;
    socket.send("s", "set_autonomy", json!({ "level": "FULL_AUTO" })).await;
    let error = socket.expect("error").await;
    assert_eq!((&error["code"], &error["refType"]), (&json!("FORBIDDEN"), &json!("set_autonomy")));
    assert!(error["message"].as_str().unwrap().contains("sandbox"));
    let detail = server.rest().session(&session("s")).await.unwrap();
    assert_eq!(detail.autonomy.as_str(), "CAUTIOUS");
    assert_eq!(decisions(&mut socket).await, ["rejected"]);
}

#[tokio::test]
async fn a_change_of_the_level_is_announced_to_all_and_a_wrong_one_to_nobody_else() {
    let server = start(Script::new()).await;
    let (mut one, mut two) = (server.socket().await, server.socket().await);
    one.join("s").await;
    two.join("s").await;
    for level in LEVELS {
        set_level(&mut one, level).await;
        let seen = two.expect("autonomy_changed").await;
        assert_eq!(seen["level"], level);
        assert!(seen["seq"].is_u64());
    }
    for wrong in ["full_auto", "", "ADMIN"] {
        one.send("s", "set_autonomy", json!({ "level": wrong })).await;
        assert_eq!(one.error_code().await, "INVALID_AUTONOMY_LEVEL", "{wrong:?}");
    }
    assert_eq!(two.settle("s").await, [] as [Value; 0]);
    assert_eq!(server.rest().session(&session("s")).await.unwrap().autonomy.as_str(), "FULL_AUTO");
}

#[tokio::test]
async fn the_level_holds_for_agents_that_are_there_and_that_come() {
    let script =
        Script::new().step([write_file("a.txt", "x")]).text("ok").step([write_file("b.txt", "x")]).text("ok");
    let server = start(script).await;
    let mut socket = server.socket().await;
    set_level(&mut socket, "FULL_AUTO").await;
    socket.send("s", "agent_add", json!({ "role": "second" })).await;
    let team = socket.expect("team_update").await;
    for agent in team["agents"].as_array().unwrap() {
        socket.send("s", "chat", json!({ "message": "go", "agentId": agent["agentId"] })).await;
        let events = socket.until("done").await;
        let audit = of_type(&events, "audit_entry");
        assert_eq!((audit.len(), &audit[0]["decision"]), (1, &json!("auto_approved")));
        assert_eq!(audit[0]["by"], "level FULL_AUTO");
    }
}

#[tokio::test]
async fn a_level_set_during_a_turn_holds_from_the_next_call_on() {
    let script = Script::new().step([write_file("a.txt", "x")]).step([write_file("b.txt", "x")]).text("ok");
    let server = start(script).await;
    let mut socket = server.socket().await;
    socket.chat("s", "go").await;
    let request = socket.expect("tool_approve_request").await;
    set_level(&mut socket, "FULL_AUTO").await;
    // What was asked before goes on waiting.
    assert_eq!(server.rest().session(&session("s")).await.unwrap().pending_approvals.len(), 1);
    socket.decide("s", call_id(&request), "approve").await;
    let events = socket.until("done").await;
    let audits: Vec<&Value> =
        of_type(&events, "audit_entry").iter().map(|entry| &entry["decision"]).collect();
    assert_eq!(audits, [&json!("approved"), &json!("auto_approved")]);
}
