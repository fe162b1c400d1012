//! How risky a shell line is, from its text alone: pure, no disk, no process.
//!
//! One rule: it may only err upwards. A line is understood when it is one known program with known options
//! and plain words ([`words`], [`programs`]). Everything else is `UNKNOWN`, and if such a line mentions a
//! change of privilege or this server's own controls it is `ESCALATION` ([`escalation`]).

mod builds;
mod escalation;
mod programs;
mod words;

use std::path::Path;

use tns_protocol::approval::RiskClass;
use tns_server_core::tool::Rating;

use tns_server_core::visible;
use words::Lexed;

pub(super) use escalation::ADDRESS_FILE;

/// Longest line that is looked at for being understood, in bytes; a longer one is `UNKNOWN` at least.
const MAX_RATED_BYTES: usize = 64 << 10;

/// Longest run of spaces that does not earn a remark.
const MAX_SPACES: usize = 40;

/// Length from which a remark says how long a command is, in bytes.
const LONG_BYTES: usize = 4 << 10;

/// What a line was found to be.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    class: RiskClass,
    reason: String,
    key: Option<String>,
    reads: Reads,
}

/// What an understood line reads, as it names it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Reads {
    /// Its paths.
    pub(super) paths: Vec<String>,
    /// Where a path is a folder, what of it is read; `None`: nothing.
    pub(super) beneath: Option<Beneath>,
}

/// Which files beneath a folder are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Beneath {
    pub(super) which: Which,
    /// Only those with one of these endings, in small letters.
    pub(super) only: Option<Vec<String>>,
}

/// How a program walks a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    /// Every file.
    All,
    /// Those that are neither hidden nor ignored.
    Shown,
}

/// How this server can be reached from here, which a tool may not do.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Controls<'a> {
    /// The port that it listens on.
    pub(super) port: Option<u16>,
    /// The folder with its own data, where a file tells that port.
    pub(super) folder: Option<&'a Path>,
}

impl Finding {
    fn new(class: RiskClass, reason: impl Into<String>) -> Self {
        Self { class, reason: reason.into(), key: None, reads: Reads::default() }
    }
}

/// Rates a shell line by its text. Links and what exists on disk are not known here.
pub fn rate_command(command: &str) -> Rating {
    look(command, &Controls::default()).0
}

/// Rates a shell line and says what it reads where it is understood.
pub(super) fn look(command: &str, controls: &Controls<'_>) -> (Rating, Reads) {
    let finding = find(command, controls);
    let shown = visible::render(command);
    let mut rating = Rating::new(finding.class, finding.reason, shown.text);
    rating.key = finding.key;
    if shown.escaped > 0 {
        rating
            .reasons
            .push(format!("{} hidden or misleading characters are shown as escapes", shown.escaped));
    }
    if shown.line_breaks > 0 {
        rating.reasons.push(format!("it has {} lines", command.lines().count()));
    }
    if command.len() > LONG_BYTES {
        rating.reasons.push(format!("it is {} bytes long", command.len()));
    }
    let spaces = command.split(|c: char| c != ' ').map(str::len).max().unwrap_or(0);
    if spaces > MAX_SPACES {
        rating.reasons.push(format!("it has {spaces} spaces in a row"));
    }
    (rating, finding.reads)
}

fn find(command: &str, controls: &Controls<'_>) -> Finding {
    let understood = if command.len() > MAX_RATED_BYTES {
        Err(format!("it is longer than {MAX_RATED_BYTES} bytes"))
    } else {
        match words::lex(command) {
            Lexed::Words(words) => programs::rate(&words),
            Lexed::Opaque(reason) => Err(reason.to_owned()),
        }
    };
    match understood {
        Ok(finding) => finding,
        // Only what is not understood is scanned for words: `grep sudo docs` is understood and harmless.
        Err(reason) => match escalation::find(command, controls) {
            Some(reason) => Finding::new(RiskClass::Escalation, reason),
            None => Finding::new(RiskClass::Unknown, reason),
        },
    }
}

#[cfg(test)]
mod tests;
