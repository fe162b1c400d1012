//! A store in memory, for tests and temporary servers. Keeps the same promises as one on disk, but for
//! surviving the process.

mod document;
mod log;
mod search;
mod transfer;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures_util::future::{self, BoxFuture};
use tns_protocol::{Day, MessageId, Seq, SessionId, Timestamp};
use uuid::Uuid;

use crate::approval::AuditRecord;
use crate::event::DurableEvent;
use crate::store::{
    Append, Appended, AuditQuery, Collection, Condition, Document, Draft, DraftStep, EventPage, EventQuery,
    ImportKey, ImportedEvent, MAX_PAGE_SESSIONS, NewImport, NewSession, Place, Score, SearchPage,
    SearchQuery, SessionCursor, SessionKey, SessionPage, SessionRecord, SessionState, Store, StoreError,
    StoredEvent, StreamPage,
};
use crate::usage::{Money, UsageRow};
use document::StoredDocument;

/// A store in memory.
#[derive(Debug)]
pub struct MemoryStore {
    inner: Mutex<Inner>,
    epoch: String,
}

#[derive(Debug, Default)]
struct Inner {
    sessions: BTreeMap<SessionKey, Session>,
    imports: BTreeMap<ImportKey, (NewImport, Vec<ImportedEvent>)>,
    last_key: i64,
    gseq: u64,
    drafts: BTreeMap<SessionKey, Draft>,
    documents: Vec<StoredDocument>,
    document_head: u64,
    /// What steps used; without its session where that was deleted.
    usage: Vec<(Option<SessionKey>, UsageRow)>,
}

#[derive(Debug)]
struct Session {
    record: SessionRecord,
    events: Vec<StoredEvent>,
    feedback: BTreeMap<Seq, Score>,
    /// The end of what was copied from another session.
    copied: Seq,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self { inner: Mutex::default(), epoch: Uuid::new_v4().simple().to_string() }
    }
}

