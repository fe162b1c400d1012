//! The environment of a shell line: made from nothing, with a few values of the server's own that hold no
//! secret. A variable that is not named here does not reach a command.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Searched first, so that no folder of a person or a project shadows a system program.
const SYSTEM_PATH: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Passed on where the server has them: who and where, language, and where tool chains lie.
const PASSED_ON: [&str; 21] = [
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_CTYPE",
    "LC_MESSAGES",
    "TZ",
    "TMPDIR",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "GOPATH",
    "GOROOT",
    "GOCACHE",
    "JAVA_HOME",
    "NVM_DIR",
    "PYENV_ROOT",
    "VOLTA_HOME",
];

/// The language where the server has none: UTF-8, no country's rules.
const DEFAULT_LANG: &str = "C.UTF-8";

/// Returns the environment for a command in `root`; `lookup` gives the server's own values.
pub(crate) fn clean(lookup: impl Fn(&str) -> Option<OsString>, root: &Path) -> Vec<(OsString, OsString)> {
    let mut made: Vec<(OsString, OsString)> = vec![
        ("PATH".into(), search_path(lookup("PATH").as_deref(), root)),
        ("TERM".into(), "dumb".into()),
        ("PAGER".into(), "cat".into()),
        ("GIT_PAGER".into(), "cat".into()),
        ("GIT_TERMINAL_PROMPT".into(), "0".into()),
        ("GIT_OPTIONAL_LOCKS".into(), "0".into()),
    ];
    for name in PASSED_ON {
        match lookup(name) {
            Some(value) => made.push((name.into(), value)),
            None if name == "LANG" => made.push((name.into(), DEFAULT_LANG.into())),
            None => {}
        }
    }
    made
}

/// Returns the system's folders, then the server's own absolute ones that are not inside the workspace.
fn search_path(own: Option<&OsStr>, root: &Path) -> OsString {
    let mut folders: Vec<PathBuf> = SYSTEM_PATH.iter().map(PathBuf::from).collect();
    for folder in own.map(std::env::split_paths).into_iter().flatten() {
        let real = std::fs::canonicalize(&folder).unwrap_or_else(|_| folder.clone());
        let usable = folder.is_absolute() && !folder.starts_with(root) && !real.starts_with(root);
        if usable && !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    // Fails only for a folder with a colon, which splitting can't have given.
    std::env::join_paths(folders).unwrap_or_else(|_| SYSTEM_PATH.join(":").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(own: &[(&str, &str)]) -> Vec<(String, String)> {
        let lookup =
            |name: &str| own.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value));
        let text = |value: OsString| value.into_string().unwrap();
        clean(lookup, Path::new("/ws")).into_iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    #[test]
    fn secrets_and_unknown_variables_do_not_pass() {
        let own = [
            ("OPENAI_API_KEY", "sk-1"),
            ("LD_PRELOAD", "/x.so"),
            ("BASH_ENV", "/x"),
            ("BASH_FUNC_ls%%", "() { id; }"),
            ("HOME", "/home/me"),
        ];
        let names: Vec<String> = made(&own).into_iter().map(|(name, _)| name).collect();
        assert_eq!(
            names,
            [
                "PATH",
                "TERM",
                "PAGER",
                "GIT_PAGER",
                "GIT_TERMINAL_PROMPT",
                "GIT_OPTIONAL_LOCKS",
                "HOME",
                "LANG"
            ]
        );
    }

    #[test]
    fn system_folders_come_first_and_no_folder_of_the_workspace_at_all() {
        let own = [("PATH", "/ws/node_modules/.bin:bin::/opt/tools:/usr/bin:/ws")];
        let path = made(&own).swap_remove(0).1;
        assert_eq!(path, format!("{}:/opt/tools", SYSTEM_PATH.join(":")));
    }
}
