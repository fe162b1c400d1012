//! What can wait until nothing else does: filling the index of what was stored before it was made, and
//! throwing away imports that were not finished. Small steps, each a transaction.

use rusqlite::{Connection, OptionalExtension as _};

use super::error::Fault;
use super::index;

/// Events of an import that one step throws away.
const PURGED_EVENTS: i64 = 500;

/// Whether a step left more to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    Some,
    /// And text was erased, which must not stay in the log file.
    SomeErased,
    Nothing,
}

/// Does one step.
pub(super) fn step(connection: &Connection) -> Result<Left, Fault> {
    if let Some(import) = dead_import(connection)? {
        purge(connection, import)?;
        return Ok(Left::SomeErased);
    }
    Ok(if index::fill(connection)? { Left::Some } else { Left::Nothing })
}

/// Marks the imports that another run of the program did not finish.
pub(super) fn bury_unfinished_imports(connection: &Connection) -> Result<(), Fault> {
    let unfinished = connection.prepare("SELECT 1 FROM imports WHERE NOT dead")?.exists([])?;
    if unfinished {
        connection.execute("UPDATE imports SET dead = 1", [])?;
    }
    Ok(())
}

fn dead_import(connection: &Connection) -> Result<Option<i64>, Fault> {
    Ok(connection
        .prepare_cached("SELECT pk FROM imports WHERE dead LIMIT 1")?
        .query_row([], |row| row.get(0))
        .optional()?)
}

fn purge(connection: &Connection, import: i64) -> Result<(), Fault> {
    let purged = connection
        .prepare_cached(
            "DELETE FROM import_events WHERE rowid IN
             (SELECT rowid FROM import_events WHERE import_pk = ?1 LIMIT ?2)",
        )?
        .execute([import, PURGED_EVENTS])?;
    if purged == 0 {
        connection.prepare_cached("DELETE FROM imports WHERE pk = ?1")?.execute([import])?;
    }
    Ok(())
}
