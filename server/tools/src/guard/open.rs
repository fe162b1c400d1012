//! Opening beneath a root: descriptor by descriptor, plain names only, symbolic links never followed.
//!
//! Links that stay inside are still usable: the path is resolved first, checked, and the result, which has
//! no links, is opened. If it has one by then, opening fails.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, mkdirat};

use super::{Bounds, LEAVES, Place};

/// Longest `.git` pointer file that is read, in bytes.
const MAX_POINTER_BYTES: u64 = 8 << 10;

/// An open folder.
#[derive(Debug)]
pub(crate) struct Folder(OwnedFd);

impl Folder {
    /// Opens a folder by its path, links followed: for a root and for places outside it.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(Self(nix::fcntl::open(path, flags, Mode::empty())?))
    }

    /// Opens a folder beneath this one.
    pub(crate) fn descend(self, relative: &Path) -> io::Result<Self> {
        plain_names(relative)?.into_iter().try_fold(self, |folder, name| folder.enter(name))
    }

    /// Opens a folder beneath this one, making those that are missing.
    pub(crate) fn descend_making(self, relative: &Path) -> io::Result<Self> {
        plain_names(relative)?.into_iter().try_fold(self, |folder, name| match folder.enter(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                match mkdirat(&folder.0, name, Mode::from_bits_truncate(0o777)) {
                    Ok(()) | Err(Errno::EEXIST) => folder.enter(name),
                    Err(error) => Err(error.into()),
                }
            }
            entered => entered,
        })
    }

    /// Opens a file of this folder for reading; a link, a pipe or a device does not block or lead away.
    pub(crate) fn file(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        Ok(File::from(openat(&self.0, name, flags, Mode::empty())?))
    }

    fn enter(&self, name: &OsStr) -> io::Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(Self(openat(&self.0, name, flags, Mode::empty())?))
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn plain_names(path: &Path) -> io::Result<Vec<&OsStr>> {
    path.components()
        .map(|component| match component {
            Component::Normal(name) => Ok(name),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a plain path")),
        })
        .collect()
}

/// Follows the links of a path beneath the root as they stand now.
pub(crate) fn resolve(root: &Path, relative: &Path) -> io::Result<Place> {
    let real = std::fs::canonicalize(root.join(relative))?;
    Ok(match real.strip_prefix(root) {
        Ok(relative) => Place::Inside(relative.to_owned()),
        Err(_) => Place::Outside(real),
    })
}

