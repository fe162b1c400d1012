//! Exit codes, and the one line that goes with a failure. The code comes from the error's kind.

use std::fmt;
use std::io;

use tns_client::ClientError;
use tns_protocol::ErrorCode;

/// Every way to end. The numbers are a promise to scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It failed.
    Failed,
    /// The command line or the configuration is wrong.
    Usage,
    /// The server can't be reached or started.
    Unreachable,
    /// The provider failed: key, credit, outage.
    Provider,
    /// A tool was needed and not allowed.
    NotAllowed,
    /// A limit of spending, rounds, length or time.
    Limit,
    /// What was named does not exist.
    NotFound,
    /// Stopped by a signal.
    Interrupted,
    /// Nobody reads the output any more.
    ClosedPipe,
}

impl Exit {
    /// Returns the number for the system.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Unreachable => 3,
            Self::Provider => 4,
            Self::NotAllowed => 5,
            Self::Limit => 6,
            Self::NotFound => 7,
            Self::Interrupted => 130,
            // What a shell reports for a program that the closed pipe's signal ends: 128 + SIGPIPE.
            Self::ClosedPipe => 141,
        }
    }

    /// Returns the way to end that fits an error of the server.
    pub(crate) fn of_code(code: ErrorCode) -> Self {
        match code {
            ErrorCode::BadKey
            | ErrorCode::NoCredit
            | ErrorCode::RateLimited
            | ErrorCode::ProviderUnavailable
            | ErrorCode::ProviderError
            | ErrorCode::StreamIncomplete
            | ErrorCode::ContextOverflow => Self::Provider,
            ErrorCode::RoundLimit | ErrorCode::SpendCap => Self::Limit,
            ErrorCode::AgentNotFound
            | ErrorCode::UnknownToolCall
            | ErrorCode::SessionNotFound
            | ErrorCode::NotFound => Self::NotFound,
            ErrorCode::ProtocolMismatch | ErrorCode::Unauthorized | ErrorCode::ServerRestarted => {
                Self::Unreachable
            }
            // No agent: its provider is unknown, or not set up.
            ErrorCode::InvalidAutonomyLevel | ErrorCode::InvalidDecision | ErrorCode::AgentAddFailed => {
                Self::Usage
            }
            ErrorCode::InvalidJson
            | ErrorCode::InvalidMessage
            | ErrorCode::UnknownType
            | ErrorCode::AgentRemoveFailed
            | ErrorCode::McpTimeout
            | ErrorCode::McpError
            | ErrorCode::KbError
            | ErrorCode::IndexFailed
            | ErrorCode::IndexBusy
            | ErrorCode::PayloadTooLarge
            | ErrorCode::QueueFull
            | ErrorCode::Limit
            | ErrorCode::StorageFull
            | ErrorCode::StorageBusy
            | ErrorCode::Forbidden
            | ErrorCode::NotImplemented
            | ErrorCode::Internal => Self::Failed,
        }
    }
}

/// A failure that is told to the user as it stands, with its way to end.
#[derive(Debug)]
pub(crate) struct Stop {
    exit: Exit,
    /// Absent where the failure was told already.
    message: Option<String>,
    /// The server's code, where the server refused.
    code: Option<ErrorCode>,
}

impl Stop {
    /// Ends with one line.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: Some(message.into()), code: None }
    }

    /// A wrong command line or configuration.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Ends without a line: everything was said.
    pub(crate) fn silent(exit: Exit) -> Self {
        Self { exit, message: None, code: None }
    }

    /// Ends with the server's own line, as its code asks.
    pub(crate) fn refused(code: Option<ErrorCode>, message: impl Into<String>) -> Self {
        Self { exit: code.map_or(Exit::Failed, Exit::of_code), message: Some(message.into()), code }
    }

    /// Returns the code of the server that refused.
    pub(crate) fn code(&self) -> Option<ErrorCode> {
        self.code
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message.as_deref().unwrap_or_default())
    }
}

impl std::error::Error for Stop {}

/// Returns the way to end that an error asks for.
pub(crate) fn of(error: &anyhow::Error) -> Exit {
    for cause in error.chain() {
        if let Some(stop) = cause.downcast_ref::<Stop>() {
            return stop.exit;
        }
        if let Some(client) = cause.downcast_ref::<ClientError>() {
            return match client {
                ClientError::Refused { code, .. } => Exit::of_code(*code),
                ClientError::Unreachable(_) | ClientError::Protocol(_) | ClientError::Closed => {
                    Exit::Unreachable
                }
                ClientError::TooLarge { .. } => Exit::Usage,
                ClientError::TooManySessions => Exit::Failed,
            };
        }
        if cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe) {
            return Exit::ClosedPipe;
        }
    }
    Exit::Failed
}

