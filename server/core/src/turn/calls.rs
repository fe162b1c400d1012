//! One tool call: its arguments are checked, it is rated and decided, a person may be asked, it runs,
//! its output is cut to size. Never ends the turn: what goes wrong is a result that the model reads.

use std::sync::Arc;
use std::time::Duration;

use tns_protocol::approval::{AuditDecision, RiskClass};
use tns_protocol::{AgentId, Timestamp};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::state::{Decided, FinishedCall, not_run};
use super::{TurnLimits, live};
use crate::approval::broker::Settled;
use crate::approval::policy::{Situation, Verdict, decide};
use crate::approval::{ApprovalRequest, AuditRecord, Grant, args_digest};
use crate::event::{DurableEvent, ToolStarted};
use crate::message::{ToolCall, ToolResult};
use crate::session::port::{Outgoing, Settings, TurnPort};
use crate::tool::{
    Args, ArgumentCheck, LiveOutput, LivePieces, Rating, Tool, ToolOutcome, ToolRun, Workspace,
};

/// How long a tool may take to end after it was told to.
const STOP_GRACE: Duration = Duration::from_millis(450);
/// What the model reads of a call that nobody may answer for.
const NOBODY: &str = "Nobody was there to approve the call in time.";
/// What the model reads of a call that would do something else than when it was decided.
const CHANGED: &str = "What the call would do has changed while it waited, so it did not run; call it again.";
/// What the model reads of a call that a cancel came before.
pub(crate) const CANCELLED: &str = "The user cancelled the call.";

/// What every call of a turn shares.
#[derive(Clone)]
pub(crate) struct CallContext {
    pub(crate) agent: AgentId,
    pub(crate) workspace: Arc<Workspace>,
    pub(crate) arguments: Arc<dyn ArgumentCheck>,
    pub(crate) limits: TurnLimits,
    pub(crate) port: TurnPort,
    pub(crate) cancel: CancellationToken,
}

/// A call that may run: what was approved, to the argument.
pub(crate) struct Approved {
    pub(crate) call: ToolCall,
    pub(crate) tool: Arc<dyn Tool>,
    pub(crate) class: RiskClass,
    /// The decision still to be recorded, with the start; `None`: recorded when a person decided.
    audit: Option<AuditRecord>,
    /// What held when it was let through unasked.
    unasked: Option<Arc<Settings>>,
}

/// Finds out whether a call may run. Asks a person if it must, as long as it takes.
pub(crate) async fn authorize(
    context: &CallContext,
    mut call: ToolCall,
    tool: Option<Arc<dyn Tool>>,
) -> Result<Approved, String> {
    let Some(tool) = tool else {
        return Err(format!("There is no tool named {}.", call.name));
    };
    let mut rating = rate(context, &tool, &call.args).await?;
    let digest = args_digest(&call.args);
    let settings = context.port.settings();
    let verdict = {
        let situation = Situation {
            level: settings.autonomy,
            trusted_workspace: context.workspace.is_trusted(),
            read_sensitive: settings.read_sensitive,
            grants: &settings.grants,
        };
        decide(&situation, &call.name, &rating, &digest)
    };
    match verdict {
        Verdict::Run { decision, by } => {
            let audit = Some(record(context, &call, &rating, decision, by));
            Ok(Approved { class: rating.class, call, tool, audit, unasked: Some(settings) })
        }
        Verdict::Reject { reason } => {
            let audit = record(context, &call, &rating, AuditDecision::Blocked, "server".into());
            context.port.emit(vec![Outgoing::durable(DurableEvent::Audited(audit))]).await;
            Err(format!("The call was refused: {reason}."))
        }
        Verdict::Ask { mut grant } => loop {
            match ask(context, &call, &rating, grant.take()).await {
                Settled::Approved { edited: None, .. } => {
                    return Ok(Approved { class: rating.class, call, tool, audit: None, unasked: None });
                }
                Settled::Approved { edited: Some(args), by } => {
                    let edited = match rate(context, &tool, &args).await {
                        Ok(edited) => edited,
                        Err(problem) => {
                            // The request is settled, so its record says how, or its prompt stays open.
                            let audit = record(context, &call, &rating, AuditDecision::Rejected, by);
                            context.port.emit(vec![Outgoing::durable(DurableEvent::Audited(audit))]).await;
                            return Err(format!("The user edited the call so that it can't run: {problem}"));
                        }
                    };
                    if edited.class == RiskClass::Escalation {
                        let audit = record(context, &call, &edited, AuditDecision::Blocked, "server".into());
                        context.port.emit(vec![Outgoing::durable(DurableEvent::Audited(audit))]).await;
                        return Err(
                            "The edited call was refused: a change of privilege is never allowed.".into()
                        );
                    }
                    call.args = args;
                    let riskier = edited.class > rating.class;
                    rating = edited;
                    if !riskier {
                        let audit = Some(record(context, &call, &rating, AuditDecision::Approved, by));
                        return Ok(Approved { class: rating.class, call, tool, audit, unasked: None });
                    }
                }
                Settled::Rejected { reason } => return Err(reason),
                Settled::Cancelled => return Err(CANCELLED.into()),
            }
        },
    }
}

