//! Commands at the same time: one of them has the data folder and serves it, the others join.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;
use tns_tests::provider::{ModelServer, Reply, text_body};
use tokio::task::JoinSet;

use crate::binary::{Home, finish, signal_to, until};

#[tokio::test]
async fn a_second_command_joins_the_server_of_the_first() {
    let model = ModelServer::start([Reply::held(&["part"])]).await;
    let home = Home::with_model(&model);
    let first = home.command(&["run", "go", "--session", "s"]).spawn().unwrap();
    let pid = first.id().unwrap();
    let published = home.published().await;
    assert_eq!(published["pid"], pid);
    assert_eq!(published["version"], env!("CARGO_PKG_VERSION"));
    let mode = std::fs::metadata(home.data().join("server.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    until("the model is asked", || !model.requests().is_empty()).await;
    let second = home.run(&["sessions", "show", "s", "--json"]).await.json();
    assert_eq!(second["session"]["running"], true);
    let third = home.run(&["run", "hello"]).await;
    assert_eq!(third.answer(), "done\n");
    assert_eq!(home.published().await["pid"], pid);
    signal_to(pid, Signal::SIGINT);
    assert_eq!(finish(first).await.code, Some(130));
    assert!(!home.data().join("server.json").exists());
}

#[tokio::test]
async fn many_commands_at_once_on_a_first_start_all_succeed() {
    let home = std::sync::Arc::new(Home::new());
    let mut tasks = JoinSet::new();
    for at in 0..8 {
        let home = home.clone();
        tasks.spawn(async move {
            let text = format!("note number {at}");
            let ran = match at % 2 {
                0 => home.run(&["kb", "add", "--text", &text]).await,
                _ => home.run(&["run", "hello"]).await,
            };
            ran.answer().to_owned()
        });
    }
    while let Some(answer) = tasks.join_next().await {
        assert!(!answer.unwrap().is_empty());
    }
    assert_eq!(home.run(&["kb", "list", "--json"]).await.json()["totalCount"], 4);
    assert_eq!(home.run(&["sessions", "list"]).await.answer().lines().count(), 5);
    assert!(!home.data().join("server.json").exists());
}

#[tokio::test]
async fn a_taken_data_folder_is_told_with_the_address_of_its_server() {
    let home = Home::new();
    let first = home.serve(&[]).await;
    let second = home.run(&["serve", "--port", "0"]).await;
    assert_eq!((second.code, second.stdout.as_str()), (Some(3), ""), "{second:?}");
    let line = second.complaints()[0];
    for part in [&format!("process {}", first.pid()), first.url(), "--data-dir"] {
        assert!(line.contains(part), "{line}");
    }
    // Commands use the one that is there.
    assert_eq!(home.published().await["url"], first.url());
    home.run(&["run", "hello"]).await.answer();
    first.signal(Signal::SIGTERM);
    assert_eq!(first.ended().await.0.code(), Some(0));
    assert!(!home.data().join("server.json").exists());
}

#[tokio::test]
async fn a_taken_port_is_told_with_the_way_out() {
    let (one, two) = (Home::new(), Home::new());
    let server = one.serve(&[]).await;
    let port = server.address().rsplit_once(':').unwrap().1.to_owned();
    let ran = two.run(&["serve", "--port", &port]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(3), ""), "{ran:?}");
    assert!(ran.complaints()[0].contains(&port) && ran.complaints()[0].contains("--port"), "{ran:?}");
    // The folder is free again.
    two.run(&["run", "hello"]).await.answer();
}

#[tokio::test]
async fn what_a_killed_server_left_is_in_nobodys_way() {
    let home = Home::new();
    let server = home.serve(&[]).await;
    let pid = server.pid();
    server.kill().await;
    assert_eq!(home.published().await["pid"], pid);
    home.run(&["run", "hello"]).await.answer();
    assert!(!home.data().join("server.json").exists());
}

#[tokio::test]
async fn an_approval_of_one_command_is_answered_by_another_client() {
    let home = Home::new();
    let server = home.serve(&[]).await;
    let child = home.command(&["run", "!touch made", "--session", "s", "--on-ask", "wait"]).spawn().unwrap();
    let rest = server.rest();
    let id = tns_tests::session("s");
    let mut socket = server.socket().await;
    let call = loop {
        // The session is made by the other command.
        if rest.session(&id).await.is_ok_and(|session| !session.pending_approvals.is_empty()) {
            socket.send("s", "kb_list", json!({})).await;
            break socket.expect("tool_approve_request").await["toolCallId"].as_str().unwrap().to_owned();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert!(!home.has("made"));
    socket.decide("s", &call, "approve").await;
    let ran = finish(child).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(home.has("made"));
}

#[tokio::test]
async fn an_interrupt_stops_the_own_turn_only() {
    // It writes while the other one waits, and would for longer than the test takes.
    let reply = Reply::slow(text_body(&vec!["word "; 10_000]), Duration::from_millis(5));
    let model = ModelServer::start([reply]).await;
    let home = Home::with_model(&model);
    let server = home.serve(&[]).await;
    let rest = server.rest();
    let id = tns_tests::session("s");
    let first = home.command(&["run", "first", "--session", "s"]).spawn().unwrap();
    until("the model is asked", || !model.requests().is_empty()).await;
    let second = home.command(&["run", "second", "--session", "s", "--json"]).spawn().unwrap();
    let waits = |event: &serde_json::Value| event["message"] == "second" && event["queued"] == true;
    while !rest.events(&id, 0).await.unwrap().events.iter().any(waits) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    signal_to(second.id().unwrap(), Signal::SIGINT);
    let ran = finish(second).await;
    let report = ran.json();
    assert_eq!((ran.code, &report["exit"], &report["text"]), (Some(130), &json!(130), &json!("")), "{ran:?}");
    assert_eq!(ran.complaints().len(), 1, "{ran:?}");
    assert!(ran.complaints()[0].contains("waits behind another turn"), "{ran:?}");
    assert!(rest.session(&id).await.unwrap().running);

    signal_to(first.id().unwrap(), Signal::SIGINT);
    let ran = finish(first).await;
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert!(ran.stdout.starts_with("word word"), "{ran:?}");
    // What waited is answered now.
    let mut socket = server.socket().await;
    loop {
        let events = rest.events(&id, 0).await.unwrap().events;
        if events.iter().any(|event| event["type"] == "done") {
            let ends: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
            assert_eq!(ends.iter().filter(|end| **end == "interrupted").count(), 1, "{ends:?}");
            break;
        }
        // Whoever joins lets a waiting message begin.
        socket.settle("s").await;
    }
}
