//! A line that breaks in the middle of a reply: what the screen and a script have in the end is all of it,
//! once.

use nix::sys::signal::Signal;
use serde_json::json;
use tns_tests::Socket;
use tns_tests::provider::{ModelServer, Reply, call_body, text_body};
use tns_tests::relay::Relay;
use tokio::io::AsyncReadExt;

use crate::binary::{Home, Serving, finish, signal_to, until};
use crate::terminal::{CTRL_D, ENTER, SIZES, Terminal};

/// Time between two pieces of a reply.
const PACE: std::time::Duration = std::time::Duration::from_millis(100);

/// Counts to twenty, a number a piece.
fn counting() -> Reply {
    let pieces: Vec<String> =
        (1..=20).map(|n| if n < 20 { format!("{n} ") } else { n.to_string() }).collect();
    let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
    Reply::slow(text_body(&pieces), PACE)
}

fn counted() -> String {
    (1..=20).map(|n| n.to_string()).collect::<Vec<_>>().join(" ")
}

/// A server, a relay to it, and somebody who watches the session `s` without the relay.
async fn line(home: &Home) -> (Serving, Relay, Socket) {
    let server = home.serve(&[]).await;
    let relay = Relay::start(server.address()).await;
    let mut watcher = server.socket().await;
    watcher.join("s").await;
    (server, relay, watcher)
}

/// Waits until this piece of a reply was written.
async fn written(watcher: &mut Socket, piece: &str) {
    while watcher.expect("token").await["content"] != piece {}
}

