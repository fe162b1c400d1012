//! What an agent can do: files, search in text, and the shell.
//!
//! Each tool rates its own call before anybody is asked and does it afterwards. A rating and a run look
//! at the same bytes through the same guard, and where the world changed in between, the run refuses.
//! `guard` bounds every path, `output` every result, [`exec_helper`] every process.
//!
//! This crate decides nothing about approvals and never sees a socket, a session or a model.

mod args;
mod check;
pub mod exec_helper;
mod grep;
mod guard;
mod list;
mod output;
mod read;
mod shell;
#[cfg(test)]
mod testing;
mod write;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tns_server_core::tool::{Rating, Tool, ToolOutcome};

use guard::OwnFolder;

pub use check::SchemaCheck;
pub use shell::rating::rate_command;

/// Longest run of a shell line unless [`ToolsConfig::shell_limit`] says otherwise.
pub const DEFAULT_SHELL_LIMIT: Duration = Duration::from_secs(120);

/// How the shell's helper process is started: a program that calls [`exec_helper::run`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecHelper {
    /// The program: as a rule the one that is running.
    pub program: PathBuf,
    /// Arguments that lead it to [`exec_helper::run`].
    pub args: Vec<OsString>,
}

/// What the built-in tools need to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolsConfig {
    /// Starts the shell's helper.
    pub exec_helper: ExecHelper,
    /// Longest run of a shell line.
    pub shell_limit: Duration,
    /// The port that this server listens on: a shell line that talks to it is an escalation, as is one that
    /// talks to the usual port.
    pub control_port: Option<u16>,
    /// The folder with the server's own data, absolute and canonical: secret to read, never written by the
    /// file tools, wherever it lies.
    pub data_dir: Option<PathBuf>,
}

impl ToolsConfig {
    /// Returns the defaults with a helper: no port but the usual one, no data folder.
    pub fn new(exec_helper: ExecHelper) -> Self {
        Self { exec_helper, shell_limit: DEFAULT_SHELL_LIMIT, control_port: None, data_dir: None }
    }
}

/// Returns every built-in tool; a new one is a line here.
pub fn builtin(config: ToolsConfig) -> Vec<Arc<dyn Tool>> {
    let own = OwnFolder::new(config.data_dir.clone());
    vec![
        Arc::new(read::FileRead::new(own.clone())),
        Arc::new(write::FileWrite::new(own.clone())),
        Arc::new(list::ListDir::new(own.clone())),
        Arc::new(grep::Grep::new(own)),
        Arc::new(shell::Shell::new(config)),
    ]
}

/// Runs work that waits for disks on a thread that may wait. A panic in it is a failed result.
async fn blocking(work: impl FnOnce() -> ToolOutcome + Send + 'static) -> ToolOutcome {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        tracing::error!(%error, "a tool stopped unexpectedly");
        ToolOutcome::error("the tool stopped unexpectedly; this is a defect of the server")
    })
}

/// Rates on a thread that may wait for disks. What can't be rated is a call that nobody can judge.
async fn blocking_rating(tool: &'static str, work: impl FnOnce() -> Rating + Send + 'static) -> Rating {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        tracing::error!(tool, %error, "rating a call stopped unexpectedly");
        args::unreadable(tool, "the call could not be looked at".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_tool_has_a_valid_unique_name_and_a_closed_schema() {
        let helper = ExecHelper { program: PathBuf::from("/nonexistent"), args: Vec::new() };
        let tools = builtin(ToolsConfig::new(helper));
        let mut names = HashSet::new();
        for tool in &tools {
            let spec = tool.spec();
            assert!((1..=64).contains(&spec.name.len()), "{}", spec.name);
            assert!(spec.name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b)));
            assert!(names.insert(spec.name.clone()), "two tools are called {}", spec.name);
            assert_eq!(spec.schema["type"], "object", "{}", spec.name);
            assert_eq!(spec.schema["additionalProperties"], false, "{}", spec.name);
            assert!(jsonschema::meta::is_valid(&spec.schema), "{}", spec.name);
        }
        assert_eq!(names.len(), 5);
    }
}
