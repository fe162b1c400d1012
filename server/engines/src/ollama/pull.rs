//! Decodes what Ollama tells while it pulls a model (`POST /api/pull`): lines of JSON in, statuses out, until
//! `success`. Pure: no clock, no IO, and cut anywhere the bytes give the same statuses. `request` asks.

use serde::Deserialize;
use serde_json::Deserializer;
use serde_json::value::RawValue;

use super::line::{LineLimit, Lines};
use crate::http::one_line;
use crate::step::{Progress, StreamFault};

mod request;

pub use request::{PullError, pull};

/// Most bytes of one line; those of Ollama have some hundred.
const MAX_LINE_BYTES: usize = 64 << 10;
/// Most characters of a status that are shown.
const MAX_STATUS_CHARS: usize = 200;
/// The status that ends a pull.
const SUCCESS: &str = "success";

/// What Ollama does at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullStatus {
    /// In its own words, such as `pulling manifest`: one line of at most 200 characters, without control
    /// characters.
    pub text: String,
    /// How far it is with the file that it gets, where it tells.
    pub layer: Option<LayerBytes>,
}

/// How far one file of a model is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerBytes {
    /// Bytes that came; never more than `total`.
    pub completed: u64,
    /// Bytes of the whole.
    pub total: u64,
}

/// The decoder of one pull.
#[derive(Debug)]
struct PullDecoder {
    lines: Lines,
}

/// A line. Lenient by intent: Ollama leaves out what is zero.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Line<'a> {
    status: Option<String>,
    /// Bytes; below zero where they are not known.
    total: Option<i64>,
    completed: Option<i64>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

impl PullDecoder {
    fn new() -> Self {
        let limit = LineLimit { bytes: MAX_LINE_BYTES, beyond: "a line of more than 64 KiB" };
        Self { lines: Lines::within(limit) }
    }

    /// Reads what came and gives each status to `tell`; [`Progress::Done`] once the model is there.
    ///
    /// # Errors
    /// [`StreamFault::Refused`] with the line that holds an error; a line that can't be read or is too long.
    fn push(&mut self, bytes: &[u8], tell: &mut impl FnMut(PullStatus)) -> Result<Progress, StreamFault> {
        self.lines.push(bytes, |line| read(line, tell))
    }

    /// The connection ended.
    ///
    /// # Errors
    /// As [`Self::push`], and [`StreamFault::Incomplete`] where `success` did not come.
    fn end(&mut self, tell: &mut impl FnMut(PullStatus)) -> Result<(), StreamFault> {
        match self.lines.end(|line| read(line, tell))? {
            Progress::Done => Ok(()),
            Progress::More => Err(StreamFault::Incomplete),
        }
    }
}

/// Reads one line, or several that were glued.
fn read(text: &str, tell: &mut impl FnMut(PullStatus)) -> Result<Progress, StreamFault> {
    for line in Deserializer::from_str(text).into_iter::<Line<'_>>() {
        let line = line.map_err(|error| StreamFault::Unreadable(error.to_string()))?;
        if line.error.is_some() {
            return Err(StreamFault::Refused(text.to_owned()));
        }
        let status = line.status.as_deref().unwrap_or_default();
        if status == SUCCESS {
            return Ok(Progress::Done);
        }
        let text = one_line(status, MAX_STATUS_CHARS);
        if !text.is_empty() {
            tell(PullStatus { text, layer: layer(&line) });
        }
    }
    Ok(Progress::More)
}

fn layer(line: &Line<'_>) -> Option<LayerBytes> {
    let total = u64::try_from(line.total?).ok().filter(|total| *total > 0)?;
    let completed = u64::try_from(line.completed.unwrap_or_default()).unwrap_or_default();
    Some(LayerBytes { completed: completed.min(total), total })
}

#[cfg(test)]
mod tests;
