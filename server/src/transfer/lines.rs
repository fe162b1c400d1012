//! Cuts a stream of bytes into lines of a bounded length. A line ends with a line feed and with nothing else, so that
//! no character within a text can end it.

/// Longest line of a file, in bytes: an event with the largest message there can be, escaped, and room around it.
pub(super) const MAX_LINE_BYTES: usize = 32 << 20;

/// Takes bytes as they come and gives lines.
#[derive(Debug)]
pub(crate) struct Lines {
    limit: usize,
    begun: Vec<u8>,
}

/// A line is longer than its limit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

impl Default for Lines {
    fn default() -> Self {
        Self::with_limit(MAX_LINE_BYTES)
    }
}

impl Lines {
    fn with_limit(limit: usize) -> Self {
        Self { limit, begun: Vec::new() }
    }

    /// Takes what stands up to the next end of a line from the front of `bytes`. `None`: the line goes on.
    pub(crate) fn take(&mut self, bytes: &mut &[u8]) -> Result<Option<Vec<u8>>, TooLong> {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let (line, rest) = match end {
            Some(end) => (&bytes[..end], &bytes[end + 1..]),
            None => (*bytes, &[][..]),
        };
        if self.begun.len() + line.len() > self.limit {
            return Err(TooLong);
        }
        self.begun.extend_from_slice(line);
        *bytes = rest;
        Ok(end.map(|_| std::mem::take(&mut self.begun)))
    }

    /// Returns the last line, where nothing ends it.
    pub(crate) fn rest(self) -> Option<Vec<u8>> {
        (!self.begun.is_empty()).then_some(self.begun)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pieces: &[&str], limit: usize) -> Result<Vec<String>, TooLong> {
        let (mut lines, mut out) = (Lines::with_limit(limit), Vec::new());
        for piece in pieces {
            let mut bytes = piece.as_bytes();
            while !bytes.is_empty() {
                out.extend(lines.take(&mut bytes)?);
            }
        }
        out.extend(lines.rest());
        Ok(out.into_iter().map(|line| String::from_utf8(line).unwrap()).collect())
    }

    #[test]
    fn lines_are_the_same_however_the_bytes_come() {
        let text = "one\n\ntwo \u{2028} and \u{85}\nthree";
        let expected = ["one", "", "two \u{2028} and \u{85}", "three"];
        assert_eq!(lines(&[text], 100).unwrap(), expected);
        let single: Vec<&str> = text.split_inclusive(|_| true).collect();
        assert_eq!(lines(&single, 100).unwrap(), expected);
        assert_eq!(lines(&["one\n"], 100).unwrap(), ["one"]);
        assert_eq!(lines(&[""], 100).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_line_has_at_most_so_many_bytes() {
        assert_eq!(lines(&["12345\n", "123", "45\n"], 5).unwrap(), ["12345", "12345"]);
        assert_eq!(lines(&["123456\n"], 5), Err(TooLong));
        assert_eq!(lines(&["12345", "6"], 5), Err(TooLong));
    }
}
