//! What a session is after a restart, and what a model sees of the log.

use serde_json::{Value, json};
use tns_protocol::approval::{AutonomyLevel, RiskClass};
use tns_protocol::{ErrorCode, MessageId};
use tns_server_core::event::{AssistantMessage, DurableEvent, MessageStatus, ToolStarted, UserMessage};
use tns_server_core::message::{Image, ModelRole, Note, Part, ToolCall, new_call_id};
use tns_server_core::scripted::{Beat, Script, call};
use tns_server_core::store::{
    Append, LOCAL_PRINCIPAL, NewEvent, OpenTurn, SessionRecord, SessionState, Store,
};
use tns_tests::socket::{of_type, text};
use tns_tests::{Setup, TestServer, results, session};

use crate::{say, setup, start};

/// Returns what a request shows as words: role and text of each part.
fn words(script: &Script, at: usize) -> Vec<(ModelRole, String)> {
    let request = script.requests()[at].clone();
    let parts =
        request.messages.iter().flat_map(|message| message.parts.iter().map(|part| (message.role, part)));
    parts
        .map(|(role, part)| match part {
            Part::Text(text) | Part::Note(Note::Text(text)) => (role, text.clone()),
            Part::ToolCall(call) => (role, format!("call {}", call.name)),
            Part::ToolResult(result) => (role, format!("result {}", result.output)),
            Part::Image(image) => (role, format!("image {}", image.mime)),
            Part::Note(Note::Knowledge(_)) => (role, "passages".to_owned()),
        })
        .collect()
}

fn user(text: &str) -> (ModelRole, String) {
    (ModelRole::User, text.to_owned())
}

fn model(text: &str) -> (ModelRole, String) {
    (ModelRole::Assistant, text.to_owned())
}

#[tokio::test]
async fn after_a_restart_the_conversation_its_agents_and_its_level_go_on() {
    let setup = setup(Script::new().text("hello").text("again"));
    let server = TestServer::start(&setup).await;
    let mut socket = server.socket().await;
    socket.send("s", "set_autonomy", json!({ "level": "CAUTIOUS" })).await;
    socket.send("s", "agent_add", json!({ "role": "reviewer", "name": "Ann" })).await;
    socket.expect("team_update").await;
    socket.chat("s", "hi").await;
    socket.until("done").await;
    let before = server.rest().session(&session("s")).await.unwrap();
    server.stop().await;
    let server = TestServer::start(&setup).await;
    assert_eq!(server.rest().session(&session("s")).await.unwrap(), before);
    assert_eq!((before.autonomy, before.agents.len()), (AutonomyLevel::Cautious, 2));
    let mut socket = server.socket().await;
    socket.chat("s", "still there?").await;
    let done = socket.until("done").await.pop().unwrap();
    assert_eq!(done["seq"].as_u64().unwrap(), before.head_seq + 3);
    assert_eq!(
        words(&setup.script, 1),
        [user("Ann (reviewer) joined the team."), user("hi"), model("hello"), user("still there?")]
    );
    assert_eq!(setup.script.requests()[1].system, setup.script.requests()[0].system);
}

#[tokio::test]
async fn a_server_that_stops_ends_the_running_turn_and_stores_its_end() {
    let setup = setup(Script::new().step([say("part"), Beat::Gate(Default::default())]).text("next"));
    let server = TestServer::start(&setup).await;
    let mut socket = server.socket().await;
    socket.chat("s", "hi").await;
    socket.expect("token").await;
    let stopping = server.stop();
    let (done, ()) = tokio::join!(socket.until("done"), stopping);
    assert_eq!(done.last().unwrap()["cancelled"], true);
    let server = TestServer::start(&setup).await;
    let events = server.rest().events(&session("s"), 0).await.unwrap().events;
    assert_eq!(events.last().unwrap()["type"], "interrupted");
}

