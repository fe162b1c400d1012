//! Decoder of `text/event-stream`, as the HTML Living Standard frames it: bytes in, `data` of whole
//! events out. It knows no provider and does no IO; it must never hold more than one event.

use std::ops::ControlFlow;

/// Most bytes of one event; a longer one ends the stream, since a broken or hostile endpoint could
/// otherwise fill the memory.
pub(crate) const MAX_EVENT_BYTES: usize = 8 << 20;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// An event is longer than [`MAX_EVENT_BYTES`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EventTooLong;

/// Turns a byte stream, cut anywhere, into events. Only `data` lines count; `event`, `id`, `retry`
/// and comments are read over. A byte that is not UTF-8 becomes one U+FFFD.
#[derive(Debug, Default)]
pub(crate) struct SseDecoder {
    /// The begun line, without its end.
    line: Vec<u8>,
    /// The begun event's data lines, joined by line feeds.
    data: Vec<u8>,
    has_data: bool,
    /// The last byte was a CR, so that a LF that follows belongs to it.
    after_cr: bool,
    past_first_line: bool,
}

impl SseDecoder {
    /// Reads `bytes` and gives each finished event's data to `on_event`, until it breaks.
    ///
    /// # Errors
    /// [`EventTooLong`]; the stream can't be read on.
    pub(crate) fn push(
        &mut self,
        bytes: &[u8],
        mut on_event: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, EventTooLong> {
        let mut rest = bytes;
        while let Some(first) = rest.first() {
            if std::mem::take(&mut self.after_cr) && *first == b'\n' {
                rest = &rest[1..];
                continue;
            }
            let end = memchr::memchr2(b'\n', b'\r', rest);
            let (head, tail) = rest.split_at(end.unwrap_or(rest.len()));
            if self.data.len() + self.line.len() + head.len() > MAX_EVENT_BYTES {
                return Err(EventTooLong);
            }
            let Some(line_end) = tail.first() else {
                self.line.extend_from_slice(head);
                break;
            };
            self.after_cr = *line_end == b'\r';
            rest = &tail[1..];
            if self.end_line(head, &mut on_event).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Ends the stream. An event that no blank line ended is given out too.
    pub(crate) fn finish(&mut self, mut on_event: impl FnMut(&str) -> ControlFlow<()>) -> ControlFlow<()> {
        if !self.line.is_empty() {
            self.end_line(&[], &mut on_event)?;
        }
        self.end_event(&mut on_event)
    }

    fn end_line(
        &mut self,
        head: &[u8],
        on_event: &mut impl FnMut(&str) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if self.line.is_empty() {
            return self.read_line(head, on_event);
        }
        let mut line = std::mem::take(&mut self.line);
        line.extend_from_slice(head);
        let flow = self.read_line(&line, on_event);
        line.clear();
        self.line = line;
        flow
    }

    fn read_line(
        &mut self,
        mut line: &[u8],
        on_event: &mut impl FnMut(&str) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if !std::mem::replace(&mut self.past_first_line, true) {
            line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        }
        if line.is_empty() {
            return self.end_event(on_event);
        }
        let value = match line.strip_prefix(b"data") {
            Some([]) => &[],
            Some([b':', value @ ..]) => value.strip_prefix(b" ").unwrap_or(value),
            _ => return ControlFlow::Continue(()),
        };
        if std::mem::replace(&mut self.has_data, true) {
            self.data.push(b'\n');
        }
        self.data.extend_from_slice(value);
        ControlFlow::Continue(())
    }

    fn end_event(&mut self, on_event: &mut impl FnMut(&str) -> ControlFlow<()>) -> ControlFlow<()> {
        if !std::mem::take(&mut self.has_data) {
            return ControlFlow::Continue(());
        }
        let flow = on_event(&String::from_utf8_lossy(&self.data));
        self.data.clear();
        flow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(writes: &[&[u8]]) -> Vec<String> {
        let mut decoder = SseDecoder::default();
        let mut events = Vec::new();
        let mut keep = |data: &str| {
            events.push(data.to_owned());
            ControlFlow::Continue(())
        };
        for bytes in writes {
            assert_eq!(decoder.push(bytes, &mut keep), Ok(ControlFlow::Continue(())));
        }
        assert!(decoder.finish(&mut keep).is_continue());
        events
    }

    /// Every way to cut `body` in two, and every byte on its own, must give the same events.
    fn assert_decodes(body: &[u8], expected: &[&str]) {
        for cut in 0..=body.len() {
            let (head, tail) = body.split_at(cut);
            assert_eq!(
                decode(&[head, tail]),
                expected,
                "cut at {cut} of {:?}",
                body.escape_ascii().to_string()
            );
        }
        assert_eq!(decode(&body.chunks(1).collect::<Vec<_>>()), expected, "byte by byte");
    }

    #[test]
    fn every_legal_framing_gives_the_same_events_wherever_it_is_cut() {
        let framings: [&str; 9] = [
            "data: a\n\ndata: b\n\ndata: c\n\n",
            "data: a\r\n\r\ndata: b\r\n\r\ndata: c\r\n\r\n",
            "data: a\r\rdata: b\r\rdata: c\r\r",
            "data: a\r\n\ndata: b\n\r\ndata: c\r\n\r\n",
            "data:a\n\ndata:b\n\ndata:c\n\n",
            ": keepalive\n\ndata: a\n\n:\ndata: b\n:\n\n\n\ndata: c\n\n",
            "id:1\nevent:message\nretry:3000\ndata: a\n\nid: 2\ndata: b\n\nevent\ndata: c\n\n",
            "\u{FEFF}data: a\n\ndata: b\n\ndata: c\n\n",
            "data: a\n\ndata: b\n\ndata: c",
        ];
        for framing in framings {
            assert_decodes(framing.as_bytes(), &["a", "b", "c"]);
        }
    }

    #[test]
    fn several_data_lines_are_one_event() {
        assert_decodes(b"data: {\"a\":\ndata: 1}\n\n", &["{\"a\":\n1}"]);
        assert_decodes(b"data\ndata\n\n", &["\n"]);
        assert_decodes(b"database: no\ndata-x: no\ndata:  kept \n\n", &[" kept "]);
    }

    #[test]
    fn characters_survive_every_cut_and_a_bad_byte_costs_one_character() {
        let text = "東京 👩\u{200d}🔬 é";
        assert_decodes(format!("data: {text}\n\n").as_bytes(), &[text]);
        assert_decodes(b"data: a\xFFb\n\ndata: c\n\n", &["a\u{FFFD}b", "c"]);
    }

    #[test]
    fn a_break_stops_at_once() {
        let mut decoder = SseDecoder::default();
        let mut seen = 0;
        let flow = decoder.push(b"data: a\n\ndata: b\n\n", |_| {
            seen += 1;
            ControlFlow::Break(())
        });
        assert_eq!((flow, seen), (Ok(ControlFlow::Break(())), 1));
    }

    #[test]
    fn the_longest_event_passes_and_one_byte_more_does_not() {
        for (size, passes) in [(MAX_EVENT_BYTES - 6, true), (MAX_EVENT_BYTES - 5, false)] {
            let mut decoder = SseDecoder::default();
            let mut longest = 0;
            let mut keep = |data: &str| {
                longest = data.len();
                ControlFlow::Continue(())
            };
            let mut body = b"data: ".to_vec();
            body.resize(6 + size, b'x');
            let written =
                body.chunks(1 << 16).try_for_each(|bytes| decoder.push(bytes, &mut keep).map(|_| ()));
            let ended = written.and_then(|()| decoder.push(b"\n\n", &mut keep).map(|_| ()));
            assert_eq!(ended.is_ok(), passes);
            assert_eq!(longest, if passes { size } else { 0 });
        }
    }
}
