//! The seam to storage: sessions, the append-only log, documents. No SQL here.

mod document;
mod draft;
mod import;
mod log;
mod search;

use std::ops::RangeInclusive;
use std::path::PathBuf;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tns_protocol::approval::AutonomyLevel;
use tns_protocol::{
    AgentId, ClientMessageId, Day, DocumentId, ErrorCode, MessageId, Seq, SessionId, Timestamp,
};

use crate::agent::Agent;
use crate::approval::{AuditRecord, Grant};
use crate::event::DurableEvent;
use crate::usage::{Money, UsageRow};

pub use document::{
    Collection, Document, DocumentChange, DocumentInfo, DocumentStore, Hit, Knowledge, KnowledgeError,
    KnowledgeQuery, NewDocument, hex,
};
pub use draft::{Draft, DraftStep};
pub use import::{ImportKey, ImportedEvent, NewImport};
pub use log::{
    AuditQuery, EventPage, EventQuery, MAX_PAGE_BYTES, MAX_PAGE_EVENTS, MAX_PAGE_SCAN, MAX_PAGE_SESSIONS,
    Place, Score, SessionCursor, SessionPage, StoredEvent, StreamEvent, StreamPage, Take,
};
pub use search::{MAX_PAGE_HITS, SearchCursor, SearchHit, SearchPage, SearchQuery, SearchSource};

/// The principal of a local client of the server's own user.
pub const LOCAL_PRINCIPAL: &str = "local";

/// A store's own key of a session; names it in every call after it is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SessionKey(pub i64);

/// A session as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionRecord {
    /// The store's key.
    pub key: SessionKey,
    /// Whose session.
    pub principal: String,
    /// Its id, unique for its principal.
    pub id: SessionId,
    /// Its title.
    pub title: Option<String>,
    /// The folder its tools work in, fixed when it is made.
    pub workspace: PathBuf,
    /// Changes only when the store is restored or made anew.
    pub epoch: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When its log last grew.
    pub updated_at: Timestamp,
    /// The last event's place; 0 for an empty log.
    pub head_seq: Seq,
    /// What holds now.
    pub state: SessionState,
}

/// What holds for a session now, kept beside the log and written with the events that change it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SessionState {
    /// What its agents may do without asking.
    #[serde(default)]
    pub autonomy: AutonomyLevel,
    /// Its agents; the first one answers.
    #[serde(default)]
    pub agents: Vec<Agent>,
    /// What was approved with `always`.
    #[serde(default)]
    pub grants: Vec<Grant>,
    /// Data of class SENSITIVE was read, so nothing goes to the network unasked any more.
    #[serde(default)]
    pub read_sensitive: bool,
    /// Most that it may spend, in US dollars; `None`: no more limit than any other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<f64>,
    /// Whose title it has.
    #[serde(default)]
    pub title: TitleOf,
    /// Turns without an end: at most one runs, the others wait in this order.
    #[serde(default)]
    pub open_turns: Vec<OpenTurn>,
}

/// Where a session's title comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TitleOf {
    /// From whoever made the session; without a title the first message gives one.
    #[default]
    Start,
    /// From its first message: the model may find a better one.
    FirstMessage,
    /// From a person or a model, who also may have taken it away. It stays.
    Settled,
}

/// A turn without an end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenTurn {
    /// The user's message that it answers.
    pub id: MessageId,
    /// Who answers.
    pub agent: AgentId,
    /// It waits; `false`: it runs, or ran when the server died.
    pub waiting: bool,
}

/// A session to be made.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSession {
    /// Whose.
    pub principal: String,
    /// Its id.
    pub id: SessionId,
    /// Its title.
    pub title: Option<String>,
    /// The folder its tools work in.
    pub workspace: PathBuf,
    /// What holds at first.
    pub state: SessionState,
}

/// Events to be stored together.
#[derive(Debug, Clone, PartialEq)]
pub struct Append {
    /// The session.
    pub session: SessionKey,
    /// In their order.
    pub events: Vec<NewEvent>,
    /// What holds after them; `None`: as before.
    pub state: Option<SessionState>,
    /// The session's title after them; `None`: as before, `Some(None)`: no title.
    pub title: Option<Option<String>>,
    /// Store only if.
    pub condition: Option<Condition>,
}

