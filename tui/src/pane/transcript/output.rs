//! The rows of a tool's output that its entry shows.

use crate::pane::transcript::entry::head;
use crate::sanitize::{self, Mode};

/// Rows of a tool's output that are shown.
const PREVIEW_ROWS: usize = 3;
/// Bytes of a tool's output that the preview is made from.
const PREVIEW_BYTES: usize = 16 << 10;

/// Returns the first lines, and how many are left out.
pub(crate) fn preview_of(output: &str, truncated: bool) -> Vec<String> {
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

    #[test]
    fn a_preview_is_cut_between_characters() {
        for padding in 0..4 {
            let text = format!("{}{}", "a".repeat(PREVIEW_BYTES - padding), "职".repeat(9));
            assert_eq!(preview_of(&text, false).len(), 2);
        }
    }
}
