//! The knowledge base and the directory index on the wire.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ids::DocumentId;

/// Hits when a search names no limit.
pub const DEFAULT_SEARCH_LIMIT: u32 = 5;
/// Most hits of one search.
pub const MAX_SEARCH_LIMIT: u32 = 50;
/// Characters of a document in a list.
pub const PREVIEW_CHARS: usize = 100;

/// `kb_add`: one document for the knowledge base.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KbAdd {
    /// The text; blank is refused.
    pub content: String,
    /// Anything that should come back with a hit, such as `source`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
}

/// `kb_search`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KbSearch {
    /// The question or words; blank is refused.
    pub query: String,
    /// Most hits: 1 to 50, 5 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Lowest score: 0 to 1, 0 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
}

/// `kb_list`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct KbList {}

/// `kb_remove`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KbRemove {
    /// Which document.
    pub document_id: DocumentId,
}

/// `kb_added`: the document is stored and will be found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KbAdded {
    /// Its id.
    pub document_id: DocumentId,
    /// The same content was there already; nothing changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub duplicate: bool,
}

/// `kb_removed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KbRemoved {
    /// Which document.
    pub document_id: DocumentId,
    /// Whether it was there.
    pub found: bool,
}

/// One hit of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SearchHit {
    /// The document.
    pub document_id: DocumentId,
    /// Its best passage.
    pub content: String,
    /// How well it fits: 0 to 1.
    pub score: f64,
    /// The document's metadata and where the passage stands.
    pub metadata: Map<String, Value>,
}

/// `kb_search_result`: best first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KbSearchResult {
    /// The hits.
    pub results: Vec<SearchHit>,
}

/// One document of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DocumentInfo {
    /// Its id.
    pub document_id: DocumentId,
    /// Its first 100 characters.
    pub preview: String,
    /// Its length in characters.
    pub content_length: u64,
    /// Its metadata.
    pub metadata: Map<String, Value>,
}

/// `kb_list_result`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KbListResult {
    /// The documents, oldest first.
    pub documents: Vec<DocumentInfo>,
    /// How many there are.
    pub total_count: u64,
}

/// `index_start`: a directory is being indexed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IndexStart {
    /// Which directory.
    pub path: String,
    /// Files to read.
    pub total_files: u64,
}

/// `index_progress`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IndexProgress {
    /// Files read.
    pub indexed_files: u64,
    /// Files to read.
    pub total_files: u64,
    /// The file being read.
    pub current_file: String,
}

/// `index_done`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IndexDone {
    /// Files in the index.
    pub file_count: u64,
    /// Chunks in the index.
    pub chunk_count: u64,
}
