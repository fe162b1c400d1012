//! The client against a real WebSocket server in this process.

use std::net::SocketAddr;

use futures_util::{SinkExt, StreamExt};
use tns_protocol::chat::{Cancel, Chat, Token};
use tns_protocol::{
    AgentId, ClientMessage, ServerFrame, ServerMessage, SessionId, decode_client, encode_server,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, accept_async};

use crate::{Client, ClientConfig, ClientError, ClientEvent, Events, Reconnect};

struct Peer {
    listener: TcpListener,
    address: SocketAddr,
}

impl Peer {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        Self { listener, address }
    }

    async fn accept(&self) -> WebSocketStream<TcpStream> {
        accept_async(self.listener.accept().await.unwrap().0).await.unwrap()
    }

    async fn connect(&self, reconnect: Reconnect) -> (WebSocketStream<TcpStream>, Client, Events) {
        let config = ClientConfig { url: format!("http://{}", self.address), reconnect };
        let (socket, client) = tokio::join!(self.accept(), Client::connect(config));
        let (client, events) = client.unwrap();
        (socket, client, events)
    }
}

fn session() -> SessionId {
    SessionId::parse("s").unwrap()
}

fn token(content: &str) -> ServerFrame {
    ServerFrame {
        session_id: Some(session()),
        date: None,
        seq: None,
        turn_id: None,
        re: None,
        message: Token {
            agent_id: AgentId::parse("a").unwrap(),
            content: content.into(),
            response_id: None,
            index: None,
        }
        .into(),
    }
}

