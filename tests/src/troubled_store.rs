//! A store in memory with a disk's troubles: commits take their time, so that commands and reports cross, and
//! fail when a test says so.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use tns_protocol::SessionId;
use tns_server_core::approval::AuditRecord;
use tns_server_core::memory::MemoryStore;
use tns_server_core::store::{
    Append, Appended, AuditQuery, EventPage, EventQuery, NewSession, SessionCursor, SessionKey, SessionPage,
    SessionRecord, Store, StoreError,
};

/// A store whose appends are done after a while, or fail.
#[derive(Debug)]
pub struct TroubledStore {
    inner: Arc<MemoryStore>,
    commit: Duration,
    failure: Mutex<Option<StoreError>>,
}

impl TroubledStore {
    /// Makes a troubled face of a store in memory, whose commits take so long.
    pub fn new(inner: Arc<MemoryStore>, commit: Duration) -> Self {
        Self { inner, commit, failure: Mutex::new(None) }
    }

    /// From now on every append fails so; `None`: works again.
    pub fn fail_with(&self, failure: Option<StoreError>) {
        *self.failure.lock().unwrap() = failure;
    }
}

#[async_trait]
impl Store for TroubledStore {
    async fn create_session(&self, new: NewSession) -> Result<(SessionRecord, bool), StoreError> {
        self.inner.create_session(new).await
    }

    async fn find_session(
        &self,
        principal: &str,
        id: &SessionId,
    ) -> Result<Option<SessionRecord>, StoreError> {
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

    fn append(&self, append: Append) -> BoxFuture<'static, Result<Appended, StoreError>> {
        if let Some(failure) = self.failure.lock().unwrap().clone() {
            return Box::pin(std::future::ready(Err(failure)));
        }
        let (done, commit) = (self.inner.append(append), self.commit);
        Box::pin(async move {
            tokio::time::sleep(commit).await;
            done.await
        })
    }

    async fn events(&self, session: SessionKey, query: EventQuery) -> Result<EventPage, StoreError> {
        self.inner.events(session, query).await
    }

    async fn sessions_with_open_turns(&self) -> Result<Vec<SessionRecord>, StoreError> {
        self.inner.sessions_with_open_turns().await
    }

    async fn audit(&self, query: AuditQuery) -> Result<Vec<(SessionId, AuditRecord)>, StoreError> {
        self.inner.audit(query).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.inner.check().await
    }
}
