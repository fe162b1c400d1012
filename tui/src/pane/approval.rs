//! The calls that wait for a person: which, how they look, when keys may answer. It hides nothing: what does
//! not fit is counted and shown on a page of its own. It decides nothing; the server does that.

pub(crate) mod body;

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use tns_protocol::ToolCallId;
use tns_protocol::approval::{Decision, ToolApproveRequest};

use crate::pane::approval::body::Body;
use crate::pane::transcript::Scroll;
use crate::text;
use crate::theme::{Role, Theme, risk_role};

/// How long the keys must have been quiet since a request came into view before one answers it, so that
/// somebody who types into the composer approves nothing.
pub(crate) const QUIET: Duration = Duration::from_millis(300);
/// Rows of the pinned box besides the call itself: title, what `A` covers, keys.
const FIXED_ROWS: u16 = 3;
/// Most rows of what `A` covers in the pinned box.
const MAX_COVERS_ROWS: usize = 2;
/// Rows at the end of a call that stay in view when its middle is hidden.
const TAIL_ROWS: usize = 2;
/// With more rows than this a reason stays in view beside a call that does not fit.
const MIN_ROWS_FOR_A_REASON: usize = 4;

/// One waiting call.
#[derive(Debug)]
struct Pending {
    request: ToolApproveRequest,
    body: Body,
    /// What was answered here; the server has not settled it yet.
    answered: Option<Decision>,
}

/// The approvals' state.
#[derive(Debug, Default)]
pub(crate) struct Approvals {
    queue: Vec<Pending>,
    current: usize,
    /// When the shown request may be answered, on the screen's clock.
    armed_at: Duration,
    /// The size of the screen on which the shown request is drawn; none while it is not.
    drawn_at: Option<(u16, u16)>,
    columns: usize,
    /// First row of the full page.
    page_top: usize,
    page_height: usize,
}

