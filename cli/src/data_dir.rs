//! The data folder: where it is, and that nobody else can read it. It never repairs what it finds too open.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::exit::Stop;

/// The mode of the folder: for its owner only.
const OWNER_ONLY: u32 = 0o700;

/// A data folder that exists and is private.
#[derive(Debug, Clone)]
pub(crate) struct DataDir {
    path: PathBuf,
}

impl DataDir {
    /// Opens `chosen`, or the user's own folder, and makes it when it is missing.
    ///
    /// # Errors
    /// A [`Stop`] with the command that mends it when the folder belongs to someone else or others may
    /// enter it; what the system says when it can't be made.
    pub(crate) fn open(chosen: Option<&Path>) -> anyhow::Result<Self> {
        let path = place(chosen)?;
        let made = DirBuilder::new().recursive(true).mode(OWNER_ONLY).create(&path);
        match made {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(Stop::usage(format!(
                    "{} is not a folder; choose another with --data-dir",
                    path.display()
                ))
                .into());
            }
            Err(error) => {
                return Err(error).with_context(|| format!("make the data folder {}", path.display()));
            }
        }
        let path =
            fs::canonicalize(&path).with_context(|| format!("open the data folder {}", path.display()))?;
        let metadata =
            fs::metadata(&path).with_context(|| format!("open the data folder {}", path.display()))?;
        check(&path, metadata.uid(), metadata.permissions().mode(), nix::unistd::geteuid().as_raw())?;
        Ok(Self { path })
    }

    /// Returns the folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a file in it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// Returns where the data folder is, whether or not it is there.
///
/// # Errors
/// When there is no home folder that it could be in.
pub(crate) fn place(chosen: Option<&Path>) -> Result<PathBuf, Stop> {
    if let Some(path) = chosen {
        return Ok(path.to_owned());
    }
    let path = directories::ProjectDirs::from("", "", "tns")
        .map(|dirs| dirs.data_dir().to_owned())
        .ok_or_else(|| Stop::usage("there is no home folder; choose a data folder with --data-dir"))?;
    whole(path)
}

/// Refuses a folder that would be another one wherever the command is run.
fn whole(path: PathBuf) -> Result<PathBuf, Stop> {
    if path.is_absolute() {
        return Ok(path);
    }
    let path = path.display();
    Err(Stop::usage(format!(
        "HOME is not a whole path, so the data folder would be {path} below the current folder; set HOME, or choose a folder with --data-dir"
    )))
}

fn check(path: &Path, owner: u32, mode: u32, user: u32) -> Result<(), Stop> {
    let path = path.display();
    if owner != user {
        return Err(Stop::usage(format!(
            "the data folder {path} belongs to another user; choose another with --data-dir"
        )));
    }
    if mode & 0o077 != 0 {
        let mode = mode & 0o777;
        return Err(Stop::usage(format!(
            "the data folder {path} is open to others (mode {mode:o}); close it with `chmod 700 {path}`"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_folder_is_made_for_the_owner_only() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/b");
        let dir = DataDir::open(Some(&path)).unwrap();
        assert_eq!(fs::metadata(dir.path()).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(dir.file("lock"), fs::canonicalize(&path).unwrap().join("lock"));
        DataDir::open(Some(&path)).unwrap();
    }

    #[test]
    fn a_folder_open_to_others_is_refused_with_the_command_that_closes_it() {
        let parent = tempfile::tempdir().unwrap();
        for mode in [0o755, 0o710, 0o701] {
            fs::set_permissions(parent.path(), fs::Permissions::from_mode(mode)).unwrap();
            let error = DataDir::open(Some(parent.path())).unwrap_err();
            assert_eq!(crate::exit::of(&error), crate::exit::Exit::Usage);
            let line = format!("chmod 700 {}", fs::canonicalize(parent.path()).unwrap().display());
            assert!(error.to_string().contains(&line), "{error}");
            assert_eq!(fs::metadata(parent.path()).unwrap().permissions().mode() & 0o777, mode);
        }
    }

    #[test]
    fn a_folder_of_another_user_is_refused() {
        assert!(check(Path::new("/d"), 1, 0o40700, 1).is_ok());
        let error = check(Path::new("/d"), 1, 0o40700, 2).unwrap_err();
        assert!(error.to_string().contains("belongs to another user"), "{error}");
    }

    #[test]
    fn a_home_that_is_no_whole_path_is_refused() {
        assert_eq!(whole("/h/tns".into()).unwrap(), Path::new("/h/tns"));
        let error = whole("h/tns".into()).unwrap_err();
        assert!(error.to_string().starts_with("HOME is not a whole path"), "{error}");
    }

    #[test]
    fn a_file_in_its_place_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = DataDir::open(Some(file.path())).unwrap_err();
        assert!(error.to_string().contains("is not a folder"), "{error}");
    }
}
