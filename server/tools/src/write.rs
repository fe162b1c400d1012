//! `file_write`: the whole content of a file, replaced in one step. A reader sees the old file or the new
//! one, never a part. It follows no link at the file's own name.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{Mode, SFlag, fchmod, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use serde::Deserialize;
use serde_json::json;
use similar::TextDiff;
use tns_protocol::approval::RiskClass;
use tns_server_core::tool::{Args, Rating, Tool, ToolOutcome, ToolRun, ToolSpec, Workspace};

use crate::guard::{Bounds, Folder, OwnFolder, Place};
use crate::{args, blocking, blocking_rating, guard};
use tns_server_core::visible;

/// Largest content that is written, in bytes.
const MAX_CONTENT_BYTES: usize = 5 << 20;

/// Largest file, old or new, whose change is shown as a diff, in bytes.
const MAX_DIFF_BYTES: usize = 1 << 20;

/// Lines shown around a change.
const DIFF_CONTEXT: usize = 3;

/// How long a diff may be sought before a coarser one is taken.
const DIFF_TIME: Duration = Duration::from_millis(500);

/// Writes a file.
pub(crate) struct FileWrite {
    spec: Arc<ToolSpec>,
    own: OwnFolder,
}

#[derive(Debug, Deserialize)]
struct WriteArgs {
    path: String,
    content: String,
}

impl FileWrite {
    pub(crate) fn new(own: OwnFolder) -> Self {
        let properties = json!({
            "path": {"type": "string", "minLength": 1, "maxLength": guard::MAX_PATH_BYTES,
                "description": "The file, relative to the workspace root or absolute."},
            "content": {"type": "string", "maxLength": MAX_CONTENT_BYTES,
                "description": "The whole new content of the file."},
        });
        Self {
            spec: Arc::new(ToolSpec {
                name: "file_write".to_owned(),
                description:
                    "Creates a file or replaces its whole content, in one step. Missing folders are \
                    made. The mode of an existing file is kept."
                        .to_owned(),
                schema: args::closed_object(properties, &["path", "content"]),
            }),
            own,
        }
    }
}

#[async_trait]
impl Tool for FileWrite {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    async fn rate(&self, args: &Args, workspace: &Workspace) -> Rating {
        let args = match args::parse::<WriteArgs>(args) {
            Ok(args) => args,
            Err(problem) => return args::unreadable("file_write", problem),
        };
        let bounds = self.own.bounds(workspace);
        blocking_rating("file_write", move || rate(&args, &bounds)).await
    }

    async fn run(&self, run: ToolRun) -> ToolOutcome {
        let args = match args::parse::<WriteArgs>(&run.args) {
            Ok(args) => args,
            Err(problem) => return ToolOutcome::error(problem),
        };
        if run.cancel.is_cancelled() {
            return ToolOutcome::error("cancelled before anything was written");
        }
        let bounds = self.own.bounds(&run.workspace);
        blocking(move || {
            let shown = visible::one_line(&args.path);
            match write(&args, &bounds) {
                Ok(()) => ToolOutcome::ok(format!("wrote {} bytes to {shown}", args.content.len())),
                Err(problem) => ToolOutcome::error(format!("can't write {shown}: {problem}")),
            }
        })
        .await
    }
}

fn rate(args: &WriteArgs, bounds: &Bounds) -> Rating {
    let summary = format!("write {} ({} bytes)", visible::one_line(&args.path), args.content.len());
    let place = match guard::place(&args.path, bounds.root()) {
        Ok(place) => place,
        Err(problem) => {
            return Rating::new(RiskClass::Write, format!("nothing is written: {problem}"), summary);
        }
    };
    let verdict = bounds.rate_write(&place);
    let mut rating = Rating::new(verdict.class, verdict.reason, summary);
    if visible::render(&args.path).escaped > 0 {
        rating.reasons.push("the path holds hidden or misleading characters, shown as escapes".to_owned());
    }
    match diff(&place, args, bounds) {
        Ok(diff) => {
            if diff.escaped {
                rating.reasons.push("the change holds hidden characters, shown as escapes".to_owned());
            }
            rating.diff = Some(diff.text);
        }
        Err(reason) => rating.reasons.push(format!("no diff is shown: {reason}")),
    }
    rating
}

struct Diff {
    text: String,
    escaped: bool,
}

