//! Decodes a Responses stream: bytes in, step events out, the whole reply at the end. Pure: no clock, no
//! IO, and cut anywhere the bytes give the same events.

use serde_json::value::RawValue;
use tns_server_core::engine::{StepOutcome, StepStop, StepUsage};

use super::event::{Event, Item, Response, Usage};
use super::native;
use crate::sse::SseDecoder;
use crate::step::reply::{MAX_CALLS, Reply};
use crate::step::{Decoder, Events, NewId, Progress, StreamFault, framing};

/// Most items of one answer: calls, and as many of other kinds.
const MAX_ITEMS: usize = 2 * MAX_CALLS;
const TOO_MANY_ITEMS: StreamFault = StreamFault::TooLarge("more than 256 items");

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
    /// The calls: their place in the answer, and among the reply's calls.
    calls: Vec<(u64, usize)>,
    /// Items of which pieces of text came.
    spoken: Vec<u64>,
    /// The reasoning item that is being written.
    reasoning: Option<u64>,
    /// Items as they ended, with their place.
    items: Vec<(u64, Box<RawValue>)>,
    usage: Usage,
    refused: bool,
    /// Why the answer is not whole.
    incomplete: Option<String>,
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
        if self.answer.done { Ok(()) } else { Err(StreamFault::Incomplete) }
    }

    fn thinks_silently(&self) -> bool {
        self.answer.reasoning.is_some()
    }

    fn usage(&self) -> StepUsage {
        self.answer.usage.counted()
    }

    fn finish(&mut self, new_id: &mut NewId<'_>) -> Result<StepOutcome, StreamFault> {
        let mut answer = std::mem::take(&mut self.answer);
        answer.items.sort_by_key(|(index, _)| *index);
        let items: Vec<_> = std::mem::take(&mut answer.items).into_iter().map(|(_, item)| item).collect();
        let native = native::keep(&items, &answer.asked).map_err(unreadable)?;
        let stop = answer.stop();
        let usage = answer.usage.counted();
        let model = answer.model.unwrap_or(answer.asked);
        Ok(StepOutcome { parts: answer.reply.into_parts(new_id)?, model, stop, usage, native })
    }
}

impl Answer {
    /// Reads one event; done at the end mark.
    fn read(&mut self, data: &str, events: &mut Events) -> Result<Progress, StreamFault> {
        let data = data.trim();
        if data.is_empty() || data == "[DONE]" {
            return Ok(Progress::More);
        }
        let event: Event<'_> = serde_json::from_str(data).map_err(unreadable)?;
        match event.kind.as_ref() {
            "response.output_text.delta" => self.speak(&event, events)?,
            "response.refusal.delta" => {
                self.refused = true;
                self.speak(&event, events)?;
            }
            "response.reasoning_text.delta" | "response.reasoning_summary_text.delta" => {
                self.reply.reasoning(&event.piece(), events)?;
            }
            "response.function_call_arguments.delta" => {
                if let Some(at) = self.call(event.output_index) {
                    self.reply.arguments(at, &event.piece())?;
                }
            }
            "response.function_call_arguments.done" => {
                if let (Some(at), Some(whole)) = (self.call(event.output_index), &event.arguments) {
                    self.settle(at, whole)?;
                }
            }
            "response.output_item.added" => self.begin(&event, events)?,
            "response.output_item.done" => self.end_item(&event, events)?,
            "response.created" | "response.in_progress" => self.note(event.response.unwrap_or_default()),
            "response.completed" | "response.incomplete" => {
                let response = event.response.unwrap_or_default();
                if event.kind == "response.incomplete" {
                    let why = response.incomplete_details.as_ref().and_then(|details| details.reason.clone());
                    self.incomplete = Some(why.unwrap_or_default());
                }
                self.note(response);
                self.done = true;
                return Ok(Progress::Done);
            }
            "response.failed" => {
                let error = event.response.and_then(|response| response.error);
                let body = error.map_or(data.to_owned(), |error| format!("{{\"error\":{}}}", error.get()));
                return Err(StreamFault::Refused(body));
            }
            "error" => return Err(StreamFault::Refused(data.to_owned())),
            // Starts and ends of parts, and whatever comes to be.
            _ => {}
        }
        Ok(Progress::More)
    }