/// Follows the links of a file's folder as far as it exists; the file's own name stays as it is.
pub(crate) fn resolve_for_write(root: &Path, relative: &Path) -> io::Result<Place> {
    let mut missing: Vec<&OsStr> = relative.file_name().into_iter().collect();
    let mut existing = relative.parent().unwrap_or(Path::new(""));
    loop {
        match resolve(root, existing) {
            Ok(Place::Inside(mut real)) => {
                real.extend(missing.iter().rev());
                return Ok(Place::Inside(real));
            }
            Ok(Place::Outside(mut real)) => {
                real.extend(missing.iter().rev());
                return Ok(Place::Outside(real));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (Some(name), Some(parent)) = (existing.file_name(), existing.parent()) else {
                    return Err(error);
                };
                missing.push(name);
                existing = parent;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Returns the real path of something inside that may be read: links followed and checked.
///
/// # Errors
/// One line for the model.
pub(crate) fn real_path(bounds: &Bounds, relative: &Path) -> Result<PathBuf, String> {
    match resolve(bounds.root(), relative).map_err(|error| problem(&error))? {
        Place::Outside(_) => Err(LEAVES.to_owned()),
        Place::Inside(real) if bounds.hides(&real) && !bounds.hides(relative) => {
            Err("a symbolic link leads it to what looks like a secret; give the real path".to_owned())
        }
        Place::Inside(real) => Ok(real),
    }
}

/// Opens a regular file for reading.
///
/// # Errors
/// One line for the model.
pub(crate) fn open_file(place: &Place, bounds: &Bounds) -> Result<File, String> {
    let file = match place {
        Place::Outside(path) => {
            let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
            let opened = nix::fcntl::open(path.as_path(), flags, Mode::empty());
            File::from(opened.map_err(|error| problem(&error.into()))?)
        }
        Place::Inside(relative) => open_beneath(bounds.root(), &real_path(bounds, relative)?)?,
    };
    regular(file)
}

/// Opens a regular file that a walk of the root found; links are not followed at all.
///
/// # Errors
/// One line for the model.
pub(crate) fn open_listed(root: &Path, relative: &Path) -> Result<File, String> {
    regular(open_beneath(root, relative)?)
}

/// Opens a folder for listing.
///
/// # Errors
/// One line for the model.
pub(crate) fn open_folder(place: &Place, bounds: &Bounds) -> Result<Folder, String> {
    match place {
        Place::Outside(path) => Folder::open(path).map_err(|error| problem(&error)),
        Place::Inside(relative) => {
            let real = real_path(bounds, relative)?;
            Folder::open(bounds.root())
                .and_then(|folder| folder.descend(&real))
                .map_err(|error| beneath_problem(&error))
        }
    }
}

fn open_beneath(root: &Path, real: &Path) -> Result<File, String> {
    let name = real.file_name().ok_or("it is a folder, not a file")?;
    Folder::open(root)
        .and_then(|folder| folder.descend(real.parent().unwrap_or(Path::new(""))))
        .and_then(|folder| folder.file(name))
        .map_err(|error| beneath_problem(&error))
}

/// Refuses what is not a regular file, and the kernel's views of processes, which hold the server's own keys.
fn regular(file: File) -> Result<File, String> {
    let kind = file.metadata().map_err(|error| problem(&error))?.file_type();
    if kind.is_dir() {
        return Err("it is a folder, not a file".to_owned());
    }
    if !kind.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    #[cfg(target_os = "linux")]
    {
        use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
        if fstatfs(&file).is_ok_and(|system| system.filesystem_type() == PROC_SUPER_MAGIC) {
            return Err("files of the process file system are not read".to_owned());
        }
    }
    Ok(file)
}

/// Says why a path could not be opened, without the operating system's numbers.
pub(crate) fn problem(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "it does not exist".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::NotADirectory => "it is not a folder".to_owned(),
        _ => error.to_string(),
    }
}

/// As [`problem`], for a path without links: one that is met now was put there in between.
pub(crate) fn beneath_problem(error: &io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ELOOP) => "a symbolic link stands in the way; give the real path".to_owned(),
        _ => problem(error),
    }
}

/// Returns where the repository's data lies beneath the root, if a `.git` file points there.
pub(crate) fn git_folder(root: &Path) -> Option<PathBuf> {
    let file = Folder::open(root).ok()?.file(OsStr::new(".git")).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    file.take(MAX_POINTER_BYTES).read_to_string(&mut text).ok()?;
    let target = text.strip_prefix("gitdir:")?.trim();
    match super::place(target, root).ok()? {
        Place::Inside(relative) if !relative.as_os_str().is_empty() => match resolve(root, &relative) {
            Ok(Place::Inside(real)) => Some(real),
            Ok(Place::Outside(_)) => None,
            Err(_) => Some(relative),
        },
        Place::Inside(_) | Place::Outside(_) => None,
    }
}

/// Names of a folder.
#[derive(Debug)]
pub(crate) struct Names {
    /// In byte order, without `.` and `..`.
    pub(crate) names: Vec<OsString>,
    /// How many more there are.
    pub(crate) left_out: usize,
}

/// Lists a folder: the first `shown` names of at most `scanned` that are looked at.
pub(crate) fn sorted_names(folder: &Folder, shown: usize, scanned: usize) -> io::Result<Names> {
    let mut listing = nix::dir::Dir::from_fd(folder.as_fd().try_clone_to_owned()?)?;
    let mut names = Vec::new();
    let mut total = 0;
    for entry in listing.iter() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        total += 1;
        if names.len() < scanned {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    names.sort_unstable();
    names.truncate(shown);
    Ok(Names { left_out: total - names.len(), names })
}
