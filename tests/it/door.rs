//! The door over a real connection: web pages, foreign names and other users are turned away before
//! any route answers.

use std::process::{Command, Stdio};

use serde_json::json;
use tns_server_core::scripted::Script;
use tns_tests::{http, session};

use crate::start;

/// The user that owns nothing, by convention of the system.
const NOBODY: u32 = 65_534;

/// Returns an upgrade to `/chat` with these header lines.
fn upgrade(headers: &str) -> Vec<u8> {
    format!(
        "GET /chat HTTP/1.1\r\n{headers}Connection: close, Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    .into_bytes()
}

#[tokio::test]
async fn an_upgrade_with_any_origin_is_refused() {
    let server = start(Script::new()).await;
    let address = server.address();
    let port = address.rsplit(':').next().unwrap();
    let origins = [
        format!("http://localhost:{port}"),
        format!("http://127.0.0.1:{port}"),
        format!("http://[::1]:{port}"),
        "https://evil.example".into(),
        "http://localhost.evil.example".into(),
        format!("http://evil.example:{port}"),
        "null".into(),
        String::new(),
    ];
    for origin in origins {
        let answer = http::send(address, &upgrade(&format!("Host: {address}\r\nOrigin: {origin}\r\n"))).await;
        assert_eq!(answer.refusal(), (403, "FORBIDDEN".to_owned()), "{origin}");
        assert!(!answer.headers.contains("access-control"), "{answer:?}");
    }
    // Without an origin, and only then, the socket opens.
    server.socket().await.join("s").await;
    assert_eq!(server.rest().sessions(None, None).await.unwrap().sessions.len(), 1);
}

#[tokio::test]
async fn an_upgrade_to_a_foreign_name_is_refused() {
    let server = start(Script::new()).await;
    let address = server.address();
    let port = address.rsplit(':').next().unwrap();
    for host in [
        format!("evil.example:{port}"),
        "localhost".into(),
        "127.0.0.1".into(),
        "localhost:1".into(),
        format!("localhost.evil.example:{port}"),
        format!("localhost.:{port}"),
        format!("0.0.0.0:{port}"),
        format!("127.0.0.2:{port}"),
        String::new(),
    ] {
        let answer = http::send(address, &upgrade(&format!("Host: {host}\r\n"))).await;
        assert_eq!(answer.refusal(), (403, "FORBIDDEN".to_owned()), "{host}");
    }
    let none = http::send(address, &upgrade("")).await;
    assert_eq!(none.refusal(), (403, "FORBIDDEN".to_owned()));
    let two =
        http::send(address, &upgrade(&format!("Host: {address}\r\nHost: evil.example:{port}\r\n"))).await;
    assert!(two.status == 403 || two.status == 400, "{two:?}");
    for host in
        [format!("localhost:{port}"), format!("LocalHost:{port}"), format!("[::1]:{port}"), address.into()]
    {
        let request = format!("GET /health/live HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        assert_eq!(http::send(address, request.as_bytes()).await.status, 200, "{host}");
    }
}

#[tokio::test]
async fn a_web_page_changes_and_reads_nothing_over_rest() {
    let server = start(Script::new()).await;
    let address = server.address();
    server.socket().await.join("s").await;
    let body = json!({ "sessionId": "s", "content": "planted", "query": "x", "path": "." }).to_string();
    for line in [
        "POST /api/kb",
        "POST /api/kb/search",
        "POST /api/index",
        "POST /api/search",
        "DELETE /api/index?sessionId=s",
        "GET /api/audit?sessionId=s",
        "GET /api/sessions",
        "POST /api/sessions",
        "OPTIONS /api/sessions",
        "GET /health/live",
    ] {
        let request = format!(
            "{line} HTTP/1.1\r\nHost: {address}\r\nOrigin: https://evil.example\r\nContent-Type: text/plain\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        let answer = http::send(address, request.as_bytes()).await;
        assert_eq!(answer.refusal(), (403, "FORBIDDEN".to_owned()), "{line}");
        assert!(!answer.headers.contains("access-control"), "{line}");
    }
    assert_eq!(server.rest().kb_list(&session("s")).await.unwrap().total_count, 0);
    assert_eq!(server.rest().sessions(None, None).await.unwrap().sessions.len(), 1);
}

#[tokio::test]
async fn a_body_that_is_not_json_is_refused() {
    let server = start(Script::new()).await;
    let address = server.address();
    let body = r#"{"id":"planted"}"#;
    let request = format!(
        "POST /api/sessions HTTP/1.1\r\nHost: {address}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    assert_eq!(http::send(address, request.as_bytes()).await.refusal(), (415, "INVALID_MESSAGE".to_owned()));
    assert_eq!(server.rest().sessions(None, None).await.unwrap().sessions, []);
}

/// Asks for a path as another user of this machine; `None`: that is not possible here.
fn ask_as_nobody(address: &str, path: &str) -> Option<String> {
    let (host, port) = address.rsplit_once(':').unwrap();
    let script = format!(
        "exec 3<>/dev/tcp/{host}/{port}; \
         printf 'GET {path} HTTP/1.1\\r\\nHost: {address}\\r\\nConnection: close\\r\\n\\r\\n' >&3; cat <&3"
    );
    let (uid, gid) = (format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"));
    let output = Command::new("setpriv")
        .args([&uid, &gid, "--clear-groups", "bash", "-c", &script])
        .stdin(Stdio::null())
        .output()
        .ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn another_user_of_the_machine_learns_only_that_the_server_lives() {
    let server = start(Script::new()).await;
    let address = server.address().to_owned();
    let ask = async |path: &'static str| {
        let address = address.clone();
        tokio::task::spawn_blocking(move || ask_as_nobody(&address, path)).await.unwrap()
    };
    let Some(live) = ask("/health/live").await else {
        eprintln!("SKIPPED: this test needs root, setpriv and bash to be another user for a moment");
        return;
    };
    assert!(live.starts_with("HTTP/1.1 200 "), "{live}");
    for path in ["/chat", "/api/info", "/api/sessions", "/health", "/nothing"] {
        let answer = ask(path).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 401 ") && answer.contains("UNAUTHORIZED"), "{path}: {answer}");
    }
}
