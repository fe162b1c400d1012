//! Reading the logs of a store in memory.

use tns_protocol::SessionId;

use super::{Inner, Session};
use crate::approval::AuditRecord;
use crate::event::DurableEvent;
use crate::store::{
    AuditQuery, EventPage, EventQuery, MAX_PAGE_BYTES, MAX_PAGE_EVENTS, StoredEvent, StreamEvent, StreamPage,
    Take,
};

/// What fits into a page.
struct Room {
    events: usize,
    bytes: usize,
    taken: usize,
}

impl Room {
    fn new(limit: usize) -> Self {
        Self { events: limit.min(MAX_PAGE_EVENTS), bytes: MAX_PAGE_BYTES, taken: 0 }
    }

    /// Whether one more event fits; a page has room for one, whatever its size.
    fn takes(&mut self, event: &DurableEvent) -> bool {
        let size = serde_json::to_string(event).map_or(0, |body| body.len());
        if self.taken >= self.events || (self.taken > 0 && size > self.bytes) {
            return false;
        }
        self.taken += 1;
        self.bytes = self.bytes.saturating_sub(size);
        true
    }
}

impl Session {
    pub(super) fn page(&self, query: &EventQuery) -> EventPage {
        let wanted = |row: &&StoredEvent| {
            row.place.seq > query.after
                && query.before.is_none_or(|before| row.place.seq < before)
                && query.kinds.is_none_or(|kinds| kinds.contains(&row.event.kind()))
        };
        let mut rows: Vec<&StoredEvent> = self.events.iter().filter(wanted).collect();
        if query.take == Take::Last {
            rows.reverse();
        }
        let mut room = Room::new(query.limit);
        let fitting = rows.iter().take_while(|row| room.takes(&row.event)).count();
        let more = fitting < rows.len();
        let mut events: Vec<StoredEvent> = rows.into_iter().take(fitting).cloned().collect();
        if query.take == Take::Last {
            events.reverse();
        }
        let feedback = events
            .iter()
            .filter_map(|event| Some((event.place.seq, *self.feedback.get(&event.place.seq)?)))
            .collect();
        EventPage { events, more, head_seq: self.record.head_seq, feedback }
    }
}

impl Inner {
    pub(super) fn stream(&self, gseq: u64, principal: Option<&str>, limit: usize) -> StreamPage {
        let mut rows: Vec<(&Session, &StoredEvent)> = self
            .sessions
            .values()
            .filter(|session| principal.is_none_or(|principal| session.record.principal == principal))
            .flat_map(|session| session.events.iter().map(move |event| (session, event)))
            .filter(|(_, event)| event.place.gseq > gseq)
            .collect();
        rows.sort_by_key(|(_, event)| event.place.gseq);
        let mut room = Room::new(limit);
        let fitting = rows.iter().take_while(|(_, row)| room.takes(&row.event)).count();
        let more = fitting < rows.len();
        let events: Vec<StreamEvent> = rows
            .into_iter()
            .take(fitting)
            .map(|(session, event)| StreamEvent {
                principal: session.record.principal.clone(),
                session: session.record.id.clone(),
                event: event.clone(),
            })
            .collect();
        let next = events.last().map_or(gseq, |last| last.event.place.gseq);
        StreamPage { events, next, more }
    }

    pub(super) fn audit(&self, query: &AuditQuery) -> Vec<(SessionId, AuditRecord)> {
        let mut found: Vec<(u64, SessionId, AuditRecord)> = Vec::new();
        for session in self.sessions.values() {
            if query.session.is_some_and(|key| key != session.record.key) {
                continue;
            }
            for row in session.events.iter().filter(|row| row.place.seq > session.copied) {
                if let DurableEvent::Audited(record) = &row.event
                    && query.since.is_none_or(|since| record.at >= since)
                    && query.decision.is_none_or(|decision| record.decision == decision)
                {
                    found.push((row.place.gseq, session.record.id.clone(), record.clone()));
                }
            }
        }
        found.sort_by_key(|(gseq, ..)| *gseq);
        let skip = found.len().saturating_sub(query.limit);
        found.into_iter().skip(skip).map(|(_, id, record)| (id, record)).collect()
    }
}
