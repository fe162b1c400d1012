//! Documents: added and removed inside an append, listed and followed outside. Nothing is searched here.

use std::collections::BTreeMap;

use rusqlite::{Connection, Row, params};
use serde_json::{Map, Value};
use tns_protocol::DocumentId;
use tns_protocol::knowledge::PREVIEW_CHARS;
use tns_server_core::store::{Collection, Document, DocumentChange, DocumentInfo, NewDocument};

use super::error::{Fault, failed};
use super::writer::Write;
use super::{signed, unsigned};

/// Adds a document unless its collection has it.
pub(super) fn add(write: &mut Write<'_>, new: &NewDocument) -> Result<bool, Fault> {
    let metadata = serde_json::to_string(&new.metadata)
        .map_err(|error| failed(format!("write a document's metadata: {error}")))?;
    let gseq = write.numbers.next_gseq();
    let preview: String = new.content.chars().take(PREVIEW_CHARS).collect();
    let length = i64::try_from(new.content.chars().count()).unwrap_or(i64::MAX);
    let changed = write
        .connection
        .prepare_cached(
            "INSERT INTO documents (gseq, collection, document_id, content_length, preview, metadata, content)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT (collection, document_id) DO UPDATE
             SET gseq = ?1, content_length = ?4, preview = ?5, metadata = ?6, content = ?7 WHERE content IS NULL",
        )?
        .execute(params![
            signed(gseq),
            new.collection.as_text(),
            new.id.as_str(),
            length,
            preview,
            metadata,
            new.content,
        ])?;
    Ok(note_change(write, gseq, changed))
}

/// Removes a document if its collection has it; its row stays, without content.
pub(super) fn remove(write: &mut Write<'_>, collection: &Collection, id: &DocumentId) -> Result<bool, Fault> {
    let gseq = write.numbers.next_gseq();
    let changed = write
        .connection
        .prepare_cached(
            "UPDATE documents SET gseq = ?1, content_length = NULL, preview = NULL, metadata = NULL, content = NULL
             WHERE collection = ?2 AND document_id = ?3 AND content IS NOT NULL",
        )?
        .execute(params![signed(gseq), collection.as_text(), id.as_str()])?;
    Ok(note_change(write, gseq, changed))
}

/// Removes all documents of a collection.
pub(super) fn remove_all(write: &mut Write<'_>, collection: &Collection) -> Result<(), Fault> {
    for id in living(write.connection, collection)? {
        remove(write, collection, &id)?;
    }
    Ok(())
}

/// Returns the ids of a collection's documents, oldest first.
pub(super) fn living(connection: &Connection, collection: &Collection) -> Result<Vec<DocumentId>, Fault> {
    let mut statement = connection.prepare_cached(
        "SELECT document_id FROM documents WHERE collection = ?1 AND content IS NOT NULL ORDER BY gseq",
    )?;
    let ids = statement.query_map([collection.as_text()], |row| row.get::<_, String>(0))?;
    let parse = |id: String| DocumentId::parse(id).map_err(|error| failed(error.to_string()).into());
    ids.map(|id| parse(id?)).collect()
}

/// Reads a document; `None`: it is not there, or can't be read, which is logged.
pub(super) fn read(
    connection: &Connection,
    collection: &Collection,
    id: &DocumentId,
) -> Result<Option<Document>, Fault> {
    let collection = collection.as_text();
    let mut statement = connection.prepare_cached(
        "SELECT gseq, collection, document_id, metadata, content FROM documents
         WHERE collection = ?1 AND document_id = ?2",
    )?;
    let mut rows = statement.query(params![collection, id.as_str()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(change(row, id.as_str())?
        .unwrap_or_else(|why| {
            left_out(&collection, id.as_str(), &why);
            (id.clone(), None)
        })
        .1)
}

/// Lists a collection, oldest first. A document that can't be read is left out and logged.
pub(super) fn list(connection: &Connection, collection: &str) -> Result<Vec<DocumentInfo>, Fault> {
    let mut statement = connection.prepare_cached(
        "SELECT document_id, preview, content_length, metadata FROM documents
         WHERE collection = ?1 AND content IS NOT NULL ORDER BY gseq",
    )?;
    let mut rows = statement.query([collection])?;
    let mut documents = Vec::new();
    while let Some(row) = rows.next()? {
        let (id, metadata): (String, String) = (row.get(0)?, row.get(3)?);
        match parts(&id, &metadata) {
            Ok((id, metadata)) => documents.push(DocumentInfo {
                id,
                preview: row.get(1)?,
                content_length: unsigned(row.get(2)?),
                metadata,
            }),
            Err(why) => left_out(collection, &id, &why),
        }
    }
    Ok(documents)
}

/// Counts the documents of each collection that has any.
pub(super) fn counts(
    connection: &Connection,
    collections: Vec<String>,
) -> Result<BTreeMap<String, u64>, Fault> {
    let mut statement = connection
        .prepare_cached("SELECT count(*) FROM documents WHERE collection = ?1 AND content IS NOT NULL")?;
    let mut counts = BTreeMap::new();
    for collection in collections {
        let count = unsigned(statement.query_row([&collection], |row| row.get(0))?);
        if count > 0 {
            counts.insert(collection, count);
        }
    }
    Ok(counts)
}

/// Reads the changes after a place, ascending. One that can't be read is left out and logged.
pub(super) fn changes(
    connection: &Connection,
    after: u64,
    limit: usize,
) -> Result<Vec<DocumentChange>, Fault> {
    let mut statement = connection.prepare_cached(
        "SELECT gseq, collection, document_id, metadata, content FROM documents WHERE gseq > ?1 ORDER BY gseq",
    )?;
    let mut rows = statement.query([signed(after)])?;
    let mut changes = Vec::new();
    while changes.len() < limit
        && let Some(row) = rows.next()?
    {
        let (collection, id): (String, String) = (row.get(1)?, row.get(2)?);
        match change(row, &id)? {
            Ok((id, document)) => {
                changes.push(DocumentChange { gseq: unsigned(row.get(0)?), collection, id, document })
            }
            Err(why) => left_out(&collection, &id, &why),
        }
    }
    Ok(changes)
}

fn note_change(write: &mut Write<'_>, gseq: u64, rows: usize) -> bool {
    if rows > 0 {
        write.numbers.document_head = gseq;
    }
    rows > 0
}

type Change = (DocumentId, Option<Document>);

fn change(row: &Row<'_>, id: &str) -> Result<Result<Change, String>, Fault> {
    let (metadata, content): (Option<String>, Option<String>) = (row.get(3)?, row.get(4)?);
    let Some(content) = content else {
        return Ok(DocumentId::parse(id).map(|id| (id, None)).map_err(|error| error.to_string()));
    };
    Ok(parts(id, metadata.as_deref().unwrap_or_default())
        .map(|(id, metadata)| (id.clone(), Some(Document { id, content, metadata }))))
}

fn parts(id: &str, metadata: &str) -> Result<(DocumentId, Map<String, Value>), String> {
    let id = DocumentId::parse(id).map_err(|error| error.to_string())?;
    let metadata = serde_json::from_str(metadata).map_err(|error| error.to_string())?;
    Ok((id, metadata))
}

fn left_out(collection: &str, document: &str, why: &str) {
    tracing::error!(collection, document, why, "a stored document can't be read and is left out");
}
