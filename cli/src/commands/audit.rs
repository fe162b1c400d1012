//! `tns audit`: what a session's agents were allowed to do, and who decided.

use std::fmt::Write as _;

use anyhow::Context as _;
use tns_client::ClientError;
use tns_protocol::ErrorCode;
use tns_protocol::approval::AuditEntry;

use crate::exit::{Exit, Stop};
use crate::{Context, logging, server, workspace};

/// List the decisions about a session's tool calls
///
/// Oldest first: when, how it was decided, how risky it was, the tool, and what was to run. Each tns run has
/// a session of its own: name it with --session.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// What is said where the folder's own session was never opened.
const NO_SESSION: &str = "this folder has no session of its own yet, since each `tns run` makes a new one; name that \
                          with --session ID, as `tns sessions list` shows it";

pub(crate) fn run(Args {}: Args, context: &Context) -> anyhow::Result<()> {
    logging::start(context, logging::Unasked::Nothing)?;
    server::with_interruptible(context, async |attached| {
        let id = workspace::session_id(context)?;
        let list = of_own_session(context, attached.rest()?.audit(&id).await, "list the decisions")?;
        if context.out.json {
            return context.out.json(&list);
        }
        context.out.data(&table(&list.entries))
    })
}

/// Gives an answer about the session, or says what to do where the folder has none.
pub(super) fn of_own_session<T>(
    context: &Context,
    answer: Result<T, ClientError>,
    what: &'static str,
) -> anyhow::Result<T> {
    match answer {
        // Nobody named this id, so it would tell nobody anything.
        Err(ClientError::Refused { code: ErrorCode::SessionNotFound, .. })
            if context.globals.session.is_none() =>
        {
            Err(Stop::new(Exit::NotFound, NO_SESSION).into())
        }
        answer => answer.context(what),
    }
}

fn table(entries: &[AuditEntry]) -> String {
    let mut text = String::new();
    for entry in entries {
        let risk = match entry.risk_class {
            Some(class) => class.as_str(),
            None => "-",
        };
        let summary = entry.summary.lines().next().unwrap_or_default();
        let AuditEntry { timestamp, decision, tool, .. } = entry;
        // Writing into a String can't fail.
        let _ = writeln!(text, "{timestamp}\t{}\t{risk}\t{tool}\t{summary}", decision.as_str());
    }
    text
}

#[cfg(test)]
mod tests {
    use tns_protocol::approval::{AuditDecision, Risk, RiskClass};
    use tns_protocol::{AgentId, Timestamp, ToolCallId};

    use super::*;

    #[test]
    fn each_decision_is_one_line() {
        let entry = AuditEntry {
            tool_call_id: ToolCallId::parse("c").unwrap(),
            agent_id: AgentId::parse("a").unwrap(),
            tool: "shell".into(),
            risk: Risk::High,
            risk_class: Some(RiskClass::Exec),
            decision: AuditDecision::Rejected,
            timestamp: Timestamp::from_micros(0),
            summary: "make\nmore".into(),
            by: None,
        };
        assert_eq!(table(&[entry]), "1970-01-01T00:00:00.000Z\trejected\tEXEC\tshell\tmake\n");
    }
}
