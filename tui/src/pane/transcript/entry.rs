//! One entry of the transcript and its rows. It knows its own text only, not its neighbours' or the screen.

use ratatui::text::{Line, Span};
use tns_protocol::approval::AuditDecision;
use tns_protocol::{AgentId, ClientMessageId, MessageId, ToolCallId};

use crate::pane::transcript::output::Output;
use crate::sanitize::{self, Mode};
use crate::text::{self, Flow};
use crate::theme::{Role, Theme};

/// Columns before an entry's text.
const INDENT: usize = 2;
/// Bytes of a call's arguments that its row is made from; a row is never that wide.
const DETAIL_BYTES: usize = 1 << 10;

/// How far a user's message has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// On its way, under this name; its turn is the next or has begun.
    Sending(ClientMessageId),
    /// On its way, under this name, behind an earlier reply.
    Waiting(ClientMessageId),
    /// The server has it, as this turn, which waits for an earlier reply to end.
    Queued(MessageId),
    /// The server refused it or never saw it.
    Failed,
    /// The server has it, and its turn has begun.
    Stored,
}

/// How far a tool call has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ToolState {
    /// A person is asked.
    Waiting,
    /// It may run.
    Allowed,
    /// It runs.
    Running,
    /// It ended.
    Done {
        /// It did what it was called for.
        ok: bool,
        /// How long it ran.
        millis: u64,
    },
    /// It will not run.
    Refused {
        /// Why.
        how: AuditDecision,
        /// Who decided, if that is known.
        by: Option<String>,
    },
}

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A person's words.
    User(Delivery),
    /// An agent's words.
    Agent {
        /// Who speaks.
        id: AgentId,
        /// Its place in the roster, for its colour.
        place: usize,
        /// More may come.
        open: bool,
    },
    /// A tool call.
    Tool {
        /// The call.
        id: ToolCallId,
        /// Its state.
        state: ToolState,
        /// What it is called with, on one line.
        detail: String,
        /// What it gave, or has given so far.
        output: Output,
    },
    /// What an agent thinks before it goes on; the log does not keep it.
    Reasoning {
        /// Who thinks.
        id: AgentId,
        /// More may come.
        open: bool,
        /// Only one row of it is shown.
        folded: bool,
    },
    /// A word of the program's own.
    Notice {
        /// How it looks.
        role: Role,
    },
}

/// One entry.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    /// Who speaks, or the tool; clean.
    name: String,
    flow: Flow,
}

impl Entry {
    /// Makes an entry whose text is whole.
    pub(crate) fn new(kind: Kind, name: &str, text: &str) -> Self {
        Self { kind, name: sanitize::line(name), flow: Flow::of(Mode::Block, text) }
    }

    /// Makes an agent's entry whose text is still arriving.
    pub(crate) fn stream(id: AgentId, place: usize, name: &str) -> Self {
        let kind = Kind::Agent { id, place, open: true };
        Self { kind, name: sanitize::line(name), flow: Flow::new(Mode::Block) }
    }

    /// Makes the entry of what an agent begins to think.
    pub(crate) fn reasoning(id: AgentId, folded: bool) -> Self {
        let kind = Kind::Reasoning { id, open: true, folded };
        Self { kind, name: String::new(), flow: Flow::new(Mode::Block) }
    }

    /// Makes a tool call's entry.
    pub(crate) fn tool(id: ToolCallId, state: ToolState, tool: &str, detail: &str) -> Self {
        let kind = Kind::Tool { id, state, detail: one_line(detail), output: Output::default() };
        Self::new(kind, tool, "")
    }

    /// Appends to the text.
    pub(crate) fn push(&mut self, piece: &str) {
        self.flow.push(piece);
    }

    /// Ends a text that was still arriving.
    pub(crate) fn close(&mut self) {
        if let Kind::Agent { open: open @ true, .. } | Kind::Reasoning { open: open @ true, .. } =
            &mut self.kind
        {
            *open = false;
            self.flow.finish();
        }
    }

