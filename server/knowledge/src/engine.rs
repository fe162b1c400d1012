//! The knowledge engine: before a search it reads in what the store has more, then it searches.
//!
//! Nothing exists until there is a document: no folder, no thread, no memory. It must not write to the store.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tns_server_core::store::{
    Collection, DocumentChange, DocumentStore, Hit, Knowledge, KnowledgeError, KnowledgeQuery, StoreError,
};
use tokio::runtime::Handle;
use tokio::task::{JoinError, spawn_blocking};

use crate::catalog::{Catalog, Mark, OpenError, Place, Writing};
use crate::search::{Request, Snapshot, find};
use crate::words::question_terms;

/// Changes that are read from the store at once; each may hold a document of the greatest size.
const PAGE_CHANGES: usize = 8;
/// Bytes of documents after which what was read in is committed, though there is more: a process that ends while
/// it catches up loses no more work than this and one document.
const COMMIT_BYTES: usize = 2 * 1024 * 1024;
/// Changes after which what was read in is committed, though there is more.
const COMMIT_CHANGES: usize = 1_024;

/// Searches the documents of a store.
pub struct KnowledgeEngine {
    documents: Arc<dyn DocumentStore>,
    index: Arc<OpenIndex>,
    /// Why the last search failed, if the index did. Whether the store works is asked anew.
    failure: Mutex<Option<KnowledgeError>>,
}

struct OpenIndex {
    place: Place,
    /// Taken while catching up, across awaits of the store: only one at a time may write.
    catalog: Arc<tokio::sync::Mutex<Option<Catalog>>>,
    /// What searches see.
    snapshot: Mutex<Option<Snapshot>>,
}

/// Why a search failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// The index can't be read; making it anew helps.
    #[error("failed to read the index: {0}")]
    Read(String),
    /// The index can't be opened or written.
    #[error("failed to update the index: {0}")]
    Write(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<Failure> for KnowledgeError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Store(StoreError::Failed(reason)) => Self::Store(StoreError::Failed(one_line(&reason))),
            Failure::Store(error) => Self::Store(error),
            Failure::Read(_) | Failure::Write(_) => Self::Index(one_line(&failure.to_string())),
        }
    }
}

/// Whether to go on with the index that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    Keep,
    Anew,
}

impl KnowledgeEngine {
    /// Searches `documents`, with its index in a folder under `dir`, or in memory without one. This does nothing
    /// yet: the first search that finds a document in the store opens, makes or repairs the index.
    pub fn open(dir: Option<&Path>, documents: Arc<dyn DocumentStore>) -> Self {
        let place = dir.map_or(Place::Memory, |dir| Place::Folder(dir.to_owned()));
        let index = OpenIndex { place, catalog: Arc::default(), snapshot: Mutex::default() };
        Self { documents, index: Arc::new(index), failure: Mutex::default() }
    }

    async fn find(&self, query: KnowledgeQuery) -> Result<Vec<Hit>, Failure> {
        let head = self.documents.document_head().await?;
        let terms = if head == 0 { Vec::new() } else { question_terms(&query.text) };
        if terms.is_empty() || query.limit == 0 || query.collections.is_empty() {
            return Ok(Vec::new());
        }
        let request = Arc::new(Request {
            collections: query.collections.iter().map(Collection::as_text).collect(),
            terms,
            limit: query.limit,
            threshold: query.threshold,
        });
        match self.find_in(Arc::clone(&request), head, Start::Keep).await {
            Err(Failure::Read(reason)) => {
                tracing::warn!(%reason, "making the knowledge index anew");
                self.find_in(request, head, Start::Anew).await
            }
            answer => answer,
        }
    }

    async fn find_in(&self, request: Arc<Request>, head: u64, start: Start) -> Result<Vec<Hit>, Failure> {
        let snapshot = self.caught_up(head, start).await?;
        let found = spawn_blocking(move || find(&snapshot, &request)).await;
        found
            .map_err(|error| Failure::Read(reason(&error)))?
            .map_err(|error| Failure::Read(error.to_string()))
    }

    /// Returns a state that has read the store's changes up to `head` at least.
    async fn caught_up(&self, head: u64, start: Start) -> Result<Snapshot, Failure> {
        if start == Start::Keep
            && let Some(snapshot) = self.index.snapshot_at(head)
        {
            return Ok(snapshot);
        }
        let mut catalog = Arc::clone(&self.index.catalog).lock_owned().await;
        // Another search may have caught up while this one waited.
        if start == Start::Keep
            && let Some(snapshot) = self.index.snapshot_at(head)
        {
            return Ok(snapshot);
        }
        let (index, documents, runtime) =
            (Arc::clone(&self.index), Arc::clone(&self.documents), Handle::current());
        // It runs to its end with the lock, even if whoever searches has gone.
        let done = spawn_blocking(move || {
            let source = Source { documents: &*documents, runtime };
            let (open, snapshot) = source.catch_up(&index.place, catalog.take(), head, start)?;
            *catalog = Some(open);
            *index.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = Some(snapshot.clone());
            Ok(snapshot)
        });
        done.await.map_err(|error| Failure::Write(reason(&error)))?
    }
}

impl OpenIndex {
    fn snapshot_at(&self, head: u64) -> Option<Snapshot> {
        let snapshot = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        snapshot.as_ref().filter(|snapshot| snapshot.at >= head).cloned()
    }
}

