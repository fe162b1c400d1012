//! Holds a run's history against the wire's invariants. Pure: a history in, what is wrong with it out.

mod shown;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use super::told::{Client, Ended, History, Kind, Seen, Told, What};

/// Returns everything that is wrong, in words; nothing is what is wanted.
pub(super) fn check(history: &History) -> Vec<String> {
    let mut faults = Vec::new();
    log_counts(&history.log, &mut faults);
    turns(&history.log, &mut faults);
    calls(history, &mut faults);
    messages(history, &mut faults);
    for client in &history.clients {
        let mut own = Vec::new();
        kinds(client, &mut own);
        match client.kind {
            Kind::Whole => follows(&history.log, client, 1, &mut own),
            Kind::Tail => follows_tail(&history.log, client, &mut own),
            Kind::Strict => strict(history, client, &mut own),
        }
        shown::check(history, client, &mut own);
        faults.extend(own.into_iter().map(|fault| format!("{}: {fault}", client.name)));
    }
    faults
}

/// E1: places count from 1 and leave none out.
fn log_counts(log: &[Told], faults: &mut Vec<String>) {
    for (row, place) in log.iter().zip(1..) {
        if row.seq != Some(place) {
            faults.push(format!("E1: the log's event {place} has the place {:?}", row.seq));
        }
    }
}

/// E4, and of E5 that none is open: a turn begins with its message and has one end, its last event.
fn turns(log: &[Told], faults: &mut Vec<String>) {
    let mut turns: BTreeMap<&str, Vec<&Told>> = BTreeMap::new();
    for row in log {
        if let Some(turn) = &row.turn {
            turns.entry(turn).or_default().push(row);
        }
    }
    for (turn, rows) in turns {
        if !matches!(&rows[0].what, What::User { id, .. } if id == turn) {
            faults.push(format!("E4: turn {turn} begins with {:?}", rows[0]));
        }
        match rows.iter().filter(|row| row.what.ends_turn()).count() {
            1 if rows.last().is_some_and(|row| row.what.ends_turn()) => {}
            1 => faults.push(format!("E4: turn {turn} goes on after its end")),
            0 => faults.push(format!("E5: turn {turn} has no end")),
            ends => faults.push(format!("E4: turn {turn} has {ends} ends")),
        }
        open_calls(turn, &rows, faults);
    }
    for row in log {
        let belongs = !matches!(row.what, What::Other | What::Token { .. });
        if belongs && row.turn.is_none() {
            faults.push(format!("E4: an event of no turn: {row:?}"));
        }
    }
}

/// E5: every call that began has a result, and every question an answer, when the turn ends.
fn open_calls(turn: &str, rows: &[&Told], faults: &mut Vec<String>) {
    let (mut begun, mut finished) = (BTreeSet::new(), BTreeSet::new());
    let (mut asked, mut settled) = (BTreeSet::new(), BTreeSet::new());
    for row in rows {
        let doubled = match &row.what {
            What::Started(call) => !begun.insert(call),
            What::Finished(call) => !finished.insert(call),
            // An edited call may be asked about again, which no run here does.
            What::Asked(call) => !asked.insert(call),
            What::Settled { call, .. } => !settled.insert(call),
            _ => false,
        };
        if doubled {
            faults.push(format!("E4: twice in turn {turn}: {row:?}"));
        }
    }
    for call in begun.difference(&finished) {
        faults.push(format!("E5: call {call} began and has no result"));
    }
    if asked != settled {
        faults.push(format!("E5: turn {turn} asked about {asked:?} and settled {settled:?}"));
    }
}

/// No tool runs twice, and none before its start is stored.
fn calls(history: &History, faults: &mut Vec<String>) {
    let started = history.started();
    for (call, runs) in &history.runs {
        if *runs != 1 {
            faults.push(format!("call {call} ran {runs} times"));
        }
        if !started.contains(call.as_str()) {
            faults.push(format!("call {call} ran, and no log has its start"));
        }
    }
}

/// E9, and that what was acknowledged is stored where it was said to be.
fn messages(history: &History, faults: &mut Vec<String>) {
    let mut by_sender: BTreeMap<&String, Vec<(&String, Option<u64>)>> = BTreeMap::new();
    for row in &history.log {
        if let What::User { id, client: Some(client), .. } = &row.what {
            by_sender.entry(client).or_default().push((id, row.seq));
        }
    }
    for (sender, stored) in by_sender.iter().filter(|(_, stored)| stored.len() > 1) {
        faults.push(format!("E9: message {sender} is stored {} times", stored.len()));
    }
    for (id, sender, seq) in &history.acknowledged {
        let stored = by_sender.get(sender).is_some_and(|stored| stored.contains(&(id, Some(*seq))));
        if !stored {
            faults.push(format!("message {sender} was acknowledged as {id} at {seq}, and is not there"));
        }
    }
}

/// What a client is told of a turn's end, and what is only shown.
const LIVE: &[&str] = &[
    "token",
    "response_start",
    "response_end",
    "reasoning_start",
    "reasoning_delta",
    "image_delta",
    "agent_state",
    "tool_pending",
    "tool_output",
    "index_progress",
    "notice",
];
/// What is stored whoever asked for it.
const DURABLE: &[&str] = &[
    "user_message",
    "assistant_message",
    "tool_approve_request",
    "tool_approval_resolved",
    "audit_entry",
    "tool_start",
    "tool_result",
    "team_update",
    "autonomy_changed",
    "done",
    "interrupted",
    "queue_update",
    "session_updated",
];

