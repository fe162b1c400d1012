//! The user's messages in the transcript: on their way, waiting behind a reply, stored. Those that wait stand
//! in a block at the end; each moves to its place in the conversation when its turn begins. Nothing is sent here.

use tns_protocol::{ClientMessageId, MessageId};

use crate::pane::transcript::entry::{Delivery, Entry, Kind};
use crate::pane::transcript::{Transcript, is_sending};

impl Transcript {
    /// Adds the user's message, which is on its way; while a turn runs it waits.
    pub(crate) fn user_sends(&mut self, id: ClientMessageId, text: &str, running: bool) {
        let delivery = self.departs(id, running);
        if matches!(delivery, Delivery::Sending(_)) {
            self.close_streams();
        }
        self.add(Entry::new(Kind::User(delivery), "you", text));
        self.follow();
    }

    /// How a message leaves: behind a turn that runs, and behind a message that is before it, it waits.
    fn departs(&self, id: ClientMessageId, running: bool) -> Delivery {
        if running || self.asks() || self.has_waiting() {
            Delivery::Waiting(id)
        } else {
            Delivery::Sending(id)
        }
    }

    /// Adds a stored message of a person, or says of the one that was on its way that it is stored. A `queued`
    /// one waits until `begin_turn` names its turn.
    pub(crate) fn user_stored(
        &mut self,
        id: Option<&ClientMessageId>,
        turn: &MessageId,
        text: &str,
        queued: bool,
    ) {
        let to = if queued { Delivery::Queued(turn.clone()) } else { Delivery::Stored };
        if id.is_some_and(|id| self.deliver(id, to.clone())) {
            return;
        }
        if !queued {
            self.close_streams();
        }
        self.add(Entry::new(Kind::User(to), "you", text));
    }

    /// Says how far the message with this name has come; `false` when there is none on its way.
    pub(crate) fn deliver(&mut self, id: &ClientMessageId, to: Delivery) -> bool {
        let found = self.entries.iter().rposition(|entry| is_sending(entry, id));
        found.map(|index| self.become_at(index, to)).is_some()
    }

    /// The server refused the message that was sent last.
    pub(crate) fn refuse_newest(&mut self) {
        let newest = self
            .entries
            .iter()
            .rposition(|entry| entry.is_unstored() && entry.kind != Kind::User(Delivery::Failed));
        if let Some(index) = newest {
            self.become_at(index, Delivery::Failed);
        }
    }

    /// A turn is under way or over: its message waits no more.
    pub(crate) fn begin_turn(&mut self, turn: &MessageId) {
        if let Some(index) = self.find_queued(turn) {
            self.become_at(index, Delivery::Stored);
        }
    }

    /// A message that waits was taken out of the queue.
    pub(crate) fn drop_queued(&mut self, turn: &MessageId) {
        if let Some(index) = self.find_queued(turn) {
            self.entries.remove(index);
        }
    }

    /// A message that waits has another text now.
    pub(crate) fn edit_queued(&mut self, turn: &MessageId, text: &str) {
        if let Some(index) = self.find_queued(turn) {
            self.entries[index].set_text(text);
        }
    }

    /// Whether any message waits for its turn.
    fn has_waiting(&self) -> bool {
        self.end() < self.entries.len()
    }

    /// Whether a message of this screen is on its way whose turn is the next or has begun.
    fn asks(&self) -> bool {
        self.entries.iter().rev().any(is_asking)
    }

    fn find_queued(&self, turn: &MessageId) -> Option<usize> {
        let queues = |entry: &Entry| matches!(&entry.kind, Kind::User(Delivery::Queued(of)) if of == turn);
        self.entries.iter().rposition(queues)
    }

    /// Says how far a message has come, and moves it to where it stands then.
    fn become_at(&mut self, index: usize, to: Delivery) {
        let end = self.end();
        let waited = self.entries[index].waits();
        let begins = to != Delivery::Failed;
        self.entries[index].kind = Kind::User(to);
        match (waited, self.entries[index].waits()) {
            // To the end of the conversation, which is before the first that waits.
            (true, false) => {
                self.entries[end..=index].rotate_right(1);
                if begins {
                    self.close_streams();
                }
                self.touch(end);
            }
            (false, true) => {
                let entry = self.entries.remove(index);
                self.settled -= usize::from(index < self.settled);
                self.add(entry);
            }
            (true, true) | (false, false) => self.touch(index),
        }
    }
}

fn is_asking(entry: &Entry) -> bool {
    matches!(entry.kind, Kind::User(Delivery::Sending(_)))
}
