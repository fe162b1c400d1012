//! Decodes an Ollama answer: bytes in, step events out, the whole reply at the end. Pure: no clock, no
//! IO, and cut anywhere the bytes give the same events.

use serde_json::Deserializer;
use tns_server_core::engine::{StepOutcome, StepStop, StepUsage};

use super::line::{Line, Lines, Message};
use super::thought;
use crate::step::reply::Reply;
use crate::step::{Decoder, Events, NewId, Progress, StreamFault};

/// The decoder of one reply.
#[derive(Debug, Default)]
pub(super) struct LineDecoder {
    lines: Lines,
    answer: Answer,
}

/// What is known of the reply so far.
#[derive(Debug, Default)]
struct Answer {
    /// The model: the one that was asked for until an answer names itself.
    model: String,
    reply: Reply,
    /// The whole of the reasoning.
    thinking: String,
    usage: StepUsage,
    /// Known once the last line came.
    stop: Option<StepStop>,
}

impl LineDecoder {
    pub(super) fn new(asked: &str) -> Self {
        let answer = Answer { model: asked.to_owned(), ..Answer::default() };
        Self { answer, ..Self::default() }
    }
}

impl Decoder for LineDecoder {
    fn push(&mut self, bytes: &[u8], events: &mut Events) -> Result<Progress, StreamFault> {
        self.lines.push(bytes, |line| self.answer.read(line, events))
    }

    fn end(&mut self, events: &mut Events) -> Result<(), StreamFault> {
        match self.lines.end(|line| self.answer.read(line, events))? {
            Progress::Done => Ok(()),
            Progress::More => Err(StreamFault::Incomplete),
        }
    }

    fn whole(&mut self, body: &str, events: &mut Events) -> Result<(), StreamFault> {
        match self.answer.read(body, events)? {
            Progress::Done => Ok(()),
            Progress::More => Err(StreamFault::Incomplete),
        }
    }

    fn usage(&self) -> StepUsage {
        self.answer.usage
    }

    fn finish(&mut self, new_id: &mut NewId<'_>) -> Result<StepOutcome, StreamFault> {
        let Answer { model, reply, thinking, usage, stop } = std::mem::take(&mut self.answer);
        let has_calls = reply.has_calls();
        let stop = match stop.ok_or(StreamFault::Incomplete)? {
            StepStop::End if has_calls => StepStop::ToolUse,
            stop => stop,
        };
        // The model reads its reasoning again only where the turn goes on.
        let native =
            if has_calls { thought::keep(&thinking).map_err(|error| unreadable(&error))? } else { None };
        Ok(StepOutcome { parts: reply.into_parts(new_id)?, model, stop, usage, native })
    }
}

impl Answer {
    /// Reads one line, or several that were glued.
    fn read(&mut self, text: &str, events: &mut Events) -> Result<Progress, StreamFault> {
        for line in Deserializer::from_str(text).into_iter::<Line<'_>>() {
            let line = line.map_err(|error| unreadable(&error))?;
            if line.error.is_some() {
                return Err(StreamFault::Refused(text.to_owned()));
            }
            if self.add(line, events)? == Progress::Done {
                return Ok(Progress::Done);
            }
        }
        Ok(Progress::More)
    }

    fn add(&mut self, line: Line<'_>, events: &mut Events) -> Result<Progress, StreamFault> {
        if let Some(model) = line.model.filter(|model| !model.is_empty()) {
            self.model = model;
        }
        if let Some(message) = line.message {
            self.say(&message, events)?;
        }
        self.usage.input = line.prompt_eval_count.unwrap_or(self.usage.input);
        self.usage.output = line.eval_count.unwrap_or(self.usage.output);
        if line.done != Some(true) {
            return Ok(Progress::More);
        }
        self.stop = Some(match line.done_reason.as_deref() {
            Some("length") => StepStop::MaxTokens,
            _ => StepStop::End,
        });
        Ok(Progress::Done)
    }

    fn say(&mut self, message: &Message<'_>, events: &mut Events) -> Result<(), StreamFault> {
        let thinking = message.thinking.as_deref().unwrap_or_default();
        self.reply.reasoning(thinking, events)?;
        self.thinking.push_str(thinking);
        self.reply.text(message.content.as_deref().unwrap_or_default(), events)?;
        for call in message.tool_calls.iter().flatten() {
            let Some(function) = &call.function else { continue };
            let at = self.reply.open_call()?;
            self.reply.name(at, function.name.as_deref().unwrap_or_default(), events)?;
            self.reply.arguments(at, &function.argument_text())?;
        }
        Ok(())
    }
}

fn unreadable(error: &serde_json::Error) -> StreamFault {
    StreamFault::Unreadable(error.to_string())
}

#[cfg(test)]
mod tests;
