//! The folder that a command is run in, and the session that belongs to it.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use anyhow::Context as _;
use sha2::{Digest, Sha256};
use tns_client::Rest;
use tns_protocol::SessionId;
use tns_protocol::rest::{CreateSession, SessionDetail};

use crate::Context;
use crate::exit::Stop;

/// Bytes of the digest in a session's id: 16 hex digits tell any person's folders apart.
const DIGEST_BYTES: usize = 8;

/// A folder by its canonical path.
#[derive(Debug, Clone)]
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Returns the folder that the command is run in.
    ///
    /// # Errors
    /// When it is gone or may not be read.
    pub(crate) fn current() -> anyhow::Result<Self> {
        let path =
            std::env::current_dir().and_then(std::fs::canonicalize).context("find the current folder")?;
        Ok(Self { path })
    }

    /// Returns the path.
    pub(crate) fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Returns the path as the wire carries it.
    ///
    /// # Errors
    /// When the path is not UTF-8, which JSON can't hold.
    pub(crate) fn as_str(&self) -> Result<&str, Stop> {
        self.path.to_str().ok_or_else(|| {
            Stop::usage(format!("the folder's name {} is not UTF-8; run tns in another", self.path.display()))
        })
    }

    /// Returns the id of the session that the folder's commands share: the same folder, the same id.
    ///
    /// # Errors
    /// Never for the id that is made here; the type of an id asks for the check.
    pub(crate) fn session(&self) -> anyhow::Result<SessionId> {
        let digest = Sha256::digest(self.path.as_os_str().as_bytes());
        let mut id = String::from("folder-");
        for byte in &digest[..DIGEST_BYTES] {
            write!(id, "{byte:02x}").context("write the session's id")?;
        }
        SessionId::parse(id).context("name the folder's session")
    }
}

/// Opens the session that the command is about: `--session`, else the folder's own. It is made when missing.
///
/// # Errors
/// As the server's.
pub(crate) async fn session(context: &Context, rest: &Rest) -> anyhow::Result<SessionDetail> {
    open(context, rest, &Folder::current()?, session_id(context)?).await
}

/// Returns the id of the session that the command is about, whether or not there is one.
///
/// # Errors
/// When the current folder can't be found.
pub(crate) fn session_id(context: &Context) -> anyhow::Result<SessionId> {
    match &context.globals.session {
        Some(id) => Ok(id.clone()),
        None => Folder::current()?.session(),
    }
}

/// Opens a session with this id in `folder`, and names it on standard error.
///
/// # Errors
/// As the server's.
pub(crate) async fn open(
    context: &Context,
    rest: &Rest,
    folder: &Folder,
    id: SessionId,
) -> anyhow::Result<SessionDetail> {
    open_with(context, rest, folder, id, None).await
}

/// As [`open`], with the most that the session may spend, in US dollars, where it is new.
///
/// # Errors
/// As the server's.
pub(crate) async fn open_with(
    context: &Context,
    rest: &Rest,
    folder: &Folder,
    id: SessionId,
    budget: Option<f64>,
) -> anyhow::Result<SessionDetail> {
    let request = CreateSession {
        id: Some(id),
        workspace: Some(folder.as_str()?.to_owned()),
        budget,
        ..CreateSession::default()
    };
    let session = rest.create_session(request).await.context("open the session")?;
    context.out.note(&format!("session {}", session.id));
    Ok(session)
}

/// Makes an id that no session has: the time and random bits.
///
/// # Errors
/// Never for the id that is made here; the type of an id asks for the check.
pub(crate) fn fresh_id() -> anyhow::Result<SessionId> {
    SessionId::parse(uuid::Uuid::now_v7().to_string()).context("name a new session")
}

/// Says where tools will run when that is not the folder of the command.
pub(crate) fn note_other_workspace(context: &Context, folder: &Folder, session: &SessionDetail) {
    if std::path::Path::new(&session.workspace) != folder.path() {
        context.out.note(&format!("tools run in {}", session.workspace));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_folder_has_the_same_session_and_another_has_another() {
        let id = |path: &str| Folder { path: path.into() }.session().unwrap();
        // The first 16 hex digits of `printf /home/a/p | sha256sum`.
        assert_eq!(id("/home/a/p").as_str(), "folder-3a9c24015e601ecc");
        assert_ne!(id("/home/a/p"), id("/home/a/q"));
    }

    #[test]
    fn fresh_ids_differ() {
        assert_ne!(fresh_id().unwrap(), fresh_id().unwrap());
    }
}