/// What is said in place of the system's words, which tell nobody what to do.
const FULL_DISK: &str = "the disk is full; free some space and try again";

/// Returns the line for the user; `None` where nothing is left to say.
pub(crate) fn describe(error: &anyhow::Error) -> Option<String> {
    if of(error) == Exit::ClosedPipe {
        return None;
    }
    let mut causes: Vec<String> = Vec::new();
    for cause in error.chain() {
        let text = match cause.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => FULL_DISK.to_owned(),
            Some(_) | None => cause.to_string(),
        };
        // A cause that its effect has quoted already says nothing new.
        if !text.is_empty() && !causes.iter().any(|earlier| earlier.contains(&text)) {
            causes.push(text);
        }
    }
    if causes.is_empty() {
        return None;
    }
    let text = causes.join(": ");
    // The server's words, and our own for the user, are sentences already.
    let whole = error.chain().next().is_some_and(|top| {
        top.is::<Stop>() || matches!(top.downcast_ref(), Some(ClientError::Refused { .. }))
    });
    let text = if whole { text } else { format!("failed to {text}") };
    let unreachable =
        error.chain().any(|cause| matches!(cause.downcast_ref(), Some(ClientError::Unreachable(_))));
    Some(if unreachable {
        format!("{text}; start one with `tns serve`, or leave --server out")
    } else {
        text
    })
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    fn refused(code: ErrorCode) -> ClientError {
        ClientError::Refused { status: 404, code, message: "no session x".into() }
    }

    #[test]
    fn the_code_comes_from_the_kind_however_deep_it_is() {
        let cases: Vec<(anyhow::Error, u8)> = vec![
            (anyhow::anyhow!("x"), 1),
            (Stop::usage("x").into(), 2),
            (ClientError::Unreachable("x".into()).into(), 3),
            (refused(ErrorCode::AgentAddFailed).into(), 2),
            (refused(ErrorCode::NoCredit).into(), 4),
            (Stop::silent(Exit::NotAllowed).into(), 5),
            (refused(ErrorCode::SpendCap).into(), 6),
            (refused(ErrorCode::SessionNotFound).into(), 7),
            (Stop::silent(Exit::Interrupted).into(), 130),
            (io::Error::from(io::ErrorKind::BrokenPipe).into(), 141),
        ];
        for (error, code) in cases {
            let error = error.context("do it").context("do more");
            assert_eq!(of(&error).code(), code, "{error:#}");
        }
    }

    #[test]
    fn the_line_reads_as_a_sentence() {
        let error = anyhow::Error::from(io::Error::other("disk full")).context("write the answer");
        assert_eq!(describe(&error).unwrap(), "failed to write the answer: disk full");
        let error = anyhow::Error::from(Stop::usage("--port needs a number"));
        assert_eq!(describe(&error).unwrap(), "--port needs a number");
        assert_eq!(describe(&refused(ErrorCode::NotFound).into()).unwrap(), "no session x");
        let error = anyhow::Error::from(refused(ErrorCode::NotFound)).context("show the session");
        assert_eq!(describe(&error).unwrap(), "failed to show the session: no session x");
        let error: anyhow::Error = ClientError::Unreachable("http://h:1: connection refused".into()).into();
        assert_eq!(
            describe(&error).unwrap(),
            "failed to reach the server: http://h:1: connection refused; start one with `tns serve`, or leave --server out"
        );
    }

    #[test]
    fn a_full_disk_is_named_with_what_to_do() {
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded] {
            let error = anyhow::Error::from(io::Error::from(kind)).context("write /d/server.json");
            assert_eq!(
                describe(&error).unwrap(),
                "failed to write /d/server.json: the disk is full; free some space and try again"
            );
        }
    }

    #[test]
    fn a_closed_pipe_and_a_silent_stop_say_nothing() {
        let closed: anyhow::Result<()> =
            Err(io::Error::from(io::ErrorKind::BrokenPipe)).context("write the answer");
        assert_eq!(describe(&closed.unwrap_err()), None);
        assert_eq!(describe(&Stop::silent(Exit::Provider).into()), None);
    }
}
