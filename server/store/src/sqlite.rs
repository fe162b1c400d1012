//! The store on SQLite: who does what is settled here, the SQL stands in the modules below.

mod append;
mod chores;
mod connection;
mod document;
mod drafts;
mod error;
mod index;
mod inspect;
mod log;
mod migrate;
mod reader;
mod search;
mod session;
#[cfg(test)]
mod tests;
mod transfer;
mod usage;
mod writer;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension as _};
use tns_protocol::{Day, MessageId, Seq, SessionId, Timestamp};
use tns_server_core::approval::AuditRecord;
use tns_server_core::store::{
    Append, Appended, AuditQuery, Collection, DocumentChange, DocumentInfo, DocumentStore, Draft, DraftStep,
    EventPage, EventQuery, ImportKey, ImportedEvent, NewImport, NewSession, Score, SearchPage, SearchQuery,
    SessionCursor, SessionKey, SessionPage, SessionRecord, SessionState, Store, StoreError, StreamPage,
};
use tns_server_core::usage::{Money, UsageRow};
use uuid::Uuid;

use append::AppendEvents;
use drafts::Drafts;
use error::Fault;
pub(crate) use inspect::inspect;
pub use inspect::{Inspection, Pages};
use log::Rate;
use reader::Readers;
use session::{CreateSession, DeleteSession};
use transfer::{AbandonImport, BeginImport, FinishImport, ForkSession, ImportEvents};
use usage::AddUsage;
use writer::{Work, Write, Writer};

/// How long a write waits, from its call on, while another process holds the store.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// How long nothing is written before the index of messages follows: the events of a turn come together, and none
/// of them should wait for a flush that is not its own.
const QUIET: Duration = Duration::from_secs(1);

/// What a test sets differently.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// How long a write waits, from its call on, while another process holds the store.
    busy_timeout: Duration,
    /// Most pages (of 4 KiB) that the file may have; beyond, the disk counts as full. `None`: no limit.
    max_pages: Option<u32>,
    /// How long nothing is written before the index of messages follows.
    quiet: Duration,
    /// Lets one of the writer's own statements fail.
    #[cfg(test)]
    failing: writer::Failing,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            busy_timeout: BUSY_TIMEOUT,
            max_pages: None,
            quiet: QUIET,
            #[cfg(test)]
            failing: writer::Failing::default(),
        }
    }
}

/// The store in one file. Dropped, it writes what was handed over, then closes; that may take as long
/// as a few commits, so a server drops it when its async work is done.
///
/// A stored body that can't be read, by damage or because a newer version wrote it, is left out of
/// pages and lists and logged as an error with its session and place; everything else stays readable.
/// Asking for the session itself whose state can't be read fails: it is never made anew.
pub struct SqliteStore {
    // First, so that the readers are gone when the writer closes the file and folds its log into it.
    readers: Readers,
    writer: Writer,
    shared: Arc<Shared>,
    drafts: Arc<Drafts>,
    epoch: String,
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

/// What the writer tells everybody after a commit.
#[derive(Debug, Default)]
struct Shared {
    /// The place of the last committed change of a document.
    document_head: AtomicU64,
    /// A place that no committed event lies behind.
    head: AtomicU64,
    /// Transactions committed so far.
    commits: AtomicU64,
    /// A search met damage in the index of messages.
    index_damaged: AtomicBool,
}

/// The store's counters, owned by the writer. A place that is not committed leaves a gap.
#[derive(Debug, Clone, Copy)]
struct Numbers {
    last_gseq: u64,
    document_head: u64,
}

impl Numbers {
    fn load(connection: &Connection) -> Result<Self, Fault> {
        let last = |table: &str| -> Result<u64, Fault> {
            let sql = format!("SELECT coalesce(max(gseq), 0) FROM {table}");
            Ok(unsigned(connection.query_row(&sql, [], |row| row.get(0))?))
        };
        let (event, document_head) = (last("events")?, last("documents")?);
        let kept: Option<String> = connection
            .query_row("SELECT value FROM meta WHERE key = 'last_gseq'", [], |row| row.get(0))
            .optional()?;
        let kept = kept.and_then(|kept| kept.parse().ok()).unwrap_or(0);
        // The index may have gone over places that were given and not kept: what came there now would never follow.
        let indexed = index::Covered::read(connection)?.to;
        Ok(Self { last_gseq: event.max(document_head).max(kept).max(indexed), document_head })
    }

    /// Writes down the last place: the events that had it are erased, and it must not be given again.
    fn keep(&self, connection: &Connection) -> Result<bool, Fault> {
        connection
            .prepare_cached(
                "INSERT INTO meta (key, value) VALUES ('last_gseq', ?1) ON CONFLICT DO UPDATE SET value = ?1",
            )?
            .execute([self.last_gseq.to_string()])?;
        Ok(true)
    }

