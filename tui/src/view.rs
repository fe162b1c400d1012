//! The screen as a whole: who gets which rows, and what lies over what. `arrange` measures before a frame;
//! `view` draws the model and changes nothing.

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::keymap::{BINDINGS, Context};
use crate::model::{Focus, Model, Page};
use crate::sanitize;
use crate::text::{self, Wrap};
use crate::theme::Role;
use crate::update::command::COMMANDS;

/// Below these columns or rows the screen says that it is too small, and nothing else.
pub(crate) const MIN_COLUMNS: u16 = 40;
pub(crate) const MIN_ROWS: u16 = 10;
/// Most rows of the composer's text.
const MAX_COMPOSER_ROWS: u16 = 8;
/// Rows of the transcript that stay in view whatever else is on the screen.
const MIN_TRANSCRIPT_ROWS: u16 = 2;

/// Most columns of the keys in the help.
const MAX_LABEL_COLUMNS: usize = 28;

/// Who has which rows, from top to bottom.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Areas {
    pub(crate) transcript: Rect,
    pub(crate) approval: Rect,
    pub(crate) banner: Rect,
    pub(crate) composer: Rect,
    pub(crate) status: Rect,
}

/// Measures everything for the next frame; returns how many transcript entries were laid out anew.
pub(crate) fn arrange(model: &mut Model) -> usize {
    let (columns, rows) = model.size;
    if is_too_small(model) {
        model.approvals.hide();
        return 0;
    }
    let composer_rows = u16::try_from(model.composer.lay_out(columns)).unwrap_or(u16::MAX);
    let composer = 1 + composer_rows.clamp(1, MAX_COMPOSER_ROWS.min(rows / 4));
    let banner = u16::from(model.status.banner(model.now).is_some());
    let fixed = composer + banner + 1;
    let wanted = model.approvals.lay_out(columns, rows);
    let approval = wanted.min(rows.saturating_sub(fixed + MIN_TRANSCRIPT_ROWS));
    let transcript = rows.saturating_sub(fixed + approval);
    let mut y = 0;
    let mut stack = |height: u16| {
        let area = Rect { x: 0, y, width: columns, height };
        y += height;
        area
    };
    model.areas = Areas {
        transcript: stack(transcript),
        approval: stack(approval),
        banner: stack(banner),
        composer: stack(composer),
        status: stack(1),
    };
    let asks = match model.page {
        None => approval > 0,
        Some(Page::Approval) => true,
        Some(Page::Help(_)) => false,
    };
    if asks {
        model.approvals.come_into_view(model.size, model.now);
    } else {
        model.approvals.hide();
    }
    model.composer.scroll(composer - 1);
    model.transcript.lay_out(columns, transcript)
}

/// Whether there is no room for the screen.
pub(crate) fn is_too_small(model: &Model) -> bool {
    model.size.0 < MIN_COLUMNS || model.size.1 < MIN_ROWS
}

/// Draws the model as `arrange` measured it.
pub(crate) fn view(model: &Model, frame: &mut Frame<'_>) {
    let area = frame.area();
    let buffer = frame.buffer_mut();
    // Between a resize and its arrangement the areas may lie outside; the next frame is right.
    if (area.width, area.height) != model.size {
        return;
    }
    if is_too_small(model) {
        let note = format!("tns needs {MIN_COLUMNS}×{MIN_ROWS}, this is {}×{}", area.width, area.height);
        buffer.set_line(area.x, area.y, &Line::raw(note), area.width);
        return;
    }
    match model.page {
        Some(Page::Help(top)) => return draw_help(model, top, area, buffer),
        Some(Page::Approval) => return model.approvals.view_page(area, buffer, model.theme, model.now),
        None => {}
    }
    let Areas { transcript, approval, banner, composer, status } = model.areas;
    if model.transcript.is_empty() {
        draw_welcome(model, transcript, buffer);
    } else {
        model.transcript.view(transcript, buffer, model.theme);
    }
    model.approvals.view(approval, buffer, model.theme, model.now, model.focus == Focus::Approval);
    if let Some(note) = model.status.banner(model.now) {
        let note = text::truncate(&note, usize::from(banner.width)).into_owned();
        buffer.set_line(banner.x, banner.y, &Line::styled(note, model.theme.style(Role::Bad)), banner.width);
    }
    let cursor = model.composer.view(composer, buffer, model.theme, hint(model));
    model.status.view(status, buffer, model.theme, model.approvals.waiting(), model.now);
    if model.focus == Focus::Composer {
        frame.set_cursor_position(cursor);
    }
}

fn hint(model: &Model) -> &'static str {
    if let Some(hint) = model.hint {
        return hint;
    }
    match (model.focus, model.status.is_busy()) {
        (Focus::Approval, _) => "keys answer above · Tab writes",
        (Focus::Composer, true) => "Enter sends · Esc interrupts · F1 help",
        (Focus::Composer, false) => "Enter sends · /help · F1 help",
    }
}

