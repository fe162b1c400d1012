//! `tns serve`: what it says, where it listens, and how it ends.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;
use tns_tests::http;
use tns_tests::provider::{ModelServer, Reply, call_body};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_tungstenite::{connect_async, tungstenite};

use crate::binary::{Home, children_of, processes_with, until};

/// How long a stop may take on a busy machine; five seconds are promised on an idle one.
const STOPPED: Duration = Duration::from_secs(15);

#[tokio::test]
async fn the_first_line_names_version_address_and_engine() {
    let home = Home::new();
    let server = home.serve(&[]).await;
    let line = server.first_line.strip_suffix('\n').unwrap();
    let (version, port) = (env!("CARGO_PKG_VERSION"), server.address().rsplit_once(':').unwrap().1);
    assert_eq!(line, format!("tns {version} listening on http://127.0.0.1:{port} · engine offline"));
    assert_eq!(http::get(server.address(), "/health/ready").await.status, 200);
    server.signal(Signal::SIGTERM);
    let (status, more) = server.ended().await;
    assert_eq!((status.code(), more.as_str()), (Some(0), ""));
}

#[tokio::test]
async fn sigterm_ends_a_running_tool_and_leaves_no_child() {
    let seconds = "86391.25";
    let call = call_body("c1", "shell", &json!({ "command": format!("sleep {seconds} & sleep {seconds}") }));
    let model = ModelServer::start([call]).await;
    let home = Home::with_model(&model);
    let server = home.serve(&["--dangerously-unsandboxed"]).await;
    let mut socket = server.socket().await;
    socket.send("s", "set_autonomy", json!({ "level": "FULL_AUTO" })).await;
    socket.chat("s", "go").await;
    socket.expect("tool_start").await;
    until("both sleeps run", || processes_with(&format!("sleep {seconds}")).len() >= 2).await;
    assert!(!children_of(server.pid()).is_empty());
    let asked = Instant::now();
    server.signal(Signal::SIGTERM);
    // The turn's end is told, and then that the server goes.
    assert_eq!(socket.expect("done").await["cancelled"], true);
    assert_eq!(u16::from(socket.closed().await.expect("a close").code), 1001);
    let (status, _) = server.ended().await;
    assert_eq!(status.code(), Some(0));
    assert!(asked.elapsed() < STOPPED, "{:?}", asked.elapsed());
    // What the helper of the shell still had to end, it ends a moment after the server.
    until("both sleeps are gone", || processes_with(&format!("sleep {seconds}")).is_empty()).await;
}

#[tokio::test]
async fn a_second_signal_stops_at_once() {
    let model = ModelServer::start([Reply::held(&["part"])]).await;
    let home = Home::with_model(&model);
    let server = home.serve(&[]).await;
    let mut socket = server.socket().await;
    socket.chat("s", "go").await;
    socket.expect("token").await;
    server.signal(Signal::SIGTERM);
    until("it drains", || server.log().contains("stopping")).await;
    server.signal(Signal::SIGTERM);
    let (status, _) = server.ended().await;
    assert_eq!(status.code(), Some(0));
    // A drain would wait for the reply, which never ends, then tell its end and close the socket in form.
    assert_eq!(socket.closed().await, None);
}

#[tokio::test]
async fn connections_that_come_while_it_stops_do_not_hold_it() {
    let home = Home::new();
    let server = home.serve(&[]).await;
    let address = format!("ws://{}/chat", server.address());
    let mut clients = JoinSet::new();
    for _ in 0..8 {
        let address = address.clone();
        // Each comes again and again, until nobody listens any more.
        clients.spawn(async move {
            while !matches!(connect_async(&address).await, Err(tungstenite::Error::Io(_))) {}
        });
    }
    let socket = server.socket().await;
    let asked = Instant::now();
    server.signal(Signal::SIGTERM);
    let (status, _) = server.ended().await;
    assert_eq!(status.code(), Some(0));
    assert!(asked.elapsed() < STOPPED, "{:?}", asked.elapsed());
    clients.join_all().await;
    drop(socket);
}

#[tokio::test]
async fn it_stops_when_nothing_is_asked_for_a_while() {
    let home = Home::new();
    let server = home.serve(&["--idle-timeout", "2s"]).await;
    let socket = server.socket().await;
    let url = server.url().to_owned();
    // Somebody is there: it stays, however long nothing is said. Only time can show that, and more of it than
    // meant changes nothing.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(http::get(url.strip_prefix("http://").unwrap(), "/health/live").await.status, 200);
    drop(socket);
    let log = server.log();
    let (status, _) = server.ended().await;
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(!home.data().join("server.json").exists());
}

#[tokio::test]
async fn an_address_of_other_machines_is_refused() {
    let home = Home::new();
    for address in ["0.0.0.0", "::", "192.0.2.1"] {
        let ran = home.run(&["serve", "--port", "0", "--bind", address]).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        assert!(ran.complaints()[0].contains(address), "{ran:?}");
    }
    assert!(!home.data().join("server.json").exists());
}

#[tokio::test]
async fn a_taken_port_is_told_with_the_ways_on() {
    let home = Home::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let ran = home.run(&["serve", "--port", &port.to_string()]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(3), ""), "{ran:?}");
    assert_eq!(
        ran.complaints(),
        [format!(
            "tns: port {port} is taken; choose another with --port, or 0 for a free one; if a tns server has it, \
             use it with --server http://127.0.0.1:{port}"
        )]
    );
}

#[tokio::test]
async fn both_loopback_addresses_serve_the_same_port() {
    if TcpListener::bind("[::1]:0").await.is_err() {
        eprintln!("SKIPPED: this machine has no IPv6");
        return;
    }
    let home = Home::new();
    let server = home.serve(&[]).await;
    let port = server.address().rsplit_once(':').unwrap().1.to_owned();
    assert_eq!(http::get(&format!("[::1]:{port}"), "/health/live").await.status, 200);
    let mut socket = tns_tests::Socket::connect(&format!("[::1]:{port}")).await;
    socket.chat("s", "hello").await;
    socket.until("done").await;
    drop(server);
    let six = Home::new();
    let server = six.serve(&["--bind", "::1"]).await;
    assert!(server.url().starts_with("http://[::1]:"), "{}", server.first_line);
    assert_eq!(six.run(&["sessions", "list"]).await.answer(), "");
}

#[tokio::test]
async fn json_says_the_same_in_one_object() {
    let home = Home::new();
    let server = home.serve(&["--json"]).await;
    let said: serde_json::Value = serde_json::from_str(&server.first_line).unwrap();
    assert_eq!(said["pid"], server.pid());
    assert_eq!(said["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!((&said["provider"], &said["model"]), (&json!("offline"), &json!("offline")));
    assert!(said["url"].as_str().unwrap().starts_with("http://127.0.0.1:"));
}
