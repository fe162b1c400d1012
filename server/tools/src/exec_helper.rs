//! The helper process between the server and a shell line: it makes sure that nothing outlives the call.
//!
//! The server starts its own program again so that it calls [`run`]. The contract between the two:
//!
//! * The command stands in the environment variable `TNS_EXEC_COMMAND`; the rest of the environment and the
//!   working folder are the command's own.
//! * Standard input is a lifeline. The server writes nothing to it; when it closes, since the call was
//!   cancelled, dropped, or the server itself is gone however it died, everything that the command started
//!   is killed at once. A parent-death signal would not do: it fires when the *thread* that started the
//!   helper ends, and a runtime's threads come and go.
//! * Standard error is the command's standard output and standard error, in one pipe and so in order.
//! * The exit status is the shell's: its code, or 128 plus the signal that ended it, or
//!   125 with a sentence on the output.
//!
//! On Linux the helper is a child subreaper: what is orphaned below it, by `setsid` or a double fork too,
//! becomes its child and is killed before it exits. Elsewhere it kills the command's process group.
//! It takes no privileges that a set-user-id program would add, on Linux.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, setsid};

/// Holds the command.
pub(crate) const COMMAND_VAR: &str = "TNS_EXEC_COMMAND";

/// The exit status where the command could not be started.
pub(crate) const FAILED_TO_START: u8 = 125;

/// Added to a signal's number for the exit status, as shells do.
const SIGNAL_BASE: i32 = 128;

/// The shell: it reads no start-up file and gets the command as it is.
const SHELL: [&str; 4] = ["bash", "--noprofile", "--norc", "-c"];

/// What the main thread waits for. At most one of each kind is sent by a thread, so the channel never fills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// The shell ended with this exit status.
    ShellEnded(u8),
    /// The lifeline closed or a signal asks to end.
    Stop,
    /// No child is left.
    NoneLeft,
}

/// Room for the events of the three threads.
const EVENTS: usize = 4;

/// Runs the command that the environment names, and returns when nothing of it is left.
///
/// The program calls it first thing, before it starts any thread, and exits with what it returns.
pub fn run() -> ExitCode {
    ExitCode::from(run_status())
}

fn run_status() -> u8 {
    match supervise() {
        Ok(status) => status,
        Err(error) => {
            // The output pipe is all there is to say it on; if it is closed nobody listens.
            let _ = writeln!(io::stderr(), "the command could not be started: {error}");
            FAILED_TO_START
        }
    }
}

fn supervise() -> io::Result<u8> {
    let command = std::env::var_os(COMMAND_VAR)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no command was given"))?;
    // A leader of a group already can't make a session, and needs none.
    match setsid() {
        Ok(_) | Err(Errno::EPERM) => {}
        Err(error) => return Err(error.into()),
    }
    let asked_to_end = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]);
    // Threads inherit the mask; the standard library gives children an empty one.
    asked_to_end.thread_block()?;
    #[cfg(target_os = "linux")]
    {
        nix::sys::prctl::set_child_subreaper(true)?;
        nix::sys::prctl::set_no_new_privs()?;
    }

    let shell = start_shell(&command)?;
    let (events, inbox) = sync_channel(EVENTS);
    spawn("lifeline", {
        let events = events.clone();
        move || watch_lifeline(&events)
    })?;
    spawn("signals", {
        let events = events.clone();
        move || watch_signals(asked_to_end, &events)
    })?;
    children::watch(shell, events)?;
    Ok(wait(&inbox, shell))
}

/// Names a thread; it is not joined, since it waits for what may never come and ends with the process.
fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(body).map(drop)
}

fn start_shell(command: &OsString) -> io::Result<Pid> {
    let output = io::stderr();
    let [program, options @ ..] = SHELL;
    let shell = Command::new(program)
        .args(options)
        .arg(command)
        .env_remove(COMMAND_VAR)
        .stdin(Stdio::null())
        .stdout(output.as_fd().try_clone_to_owned()?)
        .stderr(output.as_fd().try_clone_to_owned()?)
        .process_group(0)
        .spawn()?;
    let id = i32::try_from(shell.id()).map_err(|_| io::Error::other("the shell has no process id"))?;
    Ok(Pid::from_raw(id))
}

