//! The conversation as it is read: entries in order, and which rows of them are in view. Only what changed is
//! laid out again, and only what is in view is drawn. It asks nobody anything and knows no frames of the wire.

pub(crate) mod entry;
mod messages;
mod output;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use tns_protocol::approval::AuditDecision;
use tns_protocol::{AgentId, ClientMessageId, ToolCallId};

use crate::pane::transcript::entry::{Delivery, Entry, Kind, ToolState};
use crate::text;
use crate::theme::{Role, Theme};

/// Most entries that are kept; the oldest go first. The server has them all.
pub(crate) const MAX_ENTRIES: usize = 20_000;
/// Entries that go at once when there are too many.
const FORGOTTEN_AT_ONCE: usize = 1_000;

/// A place among the rows: an entry and a row of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Place {
    entry: usize,
    row: usize,
}

/// The transcript's state.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    entries: Vec<Entry>,
    /// The first row in view.
    top: Place,
    /// The view holds still instead of following the end.
    held: bool,
    /// The first entry that came or grew since the view holds still.
    first_new: Option<usize>,
    /// Entries before this one are final: they belong to turns that have ended.
    settled: usize,
    /// All of what models think is shown, not one row of it.
    unfolded: bool,
    columns: usize,
    height: usize,
}

impl Transcript {
    /// Whether nothing was said yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Forgets what is shown; a message that waits for its turn stays.
    pub(crate) fn clear(&mut self) {
        let (columns, height, unfolded, end) = (self.columns, self.height, self.unfolded, self.end());
        let entries = self.entries.split_off(end);
        *self = Self { columns, height, unfolded, entries, ..Self::default() };
    }

    /// Forgets everything but the messages of this screen that are not known to be stored.
    pub(crate) fn forget_stored(&mut self) {
        let (columns, height, unfolded) = (self.columns, self.height, self.unfolded);
        let mut entries = std::mem::take(&mut self.entries);
        entries.retain(Entry::is_unstored);
        for entry in &mut entries {
            // Behind whatever the log tells.
            if let Kind::User(Delivery::Sending(id)) = &entry.kind {
                entry.kind = Kind::User(Delivery::Waiting(id.clone()));
            }
        }
        *self = Self { columns, height, unfolded, entries, ..Self::default() };
    }

    /// Where the conversation ends: behind it stand only messages that wait for their turn.
    fn end(&self) -> usize {
        self.entries.len() - self.entries.iter().rev().take_while(|entry| entry.waits()).count()
    }

    /// Adds an entry: a message that waits goes to the very end, any other to the end of the conversation.
    fn add(&mut self, entry: Entry) -> usize {
        if self.entries.len() == MAX_ENTRIES {
            self.entries.drain(..FORGOTTEN_AT_ONCE);
            self.settled = self.settled.saturating_sub(FORGOTTEN_AT_ONCE);
            self.first_new = self.first_new.map(|first| first.saturating_sub(FORGOTTEN_AT_ONCE));
            self.top = match self.top.entry.checked_sub(FORGOTTEN_AT_ONCE) {
                Some(entry) => Place { entry, ..self.top },
                None => Place::default(),
            };
        }
        let index = if entry.waits() { self.entries.len() } else { self.end() };
        self.touch(index);
        self.entries.insert(index, entry);
        if self.held && self.top.entry >= index && index + 1 < self.entries.len() {
            self.top.entry += 1;
        }
        index
    }

    /// Notes that an entry came or grew while the view holds still.
    fn touch(&mut self, index: usize) {
        if self.held {
            self.first_new = Some(self.first_new.map_or(index, |first| first.min(index)));
        }
    }

    /// Adds a word of the program's own.
    pub(crate) fn notice(&mut self, role: Role, text: &str) {
        self.add(Entry::new(Kind::Notice { role }, "", text));
    }

    /// Appends a piece of what an agent thinks before it goes on.
    pub(crate) fn reasoning(&mut self, id: &AgentId, piece: &str) {
        let thinks =
            |entry: &Entry| matches!(&entry.kind, Kind::Reasoning { id: of, open: true, .. } if of == id);
        let index = self.entries[self.settled..].iter().rposition(thinks).map(|at| self.settled + at);
        let index = index.unwrap_or_else(|| self.add(Entry::reasoning(id.clone(), !self.unfolded)));
        self.entries[index].push(piece);
        self.touch(index);
    }

    /// Shows all of what models think, or one row of each again.
    pub(crate) fn fold_reasoning(&mut self) {
        self.unfolded = !self.unfolded;
        for entry in &mut self.entries {
            entry.fold(!self.unfolded);
        }
    }

