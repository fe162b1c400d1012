//! The `tns` command: reads the arguments, runs one command, says what went wrong and picks the exit code.
//!
//! Nothing is set up before it is needed: a command that only prints starts no runtime, and one that talks
//! to a server loads no certificates and, unless asked, no logging.

mod args;
mod commands;
mod config;
mod data_dir;
mod exit;
mod keyring;
mod logging;
mod output;
mod server;
mod signals;
mod terminal;
mod workspace;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Globals};
use crate::output::Output;

/// The hidden first argument with which the server starts this program again, to confine one tool's process.
const EXEC_HELPER: &str = "__exec";

/// What every command is given.
#[derive(Debug)]
pub(crate) struct Context {
    /// The options that hold for every command.
    pub(crate) globals: Globals,
    /// Where answers and notes go.
    pub(crate) out: Output,
}

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|first| first == EXEC_HELPER) {
        return tns_server::exec_helper::run();
    }
    if tns_server::RUNS_LOCAL_MODELS {
        with_model_threads();
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(message) => return output::usage(&message),
    };
    let context = Context { out: Output::new(&cli.globals), globals: cli.globals };
    match commands::run(cli.command, &context) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let exit = exit::of(&error);
            if let Some(text) = exit::describe(&error) {
                context.out.error(&text);
            }
            ExitCode::from(exit.code())
        }
    }
}

/// How many threads local models may use; their library reads it from the environment alone.
const MODEL_THREADS: &str = "CANDLE_NUM_THREADS";

/// Becomes this program once more, with a core left to the server: threads that wait for each other on a
/// busy machine are slower than one. What the user set stays.
fn with_model_threads() {
    use std::os::unix::process::CommandExt as _;

    if std::env::var_os(MODEL_THREADS).is_some() {
        return;
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let Ok(program) = std::env::current_exe() else { return };
    let mut args = std::env::args_os();
    let mut again = std::process::Command::new(program);
    if let Some(name) = args.next() {
        again.arg0(name);
    }
    // It only returns when that fails; then the library decides.
    let _ = again.args(args).env(MODEL_THREADS, cores.saturating_sub(1).max(1).to_string()).exec();
}
