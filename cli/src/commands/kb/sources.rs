//! What `tns kb add` is given, as texts: files, folders, patterns, standard input, a literal.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use ignore::WalkBuilder;
use ignore::overrides::OverrideBuilder;
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
    /// Standard input.
    Stdin,
    /// The text itself.
    Literal(String),
}

impl Source {
    /// Returns where the text comes from, as metadata; `None` for a literal.
    pub(super) fn name(&self) -> Option<String> {
        match self {
            Self::Named(path) | Self::Searched(path) => Some(path.to_string_lossy().into_owned()),
            Self::Stdin => Some("stdin".into()),
            Self::Literal(_) => None,
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
            Self::Named(path) | Self::Searched(path) => {
                text_of(File::open(path).map_err(|error| plain(&error))?)
            }
            Self::Stdin => text_of(std::io::stdin().lock()),
            Self::Literal(text) => text_of(text.as_bytes()),
        }
    }
}

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
    if text.trim().is_empty() {
        return Err("it is empty".into());
    }
    Ok(text)
}

fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
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
            walk(WalkBuilder::new(path), &mut sources)?;
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

/// Adds the files of a folder. What is hidden or ignored by git stays out; links are not followed.
fn walk(mut builder: WalkBuilder, sources: &mut Vec<Source>) -> Result<(), Stop> {
    builder.sort_by_file_path(Path::cmp).require_git(false);
    for entry in builder.build() {
        let entry = entry.map_err(|error| Stop::new(Exit::Failed, format!("read the folder: {error}")))?;
        if !entry.file_type().is_some_and(|kind| kind.is_file()) {
            continue;
        }
        if sources.len() >= MAX_FILES {
            return Err(Stop::usage(format!("there are more than {MAX_FILES} files; add fewer at a time")));
        }
        let path = entry.path();
        sources.push(Source::Searched(path.strip_prefix("./").unwrap_or(path).to_owned()));
    }
    Ok(())
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
    walk(builder, sources)
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
