//! The knowledge base over `/chat`, and what of it reaches the model.

use serde_json::{Value, json};
use tns_server_core::message::{Note, Passage};
use tns_server_core::scripted::Script;
use tns_tests::socket::of_type;
use tns_tests::{Socket, notes, session};

use crate::start;

async fn add(socket: &mut Socket, content: &str) -> String {
    socket.send("s", "kb_add", json!({ "content": content })).await;
    socket.expect("kb_added").await["documentId"].as_str().unwrap().to_owned()
}

async fn search(socket: &mut Socket, fields: Value) -> Vec<Value> {
    socket.send("s", "kb_search", fields).await;
    socket.expect("kb_search_result").await["results"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_document_is_announced_found_listed_and_removed() {
    let server = start(Script::new()).await;
    let (mut socket, mut other) = (server.socket().await, server.socket().await);
    other.join("s").await;
    let metadata = json!({ "source": "handbook.md", "tags": ["a"] });
    let content = "Orders are kept for ten years.";
    socket.send("s", "kb_add", json!({ "content": content, "metadata": metadata })).await;
    let added = socket.expect("kb_added").await;
    assert!(added["seq"].is_u64() && added.get("duplicate").is_none());
    assert_eq!(other.expect("kb_added").await, added);
    let id = &added["documentId"];
    let hits = search(&mut socket, json!({ "query": "how long are orders kept?" })).await;
    assert_eq!(hits.len(), 1);
    let score = hits[0]["score"].clone();
    assert!((0.0..=1.0).contains(&score.as_f64().unwrap()));
    assert_eq!(
        hits[0],
        json!({ "documentId": id, "content": content, "score": score,
            "metadata": { "source": "handbook.md", "tags": ["a"], "startLine": 1, "endLine": 1 } })
    );
    socket.send("s", "kb_list", json!({})).await;
    let list = socket.expect("kb_list_result").await;
    let document = json!({ "documentId": id, "preview": content, "contentLength": 30, "metadata": metadata });
    assert_eq!((&list["documents"], &list["totalCount"]), (&json!([document]), &json!(1)));
    socket.send("s", "kb_remove", json!({ "documentId": id })).await;
    let removed = socket.expect("kb_removed").await;
    assert_eq!((&removed["documentId"], &removed["found"]), (id, &json!(true)));
    assert_eq!(other.expect("kb_removed").await, removed);
    assert_eq!(search(&mut socket, json!({ "query": "orders" })).await, [] as [Value; 0]);
    socket.send("s", "kb_remove", json!({ "documentId": id })).await;
    let again = socket.expect("kb_removed").await;
    assert_eq!((&again["found"], again.get("seq")), (&json!(false), None));
    assert_eq!(other.settle("s").await, [] as [Value; 0]);
}

#[tokio::test]
async fn the_same_content_again_is_a_duplicate_for_its_sender_only() {
    let server = start(Script::new()).await;
    let (mut socket, mut other) = (server.socket().await, server.socket().await);
    let id = add(&mut socket, "the same").await;
    other.join("s").await;
    socket.send("s", "kb_add", json!({ "content": "the same", "reqId": "r" })).await;
    let again = socket.expect("kb_added").await;
    assert_eq!(
        (&again["documentId"], &again["duplicate"], &again["re"]),
        (&json!(id), &json!(true), &json!("r"))
    );
    assert!(again.get("seq").is_none());
    assert_eq!(other.settle("s").await, [] as [Value; 0]);
    assert_eq!(server.rest().kb_list(&session("s")).await.unwrap().total_count, 1);
}

#[tokio::test]
async fn blank_texts_and_limits_beyond_their_edge_are_refused() {
    let server = start(Script::new()).await;
    let mut socket = server.socket().await;
    add(&mut socket, "something to find").await;
    for (type_name, fields) in [
        ("kb_add", json!({ "content": "" })),
        ("kb_add", json!({ "content": " \n\t" })),
        ("kb_search", json!({ "query": "" })),
        ("kb_search", json!({ "query": "  " })),
        ("kb_search", json!({ "query": "x", "limit": 0 })),
        ("kb_search", json!({ "query": "x", "limit": 51 })),
        ("kb_search", json!({ "query": "x", "limit": -1 })),
        ("kb_search", json!({ "query": "x", "threshold": 1.01 })),
        ("kb_search", json!({ "query": "x", "threshold": -0.01 })),
        ("kb_remove", json!({ "documentId": "" })),
    ] {
        socket.send("s", type_name, fields.clone()).await;
        assert_eq!(socket.error_code().await, "INVALID_MESSAGE", "{fields}");
    }
    for fields in [
        json!({ "query": "something", "limit": 1 }),
        json!({ "query": "something", "limit": 50, "threshold": 0.0 }),
    ] {
        assert_eq!(search(&mut socket, fields).await.len(), 1);
    }
    search(&mut socket, json!({ "query": "something", "threshold": 1.0 })).await;
}

#[tokio::test]
async fn hits_are_best_first_at_most_five_and_none_below_the_threshold() {
    let server = start(Script::new()).await;
    let mut socket = server.socket().await;
    for at in 0..8 {
        let filler = "filler words that say little ".repeat(at + 1);
        add(&mut socket, &format!("Note {at} about penguins. {filler}")).await;
    }
    let all = search(&mut socket, json!({ "query": "penguins", "limit": 50 })).await;
    assert_eq!(all.len(), 8);
    let scores: Vec<f64> = all.iter().map(|hit| hit["score"].as_f64().unwrap()).collect();
    assert!(scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
    assert_eq!(search(&mut socket, json!({ "query": "penguins" })).await, all[..5]);
    let above =
        search(&mut socket, json!({ "query": "penguins", "limit": 50, "threshold": scores[3] })).await;
    assert_eq!(
        above,
        all.iter().filter(|hit| hit["score"].as_f64().unwrap() >= scores[3]).cloned().collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn a_query_without_words_finds_nothing() {
    let server = start(Script::new()).await;
    let mut socket = server.socket().await;
    add(&mut socket, "what is this? it is a text.").await;
    for query in ["?!…", "the", "🙂", "\"", "*", "((("] {
        let hits = search(&mut socket, json!({ "query": query })).await;
        assert_eq!(hits, [] as [Value; 0], "{query}");
    }
    // What is an operator elsewhere is a word here, and never an error.
    for query in ["text AND", "a:text^2", "-text", "\"text", "text~"] {
        assert_eq!(search(&mut socket, json!({ "query": query })).await.len(), 1, "{query}");
    }
}

#[tokio::test]
async fn a_preview_ends_after_a_hundred_characters_and_not_inside_one() {
    let server = start(Script::new()).await;
    let mut socket = server.socket().await;
    let content = format!("{}{}", "職👩‍🔬é".repeat(20), "end".repeat(100));
    add(&mut socket, &content).await;
    socket.send("s", "kb_list", json!({})).await;
    let list = socket.expect("kb_list_result").await;
    let expected: String = content.chars().take(100).collect();
    assert_eq!(list["documents"][0]["preview"], expected);
    assert_eq!(list["documents"][0]["contentLength"], content.chars().count());
}

#[tokio::test]
async fn the_best_passages_reach_the_model_and_never_leave_the_server() {
    let script = Script::new().text("ten years [1]").text("and again");
    let server = start(script.clone()).await;
    let mut socket = server.socket().await;
    let content = "Orders are kept for ten years in the zebra archive.";
    socket.send("s", "kb_add", json!({ "content": content, "metadata": { "source": "handbook.md" } })).await;
    let id = socket.expect("kb_added").await["documentId"].clone();
    socket.chat("s", "how long are orders kept").await;
    let mut events = socket.until("done").await;
    socket.chat("s", "hello").await;
    events.extend(socket.until("done").await);
    let requests = script.requests();
    let passage = Passage {
        number: 1,
        document: serde_json::from_value(id).unwrap(),
        source: "handbook.md:1".into(),
        text: content.into(),
    };
    let note = Note::Knowledge(vec![passage]);
    assert_eq!(notes(&requests[0]), [&note]);
    // It stays where it was, so that what was sent before stays the beginning of what is sent.
    assert_eq!(notes(&requests[1]), [&note]);
    assert_eq!(requests[1].messages[0], requests[0].messages[0]);
    let rest = server.rest();
    events.extend(rest.events(&session("s"), 0).await.unwrap().events);
    let messages = rest.messages(&session("s"), 0, None).await.unwrap();
    for shown in [json!(events).to_string(), serde_json::to_string(&messages).unwrap()] {
        assert!(!shown.contains("zebra"), "{shown}");
    }
    assert_eq!(of_type(&events, "error"), [] as [&Value; 0]);
}

#[tokio::test]
async fn documents_of_a_session_are_not_seen_in_another() {
    let script = Script::new().text("no idea");
    let server = start(script.clone()).await;
    let mut socket = server.socket().await;
    add(&mut socket, "the penguins of session s").await;
    socket.chat("other", "penguins").await;
    socket.until("done").await;
    assert_eq!(notes(&script.requests()[0]), [] as [&Note; 0]);
}
