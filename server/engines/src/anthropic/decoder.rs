//! Decodes a Messages stream: bytes in, step events out, the whole reply at the end. Pure: no clock, no
//! IO, and cut anywhere the bytes give the same events.

use std::sync::Arc;

use serde_json::value::{RawValue, to_raw_value};
use tns_server_core::engine::{StepOutcome, StepStop, StepUsage};
use tns_server_core::message::Native;

use super::PROVIDER;
use super::event::{Delta, Event, Fields, Usage};
use crate::sse::SseDecoder;
use crate::step::reply::{MAX_CALLS, Reply};
use crate::step::{Decoder, Events, NewId, Progress, StreamFault, framing};

/// Most blocks of one message: calls, and as many of other kinds.
const MAX_BLOCKS: usize = 2 * MAX_CALLS;

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
    model: Option<String>,
    reply: Reply,
    blocks: Vec<Block>,
    usage: Usage,
    stop_reason: Option<String>,
    /// The end mark came.
    done: bool,
}

/// A block of the message, to be sent back as it came.
#[derive(Debug)]
struct Block {
    index: u64,
    kind: Kind,
    /// As the block began.
    fields: Fields,
    is_open: bool,
}

#[derive(Debug)]
enum Kind {
    Text(String),
    Thinking {
        text: String,
        signature: String,
    },
    /// A place among the reply's calls.
    ToolUse(usize),
    /// Comes whole: reasoning that is hidden, or something newer than this code.
    Whole,
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
        if self.answer.done { Ok(()) } else { Err(StreamFault::Incomplete) }
    }

    fn thinks_silently(&self) -> bool {
        self.answer
            .blocks
            .last()
            .is_some_and(|block| block.is_open && matches!(block.kind, Kind::Thinking { .. } | Kind::Whole))
    }

    fn usage(&self) -> StepUsage {
        self.answer.usage.counted()
    }

    fn finish(&mut self, new_id: &mut NewId<'_>) -> Result<StepOutcome, StreamFault> {
        let mut answer = std::mem::take(&mut self.answer);
        let (stop, native) = (answer.stop(), answer.native()?);
        let usage = answer.usage.counted();
        let model = answer.model.take().unwrap_or(answer.asked);
        Ok(StepOutcome { parts: answer.reply.into_parts(new_id)?, model, stop, usage, native })
    }
}

impl Answer {
    /// Reads one event; done at the end mark.
    fn read(&mut self, data: &str, events: &mut Events) -> Result<Progress, StreamFault> {
        if data.trim().is_empty() {
            return Ok(Progress::More);
        }
        let event: Event<'_> = serde_json::from_str(data).map_err(unreadable)?;
        match event.kind.as_ref() {
            "message_start" => {
                let message = event.message.unwrap_or_default();
                self.model = message.model.filter(|model| !model.is_empty());
                self.usage.update(message.usage.unwrap_or_default());
            }
            "content_block_start" => {
                self.open(event.index, event.content_block.unwrap_or_default(), events)?
            }
            "content_block_delta" => self.add(event.index, event.delta.unwrap_or_default(), events)?,
            "content_block_stop" => self.close(event.index)?,
            "message_delta" => {
                self.stop_reason =
                    event.delta.and_then(|delta| delta.stop_reason).or(self.stop_reason.take());
                self.usage.update(event.usage.unwrap_or_default());
            }
            "message_stop" => {
                self.done = true;
                return Ok(Progress::Done);
            }
            "error" => return Err(StreamFault::Refused(data.to_owned())),
            // `ping`, and whatever comes to be.
            _ => {}
        }
        Ok(Progress::More)
    }

    fn open(&mut self, index: u64, fields: Fields, events: &mut Events) -> Result<(), StreamFault> {
        if self.blocks.len() == MAX_BLOCKS {
            return Err(StreamFault::TooLarge("more than 256 blocks"));
        }
        self.reply.count(fields.iter().map(|(name, value)| name.len() + value.get().len()).sum())?;
        let kind = match text_of(&fields, "type").as_str() {
            "text" => {
                let text = text_of(&fields, "text");
                self.reply.text(&text, events)?;
                Kind::Text(text)
            }
            "thinking" => {
                let text = text_of(&fields, "thinking");
                self.reply.reasoning(&text, events)?;
                Kind::Thinking { text, signature: text_of(&fields, "signature") }
            }
            "tool_use" => {
                let at = self.reply.open_call()?;
                self.reply.identify(at, &text_of(&fields, "id"))?;
                self.reply.name(at, &text_of(&fields, "name"), events)?;
                Kind::ToolUse(at)
            }
            _ => Kind::Whole,
        };
        self.blocks.push(Block { index, kind, fields, is_open: true });
        Ok(())
    }