/// The log of a server that died: a call ran, another was asked for, a second message waited.
async fn crashed(setup: &Setup) -> (SessionRecord, Vec<ToolCall>) {
    let server = TestServer::start(setup).await;
    server.socket().await.join("s").await;
    server.stop().await;
    let record = setup.store.find_session(LOCAL_PRINCIPAL, &session("s")).await.unwrap().unwrap();
    let agent = record.state.agents[0].id.clone();
    let turn = |id: &str| MessageId::parse(id).unwrap();
    let message = |id: &str, text: &str, queued: bool| {
        DurableEvent::UserMessage(UserMessage {
            id: turn(id),
            agent: agent.clone(),
            parts: vec![Part::Text(text.into())],
            client_message_id: None,
            context: None,
            queued,
            during: None,
        })
    };
    let calls: Vec<ToolCall> = ["shell", "file_write"]
        .map(|name| ToolCall {
            id: new_call_id(),
            provider_id: None,
            name: name.into(),
            args: serde_json::Map::new(),
            problem: None,
        })
        .into();
    let step = AssistantMessage {
        id: turn("step"),
        agent: agent.clone(),
        parts: std::iter::once(Part::Text("I look.".into()))
            .chain(calls.iter().cloned().map(Part::ToolCall))
            .collect(),
        model: "script".into(),
        native: None,
        notes: Vec::new(),
        status: MessageStatus::Complete,
        response: None,
        usage: None,
        provider: None,
        counted_on: None,
    };
    let started = ToolStarted {
        call: calls[0].id.clone(),
        agent: agent.clone(),
        tool: "shell".into(),
        args: serde_json::Map::new(),
        class: RiskClass::Unknown,
    };
    let events = [
        ("first", message("first", "do it", false)),
        ("first", DurableEvent::AssistantMessage(step)),
        ("first", DurableEvent::ToolStarted(started)),
        ("second", message("second", "and then?", true)),
    ];
    let open = |id: &str, waiting| OpenTurn { id: turn(id), agent: agent.clone(), waiting };
    let state =
        SessionState { open_turns: vec![open("first", false), open("second", true)], ..record.state.clone() };
    let events = events.map(|(id, event)| NewEvent { turn: Some(turn(id)), event }).into();
    let append = Append { state: Some(state), ..Append::new(record.key, events) };
    setup.store.append(append).await.unwrap();
    (record, calls)
}

#[tokio::test]
async fn a_turn_that_a_crash_cut_is_ended_and_its_open_calls_are_closed() {
    let setup = setup(Script::new().text("then this"));
    let (_, calls) = crashed(&setup).await;
    let server = TestServer::start(&setup).await;
    let rest = server.rest();
    let events = rest.events(&session("s"), 4).await.unwrap().events;
    let types: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["tool_result", "tool_result", "error"]);
    assert_eq!((events[0].get("refused"), &events[1]["refused"]), (None, &json!(true)));
    assert_eq!((&events[0]["toolCallId"], &events[0]["isError"]), (&json!(calls[0].id), &json!(true)));
    assert_eq!((&events[2]["code"], &events[2]["turnId"]), (&json!("SERVER_RESTARTED"), &json!("first")));
    // Nothing runs before somebody is there, and reading is nobody.
    assert_eq!(setup.script.requests().len(), 0);
    assert!(!rest.session(&session("s")).await.unwrap().running);
    let mut socket = server.socket().await;
    socket.send("s", "kb_list", json!({})).await;
    let answered = socket.until("done").await;
    assert_eq!(text(&answered), "then this");
    let interrupted = "result The call was interrupted before it gave a result.";
    assert_eq!(
        words(&setup.script, 0),
        [
            user("do it"),
            model("I look."),
            model("call shell"),
            model("call file_write"),
            user(interrupted),
            user(interrupted),
            user("and then?")
        ]
    );
    assert_eq!(results(&setup.script.requests()[0]).len(), 2);
}

#[tokio::test]
async fn a_second_start_ends_nothing_twice() {
    let setup = setup(Script::new());
    crashed(&setup).await;
    for _ in 0..2 {
        let server = TestServer::start(&setup).await;
        let events = server.rest().events(&session("s"), 0).await.unwrap().events;
        let errors = of_type(&events, "error");
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0]["code"], json!(ErrorCode::ServerRestarted));
        server.stop().await;
    }
}

