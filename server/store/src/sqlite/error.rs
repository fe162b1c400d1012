//! What went wrong inside, and how the outside is told. It never decides what to do about it.

use rusqlite::ErrorCode;
use rusqlite::ffi::{SQLITE_CORRUPT_VTAB, SQLITE_IOERR_SHMSIZE};
use tns_server_core::store::StoreError;

/// A failure on the way: of SQLite, or one that is already told as the outside will hear it.
#[derive(Debug)]
pub(super) enum Fault {
    Sqlite(rusqlite::Error),
    /// Of SQLite, while it wrote into the index of messages.
    Index(rusqlite::Error),
    Store(StoreError),
}

impl Fault {
    /// Tells it as the outside will hear it.
    pub(super) fn told(&self) -> StoreError {
        match self {
            Self::Sqlite(error) | Self::Index(error) => from_sqlite(error),
            Self::Store(error) => error.clone(),
        }
    }

    /// Whether the index of messages is damaged, and nothing else is known to be.
    pub(super) fn is_of_index(&self) -> bool {
        match self {
            Self::Index(error) => matches!(from_sqlite(error), StoreError::Damaged(_)),
            // Only virtual tables have this code, and the index is the only one.
            Self::Sqlite(error) => error.sqlite_extended_error_code() == Some(SQLITE_CORRUPT_VTAB),
            Self::Store(_) => false,
        }
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Store(error) => error,
            fault @ (Fault::Sqlite(_) | Fault::Index(_)) => fault.told(),
        }
    }
}

/// Makes a failure that names what failed.
pub(super) fn failed(reason: impl AsRef<str>) -> StoreError {
    StoreError::Failed(one_line(reason.as_ref()))
}

/// Returns the error of a call whose thread is gone.
pub(super) fn stopped() -> StoreError {
    failed("it has stopped")
}

/// Tells an error of the file system.
pub(super) fn from_io(doing: &str, error: &std::io::Error) -> StoreError {
    match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => StoreError::Full,
        std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
            StoreError::ReadOnly(one_line(&format!("{doing}: {error}")))
        }
        _ => failed(format!("{doing}: {error}")),
    }
}

fn from_sqlite(error: &rusqlite::Error) -> StoreError {
    // The only way to fail to lengthen the shared index of the log is a full disk.
    if error.sqlite_extended_error_code() == Some(SQLITE_IOERR_SHMSIZE) {
        return StoreError::Full;
    }
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::Full,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Busy,
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            StoreError::ReadOnly(one_line(&error.to_string()))
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            StoreError::Damaged(one_line(&error.to_string()))
        }
        _ => failed(error.to_string()),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    fn told(code: i32) -> StoreError {
        Fault::from(rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some("a\n b".into()))).into()
    }

    #[test]
    fn each_kind_of_trouble_is_told_as_what_it_is() {
        assert_eq!(told(ffi::SQLITE_FULL), StoreError::Full);
        assert_eq!(told(ffi::SQLITE_IOERR_SHMSIZE), StoreError::Full);
        assert_eq!(told(ffi::SQLITE_BUSY), StoreError::Busy);
        assert_eq!(told(ffi::SQLITE_BUSY_SNAPSHOT), StoreError::Busy);
        assert_eq!(told(ffi::SQLITE_LOCKED), StoreError::Busy);
        assert_eq!(told(ffi::SQLITE_IOERR_FSYNC), StoreError::Failed("a b".into()));
        assert_eq!(told(ffi::SQLITE_READONLY), StoreError::ReadOnly("a b".into()));
        assert_eq!(told(ffi::SQLITE_CORRUPT), StoreError::Damaged("a b".into()));
        assert_eq!(told(ffi::SQLITE_NOTADB), StoreError::Damaged("a b".into()));
    }
}
