//! Decodes a Chat Completions stream: bytes in, step events out, the whole reply at the end. Pure: no
//! clock, no IO, and cut anywhere the bytes give the same events.

use tns_server_core::engine::{StepOutcome, StepStop, StepUsage};

use super::chunk::{CallDelta, Chunk, Delta, Usage};
use crate::sse::SseDecoder;
use crate::step::reply::Reply;
use crate::step::{Decoder, Events, NewId, Progress, StreamFault, framing};

/// The decoder of one answer.
#[derive(Debug)]
pub(super) struct StreamDecoder {
    sse: SseDecoder,
    answer: Answer,
}

/// What is known of the answer so far.
#[derive(Debug, Default)]
struct Answer {
    /// The model that was asked for.
    asked: String,
    model: String,
    reply: Reply,
    /// The wire's index of each call of `reply`.
    indexes: Vec<Option<i64>>,
    usage: Option<Usage>,
    /// The provider's word for why it stopped; empty until it came.
    finish_reason: String,
    refused: bool,
    /// The end mark came.
    done: bool,
}

impl StreamDecoder {
    /// Makes a decoder; `asked` is the model that was asked for.
    pub(super) fn new(asked: &str) -> Self {
        let answer = Answer { asked: asked.to_owned(), ..Answer::default() };
        Self { sse: SseDecoder::default(), answer }
    }
}

impl Decoder for StreamDecoder {
    fn push(&mut self, bytes: &[u8], events: &mut Events) -> Result<Progress, StreamFault> {
        framing::push(&mut self.sse, bytes, |data| self.answer.read(data, events))
    }

    fn end(&mut self, events: &mut Events) -> Result<(), StreamFault> {
        framing::end(&mut self.sse, |data| self.answer.read(data, events))?;
        if self.answer.done || !self.answer.finish_reason.is_empty() {
            return Ok(());
        }
        Err(StreamFault::Incomplete)
    }

    fn could_end(&self) -> bool {
        !self.answer.finish_reason.is_empty()
    }

    fn whole(&mut self, body: &str, events: &mut Events) -> Result<(), StreamFault> {
        self.answer.read(body, events)?;
        if self.answer.finish_reason.is_empty() {
            return Err(StreamFault::Incomplete);
        }
        Ok(())
    }

    fn usage(&self) -> StepUsage {
        let Some(usage) = &self.answer.usage else { return StepUsage::default() };
        StepUsage {
            input: usage.input(),
            cached_input: usage.cached_input(),
            output: usage.output(),
            ..StepUsage::default()
        }
    }

    fn finish(&mut self, new_id: &mut NewId<'_>) -> Result<StepOutcome, StreamFault> {
        let usage = self.usage();
        let answer = std::mem::take(&mut self.answer);
        Ok(StepOutcome {
            stop: answer.stop(),
            parts: answer.reply.into_parts(new_id)?,
            model: if answer.model.is_empty() { answer.asked } else { answer.model },
            usage,
            native: None,
        })
    }
}

impl Answer {
    /// Reads one event; done at the end mark.
    fn read(&mut self, data: &str, events: &mut Events) -> Result<Progress, StreamFault> {
        let data = data.trim();
        if data.eq_ignore_ascii_case("[DONE]") {
            self.done = true;
            return Ok(Progress::Done);
        }
        if data.is_empty() {
            return Ok(Progress::More);
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
            return Ok(Progress::More);
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
        Ok(Progress::More)
    }

    fn add(&mut self, delta: Delta<'_>, events: &mut Events) -> Result<(), StreamFault> {
        // Some servers send the same reasoning under both names.
        let reasoning =
            if delta.reasoning_content.0.is_empty() { delta.reasoning.0 } else { delta.reasoning_content.0 };
        self.reply.reasoning(&reasoning, events)?;
        self.refused |= !delta.refusal.0.is_empty();
        self.reply.text(&delta.content.0, events)?;
        self.reply.text(&delta.refusal.0, events)?;
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
            Place::New => {
                self.indexes.push(delta.index);
                self.reply.open_call()?
            }
        };
        self.reply.identify(at, &delta.id.0)?;
        self.reply.name(at, name, events)?;
        self.reply.arguments(at, &arguments)
    }

    /// Finds the call that a piece belongs to: by index, else by id, else the one opened last.
    fn place(&self, delta: &CallDelta<'_>, name: &str, arguments: &str) -> Place {
        let id = delta.id.0.trim();
        let calls = self.reply.calls();
        let last = calls.len().checked_sub(1);
        let known = if let Some(index) = delta.index {
            self.indexes.iter().rposition(|known| *known == Some(index))
        } else if id.is_empty() {
            last
        } else {
            let by_id = calls.iter().rposition(|call| call.id == id);
            // Some servers make a new id for every piece; what has no name opens no call.
            if name.is_empty() { by_id.or(last) } else { by_id }
        };
        let Some((at, call)) = known.and_then(|at| Some((at, calls.get(at)?))) else {
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

    fn stop(&self) -> StepStop {
        match self.finish_reason.as_str() {
            _ if self.refused => StepStop::Refusal,
            "content_filter" => StepStop::Refusal,
            "length" => StepStop::MaxTokens,
            _ if self.reply.has_calls() => StepStop::ToolUse,
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

#[cfg(test)]
mod tests;
