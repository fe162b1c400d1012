//! What only a store in a file can show. What every store must do is tried by the shared suite.

mod damage;
mod erasing;
mod indexing;
mod inspection;
mod opening;
mod pressure;
mod trouble;
mod usage;

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use tns_protocol::approval::{AuditDecision, RiskClass};
use tns_protocol::{AgentId, ErrorCode, MessageId, SessionId, Timestamp, ToolCallId};
use tns_server_core::approval::AuditRecord;
use tns_server_core::event::{AssistantMessage, DurableEvent, MessageStatus, TurnFailed, UserMessage};
use tns_server_core::message::Part;
use tns_server_core::store::{
    Append, Appended, Collection, Condition, EventQuery, LOCAL_PRINCIPAL, NewDocument, NewEvent, NewImport,
    NewSession, OpenTurn, Place, SessionKey, SessionRecord, SessionState, Store, StoreError, StoredEvent,
};

use super::index::Block;
use super::{Options, SqliteStore};

/// A folder for one store.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("tns.db")
    }

    fn companion(&self, suffix: &str) -> PathBuf {
        self.0.path().join(format!("tns.db-{suffix}"))
    }

    fn open(&self) -> SqliteStore {
        crate::open(&self.file()).unwrap()
    }

    fn open_with(&self, options: &Options) -> SqliteStore {
        SqliteStore::open(&self.file(), options).unwrap()
    }

    /// Opens it so that the index of messages follows at once.
    fn open_following(&self) -> SqliteStore {
        self.open_with(&Options { quiet: Duration::ZERO, ..Options::default() })
    }

    /// Waits until the index has all messages.
    async fn indexed(&self) {
        let behind =
            "SELECT (SELECT max(gseq) FROM events) > (SELECT value + 0 FROM meta WHERE key = 'search_to')
             OR (SELECT value + 0 FROM meta WHERE key = 'search_from')";
        let stranger = self.stranger();
        while stranger.query_row(behind, [], |row| row.get(0)).unwrap() {
            tokio::task::yield_now().await;
        }
    }

    /// How many rows of the index have a word, in any block.
    fn rows_with(&self, word: &str) -> i64 {
        let stranger = self.stranger();
        let last = stranger.query_row("SELECT max(gseq) FROM events", [], |row| row.get(0)).unwrap();
        let mut count = 0;
        let mut block = Some(Block::of(super::unsigned(last)));
        while let Some(this) = block {
            let mut term = String::new();
            this.push_term(word, &mut term);
            let count_sql = "SELECT count(*) FROM search WHERE search MATCH ?1";
            let rows: i64 = stranger.query_row(count_sql, [format!("\"{term}\"")], |row| row.get(0)).unwrap();
            count += rows;
            block = this.before();
        }
        stranger.execute("INSERT INTO search (search) VALUES ('integrity-check')", []).unwrap();
        count
    }

    /// Another process, as far as SQLite can tell.
    fn stranger(&self) -> Connection {
        open_raw(&self.file())
    }
}

/// A session to be taken in.
fn new_import(id: &str) -> NewImport {
    let NewSession { principal, id, title, workspace, .. } = new_session(id);
    NewImport { principal, id, title, workspace, created_at: Timestamp::from_micros(1) }
}

fn open_raw(path: &Path) -> Connection {
    Connection::open(path).unwrap()
}

fn new_session(id: &str) -> NewSession {
    NewSession {
        principal: LOCAL_PRINCIPAL.into(),
        id: SessionId::parse(id).unwrap(),
        title: None,
        workspace: "/work".into(),
        state: SessionState::default(),
    }
}

async fn make(store: &SqliteStore, id: &str) -> SessionKey {
    store.create_session(new_session(id)).await.unwrap().0.key
}

async fn find(store: &SqliteStore, id: &str) -> Result<Option<SessionRecord>, StoreError> {
    store.find_session(LOCAL_PRINCIPAL, &SessionId::parse(id).unwrap()).await
}

/// An event that carries a text and nothing else.
fn line(text: impl Into<String>) -> NewEvent {
    NewEvent {
        turn: None,
        event: DurableEvent::TurnFailed(TurnFailed { code: ErrorCode::Internal, message: text.into() }),
    }
}

fn says(text: &str) -> NewEvent {
    let id = MessageId::parse("m-1").unwrap();
    let message = UserMessage {
        id: id.clone(),
        agent: AgentId::parse("helper-00000000").unwrap(),
        parts: vec![Part::Text(text.into())],
        client_message_id: None,
        context: None,
        queued: false,
        during: None,
    };
    NewEvent { turn: Some(id), event: DurableEvent::UserMessage(message) }
}

fn replies(text: &str) -> NewEvent {
    let message = AssistantMessage {
        id: MessageId::parse("m-2").unwrap(),
        agent: AgentId::parse("helper-00000000").unwrap(),
        parts: vec![Part::Text(text.into())],
        model: "m".into(),
        native: None,
        notes: vec![],
        status: MessageStatus::Complete,
        response: None,
        usage: None,
        provider: None,
        counted_on: None,
    };
    NewEvent { turn: Some(MessageId::parse("m-1").unwrap()), event: DurableEvent::AssistantMessage(message) }
}

fn audited(call: &str) -> NewEvent {
    let record = AuditRecord {
        call: ToolCallId::parse(call).unwrap(),
        agent: AgentId::parse("helper-00000000").unwrap(),
        tool: "shell".into(),
        class: RiskClass::Exec,
        reasons: vec![],
        decision: AuditDecision::Approved,
        by: LOCAL_PRINCIPAL.into(),
        at: Timestamp::from_micros(1_000),
        summary: "make".into(),
        args_digest: String::new(),
    };
    NewEvent { turn: None, event: DurableEvent::Audited(record) }
}

fn plain(session: SessionKey, events: Vec<NewEvent>) -> Append {
    Append::new(session, events)
}

fn adding(session: SessionKey, content: &str) -> Append {
    let collection = Collection::Session(session);
    let id = collection.document_id(content);
    let event = NewEvent { turn: None, event: DurableEvent::KbAdded(id.clone()) };
    let document = NewDocument { collection, id, content: content.into(), metadata: serde_json::Map::new() };
    Append { condition: Some(Condition::NewDocument(document)), ..plain(session, vec![event]) }
}

fn open_turn() -> SessionState {
    let turn = OpenTurn {
        id: MessageId::parse("m-1").unwrap(),
        agent: AgentId::parse("helper-00000000").unwrap(),
        waiting: false,
    };
    SessionState { open_turns: vec![turn], ..SessionState::default() }
}

async fn stored(store: &SqliteStore, append: Append) -> Vec<Place> {
    match store.append(append).await.unwrap() {
        Appended::Stored(places) => places,
        Appended::Unchanged => panic!("the append changed nothing"),
    }
}

fn first(limit: usize) -> EventQuery {
    EventQuery { limit, ..EventQuery::default() }
}

async fn log(store: &SqliteStore, session: SessionKey) -> Vec<StoredEvent> {
    store.events(session, first(usize::MAX)).await.unwrap().events
}
