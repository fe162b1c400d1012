//! Each call of the store fails once, in the middle of a server that works: whoever asked is told why, nothing is
//! shown that is not stored, the same thing works when it is asked again, and no turn stays open.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tns_server_core::scripted::Script;
use tns_server_core::store::{LOCAL_PRINCIPAL, Store, StoreError};
use tns_tests::troubled_store::{Call, TroubledStore};
use tns_tests::{Setup, TestServer, http, session};

use super::walk::{self, Walk};
use crate::setup;

/// Calls that have a test of their own, as others do, so that each test is short.
const DOCUMENTS: [Call; 3] = [Call::Documents, Call::DocumentChanges, Call::DocumentHead];

/// Who makes a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// A server that is asked; the walk does.
    Request,
    /// A server when it starts.
    Start,
    /// A server that erases what was kept long enough.
    Retention,
    /// A server that ends a turn whose end was lost; it may fail: the turn ends without what was written of it.
    Failure,
    /// Nobody yet.
    Nobody,
}

/// Says who makes a call. A new call must be named here.
fn made_by(call: Call) -> By {
    match call {
        Call::CreateSession
        | Call::FindSession
        | Call::ListSessions
        | Call::Append
        | Call::DeleteSession
        | Call::ForkSession
        | Call::BeginImport
        | Call::ImportEvents
        | Call::FinishImport
        | Call::AbandonImport
        | Call::Search
        | Call::Rate
        | Call::EventsSince
        | Call::HeadGseq
        | Call::Events
        | Call::Audit
        | Call::Usage
        | Call::AddUsage
        | Call::SessionCost
        | Call::Check
        | Call::Documents
        | Call::DocumentChanges
        | Call::DocumentHead => By::Request,
        Call::SessionsWithOpenTurns => By::Start,
        Call::Draft => By::Failure,
        Call::SessionsIdleSince => By::Retention,
        Call::DocumentCounts => By::Nobody,
    }
}

/// Whether a failure need not be told: it costs a reply its passages, or a stream its time, or leaves what nobody
/// sees to the next start, or nothing.
fn may_be_silent(call: Call) -> bool {
    matches!(
        call,
        Call::DocumentHead
            | Call::DocumentChanges
            | Call::EventsSince
            | Call::Events
            | Call::AddUsage
            | Call::AbandonImport
    )
}