/// The first screen: which engine answers, why, and how to get a better one.
fn draw_welcome(model: &Model, area: Rect, buffer: &mut Buffer) {
    let info = &model.info;
    let engine = sanitize::line(&format!("{}/{}", info.default_provider, info.default_model));
    let reason = sanitize::line(&info.default_reason);
    let folder = model.workspace.as_deref().map(sanitize::line);
    let mut lines = vec![
        (Role::Strong, format!("tns {}", sanitize::line(&info.version))),
        (Role::Text, format!("Answers come from {engine}: {reason}")),
    ];
    if info.default_provider == "offline" {
        lines.push((
            Role::Warn,
            "offline is no language model. For a better engine start Ollama, or set a provider's key such as \
             ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, then start tns again."
                .to_owned(),
        ));
    }
    if let Some(folder) = folder {
        lines.push((Role::Faint, format!("Tools work in {folder}")));
    }
    lines.push((Role::Faint, "Write below and press Enter. /help lists the keys and commands.".to_owned()));
    let columns = usize::from(area.width).saturating_sub(2).max(1);
    let mut y = area.y;
    for (role, line) in &lines {
        for row in text::wrap(line, columns, Wrap::Words) {
            if y >= area.bottom() {
                return;
            }
            let shown = Line::styled(&line[row.start..row.end], model.theme.style(*role));
            buffer.set_line(area.x + 1, y, &shown, area.width.saturating_sub(1));
            y += 1;
        }
    }
}

/// A row of the help.
pub(crate) enum HelpRow {
    /// Says what is listed below.
    Heading(&'static str),
    /// A piece of what is written or pressed, and one of what it does.
    Entry(String, &'static str),
}

/// The rows of the help on so many columns: commands, then keys by place. What is too long goes on below itself.
pub(crate) fn help_rows(columns: u16) -> Vec<HelpRow> {
    let mut rows = vec![HelpRow::Heading("Commands")];
    rows.extend(COMMANDS.iter().flat_map(|command| entry_rows(command.usage, command.help, columns)));
    let places = [
        (Context::Composer, "While you write"),
        (Context::Approval, "While an approval has the keys"),
        (Context::Page, "On a full page"),
        (Context::Everywhere, "Always"),
    ];
    for (context, heading) in places {
        rows.push(HelpRow::Heading(heading));
        let bindings =
            BINDINGS.iter().filter(|binding| binding.context == context && !binding.help.is_empty());
        rows.extend(bindings.flat_map(|binding| entry_rows(&binding.label(), binding.help, columns)));
    }
    rows
}

fn entry_rows(label: &str, help: &'static str, columns: u16) -> Vec<HelpRow> {
    let label_columns = label_columns(columns);
    let help_columns = usize::from(columns).saturating_sub(label_columns + 3).max(1);
    let labels = text::wrap(label, label_columns.max(1), Wrap::Words);
    let helps = text::wrap(help, help_columns, Wrap::Words);
    (0..labels.len().max(helps.len()))
        .map(|at| {
            let label = labels.get(at).map_or("", |row| &label[row.start..row.end]);
            HelpRow::Entry(label.to_owned(), helps.get(at).map_or("", |row| &help[row.start..row.end]))
        })
        .collect()
}

fn label_columns(columns: u16) -> usize {
    usize::from(columns * 2 / 5).min(MAX_LABEL_COLUMNS)
}

fn draw_help(model: &Model, top: usize, area: Rect, buffer: &mut Buffer) {
    let rows = help_rows(area.width);
    let height = usize::from(area.height.saturating_sub(1));
    // On a wider screen there are fewer rows than where it was scrolled.
    let top = top.min(rows.len().saturating_sub(height));
    let shown = rows.iter().skip(top).take(height);
    for (y, row) in (area.y..).zip(shown) {
        let line = match row {
            HelpRow::Heading(heading) => Line::styled(*heading, model.theme.style(Role::Strong)),
            HelpRow::Entry(label, help) => {
                let gap = (label_columns(area.width) + 1).saturating_sub(text::width(label));
                Line::from(vec![
                    Span::raw("  "),
                    Span::styled(label.as_str(), model.theme.style(Role::Key)),
                    Span::raw(" ".repeat(gap)),
                    Span::raw(*help),
                ])
            }
        };
        buffer.set_line(area.x, y, &line, area.width);
    }
    let below = rows.len().saturating_sub(top + height);
    let foot = format!("Esc closes · ↑↓ scrolls · {below} rows below");
    buffer.set_line(
        area.x,
        area.bottom() - 1,
        &Line::styled(foot, model.theme.style(Role::Faint)),
        area.width,
    );
}

#[cfg(test)]
mod tests;
