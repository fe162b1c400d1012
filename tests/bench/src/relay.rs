//! The floor: a `chat` event in over WebSocket, the model's stream out as `token` events. No history, no
//! storage, no tools, nothing checked. What a server with sessions costs is what it takes beyond this.

use std::borrow::Cow;

use anyhow::Result;
use axum::Router;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::routing::get;
use futures_util::{SinkExt, StreamExt};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::net::TcpListener;

/// Read and write buffer of a connection, in bytes.
const BUFFER: usize = 4 << 10;

/// Listens on a free port, prints it, and relays to the model server until it is killed.
pub(crate) async fn run(model: u16) -> Result<()> {
    let client = reqwest::Client::builder().tls_certs_only([]).no_proxy().build()?;
    let router = Router::new().route(
        "/chat",
        get(move |upgrade: WebSocketUpgrade| {
            let client = client.clone();
            async move {
                upgrade.read_buffer_size(BUFFER).write_buffer_size(BUFFER).on_upgrade(
                    move |socket| async move {
                        if let Err(error) = serve(socket, client, model).await {
                            eprintln!("relay: {error}");
                        }
                    },
                )
            }
        }),
    );
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("{}", listener.local_addr()?.port());
    use axum::serve::ListenerExt;
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    axum::serve(listener, router).await?;
    Ok(())
}

async fn serve(mut socket: WebSocket, client: reqwest::Client, model: u16) -> Result<()> {
    while let Some(Ok(message)) = socket.next().await {
        let Message::Text(text) = message else { continue };
        let chat: Chat<'_> = serde_json::from_str(&text)?;
        let body = json!({ "model": "bench", "stream": true,
            "messages": [{ "role": "user", "content": chat.message }] });
        let url = format!("http://127.0.0.1:{model}/v1/chat/completions");
        let mut stream = client.post(url).body(body.to_string()).send().await?.bytes_stream();
        let mut buffer = Vec::new();
        while let Some(chunk) = stream.next().await {
            buffer.extend_from_slice(&chunk?);
            let mut at = 0;
            while let Some(length) = buffer[at..].iter().position(|byte| *byte == b'\n') {
                let line = &buffer[at..at + length];
                at += length + 1;
                if let Some(content) = content(line) {
                    let event = Token {
                        v: 1,
                        r#type: "token",
                        session_id: &chat.session_id,
                        agent_id: "relay",
                        content: &content,
                    };
                    socket.feed(Message::Text(serde_json::to_string(&event)?.into())).await?;
                }
            }
            buffer.drain(..at);
            socket.flush().await?;
        }
        socket.send(Message::text(r#"{"v":1,"type":"done"}"#)).await?;
    }
    Ok(())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Chat<'a> {
    #[serde(borrow)]
    message: Cow<'a, str>,
    #[serde(borrow)]
    session_id: Cow<'a, str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Token<'a> {
    v: u8,
    r#type: &'a str,
    session_id: &'a str,
    agent_id: &'a str,
    content: &'a str,
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: Vec<Choice<'a>>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    delta: Delta<'a>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default)]
    content: Option<Cow<'a, str>>,
}

fn content(line: &[u8]) -> Option<Cow<'_, str>> {
    let data = line.strip_prefix(b"data: ")?;
    let chunk: Chunk<'_> = serde_json::from_slice(data).ok()?;
    chunk.choices.into_iter().next()?.delta.content
}
