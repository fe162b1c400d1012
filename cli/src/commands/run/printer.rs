//! The answer on standard output, as it is written, ending with exactly one newline.

use crate::output::Output;

/// How the answer is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// As text, while it is written.
    Text,
    /// As one object at the end.
    Json,
    /// As the server's events; the text is in them.
    JsonLines,
}

/// Collects pieces and writes them in bursts.
#[derive(Debug)]
pub(super) struct Printer {
    format: Format,
    /// Nothing is written before the end.
    hold: bool,
    pending: String,
    /// Newlines at the end so far, which are written only when more follows.
    newlines: usize,
    written: bool,
}

impl Printer {
    pub(super) fn new(format: Format, hold: bool) -> Self {
        Self { format, hold, pending: String::new(), newlines: 0, written: false }
    }

    pub(super) fn format(&self) -> Format {
        self.format
    }

    /// Takes a piece of the answer.
    pub(super) fn text(&mut self, piece: &str) {
        if self.format != Format::Text {
            return;
        }
        let body = piece.trim_end_matches('\n');
        if !body.is_empty() {
            self.pending.extend(std::iter::repeat_n('\n', self.newlines));
            self.newlines = 0;
            self.pending.push_str(body);
        }
        self.newlines += piece.len() - body.len();
    }

    /// Forgets what is not written yet.
    pub(super) fn discard(&mut self) {
        self.pending.clear();
        self.newlines = 0;
    }

    /// Writes what has come.
    ///
    /// # Errors
    /// As [`Output::data`].
    pub(super) fn flush(&mut self, out: &Output) -> anyhow::Result<()> {
        if self.hold { Ok(()) } else { self.write(out) }
    }

    /// Writes the rest, and the one newline behind an answer.
    ///
    /// # Errors
    /// As [`Output::data`].
    pub(super) fn finish(&mut self, out: &Output) -> anyhow::Result<()> {
        if self.written || !self.pending.is_empty() {
            self.newlines = 0;
            self.pending.push('\n');
        }
        self.write(out)
    }

    fn write(&mut self, out: &Output) -> anyhow::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.written = true;
        out.data(&std::mem::take(&mut self.pending))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(pieces: &[&str]) -> String {
        let mut printer = Printer::new(Format::Text, false);
        for piece in pieces {
            printer.text(piece);
        }
        printer.pending
    }

    #[test]
    fn newlines_at_the_end_wait_for_more() {
        assert_eq!(pending(&["a\n\n"]), "a");
        assert_eq!(pending(&["a\n", "\n", "b\n"]), "a\n\nb");
        assert_eq!(pending(&["\n", "a"]), "\na");
        assert_eq!(pending(&["\n"]), "");
    }

    #[test]
    fn other_formats_print_no_text() {
        let mut printer = Printer::new(Format::Json, false);
        printer.text("a");
        assert_eq!(printer.pending, "");
    }
}
