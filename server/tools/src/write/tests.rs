//! Writing: what is shown before, what is there afterwards.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::*;
use crate::testing::Bench;

#[tokio::test]
async fn a_new_file_is_made_with_its_folders() {
    let (bench, tool) = (Bench::new(), FileWrite::new(OwnFolder::default()));
    let args = json!({"path": "a/b/new.txt", "content": "one\n"});
    let rating = bench.rate(&tool, args.clone()).await;
    assert_eq!(rating.class, RiskClass::Write);
    assert_eq!(rating.summary, "write a/b/new.txt (4 bytes)");
    assert_eq!(rating.diff.unwrap(), "--- /dev/null\n+++ b/a/b/new.txt\n@@ -0,0 +1 @@\n+one\n");
    assert!(!bench.path("a").exists(), "rating changes nothing");

    assert_eq!(bench.run(&tool, args).await, ToolOutcome::ok("wrote 4 bytes to a/b/new.txt"));
    assert_eq!(std::fs::read_to_string(bench.path("a/b/new.txt")).unwrap(), "one\n");
}

#[tokio::test]
async fn a_file_is_replaced_in_one_step_and_keeps_its_mode() {
    let (bench, tool) = (Bench::new(), FileWrite::new(OwnFolder::default()));
    bench.file("run.sh", "old\nsame\n");
    std::fs::set_permissions(bench.path("run.sh"), PermissionsExt::from_mode(0o4755)).unwrap();
    let args = json!({"path": "run.sh", "content": "new\nsame\n"});
    let diff = bench.rate(&tool, args.clone()).await.diff.unwrap();
    assert_eq!(diff, "--- a/run.sh\n+++ b/run.sh\n@@ -1,2 +1,2 @@\n-old\n+new\n same\n");

    assert!(!bench.run(&tool, args).await.is_error);
    assert_eq!(std::fs::read_to_string(bench.path("run.sh")).unwrap(), "new\nsame\n");
    let mode = std::fs::metadata(bench.path("run.sh")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o755, "permission bits stay, set-user-id goes");
    assert_eq!(std::fs::read_dir(bench.workspace.root()).unwrap().count(), 1, "no temporary file is left");
}

#[tokio::test]
async fn folders_links_and_bad_paths_are_refused() {
    let (bench, tool) = (Bench::new(), FileWrite::new(OwnFolder::default()));
    bench.file("dir/x", "");
    bench.file("plain", "");
    bench.link("link", "plain");
    for (path, problem) in [
        ("dir", "it is a folder"),
        ("new/", "names a folder"),
        (".", "names a folder"),
        ("link", "symbolic link"),
        ("plain/x", "not a folder"),
    ] {
        let outcome = bench.run(&tool, json!({"path": path, "content": "x"})).await;
        assert!(outcome.is_error && outcome.output.contains(problem), "{path}: {}", outcome.output);
    }
    assert_eq!(std::fs::read_to_string(bench.path("plain")).unwrap(), "");
}

#[tokio::test]
async fn a_write_outside_is_destructive_and_shows_nothing_of_the_file() {
    let (bench, tool) = (Bench::new(), FileWrite::new(OwnFolder::default()));
    let args = json!({"path": "../ws-evil/secret.txt", "content": "x"});
    let rating = bench.rate(&tool, args).await;
    assert_eq!((rating.class, rating.diff), (RiskClass::Destructive, None));
    let rating = bench.rate(&tool, json!({"path": ".env", "content": "x"})).await;
    assert_eq!((rating.class, rating.diff), (RiskClass::Write, None));
}

#[tokio::test]
async fn hidden_characters_in_path_and_content_are_shown() {
    let (bench, tool) = (Bench::new(), FileWrite::new(OwnFolder::default()));
    let rating = bench.rate(&tool, json!({"path": "a\u{202e}b", "content": "x\u{200b}y\n"})).await;
    assert_eq!(rating.summary, "write a\\u{202E}b (6 bytes)");
    assert_eq!(rating.diff.unwrap(), "--- /dev/null\n+++ b/a\\u{202E}b\n@@ -0,0 +1 @@\n+x\\u{200B}y\n");
    assert_eq!(rating.reasons.len(), 3, "{:?}", rating.reasons);
}

#[tokio::test]
async fn content_at_the_limit_is_written_and_one_byte_more_is_not() {
    let (bench, tool) = (Bench::new(), FileWrite::new(OwnFolder::default()));
    let content = "x".repeat(MAX_CONTENT_BYTES);
    assert!(!bench.run(&tool, json!({"path": "big", "content": content})).await.is_error);
    // Bytes, not characters: the schema alone would let it pass.
    let content = "é".repeat(MAX_CONTENT_BYTES / 2 + 1);
    assert!(bench.run(&tool, json!({"path": "bigger", "content": content})).await.is_error);
    assert!(!bench.path("bigger").exists());
}

#[tokio::test]
async fn a_hard_link_to_a_file_outside_is_replaced_not_followed() {
    let (bench, tool) = (Bench::new(), FileWrite::new(OwnFolder::default()));
    std::fs::hard_link(bench.outside("secret.txt"), bench.path("hard")).unwrap();
    assert!(!bench.run(&tool, json!({"path": "hard", "content": "mine"})).await.is_error);
    assert_eq!(std::fs::read_to_string(bench.outside("secret.txt")).unwrap(), "outside");
}

#[tokio::test]
async fn the_servers_own_folder_is_not_written_even_when_it_is_approved() {
    let bench = Bench::new();
    let tool = FileWrite::new(OwnFolder::new(Some(bench.path("state"))));
    bench.file("state/x", "kept");
    let args = json!({"path": "state/x", "content": "lost"});
    let rating = bench.rate(&tool, args.clone()).await;
    assert_eq!((rating.class, rating.diff), (RiskClass::Destructive, None));
    let outcome = bench.run(&tool, args).await;
    assert_eq!(
        outcome,
        ToolOutcome::error("can't write state/x: the server's own data is not written by tools")
    );
    assert_eq!(std::fs::read_to_string(bench.path("state/x")).unwrap(), "kept");
}