    /// Takes so many places and returns the one before the first.
    fn take(&mut self, count: u64) -> u64 {
        let base = self.last_gseq;
        self.last_gseq += count;
        base
    }

    fn next_gseq(&mut self) -> u64 {
        self.last_gseq += 1;
        self.last_gseq
    }
}

impl SqliteStore {
    pub(crate) fn open(path: &Path, options: &Options) -> Result<Self, StoreError> {
        let connection = connection::open_writer(path, options)?;
        chores::bury_unfinished_imports(&connection)?;
        let numbers = Numbers::load(&connection)?;
        let epoch = connection
            .query_row("SELECT value FROM meta WHERE key = 'epoch'", [], |row| row.get(0))
            .map_err(Fault::from)?;
        let shared = Arc::new(Shared::default());
        shared.document_head.store(numbers.document_head, Ordering::Release);
        shared.head.store(numbers.last_gseq, Ordering::Release);
        let readers = Readers::start(path, options.busy_timeout)?;
        let writer = Writer::start(connection, numbers, Arc::clone(&shared), options)?;
        let drafts = Arc::new(Drafts::beside(path));
        Ok(Self { readers, writer, shared, drafts, epoch })
    }
}

/// Gives a store that nobody has open, and each of its sessions, a new epoch.
pub(crate) fn renew_epoch(path: &Path) -> Result<String, StoreError> {
    let connection = connection::open_writer(path, &Options::default())?;
    Ok(write_epoch(&connection)?)
}

fn write_epoch(connection: &Connection) -> Result<String, Fault> {
    let epoch = Uuid::new_v4().simple().to_string();
    let transaction = connection.unchecked_transaction()?;
    transaction.execute("UPDATE meta SET value = ?1 WHERE key = 'epoch'", [&epoch])?;
    transaction.execute("UPDATE sessions SET epoch = lower(hex(randomblob(16)))", [])?;
    transaction.commit()?;
    Ok(epoch)
}

#[async_trait]
impl Store for SqliteStore {
    async fn create_session(&self, new: NewSession) -> Result<(SessionRecord, bool), StoreError> {
        self.writer.submit(CreateSession::encode(new)?).await
    }

    async fn find_session(
        &self,
        principal: &str,
        id: &SessionId,
    ) -> Result<Option<SessionRecord>, StoreError> {
        let (principal, id) = (principal.to_owned(), id.clone());
        self.readers.read(move |connection| session::find(connection, &principal, &id)).await
    }

    async fn list_sessions(
        &self,
        principal: &str,
        after: Option<SessionCursor>,
        limit: usize,
    ) -> Result<SessionPage, StoreError> {
        let principal = principal.to_owned();
        self.readers.read(move |connection| session::list(connection, &principal, after, limit)).await
    }