    fn note(&mut self, response: Response) {
        self.model = response.model.filter(|model| !model.is_empty()).or(self.model.take());
        if let Some(usage) = response.usage {
            self.usage = usage;
        }
    }

    fn speak(&mut self, event: &Event<'_>, events: &mut Events) -> Result<(), StreamFault> {
        if !self.spoken.contains(&event.output_index) {
            if self.spoken.len() == MAX_ITEMS {
                return Err(TOO_MANY_ITEMS);
            }
            self.spoken.push(event.output_index);
        }
        self.reply.text(&event.piece(), events)
    }

    fn begin(&mut self, event: &Event<'_>, events: &mut Events) -> Result<(), StreamFault> {
        let item = read_item(event.item)?;
        match item.kind.as_str() {
            "function_call" => {
                self.open_call(event.output_index, &item, events)?;
            }
            "reasoning" => self.reasoning = Some(event.output_index),
            _ => {}
        }
        Ok(())
    }

    /// Reads an item's end, which holds all of it: whatever did not come in pieces is taken from here.
    fn end_item(&mut self, event: &Event<'_>, events: &mut Events) -> Result<(), StreamFault> {
        let Some(raw) = event.item else { return Ok(()) };
        if self.items.len() == MAX_ITEMS {
            return Err(TOO_MANY_ITEMS);
        }
        let item = read_item(event.item)?;
        match item.kind.as_str() {
            "function_call" => {
                let at = match self.call(event.output_index) {
                    Some(at) => at,
                    None => self.open_call(event.output_index, &item, events)?,
                };
                if let Some(whole) = &item.arguments {
                    self.settle(at, whole)?;
                }
            }
            "message" if !self.spoken.contains(&event.output_index) => {
                self.refused |= item.content.iter().flatten().any(|content| content.refusal.is_some());
                self.reply.text(&item.text(), events)?;
            }
            "reasoning" if self.reasoning == Some(event.output_index) => self.reasoning = None,
            _ => {}
        }
        self.reply.count(raw.get().len())?;
        self.items.push((event.output_index, raw.to_owned()));
        Ok(())
    }

    fn open_call(&mut self, index: u64, item: &Item, events: &mut Events) -> Result<usize, StreamFault> {
        let at = self.reply.open_call()?;
        self.reply.identify(at, item.call_id.as_deref().unwrap_or_default())?;
        self.reply.name(at, item.name.as_deref().unwrap_or_default(), events)?;
        self.calls.push((index, at));
        Ok(at)
    }

    fn call(&self, index: u64) -> Option<usize> {
        self.calls.iter().rfind(|(known, _)| *known == index).map(|(_, at)| *at)
    }

    /// Takes a call's whole arguments, where they are not what came in pieces.
    fn settle(&mut self, at: usize, whole: &str) -> Result<(), StreamFault> {
        let is_news = self.reply.calls().get(at).is_some_and(|call| call.arguments != whole);
        if is_news && !whole.is_empty() { self.reply.set_arguments(at, whole) } else { Ok(()) }
    }

    fn stop(&self) -> StepStop {
        match self.incomplete.as_deref() {
            _ if self.refused => StepStop::Refusal,
            Some("content_filter") => StepStop::Refusal,
            Some(_) => StepStop::MaxTokens,
            None if self.reply.has_calls() => StepStop::ToolUse,
            None => StepStop::End,
        }
    }
}

fn read_item(raw: Option<&RawValue>) -> Result<Item, StreamFault> {
    raw.map_or(Ok(Item::default()), |raw| serde_json::from_str(raw.get()).map_err(unreadable))
}

fn unreadable(error: serde_json::Error) -> StreamFault {
    StreamFault::Unreadable(error.to_string())
}

#[cfg(test)]
mod tests;
