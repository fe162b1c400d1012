//! Runs a turn: does what `state` decides, feeds the answers back, reports to the session.
//!
//! It never writes to the store: the session does, in the order of the reports. The next model call
//! starts while results are still being stored; its tokens are shown when that is done.

mod compact;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use futures_util::StreamExt;
use tns_protocol::{Day, MessageId, Seq, ToolCallId};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::calls::{self, Approved, CallContext};
use super::side::used;
use super::state::{Decided, FinishedCall, Partial, TurnEffect, TurnEnd, TurnInput, TurnState, not_run};
use crate::agent::Agent;
use crate::engine::{Engine, EngineError, EngineErrorKind, StepEvent, StepOutcome, StepRequest, StepUsage};
use crate::event::{AssistantMessage, DurableEvent, LiveEvent, MessageStatus, ToolFinished, UserMessage};
use crate::history::{Asked, Conversation, Past, text_of};
use crate::message::{Note, Part, Passage, ToolCall};
use crate::session::client_tools::ProxyTool;
use crate::session::port::{OpenedEngine, Outgoing};
use crate::session::{SessionDeps, SessionIdentity};
use crate::spend::{SessionSpend, StepToCome};
use crate::store::{KnowledgeQuery, StoreError};
use crate::tool::{Tool, ToolSpec};
use crate::usage::Money;
use compact::Readiness;

/// Most pieces of a reply that are reported together.
const MAX_BATCH: usize = 512;
/// Most passages of the knowledge base that are given to the model before a reply.
const MAX_PASSAGES: usize = 5;
/// Most characters of those passages together.
const MAX_PASSAGE_CHARS: usize = 8_000;

/// A turn to be run.
pub(crate) struct TurnTask {
    pub(crate) deps: SessionDeps,
    pub(crate) identity: Arc<SessionIdentity>,
    pub(crate) agent: Arc<Agent>,
    pub(crate) team: Vec<Agent>,
    /// The agent's engine, if it is open.
    pub(crate) engine: Option<Arc<dyn Engine>>,
    /// The message to answer; `None` where nothing is asked of the agent.
    pub(crate) message: Option<UserMessage>,
    /// The reply to it.
    pub(crate) response: MessageId,
    /// The log's last place when the turn began.
    pub(crate) head_seq: Seq,
    /// Most that the session may spend, in dollars.
    pub(crate) budget: Option<f64>,
    pub(crate) context: CallContext,
}

/// What a task of the turn gave back.
enum Ended {
    Decided(ToolCallId, Result<Box<Approved>, String>),
    Ran(FinishedCall),
}

struct Driver {
    task: TurnTask,
    engine: Arc<dyn Engine>,
    conversation: Conversation,
    /// For the first step of the reply.
    notes: Vec<Note>,
    /// Characters of the reply so far.
    written: u64,
    calls: JoinSet<Ended>,
    /// Which call a task works on, should it panic.
    of_task: HashMap<tokio::task::Id, ToolCall>,
    approved: HashMap<ToolCallId, Box<Approved>>,
    stops: HashMap<ToolCallId, CancellationToken>,
    spend: SessionSpend,
    /// The day on which the last step counts.
    counted_on: Option<Day>,
    /// Whether the history may be compacted now.
    readiness: Readiness,
    /// What calls for summaries used and the state has not heard of yet.
    used: Vec<StepUsage>,
}

impl TurnTask {
    /// Runs the turn to its end. The last thing it does is to report that end.
    pub(crate) async fn run(self) {
        let port = self.context.port.clone();
        let cancel = self.context.cancel.clone();
        let ready = tokio::select! {
            biased;
            () = cancel.cancelled() => {
                return port.end(Vec::new(), TurnEnd::Interrupted { usage: Default::default() }).await;
            }
            ready = self.prepare() => ready,
        };
        match ready {
            Ok(driver) => driver.run().await,
            Err(end) => port.end(Vec::new(), end).await,
        }
    }

