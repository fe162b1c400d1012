//! The folder of local model files: names, and which are there. A name never becomes a path: it is one
//! file's name without its end, of a few harmless characters.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::gguf::{GgufError, GgufHeader};

/// The folder's name in the data folder.
const FOLDER: &str = "models";
/// How a model's file ends.
const END: &str = ".gguf";
/// Longest name, in bytes; a file's name with what is put behind it fits every file system.
const MAX_NAME: usize = 128;

/// The name of a local model: `[A-Za-z0-9._:-]`, beginning with a letter or a digit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModelName(String);

/// A name that no local model has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a local model's name has letters, digits and . _ : - only, 128 at most, and begins with a letter or a digit"
)]
pub struct InvalidModelName;

impl ModelName {
    /// Checks a name; an ending `.gguf` is left away.
    ///
    /// # Errors
    /// [`InvalidModelName`].
    pub fn parse(text: &str) -> Result<Self, InvalidModelName> {
        let name = text.strip_suffix(END).unwrap_or(text);
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
        let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        if begins && name.len() <= MAX_NAME && name.bytes().all(fits) {
            Ok(Self(name.to_owned()))
        } else {
            Err(InvalidModelName)
        }
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The folder of local models. It may be missing; that is an empty one.
#[derive(Debug, Clone)]
pub struct ModelFiles {
    dir: PathBuf,
}

/// A model file of the folder.
#[derive(Debug)]
pub struct ModelFile {
    /// The model's name.
    pub name: ModelName,
    /// Its size, in bytes.
    pub bytes: u64,
    /// What the file says of itself.
    pub header: Result<GgufHeader, GgufError>,
}

impl ModelFiles {
    /// Returns the folder of models of a data folder.
    pub fn of(data_dir: &Path) -> Self {
        Self { dir: data_dir.join(FOLDER) }
    }

    /// Returns the folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns where a model's file is, or would be.
    pub fn path(&self, name: &ModelName) -> PathBuf {
        self.dir.join(format!("{name}{END}"))
    }

    /// Returns the names of the models there are, in order. What has another kind of name is left out.
    ///
    /// # Errors
    /// When the folder can't be read.
    pub fn names(&self) -> io::Result<Vec<ModelName>> {
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry?;
            let file_name = entry.file_name();
            let Some(file_name) = file_name.to_str().filter(|name| name.ends_with(END)) else { continue };
            let is_file = fs::metadata(entry.path()).is_ok_and(|metadata| metadata.is_file());
            if let Ok(name) = ModelName::parse(file_name)
                && is_file
            {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Returns the models there are with what their files say, in order of their names.
    ///
    /// # Errors
    /// When the folder can't be read.
    pub fn list(&self) -> io::Result<Vec<ModelFile>> {
        let read = |name: ModelName| {
            let path = self.path(&name);
            let bytes = fs::metadata(&path).map_or(0, |metadata| metadata.len());
            ModelFile { name, bytes, header: GgufHeader::read(&path) }
        };
        Ok(self.names()?.into_iter().map(read).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_no_path() {
        for name in ["smollm2", "smollm2:135m", "Qwen2.5-0.5B_x", "7b", "a..b"] {
            assert_eq!(ModelName::parse(name).unwrap().as_str(), name);
            assert_eq!(ModelName::parse(&format!("{name}.gguf")).unwrap().as_str(), name);
        }
        let long = "a".repeat(MAX_NAME + 1);
        for name in
            ["", ".gguf", "..", "../x", "a/b", "/etc/passwd", "a\\b", "-rf", ".x", "a b", "a\0", "é", &long]
        {
            assert_eq!(ModelName::parse(name), Err(InvalidModelName), "{name}");
        }
        assert!(ModelName::parse(&long[1..]).is_ok());
    }

    #[test]
    fn the_folder_lists_model_files_alone() {
        let data = tempfile::tempdir().unwrap();
        let files = ModelFiles::of(data.path());
        assert!(files.names().unwrap().is_empty());
        fs::create_dir_all(files.dir().join("folder.gguf")).unwrap();
        for name in ["b.gguf", "a:1.gguf", "c.gguf.part", "notes.txt", ".hidden.gguf", "d.GGUF"] {
            fs::write(files.dir().join(name), "no model").unwrap();
        }
        let listed = files.list().unwrap();
        let names: Vec<_> = listed.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["a:1", "b"]);
        assert_eq!(listed[0].bytes, 8);
        assert!(matches!(listed[0].header, Err(GgufError::Foreign)), "{listed:?}");
        assert_eq!(files.path(&listed[1].name), data.path().join("models/b.gguf"));
    }
}