fn watch_lifeline(events: &SyncSender<Event>) {
    let mut lifeline = io::stdin();
    let mut ignored = [0; 64];
    loop {
        match lifeline.read(&mut ignored) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    // The inbox is gone only when the process is about to be.
    let _ = events.send(Event::Stop);
}

fn watch_signals(asked_to_end: SigSet, events: &SyncSender<Event>) {
    if asked_to_end.wait().is_ok() {
        let _ = events.send(Event::Stop);
    }
}

/// Waits for the shell's end or the order to stop, ends what is left, and returns the exit status.
fn wait(inbox: &Receiver<Event>, shell: Pid) -> u8 {
    let killed = u8::try_from(SIGNAL_BASE + Signal::SIGKILL as i32).unwrap_or(u8::MAX);
    let status = match inbox.recv() {
        Ok(Event::ShellEnded(status)) => status,
        Ok(Event::Stop | Event::NoneLeft) | Err(_) => killed,
    };
    children::end_all(inbox, shell);
    status
}

fn exit_status(code: i32) -> u8 {
    u8::try_from(code & 0xFF).unwrap_or(u8::MAX)
}

fn signal_status(signal: Signal) -> u8 {
    exit_status(SIGNAL_BASE + signal as i32)
}

/// Children on Linux, where orphans come to the subreaper.
#[cfg(target_os = "linux")]
mod children {
    use std::collections::BTreeSet;
    use std::io;
    use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
    use std::sync::{Mutex, PoisonError};
    use std::time::Duration;

    use nix::errno::Errno;
    use nix::sys::signal::{Signal, kill};
    use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
    use nix::unistd::Pid;

    use super::{Event, exit_status, signal_status, spawn};

    /// Pause between two rounds of killing: each round reaches one generation deeper.
    const ROUND: Duration = Duration::from_millis(2);

    /// Held while a child is reaped or killed, so that a process id can't pass to another process between
    /// finding it and killing it.
    static GATE: Mutex<()> = Mutex::new(());

    /// Reaps every child, orphans included, and reports the shell's end and the end of the last one.
    pub(super) fn watch(shell: Pid, events: SyncSender<Event>) -> io::Result<()> {
        spawn("children", move || {
            while let Some(ended) = next_ended() {
                let gate = GATE.lock().unwrap_or_else(PoisonError::into_inner);
                let reaped = waitpid(ended, Some(WaitPidFlag::WNOHANG));
                drop(gate);
                let status = match reaped {
                    Ok(WaitStatus::Exited(pid, code)) if pid == shell => exit_status(code),
                    Ok(WaitStatus::Signaled(pid, signal, _)) if pid == shell => signal_status(signal),
                    _ => continue,
                };
                let _ = events.send(Event::ShellEnded(status));
            }
            let _ = events.send(Event::NoneLeft);
        })
    }

    /// Waits until a child has ended and leaves it unreaped; `None` when there is no child.
    fn next_ended() -> Option<Pid> {
        loop {
            match waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {
                Ok(status) => {
                    if let Some(pid) = status.pid() {
                        return Some(pid);
                    }
                }
                Err(Errno::EINTR) => {}
                Err(_) => return None,
            }
        }
    }

    /// Kills children until none is left; theirs become children of this process and follow.
    pub(super) fn end_all(inbox: &Receiver<Event>, _shell: Pid) {
        loop {
            {
                let _gate = GATE.lock().unwrap_or_else(PoisonError::into_inner);
                for child in own_children() {
                    // It may have ended by itself; it is not reaped yet, so the id is still its own.
                    let _ = kill(child, Signal::SIGKILL);
                }
            }
            match inbox.recv_timeout(ROUND) {
                Ok(Event::NoneLeft) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(Event::ShellEnded(_) | Event::Stop) | Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Returns this process's children from the kernel's list, or where it has none by asking each process.
    fn own_children() -> BTreeSet<Pid> {
        let mut found = BTreeSet::new();
        let mut listed = false;
        for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
            if let Ok(text) = std::fs::read_to_string(task.path().join("children")) {
                listed = true;
                found.extend(text.split_whitespace().filter_map(|id| id.parse().ok()).map(Pid::from_raw));
            }
        }
        if !listed {
            let own = std::process::id();
            found.extend(crate::shell::processes_where(|stat| stat.parent == own));
        }
        found
    }
}

/// Children elsewhere: the shell's process group.
#[cfg(not(target_os = "linux"))]
mod children {
    use std::io;
    use std::sync::mpsc::{Receiver, SyncSender};

    use nix::errno::Errno;
    use nix::sys::signal::{Signal, killpg};
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::Pid;

    use super::{Event, exit_status, signal_status, spawn};

    pub(super) fn watch(shell: Pid, events: SyncSender<Event>) -> io::Result<()> {
        spawn("children", move || {
            let status = loop {
                match waitpid(shell, None) {
                    Ok(WaitStatus::Exited(_, code)) => break exit_status(code),
                    Ok(WaitStatus::Signaled(_, signal, _)) => break signal_status(signal),
                    Ok(_) | Err(Errno::EINTR) => {}
                    Err(_) => break super::FAILED_TO_START,
                }
            };
            let _ = events.send(Event::ShellEnded(status));
        })
    }

    pub(super) fn end_all(_inbox: &Receiver<Event>, shell: Pid) {
        // The group may be empty by now.
        let _ = killpg(shell, Signal::SIGKILL);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Not a test of its own: other tests start this test binary with this name to get a helper.
    #[test]
    fn helper_entry() {
        if std::env::var_os(COMMAND_VAR).is_some() {
            std::process::exit(i32::from(run_status()));
        }
    }

    /// Returns how to start this test binary as a helper.
    pub(crate) fn test_helper() -> crate::ExecHelper {
        let args = ["--exact", "exec_helper::tests::helper_entry", "--nocapture", "--quiet"];
        crate::ExecHelper {
            program: std::env::current_exe().unwrap(),
            args: args.into_iter().map(Into::into).collect(),
        }
    }
}
