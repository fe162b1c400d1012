//! The order in which a model reads the rows of a log. Pure, and a matter of the rows alone.
//!
//! A turn's rows stand together: the user's message, then each step with the results of its calls. Turns stand in
//! the order of their messages, so a message that came during a reply stands behind that reply. What belongs to no
//! turn, such as a change of the team, stands before the first turn that began after it. No row that is added later
//! changes the order of those that a model was already sent: providers keep what they have read.

use std::collections::{BTreeMap, HashMap};

use tns_protocol::{MessageId, Seq, ToolCallId};

use crate::event::DurableEvent;
use crate::message::Part;
use crate::store::StoredEvent;

/// Puts the rows of a log in the order in which a model reads them. Drops none and changes none; the order in which
/// they come does not matter.
pub(crate) fn in_turn_order(mut rows: Vec<StoredEvent>) -> Vec<StoredEvent> {
    rows.sort_by_key(|row| row.place.seq);
    let mut turns: Vec<Turn> = Vec::new();
    let mut at: HashMap<MessageId, usize> = HashMap::new();
    let mut loose = Vec::new();
    for row in rows {
        let Some(id) = row.turn.clone() else {
            loose.push(row);
            continue;
        };
        let turn = *at.entry(id).or_insert_with(|| {
            turns.push(Turn::at(row.place.seq));
            turns.len() - 1
        });
        turns[turn].take(row);
    }
    // A turn whose message is missing stands where its first row does.
    turns.sort_by_key(|turn| turn.asked.unwrap_or(turn.first));
    let mut ordered = Vec::new();
    let mut loose = loose.into_iter().peekable();
    for turn in behind_their_replies(turns) {
        let before = |row: &StoredEvent| turn.began().is_some_and(|began| row.place.seq < began);
        while let Some(row) = loose.next_if(before) {
            ordered.push(row);
        }
        turn.rows_into(&mut ordered);
    }
    ordered.extend(loose);
    ordered
}

/// The rows of one turn.
struct Turn {
    /// The place of its first row.
    first: Seq,
    /// The place of the user's message.
    asked: Option<Seq>,
    /// The message waited: the turn begins later, or not yet.
    queued: bool,
    /// The place at which a waiting message's turn began.
    started: Option<Seq>,
    /// The reply that was being written when the message came.
    during: Option<MessageId>,
    /// The user's message, and what became of it while it waited.
    asking: Vec<StoredEvent>,
    /// Each step with the results of its calls.
    steps: Vec<Vec<StoredEvent>>,
}

impl Turn {
    fn at(first: Seq) -> Self {
        Self {
            first,
            asked: None,
            queued: false,
            started: None,
            during: None,
            asking: Vec::new(),
            steps: Vec::new(),
        }
    }

    fn take(&mut self, row: StoredEvent) {
        match &row.event {
            DurableEvent::UserMessage(message) => {
                self.asked = Some(row.place.seq);
                self.queued = message.queued;
                self.during.clone_from(&message.during);
                self.asking.insert(0, row);
            }
            DurableEvent::QueueStarted(_) => {
                self.started = Some(row.place.seq);
                self.asking.push(row);
            }
            DurableEvent::AssistantMessage(_) => self.steps.push(vec![row]),
            DurableEvent::ToolFinished(finished) => {
                let call = &finished.result.call;
                let own = self.steps.iter().rposition(|step| has_call(&step[0], call));
                let step = own.or(self.steps.len().checked_sub(1));
                match step.and_then(|at| self.steps.get_mut(at)) {
                    Some(step) => step.push(row),
                    None => self.asking.push(row),
                }
            }
            _ if self.steps.is_empty() => self.asking.push(row),
            _ => self.steps.push(vec![row]),
        }
    }

    /// Returns the place at which its first request may have been made; `None`: its message waits, or was taken out.
    fn began(&self) -> Option<Seq> {
        match (self.started, self.asked) {
            (Some(started), _) => Some(started),
            (None, Some(_)) if self.queued => None,
            (None, Some(asked)) => Some(asked),
            (None, None) => Some(self.first),
        }
    }

    /// Returns the replies that its steps are of: one, in a log of ours.
    fn replies(&self) -> impl Iterator<Item = &MessageId> {
        self.steps.iter().filter_map(|step| match &step[0].event {
            DurableEvent::AssistantMessage(step) => step.response.as_ref(),
            _ => None,
        })
    }

    fn rows_into(self, ordered: &mut Vec<StoredEvent>) {
        ordered.extend(self.asking);
        ordered.extend(self.steps.into_iter().flatten());
    }
}

fn has_call(step: &StoredEvent, call: &ToolCallId) -> bool {
    let DurableEvent::AssistantMessage(step) = &step.event else { return false };
    step.parts.iter().any(|part| matches!(part, Part::ToolCall(made) if made.id == *call))
}

/// Moves a turn whose message came during a reply behind that reply, where it does not stand there anyway.
fn behind_their_replies(turns: Vec<Turn>) -> Vec<Turn> {
    let written: HashMap<&MessageId, usize> = turns
        .iter()
        .enumerate()
        .flat_map(|(at, turn)| turn.replies().map(move |reply| (reply, at)))
        .collect();
    let mut order = Order { placed: vec![false; turns.len()], ..Order::default() };
    for (at, turn) in turns.iter().enumerate() {
        match turn.during.as_ref().and_then(|reply| written.get(reply)) {
            Some(of) if !order.placed[*of] && *of != at => order.waiting.entry(*of).or_default().push(at),
            _ => order.place(at),
        }
    }
    // Each named the other's reply, which no log of ours says.
    let left: Vec<usize> = std::mem::take(&mut order.waiting).into_values().flatten().collect();
    let order: Vec<usize> = order.order.into_iter().chain(left).collect();
    let mut turns: Vec<Option<Turn>> = turns.into_iter().map(Some).collect();
    order.into_iter().filter_map(|at| turns[at].take()).collect()
}

/// Places of turns in a list, in the order that is found for them.
#[derive(Default)]
struct Order {
    placed: Vec<bool>,
    order: Vec<usize>,
    /// Those that are to stand behind another one, in their order.
    waiting: BTreeMap<usize, Vec<usize>>,
}

impl Order {
    fn place(&mut self, at: usize) {
        let mut next = vec![at];
        while let Some(at) = next.pop() {
            self.placed[at] = true;
            self.order.push(at);
            // Last in is first out: the one that came first is placed first.
            next.extend(self.waiting.remove(&at).unwrap_or_default().into_iter().rev());
        }
    }
}
