//! `kill -9` of the server at any moment: what a client saw is there once, nothing ran twice, no turn hangs,
//! nothing of a tool survives.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use futures_util::StreamExt;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tns_tests::Socket;
use tns_tests::http;
use tns_tests::provider::{ModelServer, Reply, call_body, text_body};
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::Message;

use crate::binary::{Home, PATIENCE, Serving, processes_with, until};

/// Kills over one data folder, one after the other.
const TRIALS: u64 = 26;
/// The latest moment of a kill after the message was sent, in microseconds: about what the turn takes.
const LATEST_KILL_MICROS: u64 = 90_000;
/// Trials that share a session, so that recovery works on what recovery wrote.
const TRIALS_PER_SESSION: u64 = 4;
/// Set to repeat a failed run.
const SEED_VARIABLE: &str = "TNS_TEST_SEED";

/// A small generator of random numbers (SplitMix64, Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn seeded() -> Self {
        let seed = std::env::var(SEED_VARIABLE).ok().map(|seed| seed.parse().unwrap());
        Self(seed.unwrap_or_else(|| RandomState::new().hash_one("seed")))
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % limit
    }
}

/// What clients saw of each session, by place.
#[derive(Default)]
struct Seen(BTreeMap<String, BTreeMap<u64, Value>>);

impl Seen {
    /// Notes an event if it has a place. The same place twice is the same event.
    fn note(&mut self, event: Value) {
        let Some(seq) = event["seq"].as_u64() else { return };
        let session = event["sessionId"].as_str().unwrap().to_owned();
        let before = self.0.entry(session).or_default().insert(seq, event.clone());
        assert!(before.is_none_or(|before| before == event), "place {seq} was given twice: {event}");
    }
}

/// Reads a session's whole log over REST.
async fn log(server: &Serving, session: &str) -> Vec<Value> {
    let mut events: Vec<Value> = Vec::new();
    loop {
        let after = events.last().map_or(0, |event| event["seq"].as_u64().unwrap());
        let path = format!("/api/sessions/{session}/events?after={after}&live=0");
        let answer = http::get(server.address(), &path).await;
        if answer.status == 404 {
            return events;
        }
        let page = answer.json();
        events.extend(page["events"].as_array().unwrap().iter().cloned());
        if page["more"] != true {
            return events;
        }
    }
}

/// Asserts what holds of every log when nothing runs.
fn check_log(log: &[Value]) {
    let places: Vec<u64> = log.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(places, (1..=places.len() as u64).collect::<Vec<_>>());
    let mut turns: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for event in log {
        if let Some(turn) = event["turnId"].as_str() {
            turns.entry(turn).or_default().push(event);
        }
    }
    for (turn, events) in turns {
        let types: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
        assert_eq!(types[0], "user_message", "{turn}: {types:?}");
        let ends: Vec<usize> =
            (0..types.len()).filter(|at| matches!(types[*at], "done" | "interrupted" | "error")).collect();
        assert_eq!(ends, [types.len() - 1], "{turn}: {types:?}");
        let calls = |wanted: &str| -> Vec<&Value> {
            let ran = |event: &Value| event["refused"] != true;
            let of_type = events.iter().filter(|event| event["type"] == wanted && ran(event));
            of_type.map(|event| &event["toolCallId"]).collect()
        };
        assert_eq!(calls("tool_start"), calls("tool_result"), "{turn}: {types:?}");
    }
}

/// Asserts that a log holds everything that clients saw, at its place.
fn check_seen(log: &[Value], seen: &BTreeMap<u64, Value>) {
    let stored: BTreeMap<u64, &Value> =
        log.iter().map(|event| (event["seq"].as_u64().unwrap(), event)).collect();
    for (seq, event) in seen {
        assert_eq!(stored.get(seq), Some(&event), "place {seq}");
    }
}

/// Asserts that each call ran at most once, and that one with a result ran. Returns the files of the calls.
fn check_effects(home: &Home, log: &[Value]) -> Vec<String> {
    let starts = log.iter().filter(|event| event["type"] == "tool_start");
    starts
        .map(|start| {
            let file = start["args"]["command"].as_str().unwrap().rsplit(' ').next().unwrap().to_owned();
            let times = fs::read_to_string(home.folder().join(&file)).unwrap_or_default().lines().count();
            let is_result =
                |event: &&Value| event["type"] == "tool_result" && event["toolCallId"] == start["toolCallId"];
            let result = log.iter().find(is_result).unwrap();
            match result["isError"] == true {
                true => assert!(times <= 1, "{file} ran {times} times"),
                false => assert_eq!(times, 1, "{file} ran {times} times"),
            }
            file
        })
        .collect()
}

