//! Listing: order, marks, limits.

use serde_json::json;
use tns_protocol::approval::RiskClass;

use super::*;
use crate::testing::Bench;

#[tokio::test]
async fn entries_are_sorted_and_marked() {
    let (bench, tool) = (Bench::new(), ListDir::new(OwnFolder::default()));
    bench.file("b.txt", "");
    bench.file("a/x", "");
    bench.file(".hidden", "");
    bench.file("new\nline", "");
    bench.link("link", "/etc");
    let outcome = bench.run(&tool, json!({})).await;
    assert_eq!(outcome, ToolOutcome::ok(".hidden\na/\nb.txt\nlink -> /etc\nnew\\u{A}line\n"));
}

#[tokio::test]
async fn an_empty_folder_and_a_wrong_path_say_so() {
    let (bench, tool) = (Bench::new(), ListDir::new(OwnFolder::default()));
    assert_eq!(bench.run(&tool, json!({})).await, ToolOutcome::ok("[empty folder]"));
    bench.file("plain", "");
    for (path, problem) in [("plain", "it is not a folder"), ("absent", "it does not exist")] {
        let outcome = bench.run(&tool, json!({"path": path})).await;
        assert_eq!(outcome, ToolOutcome::error(format!("can't list {path}: {problem}")));
    }
}

#[tokio::test]
async fn a_folder_at_the_limit_is_whole_and_one_over_says_how_many_are_missing() {
    let (bench, tool) = (Bench::new(), ListDir::new(OwnFolder::default()));
    for number in 0..MAX_ENTRIES {
        bench.file(&format!("{number:05}"), "");
    }
    let outcome = bench.run(&tool, json!({})).await;
    assert_eq!(outcome.output.lines().count(), MAX_ENTRIES);
    bench.file("zz", "");
    let outcome = bench.run(&tool, json!({})).await;
    assert!(outcome.output.ends_with("01999\n[… 1 more entries not shown …]\n"));
}

#[tokio::test]
async fn a_link_out_is_rated_high_and_not_followed() {
    let (bench, tool) = (Bench::new(), ListDir::new(OwnFolder::default()));
    bench.link("evil", bench.outside(""));
    assert_eq!(bench.class(&tool, json!({"path": "evil"})).await, RiskClass::Sensitive);
    let outcome = bench.run(&tool, json!({"path": "evil"})).await;
    assert!(outcome.is_error && outcome.output.contains("leaves the workspace"), "{}", outcome.output);
    assert_eq!(bench.class(&tool, json!({"path": ".."})).await, RiskClass::Sensitive);
    assert_eq!(bench.class(&tool, json!({})).await, RiskClass::ReadOnly);
    let outside = bench.run(&tool, json!({"path": "../ws-evil"})).await;
    assert_eq!(outside, ToolOutcome::ok("secret.txt\n"));
}
