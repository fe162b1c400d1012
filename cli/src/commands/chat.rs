//! `tns chat`: the full screen, or the one-shot run where there is no terminal to show it on.

use anyhow::Context as _;
use tns_client::Reconnect;
use tns_tui::{ChatOptions, TuiError};

use crate::exit::{Exit, Stop};
use crate::server::{Attached, Launch};
use crate::workspace::Folder;
use crate::{Context, logging, output, server, workspace};

/// Chat on a full screen
///
/// Opens the folder's own session. Without a terminal it asks once, as tns run does.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Send this first
    #[arg(value_name = "MESSAGE")]
    message: Option<String>,
    /// Begin a new session
    #[arg(long, conflicts_with = "session")]
    new: bool,
    /// Begin a session that no later command finds by itself
    #[arg(long, conflicts_with_all = ["session", "new"])]
    temp: bool,
}

pub(crate) fn run(args: Args, context: &Context) -> anyhow::Result<()> {
    if !output::full_screen() {
        return super::run::instead_of_chat(args.message, context);
    }
    server::with(context, Launch::default(), async |attached, _signals| screen(args, context, attached).await)
}

async fn screen(args: Args, context: &Context, attached: &Attached) -> anyhow::Result<()> {
    let rest = attached.rest()?;
    let folder = Folder::current()?;
    let id = if args.new || args.temp { workspace::fresh_id()? } else { workspace::session_id(context)? };
    let (session, info, line) = tokio::join!(
        workspace::open(context, &rest, &folder, id),
        rest.info(),
        attached.connect(Reconnect::Backoff)
    );
    let session = session?;
    let info = info.context("ask the server what it is")?;
    let (client, events) = line?;
    workspace::note_other_workspace(context, &folder, &session);
    // The screen is drawn over standard error; its logs would tear it.
    if !context.out.asks_on_stderr() {
        logging::start(context, logging::Unasked::Nothing)?;
    }
    let options = ChatOptions {
        client: client.clone(),
        events,
        session: session.id,
        first_message: args.message,
        info,
    };
    tns_tui::run(options).await.map_err(ended)
}

/// Why the screen ended, with the exit code that fits.
fn ended(error: TuiError) -> anyhow::Error {
    match &error {
        TuiError::Signal(_) => Stop::silent(Exit::Interrupted).into(),
        TuiError::Closed(reason) => {
            Stop::new(Exit::Unreachable, format!("the connection to the server is lost: {reason}")).into()
        }
        TuiError::Terminal(_) | TuiError::Panicked => anyhow::Error::new(error).context("show the chat"),
    }
}
