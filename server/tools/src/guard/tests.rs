//! No path escapes: by its text, by a link, or by a link that is swapped in.

use std::io::Read;
#[cfg(target_os = "linux")]
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;

use tns_protocol::approval::RiskClass;
use tns_server_core::tool::Workspace;

use super::*;
use crate::testing::Bench;

fn bounds(root: &Path) -> Bounds {
    OwnFolder::default().bounds(&Workspace::new(root.to_owned()))
}

fn inside(text: &str) -> Option<String> {
    match place(text, Path::new("/ws")) {
        Ok(Place::Inside(path)) => Some(path.to_str().unwrap().to_owned()),
        Ok(Place::Outside(_)) => None,
        Err(problem) => panic!("{text}: {problem}"),
    }
}

#[test]
fn a_path_is_placed_by_its_components() {
    assert_eq!(inside("a/b").unwrap(), "a/b");
    assert_eq!(inside("./a//b/.").unwrap(), "a/b");
    assert_eq!(inside("a/../b").unwrap(), "b");
    assert_eq!(inside("/ws/a").unwrap(), "a");
    assert_eq!(inside("/ws").unwrap(), "");
    assert_eq!(inside("../ws/a").unwrap(), "a");
    assert_eq!(inside("a..").unwrap(), "a..");
    for text in
        ["/ws-evil/a", "../ws-evil", "..", "a/../../b", "/", "/etc/passwd", "/ws/..", "//etc", "/WS/a"]
    {
        assert_eq!(inside(text), None, "{text}");
    }
}

#[test]
fn unusable_paths_are_named_as_such() {
    let root = Path::new("/ws");
    assert!(place("", root).unwrap_err().contains("empty"));
    assert!(place("a\0b", root).unwrap_err().contains("NUL"));
    assert!(place("~/.ssh", root).unwrap_err().contains("not expanded"));
    assert!(place(&"a".repeat(MAX_PATH_BYTES), root).is_ok());
    assert!(place(&"a".repeat(MAX_PATH_BYTES + 1), root).is_err());
}

#[test]
fn links_are_followed_inside_and_refused_outside() {
    let bench = Bench::new();
    let root = bench.workspace.root();
    bench.file("real/a.txt", "inside");
    bench.file(".env", "KEY=1");
    bench.link("good", "real");
    bench.link("evil", bench.outside(""));
    bench.link("evil.txt", bench.outside("secret.txt"));
    bench.link("notes", ".env");

    let read = |text: &str| -> Result<String, String> {
        let mut content = String::new();
        open_file(&place(text, root)?, &bounds(root))?.read_to_string(&mut content).unwrap();
        Ok(content)
    };
    assert_eq!(read("good/a.txt").unwrap(), "inside");
    assert_eq!(read(bench.outside("secret.txt").to_str().unwrap()).unwrap(), "outside");
    for path in ["evil/secret.txt", "evil.txt"] {
        assert_eq!(read(path).unwrap_err(), LEAVES);
        assert_eq!(bounds(root).rate_read(&place(path, root).unwrap()).class, RiskClass::Sensitive);
    }
    assert!(read("notes").unwrap_err().contains("secret"));
    assert_eq!(bounds(root).rate_read(&place("notes", root).unwrap()).class, RiskClass::Sensitive);
    assert_eq!(read(".env").unwrap(), "KEY=1");
    assert!(read("real").unwrap_err().contains("folder"));
    assert!(read("absent").unwrap_err().contains("does not exist"));
}

