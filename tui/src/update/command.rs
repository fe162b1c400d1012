//! Commands of the composer: a line that begins with `/`. One table names them and writes their help.
#![warn(clippy::wildcard_enum_match_arm)]

use tns_protocol::agent::AgentStatus;
use tns_protocol::approval::{AutonomyLevel, SetAutonomy};
use tns_protocol::session::Compact;

use crate::model::{Effect, Model, Page};
use crate::sanitize;
use crate::theme::Role;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Help,
    Agents,
    Autonomy,
    Reasoning,
    Clear,
    Compact,
    Quit,
}

/// One command.
pub(crate) struct Command {
    name: &'static str,
    verb: Verb,
    /// How it is written.
    pub(crate) usage: &'static str,
    /// What it does.
    pub(crate) help: &'static str,
}

/// The table.
pub(crate) const COMMANDS: &[Command] = &[
    Command { name: "help", verb: Verb::Help, usage: "/help", help: "keys and commands" },
    Command { name: "agents", verb: Verb::Agents, usage: "/agents", help: "who is in this session" },
    Command {
        name: "autonomy",
        verb: Verb::Autonomy,
        usage: "/autonomy LEVEL",
        help: "full_auto, supervised, cautious or manual; without LEVEL: which holds",
    },
    Command {
        name: "reasoning",
        verb: Verb::Reasoning,
        usage: "/reasoning",
        help: "show all of what the model thinks, or one row",
    },
    Command {
        name: "clear",
        verb: Verb::Clear,
        usage: "/clear",
        help: "empty this screen; nothing is deleted",
    },
    Command {
        name: "compact",
        verb: Verb::Compact,
        usage: "/compact",
        help: "summarise what was said so far, so that the model goes on with less",
    },
    Command { name: "quit", verb: Verb::Quit, usage: "/quit", help: "leave; the session stays" },
];

/// Runs a line that begins with `/`.
pub(super) fn run(model: &mut Model, line: &str) -> Vec<Effect> {
    let mut words = line.trim_start_matches('/').split_whitespace();
    let name = words.next().unwrap_or_default();
    let arguments: Vec<&str> = words.collect();
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        model.transcript.notice(Role::Warn, &format!("/{name} is not known; /help lists the commands"));
        return Vec::new();
    };
    match (command.verb, arguments.as_slice()) {
        (Verb::Help, []) => model.page = Some(Page::Help(0)),
        (Verb::Agents, []) => agents(model),
        (Verb::Clear, []) => model.transcript.clear(),
        (Verb::Reasoning, []) => model.transcript.fold_reasoning(),
        (Verb::Compact, []) => return vec![Effect::Send(Box::new(Compact::default().into()))],
        (Verb::Quit, []) => return vec![Effect::Quit],
        (Verb::Autonomy, []) => {
            let level = model.status.autonomy.map_or("not known yet", AutonomyLevel::as_str);
            model.transcript.notice(Role::Text, &format!("autonomy is {level}; {}", command.usage));
        }
        (Verb::Autonomy, [level]) => {
            let wanted = level.to_uppercase().replace('-', "_");
            match AutonomyLevel::parse(&wanted) {
                Some(level) => {
                    let message = SetAutonomy { level: level.as_str().to_owned() };
                    return vec![Effect::Send(Box::new(message.into()))];
                }
                None => {
                    let levels = AutonomyLevel::ALL.map(|level| level.as_str().to_lowercase()).join(", ");
                    model.transcript.notice(Role::Warn, &format!("{level} is no level; there are {levels}"));
                }
            }
        }
        (
            Verb::Help
            | Verb::Agents
            | Verb::Reasoning
            | Verb::Clear
            | Verb::Compact
            | Verb::Quit
            | Verb::Autonomy,
            _,
        ) => {
            model.transcript.notice(Role::Warn, &format!("write {}", command.usage));
        }
    }
    Vec::new()
}

fn agents(model: &mut Model) {
    if model.roster.is_empty() {
        return model.transcript.notice(Role::Text, "no agent yet: the first message brings one");
    }
    let rows: Vec<String> = model
        .roster
        .iter()
        .map(|agent| {
            let status = match agent.status {
                AgentStatus::Thinking => "thinking",
                AgentStatus::Idle => "idle",
            };
            sanitize::line(&format!(
                "{} ({}) · {}/{} · {status}",
                agent.name, agent.role, agent.provider, agent.model
            ))
        })
        .collect();
    model.transcript.notice(Role::Text, &rows.join("\n"));
}
