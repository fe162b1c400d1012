//! What a script sees when the model, the turn or the user stops: an exit code that tells which, and never a
//! key.

use futures_util::future::join_all;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tns_tests::http;
use tns_tests::provider::{ModelServer, Reply, call_body, cut_body};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use crate::binary::{Home, finish, processes_with, signal_to, until};

/// A key that must turn up nowhere.
const CANARY: &str = "sk-canary-4f1d2e7a9b";

#[tokio::test]
async fn a_provider_that_fails_is_exit_code_four_and_named_in_one_line() {
    let in_stream = "data: {\"error\":{\"message\":\"overloaded, come back\",\"code\":503}}\n\n".to_owned();
    let cases = [
        (vec![Reply::refusal(400, "no such parameter")], "no such parameter"),
        (vec![Reply::refusal(401, "bad key")], "BAD_KEY"),
        (vec![Reply::refusal(402, "pay first")], "NO_CREDIT"),
        (vec![Reply::refusal(429, "slow down"); 3], "RATE_LIMITED"),
        (vec![Reply::refusal(500, "broken"); 3], "PROVIDER_UNAVAILABLE"),
        (vec![cut_body(&["part of it"]).into()], "STREAM_INCOMPLETE"),
        (vec![in_stream.into(); 3], "come back"),
    ];
    // Beside each other: what may pass by itself is tried again after a pause.
    join_all(cases.into_iter().map(async |(replies, says)| {
        let model = ModelServer::start(replies).await;
        let home = Home::with_model(&model);
        let ran = home.run(&["run", "hi"]).await;
        assert_eq!(ran.code, Some(4), "{ran:?}");
        assert_eq!(ran.complaints().len(), 1, "{ran:?}");
        assert!(ran.complaints()[0].contains(says), "{says}: {ran:?}");
        assert!(ran.stdout.is_empty() || ran.stdout == "part of it\n", "{ran:?}");
    }))
    .await;
}

#[tokio::test]
async fn a_provider_that_is_not_there_is_exit_code_four_too() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let home = Home::bare()
        .set("PROVIDER_BASE_URL_OPENAI_COMPATIBLE", &format!("http://{address}/v1"))
        .set("TNS_MODEL", "none");
    let ran = home.run(&["run", "hi", "--json"]).await;
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert_eq!(ran.json()["exit"], 4);
    assert!(ran.complaints()[0].contains("PROVIDER_UNAVAILABLE"), "{ran:?}");
}

#[tokio::test]
async fn a_key_is_sent_to_its_provider_and_shown_nowhere() {
    let echo = format!("Incorrect API key provided: {CANARY}. Authorization: Bearer {CANARY}");
    let model = ModelServer::start(vec![Reply::refusal(401, &echo); 3]).await;
    let home = Home::with_model(&model).set("OPENAI_COMPATIBLE_API_KEY", CANARY).set("TNS_LOG", "trace");
    let alone = home.run(&["run", "hi", "-vv"]).await;
    assert_eq!(alone.code, Some(4), "{alone:?}");
    let server = home.serve(&["-vv"]).await;
    let joined = home.run(&["run", "hi", "-vv", "--json", "--session", "s"]).await;
    assert_eq!(joined.code, Some(4), "{joined:?}");
    assert_eq!(model.keys(), vec![format!("Bearer {CANARY}"); 2]);
    let mut said = vec![
        alone.stdout,
        alone.stderr,
        joined.stdout,
        joined.stderr,
        server.log(),
        std::fs::read_to_string(home.data().join("server.json")).unwrap(),
    ];
    for path in ["/api/info", "/health", "/api/sessions", "/api/audit", "/api/sessions/s/events?live=0"] {
        said.push(http::get(server.address(), path).await.body);
    }
    assert!(said.iter().any(|text| text.contains("BAD_KEY")));
    for text in said {
        assert!(!text.contains(CANARY), "{text}");
        // Not a part of it either.
        assert!(!text.contains("canary-4f1d"), "{text}");
    }
}

#[tokio::test]
async fn an_interrupted_run_is_exit_code_130_and_stored_as_interrupted() {
    let model = ModelServer::start([Reply::held(&["first ", "words"])]).await;
    let home = Home::with_model(&model);
    let mut child = home.command(&["run", "go", "--session", "s", "--jsonl"]).spawn().unwrap();
    let pid = child.id().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while !lines.next_line().await.unwrap().expect("a token").contains("words") {}
    signal_to(pid, Signal::SIGINT);
    let ran = finish(child).await;
    assert_eq!(ran.code, Some(130), "{ran:?}");

    let server = home.serve(&[]).await;
    let log = http::get(server.address(), "/api/sessions/s/events?after=0&live=0").await.json();
    let types: Vec<&Value> = log["events"].as_array().unwrap().iter().map(|event| &event["type"]).collect();
    assert_eq!(types, ["user_message", "session_updated", "assistant_message", "interrupted"]);
    assert_eq!(log["events"][2]["message"], "first words");
}

#[tokio::test]
async fn an_interrupted_run_reports_as_json_too() {
    let model = ModelServer::start([Reply::held(&["part"])]).await;
    let home = Home::with_model(&model);
    let child = home.command(&["run", "go", "--json"]).spawn().unwrap();
    // Nothing is printed before the end, but the model knows when the turn has begun.
    until("the model is asked", || !model.requests().is_empty()).await;
    signal_to(child.id().unwrap(), Signal::SIGINT);
    let ran = finish(child).await;
    assert_eq!((ran.code, &ran.json()["exit"]), (Some(130), &json!(130)), "{ran:?}");
}

#[tokio::test]
async fn an_interrupted_run_prints_what_came_and_ends_its_line() {
    let model = ModelServer::start([Reply::held(&["first ", "words"])]).await;
    let home = Home::with_model(&model);
    let mut child = home.command(&["run", "go"]).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut said = vec![0; "first words".len()];
    stdout.read_exact(&mut said).await.unwrap();
    signal_to(child.id().unwrap(), Signal::SIGTERM);
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).await.unwrap();
    assert_eq!((said.as_slice(), rest.as_str()), (&b"first words"[..], "\n"));
    assert_eq!(finish(child).await.code, Some(130));
}

#[tokio::test]
async fn the_time_limit_is_exit_code_six_and_ends_the_turn() {
    let model = ModelServer::start([Reply::held(&["part"])]).await;
    let home = Home::with_model(&model);
    let ran = home.run(&["run", "go", "--timeout", "300ms"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(6), "part\n"), "{ran:?}");
    assert!(ran.complaints()[0].contains("--timeout"), "{ran:?}");
}

#[tokio::test]
async fn a_tool_of_a_cancelled_run_ends_with_it() {
    let seconds = "86392.75";
    let call = call_body("c1", "shell", &json!({ "command": format!("sleep {seconds}") }));
    let model = ModelServer::start([call]).await;
    let home = Home::with_model(&model);
    let server = home.serve(&["--dangerously-unsandboxed"]).await;
    let child = home.command(&["run", "go", "--autonomy", "full-auto"]).spawn().unwrap();
    until("it sleeps", || !processes_with(seconds).is_empty()).await;
    signal_to(child.id().unwrap(), Signal::SIGINT);
    assert_eq!(finish(child).await.code, Some(130));
    until("it is ended", || processes_with(seconds).is_empty()).await;
    drop(server);
}
