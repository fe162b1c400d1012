//! `list_dir`: the names in a folder. It follows no link and opens no file.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::sync::Arc;

use async_trait::async_trait;
use nix::fcntl::{AtFlags, readlinkat};
use nix::sys::stat::{SFlag, fstatat};
use serde::Deserialize;
use serde_json::json;
use tns_server_core::tool::{Args, Rating, Tool, ToolOutcome, ToolRun, ToolSpec, Workspace};

use crate::guard::{Bounds, OwnFolder};
use crate::read::rate_reading;
use crate::{args, blocking, blocking_rating, guard, output};
use tns_server_core::visible;

/// Most entries that are shown.
const MAX_ENTRIES: usize = 2_000;

/// Most entries that are sorted to find the first ones.
const MAX_SCANNED: usize = 100_000;

/// Lists a folder.
pub(crate) struct ListDir {
    spec: Arc<ToolSpec>,
    own: OwnFolder,
}

#[derive(Debug, Deserialize)]
struct ListArgs {
    #[serde(default = "root")]
    path: String,
}

fn root() -> String {
    ".".to_owned()
}

impl ListDir {
    pub(crate) fn new(own: OwnFolder) -> Self {
        let properties = json!({
            "path": {"type": "string", "minLength": 1, "maxLength": guard::MAX_PATH_BYTES,
                "description": "The folder, relative to the workspace root or absolute; the root if absent."},
        });
        Self {
            spec: Arc::new(ToolSpec {
                name: "list_dir".to_owned(),
                description: format!(
                    "Lists a folder, one entry a line in byte order: folders end in /, symbolic links show \
                     their target after ->. At most {MAX_ENTRIES} entries."
                ),
                schema: args::closed_object(properties, &[]),
            }),
            own,
        }
    }
}

#[async_trait]
impl Tool for ListDir {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    async fn rate(&self, args: &Args, workspace: &Workspace) -> Rating {
        match args::parse::<ListArgs>(args) {
            Ok(args) => {
                let bounds = self.own.bounds(workspace);
                blocking_rating("list_dir", move || rate_reading("list", &args.path, &bounds)).await
            }
            Err(problem) => args::unreadable("list_dir", problem),
        }
    }

    async fn run(&self, run: ToolRun) -> ToolOutcome {
        let args = match args::parse::<ListArgs>(&run.args) {
            Ok(args) => args,
            Err(problem) => return ToolOutcome::error(problem),
        };
        let bounds = self.own.bounds(&run.workspace);
        blocking(move || match list(&args.path, &bounds) {
            Ok(text) => ToolOutcome::ok(output::cap(text)),
            Err(problem) => {
                ToolOutcome::error(format!("can't list {}: {problem}", visible::one_line(&args.path)))
            }
        })
        .await
    }
}

fn list(path: &str, bounds: &Bounds) -> Result<String, String> {
    let place = guard::place(path, bounds.root())?;
    let folder = guard::open_folder(&place, bounds)?;
    let listed =
        guard::sorted_names(&folder, MAX_ENTRIES, MAX_SCANNED).map_err(|error| guard::problem(&error))?;
    if listed.names.is_empty() {
        return Ok("[empty folder]".to_owned());
    }
    let mut text = String::new();
    for name in &listed.names {
        text.push_str(&line(&folder, name));
        text.push('\n');
    }
    if listed.left_out > 0 {
        text.push_str(&format!("[… {} more entries not shown …]\n", listed.left_out));
    }
    Ok(text)
}

fn line(folder: &impl AsFd, name: &OsStr) -> String {
    let shown = visible::one_line(&name.to_string_lossy());
    let Ok(stat) = fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW) else { return shown };
    match SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) {
        SFlag::S_IFDIR => format!("{shown}/"),
        SFlag::S_IFLNK => match readlinkat(folder, name) {
            Ok(target) => format!("{shown} -> {}", visible::one_line(&target.to_string_lossy())),
            Err(_) => format!("{shown} -> ?"),
        },
        _ => shown,
    }
}

#[cfg(test)]
mod tests;