    fn add(&mut self, index: u64, delta: Delta<'_>, events: &mut Events) -> Result<(), StreamFault> {
        let Some(block) = self.blocks.iter_mut().rfind(|block| block.index == index) else {
            return Err(StreamFault::Unreadable(format!("a piece of block {index}, which never began")));
        };
        match &mut block.kind {
            Kind::Text(text) => {
                text.push_str(&delta.text);
                self.reply.text(&delta.text, events)
            }
            Kind::Thinking { text, signature } => {
                text.push_str(&delta.thinking);
                if !delta.signature.is_empty() {
                    signature.clear();
                    signature.push_str(&delta.signature);
                }
                self.reply.count(delta.signature.len())?;
                self.reply.reasoning(&delta.thinking, events)
            }
            Kind::ToolUse(at) => self.reply.arguments(*at, &delta.partial_json),
            Kind::Whole => Ok(()),
        }
    }

    fn close(&mut self, index: u64) -> Result<(), StreamFault> {
        let Some(block) = self.blocks.iter_mut().rfind(|block| block.index == index) else { return Ok(()) };
        block.is_open = false;
        if let (Kind::ToolUse(at), Some(input)) = (&block.kind, block.fields.get("input"))
            && self.reply.calls().get(*at).is_some_and(|call| call.arguments.is_empty())
        {
            // Some gateways send the arguments whole, where the API itself has an empty object.
            self.reply.set_arguments(*at, input.get())?;
        }
        Ok(())
    }

    fn stop(&self) -> StepStop {
        match self.stop_reason.as_deref() {
            Some("refusal") => StepStop::Refusal,
            Some("max_tokens" | "model_context_window_exceeded") => StepStop::MaxTokens,
            _ if self.reply.has_calls() => StepStop::ToolUse,
            // `pause_turn` comes only with tools that run at the provider, which are never offered.
            _ => StepStop::End,
        }
    }

    /// Returns the message's blocks, where they hold more than text and calls.
    fn native(&mut self) -> Result<Option<Native>, StreamFault> {
        let is_needed =
            self.blocks.iter().any(|block| matches!(block.kind, Kind::Thinking { .. } | Kind::Whole));
        if !is_needed {
            return Ok(None);
        }
        let mut content: Vec<Fields> = Vec::with_capacity(self.blocks.len());
        for Block { kind, mut fields, .. } in std::mem::take(&mut self.blocks) {
            match kind {
                // Refused when it goes back.
                Kind::Text(text) if text.trim().is_empty() => continue,
                Kind::Text(text) => set(&mut fields, "text", &text)?,
                // Cut by the output limit: without its signature it would be refused.
                Kind::Thinking { signature, .. } if signature.is_empty() => continue,
                Kind::Thinking { text, signature } => {
                    set(&mut fields, "thinking", &text)?;
                    set(&mut fields, "signature", &signature)?;
                }
                Kind::ToolUse(at) => {
                    let arguments = self.reply.calls().get(at).and_then(|call| call.argument_object());
                    fields.insert("input".to_owned(), arguments.unwrap_or(empty_object()?));
                }
                Kind::Whole => {}
            }
            content.push(fields);
        }
        let blocks = Arc::from(to_raw_value(&content).map_err(unreadable)?);
        Ok(Some(Native { provider: PROVIDER.to_owned(), blocks }))
    }
}

fn set(fields: &mut Fields, name: &str, text: &str) -> Result<(), StreamFault> {
    fields.insert(name.to_owned(), to_raw_value(text).map_err(unreadable)?);
    Ok(())
}

fn empty_object() -> Result<Box<RawValue>, StreamFault> {
    RawValue::from_string("{}".to_owned()).map_err(unreadable)
}

fn text_of(fields: &Fields, name: &str) -> String {
    let text = fields.get(name).and_then(|value| serde_json::from_str::<Option<String>>(value.get()).ok());
    text.flatten().unwrap_or_default()
}

fn unreadable(error: serde_json::Error) -> StreamFault {
    StreamFault::Unreadable(error.to_string())
}

#[cfg(test)]
mod tests;
