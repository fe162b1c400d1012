//! The seam to storage: sessions, the append-only log, documents. No SQL here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use tns_protocol::approval::{AuditDecision, AutonomyLevel};
use tns_protocol::{AgentId, ClientMessageId, DocumentId, ErrorCode, MessageId, Seq, SessionId, Timestamp};

use crate::agent::Agent;
use crate::approval::{AuditRecord, Grant};
use crate::event::{DurableEvent, EventKind};

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
    /// Turns without an end: at most one runs, the others wait in this order.
    #[serde(default)]
    pub open_turns: Vec<OpenTurn>,
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
    /// Store only if.
    pub condition: Option<Condition>,
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

/// Where an event was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Its place in the session's log: from 1, without gaps.
    pub seq: Seq,
    /// Its place in the store: rises strictly in commit order, may have gaps.
    pub gseq: u64,
    /// When it was stored.
    pub at: Timestamp,
}

/// A stored event.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredEvent {
    /// Where.
    pub place: Place,
    /// The turn it belongs to.
    pub turn: Option<MessageId>,
    /// The event.
    pub event: DurableEvent,
}

/// Which events of a log to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventQuery {
    /// Only those after this place.
    pub after: Seq,
    /// Only those before this place; `None`: to the end.
    pub before: Option<Seq>,
    /// At most so many.
    pub limit: usize,
    /// Only these kinds; `None`: all.
    pub kinds: Option<&'static [EventKind]>,
}

/// Most events of one page.
pub const MAX_PAGE_EVENTS: usize = 500;
/// Most bytes of stored bodies in one page; a page holds at least one event.
pub const MAX_PAGE_BYTES: usize = 1 << 20;

/// A page of a log, ascending.
#[derive(Debug, Clone, PartialEq)]
pub struct EventPage {
    /// The events.
    pub events: Vec<StoredEvent>,
    /// There are more after the last one.
    pub more: bool,
    /// The log's last place.
    pub head_seq: Seq,
}

/// Most sessions of one page.
pub const MAX_PAGE_SESSIONS: usize = 500;

/// A page of sessions, the one whose log grew last first.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionPage {
    /// The sessions.
    pub sessions: Vec<SessionRecord>,
    /// Give this for the next page.
    pub next: Option<SessionCursor>,
}

/// Where a page of sessions goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionCursor {
    /// Sessions whose log grew at or before this time …
    pub updated_at: Timestamp,
    /// … and, at the same time, with a smaller key.
    pub key: SessionKey,
}

/// Which audit records to read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditQuery {
    /// Of this session; `None`: of the whole store.
    pub session: Option<SessionKey>,
    /// Only those at or after this time.
    pub since: Option<Timestamp>,
    /// Only those decided so.
    pub decision: Option<AuditDecision>,
    /// At most so many, the newest; given back oldest first.
    pub limit: usize,
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
            Self::Newer(_) | Self::Failed(_) => ErrorCode::Internal,
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

    /// Reads a page of a log.
    async fn events(&self, session: SessionKey, query: EventQuery) -> Result<EventPage, StoreError>;

    /// Lists the sessions that have turns without an end.
    async fn sessions_with_open_turns(&self) -> Result<Vec<SessionRecord>, StoreError>;

    /// Reads audit records with their sessions, oldest first.
    async fn audit(&self, query: AuditQuery) -> Result<Vec<(SessionId, AuditRecord)>, StoreError>;

    /// Whether the store can be read and written.
    async fn check(&self) -> Result<(), StoreError>;
}

/// A set of documents that is searched as one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Collection {
    /// One session's.
    Session(SessionKey),
    /// One folder's, by digest: every session of a principal that works there.
    Project(String),
    /// One principal's.
    User(String),
}

impl Collection {
    /// Returns the collection of a principal's folder.
    pub fn project(principal: &str, workspace: &Path) -> Self {
        let mut hash = Sha256::new();
        hash.update(principal.as_bytes());
        hash.update([0]);
        hash.update(workspace.as_os_str().as_encoded_bytes());
        Self::Project(hex(&hash.finalize()[..16]))
    }

