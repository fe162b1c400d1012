//! The one door for untrusted text: what a model, a tool, a file, a name or a server sends becomes text that
//! can't drive the terminal and hides nothing. It lays nothing out and knows no colours.
//!
//! Control characters, direction overrides, zero-width and tag characters become visible escapes such as
//! `\u{1B}`. Joiners, variation selectors and combining marks stay where scripts and emoji use them.

use std::fmt::Write as _;

use unicode_width::UnicodeWidthChar;

/// Columns that a tab takes.
pub(crate) const TAB_COLUMNS: usize = 4;
/// Most zero-width marks on one character that are drawn; those beyond it are escaped. Real scripts stay below.
const MAX_MARKS: usize = 8;

/// What newlines, carriage returns and tabs mean in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Prose and output: a carriage return goes back to the start of its line, a tab is spaces.
    Block,
    /// What a person is to approve: as `Block`, but a carriage return is shown, since it could hide text.
    Exact,
    /// A name or another text for one row: newlines and tabs are shown too.
    Line,
    /// What the user pastes: a carriage return is a newline, tabs stay.
    Draft,
}

/// A text that is safe to draw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Clean {
    /// The text.
    pub(crate) text: String,
    /// How many characters are shown as escapes.
    pub(crate) escaped: usize,
}

/// Cleans a whole text.
pub(crate) fn clean(mode: Mode, text: &str) -> Clean {
    let mut sanitizer = Sanitizer::new(mode);
    let mut out = String::with_capacity(text.len());
    sanitizer.push(&mut out, text);
    sanitizer.finish(&mut out);
    Clean { text: out, escaped: sanitizer.escaped }
}

/// Cleans a text for one row.
pub(crate) fn line(text: &str) -> String {
    clean(Mode::Line, text).text
}

/// Cleans a text that arrives in pieces; cutting it elsewhere gives the same result.
#[derive(Debug, Clone)]
pub(crate) struct Sanitizer {
    mode: Mode,
    held: Option<char>,
    /// The last character that was drawn as itself, on this line.
    base: Option<char>,
    marks: usize,
    line_start: usize,
    escaped: usize,
}

impl Sanitizer {
    /// Starts a text.
    pub(crate) fn new(mode: Mode) -> Self {
        Self { mode, held: None, base: None, marks: 0, line_start: 0, escaped: 0 }
    }

    /// Appends the next piece to `out`, which holds what earlier pieces gave, and returns how many bytes at
    /// the front of `out` are as they were.
    pub(crate) fn push(&mut self, out: &mut String, piece: &str) -> usize {
        let mut unchanged = out.len();
        for c in piece.chars() {
            self.release(out, Some(c), &mut unchanged);
            self.take(out, c);
        }
        unchanged
    }

    /// Ends the text: what was held back for its successor is decided.
    pub(crate) fn finish(&mut self, out: &mut String) {
        let mut unchanged = out.len();
        self.release(out, None, &mut unchanged);
    }

    /// Decides a held character now that its successor is known.
    fn release(&mut self, out: &mut String, next: Option<char>, unchanged: &mut usize) {
        match self.held.take() {
            None => {}
            Some('\r') => match next {
                Some('\n') | None => {}
                Some('\r') if self.mode == Mode::Block => {}
                Some(_) if self.mode == Mode::Draft => self.newline(out),
                Some(_) => {
                    out.truncate(self.line_start);
                    *unchanged = (*unchanged).min(self.line_start);
                    self.base = None;
                }
            },
            Some(joiner) => {
                let fits = self.base.zip(next).is_some_and(|(before, after)| joins(joiner, before, after));
                if fits { self.draw(out, joiner) } else { self.escape(out, joiner) }
            }
        }
    }

    fn take(&mut self, out: &mut String, c: char) {
        match (c, self.mode) {
            ('\n', Mode::Block | Mode::Exact | Mode::Draft) => self.newline(out),
            ('\r', Mode::Block | Mode::Draft) => self.held = Some('\r'),
            ('\t', Mode::Block | Mode::Exact) => {
                out.extend(std::iter::repeat_n(' ', TAB_COLUMNS));
                self.base = None;
            }
            ('\t', Mode::Draft) => {
                out.push('\t');
                self.base = None;
            }
            ('\u{200C}' | '\u{200D}', _) => self.held = Some(c),
            _ if is_hidden(c) => self.escape(out, c),
            _ if is_selector(c) => {
                if self.base.is_some_and(|base| selects(c, base)) {
                    self.draw(out, c);
                } else {
                    self.escape(out, c);
                }
            }
            _ if c.width() == Some(0) && (self.base.is_none() || self.marks >= MAX_MARKS) => {
                self.escape(out, c);
            }
            _ => self.draw(out, c),
        }
    }

