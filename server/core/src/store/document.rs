//! Documents, and what finds passages in them. They are written with the event that announces them.

use std::collections::BTreeMap;
use std::path::Path;

use async_trait::async_trait;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use tns_protocol::{DocumentId, ErrorCode};

use super::{SessionKey, StoreError};

/// A set of documents that is searched as one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Collection {
    /// One session's.
    Session(SessionKey),
    /// One folder's, by digest: every session of a principal that works there.
    Project(String),
    /// One principal's.
    User(String),
}

impl Collection {
    /// Returns the collection of a principal's folder.
    pub fn project(principal: &str, workspace: &Path) -> Self {
        let mut hash = Sha256::new();
        hash.update(principal.as_bytes());
        hash.update([0]);
        hash.update(workspace.as_os_str().as_encoded_bytes());
        Self::Project(hex(&hash.finalize()[..16]))
    }

    /// Returns the stable text of the collection, as a store keeps it.
    pub fn as_text(&self) -> String {
        match self {
            Self::Session(key) => format!("session:{}", key.0),
            Self::Project(digest) => format!("project:{digest}"),
            Self::User(principal) => format!("user:{principal}"),
        }
    }

    /// Returns the id that this content has in this collection.
    pub fn document_id(&self, content: &str) -> DocumentId {
        let mut hash = Sha256::new();
        hash.update(self.as_text().as_bytes());
        hash.update([0]);
        hash.update(content.as_bytes());
        let id = format!("doc-{}", hex(&hash.finalize()[..16]));
        match DocumentId::parse(id) {
            Ok(id) => id,
            Err(_) => unreachable!("a hex digest is a valid id"),
        }
    }
}

/// Writes bytes as lower-case hex digits.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing into a String can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A document to be stored.
#[derive(Debug, Clone, PartialEq)]
pub struct NewDocument {
    /// Where.
    pub collection: Collection,
    /// Its id: [`Collection::document_id`].
    pub id: DocumentId,
    /// Its text.
    pub content: String,
    /// Anything that comes back with a hit.
    pub metadata: Map<String, Value>,
}

/// A stored document.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Its id.
    pub id: DocumentId,
    /// Its text.
    pub content: String,
    /// Anything that comes back with a hit.
    pub metadata: Map<String, Value>,
}

/// A document in a list.
#[derive(Debug, Clone, PartialEq)]
pub struct DocumentInfo {
    /// Its id.
    pub id: DocumentId,
    /// Its first 100 characters.
    pub preview: String,
    /// Its length in characters.
    pub content_length: u64,
    /// Its metadata.
    pub metadata: Map<String, Value>,
}

/// A change of a collection, in the store's order.
#[derive(Debug, Clone, PartialEq)]
pub struct DocumentChange {
    /// Its place in the store.
    pub gseq: u64,
    /// The collection.
    pub collection: String,
    /// The document's id.
    pub id: DocumentId,
    /// The document; `None`: it was removed.
    pub document: Option<Document>,
}

/// Documents. They are written by [`Store::append`](super::Store::append), together with the event that announces them.
#[async_trait]
pub trait DocumentStore: Send + Sync + 'static {
    /// Lists a collection's documents, oldest first.
    async fn documents(&self, collection: &Collection) -> Result<Vec<DocumentInfo>, StoreError>;

    /// Counts the documents of each of these collections that has any, by [`Collection::as_text`].
    async fn document_counts(&self, collections: &[Collection]) -> Result<BTreeMap<String, u64>, StoreError>;

    /// Reads the changes after a place, ascending, at most `limit`. Only a document's last change is kept.
    async fn document_changes(&self, after: u64, limit: usize) -> Result<Vec<DocumentChange>, StoreError>;

    /// Returns the place of the last change; 0: none. Cheap: it is asked before every search.
    async fn document_head(&self) -> Result<u64, StoreError>;
}

/// A passage found.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// The document.
    pub document: DocumentId,
    /// Its best passage.
    pub content: String,
    /// How well it fits: 0 to 1.
    pub score: f64,
    /// The document's metadata, with `startLine` and `endLine` of the passage.
    pub metadata: Map<String, Value>,
}

/// What to look for.
#[derive(Debug, Clone, PartialEq)]
pub struct KnowledgeQuery {
    /// Where: hits of all of them are ranked together.
    pub collections: Vec<Collection>,
    /// A question or words; any text is fine.
    pub text: String,
    /// Most hits.
    pub limit: usize,
    /// Lowest score.
    pub threshold: f64,
}

/// Finds passages.
#[async_trait]
pub trait Knowledge: Send + Sync + 'static {
    /// Searches everything that was stored before the call. A text without words finds nothing.
    ///
    /// # Errors
    /// The reason in one line.
    async fn search(&self, query: KnowledgeQuery) -> Result<Vec<Hit>, KnowledgeError>;

    /// Whether it can search.
    async fn check(&self) -> Result<(), KnowledgeError>;
}

/// A search failed; what is stored is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KnowledgeError {
    /// The documents can't be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What finds passages failed: the reason in one line.
    #[error("{0}")]
    Index(String),
}

impl KnowledgeError {
    /// Returns the wire's code for it.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Store(error) => error.code(),
            Self::Index(_) => ErrorCode::KbError,
        }
    }
}
