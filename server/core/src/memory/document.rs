//! The documents of a store in memory.

use std::collections::BTreeMap;

use async_trait::async_trait;
use tns_protocol::DocumentId;
use tns_protocol::knowledge::PREVIEW_CHARS;

use super::{Inner, MemoryStore};
use crate::store::{Collection, Document, DocumentChange, DocumentInfo, DocumentStore, StoreError};

#[derive(Debug)]
pub(super) struct StoredDocument {
    pub(super) collection: String,
    pub(super) id: DocumentId,
    gseq: u64,
    /// `None`: removed.
    pub(super) document: Option<Document>,
}

impl Inner {
    /// Adds (`Some`) or removes (`None`) a document; `false`: it is there, or not there, already.
    pub(super) fn change_document(
        &mut self,
        collection: &str,
        id: &DocumentId,
        document: Option<Document>,
    ) -> bool {
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

    /// Returns the documents of a collection that are there.
    pub(super) fn living(&self, collection: &Collection) -> Vec<Document> {
        let collection = collection.as_text();
        let stored = self.documents.iter().filter(|stored| stored.collection == collection);
        stored.filter_map(|stored| stored.document.clone()).collect()
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
