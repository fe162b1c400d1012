//! The client against a real WebSocket server in this process.

use std::net::SocketAddr;
use std::sync::Mutex;

use futures_util::{SinkExt, StreamExt};
use tns_protocol::chat::{Cancel, Chat, Token};
use tns_protocol::log::{Hello, Program, Resumed, Welcome};
use tns_protocol::rest::ServerLimits;
use tns_protocol::{
    AgentId, ClientFrame, ClientMessage, ClientMessageId, ServerFrame, ServerMessage, SessionId,
    decode_client, encode_server,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, accept_async};

use crate::{
    Client, ClientConfig, ClientError, ClientEvent, Cursor, Events, Network, Reconnect, Rediscover, Stream,
};

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
        let config = ClientConfig::new(format!("http://{}", self.address), reconnect);
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

/// The next frame of the client, which must be of this type.
async fn next_frame(socket: &mut WebSocketStream<TcpStream>, type_name: &str) -> ClientFrame {
    let frame = decode_client(&next_text(socket).await).unwrap();
    assert_eq!(frame.message.type_name(), type_name);
    frame
}

/// Answers a hello: there is nothing in the log behind the place that it named.
async fn welcome(socket: &mut WebSocketStream<TcpStream>, hello: ClientFrame) {
    let ClientMessage::Hello(Hello { last_seq, .. }) = hello.message else { panic!("{hello:?}") };
    let head_seq = last_seq.unwrap_or(7);
    let limits = ServerLimits { max_message_bytes: 1, max_small_message_bytes: 1 };
    let server = Program { name: "tns".into(), version: "0".into() };
    let greeting = Welcome { ext: Vec::new(), epoch: "e".into(), head_seq, limits, server };
    let answer = |message| encode_server(&ServerFrame { re: hello.req_id.clone(), message, ..token("") });
    socket.send(Message::text(answer(greeting.into()))).await.unwrap();
    if last_seq.is_some() {
        let resumed = Resumed { head_seq, active: None, pending_approvals: Vec::new() };
        socket.send(Message::text(answer(resumed.into()))).await.unwrap();
    }
}