/// E3: what is only shown has no place, and what is stored has one.
fn kinds(client: &Client, faults: &mut Vec<String>) {
    for told in client.seen.iter().filter_map(Seen::told) {
        if told.seq.is_some() && LIVE.contains(&told.name.as_str()) {
            faults.push(format!("E3: {} has the place {:?}", told.name, told.seq));
        }
        if told.seq.is_none() && DURABLE.contains(&told.name.as_str()) {
            faults.push(format!("E3: {} has no place", told.name));
        }
    }
}

impl Seen {
    fn told(&self) -> Option<&Told> {
        match self {
            Self::Told(told) => Some(told),
            Self::CaughtUp { .. } | Self::JoinedEnd | Self::Lost | Self::Opened => None,
        }
    }
}

impl History {
    /// Returns the calls that began.
    fn started(&self) -> BTreeSet<&str> {
        let calls = self.log.iter().filter_map(|row| match &row.what {
            What::Started(call) => Some(call.as_str()),
            _ => None,
        });
        calls.collect()
    }
}

/// E2 and E8: from `first` on, the log and nothing else, each event once and in order, to its end.
fn follows(log: &[Told], client: &Client, first: u64, faults: &mut Vec<String>) {
    let mut next = first;
    for told in client.seen.iter().filter_map(Seen::told).filter(|told| told.seq.is_some()) {
        if told.seq != Some(next) {
            let (seq, name) = (told.seq, &told.name);
            faults.push(format!("E2: expected event {next} and was told {seq:?} ({name})"));
            return;
        }
        let stored = usize::try_from(next - 1).ok().and_then(|at| log.get(at));
        if stored != Some(told) {
            faults.push(format!("E8: event {next} is stored as {stored:?} and was told as {told:?}"));
        }
        next += 1;
    }
    if next != log.len() as u64 + 1 {
        faults.push(format!("E2: the log ends at {}, and it was told up to {}", log.len(), next - 1));
    }
}

/// The same from the log's end on: what waits is told again when it comes.
fn follows_tail(log: &[Told], client: &Client, faults: &mut Vec<String>) {
    let Some(joined) = client.seen.iter().position(|seen| *seen == Seen::JoinedEnd) else { return };
    let again = client.seen[..joined].iter().filter_map(Seen::told).filter(|told| told.seq.is_some());
    for told in again.filter(|told| !log.contains(told) || !matches!(told.what, What::Asked(_))) {
        faults.push(format!("E2: told of {told:?} before it had joined"));
    }
    let rest = Client { seen: client.seen[joined..].to_vec(), ..client.clone() };
    if let Some(first) = rest.seen.iter().filter_map(Seen::told).find_map(|told| told.seq) {
        follows(log, &rest, first, faults);
    }
}

/// E8 for protocol v1: what each connection was told is a piece of what the log has for it, without a hole; what
/// the last one was told goes to the log's end, if it is still there.
fn strict(history: &History, client: &Client, faults: &mut Vec<String>) {
    let started = history.started();
    let log: Vec<Told> =
        history.log.iter().filter_map(|row| row.for_v1(|call| started.contains(call))).collect();
    for connection in client.seen.split(|seen| *seen == Seen::Opened) {
        let told: Vec<&Told> =
            connection.iter().filter_map(Seen::told).filter(|told| told.seq.is_some()).collect();
        // What waits is told first, wherever it stands.
        let begins = told.iter().position(|told| !matches!(told.what, What::Asked(_))).unwrap_or(told.len());
        for pair in told[..begins].windows(2).filter(|pair| pair[0].seq >= pair[1].seq) {
            faults.push(format!("E8: told of {:?} after {:?}", pair[1], pair[0]));
        }
        for early in told[..begins].iter().filter(|early| !log.contains(early)) {
            faults.push(format!("E8: told of {early:?}, which is not stored so"));
        }
        let Some(first) = told.get(begins) else { continue };
        let Some(at) = log.iter().position(|row| row.seq == first.seq) else {
            faults.push(format!("E8: told of {first:?}, which is not stored"));
            continue;
        };
        let stored = log[at..].iter().map(Some).chain(std::iter::repeat(None));
        if let Some((told, stored)) =
            told[begins..].iter().zip(stored).find(|(told, row)| Some(**told) != *row)
        {
            faults.push(format!("E8: told {told:?} where the log has {stored:?}"));
        }
        let is_open = !connection.contains(&Seen::Lost);
        if is_open && told.last().map(|told| told.seq) != log.last().map(|row| row.seq) {
            faults.push(format!(
                "E8: the log ends with {:?}, and it was told {:?} last",
                log.last(),
                told.last()
            ));
        }
    }
}

/// Whether a turn's end says that the server died in it, or could not store it.
fn lost_its_end(row: &Told) -> bool {
    matches!(&row.what, What::Ended(Ended::Failed(_)))
}
