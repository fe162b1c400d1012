//! Every provider's wire under the real binary: the key turns up nowhere whatever fails and however much is
//! logged, and after a `kill -9` in the middle of a tool the provider takes the conversation on.

use std::fs;
use std::path::Path;

use serde_json::json;
use tns_tests::http;
use tns_tests::socket::text;
use tns_tests::standin::{BAD_KEY, Fault, GOOD_KEY, PROVIDERS, Plan, Standin};

use crate::binary::{Home, processes_with, until};

/// A part of every key here, which must turn up nowhere.
const CANARY: &str = "canary-7d3e0b95";

/// Stands in a log that the HTTP client writes into too, as far as it can.
const HTTP_LOG: &str = "TRACE hyper_util::client";

/// What is asked of the server over REST afterwards.
const PATHS: [&str; 7] = [
    "/health",
    "/api/info",
    "/api/sessions",
    "/api/sessions/s",
    "/api/sessions/s/messages",
    "/api/sessions/s/events?live=0",
    "/api/audit",
];

/// Makes a home whose default engine is this provider's, at the stand-in.
fn home_of((provider, model): (&str, &str), standin: &Standin, key: &str) -> Home {
    let home = Home::bare()
        .set("TNS_TITLES", "first-message")
        .set("TNS_PROVIDER", provider)
        .set("TNS_MODEL", model)
        .set("TNS_LOG", "trace");
    let variables = standin.variables(provider, &format!("{key}-{CANARY}"));
    variables.iter().fold(home, |home, (name, value)| home.set(name, value))
}

/// Reads every file below a folder: the database, its log, the index, whatever there is.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push((path.display().to_string(), fs::read(&path).unwrap()));
        }
    }
    found
}

/// Runs a one-shot call and a server with a chat for each of the codes, in one home, and returns all that
/// they say and leave, by name.
async fn everything_said(home: &Home, once: usize, codes: &[&str]) -> Vec<(String, Vec<u8>)> {
    let mut said: Vec<(String, Vec<u8>)> = Vec::new();
    for _ in 0..once {
        let ran = home.run(&["run", "hi", "-vvv", "--jsonl"]).await;
        assert_ne!(ran.code, Some(0), "{ran:?}");
        assert!(ran.stderr.contains(HTTP_LOG), "{ran:?}");
        said.push(("stdout of run".to_owned(), ran.stdout.into_bytes()));
        said.push(("stderr of run".to_owned(), ran.stderr.into_bytes()));
    }
    if !codes.is_empty() {
        let server = home.serve(&["-vvv"]).await;
        let mut socket = server.socket().await;
        for code in codes {
            socket.chat("s", "hi").await;
            let events = socket.until("error").await;
            assert_eq!(&events.last().unwrap()["code"], code, "{events:?}");
            said.push(("an event".to_owned(), json!(events).to_string().into_bytes()));
        }
        for path in PATHS {
            let answer = http::get(server.address(), path).await;
            assert_eq!(answer.status, 200, "{path}: {answer:?}");
            said.push((path.to_owned(), format!("{} {}", answer.headers, answer.body).into_bytes()));
        }
        assert!(server.log().contains(HTTP_LOG), "{}", server.log());
        said.push(("the log".to_owned(), server.log().into_bytes()));
        said.push(("stdout of serve".to_owned(), server.first_line.clone().into_bytes()));
        // Killed, so that the database's own log is there too.
        server.kill().await;
    }
    said.extend(files(&home.path()));
    said.extend(files(&home.folder()));
    said
}

fn assert_unsaid(provider: &str, what: &str, said: &[(String, Vec<u8>)]) {
    for (name, bytes) in said {
        let is_there = bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes());
        assert!(!is_there, "{provider}, {what}: {name} holds the key: {}", bytes.escape_ascii());
    }
}