#[tokio::test]
async fn messages_go_out_and_frames_come_in_in_order() {
    let peer = Peer::new().await;
    let (mut socket, client, mut events) = peer.connect(Reconnect::Never).await;
    let chat = Chat { message: "hi".into(), ..Chat::default() };
    client.send(&session(), chat.clone()).await.unwrap();
    next_frame(&mut socket, "hello").await;
    let frame = next_frame(&mut socket, "chat").await;
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
    assert_eq!(seen, (1 + 3, 1));
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

fn named(name: &str) -> Chat {
    Chat { message: name.into(), client_message_id: ClientMessageId::parse(name).ok(), ..Chat::default() }
}

#[tokio::test]
async fn a_lost_connection_resumes_sends_again_what_was_lost_and_then_what_was_queued_meanwhile() {
    let peer = Peer::new().await;
    let (mut socket, client, mut events) = peer.connect(Reconnect::Backoff).await;
    client.join(&session(), Cursor::at(3)).await.unwrap();
    client.send(&session(), named("lost")).await.unwrap();
    let hello = next_frame(&mut socket, "hello").await;
    welcome(&mut socket, hello).await;
    assert_eq!(next_frame(&mut socket, "chat").await.req_id.unwrap().as_str(), "lost");
    assert!(matches!(events.next().await, Some(ClientEvent::Joined { .. })));
    assert!(matches!(events.next().await, Some(ClientEvent::CaughtUp { .. })));
    drop(socket);
    let Some(ClientEvent::Disconnected { retry_in, .. }) = events.next().await else { panic!() };
    assert!(retry_in.as_millis() <= 250);
    client.send(&session(), named("queued")).await.unwrap();
    let mut socket = peer.accept().await;
    assert_eq!(events.next().await, Some(ClientEvent::Reconnected));
    let hello = next_frame(&mut socket, "hello").await;
    let ClientMessage::Hello(asked) = &hello.message else { panic!() };
    assert_eq!((asked.last_seq, asked.epoch.as_deref()), (Some(3), Some("e")));
    welcome(&mut socket, hello).await;
    assert_eq!(next_frame(&mut socket, "chat").await.req_id.unwrap().as_str(), "lost");
    assert_eq!(next_frame(&mut socket, "chat").await.req_id.unwrap().as_str(), "queued");
}

#[tokio::test]
async fn an_event_out_of_order_costs_the_connection_and_is_not_handed_on() {
    let peer = Peer::new().await;
    let (mut socket, client, mut events) = peer.connect(Reconnect::Backoff).await;
    client.join(&session(), Cursor::at(3)).await.unwrap();
    let hello = next_frame(&mut socket, "hello").await;
    welcome(&mut socket, hello).await;
    socket.send(Message::text(encode_server(&ServerFrame { seq: Some(5), ..token("") }))).await.unwrap();
    assert!(matches!(events.next().await, Some(ClientEvent::Joined { .. })));
    assert!(matches!(events.next().await, Some(ClientEvent::CaughtUp { .. })));
    let Some(ClientEvent::Disconnected { reason, .. }) = events.next().await else { panic!() };
    assert_eq!(reason, "the server breaks its log: it sent event 5 after event 3");
    let mut socket = peer.accept().await;
    let hello = next_frame(&mut socket, "hello").await;
    assert!(matches!(hello.message, ClientMessage::Hello(Hello { last_seq: Some(3), .. })));
}

#[tokio::test]
async fn a_server_that_is_elsewhere_now_is_found_there() {
    let (old, new) = (Peer::new().await, Peer::new().await);
    let url = format!("http://{}", new.address);
    let rediscover = Rediscover::new(move || {
        let url = url.clone();
        async move { Some(url) }
    });
    let config = ClientConfig {
        rediscover: Some(rediscover),
        ..ClientConfig::new(format!("http://{}", old.address), Reconnect::Backoff)
    };
    let (socket, client) = tokio::join!(old.accept(), Client::connect(config));
    let (client, mut events) = client.unwrap();
    client.join(&session(), Cursor::at(3)).await.unwrap();
    drop((socket, old));
    assert!(matches!(events.next().await, Some(ClientEvent::Disconnected { .. })));
    let mut socket = new.accept().await;
    assert_eq!(events.next().await, Some(ClientEvent::Reconnected));
    next_frame(&mut socket, "hello").await;
    assert_eq!(client.rest().url(), format!("http://{}", new.address));
}

#[tokio::test]
async fn what_the_server_would_not_take_is_not_sent() {
    let peer = Peer::new().await;
    let (_socket, client, _events) = peer.connect(Reconnect::Never).await;
    let message = "x".repeat(tns_protocol::MAX_MESSAGE_BYTES);
    let sent = client.send(&session(), Chat { message, ..Chat::default() }).await;
    assert!(matches!(sent, Err(ClientError::TooLarge { .. })), "{sent:?}");
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
    next_frame(&mut socket, "hello").await;
    next_frame(&mut socket, "cancel").await;
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

/// Connects a client over a stream in memory, which stays open whoever is at its other end.
async fn connect_in_memory(reconnect: Reconnect) -> (WebSocketStream<DuplexStream>, Client, Events) {
    let (near, far) = tokio::io::duplex(64 << 10);
    let near = Mutex::new(Some(near));
    let dial = move |_| {
        let stream = near.lock().unwrap().take().map(|near| Box::new(near) as Box<dyn Stream>);
        std::future::ready(stream.ok_or_else(|| std::io::ErrorKind::ConnectionRefused.into()))
    };
    let network = Network::new(dial, || 0.0);
    let config = ClientConfig { network, ..ClientConfig::new("http://h:1", reconnect) };
    let (socket, client) = tokio::join!(accept_async(far), Client::connect(config));
    let (client, events) = client.unwrap();
    (socket.unwrap(), client, events)
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_gone_without_a_word_is_noticed_after_a_minute() {
    let (socket, client, mut events) = connect_in_memory(Reconnect::Never).await;
    client.join(&session(), Cursor::at(0)).await.unwrap();
    let began = tokio::time::Instant::now();
    let reason = "nothing came from the server for 60 seconds".to_owned();
    assert_eq!(events.next().await, Some(ClientEvent::Closed { reason }));
    assert_eq!(began.elapsed().as_secs(), 60);
    drop(socket);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_only_answers_pings_is_there() {
    let (mut socket, client, mut events) = connect_in_memory(Reconnect::Never).await;
    client.join(&session(), Cursor::at(0)).await.unwrap();
    let hour = tokio::time::sleep(std::time::Duration::from_secs(3_600));
    let mut pings = 0;
    let reads = async {
        while let Some(Ok(message)) = socket.next().await {
            pings += u32::from(message.is_ping());
        }
    };
    tokio::select! {
        () = hour => {}
        () = reads => panic!("the client left"),
        event = events.next() => panic!("{event:?}"),
    }
    assert_eq!(pings, 119);
}

#[tokio::test(start_paused = true)]
async fn a_long_message_that_comes_slowly_is_no_silence() {
    let (socket, _client, mut events) = connect_in_memory(Reconnect::Never).await;
    let text = encode_server(&token(&"x".repeat(120)));
    let mut stream = socket.into_inner();
    // A text frame of up to 65,535 bytes: its head, then its text, a byte a second.
    let length = u16::try_from(text.len()).unwrap().to_be_bytes();
    stream.write_all(&[0x81, 126, length[0], length[1]]).await.unwrap();
    let writes = async {
        for byte in text.bytes() {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            stream.write_all(&[byte]).await.unwrap();
        }
    };
    let (event, ()) = tokio::join!(events.next(), writes);
    assert_eq!(content(event).len(), 120);
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
    let config = ClientConfig::new(format!("http://{free}"), Reconnect::Backoff);
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
        let config = ClientConfig::new(format!("http://{}", peer.address), Reconnect::Never);
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
