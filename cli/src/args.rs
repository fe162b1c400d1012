//! The command line: the options that hold for every command, and how their values are read.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, ValueEnum};
use tns_protocol::SessionId;

use crate::commands::Command;

/// A home for AI agents in the terminal
///
/// Answers go to standard output, everything else to standard error.
#[derive(Debug, Parser)]
#[command(name = "tns", version, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) globals: Globals,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options that hold for every command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Globals {
    /// Use the server at this address instead of the one of the data folder
    #[arg(long, global = true, value_name = "URL", env = "TNS_SERVER", hide_env_values = true)]
    pub(crate) server: Option<String>,
    /// Use this session instead of the folder's own
    #[arg(long, global = true, value_name = "ID", env = "TNS_SESSION", hide_env_values = true)]
    #[arg(value_parser = parse_session)]
    pub(crate) session: Option<SessionId>,
    /// Keep everything in this folder
    #[arg(long, global = true, value_name = "DIR", env = "TNS_DATA_DIR", hide_env_values = true)]
    pub(crate) data_dir: Option<PathBuf>,
    /// Read this config file instead of the user's own
    #[arg(long, global = true, value_name = "FILE", env = "TNS_CONFIG", hide_env_values = true)]
    pub(crate) config: Option<PathBuf>,
    /// Print data as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print no notes, only the answer and errors
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Log to standard error; twice for more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// When to use colours: on a terminal that has them unless NO_COLOR is set, always, or never
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value = "auto")]
    pub(crate) color: ColorChoice,
}

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorChoice {
    Auto,
    Always,
    Never,
}

/// Reads a session's id.
pub(crate) fn parse_session(text: &str) -> Result<SessionId, String> {
    SessionId::parse(text).map_err(|error| error.to_string())
}

/// Reads a length of time: a whole number with `ms`, `s`, `m` or `h`, or of seconds.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let rule = "must be a number with ms, s, m or h, such as 90s or 30m";
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| rule.to_owned())?;
    let millis = match unit {
        "ms" => Some(number),
        "" | "s" => number.checked_mul(1_000),
        "m" => number.checked_mul(60_000),
        "h" => number.checked_mul(3_600_000),
        _ => return Err(rule.to_owned()),
    };
    // A year is no waiting time, and stays far from what a clock can't add.
    match millis.filter(|millis| *millis <= MAX_DURATION_MS) {
        Some(millis) => Ok(Duration::from_millis(millis)),
        None => Err("must be at most a year".into()),
    }
}

/// Longest time that an option takes: a year, in milliseconds.
const MAX_DURATION_MS: u64 = 365 * 24 * 3_600_000;

/// Reads a length of time that must not be zero.
pub(crate) fn parse_positive_duration(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("must be more than zero".into()),
        duration => Ok(duration),
    }
}

/// Most dollars that an option takes.
const MAX_DOLLARS: f64 = 1e9;

/// Reads an amount of US dollars, such as 5 or 0.25. 0 lets only free models work.
pub(crate) fn parse_dollars(text: &str) -> Result<f64, String> {
    let amount: Option<f64> = text.trim().parse().ok();
    amount
        .filter(|amount| (0.0..=MAX_DOLLARS).contains(amount))
        .ok_or_else(|| "must be an amount of dollars, such as 5 or 0.25".into())
}

#[cfg(test)]
mod tests;
