//! What every client of a run shares: its session, when it acts, what it counts, and what it writes down.

pub(super) mod auditor;
pub(super) mod follower;
pub(super) mod poster;
pub(super) mod strict;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tns_protocol::{ServerFrame, SessionId};
use tokio::time::sleep;

use super::brain::Brain;
use super::chance::Chance;
use super::net::{Clock, Net};
use super::told::{Kind, Seen, Told, What};
use super::trace::Trace;

/// What happened in runs, counted.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Counts(pub(super) BTreeMap<&'static str, u64>);

impl Counts {
    pub(super) fn add(&mut self, other: &Self) {
        for (name, count) in &other.0 {
            *self.0.entry(name).or_default() += count;
        }
    }
}

/// What a client writes down.
#[derive(Debug)]
pub(super) struct Notebook {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) session: usize,
    pub(super) seen: Vec<Seen>,
    /// The last place that it was told.
    pub(super) last: u64,
    /// It has everything as far as it knows.
    pub(super) is_live: bool,
    /// It has nothing more to do of its own.
    pub(super) is_done: bool,
    /// What was acknowledged to it.
    pub(super) acknowledged: Vec<(String, String, u64)>,
    /// Messages that it sent and of which it does not know what became.
    pub(super) open: Vec<String>,
    /// What it must never be told.
    pub(super) faults: Vec<String>,
}

/// One client's view of the run.
#[derive(Clone)]
pub(super) struct Person {
    pub(super) number: usize,
    pub(super) session: SessionId,
    pub(super) clock: Clock,
    pub(super) net: Net,
    pub(super) chance: Chance,
    pub(super) trace: Trace,
    pub(super) notes: Arc<Mutex<Notebook>>,
    pub(super) counts: Arc<Mutex<Counts>>,
    /// Until when it does things of its own, and is hit by troubles.
    pub(super) busy_until: u64,
    /// Where it may read slowly: who then writes much.
    pub(super) brain: Option<Brain>,
}

/// Something that a client may do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Chat,
    Resend,
    Cancel,
    Decide,
    Queue,
    Stall,
    Leave,
}

impl Person {
    pub(super) fn is_busy(&self) -> bool {
        self.clock.now() < self.busy_until
    }

    pub(super) fn count(&self, what: &'static str) {
        *self.counts.lock().unwrap().0.entry(what).or_default() += 1;
    }

    /// How long it thinks before it does the next thing.
    pub(super) fn thinks(&self) -> Duration {
        let (shortest, longest) = if self.is_busy() { (50, 1_500) } else { (500, 9_000) };
        Duration::from_millis(self.chance.within(shortest, longest))
    }

    /// What it does next.
    pub(super) fn next_act(&self) -> Act {
        if !self.is_busy() {
            return Act::Decide;
        }
        match self.chance.within(0, 99) {
            0..=34 => Act::Chat,
            35..=47 => Act::Resend,
            48..=54 => Act::Cancel,
            55..=82 => Act::Decide,
            83..=88 => Act::Queue,
            89..=94 if self.brain.is_some() => Act::Stall,
            89..=94 => Act::Chat,
            _ => Act::Leave,
        }
    }

    /// Does not read for a while, and what is written next is long.
    pub(super) async fn stall(&self) {
        self.count("stalls");
        self.brain.iter().for_each(Brain::be_long);
        sleep(Duration::from_millis(self.chance.within(3_000, 9_000))).await;
    }

    /// Writes down a frame; returns what it says.
    pub(super) fn told(&self, frame: &ServerFrame) -> Told {
        let told = Told::frame(frame);
        let id = told.what.id().map(|id| self.trace.name(id));
        let (who, name, seq) = (self.number, &told.name, told.seq);
        self.trace.add(self.clock.now(), format_args!("client {who}: {name} {seq:?} {id:?}"));
        let mut notes = self.notes.lock().unwrap();
        // What waits is told before a client has joined the log's end, wherever it stands.
        if notes.kind != Kind::Tail || notes.seen.contains(&Seen::JoinedEnd) {
            notes.last = told.seq.unwrap_or(notes.last).max(notes.last);
        }
        if let What::User { id, client: Some(client), .. } = &told.what
            && let Some(at) = notes.open.iter().position(|open| open == client)
        {
            notes.open.remove(at);
            if let Some(seq) = told.seq {
                notes.acknowledged.push((id.clone(), client.clone(), seq));
            }
        }
        notes.seen.push(Seen::Told(told.clone()));
        told
    }

    /// Writes down what is no frame.
    pub(super) fn saw(&self, seen: Seen) {
        let what = match &seen {
            Seen::Told(_) => "a frame",
            Seen::CaughtUp { .. } => "caught up",
            Seen::JoinedEnd => "joined the end",
            Seen::Lost => "lost",
            Seen::Opened => "opened",
        };
        self.trace.add(self.clock.now(), format_args!("client {}: {what}", self.number));
        let mut notes = self.notes.lock().unwrap();
        match seen {
            Seen::CaughtUp { .. } | Seen::JoinedEnd => notes.is_live = true,
            Seen::Lost | Seen::Opened => notes.is_live = notes.kind == Kind::Strict && seen == Seen::Opened,
            Seen::Told(_) => {}
        }
        notes.seen.push(seen);
    }

    pub(super) fn fault(&self, fault: String) {
        self.notes.lock().unwrap().faults.push(fault);
    }
}

impl What {
    fn id(&self) -> Option<&str> {
        match self {
            Self::User { id, .. } => Some(id),
            Self::Step { response, .. } => response.as_deref(),
            Self::Asked(call) | Self::Settled { call, .. } | Self::Audited(call) => Some(call),
            Self::Started(call) | Self::Finished(call) => Some(call),
            Self::Token { response, .. } => Some(response),
            Self::Ended(_) | Self::Other => None,
        }
    }
}

/// The approvals that a client knows to wait.
#[derive(Debug, Default)]
pub(super) struct Waiting(pub(super) Vec<String>);

impl Waiting {
    pub(super) fn note(&mut self, told: &Told) {
        match &told.what {
            What::Asked(call) if !self.0.contains(call) => self.0.push(call.clone()),
            // The record of the decision is what protocol v1 is told.
            What::Settled { call, .. } | What::Audited(call) => self.0.retain(|waits| waits != call),
            _ => {}
        }
    }

    /// Picks one and an answer to it. It stays: two may answer the same.
    pub(super) fn answer(&self, chance: &Chance) -> Option<(String, &'static str)> {
        let call = chance.pick(&self.0)?.clone();
        let decision = match chance.within(0, 9) {
            0..=5 => "approve",
            6 => "always",
            _ => "reject",
        };
        Some((call, decision))
    }
}
