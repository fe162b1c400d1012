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

    /// Sends a message and waits for the end of its reply.
    pub(crate) async fn chat(&mut self, session: &str, message: &str) -> Result<Reply> {
        let frame = format!(r#"{{"v":1,"type":"chat","sessionId":"{session}","message":"{message}"}}"#);
        let sent = Instant::now();
        self.0.send(Message::text(frame)).await?;
        let mut reply = Reply { sent, first: sent, last: sent, tokens: 0 };
        timeout(PATIENCE, self.read(&mut reply)).await.context("a reply in time")??;
        Ok(reply)
    }

    async fn read(&mut self, reply: &mut Reply) -> Result<()> {
        while let Some(message) = self.0.next().await {
            let Message::Text(text) = message? else { continue };
            // The type comes second in every frame.
            let head = &text.as_str()[..text.len().min(32)];
            if head.contains("\"token\"") {
                let now = Instant::now();
                if reply.tokens == 0 {
                    reply.first = now;
                }
                reply.last = now;
                // Joined pieces count as the words they hold.
                reply.tokens += text
                    .as_str()
                    .rsplit("\"content\":")
                    .next()
                    .map_or(1, |words| words.matches(' ').count().max(1));
            } else if head.contains("\"done\"") {
                return Ok(());
            } else if head.contains("\"error\"") {
                bail!("the server answered {text}");
            }
        }
        bail!("the server closed the connection")
    }
}
