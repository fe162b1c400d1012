//! Where a reader of a session's log stands, kept on disk.
//!
//! A file holds one line for each place that was noted; the last whole one counts. A line is appended by one
//! write, so that a process that is killed leaves the place before or the one after. Places are put on the
//! disk in groups: a machine that stops loses the last of them, and their events are printed again.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tns_client::Cursor;
use tns_protocol::{Seq, SessionId};

use crate::data_dir::DataDir;
use crate::exit::{Exit, Stop};

/// The folder of all places in the data folder.
const FOLDER: &str = "cursors";
/// For the owner only.
const DIR_MODE: u32 = 0o700;
/// For the owner only.
const FILE_MODE: u32 = 0o600;
/// Places that are noted before they are put on the disk, while more come.
const SYNC_EVERY: u32 = 64;
/// Bytes of a file from which on it is written anew with its last place only.
const MAX_BYTES: u64 = 64 << 10;
/// Most characters of a reader's name.
const MAX_NAME_CHARS: usize = 64;

/// A reader's name, fit for a file's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlaceName(String);

impl PlaceName {
    /// Checks a name.
    ///
    /// # Errors
    /// The rule, in words.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if !(1..=MAX_NAME_CHARS).contains(&text.len()) || !text.chars().all(fits) {
            return Err(format!("must be 1 to {MAX_NAME_CHARS} of A-Z a-z 0-9 . _ -"));
        }
        Ok(Self(text.to_owned()))
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Noted {
    seq: Seq,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    epoch: Option<String>,
}

/// A reader's place, held for this process alone.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    file: File,
    /// Held so that nobody else reads under this name; let go by the system however this process ends.
    _lock: File,
    cursor: Cursor,
    bytes: u64,
    unsynced: u32,
}

impl Place {
    /// Opens the place of a reader in a session; one that is new has read nothing.
    ///
    /// # Errors
    /// A [`Stop`] when another process has it; what the system says; a file that holds no place.
    pub(super) fn open(dir: &DataDir, session: &SessionId, name: &PlaceName) -> anyhow::Result<Self> {
        // A session may be called `.` or `..`.
        let folder = dir.file(FOLDER).join(format!("session-{session}"));
        let made = DirBuilder::new().recursive(true).mode(DIR_MODE).create(&folder);
        made.with_context(|| format!("make {}", folder.display()))?;
        let file = |end: &str| folder.join(format!("at-{}{end}", name.0));
        let (path, lock_path) = (file(".jsonl"), file(".lock"));
        let lock = options().open(&lock_path).with_context(|| format!("open {}", lock_path.display()))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let message =
                    format!("another tns sessions tail reads with --cursor {}; choose another name", name.0);
                return Err(Stop::new(Exit::Failed, message).into());
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("lock {}", lock_path.display()));
            }
        }
        let cursor = match read(&path)? {
            Some(Noted { seq, epoch }) => Cursor { seq, epoch },
            None => Cursor::default(),
        };
        let (file, bytes) = rewrite(&path, &cursor)?;
        Ok(Self { path, file, _lock: lock, cursor, bytes, unsynced: 0 })
    }

    /// Returns the place that was noted last.
    pub(super) fn cursor(&self) -> &Cursor {
        &self.cursor
    }

    /// Notes a place.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn note(&mut self, at: &Cursor) -> anyhow::Result<()> {
        let line = line(at)?;
        // One write: whoever is killed has written all of it or nothing that counts.
        self.file.write_all(line.as_bytes()).with_context(|| self.failed())?;
        self.cursor = at.clone();
        self.bytes += line.len() as u64;
        self.unsynced += 1;
        if self.bytes >= MAX_BYTES {
            (self.file, self.bytes) = rewrite(&self.path, &self.cursor)?;
            self.unsynced = 0;
        } else if self.unsynced >= SYNC_EVERY {
            self.sync()?;
        }
        Ok(())
    }

    /// Puts on the disk what was noted.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn sync(&mut self) -> anyhow::Result<()> {
        if self.unsynced > 0 {
            self.file.sync_data().with_context(|| self.failed())?;
            self.unsynced = 0;
        }
        Ok(())
    }

    fn failed(&self) -> String {
        format!("note the place in {}", self.path.display())
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE);
    options
}

fn line(at: &Cursor) -> anyhow::Result<String> {
    let noted = Noted { seq: at.seq, epoch: at.epoch.clone() };
    let mut line = serde_json::to_string(&noted).context("write the place as JSON")?;
    line.push('\n');
    Ok(line)
}

