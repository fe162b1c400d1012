//! Looks a store over without changing it, also while a server writes to it. It repairs nothing.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use rusqlite::{ErrorCode, OpenFlags};
use tns_server_core::store::StoreError;

use super::connection::connect;
use super::error::{Fault, failed, from_io};
use super::migrate;

/// How long it waits while another process holds the file whole.
const BUSY: Duration = Duration::from_secs(1);
/// Page cache of the connection, in KiB: each page is looked at once.
const CACHE_KIB: i32 = 512;

/// What was found in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// The format of the file; 0: nothing was stored yet.
    pub format: usize,
    /// The format that this program writes.
    pub newest: usize,
    /// How its pages are.
    pub pages: Pages,
}

/// How the pages of a store are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pages {
    /// All were looked at, and all are well.
    Whole,
    /// All that could be looked at in the time were well.
    NotAllSeen,
    /// Something is wrong; the first of it, in SQLite's words.
    Damaged(String),
}

/// Opens the store for reading and looks at its pages for at most `limit`.
pub(crate) fn inspect(path: &Path, limit: Duration) -> Result<Inspection, StoreError> {
    // SQLite says of a file that may not be read only that it can't be opened.
    drop(std::fs::File::open(path).map_err(|error| from_io(&format!("open {}", path.display()), &error))?);
    let connection =
        connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY, BUSY, CACHE_KIB).map_err(StoreError::from)?;
    let format = migrate::version(&connection).map_err(StoreError::from)?;
    let interrupt = connection.get_interrupt_handle();
    let (done, wait) = sync_channel(1); // one answer, which never has to wait for its reader
    let checking = thread::Builder::new().name("tns-inspect".into()).spawn(move || {
        let found = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
        let _ = done.send(found);
    });
    checking.map_err(|error| from_io("start a thread", &error))?;
    let mut found = wait.recv_timeout(limit);
    if found == Err(RecvTimeoutError::Timeout) {
        interrupt.interrupt();
        found = wait.recv_timeout(BUSY);
    }
    let pages = match found.map_err(|_| failed("its pages can't be read in time"))? {
        Ok(text) if text == "ok" => Pages::Whole,
        Ok(text) => Pages::Damaged(failed(text).to_string()),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => Pages::NotAllSeen,
        Err(error) => return Err(Fault::from(error).into()),
    };
    Ok(Inspection { format, newest: migrate::KNOWN, pages })
}