/// Returns the screen's text, the breaks of its rows as blanks.
fn words(terminal: &Terminal) -> String {
    terminal.text().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn a_reply_whose_middle_was_cut_is_on_the_screen_once() {
    for size in SIZES {
        let model = ModelServer::start([counting()]).await;
        let home = Home::with_model(&model);
        let (_server, relay, mut watcher) = line(&home).await;
        let url = relay.url();
        let args = ["chat", "--server", url.as_str(), "--session", "s", "count"];
        let mut terminal = Terminal::start(&home, &args, size);
        terminal.shows("4 5").await;
        relay.cut();
        terminal.shows("not connected").await;
        written(&mut watcher, "12 ").await;
        relay.mend();
        terminal.hides("not connected").await;
        terminal.shows(&counted()).await;
        terminal.shows("idle").await;
        assert_eq!(words(&terminal).matches("1 2 3").count(), 1, "{}", terminal.text());
        assert_eq!(model.requests().len(), 1);
        terminal.press(&format!("and now?{ENTER}"));
        terminal.shows("and now?").await;
        terminal.shows("done").await;
        terminal.shows("idle").await;
        terminal.press(CTRL_D);
        assert_eq!(terminal.ended().await, 0);
    }
}

#[tokio::test]
async fn a_reply_that_ended_while_the_line_was_down_is_on_the_screen_once() {
    let model = ModelServer::start([counting()]).await;
    let home = Home::with_model(&model);
    let (_server, relay, mut watcher) = line(&home).await;
    let url = relay.url();
    let args = ["chat", "--server", url.as_str(), "--session", "s", "count"];
    let mut terminal = Terminal::start(&home, &args, SIZES[0]);
    terminal.shows("4 5").await;
    relay.cut();
    watcher.expect("done").await;
    relay.mend();
    terminal.shows(&counted()).await;
    terminal.shows("idle").await;
    assert_eq!(words(&terminal).matches("1 2 3").count(), 1, "{}", terminal.text());
    terminal.press(&format!("and now?{ENTER}"));
    terminal.shows("done").await;
    assert_eq!(model.requests().len(), 2);
}

#[tokio::test]
async fn a_tool_result_and_an_approval_of_the_gap_are_there() {
    for size in SIZES {
        let call = |id: &str| call_body(id, "shell", &json!({ "command": format!("touch made-{id}") }));
        let replies = [call("c1"), call("c2"), text_body(&["all is made"])];
        let model = ModelServer::start(replies).await;
        let home = Home::with_model(&model);
        let (_server, relay, mut watcher) = line(&home).await;
        let url = relay.url();
        let args = ["chat", "--server", url.as_str(), "--session", "s", "make"];
        let mut terminal = Terminal::start(&home, &args, size);
        terminal.shows("touch made-c1").await;
        terminal.shows("approval · shell").await;
        let first = watcher.expect("tool_approve_request").await;
        relay.cut();
        terminal.shows("not connected").await;
        watcher.decide("s", first["toolCallId"].as_str().unwrap(), "approve").await;
        watcher.expect("tool_result").await;
        watcher.expect("tool_approve_request").await;
        relay.mend();
        terminal.hides("not connected").await;
        terminal.shows("touch made-c2").await;
        terminal.may_answer().await;
        terminal.press("a");
        terminal.shows("all is made").await;
        terminal.shows("idle").await;
        assert!(home.has("made-c1") && home.has("made-c2"));
        assert!(!terminal.text().contains("approval · shell"), "{}", terminal.text());
    }
}

#[tokio::test]
async fn an_approval_that_was_answered_elsewhere_while_the_line_was_down_is_gone() {
    let home = Home::new();
    let (_server, relay, mut watcher) = line(&home).await;
    let url = relay.url();
    let args = ["chat", "--server", url.as_str(), "--session", "s", "!touch made"];
    let mut terminal = Terminal::start(&home, &args, SIZES[0]);
    terminal.shows("approval · shell").await;
    let request = watcher.expect("tool_approve_request").await;
    relay.cut();
    watcher.decide("s", request["toolCallId"].as_str().unwrap(), "reject").await;
    watcher.expect("done").await;
    relay.mend();
    terminal.hides("approval · shell").await;
    terminal.shows("rejected").await;
    terminal.shows("idle").await;
    assert!(!home.has("made"));
    terminal.press("usable");
    terminal.shows("› usable").await;
}

#[tokio::test]
async fn a_reply_that_a_restart_cut_is_marked_and_the_screen_goes_on() {
    for size in SIZES {
        let model = ModelServer::start([counting()]).await;
        let home = Home::with_model(&model);
        let (server, relay, _watcher) = line(&home).await;
        let url = relay.url();
        let args = ["chat", "--server", url.as_str(), "--session", "s", "count"];
        let mut terminal = Terminal::start(&home, &args, size);
        terminal.shows("4 5").await;
        relay.cut();
        server.kill().await;
        let server = home.serve(&[]).await;
        relay.lead_to(server.address());
        relay.mend();
        terminal.shows("SERVER_RESTARTED").await;
        terminal.shows("idle").await;
        assert_eq!(model.requests().len(), 1);
        terminal.press(&format!("go on{ENTER}"));
        terminal.shows("done").await;
        terminal.shows("idle").await;
        for once in ["count", "SERVER_RESTARTED", "go on"] {
            assert!(terminal.text().matches(once).count() <= 1, "{once}:\n{}", terminal.text());
        }
    }
}

#[tokio::test]
async fn a_run_over_a_line_that_breaks_prints_its_answer_once() {
    for comes_back_at in ["token", "done"] {
        let model = ModelServer::start([counting()]).await;
        let home = Home::with_model(&model);
        let (_server, relay, mut watcher) = line(&home).await;
        let url = relay.url();
        let args = ["run", "count", "--server", url.as_str(), "--session", "s"];
        let mut child = home.command(&args).spawn().unwrap();
        let mut said = vec![0; "1 2 3 4 5 ".len()];
        child.stdout.as_mut().unwrap().read_exact(&mut said).await.unwrap();
        relay.cut();
        match comes_back_at {
            "token" => written(&mut watcher, "12 ").await,
            _ => drop(watcher.expect("done").await),
        }
        relay.mend();
        let ran = finish(child).await;
        let answer = String::from_utf8(said).unwrap() + ran.answer();
        assert_eq!(answer, counted() + "\n", "{ran:?}");
        assert!(ran.stderr.contains("connection lost, trying again"), "{ran:?}");
        assert_eq!(model.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_run_whose_decision_may_have_been_lost_gives_it_again() {
    let home = Home::new();
    let (_server, relay, mut watcher) = line(&home).await;
    let url = relay.url();
    let args = ["run", "!touch made", "--server", url.as_str(), "--session", "s", "--on-ask", "wait"];
    let child = home.command(&args).spawn().unwrap();
    let request = watcher.expect("tool_approve_request").await;
    relay.cut();
    relay.mend();
    watcher.decide("s", request["toolCallId"].as_str().unwrap(), "approve").await;
    let ran = finish(child).await;
    ran.answer();
    assert!(home.has("made"));
}

#[tokio::test]
async fn who_used_the_server_of_a_command_that_is_killed_goes_on_with_one_of_its_own() {
    let model = ModelServer::start([Reply::held(&["the first half"])]).await;
    let home = Home::with_model(&model);
    let mut holder = home.command(&["run", "begin", "--session", "s"]).spawn().unwrap();
    let pid = holder.id().unwrap();
    until("the model is asked", || !model.requests().is_empty()).await;
    let mut terminal = Terminal::start(&home, &["chat", "--session", "s"], SIZES[0]);
    terminal.shows("the first half").await;
    signal_to(pid, Signal::SIGKILL);
    drop(holder.wait().await);
    terminal.shows("SERVER_RESTARTED").await;
    terminal.shows("idle").await;
    terminal.press(&format!("go on{ENTER}"));
    terminal.shows("done").await;
    assert_eq!(home.published().await["pid"], terminal.pid());
    // Others find it there.
    home.run(&["sessions", "show", "s"]).await.answer();
    terminal.press(CTRL_D);
    assert_eq!(terminal.ended().await, 0);
    assert!(!home.data().join("server.json").exists());
}