/// The replies of one turn: a call, a slow text with another call behind it, a slow text. Each command
/// appends a line to a file of its own, so that running twice shows.
fn turn(trial: u64) -> Vec<Reply> {
    let call = |id: &str| {
        call_body(id, "shell", &json!({ "command": format!("echo ran >> {}", ran_file(trial, id)) }))
    };
    let text = vec!["piece "; 12];
    vec![
        call("first").into(),
        call("second").into(),
        Reply::slow(text_body(&text), Duration::from_millis(3)),
        Reply::slow(text_body(&text), Duration::from_millis(3)),
    ]
}

fn ran_file(trial: u64, id: &str) -> String {
    format!("ran-{trial}-{id}")
}

/// Sends the work of a trial, kills the server after `delay`, and notes everything that was seen.
async fn kill_while_it_works(
    server: Serving,
    socket: &mut Socket,
    session: &str,
    delay: Duration,
    seen: &mut Seen,
) {
    socket.chat(session, "work").await;
    socket.send(session, "kb_add", json!({ "content": format!("note {delay:?} of {session}") })).await;
    // It waits for its turn; the kill finds it waiting or begun.
    socket.chat(session, "more work").await;
    let deadline = Instant::now() + delay;
    let stream = socket.stream();
    while let Ok(frame) = tokio::time::timeout_at(deadline, stream.next()).await {
        if let Message::Text(text) = frame.expect("the server runs").unwrap() {
            seen.note(serde_json::from_str(&text).unwrap());
        }
    }
    server.kill().await;
    // What had left the server before it died counts as seen.
    while let Ok(Some(Ok(frame))) = timeout(PATIENCE, socket.stream().next()).await {
        if let Message::Text(text) = frame {
            seen.note(serde_json::from_str(&text).unwrap());
        }
    }
}

