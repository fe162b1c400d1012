//! Results within their limit: nothing is cut without saying so in the text.

use std::collections::VecDeque;

use tns_server_core::tool::MAX_OUTPUT_BYTES;

/// Room kept for the sentence that names a cut.
const NOTE_BYTES: usize = 128;

/// Bytes kept from each end of an output that is too long.
const KEPT_EACH_END: usize = (MAX_OUTPUT_BYTES - 2 * NOTE_BYTES) / 2;

/// Collects output of any length in bounded memory: its first and its last bytes.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    dropped: u64,
}

impl Collected {
    /// Takes the next bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let room = KEPT_EACH_END - self.head.len();
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(first);
        let rest = if rest.len() > KEPT_EACH_END {
            let skipped = rest.len() - KEPT_EACH_END;
            self.dropped += (skipped + self.tail.len()) as u64;
            self.tail.clear();
            &rest[skipped..]
        } else {
            rest
        };
        let over = (self.tail.len() + rest.len()).saturating_sub(KEPT_EACH_END);
        self.tail.drain(..over);
        self.dropped += over as u64;
        self.tail.extend(rest);
    }

    /// Returns the text: exact where it is UTF-8 and within the limit. Invalid bytes become U+FFFD.
    pub(crate) fn into_text(self) -> String {
        let tail: Vec<u8> = self.tail.into();
        if self.dropped == 0 {
            let mut whole = self.head;
            whole.extend_from_slice(&tail);
            return cap(lossy(whole));
        }
        // Each half is cut again, since a replaced byte takes three.
        let head = lossy(self.head);
        let tail = lossy(tail);
        let head_end = floor(&head, KEPT_EACH_END);
        let tail_start = ceil(&tail, tail.len().saturating_sub(KEPT_EACH_END));
        let dropped = self.dropped + (head.len() - head_end + tail_start) as u64;
        format!("{}{}{}", &head[..head_end], note(dropped), &tail[tail_start..])
    }
}

/// Cuts the middle out of a text that is longer than [`MAX_OUTPUT_BYTES`] and names the cut.
pub(crate) fn cap(text: String) -> String {
    if text.len() <= MAX_OUTPUT_BYTES {
        return text;
    }
    let head_end = floor(&text, KEPT_EACH_END);
    let tail_start = ceil(&text, text.len() - KEPT_EACH_END);
    format!("{}{}{}", &text[..head_end], note((tail_start - head_end) as u64), &text[tail_start..])
}

fn note(bytes: u64) -> String {
    format!("\n[… {bytes} bytes of output left out here …]\n")
}

fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn ceil(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_at_the_limit_is_exact_and_one_byte_more_is_cut_with_a_note() {
        let whole = "x".repeat(MAX_OUTPUT_BYTES);
        assert_eq!(cap(whole.clone()), whole);
        let cut = cap(format!("{whole}y"));
        assert!(cut.len() <= MAX_OUTPUT_BYTES);
        assert!(cut.ends_with('y'));
        assert!(cut.contains("bytes of output left out here"));
    }

    #[test]
    fn collected_output_keeps_both_ends_and_counts_the_rest() {
        let mut collected = Collected::default();
        let pushed = 2 * KEPT_EACH_END + 1_000;
        for chunk in vec![b'x'; pushed].chunks(64 << 10) {
            collected.push(chunk);
        }
        collected.push(b"end");
        assert!(collected.head.len() + collected.tail.len() <= MAX_OUTPUT_BYTES);
        let text = collected.into_text();
        assert!(text.contains("[… 1003 bytes of output left out here …]"));
        assert!(text.ends_with("end") && text.starts_with('x'));
    }

    #[test]
    fn one_push_larger_than_everything_is_cut_the_same_way() {
        let mut collected = Collected::default();
        collected.push(&vec![b'x'; 3 * MAX_OUTPUT_BYTES]);
        let dropped = 3 * MAX_OUTPUT_BYTES - 2 * KEPT_EACH_END;
        assert!(collected.into_text().contains(&format!("[… {dropped} bytes")));
    }

    #[test]
    fn invalid_bytes_never_grow_the_text_past_the_limit() {
        let mut collected = Collected::default();
        collected.push(&vec![0xFF; MAX_OUTPUT_BYTES]);
        assert!(collected.into_text().len() <= MAX_OUTPUT_BYTES);
        let mut whole = Collected::default();
        whole.push(&vec![0xFF; MAX_OUTPUT_BYTES / 2]);
        assert!(whole.into_text().len() <= MAX_OUTPUT_BYTES);
    }

    #[test]
    fn a_character_across_two_pushes_stays_whole() {
        let mut collected = Collected::default();
        collected.push(&"é".as_bytes()[..1]);
        collected.push(&"é".as_bytes()[1..]);
        assert_eq!(collected.into_text(), "é");
    }
}
