//! Where the user writes: several lines, a cursor that moves by grapheme, the messages sent before.
//! It sends nothing itself; `update` takes the text.

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::text::{Line, Span};
use unicode_segmentation::UnicodeSegmentation as _;

use crate::sanitize::{self, Mode, TAB_COLUMNS};
use crate::text::{self, Row, Wrap};
use crate::theme::{Role, Theme};

/// Largest text in the composer, in bytes; what would exceed it is refused whole.
pub(crate) const MAX_DRAFT_BYTES: usize = 256 << 10;
/// Most sent messages that Up brings back; older ones are forgotten.
const MAX_HISTORY: usize = 200;
/// Columns of the mark before the first row.
const PROMPT_COLUMNS: u16 = 2;

/// A change of the text or of the cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Edit {
    /// One grapheme to the left.
    Left,
    /// One grapheme to the right.
    Right,
    /// One word to the left.
    WordLeft,
    /// One word to the right.
    WordRight,
    /// To the start of the line.
    LineStart,
    /// To the end of the line.
    LineEnd,
    /// One row up, or to the message sent before.
    Up,
    /// One row down, or to the message sent after.
    Down,
    /// Delete the grapheme before the cursor.
    Backspace,
    /// Delete the grapheme behind the cursor.
    Delete,
    /// Delete the word before the cursor.
    DeleteWord,
    /// Delete everything before the cursor in its line.
    DeleteToStart,
    /// Delete everything behind the cursor in its line.
    DeleteToEnd,
}

/// The composer's state.
#[derive(Debug)]
pub(crate) struct Composer {
    text: String,
    /// A byte offset at a grapheme's edge.
    cursor: usize,
    history: Vec<String>,
    /// Which message of the history is shown.
    recalled: Option<usize>,
    /// What was being written before the history was opened.
    draft: String,
    rows: Vec<Row>,
    /// Columns that `rows` are for; 0 until the first layout.
    columns: usize,
    /// The text has changed since `rows` were made.
    stale: bool,
    /// First row that is visible.
    top: usize,
}

/// The text would exceed [`MAX_DRAFT_BYTES`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

impl Composer {
    /// Makes an empty composer.
    pub(crate) fn new() -> Self {
        Self {
            text: String::new(),
            cursor: 0,
            history: Vec::new(),
            recalled: None,
            draft: String::new(),
            rows: Vec::new(),
            columns: 0,
            stale: true,
            top: 0,
        }
    }

    /// Returns the text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether nothing is written.
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Writes at the cursor what was typed or pasted, as one block.
    pub(crate) fn insert(&mut self, written: &str) -> Result<(), TooLong> {
        let mut chars = written.chars();
        let clean = match (chars.next(), chars.next()) {
            // Typed on its own, as the parts of an emoji are: it belongs to the character before the cursor.
            (Some(c), None) if sanitize::attaches(c) => written.to_owned(),
            _ => sanitize::clean(Mode::Draft, written).text,
        };
        if self.text.len() + clean.len() > MAX_DRAFT_BYTES {
            return Err(TooLong);
        }
        self.text.insert_str(self.cursor, &clean);
        self.cursor += clean.len();
        self.changed();
        self.recalled = None;
        Ok(())
    }

    /// Replaces the text, with the cursor at its end.
    pub(crate) fn set(&mut self, text: &str) {
        text.clone_into(&mut self.text);
        self.cursor = self.text.len();
        self.stale = true;
    }

    /// Takes the text out and remembers it for Up.
    pub(crate) fn take(&mut self) -> String {
        let text = std::mem::take(&mut self.text);
        self.cursor = 0;
        self.stale = true;
        self.recalled = None;
        if !text.trim().is_empty() && self.history.last() != Some(&text) {
            if self.history.len() == MAX_HISTORY {
                self.history.remove(0);
            }
            self.history.push(text.clone());
        }
        text
    }

    /// Removes a `\` that stands before the cursor at the end of the text; then Enter means a new line.
    pub(crate) fn take_continuation(&mut self) -> bool {
        let continues = self.cursor == self.text.len() && self.text.ends_with('\\');
        if continues {
            self.text.pop();
            self.cursor = self.text.len();
            self.stale = true;
        }
        continues
    }

    /// Moves or deletes.
    pub(crate) fn edit(&mut self, edit: Edit) {
        match edit {
            Edit::Left => self.cursor = self.before(),
            Edit::Right => self.cursor = self.behind(),
            Edit::WordLeft => self.cursor = self.word_before(),
            Edit::WordRight => self.cursor = self.word_behind(),
            Edit::LineStart => self.cursor = self.line().start,
            Edit::LineEnd => self.cursor = self.line().end,
            Edit::Up => self.up(),
            Edit::Down => self.down(),
            Edit::Backspace => self.delete(self.before(), self.cursor),
            Edit::Delete => self.delete(self.cursor, self.behind()),
            Edit::DeleteWord => self.delete(self.word_before(), self.cursor),
            Edit::DeleteToStart => self.delete(self.line().start, self.cursor),
            Edit::DeleteToEnd => self.delete(self.cursor, self.line().end),
        }
    }

    fn delete(&mut self, start: usize, end: usize) {
        self.text.replace_range(start..end, "");
        self.cursor = start;
        self.changed();
        self.recalled = None;
    }

    /// Moves the cursor to a grapheme's edge: what stands beside it may have joined.
    fn changed(&mut self) {
        self.stale = true;
        let edge = self.text.grapheme_indices(true).map(|(at, _)| at).find(|at| *at >= self.cursor);
        self.cursor = edge.unwrap_or(self.text.len());
    }

