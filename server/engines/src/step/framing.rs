//! Reads a `text/event-stream` for a decoder whose events can fail. It knows no provider.

use std::ops::ControlFlow;

use super::{Progress, StreamFault};
use crate::sse::SseDecoder;

/// Decodes bytes; `read` is given each whole event's data until it fails or is done.
///
/// # Errors
/// What `read` failed with, or an event beyond its limit.
pub(crate) fn push(
    sse: &mut SseDecoder,
    bytes: &[u8],
    mut read: impl FnMut(&str) -> Result<Progress, StreamFault>,
) -> Result<Progress, StreamFault> {
    let mut last = Ok(Progress::More);
    let _ = sse.push(bytes, |data| {
        last = read(data);
        if last == Ok(Progress::More) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    last
}

/// The connection ended: reads an event that no blank line ended. One that can't be read was cut,
/// and counts as absent.
///
/// # Errors
/// What `read` failed with.
pub(crate) fn end(
    sse: &mut SseDecoder,
    mut read: impl FnMut(&str) -> Result<Progress, StreamFault>,
) -> Result<(), StreamFault> {
    let mut last = Ok(Progress::More);
    let _ = sse.finish(|data| {
        last = read(data);
        ControlFlow::Break(())
    });
    match last {
        Ok(_) | Err(StreamFault::Unreadable(_)) => Ok(()),
        Err(fault) => Err(fault),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault() -> StreamFault {
        StreamFault::Refused("no".into())
    }

    #[test]
    fn reading_stops_at_the_first_fault_or_end() {
        for stop in [Ok(Progress::Done), Err(fault())] {
            let mut seen = Vec::new();
            let read = push(&mut SseDecoder::default(), b"data: a\n\ndata: b\n\ndata: c\n\n", |data| {
                seen.push(data.to_owned());
                if data == "b" { stop.clone() } else { Ok(Progress::More) }
            });
            assert_eq!((read, seen), (stop, vec!["a".to_owned(), "b".to_owned()]));
        }
    }

    #[test]
    fn an_event_that_the_end_cut_counts_as_absent() {
        let ended = |read: Result<Progress, StreamFault>| {
            let mut sse = SseDecoder::default();
            assert_eq!(push(&mut sse, b"data: {\"a", |_| Ok(Progress::More)), Ok(Progress::More));
            end(&mut sse, |_| read.clone())
        };
        assert_eq!(ended(Err(StreamFault::Unreadable("cut".into()))), Ok(()));
        assert_eq!(ended(Ok(Progress::Done)), Ok(()));
        assert_eq!(ended(Err(fault())), Err(fault()));
    }
}
