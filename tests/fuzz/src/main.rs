//! Throws broken answers at the decoders of every wire: recorded and hand-made ones, changed at random but
//! with an eye for events, JSON and UTF-8. No network and no special compiler; one seed gives one run. Ends
//! with status 1 at the first input that breaks a rule, which it makes small, prints and saves.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a fuzzer talks to its terminal")]

mod campaign;
mod mutate;
mod oracle;
mod random;
mod reference;
mod seeds;
mod target;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;

use crate::campaign::{Campaign, Found};
use crate::target::Target;

/// Longest that one input may take; what takes longer would hold a server up.
const SLOW: Duration = Duration::from_secs(2);
/// Most memory that the whole process may ever use, in MiB: inputs are a few KiB.
const MAX_MEMORY_MIB: u64 = 512;

/// Throws broken answers at the decoders
#[derive(Parser)]
struct Args {
    /// anthropic, openai, openai-compatible, gemini, ollama, sse, arguments, or all
    #[arg(default_value = "all")]
    target: String,
    /// Inputs for each target
    #[arg(long, default_value_t = 1_000_000)]
    inputs: u64,
    /// Where the random numbers begin
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where an input that breaks a rule is saved
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    save: PathBuf,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let targets = Target::named(&args.target)
        .with_context(|| format!("there is no target {}; see --help", args.target))?;
    println!("| target | inputs | inputs/s | kinds of answers | peak memory, MiB |\n|---|---|---|---|---|");
    for target in targets {
        let campaign = Campaign { target, inputs: args.inputs, seed: args.seed, slow: Some(SLOW) };
        match campaign.run() {
            Ok(done) => {
                let rate = args.inputs as f64 / done.took.as_secs_f64();
                let memory = peak_memory_mib()?;
                println!("| {} | {} | {rate:.0} | {} | {memory} |", target.name(), args.inputs, done.kinds);
                anyhow::ensure!(
                    memory <= MAX_MEMORY_MIB,
                    "more than {MAX_MEMORY_MIB} MiB of memory were used"
                );
            }
            Err(found) => {
                report(&found, &args)?;
                std::process::exit(1);
            }
        }
    }
    Ok(())
}

fn report(found: &Found, args: &Args) -> Result<()> {
    let name = format!("fuzz-{}-{}-{}.bin", found.target.name(), args.seed, found.number);
    let path = args.save.join(name);
    std::fs::write(&path, &found.input).with_context(|| format!("save {}", path.display()))?;
    eprintln!(
        "{} breaks a rule at input {} of seed {}: {}\n{}\nsaved in {}",
        found.target.name(),
        found.number,
        args.seed,
        found.rule,
        found.input.escape_ascii(),
        path.display()
    );
    Ok(())
}

/// Returns the most memory that this process ever used.
fn peak_memory_mib() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").context("read the process's own status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("find its peak memory")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().context("read its peak memory")?;
    Ok(kib / 1024)
}
