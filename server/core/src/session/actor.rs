//! The one task that owns a session: roster, approvals, client tools, running turn, connections.
//!
//! It never waits for a person, a model or a tool; those run in its tasks and report back. It does wait
//! for the store: an event is shown when it is stored, so that what a client has seen is never lost. A
//! turn's model call runs beside the commit of the message that it answers.

mod approvals;
mod beside;
mod commands;
mod life;
mod log;
mod turns;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tns_protocol::approval::AutonomyLevel;
use tns_protocol::{AgentId, ClientMessageId, ErrorCode, MessageId, RequestId, Timestamp};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::client_tools::ClientTools;
use super::port::{Outgoing, Settings, TurnReport};
use super::registry::Ends;
use super::{ConnectionId, Letter, ReplyTo, SessionDeps, SessionHandle, SessionIdentity};
use crate::agent::Agent;
use crate::approval::broker::Broker;
use crate::engine::Engine;
use crate::event::{ActiveReply, Answer, DurableEvent, Event, LiveEvent, Published, Refusal, Subscriber};
use crate::store::{
    Append, Appended, Condition, DraftStep, NewEvent, SessionRecord, SessionState, StoreError,
};
use crate::usage::UsageRow;

/// The task of a session.
pub(crate) struct Actor {
    deps: SessionDeps,
    identity: Arc<SessionIdentity>,
    commands: mpsc::Receiver<Letter>,
    /// Keeps the session alive while a turn runs or waits, though nobody holds a handle.
    alive: Option<SessionHandle>,
    title: Option<String>,
    created_at: Timestamp,
    updated_at: Timestamp,
    head_seq: u64,
    /// Names the store.
    epoch: String,
    state: SessionState,
    settings: watch::Sender<Arc<Settings>>,
    engines: HashMap<AgentId, Arc<dyn Engine>>,
    connections: BTreeMap<ConnectionId, Arc<dyn Subscriber>>,
    client_tools: ClientTools,
    broker: Broker,
    /// When what waits is rejected.
    approval_deadline: Option<Instant>,
    running: Option<Running>,
    /// Turns whose end could not be stored, and why; they are ended before anything else is begun.
    unclosed: Vec<(MessageId, ErrorCode)>,
    /// When they are tried to be ended, if nothing happens before.
    retry_at: Option<Instant>,
    /// What steps used and is not added up yet, a row for each day and model.
    unadded: Vec<UsageRow>,
    /// The senders' own ids of the last messages: a resend is known before its model is called.
    recent: VecDeque<ClientMessageId>,
    /// Turns, and agents being opened.
    tasks: JoinSet<Option<turns::OpenedAgent>>,
    opening: usize,
    /// A model was asked for a title since the session was loaded.
    asked_for_title: bool,
    /// The session is to be erased: why, and who asked.
    closing: Option<Closing>,
    /// A temporary session nobody is connected to ends then.
    ends_at: Option<Instant>,
    shutdown: CancellationToken,
    turns: Arc<AtomicUsize>,
    lifetime: Lifetime,
}

/// A session that is to be erased.
struct Closing {
    reason: String,
    to: ReplyTo,
}

/// How long a session is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// Until it is deleted.
    Kept,
    /// Until nobody was connected for a while.
    Temporary,
}

/// How long a temporary session waits for a client, the first one or one that comes back.
const TEMPORARY_GRACE: Duration = Duration::from_secs(60);

impl Lifetime {
    fn first_end(self) -> Option<Instant> {
        (self == Self::Temporary).then(|| Instant::now() + TEMPORARY_GRACE)
    }
}

/// The turn that runs.
struct Running {
    /// `None`: work that is no turn.
    turn: Option<MessageId>,
    work: Work,
    agent: Arc<Agent>,
    reports: mpsc::Receiver<TurnReport>,
    cancel: CancellationToken,
    /// The reply, as far as it is written.
    reply: ActiveReply,
    /// The step of it that is being written.
    step: Option<DraftStep>,
    task: tokio::task::AbortHandle,
    /// Counts the work while it runs, where a server that stops waits for it.
    _counted: Option<turns::Counted>,
}

/// What an agent works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// A reply.
    Reply,
    /// A summary that somebody asked for.
    Compaction,
    /// A title. Nobody sees it, and it stands back for whatever comes.
    Title,
}

