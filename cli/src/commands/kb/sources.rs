//! What `tns kb add` is given, as texts: files, folders, patterns, standard input, a literal.

use std::fs::{self, FileType, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ignore::WalkBuilder;
use ignore::overrides::OverrideBuilder;
use nix::fcntl::OFlag;
use tns_protocol::MAX_MESSAGE_BYTES;

use crate::exit::{Exit, Stop};

/// Most files that folders and patterns of one command may hold.
const MAX_FILES: usize = 10_000;
/// Largest document, in bytes; the server takes no larger message.
const MAX_DOCUMENT_BYTES: usize = MAX_MESSAGE_BYTES;

/// One text to add.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// A file that was named.
    Named(PathBuf),
    /// A file that a folder or pattern holds.
    Searched(PathBuf),
    /// A folder inside one that was named, and why it can't be read.
    Closed(PathBuf, String),
    /// Standard input.
    Stdin,
    /// The text itself.
    Literal(String),
}

impl Source {
    /// Returns where the text comes from, as metadata; `None` for a literal.
    pub(super) fn name(&self) -> Option<String> {
        match self {
            Self::Named(path) | Self::Searched(path) | Self::Closed(path, _) => {
                Some(path.to_string_lossy().into_owned())
            }
            Self::Stdin => Some("stdin".into()),
            Self::Literal(_) => None,
        }
    }

    /// Returns where the file lies, if it is one.
    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            Self::Named(path) | Self::Searched(path) => Some(path),
            Self::Closed(..) | Self::Stdin | Self::Literal(_) => None,
        }
    }

    /// Whether nobody named it, so that its being no text is no failure.
    pub(super) fn was_searched_for(&self) -> bool {
        matches!(self, Self::Searched(_))
    }

    /// Reads the text.
    ///
    /// # Errors
    /// One line that says why there is none.
    pub(super) fn read(&self) -> Result<String, String> {
        match self {
            Self::Named(path) | Self::Searched(path) => text_of_file(path),
            Self::Closed(_, why) => Err(why.clone()),
            Self::Stdin => text_of(io::stdin().lock()),
            Self::Literal(text) => text_of(text.as_bytes()),
        }
    }
}

/// Reads a regular file: whatever else has a name may never end, or do something when it is opened.
fn text_of_file(path: &Path) -> Result<String, String> {
    let regular = |kind: FileType| match kind_of(kind) {
        None => Ok(()),
        Some(kind) => Err(format!("it is {kind}, not a file; - reads standard input")),
    };
    regular(fs::metadata(path).map_err(|error| plain(&error))?.file_type())?;
    // It may have become something else since: opening that must not wait either.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path)
        .map_err(|error| plain(&error))?;
    regular(file.metadata().map_err(|error| plain(&error))?.file_type())?;
    text_of(file)
}

/// Says what something is that is no regular file.
fn kind_of(kind: FileType) -> Option<&'static str> {
    if kind.is_file() {
        None
    } else if kind.is_dir() {
        Some("a folder")
    } else if kind.is_fifo() {
        Some("a named pipe")
    } else if kind.is_socket() {
        Some("a socket")
    } else {
        Some("a device")
    }
}

/// What some editors write before the first character; no part of the text.
const BYTE_ORDER_MARK: char = '\u{feff}';

fn text_of(reader: impl Read) -> Result<String, String> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(MAX_DOCUMENT_BYTES).unwrap_or(u64::MAX);
    reader.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| plain(&error))?;
    if bytes.len() > MAX_DOCUMENT_BYTES {
        return Err(format!("it is larger than {} MiB; split it", MAX_DOCUMENT_BYTES >> 20));
    }
    let text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())?;
    if text.contains('\0') {
        return Err("it is binary, not text".into());
    }
    let text = match text.strip_prefix(BYTE_ORDER_MARK) {
        Some(rest) => rest.to_owned(),
        None => text,
    };
    if text.trim().is_empty() {
        return Err("it is empty".into());
    }
    Ok(text)
}

/// The system's own words, without what was wrapped around them and without its number.
fn plain(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|wrapper| wrapper.source()?.downcast_ref::<io::Error>());
    let text = inner.unwrap_or(error).to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