    /// Returns the stable text of the collection, as a store keeps it.
    pub fn as_text(&self) -> String {
        match self {
            Self::Session(key) => format!("session:{}", key.0),
            Self::Project(digest) => format!("project:{digest}"),
            Self::User(principal) => format!("user:{principal}"),
        }
    }

    /// Returns the id that this content has in this collection.
    pub fn document_id(&self, content: &str) -> DocumentId {
        let mut hash = Sha256::new();
        hash.update(self.as_text().as_bytes());
        hash.update([0]);
        hash.update(content.as_bytes());
        let id = format!("doc-{}", hex(&hash.finalize()[..16]));
        match DocumentId::parse(id) {
            Ok(id) => id,
            Err(_) => unreachable!("a hex digest is a valid id"),
        }
    }
}

/// Writes bytes as lower-case hex digits.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing into a String can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A document to be stored.
#[derive(Debug, Clone, PartialEq)]
pub struct NewDocument {
    /// Where.
    pub collection: Collection,
    /// Its id: [`Collection::document_id`].
    pub id: DocumentId,
    /// Its text.
    pub content: String,
    /// Anything that comes back with a hit.
    pub metadata: Map<String, Value>,
}

/// A stored document.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Its id.
    pub id: DocumentId,
    /// Its text.
    pub content: String,
    /// Anything that comes back with a hit.
    pub metadata: Map<String, Value>,
}

/// A document in a list.
#[derive(Debug, Clone, PartialEq)]
pub struct DocumentInfo {
    /// Its id.
    pub id: DocumentId,
    /// Its first 100 characters.
    pub preview: String,
    /// Its length in characters.
    pub content_length: u64,
    /// Its metadata.
    pub metadata: Map<String, Value>,
}

/// A change of a collection, in the store's order.
#[derive(Debug, Clone, PartialEq)]
pub struct DocumentChange {
    /// Its place in the store.
    pub gseq: u64,
    /// The collection.
    pub collection: String,
    /// The document's id.
    pub id: DocumentId,
    /// The document; `None`: it was removed.
    pub document: Option<Document>,
}

/// Documents. They are written by [`Store::append`], together with the event that announces them.
#[async_trait]
pub trait DocumentStore: Send + Sync + 'static {
    /// Lists a collection's documents, oldest first.
    async fn documents(&self, collection: &Collection) -> Result<Vec<DocumentInfo>, StoreError>;

    /// Counts the documents of each of these collections that has any, by [`Collection::as_text`].
    async fn document_counts(&self, collections: &[Collection]) -> Result<BTreeMap<String, u64>, StoreError>;

    /// Reads the changes after a place, ascending, at most `limit`. Only a document's last change is kept.
    async fn document_changes(&self, after: u64, limit: usize) -> Result<Vec<DocumentChange>, StoreError>;

    /// Returns the place of the last change; 0: none. Cheap: it is asked before every search.
    async fn document_head(&self) -> Result<u64, StoreError>;
}

/// A passage found.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// The document.
    pub document: DocumentId,
    /// Its best passage.
    pub content: String,
    /// How well it fits: 0 to 1.
    pub score: f64,
    /// The document's metadata, with `startLine` and `endLine` of the passage.
    pub metadata: Map<String, Value>,
}

/// What to look for.
#[derive(Debug, Clone, PartialEq)]
pub struct KnowledgeQuery {
    /// Where: hits of all of them are ranked together.
    pub collections: Vec<Collection>,
    /// A question or words; any text is fine.
    pub text: String,
    /// Most hits.
    pub limit: usize,
    /// Lowest score.
    pub threshold: f64,
}

/// Finds passages.
#[async_trait]
pub trait Knowledge: Send + Sync + 'static {
    /// Searches everything that was stored before the call. A text without words finds nothing.
    ///
    /// # Errors
    /// The reason in one line.
    async fn search(&self, query: KnowledgeQuery) -> Result<Vec<Hit>, KnowledgeError>;

    /// Whether it can search.
    async fn check(&self) -> Result<(), KnowledgeError>;
}

/// A search failed; what is stored is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KnowledgeError(pub String);
