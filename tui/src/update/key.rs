//! Keys: which place has them, and what their actions change.
#![warn(clippy::wildcard_enum_match_arm)]

use std::time::Duration;

use crossterm::event::{KeyEvent, KeyEventKind};
use tns_protocol::approval::{Decision, ToolApprove};
use tns_protocol::chat::Cancel;

use crate::keymap::{self, Action, Context};
use crate::model::{Effect, Focus, Model, Page, Stage};
use crate::pane::composer::{Edit, TooLong};
use crate::pane::status::Connection;
use crate::pane::transcript::Scroll;
use crate::update::{command, focus_after_change, submit_chat};
use crate::view::help_rows;

/// A Ctrl-C so soon after a turn's end was meant for the turn: it does not quit.
const JUST_ENDED: Duration = Duration::from_secs(1);

pub(super) fn on_key(model: &mut Model, key: &KeyEvent) -> Vec<Effect> {
    if key.kind == KeyEventKind::Release {
        return Vec::new();
    }
    model.hint = None;
    let quits = std::mem::take(&mut model.quit_next);
    let clears = std::mem::take(&mut model.clear_next);
    let action = contexts(model).iter().find_map(|context| keymap::action(*context, key));
    match action {
        Some(Action::Interrupt) => interrupt(model, quits),
        Some(Action::Escape) => escape(model, clears),
        Some(action) => act(model, action),
        None => {
            typed(model, key);
            Vec::new()
        }
    }
}

/// The places that a key is looked up in, the most special first.
fn contexts(model: &Model) -> &'static [Context] {
    match (model.page, model.focus) {
        (Some(Page::Help(_)), _) => &[Context::Page, Context::Everywhere],
        (Some(Page::Approval), _) => &[Context::Approval, Context::Page, Context::Everywhere],
        (None, Focus::Approval) => &[Context::Approval, Context::Everywhere],
        (None, Focus::Composer) => &[Context::Composer, Context::Everywhere],
    }
}

fn typed(model: &mut Model, key: &KeyEvent) {
    let Some(c) = keymap::typed(key) else { return };
    match (model.page, model.focus) {
        (None, Focus::Composer) => {
            if model.composer.insert(c.encode_utf8(&mut [0; 4])) == Err(TooLong) {
                model.hint = Some("too long for one message");
            }
        }
        // Somebody types: what follows is no answer until it has been quiet.
        (Some(Page::Approval), _) | (None, Focus::Approval) => model.approvals.rearm(model.now),
        (Some(Page::Help(_)), _) => {}
    }
}

fn act(model: &mut Model, action: Action) -> Vec<Effect> {
    match action {
        Action::Approve => answer(model, Decision::Approve),
        Action::Reject => answer(model, Decision::Reject),
        Action::Always => answer(model, Decision::Always),
        Action::Send => send(model),
        // Handled before, with what the key before it was.
        Action::Escape => escape(model, false),
        Action::Interrupt => interrupt(model, false),
        Action::QuitIfEmpty if model.composer.is_empty() => vec![Effect::Quit],
        Action::QuitIfEmpty => {
            model.composer.edit(Edit::Delete);
            Vec::new()
        }
        Action::Suspend => vec![Effect::Suspend],
        Action::Redraw => vec![Effect::Redraw],
        Action::ViewApproval
        | Action::NextApproval
        | Action::PreviousApproval
        | Action::SwitchFocus
        | Action::Newline
        | Action::Edit(_)
        | Action::End
        | Action::PageUp
        | Action::PageDown
        | Action::RowUp
        | Action::RowDown
        | Action::Help => {
            move_about(model, action);
            Vec::new()
        }
    }
}

/// Actions that change only this screen.
fn move_about(model: &mut Model, action: Action) {
    match action {
        Action::ViewApproval => {
            if model.approvals.accepts_key(model.now) {
                model.page = if model.page.is_none() { Some(Page::Approval) } else { None };
            }
        }
        Action::NextApproval => model.approvals.next(model.now),
        Action::PreviousApproval => model.approvals.previous(model.now),
        Action::SwitchFocus => switch_focus(model),
        Action::Newline => {
            // A newline fits wherever a letter does; at the limit neither is taken.
            if model.composer.insert("\n") == Err(TooLong) {
                model.hint = Some("too long for one message");
            }
        }
        Action::Edit(edit) => model.composer.edit(edit),
        Action::End if model.page.is_none() && model.transcript.is_held() => model.transcript.follow(),
        Action::End if model.page.is_some() => scroll(model, Scroll::Down, usize::MAX >> 1),
        Action::End => model.composer.edit(Edit::LineEnd),
        Action::PageUp => page(model, Scroll::Up),
        Action::PageDown => page(model, Scroll::Down),
        Action::RowUp => scroll(model, Scroll::Up, 1),
        Action::RowDown => scroll(model, Scroll::Down, 1),
        Action::Help => model.page = Some(Page::Help(0)),
        Action::Approve
        | Action::Reject
        | Action::Always
        | Action::Send
        | Action::Escape
        | Action::Interrupt
        | Action::QuitIfEmpty
        | Action::Suspend
        | Action::Redraw => {}
    }
}

