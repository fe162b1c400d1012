//! `tns run`: one question, its answer on standard output, and an exit code that tells how it went.

mod asker;
mod conversation;
mod printer;
mod prompt;
mod standing;
mod turn;

use std::time::Duration;

use clap::ValueEnum;
use tns_client::{Cursor, Reconnect};
use tns_protocol::agent::AgentAdd;
use tns_protocol::approval::{AutonomyLevel, Risk, SetAutonomy, ToolApproveRequest};
use tns_protocol::chat::Chat;
use tns_protocol::rest::SessionDetail;
use tns_protocol::{AgentId, ClientMessageId, ErrorCode, ServerMessage};
use tokio::time::Instant;

use crate::args::{parse_dollars, parse_positive_duration};
use crate::commands::agents;
use crate::commands::exchange::Line;
use crate::commands::run::asker::Asker;
use crate::commands::run::conversation::{Conversation, Started};
use crate::commands::run::printer::{Format, Printer};
use crate::commands::run::standing::Standing;
use crate::commands::run::turn::{Owner, Turn};
use crate::exit::{Exit, Stop};
use crate::server::{Attached, Launch};
use crate::workspace::Folder;
use crate::{Context, logging, server, workspace};

/// Ask once and print the answer
///
/// The prompt is followed by what standard input holds, if it is no terminal. A new session is made in the
/// current folder, unless --session names one. Only the answer goes to standard output.
///
/// Exit codes: 0 answered, 1 failed, 2 wrong usage, 3 no server, 4 the provider failed, 5 a tool was needed
/// and not allowed, 6 a limit was reached, 7 not found, 130 interrupted.
#[derive(Debug, Default, clap::Args)]
#[command(visible_alias = "ask")]
pub(crate) struct Args {
    /// The question or task; - or nothing reads it from standard input
    #[arg(value_name = "PROMPT")]
    prompt: Option<String>,
    /// Print every event of the server as a line of JSON
    #[arg(long, conflicts_with = "json")]
    jsonl: bool,
    /// What the agent may do without asking: full-auto, supervised, cautious or manual
    #[arg(long, value_name = "LEVEL", value_parser = parse_level)]
    autonomy: Option<AutonomyLevel>,
    /// What to do with a tool that needs approval: ask on the terminal, deny, or wait for another client
    ///
    /// Without a terminal the default is deny.
    #[arg(long, value_enum, value_name = "HOW")]
    on_ask: Option<OnAsk>,
    /// Address this agent of the session
    #[arg(long, value_name = "ID", conflicts_with_all = ["provider", "model"])]
    agent: Option<String>,
    /// Whose model answers
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Which model answers
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Stop after this time, such as 90s or 10m
    #[arg(long, value_name = "TIME", value_parser = parse_positive_duration)]
    timeout: Option<Duration>,
    /// Spend at most so much on the new session, in US dollars
    #[arg(long, value_name = "USD", value_parser = parse_dollars)]
    budget: Option<f64>,
}

/// What to do with a tool that needs approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnAsk {
    /// Ask on the terminal
    Ask,
    /// Reject it
    Deny,
    /// Leave it to another client of the session
    Wait,
}

fn parse_level(text: &str) -> Result<AutonomyLevel, String> {
    AutonomyLevel::parse(&text.to_ascii_uppercase().replace('-', "_"))
        .ok_or_else(|| "must be full-auto, supervised, cautious or manual".into())
}

pub(crate) fn run(args: Args, context: &Context) -> anyhow::Result<()> {
    let prompt = prompt::read(args.prompt.as_deref(), context)?.ok_or_else(|| {
        Stop::usage("there is no prompt; give one as in `tns run 'what is here?'` or on standard input")
    })?;
    ask(args, prompt, context)
}

/// Runs `tns chat` where there is no screen: with a message or standard input as `tns run`, else not at all.
pub(super) fn instead_of_chat(message: Option<String>, context: &Context) -> anyhow::Result<()> {
    let prompt = prompt::read(message.as_deref(), context)?
        .ok_or_else(|| Stop::usage("tns chat needs a terminal; use `tns run PROMPT` here"))?;
    ask(Args::default(), prompt, context)
}