/// The failures, each with the code that a client is told.
fn failures() -> [(StoreError, &'static str); 3] {
    [
        (StoreError::Full, "STORAGE_FULL"),
        (StoreError::Busy, "STORAGE_BUSY"),
        (StoreError::Failed("it broke".to_owned()), "INTERNAL"),
    ]
}

fn troubled(setup: &Setup) -> Arc<TroubledStore> {
    Arc::new(TroubledStore::new(setup.store.clone(), Duration::ZERO))
}

/// Reads a session's log as clients are shown it.
async fn log(server: &TestServer, session: &str) -> Vec<Value> {
    let mut events: Vec<Value> = Vec::new();
    loop {
        let after = events.last().map_or(0, |event| event["seq"].as_u64().unwrap());
        let path = format!("/api/sessions/{session}/events?live=0&after={after}");
        let page = http::get(server.address(), &path).await.json();
        events.extend(page["events"].as_array().unwrap().iter().cloned());
        if page["more"] != true {
            return events;
        }
    }
}

fn count(log: &[Value], type_name: &str) -> usize {
    log.iter().filter(|event| event["type"] == type_name).count()
}

/// Asserts that every turn has its one end, and that every call and question was settled.
fn check_turns(log: &[Value]) {
    let mut turns: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for event in log {
        if let Some(turn) = event["turnId"].as_str() {
            turns.entry(turn).or_default().push(event["type"].as_str().unwrap());
        }
    }
    for (turn, types) in turns {
        assert_eq!(types[0], "user_message", "{turn}: {types:?}");
        let is_end = |name: &&str| matches!(*name, "done" | "interrupted" | "error");
        assert_eq!(types.iter().position(is_end), Some(types.len() - 1), "{turn}: {types:?}");
    }
    assert_eq!(count(log, "tool_approve_request"), count(log, "tool_approval_resolved"));
    let refused = |event: &&Value| event["type"] == "tool_result" && event["refused"] == true;
    assert_eq!(count(log, "tool_start"), count(log, "tool_result") - log.iter().filter(refused).count());
}

/// Walks through a server of which one call fails, and looks at what is there. `false`: there is no such call.
async fn walk_with(call: Call, after: usize, failure: StoreError, code: &str) -> bool {
    let setup = setup(Script::new());
    let store = troubled(&setup);
    let server = walk::serve(&setup, store.clone()).await;
    store.fail_once(call, after, failure);
    let mut walk = Walk::begin(&server).await;
    walk.all().await;
    let failed = !store.take_back();
    let (shown, errors) = (walk.shown, walk.errors);
    let told = if call == Call::Check { "DOWN" } else { code };
    let known = |error: &String| error == told || (error == "DEGRADED" && call == Call::DocumentHead);
    assert!(errors.iter().all(known), "{call:?} {after}: {errors:?}");
    assert!(failed || errors.is_empty(), "{call:?} {after}: {errors:?}");
    assert!(!failed || may_be_silent(call) || !errors.is_empty(), "{call:?} {after}: nobody was told");
    for (session, shown) in shown {
        if session != "temporary" {
            let log = log(&server, &session).await;
            assert_eq!(shown, log, "{call:?} {after}: {session}");
            check_turns(&log);
        }
    }
    for record in setup.store.list_sessions(LOCAL_PRINCIPAL, None, 100).await.unwrap().sessions {
        assert_eq!(record.state.open_turns, [], "{call:?} {after}");
    }
    failed
}

/// Lets each of these calls fail, every time that a walk makes it.
#[expect(clippy::print_stdout, reason = "the runner shows it with a failure")]
async fn walk_with_each(calls: impl Iterator<Item = Call>) {
    let failures = failures();
    for call in calls {
        let mut after = 0;
        loop {
            let (failure, code) = failures[after % failures.len()].clone();
            if !walk_with(call, after, failure, code).await {
                break;
            }
            after += 1;
        }
        println!("{call:?} failed in {after} places");
        assert!(after > 0, "{call:?} is never made");
    }
}

#[tokio::test]
async fn each_append_that_fails_is_told_and_works_when_it_is_asked_for_again() {
    walk_with_each([Call::Append].into_iter()).await;
}

#[tokio::test]
async fn each_read_of_the_log_that_fails_is_told_and_works_when_it_is_asked_for_again() {
    walk_with_each([Call::Events, Call::FindSession].into_iter()).await;
}

#[tokio::test]
async fn each_read_of_documents_that_fails_is_told_and_works_when_it_is_asked_for_again() {
    walk_with_each(DOCUMENTS.into_iter()).await;
}

#[tokio::test]
async fn each_other_call_that_fails_is_told_and_works_when_it_is_asked_for_again() {
    let others = Call::ALL.iter().copied().filter(|call| made_by(*call) == By::Request);
    let apart = [&[Call::Append, Call::Events, Call::FindSession][..], &DOCUMENTS].concat();
    walk_with_each(others.filter(|call| !apart.contains(call))).await;
}

#[tokio::test]
async fn nobody_makes_a_call_that_is_not_tried() {
    let setup = setup(Script::new());
    let store = troubled(&setup);
    let server = walk::serve(&setup, store.clone()).await;
    Walk::begin(&server).await.all().await;
    let made = store.made();
    for call in Call::ALL {
        let expected = matches!(made_by(*call), By::Request | By::Start);
        assert_eq!(made.contains_key(call), expected, "{call:?}");
    }
}

#[tokio::test]
async fn a_session_that_could_not_be_erased_in_time_is_erased_at_the_next_look() {
    const LOOK_EVERY: Duration = Duration::from_secs(3_600);
    for (call, failure) in
        [(Call::SessionsIdleSince, StoreError::Busy), (Call::DeleteSession, StoreError::Full)]
    {
        let mut setup = setup(Script::new().text("answered"));
        let server = TestServer::start(&setup).await;
        let mut socket = server.socket().await;
        socket.chat("s", "hi").await;
        socket.until("done").await;
        server.stop().await;
        setup.retention = Some(Duration::ZERO);
        let store = troubled(&setup);
        store.fail_once(call, 0, failure);
        let server = TestServer::start_over(&setup, store.clone(), store.clone()).await;
        while store.failure_waits() {
            tokio::task::yield_now().await;
        }
        assert_eq!(http::get(server.address(), "/api/info").await.status, 200);
        assert!(setup.store.find_session(LOCAL_PRINCIPAL, &session("s")).await.unwrap().is_some());
        tokio::time::pause();
        tokio::time::advance(LOOK_EVERY).await;
        tokio::time::resume();
        while setup.store.find_session(LOCAL_PRINCIPAL, &session("s")).await.unwrap().is_some() {
            tokio::task::yield_now().await;
        }
    }
}
