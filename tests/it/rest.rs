//! The REST face: every route, its status codes, and its refusals as JSON.

use serde_json::{Value, json};
use tns_protocol::rest::{CreateSession, KbAddRequest, KbScope, SearchRequest};
use tns_protocol::schema;
use tns_server_core::scripted::Script;
use tns_tests::http::{self, Answer};
use tns_tests::{TestServer, session};

use crate::{call_id, setup, start, write_file};

async fn get(server: &TestServer, path: &str) -> Answer {
    http::get(server.address(), path).await
}

async fn post(server: &TestServer, path: &str, body: Value) -> Answer {
    http::call(server.address(), "POST", path, Some(&body)).await
}

/// Starts a server with one session `s` of one turn: a reading call, a refused one, a reply.
async fn with_a_turn() -> TestServer {
    let script = Script::new().call("list_dir", json!({})).step([write_file("a.txt", "x")]).text("seen");
    let server = start(script).await;
    let mut socket = server.socket().await;
    socket.chat("s", "look").await;
    let request = socket.expect("tool_approve_request").await;
    socket.decide("s", call_id(&request), "reject").await;
    socket.until("done").await;
    server
}

#[tokio::test]
async fn health_says_up_and_ready() {
    let server = start(Script::new()).await;
    let health = get(&server, "/health").await;
    let up = json!({ "status": "UP", "components": { "server": "UP", "store": "UP", "engine": "UP", "knowledge": "UP" } });
    assert_eq!((health.status, health.json()), (200, up));
    for path in ["/health/live", "/health/ready"] {
        let answer = get(&server, path).await;
        assert_eq!((answer.status, answer.json()), (200, json!({ "status": "UP" })), "{path}");
    }
}

#[tokio::test]
async fn info_names_the_server_its_engine_and_its_limits() {
    let server = start(Script::new()).await;
    let mut info = get(&server, "/api/info").await.json();
    let workspace = std::fs::canonicalize(server.workspace()).unwrap();
    assert!(info["uptimeSeconds"].is_u64());
    info["uptimeSeconds"] = json!(0);
    assert_eq!(
        info,
        json!({ "name": "tns", "version": env!("CARGO_PKG_VERSION"), "protocol": 1, "extensions": ["events.1"],
            "activeSessions": 0, "uptimeSeconds": 0, "defaultProvider": "scripted", "defaultModel": "script",
            "defaultReason": "a test", "workspaces": [workspace],
            "limits": { "maxMessageBytes": 8 << 20, "maxSmallMessageBytes": 1 << 20 } })
    );
    assert_eq!(get(&server, "/api/schema").await.json(), schema());
}

#[tokio::test]
async fn what_is_not_there_or_not_taken_is_said_as_json() {
    let server = start(Script::new()).await;
    let address = server.address();
    for (method, path, expected) in [
        ("GET", "/", (404, "NOT_FOUND")),
        ("GET", "/api", (404, "NOT_FOUND")),
        ("GET", "/api/sessions/s/nothing", (404, "NOT_FOUND")),
        ("DELETE", "/api/sessions", (405, "NOT_FOUND")),
        ("POST", "/health", (405, "NOT_FOUND")),
        ("PUT", "/api/kb", (405, "NOT_FOUND")),
        ("GET", "/api/index", (501, "NOT_IMPLEMENTED")),
        ("POST", "/api/index", (501, "NOT_IMPLEMENTED")),
        ("DELETE", "/api/index?sessionId=s", (501, "NOT_IMPLEMENTED")),
        ("GET", "/api/index/status?sessionId=s", (501, "NOT_IMPLEMENTED")),
        ("POST", "/api/search", (501, "NOT_IMPLEMENTED")),
        ("GET", "/api/sessions/missing", (404, "SESSION_NOT_FOUND")),
        ("GET", "/api/sessions/missing/messages", (404, "SESSION_NOT_FOUND")),
        ("GET", "/api/sessions/missing/events?live=0", (404, "SESSION_NOT_FOUND")),
        ("GET", "/api/audit?sessionId=missing", (404, "SESSION_NOT_FOUND")),
        ("GET", "/api/kb?sessionId=missing", (404, "SESSION_NOT_FOUND")),
        ("DELETE", "/api/kb/doc-1?sessionId=missing", (404, "SESSION_NOT_FOUND")),
        ("GET", "/api/sessions/a%20b", (400, "INVALID_MESSAGE")),
        ("GET", "/api/kb", (400, "INVALID_MESSAGE")),
        ("GET", "/api/sessions?limit=0", (400, "INVALID_MESSAGE")),
        ("GET", "/api/sessions?limit=1001", (400, "INVALID_MESSAGE")),
        ("GET", "/api/sessions?limit=x", (400, "INVALID_MESSAGE")),
        ("GET", "/api/sessions?cursor=x", (400, "INVALID_MESSAGE")),
        ("GET", "/api/audit?decision=maybe", (400, "INVALID_MESSAGE")),
        ("GET", "/api/audit?since=yesterday", (400, "INVALID_MESSAGE")),
    ] {
        let (status, code) = http::call(address, method, path, None).await.refusal();
        assert_eq!((status, code.as_str()), expected, "{method} {path}");
    }
    // None of these reads made a session.
    assert_eq!(get(&server, "/api/sessions").await.json(), json!({ "sessions": [] }));
}

