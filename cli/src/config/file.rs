//! The config file on the disk: where it is, and that nobody else can read a key in it or change it. It
//! never repairs what it finds too open.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use secrecy::{ExposeSecret, SecretString};

use super::read::{self, Values};
use crate::exit::Stop;

/// Longest config file, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The mode of a file that is written here: for its owner only.
const FILE_MODE: u32 = 0o600;
/// The mode of its folder, where that is made here.
const FOLDER_MODE: u32 = 0o700;
/// What lets others read or write.
const OTHERS: u32 = 0o077;
/// What lets others write.
const OTHERS_WRITE: u32 = 0o022;
/// The system's own user, whose files nobody else wrote.
const ROOT: u32 = 0;

/// Where the config file is, whether or not it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// The file.
    pub(crate) path: PathBuf,
    /// The file as it is shown: below the home folder with `~`.
    pub(crate) shown: String,
    /// It was named, so it must be there.
    pub(crate) named: bool,
}

impl Place {
    /// Finds the file: `named`, else the user's own.
    ///
    /// # Errors
    /// When there is no home folder to look in.
    pub(crate) fn find(named: Option<&Path>) -> Result<Self, Stop> {
        let base = directories::BaseDirs::new();
        let home = base.as_ref().map(directories::BaseDirs::home_dir);
        let (path, named) = match named.filter(|path| !path.as_os_str().is_empty()) {
            Some(path) => (path.to_owned(), true),
            None => {
                let dirs = directories::ProjectDirs::from("", "", "tns").ok_or_else(|| {
                    Stop::usage("there is no home folder; name a config file with --config")
                })?;
                (dirs.config_dir().join("config.toml"), false)
            }
        };
        if !named && !path.is_absolute() {
            return Err(Stop::usage(
                "HOME is not a whole path, so the config file would be another one in each folder; set HOME, or name a file with --config",
            ));
        }
        let below = home.filter(|home| home.is_absolute()).and_then(|home| path.strip_prefix(home).ok());
        let shown = below.map_or_else(|| path.display().to_string(), |rest| format!("~/{}", rest.display()));
        Ok(Self { path, shown, named })
    }

    /// Reads the file; `None` when it is not there and nobody named it.
    ///
    /// # Errors
    /// A [`Stop`] that names the file, and the line or the command that mends it.
    pub(crate) fn read(&self) -> Result<Option<Values>, Stop> {
        let Some((text, owner, mode)) = self.text()? else { return Ok(None) };
        let values = read::read(text.expose_secret())
            .map_err(|fault| Stop::usage(format!("{}:{}: {}", self.shown, fault.line, fault.text)))?;
        check(self, !values.keys.is_empty(), owner, mode, nix::unistd::geteuid().as_raw())?;
        Ok(Some(values))
    }

    /// Reads the text, with the owner and the mode of the very file that was read.
    fn text(&self) -> Result<Option<(SecretString, u32, u32)>, Stop> {
        let cannot =
            |error: &io::Error| Stop::usage(format!("the config file {} can't be read: {error}", self.shown));
        // A pipe would be waited for.
        let opened = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(&self.path);
        let file = match opened {
            Ok(file) => file,
            Err(error) if is_missing(&error) && !self.named => return Ok(None),
            Err(error) if is_missing(&error) => {
                return Err(Stop::usage(format!(
                    "there is no config file {}; make it, or leave --config and TNS_CONFIG out",
                    self.shown
                )));
            }
            Err(error) => return Err(cannot(&error)),
        };
        let metadata = file.metadata().map_err(|error| cannot(&error))?;
        if !metadata.is_file() {
            return Err(Stop::usage(format!("the config file {} is no file", self.shown)));
        }
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(|error| cannot(&error))?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(Stop::usage(format!("the config file {} is longer than 1 MiB", self.shown)));
        }
        let text = String::from_utf8(bytes)
            .map_err(|_| Stop::usage(format!("the config file {} is not UTF-8", self.shown)))?;
        Ok(Some((text.into(), metadata.uid(), metadata.mode())))
    }

    /// Rewrites the file with what `edit` makes of its text, for its owner only; all of it or nothing.
    ///
    /// # Errors
    /// What the system says; what is wrong with the file as it is; a [`Stop`] when the edit would break it.
    pub(crate) fn rewrite(
        &self,
        edit: impl FnOnce(&str) -> Result<String, &'static str>,
    ) -> anyhow::Result<()> {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let made = DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder);
        made.with_context(|| format!("make the folder {}", folder.display()))?;
        // From the reading to the writing, so that of two changes at once none is lost.
        let turn = File::open(folder).and_then(|folder| folder.lock().map(|()| folder));
        let _turn = turn.with_context(|| format!("lock the folder {}", folder.display()))?;
        let unnamed = Self { named: false, ..self.clone() };
        let (before, owner, mode) = match unnamed.text()? {
            Some((text, owner, mode)) => (text, owner, Some(mode)),
            None => (String::new().into(), nix::unistd::geteuid().as_raw(), None),
        };
        if let Some(mode) = mode {
            // What is written is closed to others; what they may write already is not trusted.
            check(self, true, owner, mode & OTHERS_WRITE, nix::unistd::geteuid().as_raw())?;
        }
        read::read(before.expose_secret())
            .map_err(|fault| Stop::usage(format!("{}:{}: {}", self.shown, fault.line, fault.text)))?;
        let shown = &self.shown;
        let after = edit(before.expose_secret())
            .map_err(|why| Stop::usage(format!("{shown} can't be changed: {why}; change it by hand")))?;
        let after = SecretString::from(after);
        if read::read(after.expose_secret()).is_err() {
            return Err(
                Stop::usage(format!("{shown} has a form that can't be added to; change it by hand")).into()
            );
        }
        // A link stays one: what it leads to is written.
        let target = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        replace(&target, after.expose_secret()).with_context(|| format!("write {shown}"))
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Writes a file in one step, for its owner only.
fn replace(target: &Path, text: &str) -> io::Result<()> {
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", uuid::Uuid::now_v7().simple()));
    let draft = target.with_file_name(name);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(&draft)
        .and_then(|mut file: File| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&draft, target));
    if written.is_err() {
        // It may hold a key, and nobody will use it.
        let _ = fs::remove_file(&draft);
    }
    written
}

/// Refuses a file that others could have changed, and one with a key that others could have read.
fn check(place: &Place, has_key: bool, owner: u32, mode: u32, user: u32) -> Result<(), Stop> {
    let shown = &place.shown;
    let file = place.path.display();
    let trusted = owner == user || (owner == ROOT && !has_key);
    if !trusted {
        return Err(Stop::usage(format!(
            "the config file {shown} belongs to another user; copy it, or name another with --config"
        )));
    }
    let (open, what) = match has_key {
        true => (mode & OTHERS, "holds a key and is open to others"),
        false => (mode & OTHERS_WRITE, "can be written by others"),
    };
    if open != 0 {
        let mode = mode & 0o777;
        return Err(Stop::usage(format!(
            "the config file {shown} {what} (mode {mode:o}); close it with `chmod 600 {file}`"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