    /// Has the agent's history summarised, outside a turn.
    pub(crate) async fn compact(self) {
        let port = self.context.port.clone();
        let cancel = self.context.cancel.clone();
        let agent = self.agent.id.clone();
        match cancel.run_until_cancelled(self.prepare()).await {
            // It sees a cancel by itself, and counts what was used by then.
            Some(Ok(mut driver)) => driver.compact_now().await,
            Some(Err(TurnEnd::Failed { message: text, .. })) => {
                port.emit(vec![Outgoing::Live(LiveEvent::Notice { agent, text })]).await;
            }
            Some(Err(TurnEnd::Done { .. } | TurnEnd::Interrupted { .. })) | None => {}
        }
        port.compacted().await;
    }

    /// Returns what is asked, with what only the model is shown before it.
    fn asked<'a>(&'a self, notes: &'a [Note]) -> Option<Asked<'a>> {
        self.message.as_ref().map(|message| Asked { message, notes })
    }

    /// What was said before. Who answers by rule looks at the message alone, and nothing would make a long log shorter.
    async fn past(&self, engine: &dyn Engine) -> Result<Past, StoreError> {
        if !engine.is_model() {
            return Ok(Past::default());
        }
        // What comes while the history is read belongs to a later turn.
        let before = Some(self.head_seq + 1);
        Past::load(self.deps.store.as_ref(), self.identity.key, &self.agent.id, before).await
    }

    async fn prepare(self) -> Result<Driver, TurnEnd> {
        let engine = match &self.engine {
            Some(engine) => engine.clone(),
            None => {
                let engine = self.deps.engines.open(&self.agent.engine).await.map_err(|error| {
                    TurnEnd::Failed { code: EngineErrorKind::Unavailable.code(), message: error.to_string() }
                })?;
                let opened = OpenedEngine { choice: self.agent.engine.clone(), engine: engine.clone() };
                self.context.port.engine(self.agent.id.clone(), Some(opened)).await;
                engine
            }
        };
        let past = self.past(engine.as_ref()).await.map_err(failed)?;
        let spend = self.spend().await?;
        let notes = self.notes().await;
        let conversation = Conversation::of(&past, &self.agent, &self.team, self.asked(&notes));
        Ok(Driver {
            engine,
            conversation,
            notes,
            written: 0,
            calls: JoinSet::new(),
            of_task: HashMap::new(),
            approved: HashMap::new(),
            stops: HashMap::new(),
            spend,
            counted_on: None,
            readiness: Readiness::Ready,
            used: Vec::new(),
            task: self,
        })
    }

    /// What people are told of a call that waits before it is tried again.
    pub(super) fn waiting(&self, text: String) -> [Outgoing; 2] {
        let agent = self.agent.id.clone();
        [self.thinking(text.clone()), Outgoing::Live(LiveEvent::Notice { agent, text })]
    }

    fn thinking(&self, detail: String) -> Outgoing {
        let agent = self.agent.clone();
        Outgoing::Live(LiveEvent::AgentState { agent, thinking: true, detail: Some(detail) })
    }

    /// What the session has spent, where a limit asks for it.
    pub(super) async fn spend(&self) -> Result<SessionSpend, TurnEnd> {
        let mut spend = SessionSpend { budget: self.budget, ..SessionSpend::default() };
        if spend.budget.is_some() || self.deps.ledger.limits().session.is_some() {
            spend.spent = self.deps.store.session_cost(self.identity.key).await.map_err(failed)?;
        }
        Ok(spend)
    }

    /// The best passages for the message. A knowledge base that fails costs the passages, not the reply.
    async fn notes(&self) -> Vec<Note> {
        let Some(message) = &self.message else { return Vec::new() };
        let query = KnowledgeQuery {
            collections: self.identity.collections(),
            text: text_of(&message.parts),
            limit: MAX_PASSAGES,
            threshold: 0.0,
        };
        let hits = match self.deps.knowledge.search(query).await {
            Ok(hits) => hits,
            Err(error) => {
                tracing::warn!(session = %self.identity.id, %error, "no passages for this reply");
                return Vec::new();
            }
        };
        let mut room = MAX_PASSAGE_CHARS;
        let mut passages = Vec::new();
        for (hit, number) in hits.into_iter().zip(1..) {
            let text: String = hit.content.chars().take(room).collect();
            room -= text.chars().count();
            if text.is_empty() {
                break;
            }
            passages.push(Passage { number, source: source(&hit), document: hit.document, text });
        }
        if passages.is_empty() { Vec::new() } else { vec![Note::Knowledge(passages)] }
    }
}

