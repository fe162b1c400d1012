//! A store in memory with a disk's troubles: commits take their time, so that commands and reports cross, and
//! calls fail when a test says so.

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
    SessionRecord, Store, StoreError, StreamPage,
};
use tns_server_core::usage::{Money, UsageRow};

/// A store whose appends are done after a while, or fail.
#[derive(Debug)]
pub struct TroubledStore {
    inner: Arc<MemoryStore>,
    commit: Duration,
    failure: Mutex<Option<StoreError>>,
    once: Mutex<Option<(usize, StoreError)>>,
}

impl TroubledStore {
    /// Makes a troubled face of a store in memory, whose commits take so long.
    pub fn new(inner: Arc<MemoryStore>, commit: Duration) -> Self {
        Self { inner, commit, failure: Mutex::new(None), once: Mutex::new(None) }
    }

    /// From now on every append fails so; `None`: works again.
    pub fn fail_with(&self, failure: Option<StoreError>) {
        *self.failure.lock().unwrap() = failure;
    }

    /// After so many more calls of any kind, one fails so and does nothing.
    pub fn fail_once(&self, after: usize, failure: StoreError) {
        *self.once.lock().unwrap() = Some((after, failure));
    }

    /// Whether the failure of [`TroubledStore::fail_once`] is still to come.
    pub fn failure_waits(&self) -> bool {
        self.once.lock().unwrap().is_some()
    }

    fn call(&self) -> Result<(), StoreError> {
        let mut once = self.once.lock().unwrap();
        match once.take() {
            Some((0, failure)) => Err(failure),
            Some((after, failure)) => {
                *once = Some((after - 1, failure));
                Ok(())
            }
            None => Ok(()),
        }
    }
}

#[async_trait]
impl Store for TroubledStore {
    async fn create_session(&self, new: NewSession) -> Result<(SessionRecord, bool), StoreError> {
        self.call()?;
        self.inner.create_session(new).await
    }

    async fn find_session(
        &self,
        principal: &str,
        id: &SessionId,
    ) -> Result<Option<SessionRecord>, StoreError> {
        self.call()?;
        self.inner.find_session(principal, id).await
    }

    async fn list_sessions(
        &self,
        principal: &str,
        after: Option<SessionCursor>,
        limit: usize,
    ) -> Result<SessionPage, StoreError> {
        self.call()?;
        self.inner.list_sessions(principal, after, limit).await
    }

    fn append(&self, append: Append) -> BoxFuture<'static, Result<Appended, StoreError>> {
        let failure = self.failure.lock().unwrap().clone();
        if let Some(failure) = failure.or_else(|| self.call().err()) {
            return Box::pin(std::future::ready(Err(failure)));
        }
        let (done, commit) = (self.inner.append(append), self.commit);
        Box::pin(async move {
            tokio::time::sleep(commit).await;
            done.await
        })
    }

    fn write_draft(&self, session: SessionKey, step: &DraftStep, piece: &str) {
        self.inner.write_draft(session, step, piece);
    }

    fn clear_draft(&self, session: SessionKey) {
        self.inner.clear_draft(session);
    }

    async fn draft(&self, session: SessionKey) -> Result<Option<Draft>, StoreError> {
        self.call()?;
        self.inner.draft(session).await
    }

    async fn delete_session(&self, session: SessionKey) -> Result<bool, StoreError> {
        self.call()?;
        self.inner.delete_session(session).await
    }

    async fn sessions_idle_since(
        &self,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<SessionRecord>, StoreError> {
        self.call()?;
        self.inner.sessions_idle_since(before, limit).await
    }

    async fn fork_session(
        &self,
        from: SessionKey,
        at_seq: Seq,
        new: NewSession,
    ) -> Result<(SessionRecord, bool), StoreError> {
        self.call()?;
        self.inner.fork_session(from, at_seq, new).await
    }

    async fn begin_import(&self, new: NewImport) -> Result<Option<ImportKey>, StoreError> {
        self.call()?;
        self.inner.begin_import(new).await
    }

    async fn import_events(&self, import: ImportKey, events: Vec<ImportedEvent>) -> Result<(), StoreError> {
        self.call()?;
        self.inner.import_events(import, events).await
    }

    async fn finish_import(&self, import: ImportKey) -> Result<Option<SessionRecord>, StoreError> {
        self.call()?;
        self.inner.finish_import(import).await
    }

    async fn abandon_import(&self, import: ImportKey) -> Result<(), StoreError> {
        self.call()?;
        self.inner.abandon_import(import).await
    }

    async fn search(&self, query: SearchQuery) -> Result<SearchPage, StoreError> {
        self.call()?;
        self.inner.search(query).await
    }

    async fn rate(
        &self,
        session: SessionKey,
        message: &MessageId,
        score: Option<Score>,
    ) -> Result<bool, StoreError> {
        self.call()?;
        self.inner.rate(session, message, score).await
    }

    async fn events_since(
        &self,
        gseq: u64,
        principal: Option<&str>,
        limit: usize,
    ) -> Result<StreamPage, StoreError> {
        self.call()?;
        self.inner.events_since(gseq, principal, limit).await
    }

    async fn head_gseq(&self) -> Result<u64, StoreError> {
        self.call()?;
        self.inner.head_gseq().await
    }

    fn epoch(&self) -> String {
        self.inner.epoch()
    }

    async fn events(&self, session: SessionKey, query: EventQuery) -> Result<EventPage, StoreError> {
        self.call()?;
        self.inner.events(session, query).await
    }

    async fn sessions_with_open_turns(&self) -> Result<Vec<SessionRecord>, StoreError> {
        self.call()?;
        self.inner.sessions_with_open_turns().await
    }

    async fn audit(&self, query: AuditQuery) -> Result<Vec<(SessionId, AuditRecord)>, StoreError> {
        self.call()?;
        self.inner.audit(query).await
    }

    async fn usage(&self, days: RangeInclusive<Day>) -> Result<Vec<UsageRow>, StoreError> {
        self.call()?;
        self.inner.usage(days).await
    }

    async fn add_usage(&self, row: UsageRow) -> Result<(), StoreError> {
        self.call()?;
        self.inner.add_usage(row).await
    }

    async fn session_cost(&self, session: SessionKey) -> Result<Money, StoreError> {
        self.call()?;
        self.inner.session_cost(session).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.call()?;
        self.inner.check().await
    }
}
