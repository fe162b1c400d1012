//! What changes sessions: naming, copying, rating, erasing.

use anyhow::Context as _;
use clap::ValueEnum;
use serde::Serialize;
use tns_client::{ClientError, Rest};
use tns_protocol::rest::{ForkSession, MessageRole, StoredMessage};
use tns_protocol::session::FeedbackScore;
use tns_protocol::{ErrorCode, MessageId, Seq, SessionId, Timestamp};

use super::named;
use crate::Context;
use crate::args::parse_session;
use crate::exit::{Exit, Stop};

/// Events that are looked through for the last reply, before the whole log is.
const RECENT: Seq = 500;

/// Give a session a title, or take it away
#[derive(Debug, clap::Args)]
pub(super) struct Rename {
    /// The session's id
    #[arg(value_name = "ID")]
    id: String,
    /// The title
    #[arg(value_name = "TITLE", required_unless_present = "clear", conflicts_with = "clear")]
    title: Vec<String>,
    /// Take the title away
    #[arg(long)]
    clear: bool,
}

/// Make a session that begins as another one, and print its id
///
/// It has the other's messages up to a place that ends a turn, and goes its own way from there. Nothing that was
/// approved with always is taken over.
#[derive(Debug, clap::Args)]
pub(super) struct Fork {
    /// The session's id
    #[arg(value_name = "ID")]
    id: String,
    /// The last event that is taken over, as tail numbers them; the last one of all when absent
    #[arg(long, value_name = "SEQ")]
    at: Option<Seq>,
    /// The new session's id; a fresh one when absent
    #[arg(long = "as", value_name = "ID", value_parser = parse_session)]
    new_id: Option<SessionId>,
    /// The new session's title; the first one's when absent
    #[arg(long, value_name = "TITLE")]
    title: Option<String>,
}

/// Say what you think of a reply
#[derive(Debug, clap::Args)]
pub(super) struct Feedback {
    /// The session's id
    #[arg(value_name = "ID")]
    id: String,
    /// The verdict
    #[arg(value_name = "SCORE", value_enum)]
    score: Score,
    /// The message's id, as show --json tells it; the last reply when absent
    #[arg(long, value_name = "ID")]
    message: Option<String>,
}

/// What somebody thinks of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Score {
    /// Good
    #[value(alias = "+")]
    Up,
    /// Bad
    #[value(alias = "-")]
    Down,
    /// Taken back
    None,
}

/// Erase sessions: messages, audit, own documents
#[derive(Debug, clap::Args)]
#[command(visible_alias = "delete")]
pub(super) struct Rm {
    /// The sessions' ids
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
}

/// What `rename --json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Titled {
    id: SessionId,
    title: Option<String>,
    updated_at: Timestamp,
}

/// What `feedback --json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Rated {
    id: SessionId,
    message_id: MessageId,
    score: FeedbackScore,
}

/// What `rm --json` prints.
#[derive(Serialize, Default)]
struct Removed {
    removed: Vec<SessionId>,
    unknown: Vec<String>,
}

pub(super) async fn rename(context: &Context, rest: &Rest, args: Rename) -> anyhow::Result<()> {
    let id = named(&args.id)?;
    let title = args.title.join(" ");
    if !args.clear && title.trim().is_empty() {
        return Err(Stop::usage("the title is blank; --clear takes the title away").into());
    }
    let renamed = rest.rename_session(&id, (!args.clear).then_some(title)).await;
    let renamed = renamed.context("rename the session")?;
    if context.out.json {
        return context.out.json(&Titled { id, title: renamed.title, updated_at: renamed.updated_at });
    }
    context.out.data(&format!("{id}\t{}\n", renamed.title.as_deref().unwrap_or("-")))
}

pub(super) async fn fork(context: &Context, rest: &Rest, args: Fork) -> anyhow::Result<()> {
    let id = named(&args.id)?;
    let at_seq = match args.at {
        Some(at) => at,
        None => rest.session(&id).await.context("fork the session")?.head_seq,
    };
    let request = ForkSession { at_seq, id: args.new_id, title: args.title };
    let forked = rest.fork_session(&id, request).await.context("fork the session")?;
    if context.out.json {
        return context.out.json(&forked);
    }
    context.out.data(&format!("{}\n", forked.id))
}

pub(super) async fn rate(context: &Context, rest: &Rest, args: Feedback) -> anyhow::Result<()> {
    let id = named(&args.id)?;
    let message_id = match &args.message {
        Some(message) => MessageId::parse(message.as_str()).map_err(|_| {
            Stop::new(Exit::NotFound, format!("there is no message {message} in this session"))
        })?,
        None => last_reply(rest, &id).await?.ok_or_else(|| {
            Stop::new(Exit::NotFound, "the session has no reply yet; name a message with --message ID")
        })?,
    };
    let request = tns_protocol::session::Feedback { message_id, score: args.score.on_the_wire() };
    let kept = rest.rate_message(&id, request).await.context("keep the verdict")?;
    if context.out.json {
        return context.out.json(&Rated { id, message_id: kept.message_id, score: kept.score });
    }
    context.out.data(&format!("{}\n", kept.message_id))
}

/// Returns the last message that an agent wrote for people to read.
async fn last_reply(rest: &Rest, id: &SessionId) -> anyhow::Result<Option<MessageId>> {
    let head = rest.session(id).await.context("find the last reply")?.head_seq;
    let recent = head.saturating_sub(RECENT);
    for from in [recent, 0] {
        let (mut after, mut last) = (from, None);
        loop {
            let page = rest.messages(id, after, None).await.context("find the last reply")?;
            let Some(end) = page.messages.last().map(|message| message.seq) else { break };
            last = page.messages.into_iter().rev().find_map(reply).or(last);
            if !page.more {
                break;
            }
            after = end;
        }
        if last.is_some() || from == 0 {
            return Ok(last);
        }
    }
    Ok(None)
}

fn reply(message: StoredMessage) -> Option<MessageId> {
    let says_something = !message.content.trim().is_empty();
    (message.role == MessageRole::Assistant && says_something).then_some(message.message_id)?
}

impl Score {
    fn on_the_wire(self) -> FeedbackScore {
        match self {
            Self::Up => FeedbackScore::Up,
            Self::Down => FeedbackScore::Down,
            Self::None => FeedbackScore::None,
        }
    }
}

pub(super) async fn remove(context: &Context, rest: &Rest, args: Rm) -> anyhow::Result<()> {
    let mut report = Removed::default();
    for id in args.ids {
        let Ok(session) = SessionId::parse(id.as_str()) else {
            report.unknown.push(id);
            continue;
        };
        match rest.delete_session(&session).await {
            Ok(()) => {
                if !context.out.json {
                    context.out.data(&format!("{session}\n"))?;
                }
                report.removed.push(session);
            }
            Err(ClientError::Refused { code: ErrorCode::SessionNotFound, .. }) => report.unknown.push(id),
            Err(error) => return Err(error).with_context(|| format!("erase the session {id}")),
        }
    }
    if context.out.json {
        context.out.json(&report)?;
    }
    match report.unknown.as_slice() {
        [] => Ok(()),
        unknown => {
            Err(Stop::new(Exit::NotFound, format!("there is no session {}", unknown.join(", "))).into())
        }
    }
}
