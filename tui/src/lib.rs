//! The terminal screen of `tns chat`: transcript, composer, approvals, status.
//!
//! Keys, the server and time become a `Msg`; `update` changes the `Model` and names effects;
//! `view` draws the model and changes nothing; `app` is the only place that waits and acts. This crate knows
//! the server by its client only, and decides nothing that the server decides.

mod app;
#[cfg(test)]
mod fixture;
mod keymap;
mod model;
mod pane;
mod sanitize;
mod terminal;
mod text;
mod theme;
mod update;
mod view;
mod work;

use std::io;

use tns_client::{Client, Events};
use tns_protocol::rest::ServerInfo;
use tns_protocol::{SessionId, Timestamp};

use crate::app::{App, Signals};
use crate::model::Model;
use crate::terminal::TerminalGuard;
use crate::theme::Theme;

/// What the screen shows and whom it talks to.
pub struct ChatOptions {
    /// The connection; it is closed when the screen is left.
    pub client: Client,
    /// What arrives at that connection.
    pub events: Events,
    /// The session to show; one that does not exist yet begins with the first message.
    pub session: SessionId,
    /// Sent as soon as the stored conversation is shown.
    pub first_message: Option<String>,
    /// What the server says of itself.
    pub info: ServerInfo,
}

/// Why the screen ended although nobody left it. The terminal is restored by then.
#[derive(Debug, thiserror::Error)]
pub enum TuiError {
    /// The terminal can't be read, written or switched.
    #[error("use the terminal: {0}")]
    Terminal(#[source] io::Error),
    /// The connection ended for good, with the reason.
    #[error("stay connected: {0}")]
    Closed(String),
    /// A signal asked the program to end: its name.
    #[error("go on: {0} was received")]
    Signal(&'static str),
    /// A part of the program failed; its message was written to the terminal.
    #[error("go on: a part of the program failed")]
    Panicked,
}

/// Shows the session until the user leaves. Takes the terminal over and gives it back however it ends.
///
/// # Errors
/// [`TuiError`] when something other than the user ended the screen.
pub async fn run(options: ChatOptions) -> Result<(), TuiError> {
    let ChatOptions { client, events, session, first_message, info } = options;
    let theme = Theme::choose(std::env::var_os("NO_COLOR").as_deref());
    // Two screens differ in their process or in the moment that they were opened.
    let prefix = format!("tui-{}-{}", std::process::id(), Timestamp::now().as_micros());
    let model = Model::new(session, info, first_message, theme, prefix);
    // Before the terminal is taken over, so that no signal finds it half switched.
    let signals = Signals::new().map_err(TuiError::Terminal)?;
    let mut terminal = TerminalGuard::enter().map_err(TuiError::Terminal)?;
    let mut app = App::new(model, client.clone(), events);
    let result = Box::pin(app.run(&mut terminal, signals)).await;
    drop(terminal);
    app.finish().await;
    client.close().await;
    result
}
