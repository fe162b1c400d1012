//! The in-process integration tests: the real server on a free port, a scripted engine, real sockets.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "these are tests")]

mod actions;
mod approval;
mod autonomy;
mod cancel;
mod cases_a;
mod cases_b;
mod cases_framing;
mod catalogue;
mod chat;
mod client_tools;
mod compaction;
mod door;
mod edited;
mod follow;
mod frames;
mod grants;
mod history;
mod knowledge;
mod limits;
mod openapi;
mod provider;
mod providers;
mod readers;
mod refusals;
mod rest;
mod resume;
mod sessions;
mod sim;
mod spend;
mod storage;
mod stream;
mod stream_tools;
mod team;
mod tidy;
mod titles;
mod tool_output;
mod tools;
mod transfer;
mod trouble;
mod wired;

use serde_json::{Value, json};
use tns_server_core::scripted::{Beat, Script, call};
use tns_tests::{Setup, TestServer};

/// Returns a set-up whose engine plays `script`.
fn setup(script: Script) -> Setup {
    Setup::new(env!("CARGO_BIN_EXE_exec-helper"), script)
}

/// Starts a server whose engine plays `script`.
async fn start(script: Script) -> TestServer {
    TestServer::start(&setup(script)).await
}

/// A beat that writes a piece of text.
fn say(text: &str) -> Beat {
    Beat::Text(text.to_owned())
}

/// A beat that writes a file; it asks at every level but FULL_AUTO.
fn write_file(path: &str, content: &str) -> Beat {
    call("file_write", json!({ "path": path, "content": content }))
}

/// A beat that runs a shell line.
fn shell(command: &str) -> Beat {
    call("shell", json!({ "command": command }))
}

/// Returns the call that an event is about.
fn call_id(event: &Value) -> &str {
    event["toolCallId"].as_str().unwrap_or_else(|| panic!("no toolCallId in {event}"))
}
