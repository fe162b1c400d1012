//! Runs the real binary: in an empty home, with an environment that holds nothing else, and always ended
//! with the test. It asserts nothing about what a command says.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;
use tns_client::Rest;
use tns_tests::Socket;
use tns_tests::provider::ModelServer;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{sleep, timeout};

/// The binary under test.
pub(crate) const TNS: &str = env!("CARGO_BIN_EXE_tns");
/// How long something may take that takes milliseconds, so that a busy machine fails nothing.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Pause between two looks at what can only be looked at.
const LOOK: Duration = Duration::from_millis(5);

/// A home without anything in it, a folder to work in, and the variables that are set there.
pub(crate) struct Home {
    dir: TempDir,
    variables: Vec<(String, String)>,
}

impl Home {
    /// Makes an empty home where `offline` answers, whatever models run on this machine.
    pub(crate) fn new() -> Self {
        Self::bare().set("TNS_PROVIDER", "offline")
    }

    /// Makes an empty home where nothing is set but `HOME` and `PATH`.
    pub(crate) fn bare() -> Self {
        let dir = TempDir::new().unwrap();
        for name in ["home", "work"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self { dir, variables: Vec::new() }
    }

    /// Makes an empty home where this model answers.
    pub(crate) fn with_model(model: &ModelServer) -> Self {
        // A model's title is a call of its own.
        Self::bare()
            .set("PROVIDER_BASE_URL_OPENAI_COMPATIBLE", model.base_url())
            .set("TNS_TITLES", "first-message")
    }

    /// Sets a variable for every command.
    pub(crate) fn set(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Returns the home folder.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    /// Returns the folder that commands are run in.
    pub(crate) fn folder(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    /// Returns the data folder, which the first command makes.
    pub(crate) fn data(&self) -> PathBuf {
        self.path().join(".local/share/tns")
    }

    /// Returns the variables of every command.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        let path = std::env::var("PATH").unwrap();
        let base = [("HOME".to_owned(), self.path().to_str().unwrap().to_owned()), ("PATH".to_owned(), path)];
        base.into_iter().chain(self.variables.iter().cloned()).collect()
    }

    /// Writes a file of the folder.
    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.folder().join(name), text).unwrap();
    }

    /// Whether the folder has a file of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.folder().join(name).exists()
    }

    /// Prepares a command: no input, both outputs captured, killed with its handle.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(TNS);
        command
            .args(args)
            .env_clear()
            .envs(self.variables())
            .current_dir(self.folder())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs a command to its end.
    pub(crate) async fn run(&self, args: &[&str]) -> Ran {
        finish(self.command(args).spawn().unwrap()).await
    }

    /// Runs a command to its end with this on standard input.
    pub(crate) async fn run_with_input(&self, args: &[&str], input: &str) -> Ran {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).await.unwrap();
        drop(stdin);
        finish(child).await
    }

    /// Starts `tns serve` on a free port with these options more, and reads its first line.
    pub(crate) async fn serve(&self, options: &[&str]) -> Serving {
        self.serve_anyhow(&[&["serve", "--port", "0"], options].concat()).await
    }

    /// Starts a server with exactly these arguments, and reads its first line.
    pub(crate) async fn serve_anyhow(&self, args: &[&str]) -> Serving {
        let log = self.dir.path().join("server.log");
        let stderr = File::options().create(true).append(true).open(&log).unwrap();
        let mut child = self.command(args).stderr(stderr).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut first_line = String::new();
        let read = timeout(PATIENCE, stdout.read_line(&mut first_line)).await;
        let read = read.expect("a first line in time").unwrap();
        assert!(read > 0, "{args:?} said nothing: {}", fs::read_to_string(&log).unwrap());
        Serving { child, stdout, first_line, log }
    }

    /// Returns the address that the data folder's `server.json` names, once it is there.
    pub(crate) async fn published(&self) -> Value {
        let file = self.data().join("server.json");
        until("server.json is there", || file.exists()).await;
        serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap()
    }
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Ran {
    /// Its exit code; `None` when a signal ended it.
    pub(crate) code: Option<i32>,
    /// Its standard output.
    pub(crate) stdout: String,
    /// Its standard error.
    pub(crate) stderr: String,
}

impl Ran {
    /// Returns the standard output of a command that succeeded.
    pub(crate) fn answer(&self) -> &str {
        assert_eq!(self.code, Some(0), "{self:?}");
        &self.stdout
    }

    /// Returns the one JSON value on standard output, which ends its line.
    pub(crate) fn json(&self) -> Value {
        assert!(self.stdout.ends_with('\n'), "{self:?}");
        assert!(!self.stdout.contains('\u{1b}'), "{self:?}");
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the lines of standard error that tell what went wrong.
    pub(crate) fn complaints(&self) -> Vec<&str> {
        self.stderr.lines().filter(|line| line.starts_with("tns: ")).collect()
    }
}

/// Waits for a command's end.
pub(crate) async fn finish(child: Child) -> Ran {
    let output = timeout(PATIENCE, child.wait_with_output()).await.expect("the command ends").unwrap();
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A `tns serve`, killed when dropped.
pub(crate) struct Serving {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// What it said first, with its newline.
    pub(crate) first_line: String,
    log: PathBuf,
}

impl Serving {
    /// Returns where it listens, from its first line: `http://HOST:PORT`.
    pub(crate) fn url(&self) -> &str {
        let words = self.first_line.split_whitespace();
        words.into_iter().find(|word| word.starts_with("http://")).expect("an address")
    }

    /// Returns `HOST:PORT`.
    pub(crate) fn address(&self) -> &str {
        self.url().strip_prefix("http://").unwrap()
    }

    /// Returns its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("the server runs")
    }

    /// Opens a bare `/chat` socket.
    pub(crate) async fn socket(&self) -> Socket {
        Socket::connect(self.address()).await
    }

    /// Returns the REST calls.
    pub(crate) fn rest(&self) -> Rest {
        Rest::new(self.url()).unwrap()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        signal_to(self.pid(), signal);
    }

    /// Waits for its end, and returns how it ended and what it still wrote to standard output.
    pub(crate) async fn ended(mut self) -> (ExitStatus, String) {
        let mut rest = String::new();
        let ended = async {
            self.stdout.read_to_string(&mut rest).await.unwrap();
            self.child.wait().await.unwrap()
        };
        (timeout(PATIENCE, ended).await.expect("the server ends"), rest)
    }

    /// Kills it as `kill -9` does.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Returns what it and the servers before it in the same home wrote to standard error.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }
}

/// Sends a signal to one process.
pub(crate) fn signal_to(process: u32, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(process).unwrap()), signal).unwrap();
}

/// Waits until something holds that can only be looked at.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let looked = async {
        while !holds() {
            sleep(LOOK).await;
        }
    };
    timeout(PATIENCE, looked).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// Returns the processes whose command line holds this text.
pub(crate) fn processes_with(text: &str) -> Vec<u32> {
    let own = std::process::id();
    processes().filter(|id| *id != own && command_line(*id).contains(text)).collect()
}

/// Returns a process's children.
pub(crate) fn children_of(parent: u32) -> Vec<u32> {
    let parent = parent.to_string();
    processes()
        .filter(|id| {
            // The fields behind the name, which may hold anything: state, parent …
            let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
            let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
            fields.split_whitespace().nth(1) == Some(&parent)
        })
        .collect()
}

fn processes() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

fn command_line(process: u32) -> String {
    // It may have ended in between.
    let bytes = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

/// Returns the path of a program, where there is one.
pub(crate) fn find_program(name: impl AsRef<OsStr>) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(Path::new(&name))).find(|path| path.is_file())
}
