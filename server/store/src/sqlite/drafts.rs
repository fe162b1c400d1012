//! What is written of running steps, in one small file a session beside the store's own: tokens come far too fast for
//! transactions. A file is written before its piece is shown and not flushed, so it outlives the process, not the
//! machine. Its first line names the step, the rest is the text.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tns_server_core::store::{Draft, DraftStep, SessionKey, StoreError};

/// What the folder's name adds to the store's.
const SUFFIX: &str = "-drafts";
/// Only the store's own user reads and writes.
const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;

/// The drafts of a store.
#[derive(Debug)]
pub(super) struct Drafts {
    folder: PathBuf,
    open: Mutex<HashMap<SessionKey, Open>>,
}

/// A draft that grows.
#[derive(Debug)]
struct Open {
    step: DraftStep,
    /// `None`: writing failed, and no more is written of this step.
    file: Option<File>,
}

impl Drafts {
    pub(super) fn beside(store: &Path) -> Self {
        let mut name = store.file_name().map(OsString::from).unwrap_or_default();
        name.push(SUFFIX);
        Self { folder: store.with_file_name(name), open: Mutex::default() }
    }

    /// Adds a piece; another step than before begins anew.
    pub(super) fn write(&self, session: SessionKey, step: &DraftStep, piece: &str) {
        let mut open = self.open();
        if open.get(&session).is_none_or(|open| open.step != *step) {
            let file = match self.begin(session, step) {
                Ok(file) => Some(file),
                Err(error) => self.failed(session, &error),
            };
            open.insert(session, Open { step: step.clone(), file });
        }
        let Some(Open { file, .. }) = open.get_mut(&session) else { return };
        // A piece that is missing in the middle would be a lie: after a failure the draft ends.
        if let Some(Err(error)) = file.as_mut().map(|file| file.write_all(piece.as_bytes())) {
            *file = self.failed(session, &error);
        }
    }

    fn begin(&self, session: SessionKey, step: &DraftStep) -> io::Result<File> {
        match fs::DirBuilder::new().mode(FOLDER_MODE).create(&self.folder) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        let mut options = OpenOptions::new();
        let mut file =
            options.write(true).create(true).truncate(true).mode(FILE_MODE).open(self.path(session))?;
        let mut head = serde_json::to_vec(step)?;
        head.push(b'\n');
        file.write_all(&head)?;
        Ok(file)
    }

    fn failed(&self, session: SessionKey, error: &io::Error) -> Option<File> {
        tracing::warn!(session = session.0, %error, "what is written of a reply is not kept until its step ends");
        None
    }

    /// Forgets a session's draft.
    pub(super) fn clear(&self, session: SessionKey) {
        self.open().remove(&session);
        match fs::remove_file(self.path(session)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(session = session.0, %error, "a draft stays behind"),
        }
    }

    /// Reads a session's draft. One that can't be understood is none: it was cut in its first line.
    pub(super) fn read(&self, session: SessionKey) -> Result<Option<Draft>, StoreError> {
        let bytes = match fs::read(self.path(session)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreError::Failed(format!("a draft can't be read: {error}"))),
        };
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
        let Ok(step) = serde_json::from_slice(&bytes[..end]) else { return Ok(None) };
        let text = &bytes[end + 1..];
        // The end of the process may have cut a character.
        let whole = text.utf8_chunks().next().map_or("", |chunk| chunk.valid());
        Ok(Some(Draft { step, text: whole.to_owned() }))
    }

    fn path(&self, session: SessionKey) -> PathBuf {
        self.folder.join(session.0.to_string())
    }

    fn open(&self) -> MutexGuard<'_, HashMap<SessionKey, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tns_protocol::{AgentId, MessageId};

    use super::*;

    fn step(after: usize) -> DraftStep {
        let id = |id: &str| MessageId::parse(id).unwrap();
        DraftStep {
            turn: id("t"),
            response: id("r"),
            agent: AgentId::parse("a").unwrap(),
            model: "m".to_owned(),
            after,
        }
    }

    #[test]
    fn a_draft_outlives_its_writer_and_a_character_that_was_cut_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("tns.db");
        let (one, two) = (SessionKey(1), SessionKey(2));
        let drafts = Drafts::beside(&store);
        drafts.write(one, &step(0), "an old step");
        drafts.write(one, &step(1), "eins\n");
        drafts.write(one, &step(1), "zw€");
        drafts.write(two, &step(0), "other");
        let file = folder.path().join("tns.db-drafts/1");
        let written = fs::metadata(&file).unwrap().len();
        OpenOptions::new().write(true).open(&file).unwrap().set_len(written - 1).unwrap();
        let again = Drafts::beside(&store);
        assert_eq!(again.read(one), Ok(Some(Draft { step: step(1), text: "eins\nzw".to_owned() })));
        again.clear(one);
        assert_eq!(again.read(one), Ok(None));
        assert_eq!(again.read(two).unwrap().unwrap().text, "other");
    }

    #[test]
    fn a_draft_without_its_first_line_is_none_and_a_folder_that_is_none_costs_the_draft_alone() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("tns.db");
        let drafts = Drafts::beside(&store);
        fs::create_dir(folder.path().join("tns.db-drafts")).unwrap();
        fs::write(folder.path().join("tns.db-drafts/7"), br#"{"turn":"t","#).unwrap();
        assert_eq!(drafts.read(SessionKey(7)), Ok(None));
        let other = folder.path().join("other.db");
        fs::write(folder.path().join("other.db-drafts"), b"").unwrap();
        let drafts = Drafts::beside(&other);
        drafts.write(SessionKey(1), &step(0), "x");
        drafts.clear(SessionKey(1));
    }
}
