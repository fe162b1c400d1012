//! The index as files: what is in it, how far it has read the store, how it is opened, caught up and made anew.
//!
//! It is a cache. It must not decide what a search returns, and no failure of it may touch a stored document.

use std::collections::HashSet;
use std::fmt;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tantivy::directory::MmapDirectory;
use tantivy::directory::error::{OpenDirectoryError, OpenReadError, OpenWriteError};
use tantivy::indexer::IndexWriterOptions;
use tantivy::schema::{Field, IndexRecordOption, STRING, Schema, TextFieldIndexing, TextOptions};
use tantivy::{
    Index, IndexReader, IndexSettings, IndexWriter, ReloadPolicy, Searcher, TantivyDocument, TantivyError,
    Term,
};
use tns_protocol::DocumentId;
use tns_server_core::store::DocumentChange;

use crate::chunk::{Chunk, Limits, chunks};
use crate::words::{Side, analyzer};

/// Counts up with every change of the schema, the chunks or the words; an index of another format is not read.
const FORMAT: u32 = 2;
/// Most memory for what is not yet written, in bytes, grown as needed and held only while catching up. It holds the
/// terms of a document of the greatest size at once, or nearly: with the least that tantivy takes (15 MB) such a
/// document became dozens of parts, and merging them took most of the time.
const ARENA_BYTES: usize = 96_000_000;
/// Size in bytes of the blocks in which passages are compressed: a hit costs decompressing one, so they are small.
const BLOCK_BYTES: usize = 4 * 1024;
/// Decompressed blocks of a part of the index that stay in memory.
const CACHED_BLOCKS: usize = 64;
/// The analyzer's name in the schema.
const WORDS: &str = "words";

/// A passage as it is kept in the index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Passage {
    pub(crate) document: DocumentId,
    pub(crate) content: String,
    pub(crate) start_line: u64,
    pub(crate) end_line: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) heading_path: Vec<String>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub(crate) metadata: Map<String, Value>,
}

/// The fields of the index.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields {
    /// The collection, for filtering.
    pub(crate) collection: Field,
    /// Collection and document, for removing.
    key: Field,
    /// The words of the chunk and of the headings above it.
    pub(crate) body: Field,
    /// The [`Passage`] as JSON; only stored.
    pub(crate) passage: Field,
}

/// The last change that an index has read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    /// Its place in the store.
    pub(crate) gseq: u64,
    /// Whose change it was, to tell the index of another store.
    key: String,
}

impl Mark {
    /// Returns the mark of a change.
    pub(crate) fn of(change: &DocumentChange) -> Self {
        Self { gseq: change.gseq, key: key(&change.collection, &change.id) }
    }
}

/// Where the index lies.
#[derive(Debug)]
pub(crate) enum Place {
    /// In memory, for as long as the process lives.
    Memory,
    /// In a folder of its own under this one.
    Folder(PathBuf),
}

/// Why an index could not be opened.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// It can't be read; making it anew helps.
    Damaged(String),
    /// The folder can't be used; making the index anew would not help.
    Unusable(String),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Damaged(reason) | Self::Unusable(reason)) = self;
        f.write_str(reason)
    }
}

impl From<TantivyError> for OpenError {
    fn from(error: TantivyError) -> Self {
        let is_refused = |error: &io::Error| {
            matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied
                    | io::ErrorKind::StorageFull
                    | io::ErrorKind::ReadOnlyFilesystem
            )
        };
        let unusable = match &error {
            TantivyError::IoError(io) => is_refused(io),
            TantivyError::OpenReadError(OpenReadError::IoError { io_error, .. })
            | TantivyError::OpenWriteError(OpenWriteError::IoError { io_error, .. })
            | TantivyError::OpenDirectoryError(OpenDirectoryError::IoError { io_error, .. }) => {
                is_refused(io_error)
            }
            TantivyError::LockFailure(..) => true,
            _ => false,
        };
        if unusable { Self::Unusable(error.to_string()) } else { Self::Damaged(error.to_string()) }
    }
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        Self::Unusable(error.to_string())
    }
}

/// An open index.
pub(crate) struct Catalog {
    index: Index,
    reader: IndexReader,
    fields: Fields,
    mark: Option<Mark>,
}

impl Catalog {
    /// Opens the index, or makes an empty one where there is none. Every file is checked against its checksum,
    /// since the search engine trusts what it reads.
    pub(crate) fn open(place: &Place) -> Result<Self, OpenError> {
        let (schema, fields) = schema();
        let index = match place {
            Place::Memory => Index::builder().schema(schema).settings(settings()).create_in_ram()?,
            Place::Folder(folder) => {
                let folder = prepare(folder)?;
                let directory = MmapDirectory::open(&folder).map_err(TantivyError::from)?;
                Index::builder().schema(schema).settings(settings()).open_or_create(directory)?
            }
        };
        let damaged = index.validate_checksum()?;
        if !damaged.is_empty() {
            return Err(OpenError::Damaged(format!("{} of its files have a wrong checksum", damaged.len())));
        }
        index.tokenizers().register(WORDS, analyzer(Side::Document));
        let mark = match index.load_metas()?.payload {
            Some(payload) => {
                Some(serde_json::from_str(&payload).map_err(|e| OpenError::Damaged(e.to_string()))?)
            }
            None => None,
        };
        let reader = index
            .reader_builder()
            .reload_policy(ReloadPolicy::Manual)
            .doc_store_cache_num_blocks(CACHED_BLOCKS)
            .try_into()?;
        Ok(Self { index, reader, fields, mark })
    }

