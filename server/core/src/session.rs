//! A session from outside: what it is asked, and the handle through which it is asked.
//!
//! A session is one task (`actor`) that owns its roster, its approvals and its running turn. Others
//! hold a [`SessionHandle`] and send commands; the session lives while a handle lives or a turn runs.

pub(crate) mod actor;
pub mod client_tools;
mod fork;
pub mod hub;
pub mod import;
pub(crate) mod port;
pub mod registry;
mod title;

use std::sync::Arc;

use serde_json::{Map, Value};
use tns_protocol::approval::{AutonomyLevel, Decision};
use tns_protocol::{
    AgentId, ClientMessageId, DocumentId, ErrorCode, MessageId, RequestId, RuleId, Seq, SessionId, Timestamp,
    ToolCallId,
};
use tokio::sync::{mpsc, oneshot};

use crate::agent::{Agent, NewAgent};
use crate::approval::{ApprovalRequest, Grant};
use crate::engine::{EngineChoice, Engines};
use crate::event::{Answer, Log, MessageContext, Subscriber};
use crate::message::Part;
use crate::spend::Ledger;
use crate::store::{Collection, DocumentStore, Knowledge, SessionKey, Store};
use crate::tool::{ArgumentCheck, Tool, Workspace};
use crate::turn::TurnLimits;
use actor::Lifetime;
use client_tools::ClientToolDef;
use hub::Hub;

/// Commands that wait for a session. Full → the sender is answered `LIMIT`.
const MAILBOX: usize = 64;
/// Most messages of a session that wait for their turn.
pub const MAX_QUEUED: usize = 32;

/// What every session of a server shares.
#[derive(Clone)]
pub struct SessionDeps {
    /// Where logs are kept.
    pub store: Arc<dyn Store>,
    /// Where documents are read.
    pub documents: Arc<dyn DocumentStore>,
    /// What finds passages.
    pub knowledge: Arc<dyn Knowledge>,
    /// What makes engines.
    pub engines: Arc<dyn Engines>,
    /// The built-in tools.
    pub tools: Arc<[Arc<dyn Tool>]>,
    /// What checks arguments.
    pub arguments: Arc<dyn ArgumentCheck>,
    /// What a turn may use.
    pub limits: TurnLimits,
    /// Who writes titles.
    pub titles: Titles,
    /// What counts the money that is spent.
    pub ledger: Arc<Ledger>,
    /// Where what steps used is added up beside `store`, which does not last: what was spent stays spent.
    pub lasting: Option<Arc<dyn Store>>,
    /// FULL_AUTO may be set although no sandbox holds the tools.
    pub unsandboxed: bool,
    /// What is told of all sessions at once.
    pub hub: Hub,
    /// Makes what temporary sessions share: the same with a store in memory.
    pub temporary: fn(&SessionDeps) -> SessionDeps,
}

/// Who gives a session its title, where no person does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Titles {
    /// Its first message does.
    FirstMessage,
    /// Its first message does; when its second turn has ended, the model that answered is asked for a better one.
    #[default]
    Model,
}

/// Names a connection while the server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// Where the answer to a command goes.
#[derive(Debug)]
pub enum ReplyTo {
    /// To a joined connection, which sees what is announced to all anyway.
    Connection {
        /// Which.
        id: ConnectionId,
        /// The client's name for the request.
        re: Option<RequestId>,
    },
    /// To a caller that waits.
    Caller(oneshot::Sender<Answer>),
}

/// A message to an agent.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatCommand {
    /// What is said; not blank.
    pub parts: Vec<Part>,
    /// Who is addressed; `None`: the first agent.
    pub agent: Option<AgentId>,
    /// The sender's own id, which makes a resend start no second turn.
    pub client_message_id: Option<ClientMessageId>,
    /// Where it comes from.
    pub context: Option<MessageContext>,
}

/// A person's answer to an approval request.
#[derive(Debug, Clone, PartialEq)]
pub struct DecideCommand {
    /// The waiting call.
    pub call: ToolCallId,
    /// The answer.
    pub decision: Decision,
    /// Why; the model reads it on reject.
    pub reason: Option<String>,
    /// Run these arguments instead.
    pub edited_args: Option<Map<String, Value>>,
    /// Who answers.
    pub by: String,
}

