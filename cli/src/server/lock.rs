//! The lock of a data folder: one process writes there. The system lets go of it when the process ends,
//! however that happens.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context as _;

use crate::data_dir::DataDir;

const FILE: &str = "lock";
/// For the owner only.
const MODE: u32 = 0o600;
/// More than any process id has digits.
const MAX_PID_BYTES: u64 = 20;

/// The lock, held.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock, and writes who has it into its file; `None` when another process has it.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn take(dir: &DataDir) -> anyhow::Result<Option<Self>> {
        let path = dir.file(FILE);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(MODE)
            .open(&path)
            .with_context(|| format!("open {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("lock {}", path.display()));
            }
        }
        file.rewind()
            .and_then(|()| file.set_len(0))
            .and_then(|()| write!(file, "{}", std::process::id()))
            .with_context(|| format!("write {}", path.display()))?;
        Ok(Some(Self { _file: file }))
    }

    /// Returns the process that has the lock, if its file says so.
    pub(crate) fn holder(dir: &DataDir) -> Option<u32> {
        Self::holder_in(dir.path())
    }

    /// As [`Self::holder`], of a folder that nobody checked.
    pub(crate) fn holder_in(folder: &Path) -> Option<u32> {
        let mut text = String::new();
        File::open(folder.join(FILE)).ok()?.take(MAX_PID_BYTES).read_to_string(&mut text).ok()?;
        text.trim().parse().ok()
    }
}

/// Whether a process has the lock of this folder. Takes it for no longer than it takes to see that.
pub(crate) fn is_held(folder: &Path) -> bool {
    // Shared, so that two who look don't take each other for a server.
    File::open(folder.join(FILE))
        .is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holds_it_at_a_time_and_says_who_it_is() {
        let parent = tempfile::tempdir().unwrap();
        let dir = DataDir::open(Some(&parent.path().join("data"))).unwrap();
        assert_eq!(Lock::holder(&dir), None);
        assert!(!is_held(dir.path()));
        let lock = Lock::take(&dir).unwrap().unwrap();
        assert!(Lock::take(&dir).unwrap().is_none());
        assert_eq!(Lock::holder(&dir), Some(std::process::id()));
        assert!(is_held(dir.path()));
        drop(lock);
        assert!(!is_held(dir.path()));
        assert!(Lock::take(&dir).unwrap().is_some());
    }
}