#[tokio::test]
async fn bodies_that_can_not_be_read_are_refused_as_json() {
    let server = start(Script::new()).await;
    let address = server.address();
    let send = async |content_type: &str, body: &str| {
        let request = format!(
            "POST /api/kb/search HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{content_type}\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        http::send(address, request.as_bytes()).await.refusal()
    };
    let invalid = |status| (status, "INVALID_MESSAGE".to_owned());
    let json_type = "Content-Type: application/json\r\n";
    assert_eq!(send("", "{}").await, invalid(415));
    assert_eq!(send("Content-Type: text/plain\r\n", "{}").await, invalid(415));
    assert_eq!(send(json_type, "{").await, invalid(400));
    // Not read as an object's members in their order, either.
    assert_eq!(send(json_type, "[]").await, invalid(422));
    assert_eq!(send(json_type, r#"["s","words"]"#).await, invalid(422));
    assert_eq!(send(json_type, r#"{"sessionId":"s"}"#).await, invalid(422));
    assert_eq!(send(json_type, r#"{"sessionId":"a b","query":"x"}"#).await, invalid(422));
    let large = format!(r#"{{"sessionId":"s","query":"{}"}}"#, "x".repeat(9 << 20));
    assert_eq!(send(json_type, &large).await, (413, "PAYLOAD_TOO_LARGE".to_owned()));
}

#[tokio::test]
async fn a_session_is_made_once_and_shown() {
    let server = start(Script::new()).await;
    let folder = tempfile::tempdir().unwrap();
    let folder = std::fs::canonicalize(folder.path()).unwrap();
    std::fs::create_dir_all(&folder).unwrap();
    let body = json!({ "id": "mine", "title": "Shop", "workspace": folder });
    let made = post(&server, "/api/sessions", body).await;
    assert_eq!(made.status, 201);
    let mut detail = made.json();
    let agent = detail["agents"][0]["agentId"].clone();
    for time in ["createdAt", "updatedAt"] {
        assert!(detail[time].as_str().unwrap().ends_with('Z'));
        detail[time] = json!("now");
    }
    assert_eq!(
        detail,
        json!({ "id": "mine", "title": "Shop", "temp": false, "createdAt": "now", "updatedAt": "now",
            "headSeq": 0, "autonomy": "SUPERVISED", "workspace": folder, "supportsImageInput": false,
            "supportsImageOutput": false, "running": false, "pendingApprovals": [],
            "agents": [{ "agentId": agent, "name": "assistant", "role": "assistant", "status": "idle",
                "provider": "scripted", "model": "script", "roles": [],
                "tools": ["file_read", "file_write", "list_dir", "grep", "shell"] }] })
    );
    let again = post(&server, "/api/sessions", json!({ "id": "mine", "title": "Other" })).await;
    assert_eq!((again.status, again.json()), (200, made.json()));
    assert_eq!(get(&server, "/api/sessions/mine").await.json(), made.json());
    let named = post(&server, "/api/sessions", json!({})).await;
    assert_eq!(named.status, 201);
    assert!(!named.json()["id"].as_str().unwrap().is_empty());
    for wrong in [
        json!({ "id": "a b" }),
        json!({ "title": "t".repeat(201) }),
        json!({ "workspace": "relative" }),
        json!({ "workspace": "/no/such/folder" }),
        json!({ "workspace": "/proc/self/status" }),
    ] {
        let (status, code) = post(&server, "/api/sessions", wrong.clone()).await.refusal();
        assert!(matches!(status, 400 | 422) && code == "INVALID_MESSAGE", "{status} {wrong}");
    }
    assert_eq!(server.rest().sessions(None, None).await.unwrap().sessions.len(), 2);
    std::fs::remove_dir(folder).unwrap();
}

#[tokio::test]
async fn sessions_are_listed_by_their_last_event_page_by_page() {
    let script = Script::new().text("hi");
    let server = start(script).await;
    let rest = server.rest();
    for at in 0..5 {
        let body = CreateSession { id: Some(session(&format!("s{at}"))), ..CreateSession::default() };
        rest.create_session(body).await.unwrap();
    }
    let mut socket = server.socket().await;
    socket.chat("s1", "hi").await;
    socket.until("done").await;
    let mut ids = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let page = rest.sessions(cursor.as_deref(), Some(2)).await.unwrap();
        assert!((1..=2).contains(&page.sessions.len()));
        ids.extend(page.sessions.into_iter().map(|row| row.id.to_string()));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(ids, ["s1", "s4", "s3", "s2", "s0"]);
    let whole = rest.sessions(None, None).await.unwrap();
    assert_eq!((whole.sessions.len(), whole.next_cursor), (5, None));
    assert_eq!(whole.sessions[0].head_seq, 4);
}

#[tokio::test]
async fn messages_are_read_in_pages() {
    let server = with_a_turn().await;
    let all = get(&server, "/api/sessions/s/messages").await.json();
    let shown: Vec<Value> = all["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| json!([message["role"], message["content"], message["tool"], message["failed"]]))
        .collect();
    assert_eq!(
        shown,
        [
            json!(["user", "look", null, null]),
            json!(["assistant", "", null, null]),
            json!(["tool", "[empty folder]", "list_dir", null]),
            json!(["assistant", "", null, null]),
            json!(["tool", "The call was rejected.", "file_write", true]),
            json!(["assistant", "seen", null, null]),
        ]
    );
    assert_eq!(all["more"], false);
    let seqs: Vec<u64> =
        all["messages"].as_array().unwrap().iter().map(|row| row["seq"].as_u64().unwrap()).collect();
    assert!(seqs.is_sorted());
    let page = get(&server, "/api/sessions/s/messages?limit=2").await.json();
    assert_eq!((page["messages"].as_array().unwrap().len(), &page["more"]), (2, &json!(true)));
    let page = get(&server, &format!("/api/sessions/s/messages?afterSeq={}", seqs[1])).await.json();
    assert_eq!(page["messages"].as_array().unwrap()[..], all["messages"].as_array().unwrap()[2..]);
    let page = get(&server, &format!("/api/sessions/s/messages?beforeSeq={}", seqs[2])).await.json();
    assert_eq!(page["messages"].as_array().unwrap()[..], all["messages"].as_array().unwrap()[..2]);
    for wrong in ["limit=0", "limit=501", "afterSeq=-1", "afterSeq=x"] {
        let (status, _) = get(&server, &format!("/api/sessions/s/messages?{wrong}")).await.refusal();
        assert_eq!(status, 400, "{wrong}");
    }
}

#[tokio::test]
async fn stored_events_are_frames_of_the_protocol_in_order() {
    let server = with_a_turn().await;
    let list = get(&server, "/api/sessions/s/events?live=0").await.json();
    let events = list["events"].as_array().unwrap();
    let types: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(
        types,
        [
            "user_message",
            "session_updated",
            "assistant_message",
            "audit_entry",
            "tool_start",
            "tool_result",
            "assistant_message",
            "tool_approve_request",
            "tool_approval_resolved",
            "audit_entry",
            "tool_result",
            "assistant_message",
            "done"
        ]
    );
    // A log has no gaps: what the model was told of the refused call is in it too.
    let seqs: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=13).collect::<Vec<_>>());
    assert_eq!((&list["headSeq"], &list["more"]), (&json!(13), &json!(false)));
    let validator = jsonschema::validator_for(&schema()).unwrap();
    for event in events {
        let problems: Vec<String> = validator.iter_errors(event).map(|error| error.to_string()).collect();
        assert_eq!(problems, [] as [String; 0], "{event}");
        assert_eq!(event["turnId"], events[0]["messageId"]);
    }
    let rest = get(&server, "/api/sessions/s/events?live=0&after=6").await.json();
    assert_eq!(rest["events"].as_array().unwrap()[..], events[6..]);
}

#[tokio::test]
async fn the_audit_is_filtered_by_session_decision_time_and_number() {
    let server = with_a_turn().await;
    server.socket().await.join("other").await;
    let decisions = |answer: Answer| -> Vec<String> {
        let body = answer.json();
        let entries = body["entries"].as_array().unwrap().clone();
        assert_eq!(body["count"], entries.len());
        entries.iter().map(|entry| entry["decision"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(decisions(get(&server, "/api/audit?sessionId=s").await), ["auto_approved", "rejected"]);
    assert_eq!(get(&server, "/api/audit?sessionId=s").await.json()["sessionId"], "s");
    assert_eq!(decisions(get(&server, "/api/audit").await), ["auto_approved", "rejected"]);
    assert!(get(&server, "/api/audit").await.json().get("sessionId").is_none());
    assert_eq!(decisions(get(&server, "/api/audit?sessionId=other").await), [] as [&str; 0]);
    assert_eq!(decisions(get(&server, "/api/audit?decision=rejected").await), ["rejected"]);
    // The newest ones, oldest first.
    assert_eq!(decisions(get(&server, "/api/audit?limit=1").await), ["rejected"]);
    assert_eq!(decisions(get(&server, "/api/audit?since=2020-01-01T00:00:00Z").await).len(), 2);
    assert_eq!(decisions(get(&server, "/api/audit?since=2200-01-01T00:00:00Z").await), [] as [&str; 0]);
}

fn document(session_id: &str, content: &str, scope: KbScope) -> KbAddRequest {
    KbAddRequest { session_id: session(session_id), content: content.into(), metadata: None, scope }
}

#[tokio::test]
async fn a_document_belongs_to_a_session_a_folder_or_the_user() {
    let setup = setup(Script::new());
    let server = TestServer::start(&setup).await;
    let rest = server.rest();
    let elsewhere = tempfile::tempdir().unwrap();
    for (id, workspace) in [("a", None), ("b", None), ("c", Some(elsewhere.path().display().to_string()))] {
        let body = CreateSession { id: Some(session(id)), workspace, ..CreateSession::default() };
        rest.create_session(body).await.unwrap();
    }
    for (content, scope) in [
        ("penguins of the session", KbScope::Session),
        ("penguins of the folder", KbScope::Project),
        ("penguins of the user", KbScope::User),
    ] {
        assert!(!rest.kb_add(document("a", content, scope)).await.unwrap().duplicate);
        assert!(rest.kb_add(document("a", content, scope)).await.unwrap().duplicate);
    }
    for (id, expected) in [("a", 3), ("b", 2), ("c", 1)] {
        let list = rest.kb_list(&session(id)).await.unwrap();
        assert_eq!((list.total_count, list.documents.len()), (expected, expected as usize), "{id}");
        let search =
            SearchRequest { session_id: session(id), query: "penguins".into(), limit: None, threshold: None };
        let found = rest.kb_search(search).await.unwrap();
        assert_eq!((found.count, found.results.len()), (expected, expected as usize), "{id}");
    }
    let of_folder = rest.kb_list(&session("b")).await.unwrap().documents[0].document_id.clone();
    assert!(!rest.kb_remove(&session("c"), &of_folder).await.unwrap().found);
    assert!(rest.kb_remove(&session("b"), &of_folder).await.unwrap().found);
    assert_eq!(rest.kb_list(&session("a")).await.unwrap().total_count, 2);
}

#[tokio::test]
async fn the_knowledge_routes_answer_with_their_status_codes() {
    let server = start(Script::new()).await;
    server.socket().await.join("s").await;
    let body = json!({ "sessionId": "s", "content": "the text", "metadata": { "source": "a.md" }, "scope": "session" });
    let added = post(&server, "/api/kb", body.clone()).await;
    assert_eq!(added.status, 201);
    let id = added.json()["documentId"].as_str().unwrap().to_owned();
    let again = post(&server, "/api/kb", body).await;
    assert_eq!((again.status, again.json()), (200, json!({ "documentId": id, "duplicate": true })));
    for (path, wrong) in [
        ("/api/kb", json!({ "sessionId": "s", "content": " " })),
        ("/api/kb/search", json!({ "sessionId": "s", "query": " " })),
        ("/api/kb/search", json!({ "sessionId": "s", "query": "x", "limit": 51 })),
        ("/api/kb/search", json!({ "sessionId": "s", "query": "x", "threshold": 2.0 })),
    ] {
        assert_eq!(post(&server, path, wrong).await.refusal(), (400, "INVALID_MESSAGE".to_owned()));
    }
    let missing = json!({ "sessionId": "missing", "content": "x", "query": "x" });
    for path in ["/api/kb", "/api/kb/search"] {
        let refusal = post(&server, path, missing.clone()).await.refusal();
        assert_eq!(refusal, (404, "SESSION_NOT_FOUND".to_owned()), "{path}");
    }
    let path = format!("/api/kb/{id}?sessionId=s");
    for found in [true, false] {
        let removed = http::call(server.address(), "DELETE", &path, None).await;
        assert_eq!((removed.status, removed.json()), (200, json!({ "documentId": id, "found": found })));
    }
}