fn switch_focus(model: &mut Model) {
    model.page = None;
    model.focus = match model.focus {
        Focus::Approval => Focus::Composer,
        Focus::Composer if model.approvals.is_empty() => Focus::Composer,
        Focus::Composer => Focus::Approval,
    };
}

fn page(model: &mut Model, direction: Scroll) {
    match model.page {
        None => model.transcript.page(direction),
        Some(Page::Approval) => scroll(model, direction, model.approvals.page_rows()),
        Some(Page::Help(_)) => scroll(model, direction, usize::from(model.size.1).saturating_sub(2)),
    }
}

fn scroll(model: &mut Model, direction: Scroll, rows: usize) {
    match model.page {
        None => model.transcript.scroll(direction, rows),
        Some(Page::Approval) => model.approvals.scroll_page(direction, rows),
        Some(Page::Help(top)) => {
            let (columns, height) = model.size;
            let last = help_rows(columns).len().saturating_sub(usize::from(height).saturating_sub(1));
            let top = match direction {
                // Where it was scrolled further on a narrower screen, it shows its last rows.
                Scroll::Up => top.min(last).saturating_sub(rows),
                Scroll::Down => top.saturating_add(rows).min(last),
            };
            model.page = Some(Page::Help(top));
        }
    }
}

fn answer(model: &mut Model, decision: Decision) -> Vec<Effect> {
    if !model.approvals.accepts_key(model.now) {
        return Vec::new();
    }
    if model.status.connection != Connection::Up {
        model.hint = Some("not connected: not answered");
        return Vec::new();
    }
    let Some(tool_call_id) = model.approvals.answer(decision) else { return Vec::new() };
    model.page = None;
    let answer =
        ToolApprove { tool_call_id, decision: decision.as_str().to_owned(), reason: None, edited_args: None };
    vec![Effect::Send(Box::new(answer.into()))]
}

fn send(model: &mut Model) -> Vec<Effect> {
    if model.composer.take_continuation() {
        move_about(model, Action::Newline);
        return Vec::new();
    }
    let text = model.composer.text().trim();
    if text.is_empty() {
        return Vec::new();
    }
    if text.starts_with('/') {
        let line = model.composer.take();
        let effects = command::run(model, line.trim());
        focus_after_change(model);
        return effects;
    }
    if model.over {
        model.hint = Some("this session has ended: /quit, then begin another");
        return Vec::new();
    }
    if model.status.connection != Connection::Up {
        model.hint = Some("not connected: kept here, send it later");
        return Vec::new();
    }
    if model.stage == Stage::Reading && model.first_message.is_some() {
        model.hint = Some("one moment: the conversation is being read");
        return Vec::new();
    }
    let text = model.composer.take();
    let effects = submit_chat(model, text);
    focus_after_change(model);
    effects
}

/// Esc: closes a page, or interrupts; twice: empties the composer, which Up brings back.
fn escape(model: &mut Model, clears: bool) -> Vec<Effect> {
    if model.page.take().is_some() {
        return Vec::new();
    }
    let writes = model.focus == Focus::Composer && !model.composer.is_empty();
    if clears && writes {
        model.composer.take();
        focus_after_change(model);
        return Vec::new();
    }
    model.clear_next = true;
    if model.status.is_busy() {
        return cancel(model);
    }
    if writes {
        model.hint = Some("Esc again empties this; Up brings it back");
    }
    Vec::new()
}

/// Stops the reply; what waits for approval is settled with it.
fn cancel(model: &mut Model) -> Vec<Effect> {
    if model.status.connection != Connection::Up {
        model.hint = Some("not connected: the reply can't be interrupted");
        return Vec::new();
    }
    model.hint = Some("interrupting");
    vec![Effect::Send(Box::new(Cancel::default().into()))]
}

/// Ctrl-C: interrupts, then quits. With nothing to interrupt and nothing written it quits at once.
fn interrupt(model: &mut Model, quits: bool) -> Vec<Effect> {
    if quits {
        return vec![Effect::Quit];
    }
    let just_ended = model.ended_at.is_some_and(|ended| model.now < ended + JUST_ENDED);
    if !model.status.is_busy() && !just_ended && model.composer.is_empty() {
        return vec![Effect::Quit];
    }
    let effects = if model.status.is_busy() { cancel(model) } else { Vec::new() };
    model.quit_next = true;
    model.hint = Some("Ctrl-C again quits");
    effects
}
