//! What holds in a session that begins with a part of another one's log. Pure.

use std::collections::BTreeSet;

use tns_protocol::MessageId;
use tns_protocol::approval::AutonomyLevel;

use crate::event::{DurableEvent, EventKind};
use crate::store::{SessionState, StoredEvent};

/// The kinds of events that tell what held at a place.
pub(crate) const KINDS: &[EventKind] = &[
    EventKind::UserMessage,
    EventKind::TeamUpdated,
    EventKind::AutonomyChanged,
    EventKind::Done,
    EventKind::Interrupted,
    EventKind::TurnFailed,
];

/// What held after some events of a log.
#[derive(Debug, Default)]
pub(crate) struct Fold {
    open: BTreeSet<MessageId>,
    agents: Option<Vec<crate::agent::Agent>>,
    autonomy: AutonomyLevel,
}

impl Fold {
    pub(crate) fn take(&mut self, row: StoredEvent) {
        match row.event {
            DurableEvent::UserMessage(message) => {
                self.open.insert(message.id);
            }
            DurableEvent::TeamUpdated(team) => self.agents = Some(team.agents),
            DurableEvent::AutonomyChanged(level) => self.autonomy = level,
            DurableEvent::Done(_) | DurableEvent::Interrupted(_) | DurableEvent::TurnFailed(_) => {
                if let Some(turn) = &row.turn {
                    self.open.remove(turn);
                }
            }
            _ => {}
        }
    }

    /// Returns what holds in the new session; `None`: a turn has not ended there.
    ///
    /// Nothing that was approved for the first session is approved for the new one. A roster that had not
    /// changed by then is the one that holds `now`.
    pub(crate) fn state(self, now: &SessionState) -> Option<SessionState> {
        self.open.is_empty().then(|| SessionState {
            autonomy: self.autonomy,
            agents: self.agents.unwrap_or_else(|| now.agents.clone()),
            read_sensitive: now.read_sensitive,
            budget: now.budget,
            ..SessionState::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{TurnDone, UserMessage};
    use crate::store::Place;
    use tns_protocol::chat::StopReason;
    use tns_protocol::{AgentId, Seq, Timestamp};

    fn row(seq: Seq, turn: &str, event: DurableEvent) -> StoredEvent {
        let place = Place { seq, gseq: seq, at: Timestamp::from_micros(0) };
        StoredEvent { place, turn: MessageId::parse(turn).ok(), event }
    }

    fn asks(turn: &str) -> DurableEvent {
        DurableEvent::UserMessage(UserMessage {
            id: MessageId::parse(turn).unwrap(),
            agent: AgentId::parse("a").unwrap(),
            parts: Vec::new(),
            client_message_id: None,
            context: None,
            queued: false,
            during: None,
        })
    }

    #[test]
    fn a_fork_begins_where_no_turn_is_open_and_with_what_held_then() {
        let now =
            SessionState { autonomy: AutonomyLevel::Manual, read_sensitive: true, ..Default::default() };
        let done = DurableEvent::Done(TurnDone { usage: Default::default(), stop: StopReason::End });
        let rows = [
            row(1, "t", asks("t")),
            row(2, "t", DurableEvent::AutonomyChanged(AutonomyLevel::Cautious)),
            row(3, "t", done),
        ];
        let after = |count: usize| {
            let mut fold = Fold::default();
            rows.iter().take(count).cloned().for_each(|row| fold.take(row));
            fold.state(&now)
        };
        assert!(after(1).is_none() && after(2).is_none());
        let state = after(3).unwrap();
        assert_eq!((state.autonomy, state.read_sensitive), (AutonomyLevel::Cautious, true));
        assert_eq!(after(0).unwrap().autonomy, AutonomyLevel::default());
    }
}
