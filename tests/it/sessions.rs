//! Sessions as things: named, forked, rated, erased, and temporary.

use std::time::Duration;

use serde_json::{Value, json};
use tns_protocol::rest::CreateSession;
use tns_server_core::scripted::{Beat, Gate, Script};
use tns_server_core::store::{DocumentStore, LOCAL_PRINCIPAL, SearchQuery, Store};
use tns_tests::socket::{of_type, text};
use tns_tests::{Setup, TestServer, http, session};

use crate::{say, setup, start};

async fn titles(server: &TestServer) -> Vec<Option<String>> {
    let list = server.rest().sessions(None, None).await.unwrap();
    list.sessions.into_iter().map(|session| session.title).collect()
}

#[tokio::test]
async fn a_session_is_renamed_for_everybody_and_after_a_restart() {
    let setup = setup(Script::new());
    let server = TestServer::start(&setup).await;
    let (mut one, mut two) = (server.extended("s").await, server.extended("s").await);
    one.send("s", "session_rename", json!({ "title": "  The checkout " })).await;
    for socket in [&mut one, &mut two] {
        let updated = socket.expect("session_updated").await;
        assert_eq!((&updated["title"], &updated["seq"]), (&json!("The checkout"), &json!(1)));
    }
    for (title, code) in [(json!("x".repeat(201)), "INVALID_MESSAGE"), (json!("a\u{1b}b"), "INVALID_MESSAGE")]
    {
        one.send("s", "session_rename", json!({ "title": title })).await;
        assert_eq!(one.error_code().await, code);
    }
    server.stop().await;
    let server = TestServer::start(&setup).await;
    assert_eq!(titles(&server).await, [Some("The checkout".to_owned())]);
    let mut socket = server.extended("s").await;
    socket.send("s", "session_rename", json!({ "title": null })).await;
    assert_eq!(socket.expect("session_updated").await.get("title"), None);
    assert_eq!(titles(&server).await, [None]);
    server.stop().await;
}

#[tokio::test]
async fn deleting_ends_what_runs_and_leaves_nothing() {
    let setup = setup(Script::new().step([say("secret words"), Beat::Gate(Gate::new())]));
    let server = TestServer::start(&setup).await;
    let mut socket = server.extended("s").await;
    socket.send("s", "kb_add", json!({ "content": "a secret document" })).await;
    socket.expect("kb_added").await;
    socket.chat("s", "a secret question").await;
    socket.expect("token").await;
    socket.send("s", "session_delete", json!({})).await;
    let events = socket.until("session_closing").await;
    assert_eq!(of_type(&events, "interrupted").len(), 1);
    assert!(server.rest().session(&session("s")).await.is_err());
    assert!(titles(&server).await.is_empty());
    let query =
        SearchQuery { principal: LOCAL_PRINCIPAL.into(), text: "secret".into(), limit: 10, after: None };
    assert!(setup.store.search(query).await.unwrap().hits.is_empty());
    let left = setup.store.document_changes(0, 10).await.unwrap();
    assert!(left.iter().all(|change| change.document.is_none()), "{left:?}");
    // The id may be used again, and begins anew.
    socket.chat("s", "hello").await;
    assert_eq!(socket.expect("user_message").await["seq"], json!(1));
    server.stop().await;
}

