//! Plain HTTP over a bare TCP connection: sends a request as it is written and reads the whole answer.

use std::io::ErrorKind;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long an answer may take: far above what it takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Its status code.
    pub status: u16,
    /// Its header lines, in lower case.
    pub headers: String,
    /// Its body.
    pub body: String,
}

impl Answer {
    /// Reads the body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the status and the error code of a refusal.
    pub fn refusal(&self) -> (u16, String) {
        let body = self.json();
        assert!(body["error"]["message"].as_str().is_some_and(|message| !message.is_empty()), "{body}");
        (self.status, body["error"]["code"].as_str().expect("a code").to_owned())
    }
}

/// Sends bytes to `HOST:PORT` and reads until the server closes.
pub async fn send(address: &str, request: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // A server that refuses a request early closes while the rest of it is still being sent.
    let closes = |error: std::io::Error| match error.kind() {
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {}
        _ => panic!("{error}"),
    };
    stream.write_all(request).await.unwrap_or_else(closes);
    let mut answer = Vec::new();
    let read = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("an answer in time");
    read.map(drop).unwrap_or_else(closes);
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no HTTP answer: {answer:?}"));
    let (line, headers) = head.split_once("\r\n").unwrap_or((head, ""));
    let status = line.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, headers: headers.to_ascii_lowercase(), body: body.to_owned() }
}

/// Sends a request with a JSON body, or none.
pub async fn call(address: &str, method: &str, path: &str, body: Option<&Value>) -> Answer {
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    let request = match body {
        Some(body) => {
            let body = body.to_string();
            let length = body.len();
            format!("{head}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}")
        }
        None => format!("{head}\r\n"),
    };
    send(address, request.as_bytes()).await
}

/// Sends a GET.
pub async fn get(address: &str, path: &str) -> Answer {
    call(address, "GET", path, None).await
}