impl Approvals {
    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns how many wait for an answer from here.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.iter().filter(|pending| pending.answered.is_none()).count()
    }

    /// Adds a request; one that is known already is refreshed. Returns whether it is new.
    pub(crate) fn ask(&mut self, request: ToolApproveRequest, now: Duration) -> bool {
        let body = Body::new(&request);
        let fresh = Pending { request, body, answered: None };
        let known =
            self.queue.iter().position(|pending| pending.request.tool_call_id == fresh.request.tool_call_id);
        match known {
            Some(index) => {
                // Another text under the same id is another question.
                if self.queue[index].request != fresh.request && index == self.current {
                    self.show(index, now);
                }
                self.queue[index] = fresh;
            }
            None => {
                self.queue.push(fresh);
                if self.queue.len() == 1 {
                    self.show(0, now);
                }
            }
        }
        known.is_none()
    }

    /// Removes a settled request; returns it with what was answered here.
    pub(crate) fn settle(&mut self, id: &ToolCallId, now: Duration) -> Option<Option<Decision>> {
        let index = self.queue.iter().position(|pending| pending.request.tool_call_id == *id)?;
        let removed = self.queue.remove(index);
        let shown_gone = index == self.current;
        if index < self.current {
            self.current -= 1;
        }
        if shown_gone {
            self.show(self.current.min(self.queue.len().saturating_sub(1)), now);
        }
        Some(removed.answered)
    }

    /// Notes that the connection was lost: an answer that was sent may not have arrived.
    pub(crate) fn doubt_all(&mut self) {
        for pending in &mut self.queue {
            pending.answered = None;
        }
    }

    /// Removes the requests that the server does not name among those that wait; returns their ids.
    pub(crate) fn keep_only(&mut self, still: &[ToolApproveRequest], now: Duration) -> Vec<ToolCallId> {
        let gone: Vec<ToolCallId> = self
            .queue
            .iter()
            .map(|pending| &pending.request.tool_call_id)
            .filter(|id| !still.iter().any(|request| request.tool_call_id == **id))
            .cloned()
            .collect();
        for id in &gone {
            self.settle(id, now);
        }
        gone
    }

    /// Takes back the answers that the server did not accept; returns how many there were.
    pub(crate) fn unanswer(&mut self) -> usize {
        self.queue.iter_mut().filter_map(|pending| pending.answered.take()).count()
    }

    /// Returns the ids that were answered here and are not settled yet.
    pub(crate) fn answered(&self) -> Vec<ToolCallId> {
        let answered = self.queue.iter().filter(|pending| pending.answered.is_some());
        answered.map(|pending| pending.request.tool_call_id.clone()).collect()
    }

    /// Answers the shown request, unless it has been answered.
    pub(crate) fn answer(&mut self, decision: Decision) -> Option<ToolCallId> {
        let pending = self.queue.get_mut(self.current)?;
        if pending.answered.is_some() {
            return None;
        }
        pending.answered = Some(decision);
        Some(pending.request.tool_call_id.clone())
    }

    /// Notes that the next frame draws the shown request on a screen of this size. When the last one did not,
    /// the quiet begins anew.
    pub(crate) fn come_into_view(&mut self, size: (u16, u16), now: Duration) {
        if self.drawn_at != Some(size) {
            self.drawn_at = Some(size);
            self.rearm(now);
        }
    }

    /// Notes that the shown request is not on the screen: no key answers it.
    pub(crate) fn hide(&mut self) {
        self.drawn_at = None;
    }

    /// Whether a key may act now. A key that comes too early is dropped, and the quiet begins anew.
    pub(crate) fn accepts_key(&mut self, now: Duration) -> bool {
        let accepts = self.drawn_at.is_some() && self.is_armed(now);
        if !accepts {
            self.armed_at = now + QUIET;
        }
        accepts
    }

    /// Begins the quiet before an answer anew.
    pub(crate) fn rearm(&mut self, now: Duration) {
        self.armed_at = now + QUIET;
    }

    fn is_armed(&self, now: Duration) -> bool {
        now >= self.armed_at
    }

    /// When the look changes by itself, if it will.
    pub(crate) fn next_change(&self, now: Duration) -> Option<Duration> {
        (!self.queue.is_empty() && !self.is_armed(now)).then_some(self.armed_at)
    }

    /// Shows the next request.
    pub(crate) fn next(&mut self, now: Duration) {
        if self.queue.len() > 1 {
            self.show((self.current + 1) % self.queue.len(), now);
        }
    }

    /// Shows the request before.
    pub(crate) fn previous(&mut self, now: Duration) {
        if self.queue.len() > 1 {
            self.show((self.current + self.queue.len() - 1) % self.queue.len(), now);
        }
    }

    fn show(&mut self, index: usize, now: Duration) {
        self.current = index;
        self.drawn_at = None;
        self.armed_at = now + QUIET;
        self.page_top = 0;
    }

    fn shown(&self) -> Option<&Pending> {
        self.queue.get(self.current)
    }

    /// Lays the requests out for this width and returns the rows that the shown one wants.
    pub(crate) fn lay_out(&mut self, columns: u16, page_height: u16) -> u16 {
        self.columns = usize::from(columns).max(1);
        self.page_height = usize::from(page_height.saturating_sub(2)).max(1);
        let Some(pending) = self.queue.get_mut(self.current) else { return 0 };
        pending.body.lay_out(self.columns);
        let rows = pending.body.rows();
        let covers = pending.body.covers_rows();
        self.page_top = self.page_top.min((rows + covers).saturating_sub(self.page_height));
        let covers = covers.min(MAX_COVERS_ROWS);
        u16::try_from(rows + covers.saturating_sub(1)).unwrap_or(u16::MAX).saturating_add(FIXED_ROWS)
    }

    /// Scrolls the full page.
    pub(crate) fn scroll_page(&mut self, direction: Scroll, rows: usize) {
        let all = self.shown().map_or(0, |pending| pending.body.rows() + pending.body.covers_rows());
        let last = all.saturating_sub(self.page_height);
        self.page_top = match direction {
            Scroll::Up => self.page_top.saturating_sub(rows),
            Scroll::Down => self.page_top.saturating_add(rows).min(last),
        };
    }

    /// Rows of the full page that are in view, for scrolling by pages.
    pub(crate) fn page_rows(&self) -> usize {
        self.page_height
    }

    /// Draws the pinned box: title, the call, what `A` covers, the keys.
    pub(crate) fn view(&self, area: Rect, buffer: &mut Buffer, theme: Theme, now: Duration, has_keys: bool) {
        let Some(pending) = self.shown() else { return };
        self.title(pending, area, buffer, theme);
        let covers = pending.body.covers_rows();
        let most = MAX_COVERS_ROWS.min(usize::from(area.height.saturating_sub(FIXED_ROWS)).max(1));
        let shown = covers.min(most);
        let height = area.height.saturating_sub(2 + u16::try_from(shown).unwrap_or(0));
        let body = Rect { y: area.y + 1, height, ..area };
        draw_body(&pending.body, body, buffer, theme);
        for (y, index) in (body.bottom()..).zip(0..shown) {
            let mut line = pending.body.row(pending.body.rows() + index, theme);
            if index + 1 == shown && covers > shown {
                let more = " … v shows all";
                let room = self.columns.saturating_sub(text::width(more));
                let begun = text::truncate(&line.to_string(), room).into_owned();
                line = Line::styled(begun + more, theme.style(Role::Warn));
            }
            buffer.set_line(area.x, y, &line, area.width);
        }
        let keys = self.keys(pending, theme, now, has_keys, self.columns);
        buffer.set_line(area.x, area.bottom().saturating_sub(1), &keys, area.width);
    }

    /// Draws the whole request on a page of its own.
    pub(crate) fn view_page(&self, area: Rect, buffer: &mut Buffer, theme: Theme, now: Duration) {
        let Some(pending) = self.shown() else { return };
        self.title(pending, area, buffer, theme);
        let height = usize::from(area.height.saturating_sub(2));
        let all = pending.body.rows() + pending.body.covers_rows();
        let rows = self.page_top..(self.page_top + height).min(all);
        for (y, index) in (area.y + 1..).zip(rows.clone()) {
            buffer.set_line(area.x, y, &pending.body.row(index, theme), area.width);
        }
        let (above, below) = (rows.start, all - rows.end);
        let place = if above + below > 0 { format!("↑{above} ↓{below} ") } else { String::new() };
        let mut keys = self.keys(pending, theme, now, true, self.columns.saturating_sub(text::width(&place)));
        keys.spans.insert(0, Span::styled(place, theme.style(Role::Strong)));
        buffer.set_line(area.x, area.bottom().saturating_sub(1), &keys, area.width);
    }

    fn title(&self, pending: &Pending, area: Rect, buffer: &mut Buffer, theme: Theme) {
        let label = body::risk_label(&pending.request);
        let count = if self.queue.len() > 1 {
            format!(" {}/{}", self.current + 1, self.queue.len())
        } else {
            String::new()
        };
        let head = format!("── approval{count} · ");
        let used = text::width(&head) + text::width(&label) + text::width(" · ") + 1;
        let tool = text::truncate(pending.body.tool(), self.columns.saturating_sub(used)).into_owned();
        let rest = self.columns.saturating_sub(used + text::width(&tool));
        let line = Line::from(vec![
            Span::styled(head, theme.style(Role::Warn)),
            Span::styled(tool, theme.style(Role::Strong)),
            Span::raw(" · "),
            Span::styled(label, theme.style(risk_role(pending.request.risk))),
            Span::styled(format!(" {}", "─".repeat(rest)), theme.style(Role::Warn)),
        ]);
        buffer.set_line(area.x, area.y, &line, area.width);
    }

    /// The keys, as they work at this moment; those that have no room are in the help.
    fn keys(
        &self,
        pending: &Pending,
        theme: Theme,
        now: Duration,
        has_keys: bool,
        columns: usize,
    ) -> Line<'static> {
        if let Some(decision) = pending.answered {
            return Line::styled(
                format!("{} · waiting for the server", decision.as_str()),
                theme.style(Role::Faint),
            );
        }
        if !has_keys {
            return Line::from(vec![
                Span::styled("Tab", theme.style(Role::Key)),
                Span::raw(" to answer; you are writing"),
            ]);
        }
        let armed = self.is_armed(now);
        let key = theme.style(if armed { Role::Key } else { Role::Faint });
        let word = theme.style(if armed { Role::Text } else { Role::Faint });
        let next = (self.queue.len() > 1).then_some(("n", " next"));
        let pairs = [("a", " approve"), ("r", " reject"), ("A", " always"), ("v", " all")];
        let mut line = Line::default();
        for (name, means) in pairs.into_iter().chain(next).chain([("Tab", " write")]) {
            let gap = if line.spans.is_empty() { "" } else { " " };
            if line.width() + gap.len() + name.len() + means.len() > columns {
                break;
            }
            line.spans.extend([Span::raw(gap), Span::styled(name, key), Span::styled(means, word)]);
        }
        line
    }
}

