//! A history that grows too long: what stands for its older part, and what becomes of one that nothing can cure.

use serde_json::json;
use tns_server_core::message::{ModelRole, Note, Part};
use tns_server_core::scripted::{Beat, Gate, Script};
use tns_server_core::turn::TurnLimits;
use tns_tests::socket::{of_type, types};
use tns_tests::standin::{Fault, GOOD_KEY, PROVIDERS, Plan};
use tns_tests::{Setup, TestServer, session};

use crate::wired::Wired;
use crate::{say, setup, write_file};

/// Tokens of a request that are too many here; the system prompt and the tools are less than half of it.
const COMPACT_AT: u64 = 4_000;
/// A message that is longer than that.
const LONG: usize = 20_000;
/// What is asked for a summary begins so.
const TRANSCRIPT: &str = "<transcript>";

fn small(script: Script) -> Setup {
    let setup = setup(script);
    Setup { limits: TurnLimits { compact_at: COMPACT_AT, ..TurnLimits::default() }, ..setup }
}

/// Returns what the words of a request are, one line a part.
fn words(script: &Script, at: usize) -> Vec<String> {
    let request = script.requests()[at].clone();
    let parts = request.messages.into_iter().flat_map(|message| message.parts);
    parts
        .map(|part| match part {
            Part::Text(text) | Part::Note(Note::Text(text)) => text,
            other => format!("{other:?}"),
        })
        .collect()
}

#[tokio::test]
async fn a_long_history_is_summarised_before_a_reply_and_stays_so_over_a_restart() {
    let script =
        Script::new().text("first answer").text("a summary of all").text("second answer").text("third");
    let setup = small(script.clone());
    let server = TestServer::start(&setup).await;
    let mut socket = server.extended("s").await;
    socket.turn("s", &format!("long: {}", "x".repeat(LONG))).await;
    let events = socket.turn("s", "and now?").await;
    let compaction = &of_type(&events, "compaction")[0];
    let (before, after) =
        (compaction["tokensBefore"].as_u64().unwrap(), compaction["tokensAfter"].as_u64().unwrap());
    assert!(before > COMPACT_AT && after < COMPACT_AT, "{compaction}");
    // The summary's own call counts: 1 token in and its 4 words, beside the reply's 1 and 2.
    assert_eq!(events.last().unwrap()["usage"]["tokens"], 8);
    let request = script.requests()[1].clone();
    assert!(request.tools.is_empty());
    let asked = words(&script, 1).pop().unwrap();
    assert!(asked.starts_with(TRANSCRIPT) && asked.contains("first answer") && !asked.contains("and now?"));
    let seen = words(&script, 2);
    assert_eq!((seen.len(), seen[1].as_str()), (2, "and now?"));
    assert!(seen[0].ends_with("a summary of all"), "{seen:?}");
    assert_eq!(script.requests()[2].messages[0].role, ModelRole::User);
    server.stop().await;
    let server = TestServer::start(&setup).await;
    let mut socket = server.extended("s").await;
    socket.turn("s", "still?").await;
    let seen = words(&script, 3);
    assert_eq!(seen[1..], ["and now?", "second answer", "still?"]);
    // People read the whole log all the same.
    let messages = server.rest().messages(&session("s"), 0, None).await.unwrap().messages;
    assert!(messages[0].content.starts_with("long: xxx"));
    server.stop().await;
}

#[tokio::test]
async fn a_reply_that_grows_too_long_is_summarised_between_two_of_its_steps() {
    let big = "y".repeat(LONG);
    let script = Script::new()
        .step([say("I write."), write_file("a.txt", &big)])
        .step([write_file("b.txt", "b")])
        .text("what was done")
        .text("finished");
    let server = TestServer::start(&small(script.clone())).await;
    let mut socket = server.extended("s").await;
    socket.send("s", "set_autonomy", json!({ "level": "FULL_AUTO" })).await;
    let events = socket.turn("s", "write both").await;
    assert_eq!(of_type(&events, "compaction").len(), 1);
    let seen = words(&script, 3);
    assert!(seen[0].ends_with("what was done") && seen[1] == "write both", "{seen:?}");
    // The newest step and its result are kept.
    assert!(seen[2].contains("b.txt") && seen[3].contains("ToolResult"), "{seen:?}");
    assert_eq!(seen.len(), 4);
    server.stop().await;
}

