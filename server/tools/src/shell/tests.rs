//! The shell with a real helper: output, time, and that nothing is left behind.

use std::time::Instant;

use serde_json::{Value, json};
use tns_protocol::approval::RiskClass;
use tns_server_core::tool::LivePieces;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::exec_helper::tests::test_helper;
use crate::testing::Bench;

/// Longest that anything may take to be gone after a cancel.
const GONE: Duration = Duration::from_millis(500);

fn shell() -> Shell {
    Shell::new(ToolsConfig::new(test_helper()))
}

fn command(text: &str) -> Value {
    json!({ "command": text })
}

/// Waits until a file has text in it, and returns the text.
async fn text_of(path: std::path::PathBuf) -> String {
    for _ in 0..1_000 {
        match std::fs::read_to_string(&path) {
            Ok(text) if text.ends_with('\n') => return text,
            _ => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
    panic!("{} never got its line", path.display());
}

fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    // A zombie has ended; it only waits for its parent to notice.
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

#[tokio::test]
async fn output_of_both_streams_is_exact_and_in_order() {
    let (bench, tool) = (Bench::new(), shell());
    let outcome = bench.run(&tool, command("echo a; echo b >&2; printf 'c\\td'")).await;
    assert_eq!(outcome, ToolOutcome::ok("a\nb\nc\td"));
    let outcome = bench.run(&tool, command("pwd; cat; echo \"[$-] $TERM\"")).await;
    let root = bench.workspace.root().display().to_string();
    assert_eq!(outcome, ToolOutcome::ok(format!("{root}\n[hBc] dumb\n")));
    assert_eq!(bench.run(&tool, command("true")).await, ToolOutcome::ok(""));
}

#[tokio::test]
async fn output_is_shown_while_the_command_runs() {
    let (bench, tool) = (Bench::new(), shell());
    let (live, pieces) = LivePieces::new();
    // It waits at the pipe until somebody writes.
    let line = "mkfifo go; printf 'first \\350\\201'; cat go; printf '\\267 last' >&2";
    let call = ToolRun { live, ..bench.call(&tool, command(line), CancellationToken::new()) };
    let watching = async {
        let mut shown = String::new();
        while shown != "first " {
            pieces.written().await;
            shown.extend(pieces.next());
        }
        tokio::fs::write(bench.path("go"), "").await.unwrap();
    };
    let (outcome, ()) = tokio::join!(tool.run(call), watching);
    assert_eq!(outcome, ToolOutcome::ok("first \u{8077} last"));
    assert_eq!(pieces.last().as_deref(), Some("\u{8077} last"));
}

#[tokio::test]
async fn a_failing_command_tells_its_status() {
    let (bench, tool) = (Bench::new(), shell());
    assert_eq!(bench.run(&tool, command("echo no; exit 2")).await, ToolOutcome::error("no\n[exit status 2]"));
    assert_eq!(bench.run(&tool, command("printf x; exit 7")).await, ToolOutcome::error("x\n[exit status 7]"));
    assert_eq!(bench.run(&tool, command("kill -9 $$")).await, ToolOutcome::error("[exit status 137]"));
    assert_eq!(bench.run(&tool, command("(")).await.output.lines().last(), Some("[exit status 2]"));
}

#[tokio::test]
async fn the_environment_holds_no_more_than_is_listed() {
    let (bench, tool) = (Bench::new(), shell());
    let outcome = bench.run(&tool, command("env")).await;
    let names: Vec<&str> = outcome.output.lines().filter_map(|line| line.split('=').next()).collect();
    assert!(names.contains(&"PATH") && names.contains(&"TERM"), "{names:?}");
    for name in ["NEXTEST", "CARGO_MANIFEST_DIR", "TNS_EXEC_COMMAND", "CARGO"] {
        assert!(!names.contains(&name), "{name} reached the command");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_program_gains_no_privileges() {
    let (bench, tool) = (Bench::new(), shell());
    let outcome = bench.run(&tool, command("grep NoNewPrivs /proc/self/status")).await;
    assert_eq!(outcome, ToolOutcome::ok("NoNewPrivs:\t1\n"));
}

#[tokio::test]
async fn a_background_process_does_not_keep_the_call() {
    let (bench, tool) = (Bench::new(), shell());
    let begun = Instant::now();
    let outcome = bench.run(&tool, command("sleep 300 & echo $! > pid; echo started")).await;
    assert_eq!(outcome, ToolOutcome::ok("started\n"));
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert!(!is_alive(&text_of(bench.path("pid")).await));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_leaves_the_session_or_forks_twice_is_ended_too() {
    let (bench, tool) = (Bench::new(), shell());
    for line in [
        "setsid sh -c 'echo $$ > pid; exec sleep 300' & while ! [ -s pid ]; do :; done",
        "(setsid sh -c 'echo $$ > pid; exec sleep 300' & ) & while ! [ -s pid ]; do :; done",
        "(trap '' TERM HUP INT; echo $BASHPID > pid; sleep 300) & while ! [ -s pid ]; do :; done",
    ] {
        let outcome = bench.run(&tool, command(line)).await;
        assert_eq!(outcome, ToolOutcome::ok(""), "{line}");
        assert!(!is_alive(&text_of(bench.path("pid")).await), "{line}");
        std::fs::remove_file(bench.path("pid")).unwrap();
    }
}

#[tokio::test]
async fn cancelling_ends_a_command_that_ignores_signals() {
    let (bench, tool) = (Bench::new(), shell());
    let cancel = CancellationToken::new();
    let line = "echo so far; (trap '' TERM; echo $BASHPID > pid; sleep 300)";
    let running = tool.run(bench.call(&tool, command(line), cancel.clone()));
    let cancelling = async {
        let pid = text_of(bench.path("pid")).await;
        cancel.cancel();
        (pid, Instant::now())
    };
    let (outcome, (pid, begun)) = tokio::join!(running, cancelling);
    assert!(begun.elapsed() < GONE, "{:?}", begun.elapsed());
    assert_eq!(outcome, ToolOutcome::error("so far\n[cancelled; everything it started was ended]"));
    assert!(!is_alive(&pid));
}

#[tokio::test]
async fn a_command_over_its_time_is_ended() {
    let (bench, tool) = (Bench::new(), shell());
    let begun = Instant::now();
    let outcome = bench.run(&tool, json!({"command": "echo x; yes | sleep 300", "timeoutMs": 200})).await;
    assert!(begun.elapsed() < Duration::from_millis(200) + GONE, "{:?}", begun.elapsed());
    let wanted = "x\n[over the time limit of 200 ms; everything it started was ended]";
    assert_eq!(outcome, ToolOutcome::error(wanted));
}

#[tokio::test]
async fn dropping_the_call_ends_the_command() {
    let (bench, tool) = (Bench::new(), shell());
    let call = bench.call(&tool, command("echo $$ > pid; sleep 300"), CancellationToken::new());
    let mut running = tool.run(call);
    let pid = tokio::select! {
        outcome = &mut running => panic!("{outcome:?}"),
        pid = text_of(bench.path("pid")) => pid,
    };
    assert!(is_alive(&pid));
    drop(running);
    let begun = Instant::now();
    while is_alive(&pid) {
        assert!(begun.elapsed() < GONE, "it outlived its call");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn killing_the_helper_does_not_free_the_command() {
    let (bench, tool) = (Bench::new(), shell());
    let line =
        "sh -c 'echo $$ > pid; exec sleep 300' & while ! [ -s pid ]; do :; done; kill -9 $PPID; sleep 300";
    let outcome = bench.run(&tool, command(line)).await;
    assert_eq!(outcome, ToolOutcome::error("[the shell's helper was killed]"));
    let pid = text_of(bench.path("pid")).await;
    let begun = Instant::now();
    while is_alive(&pid) {
        assert!(begun.elapsed() < GONE, "it outlived its helper");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn endless_output_is_drained_and_cut() {
    let (bench, tool) = (Bench::new(), shell());
    let outcome = bench.run(&tool, command("head -c 30000000 /dev/zero | tr '\\0' x; echo end")).await;
    assert!(!outcome.is_error);
    assert!(outcome.output.len() <= tns_server_core::tool::MAX_OUTPUT_BYTES);
    assert!(outcome.output.contains("bytes of output left out here"));
    assert!(outcome.output.ends_with("xend\n"));
}

#[tokio::test]
async fn a_missing_helper_and_unusable_commands_are_results() {
    let bench = Bench::new();
    let helper = crate::ExecHelper { program: "/nonexistent/helper".into(), args: Vec::new() };
    let outcome = bench.run(&Shell::new(ToolsConfig::new(helper)), command("true")).await;
    assert!(outcome.is_error && outcome.output.contains("could not be started"), "{}", outcome.output);
    let tool = shell();
    assert!(bench.run(&tool, command("echo \0")).await.output.contains("NUL"));
    let longest = format!("true {}", "x".repeat(MAX_COMMAND_BYTES - 5));
    assert_eq!(bench.run(&tool, command(&longest)).await, ToolOutcome::ok(""));
    let wide = format!("true {}", "é".repeat(MAX_COMMAND_BYTES / 2));
    assert!(bench.run(&tool, command(&wide)).await.output.contains("write it to a file"));
}

#[tokio::test]
async fn a_link_in_a_plain_command_raises_its_class() {
    let (bench, tool) = (Bench::new(), shell());
    bench.file("a.txt", "");
    bench.file(".env", "");
    bench.link("inner", "a.txt");
    bench.link("out", bench.outside("secret.txt"));
    bench.link("env", ".env");
    for (line, class) in [
        ("cat a.txt", RiskClass::ReadOnly),
        ("cat inner", RiskClass::ReadOnly),
        ("cat absent", RiskClass::ReadOnly),
        ("cat out", RiskClass::Sensitive),
        ("cat a.txt env", RiskClass::Sensitive),
        ("pytest out", RiskClass::Unknown),
        ("cargo test token", RiskClass::BuildTest),
    ] {
        assert_eq!(bench.class(&tool, command(line)).await, class, "{line}");
    }
}
