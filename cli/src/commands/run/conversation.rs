//! One run, from the question to the end of its turn: it sends, follows, answers and stops. What the frames
//! mean is decided in `turn`.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;
use tns_client::Rest;
use tns_protocol::approval::{Decision, ToolApprove, ToolApproveRequest};
use tns_protocol::chat::{Cancel, Chat, StopReason, Usage};
use tns_protocol::log::ActiveResponse;
use tns_protocol::{ClientMessageId, Seq, ServerFrame, SessionId, ToolCallId, decode_server, encode_server};
use tokio::time::Instant;

use crate::Context;
use crate::commands::exchange::{Arrival, Line};
use crate::commands::run::asker::{Answer, Asker};
use crate::commands::run::printer::{Format, Printer};
use crate::commands::run::standing::Standing;
use crate::commands::run::turn::{Call, Step, Turn};
use crate::commands::run::{far, timed_out};
use crate::exit::{Exit, Stop};
use crate::signals::Signals;

/// Time that a cancelled turn has to say what it used.
const CANCEL_GRACE: Duration = Duration::from_secs(5);
/// Time to find out, before a cancel, whether the turn that runs is this run's.
const STANDING_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause between two looks at the log, where the message is about to be stored.
const STANDING_PAUSE: Duration = Duration::from_millis(20);

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

/// Where this run began in the session's log, and how to find its turn there.
pub(super) struct Started {
    pub(super) session: SessionId,
    pub(super) head: Seq,
    pub(super) message: ClientMessageId,
}

/// One run, from the question to the end of its turn.
pub(super) struct Conversation<'a> {
    context: &'a Context,
    rest: Rest,
    line: Line,
    asker: Asker,
    printer: Printer,
    turn: Turn,
    started: Started,
    /// The decisions that were sent: a connection may break before one has arrived.
    decided: BTreeMap<ToolCallId, ToolApprove>,
    /// The server keeps no log that can be followed.
    plain: bool,
    /// Set when the run was to end before its turn.
    cancelled: Option<Cancelled>,
}

/// Why the run is ending before its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stopping {
    Signal,
    Timeout,
}

/// What became of the wish to end the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cancelled {
    /// The server is asked, or the turn has ended by itself.
    Asked,
    /// The message waits; the turn that runs is another one.
    Waits,
    /// Nobody can tell whose turn runs.
    Unknown,
}

impl Cancelled {
    /// Says what was not stopped.
    fn what_goes_on(self) -> Option<&'static str> {
        match self {
            Self::Asked => None,
            Self::Waits => Some("the message waits behind another turn and is still answered in the session"),
            Self::Unknown => {
                Some("nothing was stopped, since another client's turn may be the one that runs")
            }
        }
    }
}

impl<'a> Conversation<'a> {
    pub(super) fn new(
        context: &'a Context,
        line: Line,
        asker: Asker,
        printer: Printer,
        turn: Turn,
        started: Started,
    ) -> Self {
        let rest = line.client.rest().clone();
        let decided = BTreeMap::new();
        Self { context, rest, line, asker, printer, turn, started, decided, plain: false, cancelled: None }
    }

