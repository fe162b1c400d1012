//! A program in another language: the smallest client in JavaScript, run by Node as it stands.

use std::path::Path;
use std::process::Stdio;

use serde_json::json;
use tns_tests::provider::{ModelServer, call_body, text_body};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use crate::binary::{Home, PATIENCE, find_program};

/// Node has a WebSocket of its own from 20 on, behind this flag.
const FLAG: &str = "--experimental-websocket";

/// Returns Node, where there is one that has a WebSocket.
async fn node() -> Option<std::path::PathBuf> {
    let node = find_program("node")?;
    let probe = "new WebSocket('ws://localhost:1').onerror = () => {}";
    let probed = Command::new(&node).args([FLAG, "--eval", probe]).output().await;
    probed.is_ok_and(|output| output.status.success()).then_some(node)
}

#[tokio::test]
async fn a_client_of_thirty_lines_gets_its_reply_and_lets_a_tool_run() {
    let Some(node) = node().await else {
        eprintln!("SKIPPED: there is no Node with {FLAG} here");
        return;
    };
    let call = call_body("c1", "shell", &json!({ "command": "touch made" }));
    let model = ModelServer::start([call, text_body(&["The file ", "is there."])]).await;
    let home = Home::with_model(&model);
    let server = home.serve(&[]).await;
    let port = server.address().rsplit_once(':').unwrap().1;
    let mut client = Command::new(node)
        .arg(FLAG)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/process/example.js"))
        .arg(port)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(client.stdout.take().unwrap()).lines();
    let mut said = Vec::new();
    let done = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            let is_done = line.starts_with("[Done]");
            said.push(line);
            if is_done {
                break;
            }
        }
    };
    timeout(PATIENCE, done).await.expect("[Done] in time");
    assert_eq!(said, ["The file is there.", "[Done] { tokens: 20, cost: 0, unpriced: true }"]);
    assert!(home.has("made"));
    client.kill().await.unwrap();
}
