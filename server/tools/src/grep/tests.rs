//! Searching: what is found, what is skipped, and the limits.

use serde_json::json;
use tns_protocol::approval::RiskClass;

use super::*;
use crate::testing::Bench;

#[tokio::test]
async fn matches_come_with_path_and_line_in_path_order() {
    let (bench, tool) = (Bench::new(), Grep::new(OwnFolder::default()));
    bench.file("b.rs", "one\nfn two() {}\r\n");
    bench.file("a/a.rs", "fn one() {}\n");
    bench.file("a/a.md", "fn in prose\n");
    let outcome = bench.run(&tool, json!({"pattern": "^fn ", "glob": "*.rs"})).await;
    assert_eq!(outcome, ToolOutcome::ok("a/a.rs:1:fn one() {}\nb.rs:2:fn two() {}"));
    let outcome =
        bench.run(&tool, json!({"pattern": "FN", "ignoreCase": true, "path": "a", "glob": "a/*.md"})).await;
    assert_eq!(outcome, ToolOutcome::ok("a/a.md:1:fn in prose"));
    let outcome = bench.run(&tool, json!({"pattern": "two", "path": "b.rs"})).await;
    assert_eq!(outcome, ToolOutcome::ok("b.rs:2:fn two() {}"));
    let outcome = bench.run(&tool, json!({"pattern": "absent"})).await;
    assert_eq!(outcome, ToolOutcome::ok("[no matches]"));
}

#[tokio::test]
async fn ignored_binary_secret_and_linked_files_are_skipped() {
    let (bench, tool) = (Bench::new(), Grep::new(OwnFolder::default()));
    bench.file(".gitignore", "target/\n");
    bench.file("target/x", "needle");
    bench.file("data.bin", "\0needle");
    bench.file(".env", "needle");
    bench.file(".git/HEAD", "needle");
    bench.file(".github/ci.yml", "needle");
    bench.link("link", bench.outside(""));
    std::fs::write(bench.outside("needle.txt"), "needle").unwrap();
    let outcome = bench.run(&tool, json!({"pattern": "needle"})).await;
    assert_eq!(outcome, ToolOutcome::ok(".github/ci.yml:1:needle"));
}

#[tokio::test]
async fn a_named_secret_and_an_outside_folder_are_rated_so_and_searched() {
    let (bench, tool) = (Bench::new(), Grep::new(OwnFolder::default()));
    bench.file(".env", "KEY=1\n");
    let args = json!({"pattern": "KEY", "path": ".env"});
    assert_eq!(bench.class(&tool, args.clone()).await, RiskClass::Sensitive);
    assert_eq!(bench.run(&tool, args).await, ToolOutcome::ok(".env:1:KEY=1"));

    std::fs::write(bench.outside("plain.txt"), "KEY\n").unwrap();
    let args = json!({"pattern": "KEY", "path": "../ws-evil"});
    assert_eq!(bench.class(&tool, args.clone()).await, RiskClass::Sensitive);
    assert_eq!(bench.run(&tool, args).await, ToolOutcome::ok("plain.txt:1:KEY"));
    assert_eq!(bench.class(&tool, json!({"pattern": "KEY"})).await, RiskClass::ReadOnly);
}

#[tokio::test]
async fn the_servers_own_folder_is_searched_only_where_it_is_named() {
    let bench = Bench::new();
    let tool = Grep::new(OwnFolder::new(Some(bench.path("state"))));
    bench.file("state/x", "needle\n");
    bench.file("y", "needle\n");
    assert_eq!(bench.run(&tool, json!({"pattern": "needle"})).await, ToolOutcome::ok("y:1:needle"));
    let args = json!({"pattern": "needle", "path": "state"});
    assert_eq!(bench.class(&tool, args.clone()).await, RiskClass::Sensitive);
    assert_eq!(bench.run(&tool, args).await, ToolOutcome::ok("state/x:1:needle"));
}

#[tokio::test]
async fn results_and_lines_are_cut_with_a_note() {
    let (bench, tool) = (Bench::new(), Grep::new(OwnFolder::default()));
    bench.file("a", "x\n".repeat(3));
    let outcome = bench.run(&tool, json!({"pattern": "x", "maxResults": 3})).await;
    assert_eq!(outcome, ToolOutcome::ok("a:1:x\na:2:x\na:3:x"));
    let outcome = bench.run(&tool, json!({"pattern": "x", "maxResults": 2})).await;
    assert_eq!(outcome, ToolOutcome::ok("a:1:x\na:2:x\n[… more matches than 2 not shown …]"));

    assert_eq!(shorten(&"é".repeat(MAX_LINE_CHARS)), "é".repeat(MAX_LINE_CHARS));
    let cut = format!("{} [… 1 more characters]", "é".repeat(MAX_LINE_CHARS));
    assert_eq!(shorten(&"é".repeat(MAX_LINE_CHARS + 1)), cut);
}

#[tokio::test]
async fn a_bad_pattern_or_glob_is_a_result_that_says_so() {
    let (bench, tool) = (Bench::new(), Grep::new(OwnFolder::default()));
    for (args, wanted) in [
        (json!({"pattern": "("}), "bad pattern"),
        (json!({"pattern": "a{1000}{1000}{1000}"}), "bad pattern"),
        (json!({"pattern": "a", "glob": "["}), "bad glob"),
        (json!({"pattern": "a", "path": "absent"}), "does not exist"),
    ] {
        let outcome = bench.run(&tool, args).await;
        assert!(outcome.is_error && outcome.output.contains(wanted), "{}", outcome.output);
        assert_eq!(outcome.output.lines().count(), 1);
    }
}

#[tokio::test]
async fn a_cancelled_or_late_search_ends() {
    let (bench, tool) = (Bench::new(), Grep::new(OwnFolder::default()));
    bench.file("a", "x\n");
    let cancel = CancellationToken::new();
    cancel.cancel();
    let outcome = tool.run(bench.call(&tool, json!({"pattern": "x"}), cancel)).await;
    assert_eq!(outcome, ToolOutcome::error("the search was cancelled"));
    let mut call = bench.call(&tool, json!({"pattern": "x"}), CancellationToken::new());
    call.limit = Duration::ZERO;
    assert!(tool.run(call).await.output.contains("took longer than"));
}