/// What a session is asked.
#[derive(Debug)]
pub enum SessionCommand {
    /// Join: from now on the subscriber gets every event. First it gets what waits for an answer, unless it
    /// is about to resume, which tells it that.
    Join(ConnectionId, SubscriberRef, JoinKind),
    /// Leave: its tools leave with it.
    Leave(ConnectionId),
    /// Answer a message.
    Chat(ChatCommand, ReplyTo),
    /// Add an agent.
    AddAgent(NewAgent, ReplyTo),
    /// Remove an agent.
    RemoveAgent(AgentId, ReplyTo),
    /// Settle a waiting call.
    Decide(DecideCommand, ReplyTo),
    /// Give the session a title, or take it away.
    Rename(Option<String>, ReplyTo),
    /// End what runs and erase the session, for this reason.
    Delete(String, ReplyTo),
    /// Say which store the log is in, and where the log ends.
    Hello(ReplyTo),
    /// Say where a client that has the log up to a place goes over to live events.
    Resume(Seq, Option<String>, ReplyTo),
    /// List what waits for its turn.
    QueueList(ReplyTo),
    /// Take a waiting message out.
    QueueRemove(MessageId, ReplyTo),
    /// Give a waiting message other words.
    QueueEdit(MessageId, String, ReplyTo),
    /// List what is covered.
    RulesList(ReplyTo),
    /// Take back what is covered, for this principal.
    RulesRemove(RuleId, String, ReplyTo),
    /// Change an agent, from its next turn on.
    UpdateAgent(AgentChange, ReplyTo),
    /// Summarise the older part of an agent's history now; `None`: the first agent's.
    Compact(Option<AgentId>, ReplyTo),
    /// Stop the running turn, if it is this agent's.
    Cancel(Option<AgentId>, ReplyTo),
    /// Replace a connection's tools.
    RegisterTools(ConnectionId, Vec<ClientToolDef>, ReplyTo),
    /// A client's tool gave this back.
    ToolResult(ConnectionId, ToolCallId, Result<String, String>, ReplyTo),
    /// Change the level.
    SetAutonomy(AutonomyLevel, ReplyTo),
    /// Add a document.
    KbAdd(Collection, String, Map<String, Value>, ReplyTo),
    /// Remove a document from whichever of the session's collections has it.
    KbRemove(DocumentId, ReplyTo),
    /// Search the session's collections.
    KbSearch(KbSearchCommand, ReplyTo),
    /// List the documents of the session's collections.
    KbList(ReplyTo),
    /// Say what holds now.
    Inspect(oneshot::Sender<SessionSnapshot>),
}

impl SessionCommand {
    /// Returns where the answer goes, and the wire name of the request; `None`: nobody waits for words.
    pub(crate) fn reply_to(self) -> Option<(ReplyTo, &'static str)> {
        Some(match self {
            // The asker sees that nobody answers.
            Self::Join(..) | Self::Leave(_) | Self::Inspect(_) => return None,
            Self::Chat(_, to) => (to, "chat"),
            Self::AddAgent(_, to) => (to, "agent_add"),
            Self::RemoveAgent(_, to) => (to, "agent_remove"),
            Self::UpdateAgent(_, to) => (to, "agent_update"),
            Self::Decide(_, to) => (to, "tool_approve"),
            Self::Rename(_, to) => (to, "session_rename"),
            Self::Delete(_, to) => (to, "session_delete"),
            Self::Hello(to) => (to, "hello"),
            Self::Resume(_, _, to) => (to, "resume"),
            Self::QueueList(to) => (to, "queue_list"),
            Self::QueueRemove(_, to) => (to, "queue_remove"),
            Self::QueueEdit(_, _, to) => (to, "queue_edit"),
            Self::RulesList(to) => (to, "rules_list"),
            Self::RulesRemove(_, _, to) => (to, "rules_remove"),
            Self::Compact(_, to) => (to, "compact"),
            Self::Cancel(_, to) => (to, "cancel"),
            Self::RegisterTools(_, _, to) => (to, "mcp_tools"),
            Self::ToolResult(_, _, _, to) => (to, "mcp_result"),
            Self::SetAutonomy(_, to) => (to, "set_autonomy"),
            Self::KbAdd(_, _, _, to) => (to, "kb_add"),
            Self::KbRemove(_, to) => (to, "kb_remove"),
            Self::KbSearch(_, to) => (to, "kb_search"),
            Self::KbList(to) => (to, "kb_list"),
        })
    }
}

/// What a subscriber that joins is sent at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinKind {
    /// What waits for an answer.
    Pending,
    /// Nothing: it resumes.
    Resumes,
    /// Nothing: it resumes, and only reads. Nothing begins because it is there.
    Watches,
}

/// A change of an agent; what is `None` stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentChange {
    /// Which agent.
    pub id: AgentId,
    /// Whose model, and which; alone, a model is one of the default provider.
    pub engine: Option<EngineChoice>,
    /// Its name.
    pub name: Option<String>,
    /// What it is to reach.
    pub goal: Option<String>,
}

/// A search in a session's collections.
#[derive(Debug, Clone, PartialEq)]
pub struct KbSearchCommand {
    /// What to look for.
    pub query: String,
    /// Most hits.
    pub limit: usize,
    /// Lowest score.
    pub threshold: f64,
}

/// A subscriber that can be named in a command.
#[derive(Clone)]
pub struct SubscriberRef(pub Arc<dyn Subscriber>);

impl std::fmt::Debug for SubscriberRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Subscriber")
    }
}