/// Sends one more message and waits for its turn's end: everything that waited has had its turn by then.
async fn work_on(server: &Serving, socket: &mut Socket, session: &str, trial: u64, seen: &mut Seen) {
    let id = format!("after-{trial}");
    socket.send(session, "chat", json!({ "message": "and now?", "clientMessageId": id })).await;
    socket.settle(session).await.into_iter().for_each(|event| seen.note(event));
    let stored = log(server, session).await;
    let message = stored.iter().find(|event| event["clientMessageId"] == id.as_str());
    let turn = message.unwrap_or_else(|| panic!("{id} is not stored: {stored:?}"))["messageId"].clone();
    let is_end = |event: &Value| event["turnId"] == turn && event["type"] == "done";
    while !seen.0[session].values().any(is_end) {
        seen.note(socket.next().await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_a_client_saw_before_a_kill_is_there_once_and_nothing_ran_twice() {
    let mut random = Random::seeded();
    println!("{SEED_VARIABLE}={}", random.0);
    let model = ModelServer::start([] as [Reply; 0]).await;
    let home = Home::with_model(&model);
    let options = ["--dangerously-unsandboxed"];
    let mut seen = Seen::default();
    let mut server = home.serve(&options).await;
    for trial in 0..TRIALS {
        let session = format!("s{}", trial / TRIALS_PER_SESSION);
        let mut socket = server.socket().await;
        if trial % TRIALS_PER_SESSION == 0 {
            socket.send(&session, "set_autonomy", json!({ "level": "FULL_AUTO" })).await;
            seen.note(socket.expect("autonomy_changed").await);
        }
        model.script(turn(trial));
        let delay = Duration::from_micros(random.below(LATEST_KILL_MICROS));
        kill_while_it_works(server, &mut socket, &session, delay, &mut seen).await;

        model.script([] as [Reply; 0]);
        server = home.serve(&options).await;
        let before = log(&server, &session).await;
        check_seen(&before, &seen.0[&session]);
        let mut socket = server.socket().await;
        work_on(&server, &mut socket, &session, trial, &mut seen).await;
        let after = log(&server, &session).await;
        assert_eq!(after[..before.len()], before);
        check_seen(&after, &seen.0[&session]);
        check_log(&after);
        assert_eq!(after.last().unwrap()["type"], "done");
    }
    let (mut cut, mut started) = (0, BTreeSet::new());
    for (session, seen) in &seen.0 {
        let log = log(&server, session).await;
        check_log(&log);
        check_seen(&log, seen);
        started.extend(check_effects(&home, &log));
        cut += log.iter().filter(|event| event["code"] == "SERVER_RESTARTED").count();
        let kept = http::get(server.address(), &format!("/api/kb?sessionId={session}")).await.body;
        for added in seen.values().filter(|event| event["type"] == "kb_added") {
            assert!(kept.contains(added["documentId"].as_str().unwrap()), "{added} is not in {kept}");
        }
    }
    println!("{cut} turns were cut, {} calls had begun", started.len());
    assert!(cut > 0 && !started.is_empty(), "the moments of the kills are chosen badly");
    // Nothing ran that the log does not know.
    for entry in fs::read_dir(home.folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(started.contains(&name), "{name} is of no call in the log");
    }
}

#[tokio::test]
async fn a_tool_that_ran_when_the_server_was_killed_is_gone_and_is_not_run_again() {
    let seconds = "86393.125";
    let command = format!("echo ran >> ran; setsid sleep {seconds} & sleep {seconds}");
    let model = ModelServer::start([call_body("c1", "shell", &json!({ "command": command }))]).await;
    let home = Home::with_model(&model);
    let server = home.serve(&["--dangerously-unsandboxed"]).await;
    let mut socket = server.socket().await;
    socket.send("s", "set_autonomy", json!({ "level": "FULL_AUTO" })).await;
    socket.chat("s", "go").await;
    let start = socket.expect("tool_start").await;
    until("both sleeps run", || processes_with(&format!("sleep {seconds}")).len() >= 2).await;
    server.kill().await;
    until("nothing of the tool is left", || processes_with(seconds).is_empty()).await;

    let server = home.serve(&["--dangerously-unsandboxed"]).await;
    let stored = log(&server, "s").await;
    check_log(&stored);
    let [.., result, end] = stored.as_slice() else { panic!("{stored:?}") };
    assert_eq!((&result["type"], &result["toolCallId"]), (&json!("tool_result"), &start["toolCallId"]));
    assert_eq!(result["isError"], true);
    assert_eq!((&end["type"], &end["code"]), (&json!("error"), &json!("SERVER_RESTARTED")));
    let mut socket = server.socket().await;
    socket.chat("s", "again").await;
    socket.until("done").await;
    assert_eq!(fs::read_to_string(home.folder().join("ran")).unwrap(), "ran\n");
    assert_eq!(processes_with(seconds), [] as [u32; 0]);
    // The model is told that it can't know how far the call came.
    assert_eq!(model.requests().len(), 2);
    assert!(
        model.requests()[1].to_string().contains("interrupted before it gave a result"),
        "{}",
        model.requests()[1]
    );
}

#[tokio::test]
async fn an_approval_that_waited_when_the_server_was_killed_is_void() {
    let home = Home::new();
    let server = home.serve(&[]).await;
    let mut socket = server.socket().await;
    socket.chat("s", "!touch made").await;
    let request = socket.expect("tool_approve_request").await;
    let call = request["toolCallId"].as_str().unwrap();
    server.kill().await;

    let server = home.serve(&[]).await;
    let session = http::get(server.address(), "/api/sessions/s").await.json();
    assert_eq!((&session["pendingApprovals"], &session["running"]), (&json!([]), &json!(false)));
    let stored = log(&server, "s").await;
    check_log(&stored);
    assert!(stored.contains(&request));
    assert_eq!(stored.last().unwrap()["code"], "SERVER_RESTARTED");
    let mut socket = server.socket().await;
    assert_eq!(
        tns_tests::socket::of_type(&socket.join("s").await, "tool_approve_request"),
        [] as [&Value; 0]
    );
    socket.decide("s", call, "approve").await;
    assert_eq!(socket.error_code().await, "UNKNOWN_TOOL_CALL");
    socket.chat("s", "hello").await;
    socket.until("done").await;
    assert!(!home.has("made"));
    server.signal(Signal::SIGTERM);
    assert_eq!(server.ended().await.0.code(), Some(0));
}
