//! `tns run`: one question, its answer on standard output, and an exit code that tells how it went.

mod asker;
mod printer;
mod prompt;
mod turn;

use std::time::Duration;

use anyhow::Context as _;
use clap::ValueEnum;
use serde::Serialize;
use tns_client::{Reconnect, Rest};
use tns_protocol::agent::AgentAdd;
use tns_protocol::approval::{AutonomyLevel, Decision, Risk, SetAutonomy, ToolApprove, ToolApproveRequest};
use tns_protocol::chat::{Cancel, Chat, StopReason, Usage};
use tns_protocol::rest::SessionDetail;
use tns_protocol::{
    AgentId, ClientMessageId, MessageId, Seq, ServerFrame, ServerMessage, SessionId, encode_server,
};
use tokio::time::Instant;

use crate::args::parse_positive_duration;
use crate::commands::agents;
use crate::commands::exchange::Line;
use crate::commands::run::asker::{Answer, Asker};
use crate::commands::run::printer::{Format, Printer};
use crate::commands::run::turn::{Call, Owner, Step, Turn};
use crate::exit::{Exit, Stop};
use crate::server::{Attached, Launch};
use crate::signals::Signals;
use crate::workspace::Folder;
use crate::{Context, logging, server, workspace};

/// Time that a cancelled turn has to say what it used.
const CANCEL_GRACE: Duration = Duration::from_secs(5);

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

