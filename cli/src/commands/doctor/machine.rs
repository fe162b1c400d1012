//! What the machine brings along: the terminal, and the programs that tools run.

use std::path::{Path, PathBuf};

use super::Check;
use crate::{output, terminal};

/// The smallest terminal that the chat has room on, in columns and rows.
const SMALLEST: (u16, u16) = (40, 10);

/// Checks the terminal and the programs.
pub(super) fn check(checks: &mut Vec<Check>) {
    let term = std::env::var("TERM").ok().filter(|term| !term.is_empty());
    let size = if output::on_terminal() { terminal::dimensions() } else { None };
    checks.push(check_terminal(term.as_deref(), output::on_terminal(), size, output::no_color()));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let missing = "install it: the shell tool runs every command with it";
    checks.push(match find("bash", &folders) {
        Some(path) => Check::ok("bash", path.display().to_string()),
        None => Check::warn("bash", "not found in PATH", missing),
    });
    checks.push(match find("git", &folders) {
        Some(path) => Check::ok("git", path.display().to_string()),
        None => Check::warn("git", "not found in PATH", "install it if agents shall use it"),
    });
}

fn check_terminal(term: Option<&str>, is_terminal: bool, size: Option<(u16, u16)>, no_color: bool) -> Check {
    const NAME: &str = "terminal";
    if !is_terminal {
        return Check::ok(NAME, "none: `tns run` works, `tns chat` asks once");
    }
    let term = match term {
        None | Some("dumb") => {
            let detail = format!("TERM is {}", term.unwrap_or("not set"));
            return Check::warn(
                NAME,
                detail,
                "set it to what your terminal is, such as xterm-256color, for tns chat",
            );
        }
        Some(term) => term,
    };
    let colors = if no_color { "no colours, as NO_COLOR asks" } else { "colours" };
    match size {
        Some((columns, rows)) if columns < SMALLEST.0 || rows < SMALLEST.1 => {
            let (least_columns, least_rows) = SMALLEST;
            let fix = format!("make it {least_columns}×{least_rows} or larger for tns chat");
            Check::warn(NAME, format!("{term}, {columns}×{rows}, {colors}"), fix)
        }
        Some((columns, rows)) => Check::ok(NAME, format!("{term}, {columns}×{rows}, {colors}")),
        None => Check::warn(NAME, format!("{term}, of unknown size"), "make it say its size for tns chat"),
    }
}

fn find(program: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    folders
        .iter()
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(program))
        .find(|path| runs(path))
}

fn runs(path: &Path) -> bool {
    path.is_file() && nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn a_terminal_needs_a_name_and_room() {
        let status = |term, size| check_terminal(term, true, size, false).status;
        assert_eq!(status(Some("xterm"), Some((40, 10))), Status::Ok);
        assert_eq!(status(Some("xterm"), Some((39, 10))), Status::Warn);
        assert_eq!(status(Some("xterm"), Some((40, 9))), Status::Warn);
        assert_eq!(status(Some("xterm"), None), Status::Warn);
        assert_eq!(status(Some("dumb"), Some((80, 24))), Status::Warn);
        assert_eq!(status(None, Some((80, 24))), Status::Warn);
        assert_eq!(check_terminal(None, false, None, false).status, Status::Ok);
    }

    #[test]
    fn a_program_is_a_file_that_runs_in_a_whole_path() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("bash"), "").unwrap();
        assert_eq!(find("bash", &[dir.path().to_owned()]), None);
        let folders = [PathBuf::from("bin"), PathBuf::from("/bin")];
        assert_eq!(find("sh", &folders), Some(PathBuf::from("/bin/sh")));
    }
}
