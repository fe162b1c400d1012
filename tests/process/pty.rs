//! What a person sees and does: `tns chat` and `tns run` on a pseudo-terminal.

use nix::sys::signal::Signal;
use serde_json::json;
use tns_tests::Socket;
use tns_tests::provider::{ModelServer, Reply, call_body, text_body};

use crate::binary::{Home, signal_to, until};
use crate::terminal::{CTRL_C, CTRL_D, DOWN, ENTER, SIZES, TAB, Terminal};

/// The most common size.
const USUAL: (u16, u16) = SIZES[0];

fn holds(raw: &[u8], part: &[u8]) -> bool {
    raw.windows(part.len()).any(|window| window == part)
}

/// Joins the session that is on a screen from outside.
async fn join(home: &Home, session: &str) -> (Socket, Vec<serde_json::Value>) {
    let published = home.published().await;
    let address = published["url"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
    let mut socket = Socket::connect(&address).await;
    let waiting = socket.join(session).await;
    (socket, waiting)
}

#[tokio::test]
async fn the_first_screen_says_who_answers_and_how_to_begin() {
    for size in SIZES {
        let home = Home::new();
        let terminal = Terminal::start(&home, &["chat"], size);
        terminal.shows("Answers come from offline/offline").await;
        terminal.shows("Enter sends").await;
        terminal.shows("idle").await;
        assert!(terminal.is_taken_over());
    }
}

#[tokio::test]
async fn a_command_runs_when_its_approval_is_answered() {
    for size in SIZES {
        let home = Home::new();
        let mut terminal = Terminal::start(&home, &["chat"], size);
        terminal.shows("idle").await;
        terminal.press(&format!("!touch made && echo it is made{ENTER}"));
        terminal.shows("approval · shell").await;
        terminal.may_answer().await;
        assert!(!home.has("made"));
        terminal.press("a");
        terminal.hides("approval · shell").await;
        terminal.shows("it is made").await;
        terminal.shows("idle").await;
        assert!(home.has("made"));
        terminal.press(CTRL_D);
        assert_eq!(terminal.ended().await, 0);
        terminal.is_restored().await;
    }
}

#[tokio::test]
async fn who_is_writing_when_an_approval_comes_answers_nothing() {
    let home = Home::new();
    let mut terminal = Terminal::start(&home, &["chat", "--session", "s"], USUAL);
    terminal.shows("idle").await;
    terminal.press("aa");
    terminal.shows("› aa").await;
    let (mut socket, _) = join(&home, "s").await;
    socket.chat("s", "!touch made").await;
    terminal.shows("Tab to answer; you are writing").await;
    terminal.press("aa");
    terminal.shows("› aaaa").await;
    assert_eq!(socket.join("s").await.iter().filter(|event| event["type"] == "tool_start").count(), 0);
    assert!(!home.has("made"));
    terminal.press(TAB);
    terminal.may_answer().await;
    terminal.press("a");
    until("the command ran", || home.has("made")).await;
    terminal.shows("› aaaa").await;
}

#[tokio::test]
async fn a_rejected_command_does_not_run() {
    let home = Home::new();
    let mut terminal = Terminal::start(&home, &["chat", "!touch made"], USUAL);
    terminal.may_answer().await;
    terminal.press("r");
    terminal.hides("a approve").await;
    terminal.shows("rejected").await;
    terminal.shows("idle").await;
    assert!(!home.has("made"));
}

#[tokio::test]
async fn a_reply_is_shown_while_it_is_written() {
    for size in SIZES {
        let model = ModelServer::start([Reply::held(&["The gnomon ", "points north."])]).await;
        let home = Home::with_model(&model);
        let mut terminal = Terminal::start(&home, &["chat"], size);
        terminal.shows("idle").await;
        terminal.press(&format!("where to?{ENTER}"));
        terminal.shows("The gnomon points north.").await;
        terminal.shows("thinking").await;
        // The first interrupts the reply, which stays.
        terminal.press(CTRL_C);
        terminal.shows("idle").await;
        terminal.shows("The gnomon points north.").await;
        terminal.press(CTRL_D);
        assert_eq!(terminal.ended().await, 0);
        terminal.is_restored().await;
    }
}

#[tokio::test]
async fn an_approval_that_another_client_answers_closes_on_the_screen() {
    let home = Home::new();
    let terminal = Terminal::start(&home, &["chat", "--session", "s", "!touch made"], USUAL);
    terminal.shows("a approve").await;
    let (mut socket, waiting) = join(&home, "s").await;
    let call = waiting[0]["toolCallId"].as_str().unwrap();
    socket.decide("s", call, "approve").await;
    terminal.hides("a approve").await;
    terminal.shows("approved").await;
    until("the command ran", || home.has("made")).await;
    terminal.shows("idle").await;
}

#[tokio::test]
async fn a_long_command_can_be_read_to_its_end_before_it_is_answered() {
    let command = format!("echo {} && rm -rf build", "a".repeat(400));
    for size in SIZES {
        let home = Home::new();
        std::fs::create_dir(home.folder().join("build")).unwrap();
        let mut terminal = Terminal::start(&home, &["chat", &format!("!{command}")], size);
        terminal.may_answer().await;
        terminal.press("v");
        terminal.hides("Enter sends").await;
        terminal.hides("keys answer above").await;
        let body = 1..usize::from(size.1) - 1;
        let mut read: Vec<String> = terminal.rows()[body.clone()].to_vec();
        // Row by row to the end, as its count of rows above and below says.
        let mut above = 0;
        while terminal.text().contains('↓') && !terminal.text().contains("↓0") {
            terminal.press(DOWN);
            above += 1;
            terminal.shows(&format!("↑{above} ")).await;
            read.push(terminal.rows()[body.end - 1].clone());
        }
        assert!(read.concat().contains(&command), "{read:#?}");
        terminal.may_answer().await;
        terminal.press("r");
        terminal.shows("rejected").await;
        assert!(home.has("build"));
    }
}

#[tokio::test]
async fn what_could_drive_the_terminal_or_hide_in_it_is_shown_as_text() {
    let hidden = "\u{202e}gnp.x \u{1b}]52;c;cm0=\u{7} \u{200b}end";
    let call = call_body("c1", "shell", &json!({ "command": format!("echo '{hidden}' | tee out") }));
    // The sequence is also cut in two, so that no piece holds it.
    let reply = text_body(&[
        "so: \u{1b}",
        "]52;c;cm0=\u{7}",
        " \u{1b}[2J\u{1b}[6n\u{202e}",
        "over \u{9b}2J 職員 שלום",
    ]);
    for size in SIZES {
        let model = ModelServer::start([call.clone(), reply.clone()]).await;
        let home = Home::with_model(&model);
        let mut terminal = Terminal::start(&home, &["chat", "go"], size);
        terminal.may_answer().await;
        let asked = terminal.text();
        for escape in ["\\u{202E}", "\\u{1B}]52;c;cm0=\\u{7}", "\\u{200B}", "hidden"] {
            assert!(asked.replace('\n', "").contains(escape), "{escape}:\n{asked}");
        }
        terminal.press("a");
        terminal.shows("職員").await;
        terminal.shows("idle").await;
        // What ran are the very bytes that were asked for.
        assert_eq!(std::fs::read_to_string(home.folder().join("out")).unwrap(), format!("{hidden}\n"));
        terminal.press(CTRL_D);
        assert_eq!(terminal.ended().await, 0);
        let raw = terminal.raw();
        for sequence in ["\u{1b}]", "\u{7}", "\u{202e}", "\u{200b}", "\u{9b}", "\u{1b}[6n"] {
            assert!(!holds(&raw, sequence.as_bytes()), "{sequence:?}");
        }
        terminal.is_restored().await;
    }
}

#[tokio::test]
async fn a_signal_leaves_the_terminal_as_it_was() {
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT] {
        let home = Home::new();
        let mut terminal = Terminal::start(&home, &["chat"], USUAL);
        terminal.shows("idle").await;
        assert!(terminal.is_taken_over());
        signal_to(terminal.pid(), signal);
        assert_eq!(terminal.ended().await, 130, "{signal}");
        terminal.is_restored().await;
        assert!(!home.data().join("server.json").exists());
    }
}

