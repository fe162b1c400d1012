//! A store in memory with a disk's troubles: commits take their time, so that commands and reports cross, and
//! calls fail when a test says so.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use tns_protocol::{Day, MessageId, Seq, SessionId, Timestamp};
use tns_server_core::approval::AuditRecord;
use tns_server_core::memory::MemoryStore;
use tns_server_core::store::{
    Append, Appended, AuditQuery, Collection, DocumentChange, DocumentInfo, DocumentStore, Draft, DraftStep,
    EventPage, EventQuery, ImportKey, ImportedEvent, NewImport, NewSession, Score, SearchPage, SearchQuery,
    SessionCursor, SessionKey, SessionPage, SessionRecord, SessionState, Store, StoreError, StreamPage,
};
use tns_server_core::usage::{Money, UsageRow};

/// Lists the calls once, for the type and for whoever goes through all of them.
macro_rules! calls {
    ($($call:ident,)*) => {
        /// A call of a store: one for each method that may fail, of `Store` and of `DocumentStore`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        #[expect(missing_docs, reason = "each is the method of its name")]
        pub enum Call {
            $($call,)*
        }

        impl Call {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$call,)*];
        }
    };
}

calls! {
    CreateSession,
    FindSession,
    ListSessions,
    Append,
    Draft,
    DeleteSession,
    SessionsIdleSince,
    ForkSession,
    BeginImport,
    ImportEvents,
    FinishImport,
    AbandonImport,
    Search,
    Rate,
    EventsSince,
    HeadGseq,
    Events,
    SessionsWithOpenTurns,
    Audit,
    Usage,
    AddUsage,
    SessionCost,
    Check,
    Documents,
    DocumentCounts,
    DocumentChanges,
    DocumentHead,
}

/// A store whose appends are done after a while, or fail, and each of whose calls may fail once.
#[derive(Debug)]
pub struct TroubledStore {
    inner: Arc<MemoryStore>,
    commit: Duration,
    failure: Mutex<Option<StoreError>>,
    once: Mutex<Option<Once>>,
    made: Mutex<BTreeMap<Call, usize>>,
}

/// A failure to come.
#[derive(Debug)]
struct Once {
    call: Call,
    /// Calls of it that work before.
    after: usize,
    failure: StoreError,
}

impl TroubledStore {
    /// Makes a troubled face of a store in memory, whose commits take so long.
    pub fn new(inner: Arc<MemoryStore>, commit: Duration) -> Self {
        Self { inner, commit, failure: Mutex::default(), once: Mutex::default(), made: Mutex::default() }
    }

    /// From now on every append fails so; `None`: works again.
    pub fn fail_with(&self, failure: Option<StoreError>) {
        *self.failure.lock().unwrap() = failure;
    }

    /// After so many more of these calls, one fails so and does nothing.
    pub fn fail_once(&self, call: Call, after: usize, failure: StoreError) {
        *self.once.lock().unwrap() = Some(Once { call, after, failure });
    }

    /// Whether the failure of [`TroubledStore::fail_once`] is still to come.
    pub fn failure_waits(&self) -> bool {
        self.once.lock().unwrap().is_some()
    }

    /// Lets no call fail any more; says whether the failure was still to come.
    pub fn take_back(&self) -> bool {
        self.once.lock().unwrap().take().is_some()
    }

    /// Returns how often each call was made so far.
    pub fn made(&self) -> BTreeMap<Call, usize> {
        self.made.lock().unwrap().clone()
    }

    fn call(&self, call: Call) -> Result<(), StoreError> {
        *self.made.lock().unwrap().entry(call).or_default() += 1;
        let mut once = self.once.lock().unwrap();
        match once.as_mut().filter(|once| once.call == call) {
            None => Ok(()),
            Some(due) if due.after > 0 => {
                due.after -= 1;
                Ok(())
            }
            Some(_) => Err(once.take().unwrap().failure),
        }
    }
}

#[async_trait]
impl Store for TroubledStore {
    async fn create_session(&self, new: NewSession) -> Result<(SessionRecord, bool), StoreError> {
        self.call(Call::CreateSession)?;
        self.inner.create_session(new).await
    }

    async fn find_session(
        &self,
        principal: &str,
        id: &SessionId,
    ) -> Result<Option<SessionRecord>, StoreError> {
        self.call(Call::FindSession)?;
        self.inner.find_session(principal, id).await
    }

    async fn list_sessions(
        &self,
        principal: &str,
        after: Option<SessionCursor>,
        limit: usize,
    ) -> Result<SessionPage, StoreError> {
        self.call(Call::ListSessions)?;
        self.inner.list_sessions(principal, after, limit).await
    }

