//! Keys in a real keyring: GNOME's, on a bus of its own. Without those programs it says so and tests nothing;
//! the stand-in in `config.rs` needs none.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::binary::{Home, PATIENCE, Ran, find_program};

/// Must show up nowhere but in the keyring.
const CANARY: &str = "sk-canary-real-07";

/// A bus with a keyring on it; both end with this value.
struct Desktop {
    dir: TempDir,
    _bus: Child,
    keyring: Option<Child>,
}

impl Desktop {
    /// Starts the bus; `None` where its programs are not installed.
    #[expect(clippy::print_stderr, reason = "whoever runs the tests should see what was left out")]
    async fn start() -> Option<Self> {
        for program in ["dbus-daemon", "gnome-keyring-daemon"] {
            if find_program(program).is_none() {
                eprintln!("SKIPPED: {program} is not installed");
                return None;
            }
        }
        let dir = TempDir::new().unwrap();
        let socket = dir.path().join("bus");
        // No service directories: the bus starts nothing by itself.
        let config = format!(
            "<busconfig><type>session</type><listen>unix:path={}</listen><policy context=\"default\">\
             <allow send_destination=\"*\" eavesdrop=\"true\"/><allow eavesdrop=\"true\"/><allow own=\"*\"/></policy></busconfig>",
            socket.display()
        );
        fs::write(dir.path().join("bus.conf"), config).unwrap();
        let mut bus = Command::new("dbus-daemon")
            .arg(format!("--config-file={}", dir.path().join("bus.conf").display()))
            .args(["--nofork", "--print-address"])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(bus.stdout.take().unwrap());
        timeout(PATIENCE, said.read_line(&mut line)).await.expect("an address in time").unwrap();
        assert!(line.starts_with("unix:path="), "{line}");
        Some(Self { dir, _bus: bus, keyring: None })
    }

    fn address(&self) -> String {
        format!("unix:path={}", self.dir.path().join("bus").display())
    }

    /// Starts the keyring, in place of one that runs; with a password it is open.
    async fn keyring(&mut self, password: Option<&str>) {
        if let Some(mut child) = self.keyring.take() {
            child.kill().await.unwrap();
        }
        for name in ["home", "run"] {
            DirBuilder::new().recursive(true).mode(0o700).create(self.dir.path().join(name)).unwrap();
        }
        let mut command = Command::new("gnome-keyring-daemon");
        command.args(["--foreground", "--components=secrets"]);
        if password.is_some() {
            command.arg("--unlock");
        }
        let mut child = command
            .env_clear()
            .env("PATH", std::env::var("PATH").unwrap())
            .env("HOME", self.dir.path().join("home"))
            .env("XDG_RUNTIME_DIR", self.dir.path().join("run"))
            .env("DBUS_SESSION_BUS_ADDRESS", self.address())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(password.unwrap_or_default().as_bytes()).await.unwrap();
        drop(stdin);
        self.keyring = Some(child);
    }

    fn holds(&self, text: &str) -> bool {
        fn any(folder: &Path, text: &[u8]) -> bool {
            fs::read_dir(folder).unwrap().any(|entry| {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    return any(&path, text);
                }
                fs::read(&path).is_ok_and(|bytes| bytes.windows(text.len()).any(|part| part == text))
            })
        }
        any(self.dir.path(), text.as_bytes())
    }
}

#[tokio::test]
async fn a_key_is_kept_found_locked_and_removed() {
    let Some(mut desktop) = Desktop::start().await else { return };
    let home = Home::bare().set("DBUS_SESSION_BUS_ADDRESS", &desktop.address());
    desktop.keyring(Some("password")).await;
    // It is on the bus a moment after it was started.
    eventually(&home, &["config", "key", "set", "openai"], |ran| ran.code == Some(0)).await;
    let key = async |expected: Value| {
        let shown = home.run(&["config", "show", "--json"]).await;
        let values = shown.json()["values"].as_array().unwrap().clone();
        let value = values.into_iter().find(|value| value["key"] == "providers.openai.api_key").unwrap();
        assert_eq!(value, expected, "{shown:?}");
        assert!(!shown.stdout.contains("canary"));
    };
    let set = json!({ "key": "providers.openai.api_key", "set": true, "origin": { "kind": "keyring" } });
    let unset = json!({ "key": "providers.openai.api_key", "set": false });
    key(set).await;
    assert!(!desktop.holds(CANARY), "the keyring keeps it encrypted");
    let server = home.serve(&[]).await;
    assert!(server.first_line.ends_with(" · engine openai\n"), "{}", server.first_line);
    server.kill().await;

    // The keyring that nobody opened: it says so, asks nobody, and gives nothing.
    desktop.keyring(None).await;
    let locked = "locked and holds a key for openai";
    eventually(&home, &["doctor"], |ran| ran.stdout.contains(locked)).await;
    key(unset.clone()).await;

    desktop.keyring(Some("password")).await;
    eventually(&home, &["config", "key", "rm", "openai"], |ran| ran.code == Some(0)).await;
    key(unset).await;
}

/// Runs a command with the key on standard input until it says what it must.
async fn eventually(home: &Home, args: &[&str], holds: impl Fn(&Ran) -> bool) {
    let ran = async { while !holds(&home.run_with_input(args, CANARY).await) {} };
    timeout(PATIENCE, ran).await.unwrap_or_else(|_| panic!("never: {args:?}"));
}
