//! Tools of a client that reads events over HTTP: asked on its stream, answered by a post, gone with the stream.

use serde_json::{Value, json};
use tns_server_core::scripted::Script;
use tns_tests::event_stream::EventStream;
use tns_tests::http::{self, Answer};
use tns_tests::{TestServer, results};

use crate::{call_id, start};

async fn post(server: &TestServer, path: &str, body: Value) -> Answer {
    http::call(server.address(), "POST", path, Some(&body)).await
}

async fn say(server: &TestServer) {
    assert_eq!(post(server, "/api/sessions/s/messages", json!({ "message": "go" })).await.status, 202);
}

/// Opens a stream whose client may run tools, and returns its name.
async fn open(server: &TestServer) -> (EventStream, String) {
    let mut stream = EventStream::open(server.address(), "/api/sessions/s/events?tools=1", None).await;
    let first = stream.next().await.unwrap();
    assert_eq!((first.name.as_str(), first.id), ("stream", None));
    let name = first.data["stream"].as_str().unwrap().to_owned();
    (stream, name)
}

async fn register(server: &TestServer, stream: &str) -> Answer {
    let tool = json!({ "server": "fs", "name": "search", "description": "Finds." });
    post(server, "/api/sessions/s/tools", json!({ "stream": stream, "tools": [tool] })).await
}

async fn answer(server: &TestServer, call: &Value, body: Value) -> Answer {
    post(server, &format!("/api/sessions/s/tools/{}/result", call_id(call)), body).await
}

/// Starts a server with a FULL_AUTO session whose turns call the tool, each followed by a text.
async fn with_session(turns: usize) -> (TestServer, Script) {
    let script = (0..turns)
        .fold(Script::new(), |script, at| script.call("mcp_fs_search", json!({ "at": at })).text("end"));
    let server = start(script.clone()).await;
    let mut socket = server.socket().await;
    socket.send("s", "set_autonomy", json!({ "level": "FULL_AUTO" })).await;
    socket.expect("autonomy_changed").await;
    (server, script)
}

/// Returns what the model was told by the last request: output and whether it is an error.
fn told(script: &Script) -> (String, bool) {
    let request = script.requests().pop().unwrap();
    let last = results(&request).pop().unwrap().clone();
    (last.output, last.is_error)
}

#[tokio::test]
async fn a_reader_of_a_stream_runs_tools_and_answers_once() {
    let (server, script) = with_session(3).await;
    let (mut stream, name) = open(&server).await;
    let (mut other, other_name) = open(&server).await;
    assert_eq!(register(&server, &name).await.status, 204);
    say(&server).await;
    let call = stream.until("mcp_call").await.pop().unwrap();
    assert_eq!((call.id, &call.data["server"], &call.data["tool"]), (None, &json!("fs"), &json!("search")));
    // Another stream was not asked, and may not answer.
    let wrong = json!({ "stream": other_name, "result": "no" });
    assert_eq!(answer(&server, &call.data, wrong).await.refusal(), (404, "UNKNOWN_TOOL_CALL".to_owned()));
    let right = json!({ "stream": name, "result": { "hits": [1, 2] } });
    assert_eq!(answer(&server, &call.data, right.clone()).await.status, 204);
    stream.until("done").await;
    assert_eq!(told(&script), (r#"{"hits":[1,2]}"#.to_owned(), false));
    assert_eq!(answer(&server, &call.data, right).await.refusal().0, 404);
    let seen = other.until("done").await;
    assert!(seen.iter().all(|event| event.name != "mcp_call"), "{seen:?}");
    // Whose stream was asked is known without its name as well; an error and null are answers.
    for (body, expected) in
        [(json!({ "error": "no disk" }), ("no disk", true)), (json!({ "result": null }), ("null", false))]
    {
        say(&server).await;
        let call = stream.until("mcp_call").await.pop().unwrap();
        assert_eq!(answer(&server, &call.data, body).await.status, 204);
        stream.until("done").await;
        assert_eq!(told(&script), (expected.0.to_owned(), expected.1));
    }
    server.stop().await;
}

#[tokio::test]
async fn a_call_that_a_socket_was_asked_for_is_not_answered_over_http() {
    let (server, script) = with_session(1).await;
    let (_stream, _) = open(&server).await;
    let mut socket = server.socket().await;
    let tool = json!({ "server": "fs", "name": "search", "description": "Finds." });
    socket.send("s", "mcp_tools", json!({ "tools": [tool] })).await;
    socket.chat("s", "go").await;
    let call = socket.expect("mcp_call").await;
    let refused = answer(&server, &call, json!({ "result": "not mine" })).await;
    assert_eq!(refused.refusal(), (404, "UNKNOWN_TOOL_CALL".to_owned()));
    socket.send("s", "mcp_result", json!({ "toolCallId": call_id(&call), "result": "mine" })).await;
    socket.until("done").await;
    assert_eq!(told(&script), ("mine".to_owned(), false));
    server.stop().await;
}

#[tokio::test]
async fn tools_leave_with_their_stream_and_need_one() {
    let (server, script) = with_session(1).await;
    let (mut stream, name) = open(&server).await;
    assert_eq!(register(&server, &name).await.status, 204);
    say(&server).await;
    stream.until("mcp_call").await;
    let mut watching = EventStream::open(server.address(), "/api/sessions/s/events", None).await;
    drop(stream);
    watching.until("done").await;
    assert_eq!(told(&script), ("The client that runs this tool has left.".to_owned(), true));
    let detail = http::get(server.address(), "/api/sessions/s").await.json();
    let tools = detail["agents"][0]["tools"].as_array().unwrap();
    assert!(!tools.contains(&json!("mcp_fs_search")), "{tools:?}");
    assert_eq!(register(&server, &name).await.refusal(), (404, "NOT_FOUND".to_owned()));
    // A stream that did not ask for tools is told no name, and one of another session is not meant.
    let (_, other) = open(&server).await;
    let missing = post(&server, "/api/sessions/none/tools", json!({ "stream": other, "tools": [] })).await;
    assert_eq!(missing.refusal(), (404, "SESSION_NOT_FOUND".to_owned()));
    let unknown = post(&server, "/api/sessions/s/tools/none/result", json!({ "result": 1 })).await;
    assert_eq!(unknown.refusal(), (404, "UNKNOWN_TOOL_CALL".to_owned()));
    server.stop().await;
}