/// What the actor waits for.
enum Happened {
    Command(Letter),
    Report(Option<TurnReport>),
    Task(Result<Option<turns::OpenedAgent>, tokio::task::JoinError>),
    ApprovalTimeout,
    TemporaryEnd,
    Retry,
    Shutdown,
    Deserted,
}

impl Actor {
    pub(crate) fn new(
        deps: SessionDeps,
        record: SessionRecord,
        identity: Arc<SessionIdentity>,
        commands: mpsc::Receiver<Letter>,
        ends: Ends,
    ) -> Self {
        let (settings, _) = watch::channel(Arc::new(Settings::default()));
        let mut state = record.state;
        if state.autonomy == AutonomyLevel::FullAuto && !deps.unsandboxed {
            tracing::warn!(session = %identity.id, "FULL_AUTO is not allowed on this server; SUPERVISED holds");
            state.autonomy = AutonomyLevel::Supervised;
        }
        // Nothing runs when a session is loaded: a turn that is open all the same lost its end to a failing store.
        let lost = state.open_turns.iter().filter(|turn| !turn.waiting);
        let unclosed = lost.map(|turn| (turn.id.clone(), ErrorCode::Internal)).collect();
        let mut actor = Self {
            deps,
            identity,
            commands,
            alive: None,
            title: record.title,
            created_at: record.created_at,
            updated_at: record.updated_at,
            head_seq: record.head_seq,
            epoch: record.epoch,
            state,
            settings,
            engines: HashMap::new(),
            connections: BTreeMap::new(),
            client_tools: ClientTools::default(),
            broker: Broker::default(),
            approval_deadline: None,
            running: None,
            unclosed,
            retry_at: None,
            unadded: Vec::new(),
            recent: VecDeque::new(),
            tasks: JoinSet::new(),
            opening: 0,
            asked_for_title: false,
            closing: None,
            ends_at: ends.lifetime.first_end(),
            lifetime: ends.lifetime,
            shutdown: ends.shutdown,
            turns: ends.turns,
        };
        actor.publish_settings();
        actor
    }

    /// Gives a temporary session a handle of its own, so that it waits for its first client.
    pub(crate) fn holding(mut self, handle: SessionHandle) -> Self {
        self.alive = self.ends_at.is_some().then_some(handle);
        self
    }

    /// Runs until nobody holds a handle and nothing runs, or the server stops.
    pub(crate) async fn run(mut self) {
        let mut stopping = false;
        loop {
            let idle = self.running.is_none() && self.opening == 0;
            if stopping && idle {
                return;
            }
            if self.closing.is_some() && idle && self.erase().await {
                return;
            }
            let takes = !stopping && self.closing.is_none();
            let (deadline, ends_at, retry_at) = (self.approval_deadline, self.ends_at, self.retry_at);
            let happened = tokio::select! {
                biased;
                () = self.shutdown.cancelled(), if !stopping => Happened::Shutdown,
                command = self.commands.recv(), if takes => command.map_or(Happened::Deserted, Happened::Command),
                report = next_report(&mut self.running) => Happened::Report(report),
                Some(ended) = self.tasks.join_next(), if !self.tasks.is_empty() => Happened::Task(ended),
                () = sleep_until(deadline), if deadline.is_some() => Happened::ApprovalTimeout,
                () = sleep_until(ends_at), if ends_at.is_some() => Happened::TemporaryEnd,
                () = sleep_until(retry_at), if retry_at.is_some() => Happened::Retry,
            };
            match happened {
                Happened::Command(Letter { command, sender }) => {
                    self.on_command(command).await;
                    self.keep_alive(Some(&sender));
                }
                Happened::Report(Some(report)) => self.on_report(report).await,
                Happened::Report(None) => self.on_lost_turn().await,
                Happened::Task(Ok(Some(opened))) => self.on_agent_opened(opened).await,
                Happened::Task(Ok(None)) => {}
                // A turn that was dropped; one that failed is noticed by its silence.
                Happened::Task(Err(error)) if error.is_cancelled() => {}
                Happened::Task(Err(error)) => {
                    tracing::error!(session = %self.identity.id, %error, "a task panicked")
                }
                Happened::ApprovalTimeout => self.on_approval_timeout().await,
                Happened::Shutdown => {
                    stopping = true;
                    self.on_cancel(None).await;
                }
                Happened::TemporaryEnd => self.ends_at = None,
                Happened::Retry => self.start_next_turn().await,
                // No handle is left and none can be made: nothing runs, or `alive` would be one.
                Happened::Deserted => return self.forget().await,
            }
            self.keep_alive(None);
        }
    }

