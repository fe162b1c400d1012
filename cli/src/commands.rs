//! The commands, one file each, and the match that runs them.

mod agents;
mod audit;
mod chat;
mod config;
mod doctor;
mod exchange;
mod kb;
mod models;
mod providers;
mod rules;
mod run;
mod schema;
mod serve;
mod sessions;
mod stats;

use clap::Subcommand;

use crate::Context;

/// What can be asked of the program.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Serve(serve::Args),
    Chat(chat::Args),
    Run(run::Args),
    Kb(kb::Args),
    Models(models::Args),
    Agents(agents::Args),
    Sessions(sessions::Args),
    Audit(audit::Args),
    Rules(rules::Args),
    Providers(providers::Args),
    Stats(stats::Args),
    Config(config::Args),
    Doctor(doctor::Args),
    Schema(schema::Args),
}

/// Runs a command to its end.
pub(crate) fn run(command: Command, context: &Context) -> anyhow::Result<()> {
    match command {
        Command::Serve(args) => serve::run(args, context),
        Command::Chat(args) => chat::run(args, context),
        Command::Run(args) => run::run(args, context),
        Command::Kb(args) => kb::run(args, context),
        Command::Models(args) => models::run(args, context),
        Command::Agents(args) => agents::run(args, context),
        Command::Sessions(args) => sessions::run(args, context),
        Command::Audit(args) => audit::run(args, context),
        Command::Rules(args) => rules::run(args, context),
        Command::Providers(args) => providers::run(args, context),
        Command::Stats(args) => stats::run(args, context),
        Command::Config(args) => config::run(args, context),
        Command::Doctor(args) => doctor::run(args, context),
        Command::Schema(args) => schema::run(args, context),
    }
}
