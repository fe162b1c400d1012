//! Decodes a Gemini stream: bytes in, step events out, the whole reply at the end. Pure: no clock, no
//! IO, and cut anywhere the bytes give the same events. The stream has no end mark but its own end
//! after a finish reason.

use serde_json::value::RawValue;
use tns_server_core::engine::{StepOutcome, StepStop, StepUsage};

use super::event::{Candidate, Event, FunctionCall, Part, Usage};
use super::name::from_wire;
use super::native::Blocks;
use crate::sse::SseDecoder;
use crate::step::reply::Reply;
use crate::step::{Decoder, Events, NewId, Progress, StreamFault, framing};

/// Reasons with which the provider refuses an answer.
const REFUSALS: [&str; 7] =
    ["SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE", "IMAGE_SAFETY"];

/// The decoder of one reply.
#[derive(Debug)]
pub(super) struct StreamDecoder {
    sse: SseDecoder,
    answer: Answer,
}

/// What is known of the reply so far.
#[derive(Debug, Default)]
struct Answer {
    /// The model that was asked for.
    asked: String,
    /// The one that answers.
    model: String,
    reply: Reply,
    blocks: Blocks,
    usage: Usage,
    /// The last that came was reasoning: a summary now and then, with silence between.
    thinks: bool,
    stop: Option<StepStop>,
}

impl StreamDecoder {
    pub(super) fn new(asked: &str) -> Self {
        let answer = Answer { asked: asked.to_owned(), ..Answer::default() };
        Self { sse: SseDecoder::default(), answer }
    }
}

impl Decoder for StreamDecoder {
    fn push(&mut self, bytes: &[u8], events: &mut Events) -> Result<Progress, StreamFault> {
        framing::push(&mut self.sse, bytes, |data| self.answer.read(data, events).map(|()| Progress::More))
    }

    fn end(&mut self, events: &mut Events) -> Result<(), StreamFault> {
        framing::end(&mut self.sse, |data| self.answer.read(data, events).map(|()| Progress::Done))?;
        self.answer.stop.map(drop).ok_or(StreamFault::Incomplete)
    }

    /// A server or proxy that does not know `alt=sse` sends the events as one JSON list.
    fn whole(&mut self, body: &str, events: &mut Events) -> Result<(), StreamFault> {
        if body.trim_start().starts_with('[') {
            for event in serde_json::from_str::<Vec<&RawValue>>(body).map_err(|error| unreadable(&error))? {
                self.answer.read(event.get(), events)?;
            }
        } else {
            self.answer.read(body, events)?;
        }
        self.answer.stop.map(drop).ok_or(StreamFault::Incomplete)
    }

    fn could_end(&self) -> bool {
        self.answer.stop.is_some()
    }

    fn thinks_silently(&self) -> bool {
        self.answer.thinks
    }

    fn usage(&self) -> StepUsage {
        self.answer.usage.counted()
    }

    fn finish(&mut self, new_id: &mut NewId<'_>) -> Result<StepOutcome, StreamFault> {
        let Answer { asked, model, reply, blocks, usage, stop, .. } = std::mem::take(&mut self.answer);
        let stop = match stop.ok_or(StreamFault::Incomplete)? {
            StepStop::End if reply.has_calls() => StepStop::ToolUse,
            stop => stop,
        };
        let native = blocks.into_native(&asked).map_err(|error| unreadable(&error))?;
        let model = if model.is_empty() { asked } else { model };
        let usage = usage.counted();
        Ok(StepOutcome { parts: reply.into_parts(new_id)?, model, stop, usage, native })
    }
}

impl Answer {
    fn read(&mut self, data: &str, events: &mut Events) -> Result<(), StreamFault> {
        let data = data.trim();
        if data.is_empty() {
            return Ok(());
        }
        let event: Event<'_> = serde_json::from_str(data).map_err(|error| unreadable(&error))?;
        if event.error.is_some() {
            return Err(StreamFault::Refused(data.to_owned()));
        }
        if let Some(model) = event.model_version.filter(|_| self.model.is_empty()) {
            self.model = model;
        }
        if let Some(usage) = event.usage_metadata {
            self.usage.update(usage);
        }
        if event.prompt_feedback.and_then(|feedback| feedback.block_reason).is_some() {
            self.stop = Some(StepStop::Refusal);
        }
        let mut candidates = event.candidates.unwrap_or_default().into_iter();
        match candidates.find(|candidate| candidate.index.unwrap_or_default() == 0) {
            Some(candidate) => self.add(candidate, events),
            None => Ok(()),
        }
    }

    fn add(&mut self, candidate: Candidate<'_>, events: &mut Events) -> Result<(), StreamFault> {
        for raw in candidate.content.and_then(|content| content.parts).unwrap_or_default() {
            let part: Part<'_> = serde_json::from_str(raw.get()).map_err(|error| unreadable(&error))?;
            let kept = self.blocks.add(raw, &part).map_err(|error| unreadable(&error))?;
            self.reply.count(kept)?;
            self.thinks = part.thought == Some(true);
            if let Some(call) = part.function_call {
                self.add_call(&call, events)?;
            }
            let text = part.text.unwrap_or_default();
            match part.thought {
                Some(true) => self.reply.reasoning(&text, events)?,
                Some(false) | None => self.reply.text(&text, events)?,
            }
        }
        match candidate.finish_reason {
            Some(reason) => self.finished(&reason, &candidate.finish_message.unwrap_or_default()),
            None => Ok(()),
        }
    }

    fn add_call(&mut self, call: &FunctionCall<'_>, events: &mut Events) -> Result<(), StreamFault> {
        let at = self.reply.open_call()?;
        self.reply.name(at, from_wire(call.name.as_deref().unwrap_or_default()), events)?;
        // The provider's id, where it gives one, goes back with the part as it came.
        self.reply.arguments(at, call.args.map_or("", RawValue::get))
    }

    fn finished(&mut self, reason: &str, message: &str) -> Result<(), StreamFault> {
        let stop = match reason {
            "FINISH_REASON_UNSPECIFIED" => return Ok(()),
            "STOP" => StepStop::End,
            "MAX_TOKENS" => StepStop::MaxTokens,
            _ if REFUSALS.contains(&reason) => StepStop::Refusal,
            // A slip of the model, such as `MALFORMED_FUNCTION_CALL`: another try often goes well. What
            // came can't pass for a whole answer.
            _ if message.is_empty() => return Err(StreamFault::Slip(reason.to_owned())),
            _ => return Err(StreamFault::Slip(format!("{reason}: {message}"))),
        };
        self.stop = Some(stop);
        Ok(())
    }
}

fn unreadable(error: &serde_json::Error) -> StreamFault {
    StreamFault::Unreadable(error.to_string())
}

#[cfg(test)]
mod tests;