/// Finds what the arguments name, in their order; inside a folder by path.
///
/// # Errors
/// A [`Stop`] for a pattern that is none or holds nothing, for more than the limit, and for standard input
/// named twice. A missing file is found out when it is read, so that the others are added.
pub(super) fn gather(paths: &[String], text: Option<String>) -> Result<Vec<Source>, Stop> {
    let mut sources: Vec<Source> = text.map(Source::Literal).into_iter().collect();
    for name in paths {
        if name == "-" {
            if sources.contains(&Source::Stdin) {
                return Err(Stop::usage("- stands twice; standard input can be read once"));
            }
            sources.push(Source::Stdin);
            continue;
        }
        let path = Path::new(name);
        if path.is_dir() {
            walk(WalkBuilder::new(path), path, &mut sources)?;
        } else if !path.exists() && name.contains(['*', '?', '[', '{']) {
            let before = sources.len();
            pattern(name, &mut sources)?;
            if sources.len() == before {
                return Err(Stop::new(Exit::NotFound, format!("no file fits {name}")));
            }
        } else {
            sources.push(Source::Named(path.to_owned()));
        }
    }
    Ok(sources)
}

/// Adds the files of a folder. What is hidden or ignored by git stays out; links are not followed. A pipe,
/// socket or device is found out when it is read, and a folder that can't be read keeps no other file out.
fn walk(mut builder: WalkBuilder, folder: &Path, sources: &mut Vec<Source>) -> Result<(), Stop> {
    builder.sort_by_file_path(Path::cmp).require_git(false);
    for entry in builder.build() {
        let source = match entry {
            Ok(entry) if entry.file_type().is_none_or(|kind| kind.is_dir() || kind.is_symlink()) => continue,
            Ok(entry) => Source::Searched(named(entry.path())),
            Err(error) => {
                let why = error.io_error().map_or_else(|| error.to_string(), plain);
                Source::Closed(named(path_in(&error).unwrap_or(folder)), why)
            }
        };
        if sources.len() >= MAX_FILES {
            return Err(Stop::usage(format!("there are more than {MAX_FILES} files; add fewer at a time")));
        }
        sources.push(source);
    }
    Ok(())
}

fn named(path: &Path) -> PathBuf {
    path.strip_prefix("./").unwrap_or(path).to_owned()
}

/// Returns the path that an error of the search is about.
fn path_in(error: &ignore::Error) -> Option<&Path> {
    match error {
        ignore::Error::WithPath { path, .. } => Some(path),
        ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } => path_in(err),
        ignore::Error::Loop { child, .. } => Some(child),
        ignore::Error::Partial(errors) => errors.iter().find_map(path_in),
        ignore::Error::Io(_)
        | ignore::Error::Glob { .. }
        | ignore::Error::UnrecognizedFileType(_)
        | ignore::Error::InvalidDefinition => None,
    }
}

