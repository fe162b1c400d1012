//! Many readers of one long reply, and one more that never reads: those who read miss nothing, and it finds
//! everything when it comes back.

use std::ops::Range;
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Value, json};
use tns_server_core::scripted::{Beat, Gate, Script};
use tns_tests::Socket;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use crate::{say, start};

/// Connections that read.
const READERS: usize = 50;
/// Bytes of a piece of the reply.
const PIECE: usize = 10_000;
/// Pieces that are written at once: fewer than are joined for a reader, so that each comes as it was written.
const AT_ONCE: usize = 40;
/// With 8 MB in all, more than the system's buffers take: what follows waits in the outbox.
const BATCHES: usize = 20;
/// Messages that follow, as large as an outbox all of them: what is only shown may be lost unsaid, these may not.
const MESSAGES: usize = 4;

/// Bytes of each.
const MESSAGE: usize = 1 << 20;
/// How long something may take that takes milliseconds, so that a busy machine fails nothing.
const PATIENCE: Duration = Duration::from_secs(20);

/// What one reader was shown.
#[derive(Debug, Default, PartialEq, Eq)]
struct Shown {
    /// Pieces of the reply.
    pieces: Vec<String>,
    /// The durable events: place and type.
    log: Vec<(u64, String)>,
}

/// Returns the piece of this number: like no other, and without anything that JSON escapes.
fn piece(number: usize) -> String {
    let mut piece = format!("{number:05}.").repeat(PIECE / 6 + 1);
    piece.truncate(PIECE);
    piece
}

/// Cuts a member out of a frame: reading all of them as JSON would take most of the test's time.
fn member<'a>(frame: &'a str, begin: &str, end: char) -> Option<&'a str> {
    let (_, rest) = frame.split_once(begin)?;
    rest.split_once(end).map(|(value, _)| value)
}

impl Shown {
    /// Takes a frame; returns its type.
    fn take(&mut self, frame: &str) -> String {
        // The head is short, and what a person said comes behind it.
        let type_name = member(frame, "\"type\":\"", '"').unwrap().to_owned();
        if type_name == "token" {
            self.pieces.push(member(frame, "\"content\":\"", '"').unwrap().to_owned());
        } else if type_name != "history_sync"
            && let Some(seq) = member(frame, "\"seq\":", ',')
        {
            self.log.push((seq.parse().unwrap(), type_name.clone()));
        }
        type_name
    }
}

async fn next(socket: &mut Socket) -> String {
    loop {
        let frame = timeout(PATIENCE, socket.stream().next()).await.expect("a frame in time");
        match frame.expect("the socket is open").expect("a readable frame") {
            Message::Text(text) => return text.to_string(),
            Message::Close(close) => panic!("closed: {close:?}"),
            _ => {}
        }
    }
}

/// Reads to the end of the last turn, and says whenever it has a batch whole or a turn has ended.
async fn read(mut socket: Socket, whole: mpsc::Sender<()>) -> Shown {
    let mut shown = Shown::default();
    let mut ends = 0;
    while ends < 1 + MESSAGES {
        match shown.take(&next(&mut socket).await).as_str() {
            "token" if ends == 0 && shown.pieces.len().is_multiple_of(AT_ONCE) => {
                whole.send(()).await.unwrap();
            }
            "done" => {
                ends += 1;
                whole.send(()).await.unwrap();
            }
            "lagged" => panic!("a reader that reads was told that it lags"),
            _ => {}
        }
    }
    shown
}

async fn hello(socket: &mut Socket) {
    socket.send("s", "hello", json!({ "ext": ["events.1"] })).await;
    socket.expect("welcome").await;
}

fn batch(at: usize) -> Range<usize> {
    at * AT_ONCE..(at + 1) * AT_ONCE
}

/// Waits until every reader has said so once more.
async fn all_have(whole: &mut mpsc::Receiver<()>) {
    for _ in 0..READERS {
        timeout(PATIENCE, whole.recv()).await.expect("every reader in time").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_readers_get_every_token_and_one_that_never_reads_resumes_completely() {
    // The model goes on when every reader has what was written.
    let gate = Gate::new();
    let beats = |at| batch(at).map(|number| say(&piece(number))).chain([Beat::Gate(gate.clone())]);
    let server = start(Script::new().step((0..BATCHES).flat_map(beats))).await;
    let mut stopped = Socket::connect_slow(server.address()).await;
    hello(&mut stopped).await;
    let (saying, mut whole) = mpsc::channel(READERS); // full: readers wait for the test
    let mut readers = JoinSet::new();
    for _ in 0..READERS {
        let mut socket = server.socket().await;
        hello(&mut socket).await;
        readers.spawn(read(socket, saying.clone()));
    }
    drop(saying);
    server.socket().await.chat("s", "go").await;
    for _ in 0..BATCHES {
        all_have(&mut whole).await;
        gate.open();
    }
    all_have(&mut whole).await;
    for _ in 0..MESSAGES {
        server.socket().await.chat("s", &"word ".repeat(MESSAGE / 5)).await;
        all_have(&mut whole).await;
    }
    let expected: Vec<String> = (0..BATCHES * AT_ONCE).map(piece).collect();
    let shown = readers.join_all().await;
    for reader in &shown {
        // Behind it come the replies to what followed.
        assert!(reader.pieces.get(..expected.len()) == Some(&expected), "{} pieces", reader.pieces.len());
        assert_eq!(reader.log, shown[0].log);
    }

    // It reads again: what had been written to it, then that it lags, then nothing.
    let mut late = Shown::default();
    while late.take(&next(&mut stopped).await) != "lagged" {}
    assert!(late.pieces.len() < expected.len() && late.log.len() < shown[0].log.len());
    // What is only shown may have holes; it comes in order and once all the same.
    assert!(late.pieces.windows(2).all(|pair| pair[0] < pair[1]));
    let last = late.log.last().map_or(0, |(seq, _)| *seq);
    stopped.send("s", "resume", json!({ "lastSeq": last })).await;
    let mut reply = None;
    loop {
        let frame = next(&mut stopped).await;
        match late.take(&frame).as_str() {
            "history_sync" => {}
            "resumed" => break,
            other => panic!("{other} before it has resumed"),
        }
        let page: Value = serde_json::from_str(&frame).unwrap();
        for event in page["events"].as_array().unwrap() {
            let type_name = event["type"].as_str().unwrap();
            late.log.push((event["seq"].as_u64().unwrap(), type_name.to_owned()));
            if type_name == "assistant_message" && reply.is_none() {
                reply = Some(event["message"].as_str().unwrap().to_owned());
            }
        }
    }
    assert_eq!(late.log, shown[0].log);
    assert!(reply == Some(expected.concat()), "the stored reply is another");
}
