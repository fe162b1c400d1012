//! The first minutes: nothing is set up, nothing is configured, and the first commands work.

use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use tokio::net::TcpStream;
use tokio::process::Command;

use crate::binary::{Home, find_program, finish, until};

const README: &str = "# Sundial\n\nThe gnomon of this sundial points north.\n\n    keep_it(\"level\")\n";

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[tokio::test]
async fn a_shell_line_prints_what_the_command_prints() {
    let home = Home::new();
    home.write("README.md", README);
    home.write(".hidden", "");
    let ran = home.run(&["run", "!ls -la"]).await;
    let ls = Command::new(find_program("ls").unwrap())
        .arg("-la")
        .env_clear()
        .current_dir(home.folder())
        .output()
        .await
        .unwrap();
    assert_eq!(ran.answer(), String::from_utf8(ls.stdout).unwrap());
}

#[tokio::test]
async fn reading_a_file_prints_it_exactly() {
    let home = Home::new();
    home.write("README.md", README);
    assert_eq!(home.run(&["run", "read README.md"]).await.answer(), README);
}

#[tokio::test]
async fn a_question_about_a_file_is_answered_from_it_or_not_at_all() {
    let home = Home::new();
    let missing = home.run(&["run", "what is in README.md?"]).await;
    assert!(missing.answer().contains("README.md"), "{missing:?}");
    assert!(missing.answer().contains("does not exist"), "{missing:?}");
    home.write("README.md", README);
    let there = home.run(&["run", "what is in README.md?"]).await;
    assert!(there.answer().contains("gnomon of this sundial"), "{there:?}");
    assert!(!there.stdout.contains("session "), "notes belong on standard error: {there:?}");
    assert!(there.stderr.contains("session "), "{there:?}");
}

#[tokio::test]
async fn quiet_leaves_only_the_answer() {
    let home = Home::new();
    home.write("README.md", README);
    let ran = home.run(&["-q", "run", "read README.md"]).await;
    assert_eq!((ran.answer(), ran.stderr.as_str()), (README, ""));
}

#[tokio::test]
async fn what_is_kept_is_for_its_owner_only() {
    let home = Home::new();
    home.run(&["kb", "add", "--text", "the gnomon points north"]).await.answer();
    let server = home.serve(&[]).await;
    home.run(&["kb", "search", "gnomon"]).await.answer();
    let mut seen = Vec::new();
    let mut folders = vec![home.data()];
    while let Some(folder) = folders.pop() {
        assert_eq!(mode(&folder), 0o700, "{}", folder.display());
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            // The index's own files have their library's mode, in folders that nobody else may enter.
            if !path.starts_with(home.data().join("index")) {
                assert_eq!(mode(&path), 0o600, "{}", path.display());
            }
            seen.push(path.file_name().unwrap().to_str().unwrap().to_owned());
        }
    }
    for name in ["tns.db", "lock", "server.json"] {
        assert!(seen.iter().any(|seen| seen == name), "{name} in {seen:?}");
    }
    drop(server);
}