#[test]
fn a_pipe_or_device_neither_blocks_nor_is_read() {
    let bench = Bench::new();
    let root = bench.workspace.root();
    nix::unistd::mkfifo(&bench.path("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    for path in ["pipe", "/dev/zero"] {
        assert!(
            open_file(&place(path, root).unwrap(), &bounds(root)).unwrap_err().contains("not a regular file"),
            "{path}"
        );
    }
}

#[cfg(target_os = "linux")]
#[test]
fn the_servers_own_environment_is_never_read() {
    let root = Path::new("/nonexistent");
    for path in ["/proc/self/environ", "/proc/version"] {
        assert!(
            open_file(&place(path, root).unwrap(), &bounds(root))
                .unwrap_err()
                .contains("process file system")
        );
    }
}

#[test]
fn writes_through_links_to_protected_or_outside_places_are_rated_so_and_refused() {
    let bench = Bench::new();
    let root = bench.workspace.root();
    bench.file(".git/config", "");
    bench.file("real/x", "");
    bench.link("evil", bench.outside(""));
    bench.link("hooks", ".git");
    bench.link("good", "real");
    for (path, class, may) in [
        ("good/new.txt", RiskClass::Write, true),
        ("deep/er/new.txt", RiskClass::Write, true),
        ("evil/new.txt", RiskClass::Destructive, false),
        ("hooks/pre-commit", RiskClass::Destructive, false),
        (".git/hooks/pre-commit", RiskClass::Destructive, true),
        (".VSCODE/tasks.json", RiskClass::Destructive, true),
        ("../ws-evil/new.txt", RiskClass::Destructive, true),
    ] {
        let place = place(path, root).unwrap();
        assert_eq!(bounds(root).rate_write(&place).class, class, "{path}");
        assert_eq!(open_for_write(&place, &bounds(root)).is_ok(), may, "{path}");
    }
}

#[test]
fn repository_data_behind_a_pointer_file_is_protected() {
    let bench = Bench::new();
    let root = bench.workspace.root();
    bench.file("meta/config", "");
    bench.file(".git", "gitdir: ./meta\n");
    let class = |path: &str| bounds(root).rate_write(&place(path, root).unwrap()).class;
    assert_eq!(class("meta/hooks/pre-commit"), RiskClass::Destructive);
    assert_eq!(class("metadata.txt"), RiskClass::Write);
}

#[test]
fn the_servers_own_folder_is_secret_to_read_and_never_written() {
    let bench = Bench::new();
    let root = bench.workspace.root();
    bench.file("state/server.json", "{}");
    bench.file("stately.txt", "");
    bench.link("alias", "state");
    let inside = OwnFolder::new(Some(root.join("state"))).bounds(&bench.workspace);
    for path in ["state", "state/server.json", "state/absent", "alias/server.json", "x/../state/sessions.db"]
    {
        let place = place(path, root).unwrap();
        assert_eq!(inside.rate_read(&place).class, RiskClass::Sensitive, "{path}");
        assert_eq!(inside.rate_write(&place).class, RiskClass::Destructive, "{path}");
        assert_eq!(open_for_write(&place, &inside).unwrap_err(), OWN_DATA, "{path}");
    }
    assert!(open_file(&place("alias/server.json", root).unwrap(), &inside).unwrap_err().contains("symbolic"));
    assert!(open_file(&place("state/server.json", root).unwrap(), &inside).is_ok());
    let near = place("stately.txt", root).unwrap();
    assert_eq!(inside.rate_read(&near).class, RiskClass::ReadOnly);
    assert_eq!(inside.rate_write(&near).class, RiskClass::Write);

    // It may lie anywhere, and be reached by a link from anywhere.
    let outside = OwnFolder::new(Some(bench.outside("").canonicalize().unwrap())).bounds(&bench.workspace);
    bench.link("evil", bench.outside(""));
    for path in ["../ws-evil/new/x", "evil/x"] {
        let place = place(path, root).unwrap();
        assert_eq!(outside.rate_write(&place).class, RiskClass::Destructive, "{path}");
        assert_eq!(open_for_write(&place, &outside).unwrap_err(), OWN_DATA, "{path}");
    }
    assert!(!bench.outside("new").exists());

    // A workspace in the folder is a workspace all the same.
    let above = OwnFolder::new(root.parent().map(Path::to_owned)).bounds(&bench.workspace);
    assert_eq!(above.rate_write(&near).class, RiskClass::Write);
}

#[cfg(target_os = "linux")]
#[test]
fn a_link_swapped_in_a_thousand_times_never_gets_out() {
    use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

    let bench = Bench::new();
    let root = bench.workspace.root().to_owned();
    let bounds = bounds(&root);
    bench.file("inner/secret.txt", "inside");
    bench.link("spare", bench.outside(""));
    let stop = AtomicBool::new(false);
    let (mut read, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (dir, spare) = (root.join("inner"), root.join("spare"));
            while !stop.load(Ordering::Relaxed) {
                // Folder and link change places over and over.
                renameat2(AT_FDCWD, &dir, AT_FDCWD, &spare, RenameFlags::RENAME_EXCHANGE).unwrap();
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            // At least a thousand, and until both sides of the race were seen.
            while read + refused < 1_000 || read == 0 || refused == 0 {
                match open_file(&place("inner/secret.txt", &root).unwrap(), &bounds) {
                    Ok(mut file) => {
                        let mut content = String::new();
                        file.read_to_string(&mut content).unwrap();
                        assert_eq!(content, "inside");
                        read += 1;
                    }
                    Err(_) => refused += 1,
                }
                drop(open_for_write(&place("inner/new/file.txt", &root).unwrap(), &bounds));
            }
        }));
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    });
    assert!(!bench.outside("new").exists());
}

proptest! {
    #[test]
    fn what_is_inside_has_plain_names_only_and_stays_beneath_the_root(
        text in "(/ws|/ws-evil|\\.\\.|\\.|a|/|//|\\.git| ){0,8}(/(\\.\\.|\\.|b|ws)){0,8}",
    ) {
        let root = Path::new("/ws");
        match place(&text, root) {
            Ok(Place::Inside(path)) => {
                prop_assert!(path.components().all(|part| matches!(part, Component::Normal(_))));
                prop_assert!(root.join(&path).starts_with(root));
            }
            Ok(Place::Outside(path)) => {
                prop_assert!(path.is_absolute() && !path.starts_with(root));
                prop_assert!(!path.components().any(|part| part == Component::ParentDir));
            }
            Err(_) => {}
        }
    }

    #[test]
    fn any_text_is_placed_or_refused(text in any::<String>()) {
        if let Ok(Place::Inside(path)) = place(&text, Path::new("/ws")) {
            prop_assert!(path.components().all(|part| matches!(part, Component::Normal(_))));
        }
    }
}
