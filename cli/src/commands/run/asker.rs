//! Approvals on the terminal: asks on standard error, reads one letter and Enter from the terminal itself.
//! Where nobody can be asked, the answer is no.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;

use anyhow::Context as _;
use nix::fcntl::OFlag;
use tns_protocol::ToolCallId;
use tns_protocol::approval::{Decision, ToolApproveRequest};
use tokio::net::unix::pipe;

use crate::commands::run::turn::Rejecter;
use crate::commands::run::{OnAsk, question};
use crate::exit::Stop;
use crate::output::Output;

/// The terminal of the process, whatever its standard streams are.
const TERMINAL: &str = "/dev/tty";
/// Bytes of one answer; a longer one is none.
const MAX_ANSWER_BYTES: usize = 4 << 10;

/// A decision about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) call: ToolCallId,
    pub(super) decision: Decision,
    pub(super) reason: Option<String>,
    /// Whose decision it is, if it is a no.
    pub(super) by: Rejecter,
}

/// How requests are answered.
#[derive(Debug)]
enum How {
    Terminal(Terminal),
    Deny,
    Wait,
}

/// Answers requests one after the other.
#[derive(Debug)]
pub(super) struct Asker {
    how: How,
    waiting: VecDeque<ToolApproveRequest>,
}

impl Asker {
    /// Chooses how: as told, else on the terminal if there is one, else no.
    ///
    /// # Errors
    /// A usage [`Stop`] when asking is demanded and there is no terminal.
    pub(super) fn new(on_ask: Option<OnAsk>, out: &Output) -> Result<Self, Stop> {
        let how = match on_ask {
            Some(OnAsk::Deny) => How::Deny,
            Some(OnAsk::Wait) => How::Wait,
            None | Some(OnAsk::Ask) => match (out.asks_on_stderr().then(Terminal::open), on_ask) {
                (Some(Ok(terminal)), _) => How::Terminal(terminal),
                (Some(Err(_)) | None, None) => How::Deny,
                (Some(Err(_)) | None, Some(_)) => {
                    return Err(Stop::usage("--on-ask ask needs a terminal; choose deny or wait"));
                }
            },
        };
        Ok(Self { how, waiting: VecDeque::new() })
    }

    /// Takes a request. The answer comes now where nobody is asked, else from [`Self::answer`].
    pub(super) fn ask(&mut self, request: ToolApproveRequest, out: &Output) -> Option<Answer> {
        match &mut self.how {
            How::Terminal(terminal) => {
                if self.waiting.iter().any(|waiting| waiting.tool_call_id == request.tool_call_id) {
                    return None;
                }
                self.waiting.push_back(request);
                if self.waiting.len() == 1 {
                    terminal.discard();
                    self.show(out);
                }
                None
            }
            How::Deny => {
                out.note(&question(&request));
                Some(Answer {
                    call: request.tool_call_id,
                    decision: Decision::Reject,
                    reason: Some("nobody can be asked: the command runs without a terminal".into()),
                    by: Rejecter::Nobody,
                })
            }
            How::Wait => {
                out.note(&question(&request));
                out.note("waiting for another client of the session to decide");
                None
            }
        }
    }

    /// Waits for the answer to the oldest request; for ever when there is none. Cancel safe.
    ///
    /// # Errors
    /// When the terminal can't be read.
    pub(super) async fn answer(&mut self, out: &Output) -> anyhow::Result<Answer> {
        loop {
            let (How::Terminal(terminal), Some(request)) = (&mut self.how, self.waiting.front()) else {
                return std::future::pending().await;
            };
            let line = terminal.line().await.context("read the terminal")?;
            let (decided, by) = match &line {
                Some(line) => (decide(line, request.always_covers.is_some()), Rejecter::Person),
                // The terminal is gone: nobody can be asked.
                None => (Some((Decision::Reject, Some("the terminal was closed".into()))), Rejecter::Nobody),
            };
            let Some((decision, reason)) = decided else {
                out.ask(keys(request));
                continue;
            };
            let Some(request) = self.waiting.pop_front() else { continue };
            self.show(out);
            return Ok(Answer { call: request.tool_call_id, decision, reason, by });
        }
    }

