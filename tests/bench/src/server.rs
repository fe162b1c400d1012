//! The server beside the bare relay: time to first token, tokens a second, processor time a token,
//! memory when idle, for each idle connection and for each idle session.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::model::Model;
use crate::report::{Must, Report, median};
use crate::socket::Socket;

/// Idle connections, and idle sessions, that memory is taken of.
const IDLE: usize = 1_000;
/// From here on a flush, in seconds, is what the first token waits for.
const SLOW_FLUSH: f64 = 1e-3;
/// Sessions that one connection has in use.
const SESSIONS_A_SOCKET: usize = 100;
/// Tokens of the long reply.
const LONG: usize = 20_000;
/// Clock ticks a second of `/proc/PID/stat`: the kernel's USER_HZ, 100 on every Linux that matters.
const TICKS: f64 = 100.0;

/// A process that is killed when it is dropped.
pub(crate) struct Running {
    child: Child,
    pub(crate) port: u16,
    _home: TempDir,
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// Starts a program that is told where the model is and prints its port.
    pub(crate) fn start(program: &Path, args: &[&str], model: &Model) -> Result<Self> {
        let variables = [
            ("PROVIDER_BASE_URL_OPENAI_COMPATIBLE".to_owned(), model.base_url()),
            ("TNS_PROVIDER".to_owned(), "openai-compatible".to_owned()),
            ("TNS_MODEL".to_owned(), "bench".to_owned()),
        ];
        Self::start_with(program, args, &variables)
    }

    /// Starts a program that prints its port on its first line, with these variables and hardly any other.
    pub(crate) fn start_with(program: &Path, args: &[&str], variables: &[(String, String)]) -> Result<Self> {
        let home = TempDir::new()?;
        let mut child = Command::new(program)
            .args(args)
            .env_clear()
            .env("HOME", home.path())
            .env("PATH", "/usr/bin:/bin")
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .current_dir(home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("its output")?).read_line(&mut line)?;
        let digits = line.trim().rsplit(':').next().unwrap_or_default();
        let port: String = digits.chars().take_while(char::is_ascii_digit).collect();
        let port = port.parse().with_context(|| format!("find a port in {line:?}"))?;
        Ok(Self { child, port, _home: home })
    }

    /// Returns its proportional memory in KiB.
    pub(crate) fn memory(&self) -> Result<f64> {
        let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", self.child.id()))?;
        let line = text.lines().find(|line| line.starts_with("Pss:")).context("Pss")?;
        line.split_whitespace().nth(1).context("Pss")?.parse().context("Pss")
    }

    /// Processor time so far, in seconds.
    fn processor(&self) -> Result<f64> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // The program's name, in parentheses, may hold spaces; user and system time are fields 14 and 15.
        let (_, fields) = text.rsplit_once(')').context("stat")?;
        let ticks: Vec<f64> =
            fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
        Ok(ticks.iter().sum::<f64>() / TICKS)
    }
}

/// Measures the server beside the relay.
pub(crate) async fn measure(tns: &Path, model: &Model, rounds: usize, report: &mut Report) -> Result<()> {
    let port = model.port.to_string();
    let relay = Running::start(&std::env::current_exe()?, &["relay", &port], model)?;
    let server = Running::start(tns, &["serve", "--port", "0"], model)?;
    report.figure("server, idle after start, MiB", format!("{:.1}", server.memory()? / 1024.0));
    first_token(&server, &relay, model, rounds, report).await?;
    long_reply(&server, &relay, model, rounds, report).await?;
    memory(tns, model, report).await
}

async fn added(running: &Running, model: &Model, session: &str, ttft: u64, rounds: usize) -> Result<f64> {
    let mut socket = Socket::connect(running.port).await?;
    let mut values = Vec::new();
    for round in 0..=rounds * 3 {
        model.take_last();
        let reply = socket.chat(session, &format!("hi [[tokens=40 rate=400 ttft={ttft}]]")).await?;
        let call = model.take_last().context("the model was called")?;
        let added = (reply.first - reply.sent).as_secs_f64() - (call.first - call.received).as_secs_f64();
        if round > 0 {
            values.push(added);
        }
    }
    Ok(median(&values))
}

