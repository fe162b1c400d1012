//! `tns serve`: the server as a program of its own.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;
use tns_server::{DEFAULT_PORT, EngineChoice, EngineLabel, Pricing, ServerConfig};

use crate::args::{parse_dollars, parse_duration};
use crate::config::Config;
use crate::data_dir::DataDir;
use crate::exit::{Exit, Stop};
use crate::server::{Kind, Owned};
use crate::signals::Signals;
use crate::workspace::Folder;
use crate::{Context, logging, server};

/// Serve chats to the terminals of this machine
///
/// Prints one line with the address on stdout when it is ready. SIGTERM and Ctrl-C let running turns end for up to
/// five seconds; a second one stops at once.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The port; 0 takes a free one
    #[arg(long, default_value_t = DEFAULT_PORT)]
    port: u16,
    /// The address; only this machine's own
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    bind: IpAddr,
    /// A folder that tools may work in, again for more; the current folder when absent
    #[arg(long = "root", value_name = "DIR")]
    roots: Vec<PathBuf>,
    /// Whose models new agents use; chosen by what is set up when absent
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Which model new agents use
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Erase sessions that nobody has used for so many days; kept when absent
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..))]
    retention_days: Option<u32>,
    /// Stop after this time without work and connections; 0 never stops
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = parse_duration)]
    idle_timeout: Duration,
    /// Most that all sessions may spend a day (UTC) together, in US dollars; else TNS_DAILY_CAP
    #[arg(long, value_name = "USD", value_parser = parse_dollars)]
    daily_cap: Option<f64>,
    /// Most that each session may spend, in US dollars; else TNS_SESSION_CAP
    #[arg(long, value_name = "USD", value_parser = parse_dollars)]
    session_cap: Option<f64>,
    /// Let FULL_AUTO sessions run tools where no sandbox holds them
    #[arg(long)]
    dangerously_unsandboxed: bool,
}

/// What `--json` prints when the server is ready.
#[derive(Serialize)]
struct Listening<'a> {
    url: &'a str,
    pid: u32,
    version: &'a str,
    provider: &'a str,
    model: &'a str,
}

pub(crate) fn run(args: Args, context: &Context) -> anyhow::Result<()> {
    if context.globals.server.is_some() {
        return Err(
            Stop::usage("tns serve starts a server of its own; leave --server and TNS_SERVER out").into()
        );
    }
    if !args.bind.is_loopback() {
        let address = args.bind;
        return Err(Stop::usage(format!(
            "--bind {address} would open the server to other machines; use 127.0.0.1 or ::1, and a tunnel from afar"
        ))
        .into());
    }
    let roots = roots(&args.roots)?;
    logging::start(context, logging::Unasked::Warnings)?;
    let settings =
        Config::load(&context.globals, EngineChoice { provider: args.provider, model: args.model })?;
    let dir = DataDir::open(context.globals.data_dir.as_deref())?;
    let lock = Owned::lock(&dir)?;
    let config = ServerConfig {
        bind: args.bind,
        port: args.port,
        roots,
        idle_timeout: (!args.idle_timeout.is_zero()).then_some(args.idle_timeout),
        unsandboxed: args.dangerously_unsandboxed,
        retention: args.retention_days.map(|days| Duration::from_secs(u64::from(days) * 86_400)),
        ..ServerConfig::new(
            dir.path().to_owned(),
            Folder::current()?.path().to_owned(),
            server::exec_helper()?,
        )
    };
    let mut config = settings.apply(config);
    config.spend_daily = args.daily_cap.or(config.spend_daily);
    config.spend_session = args.session_cap.or(config.spend_session);
    server::block_on(async {
        let mut signals = Signals::listen()?;
        let owned = Owned::start(&dir, lock, config, Kind::StandsAlone).await?;
        let EngineLabel { provider, model, reason, pricing } = owned.running().engine();
        let version = env!("CARGO_PKG_VERSION");
        if context.out.json {
            let pid = std::process::id();
            context.out.json(&Listening { url: owned.url(), pid, version, provider, model })?;
        } else {
            context.out.data(&format!("tns {version} listening on {} · engine {provider}\n", owned.url()))?;
        }
        context.out.note(&format!("model {model}: {reason}"));
        if *pricing == Pricing::Unknown {
            context.out.warn(&unpriced(provider, model));
        }
        context.out.note(&format!("data folder {}", dir.path().display()));
        tokio::select! {
            () = owned.running().idle() => context.out.note("stopped: nothing was asked for a while"),
            () = signals.next() => context.out.note("stopping; once more stops at once"),
        }
        owned.drain(&mut signals).await;
        Ok(())
    })
}

/// What is said once of a default model that no limit can count.
fn unpriced(provider: &str, model: &str) -> String {
    format!(
        "no price is known for {provider} {model}: what it costs is not counted, and under a spending limit it is \
         not called; price it under [prices] in the config"
    )
}

fn roots(given: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    if given.is_empty() {
        return Ok(vec![Folder::current()?.path().to_owned()]);
    }
    given
        .iter()
        .map(|root| {
            let path =
                std::fs::canonicalize(root).with_context(|| format!("open --root {}", root.display()))?;
            if path.is_dir() {
                Ok(path)
            } else {
                Err(Stop::new(Exit::Usage, format!("--root {} is not a folder", root.display())).into())
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_folders_that_exist() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(roots(&[dir.path().to_owned()]).unwrap(), [dir.path().canonicalize().unwrap()]);
        assert!(roots(&[file]).is_err());
        assert!(roots(&[dir.path().join("missing")]).is_err());
        assert_eq!(roots(&[]).unwrap(), [std::env::current_dir().unwrap().canonicalize().unwrap()]);
    }
}
