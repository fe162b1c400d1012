//! What a script gets: data on standard output and nothing else there, exit codes, closed pipes, no terminal.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tns_tests::provider::{ModelServer, text_body};

use crate::binary::{Home, Ran, finish};

/// Text that would break a line, a parser or a terminal.
const AWKWARD: &str =
    "gnomon \"north\"\nsecond\u{2028}line \u{1b}[31mred\u{1b}]0;x\u{7} \u{9b}2J 職員 👩\u{200d}🔬\n";

/// Asserts that standard output is one JSON value or, after a failure, may be empty.
fn check_json(args: &[&str], ran: &Ran) {
    assert!(!ran.stderr.contains("panicked"), "{args:?}: {ran:?}");
    if ran.code == Some(0) || !ran.stdout.is_empty() {
        ran.json();
    }
}

#[tokio::test]
async fn every_json_command_prints_one_value_on_the_first_start() {
    // Each starts in a home of its own where nothing is, with as much on standard error as there can be.
    for args in [
        &["run", "hello"][..],
        &["run", "!touch made"],
        &["kb", "add", "--text", AWKWARD],
        &["kb", "list"],
        &["kb", "search", "gnomon"],
        &["kb", "rm", "none"],
        &["agents", "add", "--role", "reviewer"],
        &["agents", "list"],
        &["sessions", "list"],
        &["sessions", "show", "none"],
        &["sessions", "search", "gnomon"],
        &["sessions", "rm", "none"],
        &["audit"],
        &["schema"],
        &["schema", "--openapi"],
    ] {
        let home = Home::new().set("TNS_LOG", "trace");
        let ran = home.run(&[args, &["--json", "-vv"]].concat()).await;
        check_json(args, &ran);
    }
}

#[tokio::test]
async fn json_holds_any_text_and_no_control_character() {
    let home = Home::new();
    home.write("notes.md", AWKWARD);
    let added = home.run(&["kb", "add", "notes.md", "--json"]).await.json();
    let id = added["documents"][0]["documentId"].as_str().unwrap().to_owned();
    let listed = home.run(&["kb", "list", "--json", "-vv"]).await;
    assert_eq!(listed.json()["documents"][0]["documentId"], id.as_str());
    assert!(!listed.stdout.contains(['\u{2028}', '\u{9b}', '\u{7}']), "{listed:?}");
    let found = home.run(&["kb", "search", "gnomon", "--json"]).await.json();
    assert!(found["results"][0]["content"].as_str().unwrap().contains("\u{1b}[31mred"), "{found}");
    let read = home.run(&["run", "read notes.md", "--json"]).await.json();
    assert_eq!(read["text"].as_str().unwrap().trim_end(), AWKWARD.trim_end());
    let lines = home.run(&["run", "read notes.md", "--jsonl", "-vv"]).await;
    let events: Vec<Value> = lines.answer().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.last().unwrap()["type"], "done");
    assert!(events.iter().any(|event| event["type"] == "tool_result"), "{events:?}");
}

