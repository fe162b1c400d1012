//! `tns sessions`: what was talked about, and where.

mod change;
mod line;
mod place;
mod search;
mod tail;
mod transfer;

use std::fmt::Write as _;

use anyhow::Context as _;
use clap::Subcommand;
use serde::Serialize;
use tns_client::Rest;
use tns_protocol::SessionId;
use tns_protocol::rest::{MessageRole, SessionDetail, SessionSummary, StoredMessage};

use crate::exit::{Exit, Stop};
use crate::{Context, logging, server};

/// Sessions that `list` prints when no number is given.
const DEFAULT_LIMIT: usize = 50;
/// Sessions asked for at once.
const PAGE: u32 = 100;

/// List, show, find, follow, change, export and import sessions
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List sessions, the latest first: id, last change, folder, title
    List {
        /// Print at most this many
        #[arg(long, value_name = "N", default_value_t = DEFAULT_LIMIT)]
        limit: usize,
    },
    /// Show one session and its messages
    Show {
        /// The session's id
        #[arg(value_name = "ID")]
        id: String,
    },
    Search(search::Args),
    Rename(change::Rename),
    Fork(change::Fork),
    Feedback(change::Feedback),
    Rm(change::Rm),
    Export(transfer::Export),
    Import(transfer::Import),
    Tail(tail::Args),
}

/// What `show --json` prints.
#[derive(Serialize)]
struct Shown {
    session: SessionDetail,
    messages: Vec<StoredMessage>,
}

/// What `list --json` prints.
#[derive(Serialize)]
struct Listed {
    sessions: Vec<SessionSummary>,
}

pub(crate) fn run(args: Args, context: &Context) -> anyhow::Result<()> {
    logging::start(context, logging::Unasked::Nothing)?;
    server::with_interruptible(context, async |attached| {
        let rest = attached.rest()?;
        match args.action {
            Action::List { limit } => list(context, &rest, limit).await,
            Action::Show { id } => show(context, &rest, &named(&id)?).await,
            Action::Search(args) => search::run(context, &rest, args).await,
            Action::Rename(args) => change::rename(context, &rest, args).await,
            Action::Fork(args) => change::fork(context, &rest, args).await,
            Action::Feedback(args) => change::rate(context, &rest, args).await,
            Action::Rm(args) => change::remove(context, &rest, args).await,
            Action::Export(args) => transfer::export(context, &rest, args).await,
            Action::Import(args) => transfer::import(context, &rest, args).await,
            Action::Tail(args) => tail::run(context, attached, args).await,
        }
    })
}

/// Reads an id. One outside the charset names no session either.
fn named(id: &str) -> Result<SessionId, Stop> {
    SessionId::parse(id).map_err(|_| Stop::new(Exit::NotFound, format!("there is no session {id}")))
}

async fn list(context: &Context, rest: &Rest, limit: usize) -> anyhow::Result<()> {
    let mut sessions = Vec::new();
    let mut cursor = None;
    while sessions.len() < limit {
        let page = rest.sessions(cursor.as_deref(), Some(PAGE)).await.context("list the sessions")?;
        cursor = page.next_cursor.filter(|_| !page.sessions.is_empty());
        sessions.extend(page.sessions);
        if cursor.is_none() {
            break;
        }
    }
    sessions.truncate(limit);
    if context.out.json {
        return context.out.json(&Listed { sessions });
    }
    let mut text = String::new();
    for SessionSummary { id, updated_at, workspace, title, .. } in &sessions {
        let title = title.as_deref().unwrap_or("-");
        // Writing into a String can't fail.
        let _ = writeln!(text, "{id}\t{updated_at}\t{workspace}\t{title}");
    }
    context.out.data(&text)
}