#[tokio::test]
async fn what_the_system_or_an_event_says_reaches_the_model_marked_as_such() {
    let script = Script::new().text("a").text("b").text("c").text("d");
    let server = start(script.clone()).await;
    let mut socket = server.socket().await;
    let contexts = [
        json!({ "origin": "SYSTEM", "description": "the build" }),
        json!({ "origin": "EVENT" }),
        json!({ "origin": "USER", "description": "typed" }),
    ];
    for context in &contexts {
        let chat = json!({ "message": "It is red.", "context": context });
        socket.send("s", "chat", chat).await;
        socket.until("done").await;
    }
    assert_eq!(
        words(&script, 2),
        [
            user("This comes from the system around this session (the build), not from the user: It is red."),
            model("a"),
            user("This comes from an event, not from the user: It is red."),
            model("b"),
            user("It is red."),
        ]
    );
    // The stored message is what was sent.
    let events = server.rest().events(&session("s"), 0).await.unwrap().events;
    let shown: Vec<&Value> = of_type(&events, "user_message").iter().map(|event| &event["context"]).collect();
    assert_eq!(shown, contexts.iter().collect::<Vec<_>>());
}

#[tokio::test]
async fn a_picture_reaches_the_model_as_it_was_sent() {
    let script = Script::new().text("a dot");
    let server = start(script.clone()).await;
    let mut socket = server.socket().await;
    let content = json!([{ "type": "text", "text": "More words." }, { "type": "image", "mime": "image/png", "data": "iVBORw0KGgo=" }]);
    socket.send("s", "chat", json!({ "message": "what is it?", "content": content })).await;
    socket.until("done").await;
    let image = Image { mime: "image/png".into(), data: "iVBORw0KGgo=".into() };
    let parts = [Part::Text("what is it?".into()), Part::Text("More words.".into()), Part::Image(image)];
    assert_eq!(script.requests()[0].messages[0].parts, parts);
    for wrong in [
        json!([{ "type": "image", "mime": "text/html", "data": "aGk=" }]),
        json!([{ "type": "image", "mime": "image/png", "data": "" }]),
        json!([{ "type": "image", "mime": "image/png", "data": "<not base64>" }]),
        json!([{ "type": "video", "data": "aGk=" }]),
    ] {
        socket.send("s", "chat", json!({ "message": "x", "content": wrong })).await;
        assert_eq!(socket.error_code().await, "INVALID_MESSAGE");
    }
    assert_eq!(script.requests().len(), 1);
}

#[tokio::test]
async fn an_agent_reads_the_reply_of_another_as_a_note_with_its_name() {
    let script = Script::new()
        .step([say("I listed it."), call("list_dir", json!({}))])
        .text("It is empty.")
        .text("I agree.")
        .text("Good.");
    let server = start(script.clone()).await;
    let mut socket = server.socket().await;
    socket.send("s", "agent_add", json!({ "role": "reviewer", "name": "Ann" })).await;
    let team = socket.expect("team_update").await;
    socket.chat("s", "what is there?").await;
    socket.until("done").await;
    socket.send("s", "chat", json!({ "message": "right?", "agentId": team["agents"][1]["agentId"] })).await;
    socket.until("done").await;
    socket.chat("s", "thanks").await;
    socket.until("done").await;
    assert_eq!(
        words(&script, 2),
        [
            user("what is there?"),
            user("assistant answered: I listed it."),
            user("assistant answered: It is empty."),
            user("right?"),
        ]
    );
    let last = words(&script, 3);
    assert_eq!(last[..2], [user("Ann (reviewer) joined the team."), user("what is there?")]);
    assert_eq!(last[2], model("I listed it."));
    assert_eq!(last[last.len() - 3..], [user("right?"), user("Ann answered: I agree."), user("thanks")]);
}

#[tokio::test]
async fn what_was_sent_to_the_model_stays_the_beginning_of_what_is_sent() {
    let script = Script::new()
        .step([say("Looking."), call("list_dir", json!({}))])
        .text("done")
        .text("more")
        .text("end");
    let server = start(script.clone()).await;
    let mut socket = server.socket().await;
    for message in ["one", "two", "three"] {
        socket.chat("s", message).await;
        socket.until("done").await;
    }
    let requests = script.requests();
    for pair in requests.windows(2) {
        let (before, after) = (&pair[0].messages, &pair[1].messages);
        assert_eq!(after[..before.len()], before[..]);
        assert!(after.len() > before.len());
        let roles: Vec<ModelRole> = after.iter().map(|message| message.role).collect();
        assert!(roles.windows(2).all(|pair| pair[0] != pair[1]) && roles[0] == ModelRole::User, "{roles:?}");
    }
}