/// What `--json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    session_id: &'a SessionId,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_reason: Option<StopReason>,
    tool_calls: &'a [Call],
    #[serde(skip_serializing_if = "Option::is_none")]
    exit: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
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
    let asker = Asker::new(args.on_ask, &context.out)?;
    logging::start(context, logging::Unasked::Nothing)?;
    let deadline = args.timeout.map(|timeout| Instant::now() + timeout);
    let launch = Launch { provider: args.provider.clone(), model: args.model.clone() };
    server::with(context, launch, async |attached, signals| {
        let prepared =
            async { tokio::time::timeout_at(far(deadline), prepare(context, &args, attached)).await };
        let (line, session, fresh, chosen) = tokio::select! {
            prepared = prepared => prepared.map_err(|_| timed_out())??,
            () = signals.next() => return Err(Stop::silent(Exit::Interrupted).into()),
        };
        let chat = Chat {
            message: prompt,
            agent_id: agent.or(chosen),
            client_message_id: Some(ClientMessageId::parse(uuid::Uuid::now_v7().to_string())?),
            ..Chat::default()
        };
        let owner = if fresh { Owner::Whole } else { Owner::Shared { turn: None } };
        let mut conversation = Conversation {
            context,
            rest: line.client.rest().clone(),
            line,
            asker,
            // A turn of somebody else may still be running: its text is told apart at its end only.
            printer: Printer::new(format(context, &args), session.running),
            turn: Turn::new(owner),
            started: Started {
                session: session.id,
                head: session.head_seq,
                message: chat.client_message_id.clone(),
            },
        };
        conversation.run(chat, deadline, signals).await
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
    let (session, line) =
        tokio::join!(workspace::open(context, &rest, &folder, id), attached.connect(Reconnect::Never));
    let (session, mut line) = (session?, Line::new(line?));
    workspace::note_other_workspace(context, &folder, &session);
    if let Some(level) = args.autonomy {
        let request = SetAutonomy { level: level.as_str().to_owned() };
        line.exchange(&session.id, request.into(), |frame| {
            matches!(&frame.message, ServerMessage::AutonomyChanged(changed) if changed.level == level)
                .then_some(())
        })
        .await
        .context("set --autonomy")?;
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

/// Where this run began in the session's log, and how to find its turn there.
struct Started {
    session: SessionId,
    head: Seq,
    message: Option<ClientMessageId>,
}

/// One run, from the question to the end of its turn.
struct Conversation<'a> {
    context: &'a Context,
    rest: Rest,
    line: Line,
    asker: Asker,
    printer: Printer,
    turn: Turn,
    started: Started,
}

/// Why the run is ending before its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stopping {
    Signal,
    Timeout,
}

impl Conversation<'_> {
    async fn run(
        &mut self,
        chat: Chat,
        deadline: Option<Instant>,
        signals: &mut Signals,
    ) -> anyhow::Result<()> {
        self.line.client.send(&self.started.session, chat).await?;
        let result = self.follow(deadline, signals).await;
        if result.is_err() {
            // Nobody will read the answer any more. The connection, or the output, may be what failed: then
            // these fail too, and the first error is the one to tell.
            let _ = self.line.client.send(&self.started.session, Cancel::default()).await;
            let _ = self.printer.finish(&self.context.out);
        }
        self.line.client.close().await;
        let stopping = result?;
        self.conclude(stopping)
    }

    /// Follows the turn to its end, or until it had its time to end after a signal or the timeout.
    async fn follow(
        &mut self,
        deadline: Option<Instant>,
        signals: &mut Signals,
    ) -> anyhow::Result<Option<Stopping>> {
        let mut stopping = None;
        let mut until = far(deadline);
        while !self.turn.ended() {
            tokio::select! {
                frame = self.line.next() => self.take(frame?).await?,
                answer = self.asker.answer(&self.context.out) => self.reply(answer?).await?,
                () = signals.next() => match stopping {
                    Some(_) => return Ok(Some(Stopping::Signal)),
                    None => {
                        stopping = Some(Stopping::Signal);
                        until = self.cancel().await?;
                    }
                },
                () = tokio::time::sleep_until(until) => match stopping {
                    Some(_) => return Ok(stopping),
                    None => {
                        stopping = Some(Stopping::Timeout);
                        until = self.cancel().await?;
                    }
                },
            }
        }
        Ok(stopping)
    }

    /// Asks the server to end the turn; returns when the waiting for that ends.
    async fn cancel(&mut self) -> anyhow::Result<Instant> {
        self.asker.forget_all(&self.context.out);
        self.line.client.send(&self.started.session, Cancel::default()).await?;
        Ok(Instant::now() + CANCEL_GRACE)
    }

    /// Takes a frame and those that have arrived behind it; text is written once for all of them.
    async fn take(&mut self, first: ServerFrame) -> anyhow::Result<()> {
        let mut next = Some(first);
        while let Some(frame) = next {
            if frame.session_id.as_ref().is_none_or(|session| *session == self.started.session) {
                self.find_turn(&frame).await?;
                if self.printer.format() == Format::JsonLines {
                    self.context.out.json_text(&format!("{}\n", encode_server(&frame)))?;
                }
                for step in self.turn.take(frame) {
                    self.act(step).await?;
                }
            }
            next = if self.turn.ended() { None } else { self.line.try_next() };
        }
        self.printer.flush(&self.context.out)
    }

    /// In a session of several clients, finds out which turn answers this run's message.
    async fn find_turn(&mut self, frame: &ServerFrame) -> anyhow::Result<()> {
        if frame.turn_id.is_none() || !self.turn.is_unknown() {
            return Ok(());
        }
        let Started { session, head, message } = &self.started;
        let mut after = *head;
        loop {
            let page = self.rest.events(session, after).await.context("read the session's log")?;
            if let Some(turn) = page.events.iter().find_map(|event| turn_of(event, message.as_ref()?)) {
                self.turn.own(turn);
                return Ok(());
            }
            match page.events.last().and_then(|event| event.get("seq")?.as_u64()) {
                Some(last) if page.more && last > after => after = last,
                Some(_) | None => return Ok(()),
            }
        }
    }

    async fn act(&mut self, step: Step) -> anyhow::Result<()> {
        match step {
            Step::Text(text) => self.printer.text(&text),
            Step::Discard => self.printer.discard(),
            Step::Note(text) => {
                self.printer.flush(&self.context.out)?;
                self.context.out.note(&text);
            }
            Step::Ask(request) => {
                self.printer.flush(&self.context.out)?;
                if let Some(answer) = self.asker.ask(*request, &self.context.out) {
                    self.reply(answer).await?;
                }
            }
            Step::Settled(call) => self.asker.settled(&call, &self.context.out),
        }
        Ok(())
    }

    async fn reply(&mut self, answer: Answer) -> anyhow::Result<()> {
        let Answer { call, decision, reason } = answer;
        if decision == Decision::Reject {
            self.turn.refused(&call);
        }
        let message = ToolApprove {
            tool_call_id: call,
            decision: decision.as_str().to_owned(),
            reason,
            edited_args: None,
        };
        Ok(self.line.client.send(&self.started.session, message).await?)
    }

    /// Prints the end and says how the run went.
    fn conclude(&mut self, stopping: Option<Stopping>) -> anyhow::Result<()> {
        let (exit, message) = match (stopping, self.turn.verdict()) {
            (Some(Stopping::Signal), _) => (Some(Exit::Interrupted), Some("interrupted".to_owned())),
            (Some(Stopping::Timeout), _) => (Some(Exit::Limit), Some(timed_out().to_string())),
            (None, Some((exit, message))) => (Some(exit), Some(message)),
            (None, None) => (None, None),
        };
        if self.printer.format() == Format::Json {
            let done = self.turn.done();
            self.context.out.json(&Report {
                session_id: &self.started.session,
                text: self.turn.text(),
                usage: done.map(|done| done.usage),
                stop_reason: done.and_then(|done| done.stop_reason),
                tool_calls: self.turn.calls(),
                exit: exit.map(Exit::code),
                error: message.as_deref(),
            })?;
        } else {
            self.printer.finish(&self.context.out)?;
        }
        match (exit, message) {
            (Some(exit), Some(message)) => Err(Stop::new(exit, message).into()),
            (Some(exit), None) => Err(Stop::silent(exit).into()),
            (None, _) => Ok(()),
        }
    }
}

/// Returns the turn that a stored event begins, if it is the user's message with this id.
fn turn_of(event: &serde_json::Value, message: &ClientMessageId) -> Option<MessageId> {
    if event.get("type")?.as_str()? != "user_message"
        || event.get("clientMessageId")?.as_str()? != message.as_str()
    {
        return None;
    }
    MessageId::parse(event.get("messageId")?.as_str()?).ok()
}

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