async fn first_token(
    server: &Running,
    relay: &Running,
    model: &Model,
    rounds: usize,
    report: &mut Report,
) -> Result<()> {
    // With a model that takes 20 ms to its first token the commit runs beside it.
    let ours = added(server, model, "ttft", 20, rounds).await?;
    let floor = added(relay, model, "ttft", 20, rounds).await?;
    let difference = (ours - floor) * 1e3;
    let shown = |seconds: f64| format!("{:.2}", seconds * 1e3);
    report.ratio(
        "added to first token, ms (as ms over the relay)",
        shown(ours),
        format!("relay {}", shown(floor)),
        difference,
        Some(Must::AtMost(2.0)),
    );
    // With one that answers at once, the first token waits for the disk.
    let flush = flush_time(rounds * 3)?;
    let ours = added(server, model, "ttft-0", 0, rounds).await?;
    report.ratio(
        "added to first token, model at once, ms",
        shown(ours),
        format!("one fdatasync {}", shown(flush)),
        ours / flush,
        // A flush that is quicker than the relay's own way says nothing about ours.
        (flush >= SLOW_FLUSH).then_some(Must::AtMost(1.5)),
    );
    Ok(())
}

/// Returns the median time of one small append and flush, in seconds.
fn flush_time(rounds: usize) -> Result<f64> {
    let mut file = tempfile::tempfile()?;
    let mut values = Vec::new();
    for _ in 0..rounds {
        file.write_all(&[7; 400])?;
        let began = Instant::now();
        file.sync_data()?;
        values.push(began.elapsed().as_secs_f64());
    }
    Ok(median(&values))
}

async fn long_reply(
    server: &Running,
    relay: &Running,
    model: &Model,
    rounds: usize,
    report: &mut Report,
) -> Result<()> {
    let (ours, our_cpu) = throughput(server, model, rounds).await?;
    let (floor, floor_cpu) = throughput(relay, model, rounds).await?;
    report.ratio(
        "tokens/s, one reply of 20,000",
        format!("{ours:.0}"),
        format!("relay {floor:.0}"),
        ours / floor,
        Some(Must::AtLeast(0.4)),
    );
    report.ratio(
        "processor µs a token",
        format!("{:.1}", our_cpu * 1e6),
        format!("relay {:.1}", floor_cpu * 1e6),
        our_cpu / floor_cpu,
        Some(Must::AtMost(3.0)),
    );
    Ok(())
}

async fn throughput(running: &Running, model: &Model, rounds: usize) -> Result<(f64, f64)> {
    let mut rates = Vec::new();
    let mut processor = Vec::new();
    for round in 0..=rounds.div_ceil(2) {
        let mut socket = Socket::connect(running.port).await?;
        let before = running.processor()?;
        model.take_last();
        let reply = socket.chat(&format!("long-{round}"), &format!("hi [[tokens={LONG}]]")).await?;
        anyhow::ensure!(reply.tokens == LONG, "{} of {LONG} tokens came", reply.tokens);
        // From the model's first token, not from the client's: what is held back until the message is
        // stored comes in one go afterwards, which is no speed.
        let began = model.take_last().context("the model was called")?.first;
        if round > 0 {
            rates.push(LONG as f64 / (reply.last - began).as_secs_f64());
            processor.push((running.processor()? - before) / LONG as f64);
        }
    }
    // Processor time comes in ticks of 10 ms, so the mean of all rounds is the better figure.
    Ok((median(&rates), processor.iter().sum::<f64>() / processor.len() as f64))
}

async fn memory(tns: &Path, model: &Model, report: &mut Report) -> Result<()> {
    let server = Running::start(tns, &["serve", "--port", "0"], model)?;
    // The first connection brings what every one shares.
    let _warm = Socket::connect(server.port).await?;
    settle().await;
    let before = server.memory()?;
    let mut sockets = Vec::with_capacity(IDLE);
    for _ in 0..IDLE {
        sockets.push(Socket::connect(server.port).await?);
    }
    settle().await;
    let each = (server.memory()? - before) / IDLE as f64;
    report.ratio(
        "KiB for each idle connection (1,000)",
        format!("{each:.1}"),
        "must 15, aim 6".into(),
        each,
        Some(Must::AtMost(15.0)),
    );
    drop(sockets);
    settle().await;
    // A connection may send 200 messages at once, so the sessions are spread over some.
    let mut sockets = Vec::new();
    for _ in 0..IDLE / SESSIONS_A_SOCKET {
        sockets.push(Socket::connect(server.port).await?);
    }
    sockets[0].chat("warm", "hi [[tokens=2]]").await?;
    let before = server.memory()?;
    for (at, socket) in sockets.iter_mut().enumerate() {
        for session in 0..SESSIONS_A_SOCKET {
            socket.chat(&format!("idle-{at}-{session}"), "hi [[tokens=2]]").await?;
        }
    }
    settle().await;
    let each = (server.memory()? - before) / IDLE as f64;
    report.ratio(
        "KiB for each session in use (1,000)",
        format!("{each:.1}"),
        "must 21, aim 7".into(),
        each,
        Some(Must::AtMost(21.0)),
    );
    Ok(())
}

/// Lets the server finish what it does when connections come and go.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(500)).await;
}
