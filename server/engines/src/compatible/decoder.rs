//! Decodes a Chat Completions stream: bytes in, step events out, the whole reply at the end. Pure: no
//! clock, no IO, and cut anywhere the bytes give the same events.

use std::ops::ControlFlow;

use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use tns_protocol::{InvalidId, ToolCallId};
use tns_server_core::engine::{StepEvent, StepOutcome, StepStop, StepUsage};
use tns_server_core::message::{Part, ToolCall};

use super::Events;
use super::chunk::{CallDelta, Chunk, Delta, Usage};
use crate::sse::{EventTooLong, SseDecoder};

/// Most bytes of text, reasoning and arguments of one reply.
pub(super) const MAX_REPLY_BYTES: usize = 32 << 20;
/// Most tool calls of one reply.
pub(super) const MAX_CALLS: usize = 128;
/// Deepest nesting of a call's arguments; tools and stores need not read deeper ones.
pub(super) const MAX_ARGUMENT_DEPTH: usize = 64;

/// The name of a call whose name never came, so that it can be stored and sent back.
const UNNAMED: &str = "unnamed";

/// Whether the stream goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    More,
    Done,
}

/// Why a stream is of no further use.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StreamFault {
    /// An error in place of the reply: its body.
    Refused(String),
    /// It ended before its end mark.
    Incomplete,
    /// An event is not what it should be.
    Unreadable(String),
    /// Something goes beyond its limit.
    TooLarge(&'static str),
}

impl From<EventTooLong> for StreamFault {
    fn from(_: EventTooLong) -> Self {
        Self::TooLarge("an event of more than 8 MiB")
    }
}

/// The decoder of one reply.
#[derive(Debug, Default)]
pub(super) struct StreamDecoder {
    sse: SseDecoder,
    reply: Reply,
}

/// What is known of the reply so far.
#[derive(Debug, Default)]
struct Reply {
    model: String,
    pieces: Vec<Piece>,
    calls: Vec<OpenCall>,
    usage: Option<Usage>,
    /// The provider's word for why it stopped; empty until it came.
    finish_reason: String,
    refused: bool,
    /// The end mark came.
    done: bool,
    bytes: usize,
}

#[derive(Debug)]
enum Piece {
    Text(String),
    /// A place in the list of calls.
    Call(usize),
}

#[derive(Debug, Default)]
struct OpenCall {
    index: Option<i64>,
    id: String,
    name: String,
    arguments: String,
}

impl StreamDecoder {
    /// Decodes bytes as they come.
    ///
    /// # Errors
    /// [`StreamFault`]; `events` holds what came before it.
    pub(super) fn push(&mut self, bytes: &[u8], events: &mut Events) -> Result<Progress, StreamFault> {
        let reply = &mut self.reply;
        let mut fault = None;
        let flow = self.sse.push(bytes, |data| {
            reply.read(data, events).unwrap_or_else(|found| {
                fault = Some(found);
                ControlFlow::Break(())
            })
        })?;
        match fault {
            Some(fault) => Err(fault),
            None if flow.is_break() => Ok(Progress::Done),
            None => Ok(Progress::More),
        }
    }

    /// The connection ended.
    ///
    /// # Errors
    /// [`StreamFault::Incomplete`] when neither an end mark nor a finish reason came.
    pub(super) fn end(&mut self, events: &mut Events) -> Result<(), StreamFault> {
        let reply = &mut self.reply;
        let mut fault = None;
        let _ = self.sse.finish(|data| {
            match reply.read(data, events) {
                // The last event was cut.
                Ok(_) | Err(StreamFault::Unreadable(_)) => {}
                Err(found) => fault = Some(found),
            }
            ControlFlow::Break(())
        });
        match fault {
            Some(fault) => Err(fault),
            None if self.reply.done || !self.reply.finish_reason.is_empty() => Ok(()),
            None => Err(StreamFault::Incomplete),
        }
    }

    /// Decodes an answer that came whole.
    ///
    /// # Errors
    /// [`StreamFault`], as for a stream.
    pub(super) fn whole(&mut self, body: &str, events: &mut Events) -> Result<(), StreamFault> {
        let _ = self.reply.read(body, events)?;
        if self.reply.finish_reason.is_empty() {
            return Err(StreamFault::Incomplete);
        }
        Ok(())
    }

