//! What bounds a call: the workspace's root, and the folder that is the server's own. Each is rated by where
//! a path leads as the disk stands now. It opens nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tns_protocol::approval::RiskClass;
use tns_server_core::tool::Workspace;

use super::{Place, is_secret, open, protected};

/// The folder with the server's own data, if it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OwnFolder(Option<Arc<Path>>);

impl OwnFolder {
    /// Takes the folder: absolute and canonical.
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        Self(path.map(Arc::from))
    }

    /// Returns what bounds a call in a workspace.
    pub(crate) fn bounds(&self, workspace: &Workspace) -> Bounds {
        let root = workspace.root();
        // A workspace that somebody keeps inside the folder is theirs.
        let own = self.0.as_ref().filter(|own| !root.starts_with(own)).cloned();
        Bounds { root: root.to_owned(), own }
    }

    /// Returns the folder.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.0.as_deref()
    }
}

/// What bounds a call.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    root: PathBuf,
    own: Option<Arc<Path>>,
}

/// What reading or writing a place would be, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// The class.
    pub(crate) class: RiskClass,
    /// One plain sentence.
    pub(crate) reason: String,
}

impl Verdict {
    fn new(class: RiskClass, reason: impl Into<String>) -> Self {
        Self { class, reason: reason.into() }
    }
}

impl Bounds {
    /// Returns the workspace's root: absolute and canonical.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Whether an absolute path is the server's own folder or lies in it.
    pub(crate) fn owns(&self, path: &Path) -> bool {
        self.own.as_ref().is_some_and(|own| path.starts_with(own))
    }

    /// Whether the server's own folder lies in this one.
    pub(crate) fn owns_within(&self, folder: &Path) -> bool {
        self.own.as_ref().is_some_and(|own| own.starts_with(folder))
    }

    /// Whether a path beneath the root is not for reading unasked, by its text.
    pub(crate) fn hides(&self, relative: &Path) -> bool {
        is_secret(relative) || self.owns(&self.root.join(relative))
    }

    /// Rates reading a place, with symbolic links followed as they stand now.
    pub(crate) fn rate_read(&self, place: &Place) -> Verdict {
        let sensitive = |reason: &str| Verdict::new(RiskClass::Sensitive, reason);
        if self.owns(&place.absolute(&self.root)) {
            return sensitive("it reads the server's own data");
        }
        let Place::Inside(relative) = place else {
            return sensitive("it reads outside the workspace");
        };
        if is_secret(relative) {
            return sensitive("the name looks like that of a secret");
        }
        match open::resolve(&self.root, relative) {
            Ok(Place::Outside(_)) => sensitive("a symbolic link leads it outside the workspace"),
            Ok(Place::Inside(real)) if self.owns(&self.root.join(&real)) => {
                sensitive("a symbolic link leads it to the server's own data")
            }
            Ok(Place::Inside(real)) if is_secret(&real) => {
                sensitive("a symbolic link leads it to what looks like a secret")
            }
            Ok(Place::Inside(_)) | Err(_) => {
                Verdict::new(RiskClass::ReadOnly, "it reads inside the workspace")
            }
        }
    }

    /// Rates writing a file at a place, with symbolic links followed as they stand now.
    pub(crate) fn rate_write(&self, place: &Place) -> Verdict {
        let destructive = |reason: &str| Verdict::new(RiskClass::Destructive, reason);
        if self.would_write_own(place) {
            return destructive("it writes to the server's own data, which is refused");
        }
        let Place::Inside(relative) = place else {
            return destructive("it writes outside the workspace");
        };
        if protected(&self.root, relative) {
            return destructive("it writes to a protected name");
        }
        match open::resolve_for_write(&self.root, relative) {
            Ok(Place::Outside(_)) => destructive("a symbolic link leads it outside the workspace"),
            Ok(Place::Inside(real)) if protected(&self.root, &real) => {
                destructive("a symbolic link leads it to a protected name")
            }
            Ok(Place::Inside(_)) | Err(_) => Verdict::new(RiskClass::Write, "it writes inside the workspace"),
        }
    }

    /// Whether a write at a place would end up in the server's own folder, by its text or by a link.
    pub(crate) fn would_write_own(&self, place: &Place) -> bool {
        let Some(own) = &self.own else { return false };
        let path = place.absolute(&self.root);
        let top = Path::new("/");
        let beneath_top = path.strip_prefix(top).unwrap_or(&path);
        path.starts_with(own)
            || open::resolve_for_write(top, beneath_top).is_ok_and(|real| real.absolute(top).starts_with(own))
    }
}
