//! A bare `/chat` socket: sends JSON as it is, and expects events within a time limit.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, client_async, connect_async};

/// How long an expected event may take: far above what it takes, so that a slow machine fails nothing.
const PATIENCE: Duration = Duration::from_secs(20);

/// Receive buffer of a client that is to be slow, in bytes.
const SMALL_BUFFER: u32 = 8 << 10;

/// A bare `/chat` socket.
pub struct Socket {
    inner: WebSocketStream<MaybeTlsStream<TcpStream>>,
}

impl Socket {
    /// Connects to `HOST:PORT`.
    pub async fn connect(address: &str) -> Self {
        let (inner, _) =
            connect_async(format!("ws://{address}/chat")).await.expect("the server takes the socket");
        Self { inner }
    }

    /// Opens `/chat` of `HOST:PORT` over a connection that is made already.
    pub async fn over(stream: TcpStream, address: &str) -> Self {
        let stream = MaybeTlsStream::Plain(stream);
        let (inner, _) =
            client_async(format!("ws://{address}/chat"), stream).await.expect("the server takes it");
        Self { inner }
    }

    /// Connects with a receive buffer so small that what is not read stays with the server.
    pub async fn connect_slow(address: &str) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(SMALL_BUFFER).unwrap();
        let stream = socket.connect(address.parse().unwrap()).await.unwrap();
        Self::over(stream, address).await
    }

    /// Sends a frame of protocol v1 for a session.
    pub async fn send(&mut self, session: &str, type_name: &str, mut fields: Value) {
        let members = fields.as_object_mut().expect("fields are an object");
        members.insert("v".into(), json!(1));
        members.insert("type".into(), json!(type_name));
        members.insert("sessionId".into(), json!(session));
        self.send_text(&fields.to_string()).await;
    }

    /// Sends a message of the user.
    pub async fn chat(&mut self, session: &str, message: &str) {
        self.send(session, "chat", json!({ "message": message })).await;
    }

    /// Answers an approval request.
    pub async fn decide(&mut self, session: &str, call: &str, decision: &str) {
        self.send(session, "tool_approve", json!({ "toolCallId": call, "decision": decision })).await;
    }

    /// Sends text as it is.
    pub async fn send_text(&mut self, text: &str) {
        self.send_message(Message::text(text)).await;
    }

    /// Sends any message.
    pub async fn send_message(&mut self, message: Message) {
        self.inner.send(message).await.expect("the socket is open");
    }

    /// Returns the next event.
    pub async fn next(&mut self) -> Value {
        loop {
            let message = timeout(PATIENCE, self.inner.next()).await.expect("an event in time");
            match message.expect("the socket is open").expect("a readable frame") {
                Message::Text(text) => return serde_json::from_str(&text).expect("JSON"),
                Message::Close(close) => panic!("closed: {close:?}"),
                _ => {}
            }
        }
    }

    /// Says something and returns the events up to the end of its turn.
    pub async fn turn(&mut self, session: &str, words: &str) -> Vec<Value> {
        self.chat(session, words).await;
        self.until("done").await
    }

    /// Returns every event up to the first of this type, that one included.
    pub async fn until(&mut self, type_name: &str) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            events.push(self.next().await);
            if events.last().unwrap()["type"] == type_name {
                return events;
            }
        }
    }

    /// Returns the first event of this type; those before it are passed over.
    pub async fn expect(&mut self, type_name: &str) -> Value {
        self.until(type_name).await.pop().unwrap()
    }

    /// Joins a session, and returns what waited there.
    pub async fn join(&mut self, session: &str) -> Vec<Value> {
        self.settle(session).await
    }

    /// Asks the session something and waits for its answer: it has taken every earlier request of this
    /// connection by then. Returns what came before.
    pub async fn settle(&mut self, session: &str) -> Vec<Value> {
        self.send(session, "kb_list", json!({})).await;
        let mut events = self.until("kb_list_result").await;
        events.pop();
        events
    }

    /// Returns the code of the next error.
    pub async fn error_code(&mut self) -> String {
        self.expect("error").await["code"].as_str().expect("a code").to_owned()
    }

    /// Sends a ping and expects its pong as the next frame. The pong may overtake events, so this says
    /// nothing about them.
    pub async fn ping(&mut self, payload: &[u8]) {
        self.send_message(Message::Ping(payload.to_vec().into())).await;
        let pong = timeout(PATIENCE, self.inner.next()).await.expect("a pong in time");
        let pong = pong.expect("the socket is open").expect("a readable frame");
        assert_eq!(pong, Message::Pong(payload.to_vec().into()));
    }

    /// Reads until the server closes, and returns its close frame, if it sent one.
    pub async fn closed(&mut self) -> Option<CloseFrame> {
        loop {
            match timeout(PATIENCE, self.inner.next()).await.expect("a close in time") {
                Some(Ok(Message::Close(close))) => return close,
                Some(Ok(_)) => {}
                Some(Err(Error::ConnectionClosed)) | None => return None,
                Some(Err(_)) => return None,
            }
        }
    }

    /// Returns the transport, for what no client would do.
    pub fn stream(&mut self) -> &mut WebSocketStream<MaybeTlsStream<TcpStream>> {
        &mut self.inner
    }
}

/// Joins the pieces of a reply.
pub fn text(events: &[Value]) -> String {
    let pieces = events.iter().filter(|event| event["type"] == "token");
    pieces.map(|event| event["content"].as_str().unwrap()).collect()
}

/// Returns the events of one type.
pub fn of_type<'a>(events: &'a [Value], type_name: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == type_name).collect()
}

/// Returns the types of events, in order, runs of `token` as one.
pub fn types(events: &[Value]) -> Vec<&str> {
    let mut types: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    types.dedup_by(|a, b| *a == "token" && *b == "token");
    types
}
