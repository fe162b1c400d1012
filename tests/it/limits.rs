//! Sizes and rates at their edge and one beyond, and readers that are too slow.

use futures_util::SinkExt;
use serde_json::json;
use tns_protocol::{MAX_MESSAGE_BYTES, MAX_SMALL_MESSAGE_BYTES};
use tns_server_core::scripted::{Beat, Gate, Script};
use tns_tests::Socket;
use tns_tests::socket::text;
use tokio::io::AsyncWriteExt;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};

use crate::{say, start};

/// Returns a frame of a type that is exactly so long.
fn frame(type_name: &str, fields: &str, bytes: usize) -> String {
    let head = format!(r#"{{"v":1,"type":"{type_name}","sessionId":"s",{fields},"fill":""#);
    let fill = bytes - head.len() - 2;
    format!("{head}{}\"}}", "x".repeat(fill))
}

/// Sends a text in fragments.
async fn send_fragments(socket: &mut Socket, text: &str, count: usize) {
    let bytes = text.as_bytes();
    let mut pieces = bytes.chunks(bytes.len().div_ceil(count)).peekable();
    let mut code = Data::Text;
    while let Some(piece) = pieces.next() {
        let frame = Frame::message(piece.to_vec(), OpCode::Data(code), pieces.peek().is_none());
        socket.send_message(Message::Frame(frame)).await;
        code = Data::Continue;
    }
}

/// Expects an error about the size and a close with a reason.
async fn refused(socket: &mut Socket) {
    let error = socket.expect("error").await;
    assert_eq!(error["code"], "PAYLOAD_TOO_LARGE");
    let close = socket.closed().await.expect("a close frame");
    assert_eq!(close.code, CloseCode::Size);
    assert!(!close.reason.is_empty());
}

#[tokio::test]
async fn a_chat_at_its_limit_is_answered_and_one_byte_more_closes_with_1009() {
    let server = start(Script::new().text("whole").text("in parts").text("others")).await;
    let mut other = server.socket().await;
    other.join("other").await;
    let mut socket = server.socket().await;
    let fields = r#""message":"hi""#;
    let most = frame("chat", fields, MAX_MESSAGE_BYTES);
    socket.send_text(&most).await;
    assert_eq!(text(&socket.until("done").await), "whole");
    send_fragments(&mut socket, &most, 20).await;
    assert_eq!(text(&socket.until("done").await), "in parts");
    let more = frame("chat", fields, MAX_MESSAGE_BYTES + 1);
    socket.send_text(&more).await;
    refused(&mut socket).await;
    let mut socket = server.socket().await;
    send_fragments(&mut socket, &more, 20).await;
    refused(&mut socket).await;
    other.chat("other", "hi").await;
    assert_eq!(text(&other.until("done").await), "others");
}

#[tokio::test]
async fn a_small_type_has_a_smaller_limit() {
    let server = start(Script::new()).await;
    let mut socket = server.socket().await;
    let fields = r#""level":"MANUAL""#;
    let most = frame("set_autonomy", fields, MAX_SMALL_MESSAGE_BYTES);
    socket.send_text(&most).await;
    socket.expect("autonomy_changed").await;
    send_fragments(&mut socket, &most, 7).await;
    socket.expect("autonomy_changed").await;
    let more = frame("set_autonomy", fields, MAX_SMALL_MESSAGE_BYTES + 1);
    socket.send_text(&more).await;
    refused(&mut socket).await;
    let mut socket = server.socket().await;
    send_fragments(&mut socket, &more, 7).await;
    refused(&mut socket).await;
    let limits = server.rest().info().await.unwrap().limits;
    assert_eq!(limits.max_message_bytes, MAX_MESSAGE_BYTES as u64);
    assert_eq!(limits.max_small_message_bytes, MAX_SMALL_MESSAGE_BYTES as u64);
}

#[tokio::test]
async fn a_document_of_several_megabytes_is_stored() {
    let server = start(Script::new()).await;
    let mut socket = server.socket().await;
    let content = "a line of the document\n".repeat((2 << 20) / 23);
    socket.send("s", "kb_add", json!({ "content": content })).await;
    socket.expect("kb_added").await;
}

#[tokio::test]
async fn a_frame_that_announces_ten_gigabytes_ends_the_connection_and_no_other() {
    let server = start(Script::new().text("hello")).await;
    let (mut socket, mut other) = (server.socket().await, server.socket().await);
    // Final text frame, masked, 64-bit length.
    let mut head = vec![0x81, 0xff];
    head.extend((10_u64 << 30).to_be_bytes());
    head.extend([1, 2, 3, 4]);
    socket.stream().get_mut().write_all(&head).await.unwrap();
    let close = socket.closed().await;
    assert_eq!(close.map(|close| close.code), Some(CloseCode::Size));
    other.chat("s", "hi").await;
    assert_eq!(text(&other.until("done").await), "hello");
}

#[tokio::test]
async fn a_message_that_never_ends_is_cut_off_at_the_limit() {
    let server = start(Script::new()).await;
    let mut socket = server.socket().await;
    let mut code = Data::Text;
    for _ in 0..10 {
        let frame = Frame::message(vec![b'x'; 1 << 20], OpCode::Data(code), false);
        // The server may have closed its end before the last piece.
        if socket.stream().send(Message::Frame(frame)).await.is_err() {
            break;
        }
        code = Data::Continue;
    }
    let close = socket.closed().await;
    assert_eq!(close.map(|close| close.code), Some(CloseCode::Size));
}

#[tokio::test]
async fn more_messages_than_the_rate_allows_are_told_and_closed() {
    let server = start(Script::new().text("hello")).await;
    let (mut socket, mut other) = (server.socket().await, server.socket().await);
    for _ in 0..150 {
        socket.send_text("no json").await;
    }
    // Within the burst.
    for _ in 0..150 {
        assert_eq!(socket.error_code().await, "INVALID_JSON");
    }
    for _ in 0..1_000 {
        socket.send_text("no json").await;
    }
    let mut codes = Vec::new();
    while codes.last().is_none_or(|code| code != "LIMIT") {
        codes.push(socket.error_code().await);
    }
    assert!(codes[..codes.len() - 1].iter().all(|code| code == "INVALID_JSON"));
    assert!(codes.len() > 50, "{}", codes.len());
    assert_eq!(socket.closed().await.map(|close| close.code), Some(CloseCode::Policy));
    other.chat("s", "hi").await;
    assert_eq!(text(&other.until("done").await), "hello");
}

#[tokio::test]
async fn a_reader_that_stops_is_closed_with_1013_and_the_others_get_everything() {
    const PIECE: usize = 1_000;
    const AT_ONCE: usize = 200;
    const BATCHES: usize = 120;
    // The model goes on when the fast client has what was written, so that only one is slow.
    let gate = Gate::new();
    let piece = "y".repeat(PIECE);
    let batch = || (0..AT_ONCE).map(|_| say(&piece)).chain([Beat::Gate(gate.clone())]);
    let server = start(Script::new().step((0..BATCHES).flat_map(|_| batch()))).await;
    let mut slow = Socket::connect_slow(server.address()).await;
    slow.join("s").await;
    let mut fast = server.socket().await;
    fast.chat("s", "go").await;
    for at in 0..BATCHES {
        let mut got = 0;
        while got < AT_ONCE * PIECE {
            let event = fast.next().await;
            got += event["content"].as_str().map_or(0, str::len);
        }
        if at == BATCHES / 4 {
            // The 6 MB are more than the system buffers and its outbox take together; it learns why as
            // soon as it reads again.
            let close = slow.closed().await.expect("a close frame");
            assert_eq!(u16::from(close.code), 1013);
        }
        gate.open();
    }
    fast.until("done").await;
    let stored = server.rest().messages(&tns_tests::session("s"), 1, None).await.unwrap().messages;
    assert_eq!(stored[0].content.len(), BATCHES * AT_ONCE * PIECE);
}

#[tokio::test]
async fn a_client_that_dribbles_its_request_holds_up_nobody() {
    let server = start(Script::new().text("hello")).await;
    let mut dribbling = Vec::new();
    for _ in 0..50 {
        let mut stream = tokio::net::TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(b"GET /chat HTTP/1.1\r\nHo").await.unwrap();
        dribbling.push(stream);
    }
    let mut socket = server.socket().await;
    socket.chat("s", "hi").await;
    assert_eq!(text(&socket.until("done").await), "hello");
    assert_eq!(tns_tests::http::get(server.address(), "/health/live").await.status, 200);
    drop(dribbling);
}