#[tokio::test]
async fn a_fork_has_the_log_up_to_its_place_and_goes_on_by_itself() {
    let script = Script::new().text("one").text("two").text("three");
    let setup = setup(script);
    let server = TestServer::start(&setup).await;
    let mut socket = server.extended("s").await;
    socket.send("s", "session_rename", json!({ "title": "first" })).await;
    for words in ["a", "b"] {
        socket.chat("s", words).await;
        socket.until("done").await;
    }
    for (at, why) in [
        (2, "a turn has not ended at 2; fork at the end of a turn: 4"),
        (5, "a turn has not ended at 5; fork at the end of a turn: 4 or 7"),
        (99, "the log ends at 7, before 99"),
    ] {
        socket.send("s", "session_fork", json!({ "atSeq": at })).await;
        let error = socket.expect("error").await;
        assert_eq!((&error["code"], &error["message"]), (&json!("INVALID_MESSAGE"), &json!(why)));
        let path = "/api/sessions/s/fork";
        let refused = http::call(server.address(), "POST", path, Some(&json!({ "atSeq": at }))).await;
        assert_eq!((refused.status, &refused.json()["error"]["message"]), (400, &json!(why)));
    }
    socket.send("s", "session_fork", json!({ "atSeq": 4 })).await;
    let forked = socket.expect("session_forked").await;
    let id = forked["newSessionId"].as_str().unwrap();
    let rest = server.rest();
    let of = async |id: &str| -> Vec<Value> {
        let mut events = rest.events(&session(id), 0).await.unwrap().events;
        events.iter_mut().for_each(|event| drop(event.as_object_mut().unwrap().remove("sessionId")));
        events
    };
    assert_eq!(of(id).await, of("s").await[..4]);
    assert_eq!(titles(&server).await.len(), 2);
    socket.chat(id, "c").await;
    let events = socket.until("done").await;
    assert_eq!(text(&events), "three");
    let shown = format!("{:?}", setup.script.requests()[2].messages);
    assert!(shown.contains("one") && !shown.contains("two"), "{shown}");
    server.stop().await;
}

#[tokio::test]
async fn feedback_is_kept_beside_the_message_and_can_be_taken_back() {
    let server = start(Script::new().text("hi")).await;
    let mut socket = server.extended("s").await;
    socket.chat("s", "hello").await;
    let events = socket.until("done").await;
    let id = of_type(&events, "assistant_message")[0]["messageId"].clone();
    for score in ["up", "down", "none"] {
        socket.send("s", "feedback", json!({ "messageId": id, "score": score, "reqId": "f" })).await;
        let stored = socket.expect("feedback_stored").await;
        assert_eq!((&stored["score"], &stored["re"]), (&json!(score), &json!("f")));
    }
    socket.send("s", "feedback", json!({ "messageId": "nobody", "score": "up" })).await;
    assert_eq!(socket.error_code().await, "NOT_FOUND");
    socket.send("s", "feedback", json!({ "messageId": id, "score": "great" })).await;
    assert_eq!(socket.error_code().await, "INVALID_MESSAGE");
    server.stop().await;
}

#[tokio::test]
async fn a_temporary_session_works_is_in_no_list_and_leaves_nothing_on_disk() {
    let setup = setup(Script::new().text("hi"));
    let server = TestServer::start(&setup).await;
    let body = CreateSession { id: Some(session("t")), temp: true, ..CreateSession::default() };
    let made = server.rest().create_session(body).await.unwrap();
    assert!(made.temp);
    let mut socket = server.extended("t").await;
    socket.send("t", "kb_add", json!({ "content": "only here" })).await;
    socket.expect("kb_added").await;
    socket.send("t", "kb_search", json!({ "query": "here" })).await;
    assert_eq!(socket.expect("kb_search_result").await["results"].as_array().unwrap().len(), 1);
    socket.chat("t", "hello").await;
    socket.until("done").await;
    assert!(titles(&server).await.is_empty());
    assert!(setup.store.find_session(LOCAL_PRINCIPAL, &session("t")).await.unwrap().is_none());
    assert_eq!(setup.store.document_changes(0, 10).await.unwrap(), []);
    assert_eq!(server.rest().session(&session("t")).await.unwrap().head_seq, 5);
    server.stop().await;
}

#[tokio::test]
async fn sessions_that_were_kept_long_enough_are_erased() {
    let setup = setup(Script::new());
    let server = TestServer::start(&setup).await;
    let mut socket = server.socket().await;
    for id in ["one", "two"] {
        socket.chat(id, "hello").await;
        socket.until("done").await;
    }
    server.stop().await;
    // Everything is older than nothing, and nobody is there.
    let expiring = Setup { retention: Some(Duration::ZERO), ..setup.clone() };
    let server = TestServer::start(&expiring).await;
    let erased = async {
        while !titles(&server).await.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), erased).await.expect("they are erased in time");
    server.stop().await;
}