    fn draw(&mut self, out: &mut String, c: char) {
        self.marks = if c.width() == Some(0) { self.marks + 1 } else { 0 };
        // A space carries no marks: they would be drawn over its neighbour.
        self.base = (c != ' ').then_some(c);
        out.push(c);
    }

    fn escape(&mut self, out: &mut String, c: char) {
        push_escape(out, c);
        self.escaped += 1;
        self.base = None;
    }

    fn newline(&mut self, out: &mut String) {
        out.push('\n');
        self.line_start = out.len();
        self.base = None;
    }
}

/// Appends `c` as its visible escape.
pub(crate) fn push_escape(out: &mut String, c: char) {
    // Writing into a String can't fail.
    let _ = write!(out, "\\u{{{:X}}}", u32::from(c));
}

/// Whether `c` is drawn as a part of the character before it: a mark, a joiner, a variation selector.
pub(crate) fn attaches(c: char) -> bool {
    matches!(c, '\u{200C}' | '\u{200D}') || (c.width() == Some(0) && !is_hidden(c))
}

/// Characters that are never drawn: they move, hide or reorder.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{AD}' | '\u{34F}' | '\u{61C}' | '\u{115F}'..='\u{1160}' | '\u{17B4}'..='\u{17B5}'
            | '\u{180B}'..='\u{180F}' | '\u{200B}' | '\u{200E}'..='\u{200F}' | '\u{2028}'..='\u{202E}'
            | '\u{2060}'..='\u{206F}' | '\u{3164}' | '\u{FEFF}' | '\u{FFA0}' | '\u{FFF0}'..='\u{FFFB}'
            | '\u{1BCA0}'..='\u{1BCA3}' | '\u{1D173}'..='\u{1D17A}' | '\u{E0000}'..='\u{E00FF}'
            | '\u{E01F0}'..='\u{E0FFF}')
}

fn is_selector(c: char) -> bool {
    matches!(c, '\u{FE00}'..='\u{FE0F}' | '\u{E0100}'..='\u{E01EF}')
}

/// Whether a variation selector says something about `base`: one behind a symbol, a keycap or an ideograph.
fn selects(selector: char, base: char) -> bool {
    let ideograph =
        matches!(base, '\u{3400}'..='\u{9FFF}' | '\u{F900}'..='\u{FAFF}' | '\u{20000}'..='\u{3FFFF}');
    match selector {
        '\u{FE0E}' | '\u{FE0F}' => is_emoji(base) || base.is_ascii_digit() || matches!(base, '#' | '*'),
        _ => ideograph,
    }
}

/// Whether a joiner between these two is one that a script or an emoji sequence uses.
fn joins(joiner: char, before: char, after: char) -> bool {
    let script = is_joining_script(before) && is_joining_script(after);
    match joiner {
        '\u{200D}' => script || ((is_emoji(before) || before == '\u{FE0F}') && is_emoji(after)),
        _ => script,
    }
}

/// Arabic, Syriac, N'Ko, the scripts of India and South-East Asia: joiners change their letters' shapes.
fn is_joining_script(c: char) -> bool {
    matches!(c, '\u{600}'..='\u{8FF}' | '\u{900}'..='\u{DFF}' | '\u{1000}'..='\u{109F}' | '\u{1780}'..='\u{18AF}'
        | '\u{FB50}'..='\u{FDFF}' | '\u{FE70}'..='\u{FEFC}')
}

fn is_emoji(c: char) -> bool {
    matches!(c, '\u{A9}' | '\u{AE}' | '\u{203C}' | '\u{2049}' | '\u{2122}' | '\u{2139}' | '\u{2190}'..='\u{21FF}'
        | '\u{2300}'..='\u{23FF}' | '\u{24C2}' | '\u{25A0}'..='\u{27BF}' | '\u{2900}'..='\u{297F}'
        | '\u{2B00}'..='\u{2BFF}' | '\u{3030}' | '\u{303D}' | '\u{3297}' | '\u{3299}' | '\u{1F000}'..='\u{1FAFF}')
}

#[cfg(test)]
mod tests;