/// What holds for a session now.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionSnapshot {
    /// Its title.
    pub title: Option<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When its log last grew.
    pub updated_at: Timestamp,
    /// The last event's place.
    pub head_seq: u64,
    /// What its agents may do without asking.
    pub autonomy: AutonomyLevel,
    /// Its agents.
    pub agents: Vec<Agent>,
    /// The agent that works on a reply.
    pub thinking: Option<AgentId>,
    /// The tools on offer, by name.
    pub tools: Vec<String>,
    /// What runs unasked since an `always`, oldest first.
    pub grants: Vec<Grant>,
    /// What waits for an answer, oldest first.
    pub pending: Vec<ApprovalRequest>,
    /// The first agent's model takes pictures.
    pub accepts_images: bool,
}

/// Through which a session is asked. While one lives, so does the session.
#[derive(Debug, Clone)]
pub struct SessionHandle {
    commands: mpsc::Sender<Letter>,
    identity: Arc<SessionIdentity>,
    log: Log,
    lifetime: Lifetime,
}

/// A command on its way. It carries a handle, so that the session lives until the command is done, though
/// its sender has left meanwhile.
#[derive(Debug)]
pub(crate) struct Letter {
    pub(crate) command: SessionCommand,
    pub(crate) sender: SessionHandle,
}

/// What never changes of a session.
#[derive(Debug)]
pub struct SessionIdentity {
    /// The store's key.
    pub key: SessionKey,
    /// Whose.
    pub principal: String,
    /// Its id.
    pub id: SessionId,
    /// Where its tools work.
    pub workspace: Arc<Workspace>,
}

impl SessionIdentity {
    /// Returns the session's own collection.
    pub fn own_collection(&self) -> Collection {
        Collection::Session(self.key)
    }

    /// Returns the collection of the session's folder.
    pub fn project_collection(&self) -> Collection {
        Collection::project(&self.principal, self.workspace.root())
    }

    /// Returns the collection of the session's principal.
    pub fn user_collection(&self) -> Collection {
        Collection::User(self.principal.clone())
    }

    /// Returns every collection that the session searches, its own first.
    pub fn collections(&self) -> Vec<Collection> {
        vec![self.own_collection(), self.project_collection(), self.user_collection()]
    }
}

/// A command could not be handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The session has too much to do.
    #[error("the session has {MAILBOX} requests waiting; try again")]
    Full,
    /// The session is gone.
    #[error("the session has ended: it was deleted, or the server is stopping")]
    Closed,
}

impl SendError {
    /// Returns the wire's code for it.
    pub fn code(self) -> ErrorCode {
        match self {
            Self::Full => ErrorCode::Limit,
            Self::Closed => ErrorCode::SessionNotFound,
        }
    }
}

impl SessionHandle {
    /// Returns what never changes of the session.
    pub fn identity(&self) -> &SessionIdentity {
        &self.identity
    }

    /// Whether the session has ended, so that nothing more is answered.
    pub fn is_closed(&self) -> bool {
        self.commands.is_closed()
    }

    /// Whether the session lives in memory only.
    pub fn is_temporary(&self) -> bool {
        self.lifetime == Lifetime::Temporary
    }

    /// Returns the session's log, which may be read without asking the session.
    pub fn log(&self) -> &Log {
        &self.log
    }

    fn letter(&self, command: SessionCommand) -> Letter {
        Letter { command, sender: self.clone() }
    }

    /// Hands a command over without waiting.
    ///
    /// # Errors
    /// [`SendError`] when the mailbox is full or the server stops.
    pub fn try_send(&self, command: SessionCommand) -> Result<(), SendError> {
        self.commands.try_send(self.letter(command)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => SendError::Full,
            mpsc::error::TrySendError::Closed(_) => SendError::Closed,
        })
    }

    /// Hands a command over, waiting for room. For what must not be lost, such as leaving.
    pub async fn send(&self, command: SessionCommand) -> Result<(), SendError> {
        self.commands.send(self.letter(command)).await.map_err(|_| SendError::Closed)
    }

    /// Hands a command over and waits for its answer.
    ///
    /// # Errors
    /// [`SendError`] when the mailbox is full or the server stops.
    pub async fn ask(&self, command: impl FnOnce(ReplyTo) -> SessionCommand) -> Result<Answer, SendError> {
        let (reply, answer) = oneshot::channel();
        self.try_send(command(ReplyTo::Caller(reply)))?;
        answer.await.map_err(|_| SendError::Closed)
    }

    /// Asks what holds now.
    ///
    /// # Errors
    /// [`SendError`] when the mailbox is full or the server stops.
    pub async fn inspect(&self) -> Result<SessionSnapshot, SendError> {
        let (reply, answer) = oneshot::channel();
        self.try_send(SessionCommand::Inspect(reply))?;
        answer.await.map_err(|_| SendError::Closed)
    }
}
