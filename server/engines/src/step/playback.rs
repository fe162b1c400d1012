//! Plays recorded answers to a decoder in this crate's tests, cut at every byte.

use tns_protocol::ToolCallId;
use tns_server_core::engine::{StepEvent, StepOutcome};

use super::{Decoder, Events, Progress, StreamFault};

/// The events, and how it ended.
pub(crate) type Decoded = Result<(Vec<StepEvent>, StepOutcome), (Vec<StepEvent>, StreamFault)>;

/// Decodes writes and an end of the connection. Ids are counted: `call_1`, `call_2`, …
pub(crate) fn decode<'a>(mut decoder: impl Decoder, writes: impl IntoIterator<Item = &'a [u8]>) -> Decoded {
    let mut events = Events::new();
    let mut decoded = Ok(Progress::More);
    for bytes in writes {
        decoded = decoder.push(bytes, &mut events);
        if decoded != Ok(Progress::More) {
            break;
        }
    }
    let ended = decoded.and_then(|progress| match progress {
        Progress::More => decoder.end(&mut events),
        Progress::Done => Ok(()),
    });
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

/// Decodes a body in one piece, and checks that every cut in two and single bytes give the same.
pub(crate) fn decode_every_cut<D: Decoder>(new: impl Fn() -> D, body: &[u8]) -> Decoded {
    let whole = decode(new(), [body]);
    for cut in 0..=body.len() {
        let (head, tail) = body.split_at(cut);
        assert_eq!(decode(new(), [head, tail]), whole, "cut at {cut}");
    }
    assert_eq!(decode(new(), body.chunks(1)), whole, "byte by byte");
    whole
}
