//! The lines of an Ollama answer: how they are told apart, and what one holds. Lenient by intent, and
//! it decides nothing.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::sse::MAX_EVENT_BYTES;
use crate::step::{Progress, StreamFault};

/// Most bytes of one line of an answer; as with events, a longer one ends the stream.
pub(super) const MAX_LINE_BYTES: usize = MAX_EVENT_BYTES;

/// How long a line may be.
#[derive(Debug)]
pub(super) struct LineLimit {
    pub(super) bytes: usize,
    /// What a longer one is called.
    pub(super) beyond: &'static str,
}

/// The limit of an answer's lines.
const ANSWER: LineLimit = LineLimit { bytes: MAX_LINE_BYTES, beyond: "a line of more than 8 MiB" };

/// Turns a byte stream, cut anywhere, into lines. A byte that is not UTF-8 becomes one U+FFFD.
#[derive(Debug)]
pub(super) struct Lines {
    /// The begun line.
    begun: Vec<u8>,
    limit: LineLimit,
}

/// The lines of an answer.
impl Default for Lines {
    fn default() -> Self {
        Self::within(ANSWER)
    }
}

impl Lines {
    /// Begins with another limit than that of an answer.
    pub(super) fn within(limit: LineLimit) -> Self {
        Self { begun: Vec::new(), limit }
    }

    /// Gives each whole line that is not blank to `read`, until it fails or is done.
    ///
    /// # Errors
    /// What `read` failed with, or a line beyond the limit.
    pub(super) fn push(
        &mut self,
        bytes: &[u8],
        mut read: impl FnMut(&str) -> Result<Progress, StreamFault>,
    ) -> Result<Progress, StreamFault> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let end = memchr::memchr(b'\n', rest);
            let (head, tail) = rest.split_at(end.unwrap_or(rest.len()));
            let ends = end.is_some();
            rest = tail.get(1..).unwrap_or_default();
            if self.begun.len() + head.len() > self.limit.bytes {
                return Err(StreamFault::TooLarge(self.limit.beyond));
            }
            self.begun.extend_from_slice(head);
            if ends && self.end_line(&mut read)? == Progress::Done {
                return Ok(Progress::Done);
            }
        }
        Ok(Progress::More)
    }

    /// The connection ended: reads a line that nothing ended. One that can't be read was cut, and
    /// counts as absent.
    ///
    /// # Errors
    /// What `read` failed with.
    pub(super) fn end(
        &mut self,
        mut read: impl FnMut(&str) -> Result<Progress, StreamFault>,
    ) -> Result<Progress, StreamFault> {
        match self.end_line(&mut read) {
            Err(StreamFault::Unreadable(_)) => Ok(Progress::More),
            ended => ended,
        }
    }

    fn end_line(
        &mut self,
        read: &mut impl FnMut(&str) -> Result<Progress, StreamFault>,
    ) -> Result<Progress, StreamFault> {
        let text = String::from_utf8_lossy(&self.begun);
        let ended = if text.trim().is_empty() { Ok(Progress::More) } else { read(text.trim()) };
        self.begun.clear();
        ended
    }
}

/// A piece of the answer, or an error in place of it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Line<'a> {
    pub(super) model: Option<String>,
    #[serde(borrow)]
    pub(super) message: Option<Message<'a>>,
    /// The last line.
    pub(super) done: Option<bool>,
    pub(super) done_reason: Option<String>,
    /// Input tokens of the whole step; absent where all were cached.
    pub(super) prompt_eval_count: Option<u64>,
    /// Output tokens of the whole step.
    pub(super) eval_count: Option<u64>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// What a line adds.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Message<'a> {
    pub(super) content: Option<String>,
    pub(super) thinking: Option<String>,
    #[serde(borrow)]
    pub(super) tool_calls: Option<Vec<ToolCall<'a>>>,
}

/// A call of a tool, always whole.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ToolCall<'a> {
    #[serde(borrow)]
    pub(super) function: Option<Function<'a>>,
}

/// The function of a [`ToolCall`].
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Function<'a> {
    pub(super) name: Option<String>,
    /// An object; from some servers that speak this format, its text in a string.
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
}

impl Function<'_> {
    /// Returns the arguments as JSON text.
    pub(super) fn argument_text(&self) -> String {
        let raw = self.arguments.map_or("", RawValue::get);
        serde_json::from_str::<String>(raw).unwrap_or_else(|_| raw.to_owned())
    }
}
