//! Sessions made from others: forks and imports.

use std::collections::HashMap;

use tns_protocol::{DocumentId, Seq, Timestamp};

use super::{Inner, Session};
use crate::event::DurableEvent;
use crate::store::{
    Collection, Document, ImportKey, ImportedEvent, NewImport, NewSession, Place, SessionKey, SessionRecord,
    SessionState, StoreError, StoredEvent,
};

impl Inner {
    pub(super) fn fork(
        &mut self,
        from: SessionKey,
        at_seq: Seq,
        new: NewSession,
    ) -> Result<(SessionRecord, bool), StoreError> {
        let source = self.session(from)?;
        if at_seq > source.record.head_seq {
            let reason =
                format!("the log has {} events and can't be forked at {at_seq}", source.record.head_seq);
            return Err(StoreError::Failed(reason));
        }
        let mut events: Vec<StoredEvent> =
            source.events.iter().take_while(|event| event.place.seq <= at_seq).cloned().collect();
        let feedback = source.feedback.range(..=at_seq).map(|(seq, score)| (*seq, *score)).collect();
        if let Some(existing) = self.find(&new.principal, &new.id) {
            return Ok((existing.clone(), false));
        }
        let added: Vec<DocumentId> = events
            .iter()
            .filter_map(|event| match &event.event {
                DurableEvent::KbAdded(id) => Some(id.clone()),
                _ => None,
            })
            .collect();
        let documents: Vec<Document> = self
            .living(&Collection::Session(from))
            .into_iter()
            .filter(|document| added.contains(&document.id))
            .collect();
        let made = self.make(new, Timestamp::now());
        made.feedback = feedback;
        made.copied = at_seq;
        let key = made.record.key;
        let ids = self.copy_documents(key, documents);
        for event in &mut events {
            if let DurableEvent::KbAdded(id) | DurableEvent::KbRemoved(id) = &mut event.event
                && let Some(new) = ids.get(id)
            {
                *id = new.clone();
            }
        }
        let events = events.into_iter().map(|event| ImportedEvent {
            at: event.place.at,
            turn: event.turn,
            event: event.event,
        });
        let gseq = self.gseq;
        self.gseq += at_seq;
        let session = self.session(key)?;
        session.fill(gseq, events);
        Ok((session.record.clone(), true))
    }

    /// Returns the ids that the documents have in the new session, by those that they had.
    fn copy_documents(
        &mut self,
        session: SessionKey,
        documents: Vec<Document>,
    ) -> HashMap<DocumentId, DocumentId> {
        let collection = Collection::Session(session);
        let mut ids = HashMap::new();
        for document in documents {
            let id = collection.document_id(&document.content);
            ids.insert(document.id.clone(), id.clone());
            self.change_document(&collection.as_text(), &id.clone(), Some(Document { id, ..document }));
        }
        ids
    }

    pub(super) fn begin_import(&mut self, new: NewImport) -> Option<ImportKey> {
        if self.find(&new.principal, &new.id).is_some() {
            return None;
        }
        let key = ImportKey(self.next_key());
        self.imports.insert(key, (new, Vec::new()));
        Some(key)
    }

    pub(super) fn import_events(
        &mut self,
        import: ImportKey,
        events: Vec<ImportedEvent>,
    ) -> Result<(), StoreError> {
        let (_, gathered) = self.imports.get_mut(&import).ok_or(StoreError::NoSession)?;
        gathered.extend(events);
        Ok(())
    }

    pub(super) fn finish_import(
        &mut self,
        import: ImportKey,
        state: SessionState,
    ) -> Result<Option<SessionRecord>, StoreError> {
        let (new, events) = self.imports.remove(&import).ok_or(StoreError::NoSession)?;
        if self.find(&new.principal, &new.id).is_some() {
            return Ok(None);
        }
        let gseq = self.gseq;
        self.gseq += events.len() as u64;
        let NewImport { principal, id, title, workspace, created_at } = new;
        let session = self.make(NewSession { principal, id, title, workspace, state }, created_at);
        session.fill(gseq, events);
        Ok(Some(session.record.clone()))
    }
}

impl Session {
    /// Puts events into the empty log, at the places after `gseq`.
    fn fill(&mut self, gseq: u64, events: impl IntoIterator<Item = ImportedEvent>) {
        for (event, seq) in events.into_iter().zip(1..) {
            let place = Place { seq, gseq: gseq + seq, at: event.at };
            self.events.push(StoredEvent { place, turn: event.turn, event: event.event });
            self.record.head_seq = seq;
        }
    }
}
