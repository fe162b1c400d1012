//! What a session does with the answers of people: calls that wait are settled, what they cover is kept and taken
//! back.

use tns_protocol::approval::{AuditDecision, Decision};
use tns_protocol::{ErrorCode, RuleId};

use super::Actor;
use crate::approval::broker::Settled;
use crate::approval::{ApprovalRequest, AuditRecord, Grant, MAX_GRANTS};
use crate::event::{Answer, ApprovalResolved, DurableEvent, RuleChanged};
use crate::session::port::Outgoing;
use crate::session::{DecideCommand, ReplyTo};

impl Actor {
    pub(super) async fn on_decide(&mut self, decide: DecideCommand, to: ReplyTo) {
        let DecideCommand { call, decision, reason, edited_args, by } = decide;
        let Some(pending) = self.broker.find(&call) else {
            let message =
                format!("no call {call} waits for an answer: it is settled, or not of this session");
            return self.refuse(to, "tool_approve", ErrorCode::UnknownToolCall, message);
        };
        let request = pending.request.clone();
        let edited = edited_args.is_some();
        let grant = match decision {
            Decision::Always if !edited && self.state.grants.len() < MAX_GRANTS => request.grant.clone(),
            Decision::Always | Decision::Approve | Decision::Reject => None,
        };
        let audited = match decision {
            Decision::Reject => AuditDecision::Rejected,
            Decision::Always if grant.is_some() => AuditDecision::Always,
            // Where `always` covers nothing it counts once.
            Decision::Always | Decision::Approve => AuditDecision::Approved,
        };
        let mut events = vec![resolved(&request, audited, &by, grant.clone())];
        // Edited arguments are rated first; the turn records what will run.
        if !edited || decision == Decision::Reject {
            events.push(audit(&request, audited, &by));
        }
        let mut next = None;
        if let Some(grant) = grant.filter(|new| self.state.grants.iter().all(|old| old.id() != new.id())) {
            next.insert(self.state.clone()).grants.push(grant.clone());
            let changed = RuleChanged { grant, removed: false, by: by.clone() };
            events.push(Outgoing::durable(DurableEvent::RuleChanged(changed)));
        }
        let settled = match decision {
            Decision::Reject => Settled::Rejected { reason: rejection(reason.as_deref()) },
            Decision::Approve | Decision::Always => Settled::Approved { edited: edited_args, by },
        };
        let turn = self.running_turn();
        match self.commit(turn.as_ref(), events, next, None).await {
            Ok(_) => {
                if let Some(pending) = self.broker.take(&call) {
                    pending.settle(settled);
                }
                self.set_approval_deadline();
                self.reply(to, Answer::Done);
            }
            Err(error) => self.refuse_for_store(to, "tool_approve", &error),
        }
    }

    pub(super) async fn on_rules_remove(&mut self, rule: &RuleId, by: String, to: ReplyTo) {
        let mut next = self.state.clone();
        let Some(at) = next.grants.iter().position(|grant| grant.id() == *rule) else {
            let message = format!("no rule {rule} holds in this session: it was taken back, or never made");
            return self.refuse(to, "rules_remove", ErrorCode::NotFound, message);
        };
        let grant = next.grants.remove(at);
        // Older programs may have kept the same one twice.
        next.grants.retain(|other| other.id() != *rule);
        let changed = RuleChanged { grant, removed: true, by };
        let events = vec![Outgoing::durable(DurableEvent::RuleChanged(changed))];
        match self.commit(None, events, Some(next), None).await {
            Ok(_) => self.reply(to, Answer::Done),
            Err(error) => self.refuse_for_store(to, "rules_remove", &error),
        }
    }

    /// Settles everything that waits for a person in the same way.
    pub(super) async fn settle_all(&mut self, decision: AuditDecision, by: &str, settled: &Settled) {
        let pending = self.broker.take_all();
        let events: Vec<Outgoing> = pending
            .iter()
            .flat_map(|pending| {
                [resolved(&pending.request, decision, by, None), audit(&pending.request, decision, by)]
            })
            .collect();
        if !events.is_empty() {
            let turn = self.running_turn();
            if let Err(error) = self.commit(turn.as_ref(), events, None, None).await {
                // Else the turn would end with calls that were never answered.
                return self.fail_turn(&error).await;
            }
        }
        for pending in pending {
            pending.settle(settled.clone());
        }
        self.set_approval_deadline();
    }
}

fn rejection(reason: Option<&str>) -> String {
    match reason.map(str::trim).filter(|reason| !reason.is_empty()) {
        Some(reason) => format!("The call was rejected: {reason}"),
        None => "The call was rejected.".to_owned(),
    }
}

fn resolved(request: &ApprovalRequest, decision: AuditDecision, by: &str, grant: Option<Grant>) -> Outgoing {
    Outgoing::durable(DurableEvent::ApprovalResolved(ApprovalResolved {
        call: request.call.clone(),
        decision,
        by: by.to_owned(),
        grant,
    }))
}

/// Records how a waiting call was settled.
pub(super) fn audit(request: &ApprovalRequest, decision: AuditDecision, by: &str) -> Outgoing {
    Outgoing::durable(DurableEvent::Audited(AuditRecord::of_request(request, decision, by)))
}
