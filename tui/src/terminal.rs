//! The terminal's modes: raw, alternate screen, bracketed paste. Whatever ends the program (return, error,
//! panic, signal), the terminal is left as it was found. Nothing is drawn here.

use std::io::{self, BufWriter, Stdout, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once, OnceLock};

use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use crossterm::{cursor, execute, terminal};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use tokio::sync::Notify;

/// Bytes of a frame that are written at once, so that a frame is seldom torn.
const FRAME_BUFFER_BYTES: usize = 64 << 10;

/// Whether our modes are on. One terminal a process, so one flag; the panic hook reads it.
static ACTIVE: AtomicBool = AtomicBool::new(false);
/// Wakes the loop after a panic in another thread or task.
static PANICKED: OnceLock<Arc<Notify>> = OnceLock::new();

pub(crate) type Screen = Terminal<CrosstermBackend<BufWriter<Stdout>>>;

/// Our modes are on while this lives.
pub(crate) struct TerminalGuard {
    screen: Screen,
}

impl TerminalGuard {
    /// Takes the terminal over.
    ///
    /// # Errors
    /// When standard output is no terminal or can't be written.
    pub(crate) fn enter() -> io::Result<Self> {
        install_panic_hook();
        let screen = take_over().inspect_err(|_| restore())?;
        Ok(Self { screen })
    }

    /// Returns the screen to draw on; `None` once a panic has given the terminal back.
    pub(crate) fn screen(&mut self) -> Option<&mut Screen> {
        ACTIVE.load(Ordering::SeqCst).then_some(&mut self.screen)
    }

    /// Forgets what the terminal shows, so that the next frame draws everything.
    pub(crate) fn forget(&mut self) -> io::Result<()> {
        // Not `clear`: it asks the terminal where its cursor is and waits for the answer.
        let size = self.screen.size()?;
        self.screen.resize(size.into())
    }

    /// Gives the terminal back to the shell, stops this process, and takes the terminal over again when the
    /// shell continues it.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        restore();
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGTSTP)?;
        self.screen = take_over()?;
        Ok(())
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        restore();
    }
}

/// Returns what is notified after a panic anywhere in this process: the screen is gone then, so the loop ends.
pub(crate) fn panicked() -> Arc<Notify> {
    Arc::clone(PANICKED.get_or_init(Arc::default))
}

fn take_over() -> io::Result<Screen> {
    ACTIVE.store(true, Ordering::SeqCst);
    terminal::enable_raw_mode()?;
    let mut out = BufWriter::with_capacity(FRAME_BUFFER_BYTES, io::stdout());
    let clear = terminal::Clear(terminal::ClearType::All);
    execute!(out, terminal::EnterAlternateScreen, EnableBracketedPaste, clear)?;
    Terminal::new(CrosstermBackend::new(out))
}

/// Undoes what `take_over` did, as far as the terminal still listens; twice does no harm.
fn restore() {
    if !ACTIVE.swap(false, Ordering::SeqCst) {
        return;
    }
    // A terminal that is gone can't be restored, and nobody is there to be told.
    let mut out = io::stdout();
    let _ = execute!(out, DisableBracketedPaste, terminal::LeaveAlternateScreen, cursor::Show);
    let _ = out.flush();
    let _ = terminal::disable_raw_mode();
}

/// Makes a panic readable: the terminal is restored before the message is written.
fn install_panic_hook() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let ours = ACTIVE.load(Ordering::SeqCst);
            restore();
            before(info);
            if ours {
                panicked().notify_one();
            }
        }));
    });
}
