//! What a session is called: by its first message, then by its model, and for good by a person.

use serde_json::{Value, json};
use tns_server::Titles;
use tns_server_core::engine::EngineErrorKind;
use tns_server_core::scripted::{Beat, Gate, Script};
use tns_server_core::store::{LOCAL_PRINCIPAL, Store};
use tns_tests::{Setup, TestServer, session};

use crate::{say, setup};

fn titled(script: &Script) -> Setup {
    Setup { titles: Titles::Model, ..setup(script.clone()) }
}

async fn title(setup: &Setup) -> Option<String> {
    setup.store.find_session(LOCAL_PRINCIPAL, &session("s")).await.unwrap().unwrap().title
}

#[tokio::test]
async fn the_first_message_names_a_session_and_after_the_second_turn_its_model_does_once() {
    let script = Script::new().text("one").text("two").text("Harbour fees").text("three").text("four");
    let setup = titled(&script);
    let server = TestServer::start(&setup).await;
    let mut socket = server.extended("s").await;
    let events = socket.turn("s", "\nwhat do boats pay\nin May?").await;
    assert!(
        events
            .iter()
            .any(|event| event["type"] == "session_updated" && event["title"] == "what do boats pay")
    );
    socket.turn("s", "and in June?").await;
    assert_eq!(socket.expect("session_updated").await["title"], "Harbour fees");
    assert_eq!(title(&setup).await.as_deref(), Some("Harbour fees"));
    let request = script.requests()[2].clone();
    assert!(request.tools.is_empty() && format!("{:?}", request.messages).contains("what do boats pay"));
    socket.turn("s", "thanks").await;
    socket.turn("s", "bye").await;
    assert_eq!(script.requests().len(), 5);
    // What the title cost is counted: one step more than there were replies.
    let usage = tns_tests::http::get(server.address(), "/api/usage").await.json();
    assert!(usage.to_string().contains("\"steps\":5"), "{usage}");
    server.stop().await;
}

#[tokio::test]
async fn a_persons_title_stays_and_one_that_was_taken_away_does_not_come_back() {
    // The very title that it has by itself is a person's once a person gave it.
    for chosen in [json!("mine"), json!("hello"), Value::Null] {
        let script = Script::new().text("one").text("two").text("three");
        let setup = titled(&script);
        let server = TestServer::start(&setup).await;
        let mut socket = server.extended("s").await;
        socket.turn("s", "hello").await;
        socket.send("s", "session_rename", json!({ "title": chosen })).await;
        socket.expect("session_updated").await;
        socket.turn("s", "more").await;
        socket.turn("s", "and more").await;
        assert_eq!(script.requests().len(), 3);
        assert_eq!(json!(title(&setup).await), chosen);
        server.stop().await;
    }
}

#[tokio::test]
async fn a_title_stands_back_for_a_message_and_a_useless_one_is_none() {
    let useless = [
        vec![say("Here is a title for you:\nBoats")],
        vec![Beat::Fail(EngineErrorKind::Unavailable, "down".into())],
        vec![Beat::Gate(Gate::new())],
    ];
    for beats in useless {
        let script = Script::new().text("one").text("two").step(beats).text("three");
        let setup = titled(&script);
        let server = TestServer::start(&setup).await;
        let mut socket = server.extended("s").await;
        socket.turn("s", "hello").await;
        socket.turn("s", "more").await;
        // Nothing is announced of it.
        while script.requests().len() < 3 {
            tokio::task::yield_now().await;
        }
        socket.turn("s", "and more").await;
        assert_eq!(title(&setup).await.as_deref(), Some("hello"));
        server.stop().await;
    }
}

#[tokio::test]
async fn what_is_not_the_users_word_names_nothing() {
    let setup = titled(&Script::new());
    let server = TestServer::start(&setup).await;
    let mut socket = server.extended("s").await;
    let event = json!({ "message": "the build failed", "context": { "origin": "EVENT" } });
    socket.send("s", "chat", event).await;
    socket.until("done").await;
    assert_eq!(title(&setup).await, None);
    socket.turn("s", "why?").await;
    assert_eq!(title(&setup).await.as_deref(), Some("why?"));
    server.stop().await;
}
