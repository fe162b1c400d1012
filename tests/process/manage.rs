//! What changes and finds sessions on the command line: beside a server, at one that is named, and on its own.

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
    check_failure(&home.run(&["sessions", "fork", &id, "--at", "1"]).await, 1, "end of a turn");
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