fn failed(error: StoreError) -> TurnEnd {
    TurnEnd::Failed { code: error.code(), message: error.to_string() }
}

/// Says where a hit stands: `notes.md:12`, or the document's id.
fn source(hit: &crate::store::Hit) -> String {
    let file =
        hit.metadata.get("source").or_else(|| hit.metadata.get("path")).and_then(|value| value.as_str());
    let line = hit.metadata.get("startLine").and_then(serde_json::Value::as_u64);
    match (file, line) {
        (Some(file), Some(line)) => format!("{file}:{line}"),
        (Some(file), None) => file.to_owned(),
        (None, _) => hit.document.to_string(),
    }
}

impl Driver {
    async fn run(mut self) {
        let mut state = TurnState::new(self.task.deps.limits.rounds);
        let mut inputs = VecDeque::from([TurnInput::Begin]);
        let mut cancelled = false;
        loop {
            let input = match inputs.pop_front() {
                Some(input) => input,
                None => match self.wait(&mut cancelled).await {
                    Some(input) => input,
                    None => continue,
                },
            };
            let mut events = Vec::new();
            for effect in state.next(input) {
                match effect {
                    TurnEffect::CallModel { tools } => {
                        self.report(&mut events).await;
                        let input = self.call_model(tools).await;
                        cancelled |= matches!(input, TurnInput::Cancel { .. });
                        inputs.extend(self.used.drain(..).map(TurnInput::Used));
                        inputs.push_back(input);
                    }
                    TurnEffect::StoreStep(step) => events.push(self.store_step(step)),
                    TurnEffect::StorePartial(partial, status) => {
                        events.push(self.store_partial(partial, status));
                    }
                    TurnEffect::Decide(call) => self.decide(call),
                    TurnEffect::RunTool(call) => self.run_tool(&call),
                    TurnEffect::StopTool(call) => {
                        if let Some(stop) = self.stops.get(&call) {
                            stop.cancel();
                        }
                    }
                    TurnEffect::StoreResult(finished) => events.push(self.store_result(finished)),
                    TurnEffect::End(end) => return self.task.context.port.end(events, end).await,
                }
            }
            self.report(&mut events).await;
        }
    }

    async fn report(&self, events: &mut Vec<Outgoing>) {
        if !events.is_empty() {
            self.task.context.port.emit(std::mem::take(events)).await;
        }
    }

    /// Waits for a call to be decided or to end, or for a cancel. A cancel is seen before anything that
    /// it brings about.
    async fn wait(&mut self, cancelled: &mut bool) -> Option<TurnInput> {
        let ended = tokio::select! {
            biased;
            () = self.task.context.cancel.cancelled(), if !*cancelled => {
                *cancelled = true;
                return Some(TurnInput::Cancel { partial: Partial::default() });
            }
            ended = self.calls.join_next_with_id() => ended?,
        };
        match ended {
            Ok((task, Ended::Decided(call, result))) => {
                self.of_task.remove(&task);
                let decided = calls::decided(&result);
                if let Ok(approved) = result {
                    self.approved.insert(call.clone(), approved);
                }
                Some(TurnInput::Decided { call, decided })
            }
            Ok((task, Ended::Ran(finished))) => {
                self.of_task.remove(&task);
                self.stops.remove(&finished.result.call);
                Some(TurnInput::ToolFinished(finished))
            }
            Err(error) => {
                let call = self.of_task.remove(&error.id())?;
                tracing::error!(session = %self.task.identity.id, tool = %call.name, %error, "a tool panicked");
                let reason = "The tool crashed; this is a bug of the server.".to_owned();
                if self.stops.remove(&call.id).is_some() {
                    return Some(TurnInput::ToolFinished(FinishedCall {
                        ran: true,
                        ..not_run(&call, reason)
                    }));
                }
                Some(TurnInput::Decided { call: call.id, decided: Decided::Refused { reason } })
            }
        }
    }

