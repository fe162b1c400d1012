//! Where a path leads, and opening it there. Every tool that touches a file passes through here.
//!
//! A path is placed by its text alone ([`place`]): inside the workspace or outside it. What is inside is
//! opened beneath the root, one component after the other and never through a symbolic link, so a link
//! that appears between the rating and the run makes the run fail instead of leading it astray.
//! This module reads and writes no content.

mod bounds;
mod names;
mod open;

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

pub(crate) use bounds::{Bounds, OwnFolder};
pub(crate) use names::{is_protected, is_secret};
pub(crate) use open::{Folder, open_file, open_folder, open_listed, problem, real_path, sorted_names};

/// Longest path that is taken, in bytes: Linux's `PATH_MAX`.
pub(crate) const MAX_PATH_BYTES: usize = 4096;

/// Where a path leads by its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// Beneath the root: plain names only, no `.`, no `..`; empty is the root itself.
    Inside(PathBuf),
    /// Somewhere else: absolute, without `.` or `..`.
    Outside(PathBuf),
}

impl Place {
    /// Returns the absolute path.
    pub(crate) fn absolute(&self, root: &Path) -> PathBuf {
        match self {
            Self::Inside(relative) => root.join(relative),
            Self::Outside(path) => path.clone(),
        }
    }

    /// Returns the path's own text: relative to the root where it is inside.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Inside(path) | Self::Outside(path) => path,
        }
    }
}

/// Places a path: relative to `root` unless absolute, component by component.
///
/// # Errors
/// One line for the model, where the path is empty, too long, holds a NUL or starts with `~`.
pub(crate) fn place(text: &str, root: &Path) -> Result<Place, String> {
    if text.is_empty() {
        return Err("the path is empty".to_owned());
    }
    if text.len() > MAX_PATH_BYTES {
        return Err(format!("the path is longer than {MAX_PATH_BYTES} bytes"));
    }
    if text.contains('\0') {
        return Err("the path holds a NUL character".to_owned());
    }
    if text == "~" || text.starts_with("~/") {
        return Err("`~` is not expanded; give the full path".to_owned());
    }
    let absolute = flatten(&root.join(text));
    Ok(match absolute.strip_prefix(root) {
        Ok(relative) => Place::Inside(relative.to_owned()),
        Err(_) => Place::Outside(absolute),
    })
}

/// Removes `.` and resolves `..` by text; above the top there is nothing.
fn flatten(path: &Path) -> PathBuf {
    let mut parts: Vec<OsString> = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => parts.push(name.to_owned()),
            Component::ParentDir => drop(parts.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    let mut flat = PathBuf::from("/");
    flat.extend(parts);
    flat
}

/// Opens the folder that a file is to be written in, making the folders that are missing, and returns it
/// with the file's name.
///
/// # Errors
/// One line for the model. A link may not make the write worse than the path's text says, and nothing is
/// written to the server's own data.
pub(crate) fn open_for_write(place: &Place, bounds: &Bounds) -> Result<(Folder, OsString), String> {
    let root = bounds.root();
    if bounds.would_write_own(place) {
        return Err(OWN_DATA.to_owned());
    }
    let name = place.path().file_name().ok_or("the path names a folder, not a file")?.to_owned();
    let folder = match place {
        Place::Outside(path) => {
            let parent = path.parent().unwrap_or(Path::new("/"));
            std::fs::create_dir_all(parent).map_err(|error| open::problem(&error))?;
            Folder::open(parent).map_err(|error| open::problem(&error))?
        }
        Place::Inside(relative) => {
            let real = match open::resolve_for_write(root, relative).map_err(|error| open::problem(&error))? {
                Place::Inside(real) => real,
                Place::Outside(_) => return Err(LEAVES.to_owned()),
            };
            // The folders that are opened below have no links, so this holds for what is written.
            if bounds.owns(&root.join(&real)) {
                return Err(OWN_DATA.to_owned());
            }
            if protected(root, &real) && !protected(root, relative) {
                return Err("a symbolic link leads it to a protected name; give the real path".to_owned());
            }
            let parent = real.parent().unwrap_or(Path::new(""));
            Folder::open(root)
                .and_then(|folder| folder.descend_making(parent))
                .map_err(|error| open::beneath_problem(&error))?
        }
    };
    Ok((folder, name))
}

/// Whether a path beneath the root is one that agents may not write unasked: by name, or since the
/// repository's own data lies there.
fn protected(root: &Path, relative: &Path) -> bool {
    is_protected(relative) || open::git_folder(root).is_some_and(|git| relative.starts_with(git))
}

/// What is said where a write would change what the server keeps.
const OWN_DATA: &str = "the server's own data is not written by tools";

/// What is said where a link leads out.
const LEAVES: &str = "the path leaves the workspace through a symbolic link; give the real path";

#[cfg(test)]
mod tests;