    /// Replaces the text.
    pub(crate) fn set_text(&mut self, text: &str) {
        self.flow = Flow::of(Mode::Block, text);
    }

    /// Replaces a text that is still arriving.
    pub(crate) fn rewrite(&mut self, text: &str) {
        self.flow = Flow::new(Mode::Block);
        self.flow.push(text);
    }

    /// Shows one row of a thought, or all of it; another entry stays as it is.
    pub(crate) fn fold(&mut self, to: bool) {
        if let Kind::Reasoning { folded, .. } = &mut self.kind {
            *folded = to;
        }
    }

    /// Whether it is a message of this screen that is not known to be stored.
    pub(crate) fn is_unstored(&self) -> bool {
        matches!(self.kind, Kind::User(Delivery::Sending(_) | Delivery::Waiting(_) | Delivery::Failed))
    }

    /// Returns the clean text.
    #[cfg(test)]
    pub(crate) fn text(&self) -> &str {
        self.flow.text()
    }

    /// Changes a tool call's state; another entry stays as it is.
    pub(crate) fn set_state(&mut self, to: ToolState) {
        if let Kind::Tool { state, .. } = &mut self.kind {
            *state = to;
        }
    }

    /// Gives a tool call its output.
    pub(crate) fn set_output(&mut self, output: &str, truncated: bool) {
        if let Kind::Tool { output: shown, .. } = &mut self.kind {
            shown.set(output, truncated);
        }
    }

    /// Gives a tool call that runs a piece of its output.
    pub(crate) fn write_output(&mut self, piece: &str) {
        if let Kind::Tool { state: ToolState::Running, output, .. } = &mut self.kind {
            output.write(piece);
        }
    }

    /// Forgets what a tool call has written whose result has not come.
    pub(crate) fn forget_output(&mut self) {
        if let Kind::Tool { state: ToolState::Running, output, .. } = &mut self.kind {
            *output = Output::default();
        }
    }

    /// Whether it is a message whose turn has not come.
    pub(crate) fn waits(&self) -> bool {
        matches!(self.kind, Kind::User(Delivery::Waiting(_) | Delivery::Queued(_)))
    }

    /// Lays out what changed, for this width; returns whether there was anything.
    pub(crate) fn lay_out(&mut self, columns: usize) -> bool {
        match self.kind {
            Kind::User(_) | Kind::Agent { .. } | Kind::Notice { .. } => {
                self.flow.lay_out(columns.saturating_sub(INDENT).max(1))
            }
            Kind::Reasoning { folded: false, .. } => self.flow.lay_out(columns.saturating_sub(INDENT).max(1)),
            // One row for each line, whatever the width.
            Kind::Reasoning { .. } | Kind::Tool { .. } => false,
        }
    }

    /// Returns how many rows it takes, as last laid out.
    pub(crate) fn rows(&self) -> usize {
        match &self.kind {
            Kind::User(_) | Kind::Agent { .. } => GAP_AND_NAME + self.flow.row_count(),
            Kind::Notice { .. } => self.flow.row_count(),
            Kind::Reasoning { folded: true, .. } => 1,
            Kind::Reasoning { .. } => 1 + self.flow.row_count(),
            Kind::Tool { output, .. } => 1 + output.rows().len(),
        }
    }

