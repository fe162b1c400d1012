//! A store that survives the server's crash, with a disk's times: what was asked for and not yet written when
//! the server dies is gone, and what was written may never have been answered.

use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use tns_protocol::{Day, MessageId, Seq, SessionId, Timestamp};
use tns_server_core::approval::AuditRecord;
use tns_server_core::memory::MemoryStore;
use tns_server_core::store::{
    Append, Appended, AuditQuery, Draft, DraftStep, EventPage, EventQuery, ImportKey, ImportedEvent,
    NewImport, NewSession, Score, SearchPage, SearchQuery, SessionCursor, SessionKey, SessionPage,
    SessionRecord, SessionState, Store, StoreError, StreamPage,
};
use tns_server_core::usage::{Money, UsageRow};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::chance::Chance;

/// Appends that wait for the writer. Full → the store is busy.
const WAITING: usize = 256;

type Written = Result<Appended, StoreError>;
type Job = (Append, oneshot::Sender<Written>);

/// One server's face of a store that outlives it.
pub(super) struct Disk {
    inner: Arc<MemoryStore>,
    chance: Chance,
    jobs: mpsc::Sender<Job>,
    /// The writer, which dies with its server.
    _writer: Mutex<JoinSet<()>>,
}

impl Disk {
    /// Opens the store in the runtime of a server; of a hundred appends so many fail.
    pub(super) fn open(inner: Arc<MemoryStore>, chance: Chance, failing: u64) -> Self {
        let (jobs, queue) = mpsc::channel(WAITING);
        let mut writer = JoinSet::new();
        writer.spawn(write(inner.clone(), queue, chance.split(), failing));
        Self { inner, chance, jobs, _writer: Mutex::new(writer) }
    }

    /// Reading takes its time as well.
    async fn read(&self) {
        if self.chance.percent(30) {
            sleep(Duration::from_millis(self.chance.within(1, 3))).await;
        }
    }
}

async fn write(store: Arc<MemoryStore>, mut queue: mpsc::Receiver<Job>, chance: Chance, failing: u64) {
    while let Some((append, answer)) = queue.recv().await {
        sleep(Duration::from_millis(chance.within(0, 4))).await;
        let fails = failing > 0 && chance.percent(failing);
        let written = if fails { Err(StoreError::Busy) } else { store.append(append).await };
        sleep(Duration::from_millis(chance.within(0, 4))).await;
        // Whoever asked may have been dropped.
        let _ = answer.send(written);
    }
}

#[async_trait]
impl Store for Disk {
    async fn create_session(&self, new: NewSession) -> Result<(SessionRecord, bool), StoreError> {
        self.read().await;
        self.inner.create_session(new).await
    }

    async fn find_session(
        &self,
        principal: &str,
        id: &SessionId,
    ) -> Result<Option<SessionRecord>, StoreError> {
        self.read().await;
        self.inner.find_session(principal, id).await
    }

    async fn list_sessions(
        &self,
        principal: &str,
        after: Option<SessionCursor>,
        limit: usize,
    ) -> Result<SessionPage, StoreError> {
        self.inner.list_sessions(principal, after, limit).await
    }

    fn append(&self, append: Append) -> BoxFuture<'static, Written> {
        let (answer, written) = oneshot::channel();
        if self.jobs.try_send((append, answer)).is_err() {
            return Box::pin(std::future::ready(Err(StoreError::Busy)));
        }
        Box::pin(async move { written.await.unwrap_or(Err(StoreError::Busy)) })
    }

    fn write_draft(&self, session: SessionKey, step: &DraftStep, piece: &str) {
        self.inner.write_draft(session, step, piece);
    }

    fn clear_draft(&self, session: SessionKey) {
        self.inner.clear_draft(session);
    }

    async fn draft(&self, session: SessionKey) -> Result<Option<Draft>, StoreError> {
        self.read().await;
        self.inner.draft(session).await
    }

    async fn delete_session(&self, session: SessionKey) -> Result<bool, StoreError> {
        self.inner.delete_session(session).await
    }

    async fn sessions_idle_since(
        &self,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<SessionRecord>, StoreError> {
        self.inner.sessions_idle_since(before, limit).await
    }

    async fn fork_session(
        &self,
        from: SessionKey,
        at_seq: Seq,
        new: NewSession,
    ) -> Result<(SessionRecord, bool), StoreError> {
        self.inner.fork_session(from, at_seq, new).await
    }

    async fn begin_import(&self, new: NewImport) -> Result<Option<ImportKey>, StoreError> {
        self.inner.begin_import(new).await
    }

    async fn import_events(&self, import: ImportKey, events: Vec<ImportedEvent>) -> Result<(), StoreError> {
        self.inner.import_events(import, events).await
    }

    async fn finish_import(
        &self,
        import: ImportKey,
        state: SessionState,
    ) -> Result<Option<SessionRecord>, StoreError> {
        self.inner.finish_import(import, state).await
    }

    async fn abandon_import(&self, import: ImportKey) -> Result<(), StoreError> {
        self.inner.abandon_import(import).await
    }

    async fn search(&self, query: SearchQuery) -> Result<SearchPage, StoreError> {
        self.inner.search(query).await
    }

    async fn rate(
        &self,
        session: SessionKey,
        message: &MessageId,
        score: Option<Score>,
    ) -> Result<bool, StoreError> {
        self.inner.rate(session, message, score).await
    }

    async fn events_since(
        &self,
        gseq: u64,
        principal: Option<&str>,
        limit: usize,
    ) -> Result<StreamPage, StoreError> {
        self.inner.events_since(gseq, principal, limit).await
    }

    async fn head_gseq(&self) -> Result<u64, StoreError> {
        self.inner.head_gseq().await
    }

    fn epoch(&self) -> String {
        self.inner.epoch()
    }

    async fn events(&self, session: SessionKey, query: EventQuery) -> Result<EventPage, StoreError> {
        self.read().await;
        self.inner.events(session, query).await
    }

    async fn sessions_with_open_turns(&self) -> Result<Vec<SessionRecord>, StoreError> {
        self.inner.sessions_with_open_turns().await
    }

    async fn audit(&self, query: AuditQuery) -> Result<Vec<(SessionId, AuditRecord)>, StoreError> {
        self.inner.audit(query).await
    }

    async fn usage(&self, days: RangeInclusive<Day>) -> Result<Vec<UsageRow>, StoreError> {
        self.inner.usage(days).await
    }

    async fn add_usage(&self, row: UsageRow) -> Result<(), StoreError> {
        self.inner.add_usage(row).await
    }

    async fn session_cost(&self, session: SessionKey) -> Result<Money, StoreError> {
        self.inner.session_cost(session).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.inner.check().await
    }
}
