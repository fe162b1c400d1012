//! Plays the bytes of an answer to a decoder, cut in any way: what they say, and how it ended. It has no
//! network, no clock and no randomness, so that two plays can be compared.

use tns_protocol::ToolCallId;
use tns_server_core::engine::{StepEvent, StepOutcome};

use super::{Decoder, Events, Progress, StreamFault};

/// The events that came, and the reply that they end in, or why there is none.
pub type Decoded = Result<(Vec<StepEvent>, StepOutcome), (Vec<StepEvent>, StreamFault)>;

/// Plays pieces and then the end of the connection. Ids are counted: `call_1`, `call_2`, …
pub(crate) fn play<'a>(decoder: &mut dyn Decoder, pieces: impl IntoIterator<Item = &'a [u8]>) -> Decoded {
    let mut events = Events::new();
    let mut decoded = Ok(Progress::More);
    for bytes in pieces {
        decoded = decoder.push(bytes, &mut events);
        if decoded != Ok(Progress::More) {
            break;
        }
    }
    let ended = decoded.and_then(|progress| match progress {
        Progress::More => decoder.end(&mut events),
        Progress::Done => Ok(()),
    });
    finish(decoder, events, ended)
}

/// Plays an answer that came whole.
pub(crate) fn play_whole(decoder: &mut dyn Decoder, body: &str) -> Decoded {
    let mut events = Events::new();
    let ended = decoder.whole(body, &mut events);
    finish(decoder, events, ended)
}

fn finish(decoder: &mut dyn Decoder, events: Events, ended: Result<(), StreamFault>) -> Decoded {
    let mut count = 0;
    let outcome = ended.and_then(|()| {
        decoder.finish(&mut || {
            count += 1;
            ToolCallId::parse(format!("call_{count}"))
        })
    });
    let shown = Vec::from(events);
    match outcome {
        Ok(outcome) => Ok((shown, outcome)),
        Err(fault) => Err((shown, fault)),
    }
}

/// Plays pieces to a fresh decoder.
#[cfg(test)]
pub(crate) fn decode<'a>(mut decoder: impl Decoder, pieces: impl IntoIterator<Item = &'a [u8]>) -> Decoded {
    play(&mut decoder, pieces)
}

/// Decodes a body in one piece, and checks that every cut in two and single bytes give the same.
#[cfg(test)]
pub(crate) fn decode_every_cut<D: Decoder>(new: impl Fn() -> D, body: &[u8]) -> Decoded {
    let whole = decode(new(), [body]);
    for cut in 0..=body.len() {
        let (head, tail) = body.split_at(cut);
        assert_eq!(decode(new(), [head, tail]), whole, "cut at {cut}");
    }
    assert_eq!(decode(new(), body.chunks(1)), whole, "byte by byte");
    whole
}
