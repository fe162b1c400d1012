//! Folders with and without secrets in them, and programs that read them or only name what is there.

use serde_json::json;

use super::*;
use crate::exec_helper::tests::test_helper;
use crate::shell::Shell;
use crate::testing::Bench;
use crate::{ToolsConfig, guard::OwnFolder};

fn shell() -> Shell {
    Shell::new(ToolsConfig::new(test_helper()))
}

async fn class(bench: &Bench, tool: &Shell, command: &str) -> RiskClass {
    bench.class(tool, json!({ "command": command })).await
}

#[tokio::test]
async fn reading_a_folder_is_reading_the_secrets_in_it() {
    let (bench, tool) = (Bench::new(), shell());
    bench.file("src/main.rs", "");
    bench.file("src/deploy/.env", "");
    bench.file("docs/readme.md", "");
    bench.file("keys/server.pem", "");
    for (command, wanted) in [
        ("grep -r KEY .", RiskClass::Sensitive),
        ("grep -rn KEY", RiskClass::Sensitive),
        ("grep --recursive KEY src", RiskClass::Sensitive),
        ("grep -r -e KEY docs src", RiskClass::Sensitive),
        ("grep -r KEY docs", RiskClass::ReadOnly),
        ("grep -n KEY src/main.rs", RiskClass::ReadOnly),
        ("rg KEY", RiskClass::Sensitive),
        ("rg KEY keys", RiskClass::Sensitive),
        ("rg KEY docs", RiskClass::ReadOnly),
        // Without a pattern of its own, ripgrep reads nothing hidden.
        ("rg KEY src", RiskClass::ReadOnly),
        ("rg -t sh KEY src", RiskClass::Sensitive),
        ("rg -g '*' KEY src", RiskClass::Sensitive),
        ("rg -g '!*.rs' KEY src", RiskClass::Sensitive),
        ("rg -g '*.rs' KEY", RiskClass::ReadOnly),
        ("grep -r --include='*.rs' KEY .", RiskClass::ReadOnly),
        ("grep -r --include='*.pem' KEY .", RiskClass::Sensitive),
        ("grep -r --exclude=x --include='*.rs' KEY .", RiskClass::Sensitive),
        // These only name what is there.
        ("ls -R", RiskClass::ReadOnly),
        ("tree -a", RiskClass::ReadOnly),
        ("du -a .", RiskClass::ReadOnly),
    ] {
        assert_eq!(class(&bench, &tool, command).await, wanted, "{command}");
    }
    let rating = bench.rate(&tool, json!({ "command": "grep -r KEY src" })).await;
    assert_eq!(rating.reasons[0], "it also reads src/deploy/.env, which looks like a secret");
}

#[tokio::test]
async fn a_pattern_that_names_a_secret_asks_whatever_is_there() {
    let (bench, tool) = (Bench::new(), shell());
    for command in [
        "rg -g .env KEY",
        "rg -g'.env' KEY",
        "rg --glob=**/id_rsa KEY",
        "rg --glob '**/id_rsa' KEY",
        "rg --iglob '*.PEM' KEY",
        "grep -r --include=.env KEY .",
        "grep -r --include '*.key' KEY .",
    ] {
        assert!(class(&bench, &tool, command).await >= RiskClass::Sensitive, "{command}");
    }
    assert_eq!(class(&bench, &tool, "rg -g '!.env' KEY").await, RiskClass::ReadOnly);
}

#[test]
fn more_entries_than_are_looked_at_ask() {
    let bench = Bench::new();
    for name in ["a", "b", "c"] {
        bench.file(name, "");
    }
    let bounds = OwnFolder::default().bounds(&bench.workspace);
    let beneath = Beneath { which: Which::All, only: None };
    let root = bench.workspace.root();
    // The folder itself is an entry too.
    let mut budget = 4;
    assert_eq!(secret_beneath(root, &beneath, &bounds, &mut budget), None);
    assert_eq!(budget, 0);
    let mut budget = 3;
    assert!(secret_beneath(root, &beneath, &bounds, &mut budget).unwrap().contains("not ruled out"));
}

#[tokio::test]
async fn the_servers_own_folder_asks_and_its_address_is_refused() {
    let bench = Bench::new();
    bench.file("state/server.json", "{}");
    bench.file("state/log.txt", "");
    bench.file("other/server.json", "{}");
    bench.link("alias", "state");
    let data_dir = Some(bench.path("state"));
    let tool = Shell::new(ToolsConfig { data_dir, ..ToolsConfig::new(test_helper()) });
    for (command, wanted) in [
        ("cat state/log.txt", RiskClass::Sensitive),
        ("ls alias", RiskClass::Sensitive),
        ("grep -r url .", RiskClass::Sensitive),
        ("rg url", RiskClass::Sensitive),
        ("cat state/server.json", RiskClass::Escalation),
        ("cat alias/server.json", RiskClass::Escalation),
        ("cat state/server.json | head", RiskClass::Escalation),
        ("curl $(cat ./state/server.json)", RiskClass::Escalation),
        ("cat other/server.json", RiskClass::ReadOnly),
        ("cat other/server.json | head", RiskClass::Unknown),
        ("ls", RiskClass::ReadOnly),
    ] {
        assert_eq!(class(&bench, &tool, command).await, wanted, "{command}");
    }
    let bare = format!("cd {} && cat server.json", bench.path("state").display());
    assert_eq!(class(&bench, &tool, &bare).await, RiskClass::Escalation);
}

#[tokio::test]
async fn the_port_that_the_server_has_is_refused_beside_the_usual_one() {
    let bench = Bench::new();
    let tool = Shell::new(ToolsConfig { control_port: Some(43_210), ..ToolsConfig::new(test_helper()) });
    for (command, wanted) in [
        ("curl http://localhost:43210/api", RiskClass::Escalation),
        ("nc 127.0.0.1 43210", RiskClass::Escalation),
        ("curl http://localhost:7777/api", RiskClass::Escalation),
        ("curl http://localhost:143210/api", RiskClass::Unknown),
        ("curl http://localhost:4321/api", RiskClass::Unknown),
    ] {
        assert_eq!(class(&bench, &tool, command).await, wanted, "{command}");
    }
    assert_eq!(class(&bench, &shell(), "nc 127.0.0.1 43210").await, RiskClass::Unknown);
}