impl MemoryStore {
    /// Makes an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn session(&mut self, key: SessionKey) -> Result<&mut Session, StoreError> {
        self.sessions.get_mut(&key).ok_or(StoreError::NoSession)
    }

    fn find(&self, principal: &str, id: &SessionId) -> Option<&SessionRecord> {
        let mut records = self.sessions.values().map(|session| &session.record);
        records.find(|record| record.principal == principal && record.id == *id)
    }

    fn next_key(&mut self) -> i64 {
        self.last_key += 1;
        self.last_key
    }

    fn make(&mut self, new: NewSession, created_at: Timestamp) -> &mut Session {
        let key = SessionKey(self.next_key());
        let record = SessionRecord {
            key,
            principal: new.principal,
            id: new.id,
            title: new.title,
            workspace: new.workspace,
            epoch: Uuid::new_v4().simple().to_string(),
            created_at,
            updated_at: Timestamp::now(),
            head_seq: 0,
            state: new.state,
        };
        let session = Session { record, events: Vec::new(), feedback: BTreeMap::new(), copied: 0 };
        self.sessions.entry(key).or_insert(session)
    }

    fn append(&mut self, append: Append) -> Result<Appended, StoreError> {
        self.session(append.session)?;
        let held = match append.condition {
            None => true,
            Some(Condition::NewMessage(id)) => !self.session(append.session)?.events.iter().any(
                |row| matches!(&row.event, DurableEvent::UserMessage(message) if message.client_message_id.as_ref() == Some(&id)),
            ),
            Some(Condition::NewDocument(new)) => {
                let collection = new.collection.as_text();
                let document = Document { id: new.id.clone(), content: new.content, metadata: new.metadata };
                self.change_document(&collection, &new.id, Some(document))
            }
            Some(Condition::RemoveDocument(collection, id)) => self.change_document(&collection.as_text(), &id, None),
        };
        if !held {
            return Ok(Appended::Unchanged);
        }
        let at = Timestamp::now();
        let first = self.gseq + 1;
        self.gseq += append.events.len() as u64;
        let session = self.session(append.session)?;
        let mut places = Vec::with_capacity(append.events.len());
        let mut used = Vec::new();
        for (new, gseq) in append.events.into_iter().zip(first..) {
            session.record.head_seq += 1;
            let place = Place { seq: session.record.head_seq, gseq, at };
            used.extend(UsageRow::of(&new.event, at).map(|row| (Some(append.session), row)));
            session.events.push(StoredEvent { place, turn: new.turn, event: new.event });
            places.push(place);
        }
        if let Some(state) = append.state {
            session.record.state = state;
        }
        if let Some(title) = append.title {
            session.record.title = title;
        }
        if !places.is_empty() {
            session.record.updated_at = at;
        }
        self.usage.extend(used);
        Ok(Appended::Stored(places))
    }

    fn delete(&mut self, key: SessionKey) -> bool {
        if self.sessions.remove(&key).is_none() {
            return false;
        }
        self.drafts.remove(&key);
        for (session, _) in self.usage.iter_mut().filter(|(session, _)| *session == Some(key)) {
            *session = None;
        }
        let collection = Collection::Session(key);
        for document in self.living(&collection) {
            self.change_document(&collection.as_text(), &document.id, None);
        }
        true
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn create_session(&self, new: NewSession) -> Result<(SessionRecord, bool), StoreError> {
        let mut inner = self.lock();
        if let Some(existing) = inner.find(&new.principal, &new.id) {
            return Ok((existing.clone(), false));
        }
        let session = inner.make(new, Timestamp::now());
        session.record.updated_at = session.record.created_at;
        Ok((session.record.clone(), true))
    }

    async fn find_session(
        &self,
        principal: &str,
        id: &SessionId,
    ) -> Result<Option<SessionRecord>, StoreError> {
        Ok(self.lock().find(principal, id).cloned())
    }

    async fn list_sessions(
        &self,
        principal: &str,
        after: Option<SessionCursor>,
        limit: usize,
    ) -> Result<SessionPage, StoreError> {
        let inner = self.lock();
        let mut sessions: Vec<SessionRecord> = inner
            .sessions
            .values()
            .map(|session| session.record.clone())
            .filter(|record| record.principal == principal)
            .filter(|record| after.is_none_or(|c| (record.updated_at, record.key) < (c.updated_at, c.key)))
            .collect();
        sessions.sort_by_key(|record| std::cmp::Reverse((record.updated_at, record.key)));
        let limit = limit.min(MAX_PAGE_SESSIONS);
        let more = sessions.len() > limit;
        sessions.truncate(limit);
        let last = sessions.last().filter(|_| more);
        let next = last.map(|record| SessionCursor { updated_at: record.updated_at, key: record.key });
        Ok(SessionPage { sessions, next })
    }

    fn append(&self, append: Append) -> BoxFuture<'static, Result<Appended, StoreError>> {
        Box::pin(future::ready(self.lock().append(append)))
    }

    fn write_draft(&self, session: SessionKey, step: &DraftStep, piece: &str) {
        let mut inner = self.lock();
        let begun = || Draft { step: step.clone(), text: String::new() };
        let draft = inner.drafts.entry(session).or_insert_with(begun);
        if draft.step != *step {
            *draft = begun();
        }
        draft.text.push_str(piece);
    }

    fn clear_draft(&self, session: SessionKey) {
        self.lock().drafts.remove(&session);
    }

    async fn draft(&self, session: SessionKey) -> Result<Option<Draft>, StoreError> {
        Ok(self.lock().drafts.get(&session).cloned())
    }

    async fn delete_session(&self, session: SessionKey) -> Result<bool, StoreError> {
        Ok(self.lock().delete(session))
    }

    async fn sessions_idle_since(
        &self,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<SessionRecord>, StoreError> {
        let inner = self.lock();
        let records = inner.sessions.values().map(|session| &session.record);
        let mut idle: Vec<_> = records.filter(|record| record.updated_at < before).cloned().collect();
        idle.sort_by_key(|record| (record.updated_at, record.key));
        idle.truncate(limit.min(MAX_PAGE_SESSIONS));
        Ok(idle)
    }

    async fn fork_session(
        &self,
        from: SessionKey,
        at_seq: Seq,
        new: NewSession,
    ) -> Result<(SessionRecord, bool), StoreError> {
        self.lock().fork(from, at_seq, new)
    }

    async fn begin_import(&self, new: NewImport) -> Result<Option<ImportKey>, StoreError> {
        Ok(self.lock().begin_import(new))
    }

    async fn import_events(&self, import: ImportKey, events: Vec<ImportedEvent>) -> Result<(), StoreError> {
        self.lock().import_events(import, events)
    }

    async fn finish_import(
        &self,
        import: ImportKey,
        state: SessionState,
    ) -> Result<Option<SessionRecord>, StoreError> {
        self.lock().finish_import(import, state)
    }

    async fn abandon_import(&self, import: ImportKey) -> Result<(), StoreError> {
        self.lock().imports.remove(&import);
        Ok(())
    }

    async fn search(&self, query: SearchQuery) -> Result<SearchPage, StoreError> {
        Ok(self.lock().search(&query))
    }

    async fn rate(
        &self,
        session: SessionKey,
        message: &MessageId,
        score: Option<Score>,
    ) -> Result<bool, StoreError> {
        let mut inner = self.lock();
        let session = inner.session(session)?;
        let Some(event) = session.events.iter().find(|event| event.message() == Some(message)) else {
            return Ok(false);
        };
        match score {
            Some(score) => session.feedback.insert(event.place.seq, score),
            None => session.feedback.remove(&event.place.seq),
        };
        Ok(true)
    }

    async fn events_since(
        &self,
        gseq: u64,
        principal: Option<&str>,
        limit: usize,
    ) -> Result<StreamPage, StoreError> {
        Ok(self.lock().stream(gseq, principal, limit))
    }

    async fn head_gseq(&self) -> Result<u64, StoreError> {
        Ok(self.lock().gseq)
    }

    fn epoch(&self) -> String {
        self.epoch.clone()
    }

    async fn events(&self, session: SessionKey, query: EventQuery) -> Result<EventPage, StoreError> {
        Ok(self.lock().session(session)?.page(&query))
    }

    async fn sessions_with_open_turns(&self) -> Result<Vec<SessionRecord>, StoreError> {
        let inner = self.lock();
        let sessions = inner.sessions.values().map(|session| &session.record);
        Ok(sessions.filter(|record| !record.state.open_turns.is_empty()).cloned().collect())
    }

    async fn audit(&self, query: AuditQuery) -> Result<Vec<(SessionId, AuditRecord)>, StoreError> {
        Ok(self.lock().audit(&query))
    }

    async fn usage(&self, days: RangeInclusive<Day>) -> Result<Vec<UsageRow>, StoreError> {
        let mut sums: BTreeMap<_, UsageRow> = BTreeMap::new();
        for (_, row) in self.lock().usage.iter().filter(|(_, row)| days.contains(&row.day)) {
            let key = (row.day, row.provider.clone(), row.model.clone());
            sums.entry(key).and_modify(|sum| sum.add(row)).or_insert_with(|| row.clone());
        }
        Ok(sums.into_values().collect())
    }

    async fn add_usage(&self, row: UsageRow) -> Result<(), StoreError> {
        self.lock().usage.push((None, row));
        Ok(())
    }

    async fn session_cost(&self, session: SessionKey) -> Result<Money, StoreError> {
        let inner = self.lock();
        let own = inner.usage.iter().filter(|(key, _)| *key == Some(session));
        Ok(own.fold(Money::ZERO, |sum, (_, row)| sum.plus(row.cost)))
    }

    async fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
