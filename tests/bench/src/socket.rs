//! A client that looks at bytes, not at JSON, so that it is never the slow part.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

/// How long a reply may take in all.
const PATIENCE: Duration = Duration::from_secs(120);

/// One `/chat` connection.
pub(crate) struct Socket(WebSocketStream<MaybeTlsStream<TcpStream>>);

/// When a reply's parts came.
pub(crate) struct Reply {
    pub(crate) sent: Instant,
    pub(crate) first: Instant,
    pub(crate) last: Instant,
    pub(crate) tokens: usize,
}

impl Socket {
    /// Connects to a port of loopback.
    pub(crate) async fn connect(port: u16) -> Result<Self> {
        let config = WebSocketConfig::default().read_buffer_size(64 << 10);
        let url = format!("ws://127.0.0.1:{port}/chat");
        let (socket, _) = connect_async_with_config(url, Some(config), true).await.context("connect")?;
        Ok(Self(socket))
    }

    /// Joins a session: what is announced there is sent here from now on.
    pub(crate) async fn join(&mut self, session: &str) -> Result<()> {
        let frame = format!(r#"{{"v":1,"type":"kb_list","sessionId":"{session}"}}"#);
        self.0.send(Message::text(frame)).await?;
        let joined = self.read("\"kb_list_result\"", |_, _| {});
        timeout(PATIENCE, joined).await.context("an answer in time")?
    }

    /// Sends a message.
    pub(crate) async fn say(&mut self, session: &str, message: &str) -> Result<()> {
        let frame = format!(r#"{{"v":1,"type":"chat","sessionId":"{session}","message":"{message}"}}"#);
        Ok(self.0.send(Message::text(frame)).await?)
    }

    /// Sends a message and waits for the end of its reply.
    pub(crate) async fn chat(&mut self, session: &str, message: &str) -> Result<Reply> {
        let sent = Instant::now();
        self.say(session, message).await?;
        let mut reply = Reply { sent, first: sent, last: sent, tokens: 0 };
        let read = self.read("\"done\"", |now, tokens| {
            if reply.tokens == 0 {
                reply.first = now;
            }
            reply.last = now;
            reply.tokens += tokens;
        });
        timeout(PATIENCE, read).await.context("a reply in time")??;
        Ok(reply)
    }

    /// Reads to the end of a reply; returns when each of its tokens came.
    pub(crate) async fn follow(&mut self) -> Result<Vec<Instant>> {
        let mut came = Vec::new();
        let read = self.read("\"done\"", |now, tokens| came.resize(came.len() + tokens, now));
        timeout(PATIENCE, read).await.context("a reply in time")??;
        Ok(came)
    }

    /// Reads up to a frame of this type; `token` is told when tokens came, and how many.
    async fn read(&mut self, end: &str, mut token: impl FnMut(Instant, usize)) -> Result<()> {
        while let Some(message) = self.0.next().await {
            let Message::Text(text) = message? else { continue };
            // The type comes second in every frame.
            let head = &text.as_str()[..text.len().min(32)];
            if head.contains("\"token\"") {
                // Joined pieces count as the words they hold.
                let words = text.as_str().rsplit("\"content\":").next();
                token(Instant::now(), words.map_or(1, |words| words.matches(' ').count().max(1)));
            } else if head.contains(end) {
                return Ok(());
            } else if head.contains("\"error\"") {
                bail!("the server answered {text}");
            }
        }
        bail!("the server closed the connection")
    }
}