/// Returns the last whole line's place; `None` where there is no file yet.
fn read(path: &Path) -> anyhow::Result<Option<Noted>> {
    let mut text = Vec::new();
    match File::open(path) {
        Ok(mut file) => file.read_to_end(&mut text).with_context(|| format!("read {}", path.display()))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("open {}", path.display())),
    };
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(&[][..], |end| &text[..end]);
    // What a machine that stopped left half written at the end is passed over.
    let noted = whole.rsplit(|byte| *byte == b'\n').find_map(|line| serde_json::from_slice(line).ok());
    match noted {
        Some(noted) => Ok(Some(noted)),
        None => Err(Stop::usage(format!(
            "{} holds no place; remove it to begin with the first event",
            path.display()
        ))
        .into()),
    }
}

/// Writes a file that holds this place only, in one step, and opens it for more.
fn rewrite(path: &Path, cursor: &Cursor) -> anyhow::Result<(File, u64)> {
    let line = line(cursor)?;
    let file = replace(path, &line).with_context(|| format!("write {}", path.display()))?;
    Ok((file, line.len() as u64))
}

fn replace(path: &Path, line: &str) -> io::Result<File> {
    let draft = path.with_extension("new");
    let mut file = OpenOptions::new().append(true).create(true).mode(FILE_MODE).open(&draft)?;
    file.set_len(0)?;
    file.write_all(line.as_bytes())?;
    file.sync_data()?;
    fs::rename(&draft, path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data_dir(parent: &tempfile::TempDir) -> DataDir {
        DataDir::open(Some(&parent.path().join("data"))).unwrap()
    }

    fn open(dir: &DataDir, session: &str) -> anyhow::Result<Place> {
        Place::open(dir, &SessionId::parse(session).unwrap(), &PlaceName::parse("me").unwrap())
    }

    fn at(seq: Seq) -> Cursor {
        Cursor { seq, epoch: Some("e".into()) }
    }

    #[test]
    fn what_was_noted_is_there_again_and_each_session_has_its_own() {
        let parent = tempfile::tempdir().unwrap();
        let dir = data_dir(&parent);
        for session in ["..", "a"] {
            let mut place = open(&dir, session).unwrap();
            assert_eq!(*place.cursor(), Cursor::default());
            place.note(&at(7)).unwrap();
        }
        open(&dir, "a").unwrap().note(&at(8)).unwrap();
        assert_eq!(*open(&dir, "a").unwrap().cursor(), at(8));
        assert_eq!(*open(&dir, "..").unwrap().cursor(), at(7));
        // Nothing outside the data folder's own.
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_torn_end_counts_as_nothing_and_a_file_without_a_place_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let dir = data_dir(&parent);
        let mut place = open(&dir, "s").unwrap();
        place.note(&at(7)).unwrap();
        let path = place.path.clone();
        drop(place);
        for torn in [&b"{\"seq\":8"[..], b"\0\0\0", b"\0\0\n\0"] {
            OpenOptions::new().append(true).open(&path).unwrap().write_all(torn).unwrap();
            assert_eq!(*open(&dir, "s").unwrap().cursor(), at(7));
        }
        fs::write(&path, "words\n").unwrap();
        let error = open(&dir, "s").unwrap_err().to_string();
        assert!(error.contains("holds no place") && error.contains("remove it"), "{error}");
    }

    #[test]
    fn a_file_stays_small() {
        let parent = tempfile::tempdir().unwrap();
        let dir = data_dir(&parent);
        let mut place = open(&dir, "s").unwrap();
        for seq in 1..=8_000 {
            place.note(&at(seq)).unwrap();
            assert!(fs::metadata(&place.path).unwrap().len() < MAX_BYTES);
        }
        drop(place);
        assert_eq!(*open(&dir, "s").unwrap().cursor(), at(8_000));
    }

    #[test]
    fn two_readers_of_one_name_are_one_too_many() {
        let parent = tempfile::tempdir().unwrap();
        let dir = data_dir(&parent);
        let place = open(&dir, "s").unwrap();
        let error = open(&dir, "s").unwrap_err().to_string();
        assert!(error.contains("--cursor me"), "{error}");
        drop(place);
        open(&dir, "s").unwrap();
    }

    #[test]
    fn a_name_is_fit_for_a_file() {
        for wrong in ["", "a/b", "職", &"x".repeat(MAX_NAME_CHARS + 1)] {
            assert!(PlaceName::parse(wrong).is_err(), "{wrong}");
        }
        PlaceName::parse(&"x".repeat(MAX_NAME_CHARS)).unwrap();
    }
}
