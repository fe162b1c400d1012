//! Comes when all is quiet, on a bare socket with hello, and looks the log over as the wire gives it: that pages
//! are bounded and complete, and that a place of no log is refused.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tns_protocol::log::{HistorySync, MAX_SYNC_BYTES, MAX_SYNC_EVENTS};
use tns_protocol::{ServerFrame, ServerMessage, decode_server};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::sim::net::{Clock, End, Net};
use crate::sim::told::Told;
use crate::sim::world::CHAT;

/// How long an answer may take; nothing is in its way any more.
const PATIENCE: Duration = Duration::from_secs(20);

/// Looks a session over against its stored log; returns what is wrong.
pub(in crate::sim) async fn audit(
    net: Net,
    number: usize,
    clock: Clock,
    session: String,
    log: Vec<Told>,
) -> Vec<String> {
    let mut auditor = match open(&net, number, clock).await {
        Some(socket) => Auditor { socket, session, faults: Vec::new() },
        None => return vec!["the server takes nobody at the end".to_owned()],
    };
    if timeout(PATIENCE, auditor.look(&log)).await.is_err() {
        auditor.faults.push("E7: a question at the end is not answered".to_owned());
    }
    auditor.faults
}

async fn open(net: &Net, number: usize, clock: Clock) -> Option<WebSocketStream<End>> {
    let end = net.connect(number, clock).await.ok()?;
    client_async(CHAT, end).await.ok().map(|(socket, _)| socket)
}

struct Auditor {
    socket: WebSocketStream<End>,
    session: String,
    faults: Vec<String>,
}

impl Auditor {
    async fn look(&mut self, log: &[Told]) {
        self.ask("hello", json!({ "ext": ["events.1"], "lastSeq": 0 })).await;
        let head = log.len() as u64;
        let mut told: Vec<Told> = Vec::new();
        while let Some(frame) = self.next().await {
            match frame.message {
                ServerMessage::HistorySync(page) => told.extend(self.page(&page, told.len() as u64)),
                ServerMessage::Resumed(resumed) => {
                    if resumed.head_seq != head {
                        self.faults
                            .push(format!("E2: resumed at {}, and the log has {head}", resumed.head_seq));
                    }
                    break;
                }
                _ => {}
            }
        }
        if told != log {
            self.faults.push("E8: the pages of the log are not the stored log".to_owned());
        }
        for (what, question) in [
            ("a place behind the log's end", json!({ "lastSeq": head + 1 })),
            ("another epoch", json!({ "lastSeq": 0, "epoch": "another" })),
        ] {
            self.ask("resume", question).await;
            let answer = self.next().await.map(|frame| frame.message);
            let refused =
                matches!(&answer, Some(ServerMessage::ResyncRequired(resync)) if resync.head_seq == head);
            if !refused {
                self.faults.push(format!("E7: {what} is answered with {answer:?}"));
            }
        }
    }

    fn page(&mut self, page: &HistorySync, after: u64) -> Vec<Told> {
        let bytes: usize = page.events.iter().map(|event| event.as_str().len()).sum();
        let largest = page.events.iter().map(|event| event.as_str().len()).max().unwrap_or(0);
        // The last event may cross the limit, but none comes behind it.
        if page.events.len() > MAX_SYNC_EVENTS || (page.events.len() > 1 && bytes > MAX_SYNC_BYTES + largest)
        {
            self.faults.push(format!("E7: a page of {} events and {bytes} bytes", page.events.len()));
        }
        let frames = page.events.iter().filter_map(|event| decode_server(event.as_str()).ok());
        let told: Vec<Told> = frames.map(|frame| Told::frame(&frame)).collect();
        let ends = (told.first().and_then(|told| told.seq), told.last().and_then(|told| told.seq));
        if told.len() != page.events.len()
            || ends != (Some(page.from_seq), Some(page.to_seq))
            || page.from_seq != after + 1
        {
            self.faults
                .push(format!("E7: a page says {} to {} and has {ends:?}", page.from_seq, page.to_seq));
        }
        told
    }

    async fn ask(&mut self, name: &str, mut fields: Value) {
        fields["v"] = json!(1);
        fields["type"] = json!(name);
        fields["sessionId"] = json!(self.session);
        if self.socket.send(Message::text(fields.to_string())).await.is_err() {
            self.faults.push("the server ends the connection at the end".to_owned());
        }
    }

    /// Returns the next frame that is addressed to this connection.
    async fn next(&mut self) -> Option<ServerFrame> {
        loop {
            let Message::Text(text) = self.socket.next().await?.ok()? else { continue };
            let frame = decode_server(&text).ok()?;
            if !matches!(frame.message, ServerMessage::Welcome(_)) {
                return Some(frame);
            }
        }
    }
}
