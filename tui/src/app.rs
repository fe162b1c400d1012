//! The loop: waits for keys, the server and time, hands them to `update`, does what it wants done, draws.
//! Everything that waits is taken in before a frame; there are at most 60 frames a second, and none while
//! nothing happens.

use std::io;
use std::time::Duration;

use crossterm::event::{Event, EventStream};
use futures_util::StreamExt as _;
use tns_client::{Client, ClientEvent, Events};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use crate::TuiError;
use crate::model::{Effect, Model, Msg};
use crate::terminal::{TerminalGuard, panicked};
use crate::update::{start, update};
use crate::view::{arrange, view};
use crate::work::Work;

/// Time between two frames: 60 a second.
const FRAME: Duration = Duration::from_micros(16_667);
/// Most events of the server that are taken in before keys are looked at again.
const MAX_BATCH: usize = 4_096;

/// The running screen.
pub(crate) struct App {
    model: Model,
    events: Events,
    work: Work,
    opened: Instant,
    next_frame: Instant,
    dirty: bool,
    /// Why the connection has ended for good.
    closed: Option<String>,
}

/// Whether the loop goes on.
#[derive(Debug, PartialEq, Eq)]
enum Flow {
    Continue,
    Quit,
}

impl App {
    /// Makes the screen of a session, not yet on a terminal.
    pub(crate) fn new(model: Model, client: Client, events: Events) -> Self {
        let work = Work::new(client, model.session.clone());
        let now = Instant::now();
        Self { model, events, work, opened: now, next_frame: now, dirty: true, closed: None }
    }

    /// Runs until the user leaves, the connection ends for good, or a signal arrives.
    pub(crate) async fn run(
        &mut self,
        terminal: &mut TerminalGuard,
        mut signals: Signals,
    ) -> Result<(), TuiError> {
        let mut keys = EventStream::new();
        let panicked = panicked();
        let effects = start();
        self.act(effects, terminal)?;
        self.draw(terminal)?;
        loop {
            let wake = self.wake();
            let flow = tokio::select! {
                event = keys.next() => match event {
                    Some(Ok(event)) => self.on_terminal(event, terminal)?,
                    Some(Err(error)) => return Err(TuiError::Terminal(error)),
                    None => return Err(TuiError::Terminal(io::ErrorKind::UnexpectedEof.into())),
                },
                event = self.events.next() => self.on_client(event, terminal)?,
                Some(msg) = self.work.next() => self.take(msg, terminal)?,
                name = signals.next() => return Err(TuiError::Signal(name)),
                () = panicked.notified() => return Err(TuiError::Panicked),
                () = sleep_until(wake) => self.on_time(terminal)?,
            };
            if flow == Flow::Quit {
                return self.closed.take().map_or(Ok(()), |reason| Err(TuiError::Closed(reason)));
            }
            if self.dirty && Instant::now() >= self.next_frame {
                self.draw(terminal)?;
            }
        }
    }

    /// Sends what the user sent, then ends.
    pub(crate) async fn finish(self) {
        self.work.finish().await;
    }

    /// When something is to be done though nothing happens: a frame that was put off, or a look that changes.
    fn wake(&self) -> Option<Instant> {
        let frame = self.dirty.then_some(self.next_frame);
        let change = self.model.next_change().map(|at| self.opened + at);
        frame.into_iter().chain(change).min()
    }

    fn on_terminal(&mut self, event: Event, terminal: &mut TerminalGuard) -> Result<Flow, TuiError> {
        let msg = match event {
            Event::Key(key) => Msg::Key(key),
            Event::Paste(text) => Msg::Paste(text),
            Event::Resize(columns, rows) => Msg::Resize(columns, rows),
            Event::FocusGained | Event::FocusLost | Event::Mouse(_) => return Ok(Flow::Continue),
        };
        self.take(msg, terminal)
    }

    fn on_client(
        &mut self,
        event: Option<ClientEvent>,
        terminal: &mut TerminalGuard,
    ) -> Result<Flow, TuiError> {
        let mut next =
            Some(event.unwrap_or_else(|| ClientEvent::Closed { reason: "the connection has ended".into() }));
        let mut taken = 0;
        while let Some(event) = next {
            if let ClientEvent::Closed { reason } = &event {
                self.closed = Some(reason.clone());
            }
            if self.take(Msg::Client(event), terminal)? == Flow::Quit {
                return Ok(Flow::Quit);
            }
            taken += 1;
            next = if taken < MAX_BATCH { self.events.try_next() } else { None };
        }
        Ok(Flow::Continue)
    }

    fn on_time(&mut self, terminal: &mut TerminalGuard) -> Result<Flow, TuiError> {
        let due = self.model.next_change().is_some_and(|at| self.opened.elapsed() >= at);
        if due { self.take(Msg::Tick, terminal) } else { Ok(Flow::Continue) }
    }

    fn take(&mut self, msg: Msg, terminal: &mut TerminalGuard) -> Result<Flow, TuiError> {
        self.dirty = true;
        let effects = update(&mut self.model, self.opened.elapsed(), msg);
        self.act(effects, terminal)
    }

    fn act(&mut self, effects: Vec<Effect>, terminal: &mut TerminalGuard) -> Result<Flow, TuiError> {
        for effect in effects {
            match effect {
                Effect::Send(message) => {
                    if let Err(failed) = self.work.send(*message) {
                        update(&mut self.model, self.opened.elapsed(), failed);
                    }
                }
                Effect::Load => self.work.load(),
                Effect::Join(from) => {
                    if let Err(failed) = self.work.join(from) {
                        update(&mut self.model, self.opened.elapsed(), failed);
                    }
                }
                Effect::Quit => return Ok(Flow::Quit),
                Effect::Suspend => terminal.suspend().map_err(TuiError::Terminal)?,
                Effect::Redraw => terminal.forget().map_err(TuiError::Terminal)?,
            }
        }
        Ok(Flow::Continue)
    }

    fn draw(&mut self, terminal: &mut TerminalGuard) -> Result<(), TuiError> {
        // After a panic the screen is gone; the notice of it ends the loop.
        let Some(screen) = terminal.screen() else { return Ok(()) };
        let size = screen.size().map_err(TuiError::Terminal)?;
        self.model.size = (size.width, size.height);
        self.model.now = self.opened.elapsed();
        let anew = arrange(&mut self.model);
        let drawn = screen.draw(|frame| view(&self.model, frame)).map_err(TuiError::Terminal)?.area;
        if (drawn.width, drawn.height) != self.model.size {
            // The terminal changed in between and the frame is empty; its notice brings the next one.
            self.model.approvals.hide();
        }
        tracing::trace!(entries = anew, "frame drawn");
        self.dirty = false;
        self.next_frame = Instant::now() + FRAME;
        Ok(())
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// The signals that end the program.
pub(crate) struct Signals {
    terminate: Signal,
    hang_up: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Takes the signals over: from now on they end the loop, not the process.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.hang_up.recv() => "SIGHUP",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
