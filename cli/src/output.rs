//! The only file that prints. Data goes to standard output through a checked writer, so that a closed pipe
//! is an error that the caller sees; notes and errors go to standard error.
//!
//! What goes to a terminal is cleaned: no text of a model, a tool or a file can drive it or hide in it.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use serde::Serialize;

use crate::args::{ColorChoice, Globals};

const RED: &str = "\u{1b}[1;31m";
const DIM: &str = "\u{1b}[2m";
const RESET: &str = "\u{1b}[0m";
/// Clears what is right of the cursor, and goes to the begin of the line.
const CLEAR_LINE: &str = "\u{1b}[K\r";

/// One of the two streams.
#[derive(Debug, Clone, Copy)]
struct Stream {
    terminal: bool,
    color: bool,
}

/// Where answers and notes go.
#[derive(Debug)]
pub(crate) struct Output {
    /// Data is printed as JSON.
    pub(crate) json: bool,
    quiet: bool,
    stdout: Stream,
    stderr: Stream,
    /// The answer on the terminal has not come to the end of its line.
    mid_line: AtomicBool,
}

impl Output {
    /// Looks at the two streams and at what the user wants of them.
    pub(crate) fn new(globals: &Globals) -> Self {
        let environment = Environment::read();
        let stream = |terminal| Stream { terminal, color: environment.color(globals.color, terminal) };
        Self {
            json: globals.json,
            quiet: globals.quiet,
            stdout: stream(io::stdout().is_terminal()),
            stderr: stream(io::stderr().is_terminal()),
            mid_line: AtomicBool::new(false),
        }
    }

    /// Whether a person sees standard error.
    pub(crate) fn asks_on_stderr(&self) -> bool {
        self.stderr.terminal
    }

    /// Whether standard error has colours.
    pub(crate) fn colors_on_stderr(&self) -> bool {
        self.stderr.color
    }

    /// Writes text to standard output, whole, at once.
    ///
    /// # Errors
    /// What the system says; a pipe that nobody reads is [`io::ErrorKind::BrokenPipe`].
    pub(crate) fn data(&self, text: &str) -> anyhow::Result<()> {
        let mut stdout = io::stdout().lock();
        let written = if self.stdout.terminal {
            self.mid_line.store(!text.ends_with('\n'), Ordering::Relaxed);
            stdout.write_all(clean(text).as_bytes())
        } else {
            stdout.write_all(text.as_bytes())
        };
        written.and_then(|()| stdout.flush()).context("write the answer")
    }

    /// Writes one value as a line of JSON to standard output.
    ///
    /// # Errors
    /// As [`Self::data`].
    pub(crate) fn json(&self, value: &impl Serialize) -> anyhow::Result<()> {
        let mut text = serde_json::to_string(value).context("write the answer as JSON")?;
        text.push('\n');
        self.json_text(&text)
    }

    /// Writes JSON that is text already, to its last newline.
    ///
    /// # Errors
    /// As [`Self::data`].
    pub(crate) fn json_text(&self, text: &str) -> anyhow::Result<()> {
        self.data(&escape_json(text))
    }

    /// Tells what a person may want to know; nothing when quiet.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            self.to_stderr(DIM, "", text, "\n");
        }
    }

    /// Tells how far something is, in a line that the next one overwrites; an empty one takes it away. Only a
    /// person at a terminal is told.
    pub(crate) fn progress(&self, text: &str) {
        if !self.quiet && self.stderr.terminal {
            self.to_stderr(DIM, "", text, CLEAR_LINE);
        }
    }

    /// Tells what a person should know, quiet or not.
    pub(crate) fn warn(&self, text: &str) {
        self.to_stderr("", "", text, "\n");
    }

    /// Tells what went wrong.
    pub(crate) fn error(&self, text: &str) {
        self.to_stderr(RED, "tns: ", text, "\n");
    }

    /// Asks: the cursor stays behind the question.
    pub(crate) fn ask(&self, text: &str) {
        self.to_stderr("", "", text, "");
    }

    fn to_stderr(&self, color: &str, prefix: &str, text: &str, end: &str) {
        let text = if self.stderr.terminal { clean(text) } else { text.to_owned() };
        let (on, off) = if self.stderr.color && !color.is_empty() { (color, RESET) } else { ("", "") };
        let breaks = self.stderr.terminal && self.mid_line.swap(false, Ordering::Relaxed);
        let begin = if breaks { "\n" } else { "" };
        let line = match prefix {
            "" => format!("{begin}{on}{text}{off}{end}"),
            _ => format!("{begin}{on}{prefix}{off}{text}{end}"),
        };
        // Where standard error is closed there is nobody to tell, and the answer still matters.
        let _ = io::stderr().lock().write_all(line.as_bytes());
    }
}

