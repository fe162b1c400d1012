//! How a session begins, watches and ends its turns: one at a time, the others wait in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tns_protocol::approval::{AuditDecision, RiskClass};
use tns_protocol::{AgentId, ClientMessageId, ErrorCode, MessageId};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::approvals::audit;
use super::{Actor, Running, Work, answer_event};
use crate::agent::{Agent, NewAgent};
use crate::approval::MAX_GRANTS;
use crate::approval::broker::Settled;
use crate::engine::{Engine, OpenError};
use crate::event::{
    ActiveReply, Answer, DurableEvent, EventKind, LiveEvent, Published, Refusal, Renamed, TurnDone,
    TurnFailed, TurnInterrupted, UserMessage,
};
use crate::history::{self, text_of};
use crate::message::Part;
use crate::recovery;
use crate::session::port::{OpenedEngine, Outgoing, TurnPort, TurnReport};
use crate::session::{AgentChange, ChatCommand, MAX_QUEUED, ReplyTo, title};
use crate::store::{Condition, DraftStep, OpenTurn, SessionState, StoreError, TitleOf};
use crate::turn::calls::{CANCELLED, CallContext};
use crate::turn::driver::{TurnTask, message_id};
use crate::turn::state::TurnEnd;

/// How many of the senders' own ids are kept, to know a resend.
const RECENT_MESSAGES: usize = 64;
/// What is said where an agent is named that is not there.
pub(super) const NO_AGENT: &str = "no such agent in this session; `agents list` shows them";
pub(super) const MESSAGES: &[EventKind] = &[EventKind::UserMessage];
/// How long a session waits before it tries again to store the end of a turn.
const RETRY: Duration = Duration::from_secs(5);

/// An agent whose engine was opened, or not.
pub(crate) enum OpenedAgent {
    /// One more.
    Added { new: NewAgent, engine: Result<Arc<dyn Engine>, OpenError>, to: ReplyTo },
    /// A change of one; no engine where it keeps its own.
    Updated { change: AgentChange, engine: Result<Option<Arc<dyn Engine>>, OpenError>, to: ReplyTo },
}

/// Work to be begun.
pub(super) struct NewTask {
    task: TurnTask,
    reports: mpsc::Receiver<TurnReport>,
    response: MessageId,
}

/// Work that ended without a word.
pub(super) struct Dropped {
    turn: Option<MessageId>,
    agent: Arc<Agent>,
    response: MessageId,
}

/// What tells a message from another one with the same id of its sender.
struct Sent {
    parts: Vec<Part>,
    /// As the sender named it; who says nothing takes whoever answered.
    agent: Option<AgentId>,
}

impl Sent {
    fn repeats(&self, stored: &UserMessage) -> bool {
        self.parts == stored.parts && self.agent.as_ref().is_none_or(|agent| *agent == stored.agent)
    }
}