/// Draws the call and why it is asked about. When that does not fit: the call's beginning, how much is hidden,
/// the call's end, and of the reasons what there is room for.
fn draw_body(body: &Body, area: Rect, buffer: &mut Buffer, theme: Theme) {
    let height = usize::from(area.height);
    let (call, all) = (body.call_rows(), body.rows());
    let mut y = area.y;
    let mut draw = |line: &Line<'_>| {
        if y < area.bottom() {
            buffer.set_line(area.x, y, line, area.width);
        }
        y += 1;
    };
    if all <= height {
        (0..all).for_each(|index| draw(&body.row(index, theme)));
        return;
    }
    // One row says how much is hidden.
    let room = height.saturating_sub(1);
    let note = |hidden: usize| {
        let rows = if hidden == 1 { "row" } else { "rows" };
        Line::styled(format!("… {hidden} {rows} hidden · v shows all"), theme.style(Role::Warn))
    };
    if call <= room {
        (0..room).for_each(|index| draw(&body.row(index, theme)));
        draw(&note(all - room));
        return;
    }
    let reasons = (all - call).min(usize::from(height > MIN_ROWS_FOR_A_REASON));
    let tail = TAIL_ROWS.min((room - reasons).saturating_sub(1));
    let head = room - reasons - tail;
    (0..head).for_each(|index| draw(&body.row(index, theme)));
    draw(&note(all - room));
    (call - tail..call + reasons).for_each(|index| draw(&body.row(index, theme)));
}

#[cfg(test)]
mod tests;
