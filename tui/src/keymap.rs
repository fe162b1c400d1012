//! Every key of the screen, once: the table decides what a key does and writes the help.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::pane::composer::Edit;

/// Where a key means something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Context {
    /// While an approval has the keys.
    Approval,
    /// On a full-screen page: help, or a whole approval.
    Page,
    /// While the composer has the keys.
    Composer,
    /// Always, after the more special places.
    Everywhere,
}

/// What a key does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Answer the shown approval: run it once.
    Approve,
    /// Answer the shown approval: don't run it.
    Reject,
    /// Answer the shown approval: run it, and what it covers from now on.
    Always,
    /// Show the whole approval.
    ViewApproval,
    /// Show the next pending approval.
    NextApproval,
    /// Show the pending approval before.
    PreviousApproval,
    /// Give the keys to the other of approval and composer.
    SwitchFocus,
    /// Send the message.
    Send,
    /// Begin a new line.
    Newline,
    /// Change the text or move in it.
    Edit(Edit),
    /// To the newest of the transcript when that is scrolled up, else to the end of the line.
    End,
    /// Scroll one page up.
    PageUp,
    /// Scroll one page down.
    PageDown,
    /// Scroll one row up.
    RowUp,
    /// Scroll one row down.
    RowDown,
    /// Close the page, else interrupt the reply; twice: empty the composer.
    Escape,
    /// Interrupt the reply, then quit.
    Interrupt,
    /// Quit when the composer is empty.
    QuitIfEmpty,
    /// Show the help.
    Help,
    /// Stop this process and give the terminal to the shell.
    Suspend,
    /// Draw everything anew.
    Redraw,
}

/// One row of the table.
pub(crate) struct Binding {
    /// Where it holds.
    pub(crate) context: Context,
    keys: &'static [(KeyCode, KeyModifiers)],
    action: Action,
    /// What the help says; empty where the key explains itself.
    pub(crate) help: &'static str,
}

const NONE: KeyModifiers = KeyModifiers::NONE;
const CTRL: KeyModifiers = KeyModifiers::CONTROL;
const ALT: KeyModifiers = KeyModifiers::ALT;
const SHIFT: KeyModifiers = KeyModifiers::SHIFT;

const fn bind(
    context: Context,
    keys: &'static [(KeyCode, KeyModifiers)],
    action: Action,
    help: &'static str,
) -> Binding {
    Binding { context, keys, action, help }
}

use Context::{Approval, Composer, Everywhere, Page};
use KeyCode::Char;

/// The table. An approval has no default key on purpose: Enter and Space answer nothing.
pub(crate) const BINDINGS: &[Binding] = &[
    bind(Approval, &[(Char('a'), NONE)], Action::Approve, "approve this call, once"),
    bind(Approval, &[(Char('r'), NONE)], Action::Reject, "reject it"),
    bind(Approval, &[(Char('A'), NONE)], Action::Always, "approve it and what it covers, for this session"),
    bind(Approval, &[(Char('v'), NONE)], Action::ViewApproval, "view all of it"),
    bind(Approval, &[(Char('n'), NONE)], Action::NextApproval, "next request"),
    bind(Approval, &[(Char('p'), NONE)], Action::PreviousApproval, "previous request"),
    bind(Approval, &[(KeyCode::Tab, NONE)], Action::SwitchFocus, "write in the composer instead"),
    bind(Page, &[(KeyCode::Up, NONE), (Char('k'), NONE)], Action::RowUp, "one row up"),
    bind(Page, &[(KeyCode::Down, NONE), (Char('j'), NONE)], Action::RowDown, "one row down"),
    bind(Page, &[(Char('q'), NONE)], Action::Escape, "close the page"),
    bind(Composer, &[(KeyCode::Enter, NONE)], Action::Send, "send; with \\ before it: new line"),
    bind(
        Composer,
        &[(KeyCode::Enter, ALT), (KeyCode::Enter, SHIFT), (Char('j'), CTRL)],
        Action::Newline,
        "new line",
    ),
    bind(Composer, &[(KeyCode::Left, NONE), (Char('b'), CTRL)], Action::Edit(Edit::Left), ""),
    bind(Composer, &[(KeyCode::Right, NONE), (Char('f'), CTRL)], Action::Edit(Edit::Right), ""),
    bind(
        Composer,
        &[(KeyCode::Left, CTRL), (KeyCode::Left, ALT), (Char('b'), ALT)],
        Action::Edit(Edit::WordLeft),
        "word to the left",
    ),
    bind(
        Composer,
        &[(KeyCode::Right, CTRL), (KeyCode::Right, ALT), (Char('f'), ALT)],
        Action::Edit(Edit::WordRight),
        "word to the right",
    ),
    bind(
        Composer,
        &[(KeyCode::Up, NONE), (Char('p'), CTRL)],
        Action::Edit(Edit::Up),
        "row up, then earlier messages",
    ),
    bind(
        Composer,
        &[(KeyCode::Down, NONE), (Char('n'), CTRL)],
        Action::Edit(Edit::Down),
        "row down, then later messages",
    ),
    bind(
        Composer,
        &[(KeyCode::Home, NONE), (Char('a'), CTRL)],
        Action::Edit(Edit::LineStart),
        "start of the row",
    ),
    bind(Composer, &[(KeyCode::Backspace, NONE), (Char('h'), CTRL)], Action::Edit(Edit::Backspace), ""),
    bind(Composer, &[(KeyCode::Delete, NONE)], Action::Edit(Edit::Delete), ""),
    bind(
        Composer,
        &[(Char('w'), CTRL), (KeyCode::Backspace, ALT)],
        Action::Edit(Edit::DeleteWord),
        "delete a word",
    ),
    bind(Composer, &[(Char('u'), CTRL)], Action::Edit(Edit::DeleteToStart), "delete to the start of the row"),
    bind(Composer, &[(Char('k'), CTRL)], Action::Edit(Edit::DeleteToEnd), "delete to the end of the row"),
    bind(Composer, &[(KeyCode::Tab, NONE)], Action::SwitchFocus, "answer the approval"),
    bind(Composer, &[(Char('d'), CTRL)], Action::QuitIfEmpty, "quit when nothing is written"),
    bind(Everywhere, &[(KeyCode::PageUp, NONE)], Action::PageUp, "scroll up"),
    bind(Everywhere, &[(KeyCode::PageDown, NONE)], Action::PageDown, "scroll down"),
    bind(Everywhere, &[(KeyCode::Up, CTRL), (KeyCode::Up, ALT)], Action::RowUp, "scroll one row up"),
    bind(Everywhere, &[(KeyCode::Down, CTRL), (KeyCode::Down, ALT)], Action::RowDown, "scroll one row down"),
    bind(
        Everywhere,
        &[(KeyCode::End, NONE), (Char('e'), CTRL)],
        Action::End,
        "to the newest, then end of the row",
    ),
    bind(
        Everywhere,
        &[(KeyCode::Esc, NONE)],
        Action::Escape,
        "close a page, interrupt; again: empty the text",
    ),
    bind(Everywhere, &[(Char('c'), CTRL)], Action::Interrupt, "interrupt the reply; again: quit"),
    bind(Everywhere, &[(KeyCode::F(1), NONE)], Action::Help, "this help"),
    bind(Everywhere, &[(Char('l'), CTRL)], Action::Redraw, "draw the screen anew"),
    bind(Everywhere, &[(Char('z'), CTRL)], Action::Suspend, "to the shell; fg comes back"),
];