async fn show(context: &Context, rest: &Rest, id: &SessionId) -> anyhow::Result<()> {
    let session = rest.session(id).await.context("show the session")?;
    let mut messages: Vec<StoredMessage> = Vec::new();
    loop {
        let after = messages.last().map_or(0, |message| message.seq);
        let page = rest.messages(id, after, None).await.context("read the session's messages")?;
        let more = page.more && !page.messages.is_empty();
        messages.extend(page.messages);
        if !more {
            break;
        }
    }
    if context.out.json {
        return context.out.json(&Shown { session, messages });
    }
    context.out.data(&transcript(&session, &messages))
}

fn transcript(session: &SessionDetail, messages: &[StoredMessage]) -> String {
    let SessionDetail { id, workspace, created_at, autonomy, .. } = session;
    let title = session.title.as_deref().unwrap_or("-");
    let mut text = format!(
        "session   {id}\ntitle     {title}\nfolder    {workspace}\ncreated   {created_at}\nautonomy  {}\n",
        autonomy.as_str()
    );
    for agent in &session.agents {
        // Writing into a String can't fail.
        let _ = writeln!(text, "agent     {} ({} {})", agent.agent_id, agent.provider, agent.model);
    }
    text + &blocks(messages)
}

/// The messages, each under a line of its own; a tool's result is that line.
fn blocks(messages: &[StoredMessage]) -> String {
    let mut text = String::new();
    for message in messages {
        let content = message.content.trim_end();
        let failed = if message.failed { " (failed)" } else { "" };
        let at = message.created_at;
        let who = match message.role {
            MessageRole::User => "you",
            MessageRole::Assistant => message.agent_id.as_deref().unwrap_or("agent"),
            MessageRole::Tool => {
                let tool = message.tool.as_deref().unwrap_or("tool");
                // Writing into a String can't fail.
                let _ = writeln!(text, "\n--- {tool}{failed}, {at}: {}", first_line(content));
                continue;
            }
        };
        match (content, message.failed) {
            // It only called tools, whose results follow.
            ("", false) => {}
            ("", true) => {
                let _ = writeln!(text, "\n--- {who}{failed}, {at}");
            }
            (content, _) => {
                let _ = writeln!(text, "\n--- {who}{failed}, {at}\n{content}");
            }
        }
    }
    text
}

/// The first line that says something, and whether more follow.
fn first_line(content: &str) -> String {
    let mut lines = content.trim_start().lines();
    match (lines.next(), lines.next()) {
        (Some(first), Some(_)) => format!("{} …", first.trim_end()),
        (Some(first), None) => first.to_owned(),
        (None, _) => "(nothing)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use tns_protocol::{MessageId, Timestamp};

    use super::*;

    fn message(role: MessageRole, content: &str, failed: bool) -> StoredMessage {
        StoredMessage {
            seq: 1,
            turn_id: MessageId::parse("t").unwrap(),
            message_id: None,
            feedback: None,
            role,
            agent_id: Some("assistant-1".into()),
            content: content.into(),
            tool: (role == MessageRole::Tool).then(|| "shell".into()),
            failed,
            created_at: Timestamp::from_micros(0),
        }
    }

    #[test]
    fn a_call_is_one_line_and_no_block_is_empty() {
        let messages = [
            message(MessageRole::User, "what is here?\n", false),
            message(MessageRole::Assistant, "", false),
            message(MessageRole::Tool, "\na.md\nb.md\n", false),
            message(MessageRole::Tool, "no such file", true),
            message(MessageRole::Tool, " \n", false),
            message(MessageRole::Assistant, "Two\nfiles.\n", false),
            message(MessageRole::Assistant, "", true),
        ];
        insta::assert_snapshot!(blocks(&messages), @r"

        --- you, 1970-01-01T00:00:00.000Z
        what is here?

        --- shell, 1970-01-01T00:00:00.000Z: a.md …

        --- shell (failed), 1970-01-01T00:00:00.000Z: no such file

        --- shell, 1970-01-01T00:00:00.000Z: (nothing)

        --- assistant-1, 1970-01-01T00:00:00.000Z
        Two
        files.

        --- assistant-1 (failed), 1970-01-01T00:00:00.000Z
        ");
    }
}