    /// Shows the running step of an agent's reply as it is written so far.
    pub(crate) fn written_so_far(&mut self, id: &AgentId, place: usize, name: &str, text: &str) {
        match self.streaming(id) {
            Some(index) => {
                self.entries[index].rewrite(text);
                self.touch(index);
            }
            None if text.is_empty() => {}
            None => self.token(id, place, name, text),
        }
    }

    /// The entry of a reply that is arriving.
    fn streaming(&self, id: &AgentId) -> Option<usize> {
        let streams =
            |entry: &Entry| matches!(&entry.kind, Kind::Agent { id: of, open: true, .. } if of == id);
        self.entries[self.settled..].iter().rposition(streams).map(|at| self.settled + at)
    }

    /// What an agent thought is over as soon as it says or does something.
    fn close_reasoning(&mut self) {
        let thoughts = self.entries[self.settled..].iter_mut();
        thoughts.filter(|entry| matches!(entry.kind, Kind::Reasoning { .. })).for_each(Entry::close);
    }

    /// Appends a piece of an agent's reply.
    pub(crate) fn token(&mut self, id: &AgentId, place: usize, name: &str, piece: &str) {
        let index = self.streaming(id).unwrap_or_else(|| {
            self.close_reasoning();
            self.add(Entry::stream(id.clone(), place, name))
        });
        self.entries[index].push(piece);
        self.touch(index);
    }

    /// Ends a step of an agent's reply with its stored text.
    pub(crate) fn agent_stored(&mut self, id: &AgentId, place: usize, name: &str, text: &str) {
        self.close_reasoning();
        if let Some(index) = self.streaming(id) {
            self.entries[index].set_text(text);
            self.entries[index].close();
            self.touch(index);
        } else if !text.is_empty() {
            self.add(Entry::new(Kind::Agent { id: id.clone(), place, open: false }, name, text));
        }
    }

    /// Ends every text that was still arriving.
    pub(crate) fn close_streams(&mut self) {
        self.entries[self.settled..].iter_mut().for_each(Entry::close);
    }

    /// Says how far a tool call has come; a call that is not shown yet gets its entry.
    pub(crate) fn tool(&mut self, id: &ToolCallId, tool: &str, detail: &str, state: ToolState) {
        match self.find_tool(id) {
            Some(index) => {
                self.entries[index].set_state(state);
                self.touch(index);
            }
            None => {
                self.close_streams();
                self.add(Entry::tool(id.clone(), state, tool, detail));
            }
        }
    }

    /// Says how an approval was settled, if its call is shown or will not run.
    pub(crate) fn tool_settled(&mut self, id: &ToolCallId, how: AuditDecision, by: Option<&str>) {
        let Some(index) = self.find_tool(id) else { return };
        let Kind::Tool { state, .. } = &self.entries[index].kind else { return };
        let open = matches!(state, ToolState::Waiting | ToolState::Allowed);
        if open {
            let by = by.map(str::to_owned);
            let to = if entry::runs(how) { ToolState::Allowed } else { ToolState::Refused { how, by } };
            self.entries[index].set_state(to);
            self.touch(index);
        }
    }

    /// Gives a tool call its outcome.
    pub(crate) fn tool_done(
        &mut self,
        id: &ToolCallId,
        tool: &str,
        outcome: ToolState,
        output: &str,
        cut: bool,
    ) {
        self.tool(id, tool, "", outcome);
        if let Some(index) = self.find_tool(id) {
            self.entries[index].set_output(output, cut);
        }
    }

    /// Shows a piece of what a running tool call writes.
    pub(crate) fn tool_writes(&mut self, id: &ToolCallId, piece: &str) {
        if let Some(index) = self.find_tool(id) {
            self.entries[index].write_output(piece);
            self.touch(index);
        }
    }

    fn find_tool(&self, id: &ToolCallId) -> Option<usize> {
        self.entries.iter().rposition(|entry| matches!(&entry.kind, Kind::Tool { id: of, .. } if of == id))
    }

    /// Ends a turn: what is shown of it is final.
    pub(crate) fn settle(&mut self) {
        self.close_streams();
        self.entries[self.settled..].iter_mut().for_each(Entry::forget_output);
        self.settled = self.end();
    }

    /// Follows the end again.
    pub(crate) fn follow(&mut self) {
        self.held = false;
        self.first_new = None;
    }

    /// Whether the view is scrolled up.
    pub(crate) fn is_held(&self) -> bool {
        self.held
    }

