//! A client that remembers every durable event that it was shown.

use std::collections::BTreeMap;

use futures_util::StreamExt;
use serde_json::{Value, json};
use tns_tests::Socket;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use crate::binary::{PATIENCE, Serving};

/// What was seen of a session.
#[derive(Default)]
pub(super) struct Seen {
    /// Durable events, by place.
    pub(super) events: BTreeMap<u64, Value>,
    /// What was shown of each reply, while it was written.
    pub(super) replies: BTreeMap<String, String>,
}

/// A connection that knows the log, in one session.
pub(super) struct Client<'a> {
    socket: Socket,
    session: &'a str,
    seen: &'a mut Seen,
}

impl<'a> Client<'a> {
    /// Connects. What waits in the session begins.
    pub(super) async fn join(server: &Serving, session: &'a str, seen: &'a mut Seen) -> Self {
        let mut client = Self { socket: server.socket().await, session, seen };
        client.send("hello", json!({ "ext": ["events.1"] })).await;
        client.expect("welcome").await;
        client
    }

    /// Returns how many durable events were seen.
    pub(super) fn known(&self) -> usize {
        self.seen.events.len()
    }

    pub(super) async fn send(&mut self, type_name: &str, fields: Value) {
        self.socket.send(self.session, type_name, fields).await;
    }

    /// Says something under the sender's own id.
    pub(super) async fn say(&mut self, id: &str, message: &str) {
        self.send("chat", json!({ "message": message, "clientMessageId": id })).await;
    }

    /// Returns the next event.
    pub(super) async fn next(&mut self) -> Value {
        let event = self.socket.next().await;
        self.note(&event);
        event
    }

    /// Returns the next event of this type.
    pub(super) async fn expect(&mut self, type_name: &str) -> Value {
        loop {
            let event = self.next().await;
            if event["type"] == type_name {
                return event;
            }
        }
    }

    /// Waits until so many turns have ended.
    pub(super) async fn ends(&mut self, mut turns: usize) {
        while turns > 0 {
            turns -= usize::from(is_end(&self.next().await));
        }
    }

    /// Asks something and waits for the answer.
    pub(super) async fn settle(&mut self) {
        self.send("kb_list", json!({})).await;
        self.expect("kb_list_result").await;
    }

    /// Reads what had left the server before it died: it counts as seen.
    pub(super) async fn drain(mut self) {
        while let Ok(Some(Ok(frame))) = timeout(PATIENCE, self.socket.stream().next()).await {
            if let Message::Text(text) = frame {
                self.note(&serde_json::from_str(&text).unwrap());
            }
        }
    }

    /// The same place twice is the same event.
    fn note(&mut self, event: &Value) {
        if event["type"] == "token" {
            let reply = event["responseId"].as_str().unwrap().to_owned();
            self.seen.replies.entry(reply).or_default().push_str(event["content"].as_str().unwrap());
        }
        let Some(seq) = event["seq"].as_u64() else { return };
        let before = self.seen.events.insert(seq, event.clone());
        assert!(before.is_none_or(|before| before == *event), "place {seq} was given twice: {event}");
    }
}

/// Whether an event is the stored end of a turn.
pub(super) fn is_end(event: &Value) -> bool {
    event["seq"].is_u64() && matches!(event["type"].as_str(), Some("done" | "interrupted" | "error"))
}
