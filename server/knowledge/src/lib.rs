//! Finds passages in stored documents: text → chunks → words → BM25 → hits.
//!
//! Documents live in the store and come from [`DocumentStore`](tns_server_core::store::DocumentStore). What this
//! crate writes is a cache that may be deleted at any time: it remembers up to which change it has read, catches up
//! before a search and is rebuilt when it is damaged or belongs to another store. It must not know SQL or the wire.

mod catalog;
mod chunk;
mod engine;
mod search;
mod segment;
mod words;

pub use engine::KnowledgeEngine;
pub use search::MAX_HITS;
