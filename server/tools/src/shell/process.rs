//! Starting the helper, reading what the command says, and ending it: in time, when cancelled, and when the
//! call is dropped. It holds bounded memory whatever the command prints, and shows it as it comes.

use std::ffi::OsString;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tns_server_core::tool::{LiveOutput, ToolOutcome, ToolRun};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStderr, Command};
use tokio::time::{Instant, timeout};

use super::environment;
use crate::ExecHelper;
use crate::exec_helper::COMMAND_VAR;
use crate::output::{self, Collected};

/// How long the helper has to end everything before it is killed itself.
const HELPER_GRACE: Duration = Duration::from_millis(400);

/// How long output is still read after the helper's end, where something holds the pipe that it could not
/// end; on Linux nothing does.
const DRAIN_GRACE: Duration = Duration::from_millis(100);

/// Bytes read at a time: a pipe's own size on Linux.
const READ_BYTES: usize = 64 << 10;

/// Why a command's run ended.
#[derive(Debug)]
enum End {
    Exited(ExitStatus),
    Cancelled,
    OutOfTime,
}

/// What a command says: shown as it comes, and kept for the outcome.
struct Said {
    live: LiveOutput,
    kept: Collected,
}

impl Said {
    fn push(&mut self, bytes: &[u8]) {
        self.live.write(bytes);
        self.kept.push(bytes);
    }
}

/// Runs a command and returns its output. Dropping the future ends the command too: the helper's
/// lifeline closes with it.
pub(super) async fn run(helper: &ExecHelper, command: &str, limit: Duration, call: &ToolRun) -> ToolOutcome {
    let deadline = Instant::now() + limit;
    if call.cancel.is_cancelled() {
        return ToolOutcome::error("[cancelled before it started]");
    }
    let mut child = match start(helper, command, call.workspace.root()) {
        Ok(child) => child,
        Err(error) => return ToolOutcome::error(format!("the shell's helper could not be started: {error}")),
    };
    let (lifeline, Some(mut pipe)) = (child.stdin.take(), child.stderr.take()) else {
        return ToolOutcome::error("the shell's helper has no output pipe");
    };
    let session = child.id();
    let mut said = Said { live: call.live.clone(), kept: Collected::default() };
    let end = tokio::select! {
        status = follow(&mut child, &mut pipe, &mut said) => match status {
            Ok(status) => End::Exited(status),
            Err(error) => return ToolOutcome::error(format!("the shell's helper was lost: {error}")),
        },
        () = call.cancel.cancelled() => End::Cancelled,
        () = tokio::time::sleep_until(deadline) => End::OutOfTime,
    };
    drop(lifeline);
    if !matches!(end, End::Exited(_)) {
        let ended = timeout(HELPER_GRACE, follow(&mut child, &mut pipe, &mut said)).await;
        if !matches!(ended, Ok(Ok(_))) {
            tracing::warn!(session, "the shell's helper did not end in time and is killed");
            // It is ours and not reaped; a failure means that it has just ended.
            let _ = child.start_kill();
            let _ = timeout(HELPER_GRACE, child.wait()).await;
            end_session(session);
        }
    } else if let End::Exited(status) = &end
        && status.code().is_none()
    {
        end_session(session);
    }
    outcome(end, said.kept.into_text(), limit)
}

fn start(helper: &ExecHelper, command: &str, root: &Path) -> std::io::Result<Child> {
    let lookup = |name: &str| -> Option<OsString> { std::env::var_os(name) };
    Command::new(&helper.program)
        .args(&helper.args)
        .env_clear()
        .envs(environment::clean(lookup, root))
        .env(COMMAND_VAR, command)
        .current_dir(root)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
}

/// Collects output until the helper has ended and all of it is read.
async fn follow(child: &mut Child, pipe: &mut ChildStderr, said: &mut Said) -> std::io::Result<ExitStatus> {
    let mut chunk = vec![0; READ_BYTES];
    let status = loop {
        tokio::select! {
            read = pipe.read(&mut chunk) => match read? {
                0 => return child.wait().await,
                count => said.push(&chunk[..count]),
            },
            status = child.wait() => break status?,
        }
    };
    let drained = timeout(DRAIN_GRACE, async {
        while let Ok(count @ 1..) = pipe.read(&mut chunk).await {
            said.push(&chunk[..count]);
        }
    });
    if drained.await.is_err() {
        tracing::warn!("something that a command started still holds its output");
    }
    Ok(status)
}

fn outcome(end: End, text: String, limit: Duration) -> ToolOutcome {
    let last = match end {
        End::Exited(status) if status.success() => return ToolOutcome::ok(text),
        End::Exited(status) => match status.code() {
            Some(code) => format!("[exit status {code}]"),
            None => "[the shell's helper was killed]".to_owned(),
        },
        End::Cancelled => "[cancelled; everything it started was ended]".to_owned(),
        End::OutOfTime => {
            format!("[over the time limit of {} ms; everything it started was ended]", limit.as_millis())
        }
    };
    let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    ToolOutcome::error(output::cap(format!("{text}{gap}{last}")))
}

/// Ends what a dead helper left: the processes of its session. What made a session of its own is not found.
fn end_session(session: Option<u32>) {
    #[cfg(target_os = "linux")]
    if let Some(session) = session {
        for process in processes_where(|stat| stat.session == session) {
            // It may have ended in between.
            let _ = nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGKILL);
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = session;
}

/// What is known of a process: fields 4 and 6 of `/proc/PID/stat`.
#[cfg(target_os = "linux")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessStat {
    /// Its parent's id.
    pub(crate) parent: u32,
    /// Its session's id.
    pub(crate) session: u32,
}

/// Returns the processes that fit.
#[cfg(target_os = "linux")]
pub(crate) fn processes_where(fits: impl Fn(ProcessStat) -> bool) -> Vec<nix::unistd::Pid> {
    let listed = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    listed
        .filter_map(|entry| {
            let id: i32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = parse_stat(&std::fs::read_to_string(entry.path().join("stat")).ok()?)?;
            fits(stat).then(|| nix::unistd::Pid::from_raw(id))
        })
        .collect()
}

/// Reads a line of `/proc/PID/stat`; the name in it may hold spaces and parentheses.
#[cfg(target_os = "linux")]
fn parse_stat(line: &str) -> Option<ProcessStat> {
    let (_, fields) = line.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(1);
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    Some(ProcessStat { parent, session })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_whatever_the_name() {
        let line = "77 (a) b) (c) S 12 34 56 0 -1 4194304";
        assert_eq!(parse_stat(line), Some(ProcessStat { parent: 12, session: 56 }));
        assert_eq!(parse_stat("77 (short"), None);
    }
}
