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
