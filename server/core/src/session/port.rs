//! Between a running turn and its session: the turn reports and asks, the session announces and answers.

use std::sync::Arc;

use tns_protocol::approval::AutonomyLevel;
use tns_protocol::{AgentId, ToolCallId};
use tokio::sync::{mpsc, oneshot, watch};

use super::client_tools::ClientTool;
use crate::approval::broker::Settled;
use crate::approval::{ApprovalRequest, Grant};
use crate::engine::{Engine, EngineChoice};
use crate::event::{CountedStep, DurableEvent, LiveEvent};
use crate::tool::Args;
use crate::turn::state::TurnEnd;

/// Reports of a turn that wait for its session. Full → the turn waits, and so does its model.
const REPORTS: usize = 64;

/// An event on its way to the log or to the connections.
#[derive(Debug)]
pub(crate) enum Outgoing {
    Durable(Box<DurableEvent>),
    Live(LiveEvent),
}

impl Outgoing {
    pub(crate) fn durable(event: DurableEvent) -> Self {
        Self::Durable(Box::new(event))
    }
}

/// What a turn reports or asks.
pub(crate) enum TurnReport {
    /// Store and announce, in order; `stored` hears whether it is stored.
    Emit { events: Vec<Outgoing>, stored: Option<oneshot::Sender<bool>> },
    /// A person must decide.
    Ask { request: Box<ApprovalRequest>, reply: oneshot::Sender<Settled> },
    /// A client must run its tool.
    CallClient {
        call: ToolCallId,
        tool: Arc<ClientTool>,
        args: Args,
        reply: oneshot::Sender<Result<String, String>>,
    },
    /// The agent's engine was opened, for the turns to come; `None`: it is useless from now on.
    Engine { agent: AgentId, engine: Option<OpenedEngine> },
    /// The turn is over, with its last events.
    End { events: Vec<Outgoing>, end: TurnEnd },
    /// A compaction outside a turn is over.
    Compacted,
    /// The session was to be named, and what came of it.
    Titled(Titled),
}

/// A title that a model wrote.
#[derive(Default)]
pub(crate) struct Titled {
    /// `None`: it wrote none.
    pub(crate) title: Option<String>,
    /// What the call used; `None`: nothing that is known.
    pub(crate) step: Option<CountedStep>,
}

/// An engine with what was asked for.
pub(crate) struct OpenedEngine {
    pub(crate) choice: EngineChoice,
    pub(crate) engine: Arc<dyn Engine>,
}

/// What holds for the calls of a session; may change while a turn runs.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) autonomy: AutonomyLevel,
    pub(crate) read_sensitive: bool,
    pub(crate) grants: Vec<Grant>,
    pub(crate) client_tools: Vec<Arc<ClientTool>>,
}

impl Settings {
    /// Whether a call is decided as with others.
    pub(crate) fn decide_like(&self, others: &Self) -> bool {
        self.autonomy == others.autonomy
            && self.read_sensitive == others.read_sensitive
            && self.grants == others.grants
    }
}

/// A turn's end of the line. When the session drops the other one, nothing more happens.
#[derive(Clone)]
pub(crate) struct TurnPort {
    reports: mpsc::Sender<TurnReport>,
    settings: watch::Receiver<Arc<Settings>>,
}

impl TurnPort {
    pub(crate) fn new(settings: watch::Receiver<Arc<Settings>>) -> (Self, mpsc::Receiver<TurnReport>) {
        let (reports, receiver) = mpsc::channel(REPORTS);
        (Self { reports, settings }, receiver)
    }

    /// Returns what holds now.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        self.settings.borrow().clone()
    }

    /// Reports events; does not wait until they are stored.
    pub(crate) async fn emit(&self, events: Vec<Outgoing>) {
        self.report(TurnReport::Emit { events, stored: None }).await;
    }

    /// Reports the event that `make` gives when there is room for it. Dropping the future before that loses none.
    pub(crate) async fn emit_when_room(&self, make: impl FnOnce() -> Option<Outgoing>) {
        if let Ok(room) = self.reports.reserve().await
            && let Some(event) = make()
        {
            room.send(TurnReport::Emit { events: vec![event], stored: None });
        }
    }

    /// Reports events and waits until they are stored; `false`: they are not.
    pub(crate) async fn commit(&self, events: Vec<Outgoing>) -> bool {
        let (stored, answer) = oneshot::channel();
        self.report(TurnReport::Emit { events, stored: Some(stored) }).await;
        answer.await.unwrap_or(false)
    }

    /// Waits for a person's decision; `None`: the session is gone.
    pub(crate) async fn ask(&self, request: ApprovalRequest) -> Option<Settled> {
        let (reply, answer) = oneshot::channel();
        self.report(TurnReport::Ask { request: Box::new(request), reply }).await;
        answer.await.ok()
    }

    /// Waits for a client's tool. Dropping the future withdraws the call.
    pub(crate) async fn call_client(
        &self,
        call: ToolCallId,
        tool: Arc<ClientTool>,
        args: Args,
    ) -> Result<String, String> {
        let (reply, answer) = oneshot::channel();
        self.report(TurnReport::CallClient { call, tool, args, reply }).await;
        answer.await.unwrap_or_else(|_| Err("The session ended before the tool answered.".to_owned()))
    }

    /// Reports that the agent's engine was opened, or is useless from now on.
    pub(crate) async fn engine(&self, agent: AgentId, engine: Option<OpenedEngine>) {
        self.report(TurnReport::Engine { agent, engine }).await;
    }

    /// Reports the end of the turn.
    pub(crate) async fn end(&self, events: Vec<Outgoing>, end: TurnEnd) {
        self.report(TurnReport::End { events, end }).await;
    }

    /// Reports the end of a compaction outside a turn.
    pub(crate) async fn compacted(&self) {
        self.report(TurnReport::Compacted).await;
    }

    /// Reports what came of naming the session.
    pub(crate) async fn titled(&self, titled: Titled) {
        self.report(TurnReport::Titled(titled)).await;
    }

    async fn report(&self, report: TurnReport) {
        // A session that is gone has dropped its turn as well: this future is about to be dropped.
        drop(self.reports.send(report).await);
    }
}