async fn rate(context: &CallContext, tool: &Arc<dyn Tool>, args: &Args) -> Result<Rating, String> {
    context.arguments.check(&tool.spec().schema, args)?;
    Ok(tool.rate(args, &context.workspace).await)
}

async fn ask(context: &CallContext, call: &ToolCall, rating: &Rating, grant: Option<Grant>) -> Settled {
    let request = ApprovalRequest {
        call: call.id.clone(),
        agent: context.agent.clone(),
        tool: call.name.clone(),
        class: rating.class,
        reasons: rating.reasons.clone(),
        summary: rating.summary.clone(),
        diff: rating.diff.clone(),
        args: call.args.clone(),
        grant,
    };
    // Without an answer the session is gone: nothing may run.
    context.port.ask(request).await.unwrap_or(Settled::Rejected { reason: NOBODY.to_owned() })
}

/// Makes the record of a decision, now.
pub(crate) fn record(
    context: &CallContext,
    call: &ToolCall,
    rating: &Rating,
    decision: AuditDecision,
    by: String,
) -> AuditRecord {
    AuditRecord {
        call: call.id.clone(),
        agent: context.agent.clone(),
        tool: call.name.clone(),
        class: rating.class,
        reasons: rating.reasons.clone(),
        decision,
        by,
        at: Timestamp::now(),
        summary: rating.summary.clone(),
        args_digest: args_digest(&call.args),
    }
}

/// Looks once more at a call that was let through unasked: calls of one reply are decided ahead and run one after the
/// other, and meanwhile a rule may have been taken back, the level lowered, or a secret read.
async fn still_approved(context: &CallContext, approved: Approved) -> Result<Approved, FinishedCall> {
    let holds = |then: &Arc<Settings>| then.decide_like(&context.port.settings());
    if approved.unasked.as_ref().is_none_or(holds) {
        return Ok(approved);
    }
    let Approved { call, tool, class, .. } = approved;
    match authorize(context, call.clone(), Some(tool)).await {
        // What only reads runs beside others; what does more must not.
        Ok(again) if class == RiskClass::ReadOnly && again.class != class => {
            let decided = again.audit.map(DurableEvent::Audited).into_iter();
            context.port.emit(decided.map(Outgoing::durable).collect()).await;
            Err(not_run(&call, CHANGED.to_owned()))
        }
        Ok(again) => Ok(again),
        Err(reason) => Err(not_run(&call, reason)),
    }
}