#[async_trait]
impl Knowledge for KnowledgeEngine {
    async fn search(&self, query: KnowledgeQuery) -> Result<Vec<Hit>, KnowledgeError> {
        let answer = self.find(query).await.map_err(KnowledgeError::from);
        let of_index = |error: &&KnowledgeError| matches!(error, KnowledgeError::Index(_));
        let failure = answer.as_ref().err().filter(of_index).cloned();
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
        answer
    }

    /// Asks the store, and tells why the last search failed if the index did. It does not catch up.
    async fn check(&self) -> Result<(), KnowledgeError> {
        self.documents.document_head().await.map_err(Failure::Store)?;
        match &*self.failure.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(failure) => Err(failure.clone()),
            None => Ok(()),
        }
    }
}

/// The store, read from a blocking thread.
struct Source<'a> {
    documents: &'a dyn DocumentStore,
    runtime: Handle,
}

impl Source<'_> {
    /// Opens the index unless it is open, and reads in what it lacks.
    fn catch_up(
        &self,
        place: &Place,
        open: Option<Catalog>,
        head: u64,
        start: Start,
    ) -> Result<(Catalog, Snapshot), Failure> {
        let mut catalog = match (start, open) {
            (Start::Keep, Some(catalog)) => catalog,
            (Start::Keep, None) => self.open(place)?,
            (Start::Anew, old) => {
                drop(old);
                Catalog::make_anew(place).map_err(cannot_open)?
            }
        };
        self.read_in(&mut catalog)?;
        let read = catalog.mark().map_or(0, |mark| mark.gseq);
        let snapshot =
            Snapshot { searcher: catalog.searcher(), fields: catalog.fields(), at: read.max(head) };
        Ok((catalog, snapshot))
    }

    /// Opens the index, and makes it anew if it is damaged or was made from another store.
    fn open(&self, place: &Place) -> Result<Catalog, Failure> {
        let reason = match Catalog::open(place) {
            Ok(catalog) if self.is_of_this_store(catalog.mark())? => return Ok(catalog),
            Ok(_) => "it belongs to another state of the store".to_owned(),
            Err(OpenError::Damaged(reason)) => reason,
            Err(error @ OpenError::Unusable(_)) => return Err(cannot_open(error)),
        };
        tracing::warn!(%reason, "making the knowledge index anew");
        Catalog::make_anew(place).map_err(cannot_open)
    }

    /// Whether the store has what the index read last: not ahead of the store, and, unless the document has changed
    /// since, the same document at the same place.
    fn is_of_this_store(&self, mark: Option<&Mark>) -> Result<bool, StoreError> {
        let Some(mark) = mark else { return Ok(true) };
        if mark.gseq > self.runtime.block_on(self.documents.document_head())? {
            return Ok(false);
        }
        let changes =
            self.runtime.block_on(self.documents.document_changes(mark.gseq.saturating_sub(1), 1))?;
        Ok(changes.first().is_none_or(|change| change.gseq != mark.gseq || Mark::of(change) == *mark))
    }

    /// Reads in all changes that the index lacks. Every commit carries the mark of its last change, so that what
    /// it holds is not read again, even if a later one never comes.
    fn read_in(&self, catalog: &mut Catalog) -> Result<(), Failure> {
        let mut after = catalog.mark().map_or(0, |mark| mark.gseq);
        let mut batch: Option<Batch> = None;
        loop {
            let changes = self.runtime.block_on(self.documents.document_changes(after, PAGE_CHANGES))?;
            if changes.is_empty() {
                break;
            }
            for change in changes {
                let last = Mark::of(&change);
                after = last.gseq;
                let mut open = match batch.take() {
                    Some(open) => open,
                    None => Batch {
                        writing: catalog.writing().map_err(cannot_write)?,
                        size: Size::default(),
                        last: last.clone(),
                    },
                };
                open.size.add(&change);
                open.last = last;
                open.writing.apply(change).map_err(cannot_write)?;
                if open.size.is_full() {
                    catalog.commit(open.writing, open.last).map_err(cannot_write)?;
                } else {
                    batch = Some(open);
                }
            }
        }
        match batch {
            Some(rest) => catalog.commit(rest.writing, rest.last).map_err(cannot_write),
            None => Ok(()),
        }
    }
}

/// Changes that are committed together.
struct Batch {
    writing: Writing,
    size: Size,
    /// The last of them.
    last: Mark,
}

/// How much a batch holds.
#[derive(Debug, Default)]
struct Size {
    changes: usize,
    bytes: usize,
}

impl Size {
    fn add(&mut self, change: &DocumentChange) {
        self.changes += 1;
        self.bytes += change.document.as_ref().map_or(0, |document| document.content.len());
    }

    fn is_full(&self) -> bool {
        self.changes >= COMMIT_CHANGES || self.bytes >= COMMIT_BYTES
    }
}

fn cannot_open(error: OpenError) -> Failure {
    Failure::Write(error.to_string())
}

fn cannot_write(error: tantivy::TantivyError) -> Failure {
    Failure::Write(error.to_string())
}

fn reason(error: &JoinError) -> String {
    if error.is_panic() { "it broke off" } else { "the server is stopping" }.to_owned()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod ranking_tests;
#[cfg(test)]
mod size_tests;
#[cfg(test)]
mod tests;