#[tokio::test]
async fn an_empty_summary_replaces_nothing_and_the_next_turn_tries_again() {
    let script = Script::new().text("first").text("  ").text("second").text("the summary").text("third");
    let server = TestServer::start(&small(script.clone())).await;
    let mut socket = server.extended("s").await;
    socket.turn("s", &"x".repeat(LONG)).await;
    let events = socket.turn("s", "more").await;
    assert!(of_type(&events, "compaction").is_empty());
    assert_eq!(of_type(&events, "notice").len(), 1);
    assert_eq!(words(&script, 2).last().unwrap(), "more");
    assert!(words(&script, 2)[0].starts_with("xxx"));
    let events = socket.turn("s", "again").await;
    assert_eq!(of_type(&events, "compaction").len(), 1);
    assert!(words(&script, 4)[0].ends_with("the summary"));
    server.stop().await;
}

#[tokio::test]
async fn a_cancel_stops_a_summary_at_once_and_leaves_the_history_as_it_was() {
    let gate = Gate::new();
    let script = Script::new().text("first").step([Beat::Gate(gate)]).text("the summary").text("next");
    let server = TestServer::start(&small(script.clone())).await;
    let mut socket = server.extended("s").await;
    socket.turn("s", &"x".repeat(LONG)).await;
    socket.chat("s", "more").await;
    loop {
        let state = socket.expect("agent_state").await;
        if state["detail"] == "summarises the conversation" {
            break;
        }
    }
    socket.send("s", "cancel", json!({})).await;
    let events = socket.until("interrupted").await;
    assert!(of_type(&events, "compaction").is_empty());
    let events = socket.turn("s", "and?").await;
    assert_eq!(of_type(&events, "compaction").len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn a_request_that_is_too_long_is_answered_after_one_summary_and_one_retry() {
    for row in PROVIDERS {
        for too_long in [Fault::TooLong, Fault::TooLongAtOnce] {
            let mut wired = Wired::start(row, GOOD_KEY).await;
            wired.expect_reply(&format!("{}[[text:one]]", "first ".repeat(100)), "one").await;
            let before = wired.standin.requests().len();
            wired.standin.plan([
                Plan::text(&[]).fault(too_long),
                Plan::text(&["what was said"]),
                Plan::text(&["two"]),
            ]);
            let events = wired.chat("second", "done").await;
            let requests = wired.standin.requests();
            assert_eq!(tns_tests::socket::text(&events), "two", "{} {too_long:?}", row.0);
            assert_eq!(requests.len(), before + 3, "{} {too_long:?}", row.0);
            let last = requests.last().unwrap().body.to_string();
            assert!(last.contains("what was said") && !last.contains("text:one"), "{}: {last}", row.0);
            wired.end().await;
        }
    }
}

#[tokio::test]
async fn a_request_that_stays_too_long_is_one_error_that_says_what_to_do() {
    for row in PROVIDERS {
        let mut wired = Wired::start(row, GOOD_KEY).await;
        wired.expect_reply("first [[text:one]]", "one").await;
        let log = wired.server.rest().session(&session("s")).await.unwrap().head_seq;
        let before = wired.standin.requests().len();
        wired.standin.takes_at_most(100);
        let events = wired.chat("second", "error").await;
        let error = events.last().unwrap();
        assert_eq!(error["code"], "CONTEXT_OVERFLOW", "{}: {error}", row.0);
        assert!(error["message"].as_str().unwrap().contains("begin a new session"), "{}: {error}", row.0);
        assert_eq!(events[events.len() - 2]["status"], "idle", "{}", row.0);
        assert!(wired.standin.requests().len() <= before + 3, "{}", row.0);
        // The message and the turn's end: nothing else is left of it.
        let after = wired.server.rest().session(&session("s")).await.unwrap().head_seq;
        assert_eq!(after, log + 2, "{}: {:?}", row.0, types(&events));
        // With a model that takes more it goes on.
        wired.standin.takes_at_most(usize::MAX);
        wired.expect_reply("third [[text:three]]", "three").await;
        wired.end().await;
    }
}

#[tokio::test]
async fn one_huge_message_is_cured_by_a_summary_that_is_itself_short() {
    for row in PROVIDERS {
        let setup = setup(Script::new());
        let mut wired = Wired::start_over(&setup, row, GOOD_KEY).await;
        wired.expect_reply(&format!("{} [[text:one]]", "z".repeat(100_000)), "one").await;
        let tools = wired.standin.requests()[0].body.to_string().len() - 100_000;
        // Below: a summary of what is there, and a request with the tools.
        wired.standin.takes_at_most(tools + 8_000);
        let before = wired.standin.requests().len();
        wired.standin.plan([Plan::text(&["it was long"]), Plan::text(&["two"])]);
        let events = wired.chat("second", "done").await;
        assert_eq!(tns_tests::socket::text(&events), "two", "{}", row.0);
        let lengths: Vec<usize> =
            wired.standin.requests()[before..].iter().map(|request| request.body.to_string().len()).collect();
        assert!(lengths.len() == 3 && lengths[0] > 100_000 && lengths[1] < 8_000, "{}: {lengths:?}", row.0);
        wired.end().await;
    }
}

#[tokio::test]
async fn a_history_is_summarised_when_somebody_asks_and_not_while_a_reply_is_written() {
    let gate = Gate::new();
    let script = Script::new()
        .text("first answer")
        .text("second answer")
        .text("the summary")
        .step([say("third"), Beat::Gate(gate.clone())])
        .text("fourth");
    let server = TestServer::start(&setup(script.clone())).await;
    let mut socket = server.extended("s").await;
    socket.send("s", "compact", json!({})).await;
    assert!(socket.expect("notice").await["message"].as_str().unwrap().contains("nothing to summarise"));
    socket.turn("s", &"x".repeat(LONG)).await;
    socket.turn("s", "more").await;
    socket.send("s", "compact", json!({})).await;
    socket.expect("compaction").await;
    while socket.expect("agent_state").await["status"] != "idle" {}
    socket.chat("s", "and?").await;
    socket.until("token").await;
    socket.send("s", "compact", json!({})).await;
    let refused = socket.expect("error").await;
    assert_eq!((&refused["code"], &refused["refType"]), (&json!("LIMIT"), &json!("compact")));
    gate.open();
    socket.until("done").await;
    let seen = words(&script, 3);
    assert!(seen[0].ends_with("the summary"), "{seen:?}");
    assert_eq!(seen[1..], ["more", "second answer", "and?"]);
    socket.send("s", "compact", json!({ "agentId": "nobody" })).await;
    assert_eq!(socket.expect("error").await["code"], "AGENT_NOT_FOUND");
    server.stop().await;
}

#[tokio::test]
async fn a_summary_that_is_asked_for_stops_on_cancel_and_lets_the_next_message_wait() {
    let script = Script::new().text("first").text("second").step([Beat::Gate(Gate::new())]).text("third");
    let server = TestServer::start(&setup(script.clone())).await;
    let mut socket = server.extended("s").await;
    socket.turn("s", &"x".repeat(LONG)).await;
    socket.turn("s", "more").await;
    socket.send("s", "compact", json!({})).await;
    while socket.expect("agent_state").await["detail"] != "summarises the conversation" {}
    socket.chat("s", "waits").await;
    assert_eq!(socket.expect("user_message").await["queued"], true);
    socket.send("s", "cancel", json!({})).await;
    let events = socket.until("done").await;
    assert!(of_type(&events, "compaction").is_empty());
    assert_eq!(words(&script, 3).last().unwrap(), "waits");
    server.stop().await;
}