    /// Holds a handle of its own while there is work that nobody needs to watch. Work begins with a command,
    /// whose sender's handle is still there.
    fn keep_alive(&mut self, sender: Option<&SessionHandle>) {
        let idle = self.running.is_none() && self.opening == 0 && self.retry_at.is_none();
        if idle && self.ends_at.is_none() {
            self.alive = None;
        } else if self.alive.is_none() {
            self.alive = sender.cloned();
        }
    }

    /// Stores the durable ones of `events` with what holds after them, then announces all in order.
    /// `None`: the condition did not hold, and nothing was stored or announced.
    async fn commit(
        &mut self,
        turn: Option<&MessageId>,
        events: Vec<Outgoing>,
        next: Option<SessionState>,
        condition: Option<Condition>,
    ) -> Result<Option<Vec<Arc<Published>>>, StoreError> {
        self.commit_titled(turn, events, next, None, condition).await
    }

    /// The same with a new title; `Some(None)` takes it away.
    async fn commit_titled(
        &mut self,
        turn: Option<&MessageId>,
        events: Vec<Outgoing>,
        next: Option<SessionState>,
        title: Option<Option<String>>,
        condition: Option<Condition>,
    ) -> Result<Option<Vec<Arc<Published>>>, StoreError> {
        let durable: Vec<NewEvent> = events
            .iter()
            .filter_map(|event| match event {
                Outgoing::Durable(event) => Some(NewEvent { turn: turn.cloned(), event: (**event).clone() }),
                Outgoing::Live(_) => None,
            })
            .collect();
        let now = Timestamp::now();
        let used = durable.iter().filter_map(|new| UsageRow::of(&new.event, now)).collect();
        let mut places = Vec::new();
        if !durable.is_empty() || next.is_some() {
            let append = Append {
                state: next.clone(),
                title: title.clone(),
                condition,
                ..Append::new(self.identity.key, durable)
            };
            match self.deps.store.append(append).await? {
                Appended::Stored(stored) => {
                    places = stored;
                    self.add_up(used).await;
                }
                Appended::Unchanged => return Ok(None),
            }
        }
        if let Some(next) = next {
            self.state = next;
            self.publish_settings();
        }
        self.title = title.unwrap_or_else(|| self.title.take());
        let mut places = places.into_iter();
        let now = Timestamp::now();
        let published: Vec<Arc<Published>> = events
            .into_iter()
            .map(|event| {
                let (event, place) = match event {
                    Outgoing::Durable(event) => (Event::Durable(event), places.next()),
                    Outgoing::Live(event) => (Event::Live(event), None),
                };
                if let Some(place) = place {
                    self.head_seq = place.seq;
                    self.updated_at = place.at;
                }
                Arc::new(Published {
                    session: self.identity.id.clone(),
                    at: place.map_or(now, |place| place.at),
                    seq: place.map(|place| place.seq),
                    turn: turn.filter(|_| tells_turn(&event)).cloned(),
                    re: None,
                    event,
                    encoded: Default::default(),
                })
            })
            .collect();
        self.follow_reply(&published);
        self.announce(&published);
        Ok(Some(published))
    }

    /// Keeps what is written of the running step, for whoever joins in the middle of it, and for whoever comes after
    /// the server was killed: it is kept before it is shown.
    fn follow_reply(&mut self, events: &[Arc<Published>]) {
        let Some(running) = &mut self.running else { return };
        let mut written = String::new();
        for published in events {
            match &published.event {
                Event::Live(LiveEvent::Token { text, index, .. }) => {
                    written.push_str(text);
                    running.reply.index = index + text.chars().count() as u64;
                }
                Event::Durable(event) if matches!(**event, DurableEvent::AssistantMessage(_)) => {
                    running.reply.text.clear();
                    written.clear();
                    if let Some(step) = &mut running.step {
                        step.after += 1;
                    }
                }
                Event::Durable(_) | Event::Live(_) | Event::Answer(_) => {}
            }
        }
        if !written.is_empty() {
            running.reply.text.push_str(&written);
            if let Some(step) = &running.step {
                self.deps.store.write_draft(self.identity.key, step, &written);
            }
        }
    }