    /// Returns one row as it is drawn.
    pub(crate) fn row(&self, index: usize, columns: usize, theme: Theme) -> Line<'_> {
        match &self.kind {
            Kind::User(_) if self.waits() => {
                let line = self.spoken(index, theme, Role::Faint, " · queued");
                line.style(theme.style(Role::Faint))
            }
            Kind::User(Delivery::Failed) => self.spoken(index, theme, Role::User, " · not sent"),
            Kind::User(_) => self.spoken(index, theme, Role::User, ""),
            Kind::Agent { place, .. } => self.spoken(index, theme, Role::Agent(*place), ""),
            Kind::Reasoning { open, folded, .. } => self.thought(index, *open, *folded, columns, theme),
            Kind::Notice { role } => {
                let mark = match (index, role) {
                    (0, Role::Bad | Role::Warn) => "! ",
                    (0, _) => "· ",
                    (_, _) => "  ",
                };
                Line::styled(format!("{mark}{}", self.flow.row(index)), theme.style(*role))
            }
            Kind::Tool { state, detail, output, .. } => match index.checked_sub(1) {
                None => self.tool_row(state, detail, columns, theme),
                Some(line) => {
                    let text = output.rows().get(line).map_or("", String::as_str);
                    let text = text::truncate(text, columns.saturating_sub(2 * INDENT));
                    Line::styled(format!("    {text}"), theme.style(Role::Faint))
                }
            },
        }
    }

    fn spoken(&self, index: usize, theme: Theme, role: Role, note: &'static str) -> Line<'_> {
        match index {
            0 => Line::default(),
            1 => Line::from(vec![
                Span::styled(self.name.as_str(), theme.style(role)),
                Span::styled(note, theme.style(Role::Faint)),
            ]),
            _ => Line::from(vec![Span::raw("  "), Span::raw(self.flow.row(index - GAP_AND_NAME))]),
        }
    }

    /// One row: the newest words while they come, the first ones afterwards.
    fn thought(&self, index: usize, open: bool, folded: bool, columns: usize, theme: Theme) -> Line<'_> {
        let faint = theme.style(Role::Faint);
        let Some(row) = index.checked_sub(1) else {
            let label = if open { "thinks" } else { "thought" };
            let room = columns.saturating_sub(INDENT + text::width(label) + 2);
            let words = match (folded, open) {
                (false, _) => String::new(),
                (true, true) => text::ending(&one_line(tail(self.flow.text(), DETAIL_BYTES)), room),
                (true, false) => text::truncate(&one_line(self.flow.text()), room).into_owned(),
            };
            let gap = if words.is_empty() { "" } else { ": " };
            return Line::styled(format!("  {label}{gap}{words}"), faint);
        };
        Line::styled(format!("  {}", self.flow.row(row)), faint)
    }

    /// `shell ls -la · ok · 12 ms`: the arguments give way, never the state.
    fn tool_row(&self, state: &ToolState, detail: &str, columns: usize, theme: Theme) -> Line<'static> {
        let (outcome, role) = match state {
            ToolState::Waiting => ("waits for approval".to_owned(), Role::Warn),
            ToolState::Allowed => ("approved".to_owned(), Role::Faint),
            ToolState::Running => ("running".to_owned(), Role::Warn),
            ToolState::Done { ok, millis } => {
                let (word, role) = if *ok { ("ok", Role::Good) } else { ("failed", Role::Bad) };
                (format!("{word} · {}", duration(*millis)), role)
            }
            ToolState::Refused { how, by } => {
                let word = settled_word(*how);
                let by = by.as_deref().map(|by| format!(" by {}", sanitize::line(by))).unwrap_or_default();
                (format!("{word}{by}"), Role::Bad)
            }
        };
        let outcome = text::truncate(&outcome, columns.saturating_sub(INDENT)).into_owned();
        let room = columns.saturating_sub(INDENT + text::width(" · ") + text::width(&outcome));
        let name = text::truncate(&self.name, room).into_owned();
        let room = room.saturating_sub(text::width(&name) + 1);
        let mut spans = vec![Span::raw("  "), Span::styled(name, theme.style(Role::Strong))];
        if room > 0 && !detail.is_empty() {
            spans.push(Span::raw(format!(" {}", text::truncate(detail, room))));
        }
        spans.push(Span::styled(" · ", theme.style(Role::Faint)));
        spans.push(Span::styled(outcome, theme.style(role)));
        Line::from(spans)
    }
}

/// Rows above a speaker's text: an empty one and the name.
const GAP_AND_NAME: usize = 2;