    /// Calls the model once, unless a spending limit is reached.
    async fn step(&mut self, request: StepRequest) -> TurnInput {
        let step = StepToCome { engine: self.engine.as_ref(), request: &request, session: self.spend };
        let hold = match self.task.deps.ledger.admit(step) {
            Ok(hold) => hold,
            Err(refusal) => {
                tracing::warn!(session = %self.task.identity.id, %refusal, "a model was not called");
                return TurnInput::SpendCap { message: refusal.to_string() };
            }
        };
        let input = self.run_step(request).await;
        let used = match &input {
            TurnInput::StepFinished(outcome) => Some(&outcome.usage),
            TurnInput::StepFailed { partial, .. } | TurnInput::Cancel { partial } => partial.usage.as_ref(),
            TurnInput::Begin
            | TurnInput::Used(_)
            | TurnInput::SpendCap { .. }
            | TurnInput::Decided { .. }
            | TurnInput::ToolFinished(_) => None,
        };
        if let Some(used) = used {
            self.counted_on = Some(hold.settle(used));
            self.spend.spent = self.spend.spent.plus(Money::of_step(used));
        }
        input
    }

    /// Returns the model call that comes next.
    fn request(&self, tools: bool) -> StepRequest {
        StepRequest {
            system: self.task.agent.system.clone(),
            tools: if tools { self.offered() } else { Arc::new([]) },
            messages: self.conversation.messages().to_vec(),
            effort: None,
            max_output_tokens: None,
            temperature: None,
        }
    }

    async fn run_step(&mut self, request: StepRequest) -> TurnInput {
        let mut stream = self.engine.step(request).ready_chunks(MAX_BATCH);
        let mut shown = String::new();
        let mut reasons = false;
        let (mut told, mut begun) = (None, false);
        loop {
            let chunk = tokio::select! {
                biased;
                () = self.task.context.cancel.cancelled() => {
                    return TurnInput::Cancel { partial: self.partial(shown, told, begun) };
                }
                chunk = stream.next() => chunk,
            };
            let Some(chunk) = chunk else {
                let message = "the reply ended before its end mark; ask again".to_owned();
                let error = EngineError { kind: EngineErrorKind::StreamIncomplete, message };
                return TurnInput::StepFailed { partial: self.partial(shown, told, begun), error };
            };
            let mut events = Vec::with_capacity(chunk.len());
            let mut last = None;
            for event in chunk {
                begun |= matches!(
                    event,
                    Ok(StepEvent::Text(_) | StepEvent::Reasoning(_) | StepEvent::ToolStart { .. })
                );
                match event {
                    Ok(StepEvent::Text(text)) => {
                        shown.push_str(&text);
                        events.push(self.token(text));
                    }
                    Ok(StepEvent::Reasoning(text)) => {
                        events.extend(self.reasoning(text, std::mem::replace(&mut reasons, true)));
                    }
                    Ok(StepEvent::Usage(usage)) => told = Some(usage),
                    Ok(StepEvent::ToolStart { name }) => events.extend(self.tool_pending(name)),
                    Ok(StepEvent::Waiting { delay, reason }) => {
                        events.extend(
                            self.task.waiting(format!("waits {:.1} s: {reason}", delay.as_secs_f32())),
                        );
                    }
                    Ok(StepEvent::Finished(outcome)) => last = Some(TurnInput::StepFinished(outcome)),
                    Err(error) => {
                        let partial = self.partial(std::mem::take(&mut shown), told, begun);
                        if error.kind.is_fatal() {
                            self.task.context.port.engine(self.task.agent.id.clone(), None).await;
                        }
                        last = Some(TurnInput::StepFailed { partial, error });
                    }
                }
            }
            self.report(&mut events).await;
            if let Some(input) = last {
                return input;
            }
        }
    }

    fn token(&mut self, text: String) -> Outgoing {
        let index = self.written;
        self.written += text.chars().count() as u64;
        let (agent, response) = (self.task.agent.id.clone(), self.task.response.clone());
        Outgoing::Live(LiveEvent::Token { agent, text, response, index })
    }

    fn reasoning(&self, text: String, goes_on: bool) -> impl Iterator<Item = Outgoing> {
        let (agent, response) = (self.task.agent.id.clone(), self.task.response.clone());
        let start = LiveEvent::ReasoningStarted { agent: agent.clone(), response: response.clone() };
        let piece = LiveEvent::Reasoning { agent, text, response };
        (!goes_on).then_some(start).into_iter().chain([piece]).map(Outgoing::Live)
    }

