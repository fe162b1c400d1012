//! What a command wants of the terminal itself: a line that is typed but not shown, and the size.

use std::io::{self, Read};

use crossterm::terminal::{disable_raw_mode, enable_raw_mode, size};
use secrecy::zeroize::Zeroizing;

const CTRL_C: u8 = 3;
const CTRL_D: u8 = 4;
const CTRL_U: u8 = 0x15;
const BACKSPACES: [u8; 2] = [8, 0x7f];

/// Gives the terminal back as it was.
struct Raw;

impl Drop for Raw {
    fn drop(&mut self) {
        // There is nobody to tell: the terminal is what failed.
        let _ = disable_raw_mode();
    }
}

/// Asks, and reads a line of at most `limit` bytes from the terminal without showing it; `None`: Ctrl-C. Nothing is
/// shown from before the question on: who is asked may be fast.
///
/// # Errors
/// What the system says; a line that is longer or is not UTF-8.
pub(crate) fn hidden_line(limit: usize, ask: impl FnOnce()) -> io::Result<Option<Zeroizing<String>>> {
    enable_raw_mode()?;
    let _raw = Raw;
    ask();
    line(&mut io::stdin().lock(), limit)
}

fn line(input: &mut impl Read, limit: usize) -> io::Result<Option<Zeroizing<String>>> {
    let mut line = Zeroizing::new(Vec::with_capacity(limit));
    loop {
        let mut byte = [0];
        if input.read(&mut byte)? == 0 {
            break;
        }
        match byte[0] {
            b'\r' | b'\n' | CTRL_D => break,
            CTRL_C => return Ok(None),
            CTRL_U => line.clear(),
            byte if BACKSPACES.contains(&byte) => drop(line.pop()),
            _ if line.len() == limit => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the line is too long"));
            }
            byte => line.push(byte),
        }
    }
    match std::str::from_utf8(&line) {
        Ok(text) => Ok(Some(Zeroizing::new(text.to_owned()))),
        Err(_) => Err(io::Error::new(io::ErrorKind::InvalidData, "the line is not UTF-8")),
    }
}

/// Returns the columns and rows of the terminal.
pub(crate) fn dimensions() -> Option<(u16, u16)> {
    size().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(bytes: &[u8]) -> Option<String> {
        line(&mut &*bytes, 8).unwrap().map(|line| line.to_string())
    }

    #[test]
    fn a_line_is_edited_blind() {
        assert_eq!(typed(b"key\rmore"), Some("key".into()));
        assert_eq!(typed(b"kex\x7fy\n"), Some("key".into()));
        assert_eq!(typed(b"wrong\x15key\x04"), Some("key".into()));
        assert_eq!(typed(b"\x08key"), Some("key".into()));
        assert_eq!(typed(b"key\x03"), None);
    }

    #[test]
    fn what_is_too_long_or_no_text_is_refused() {
        assert_eq!(typed(b"12345678\r"), Some("12345678".into()));
        assert!(line(&mut &b"123456789\r"[..], 8).is_err());
        assert!(line(&mut &b"\xff\r"[..], 8).is_err());
    }
}
