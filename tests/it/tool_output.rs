//! What a running tool writes is shown before its result to who knows `events.1`, and to nobody else.

use serde_json::{Value, json};
use tns_server_core::scripted::Script;
use tns_server_core::tool::MAX_PIECE_BYTES;
use tns_tests::TestServer;
use tns_tests::socket::{of_type, text, types};

use crate::{call_id, shell, start};

/// Starts a server with a FULL_AUTO session whose first turn runs a shell line.
async fn running(line: &str) -> TestServer {
    let server = start(Script::new().step([shell(line)]).text("seen")).await;
    let mut socket = server.socket().await;
    socket.send("s", "set_autonomy", json!({ "level": "FULL_AUTO" })).await;
    socket.expect("autonomy_changed").await;
    server
}

/// Returns what was shown between the start of the only call and its result, and that result.
fn shown(events: &[Value]) -> (Vec<&Value>, &Value) {
    let at = |type_name: &str| events.iter().position(|event| event["type"] == type_name).unwrap();
    let (start, end) = (at("tool_start"), at("tool_result"));
    let between = &events[start + 1..end];
    assert!(types(between).iter().all(|of| *of == "tool_output"), "{:?}", types(between));
    assert_eq!(between.len(), of_type(events, "tool_output").len());
    (between.iter().collect(), &events[end])
}

fn contents<'a>(pieces: &[&'a Value]) -> Vec<&'a str> {
    pieces.iter().map(|piece| piece["content"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn output_is_shown_while_a_command_runs_and_only_to_who_knows_of_it() {
    // It waits at the pipe until somebody writes.
    let server = running("mkfifo go; echo 職員; cat go; echo last").await;
    let (mut socket, mut plain) = (server.extended("s").await, server.socket().await);
    plain.join("s").await;
    socket.chat("s", "go").await;
    let mut events = socket.until("tool_output").await;
    assert_eq!(events.last().unwrap()["content"], "職員\n");
    tokio::fs::write(server.workspace().join("go"), "let go\n").await.unwrap();
    events.extend(socket.until("done").await);
    let (pieces, result) = shown(&events);
    assert_eq!(contents(&pieces).concat(), "職員\nlet go\nlast\n");
    for piece in pieces {
        assert_eq!((call_id(piece), &piece["agentId"]), (call_id(result), &result["agentId"]));
        assert!(piece.get("seq").is_none() && piece["sessionId"] == "s", "{piece}");
    }
    assert_eq!(result["result"], "職員\nlet go\nlast\n");
    let told = plain.until("done").await;
    let (none, same) = shown(&told);
    assert_eq!((none.len(), &same["result"]), (0, &result["result"]));
    assert_eq!(text(&told), "seen");
}

#[tokio::test]
async fn a_flood_of_output_is_shown_in_bounded_pieces_and_its_result_is_as_ever() {
    let server = running("yes 職員 | head -c 7000000").await;
    let mut socket = server.extended("s").await;
    let events = socket.turn("s", "go").await;
    let (pieces, result) = shown(&events);
    let most = MAX_PIECE_BYTES + "\n[… 7000000 bytes of output left out here …]\n".len();
    assert!(contents(&pieces).iter().all(|content| content.len() <= most));
    assert!(contents(&pieces).concat().ends_with("職員\n"));
    assert_eq!(result["truncated"], true);
    let lines = "職員\n".repeat(1_000);
    let whole = result["result"].as_str().unwrap();
    assert!(whole.starts_with(&lines) && whole.ends_with(&lines));
}