    fn tool_pending(&self, tool: String) -> [Outgoing; 2] {
        let (agent, response) = (self.task.agent.id.clone(), self.task.response.clone());
        let detail = self.task.thinking(format!("calls {tool}"));
        [detail, Outgoing::Live(LiveEvent::ToolPending { agent, tool, response })]
    }

    /// Returns what is left of a step that was cut.
    fn partial(&self, text: String, told: Option<StepUsage>, begun: bool) -> Partial {
        Partial { text, usage: used(self.engine.as_ref(), told, begun) }
    }

    fn offered(&self) -> Arc<[Arc<ToolSpec>]> {
        let settings = self.task.context.port.settings();
        let builtin = self.task.deps.tools.iter().map(|tool| tool.spec().clone());
        builtin.chain(settings.client_tools.iter().map(|tool| tool.spec.clone())).collect()
    }

    fn tool(&self, name: &str) -> Option<Arc<dyn Tool>> {
        if let Some(tool) = self.task.deps.tools.iter().find(|tool| tool.spec().name == name) {
            return Some(tool.clone());
        }
        let port = self.task.context.port.clone();
        let settings = port.settings();
        let tool = settings.client_tools.iter().find(|tool| tool.spec.name == name)?.clone();
        Some(Arc::new(ProxyTool { tool, port }))
    }

    fn store_step(&mut self, step: StepOutcome) -> Outgoing {
        self.conversation.assistant(step.parts.clone(), step.native.clone());
        let usage = Some(step.usage);
        self.assistant_message(step.parts, step.model, step.native, MessageStatus::Complete, usage)
    }

    fn store_partial(&mut self, partial: Partial, status: MessageStatus) -> Outgoing {
        let model = self.engine.model().to_owned();
        let parts = if partial.text.is_empty() { Vec::new() } else { vec![Part::Text(partial.text)] };
        self.assistant_message(parts, model, None, status, partial.usage)
    }

    fn assistant_message(
        &mut self,
        parts: Vec<Part>,
        model: String,
        native: Option<crate::message::Native>,
        status: MessageStatus,
        usage: Option<StepUsage>,
    ) -> Outgoing {
        let notes = std::mem::take(&mut self.notes);
        let agent = self.task.agent.id.clone();
        let id = message_id();
        Outgoing::durable(DurableEvent::AssistantMessage(AssistantMessage {
            id,
            agent,
            parts,
            model,
            native,
            notes,
            status,
            response: Some(self.task.response.clone()),
            usage,
            provider: Some(self.engine.provider().to_owned()),
            counted_on: self.counted_on,
        }))
    }

    fn decide(&mut self, call: ToolCall) {
        let tool = self.tool(&call.name);
        let context = self.task.context.clone();
        let id = call.id.clone();
        let task = call.clone();
        let handle = self.calls.spawn(async move {
            Ended::Decided(id, calls::authorize(&context, call, tool).await.map(Box::new))
        });
        self.of_task.insert(handle.id(), task);
    }

    fn run_tool(&mut self, call: &ToolCallId) {
        let Some(approved) = self.approved.remove(call) else { return };
        let stop = CancellationToken::new();
        self.stops.insert(call.clone(), stop.clone());
        let context = self.task.context.clone();
        let task = approved.call.clone();
        let handle = self.calls.spawn(async move { Ended::Ran(calls::run(&context, *approved, stop).await) });
        self.of_task.insert(handle.id(), task);
    }

    fn store_result(&mut self, finished: FinishedCall) -> Outgoing {
        self.conversation.user(vec![Part::ToolResult(finished.result.clone())]);
        Outgoing::durable(DurableEvent::ToolFinished(ToolFinished {
            agent: self.task.agent.id.clone(),
            result: finished.result,
            ran: finished.ran,
            duration_ms: finished.duration_ms,
            truncated: finished.truncated,
        }))
    }
}

/// Makes the id of a message.
pub(crate) fn message_id() -> MessageId {
    match MessageId::parse(Uuid::now_v7().to_string()) {
        Ok(id) => id,
        Err(_) => unreachable!("a UUID is a valid id"),
    }
}
