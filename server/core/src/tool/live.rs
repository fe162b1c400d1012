//! What a running tool writes, on its way to whoever looks on. It is a view: bounded, never waited for, and
//! the call's result has all of it. Nothing is sent from here.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

/// Most bytes of one piece. More between two pieces → the oldest are left out, and the piece tells how many.
/// Bytes that are no UTF-8 take three each in the text.
pub const MAX_PIECE_BYTES: usize = 16 << 10;

/// Most bytes that wait; so many that cutting the oldest moves each byte once, however small the writes are.
const MAX_WAITING_BYTES: usize = 2 * MAX_PIECE_BYTES;

/// Where a tool writes while it runs. Writing never waits. One that nobody reads, such as the default,
/// takes nothing.
#[derive(Debug, Clone, Default)]
pub struct LiveOutput(Weak<Written>);

/// The other end: what was written, in pieces that are whole characters.
#[derive(Debug)]
pub struct LivePieces(Arc<Written>);

#[derive(Debug, Default)]
struct Written {
    waiting: Mutex<Waiting>,
    wake: Notify,
}

impl LiveOutput {
    /// Writes text, or the bytes of one, cut anywhere.
    pub fn write(&self, bytes: impl AsRef<[u8]>) {
        let (Some(written), bytes) = (self.0.upgrade(), bytes.as_ref()) else { return };
        if !bytes.is_empty() {
            written.lock().push(bytes);
            written.wake.notify_one();
        }
    }
}

impl LivePieces {
    /// Makes both ends.
    pub fn new() -> (LiveOutput, Self) {
        let written = Arc::new(Written::default());
        (LiveOutput(Arc::downgrade(&written)), Self(written))
    }

    /// Waits until something was written since the last time.
    pub async fn written(&self) {
        self.0.wake.notified().await;
    }

    /// Takes what was written since the last piece. The beginning of a character waits for its rest.
    pub fn next(&self) -> Option<String> {
        self.0.lock().take(Goes::On)
    }

    /// Takes what is left when the tool has ended.
    pub fn last(self) -> Option<String> {
        self.0.lock().take(Goes::NoFurther)
    }
}

impl Written {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether more may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goes {
    On,
    NoFurther,
}

/// The newest bytes that were not taken.
#[derive(Debug, Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// Bytes before them that were neither taken nor kept.
    left_out: u64,
}

impl Waiting {
    fn push(&mut self, written: &[u8]) {
        let newest = &written[written.len().saturating_sub(MAX_PIECE_BYTES)..];
        if newest.len() < written.len() {
            self.leave_out(self.bytes.len());
            self.left_out += (written.len() - newest.len()) as u64;
        } else if self.bytes.len() + newest.len() > MAX_WAITING_BYTES {
            self.leave_out(self.bytes.len() + newest.len() - MAX_PIECE_BYTES);
        }
        self.bytes.extend_from_slice(newest);
    }

    fn leave_out(&mut self, count: usize) {
        self.bytes.drain(..count);
        self.left_out += count as u64;
    }

    fn take(&mut self, goes: Goes) -> Option<String> {
        self.leave_out(self.bytes.len().saturating_sub(MAX_PIECE_BYTES));
        if self.left_out > 0 {
            // What is left of a character that was cut.
            let rest = self.bytes.iter().take(3).take_while(|byte| is_continuation(**byte)).count();
            self.leave_out(rest);
        }
        let end = match goes {
            Goes::On => self.bytes.len() - unfinished(&self.bytes),
            Goes::NoFurther => self.bytes.len(),
        };
        let left_out = std::mem::take(&mut self.left_out);
        if end == 0 && left_out == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&self.bytes[..end]);
        let text = match left_out {
            0 => text.into_owned(),
            count => format!("\n[… {count} bytes of output left out here …]\n{text}"),
        };
        self.bytes.drain(..end);
        Some(text)
    }
}

fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// Counts the bytes at the end that may yet become a character.
fn unfinished(bytes: &[u8]) -> usize {
    let longest = bytes.len().min(3);
    let may_become = |count: &usize| {
        let end = &bytes[bytes.len() - count..];
        std::str::from_utf8(end).is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    };
    (1..=longest).find(may_become).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What is read when a piece is taken after each write.
    fn read(writes: &[&[u8]]) -> Vec<String> {
        let (output, pieces) = LivePieces::new();
        let mut read = Vec::new();
        for bytes in writes {
            output.write(bytes);
            read.extend(pieces.next());
        }
        read.extend(pieces.last());
        read
    }

    #[test]
    fn a_character_that_is_cut_at_any_byte_waits_for_its_rest() {
        let text = "aé職👩z";
        for at in 0..=text.len() {
            let (before, after) = text.as_bytes().split_at(at);
            assert_eq!(read(&[before, after]).concat(), text, "{at}");
        }
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(read(&bytes), ["a", "é", "職", "👩", "z"]);
    }

    #[test]
    fn what_is_no_character_is_shown_as_the_result_shows_it() {
        assert_eq!(read(&[b"a\xFF", b"b"]), ["a\u{FFFD}", "b"]);
        // The beginning of one, and no rest.
        assert_eq!(read(&[b"a\xE8\x81", b"b"]), ["a", "\u{FFFD}b"]);
        assert_eq!(read(&[b"a\xE8\x81"]), ["a", "\u{FFFD}"]);
    }

    #[test]
    fn of_too_much_the_newest_is_kept_and_the_rest_counted() {
        let (output, pieces) = LivePieces::new();
        for _ in 0..100 {
            output.write("x".repeat(1_000));
            assert!(pieces.0.lock().bytes.capacity() <= 2 * MAX_WAITING_BYTES);
        }
        output.write("end");
        let piece = pieces.next().unwrap();
        let left_out = 100_003 - MAX_PIECE_BYTES;
        assert!(piece.starts_with(&format!("\n[… {left_out} bytes of output left out here …]\nx")));
        assert!(piece.ends_with("xend"));
        output.write("after");
        assert_eq!(pieces.next().unwrap(), "after");
    }

    #[test]
    fn one_write_beyond_the_bound_is_cut_the_same_way_and_at_a_character() {
        let (output, pieces) = LivePieces::new();
        output.write("before");
        output.write(format!("{}ab", "職".repeat(MAX_PIECE_BYTES)));
        let piece = pieces.next().unwrap();
        let kept = (MAX_PIECE_BYTES - 2) / 3;
        let left_out = "before".len() + 3 * (MAX_PIECE_BYTES - kept);
        let note = format!("\n[… {left_out} bytes of output left out here …]\n");
        assert_eq!(piece, format!("{note}{}ab", "職".repeat(kept)));
    }

    #[test]
    fn an_output_that_nobody_reads_takes_nothing() {
        LiveOutput::default().write("a");
        let (output, pieces) = LivePieces::new();
        output.write("a");
        assert_eq!(pieces.last().unwrap(), "a");
        output.write("b");
        assert!(output.0.upgrade().is_none());
    }

    proptest! {
        #[test]
        fn pieces_joined_are_the_text_of_the_whole(
            writes in prop::collection::vec(
                prop::collection::vec(prop::sample::select(vec![b'a', 0xC3, 0xA9, 0xE8, 0x81, 0xB7, 0xF0, 0x9F, 0xED, 0xFF]), 0..6),
                0..12,
            )
        ) {
            let slices: Vec<&[u8]> = writes.iter().map(Vec::as_slice).collect();
            let joined = read(&slices).concat();
            prop_assert_eq!(joined, String::from_utf8_lossy(&writes.concat()).into_owned());
        }
    }
}