    /// Removes what is there and makes an empty index.
    pub(crate) fn make_anew(place: &Place) -> Result<Self, OpenError> {
        if let Place::Folder(folder) = place {
            match fs::remove_dir_all(folder_of_format(folder)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        Self::open(place)
    }

    /// Returns the last change read; `None`: none yet.
    pub(crate) fn mark(&self) -> Option<&Mark> {
        self.mark.as_ref()
    }

    /// Returns the fields, to search them.
    pub(crate) fn fields(&self) -> Fields {
        self.fields
    }

    /// Returns the state of the last commit, which later ones don't change.
    pub(crate) fn searcher(&self) -> Searcher {
        self.reader.searcher()
    }

    /// Starts to read changes in. Two threads and [`ARENA_BYTES`] live as long as what is returned.
    pub(crate) fn writing(&self) -> tantivy::Result<Writing> {
        let options = IndexWriterOptions::builder()
            .num_worker_threads(1)
            .num_merge_threads(1)
            .memory_budget_per_thread(ARENA_BYTES)
            .build();
        Ok(Writing { writer: self.index.writer_with_options(options)?, fields: self.fields })
    }

    /// Makes what was written last with its mark, all or nothing, and lets searches see it.
    pub(crate) fn commit(&mut self, mut writing: Writing, mark: Mark) -> tantivy::Result<()> {
        let payload = serde_json::to_string(&mark).map_err(io::Error::from)?;
        let mut commit = writing.writer.prepare_commit()?;
        commit.set_payload(&payload);
        commit.commit()?;
        self.mark = Some(mark);
        writing.writer.wait_merging_threads()?;
        self.reader.reload()
    }
}

/// Changes on their way into the index; dropped without [`Catalog::commit`], they were never there.
pub(crate) struct Writing {
    writer: IndexWriter,
    fields: Fields,
}

impl Writing {
    /// Takes a change in: the document's passages before it go, those after it come.
    pub(crate) fn apply(&mut self, change: DocumentChange) -> tantivy::Result<()> {
        let key = key(&change.collection, &change.id);
        self.writer.delete_term(Term::from_field_text(self.fields.key, &key));
        let Some(document) = change.document else { return Ok(()) };
        let mut seen = HashSet::new();
        for chunk in chunks(&document.content, Limits::DEFAULT) {
            if !seen.insert(chunk.text) {
                continue;
            }
            let passage = Passage {
                document: document.id.clone(),
                content: chunk.text.to_owned(),
                start_line: chunk.start_line,
                end_line: chunk.end_line,
                heading_path: chunk.headings.iter().map(|heading| heading.title.to_owned()).collect(),
                metadata: document.metadata.clone(),
            };
            let mut entry = TantivyDocument::new();
            entry.add_text(self.fields.collection, &change.collection);
            entry.add_text(self.fields.key, &key);
            entry.add_text(self.fields.body, body(&chunk));
            entry.add_text(self.fields.passage, serde_json::to_string(&passage).map_err(io::Error::from)?);
            self.writer.add_document(entry)?;
        }
        Ok(())
    }
}

/// Returns what a chunk is found by: its text, and the headings above it that it does not hold itself.
fn body(chunk: &Chunk<'_>) -> String {
    let above = chunk.headings.iter().filter(|heading| heading.start < chunk.start);
    above.map(|heading| heading.title).chain([chunk.text]).collect::<Vec<_>>().join("\n")
}

fn key(collection: &str, document: &DocumentId) -> String {
    format!("{collection}\n{document}")
}

fn schema() -> (Schema, Fields) {
    let mut schema = Schema::builder();
    let words =
        TextFieldIndexing::default().set_tokenizer(WORDS).set_index_option(IndexRecordOption::WithFreqs);
    let fields = Fields {
        collection: schema.add_text_field("collection", STRING),
        key: schema.add_text_field("key", STRING),
        body: schema.add_text_field("body", TextOptions::default().set_indexing_options(words)),
        passage: schema.add_text_field("passage", TextOptions::default().set_stored()),
    };
    (schema.build(), fields)
}

fn settings() -> IndexSettings {
    IndexSettings {
        docstore_compress_dedicated_thread: false,
        docstore_blocksize: BLOCK_BYTES,
        ..IndexSettings::default()
    }
}

fn folder_of_format(folder: &Path) -> PathBuf {
    folder.join(format!("v{FORMAT}"))
}

/// The mode of the index's folders: for their owner only, whatever the modes of the files in them.
const OWNER_ONLY: u32 = 0o700;

/// Makes the folder of this format and removes those of older ones.
fn prepare(folder: &Path) -> io::Result<PathBuf> {
    let own = folder_of_format(folder);
    if !own.is_dir() {
        DirBuilder::new().recursive(true).mode(OWNER_ONLY).create(&own)?;
        for older in
            (0..FORMAT).map(|format| folder.join(format!("v{format}"))).filter(|older| older.is_dir())
        {
            fs::remove_dir_all(older)?;
        }
    }
    Ok(own)
}
