//! A reader of an event stream over HTTP, as bare as a browser's: fields, blank lines, nothing else.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long an expected event may take: far above what it takes, so that a slow machine fails nothing.
const PATIENCE: Duration = Duration::from_secs(20);

/// An open event stream.
pub struct EventStream {
    inner: BufReader<TcpStream>,
}

/// An event of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamEvent {
    /// Its `id` line.
    pub id: Option<u64>,
    /// Its `event` line.
    pub name: String,
    /// Its `data`, read as JSON.
    pub data: Value,
}

impl EventStream {
    /// Opens a stream at `HOST:PORT`; `last` goes into `Last-Event-ID`.
    pub async fn open(address: &str, path: &str, last: Option<u64>) -> Self {
        Self::try_open(address, path, last).await.unwrap_or_else(|refusal| panic!("{path}: {refusal}"))
    }

    /// The same, or what the server answered instead.
    pub async fn try_open(address: &str, path: &str, last: Option<u64>) -> Result<Self, Value> {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let last = last.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
        // HTTP/1.0, so that the body comes as it is.
        let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n{last}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut inner = BufReader::new(stream);
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            timeout(PATIENCE, inner.read_line(&mut line)).await.expect("an answer in time").unwrap();
            if line.trim().is_empty() {
                break;
            }
            head.push(line.to_ascii_lowercase());
        }
        if !head[0].contains(" 200 ") {
            let mut body = String::new();
            timeout(PATIENCE, inner.read_to_string(&mut body)).await.expect("an answer in time").unwrap();
            return Err(serde_json::from_str(&body).unwrap_or_else(|_| panic!("{head:?}: {body}")));
        }
        assert!(head.iter().any(|line| line.starts_with("content-type: text/event-stream")), "{head:?}");
        Ok(Self { inner })
    }

    /// Returns the next event; `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<StreamEvent> {
        let (mut id, mut name, mut data) = (None, String::new(), String::new());
        loop {
            let mut line = String::new();
            let read = timeout(PATIENCE, self.inner.read_line(&mut line)).await.expect("an event in time");
            if read.unwrap() == 0 {
                return None;
            }
            match line.trim_end_matches(['\r', '\n']).split_once(':') {
                None if data.is_empty() => {}
                None => return Some(StreamEvent { id, name, data: serde_json::from_str(&data).unwrap() }),
                Some(("id", value)) => id = Some(value.trim().parse().unwrap()),
                Some(("event", value)) => name = value.trim().to_owned(),
                Some(("data", value)) => data.push_str(value.trim_start()),
                Some((_, _)) => {}
            }
        }
    }

    /// Returns every event up to the first of this name, that one included.
    pub async fn until(&mut self, name: &str) -> Vec<StreamEvent> {
        let mut events = Vec::new();
        loop {
            events.push(self.next().await.expect("the stream is open"));
            if events.last().unwrap().name == name {
                return events;
            }
        }
    }
}
