//! What holds in a session that begins with another one's log, or with a part of it. Pure.

use tns_protocol::approval::AutonomyLevel;
use tns_protocol::{MessageId, Seq};

use crate::agent::Agent;
use crate::event::{DurableEvent, EventKind};
use crate::store::{OpenTurn, SessionState, StoredEvent};

/// The kinds of events that tell what held at a place.
pub(crate) const KINDS: &[EventKind] = &[
    EventKind::UserMessage,
    EventKind::TeamUpdated,
    EventKind::AutonomyChanged,
    EventKind::QueueStarted,
    EventKind::Done,
    EventKind::Interrupted,
    EventKind::TurnFailed,
];

/// What held after some events of a log.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fold {
    /// In the order of their messages.
    open: Vec<OpenTurn>,
    agents: Option<Vec<Agent>>,
    autonomy: AutonomyLevel,
    /// Where a turn ended last and none was open any more.
    ended: Option<Seq>,
}

impl Fold {
    /// Takes the next row of a log.
    pub(crate) fn read(&mut self, row: &StoredEvent) {
        let was_open = !self.open.is_empty();
        self.take(row.turn.as_ref(), &row.event);
        if was_open && self.open.is_empty() {
            self.ended = Some(row.place.seq);
        }
    }

    /// Returns where a turn ended last and none was open any more.
    pub(crate) fn ended(&self) -> Option<Seq> {
        self.ended
    }

    pub(crate) fn take(&mut self, turn: Option<&MessageId>, event: &DurableEvent) {
        match event {
            DurableEvent::UserMessage(message) => {
                let (id, agent) = (message.id.clone(), message.agent.clone());
                self.open.push(OpenTurn { id, agent, waiting: message.queued });
            }
            DurableEvent::QueueStarted(id) => {
                if let Some(turn) = self.open.iter_mut().find(|turn| turn.id == *id) {
                    turn.waiting = false;
                }
            }
            DurableEvent::TeamUpdated(team) => self.agents = Some(team.agents.clone()),
            DurableEvent::AutonomyChanged(level) => self.autonomy = *level,
            DurableEvent::Done(_) | DurableEvent::Interrupted(_) | DurableEvent::TurnFailed(_) => {
                self.open.retain(|open| Some(&open.id) != turn);
            }
            _ => {}
        }
    }

    /// Returns how many turns have no end yet.
    pub(crate) fn open_turns(&self) -> usize {
        self.open.len()
    }

    /// Returns what holds in the new session; `None`: a turn has not ended there.
    ///
    /// Nothing that was approved for the first session is approved for the new one. A roster that had not
    /// changed by then is the one that holds `now`.
    pub(crate) fn state(&self, now: &SessionState) -> Option<SessionState> {
        self.open.is_empty().then(|| self.clone().whole(now))
    }

    /// Returns what holds in a session that comes from elsewhere: as [`Self::state`], with the turns that have no end.
    /// A file gives nobody the right to run everything unasked, nor to begin anything: what waited there waits no more.
    pub(crate) fn taken_in(self, now: &SessionState) -> SessionState {
        let mut state = self.whole(now);
        for turn in &mut state.open_turns {
            turn.waiting = false;
        }
        if state.autonomy == AutonomyLevel::FullAuto {
            state.autonomy = AutonomyLevel::default();
        }
        state
    }

    fn whole(self, now: &SessionState) -> SessionState {
        SessionState {
            autonomy: self.autonomy,
            agents: self.agents.unwrap_or_else(|| now.agents.clone()),
            read_sensitive: now.read_sensitive,
            budget: now.budget,
            open_turns: self.open,
            ..SessionState::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{TurnDone, UserMessage};
    use crate::store::Place;
    use tns_protocol::chat::StopReason;
    use tns_protocol::{AgentId, Timestamp};

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
            rows.iter().take(count).for_each(|row| fold.take(row.turn.as_ref(), &row.event));
            fold.state(&now)
        };
        assert!(after(1).is_none() && after(2).is_none());
        let state = after(3).unwrap();
        assert_eq!((state.autonomy, state.read_sensitive), (AutonomyLevel::Cautious, true));
        assert_eq!(after(0).unwrap().autonomy, AutonomyLevel::default());
    }

    #[test]
    fn a_fork_knows_where_every_turn_had_ended_last() {
        let done = || DurableEvent::Done(TurnDone { usage: Default::default(), stop: StopReason::End });
        let rows = [
            row(1, "a", asks("a")),
            row(2, "a", done()),
            row(3, "a", DurableEvent::AutonomyChanged(AutonomyLevel::Manual)),
            row(4, "b", asks("b")),
            row(5, "c", asks("c")),
            row(6, "b", done()),
            row(7, "c", done()),
        ];
        let mut fold = Fold::default();
        let ended = rows.iter().map(|row| {
            fold.read(row);
            fold.ended()
        });
        let two = Some(2);
        assert_eq!(ended.collect::<Vec<_>>(), [None, two, two, two, two, two, Some(7)]);
    }

    #[test]
    fn a_session_from_elsewhere_keeps_its_open_turns_and_begins_nothing() {
        let queued = |turn: &str| match asks(turn) {
            DurableEvent::UserMessage(message) => {
                DurableEvent::UserMessage(UserMessage { queued: true, ..message })
            }
            other => other,
        };
        let done = DurableEvent::Done(TurnDone { usage: Default::default(), stop: StopReason::End });
        let started = DurableEvent::QueueStarted(MessageId::parse("b").unwrap());
        let rows = [
            row(1, "a", asks("a")),
            row(2, "b", queued("b")),
            row(3, "c", queued("c")),
            row(4, "a", DurableEvent::AutonomyChanged(AutonomyLevel::FullAuto)),
            row(5, "a", done),
            row(6, "b", started),
        ];
        let mut fold = Fold::default();
        rows.iter().for_each(|row| fold.take(row.turn.as_ref(), &row.event));
        assert_eq!(fold.open_turns(), 2);
        let state = fold.taken_in(&SessionState::default());
        let open: Vec<_> = state.open_turns.iter().map(|turn| (turn.id.as_str(), turn.waiting)).collect();
        assert_eq!((open, state.autonomy), (vec![("b", false), ("c", false)], AutonomyLevel::Supervised));
    }
}