/// Prints what the argument parser has to say, help included, and returns the exit code.
pub(crate) fn usage(message: &clap::Error) -> ExitCode {
    let text = message.render().to_string();
    if message.use_stderr() {
        let _ = io::stderr().lock().write_all(text.as_bytes());
        return ExitCode::from(crate::exit::Exit::Usage.code());
    }
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(crate::exit::Exit::ClosedPipe.code()),
    }
}

/// What the environment says about colours.
struct Environment {
    no_color: bool,
    plain_terminal: bool,
}

impl Environment {
    fn read() -> Self {
        let term = std::env::var_os("TERM");
        Self {
            // The empty value does not count: https://no-color.org
            no_color: std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()),
            plain_terminal: term.is_none_or(|term| term.is_empty() || term == "dumb"),
        }
    }

    fn color(&self, choice: ColorChoice, terminal: bool) -> bool {
        match choice {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => terminal && !self.no_color && !self.plain_terminal,
        }
    }
}

/// Whether the terminal can show a full screen.
pub(crate) fn full_screen() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal() && !Environment::read().plain_terminal
}

/// Whether standard output is a terminal.
pub(crate) fn on_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether the user wants no colours.
pub(crate) fn no_color() -> bool {
    Environment::read().no_color
}

/// Returns the text with everything that drives a terminal or hides in it made visible.
pub(crate) fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut before = '\0';
    for c in text.chars() {
        // Joiners belong to scripts and emoji, never between the letters of a command.
        let joins = matches!(c, '\u{200C}' | '\u{200D}') && !before.is_ascii();
        if matches!(c, '\n' | '\t') || joins || !is_hidden(c) {
            out.push(c);
        } else {
            // Writing into a String can't fail.
            let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
        }
        before = c;
    }
    out
}

/// Returns JSON text in which hidden characters, which stand in strings only, are JSON escapes.
fn escape_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c != '\n' && is_hidden(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing into a String can't fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// Control characters, separators that end a line for some readers only, marks that change the direction of
/// text, and characters without width.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{AD}'
                | '\u{61C}'
                | '\u{180E}'
                | '\u{200B}'..='\u{200F}'
                | '\u{2028}'..='\u{202E}'
                | '\u{2060}'..='\u{206F}'
                | '\u{FEFF}'
                | '\u{E0000}'..='\u{E007F}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_drives_a_terminal_becomes_visible() {
        assert_eq!(clean("a\u{1b}[31mb\u{7}\r\n\tc"), "a\\u{1b}[31mb\\u{7}\\u{d}\n\tc");
        assert_eq!(clean("\u{7f}\u{9b}2J"), "\\u{7f}\\u{9b}2J");
    }

    #[test]
    fn what_hides_becomes_visible() {
        assert_eq!(clean("rm \u{202e}x\u{2066}"), "rm \\u{202e}x\\u{2066}");
        assert_eq!(clean("a\u{200b}b\u{feff}\u{e0041}"), "a\\u{200b}b\\u{feff}\\u{e0041}");
        assert_eq!(clean("r\u{200d}m"), "r\\u{200d}m");
    }

    #[test]
    fn scripts_and_emoji_stay_whole() {
        for text in [
            "職員 näh שלום",
            "👩\u{200d}💻",
            "❤\u{fe0f}\u{200d}🔥 🏳\u{fe0f}\u{200d}🌈 1\u{fe0f}\u{20e3} ☎\u{fe0e}",
            "👩🏽\u{200d}❤\u{fe0f}\u{200d}👨🏿 🇯🇵",
            "葛\u{e0100}",
            "می\u{200c}خواهم",
            "e\u{301}",
        ] {
            assert_eq!(clean(text), text);
        }
    }

    #[test]
    fn json_stays_json_and_hides_nothing() {
        let value = "a\u{9b}\u{2028}\u{202e}\u{e0041}\u{1b}\n職";
        let text = escape_json(&format!("{}\n", serde_json::to_string(value).unwrap()));
        assert_eq!(text, "\"a\\u009b\\u2028\\u202e\\udb40\\udc41\\u001b\\n職\"\n");
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), value);
    }

    #[test]
    fn colours_need_a_terminal_that_has_them() {
        let plain = |no_color, plain_terminal| Environment { no_color, plain_terminal };
        assert!(plain(false, false).color(ColorChoice::Auto, true));
        assert!(!plain(false, false).color(ColorChoice::Auto, false));
        assert!(!plain(true, false).color(ColorChoice::Auto, true));
        assert!(!plain(false, true).color(ColorChoice::Auto, true));
        assert!(plain(true, true).color(ColorChoice::Always, false));
        assert!(!plain(false, false).color(ColorChoice::Never, true));
    }
}
