//! `grep`: lines that match a regular expression, found with ripgrep's own crates.
//!
//! A walk names the files; each is then opened through the guard, so what a walk was led to by a link that
//! was swapped in is never read. It skips ignored, binary and secret-looking files.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use globset::{GlobBuilder, GlobMatcher};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::sinks::Lossy;
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder};
use ignore::WalkBuilder;
use serde::Deserialize;
use serde_json::json;
use tns_server_core::tool::{Args, Rating, Tool, ToolOutcome, ToolRun, ToolSpec, Workspace};
use tokio_util::sync::CancellationToken;

use crate::guard::{Bounds, OwnFolder, Place};
use crate::read::rate_reading;
use crate::{args, blocking, blocking_rating, guard, output};
use tns_server_core::visible;

/// Longest pattern, in characters.
const MAX_PATTERN_CHARS: usize = 2_000;

/// Memory that a compiled pattern may take, in bytes.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// Most lines that may be asked for.
const MAX_RESULTS: usize = 1_000;

/// Lines returned where no number is asked for.
const DEFAULT_RESULTS: usize = 200;

/// Longest shown line, in characters.
const MAX_LINE_CHARS: usize = 500;

/// Largest file that is searched, in bytes.
const MAX_FILE_BYTES: u64 = 20 << 20;

/// Most memory for one line while searching, in bytes.
const MAX_LINE_BYTES: usize = 4 << 20;

/// Deepest folder that is entered.
const MAX_DEPTH: usize = 64;

/// Searches text.
pub(crate) struct Grep {
    spec: Arc<ToolSpec>,
    own: OwnFolder,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GrepArgs {
    pattern: String,
    #[serde(default = "root")]
    path: String,
    glob: Option<String>,
    #[serde(default)]
    ignore_case: bool,
    #[serde(default = "default_results")]
    max_results: usize,
}

fn root() -> String {
    ".".to_owned()
}

fn default_results() -> usize {
    DEFAULT_RESULTS
}

impl Grep {
    pub(crate) fn new(own: OwnFolder) -> Self {
        let properties = json!({
            "pattern": {"type": "string", "minLength": 1, "maxLength": MAX_PATTERN_CHARS,
                "description": "A regular expression in Rust's syntax; no look-around, no back-references."},
            "path": {"type": "string", "minLength": 1, "maxLength": guard::MAX_PATH_BYTES,
                "description": "A file or folder to search; the workspace root if absent."},
            "glob": {"type": "string", "minLength": 1, "maxLength": 256,
                "description": "Only files whose path or name matches, such as *.rs or src/**/*.ts."},
            "ignoreCase": {"type": "boolean", "description": "Letters match in either case."},
            "maxResults": {"type": "integer", "minimum": 1, "maximum": MAX_RESULTS,
                "description": "Most lines to return; 200 if absent."},
        });
        Self {
            spec: Arc::new(ToolSpec {
                name: "grep".to_owned(),
                description:
                    "Finds lines that match a regular expression, as path:line:text. Files that git \
                    ignores, binary files and files that look like secrets are skipped."
                        .to_owned(),
                schema: args::closed_object(properties, &["pattern"]),
            }),
            own,
        }
    }
}

#[async_trait]
impl Tool for Grep {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    async fn rate(&self, args: &Args, workspace: &Workspace) -> Rating {
        match args::parse::<GrepArgs>(args) {
            Ok(args) => {
                let verb = format!("search for {} in", visible::one_line(&args.pattern));
                let bounds = self.own.bounds(workspace);
                blocking_rating("grep", move || rate_reading(&verb, &args.path, &bounds)).await
            }
            Err(problem) => args::unreadable("grep", problem),
        }
    }

    async fn run(&self, run: ToolRun) -> ToolOutcome {
        let args = match args::parse::<GrepArgs>(&run.args) {
            Ok(args) => args,
            Err(problem) => return ToolOutcome::error(problem),
        };
        let cancel = run.cancel.child_token();
        let _stop = cancel.clone().drop_guard();
        let until = Until { cancel, deadline: Instant::now() + run.limit, limit: run.limit };
        let bounds = self.own.bounds(&run.workspace);
        blocking(move || match Search::new(&args, until).and_then(|search| search.run(&args, &bounds)) {
            Ok(text) => ToolOutcome::ok(output::cap(text)),
            Err(problem) => ToolOutcome::error(problem),
        })
        .await
    }
}

/// When a search must stop.
struct Until {
    cancel: CancellationToken,
    deadline: Instant,
    limit: Duration,
}

impl Until {
    fn check(&self) -> Result<(), String> {
        if self.cancel.is_cancelled() {
            Err("the search was cancelled".to_owned())
        } else if Instant::now() >= self.deadline {
            Err(format!("the search took longer than {:?}; narrow it with path or glob", self.limit))
        } else {
            Ok(())
        }
    }
}

struct Search {
    matcher: RegexMatcher,
    searcher: Searcher,
    glob: Option<GlobMatcher>,
    until: Until,
    max_results: usize,
    found: Vec<String>,
    cut: bool,
    too_large: usize,
}

impl Search {
    fn new(args: &GrepArgs, until: Until) -> Result<Self, String> {
        let matcher = RegexMatcherBuilder::new()
            .case_insensitive(args.ignore_case)
            .size_limit(MAX_PATTERN_BYTES)
            .line_terminator(Some(b'\n'))
            .build(&args.pattern)
            .map_err(|error| format!("bad pattern: {}", visible::one_line(&error.to_string())))?;
        let searcher = SearcherBuilder::new()
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(MAX_LINE_BYTES))
            .line_number(true)
            .build();
        let glob = args.glob.as_deref().map(compile_glob).transpose()?;
        Ok(Self {
            matcher,
            searcher,
            glob,
            until,
            max_results: args.max_results.min(MAX_RESULTS),
            found: Vec::new(),
            cut: false,
            too_large: 0,
        })
    }