    /// Scrolls by one page less a row that stays in view.
    pub(crate) fn page(&mut self, direction: Scroll) {
        self.scroll(direction, self.height.saturating_sub(1).max(1));
    }

    /// Scrolls by rows.
    pub(crate) fn scroll(&mut self, direction: Scroll, rows: usize) {
        match direction {
            Scroll::Up => {
                let top = self.up_from(self.top, rows);
                if top < self.top {
                    self.top = top;
                    self.held = true;
                }
            }
            Scroll::Down if self.held => {
                self.top = self.down_from(self.top, rows);
                let last = self.last_top();
                if self.top >= last {
                    self.follow();
                }
            }
            Scroll::Down => {}
        }
    }

    /// Lays out what is in view and places the view; returns how many entries were laid out anew.
    pub(crate) fn lay_out(&mut self, columns: u16, height: u16) -> usize {
        self.columns = usize::from(columns).max(1);
        self.height = usize::from(height).max(1);
        let mut anew = 0;
        if self.held {
            let mut rows = 0;
            for entry in self.entries.iter_mut().skip(self.top.entry) {
                anew += usize::from(entry.lay_out(self.columns));
                rows += entry.rows();
                if rows >= self.height + self.top.row {
                    break;
                }
            }
            // A wider screen has fewer rows.
            let last_row = self.entries.get(self.top.entry).map_or(0, |entry| entry.rows().saturating_sub(1));
            self.top.row = self.top.row.min(last_row);
        } else {
            let mut missing = self.height;
            for entry in self.entries.iter_mut().rev() {
                anew += usize::from(entry.lay_out(self.columns));
                missing = missing.saturating_sub(entry.rows());
                if missing == 0 {
                    break;
                }
            }
            self.top = self.last_top();
        }
        anew
    }

    /// The first row in view when the last row stands at the bottom.
    fn last_top(&mut self) -> Place {
        self.up_from(Place { entry: self.entries.len(), row: 0 }, self.height)
    }

    fn up_from(&mut self, from: Place, rows: usize) -> Place {
        let Place { mut entry, mut row } = from;
        let mut missing = rows;
        while missing > row {
            missing -= row;
            let Some(before) = entry.checked_sub(1) else { return Place::default() };
            entry = before;
            self.entries[entry].lay_out(self.columns);
            row = self.entries[entry].rows();
        }
        Place { entry, row: row - missing }
    }

    fn down_from(&mut self, from: Place, rows: usize) -> Place {
        let Place { mut entry, mut row } = from;
        let mut missing = rows;
        while let Some(shown) = self.entries.get_mut(entry) {
            shown.lay_out(self.columns);
            let left = shown.rows().saturating_sub(row);
            if missing < left {
                return Place { entry, row: row + missing };
            }
            missing -= left;
            (entry, row) = (entry + 1, 0);
        }
        Place { entry, row }
    }

    /// Draws the rows in view, and how much is new below them.
    pub(crate) fn view(&self, area: Rect, buffer: &mut Buffer, theme: Theme) {
        let mut y = area.y;
        let mut skip = self.top.row;
        for entry in self.entries.iter().skip(self.top.entry) {
            for index in skip..entry.rows() {
                if y >= area.bottom() {
                    break;
                }
                let line = entry.row(index, usize::from(area.width), theme);
                buffer.set_line(area.x, y, &line, area.width);
                y += 1;
            }
            skip = 0;
        }
        if self.held && area.height > 0 {
            let badge = match self.first_new {
                Some(first) => format!(" ↓ {} new · End ", self.entries.len().saturating_sub(first)),
                None => " ↓ End ".to_owned(),
            };
            let width = u16::try_from(text::width(&badge)).unwrap_or(area.width).min(area.width);
            let line = Line::styled(badge, theme.style(Role::Bar));
            let beside = (area.right() - width).checked_sub(1).filter(|x| *x >= area.x);
            if let Some(cell) = beside.and_then(|x| buffer.cell_mut((x, area.bottom() - 1)))
                && text::width(cell.symbol()) > 1
            {
                // The badge covers the second half of a wide character.
                cell.set_symbol(" ");
            }
            buffer.set_line(area.right() - width, area.bottom() - 1, &line, width);
        }
    }
}

fn is_sending(entry: &Entry, id: &ClientMessageId) -> bool {
    matches!(&entry.kind, Kind::User(Delivery::Sending(of) | Delivery::Waiting(of)) if of == id)
}

/// Which way to scroll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scroll {
    /// To what was before.
    Up,
    /// To what comes after.
    Down,
}

#[cfg(test)]
mod tests;