    /// Asks, follows and prints.
    ///
    /// # Errors
    /// How the run went, where it did not go well.
    pub(super) async fn run(
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
            let _ = self.cancel().await;
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
                arrival = self.line.next() => self.take(arrival?).await?,
                answer = self.asker.answer(&self.context.out) => self.reply(answer?).await?,
                () = signals.next() => match stopping {
                    Some(_) => return Ok(Some(Stopping::Signal)),
                    None => {
                        stopping = Some(Stopping::Signal);
                        let Some(grace) = self.stop().await? else { return Ok(stopping) };
                        until = grace;
                    }
                },
                () = tokio::time::sleep_until(until) => match stopping {
                    Some(_) => return Ok(stopping),
                    None => {
                        stopping = Some(Stopping::Timeout);
                        let Some(grace) = self.stop().await? else { return Ok(stopping) };
                        until = grace;
                    }
                },
            }
        }
        Ok(stopping)
    }

    /// Stops the turn, if it runs; returns when the waiting for its end is over, or `None` where there is no
    /// end to wait for.
    async fn stop(&mut self) -> anyhow::Result<Option<Instant>> {
        self.asker.forget_all(&self.context.out);
        let cancelled = self.cancel().await?;
        self.cancelled = Some(cancelled);
        match cancelled {
            Cancelled::Asked => return Ok(Some(Instant::now() + CANCEL_GRACE)),
            Cancelled::Waits => {
                // The text so far is another turn's.
                self.turn.forget_text();
                self.printer.discard();
            }
            Cancelled::Unknown => {}
        }
        Ok(None)
    }

    /// Asks the server to end the turn that runs, if that is this run's: a cancel stops whichever runs.
    async fn cancel(&mut self) -> anyhow::Result<Cancelled> {
        if !self.turn.is_whole() {
            let standing = tokio::time::timeout(STANDING_TIMEOUT, async {
                loop {
                    match self.standing().await? {
                        Standing::Absent => tokio::time::sleep(STANDING_PAUSE).await,
                        found => return Ok::<_, anyhow::Error>(found),
                    }
                }
            });
            let found = match standing.await {
                Ok(Ok(found)) => found,
                Ok(Err(error)) => {
                    tracing::warn!(%error, "the session's log can't be read");
                    return Ok(Cancelled::Unknown);
                }
                Err(_) => return Ok(Cancelled::Unknown),
            };
            match found {
                Standing::Running(_) => self.turn.stands(found),
                Standing::Waiting(_) => return Ok(Cancelled::Waits),
                // Its end is about to arrive.
                Standing::Absent | Standing::Ended(_) => return Ok(Cancelled::Asked),
            }
        }
        self.line.client.send(&self.started.session, Cancel::default()).await?;
        Ok(Cancelled::Asked)
    }

    /// Reads where this run's message stands in the session's log.
    async fn standing(&self) -> anyhow::Result<Standing> {
        let Started { session, head, message } = &self.started;
        let (mut standing, mut after) = (Standing::Absent, *head);
        loop {
            let page = self.rest.events(session, after).await.context("read the session's log")?;
            for event in &page.events {
                let event = decode_server(&event.to_string()).context("read an event of the log")?;
                standing = standing.after(&event, message);
            }
            match page.events.last().and_then(|event| event.get("seq")?.as_u64()) {
                Some(last) if page.more && last > after => after = last,
                Some(_) | None => return Ok(standing),
            }
        }
    }

    /// Takes what came and what has come behind it; text is written once for all of it.
    async fn take(&mut self, first: Arrival) -> anyhow::Result<()> {
        let mut next = Some(first);
        while let Some(arrival) = next {
            match arrival {
                Arrival::Frame(frame) => self.frame(*frame).await?,
                Arrival::CaughtUp { active, pending } => self.caught_up(active, &pending).await?,
                Arrival::Lost(reason) => {
                    self.printer.flush(&self.context.out)?;
                    self.context.out.note(&format!("connection lost, trying again: {reason}"));
                }
                Arrival::Plain if self.plain => {
                    let message =
                        "the connection was lost, and this server is too old to tell what was missed";
                    return Err(Stop::new(Exit::Unreachable, message).into());
                }
                Arrival::Plain => self.plain = true,
                Arrival::Resync(reason) => {
                    let message = format!("the answer is gone: {reason}; ask again");
                    return Err(Stop::new(Exit::Failed, message).into());
                }
                Arrival::Unsent(message, reason) if message == self.started.message => {
                    return Err(Stop::new(Exit::Unreachable, format!("not sent: {reason}")).into());
                }
                Arrival::Unsent(..) => {}
            }
            next = if self.turn.ended() { None } else { self.line.try_next() };
        }
        self.printer.flush(&self.context.out)
    }

    async fn frame(&mut self, frame: ServerFrame) -> anyhow::Result<()> {
        if frame.session_id.as_ref().is_some_and(|session| *session != self.started.session) {
            return Ok(());
        }
        self.turn.learn(&frame, &self.started.message);
        // A log that is followed tells it by itself.
        if self.plain && self.turn.must_ask_about(&frame) {
            let standing = self.standing().await?;
            self.turn.stands(standing);
        }
        if self.printer.format() == Format::JsonLines {
            self.context.out.json_text(&format!("{}\n", encode_server(&frame)))?;
        }
        for step in self.turn.take(frame) {
            self.act(step).await?;
        }
        Ok(())
    }

    /// The connection is back, and what it missed was taken: goes on with the reply, and sends again what may
    /// not have arrived.
    async fn caught_up(
        &mut self,
        active: Option<ActiveResponse>,
        pending: &[ToolApproveRequest],
    ) -> anyhow::Result<()> {
        for step in active.iter().flat_map(|active| self.turn.go_on(active)).collect::<Vec<_>>() {
            self.act(step).await?;
        }
        for request in pending {
            if let Some(decision) = self.decided.get(&request.tool_call_id) {
                self.line.client.send(&self.started.session, decision.clone()).await?;
            }
        }
        if self.cancelled == Some(Cancelled::Asked) && !self.turn.ended() {
            self.line.client.send(&self.started.session, Cancel::default()).await?;
        }
        Ok(())
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
        let Answer { call, decision, reason, by } = answer;
        if decision == Decision::Reject {
            self.turn.refused(&call, by);
        }
        let message = ToolApprove {
            tool_call_id: call.clone(),
            decision: decision.as_str().to_owned(),
            reason,
            edited_args: None,
        };
        self.decided.insert(call, message.clone());
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
        let message = match self.cancelled.and_then(Cancelled::what_goes_on) {
            Some(goes_on) => message.map(|message| format!("{message}; {goes_on}")),
            None => message,
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
