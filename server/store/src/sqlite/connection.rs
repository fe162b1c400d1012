//! Opens the file and its connections with the settings that durability and a small idle process need.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use tns_server_core::store::StoreError;

use super::Options;
use super::error::{Fault, failed, from_io};
use super::migrate;

/// What a database file begins with.
const MAGIC: &[u8] = b"SQLite format 3\0";
/// Mode of the database file; SQLite gives its companions (`-wal`, `-shm`) the same.
const FILE_MODE: u32 = 0o600;
/// Page cache of the writer, in KiB. The hot pages of a log are its last ones.
const WRITER_CACHE_KIB: i32 = 1024;
/// Page cache of each reader, in KiB. Enough for the inner pages; the rest is the system's cache.
const READER_CACHE_KIB: i32 = 512;
/// The log file is cut back to this after a checkpoint, in bytes: a burst doesn't leave a huge file.
const WAL_KEPT_BYTES: u32 = 8 << 20;
/// Pages of the log after which it is folded into the file. An opening process reads the log first, and
/// most processes live for one command, so it is kept to about a megabyte; SQLite's own default is 1,000.
const WAL_PAGES: u32 = 250;
/// Prepared statements kept by a connection: more than either side has.
const STATEMENTS: usize = 32;

/// Opens the writing connection; makes and upgrades the store first where needed.
pub(super) fn open_writer(path: &Path, options: &Options) -> Result<Connection, StoreError> {
    make_file(path)?;
    Ok(prepare_writer(path, options)?)
}

/// Opens a reading connection to a store that the writer has opened.
pub(super) fn open_reader(path: &Path, busy_timeout: Duration) -> Result<Connection, Fault> {
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY, busy_timeout, READER_CACHE_KIB)?;
    connection.execute_batch("PRAGMA query_only = ON")?;
    Ok(connection)
}

fn prepare_writer(path: &Path, options: &Options) -> Result<Connection, Fault> {
    let mut connection =
        connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE, options.busy_timeout, WRITER_CACHE_KIB)?;
    // Before anything is written: a newer store, or somebody else's database, stays as it is.
    migrate::version(&connection)?;
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if mode != "wal" {
        return Err(failed(format!("the file system of {} has no shared memory", path.display())).into());
    }
    connection.execute_batch(&format!(
        "PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA wal_autocheckpoint = {WAL_PAGES};
         PRAGMA journal_size_limit = {WAL_KEPT_BYTES}; PRAGMA secure_delete = ON;"
    ))?;
    if let Some(pages) = options.max_pages {
        connection.execute_batch(&format!("PRAGMA max_page_count = {pages}"))?;
    }
    migrate::migrate(&mut connection)?;
    Ok(connection)
}

/// Opens the file with what holds for every connection.
pub(super) fn connect(
    path: &Path,
    access: OpenFlags,
    busy_timeout: Duration,
    cache_kib: i32,
) -> Result<Connection, Fault> {
    // A connection stays with its thread, so SQLite's own locks around it are left out.
    let connection = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(busy_timeout)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.execute_batch(&format!(
        "PRAGMA cache_size = -{cache_kib}; PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF;"
    ))?;
    Ok(connection)
}

/// Makes the file with its mode before SQLite would make it with a wider one. SQLite takes a file that begins
/// with nothing for an empty one and would write over what follows.
fn make_file(path: &Path) -> Result<(), StoreError> {
    let mut begin = Vec::new();
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(FILE_MODE)
        .open(path)
        .and_then(|file| file.take(MAGIC.len() as u64).read_to_end(&mut begin))
        .map_err(|error| from_io(&format!("open {}", path.display()), &error))?;
    if begin.is_empty() || begin == MAGIC {
        Ok(())
    } else {
        Err(StoreError::Damaged("file is not a database".to_owned()))
    }
}