/// Counts a running turn while it lives.
pub(super) struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(turns: Arc<AtomicUsize>) -> Self {
        turns.fetch_add(1, Ordering::Relaxed);
        Self(turns)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Actor {
    pub(super) async fn on_chat(&mut self, chat: ChatCommand, to: ReplyTo) {
        if let Some(id) = chat.client_message_id.as_ref().filter(|id| self.recent.contains(id)) {
            let sent = Sent { parts: chat.parts, agent: chat.agent };
            let answer = self.accepted_before(id, &sent).await;
            return self.reply(to, answer);
        }
        let Some(agent) = self.agent(chat.agent.as_ref()).cloned() else {
            return self.refuse(to, "chat", ErrorCode::AgentNotFound, NO_AGENT);
        };
        self.stand_back();
        self.close_unclosed().await;
        // A turn whose end can't be stored is ended before another begins.
        let busy = self.running.is_some()
            || !self.unclosed.is_empty()
            || self.state.open_turns.iter().any(|turn| turn.waiting);
        if busy && self.state.open_turns.iter().filter(|turn| turn.waiting).count() >= MAX_QUEUED {
            let message = format!("{MAX_QUEUED} messages wait already; wait for a reply, or cancel");
            return self.refuse(to, "chat", ErrorCode::QueueFull, message);
        }
        let sent = Sent { parts: chat.parts.clone(), agent: chat.agent };
        let message = UserMessage {
            id: message_id(),
            agent: agent.id.clone(),
            parts: chat.parts,
            client_message_id: chat.client_message_id.clone(),
            context: chat.context,
            queued: busy,
            during: self.running_reply().cloned(),
        };
        let condition = chat.client_message_id.clone().map(Condition::NewMessage);
        let mut next = self.state.clone();
        let open = OpenTurn { id: message.id.clone(), agent: agent.id.clone(), waiting: busy };
        next.open_turns.push(open);
        let mut events = vec![Outgoing::durable(DurableEvent::UserMessage(message.clone()))];
        let title = self.first_title(&message);
        if let Some(title) = &title {
            next.title = TitleOf::FirstMessage;
            events.push(Outgoing::durable(DurableEvent::Renamed(Renamed::to(Some(title.clone())))));
        }
        let title = title.map(Some);
        let turn = message.id.clone();
        if busy {
            match self.commit_titled(Some(&turn), events, Some(next), title, condition).await {
                Ok(stored) => {
                    self.accepted(chat.client_message_id, turn, &sent, stored, to).await;
                    self.start_next_turn().await;
                }
                Err(error) => self.refuse_for_store(to, "chat", &error),
            }
        } else {
            let agent = Arc::new(agent);
            // The model works while the message is stored; nothing of it is shown before.
            let begun = self.start(agent, message);
            events.extend(begun);
            match self.commit_titled(Some(&turn), events, Some(next), title, condition).await {
                Ok(stored) => {
                    if stored.is_none() {
                        self.drop_running();
                    }
                    self.accepted(chat.client_message_id, turn, &sent, stored, to).await;
                }
                Err(error) => {
                    self.drop_running();
                    self.refuse_for_store(to, "chat", &error);
                }
            }
        }
    }

    /// Returns the title that a session without one gets from its user's first message.
    fn first_title(&self, message: &UserMessage) -> Option<String> {
        let untitled = self.title.is_none() && self.state.title == TitleOf::Start;
        (untitled && message.is_users()).then(|| title::of_message(&text_of(&message.parts))).flatten()
    }

    /// Answers a message that is stored; `stored` is `None` for one that was there before.
    async fn accepted(
        &mut self,
        id: Option<ClientMessageId>,
        message: MessageId,
        sent: &Sent,
        stored: Option<Vec<Arc<Published>>>,
        to: ReplyTo,
    ) {
        let seq = stored.as_ref().and_then(|events| events.iter().find_map(|event| event.seq));
        let answer = match (seq, &id) {
            (Some(seq), _) => Answer::Accepted { message, seq },
            (None, Some(id)) => self.accepted_before(id, sent).await,
            (None, None) => Answer::Done,
        };
        self.remember(id);
        self.reply(to, answer);
    }

    /// Finds the message that a resend repeats: it waits, or was answered, already. An import may have an id twice;
    /// then either is one.
    async fn accepted_before(&self, id: &ClientMessageId, sent: &Sent) -> Answer {
        let mut used = false;
        let store = self.deps.store.clone();
        let found = history::last(store.as_ref(), self.identity.key, MESSAGES, None, |row| match row.event {
            DurableEvent::UserMessage(message) if message.client_message_id.as_ref() == Some(id) => {
                used = true;
                let again = sent.repeats(&message);
                again.then_some(Answer::Accepted { message: message.id, seq: row.place.seq })
            }
            _ => None,
        })
        .await;
        match found {
            Ok(Some(found)) => found,
            Ok(None) if used => Answer::IdUsed(id.clone()),
            Ok(None) => Answer::Done,
            // Whether it is this message that is stored can't be told now.
            Err(error) => {
                let (code, message) = (error.code(), error.to_string());
                Answer::Refused(Refusal { code, message, request: "chat" })
            }
        }
    }

    /// Remembers the sender's own id of a message that is stored. One that was refused may be sent again.
    fn remember(&mut self, id: Option<ClientMessageId>) {
        if let Some(id) = id {
            self.recent.truncate(RECENT_MESSAGES - 1);
            self.recent.push_front(id);
        }
    }

    /// Begins the turn of the message that waits longest, if none runs. One that the store does not let begin
    /// fails, as one does whose store fails later. While an end can't be stored nothing is begun; it is tried
    /// again after a while.
    pub(super) async fn start_next_turn(&mut self) {
        self.retry_at = None;
        while self.running.is_none() && self.closing.is_none() && !self.shutdown.is_cancelled() {
            self.close_unclosed().await;
            if !self.unclosed.is_empty() {
                self.retry_at = Some(tokio::time::Instant::now() + RETRY);
                return;
            }
            let Some(waiting) = self.state.open_turns.iter().find(|turn| turn.waiting).cloned() else {
                return;
            };
            if let Err(error) = self.start_waiting(&waiting).await {
                let agents = &self.state.agents;
                let agent = agents.iter().find(|agent| agent.id == waiting.agent).or(agents.first());
                let lost = agent.cloned().map(|agent| Dropped {
                    turn: Some(waiting.id),
                    agent: Arc::new(agent),
                    response: message_id(),
                });
                let Some(dropped) = self.drop_running().or(lost) else { return };
                self.announce_failure(dropped, &error).await;
            }
        }
    }

    /// Starts the turn of a message that waits.
    async fn start_waiting(&mut self, waiting: &OpenTurn) -> Result<(), StoreError> {
        let message = self
            .waiting_message(&waiting.id)
            .await?
            .ok_or_else(|| StoreError::Failed(format!("the waiting message {} is not stored", waiting.id)))?;
        let agents = &self.state.agents;
        let agent = agents.iter().find(|agent| agent.id == waiting.agent).or(agents.first());
        let Some(agent) = agent.cloned().map(Arc::new) else { return Ok(()) };
        let mut next = self.state.clone();
        if let Some(turn) = next.open_turns.iter_mut().find(|turn| turn.id == waiting.id) {
            turn.waiting = false;
            turn.agent = agent.id.clone();
        }
        let message = UserMessage { agent: agent.id.clone(), ..message };
        let mut events = vec![Outgoing::durable(DurableEvent::QueueStarted(waiting.id.clone()))];
        events.extend(self.start(agent, message));
        self.commit(Some(&waiting.id), events, Some(next), None).await.map(drop)
    }

    /// Starts a turn's task; returns what is announced of it.
    fn start(&mut self, agent: Arc<Agent>, message: UserMessage) -> [Outgoing; 2] {
        let turn = message.id.clone();
        let task = self.task(&agent, Some(message));
        let started = LiveEvent::ResponseStarted { agent: agent.id.clone(), response: task.response.clone() };
        let begun = [thinking(&agent, true), Outgoing::Live(started)];
        self.set_to_work(Some(turn), Work::Reply, task, TurnTask::run);
        begun
    }

    /// Makes what an agent needs to work.
    pub(super) fn task(&self, agent: &Arc<Agent>, message: Option<UserMessage>) -> NewTask {
        let (port, reports) = TurnPort::new(self.settings.subscribe());
        let response = message_id();
        let task = TurnTask {
            deps: self.deps.clone(),
            identity: self.identity.clone(),
            team: self.state.agents.clone(),
            engine: self.engines.get(&agent.id).cloned(),
            head_seq: self.head_seq,
            budget: self.state.budget,
            context: CallContext {
                agent: agent.id.clone(),
                workspace: self.identity.workspace.clone(),
                arguments: self.deps.arguments.clone(),
                limits: self.deps.limits.clone(),
                port,
                cancel: CancellationToken::new(),
            },
            agent: agent.clone(),
            message,
            response: response.clone(),
        };
        NewTask { task, reports, response }
    }

    /// Lets an agent work: the session hears its reports from now on.
    pub(super) fn set_to_work<F>(
        &mut self,
        turn: Option<MessageId>,
        work: Work,
        new: NewTask,
        run: impl FnOnce(TurnTask) -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let NewTask { task, reports, response } = new;
        let agent = task.agent.clone();
        let cancel = task.context.cancel.clone();
        let running = run(task);
        let task = self.tasks.spawn(async move {
            running.await;
            None
        });
        let _counted = (work != Work::Title).then(|| Counted::new(self.turns.clone()));
        let step = turn.clone().map(|turn| DraftStep {
            turn,
            response: response.clone(),
            agent: agent.id.clone(),
            model: agent.model.clone(),
            after: 0,
        });
        let reply = ActiveReply { response, agent: agent.id.clone(), text: String::new(), index: 0 };
        self.running = Some(Running { turn, work, agent, reports, cancel, reply, step, task, _counted });
    }

    /// Ends the running turn without a word: its begin was not stored, or its store failed.
    pub(super) fn drop_running(&mut self) -> Option<Dropped> {
        let running = self.running.take()?;
        running.task.abort();
        drop(self.broker.take_all());
        Some(Dropped { turn: running.turn, agent: running.agent, response: running.reply.response })
    }

    pub(super) async fn on_report(&mut self, report: TurnReport) {
        // What a turn wanted before it heard of its cancel: no call is asked about or begun any more.
        let cancelled = self.running.as_ref().is_some_and(|running| running.cancel.is_cancelled());
        match report {
            TurnReport::Emit { stored: Some(stored), .. } if cancelled => drop(stored.send(false)),
            TurnReport::Emit { events, stored } => {
                let done = self.emit(events).await;
                if let Some(stored) = stored {
                    // The turn may have been dropped.
                    let _ = stored.send(done);
                }
            }
            TurnReport::Ask { request, reply } if cancelled => {
                let turn = self.running_turn();
                let record = audit(&request, AuditDecision::Cancelled, "user");
                match self.commit(turn.as_ref(), vec![record], None, None).await {
                    Ok(_) => drop(reply.send(Settled::Cancelled)),
                    Err(error) => self.fail_turn(&error).await,
                }
            }
            TurnReport::Ask { mut request, reply } => {
                if self.state.grants.len() >= MAX_GRANTS {
                    // So that nobody is told of a cover that there is no room for.
                    request.grant = None;
                }
                let turn = self.running_turn();
                let event = Outgoing::durable(DurableEvent::ApprovalRequested((*request).clone()));
                match self.commit(turn.as_ref(), vec![event], None, None).await {
                    Ok(published) => {
                        if let Some(published) = published.into_iter().flatten().next() {
                            self.broker.add(*request, published, reply);
                            self.set_approval_deadline();
                        }
                    }
                    Err(error) => self.fail_turn(&error).await,
                }
            }
            TurnReport::CallClient { reply, .. } if cancelled => {
                drop(reply.send(Err(CANCELLED.to_owned())));
            }
            TurnReport::CallClient { call, tool, args, reply } => {
                let Some(subscriber) = self.connections.get(&tool.connection).cloned() else {
                    return drop(reply.send(Err("The client that runs this tool has left.".to_owned())));
                };
                let (server, name) = (tool.server.clone(), tool.name.clone());
                let answer = Answer::CallTool { call: call.clone(), server, tool: name, args };
                self.client_tools.wait(call, tool.connection, reply);
                subscriber.deliver(&[answer_event(&self.identity, None, answer)]);
            }
            TurnReport::Engine { agent, engine: Some(engine) } => self.on_engine(agent, engine).await,
            TurnReport::Engine { agent, engine: None } => drop(self.engines.remove(&agent)),
            TurnReport::End { events, end } => self.on_end(events, end).await,
            TurnReport::Compacted => self.on_compacted().await,
            TurnReport::Titled(titled) => self.on_titled(titled).await,
        }
    }

    /// An agent's engine was opened; the roster names its model, which may be another than before.
    async fn on_engine(&mut self, id: AgentId, opened: OpenedEngine) {
        let OpenedEngine { choice, engine } = opened;
        // The agent may have been given another one meanwhile.
        if self.state.agents.iter().any(|agent| agent.id == id && agent.engine != choice) {
            return;
        }
        let mut next = self.state.clone();
        if let Some(agent) = next.agents.iter_mut().find(|agent| agent.id == id)
            && (agent.provider != engine.provider() || agent.model != engine.model())
        {
            agent.provider = engine.provider().to_owned();
            agent.model = engine.model().to_owned();
            let events = vec![self.team_updated(&next)];
            if let Err(error) = self.commit(None, events, Some(next), None).await {
                tracing::warn!(session = %self.identity.id, %error, "the change of an engine is not stored");
            }
        }
        self.engines.insert(id, engine);
    }

    async fn emit(&mut self, events: Vec<Outgoing>) -> bool {
        let sensitive = events.iter().any(|event| {
            matches!(event, Outgoing::Durable(event)
                if matches!(&**event, DurableEvent::ToolStarted(started) if started.class == RiskClass::Sensitive))
        });
        let next = (sensitive && !self.state.read_sensitive)
            .then(|| SessionState { read_sensitive: true, ..self.state.clone() });
        let turn = self.running_turn();
        match self.commit(turn.as_ref(), events, next, None).await {
            Ok(_) => true,
            Err(error) => {
                self.fail_turn(&error).await;
                false
            }
        }
    }

    async fn on_end(&mut self, mut events: Vec<Outgoing>, end: TurnEnd) {
        // A turn that ends on its own has no call left; after a failure one may still wait.
        self.settle_all(AuditDecision::Cancelled, "server", &Settled::Cancelled).await;
        let Some(running) = self.running.take() else { return };
        let Some(ended_turn) = running.turn.clone() else { return };
        let mut next = self.state.clone();
        next.open_turns.retain(|turn| turn.id != ended_turn);
        let response = running.reply.response.clone();
        let over = LiveEvent::ResponseEnded { agent: running.agent.id.clone(), response: response.clone() };
        events.push(Outgoing::Live(over));
        events.push(thinking(&running.agent, false));
        let is_done = matches!(end, TurnEnd::Done { .. });
        events.push(Outgoing::durable(ended(end, response)));
        match self.commit(Some(&ended_turn), events, Some(next), None).await {
            Ok(_) => self.deps.store.clear_draft(self.identity.key),
            Err(error) => {
                let (agent, response) = (running.agent.clone(), running.reply.response);
                let dropped = Dropped { turn: Some(ended_turn.clone()), agent, response };
                self.announce_failure(dropped, &error).await;
            }
        }
        self.set_approval_deadline();
        self.start_next_turn().await;
        if is_done {
            self.ask_for_title(&ended_turn, running.agent).await;
        }
    }

    /// The turn's task is gone without a word: a bug, told as such.
    pub(super) async fn on_lost_turn(&mut self) {
        tracing::error!(session = %self.identity.id, "a turn ended without its end");
        if self.running_turn().is_none() {
            return self.on_compacted().await;
        }
        let message = "the server failed while it worked on this reply; its log says more".to_owned();
        self.on_end(Vec::new(), TurnEnd::Failed { code: ErrorCode::Internal, message }).await;
    }

    pub(super) async fn on_cancel(&mut self, agent: Option<&AgentId>) {
        self.stand_back();
        let Some(running) = &self.running else { return };
        if agent.is_some_and(|agent| *agent != running.agent.id) {
            return;
        }
        running.cancel.cancel();
        self.settle_all(AuditDecision::Cancelled, "user", &Settled::Cancelled).await;
    }

    /// The store did not take an event of the running turn: nothing more of it is shown.
    pub(super) async fn fail_turn(&mut self, error: &StoreError) {
        if let Some(dropped) = self.drop_running() {
            self.announce_failure(dropped, error).await;
            self.start_next_turn().await;
        }
    }

    async fn announce_failure(&mut self, dropped: Dropped, error: &StoreError) {
        let Dropped { turn, agent, response } = dropped;
        let Some(turn) = turn else {
            let text = format!("the summary is not stored: {error}");
            let notice = LiveEvent::Notice { agent: agent.id.clone(), text };
            let events = vec![Outgoing::Live(notice), thinking(&agent, false)];
            // Live events need no store.
            return drop(self.commit(None, events, None, None).await);
        };
        tracing::error!(session = %self.identity.id, %turn, %error, "a turn could not be stored");
        let failed = TurnFailed { code: error.code(), message: error.to_string() };
        let over = LiveEvent::ResponseEnded { agent: agent.id.clone(), response };
        let events =
            vec![Outgoing::Live(over), thinking(&agent, false), Outgoing::Live(LiveEvent::Failed(failed))];
        // Live events need no store.
        drop(self.commit(Some(&turn), events, None, None).await);
        self.unclosed.push((turn, error.code()));
    }

    /// Stores the ends of turns that could not be stored before, up to the first that can't be stored now either.
    async fn close_unclosed(&mut self) {
        while let Some((turn, code)) = self.unclosed.first().cloned() {
            if let Some(open) = self.state.open_turns.iter().find(|open| open.id == turn).cloned()
                && let Err(error) = self.close(&open, code).await
            {
                tracing::warn!(session = %self.identity.id, %turn, %error, "a turn still has no end");
                return;
            }
            self.unclosed.remove(0);
        }
    }

    async fn close(&mut self, turn: &OpenTurn, code: ErrorCode) -> Result<(), StoreError> {
        let failed = TurnFailed { code, message: "the reply could not be stored".to_owned() };
        let store = self.deps.store.clone();
        let events = recovery::closing(store.as_ref(), self.identity.key, turn, failed).await?;
        let mut next = self.state.clone();
        next.open_turns.retain(|open| open.id != turn.id);
        let events = events.into_iter().map(Outgoing::durable).collect();
        self.commit(Some(&turn.id), events, Some(next), None).await?;
        self.deps.store.clear_draft(self.identity.key);
        Ok(())
    }
}

fn thinking(agent: &Arc<Agent>, thinking: bool) -> Outgoing {
    Outgoing::Live(LiveEvent::AgentState { agent: agent.clone(), thinking, detail: None })
}

fn ended(end: TurnEnd, response: MessageId) -> DurableEvent {
    match end {
        TurnEnd::Done { usage, stop } => DurableEvent::Done(TurnDone { usage, stop }),
        TurnEnd::Interrupted { usage } => {
            let (reason, response) = ("cancelled".to_owned(), Some(response));
            DurableEvent::Interrupted(TurnInterrupted { usage, reason, response })
        }
        TurnEnd::Failed { code, message } => DurableEvent::TurnFailed(TurnFailed { code, message }),
    }
}
