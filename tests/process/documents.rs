//! `tns kb add` on the files of a real folder: what is no file, what can't be read, what has changed since.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::process::Stdio;

use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::binary::{Home, PATIENCE, finish, signal_to};

#[tokio::test]
async fn a_named_pipe_is_refused_in_one_line_and_in_a_folder_left_out() {
    let home = Home::new();
    fs::create_dir(home.folder().join("docs")).unwrap();
    let pipe = home.folder().join("docs/pipe");
    mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    home.write("docs/a.md", "the gnomon points north\n");
    let ran = home.run(&["-q", "kb", "add", "docs/pipe"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
    assert_eq!(ran.stderr, "tns: docs/pipe: it is a named pipe, not a file; - reads standard input\n");
    let ran = home.run(&["kb", "add", "docs"]).await;
    assert_eq!(ran.answer().lines().count(), 1, "{ran:?}");
    assert!(ran.stderr.contains("left out docs/pipe: it is a named pipe"), "{ran:?}");
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
}

#[tokio::test]
async fn a_signal_ends_the_reading_of_standard_input() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let home = Home::new();
        let mut child = home.command(&["kb", "add", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        let open = child.stdin.take();
        // The last that it says before it reads.
        let mut line = String::new();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        tokio::time::timeout(PATIENCE, stderr.read_line(&mut line)).await.unwrap().unwrap();
        assert!(line.starts_with("session "), "{line}");
        signal_to(child.id().unwrap(), signal);
        let ran = finish(child).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(130), ""), "{signal}: {ran:?}");
        drop(open);
        assert!(!home.data().join("server.json").exists());
    }
}

#[tokio::test]
async fn a_folder_that_can_not_be_read_is_named_and_the_rest_is_added() {
    let home = Home::new();
    // Longer than any path may be, though each half is not: not even root can read it.
    let half = vec!["x".repeat(250); 9].join("/");
    for folder in ["docs", "other"] {
        fs::create_dir_all(home.folder().join(folder).join(&half)).unwrap();
    }
    fs::rename(home.folder().join("other"), home.folder().join("docs").join(&half).join("inner")).unwrap();
    home.write("docs/a.md", "the gnomon points north\n");
    home.write("docs/z.md", "the dial is level\n");
    let ran = home.run(&["kb", "add", "docs"]).await;
    assert_eq!((ran.code, ran.stdout.lines().count()), (Some(1), 2), "{ran:?}");
    let [folder, last] = ran.complaints()[..] else { panic!("{ran:?}") };
    assert!(folder.starts_with("tns: docs/xxx") && folder.ends_with("x: file name too long"), "{folder}");
    assert_eq!(last, "tns: not added: 1 of 3 documents");
}

#[tokio::test]
async fn a_file_that_has_changed_takes_the_place_of_its_older_document() {
    let home = Home::new();
    home.write("notes.md", "the gnomon points north\n");
    home.write("same.md", "the gnomon casts a shadow\n");
    let first = home.run(&["kb", "add", "notes.md", "same.md", "--json"]).await.json();
    let older = &first["documents"][0]["documentId"];
    // For all of the user's folders it is a document of its own.
    home.run(&["kb", "add", "notes.md", "--scope", "user"]).await.answer();

    let again = home.run(&["kb", "add", "./notes.md"]).await;
    assert_eq!(again.answer().trim_end(), older.as_str().unwrap());
    assert!(!again.stderr.contains("has changed"), "{again:?}");

    home.write("notes.md", "the gnomon points south\n");
    let changed = home.run(&["kb", "add", "notes.md", "same.md", "--json"]).await;
    let said: Vec<&str> = changed.stderr.lines().filter(|line| line.contains("has changed")).collect();
    assert_eq!(said, [format!("notes.md has changed: removed {}", older.as_str().unwrap())]);
    let documents = &changed.json()["documents"];
    assert_eq!(documents[0]["replaced"], json!([older]));
    assert_eq!((&documents[0]["duplicate"], &documents[1]["duplicate"]), (&json!(false), &json!(true)));

    home.run(&["kb", "rm", &home.user_document().await]).await.answer();
    let found = home.run(&["kb", "search", "gnomon points"]).await;
    assert!(found.answer().contains("points south"), "{found:?}");
    assert!(!found.stdout.contains("points north"), "{found:?}");
    assert_eq!(home.run(&["kb", "list", "--json"]).await.json()["totalCount"], 2);
}

impl Home {
    /// Returns the id of the only document of the user scope.
    async fn user_document(&self) -> String {
        let list = self.run(&["kb", "list", "--json"]).await.json();
        let documents = list["documents"].as_array().unwrap();
        let of_user: Vec<_> =
            documents.iter().filter(|document| document["metadata"]["scope"] == "user").collect();
        assert_eq!(of_user.len(), 1, "{list}");
        of_user[0]["documentId"].as_str().unwrap().to_owned()
    }
}
