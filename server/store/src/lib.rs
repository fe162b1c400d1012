//! Persistence: sessions, their logs and documents in one SQLite file.
//!
//! Nothing outside this crate sees SQL, and nothing here decides what is stored or who may read it.
//!
//! * One thread writes. It commits everything that waits in one transaction, so that a flush of the
//!   disk, the only slow step, is shared by all who wait for it.
//! * A few threads read, each with its own connection; a reader never waits for the writer.
//! * What is acknowledged is on the disk: write-ahead log, flushed at every commit.
//! * What is erased is not: freed space is overwritten, terms leave the index, and the log file is emptied before
//!   a deletion is acknowledged, or within seconds where a reader still needs it.
//! * The index of messages follows a second after the last write; until then a search reads them from the log. One
//!   that is damaged holds up no write, and is made anew.
//! * An upgrade is one transaction, whole or not at all. It makes the index of messages empty but for titles; the
//!   messages that were there are added while nothing else waits, 200 a step, the newest first, also over
//!   restarts. Until then a search says that it is not complete. So an upgrade takes no longer than its tables, and
//!   than overwriting an index that is made anew.

mod sqlite;

use std::path::Path;
use std::time::Duration;

use tns_server_core::store::StoreError;

pub use sqlite::{Inspection, Pages, SqliteStore};

/// Gives the store at `path` and each of its sessions a new epoch, and returns the store's. Whoever puts an older
/// copy of a store in place, or a copy of it beside it, must do so before it is opened: the same places will be
/// given to other events, and a client that read the first ones must begin anew.
///
/// # Errors
/// Those of [`open`].
pub fn renew_epoch(path: &Path) -> Result<String, StoreError> {
    sqlite::renew_epoch(path)
}

/// Opens the store at `path`, and makes or upgrades it first where needed. The file is made with mode
/// 0600; its folder must exist, and keeping strangers out of that is the caller's business.
///
/// Blocks for a few milliseconds: call it before serving, or on a blocking thread.
///
/// # Errors
/// [`StoreError::Newer`] for a store of a newer version, which is left untouched; [`StoreError::Busy`]
/// when another process writes to it for more than five seconds; [`StoreError::Full`]; else
/// [`StoreError::Failed`], also for a file that is no store.
pub fn open(path: &Path) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(path, &sqlite::Options::default())
}

/// Looks a store over for at most about `limit`, without changing it; a server may be using it.
///
/// # Errors
/// As [`open`]; also when there is no file.
pub fn inspect(path: &Path, limit: Duration) -> Result<Inspection, StoreError> {
    sqlite::inspect(path, limit)
}
