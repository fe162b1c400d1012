//! `tns sessions tail`: killed at any moment and started again, it misses nothing, and repeats at most what it
//! was just printing.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tns_protocol::rest::KbAddRequest;
use tns_tests::socket::of_type;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::time::sleep;

use crate::binary::{Home, Serving};

/// Kills of one reader, one after the other.
const KILLS: u64 = 40;
/// The latest moment of a kill after the start, in microseconds: some come before the first line.
const LATEST_KILL_MICROS: u64 = 160_000;
/// Events that are written meanwhile.
const EVENTS: usize = 600;
/// Set to repeat a failed run.
const SEED_VARIABLE: &str = "TNS_TEST_SEED";

/// The next number of a sequence (SplitMix64, Steele, Lea and Flood 2014).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

async fn write(server: &Serving, events: usize) {
    let rest = server.rest();
    for at in 0..events {
        rest.kb_add(KbAddRequest {
            session_id: tns_tests::session("s"),
            content: format!("note {at} of {events}"),
            metadata: None,
            scope: Default::default(),
        })
        .await
        .unwrap();
    }
}

async fn log(server: &Serving) -> Vec<Value> {
    let (rest, id) = (server.rest(), tns_tests::session("s"));
    let mut events: Vec<Value> = Vec::new();
    loop {
        let after = events.last().map_or(0, |event| event["seq"].as_u64().unwrap());
        let page = rest.events(&id, after).await.unwrap();
        events.extend(page.events);
        if !page.more {
            return events;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_is_killed_again_and_again_has_the_log_in_order() {
    let seed = std::env::var(SEED_VARIABLE).ok().map(|seed| seed.parse().unwrap());
    let mut random = seed.unwrap_or_else(|| RandomState::new().hash_one("seed"));
    println!("{SEED_VARIABLE}={random}");
    let home = Home::new();
    let server = home.serve(&[]).await;
    server.socket().await.join("s").await;
    let printed = home.path().join("printed");
    let url = server.url().to_owned();
    let args = ["sessions", "tail", "s", "--json", "--server", url.as_str()];
    let mut reached = 0;
    let reading = async {
        for _ in 0..KILLS {
            let out = File::options().create(true).append(true).open(&printed).unwrap();
            let mut child = home.command(&args).stdout(out).spawn().unwrap();
            sleep(Duration::from_micros(next(&mut random) % LATEST_KILL_MICROS)).await;
            child.kill().await.unwrap();
            let lines = fs::read_to_string(&printed).unwrap().lines().count();
            reached += u64::from(lines > 0 && lines < EVENTS);
        }
    };
    tokio::join!(reading, write(&server, EVENTS));
    let last = home.run(&[&args[..], &["--once"]].concat()).await;
    let text = fs::read_to_string(&printed).unwrap() + last.answer();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let log = log(&server).await;
    let mut once = lines.clone();
    // Only what was just being printed may stand there twice, and then one after the other.
    once.dedup();
    assert_eq!(once, log);
    let repeated = lines.len() - once.len();
    println!("{repeated} lines came twice, {reached} kills hit in the middle");
    assert!(repeated as u64 <= KILLS && reached > 0, "the moments of the kills are chosen badly");
    // Nothing is left to tell.
    assert_eq!(home.run(&[&args[..], &["--once"]].concat()).await.answer(), "");
}

#[tokio::test]
async fn who_begins_behind_the_end_of_the_log_is_told_and_follows_from_there() {
    let home = Home::new();
    let server = home.serve(&[]).await;
    server.socket().await.join("s").await;
    write(&server, 2).await;
    let args = ["sessions", "tail", "s", "--from", "99", "--json", "--server", server.url()];
    let mut child = home.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines();
    let told = told.next_line().await.unwrap().unwrap();
    assert_eq!(told, "the log ends at 2, before 99; what is stored from now on follows");
    write(&server, 1).await;
    let mut printed = BufReader::new(child.stdout.take().unwrap()).lines();
    let first: Value = serde_json::from_str(&printed.next_line().await.unwrap().unwrap()).unwrap();
    assert_eq!(first, log(&server).await[2]);
    child.kill().await.unwrap();
}

#[tokio::test]
async fn each_reader_has_a_place_of_its_own_and_may_begin_elsewhere() {
    let home = Home::new();
    let server = home.serve(&[]).await;
    let mut socket = server.socket().await;
    socket.chat("s", "hello there\nagain").await;
    socket.expect("done").await;
    let tail = async |options: &[&str]| {
        home.run(&[&["sessions", "tail", "s", "--once"], options].concat()).await.answer().to_owned()
    };
    let all = tail(&[]).await;
    let lines: Vec<&str> = all.lines().collect();
    assert!(lines[0].starts_with("1\t") && lines[0].ends_with("\tuser_message\thello there again"), "{all}");
    assert_eq!(lines.len(), log(&server).await.len());
    assert_eq!(tail(&[]).await, "");
    assert_eq!(tail(&["--cursor", "other"]).await, all);
    assert_eq!(tail(&["--from", "2"]).await.lines().collect::<Vec<_>>(), lines[1..]);
    let json = tail(&["--from", "1", "--json"]).await;
    let events: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events, log(&server).await);
    assert_eq!(of_type(&events, "user_message").len(), 1);
    for (args, code) in
        [(&["sessions", "tail", "none"][..], 7), (&["sessions", "tail", "--cursor", "a/b"], 2)]
    {
        let ran = home.run(args).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{ran:?}");
    }
    let last = lines.len();
    let beyond = home.run(&["sessions", "tail", "s", "--once", "--from", "99"]).await;
    assert_eq!(beyond.answer(), "");
    assert!(beyond.stderr.contains(&format!("the log ends at {last}, before 99\n")), "{beyond:?}");
    // The next one is no mistake.
    let next = home.run(&["sessions", "tail", "s", "--once", "--from", &(last + 1).to_string()]).await;
    assert!(next.answer().is_empty() && !next.stderr.contains("ends at"), "{next:?}");
    // Looking for a session makes none.
    assert_eq!(home.run(&["sessions", "list"]).await.answer().lines().count(), 1);
}
