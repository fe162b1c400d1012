//! `tns rules`: what runs unasked since an `always`, and taking that back.

use std::fmt::Write as _;

use anyhow::Context as _;
use clap::Subcommand;
use serde::Serialize;
use tns_client::{ClientError, Rest};
use tns_protocol::approval::{Rule, RuleEffect};
use tns_protocol::{ErrorCode, RuleId, SessionId};

use crate::commands::audit::of_own_session;
use crate::exit::{Exit, Stop};
use crate::{Context, logging, server, workspace};

/// List and take back what runs unasked in a session since an always
///
/// Each tns run has a session of its own: name it with --session.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the rules, oldest first: id, effect, class, tool, what it covers
    List,
    /// Take rules back and print their ids; what they covered asks again from the next call on
    Rm {
        /// The rules' ids, as list shows them
        #[arg(value_name = "ID", required_unless_present = "all", conflicts_with = "all")]
        ids: Vec<String>,
        /// All rules of the session
        #[arg(long)]
        all: bool,
    },
}

pub(crate) fn run(args: Args, context: &Context) -> anyhow::Result<()> {
    logging::start(context, logging::Unasked::Nothing)?;
    server::with_interruptible(context, async |attached| {
        let id = workspace::session_id(context)?;
        let rest = attached.rest()?;
        let rules = of_own_session(context, rest.rules(&id).await, "ask for the rules")?;
        match args.action {
            Action::List if context.out.json => context.out.json(&rules),
            Action::List => context.out.data(&table(&rules.rules)),
            Action::Rm { all: true, .. } => {
                let ids = rules.rules.into_iter().map(|rule| rule.rule_id).collect();
                remove(context, &rest, &id, ids).await
            }
            Action::Rm { ids, .. } => {
                let ids = ids.into_iter().map(|id| {
                    RuleId::parse(id)
                        .map_err(|error| Stop::usage(format!("{error}; tns rules list shows them")))
                });
                let ids = ids.collect::<Result<Vec<_>, _>>()?;
                remove(context, &rest, &id, ids).await
            }
        }
    })
}

/// What `rm --json` prints.
#[derive(Serialize, Default)]
struct Removed {
    removed: Vec<RuleId>,
    unknown: Vec<RuleId>,
}

/// Takes each of them back and prints its id; one that does not hold keeps none of the others.
async fn remove(context: &Context, rest: &Rest, id: &SessionId, rules: Vec<RuleId>) -> anyhow::Result<()> {
    let mut report = Removed::default();
    for rule in rules {
        match rest.remove_rule(id, &rule).await {
            Ok(()) => {
                if !context.out.json {
                    context.out.data(&format!("{rule}\n"))?;
                }
                report.removed.push(rule);
            }
            // One that was named twice is taken back once.
            Err(ClientError::Refused { code: ErrorCode::NotFound, .. })
                if report.removed.contains(&rule) || report.unknown.contains(&rule) => {}
            Err(ClientError::Refused { code: ErrorCode::NotFound, .. }) => report.unknown.push(rule),
            Err(error) => return Err(error).with_context(|| format!("take {rule} back")),
        }
    }
    if context.out.json {
        context.out.json(&report)?;
    }
    if report.unknown.is_empty() {
        return Ok(());
    }
    let unknown: Vec<&str> = report.unknown.iter().map(RuleId::as_str).collect();
    let message = format!("no rule {} holds in session {id}; tns rules list shows them", unknown.join(", "));
    Err(Stop::new(Exit::NotFound, message).into())
}

fn table(rules: &[Rule]) -> String {
    let mut text = String::new();
    for rule in rules {
        let effect = match rule.effect {
            RuleEffect::Allow => "allow",
        };
        // Writing into a String can't fail.
        let Rule { rule_id, risk_class, tool, covers, .. } = rule;
        let _ = writeln!(text, "{rule_id}\t{effect}\t{}\t{tool}\t{covers}", risk_class.as_str());
    }
    text
}
