//! The folder of models: room on its disk, a file to download into, and putting a checked file in its place
//! at once.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use tns_server::{GgufHeader, ModelFiles, ModelName};

use super::{download, size};
use crate::exit::{Exit, Stop};

/// Bytes of the disk that stay free: the database of the same folder must go on.
const RESERVE: u64 = 256 << 20;
/// What is not a whole model yet.
const PART: &str = "part";

/// A file that is being got, locked against a second one of the same name.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) path: PathBuf,
    pub(super) file: File,
}

impl Part {
    /// Opens or makes the file for a model, with what came of it before.
    ///
    /// # Errors
    /// A [`Stop`] when another command gets the same.
    pub(super) fn open(files: &ModelFiles, name: &ModelName) -> anyhow::Result<Self> {
        let dir = files.dir();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .with_context(|| format!("make {}", dir.display()))?;
        let path = dir.join(format!("{name}.{PART}"));
        let file = OpenOptions::new()
            .create(true)
            .read(true)
            .write(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("open {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { path, file }),
            Err(TryLockError::WouldBlock) => {
                Err(Stop::new(Exit::Failed, format!("another command gets {name} already")).into())
            }
            Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("lock {}", path.display())),
        }
    }

    /// Removes the file and what is noted of it.
    pub(super) fn discard(self) {
        // What can't be removed is taken up or overwritten by the next one.
        let _ = fs::remove_file(download::note_of(&self.path));
        let _ = fs::remove_file(&self.path);
    }

    /// Checks that the file is a model and puts it in its place.
    ///
    /// # Errors
    /// A [`Stop`] when it is none, or another one has its name; then it is removed.
    pub(super) fn settle(self, files: &ModelFiles, name: &ModelName) -> anyhow::Result<GgufHeader> {
        let checked = GgufHeader::read(&self.path)
            .map_err(|error| Stop::new(Exit::Failed, format!("this can't be used: {error}")))
            .and_then(|header| check_free(files, name).map(|()| header));
        let header = match checked {
            Ok(header) => header,
            Err(stop) => {
                self.discard();
                return Err(stop.into());
            }
        };
        fs::rename(&self.path, files.path(name)).context("put the model in its place")?;
        self.discard();
        Ok(header)
    }
}

/// Refuses a name that a model has.
///
/// # Errors
/// A [`Stop`] that says what to do.
pub(super) fn check_free(files: &ModelFiles, name: &ModelName) -> Result<(), Stop> {
    if files.path(name).exists() {
        return Err(Stop::usage(format!(
            "there is a model {name} already; remove it with `tns models rm {name}`, or choose another --name"
        )));
    }
    Ok(())
}

/// Refuses what the disk has no room for.
///
/// # Errors
/// A [`Stop`] with both figures.
pub(super) fn check_room(path: &Path, needed: u64) -> anyhow::Result<()> {
    let dir = path.parent().unwrap_or(path);
    let disk =
        nix::sys::statvfs::statvfs(dir).with_context(|| format!("look at the disk of {}", dir.display()))?;
    let free = disk.blocks_available().saturating_mul(disk.fragment_size());
    fits(free, needed).map_err(Into::into)
}

fn fits(free: u64, needed: u64) -> Result<(), Stop> {
    if needed.saturating_add(RESERVE) <= free {
        return Ok(());
    }
    Err(Stop::new(
        Exit::Failed,
        format!("this takes {} and the disk has {} free; make some room", size(needed), size(free)),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_kept_for_the_rest() {
        assert!(fits(RESERVE + 10, 10).is_ok());
        assert!(fits(RESERVE + 10, 11).unwrap_err().to_string().contains("make some room"));
        assert!(fits(u64::MAX, u64::MAX).is_ok());
        assert!(fits(1 << 40, u64::MAX).is_err());
        let dir = tempfile::tempdir().unwrap();
        assert!(check_room(&dir.path().join("x"), 0).is_ok());
        assert!(check_room(&dir.path().join("x"), u64::MAX).is_err());
    }

    #[test]
    fn two_commands_do_not_get_the_same() {
        let data = tempfile::tempdir().unwrap();
        let files = ModelFiles::of(data.path());
        let name = ModelName::parse("m").unwrap();
        let part = Part::open(&files, &name).unwrap();
        assert!(Part::open(&files, &name).unwrap_err().to_string().contains("another command"));
        assert!(Part::open(&files, &ModelName::parse("n").unwrap()).is_ok());
        let error = part.settle(&files, &name).unwrap_err();
        assert_eq!(error.to_string(), "this can't be used: it is no GGUF file");
        assert!(!files.dir().join("m.part").exists());
    }
}