impl Append {
    /// Makes an append of events and nothing else.
    pub fn new(session: SessionKey, events: Vec<NewEvent>) -> Self {
        Self { session, events, state: None, title: None, condition: None }
    }
}

/// An event to be stored.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    /// The turn it belongs to.
    pub turn: Option<MessageId>,
    /// The event.
    pub event: DurableEvent,
}

/// When an append takes effect. Checked and done in the same transaction.
#[derive(Debug, Clone, PartialEq)]
pub enum Condition {
    /// Only if the session has no message with this id of the sender's yet.
    NewMessage(ClientMessageId),
    /// Only if the collection has no document with this id; the document is stored with the events.
    NewDocument(NewDocument),
    /// Only if the collection has the document; it is removed with the events.
    RemoveDocument(Collection, DocumentId),
}

/// What became of an append.
#[derive(Debug, Clone, PartialEq)]
pub enum Appended {
    /// All events are stored, in order.
    Stored(Vec<Place>),
    /// The condition did not hold; nothing changed.
    Unchanged,
}

/// Why the store did not do it. Nothing was acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The disk is full.
    #[error("the disk of the data folder is full; free some space and try again")]
    Full,
    /// Another process holds the store, or too much waits.
    #[error("the store is busy; try again")]
    Busy,
    /// The store was written by a newer version.
    #[error("{0}")]
    Newer(String),
    /// There is no session with this key; it may have been deleted meanwhile.
    #[error("the session is not there any more")]
    NoSession,
    /// The store's file can't be written.
    #[error("the store can't be written: {0}; make its file and its folder writable")]
    ReadOnly(String),
    /// A part of the store's file can't be understood; the rest stays readable.
    #[error("the store's file is damaged: {0}; copy it before anything else, then restore a backup")]
    Damaged(String),
    /// Anything else.
    #[error("the store failed: {0}")]
    Failed(String),
}

impl StoreError {
    /// Returns the wire's code for it.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Full => ErrorCode::StorageFull,
            Self::Busy => ErrorCode::StorageBusy,
            Self::NoSession => ErrorCode::SessionNotFound,
            Self::Newer(_) | Self::ReadOnly(_) | Self::Damaged(_) | Self::Failed(_) => ErrorCode::Internal,
        }
    }
}