fn content(event: Option<ClientEvent>) -> String {
    match event {
        Some(ClientEvent::Frame(frame)) => match frame.message {
            ServerMessage::Token(token) => token.content,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

async fn next_text(socket: &mut WebSocketStream<TcpStream>) -> String {
    loop {
        if let Message::Text(text) = socket.next().await.unwrap().unwrap() {
            return text.to_string();
        }
    }
}

#[tokio::test]
async fn messages_go_out_and_frames_come_in_in_order() {
    let peer = Peer::new().await;
    let (mut socket, client, mut events) = peer.connect(Reconnect::Never).await;
    let chat = Chat { message: "hi".into(), ..Chat::default() };
    client.send(&session(), chat.clone()).await.unwrap();
    let frame = decode_client(&next_text(&mut socket).await).unwrap();
    assert_eq!((frame.session_id, frame.message), (session(), ClientMessage::Chat(chat)));
    for n in 0..200 {
        socket.feed(Message::text(encode_server(&token(&n.to_string())))).await.unwrap();
    }
    socket.flush().await.unwrap();
    for n in 0..200 {
        assert_eq!(content(events.next().await), n.to_string());
    }
}

#[tokio::test]
async fn pings_are_answered_without_any_traffic_of_the_client() {
    let peer = Peer::new().await;
    let (mut socket, _client, _events) = peer.connect(Reconnect::Never).await;
    socket.send(Message::Ping("are you there".into())).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::Pong("are you there".into()));
}

#[tokio::test]
async fn close_writes_what_is_queued_and_says_goodbye() {
    let peer = Peer::new().await;
    let (mut socket, client, mut events) = peer.connect(Reconnect::Backoff).await;
    for _ in 0..3 {
        client.send(&session(), Cancel::default()).await.unwrap();
    }
    let server = async {
        let mut texts = 0;
        let mut goodbyes = 0;
        // Reading on to the end sends the answer to the goodbye.
        while let Some(Ok(message)) = socket.next().await {
            match message {
                Message::Text(_) => texts += 1,
                Message::Close(_) => goodbyes += 1,
                other => panic!("{other:?}"),
            }
        }
        (texts, goodbyes)
    };
    let (seen, ()) = tokio::join!(server, client.close());
    assert_eq!(seen, (3, 1));
    assert_eq!(client.send(&session(), Cancel::default()).await, Err(ClientError::Closed));
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn a_lost_connection_ends_the_events_when_it_is_not_to_be_tried_again() {
    let peer = Peer::new().await;
    let (mut socket, client, mut events) = peer.connect(Reconnect::Never).await;
    socket.send(Message::text(encode_server(&token("last words")))).await.unwrap();
    drop(socket);
    assert_eq!(content(events.next().await), "last words");
    assert!(matches!(events.next().await, Some(ClientEvent::Closed { .. })));
    assert_eq!(events.next().await, None);
    assert_eq!(client.send(&session(), Cancel::default()).await, Err(ClientError::Closed));
}

#[tokio::test]
async fn a_lost_connection_comes_back_with_its_sessions_and_what_was_queued_meanwhile() {
    let peer = Peer::new().await;
    let (mut socket, client, mut events) = peer.connect(Reconnect::Backoff).await;
    client.send(&session(), Cancel::default()).await.unwrap();
    next_text(&mut socket).await;
    drop(socket);
    let Some(ClientEvent::Disconnected { retry_in, .. }) = events.next().await else { panic!() };
    assert!(retry_in.as_millis() <= 250);
    client.send(&session(), Chat { message: "queued".into(), ..Chat::default() }).await.unwrap();
    let mut socket = peer.accept().await;
    assert_eq!(events.next().await, Some(ClientEvent::Reconnected));
    let joined = decode_client(&next_text(&mut socket).await).unwrap();
    assert_eq!((joined.session_id, joined.message.type_name()), (session(), "mcp_tools"));
    let queued = decode_client(&next_text(&mut socket).await).unwrap();
    assert_eq!(queued.message.type_name(), "chat");
}

#[tokio::test]
async fn a_client_that_is_dropped_while_it_waits_to_try_again_stops_trying() {
    let peer = Peer::new().await;
    let (socket, client, mut events) = peer.connect(Reconnect::Backoff).await;
    drop(socket);
    assert!(matches!(events.next().await, Some(ClientEvent::Disconnected { .. })));
    drop(client);
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn the_client_that_is_dropped_leaves_the_server() {
    let peer = Peer::new().await;
    let (mut socket, client, events) = peer.connect(Reconnect::Never).await;
    let clone = client.clone();
    drop(client);
    clone.send(&session(), Cancel::default()).await.unwrap();
    next_text(&mut socket).await;
    drop((clone, events));
    assert!(!matches!(socket.next().await, Some(Ok(Message::Text(_)))));
}

#[tokio::test]
async fn a_slow_consumer_holds_the_server_back_and_loses_nothing() {
    let peer = Peer::new().await;
    let (mut socket, _client, mut events) = peer.connect(Reconnect::Never).await;
    let long = "x".repeat(64 << 10);
    let frame = encode_server(&token(&long));
    let total = 400;
    let (written, mut progress) = tokio::sync::watch::channel(0);
    let server = async {
        for n in 1..=total {
            socket.send(Message::text(frame.clone())).await.unwrap();
            written.send_replace(n);
        }
    };
    let consumer = async {
        // The server stalls: its count stands still although it has not finished.
        while tokio::time::timeout(std::time::Duration::from_millis(300), progress.changed()).await.is_ok() {}
        assert!(*progress.borrow() < total, "nothing held the server back");
        for _ in 0..total {
            assert_eq!(content(events.next().await).len(), long.len());
        }
    };
    tokio::join!(server, consumer);
}

#[tokio::test]
async fn what_is_no_frame_ends_the_connection_even_where_it_could_be_tried_again() {
    for bad in [Message::text("{\"type\":\"token\"}"), Message::Binary(vec![1].into())] {
        let peer = Peer::new().await;
        let (mut socket, _client, mut events) = peer.connect(Reconnect::Backoff).await;
        socket.send(bad).await.unwrap();
        let Some(ClientEvent::Closed { reason }) = events.next().await else { panic!() };
        assert!(reason.starts_with("the server sent a"), "{reason}");
    }
}

#[tokio::test]
async fn an_event_of_a_newer_server_is_a_value() {
    let peer = Peer::new().await;
    let (mut socket, _client, mut events) = peer.connect(Reconnect::Never).await;
    socket.send(Message::text("{\"v\":1,\"type\":\"later\"}")).await.unwrap();
    let Some(ClientEvent::Frame(frame)) = events.next().await else { panic!() };
    assert_eq!(frame.message, ServerMessage::Unknown("later".into()));
}

#[tokio::test]
async fn nobody_at_the_address_is_unreachable() {
    let free = Peer::new().await.address;
    let config = ClientConfig { url: format!("http://{free}"), reconnect: Reconnect::Backoff };
    let error = Client::connect(config).await.err().unwrap();
    assert_eq!(error, ClientError::Unreachable(format!("http://{free}: connection refused")));
}

#[tokio::test]
async fn a_refused_handshake_keeps_the_servers_words() {
    for (answer, expected) in [
        (
            "HTTP/1.1 403 Forbidden\r\ncontent-length: 54\r\n\r\n{\"error\":{\"code\":\"FORBIDDEN\",\"message\":\"wrong origin\"}}",
            "wrong origin",
        ),
        ("HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno", "answered 404"),
    ] {
        let peer = Peer::new().await;
        let config = ClientConfig { url: format!("http://{}", peer.address), reconnect: Reconnect::Never };
        let server = async {
            let (mut socket, _) = peer.listener.accept().await.unwrap();
            let mut request = [0; 4096];
            assert_ne!(socket.read(&mut request).await.unwrap(), 0);
            socket.write_all(answer.as_bytes()).await.unwrap();
            socket
        };
        let (_socket, result) = tokio::join!(server, Client::connect(config));
        let error = result.err().unwrap().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