#[tokio::test]
async fn a_failing_command_says_why_in_one_line_and_with_its_exit_code() {
    let home = Home::new();
    for (args, code, says) in [
        (&["run", "!touch made"][..], 5, "run on a terminal to be asked"),
        (&["run", "!sudo touch made"], 5, "never allowed"),
        (&["run", "--autonomy", "full-auto", "!touch made"], 1, "tns serve --dangerously-unsandboxed"),
        (&["audit"], 7, "--session ID"),
        (&["rules", "list"], 7, "--session ID"),
        (&["run", "--provider", "nonesuch", "hi"], 2, "nonesuch"),
        (&["run", "--agent", "nobody", "hi"], 7, "agent"),
        (&["run"], 2, "prompt"),
        (&["run", "--on-ask", "ask", "hi"], 2, "terminal"),
        (&["chat"], 2, "tns run"),
        (&["serve", "--bind", "0.0.0.0"], 2, "0.0.0.0"),
        (&["sessions", "list", "--server", "http://127.0.0.1:1"], 3, "tns serve"),
        (&["sessions", "list", "--server", "garbage"], 2, "--server garbage is not an address"),
        (&["run", "hi", "--server", "garbage"], 2, "--server garbage is not an address"),
        (&["run", "hi", "--server", "http://127.0.0.1:1"], 3, "tns serve"),
        (&["sessions", "show", "nobody"], 7, "nobody"),
        (&["kb", "rm", "nothing"], 7, "nothing"),
        (&["kb", "add", "missing.md"], 1, "missing.md"),
        (&["kb", "search", " "], 2, "blank"),
        (&["agents", "rm", "nobody"], 7, "nobody"),
        (&["agents", "add", "--role", "x", "--provider", "nonesuch"], 2, "nonesuch"),
    ] {
        let plain = home.run(args).await;
        assert_eq!(plain.code, Some(code), "{args:?}: {plain:?}");
        // A refused call is an answer too: the agent says that it was refused.
        assert!(plain.stdout.is_empty() || args[0] == "run", "{args:?}: {plain:?}");
        assert!(plain.complaints().iter().any(|line| line.contains(says)), "{args:?}: {plain:?}");
        assert!(!plain.stderr.contains("Error(") && !plain.stderr.contains("stack backtrace"), "{plain:?}");
        let json = home.run(&[args, &["--json"]].concat()).await;
        assert_eq!(json.code, Some(code), "{args:?}: {json:?}");
        check_json(args, &json);
    }
    assert!(!home.has("made"));
}

#[tokio::test]
async fn no_hits_are_an_empty_list_and_no_failure() {
    let home = Home::new();
    assert_eq!(home.run(&["kb", "search", "gnomon"]).await.answer(), "");
    let found = home.run(&["kb", "search", "gnomon", "--json"]).await;
    assert_eq!(found.answer(), "{\"results\":[],\"count\":0}\n");
}

#[tokio::test]
async fn a_pipe_that_nobody_reads_ends_a_command_quietly() {
    let pieces = vec!["word "; 20_000];
    let model = ModelServer::start(vec![text_body(&pieces); 2]).await;
    let home = Home::with_model(&model);
    home.run(&["kb", "add", "--text", "the gnomon points north"]).await.answer();
    for args in [
        &["--help"][..],
        &["schema"],
        &["schema", "--openapi"],
        &["run", "go"],
        &["run", "go", "--jsonl"],
        &["run", "go", "--json"],
        &["kb", "list"],
        &["kb", "search", "gnomon", "--json"],
        &["sessions", "list"],
        &["serve", "--port", "0"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ran = finish(home.command(&[&["-q"], args].concat()).stdout(writer).spawn().unwrap()).await;
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(141), ""), "{args:?}: {ran:?}");
    }
    assert!(!home.data().join("server.json").exists());
}

#[tokio::test]
async fn without_a_terminal_nobody_is_asked_and_nothing_runs() {
    let home = Home::new();
    for args in
        [&["run", "!touch made"][..], &["run", "--on-ask", "deny", "!touch made"], &["chat", "!touch made"]]
    {
        let ran = home.run(args).await;
        assert_eq!(ran.code, Some(5), "{ran:?}");
        assert!(ran.stderr.contains("wants to use shell") && ran.stderr.contains("touch made"), "{ran:?}");
        assert_eq!(ran.complaints().len(), 1, "{ran:?}");
    }
    assert!(!home.has("made"));
    // What is rated as harmless needs nobody.
    home.write("note", "x");
    assert_eq!(home.run(&["run", "!ls"]).await.answer(), "note\n");
}

#[tokio::test]
async fn chat_without_a_terminal_asks_once_or_names_run() {
    let home = Home::new();
    home.write("notes.md", "the gnomon points north\n");
    let began = Instant::now();
    let ran = home.run(&["chat"]).await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
    assert!(ran.stderr.contains("tns run"), "{ran:?}");
    assert_eq!(home.run(&["chat", "read notes.md"]).await.answer(), "the gnomon points north\n");
    assert_eq!(home.run_with_input(&["chat"], "read notes.md").await.answer(), "the gnomon points north\n");
}

