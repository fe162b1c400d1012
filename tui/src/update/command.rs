//! Commands of the composer: a line that begins with `/`. One table names them and writes their help.
#![warn(clippy::wildcard_enum_match_arm)]

use tns_protocol::agent::AgentStatus;
use tns_protocol::approval::{AutonomyLevel, Rule, RulesList, RulesRemove, SetAutonomy};
use tns_protocol::session::Compact;

use crate::model::{Effect, Model, Page};
use crate::sanitize;
use crate::theme::Role;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Help,
    Agents,
    Autonomy,
    Rules,
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
        name: "rules",
        verb: Verb::Rules,
        usage: "/rules [rm NUMBER]",
        help: "what runs unasked since an always; rm takes one back",
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
        (Verb::Rules, []) => return vec![Effect::Send(Box::new(RulesList {}.into()))],
        (Verb::Rules, ["rm", number]) => return remove_rule(model, number),
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
            | Verb::Autonomy
            | Verb::Rules,
            _,
        ) => {
            model.transcript.notice(Role::Warn, &format!("write {}", command.usage));
        }
    }
    Vec::new()
}

/// Takes back the rule that has this number in the list that was shown last.
fn remove_rule(model: &mut Model, number: &str) -> Vec<Effect> {
    let at = number.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    match at.and_then(|at| model.rules.get(at)) {
        Some(rule) => {
            let message = RulesRemove { rule_id: rule.rule_id.clone() };
            vec![Effect::Send(Box::new(message.into()))]
        }
        None => {
            let text = format!("no rule was shown with the number {number}; /rules lists them");
            model.transcript.notice(Role::Warn, &text);
            Vec::new()
        }
    }
}

/// Shows rules with their numbers.
pub(super) fn show_rules(model: &mut Model, rules: Vec<Rule>) {
    let rows: Vec<String> = rules
        .iter()
        .enumerate()
        .map(|(at, rule)| sanitize::line(&format!("{} · {}", at + 1, rule.covers)))
        .collect();
    let text = match rows.is_empty() {
        true => "nothing runs unasked but what the autonomy level allows".to_owned(),
        false => format!("runs unasked:\n{}\n/rules rm NUMBER takes one back", rows.join("\n")),
    };
    model.transcript.notice(Role::Text, &text);
    model.rules = rules;
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
