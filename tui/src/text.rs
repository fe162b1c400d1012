//! Text on a grid: widths by grapheme, cutting to a width, breaking into rows. Its input is clean already
//! (see `sanitize`); it never cuts inside a character that people see as one.

use std::borrow::Cow;

use ratatui::buffer::CellWidth as _;
use unicode_segmentation::UnicodeSegmentation as _;

use crate::sanitize::{Mode, Sanitizer, TAB_COLUMNS};

/// Returns the columns that a text takes on one row.
pub(crate) fn width(text: &str) -> usize {
    text.graphemes(true).map(grapheme_width).sum()
}

fn grapheme_width(grapheme: &str) -> usize {
    if grapheme == "\t" { TAB_COLUMNS } else { usize::from(grapheme.cell_width()) }
}

/// Shortens a text to `columns`, with `…` where something is left out.
pub(crate) fn truncate(text: &str, columns: usize) -> Cow<'_, str> {
    if width(text) <= columns {
        return Cow::Borrowed(text);
    }
    let mut used = 0;
    let mut end = 0;
    for (at, grapheme) in text.grapheme_indices(true) {
        used += grapheme_width(grapheme);
        // One column stays for the mark.
        if used >= columns {
            break;
        }
        end = at + grapheme.len();
    }
    match columns {
        0 => Cow::Borrowed(""),
        _ => Cow::Owned(format!("{}…", &text[..end])),
    }
}

/// Shortens a text to its last `columns`, with `…` where something is left out.
pub(crate) fn ending(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut used = 0;
    let mut begin = text.len();
    for (at, grapheme) in text.grapheme_indices(true).rev() {
        used += grapheme_width(grapheme);
        // One column stays for the mark.
        if used >= columns {
            break;
        }
        begin = at;
    }
    match columns {
        0 => String::new(),
        _ => format!("…{}", &text[begin..]),
    }
}

/// Where rows may break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrap {
    /// Between words and beside wide characters; the space at a break is not drawn.
    Words,
    /// Anywhere between graphemes: every character is drawn.
    Exact,
}

/// One row: a range of bytes of its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    /// First byte.
    pub(crate) start: usize,
    /// Behind the last byte; a newline or a space at the break is outside.
    pub(crate) end: usize,
}

/// Breaks a text into rows of at most `columns`; an empty text has one empty row.
pub(crate) fn wrap(text: &str, columns: usize, wrap: Wrap) -> Vec<Row> {
    let mut rows = Vec::new();
    wrap_from(text, 0, columns, wrap, &mut rows);
    rows
}