    fn before(&self) -> usize {
        self.text[..self.cursor].grapheme_indices(true).next_back().map_or(0, |(at, _)| at)
    }

    fn behind(&self) -> usize {
        self.cursor + self.text[self.cursor..].graphemes(true).next().map_or(0, str::len)
    }

    fn word_before(&self) -> usize {
        let mut words = self.text[..self.cursor].split_word_bound_indices().rev();
        words.find(|(_, word)| !word.trim().is_empty()).map_or(0, |(at, _)| at)
    }

    fn word_behind(&self) -> usize {
        let rest = &self.text[self.cursor..];
        let mut words = rest.split_word_bound_indices();
        words
            .find(|(_, word)| !word.trim().is_empty())
            .map_or(self.text.len(), |(at, word)| self.cursor + at + word.len())
    }

    /// The line, between newlines, that the cursor is in.
    fn line(&self) -> Row {
        let start = self.text[..self.cursor].rfind('\n').map_or(0, |at| at + 1);
        let end = self.text[self.cursor..].find('\n').map_or(self.text.len(), |at| self.cursor + at);
        Row { start, end }
    }

    fn up(&mut self) {
        self.refresh();
        let (row, column) = self.cursor_cell();
        match row.checked_sub(1) {
            Some(row) => self.cursor = self.at_cell(row, column),
            None => self.recall(self.recalled.unwrap_or(self.history.len()).checked_sub(1)),
        }
    }

    fn down(&mut self) {
        self.refresh();
        let (row, column) = self.cursor_cell();
        if row + 1 < self.rows.len() {
            self.cursor = self.at_cell(row + 1, column);
        } else if let Some(recalled) = self.recalled {
            self.recall(Some(recalled + 1));
        }
    }

    /// Shows a message of the history; one behind the last is what was being written.
    fn recall(&mut self, index: Option<usize>) {
        let Some(index) = index else { return };
        if self.recalled.is_none() {
            self.draft.clone_from(&self.text);
        }
        match self.history.get(index).cloned() {
            Some(text) => {
                self.set(&text);
                self.recalled = Some(index);
            }
            None => {
                let draft = std::mem::take(&mut self.draft);
                self.set(&draft);
                self.recalled = None;
            }
        }
    }

    /// Breaks the text into rows for an area of this width, and returns how many there are.
    pub(crate) fn lay_out(&mut self, columns: u16) -> usize {
        let columns = usize::from(columns.saturating_sub(PROMPT_COLUMNS)).max(1);
        self.stale |= self.columns != columns;
        self.columns = columns;
        self.refresh();
        self.rows.len()
    }

    fn refresh(&mut self) {
        if !self.stale {
            return;
        }
        self.stale = false;
        self.rows = text::wrap(&self.text, self.columns.max(1), Wrap::Exact);
        // A full last row leaves the cursor no column: it stands in a row of its own.
        if self.rows.last().is_some_and(|row| text::width(&self.text[row.start..row.end]) >= self.columns) {
            self.rows.push(Row { start: self.text.len(), end: self.text.len() });
        }
    }

    /// Scrolls so that the cursor is among `height` visible rows.
    pub(crate) fn scroll(&mut self, height: u16) {
        let height = usize::from(height).max(1);
        let (row, _) = self.cursor_cell();
        self.top = self
            .top
            .min(row)
            .max((row + 1).saturating_sub(height))
            .min(self.rows.len().saturating_sub(height));
    }

    fn cursor_cell(&self) -> (usize, usize) {
        let row = self.rows.iter().rposition(|row| row.start <= self.cursor).unwrap_or(0);
        let start = self.rows.get(row).map_or(0, |row| row.start.min(self.cursor));
        (row, self.text.get(start..self.cursor).map_or(0, text::width))
    }

    fn at_cell(&self, row: usize, column: usize) -> usize {
        let Some(row) = self.rows.get(row) else { return self.cursor };
        let mut used = 0;
        for (at, grapheme) in self.text[row.start..row.end].grapheme_indices(true) {
            if used >= column {
                return row.start + at;
            }
            used += text::width(grapheme);
        }
        row.end
    }

    /// Draws the rule with `hint` and the text below it; returns where the cursor stands.
    pub(crate) fn view(&self, area: Rect, buffer: &mut Buffer, theme: Theme, hint: &str) -> Position {
        let rule = format!("── {hint} ");
        let rule = text::truncate(&rule, usize::from(area.width)).into_owned();
        let missing = usize::from(area.width).saturating_sub(text::width(&rule));
        let line = Line::styled(rule + &"─".repeat(missing), theme.style(Role::Faint));
        buffer.set_line(area.x, area.y, &line, area.width);
        let body = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
        for (y, row) in (body.y..body.bottom()).zip(self.top..self.rows.len()) {
            let mark = if row == 0 { "› " } else { "  " };
            let shown =
                self.text[self.rows[row].start..self.rows[row].end].replace('\t', &" ".repeat(TAB_COLUMNS));
            let line = Line::from(vec![Span::styled(mark, theme.style(Role::Key)), Span::raw(shown)]);
            buffer.set_line(body.x, y, &line, body.width);
        }
        let (row, column) = self.cursor_cell();
        let x = body.x + PROMPT_COLUMNS + u16::try_from(column).unwrap_or(u16::MAX).min(area.width);
        let y = body.y + u16::try_from(row.saturating_sub(self.top)).unwrap_or(0);
        Position { x: x.min(area.right().saturating_sub(1)), y: y.min(area.bottom().saturating_sub(1)) }
    }
}

#[cfg(test)]
mod tests;
