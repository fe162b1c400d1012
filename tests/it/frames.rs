//! Frames that no client should send: each bad one is answered once, and the connection lives on.

use serde_json::{Value, json};
use tns_server_core::scripted::Script;
use tns_tests::socket::{text, types};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};

use crate::start;

#[tokio::test]
async fn another_version_is_a_mismatch_and_the_connection_stays() {
    let server = start(Script::new().text("hello")).await;
    let mut socket = server.socket().await;
    for v in [json!(0), json!(2), json!("1"), json!(1.5), json!(null), json!([1])] {
        let frame = json!({ "v": v, "type": "chat", "sessionId": "s", "message": "hi", "reqId": "r" });
        socket.send_text(&frame.to_string()).await;
        let error = socket.next().await;
        assert_eq!(
            [&error["type"], &error["code"], &error["refType"], &error["re"], &error["sessionId"]],
            [&json!("error"), &json!("PROTOCOL_MISMATCH"), &json!("chat"), &json!("r"), &json!("s")]
        );
    }
    socket.send_text(r#"{"type":"chat","sessionId":"s","message":"hi"}"#).await;
    assert_eq!(socket.error_code().await, "PROTOCOL_MISMATCH");
    assert_eq!(server.rest().sessions(None, None).await.unwrap().sessions, []);
    socket.chat("s", "hi").await;
    assert_eq!(text(&socket.until("done").await), "hello");
}

/// Every bad frame with the code that answers it.
fn bad_frames() -> Vec<(Message, &'static str)> {
    let deep =
        format!(r#"{{"v":1,"type":"kb_list","sessionId":"s","x":{}{}}}"#, "[".repeat(64), "]".repeat(64));
    let keys: Vec<String> = (0..1_001).map(|at| format!("\"k{at}\":0")).collect();
    let many = format!(r#"{{"v":1,"type":"kb_list","sessionId":"s","x":{{{}}}}}"#, keys.join(","));
    let long_id = format!(r#"{{"v":1,"type":"kb_list","sessionId":"{}"}}"#, "s".repeat(1_000_000));
    let texts = [
        ("not json".to_owned(), "INVALID_JSON"),
        (String::new(), "INVALID_JSON"),
        ("null".into(), "INVALID_JSON"),
        ("[1]".into(), "INVALID_JSON"),
        ("7".into(), "INVALID_JSON"),
        ("PING".into(), "INVALID_JSON"),
        ("{".into(), "INVALID_JSON"),
        ("[".repeat(100_000), "INVALID_JSON"),
        ("{}".into(), "PROTOCOL_MISMATCH"),
        (r#"{"v":2,"type":"chat","sessionId":"s","message":"x"}"#.into(), "PROTOCOL_MISMATCH"),
        (r#"{"v":"1","type":"chat","sessionId":"s","message":"x"}"#.into(), "PROTOCOL_MISMATCH"),
        (r#"{"v":1,"type":42,"sessionId":"s"}"#.into(), "INVALID_MESSAGE"),
        (r#"{"v":1,"sessionId":"s"}"#.into(), "INVALID_MESSAGE"),
        (r#"{"v":1,"type":"nope","sessionId":"s"}"#.into(), "UNKNOWN_TYPE"),
        (r#"{"v":1,"type":"token","sessionId":"s","agentId":"a","content":"x"}"#.into(), "UNKNOWN_TYPE"),
        (r#"{"v":1,"type":"chat","message":"x"}"#.into(), "INVALID_MESSAGE"),
        (r#"{"v":1,"type":"chat","sessionId":"","message":"x"}"#.into(), "INVALID_MESSAGE"),
        (r#"{"v":1,"type":"chat","sessionId":"a/b","message":"x"}"#.into(), "INVALID_MESSAGE"),
        (long_id, "INVALID_MESSAGE"),
        (r#"{"v":1,"type":"chat","sessionId":"s"}"#.into(), "INVALID_MESSAGE"),
        (r#"{"v":1,"type":"chat","sessionId":"s","message":5}"#.into(), "INVALID_MESSAGE"),
        (r#"{"v":1,"type":"chat","sessionId":"s","message":"   "}"#.into(), "INVALID_MESSAGE"),
        (r#"{"v":1,"type":"chat","sessionId":"s","message":"a","message":"b"}"#.into(), "INVALID_MESSAGE"),
        (deep, "LIMIT"),
        (many, "LIMIT"),
    ];
    let mut frames: Vec<_> = texts.into_iter().map(|(text, code)| (Message::text(text), code)).collect();
    frames.push((Message::binary(br#"{"v":1,"type":"kb_list","sessionId":"s"}"#.to_vec()), "INVALID_JSON"));
    frames
}

#[tokio::test]
async fn each_bad_frame_gets_one_error_makes_no_session_and_a_good_one_is_answered() {
    let server = start(Script::new().text("hello")).await;
    let mut socket = server.socket().await;
    let frames = bad_frames();
    for (frame, _) in &frames {
        socket.send_message(frame.clone()).await;
    }
    let mut events = Vec::new();
    for _ in &frames {
        events.push(socket.next().await);
    }
    let codes: Vec<&Value> = events.iter().map(|event| &event["code"]).collect();
    assert_eq!(codes, frames.iter().map(|(_, code)| code).collect::<Vec<_>>());
    for event in &events {
        assert_eq!((&event["v"], &event["type"]), (&json!(1), &json!("error")));
        assert!(!event["message"].as_str().unwrap().is_empty());
        assert!(event["message"].as_str().unwrap().len() < 500, "{event}");
        assert!(event.get("seq").is_none());
    }
    assert_eq!(server.rest().sessions(None, None).await.unwrap().sessions, []);
    socket.chat("s", "hi").await;
    let reply = socket.until("done").await;
    assert_eq!(types(&reply), ["agent_state", "token", "agent_state", "done"]);
    assert_eq!(text(&reply), "hello");
}

#[tokio::test]
async fn a_ping_frame_is_answered_and_the_word_ping_is_not() {
    let server = start(Script::new()).await;
    let mut socket = server.socket().await;
    // More than a burst of messages: the word counts as none.
    for _ in 0..300 {
        socket.send_text("ping").await;
    }
    socket.ping(b"payload").await;
    assert_eq!(socket.settle("s").await, [] as [Value; 0]);
}

#[tokio::test]
async fn a_wrong_field_is_named() {
    let server = start(Script::new()).await;
    let mut socket = server.socket().await;
    for (type_name, fields, named) in [
        ("chat", json!({}), "message"),
        ("kb_search", json!({ "limit": 5 }), "query"),
        ("tool_approve", json!({ "decision": "approve" }), "toolCallId"),
        ("set_autonomy", json!({}), "level"),
        ("agent_remove", json!({}), "agentId"),
        ("mcp_tools", json!({}), "tools"),
    ] {
        socket.send("s", type_name, fields).await;
        let error = socket.expect("error").await;
        assert_eq!((&error["code"], &error["refType"]), (&json!("INVALID_MESSAGE"), &json!(type_name)));
        assert!(error["message"].as_str().unwrap().contains(named), "{error}");
    }
}

#[tokio::test]
async fn text_that_is_not_utf_8_closes_the_connection_with_1007_and_no_other() {
    let server = start(Script::new().text("hello")).await;
    let (mut socket, mut other) = (server.socket().await, server.socket().await);
    let frame = Frame::message(vec![b'{', 0xff, 0xfe], OpCode::Data(Data::Text), true);
    socket.send_message(Message::Frame(frame)).await;
    assert_eq!(socket.closed().await.map(|close| close.code), Some(CloseCode::Invalid));
    other.chat("s", "hi").await;
    assert_eq!(text(&other.until("done").await), "hello");
}

#[tokio::test]
async fn answers_carry_the_request_id_and_go_to_the_asker_only() {
    let server = start(Script::new()).await;
    let (mut one, mut two) = (server.socket().await, server.socket().await);
    two.join("s").await;
    one.send("s", "kb_list", json!({ "reqId": "r-1" })).await;
    assert_eq!(one.expect("kb_list_result").await["re"], "r-1");
    one.send("s", "agent_remove", json!({ "reqId": "r-2", "agentId": "x" })).await;
    assert_eq!(one.expect("error").await["re"], "r-2");
    one.send("s", "kb_search", json!({ "reqId": "r-3", "query": " " })).await;
    assert_eq!(one.expect("error").await["re"], "r-3");
    assert_eq!(two.settle("s").await, [] as [Value; 0]);
}
