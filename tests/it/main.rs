//! The in-process integration tests: the real server on a free port, a scripted engine, real sockets.

mod approval;
mod chat;
mod door;
mod history;
mod knowledge;
mod limits;
mod provider;
mod rest;
mod storage;
mod team;
mod tools;

use tns_server_core::scripted::Script;
use tns_tests::{Setup, TestServer};

/// Returns a set-up whose engine plays `script`.
fn setup(script: Script) -> Setup {
    Setup::new(env!("CARGO_BIN_EXE_exec-helper"), script)
}

/// Starts a server whose engine plays `script`.
async fn start(script: Script) -> TestServer {
    TestServer::start(&setup(script)).await
}