fn ask(args: Args, prompt: String, context: &Context) -> anyhow::Result<()> {
    let agent = match &args.agent {
        Some(id) => Some(
            AgentId::parse(id.as_str())
                .map_err(|_| Stop::new(Exit::NotFound, format!("there is no agent {id} in this session")))?,
        ),
        None => None,
    };
    if args.budget.is_some() && context.globals.session.is_some() {
        let message = "--budget is for the session that the run makes; leave --session and TNS_SESSION out";
        return Err(Stop::usage(message).into());
    }
    let asker = Asker::new(args.on_ask, &context.out)?;
    logging::start(context, logging::Unasked::Nothing)?;
    let deadline = args.timeout.map(|timeout| Instant::now() + timeout);
    let launch = Launch { provider: args.provider.clone(), model: args.model.clone(), ..Launch::default() };
    server::with(context, launch, async |attached, signals| {
        let prepared =
            async { tokio::time::timeout_at(far(deadline), prepare(context, &args, attached)).await };
        let (line, session, fresh, chosen) = tokio::select! {
            prepared = prepared => prepared.map_err(|_| timed_out())??,
            () = signals.next() => return Err(Stop::silent(Exit::Interrupted).into()),
        };
        let message = ClientMessageId::parse(uuid::Uuid::now_v7().to_string())?;
        let chat = Chat {
            message: prompt,
            agent_id: agent.or(chosen),
            client_message_id: Some(message.clone()),
            ..Chat::default()
        };
        let owner = if fresh { Owner::Whole } else { Owner::Shared(Standing::Absent) };
        // A turn of somebody else may still be running: its text is told apart at its end only.
        let printer = Printer::new(format(context, &args), session.running);
        let started = Started { session: session.id, head: session.head_seq, message };
        let turn = Turn::new(owner);
        Conversation::new(context, line, asker, printer, turn, started).run(chat, deadline, signals).await
    })
}

fn format(context: &Context, args: &Args) -> Format {
    if args.jsonl {
        Format::JsonLines
    } else if context.out.json {
        Format::Json
    } else {
        Format::Text
    }
}

fn timed_out() -> Stop {
    Stop::new(Exit::Limit, "stopped: the time of --timeout is over")
}

/// A moment to wait for where there may be none.
fn far(deadline: Option<Instant>) -> Instant {
    // Longer than any run, and far from what the clock can't add.
    deadline.unwrap_or_else(|| Instant::now() + Duration::from_secs(365 * 24 * 3600))
}

/// Connects, opens the session, and sets the level and the model. Says whether the session is this run's
/// own, and which agent was chosen for it.
async fn prepare(
    context: &Context,
    args: &Args,
    attached: &Attached,
) -> anyhow::Result<(Line, SessionDetail, bool, Option<AgentId>)> {
    let folder = Folder::current()?;
    let (id, fresh) = match &context.globals.session {
        Some(id) => (id.clone(), false),
        None => (workspace::fresh_id()?, true),
    };
    let rest = attached.rest()?;
    let (session, line) = tokio::join!(
        workspace::open_with(context, &rest, &folder, id, args.budget),
        attached.connect(Reconnect::Backoff)
    );
    let (session, mut line) = (session?, Line::new(line?));
    line.client.join(&session.id, Cursor::at(session.head_seq)).await?;
    workspace::note_other_workspace(context, &folder, &session);
    if let Some(level) = args.autonomy {
        let request = SetAutonomy { level: level.as_str().to_owned() };
        line.exchange(&session.id, request.into(), |frame| {
            matches!(&frame.message, ServerMessage::AutonomyChanged(changed) if changed.level == level)
                .then_some(())
        })
        .await
        .map_err(level_refused)?;
    }
    // A server of our own was started with the choice, and a fresh session's agent follows it.
    let chosen = (args.provider.is_some() || args.model.is_some()) && !(attached.launched && fresh);
    let agent = if chosen {
        let request = AgentAdd {
            role: "assistant".into(),
            provider: args.provider.clone(),
            model: args.model.clone(),
            ..AgentAdd::default()
        };
        Some(agents::add(&mut line, &session.id, &session.agents, request).await?.agent_id)
    } else {
        None
    };
    Ok((line, session, fresh, agent))
}

/// Says how a level is set that the server refuses: its own words name an option that this command lacks.
fn level_refused(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<Stop>().and_then(Stop::code) {
        Some(ErrorCode::Forbidden) => Stop::new(Exit::Failed, UNSANDBOXED).into(),
        Some(_) | None => error.context("set --autonomy"),
    }
}

/// What is said where the server forbids a level, which is only ever full-auto.
const UNSANDBOXED: &str = "--autonomy full-auto is refused, as no sandbox holds the tools; to allow it all the same, \
                           start the server with `tns serve --dangerously-unsandboxed` and run this again beside it";

/// The lines of a request as a person reads them before deciding.
fn question(request: &ToolApproveRequest) -> String {
    let ToolApproveRequest {
        agent_id, tool, risk, risk_class, summary, reasons, diff, always_covers, ..
    } = request;
    let risk = match risk_class {
        Some(class) => class.as_str(),
        None => match risk {
            Risk::Low => "LOW",
            Risk::Medium => "MEDIUM",
            Risk::High => "HIGH",
            Risk::Critical => "CRITICAL",
        },
    };
    let mut lines = vec![format!("{agent_id} wants to use {tool} ({risk}):")];
    lines.extend(summary.lines().map(|line| format!("  {line}")));
    lines.extend(reasons.iter().map(|reason| format!("  because {reason}")));
    lines.extend(diff.iter().flat_map(|diff| diff.lines()).map(|line| format!("  {line}")));
    lines.extend(always_covers.iter().map(|covers| format!("  always would cover {covers}")));
    lines.join("\n")
}

#[cfg(test)]
mod tests;