#[tokio::test]
async fn a_server_that_is_killed_and_comes_back_is_joined_again() {
    let model = ModelServer::start([Reply::held(&["the first half"])]).await;
    let home = Home::with_model(&model);
    let server = home.serve(&[]).await;
    let port = server.address().rsplit_once(':').unwrap().1.to_owned();
    let mut terminal = Terminal::start(&home, &["chat", "begin"], USUAL);
    terminal.shows("the first half").await;
    server.kill().await;
    terminal.shows("not connected").await;
    let server = home.serve_anyhow(&["serve", "--port", &port]).await;
    terminal.hides("not connected").await;
    terminal.shows("SERVER_RESTARTED").await;
    terminal.press(&format!("and onwards{ENTER}"));
    terminal.shows("done").await;
    terminal.shows("idle").await;
    for once in ["begin", "SERVER_RESTARTED", "and onwards", "done"] {
        assert_eq!(terminal.text().matches(once).count(), 1, "{once}:\n{}", terminal.text());
    }
    drop(server);
}

#[tokio::test]
async fn a_run_on_a_terminal_asks_there() {
    let home = Home::new();
    let mut terminal = Terminal::start(&home, &["run", "!touch made && echo it is made"], USUAL);
    terminal.shows("a approve, r reject:").await;
    terminal.shows("touch made && echo it is made").await;
    assert!(!home.has("made"));
    terminal.press("a\n");
    assert_eq!(terminal.ended().await, 0);
    terminal.shows("it is made").await;
    assert!(home.has("made"));
}

