//! What must hold of a server that was started again after a kill.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use rusqlite::Connection;
use serde_json::{Value, json};
use tns_tests::http;

use super::client::{Seen, is_end};
use crate::binary::{Home, Serving};

/// Whether messages may wait for their turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    /// Nobody came back yet, so what waited waits.
    Allowed,
    /// Everything has had its turn.
    Over,
}

/// Reads a session's whole log over REST; an unknown session has none.
pub(super) async fn log(server: &Serving, session: &str) -> Vec<Value> {
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

fn of<'a>(log: &'a [Value], type_name: &str) -> impl Iterator<Item = &'a Value> {
    log.iter().filter(move |event| event["type"] == type_name)
}

/// Asserts what holds of every log when nothing runs: places without a gap, each turn with its one end, each call
/// with its one result, each question with its one answer, each message once.
pub(super) fn check_log(log: &[Value], waiting: Waiting) {
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
        if types == ["user_message"] && events[0]["queued"] == true && waiting == Waiting::Allowed {
            continue;
        }
        let ends: Vec<usize> = (0..events.len()).filter(|at| is_end(events[*at])).collect();
        assert_eq!(ends, [events.len() - 1], "{turn}: {types:?}");
        let calls = |wanted: &str| -> Vec<&Value> {
            let ran = |event: &&&Value| event["type"] == wanted && event["refused"] != true;
            events.iter().filter(ran).map(|event| &event["toolCallId"]).collect()
        };
        assert_eq!(calls("tool_start"), calls("tool_result"), "{turn}: {types:?}");
    }
    let calls = |type_name| {
        let mut calls: Vec<&str> =
            of(log, type_name).map(|event| event["toolCallId"].as_str().unwrap()).collect();
        calls.sort_unstable();
        calls
    };
    assert_eq!(calls("tool_approve_request"), calls("tool_approval_resolved"));
    let ids: Vec<&str> =
        of(log, "user_message").filter_map(|event| event["clientMessageId"].as_str()).collect();
    assert_eq!(ids.len(), ids.iter().collect::<BTreeSet<_>>().len(), "a message is stored twice: {ids:?}");
}

/// Asserts that a log holds everything that clients saw: each event at its place, and what was shown of a reply.
pub(super) fn check_seen(log: &[Value], seen: &Seen) {
    for (seq, event) in &seen.events {
        let place = usize::try_from(*seq).unwrap() - 1;
        assert_eq!(log.get(place), Some(event), "place {seq}");
    }
    for (reply, shown) in &seen.replies {
        let steps = of(log, "assistant_message").filter(|step| step["responseId"] == reply.as_str());
        let stored: String = steps.filter_map(|step| step["message"].as_str()).collect();
        assert!(stored.starts_with(shown), "{shown:?} was shown of {reply}, {stored:?} is stored");
    }
}

/// Asserts that what holds now is what the log says: nothing runs or asks, and the roster is the last one.
pub(super) async fn check_state(server: &Serving, session: &str, log: &[Value]) {
    let answer = http::get(server.address(), &format!("/api/sessions/{session}")).await;
    if answer.status == 404 {
        assert_eq!(log, [] as [Value; 0]);
        return;
    }
    let state = answer.json();
    assert_eq!((&state["running"], &state["pendingApprovals"]), (&json!(false), &json!([])));
    assert_eq!(state["headSeq"], log.len());
    if let Some(team) = of(log, "team_update").last() {
        let roster = |of: &Value| -> Vec<(Value, Value)> {
            let agents = of["agents"].as_array().unwrap();
            agents.iter().map(|agent| (agent["agentId"].clone(), agent["name"].clone())).collect()
        };
        assert_eq!(roster(&state), roster(team));
    }
    // An approval that was settled can't be answered again.
    for resolved in of(log, "tool_approval_resolved") {
        let call = resolved["toolCallId"].as_str().unwrap();
        let path = format!("/api/sessions/{session}/approvals/{call}");
        let again =
            http::call(server.address(), "POST", &path, Some(&json!({ "decision": "approve" }))).await;
        assert_eq!(again.refusal(), (404, "UNKNOWN_TOOL_CALL".to_owned()));
    }
}

/// Asserts that every document of the log is listed and found by the word that only it has.
pub(super) async fn check_documents(server: &Serving, session: &str, log: &[Value]) {
    let added: BTreeSet<&str> =
        of(log, "kb_added").map(|event| event["documentId"].as_str().unwrap()).collect();
    if added.is_empty() {
        return;
    }
    let listed = http::get(server.address(), &format!("/api/kb?sessionId={session}")).await.json();
    let listed: BTreeMap<&str, &str> = listed["documents"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (entry["documentId"].as_str().unwrap(), entry["preview"].as_str().unwrap()))
        .collect();
    assert_eq!(listed.keys().copied().collect::<BTreeSet<_>>(), added);
    for (document, content) in listed {
        let word = content.split(' ').nth(1).unwrap();
        let body = json!({ "sessionId": session, "query": word });
        let found = http::call(server.address(), "POST", "/api/kb/search", Some(&body)).await.json();
        assert_eq!(found["results"][0]["documentId"], document, "{word}: {found}");
    }
}

/// Asserts that each call ran at most once, that one with a result ran, and that one without approval did not.
/// Returns the files of the calls that had begun.
pub(super) fn check_effects(home: &Home, log: &[Value]) -> BTreeSet<String> {
    of(log, "tool_start")
        .map(|start| {
            let file = start["args"]["command"].as_str().unwrap().rsplit(' ').next().unwrap().to_owned();
            let times = fs::read_to_string(home.folder().join(&file)).unwrap_or_default().lines().count();
            let is_result = |event: &&Value| event["toolCallId"] == start["toolCallId"];
            let result = of(log, "tool_result").find(is_result).unwrap();
            match result["isError"] == true {
                true => assert!(times <= 1, "{file} ran {times} times"),
                false => assert_eq!(times, 1, "{file} ran {times} times"),
            }
            file
        })
        .collect()
}

/// Asserts that nothing ran that no log knows.
pub(super) fn check_folder(home: &Home, started: &BTreeSet<String>) {
    for entry in fs::read_dir(home.folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(started.contains(&name), "{name} is of no call in the log");
    }
}

/// Asserts that the database is whole as the kill left it. Looks at a copy: whoever opens the files mends them.
pub(super) fn check_database(home: &Home) {
    let copy = tempfile::tempdir().unwrap();
    for name in ["tns.db", "tns.db-wal"] {
        let file = home.data().join(name);
        if file.exists() {
            fs::copy(file, copy.path().join(name)).unwrap();
        }
    }
    let connection = Connection::open(copy.path().join("tns.db")).unwrap();
    let found: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(found, "ok");
}
