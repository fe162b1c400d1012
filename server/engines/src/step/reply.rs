//! A reply while it is written: text and calls in the model's order, each within its limit. Pure, and
//! the one place that reads a call's arguments.

use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tns_protocol::ToolCallId;
use tns_server_core::engine::StepEvent;
use tns_server_core::message::{Part, ToolCall};

use super::{Events, NewId, StreamFault};

/// Most bytes of text, reasoning and arguments of one reply.
pub(crate) const MAX_REPLY_BYTES: usize = 32 << 20;
/// Most tool calls of one reply.
pub(crate) const MAX_CALLS: usize = 128;
/// Deepest nesting of a call's arguments; tools and stores need not read deeper ones.
pub(crate) const MAX_ARGUMENT_DEPTH: usize = 64;

/// The name of a call whose name never came, so that it can be stored and sent back.
pub(crate) const UNNAMED: &str = "unnamed";

/// What was written so far.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    pieces: Vec<Piece>,
    calls: Vec<OpenCall>,
    bytes: usize,
}

#[derive(Debug)]
enum Piece {
    Text(String),
    /// A place in the list of calls.
    Call(usize),
}

/// A call whose arguments are being written.
#[derive(Debug, Default)]
pub(crate) struct OpenCall {
    /// The provider's own id; empty while none came.
    pub(crate) id: String,
    /// The tool's name; empty while none came.
    pub(crate) name: String,
    /// JSON text, as far as it came.
    pub(crate) arguments: String,
}

impl Reply {
    /// Adds a piece of text and tells of it.
    ///
    /// # Errors
    /// Beyond [`MAX_REPLY_BYTES`].
    pub(crate) fn text(&mut self, text: &str, events: &mut Events) -> Result<(), StreamFault> {
        if text.is_empty() {
            return Ok(());
        }
        self.count(text.len())?;
        match self.pieces.last_mut() {
            Some(Piece::Text(last)) => last.push_str(text),
            _ => self.pieces.push(Piece::Text(text.to_owned())),
        }
        events.push_back(StepEvent::Text(text.to_owned()));
        Ok(())
    }

    /// Tells of a piece of reasoning, which is no part of the reply.
    ///
    /// # Errors
    /// Beyond [`MAX_REPLY_BYTES`].
    pub(crate) fn reasoning(&mut self, text: &str, events: &mut Events) -> Result<(), StreamFault> {
        if text.is_empty() {
            return Ok(());
        }
        self.count(text.len())?;
        events.push_back(StepEvent::Reasoning(text.to_owned()));
        Ok(())
    }

    /// Opens a call and returns its place; the other methods add to it.
    ///
    /// # Errors
    /// Beyond [`MAX_CALLS`].
    pub(crate) fn open_call(&mut self) -> Result<usize, StreamFault> {
        if self.calls.len() == MAX_CALLS {
            return Err(StreamFault::TooLarge("more than 128 tool calls"));
        }
        self.pieces.push(Piece::Call(self.calls.len()));
        self.calls.push(OpenCall::default());
        Ok(self.calls.len() - 1)
    }

    /// Gives a call the provider's own id, unless it has one.
    ///
    /// # Errors
    /// Beyond [`MAX_REPLY_BYTES`].
    pub(crate) fn identify(&mut self, at: usize, id: &str) -> Result<(), StreamFault> {
        let id = id.trim();
        if self.calls.get(at).is_none_or(|call| !call.id.is_empty()) {
            return Ok(());
        }
        self.count(id.len())?;
        if let Some(call) = self.calls.get_mut(at) {
            call.id.push_str(id);
        }
        Ok(())
    }

