//! What changes and finds sessions on the command line: beside a server, at one that is named, and on its own.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::binary::{Home, Ran};

/// Asserts that a command ended so, said this, and printed nothing.
fn check_failure(ran: &Ran, code: i32, says: &str) {
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{ran:?}");
    assert!(ran.complaints().iter().any(|line| line.contains(says)), "{says}: {ran:?}");
}

/// Runs a turn in a session of its own and returns the session's id.
async fn talk(home: &Home, words: &str) -> String {
    let ran = home.run(&["run", words, "--json"]).await.json();
    ran["sessionId"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_session_is_found_named_copied_rated_and_erased_without_a_server() {
    let home = Home::new();
    let id = talk(&home, "the harbour is quiet").await;
    let other = talk(&home, "nothing of the kind").await;

    let found = home.run(&["sessions", "search", "harbour", "quiet"]).await;
    let lines: Vec<&str> = found.answer().lines().collect();
    assert!(lines.iter().any(|line| line.starts_with(&format!("{id}\t1\t"))), "{found:?}");
    assert!(!found.stdout.contains(&other), "{found:?}");
    let found = home.run(&["sessions", "search", "harbour", "--limit", "1", "--json"]).await.json();
    assert_eq!(found["results"].as_array().unwrap().len(), 1);
    assert_eq!((&found["results"][0]["sessionId"], &found["complete"]), (&json!(id), &json!(true)));
    assert_eq!(home.run(&["sessions", "search", "zeppelin"]).await.answer(), "");

    let renamed = home.run(&["sessions", "rename", &id, "All", "boats"]).await;
    assert_eq!(renamed.answer(), format!("{id}\tAll boats\n"));
    let renamed = home.run(&["sessions", "rename", &id, "Boats", "--json"]).await.json();
    assert_eq!((&renamed["id"], &renamed["title"]), (&json!(id), &json!("Boats")));

    let copy = home.run(&["sessions", "fork", &id]).await.answer().trim().to_owned();
    assert_ne!(copy, id);
    let named = ["sessions", "fork", &id, "--as", "copy", "--title", "Mine", "--json"];
    let named = home.run(&named).await.json();
    assert_eq!((&named["id"], &named["title"]), (&json!("copy"), &json!("Mine")));
    check_failure(&home.run(&["sessions", "fork", &id, "--at", "1"]).await, 1, "end of a turn: 4");
    check_failure(&home.run(&["sessions", "fork", &id, "--as", "copy"]).await, 1, "copy already");
    assert_eq!(home.run(&["sessions", "rename", "copy", "--clear"]).await.answer(), "copy\t-\n");

    let rated = home.run(&["sessions", "feedback", &id, "-"]).await.answer().trim().to_owned();
    let shown = home.run(&["sessions", "show", &id, "--json"]).await.json();
    let reply = shown["messages"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&reply["messageId"], &reply["feedback"]), (&json!(rated), &json!("down")));
    let first = shown["messages"][0]["messageId"].as_str().unwrap();
    let up = home.run(&["sessions", "feedback", &id, "up", "--message", first, "--json"]).await.json();
    assert_eq!(up, json!({ "id": id, "messageId": first, "score": "up" }));

    let gone = home.run(&["sessions", "rm", &id, "nobody", &other]).await;
    assert_eq!((gone.code, gone.stdout.clone()), (Some(7), format!("{id}\n{other}\n")), "{gone:?}");
    assert!(gone.complaints()[0].ends_with("there is no session nobody"), "{gone:?}");
    let gone = home.run(&["sessions", "delete", &copy, "a b", "--json"]).await;
    assert_eq!((gone.code, gone.json()), (Some(7), json!({ "removed": [copy], "unknown": ["a b"] })));
    assert_eq!(home.run(&["sessions", "list"]).await.answer().lines().count(), 1);
}

#[tokio::test]
async fn a_failure_prints_no_json_but_where_a_report_tells_of_it() {
    let home = Home::new();
    for (args, code) in [
        (&["run", " "][..], 2),
        (&["run", "hi", "--provider", "nobody"], 2),
        (&["kb", "add"], 2),
        (&["kb", "search", " "], 2),
        (&["sessions", "show", "nobody"], 7),
        (&["sessions", "export", "nobody"], 2),
        (&["sessions", "export", "nobody", "-o", "file"], 7),
        (&["sessions", "tail", "nobody"], 7),
        (&["agents", "rm", "nobody"], 7),
        (&["providers", "check", "nobody"], 7),
        (&["config", "explain", "nobody"], 2),
    ] {
        let ran = home.run(&[args, &["--json"]].concat()).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{args:?}: {ran:?}");
        assert!(!ran.stderr.is_empty(), "{args:?}");
    }
    for (args, code, field) in [
        (&["run", "hi", "--agent", "nobody"][..], 7, "error"),
        (&["kb", "add", "nothing"], 1, "failed"),
        (&["kb", "rm", "nobody"], 7, "unknown"),
        (&["sessions", "rm", "nobody"], 7, "unknown"),
        (&["rules", "rm", "nobody"], 7, "unknown"),
        (&["providers", "check", "offline", "nobody"], 7, "checks"),
    ] {
        let ran = home.run(&[args, &["--json"]].concat()).await;
        assert!(ran.code == Some(code) && !ran.json()[field].is_null(), "{args:?}: {ran:?}");
    }
}

#[tokio::test]
async fn what_can_not_be_done_is_said_with_its_exit_code() {
    let home = Home::new();
    for (args, code, says) in [
        (&["sessions", "rename", "nobody", "x"][..], 7, "nobody"),
        (&["sessions", "rename", "a b", "x"], 7, "there is no session a b"),
        (&["sessions", "rename", "nobody", " "], 2, "--clear"),
        (&["sessions", "fork", "nobody"], 7, "nobody"),
        (&["sessions", "feedback", "nobody", "up"], 7, "nobody"),
        (&["sessions", "rm", "nobody"], 7, "nobody"),
        (&["sessions", "search", " "], 2, "blank"),
        (&["sessions", "search", &"x".repeat(2_049)], 2, "2048 bytes"),
    ] {
        check_failure(&home.run(args).await, code, says);
    }
    for args in [
        &["sessions", "rename", "x"][..],
        &["sessions", "rename", "x", "y", "--clear"],
        &["sessions", "feedback", "x", "sideways"],
        &["sessions", "rm"],
    ] {
        let ran = home.run(args).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
    }
    // Asking for a session makes none.
    assert_eq!(home.run(&["sessions", "list"]).await.answer(), "");
}

#[tokio::test]
async fn a_server_elsewhere_is_asked_the_same() {
    let home = Home::new();
    let server = home.serve(&[]).await;
    let mut socket = server.socket().await;
    socket.chat("s", "the harbour is quiet").await;
    socket.expect("done").await;
    let away = Home::new();
    let ask = async |args: &[&str]| -> Value {
        away.run(&[&["sessions"], args, &["--json", "--server", server.url()]].concat()).await.json()
    };
    assert_eq!(ask(&["search", "harbour"]).await["results"][0]["sessionId"], "s");
    assert_eq!(ask(&["rename", "s", "Boats"]).await["title"], "Boats");
    assert_eq!(ask(&["fork", "s", "--as", "t"]).await["title"], "Boats");
    assert_eq!(ask(&["feedback", "t", "+"]).await["score"], "up");
    assert_eq!(ask(&["rm", "s", "t"]).await, json!({ "removed": ["s", "t"], "unknown": [] }));
    assert!(!away.data().join("tns.db").exists());
    let nobody = away.run(&["sessions", "rm", "x", "--server", "http://127.0.0.1:1"]).await;
    check_failure(&nobody, 3, "tns serve");
}

#[tokio::test]
async fn a_session_goes_from_one_home_to_another_and_is_talked_on_in() {
    let (home, other) = (Home::new(), Home::new());
    let id = talk(&home, "the harbour is quiet").await;
    let printed = home.run(&["sessions", "export", &id]).await.answer().to_owned();
    let kept = home.run(&["sessions", "export", &id, "-o", "kept.jsonl", "--json"]).await.json();
    let file = home.folder().join("kept.jsonl");
    assert_eq!(fs::read_to_string(&file).unwrap(), printed);
    assert_eq!(kept, json!({ "id": id, "file": "kept.jsonl", "bytes": printed.len() }));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(home.folder()).unwrap().count(), 1, "nothing is left beside it");
    let page = home.run(&["sessions", "export", &id, "--format", "markdown"]).await;
    assert!(page.answer().contains("\nthe harbour is quiet\n"), "{page:?}");

    let made = other.run(&["sessions", "import", file.to_str().unwrap()]).await;
    assert_eq!(made.answer(), format!("{id}\n"));
    assert_eq!(other.run(&["sessions", "export", &id]).await.answer(), printed);
    let again = other.run_with_input(&["sessions", "import", "-", "--as", "mine", "--json"], &printed).await;
    assert_eq!(again.json()["id"], "mine");
    let fresh = other.run_with_input(&["sessions", "import", "-"], &printed).await;
    assert_ne!(fresh.answer().trim(), id);
    other.run(&["run", "and now?", "--session", "mine"]).await.answer();
    let shown = other.run(&["sessions", "show", "mine"]).await;
    assert!(
        shown.answer().contains("the harbour is quiet") && shown.stdout.contains("and now?"),
        "{shown:?}"
    );

    let taken = other.run_with_input(&["sessions", "import", "-", "--as", "mine"], &printed).await;
    check_failure(&taken, 1, "mine already");
    fs::write(&file, &printed[..printed.len() - 9]).unwrap();
    let cut = other.run(&["sessions", "import", file.to_str().unwrap()]).await;
    check_failure(&cut, 1, &format!("line {}: ", printed.lines().count()));
    assert_eq!(cut.complaints().len(), 1, "{cut:?}");
    check_failure(&other.run(&["sessions", "import", "missing"]).await, 1, "missing");
    check_failure(&other.run(&["sessions", "import", "."]).await, 2, "folder");
    check_failure(&other.run(&["sessions", "export", "nobody"]).await, 7, "nobody");
    check_failure(&other.run(&["sessions", "export", "mine", "--json"]).await, 2, "-o FILE");
    assert_eq!(other.run(&["sessions", "list"]).await.answer().lines().count(), 3);
}

#[tokio::test]
async fn an_export_has_no_secrets_where_that_is_asked_for() {
    let home = Home::new();
    let key = "sk-ant-api03-Zx81kQpV0mB4tY7uWc2R";
    let id = talk(&home, &format!("remember {key}")).await;
    assert!(home.run(&["sessions", "export", &id]).await.answer().contains(key));
    let redacted = home.run(&["sessions", "export", &id, "--redact"]).await;
    assert!(
        redacted.answer().contains("remember [redacted]") && !redacted.stdout.contains(key),
        "{redacted:?}"
    );
}
