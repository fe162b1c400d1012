//! A client of protocol v1 on a bare socket: it never says hello, and after a loss it just comes again.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tns_protocol::decode_server;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};

use super::{Act, Person, Waiting};
use crate::sim::net::End;
use crate::sim::told::{Seen, What};
use crate::sim::world::CHAT;

/// How long a silent connection is taken for a living one; the server pings after half a minute.
const SILENCE: Duration = Duration::from_secs(100);

/// How long the handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Lives until the run's end, one connection after the other.
pub(in crate::sim) async fn live(person: Person) {
    let mut strict = Strict { person, sent: Vec::new(), waiting: Waiting::default() };
    loop {
        if let Some(socket) = strict.connect().await {
            strict.use_it(socket).await;
        }
        sleep(strict.person.thinks()).await;
    }
}

struct Strict {
    person: Person,
    sent: Vec<(String, String)>,
    waiting: Waiting,
}

impl Strict {
    async fn connect(&self) -> Option<WebSocketStream<End>> {
        let end = self.person.net.connect(self.person.number, self.person.clock).await.ok()?;
        let (mut socket, _) = timeout(HANDSHAKE, client_async(CHAT, end)).await.ok()?.ok()?;
        self.person.saw(Seen::Opened);
        // An empty set of tools joins and changes nothing.
        let joins = self.frame("mcp_tools", json!({ "tools": [] }));
        if socket.send(joins).await.is_err() {
            self.person.saw(Seen::Lost);
            return None;
        }
        Some(socket)
    }

    fn frame(&self, name: &str, mut fields: Value) -> Message {
        fields["v"] = json!(1);
        fields["type"] = json!(name);
        fields["sessionId"] = json!(self.person.session);
        Message::text(fields.to_string())
    }

    async fn use_it(&mut self, mut socket: WebSocketStream<End>) {
        self.waiting = Waiting::default();
        let mut acts_at = Instant::now() + self.person.thinks();
        let mut heard = Instant::now();
        loop {
            let message = tokio::select! {
                biased;
                message = socket.next() => message,
                () = sleep_until(acts_at) => {
                    acts_at = Instant::now() + self.person.thinks();
                    match self.person.next_act() {
                        _ if heard.elapsed() > SILENCE => break,
                        Act::Leave => break self.leave(),
                        Act::Stall => {
                            if let Some(message) = self.message(Act::Chat)
                                && socket.send(message).await.is_err()
                            {
                                break;
                            }
                            self.person.stall().await;
                        }
                        act => {
                            if let Some(message) = self.message(act)
                                && socket.send(message).await.is_err()
                            {
                                break;
                            }
                        }
                    }
                    continue;
                }
            };
            heard = Instant::now();
            match message {
                Some(Ok(Message::Text(text))) => self.note(&text),
                Some(Ok(Message::Close(frame))) => {
                    if frame.is_some_and(|frame| u16::from(frame.code) == 1013) {
                        self.person.count("closed for being slow");
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => break,
            }
        }
        self.person.count("losses");
        self.person.saw(Seen::Lost);
    }

    fn leave(&self) {
        self.person.count("clients that left");
        if self.person.chance.percent(50) {
            self.person.net.lose_client(self.person.number);
        }
    }

    fn note(&mut self, text: &str) {
        match decode_server(text) {
            Ok(frame) => {
                let told = self.person.told(&frame);
                self.waiting.note(&told);
                if matches!(told.what, What::User { .. } | What::Step { .. }) {
                    self.person.fault(format!("protocol v1 has no {}", told.name));
                }
            }
            Err(error) => self.person.fault(format!("a frame that is none: {error}")),
        }
    }

    fn message(&mut self, act: Act) -> Option<Message> {
        let person = &self.person;
        let chat = |(name, words): &(String, String)| json!({ "message": words, "clientMessageId": name });
        match act {
            Act::Chat => {
                let name = format!("c{}-{}", person.number, self.sent.len());
                self.sent.push((name.clone(), format!("words of {name}")));
                person.count("messages");
                self.sent.last().map(|sent| self.frame("chat", chat(sent)))
            }
            Act::Resend => {
                let sent = person.chance.pick(&self.sent)?;
                person.count("resends");
                Some(self.frame("chat", chat(sent)))
            }
            Act::Cancel => {
                person.count("cancels");
                Some(self.frame("cancel", json!({})))
            }
            Act::Decide => {
                let Some((call, decision)) = self.waiting.answer(&person.chance) else {
                    return (!person.is_busy()).then(|| Message::text("ping"));
                };
                person.count("answers");
                Some(self.frame("tool_approve", json!({ "toolCallId": call, "decision": decision })))
            }
            Act::Queue | Act::Stall | Act::Leave => None,
        }
    }
}