/// Sessions and their logs.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Makes a session; an existing one with the same principal and id is given back unchanged.
    /// The flag says whether it was made.
    async fn create_session(&self, new: NewSession) -> Result<(SessionRecord, bool), StoreError>;

    /// Finds a session. A read never makes one.
    async fn find_session(
        &self,
        principal: &str,
        id: &SessionId,
    ) -> Result<Option<SessionRecord>, StoreError>;

    /// Lists a principal's sessions.
    async fn list_sessions(
        &self,
        principal: &str,
        after: Option<SessionCursor>,
        limit: usize,
    ) -> Result<SessionPage, StoreError>;

    /// Stores events with their `seq`, the session's new state and the condition's document in one
    /// transaction, durable when the future is ready. The append takes its place in the order of
    /// writes when this is called, not when the future is polled, and is done even if the future is dropped.
    fn append(&self, append: Append) -> BoxFuture<'static, Result<Appended, StoreError>>;

    /// Adds a piece to what is written of a running step; another step than before begins anew. It is there for
    /// whoever opens the store after the process was killed, though not after the machine was. Does not wait; where
    /// it can't be kept, that is logged and nothing else is lost.
    fn write_draft(&self, session: SessionKey, step: &DraftStep, piece: &str);

    /// Forgets what is written of a running step.
    fn clear_draft(&self, session: SessionKey);

    /// Reads what was written of the step that ran last. It may have been stored since.
    async fn draft(&self, session: SessionKey) -> Result<Option<Draft>, StoreError>;

    /// Erases a session: its log, its state, its own documents, what people thought of its messages and what
    /// finds them. The erased text is not left in the store's files. A document erased shows as a removal in
    /// [`DocumentStore::document_changes`], and the key is never given again. `false`: there was none.
    async fn delete_session(&self, session: SessionKey) -> Result<bool, StoreError>;

    /// Lists sessions of every principal whose log has not grown since before this time, the longest idle first,
    /// at most `limit` and at most [`MAX_PAGE_SESSIONS`]. Whether one is in use is the caller's to know.
    async fn sessions_idle_since(
        &self,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<SessionRecord>, StoreError>;

    /// Makes a session with a copy of the events 1 to `at_seq` of another, in one transaction. Places count from
    /// 1 in the new log, times and the senders' message ids stay as they were, and so does what people thought of
    /// the messages. The session's own documents that were added by then and are still there are copied, under
    /// the ids that they have in the new session's collection; the copied events name those. A copy decided
    /// nothing: audit records stay the first session's. What holds in the new session is `new.state`.
    ///
    /// An existing session with the same principal and id is given back unchanged; the flag says whether it was made.
    ///
    /// # Errors
    /// Also [`StoreError::Failed`] where the log does not reach `at_seq`.
    async fn fork_session(
        &self,
        from: SessionKey,
        at_seq: Seq,
        new: NewSession,
    ) -> Result<(SessionRecord, bool), StoreError>;

    /// Begins to take a session in. Nothing of it is seen before [`Store::finish_import`], and what is not
    /// finished when the store closes is thrown away. `None`: the principal has a session with this id.
    async fn begin_import(&self, new: NewImport) -> Result<Option<ImportKey>, StoreError>;

    /// Adds events behind those that the import has; their places are counted from 1.
    async fn import_events(&self, import: ImportKey, events: Vec<ImportedEvent>) -> Result<(), StoreError>;

    /// Makes the session with all events of the import, and with what holds after them, in one transaction. Its log
    /// grows now, so it is not idle, though its events keep their times. `None`: meanwhile the principal got a
    /// session with this id; the import is thrown away.
    async fn finish_import(
        &self,
        import: ImportKey,
        state: SessionState,
    ) -> Result<Option<SessionRecord>, StoreError>;

    /// Throws an import away. One that is not there is no error.
    async fn abandon_import(&self, import: ImportKey) -> Result<(), StoreError>;

    /// Searches the titles and the messages of a principal's sessions. Any text is fine and none is syntax.
    async fn search(&self, query: SearchQuery) -> Result<SearchPage, StoreError>;

    /// Keeps what a person thinks of a message of the session, or forgets it. `false`: there is no such message.
    async fn rate(
        &self,
        session: SessionKey,
        message: &MessageId,
        score: Option<Score>,
    ) -> Result<bool, StoreError>;

    /// Reads the events after a place of the whole store, of one principal or of all, at most `limit` and at
    /// most a page as [`Store::events`] has it. A session that was forked or taken in shows as new events.
    async fn events_since(
        &self,
        gseq: u64,
        principal: Option<&str>,
        limit: usize,
    ) -> Result<StreamPage, StoreError>;

    /// Returns a place that no stored event lies behind. Cheap.
    async fn head_gseq(&self) -> Result<u64, StoreError>;

    /// Returns the store's name. It changes when the store is made anew or restored; places of another epoch
    /// mean nothing.
    fn epoch(&self) -> String;

    /// Reads a page of a log.
    async fn events(&self, session: SessionKey, query: EventQuery) -> Result<EventPage, StoreError>;

    /// Lists the sessions that have turns without an end.
    async fn sessions_with_open_turns(&self) -> Result<Vec<SessionRecord>, StoreError>;

    /// Reads audit records with their sessions, oldest first.
    async fn audit(&self, query: AuditQuery) -> Result<Vec<(SessionId, AuditRecord)>, StoreError>;

    /// Sums up what was used on these days over all sessions, erased ones included: by day, provider and model,
    /// in this order. What a step used is added when the step is stored ([`UsageRow::of`]).
    async fn usage(&self, days: RangeInclusive<Day>) -> Result<Vec<UsageRow>, StoreError>;

    /// Adds what was used by a session that is not this store's, such as one in memory.
    async fn add_usage(&self, row: UsageRow) -> Result<(), StoreError>;

    /// Returns what a session's steps have cost, on all days.
    async fn session_cost(&self, session: SessionKey) -> Result<Money, StoreError>;

    /// Whether the store can be read and written.
    async fn check(&self) -> Result<(), StoreError>;
}