    /// Gives a call its name, unless it has one, and tells of it.
    ///
    /// # Errors
    /// Beyond [`MAX_REPLY_BYTES`].
    pub(crate) fn name(&mut self, at: usize, name: &str, events: &mut Events) -> Result<(), StreamFault> {
        let name = name.trim();
        self.count(name.len())?;
        if let Some(call) = self.calls.get_mut(at)
            && call.name.is_empty()
            && !name.is_empty()
        {
            call.name.push_str(name);
            events.push_back(StepEvent::ToolStart { name: name.to_owned() });
        }
        Ok(())
    }

    /// Adds a piece of a call's arguments.
    ///
    /// # Errors
    /// Beyond [`MAX_REPLY_BYTES`].
    pub(crate) fn arguments(&mut self, at: usize, piece: &str) -> Result<(), StreamFault> {
        self.count(piece.len())?;
        if let Some(call) = self.calls.get_mut(at) {
            call.arguments.push_str(piece);
        }
        Ok(())
    }

    /// Puts the whole of a call's arguments in place of what came in pieces.
    ///
    /// # Errors
    /// Beyond [`MAX_REPLY_BYTES`].
    pub(crate) fn set_arguments(&mut self, at: usize, whole: &str) -> Result<(), StreamFault> {
        if let Some(call) = self.calls.get_mut(at) {
            call.arguments.clear();
        }
        self.arguments(at, whole)
    }

    /// Counts bytes that are kept beside the reply, such as a provider's own blocks.
    ///
    /// # Errors
    /// Beyond [`MAX_REPLY_BYTES`].
    pub(crate) fn count(&mut self, bytes: usize) -> Result<(), StreamFault> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_REPLY_BYTES {
            return Err(StreamFault::TooLarge("a reply of more than 32 MiB"));
        }
        Ok(())
    }

    /// Returns the calls so far, in order.
    pub(crate) fn calls(&self) -> &[OpenCall] {
        &self.calls
    }

    /// Whether the model wants a tool.
    pub(crate) fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Returns the finished parts; `new_id` makes the ids of the calls.
    ///
    /// # Errors
    /// When no id can be made.
    pub(crate) fn into_parts(self, new_id: &mut NewId<'_>) -> Result<Vec<Part>, StreamFault> {
        let mut parts = Vec::with_capacity(self.pieces.len());
        let mut seen_ids = Vec::new();
        for piece in self.pieces {
            match piece {
                Piece::Text(text) => parts.push(Part::Text(text)),
                Piece::Call(at) => {
                    let Some(call) = self.calls.get(at) else { continue };
                    let id = new_id().map_err(|error| StreamFault::Unreadable(error.to_string()))?;
                    // An id that names two calls could not be answered.
                    let own_id =
                        (!call.id.is_empty() && !seen_ids.contains(&call.id)).then(|| call.id.clone());
                    seen_ids.extend(own_id.clone());
                    parts.push(Part::ToolCall(call.close(id, own_id)));
                }
            }
        }
        Ok(parts)
    }
}

impl OpenCall {
    /// Whether name and arguments are complete.
    pub(crate) fn is_whole(&self) -> bool {
        !self.name.is_empty()
            && self.arguments.trim_start().starts_with('{')
            && serde_json::from_str::<IgnoredAny>(&self.arguments).is_ok()
    }

    /// Returns the arguments as they came, if they are usable.
    pub(crate) fn argument_object(&self) -> Option<Box<RawValue>> {
        read_arguments(&self.arguments).ok()?;
        RawValue::from_string(self.arguments.clone()).ok()
    }

    fn close(&self, id: ToolCallId, provider_id: Option<String>) -> ToolCall {
        let (args, problem) = match read_arguments(&self.arguments) {
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

/// Whether a call's arguments can be used, as they came; no text at all means none.
pub(crate) fn are_usable(arguments: &str) -> bool {
    read_arguments(arguments).is_ok()
}

/// Reads a call's arguments; no text at all means none.
///
/// # Errors
/// What is wrong with them, as the model is told.
pub(crate) fn read_arguments(text: &str) -> Result<Map<String, Value>, String> {
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
