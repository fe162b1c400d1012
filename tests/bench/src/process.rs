//! Whole processes: how long `--version` and one prompt take, beside another client where one is
//! installed and beside `true`, the least that a process costs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::model::Model;
use crate::report::{Must, Report, median};

/// A client of the same shape, measured where it is on the path.
const PEER: &str = "aichat";

/// Measures `--version` and `run`.
pub(crate) fn measure(tns: &Path, model: &Model, rounds: usize, report: &mut Report) -> Result<()> {
    let home = TempDir::new()?;
    let peer = find(PEER);
    if let Some(peer) = &peer {
        configure_peer(home.path(), model)?;
        let (ours, theirs) = pairs(
            rounds,
            || command(tns, home.path(), model, &["--version"]),
            || command(peer, home.path(), model, &["--version"]),
        )?;
        report.ratio(
            "`--version`, wall ms",
            ms(ours),
            format!("{PEER} {}", ms(theirs)),
            ours / theirs,
            Some(Must::AtMost(1.5)),
        );
        let (ours, theirs) = pairs(
            rounds,
            || command(tns, home.path(), model, &["-q", "run", "hi [[tokens=200]]"]),
            || command(peer, home.path(), model, &["hi [[tokens=200]]"]),
        )?;
        report.ratio(
            "one prompt, 200 tokens, wall ms",
            ms(ours),
            format!("{PEER} {}", ms(theirs)),
            ours / theirs,
            Some(Must::AtMost(1.25)),
        );
        return Ok(());
    }
    report.figure("peer", format!("{PEER} is not installed; `true` stands beside instead"));
    let floor = find("true").context("find `true`")?;
    for (what, args) in [
        ("`--version`, wall ms", &["--version"][..]),
        ("one prompt, 200 tokens, wall ms", &["-q", "run", "hi [[tokens=200]]"]),
    ] {
        let (ours, theirs) = pairs(
            rounds,
            || command(tns, home.path(), model, args),
            || command(&floor, home.path(), model, &[]),
        )?;
        report.ratio(what, ms(ours), format!("true {}", ms(theirs)), ours / theirs, None);
    }
    Ok(())
}

fn ms(seconds: f64) -> String {
    format!("{:.1}", seconds * 1e3)
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|path| path.is_file())
}

fn command(program: &Path, home: &Path, model: &Model, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(args)
        .env_clear()
        .env("HOME", home)
        .env("PATH", "/usr/bin:/bin")
        .env("PROVIDER_BASE_URL_OPENAI_COMPATIBLE", model.base_url())
        .env("TNS_PROVIDER", "openai-compatible")
        .env("TNS_MODEL", "bench")
        .current_dir(home)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

fn configure_peer(home: &Path, model: &Model) -> Result<()> {
    let folder = home.join(".config").join(PEER);
    fs::create_dir_all(&folder)?;
    let config = format!(
        "model: bench:bench\nclients:\n- type: openai-compatible\n  name: bench\n  api_base: {}\n  models:\n  - name: bench\n",
        model.base_url()
    );
    fs::write(folder.join("config.yaml"), config).context("write the peer's configuration")
}

/// Runs both in turn and returns the medians of their wall times in seconds; the first pair warms up.
fn pairs(rounds: usize, ours: impl Fn() -> Command, theirs: impl Fn() -> Command) -> Result<(f64, f64)> {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let (one, two) = (time(ours())?, time(theirs())?);
        if round > 0 {
            a.push(one);
            b.push(two);
        }
    }
    Ok((median(&a), median(&b)))
}

fn time(mut command: Command) -> Result<f64> {
    let began = Instant::now();
    let status = command.status().with_context(|| format!("run {command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(began.elapsed().as_secs_f64())
}
