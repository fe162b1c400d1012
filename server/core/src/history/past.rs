//! The part of a log that one agent's model is shown: what its latest summary does not stand for, in turn order.
//!
//! Only that part is read from the store, so that a turn costs the same however long the session is.

use std::collections::HashSet;

use tns_protocol::{AgentId, MessageId, Seq};

use super::order::in_turn_order;
use super::{Range, last, load};
use crate::agent::Agent;
use crate::event::{Compacted, DurableEvent, EventKind};
use crate::store::{SessionKey, Store, StoreError, StoredEvent};

/// The kinds of events that a conversation is made of.
const CONVERSATION: &[EventKind] = &[
    EventKind::UserMessage,
    EventKind::AssistantMessage,
    EventKind::ToolFinished,
    EventKind::QueueStarted,
    EventKind::QueueEdited,
    EventKind::QueueRemoved,
    EventKind::TeamUpdated,
];
const COMPACTED: &[EventKind] = &[EventKind::Compacted];
const TEAM: &[EventKind] = &[EventKind::TeamUpdated];

/// What one agent may see of a log.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Past {
    /// What stands for the part before the rows.
    pub(super) summary: Option<String>,
    /// The roster before the rows; `None`: as it began.
    pub(super) team: Option<Vec<Agent>>,
    /// In turn order.
    pub(super) rows: Vec<StoredEvent>,
}

impl Past {
    /// Reads what `reader` may see of the log before a place.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn load(
        store: &dyn Store,
        session: SessionKey,
        reader: &AgentId,
        before: Option<Seq>,
    ) -> Result<Self, StoreError> {
        let compacted = last(store, session, COMPACTED, before, |row| match row.event {
            DurableEvent::Compacted(compacted) if compacted.agent == *reader => Some(compacted),
            _ => None,
        })
        .await?;
        let read_from = compacted.as_ref().map_or(0, |compacted| compacted.read_from);
        let range = Range { after: read_from.saturating_sub(1), before };
        let rows = load(store, session, CONVERSATION, range).await?;
        let team = if range.after == 0 {
            None
        } else {
            last(store, session, TEAM, Some(read_from), |row| match row.event {
                DurableEvent::TeamUpdated(team) => Some(team.agents),
                _ => None,
            })
            .await?
        };
        Ok(Self::of(rows, team, compacted))
    }

    /// Puts rows in turn order and leaves out those that a summary stands for.
    pub(super) fn of(
        mut rows: Vec<StoredEvent>,
        team: Option<Vec<Agent>>,
        compacted: Option<Compacted>,
    ) -> Self {
        let Some(Compacted { from_seq, summary, .. }) = compacted else {
            return Self { summary: None, team, rows: in_turn_order(rows) };
        };
        // A turn whose message was not read again ended before the cut, though rows of it lie behind messages that
        // waited meanwhile.
        let asked: HashSet<MessageId> = rows.iter().filter_map(asks).cloned().collect();
        rows.retain(|row| row.turn.as_ref().is_none_or(|turn| asked.contains(turn)));
        let past = Self { summary: Some(summary), team, rows: in_turn_order(rows) };
        // A row that can't be read any more: what was read stands behind the summary.
        past.from(from_seq).unwrap_or(past)
    }

    /// Returns the past from a place on, with the message of the turn that the place is in.
    pub(super) fn from(&self, seq: Seq) -> Option<Self> {
        let cut = self.rows.iter().position(|row| row.place.seq == seq)?;
        let turn = self.rows[cut].turn.as_ref();
        let (before, after) = self.rows.split_at(cut);
        let asking = before.iter().filter(|row| is_asking(row, turn));
        let team = before.iter().rev().find_map(|row| match &row.event {
            DurableEvent::TeamUpdated(team) => Some(team.agents.clone()),
            _ => None,
        });
        let rows = asking.chain(after).cloned().collect();
        Some(Self { rows, team: team.or_else(|| self.team.clone()), summary: self.summary.clone() })
    }

    /// Leaves out what came after a turn began and is not the turn's own: it belongs to a later one.
    pub(crate) fn as_of(&mut self, head: Seq, turn: Option<&MessageId>) {
        let known = |row: &StoredEvent| row.place.seq <= head || turn.is_some() && row.turn.as_ref() == turn;
        self.rows.retain(known);
    }

    /// Returns what stands before a place.
    pub(super) fn until(&self, seq: Seq) -> Self {
        let cut = self.rows.iter().position(|row| row.place.seq == seq).unwrap_or(self.rows.len());
        Self { rows: self.rows[..cut].to_vec(), ..self.clone() }
    }
}

fn asks(row: &StoredEvent) -> Option<&MessageId> {
    match &row.event {
        DurableEvent::UserMessage(message) => Some(&message.id),
        _ => None,
    }
}

/// Whether a row is the message of a turn, or became of it while it waited.
fn is_asking(row: &StoredEvent, turn: Option<&MessageId>) -> bool {
    turn.is_some()
        && row.turn.as_ref() == turn
        && matches!(
            row.event,
            DurableEvent::UserMessage(_)
                | DurableEvent::QueueStarted(_)
                | DurableEvent::QueueEdited(_)
                | DurableEvent::QueueRemoved(_)
        )
}
