//! What the bytes of an answer say, on every wire and without a network: for tests, fuzzing and measuring.
//! It runs the decoders that engines run, and has none of its own.

use std::ops::ControlFlow;

use serde_json::{Map, Value};

use crate::sse::SseDecoder;
use crate::step::{Decoder, playback, reply};
use crate::{anthropic, compatible, gemini, ollama, responses};

pub use crate::step::StreamFault;
pub use crate::step::playback::Decoded;

/// A format in which models answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireFormat {
    /// Anthropic Messages.
    Messages,
    /// OpenAI Responses.
    Responses,
    /// Chat Completions.
    ChatCompletions,
    /// Gemini's `streamGenerateContent`.
    Gemini,
    /// Ollama's `/api/chat`.
    Ollama,
}

impl WireFormat {
    /// Every format.
    pub const ALL: [Self; 5] =
        [Self::Messages, Self::Responses, Self::ChatCompletions, Self::Gemini, Self::Ollama];

    /// Returns the id of the provider whose engine speaks it.
    pub fn provider(self) -> &'static str {
        match self {
            Self::Messages => anthropic::PROVIDER,
            Self::Responses => responses::PROVIDER,
            Self::ChatCompletions => "openai-compatible",
            Self::Gemini => gemini::PROVIDER,
            Self::Ollama => ollama::PROVIDER,
        }
    }

    /// Returns the format of a provider's engine.
    pub fn of(provider: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.provider() == provider)
    }

    fn decoder(self, model: &str) -> Box<dyn Decoder> {
        match self {
            Self::Messages => anthropic::decoder(model),
            Self::Responses => responses::decoder(model),
            Self::ChatCompletions => compatible::decoder(model),
            Self::Gemini => gemini::decoder(model),
            Self::Ollama => ollama::decoder(model),
        }
    }
}

/// Decodes an answer of `model` from pieces of any length, and the end of its connection. Decoding stops
/// at the end mark or the first fault; what comes after it is not read. Ids of calls are counted:
/// `call_1`, `call_2`, …
///
/// # Errors
/// [`StreamFault`], with the events before it.
pub fn stream<'a>(format: WireFormat, model: &str, pieces: impl IntoIterator<Item = &'a [u8]>) -> Decoded {
    playback::play(&mut *format.decoder(model), pieces)
}

/// Decodes an answer that came whole, as `application/json`.
///
/// # Errors
/// [`StreamFault`], with the events before it.
pub fn whole(format: WireFormat, model: &str, body: &str) -> Decoded {
    playback::play_whole(&mut *format.decoder(model), body)
}

/// Returns the data of the events of a `text/event-stream`, from pieces of any length.
///
/// # Errors
/// [`StreamFault::TooLarge`] for an event beyond its limit, with the events before it.
pub fn event_stream<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Vec<String>, (Vec<String>, StreamFault)> {
    let mut sse = SseDecoder::default();
    let mut events = Vec::new();
    for bytes in pieces {
        let pushed = sse.push(bytes, |data| {
            events.push(data.to_owned());
            ControlFlow::Continue(())
        });
        if let Err(too_long) = pushed {
            return Err((events, too_long.into()));
        }
    }
    let _ = sse.finish(|data| {
        events.push(data.to_owned());
        ControlFlow::Continue(())
    });
    Ok(events)
}

/// Reads the text of a call's arguments; blank text means none.
///
/// # Errors
/// What is wrong with text that is no JSON object, or one that is nested too deep, as the model is told.
pub fn arguments(text: &str) -> Result<Map<String, Value>, String> {
    reply::read_arguments(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PROVIDERS;

    #[test]
    fn every_provider_with_a_wire_has_its_format() {
        let wired: Vec<&str> =
            PROVIDERS.iter().map(|row| row.id).filter(|id| WireFormat::of(id).is_some()).collect();
        assert_eq!(wired.len(), WireFormat::ALL.len());
        assert_eq!(WireFormat::of("offline"), None);
    }
}
