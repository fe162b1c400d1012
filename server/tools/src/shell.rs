//! `shell`: one line of bash in the workspace root, rated by its text and run through a helper process.
//!
//! Each call is a fresh shell with a clean environment, no input and no terminal. The rating errs upwards
//! only: what it does not understand fully is `UNKNOWN`, and what mentions a change of privilege in text
//! that it does not understand is `ESCALATION`.

mod disk;
mod environment;
mod process;
pub(crate) mod rating;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::json;
use tns_server_core::tool::{Args, Rating, Tool, ToolOutcome, ToolRun, ToolSpec, Workspace};

use crate::guard::OwnFolder;
use crate::{ToolsConfig, args, blocking_rating};
#[cfg(target_os = "linux")]
pub(crate) use process::processes_where;
use rating::Controls;

/// Longest command that is run, in bytes: Linux takes 128 KiB in one argument, and the variable's name and
/// the end mark need room.
pub(crate) const MAX_COMMAND_BYTES: usize = (128 << 10) - 64;

/// Shortest time limit that may be asked for, in milliseconds.
const MIN_TIMEOUT_MS: u64 = 100;

/// Runs shell lines.
pub(crate) struct Shell {
    spec: Arc<ToolSpec>,
    config: ToolsConfig,
    own: OwnFolder,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ShellArgs {
    command: String,
    timeout_ms: Option<u64>,
}

impl Shell {
    pub(crate) fn new(config: ToolsConfig) -> Self {
        let most = u64::try_from(config.shell_limit.as_millis()).unwrap_or(u64::MAX).max(MIN_TIMEOUT_MS);
        let properties = json!({
            "command": {"type": "string", "minLength": 1, "maxLength": MAX_COMMAND_BYTES,
                "description": "The command line, as given to bash -c in the workspace root."},
            "timeoutMs": {"type": "integer", "minimum": MIN_TIMEOUT_MS, "maximum": most,
                "description": format!("Time limit in milliseconds; {most} if absent.")},
        });
        Self {
            spec: Arc::new(ToolSpec {
                name: "shell".to_owned(),
                description: "Runs one bash command line in the workspace root and returns its output, stdout \
                    and stderr in order. Each call is a fresh shell: no state, no input, no terminal. What is \
                    still running when the command ends is killed. Simple commands such as `ls src` or \
                    `cargo test` may run unasked; pipes, redirects, variables and globs ask first."
                    .to_owned(),
                schema: args::closed_object(properties, &["command"]),
            }),
            own: OwnFolder::new(config.data_dir.clone()),
            config,
        }
    }
}

#[async_trait]
impl Tool for Shell {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    fn limit(&self) -> Option<Duration> {
        Some(self.config.shell_limit)
    }

    async fn rate(&self, args: &Args, workspace: &Workspace) -> Rating {
        let args = match args::parse::<ShellArgs>(args) {
            Ok(args) => args,
            Err(problem) => return args::unreadable("shell", problem),
        };
        let (bounds, own, port) = (self.own.bounds(workspace), self.own.clone(), self.config.control_port);
        blocking_rating("shell", move || {
            let controls = Controls { port, folder: own.path() };
            let (mut rating, reads) = rating::look(&args.command, &controls);
            disk::raise(&mut rating, &reads, &bounds, &controls);
            rating
        })
        .await
    }

    async fn run(&self, run: ToolRun) -> ToolOutcome {
        let args = match args::parse::<ShellArgs>(&run.args) {
            Ok(args) => args,
            Err(problem) => return ToolOutcome::error(problem),
        };
        if args.command.len() > MAX_COMMAND_BYTES {
            return ToolOutcome::error(format!(
                "the command has more than {MAX_COMMAND_BYTES} bytes; write it to a file and run that"
            ));
        }
        if args.command.contains('\0') {
            return ToolOutcome::error("the command holds a NUL character, which no program can be given");
        }
        let asked = args.timeout_ms.map_or(run.limit, Duration::from_millis);
        let limit = asked.min(run.limit).min(self.config.shell_limit);
        process::run(&self.config.exec_helper, &args.command, limit, &run).await
    }
}

#[cfg(test)]
mod tests;
