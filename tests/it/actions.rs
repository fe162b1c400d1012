//! What is done to a session over HTTP.

use serde_json::{Value, json};
use tns_server_core::scripted::{Beat, Gate, Script};
use tns_tests::event_stream::EventStream;
use tns_tests::http::Answer;
use tns_tests::{TestServer, http};

use crate::{call_id, say, start, write_file};

async fn call(server: &TestServer, method: &str, path: &str, body: Value) -> Answer {
    http::call(server.address(), method, path, Some(&body)).await
}

async fn with_session(script: Script) -> TestServer {
    let server = start(script).await;
    assert_eq!(call(&server, "POST", "/api/sessions", json!({ "id": "s" })).await.status, 201);
    server
}

#[tokio::test]
async fn a_message_is_accepted_once_and_answered_as_events() {
    let server = with_session(Script::new().text("hi")).await;
    let mut stream = EventStream::open(server.address(), "/api/sessions/s/events?online=1", None).await;
    let said = call(
        &server,
        "POST",
        "/api/sessions/s/messages",
        json!({ "message": "hello", "clientMessageId": "m" }),
    )
    .await;
    assert_eq!((said.status, &said.json()["seq"]), (202, &json!(1)));
    let events = stream.until("done").await;
    assert_eq!(events[0].data["messageId"], said.json()["messageId"]);
    let request = format!(
        "POST /api/sessions/s/messages HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nIdempotency-Key: m\r\n\
         Content-Type: application/json\r\nContent-Length: 19\r\n\r\n{{\"message\":\"hello\"}}",
        server.address()
    );
    let again = http::send(server.address(), request.as_bytes()).await;
    assert_eq!((again.status, again.json()), (202, said.json()));
    for (message, agent) in [("other words", None), ("hello", Some("nobody"))] {
        let body = json!({ "message": message, "agentId": agent, "clientMessageId": "m" });
        let other = call(&server, "POST", "/api/sessions/s/messages", body).await;
        assert!(other.body.contains("the id m was used for another message"), "{other:?}");
        assert_eq!(other.refusal(), (422, "INVALID_MESSAGE".to_owned()));
    }
    let log = http::get(server.address(), "/api/sessions/s/events?live=0").await.json();
    assert_eq!(log["headSeq"], json!(4));
    for (path, body, refusal) in [
        ("/api/sessions/s/messages", json!({ "message": " " }), (400, "INVALID_MESSAGE")),
        ("/api/sessions/s/messages", json!({ "text": "x" }), (422, "INVALID_MESSAGE")),
        (
            "/api/sessions/s/messages",
            json!({ "message": "x", "agentId": "nobody" }),
            (404, "AGENT_NOT_FOUND"),
        ),
        ("/api/sessions/nobody/messages", json!({ "message": "x" }), (404, "SESSION_NOT_FOUND")),
    ] {
        let (status, code) = call(&server, "POST", path, body).await.refusal();
        assert_eq!((status, code.as_str()), refusal, "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn an_approval_is_answered_once_and_a_reply_is_stopped() {
    let script = Script::new()
        .step([write_file("a.txt", "x")])
        .text("done")
        .step([say("long"), Beat::Gate(Gate::new())]);
    let server = with_session(script).await;
    let mut stream = EventStream::open(server.address(), "/api/sessions/s/events?online=1", None).await;
    call(&server, "POST", "/api/sessions/s/messages", json!({ "message": "write" })).await;
    let request = stream.until("tool_approve_request").await.pop().unwrap();
    let path = format!("/api/sessions/s/approvals/{}", call_id(&request.data));
    let (status, code) = call(&server, "POST", &path, json!({ "decision": "aprove" })).await.refusal();
    assert_eq!((status, code.as_str()), (400, "INVALID_DECISION"));
    assert_eq!(call(&server, "POST", &path, json!({ "decision": "approve" })).await.status, 204);
    let (status, code) = call(&server, "POST", &path, json!({ "decision": "reject" })).await.refusal();
    assert_eq!((status, code.as_str()), (404, "UNKNOWN_TOOL_CALL"));
    stream.until("done").await;
    assert!(server.workspace().join("a.txt").exists());
    call(&server, "POST", "/api/sessions/s/messages", json!({ "message": "talk" })).await;
    stream.until("token").await;
    assert_eq!(call(&server, "POST", "/api/sessions/s/interrupt", json!({})).await.status, 202);
    stream.until("interrupted").await;
    assert_eq!(call(&server, "POST", "/api/sessions/s/interrupt", json!({})).await.status, 202);
    server.stop().await;
}

#[tokio::test]
async fn a_session_is_named_copied_rated_found_and_erased() {
    let server = with_session(Script::new().text("the harbour is quiet")).await;
    let mut stream = EventStream::open(server.address(), "/api/sessions/s/events", None).await;
    call(&server, "POST", "/api/sessions/s/messages", json!({ "message": "what of the sea?" })).await;
    stream.until("done").await;
    let renamed = call(&server, "PATCH", "/api/sessions/s", json!({ "title": "Boats" })).await.json();
    assert_eq!(renamed["title"], "Boats");
    assert_eq!(call(&server, "PATCH", "/api/sessions/s", json!({})).await.refusal().0, 422);
    let forked = call(&server, "POST", "/api/sessions/s/fork", json!({ "atSeq": 4, "id": "copy" })).await;
    assert_eq!((forked.status, &forked.json()["title"]), (201, &json!("Boats")));
    let again = call(&server, "POST", "/api/sessions/s/fork", json!({ "atSeq": 4, "id": "copy" })).await;
    assert_eq!(again.refusal().0, 409);
    let messages = http::get(server.address(), "/api/sessions/s/messages").await.json();
    let reply = &messages["messages"][1];
    let rated = json!({ "messageId": reply["messageId"], "score": "down" });
    assert_eq!(call(&server, "POST", "/api/sessions/s/feedback", rated).await.json()["score"], "down");
    let messages = http::get(server.address(), "/api/sessions/s/messages").await.json();
    assert_eq!(messages["messages"][1]["feedback"], "down");
    let found = http::get(server.address(), "/api/sessions/search?q=harbour").await.json();
    let results = found["results"].as_array().unwrap();
    assert_eq!(results.len(), 2);
    assert!(results.iter().all(|hit| hit["foundIn"] == "assistant" && hit["seq"] == json!(3)), "{found}");
    let page = http::get(server.address(), "/api/sessions/search?q=harbour&limit=1").await.json();
    let cursor = page["nextCursor"].as_str().unwrap();
    let rest =
        http::get(server.address(), &format!("/api/sessions/search?q=harbour&cursor={cursor}")).await.json();
    assert_eq!(rest["results"].as_array().unwrap()[..], results[1..]);
    for wrong in ["q=", "q=x&limit=0", "q=x&limit=51", "q=x&cursor=y"] {
        assert_eq!(
            http::get(server.address(), &format!("/api/sessions/search?{wrong}")).await.refusal().0,
            400
        );
    }
    let gone = http::call(server.address(), "DELETE", "/api/sessions/s", None).await;
    assert_eq!((gone.status, gone.body.as_str()), (204, ""));
    assert_eq!(http::call(server.address(), "DELETE", "/api/sessions/s", None).await.refusal().0, 404);
    assert_eq!(http::get(server.address(), "/api/sessions/s/messages").await.refusal().0, 404);
    assert_eq!(http::get(server.address(), "/api/sessions/copy").await.json()["headSeq"], json!(4));
    server.stop().await;
}
