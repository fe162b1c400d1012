//! The rows of a tool's output that its entry shows: the last lines while it runs, the first ones afterwards.

use crate::pane::transcript::entry::{head, tail};
use crate::sanitize::{self, Mode};

/// Rows of a running tool's output that are shown.
const LIVE_ROWS: usize = 5;
/// Bytes of a running tool's output that are kept; the newest stay.
const LIVE_BYTES: usize = 8 << 10;
/// Rows of a whole output that are shown.
const PREVIEW_ROWS: usize = 3;
/// Bytes of a tool's output that the preview is made from.
const PREVIEW_BYTES: usize = 16 << 10;

/// What a tool call has given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Output {
    /// The newest text of a running call, as it came.
    newest: String,
    rows: Vec<String>,
}

impl Output {
    /// Takes a piece of what a running call writes.
    pub(crate) fn write(&mut self, piece: &str) {
        self.newest.push_str(tail(piece, LIVE_BYTES));
        let kept = tail(&self.newest, LIVE_BYTES);
        if kept.len() < self.newest.len() {
            // From the start of a line on, if there is one.
            let lines = kept.split_once('\n').map(|(_, lines)| lines).filter(|lines| !lines.is_empty());
            self.newest = lines.unwrap_or(kept).to_owned();
        }
        self.rows = last_lines(&self.newest);
    }

    /// Takes the whole output instead.
    pub(crate) fn set(&mut self, output: &str, truncated: bool) {
        *self = Self { newest: String::new(), rows: preview_of(output, truncated) };
    }

    /// Returns the rows to be shown; clean.
    pub(crate) fn rows(&self) -> &[String] {
        &self.rows
    }
}

/// Returns the last lines of an output that goes on.
fn last_lines(output: &str) -> Vec<String> {
    let clean = sanitize::clean(Mode::Block, output).text;
    let lines = clean.lines().rev().filter(|line| !line.trim().is_empty());
    let mut last: Vec<String> = lines.take(LIVE_ROWS).map(str::to_owned).collect();
    last.reverse();
    last
}

/// Returns the first lines of a whole output, and how many are left out.
fn preview_of(output: &str, truncated: bool) -> Vec<String> {
    let cut = head(output, PREVIEW_BYTES);
    let clean = sanitize::clean(Mode::Block, cut).text;
    let mut lines = clean.lines().filter(|line| !line.trim().is_empty());
    let mut preview: Vec<String> = lines.by_ref().take(PREVIEW_ROWS).map(str::to_owned).collect();
    let more = lines.count();
    if truncated || cut.len() < output.len() {
        preview.push("… more".to_owned());
    } else if more > 0 {
        preview.push(format!("… {more} more {}", if more == 1 { "line" } else { "lines" }));
    }
    preview
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preview_shows_the_last_state_of_progress_and_counts_the_rest() {
        assert_eq!(preview_of("1/3\r2/3\r3/3\nok\n", false), ["3/3", "ok"]);
        assert_eq!(preview_of("a\nb\n\nc\nd\n", false), ["a", "b", "c", "… 1 more line"]);
        assert_eq!(preview_of("    12\tfn main\n", false), ["    12    fn main"]);
        assert_eq!(preview_of("a", true), ["a", "… more"]);
        assert_eq!(preview_of("", false), Vec::<String>::new());
    }

    fn written(pieces: &[&str]) -> Output {
        let mut output = Output::default();
        pieces.iter().for_each(|piece| output.write(piece));
        output
    }

    #[test]
    fn a_running_call_shows_its_last_lines_until_its_result_is_there() {
        let mut output = written(&["one\n\ntw", "o\nthree\n", "four\nfive\n1/2\r", "2/2"]);
        assert_eq!(output.rows(), ["two", "three", "four", "five", "2/2"]);
        output.set("one\ntwo\n", false);
        assert_eq!(output.rows(), ["one", "two"]);
        output.set("", false);
        assert_eq!(output.rows(), Vec::<String>::new());
    }

    #[test]
    fn what_a_running_call_writes_can_not_drive_the_terminal() {
        assert_eq!(written(&["a\u{1b}", "[2Jb\tc\u{202e}"]).rows(), ["a\\u{1B}[2Jb    c\\u{202E}"]);
    }

    #[test]
    fn of_a_long_output_the_newest_is_kept_from_the_start_of_a_line() {
        let mut output = Output::default();
        for n in 0..9_000 {
            output.write(&format!("职 {n}\n"));
            assert!(output.newest.len() <= LIVE_BYTES && output.newest.starts_with('职'));
        }
        assert_eq!(output.rows()[4], "职 8999");
        for padding in 0..4 {
            let line = format!("{}{}", "职".repeat(LIVE_BYTES), "a".repeat(padding));
            let output = written(&["before\n", &line]);
            assert!(output.newest.len() <= LIVE_BYTES);
            assert_eq!(output.rows().len(), 1);
        }
        assert_eq!(written(&[&format!("{}\n", "x".repeat(LIVE_BYTES))]).rows().len(), 1);
    }

    #[test]
    fn a_preview_is_cut_between_characters() {
        for padding in 0..4 {
            let text = format!("{}{}", "a".repeat(PREVIEW_BYTES - padding), "职".repeat(9));
            assert_eq!(preview_of(&text, false).len(), 2);
        }
    }
}
