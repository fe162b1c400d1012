//! Persistence: sessions, their logs and documents in one SQLite file.
//!
//! Nothing outside this crate sees SQL, and nothing here decides what is stored or who may read it.
//!
//! * One thread writes. It commits everything that waits in one transaction, so that a flush of the
//!   disk, the only slow step, is shared by all who wait for it.
//! * A few threads read, each with its own connection; a reader never waits for the writer.
//! * What is acknowledged is on the disk: write-ahead log, flushed at every commit.

mod sqlite;

use std::path::Path;

use tns_server_core::store::StoreError;

pub use sqlite::SqliteStore;

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
