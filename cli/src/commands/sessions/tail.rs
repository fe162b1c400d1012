//! `tns sessions tail`: the durable events of a session, one line each, with a cursor on disk.
//!
//! A line is written and flushed, and then its place is noted. Whoever is killed in between prints that one
//! line again; nothing else is ever printed twice, and nothing is left out.

use anyhow::Context as _;
use tns_client::{ClientError, ClientEvent, Cursor, Reconnect, Rest};
use tns_protocol::{ErrorCode, Seq, ServerFrame, ServerMessage, SessionId, encode_server};

use crate::commands::sessions::line;
use crate::commands::sessions::place::{Place, PlaceName};
use crate::data_dir::DataDir;
use crate::exit::{Exit, Stop};
use crate::server::Attached;
use crate::{Context, workspace};

/// Follow what is stored of a session, one line an event
///
/// It begins where the last one with the same --cursor ended, and goes on until it is interrupted. Each line
/// is noted when it is printed: stop or kill it at any moment and start it again, and no event is missing,
/// and at most the one that was just being printed comes again.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session's id; the current folder's session when absent
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// Begin with this event instead, counted from 1; behind the log's end: with the next that is stored
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    from: Option<Seq>,
    /// Who reads: each name has a place of its own in each session
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = PlaceName::parse)]
    cursor: PlaceName,
    /// End where the log ends
    #[arg(long)]
    once: bool,
}

pub(super) async fn run(context: &Context, attached: &Attached, args: Args) -> anyhow::Result<()> {
    let session = match args.id {
        Some(id) => super::named(&id)?,
        None => workspace::session_id(context)?,
    };
    let head_seq = head(&attached.rest()?, &session).await?;
    let dir = DataDir::open(context.globals.data_dir.as_deref())?;
    let mut place = Place::open(&dir, &session, &args.cursor)?;
    let mut at = place.cursor().clone();
    if let Some(from) = args.from {
        // Counted in the log that is there now, whatever was noted of an earlier one.
        at = Cursor { seq: head_seq.min(from - 1), epoch: None };
        if from - 1 > head_seq {
            let goes_on = if args.once { "" } else { "; what is stored from now on follows" };
            context.out.warn(&format!("the log ends at {head_seq}, before {from}{goes_on}"));
        }
    }
    let (client, mut events) = attached.watch(Reconnect::Backoff).await?;
    client.join(&session, at.clone()).await?;
    loop {
        let event = match events.try_next() {
            Some(event) => event,
            None => {
                // Nothing more is there now: what was noted is put on the disk meanwhile.
                place.sync()?;
                match events.next().await {
                    Some(event) => event,
                    None => return Err(ended("it has ended")),
                }
            }
        };
        match event {
            ClientEvent::Frame(frame) => {
                let Some(seq) = frame.seq else { continue };
                at.seq = seq;
                print(context, &frame)?;
                place.note(&at)?;
                if let ServerMessage::SessionClosing(_) = frame.message {
                    place.sync()?;
                    return Ok(());
                }
            }
            ClientEvent::Joined { epoch, .. } => {
                at.epoch.get_or_insert(epoch);
            }
            ClientEvent::CaughtUp { .. } if args.once => {
                place.sync()?;
                client.close().await;
                return Ok(());
            }
            ClientEvent::CaughtUp { .. } => {}
            ClientEvent::Resync { epoch, reason, .. } => {
                context.out.warn(&format!("the log is read from its beginning: {reason}"));
                at = Cursor { seq: 0, epoch: Some(epoch) };
                place.note(&at)?;
            }
            ClientEvent::Disconnected { reason, .. } => {
                context.out.note(&format!("connection lost, trying again: {reason}"));
            }
            ClientEvent::Reconnected => context.out.note("connected again"),
            ClientEvent::Plain { .. } => {
                let message = "this server is too old to be followed; stop it, and start one of this version";
                return Err(Stop::new(Exit::Failed, message).into());
            }
            ClientEvent::Unsent { .. } => {}
            ClientEvent::Closed { reason } => return Err(ended(&reason)),
        }
    }
}

/// Returns where the log ends. Following a session makes it; one that nobody has begun is a mistake here.
async fn head(rest: &Rest, session: &SessionId) -> anyhow::Result<Seq> {
    match rest.session(session).await {
        Ok(detail) => Ok(detail.head_seq),
        Err(ClientError::Refused { code: ErrorCode::SessionNotFound | ErrorCode::NotFound, .. }) => {
            let message = format!("there is no session {session}; `tns sessions list` names those that are");
            Err(Stop::new(Exit::NotFound, message).into())
        }
        Err(error) => Err(error).context("find the session"),
    }
}

fn ended(reason: &str) -> anyhow::Error {
    Stop::new(Exit::Unreachable, format!("the connection to the server is lost: {reason}")).into()
}

/// Prints one event whole.
fn print(context: &Context, frame: &ServerFrame) -> anyhow::Result<()> {
    if context.out.json {
        return context.out.json_text(&format!("{}\n", encode_server(frame)));
    }
    context.out.data(&format!("{}\n", line::of(frame)))
}