/// Shows what would change, hidden characters as escapes.
fn diff(place: &Place, args: &WriteArgs, bounds: &Bounds) -> Result<Diff, String> {
    if matches!(place, Place::Outside(_)) || bounds.hides(place.path()) {
        return Err("the present content may be secret".to_owned());
    }
    if args.content.len() > MAX_DIFF_BYTES {
        return Err(format!("the new content has more than {MAX_DIFF_BYTES} bytes"));
    }
    let shown = visible::one_line(&place.path().to_string_lossy());
    let (old, old_name) = match std::fs::symlink_metadata(place.absolute(bounds.root())) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => (String::new(), "/dev/null".to_owned()),
        _ => (old_text(place, bounds)?, format!("a/{shown}")),
    };
    let text = TextDiff::configure()
        .timeout(DIFF_TIME)
        .diff_lines(&old, &args.content)
        .unified_diff()
        .context_radius(DIFF_CONTEXT)
        .header(&old_name, &format!("b/{shown}"))
        .to_string();
    Ok(escape_lines(&text))
}

fn old_text(place: &Place, bounds: &Bounds) -> Result<String, String> {
    let file = guard::open_file(place, bounds)?;
    let mut bytes = Vec::new();
    file.take(MAX_DIFF_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(|error| guard::problem(&error))?;
    if bytes.len() > MAX_DIFF_BYTES {
        return Err(format!("the present content has more than {MAX_DIFF_BYTES} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "the present content is not text".to_owned())
}

/// Escapes hidden characters but keeps the lines of a diff, CR before LF included, as lines.
fn escape_lines(text: &str) -> Diff {
    let mut shown = Diff { text: String::with_capacity(text.len()), escaped: false };
    for line in text.split_inclusive('\n') {
        let (body, end) = match line.strip_suffix("\n") {
            Some(body) => (body, "\n"),
            None => (line, ""),
        };
        let rendered = visible::render(body);
        shown.escaped |= rendered.escaped > 0;
        shown.text.push_str(&rendered.text);
        shown.text.push_str(end);
    }
    shown
}

fn write(args: &WriteArgs, bounds: &Bounds) -> Result<(), String> {
    if args.content.len() > MAX_CONTENT_BYTES {
        return Err(format!("the content has more than {MAX_CONTENT_BYTES} bytes"));
    }
    let place = guard::place(&args.path, bounds.root())?;
    if args.path.ends_with('/') {
        return Err("the path names a folder, not a file".to_owned());
    }
    let (folder, name) = guard::open_for_write(&place, bounds)?;
    replace(&folder, &name, args.content.as_bytes())
}

/// Replaces a file of a folder in one step; its permission bits stay, those of a set-user-id file don't.
fn replace(folder: &Folder, name: &OsStr, content: &[u8]) -> Result<(), String> {
    let old_mode = match fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) => match SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) {
            SFlag::S_IFREG => Some(Mode::from_bits_truncate(stat.st_mode & 0o777)),
            SFlag::S_IFDIR => return Err("it is a folder".to_owned()),
            SFlag::S_IFLNK => {
                return Err("it is a symbolic link; give the path of the file itself".to_owned());
            }
            _ => return Err("it is not a regular file".to_owned()),
        },
        Err(Errno::ENOENT) => None,
        Err(error) => return Err(guard::problem(&error.into())),
    };
    let temporary = OsString::from(format!(".tns-write-{}", uuid::Uuid::new_v4().simple()));
    let written = write_temporary(folder, &temporary, content, old_mode)
        .and_then(|()| Ok(renameat(folder, temporary.as_os_str(), folder, name)?));
    written.map_err(|error| {
        // The write has failed already, and its cause is what the model needs to read.
        let _ = unlinkat(folder, temporary.as_os_str(), UnlinkatFlags::NoRemoveDir);
        guard::problem(&error)
    })
}

fn write_temporary(folder: &Folder, name: &OsStr, content: &[u8], mode: Option<Mode>) -> std::io::Result<()> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    // A new file gets what the umask leaves; one that replaces another is private until it has its mode.
    let created = Mode::from_bits_truncate(if mode.is_some() { 0o600 } else { 0o666 });
    let mut file = File::from(openat(folder, name, flags, created)?);
    file.write_all(content)?;
    if let Some(mode) = mode {
        fchmod(&file, mode)?;
    }
    file.sync_data()
}

#[cfg(test)]
mod tests;