#[tokio::test]
async fn standard_input_follows_the_prompt() {
    let model = ModelServer::start([text_body(&["fine"])]).await;
    let home = Home::with_model(&model);
    assert_eq!(home.run_with_input(&["run", "summarise:"], "the log\nof today\n").await.answer(), "fine\n");
    let asked = model.requests()[0].to_string();
    assert!(asked.contains("summarise:\\n\\nthe log\\nof today"), "{asked}");
    let home = Home::new();
    home.write("notes.md", "north\n");
    assert_eq!(home.run_with_input(&["run", "-"], "read notes.md\n").await.answer(), "north\n");
    assert_eq!(home.run_with_input(&["run"], "read notes.md\n").await.answer(), "north\n");
}

#[tokio::test]
async fn nothing_in_a_pipe_is_coloured() {
    let home = Home::new().set("TERM", "xterm-256color").set("TNS_LOG", "trace");
    for args in
        [&["run", "!touch made"][..], &["run", "hello"], &["kb", "search", "a"], &["sessions", "show", "x"]]
    {
        let ran = home.run(&[args, &["-vv"]].concat()).await;
        assert!(!ran.stdout.contains('\u{1b}') && !ran.stderr.contains('\u{1b}'), "{args:?}: {ran:?}");
    }
}

#[tokio::test]
async fn the_commands_of_a_folder_meet_in_its_session() {
    let home = Home::new();
    home.write("notes.md", "# Sundial\n\nThe gnomon points north.\n");
    let ids = home.run(&["kb", "add", "notes.md"]).await;
    let document = ids.answer().trim_end();
    assert_eq!(document.lines().count(), 1);
    let reviewer = home.run(&["agents", "add", "--role", "reviewer"]).await;
    let reviewer = reviewer.answer().trim_end().to_owned();
    assert!(reviewer.starts_with("reviewer-"), "{reviewer}");

    let team = home.run(&["agents", "list", "--json"]).await.json();
    let names: Vec<_> = team["agents"].as_array().unwrap().iter().map(|agent| &agent["role"]).collect();
    assert_eq!(names, ["assistant", "reviewer"]);
    let listed = home.run(&["kb", "list"]).await;
    assert!(listed.answer().starts_with(document) && listed.stdout.contains("notes.md"), "{listed:?}");
    let found = home.run(&["kb", "search", "where does the gnomon point"]).await;
    assert!(found.answer().contains("The gnomon points north."), "{found:?}");
    // A run makes a session of its own, which finds what the folder knows.
    let ran = home.run(&["run", "where does the gnomon point?"]).await;
    assert!(ran.answer().contains("The gnomon points north."), "{ran:?}");

    let sessions = home.run(&["sessions", "list", "--json"]).await.json();
    let sessions: Vec<_> =
        sessions["sessions"].as_array().unwrap().iter().map(|session| &session["id"]).collect();
    assert_eq!(sessions.len(), 2, "{sessions:?}");
    assert!(sessions.contains(&&team["sessionId"]), "{sessions:?}");
    let shown = home.run(&["sessions", "show", sessions[0].as_str().unwrap(), "--json"]).await.json();
    let roles: Vec<_> =
        shown["messages"].as_array().unwrap().iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["user", "assistant"], "{shown}");

    assert_eq!(home.run(&["agents", "rm", &reviewer]).await.answer().trim_end(), reviewer);
    assert_eq!(home.run(&["kb", "rm", document]).await.answer().trim_end(), document);
    assert_eq!(home.run(&["kb", "list", "--json"]).await.json(), json!({ "documents": [], "totalCount": 0 }));
    assert_eq!(home.run(&["kb", "rm", document]).await.code, Some(7));
}

#[tokio::test]
async fn silence_on_standard_input_is_told_about() {
    let home = Home::new();
    let mut child = home.command(&["run"]).stdin(Stdio::piped()).spawn().unwrap();
    let open = child.stdin.take();
    let mut stderr = tokio::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    tokio::io::AsyncBufReadExt::read_line(&mut stderr, &mut line).await.unwrap();
    assert!(line.contains("standard input"), "{line}");
    drop(open);
    assert_eq!(finish(child).await.code, Some(2));
}