/// Breaks the text from `from`, the start of a row, and appends the rows.
fn wrap_from(text: &str, from: usize, columns: usize, wrap: Wrap, rows: &mut Vec<Row>) {
    let mut start = from;
    let mut column = 0;
    // Where this row may end and the next begin, once something is drawn in it.
    let mut candidate: Option<Row> = None;
    let mut drawn = false;
    let mut before = Cell::Start;
    for (offset, grapheme) in text[from..].grapheme_indices(true) {
        let at = from + offset;
        if grapheme == "\n" {
            rows.push(Row { start, end: at });
            (start, column, candidate, drawn, before) = (at + 1, 0, None, false, Cell::Start);
            continue;
        }
        let cell = Cell::of(grapheme);
        let breaks = match (wrap, before, cell) {
            (Wrap::Exact, _, _) => None,
            // The first space of a run ends the row, whatever follows it begins the next.
            (Wrap::Words, Cell::Space, Cell::Space) => candidate.map(|c| (c.start, at + 1)),
            (Wrap::Words, _, Cell::Space) => Some((at, at + 1)),
            (Wrap::Words, Cell::Wide, _) | (Wrap::Words, Cell::Narrow, Cell::Wide) => Some((at, at)),
            (Wrap::Words, _, _) => None,
        };
        if let (Some((end, next)), true) = (breaks, drawn) {
            candidate = Some(Row { start: end, end: next });
        }
        let columns_of = grapheme_width(grapheme);
        let hangs = wrap == Wrap::Words && cell == Cell::Space && drawn;
        if column + columns_of > columns && at > start && !hangs {
            if let Some(found) = candidate.take() {
                rows.push(Row { start, end: found.start });
                start = found.end;
                column = width(&text[start..at]);
            }
            // No break, or the word alone is wider than a row.
            if column + columns_of > columns && at > start {
                rows.push(Row { start, end: at });
                start = at;
                column = 0;
            }
        }
        column += columns_of;
        drawn |= cell != Cell::Space;
        before = cell;
    }
    rows.push(Row { start, end: text.len() });
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cell {
    Start,
    Space,
    Narrow,
    Wide,
}

impl Cell {
    fn of(grapheme: &str) -> Self {
        match grapheme {
            " " | "\t" => Self::Space,
            _ if grapheme_width(grapheme) > 1 => Self::Wide,
            _ => Self::Narrow,
        }
    }
}

/// A growing text with its rows. Appending lays out the end of it only.
#[derive(Debug, Clone)]
pub(crate) struct Flow {
    text: String,
    sanitizer: Sanitizer,
    rows: Vec<Row>,
    columns: usize,
    /// Bytes at the front whose rows are right for `columns`.
    laid_out: usize,
}

impl Flow {
    /// Starts an empty text.
    pub(crate) fn new(mode: Mode) -> Self {
        Self {
            text: String::new(),
            sanitizer: Sanitizer::new(mode),
            rows: Vec::new(),
            columns: 0,
            laid_out: 0,
        }
    }

    /// Makes a whole text.
    pub(crate) fn of(mode: Mode, text: &str) -> Self {
        let mut flow = Self::new(mode);
        flow.push(text);
        flow.finish();
        flow
    }

    /// Appends untrusted text.
    pub(crate) fn push(&mut self, piece: &str) {
        let unchanged = self.sanitizer.push(&mut self.text, piece);
        self.laid_out = self.laid_out.min(unchanged);
    }

    /// Ends the text.
    pub(crate) fn finish(&mut self) {
        self.sanitizer.finish(&mut self.text);
    }

    /// Returns the clean text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Lays out what changed since the last call, for this width, and returns whether there was anything.
    pub(crate) fn lay_out(&mut self, columns: usize) -> bool {
        if self.columns == columns && self.laid_out == self.text.len() && !self.rows.is_empty() {
            return false;
        }
        if self.columns != columns {
            self.columns = columns;
            self.rows.clear();
        }
        // The last row may grow, and a character that narrows by its successor may go back to the row before.
        while self.rows.last().is_some_and(|row| row.end > self.laid_out) {
            self.rows.pop();
        }
        let keep = self.rows.len().saturating_sub(2);
        let from = self.rows.get(keep).map_or(0, |row| row.start);
        self.rows.truncate(keep);
        wrap_from(&self.text, from, columns, Wrap::Words, &mut self.rows);
        self.laid_out = self.text.len();
        true
    }

    /// Returns how many rows there are after the last `lay_out`; empty ones at the end don't count.
    pub(crate) fn row_count(&self) -> usize {
        self.rows.iter().rposition(|row| row.start < row.end).map_or(0, |last| last + 1)
    }

    /// Returns a row's text.
    pub(crate) fn row(&self, index: usize) -> &str {
        self.rows.get(index).and_then(|row| self.text.get(row.start..row.end)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rows(text: &str, columns: usize, mode: Wrap) -> Vec<&str> {
        wrap(text, columns, mode).iter().map(|row| &text[row.start..row.end]).collect()
    }

    #[test]
    fn words_break_at_spaces_and_beside_wide_characters() {
        assert_eq!(rows("one two three", 8, Wrap::Words), ["one two", "three"]);
        assert_eq!(rows("abcdefghij kl", 4, Wrap::Words), ["abcd", "efgh", "ij", "kl"]);
        assert_eq!(rows("ab 职员表 c", 6, Wrap::Words), ["ab 职", "员表 c"]);
        assert_eq!(rows("a\n\nb\n", 4, Wrap::Words), ["a", "", "b", ""]);
        assert_eq!(rows("    deep indent", 9, Wrap::Words), ["    deep", "indent"]);
        assert_eq!(rows("", 4, Wrap::Words), [""]);
    }

    #[test]
    fn exact_rows_hold_every_character() {
        let text = format!("echo{}rm -rf build", " ".repeat(30));
        assert_eq!(rows(&text, 10, Wrap::Exact).concat(), text);
    }

    #[test]
    fn cutting_counts_columns_and_never_splits_a_grapheme() {
        assert_eq!(truncate("职员表", 6), "职员表");
        assert_eq!(truncate("职员表", 5), "职员…");
        assert_eq!(truncate("职员表", 4), "职…");
        assert_eq!(truncate("abc", 1), "…");
        assert_eq!(truncate("abc", 0), "");
        assert_eq!(ending("职员表", 6), "职员表");
        assert_eq!(ending("职员表", 4), "…表");
        assert_eq!(ending("abc", 0), "");
        for columns in 0..40 {
            let text = "a职e\u{301}👩\u{200D}👧b".repeat(4);
            assert!(width(&truncate(&text, columns)) <= columns);
            assert!(width(&ending(&text, columns)) <= columns);
        }
    }

    fn writing() -> impl Strategy<Value = String> {
        let chars = prop::sample::select(vec![
            'a', 'b', 'c', ' ', ' ', '\n', '职', '\u{301}', '👩', '\u{200D}', '❤', '\u{FE0F}', '\r', '🇩',
            '한', 'ﾞ',
        ]);
        prop::collection::vec(chars, 0..80).prop_map(|chars| chars.into_iter().collect())
    }

    proptest! {
        #[test]
        fn a_streamed_text_has_the_rows_of_the_whole(pieces in prop::collection::vec(writing(), 0..6), columns in 2_usize..20) {
            let mut streamed = Flow::new(Mode::Block);
            for piece in &pieces {
                streamed.push(piece);
                streamed.lay_out(columns);
            }
            streamed.finish();
            streamed.lay_out(columns);
            let mut whole = Flow::of(Mode::Block, &pieces.concat());
            whole.lay_out(columns);
            prop_assert_eq!(streamed.text(), whole.text());
            prop_assert_eq!(streamed.rows, whole.rows);
        }

        #[test]
        fn rows_fit_and_lose_only_white_space(text in writing(), columns in 2_usize..20) {
            let text = crate::sanitize::clean(Mode::Block, &text).text;
            for mode in [Wrap::Words, Wrap::Exact] {
                let rows = rows(&text, columns, mode);
                for row in &rows {
                    // A grapheme that is wider than the row stands in it alone.
                    let fits = width(row.trim_end()) <= columns || row.trim_end().graphemes(true).count() == 1;
                    prop_assert!(fits, "{row:?}");
                }
                let dense = |text: &str| text.split_whitespace().collect::<String>();
                prop_assert_eq!(dense(&rows.concat()), dense(&text));
            }
        }
    }
}