#[tokio::test]
async fn a_data_folder_that_others_may_enter_is_refused_with_the_command_that_closes_it() {
    let home = Home::new();
    fs::create_dir_all(home.data()).unwrap();
    fs::set_permissions(home.data(), Permissions::from_mode(0o755)).unwrap();
    let ran = home.run(&["run", "hello"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
    let data = fs::canonicalize(home.data()).unwrap();
    assert!(ran.stderr.contains(&format!("chmod 700 {}", data.display())), "{ran:?}");
    assert_eq!(mode(&home.data()), 0o755);
}

#[tokio::test]
async fn what_needs_no_data_works_without_a_home() {
    let home = Home::new();
    for args in [&["--version"][..], &["--help"], &["run", "--help"], &["schema"]] {
        let unset = finish(home.command(args).env_remove("HOME").spawn().unwrap()).await;
        unset.answer();
        // A file is no folder, whoever asks.
        let unwritable = finish(home.command(args).env("HOME", "/dev/null/home").spawn().unwrap()).await;
        assert_eq!(unwritable.answer(), unset.answer());
    }
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    let ran = home.run(&["--version"]).await;
    assert_eq!(ran.answer(), format!("tns {}\n", env!("CARGO_PKG_VERSION")));
}

#[tokio::test]
async fn a_home_that_can_not_be_written_is_named_in_one_line() {
    let home = Home::new().set("HOME", "/dev/null/home");
    let ran = home.run(&["run", "hello"]).await;
    assert!(ran.code.is_some_and(|code| code > 0), "{ran:?}");
    assert_eq!(ran.stdout, "");
    assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
    assert!(ran.stderr.contains("/dev/null/home"), "{ran:?}");
}

#[tokio::test]
async fn a_home_that_depends_on_the_current_folder_is_refused_and_nothing_made() {
    let home = Home::new().set("HOME", "relative");
    for args in [&["run", "hello"][..], &["serve", "--port", "0"]] {
        let ran = home.run(args).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
        assert!(ran.complaints()[0].contains("HOME is not a whole path"), "{ran:?}");
    }
    assert_eq!(fs::read_dir(home.folder()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_damaged_database_is_named_with_what_to_do() {
    let home = Home::new();
    DirBuilder::new().recursive(true).mode(0o700).create(home.data()).unwrap();
    let file = fs::canonicalize(home.data()).unwrap().join("tns.db");
    fs::write(&file, "no database ".repeat(1_000)).unwrap();
    let ran = home.run(&["sessions", "list"]).await;
    assert_eq!((ran.code, ran.stderr.lines().count()), (Some(3), 1), "{ran:?}");
    let line = format!("its file is {}: move it away to begin with an empty one", file.display());
    assert!(ran.complaints()[0].contains(&line), "{ran:?}");
    fs::rename(&file, home.folder().join("damaged")).unwrap();
    home.run(&["sessions", "list"]).await.answer();
}

#[tokio::test]
async fn help_in_a_pipe_is_plain_text() {
    let home = Home::new().set("TERM", "xterm-256color");
    let commands =
        ["serve", "chat", "run", "kb", "agents", "sessions", "audit", "config", "doctor", "schema"];
    let helps = commands.iter().map(|command| vec![*command, "--help"]);
    let pages = [vec!["--help"], vec!["-h"], vec!["help"], vec!["kb", "add", "--help"]];
    for args in helps.chain(pages) {
        let ran = home.run(&args).await;
        assert!(ran.answer().contains("Usage:"), "{ran:?}");
        assert!(!ran.stdout.contains('\u{1b}') && ran.stderr.is_empty(), "{ran:?}");
    }
    for (asked, page) in
        [(&["help", "run"][..], &["run", "--help"][..]), (&["help", "kb", "add"], &["kb", "add", "--help"])]
    {
        assert_eq!(home.run(asked).await.answer(), home.run(page).await.answer());
    }
    for args in
        [&["--nonsense"][..], &["help", "nonsense"], &["kb"], &["run", "--autonomy", "wild", "hi"], &[]]
    {
        let ran = home.run(args).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args:?}: {ran:?}");
        assert!(!ran.stderr.is_empty() && !ran.stderr.contains('\u{1b}'), "{ran:?}");
    }
}

#[tokio::test]
async fn without_any_model_the_offline_engine_answers_and_says_why() {
    for port in [11434, 1234, 8080] {
        if TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
            eprintln!("SKIPPED: something listens on port {port}, so a model may be found");
            return;
        }
    }
    let home = Home::bare();
    let server = home.serve(&[]).await;
    assert!(server.first_line.ends_with(" · engine offline\n"), "{}", server.first_line);
    until("it says why", || server.log().contains("no provider is set up")).await;
}