/// Returns what a key does in a place.
pub(crate) fn action(context: Context, key: &KeyEvent) -> Option<Action> {
    let pressed = (key.code, modifiers(key));
    BINDINGS
        .iter()
        .find(|binding| binding.context == context && binding.keys.contains(&pressed))
        .map(|binding| binding.action)
}

/// Returns the text that a key types, if it types any.
pub(crate) fn typed(key: &KeyEvent) -> Option<char> {
    match key.code {
        // AltGr arrives as both Ctrl and Alt on some terminals.
        Char(c) if modifiers(key).is_empty() || key.modifiers.contains(CTRL.union(ALT)) => Some(c),
        _ => None,
    }
}

/// The modifiers that matter: a letter carries its Shift in itself.
fn modifiers(key: &KeyEvent) -> KeyModifiers {
    let kept = key.modifiers & CTRL.union(ALT).union(SHIFT);
    if matches!(key.code, Char(_)) { kept - SHIFT } else { kept }
}

impl Binding {
    /// Returns the keys' names for the help, such as `Ctrl-W`.
    pub(crate) fn label(&self) -> String {
        self.keys.iter().map(|&(code, modifiers)| name(code, modifiers)).collect::<Vec<_>>().join(" ")
    }
}

fn name(code: KeyCode, modifiers: KeyModifiers) -> String {
    let mut name = String::new();
    for (modifier, prefix) in [(CTRL, "Ctrl-"), (ALT, "Alt-"), (SHIFT, "Shift-")] {
        if modifiers.contains(modifier) {
            name.push_str(prefix);
        }
    }
    match code {
        Char(c) if modifiers.contains(CTRL) => name.extend(c.to_uppercase()),
        other => name.push_str(&other.to_string()),
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_stands_twice_in_one_place() {
        let mut seen = Vec::new();
        for binding in BINDINGS {
            for key in binding.keys {
                assert!(!seen.contains(&(binding.context, *key)), "{:?} {key:?}", binding.context);
                seen.push((binding.context, *key));
            }
        }
    }

    #[test]
    fn letters_are_told_apart_by_case_and_not_by_shift() {
        let key = |c, modifiers| KeyEvent::new(Char(c), modifiers);
        assert_eq!(action(Approval, &key('a', NONE)), Some(Action::Approve));
        assert_eq!(action(Approval, &key('A', SHIFT)), Some(Action::Always));
        assert_eq!(action(Approval, &key('a', CTRL)), None);
        assert_eq!(typed(&key('A', SHIFT)), Some('A'));
        assert_eq!(typed(&key('@', CTRL.union(ALT))), Some('@'));
        assert_eq!(typed(&key('c', CTRL)), None);
    }

    #[test]
    fn enter_and_space_answer_no_approval() {
        for code in [KeyCode::Enter, Char(' '), Char('y'), KeyCode::Esc] {
            assert_eq!(action(Approval, &KeyEvent::new(code, NONE)), None);
        }
    }

    #[test]
    fn labels_name_the_keys() {
        let label = |action| BINDINGS.iter().find(|b| b.action == action).unwrap().label();
        assert_eq!(label(Action::Interrupt), "Ctrl-C");
        assert_eq!(label(Action::Newline), "Alt-Enter Shift-Enter Ctrl-J");
        assert_eq!(label(Action::Always), "A");
    }
}