    fn append(&self, append: Append) -> BoxFuture<'static, Result<Appended, StoreError>> {
        let failure = self.failure.lock().unwrap().clone();
        if let Some(failure) = failure.or_else(|| self.call(Call::Append).err()) {
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
        self.call(Call::Draft)?;
        self.inner.draft(session).await
    }

    async fn delete_session(&self, session: SessionKey) -> Result<bool, StoreError> {
        self.call(Call::DeleteSession)?;
        self.inner.delete_session(session).await
    }

    async fn sessions_idle_since(
        &self,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<SessionRecord>, StoreError> {
        self.call(Call::SessionsIdleSince)?;
        self.inner.sessions_idle_since(before, limit).await
    }

    async fn fork_session(
        &self,
        from: SessionKey,
        at_seq: Seq,
        new: NewSession,
    ) -> Result<(SessionRecord, bool), StoreError> {
        self.call(Call::ForkSession)?;
        self.inner.fork_session(from, at_seq, new).await
    }

    async fn begin_import(&self, new: NewImport) -> Result<Option<ImportKey>, StoreError> {
        self.call(Call::BeginImport)?;
        self.inner.begin_import(new).await
    }

    async fn import_events(&self, import: ImportKey, events: Vec<ImportedEvent>) -> Result<(), StoreError> {
        self.call(Call::ImportEvents)?;
        self.inner.import_events(import, events).await
    }

    async fn finish_import(
        &self,
        import: ImportKey,
        state: SessionState,
    ) -> Result<Option<SessionRecord>, StoreError> {
        self.call(Call::FinishImport)?;
        self.inner.finish_import(import, state).await
    }

    async fn abandon_import(&self, import: ImportKey) -> Result<(), StoreError> {
        self.call(Call::AbandonImport)?;
        self.inner.abandon_import(import).await
    }

    async fn search(&self, query: SearchQuery) -> Result<SearchPage, StoreError> {
        self.call(Call::Search)?;
        self.inner.search(query).await
    }

    async fn rate(
        &self,
        session: SessionKey,
        message: &MessageId,
        score: Option<Score>,
    ) -> Result<bool, StoreError> {
        self.call(Call::Rate)?;
        self.inner.rate(session, message, score).await
    }

    async fn events_since(
        &self,
        gseq: u64,
        principal: Option<&str>,
        limit: usize,
    ) -> Result<StreamPage, StoreError> {
        self.call(Call::EventsSince)?;
        self.inner.events_since(gseq, principal, limit).await
    }

    async fn head_gseq(&self) -> Result<u64, StoreError> {
        self.call(Call::HeadGseq)?;
        self.inner.head_gseq().await
    }

    fn epoch(&self) -> String {
        self.inner.epoch()
    }

    async fn events(&self, session: SessionKey, query: EventQuery) -> Result<EventPage, StoreError> {
        self.call(Call::Events)?;
        self.inner.events(session, query).await
    }

    async fn sessions_with_open_turns(&self) -> Result<Vec<SessionRecord>, StoreError> {
        self.call(Call::SessionsWithOpenTurns)?;
        self.inner.sessions_with_open_turns().await
    }

    async fn audit(&self, query: AuditQuery) -> Result<Vec<(SessionId, AuditRecord)>, StoreError> {
        self.call(Call::Audit)?;
        self.inner.audit(query).await
    }

    async fn usage(&self, days: RangeInclusive<Day>) -> Result<Vec<UsageRow>, StoreError> {
        self.call(Call::Usage)?;
        self.inner.usage(days).await
    }

    async fn add_usage(&self, row: UsageRow) -> Result<(), StoreError> {
        self.call(Call::AddUsage)?;
        self.inner.add_usage(row).await
    }

    async fn session_cost(&self, session: SessionKey) -> Result<Money, StoreError> {
        self.call(Call::SessionCost)?;
        self.inner.session_cost(session).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.call(Call::Check)?;
        self.inner.check().await
    }
}

#[async_trait]
impl DocumentStore for TroubledStore {
    async fn documents(&self, collection: &Collection) -> Result<Vec<DocumentInfo>, StoreError> {
        self.call(Call::Documents)?;
        self.inner.documents(collection).await
    }

    async fn document_counts(&self, collections: &[Collection]) -> Result<BTreeMap<String, u64>, StoreError> {
        self.call(Call::DocumentCounts)?;
        self.inner.document_counts(collections).await
    }

    async fn document_changes(&self, after: u64, limit: usize) -> Result<Vec<DocumentChange>, StoreError> {
        self.call(Call::DocumentChanges)?;
        self.inner.document_changes(after, limit).await
    }

    async fn document_head(&self) -> Result<u64, StoreError> {
        self.call(Call::DocumentHead)?;
        self.inner.document_head().await
    }
}