    fn run(mut self, args: &GrepArgs, bounds: &Bounds) -> Result<String, String> {
        let fail = |problem: String| format!("can't search {}: {problem}", visible::one_line(&args.path));
        let root = bounds.root();
        let place = guard::place(&args.path, root).map_err(fail)?;
        // What is walked is the real folder; its files are opened beneath it without following links.
        let (base, start) = match &place {
            Place::Inside(relative) => (root.to_owned(), guard::real_path(bounds, relative).map_err(fail)?),
            Place::Outside(path) => {
                (std::fs::canonicalize(path).map_err(|error| fail(guard::problem(&error)))?, "".into())
            }
        };
        if base.join(&start).is_dir() {
            // What the call itself names is what it was approved for.
            let names_secret = guard::is_secret(place.path());
            let names_own = bounds.owns(&place.absolute(root));
            let skips = |relative: &Path| {
                (guard::is_secret(relative) && !names_secret)
                    || (bounds.owns(&base.join(relative)) && !names_own)
            };
            self.folder(&base, &start, skips)?;
        } else {
            let file = guard::open_file(&place, bounds).map_err(fail)?;
            if file.metadata().is_ok_and(|metadata| metadata.len() > MAX_FILE_BYTES) {
                return Err(fail(format!("it has more than {MAX_FILE_BYTES} bytes")));
            }
            self.file(file, place.path()).map_err(|error| fail(guard::problem(&error)))?;
        }
        Ok(self.report())
    }

    fn folder(&mut self, base: &Path, start: &Path, skips: impl Fn(&Path) -> bool) -> Result<(), String> {
        let walk = WalkBuilder::new(base.join(start))
            .hidden(false)
            .follow_links(false)
            .require_git(false)
            .git_global(false)
            .max_depth(Some(MAX_DEPTH))
            .sort_by_file_name(Ord::cmp)
            .filter_entry(|entry| entry.depth() == 0 || entry.file_name() != ".git")
            .build();
        for entry in walk {
            self.until.check()?;
            // A folder that can't be read is one that is not searched, as in ripgrep.
            let Ok(entry) = entry else { continue };
            if !entry.file_type().is_some_and(|kind| kind.is_file()) {
                continue;
            }
            let Ok(relative) = entry.path().strip_prefix(base) else { continue };
            if skips(relative) || !self.glob.as_ref().is_none_or(|glob| glob.is_match(relative)) {
                continue;
            }
            let Ok(file) = guard::open_listed(base, relative) else { continue };
            if file.metadata().is_ok_and(|metadata| metadata.len() > MAX_FILE_BYTES) {
                self.too_large += 1;
                continue;
            }
            if let Err(error) = self.file(file, relative) {
                tracing::debug!(%error, "a file could not be searched");
            }
            if self.cut {
                break;
            }
        }
        Ok(())
    }

    fn file(&mut self, file: std::fs::File, path: &Path) -> io::Result<()> {
        let shown = visible::one_line(&path.to_string_lossy());
        let (found, cut, most) = (&mut self.found, &mut self.cut, self.max_results);
        let until = &self.until;
        self.searcher.search_file(
            &self.matcher,
            &file,
            Lossy(|number, line| {
                if found.len() == most {
                    *cut = true;
                    return Ok(false);
                }
                found.push(format!("{shown}:{number}:{}", shorten(line.trim_end_matches(['\n', '\r']))));
                Ok(until.check().is_ok())
            }),
        )
    }

    fn report(self) -> String {
        let mut text = self.found.join("\n");
        let mut notes = Vec::new();
        if self.found.is_empty() {
            notes.push("[no matches]".to_owned());
        }
        if self.cut {
            notes.push(format!("[… more matches than {} not shown …]", self.max_results));
        }
        if self.too_large > 0 {
            notes.push(format!("[{} files over {MAX_FILE_BYTES} bytes not searched]", self.too_large));
        }
        for note in notes {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&note);
        }
        text
    }
}

/// A glob without a slash is about the name, one with a slash about the path, as in `.gitignore`.
fn compile_glob(glob: &str) -> Result<GlobMatcher, String> {
    let anchored =
        if glob.contains('/') { glob.trim_start_matches("./").to_owned() } else { format!("**/{glob}") };
    let built = GlobBuilder::new(&anchored).literal_separator(true).build();
    built.map(|glob| glob.compile_matcher()).map_err(|error| format!("bad glob: {error}"))
}

fn shorten(line: &str) -> String {
    match line.char_indices().nth(MAX_LINE_CHARS) {
        Some((end, _)) => {
            format!("{} [… {} more characters]", &line[..end], line[end..].chars().count())
        }
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests;