    fn append(
        &self,
        append: Append,
    ) -> Pin<Box<dyn Future<Output = Result<Appended, StoreError>> + Send + 'static>> {
        match AppendEvents::encode(append) {
            Ok(work) => Box::pin(self.writer.submit(work)),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn write_draft(&self, session: SessionKey, step: &DraftStep, piece: &str) {
        self.drafts.write(session, step, piece);
    }

    fn clear_draft(&self, session: SessionKey) {
        self.drafts.clear(session);
    }

    async fn draft(&self, session: SessionKey) -> Result<Option<Draft>, StoreError> {
        let drafts = Arc::clone(&self.drafts);
        let reading = tokio::task::spawn_blocking(move || drafts.read(session));
        reading.await.map_err(|error| StoreError::Failed(error.to_string()))?
    }

    async fn delete_session(&self, session: SessionKey) -> Result<bool, StoreError> {
        // Before it, so that no kill in between leaves a text behind, and after it, for what came meanwhile.
        self.drafts.clear(session);
        let deleted = self.writer.submit(DeleteSession(session)).await?;
        self.drafts.clear(session);
        Ok(deleted)
    }

    async fn sessions_idle_since(
        &self,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<SessionRecord>, StoreError> {
        self.readers.read(move |connection| session::idle_since(connection, before, limit)).await
    }

    async fn fork_session(
        &self,
        from: SessionKey,
        at_seq: Seq,
        new: NewSession,
    ) -> Result<(SessionRecord, bool), StoreError> {
        self.writer.submit(ForkSession::encode(from, at_seq, new)?).await
    }

    async fn begin_import(&self, new: NewImport) -> Result<Option<ImportKey>, StoreError> {
        self.writer.submit(BeginImport(new)).await
    }

    async fn import_events(&self, import: ImportKey, events: Vec<ImportedEvent>) -> Result<(), StoreError> {
        self.writer.submit(ImportEvents::encode(import, events)?).await
    }

    async fn finish_import(
        &self,
        import: ImportKey,
        state: SessionState,
    ) -> Result<Option<SessionRecord>, StoreError> {
        self.writer.submit(FinishImport::encode(import, state)?).await
    }

    async fn abandon_import(&self, import: ImportKey) -> Result<(), StoreError> {
        self.writer.submit(AbandonImport(import)).await
    }

    async fn search(&self, query: SearchQuery) -> Result<SearchPage, StoreError> {
        let head = self.shared.head.load(Ordering::Acquire);
        let shared = Arc::clone(&self.shared);
        let search = move |connection: &Connection| {
            let found = search::search(connection, &query, head);
            // The next write has it made anew.
            let damaged = found.as_ref().is_err_and(Fault::is_of_index);
            shared.index_damaged.fetch_or(damaged, Ordering::Relaxed);
            found
        };
        self.readers.read(search).await
    }

    async fn rate(
        &self,
        session: SessionKey,
        message: &MessageId,
        score: Option<Score>,
    ) -> Result<bool, StoreError> {
        let message = message.clone();
        let place = self.readers.read(move |connection| log::place_of(connection, session, &message)).await?;
        let Some(seq) = place else { return Ok(false) };
        self.writer.submit(Rate { session, seq, score }).await?;
        Ok(true)
    }

    async fn events_since(
        &self,
        gseq: u64,
        principal: Option<&str>,
        limit: usize,
    ) -> Result<StreamPage, StoreError> {
        let principal = principal.map(str::to_owned);
        self.readers.read(move |connection| log::stream(connection, gseq, principal.as_deref(), limit)).await
    }

    async fn head_gseq(&self) -> Result<u64, StoreError> {
        Ok(self.shared.head.load(Ordering::Acquire))
    }

    fn epoch(&self) -> String {
        self.epoch.clone()
    }

    async fn events(&self, session: SessionKey, query: EventQuery) -> Result<EventPage, StoreError> {
        self.readers.read(move |connection| log::page(connection, session, &query)).await
    }

    async fn sessions_with_open_turns(&self) -> Result<Vec<SessionRecord>, StoreError> {
        self.readers.read(session::with_open_turns).await
    }

    async fn audit(&self, query: AuditQuery) -> Result<Vec<(SessionId, AuditRecord)>, StoreError> {
        self.readers.read(move |connection| log::audit(connection, &query)).await
    }

    async fn usage(&self, days: RangeInclusive<Day>) -> Result<Vec<UsageRow>, StoreError> {
        self.readers.read(move |connection| usage::days(connection, &days)).await
    }

    async fn add_usage(&self, row: UsageRow) -> Result<(), StoreError> {
        self.writer.submit(AddUsage(row)).await
    }

    async fn session_cost(&self, session: SessionKey) -> Result<Money, StoreError> {
        self.readers.read(move |connection| usage::of_session(connection, session)).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.writer.submit(Touch).await?;
        self.readers.read(|connection| session::count(connection).map(drop)).await
    }
}

#[async_trait]
impl DocumentStore for SqliteStore {
    async fn documents(&self, collection: &Collection) -> Result<Vec<DocumentInfo>, StoreError> {
        let collection = collection.as_text();
        self.readers.read(move |connection| document::list(connection, &collection)).await
    }

    async fn document_counts(&self, collections: &[Collection]) -> Result<BTreeMap<String, u64>, StoreError> {
        let collections = collections.iter().map(Collection::as_text).collect();
        self.readers.read(move |connection| document::counts(connection, collections)).await
    }

    async fn document_changes(&self, after: u64, limit: usize) -> Result<Vec<DocumentChange>, StoreError> {
        self.readers.read(move |connection| document::changes(connection, after, limit)).await
    }

    async fn document_head(&self) -> Result<u64, StoreError> {
        Ok(self.shared.document_head.load(Ordering::Acquire))
    }
}

/// Writes without changing anything, as a check that writing works.
struct Touch;

impl Work for Touch {
    type Output = ();

    fn run(&self, write: &mut Write<'_>) -> Result<(), Fault> {
        write.connection.prepare_cached("UPDATE meta SET value = value WHERE key = 'epoch'")?.execute([])?;
        Ok(())
    }
}

/// Returns a counter as SQLite keeps it; no counter gets so far that it is cut.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns a counter that SQLite kept; no counter is negative.
fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