/// Checks the key of one provider.
async fn assert_key_is_unsaid(row: (&'static str, &str)) {
    let provider = row.0;
    let standin = Standin::start().await;
    let home = home_of(row, &standin, GOOD_KEY);
    let refusals = [Fault::Refused, Fault::Redirected].map(|fault| Plan::default().fault(fault));
    standin.plan(refusals.clone());
    standin.plan(refusals);
    let said = everything_said(&home, 2, &["PROVIDER_ERROR", "PROVIDER_ERROR"]).await;
    assert_unsaid(provider, "refused and sent elsewhere", &said);
    let (named, _) = said.iter().find(|(name, _)| name.ends_with("tns.db")).expect("a database");
    assert!(named.contains("share/tns"), "{named}");

    let home = home_of(row, &standin, BAD_KEY);
    let said = everything_said(&home, 1, &["BAD_KEY", "BAD_KEY"]).await;
    assert_unsaid(provider, "a key that is refused", &said);

    let asked = standin.requests();
    assert_eq!(asked.len(), 7, "{provider}");
    for request in asked {
        assert!(request.key.as_deref().is_some_and(|key| key.ends_with(CANARY)), "{request:?}");
        assert!(!format!("{} {}", request.path, request.body).contains(CANARY), "{request:?}");
    }

    let held = tns_tests::Nobody::new();
    let closed = held.address();
    let (name, _) = &standin.variables(provider, GOOD_KEY)[0];
    let home = home_of(row, &standin, GOOD_KEY).set(name, &format!("http://user:{CANARY}@{closed}/{CANARY}"));
    // Ollama is asked for its models before the server is there, which then says so instead.
    let codes: &[&str] = if provider == "ollama" { &[] } else { &["PROVIDER_UNAVAILABLE"] };
    assert_unsaid(provider, "nothing listens", &everything_said(&home, 1, codes).await);
}

#[tokio::test]
async fn anthropics_key_is_nowhere_but_in_its_header() {
    assert_key_is_unsaid(PROVIDERS[0]).await;
}

#[tokio::test]
async fn openais_key_is_nowhere_but_in_its_header() {
    assert_key_is_unsaid(PROVIDERS[1]).await;
}

#[tokio::test]
async fn geminis_key_is_nowhere_but_in_its_header() {
    assert_key_is_unsaid(PROVIDERS[2]).await;
}

#[tokio::test]
async fn ollamas_key_is_nowhere_but_in_its_header() {
    assert_key_is_unsaid(PROVIDERS[3]).await;
}

#[tokio::test]
async fn the_key_of_a_compatible_server_is_nowhere_but_in_its_header() {
    assert_key_is_unsaid(PROVIDERS[4]).await;
}

#[tokio::test]
async fn after_a_kill_in_the_middle_of_a_tool_every_provider_takes_the_conversation_on() {
    for (at, row) in PROVIDERS.into_iter().enumerate() {
        let seconds = format!("86394.{}{at}", std::process::id());
        let standin = Standin::start().await;
        let home = home_of(row, &standin, GOOD_KEY);
        home.write("known-file", "x");
        let calls = Plan::text(&["Mor"]).call("list_dir", json!({ "path": "." }));
        standin.plan([calls.call("shell", json!({ "command": format!("sleep {seconds}") }))]);
        let server = home.serve(&["--dangerously-unsandboxed"]).await;
        let mut socket = server.socket().await;
        socket.send("s", "set_autonomy", json!({ "level": "FULL_AUTO" })).await;
        socket.chat("s", "go").await;
        socket.expect("tool_result").await;
        until("it sleeps", || !processes_with(&seconds).is_empty()).await;
        server.kill().await;
        until("nothing of the tool is left", || processes_with(&seconds).is_empty()).await;

        let server = home.serve(&["--dangerously-unsandboxed"]).await;
        let mut socket = server.socket().await;
        socket.chat("s", "again [[text:fine]]").await;
        assert_eq!(text(&socket.until("done").await), "fine", "{}", row.0);
        assert_eq!(standin.complaints(), [] as [String; 0]);
        let requests = standin.requests();
        assert_eq!(requests.len(), 2, "{}", row.0);
        let sent = requests[1].body.to_string();
        assert_eq!(sent.matches("known-file").count(), 1, "{}: {sent}", row.0);
        assert_eq!(sent.matches("interrupted before it gave a result").count(), 1, "{}: {sent}", row.0);
        assert_eq!(processes_with(&seconds), [] as [u32; 0], "{}", row.0);
    }
}
