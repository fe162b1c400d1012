//! Event streams over HTTP: a session's, and the whole server's.

use serde_json::json;
use tns_server_core::scripted::{Beat, Gate, Script};
use tns_tests::event_stream::{EventStream, StreamEvent};
use tns_tests::{TestServer, http, session};

use crate::{say, start};

fn ids(events: &[StreamEvent]) -> Vec<u64> {
    events.iter().filter_map(|event| event.id).collect()
}

async fn chat(server: &TestServer, id: &str) {
    let mut socket = server.socket().await;
    socket.chat(id, "go").await;
    socket.until("done").await;
}

#[tokio::test]
async fn a_session_is_streamed_from_any_place_and_goes_on_live() {
    let server = start(Script::new().text("one").text("two")).await;
    chat(&server, "s").await;
    let mut stream = EventStream::open(server.address(), "/api/sessions/s/events", None).await;
    let events = stream.until("done").await;
    assert_eq!(ids(&events), [1, 2, 3, 4]);
    for event in &events {
        assert_eq!(
            (event.id, event.name.as_str()),
            (event.data["seq"].as_u64(), event.data["type"].as_str().unwrap())
        );
    }
    let mut rest = EventStream::open(server.address(), "/api/sessions/s/events?after=1", Some(2)).await;
    assert_eq!(rest.until("done").await, events[2..]);
    chat(&server, "s").await;
    let more = stream.until("done").await;
    assert_eq!(ids(&more), [5, 6, 7]);
    assert_eq!(rest.until("done").await, more);
    server.stop().await;
    assert_eq!(stream.next().await, None);
}

#[tokio::test]
async fn what_is_only_shown_is_streamed_when_it_is_asked_for_and_has_no_id() {
    let gate = Gate::new();
    let server = start(Script::new().step([say("a"), Beat::Gate(gate.clone()), say("b")])).await;
    let mut socket = server.socket().await;
    socket.join("s").await;
    let mut online = EventStream::open(server.address(), "/api/sessions/s/events?online=1", None).await;
    let mut plain = EventStream::open(server.address(), "/api/sessions/s/events", None).await;
    let mut all = EventStream::open(server.address(), "/api/events?online=1", None).await;
    socket.chat("s", "go").await;
    let mut shown = online.until("token").await;
    gate.open();
    shown.extend(online.until("done").await);
    let text: String = shown.iter().filter_map(|event| event.data["content"].as_str()).collect();
    assert_eq!(text, "ab");
    assert!(shown.iter().all(|event| event.id.is_some() == event.data.get("seq").is_some()));
    let stored: Vec<StreamEvent> = shown.into_iter().filter(|event| event.id.is_some()).collect();
    assert_eq!(plain.until("done").await, stored);
    // What is stored comes in the store's order; what is only shown keeps its own beside it.
    let (mut text, mut ended) = (String::new(), false);
    while text != "ab" || !ended {
        let event = all.next().await.unwrap();
        text.push_str(event.data["content"].as_str().unwrap_or_default());
        ended |= event.name == "done";
    }
    server.stop().await;
}

#[tokio::test]
async fn the_whole_server_is_streamed_in_the_order_of_its_store() {
    let server = start(Script::new()).await;
    for id in ["a", "b", "a"] {
        chat(&server, id).await;
    }
    let mut stream = EventStream::open(server.address(), "/api/events?after=0", None).await;
    let mut events = Vec::new();
    for _ in 0..3 {
        events.extend(stream.until("done").await);
    }
    let sessions: Vec<&str> = events.iter().map(|event| event.data["sessionId"].as_str().unwrap()).collect();
    assert_eq!(sessions, ["a", "a", "a", "a", "b", "b", "b", "b", "a", "a", "a"]);
    let places = ids(&events);
    assert!(places.len() == 11 && places.is_sorted_by(|a, b| a < b), "{places:?}");
    let mut rest = EventStream::open(server.address(), "/api/events", Some(places[7])).await;
    assert_eq!(rest.until("done").await, events[8..]);
    chat(&server, "c").await;
    assert_eq!(rest.until("done").await.len(), 4);
    server.stop().await;
}

#[tokio::test]
async fn a_place_beyond_the_end_is_refused_in_one_line() {
    let server = start(Script::new()).await;
    chat(&server, "s").await;
    for path in ["/api/sessions/s/events?after=99", "/api/events?after=99999", "/api/events?after=x"] {
        let (status, code) = http::get(server.address(), path).await.refusal();
        assert_eq!((status, code.as_str()), (400, "INVALID_MESSAGE"), "{path}");
    }
    let (status, _) = http::get(server.address(), "/api/sessions/nobody/events").await.refusal();
    assert_eq!(status, 404);
    server.stop().await;
}

#[tokio::test]
async fn the_stream_of_a_session_ends_with_it() {
    let server = start(Script::new()).await;
    chat(&server, "s").await;
    let mut stream = EventStream::open(server.address(), "/api/sessions/s/events", None).await;
    let mut all = EventStream::open(server.address(), "/api/events", None).await;
    all.until("done").await;
    let mut socket = server.socket().await;
    socket.send("s", "hello", json!({ "ext": ["events.1"] })).await;
    socket.send("s", "session_delete", json!({})).await;
    assert_eq!(stream.until("session_closing").await.last().unwrap().data["reason"], "deleted");
    assert_eq!(stream.next().await, None);
    // It is in no store any more, so it has no place there.
    assert_eq!(all.until("session_closing").await.pop().unwrap().id, None);
    assert_eq!(socket.expect("session_closing").await["seq"], json!(5));
    assert!(server.rest().session(&session("s")).await.is_err());
    server.stop().await;
}