#[tokio::test]
async fn what_was_typed_before_a_question_does_not_answer_it() {
    let home = Home::new();
    let mut terminal = Terminal::start_after(&home, &["run", "!touch made"], USUAL, "a\n");
    terminal.shows("a approve, r reject:").await;
    terminal.press("r not now\n");
    assert_eq!(terminal.ended().await, 5);
    terminal.shows("rejected on this terminal").await;
    assert!(!home.has("made"));
}

#[tokio::test]
async fn a_terminal_without_colours_gets_none() {
    let home = Home::new().set("NO_COLOR", "1");
    home.write("notes.md", "north \u{1b}[31mred\n");
    let mut terminal = Terminal::start(&home, &["run", "read notes.md"], USUAL);
    assert_eq!(terminal.ended().await, 0);
    terminal.shows("north \\u{1b}[31mred").await;
    assert!(!holds(&terminal.raw(), b"\x1b"), "{:?}", String::from_utf8_lossy(&terminal.raw()));

    let dumb = Home::new().set("TERM", "dumb");
    let mut terminal = Terminal::start(&dumb, &["chat"], USUAL);
    assert_eq!(terminal.ended().await, 2);
    terminal.shows("tns run").await;
    assert!(!holds(&terminal.raw(), b"\x1b"));

    // The same session has colours where nothing forbids them.
    let coloured = Home::new();
    let terminal = Terminal::start(&coloured, &["chat", "hello"], USUAL);
    terminal.shows("idle").await;
    assert!(styles(&terminal.raw()).iter().any(|style| is_colour(style)));

    let plain = Home::new().set("NO_COLOR", "1");
    let mut terminal = Terminal::start(&plain, &["chat", "hello"], USUAL);
    terminal.shows("idle").await;
    terminal.press(CTRL_D);
    assert_eq!(terminal.ended().await, 0);
    let coloured: Vec<String> =
        styles(&terminal.raw()).into_iter().filter(|style| is_colour(style)).collect();
    assert_eq!(coloured, [] as [String; 0]);
}

/// Returns the parameters of every sequence that sets how text looks: `ESC [ parameters m`.
fn styles(raw: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(raw);
    let sequences = text.split("\u{1b}[").skip(1);
    let parameters = sequences.filter_map(|sequence| {
        let end = sequence.find(|c: char| c.is_ascii_alphabetic())?;
        sequence[end..].starts_with('m').then(|| sequence[..end].to_owned())
    });
    parameters.collect()
}

/// Whether a style sets a colour other than the terminal's own (39, 49, 59).
fn is_colour(style: &str) -> bool {
    style
        .split([';', ':'])
        .filter_map(|number| number.parse::<u32>().ok())
        .any(|number| matches!(number, 30..=38 | 40..=48 | 58 | 90..=97 | 100..=107))
}

#[tokio::test]
async fn what_was_allowed_for_good_is_listed_and_taken_back_on_the_screen_and_on_the_line() {
    let home = Home::new();
    let mut terminal = Terminal::start(&home, &["chat", "--session", "s"], USUAL);
    terminal.shows("idle").await;
    for round in 1..=2 {
        terminal.press(&format!("!make test{ENTER}"));
        terminal.shows("approval · shell").await;
        terminal.may_answer().await;
        terminal.press("A");
        terminal.hides("approval · shell").await;
        terminal.shows("runs unasked from now on: every `make test`").await;
        terminal.shows("idle").await;
        // It holds: the same runs unasked.
        terminal.press(&format!("/clear{ENTER}!make test{ENTER}"));
        terminal.shows("shell make test").await;
        terminal.shows("idle").await;
        let audit = home.run(&["audit", "--session", "s"]).await;
        assert_eq!(audit.answer().matches("\ttrusted\t").count(), round, "{audit:?}");
        terminal.press(&format!("/clear{ENTER}/rules{ENTER}"));
        terminal.shows("1 · every `make test` of class BUILD_TEST in this session").await;
        if round == 1 {
            terminal.press(&format!("/rules rm 2{ENTER}"));
            terminal.shows("no rule was shown with the number 2").await;
            terminal.press(&format!("/rules rm 1{ENTER}"));
            terminal.shows("asks again: every `make test`").await;
        }
    }
    let listed = home.run(&["rules", "list", "--session", "s"]).await.answer().to_owned();
    let id = listed.split('\t').next().unwrap();
    assert_eq!(
        listed,
        format!("{id}\tallow\tBUILD_TEST\tshell\tevery `make test` of class BUILD_TEST in this session\n")
    );
    let rules = home.run(&["rules", "list", "--session", "s", "--json"]).await.json();
    assert_eq!(rules["rules"][0]["ruleId"], json!(id));
    let unknown = home.run(&["rules", "rm", "rule-0", id, "--session", "s"]).await;
    assert_eq!((unknown.code, unknown.stdout.as_str()), (Some(7), format!("{id}\n").as_str()), "{unknown:?}");
    terminal.shows("asks again: every `make test`").await;
    assert_eq!(home.run(&["rules", "list", "--session", "s"]).await.answer(), "");
    assert_eq!(home.run(&["rules", "rm", "--all", "--session", "s"]).await.code, Some(0));
}