    /// Adds what stored steps used to a store that lasts, where the session's own does not. What that store does
    /// not take now is added with what comes next, or when the session ends.
    async fn add_up(&mut self, used: Vec<UsageRow>) {
        let Some(lasting) = self.deps.lasting.clone() else { return };
        for row in used {
            let key = |of: &UsageRow| (of.day, of.provider.clone(), of.model.clone());
            match self.unadded.iter_mut().find(|left| key(left) == key(&row)) {
                Some(left) => left.add(&row),
                None => self.unadded.push(row),
            }
        }
        while let Some(row) = self.unadded.first().cloned() {
            if let Err(error) = lasting.add_usage(row).await {
                tracing::error!(session = %self.identity.id, %error, "what a step used is not added up yet");
                return;
            }
            self.unadded.remove(0);
        }
    }

    fn announce(&self, events: &[Arc<Published>]) {
        if self.lifetime == Lifetime::Kept {
            self.deps.hub.announce(events);
        }
        for subscriber in self.connections.values() {
            subscriber.deliver(events);
        }
    }

    /// Makes what holds now visible to the running turn.
    fn publish_settings(&mut self) {
        let builtin: Vec<&str> = self.deps.tools.iter().map(|tool| tool.spec().name.as_str()).collect();
        self.settings.send_replace(Arc::new(Settings {
            autonomy: self.state.autonomy,
            read_sensitive: self.state.read_sensitive,
            grants: self.state.grants.clone(),
            client_tools: self.client_tools.offered(&builtin),
        }));
    }

    /// Returns the tools on offer, by name.
    fn tool_names(&self) -> Vec<String> {
        let settings = self.settings.borrow();
        let builtin = self.deps.tools.iter().map(|tool| tool.spec().name.clone());
        builtin.chain(settings.client_tools.iter().map(|tool| tool.spec.name.clone())).collect()
    }

    fn reply(&self, to: ReplyTo, answer: Answer) {
        reply(&self.connections, &self.identity, to, answer);
    }

    fn refuse(&self, to: ReplyTo, request: &'static str, code: ErrorCode, message: impl Into<String>) {
        self.reply(to, Answer::Refused(Refusal { code, message: message.into(), request }));
    }

    fn refuse_for_store(&self, to: ReplyTo, request: &'static str, error: &StoreError) {
        tracing::warn!(session = %self.identity.id, %error, "not stored");
        self.refuse(to, request, error.code(), error.to_string());
    }
}

/// Sends an answer to whoever asked. A connection sees what is announced to all, so it is sent only
/// what is not.
fn reply(
    connections: &BTreeMap<ConnectionId, Arc<dyn Subscriber>>,
    identity: &SessionIdentity,
    to: ReplyTo,
    answer: Answer,
) {
    let announced = matches!(
        answer,
        Answer::Done
            | Answer::Accepted { .. }
            | Answer::KbAdded { duplicate: false, .. }
            | Answer::KbRemoved { found: true, .. }
    );
    match to {
        // The caller may have given up.
        ReplyTo::Caller(caller) => drop(caller.send(answer)),
        ReplyTo::Connection { .. } if announced => {}
        ReplyTo::Connection { id, re } => {
            if let Some(subscriber) = connections.get(&id) {
                subscriber.deliver(&[answer_event(identity, re, answer)]);
            }
        }
    }
}

fn answer_event(identity: &SessionIdentity, re: Option<RequestId>, answer: Answer) -> Arc<Published> {
    Arc::new(Published {
        session: identity.id.clone(),
        at: Timestamp::now(),
        seq: None,
        turn: None,
        re,
        event: Event::Answer(answer),
        encoded: Default::default(),
    })
}

/// Whether a client is told which turn an event belongs to: what is stored, and a failure to store.
fn tells_turn(event: &Event) -> bool {
    matches!(event, Event::Durable(_) | Event::Live(LiveEvent::Failed(_)))
}

async fn next_report(running: &mut Option<Running>) -> Option<TurnReport> {
    match running {
        Some(running) => running.reports.recv().await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    if let Some(deadline) = deadline {
        tokio::time::sleep_until(deadline).await;
    }
}