    /// Forgets a request that was decided, here or elsewhere.
    pub(super) fn settled(&mut self, call: &ToolCallId, out: &Output) {
        let asked = self.waiting.front().is_some_and(|request| request.tool_call_id == *call);
        self.waiting.retain(|request| request.tool_call_id != *call);
        if asked {
            out.warn("\ndecided elsewhere");
            self.show(out);
        }
    }

    /// Forgets every request: the turn is being cancelled.
    pub(super) fn forget_all(&mut self, out: &Output) {
        if !self.waiting.is_empty() {
            self.waiting.clear();
            out.warn("");
        }
    }

    fn show(&self, out: &Output) {
        if let Some(request) = self.waiting.front() {
            out.warn(&question(request));
            out.ask(keys(request));
        }
    }
}

fn keys(request: &ToolApproveRequest) -> &'static str {
    if request.always_covers.is_some() { "a approve, A always, r reject: " } else { "a approve, r reject: " }
}

/// Reads an answer: a letter, and behind `r` a reason. `None` is no answer; there is no default.
fn decide(line: &str, always_covers: bool) -> Option<(Decision, Option<String>)> {
    let line = line.trim();
    match line {
        "a" => Some((Decision::Approve, None)),
        "A" if always_covers => Some((Decision::Always, None)),
        "r" => Some((Decision::Reject, None)),
        _ => {
            let reason = line.strip_prefix("r ")?.trim();
            Some((Decision::Reject, Some(reason.to_owned())))
        }
    }
}

/// The terminal, read without blocking through a file of its own, so that no other program's view of it
/// changes.
#[derive(Debug)]
struct Terminal {
    source: Source,
    typed: Vec<u8>,
}

#[derive(Debug)]
enum Source {
    /// Opened, before the runtime runs.
    Opened(File),
    /// Registered with the runtime, whose type for pipes reads whatever can be waited for.
    Registered(pipe::Receiver),
    /// Nothing can be read any more.
    Ended,
}

impl Terminal {
    fn open() -> io::Result<Self> {
        let file = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(TERMINAL)?;
        Ok(Self { source: Source::Opened(file), typed: Vec::new() })
    }

    fn register(&mut self) -> io::Result<()> {
        self.source = match std::mem::replace(&mut self.source, Source::Ended) {
            Source::Opened(file) => Source::Registered(pipe::Receiver::from_file_unchecked(file)?),
            registered @ Source::Registered(_) => registered,
            Source::Ended => Source::Ended,
        };
        Ok(())
    }

    /// Throws away what was typed before the question: it can't be its answer.
    fn discard(&mut self) {
        self.typed.clear();
        let mut scrap = [0; 1024];
        loop {
            let read = match &mut self.source {
                Source::Opened(file) => file.read(&mut scrap),
                Source::Registered(receiver) => receiver.try_read(&mut scrap),
                Source::Ended => return,
            };
            if !read.is_ok_and(|bytes| bytes > 0) {
                return;
            }
        }
    }

    /// Waits for a line; `None` at the end of the terminal. Cancel safe: what was typed stays.
    async fn line(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(end) = self.typed.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.typed.drain(..=end).collect();
                return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
            }
            self.register()?;
            let Source::Registered(receiver) = &self.source else { return Ok(None) };
            receiver.readable().await?;
            let mut buffer = [0; 1024];
            match receiver.try_read(&mut buffer) {
                Ok(0) => self.source = Source::Ended,
                Ok(read) => self.typed.extend_from_slice(&buffer[..read]),
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
            if self.typed.len() > MAX_ANSWER_BYTES {
                self.typed.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_letters_decide() {
        assert_eq!(decide("a\n", false), Some((Decision::Approve, None)));
        assert_eq!(decide("A\n", true), Some((Decision::Always, None)));
        assert_eq!(decide("r\n", false), Some((Decision::Reject, None)));
        assert_eq!(decide("r not that one\n", false), Some((Decision::Reject, Some("not that one".into()))));
        for line in ["\n", "y\n", "aa\n", "R\n", "rm\n", "a r\n"] {
            assert_eq!(decide(line, true), None, "{line:?}");
        }
    }

    #[test]
    fn always_needs_something_that_it_would_cover() {
        assert_eq!(decide("A\n", false), None);
    }
}