    /// Returns the whole reply, once the stream is done. `asked` is the model that was asked for,
    /// `new_id` makes the ids of its tool calls.
    ///
    /// # Errors
    /// [`StreamFault`] when no id can be made.
    pub(super) fn finish(
        &mut self,
        asked: &str,
        mut new_id: impl FnMut() -> Result<ToolCallId, InvalidId>,
    ) -> Result<StepOutcome, StreamFault> {
        let reply = std::mem::take(&mut self.reply);
        let stop = reply.stop();
        let mut parts = Vec::with_capacity(reply.pieces.len());
        let mut seen_ids = Vec::new();
        for piece in reply.pieces {
            match piece {
                Piece::Text(text) => parts.push(Part::Text(text)),
                Piece::Call(at) => {
                    let Some(call) = reply.calls.get(at) else { continue };
                    let id = new_id().map_err(|error| StreamFault::Unreadable(error.to_string()))?;
                    // An id that names two calls could not be answered.
                    let own_id =
                        (!call.id.is_empty() && !seen_ids.contains(&call.id)).then(|| call.id.clone());
                    seen_ids.extend(own_id.clone());
                    parts.push(Part::ToolCall(call.close(id, own_id)));
                }
            }
        }
        let usage = reply.usage.unwrap_or_default();
        Ok(StepOutcome {
            parts,
            model: if reply.model.is_empty() { asked.to_owned() } else { reply.model },
            stop,
            usage: StepUsage {
                input: usage.input(),
                cached_input: usage.cached_input(),
                output: usage.output(),
                cost: None,
            },
            native: None,
        })
    }
}

impl Reply {
    /// Reads one event; breaks at the end mark.
    fn read(&mut self, data: &str, events: &mut Events) -> Result<ControlFlow<()>, StreamFault> {
        let data = data.trim();
        if data.eq_ignore_ascii_case("[DONE]") {
            self.done = true;
            return Ok(ControlFlow::Break(()));
        }
        if data.is_empty() {
            return Ok(ControlFlow::Continue(()));
        }
        let chunk: Chunk<'_> =
            serde_json::from_str(data).map_err(|error| StreamFault::Unreadable(error.to_string()))?;
        let is_bare_error = chunk.choices.is_none()
            && chunk.usage.is_none()
            && (!chunk.message.0.is_empty() || chunk.detail.is_some());
        if chunk.error.is_some() || is_bare_error {
            return Err(StreamFault::Refused(data.to_owned()));
        }
        if self.model.is_empty() {
            self.model.push_str(&chunk.model.0);
        }
        if let Some(usage) = chunk.usage.and_then(|usage| serde_json::from_str(usage.get()).ok()) {
            self.usage = Some(usage);
        }
        let Some(choice) = chunk.choices.and_then(|choices| choices.0) else {
            return Ok(ControlFlow::Continue(()));
        };
        if let Some(delta) = choice.delta.or(choice.message) {
            self.add(delta, events)?;
        }
        if !choice.finish_reason.0.is_empty() && self.finish_reason.is_empty() {
            if choice.finish_reason.0 == "error" {
                return Err(StreamFault::Refused(data.to_owned()));
            }
            self.finish_reason = choice.finish_reason.0.into_owned();
        }
        Ok(ControlFlow::Continue(()))
    }

    fn add(&mut self, delta: Delta<'_>, events: &mut Events) -> Result<(), StreamFault> {
        // Some servers send the same reasoning under both names.
        let reasoning =
            if delta.reasoning_content.0.is_empty() { delta.reasoning.0 } else { delta.reasoning_content.0 };
        if !reasoning.is_empty() {
            self.count(reasoning.len())?;
            events.push_back(StepEvent::Reasoning(reasoning.into_owned()));
        }
        self.refused |= !delta.refusal.0.is_empty();
        for text in [delta.content.0, delta.refusal.0] {
            if text.is_empty() {
                continue;
            }
            self.count(text.len())?;
            match self.pieces.last_mut() {
                Some(Piece::Text(last)) => last.push_str(&text),
                _ => self.pieces.push(Piece::Text(text.clone().into_owned())),
            }
            events.push_back(StepEvent::Text(text.into_owned()));
        }
        // A second finish chunk repeats calls that are complete.
        if self.finish_reason.is_empty() {
            for call in delta.tool_calls.iter().flatten() {
                self.add_call(call, events)?;
            }
        }
        Ok(())
    }

