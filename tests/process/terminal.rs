//! A pseudo-terminal with the binary on it, and an emulator that knows what a person would see there. It
//! waits by looking at the screen, never by time.

use std::io::{Read, Write};
use std::num::NonZero;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use nix::sys::signal::Signal;
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, SlavePty, native_pty_system};

use crate::binary::{Home, TNS, signal_to, until};

/// A terminal's size: columns, rows.
pub(crate) type Size = (u16, u16);
/// The usual size, and the smallest that people use.
pub(crate) const SIZES: [Size; 2] = [(80, 24), (40, 12)];

/// Keys as a terminal sends them.
pub(crate) const ENTER: &str = "\r";
pub(crate) const CTRL_C: &str = "\u{3}";
pub(crate) const CTRL_D: &str = "\u{4}";
pub(crate) const TAB: &str = "\t";
pub(crate) const DOWN: &str = "\u{1b}[B";

/// The binary on a terminal; it is killed when dropped.
pub(crate) struct Terminal {
    master: Box<dyn MasterPty + Send>,
    /// Held so that the terminal outlives the program on it.
    slave: Option<Box<dyn SlavePty + Send>>,
    writer: Box<dyn Write + Send>,
    child: Option<Box<dyn Child + Send + Sync>>,
    shown: Arc<Mutex<Shown>>,
    reader: Option<JoinHandle<()>>,
    modes_before: String,
}

struct Shown {
    emulator: vt100::Parser,
    raw: Vec<u8>,
}

impl Terminal {
    /// Starts the binary in `home` on a terminal of this size.
    pub(crate) fn start(home: &Home, args: &[&str], size: Size) -> Self {
        Self::start_after(home, args, size, "")
    }

    /// As [`Self::start`], after `typed` was typed already.
    pub(crate) fn start_after(home: &Home, args: &[&str], (columns, rows): Size, typed: &str) -> Self {
        let size = PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).unwrap();
        let shown =
            Shown { emulator: vt100::Parser::new(nonzero(rows), nonzero(columns), 0), raw: Vec::new() };
        let shown = Arc::new(Mutex::new(shown));
        let mut output = pair.master.try_clone_reader().unwrap();
        let reader = std::thread::spawn({
            let shown = shown.clone();
            move || {
                let mut chunk = [0; 4096];
                // The read fails when nobody has the terminal open any more.
                while let Ok(count @ 1..) = output.read(&mut chunk) {
                    let mut shown = shown.lock().unwrap();
                    shown.emulator.process(&chunk[..count]);
                    shown.raw.extend_from_slice(&chunk[..count]);
                }
            }
        });
        let modes_before = modes(&*pair.master);
        let mut writer = pair.master.take_writer().unwrap();
        writer.write_all(typed.as_bytes()).unwrap();
        let mut command = CommandBuilder::new(TNS);
        command.args(args);
        command.cwd(home.folder());
        command.env_clear();
        command.env("TERM", "xterm-256color");
        for (name, value) in home.variables() {
            command.env(name, value);
        }
        let child = pair.slave.spawn_command(command).unwrap();
        Self {
            master: pair.master,
            slave: Some(pair.slave),
            writer,
            child: Some(child),
            shown,
            reader: Some(reader),
            modes_before,
        }
    }

    /// Types.
    pub(crate) fn press(&mut self, keys: &str) {
        self.writer.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the screen is as asked for.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&vt100::Screen) -> bool) {
        let shown = self.shown.clone();
        let what = format!("{what}; the screen has:\n");
        let waited = until(&what, || holds(shown.lock().unwrap().emulator.screen()));
        tokio::select! {
            () = waited => {}
            () = tokio::time::sleep(crate::binary::PATIENCE - std::time::Duration::from_millis(500)) => {
                panic!("never: {what}{}", self.text())
            }
        }
    }

    /// Waits until the screen shows this text; line breaks count as blanks.
    pub(crate) async fn shows(&self, text: &str) {
        self.until(text, |screen| words(&screen.contents()).contains(text)).await;
    }

    /// Waits until the screen no longer shows this text.
    pub(crate) async fn hides(&self, text: &str) {
        self.until(text, |screen| !words(&screen.contents()).contains(text)).await;
    }

    /// Waits until the shown request may be answered: its keys stand out then.
    pub(crate) async fn may_answer(&self) {
        self.until("a key answers", |screen| {
            rows_of(screen).iter().zip(0..).any(|(line, row)| {
                let Some(at) = line.find("a approve") else { return false };
                let column = u16::try_from(line[..at].chars().count()).unwrap();
                screen.cell(row, column).is_some_and(vt100::Cell::bold)
            })
        })
        .await;
    }

    /// Returns the rows of the screen.
    pub(crate) fn rows(&self) -> Vec<String> {
        rows_of(self.shown.lock().unwrap().emulator.screen())
    }

    /// Returns the screen's text, a line a row.
    pub(crate) fn text(&self) -> String {
        self.rows().join("\n")
    }

    /// Returns every byte that was written to the terminal.
    pub(crate) fn raw(&self) -> Vec<u8> {
        self.shown.lock().unwrap().raw.clone()
    }

    /// Returns the program's process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().process_id().unwrap()
    }

    /// Waits for the program's end, and returns its exit code.
    pub(crate) async fn ended(&mut self) -> u32 {
        let child = self.child.as_mut().unwrap();
        let mut status = None;
        until("the program ends", || {
            status = child.try_wait().unwrap();
            status.is_some()
        })
        .await;
        self.child = None;
        status.unwrap().exit_code()
    }

    /// Waits until the terminal is as it was before the program: its modes, its screen, its cursor.
    pub(crate) async fn is_restored(&self) {
        self.until("the terminal is restored", |screen| {
            !screen.alternate_screen() && !screen.hide_cursor() && !screen.bracketed_paste()
        })
        .await;
        assert_eq!(modes(&*self.master), self.modes_before);
    }

    /// Whether the program has taken the terminal over: raw and on the other screen.
    pub(crate) fn is_taken_over(&self) -> bool {
        let other = self.shown.lock().unwrap().emulator.screen().alternate_screen();
        other && modes(&*self.master) != self.modes_before
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            if let (Ok(None), Some(pid)) = (child.try_wait(), child.process_id()) {
                signal_to(pid, Signal::SIGKILL);
            }
            drop(child.wait());
        }
        // Nobody has the terminal open now, so the reader ends.
        self.slave = None;
        if let Some(reader) = self.reader.take() {
            drop(reader.join());
        }
    }
}

fn rows_of(screen: &vt100::Screen) -> Vec<String> {
    screen.rows(0, screen.size().1.get()).collect()
}

fn nonzero(size: u16) -> NonZero<u16> {
    NonZero::new(size).unwrap()
}

fn modes(master: &(dyn MasterPty + Send)) -> String {
    format!("{:?}", master.get_termios().unwrap())
}

/// Returns text with every run of white space as one blank.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
