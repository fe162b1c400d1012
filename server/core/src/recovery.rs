//! Closes turns that lost their end, to a crash or to a store that failed: every waiting approval is settled,
//! every open call gets a result, and the turn its one end.
//!
//! After a crash it is run once when a server starts, before it accepts anybody. Messages that waited go on waiting.

use tns_protocol::approval::AuditDecision;
use tns_protocol::{ErrorCode, ToolCallId};

use crate::approval::{ApprovalRequest, AuditRecord};
use crate::event::{
    ApprovalResolved, AssistantMessage, DurableEvent, EventKind, MessageStatus, ToolFinished, TurnFailed,
};
use crate::history;
use crate::message::Part;
use crate::store::{
    Append, Draft, NewEvent, OpenTurn, SessionKey, SessionRecord, SessionState, Store, StoreError,
    StoredEvent,
};
use crate::turn::driver::message_id;

/// What the client reads of a turn that the crash cut.
const RESTARTED: &str = "the server was restarted while it worked on this reply; send the message again";
const KINDS: &[EventKind] = &[
    EventKind::AssistantMessage,
    EventKind::ApprovalRequested,
    EventKind::ApprovalResolved,
    EventKind::ToolStarted,
    EventKind::ToolFinished,
];

/// Ends the turns that a crash left open. Returns how many.
///
/// # Errors
/// The store's; nothing is half done, and the next start tries again.
pub async fn end_open_turns(store: &dyn Store) -> Result<usize, StoreError> {
    let mut ended = 0;
    for session in store.sessions_with_open_turns().await? {
        ended += end_turns_of(store, &session, RESTARTED).await?;
    }
    Ok(ended)
}

/// Ends the turns of a session that run nowhere. Returns how many; `why` is told to people.
///
/// # Errors
/// The store's.
pub(crate) async fn end_turns_of(
    store: &dyn Store,
    session: &SessionRecord,
    why: &str,
) -> Result<usize, StoreError> {
    let (waiting, cut): (Vec<OpenTurn>, Vec<OpenTurn>) =
        session.state.open_turns.iter().cloned().partition(|turn| turn.waiting);
    for (at, turn) in cut.iter().enumerate() {
        let open_turns = cut[at + 1..].iter().chain(&waiting).cloned().collect();
        let state = SessionState { open_turns, ..session.state.clone() };
        let failed = TurnFailed { code: ErrorCode::ServerRestarted, message: why.to_owned() };
        let events = closing(store, session.key, turn, failed)
            .await?
            .into_iter()
            .map(|event| NewEvent { turn: Some(turn.id.clone()), event })
            .collect();
        store.append(Append { state: Some(state), ..Append::new(session.key, events) }).await?;
    }
    // One of the turns may have been the draft's.
    store.clear_draft(session.key);
    Ok(cut.len())
}

/// Returns the events that close a turn: how each waiting approval was settled, a result for each open call, what
/// was written of a step that is not stored, then the turn's end.
pub(crate) async fn closing(
    store: &dyn Store,
    session: SessionKey,
    turn: &OpenTurn,
    failed: TurnFailed,
) -> Result<Vec<DurableEvent>, StoreError> {
    let mut rows = Vec::new();
    // However long the log is, only the turn's own rows are held.
    history::visit(store, session, KINDS, |row| {
        if row.turn.as_ref() == Some(&turn.id) {
            rows.push(row);
        }
    })
    .await?;
    let draft = match store.draft(session).await {
        Ok(draft) => draft,
        Err(error) => {
            tracing::warn!(turn = %turn.id, %error, "what was written of a step is lost");
            None
        }
    };
    Ok(closing_rows(&rows, turn, draft, failed))
}

fn closing_rows(
    rows: &[StoredEvent],
    turn: &OpenTurn,
    draft: Option<Draft>,
    failed: TurnFailed,
) -> Vec<DurableEvent> {
    let answered: Vec<ToolCallId> = rows
        .iter()
        .filter_map(|row| match &row.event {
            DurableEvent::ToolFinished(finished) => Some(finished.result.call.clone()),
            _ => None,
        })
        .collect();
    let started: Vec<&ToolCallId> = rows
        .iter()
        .filter_map(|row| match &row.event {
            DurableEvent::ToolStarted(started) => Some(&started.call),
            _ => None,
        })
        .collect();
    let steps: Vec<&AssistantMessage> = rows
        .iter()
        .filter_map(|row| match &row.event {
            DurableEvent::AssistantMessage(step) => Some(step),
            _ => None,
        })
        .collect();
    let written = draft.and_then(|draft| cut_step(draft, turn, &steps));
    let results = history::open_calls(steps.into_iter(), &answered).into_iter().map(|call| {
        DurableEvent::ToolFinished(ToolFinished {
            agent: turn.agent.clone(),
            ran: started.contains(&&call.id),
            result: history::unanswered(call),
            duration_ms: 0,
            truncated: false,
        })
    });
    let settled = waiting(rows).into_iter().flat_map(settled_by_server);
    settled.chain(results).chain(written).chain([DurableEvent::TurnFailed(failed)]).collect()
}

/// Returns what people saw of a step that never ended; `None`: it is in the log, or is of another turn.
fn cut_step(draft: Draft, turn: &OpenTurn, steps: &[&AssistantMessage]) -> Option<DurableEvent> {
    let Draft { step, text } = draft;
    let stored = steps.iter().filter(|stored| stored.response.as_ref() == Some(&step.response)).count();
    if step.turn != turn.id || stored != step.after || text.trim().is_empty() {
        return None;
    }
    Some(DurableEvent::AssistantMessage(AssistantMessage {
        id: message_id(),
        agent: step.agent,
        parts: vec![Part::Text(text)],
        model: step.model,
        native: None,
        notes: Vec::new(),
        status: MessageStatus::Interrupted,
        response: Some(step.response),
        usage: None,
        provider: None,
        counted_on: None,
    }))
}

/// Returns the approvals that nobody answered.
fn waiting(rows: &[StoredEvent]) -> Vec<&ApprovalRequest> {
    let mut waiting: Vec<&ApprovalRequest> = Vec::new();
    for row in rows {
        match &row.event {
            DurableEvent::ApprovalRequested(request) => waiting.push(request),
            DurableEvent::ApprovalResolved(resolved) => {
                waiting.retain(|request| request.call != resolved.call)
            }
            _ => {}
        }
    }
    waiting
}

fn settled_by_server(request: &ApprovalRequest) -> [DurableEvent; 2] {
    let (decision, by) = (AuditDecision::Cancelled, "server");
    [
        DurableEvent::ApprovalResolved(ApprovalResolved {
            call: request.call.clone(),
            decision,
            by: by.to_owned(),
            grant: None,
        }),
        DurableEvent::Audited(AuditRecord::of_request(request, decision, by)),
    ]
}