    fn add_call(&mut self, delta: &CallDelta<'_>, events: &mut Events) -> Result<(), StreamFault> {
        let function = delta.function.as_ref();
        let arguments = function.map(|function| function.argument_text()).unwrap_or_default();
        let name = function.map_or("", |function| function.name.0.trim());
        let at = match self.place(delta, name, &arguments) {
            Place::At(at) => at,
            Place::Repeated => return Ok(()),
            Place::New if self.calls.len() == MAX_CALLS => {
                return Err(StreamFault::TooLarge("more than 128 tool calls"));
            }
            Place::New => {
                self.pieces.push(Piece::Call(self.calls.len()));
                self.calls.push(OpenCall { index: delta.index, ..OpenCall::default() });
                self.calls.len() - 1
            }
        };
        self.count(name.len() + arguments.len())?;
        let Some(call) = self.calls.get_mut(at) else { return Ok(()) };
        if call.id.is_empty() {
            call.id.push_str(delta.id.0.trim());
        }
        if call.name.is_empty() && !name.is_empty() {
            call.name.push_str(name);
            events.push_back(StepEvent::ToolStart { name: name.to_owned() });
        }
        call.arguments.push_str(&arguments);
        Ok(())
    }

    /// Finds the call that a piece belongs to: by index, else by id, else the one opened last.
    fn place(&self, delta: &CallDelta<'_>, name: &str, arguments: &str) -> Place {
        let id = delta.id.0.trim();
        let last = self.calls.len().checked_sub(1);
        let known = if let Some(index) = delta.index {
            self.calls.iter().rposition(|call| call.index == Some(index))
        } else if id.is_empty() {
            last
        } else {
            let by_id = self.calls.iter().rposition(|call| call.id == id);
            // Some servers make a new id for every piece; what has no name opens no call.
            if name.is_empty() { by_id.or(last) } else { by_id }
        };
        let Some((at, call)) = known.and_then(|at| Some((at, self.calls.get(at)?))) else {
            return Place::New;
        };
        if name.is_empty() {
            return Place::At(at);
        }
        if !id.is_empty() && !call.id.is_empty() && id != call.id {
            // Some servers give every call the index 0.
            return Place::New;
        }
        match !arguments.is_empty() && call.is_whole() {
            true if id.is_empty() => Place::New,
            true => Place::Repeated,
            false => Place::At(at),
        }
    }

    fn count(&mut self, bytes: usize) -> Result<(), StreamFault> {
        self.bytes += bytes;
        if self.bytes > MAX_REPLY_BYTES {
            return Err(StreamFault::TooLarge("a reply of more than 32 MiB"));
        }
        Ok(())
    }

    fn stop(&self) -> StepStop {
        match self.finish_reason.as_str() {
            _ if self.refused => StepStop::Refusal,
            "content_filter" => StepStop::Refusal,
            "length" => StepStop::MaxTokens,
            _ if !self.calls.is_empty() => StepStop::ToolUse,
            _ => StepStop::End,
        }
    }
}

/// Where a piece of a call goes.
enum Place {
    New,
    At(usize),
    /// The call is complete; the piece says it again.
    Repeated,
}

impl OpenCall {
    /// Whether name and arguments are complete.
    fn is_whole(&self) -> bool {
        !self.name.is_empty()
            && self.arguments.trim_start().starts_with('{')
            && serde_json::from_str::<IgnoredAny>(&self.arguments).is_ok()
    }

    fn close(&self, id: ToolCallId, provider_id: Option<String>) -> ToolCall {
        let (args, problem) = match arguments(&self.arguments) {
            Ok(args) => (args, None),
            Err(problem) => (Map::new(), Some(problem)),
        };
        let (name, problem) = match self.name.as_str() {
            "" => (UNNAMED, Some("the call names no tool".to_owned())),
            name => (name, problem),
        };
        ToolCall { id, provider_id, name: name.to_owned(), args, problem }
    }
}

/// Reads a call's arguments; no text at all means none.
fn arguments(text: &str) -> Result<Map<String, Value>, String> {
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    if depth(text) > MAX_ARGUMENT_DEPTH {
        return Err(format!("the arguments are nested deeper than {MAX_ARGUMENT_DEPTH} levels"));
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(args)) => Ok(args),
        Ok(_) => Err("the arguments are no JSON object".to_owned()),
        Err(error) => Err(format!("the arguments are not valid JSON: {error}")),
    }
}

/// Returns how deep lists and objects are nested in JSON text.
fn depth(text: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_string, mut escaped) = (false, false);
    for byte in text.bytes() {
        match byte {
            _ if std::mem::take(&mut escaped) => {}
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests;
