//! Brings a store to the newest schema: numbered steps, forward only, all in one transaction.
//! It never touches a store that is newer than this program, or a database that is not ours.

use rusqlite::fallible_iterator::FallibleIterator as _;
use rusqlite::{Batch, Connection, TransactionBehavior};
use tns_server_core::store::StoreError;
use uuid::Uuid;

use super::error::{Fault, failed};
use super::index;

/// The steps; the number of steps done is kept in the file's `user_version`.
const MIGRATIONS: [Step; 4] = [
    Step { sql: include_str!("../migrations/0001_first.sql"), then: None },
    Step { sql: include_str!("../migrations/0002_usage.sql"), then: None },
    Step { sql: include_str!("../migrations/0003_history.sql"), then: None },
    Step { sql: include_str!("../migrations/0004_blocks.sql"), then: Some(index::add_titles) },
];

/// How many steps this program knows.
pub(super) const KNOWN: usize = MIGRATIONS.len();

/// Steps of a store that has no index of its messages yet.
#[cfg(test)]
pub(super) const BEFORE_SEARCH: usize = 2;

/// A step: statements, then what SQL can't do.
struct Step {
    sql: &'static str,
    then: Option<Then>,
}

/// What a step does behind its statements, in the same transaction.
type Then = fn(&Connection) -> Result<(), Fault>;

/// Returns how many steps the store has behind it; 0: an empty file.
pub(super) fn version(connection: &Connection) -> Result<usize, Fault> {
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let version = usize::try_from(version).unwrap_or(usize::MAX);
    if version > KNOWN {
        return Err(StoreError::Newer(format!(
            "the data folder was written by a newer version of tns (format {version}, this one knows \
             {KNOWN}); install that version again, or choose another data folder"
        ))
        .into());
    }
    if version == 0 {
        let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        if tables > 0 {
            return Err(failed("the database file belongs to another program").into());
        }
    }
    Ok(version)
}

/// Takes the steps that are missing: all of them or none.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), Fault> {
    migrate_with(connection, &mut || Ok(()))
}

/// Does so, and asks `before` ahead of each statement; where that fails, nothing has changed.
fn migrate_with(
    connection: &mut Connection,
    before: &mut dyn FnMut() -> Result<(), Fault>,
) -> Result<(), Fault> {
    if version(connection)? == KNOWN {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Asked again under the lock: another process may have been quicker.
    let done = version(&transaction)?;
    for step in MIGRATIONS.iter().skip(done) {
        let mut statements = Batch::new(&transaction, step.sql);
        while let Some(mut statement) = statements.next()? {
            before()?;
            statement.execute([])?;
        }
        if let Some(then) = step.then {
            before()?;
            then(&transaction)?;
        }
    }
    before()?;
    transaction.execute(
        "INSERT INTO meta (key, value) VALUES ('epoch', ?1) ON CONFLICT DO NOTHING",
        [Uuid::new_v4().simple().to_string()],
    )?;
    before()?;
    transaction.execute_batch(&format!("PRAGMA user_version = {KNOWN}"))?;
    before()?;
    transaction.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests;
