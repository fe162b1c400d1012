//! A store in memory, for tests and temporary servers. Keeps the same promises as one on disk, but for
//! surviving the process.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures_util::future::{self, BoxFuture};
use tns_protocol::knowledge::PREVIEW_CHARS;
use tns_protocol::{DocumentId, SessionId, Timestamp};
use uuid::Uuid;

use crate::approval::AuditRecord;
use crate::event::DurableEvent;
use crate::store::{
    Append, Appended, AuditQuery, Collection, Condition, Document, DocumentChange, DocumentInfo,
    DocumentStore, EventPage, EventQuery, MAX_PAGE_BYTES, MAX_PAGE_EVENTS, MAX_PAGE_SESSIONS, NewSession,
    Place, SessionCursor, SessionKey, SessionPage, SessionRecord, Store, StoreError, StoredEvent,
};

/// A store in memory.
#[derive(Debug, Default)]
pub struct MemoryStore {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    sessions: BTreeMap<SessionKey, Session>,
    gseq: u64,
    documents: Vec<StoredDocument>,
    document_head: u64,
}

#[derive(Debug)]
struct Session {
    record: SessionRecord,
    events: Vec<StoredEvent>,
}

#[derive(Debug)]
struct StoredDocument {
    collection: String,
    id: DocumentId,
    gseq: u64,
    /// `None`: removed.
    document: Option<Document>,
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
        self.sessions
            .get_mut(&key)
            .ok_or_else(|| StoreError::Failed(format!("no session with key {}", key.0)))
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
        for (new, gseq) in append.events.into_iter().zip(first..) {
            session.record.head_seq += 1;
            let place = Place { seq: session.record.head_seq, gseq, at };
            session.events.push(StoredEvent { place, turn: new.turn, event: new.event });
            places.push(place);
        }
        if let Some(state) = append.state {
            session.record.state = state;
        }
        if !places.is_empty() {
            session.record.updated_at = at;
        }
        Ok(Appended::Stored(places))
    }

    /// Adds (`Some`) or removes (`None`) a document; `false`: it is there, or not there, already.
    fn change_document(&mut self, collection: &str, id: &DocumentId, document: Option<Document>) -> bool {
        let at = self.documents.iter().position(|stored| stored.collection == collection && stored.id == *id);
        let there = at.is_some_and(|at| self.documents[at].document.is_some());
        if there == document.is_some() {
            return false;
        }
        if let Some(at) = at {
            self.documents.remove(at);
        }
        self.gseq += 1;
        self.document_head = self.gseq;
        self.documents.push(StoredDocument {
            collection: collection.to_owned(),
            id: id.clone(),
            gseq: self.gseq,
            document,
        });
        true
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn create_session(&self, new: NewSession) -> Result<(SessionRecord, bool), StoreError> {
        let mut inner = self.lock();
        let existing =
            inner.sessions.values().find(|s| s.record.principal == new.principal && s.record.id == new.id);
        if let Some(session) = existing {
            return Ok((session.record.clone(), false));
        }
        let epoch = Uuid::new_v4().to_string();
        let key = SessionKey(inner.sessions.len() as i64 + 1);
        let now = Timestamp::now();
        let record = SessionRecord {
            key,
            principal: new.principal,
            id: new.id,
            title: new.title,
            workspace: new.workspace,
            epoch,
            created_at: now,
            updated_at: now,
            head_seq: 0,
            state: new.state,
        };
        inner.sessions.insert(key, Session { record: record.clone(), events: Vec::new() });
        Ok((record, true))
    }

    async fn find_session(
        &self,
        principal: &str,
        id: &SessionId,
    ) -> Result<Option<SessionRecord>, StoreError> {
        let inner = self.lock();
        let mut sessions = inner.sessions.values().map(|session| &session.record);
        Ok(sessions.find(|record| record.principal == principal && record.id == *id).cloned())
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

    async fn events(&self, session: SessionKey, query: EventQuery) -> Result<EventPage, StoreError> {
        let mut inner = self.lock();
        let session = inner.session(session)?;
        let wanted = |row: &&StoredEvent| {
            row.place.seq > query.after
                && query.before.is_none_or(|before| row.place.seq < before)
                && query.kinds.is_none_or(|kinds| kinds.contains(&row.event.kind()))
        };
        let mut rows = session.events.iter().filter(wanted).peekable();
        let mut events = Vec::new();
        let mut bytes = 0;
        while let Some(row) = rows.peek() {
            let size = serde_json::to_string(&row.event).map_or(0, |body| body.len());
            let full = events.len() >= query.limit.min(MAX_PAGE_EVENTS) || bytes + size > MAX_PAGE_BYTES;
            if full && !events.is_empty() || query.limit == 0 {
                break;
            }
            bytes += size;
            events.extend(rows.next().cloned());
        }
        let more = rows.peek().is_some();
        Ok(EventPage { events, more, head_seq: session.record.head_seq })
    }

    async fn sessions_with_open_turns(&self) -> Result<Vec<SessionRecord>, StoreError> {
        let inner = self.lock();
        let sessions = inner.sessions.values().map(|session| &session.record);
        Ok(sessions.filter(|record| !record.state.open_turns.is_empty()).cloned().collect())
    }

    async fn audit(&self, query: AuditQuery) -> Result<Vec<(SessionId, AuditRecord)>, StoreError> {
        let inner = self.lock();
        let mut found: Vec<(u64, SessionId, AuditRecord)> = Vec::new();
        for session in inner.sessions.values() {
            if query.session.is_some_and(|key| key != session.record.key) {
                continue;
            }
            for row in &session.events {
                if let DurableEvent::Audited(record) = &row.event
                    && query.since.is_none_or(|since| record.at >= since)
                    && query.decision.is_none_or(|decision| record.decision == decision)
                {
                    found.push((row.place.gseq, session.record.id.clone(), record.clone()));
                }
            }
        }
        found.sort_by_key(|(gseq, ..)| *gseq);
        let skip = found.len().saturating_sub(query.limit);
        Ok(found.into_iter().skip(skip).map(|(_, id, record)| (id, record)).collect())
    }

    async fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[async_trait]
impl DocumentStore for MemoryStore {
    async fn documents(&self, collection: &Collection) -> Result<Vec<DocumentInfo>, StoreError> {
        let collection = collection.as_text();
        let inner = self.lock();
        let stored = inner.documents.iter().filter(|stored| stored.collection == collection);
        let info = |document: &Document| DocumentInfo {
            id: document.id.clone(),
            preview: document.content.chars().take(PREVIEW_CHARS).collect(),
            content_length: document.content.chars().count() as u64,
            metadata: document.metadata.clone(),
        };
        Ok(stored.filter_map(|stored| stored.document.as_ref()).map(info).collect())
    }

    async fn document_counts(&self, collections: &[Collection]) -> Result<BTreeMap<String, u64>, StoreError> {
        let inner = self.lock();
        let mut counts = BTreeMap::new();
        for collection in collections.iter().map(Collection::as_text) {
            let there =
                |stored: &&StoredDocument| stored.collection == collection && stored.document.is_some();
            let count = inner.documents.iter().filter(there).count() as u64;
            if count > 0 {
                counts.insert(collection, count);
            }
        }
        Ok(counts)
    }

    async fn document_changes(&self, after: u64, limit: usize) -> Result<Vec<DocumentChange>, StoreError> {
        let inner = self.lock();
        let changes = inner.documents.iter().filter(|stored| stored.gseq > after).take(limit);
        let change = |stored: &StoredDocument| DocumentChange {
            gseq: stored.gseq,
            collection: stored.collection.clone(),
            id: stored.id.clone(),
            document: stored.document.clone(),
        };
        Ok(changes.map(change).collect())
    }

    async fn document_head(&self) -> Result<u64, StoreError> {
        Ok(self.lock().document_head)
    }
}