/// Says how a request was settled, in one word of the screen.
pub(crate) fn settled_word(how: AuditDecision) -> &'static str {
    match how {
        AuditDecision::AutoApproved => "allowed",
        AuditDecision::Approved => "approved",
        AuditDecision::Always => "always approved",
        AuditDecision::Trusted => "trusted",
        AuditDecision::Rejected => "rejected",
        AuditDecision::Blocked => "blocked",
        AuditDecision::Cancelled => "cancelled",
        AuditDecision::Timeout => "not answered in time",
    }
}

/// Whether a call that was settled this way runs.
pub(crate) fn runs(how: AuditDecision) -> bool {
    match how {
        AuditDecision::AutoApproved
        | AuditDecision::Approved
        | AuditDecision::Always
        | AuditDecision::Trusted => true,
        AuditDecision::Rejected
        | AuditDecision::Blocked
        | AuditDecision::Cancelled
        | AuditDecision::Timeout => false,
    }
}

/// Writes a duration as `12 ms`, `3.4 s` or `2 min 5 s`.
pub(crate) fn duration(millis: u64) -> String {
    match millis {
        0..1_000 => format!("{millis} ms"),
        1_000..60_000 => format!("{}.{} s", millis / 1_000, millis % 1_000 / 100),
        _ => format!("{} min {} s", millis / 60_000, millis % 60_000 / 1_000),
    }
}

/// Joins a call's lines, with `…` where something is left out. White space takes no room, so that it can't
/// push what follows it out of the row.
fn one_line(detail: &str) -> String {
    let mut joined = String::new();
    for word in detail.split_whitespace() {
        let gap = if joined.is_empty() { "" } else { " " };
        let room = DETAIL_BYTES - joined.len();
        if gap.len() + word.len() > room {
            joined.push_str(gap);
            joined.push_str(head(word, room - gap.len().min(room)));
            joined.push('…');
            break;
        }
        joined.push_str(gap);
        joined.push_str(word);
    }
    sanitize::line(&joined)
}

/// The first `bytes` of a text, never cut inside a character.
pub(super) fn head(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// The last `bytes` of a text, never cut inside a character.
pub(super) fn tail(text: &str, bytes: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(bytes))..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_is_cut_between_characters() {
        for padding in 0..4 {
            let text = format!("{}{}", "a".repeat(DETAIL_BYTES - padding), "职".repeat(9));
            let line = one_line(&text);
            assert!(line.len() <= DETAIL_BYTES + '…'.len_utf8() && line.ends_with('…'), "{line}");
        }
    }

    #[test]
    fn white_space_hides_nothing_of_a_call_and_what_is_cut_is_marked() {
        let padded = format!("echo hi{}&& rm -rf build", " ".repeat(3_000));
        assert_eq!(one_line(&padded), "echo hi && rm -rf build");
        assert_eq!(one_line("echo hi \n\n"), "echo hi");
        let whole = "a".repeat(DETAIL_BYTES);
        assert_eq!(one_line(&whole), whole);
        assert_eq!(one_line(&format!("{whole} b")), format!("{whole} …"));
        let words = "ab ".repeat(DETAIL_BYTES);
        assert!(one_line(&words).ends_with(" …") || one_line(&words).ends_with("a…"));
    }

    #[test]
    fn durations_read_like_speech() {
        let written = [0, 999, 1_000, 3_450, 59_999, 60_000, 125_000].map(duration);
        assert_eq!(written, ["0 ms", "999 ms", "1.0 s", "3.4 s", "59.9 s", "1 min 0 s", "2 min 5 s"]);
    }

    #[test]
    fn a_tool_row_keeps_its_outcome_at_every_width() {
        let id = ToolCallId::parse("c").unwrap();
        let state = ToolState::Done { ok: true, millis: 12 };
        let entry = Entry::tool(id, state, "shell", &"职 ".repeat(200));
        for columns in 20..200 {
            let row = entry.row(0, columns, Theme::Plain).to_string();
            assert!(text::width(&row) <= columns && row.ends_with(" · ok · 12 ms"), "{columns}: {row:?}");
        }
    }
}