/// Adds the files that fit a pattern, searched from its longest part without wildcards.
fn pattern(name: &str, sources: &mut Vec<Source>) -> Result<(), Stop> {
    let first_wildcard = name.find(['*', '?', '[', '{']).unwrap_or(name.len());
    let (folder, rest) = match name[..first_wildcard].rfind('/') {
        Some(slash) => (&name[..=slash], &name[slash + 1..]),
        None => ("./", name),
    };
    let wrong = |error: ignore::Error| Stop::usage(format!("{name} is not a pattern: {error}"));
    let mut fits = OverrideBuilder::new(folder);
    // The leading slash holds the pattern to this folder; without it, it would fit at any depth.
    fits.add(&format!("/{rest}")).map_err(wrong)?;
    let mut builder = WalkBuilder::new(folder);
    builder.overrides(fits.build().map_err(wrong)?);
    // A pattern names what is hidden only by its own dot, as in a shell.
    if !rest.split('/').any(|part| part.starts_with('.')) {
        builder.filter_entry(|entry| {
            entry.depth() == 0 || !entry.file_name().as_encoded_bytes().starts_with(b".")
        });
    }
    if !Path::new(folder).is_dir() {
        return Ok(());
    }
    walk(builder, Path::new(folder), sources)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("docs/deep")).unwrap();
        for name in ["docs/b.md", "docs/a.md", "docs/c.txt", "docs/deep/d.md", "docs/.hidden.md"] {
            fs::write(dir.path().join(name), "text").unwrap();
        }
        dir
    }

    fn found(dir: &tempfile::TempDir, name: &str) -> Vec<String> {
        let name = format!("{}/{name}", dir.path().display());
        let prefix = format!("{}/", dir.path().display());
        gather(&[name], None)
            .unwrap()
            .iter()
            .map(|source| source.name().unwrap().strip_prefix(&prefix).unwrap().to_owned())
            .collect()
    }

    #[test]
    fn a_folder_gives_its_visible_files_in_order() {
        assert_eq!(found(&tree(), "docs"), ["docs/a.md", "docs/b.md", "docs/c.txt", "docs/deep/d.md"]);
    }

    #[test]
    fn a_pattern_stays_in_its_folder_unless_it_says_otherwise() {
        let tree = tree();
        assert_eq!(found(&tree, "docs/*.md"), ["docs/a.md", "docs/b.md"]);
        assert_eq!(found(&tree, "docs/**/*.md"), ["docs/a.md", "docs/b.md", "docs/deep/d.md"]);
        assert_eq!(found(&tree, "docs/[bc].*"), ["docs/b.md", "docs/c.txt"]);
    }

    #[test]
    fn a_pattern_without_files_is_not_found_and_a_file_without_text_is_told() {
        let tree = tree();
        let name = format!("{}/docs/*.rs", tree.path().display());
        assert!(gather(&[name], None).unwrap_err().to_string().starts_with("no file fits"));
        let missing = gather(&["no-such-file.md".into()], None).unwrap();
        assert_eq!(missing[0].read(), Err("no such file or directory".into()));
        for (bytes, why) in
            [(&b""[..], "it is empty"), (b" \n", "it is empty"), (b"a\0b", "binary"), (b"\xff", "not UTF-8")]
        {
            let file = tree.path().join("x");
            fs::write(&file, bytes).unwrap();
            let error = Source::Named(file).read().unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_text() {
        assert_eq!(text_of("\u{feff}# A\u{feff}\n".as_bytes()), Ok("# A\u{feff}\n".into()));
        assert_eq!(text_of("\u{feff}\n".as_bytes()), Err("it is empty".into()));
    }

    #[test]
    fn what_is_no_regular_file_is_refused_and_never_waited_for() {
        let tree = tree();
        let pipe = tree.path().join("docs/pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let socket = tree.path().join("docs/socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for (path, what) in [
            (pipe.as_path(), "a named pipe"),
            (&socket, "a socket"),
            (Path::new("/dev/null"), "a device"),
            (&tree.path().join("docs"), "a folder"),
        ] {
            let error = Source::Named(path.to_owned()).read().unwrap_err();
            assert_eq!(error, format!("it is {what}, not a file; - reads standard input"));
        }
        // In a folder nobody named them: each is left out with a note.
        let found = gather(&[tree.path().join("docs").to_str().unwrap().to_owned()], None).unwrap();
        for path in [pipe, socket] {
            assert!(found.contains(&Source::Searched(path)));
        }
    }

    #[test]
    fn a_folder_that_can_not_be_read_keeps_no_other_file_out() {
        let tree = tree();
        // Longer than any path may be, though each half is not: nobody can read it, not even root.
        let long = |folder: &str| {
            let folders = vec!["x".repeat(250); 9].join("/");
            let path = tree.path().join(folder).join(folders);
            fs::create_dir_all(&path).unwrap();
            path
        };
        let (outer, inner) = (long("docs/e"), long("other"));
        fs::rename(tree.path().join("other"), outer.join("inner")).unwrap();
        assert!(!inner.exists());
        let docs = tree.path().join("docs");
        let found = gather(&[docs.to_str().unwrap().to_owned()], None).unwrap();
        let files: Vec<&Path> = found.iter().filter_map(Source::file).collect();
        let all = ["a.md", "b.md", "c.txt", "deep/d.md"].map(|name| docs.join(name));
        assert_eq!(files, all.each_ref().map(PathBuf::as_path));
        let closed: Vec<&Source> = found.iter().filter(|source| source.file().is_none()).collect();
        let [Source::Closed(path, why)] = closed[..] else { panic!("{closed:?}") };
        assert!(path.starts_with(&outer), "{path:?}");
        assert_eq!(why, "file name too long");
        assert!(!closed[0].was_searched_for());
    }

    #[test]
    fn a_document_is_taken_up_to_the_limit() {
        assert_eq!(text_of("x".repeat(MAX_DOCUMENT_BYTES).as_bytes()).unwrap().len(), MAX_DOCUMENT_BYTES);
        let error = text_of("x".repeat(MAX_DOCUMENT_BYTES + 1).as_bytes()).unwrap_err();
        assert_eq!(error, "it is larger than 8 MiB; split it");
    }

    #[test]
    fn standard_input_is_read_once() {
        assert_eq!(
            gather(&["-".into()], Some("t".into())).unwrap(),
            [Source::Literal("t".into()), Source::Stdin]
        );
        assert!(gather(&["-".into(), "-".into()], None).is_err());
    }
}
