//! Many readers of one long reply, and one more that never reads: how late each token comes to those who read,
//! and what the one costs the server, each beside the same without it.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::task::JoinSet;

use crate::model::Model;
use crate::report::{Must, Report, median};
use crate::server::Running;
use crate::socket::Socket;

/// Connections that read.
const READERS: usize = 50;
/// The session they all read.
const SESSION: &str = "read";
/// Time between two looks at the server's memory.
const LOOK: Duration = Duration::from_millis(250);
/// Lateness may grow by so much, as a factor.
const MOST_LATE: f64 = 1.2;
/// Memory may grow by so much, in MiB.
const MOST_MEMORY: f64 = 2.0;

/// How the reply is written.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    /// Its length.
    pub(crate) tokens: usize,
    /// Tokens a second.
    pub(crate) rate: usize,
}

/// Whether one more connection joins and never reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stopped {
    None,
    One,
}

/// What one reply showed.
struct Read {
    /// Lateness of half of the tokens at most, over all readers, in seconds.
    p50: f64,
    /// The same of 99 of a hundred.
    p99: f64,
    /// How much the server's memory grew at most, in MiB.
    growth: f64,
}

/// What all replies of one kind showed.
#[derive(Default)]
struct Reads {
    p50: Vec<f64>,
    p99: Vec<f64>,
    growth: Vec<f64>,
}

impl Reads {
    fn add(&mut self, read: &Read) {
        self.p50.push(read.p50);
        self.p99.push(read.p99);
        self.growth.push(read.growth);
    }
}

/// Measures pairs of replies, with and without the one that never reads, each on a server of its own.
pub(crate) async fn measure(
    tns: &Path,
    model: &Model,
    pairs: usize,
    pace: Pace,
    report: &mut Report,
) -> Result<()> {
    let (mut with, mut without) = (Reads::default(), Reads::default());
    for pair in 0..pairs {
        // In turn, so that what drifts favours neither.
        let order = [Stopped::One, Stopped::None];
        for at in 0..order.len() {
            let stopped = order[(pair + at) % order.len()];
            let read = reply(tns, model, pace, stopped).await?;
            let (p50, p99) = (shown(read.p50), shown(read.p99));
            eprintln!("pair {pair}, {stopped:?} stopped: p50 {p50} ms, p99 {p99} ms, {:.2} MiB", read.growth);
            if stopped == Stopped::One { with.add(&read) } else { without.add(&read) }
        }
    }
    for (what, ours, alone, must) in [
        ("p50", &with.p50, &without.p50, None),
        ("p99", &with.p99, &without.p99, Some(Must::AtMost(MOST_LATE))),
    ] {
        let (ours, alone) = (median(ours), median(alone));
        report.ratio(
            &format!("token to {READERS} readers while one never reads, {what}, ms"),
            shown(ours),
            format!("without it {}", shown(alone)),
            ours / alone,
            must,
        );
    }
    let (ours, alone) = (median(&with.growth), median(&without.growth));
    report.ratio(
        &format!("MiB more for one that never reads {} tokens", pace.tokens),
        format!("{ours:.2}"),
        format!("without it {alone:.2}"),
        ours - alone,
        Some(Must::AtMost(MOST_MEMORY)),
    );
    Ok(())
}

fn shown(seconds: f64) -> String {
    format!("{:.2}", seconds * 1e3)
}

async fn reply(tns: &Path, model: &Model, pace: Pace, stopped: Stopped) -> Result<Read> {
    let server = Running::start(tns, &["serve", "--port", "0"], model)?;
    // The first reply brings what every one shares.
    let mut speaker = Socket::connect(server.port).await?;
    speaker.chat(SESSION, "hi [[tokens=100]]").await?;
    let mut readers = Vec::with_capacity(READERS);
    for _ in 1..READERS {
        let mut reader = Socket::connect(server.port).await?;
        reader.join(SESSION).await?;
        readers.push(reader);
    }
    let stopped = match stopped {
        Stopped::One => Some(join_and_stop(server.port).await),
        Stopped::None => None,
    };
    model.take_written();
    let before = server.memory()?;
    let Pace { tokens, rate } = pace;
    speaker.say(SESSION, &format!("hi [[tokens={tokens} rate={rate} noted=1]]")).await?;
    readers.push(speaker);
    let mut reading: JoinSet<Result<Vec<Instant>>> =
        readers.into_iter().map(|mut reader| async move { reader.follow().await }).collect();
    let mut came = Vec::with_capacity(READERS);
    let mut most = before;
    let mut looks = tokio::time::interval(LOOK);
    while came.len() < READERS {
        tokio::select! {
            read = reading.join_next() => came.push(read.context("a reader")???),
            _ = looks.tick() => most = most.max(server.memory()?),
        }
    }
    most = most.max(server.memory()?);
    drop(stopped);
    let written = model.take_written();
    let mut late = Vec::with_capacity(READERS * tokens);
    for came in &came {
        ensure!(came.len() == tokens && written.len() == tokens, "{} of {tokens} tokens came", came.len());
        late.extend(came.iter().zip(&written).map(|(came, written)| (*came - *written).as_secs_f64()));
    }
    late.sort_by(f64::total_cmp);
    let quantile = |part: f64| late[((late.len() - 1) as f64 * part).round() as usize];
    Ok(Read { p50: quantile(0.5), p99: quantile(0.99), growth: (most - before) / 1024.0 })
}

/// Joins the session as a client that knows the log, and reads nothing.
async fn join_and_stop(port: u16) -> tns_tests::Socket {
    let mut stopped = tns_tests::Socket::connect_slow(&format!("127.0.0.1:{port}")).await;
    stopped.send(SESSION, "hello", json!({ "ext": ["events.1"] })).await;
    stopped.expect("welcome").await;
    stopped
}
