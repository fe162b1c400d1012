//! `server.json`: where the server of a data folder listens. Written whole or not at all, removed at exit.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tns_protocol::Timestamp;
use tokio::net::TcpStream;

use crate::data_dir::DataDir;

const FILE: &str = "server.json";
/// For the owner only.
const MODE: u32 = 0o600;
/// Time for the connection that shows whether a server is there; it is on this machine.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Discovery {
    /// Its process.
    pub(crate) pid: u32,
    /// Its address.
    pub(crate) url: String,
    /// Its version.
    pub(crate) version: String,
    /// When it began to listen.
    pub(crate) started_at: Timestamp,
    /// It is a program of its own, which its owner starts and stops; else it serves beside a command.
    #[serde(default)]
    pub(crate) stands_alone: bool,
}

impl Discovery {
    /// Describes a server of this process.
    pub(crate) fn of(url: &str, stands_alone: bool) -> Self {
        Self {
            stands_alone,
            pid: std::process::id(),
            url: url.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: Timestamp::now(),
        }
    }

    /// Reads what a server left; `None` when there is nothing that can be read.
    pub(crate) fn read(dir: &DataDir) -> Option<Self> {
        Self::read_in(dir.path())
    }

    /// As [`Self::read`], of a folder that nobody checked.
    pub(crate) fn read_in(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(folder.join(FILE)).ok()?).ok()
    }

    /// Removes what a server that was killed left behind. Only the holder of the lock may do so.
    ///
    /// # Errors
    /// What the system says; a missing file is none.
    pub(crate) fn forget(dir: &DataDir) -> anyhow::Result<()> {
        let path = dir.file(FILE);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("remove {}", path.display()))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Writes the file in one step. Only the holder of the lock may do so.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn publish(&self, dir: &DataDir) -> anyhow::Result<Published> {
        let path = dir.file(FILE);
        let draft = dir.file("server.json.new");
        let text = serde_json::to_string(self).context("write the server's address as JSON")?;
        let written = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(MODE)
            .open(&draft)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .and_then(|()| fs::rename(&draft, &path));
        written.with_context(|| format!("write {}", path.display()))?;
        Ok(Published { path })
    }

    /// Whether somebody accepts connections at the address.
    pub(crate) async fn answers(&self) -> bool {
        let Some(authority) = self.url.strip_prefix("http://") else { return false };
        let probe = TcpStream::connect(authority.trim_end_matches('/'));
        matches!(tokio::time::timeout(PROBE_TIMEOUT, probe).await, Ok(Ok(_)))
    }
}

/// The file, which is removed with this value.
#[derive(Debug)]
pub(crate) struct Published {
    path: PathBuf,
}

impl Drop for Published {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "server.json stays behind");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn data_dir(parent: &tempfile::TempDir) -> DataDir {
        DataDir::open(Some(&parent.path().join("data"))).unwrap()
    }

    #[test]
    fn what_is_published_is_found_by_the_owner_only_and_gone_afterwards() {
        let parent = tempfile::tempdir().unwrap();
        let dir = data_dir(&parent);
        assert_eq!(Discovery::read(&dir), None);
        let here = Discovery::of("http://127.0.0.1:7", false);
        let published = here.publish(&dir).unwrap();
        let found = Discovery::read(&dir).unwrap();
        assert_eq!((found.pid, found.url, found.version), (here.pid, here.url, here.version));
        assert_eq!(fs::metadata(dir.file(FILE)).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        drop(published);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_remains_of_a_killed_server_are_forgotten() {
        let parent = tempfile::tempdir().unwrap();
        let dir = data_dir(&parent);
        Discovery::forget(&dir).unwrap();
        std::mem::forget(Discovery::of("http://127.0.0.1:7", false).publish(&dir).unwrap());
        Discovery::forget(&dir).unwrap();
        assert_eq!(Discovery::read(&dir), None);
    }

    #[test]
    fn a_torn_file_is_nothing() {
        let parent = tempfile::tempdir().unwrap();
        let dir = data_dir(&parent);
        fs::write(dir.file(FILE), "{\"pid\":1,").unwrap();
        assert_eq!(Discovery::read(&dir), None);
    }

    #[tokio::test]
    async fn only_a_server_that_listens_answers() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = Discovery::of(&format!("http://{}", listener.local_addr().unwrap()), false);
        assert!(here.answers().await);
        drop(listener);
        assert!(!here.answers().await);
    }
}