/// Runs an approved call. Its start is stored before anything runs; if that fails, nothing does.
pub(crate) async fn run(context: &CallContext, approved: Approved, stop: CancellationToken) -> FinishedCall {
    let approved = match still_approved(context, approved).await {
        Ok(approved) => approved,
        Err(not_run) => return not_run,
    };
    let Approved { call, tool, class, audit, .. } = approved;
    let started = DurableEvent::ToolStarted(ToolStarted {
        call: call.id.clone(),
        agent: context.agent.clone(),
        tool: call.name.clone(),
        args: call.args.clone(),
        class,
    });
    let events =
        audit.map(DurableEvent::Audited).into_iter().chain([started]).map(Outgoing::durable).collect();
    if !context.port.commit(events).await {
        let reason = match context.cancel.is_cancelled() {
            true => CANCELLED,
            false => "The start of the call could not be stored, so it did not run.",
        };
        return not_run(&call, reason.to_owned());
    }
    let limit = tool.limit().unwrap_or(context.limits.tool);
    let began = Instant::now();
    let (shown, pieces) = LivePieces::new();
    let outcome = tokio::select! {
        biased;
        outcome = run_within(tool.as_ref(), &call, context, limit, &stop, shown) => outcome,
        never = live::show(context, &call.id, &pieces) => match never {},
    };
    let duration = began.elapsed();
    live::show_last(context, &call.id, pieces).await;
    let (output, truncated) = cut(outcome.output, context.limits.result_chars);
    FinishedCall {
        result: ToolResult {
            call: call.id,
            provider_id: call.provider_id,
            untrusted_source: (!context.workspace.is_trusted()).then(|| call.name.clone()),
            name: call.name,
            output,
            is_error: outcome.is_error,
        },
        ran: true,
        duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
        truncated,
    }
}

async fn run_within(
    tool: &dyn Tool,
    call: &ToolCall,
    context: &CallContext,
    limit: Duration,
    stop: &CancellationToken,
    live: LiveOutput,
) -> ToolOutcome {
    // The tool's own token, so that a time-out of one call does not stop the others.
    let ends = stop.child_token();
    let mut running = tool.run(ToolRun {
        args: call.args.clone(),
        workspace: context.workspace.clone(),
        cancel: ends.clone(),
        limit,
        call: call.id.clone(),
        live,
    });
    let reason = tokio::select! {
        biased;
        outcome = &mut running => return outcome,
        () = stop.cancelled() => CANCELLED.to_owned(),
        () = tokio::time::sleep(limit) => format!("The call ran longer than its limit of {} s.", limit.as_secs_f32()),
    };
    ends.cancel();
    match timeout(STOP_GRACE, running).await {
        // What it gave before the end is worth more than the bare reason.
        Ok(outcome) if outcome.is_error => outcome,
        Ok(outcome) => ToolOutcome::error(format!("{}\n{reason}", outcome.output)),
        Err(_) => ToolOutcome::error(reason),
    }
}

/// Cuts an output to `most` characters: head and tail stay, the middle is named.
fn cut(output: String, most: usize) -> (String, bool) {
    // An output of no more bytes than characters allowed can't be too long.
    if output.len() <= most {
        return (output, false);
    }
    let count = output.chars().count();
    if count <= most {
        return (output, false);
    }
    let head = most / 2;
    let tail = most - head;
    let start = output.char_indices().nth(head).map_or(output.len(), |(at, _)| at);
    let end = output.char_indices().nth(count - tail).map_or(output.len(), |(at, _)| at);
    let left_out = count - head - tail;
    (format!("{}\n[… {left_out} characters left out …]\n{}", &output[..start], &output[end..]), true)
}

/// Wraps a decision for the state machine.
pub(crate) fn decided(result: &Result<Box<Approved>, String>) -> Decided {
    match result {
        Ok(approved) => Decided::Run { class: approved.class },
        Err(reason) => Decided::Refused { reason: reason.clone() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_cut_in_the_middle_at_characters() {
        assert_eq!(cut("職".repeat(10), 10), ("職".repeat(10), false));
        assert_eq!(
            cut("職".repeat(12), 10),
            (format!("{0}\n[… 2 characters left out …]\n{0}", "職".repeat(5)), true)
        );
        assert_eq!(cut("abc".into(), 2), ("a\n[… 1 characters left out …]\nc".into(), true));
    }
}
