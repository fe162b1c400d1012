//! Measures what tns costs, always beside something else in the same run: a bare relay that stores
//! nothing, the disk's own flush, and another client where one is installed. Prints ratios of medians
//! as Markdown and ends with status 1 when one misses what it must hold. Loopback only.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a measuring program talks to its terminal")]

mod decode;
mod model;
mod process;
mod readers;
mod relay;
mod report;
mod server;
mod socket;
mod store;
mod wires;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

use crate::readers::Pace;
use crate::report::Report;

/// Measures tns beside a bare relay and, where installed, other clients
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    what: What,
    /// The program to measure; by default the `tns` beside this program
    #[arg(long, global = true)]
    tns: Option<PathBuf>,
    /// Rounds of each measurement
    #[arg(long, global = true, default_value_t = 11)]
    rounds: usize,
}

/// Size of the store's corpus: what a person gathers in years.
const SESSIONS: usize = 10_000;
const EVENTS: usize = 1_000_000;

/// The reply that many read: twenty seconds of it, at a rate that leaves a processor or two room.
const TOKENS: usize = 20_000;
const RATE: usize = 1_000;

#[derive(Clone, Copy, Subcommand)]
enum What {
    /// Everything below, one after another
    All,
    /// Whole processes: `--version` and `run`
    Process,
    /// The server: time to first token, tokens a second, memory
    Server,
    /// The decoders of every wire
    Decode,
    /// The server on every wire: what it adds to a provider's tokens
    Wires,
    /// The store beside bare SQLite: appends, pages, lists and full text over a large corpus
    Store {
        /// Sessions of the corpus
        #[arg(long, default_value_t = SESSIONS)]
        sessions: usize,
        /// Events of the corpus, in all sessions together
        #[arg(long, default_value_t = EVENTS)]
        events: usize,
    },
    /// Fifty readers of one reply, beside the same with one more that never reads
    Readers {
        /// Tokens of the reply
        #[arg(long, default_value_t = TOKENS)]
        tokens: usize,
        /// Tokens a second
        #[arg(long, default_value_t = RATE)]
        rate: usize,
    },
    /// Be the bare relay between this port and a model server's
    #[command(hide = true)]
    Relay {
        /// The model server's port
        model: u16,
    },
}

fn main() -> Result<()> {
    let args = Args::parse();
    // Another part of the process may have installed it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(run(args))
}

async fn run(args: Args) -> Result<()> {
    if let What::Relay { model } = args.what {
        return relay::run(model).await;
    }
    let mut report = Report::default();
    if let What::Store { sessions, events } = args.what {
        store::measure(sessions, events, args.rounds, &mut report).await?;
        return finish(&report);
    }
    let tns = match args.tns {
        Some(path) => path,
        None => std::env::current_exe()?.with_file_name("tns"),
    };
    let tns = tns
        .canonicalize()
        .with_context(|| format!("find {}; build it, or name it with --tns", tns.display()))?;
    let model = model::start().await?;
    if matches!(args.what, What::All | What::Process) {
        process::measure(&tns, &model, args.rounds, &mut report)?;
    }
    if matches!(args.what, What::All | What::Server) {
        server::measure(&tns, &model, args.rounds, &mut report).await?;
    }
    if matches!(args.what, What::All | What::Decode) {
        decode::measure(args.rounds, &mut report)?;
    }
    if matches!(args.what, What::All | What::Wires) {
        wires::measure(&tns, args.rounds, &mut report).await?;
    }
    let pace = match args.what {
        What::Readers { tokens, rate } => Some(Pace { tokens, rate }),
        What::All => Some(Pace { tokens: TOKENS, rate: RATE }),
        _ => None,
    };
    if let Some(pace) = pace {
        readers::measure(&tns, &model, args.rounds.div_ceil(2), pace, &mut report).await?;
    }
    if matches!(args.what, What::All) {
        store::measure(SESSIONS, EVENTS, args.rounds, &mut report).await?;
    }
    finish(&report)
}

fn finish(report: &Report) -> Result<()> {
    report.print();
    if report.failed() {
        std::process::exit(1);
    }
    Ok(())
}
