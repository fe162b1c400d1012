//! What a seed has in store: who takes part, and which troubles come when.

use crate::sim::chance::Chance;
use crate::sim::told::Kind;

/// One run, drawn from its seed.
#[derive(Debug, Clone)]
pub(in crate::sim) struct Plan {
    pub(in crate::sim) seed: u64,
    pub(super) sessions: usize,
    pub(super) people: Vec<Role>,
    /// Until when people do things of their own, in milliseconds.
    pub(super) busy_until: u64,
    /// By time.
    pub(super) faults: Vec<(u64, Fault)>,
    /// Some replies are long and some clients read slowly.
    pub(super) long: bool,
    /// Of a hundred appends to the store so many fail.
    pub(super) failing: u64,
}

/// Somebody who takes part.
#[derive(Debug, Clone)]
pub(super) struct Role {
    pub(super) session: usize,
    pub(super) works: Works,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Works {
    Follows,
    FollowsFromEnd,
    Strict,
    Posts,
    /// Joins, and never reads what it is told.
    Sleeps,
}

impl Role {
    pub(super) fn kind(&self) -> Kind {
        match self.works {
            Works::Follows => Kind::Whole,
            Works::FollowsFromEnd => Kind::Tail,
            Works::Strict | Works::Posts | Works::Sleeps => Kind::Strict,
        }
    }
}

/// A trouble.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// The server's program dies, or its whole host; it is there again after `down` milliseconds.
    Crash { down: u64, silent: bool },
    /// The server is stopped in order and started again.
    Stop,
    /// A connection is cut.
    Cut,
    /// A connection's way is lost, and neither end is told.
    Lose,
    /// Nothing goes to and from a client for a while.
    Block { client: usize, time: u64 },
}

impl Plan {
    /// Draws a run without troubles, in which two read slowly at times and one never reads.
    pub(in crate::sim) fn with_a_sleeper(seed: u64) -> Self {
        let people = [Works::Follows, Works::Follows, Works::Sleeps];
        let people = people.map(|works| Role { session: 0, works }).to_vec();
        let plan = Self::of(seed);
        Self { sessions: 1, people, busy_until: 4_000, faults: Vec::new(), long: true, failing: 0, ..plan }
    }

    /// Draws the run of a seed.
    pub(in crate::sim) fn of(seed: u64) -> Self {
        let chance = Chance::new(seed ^ 0x5eed);
        let sessions: usize = if chance.percent(10) { 2 } else { 1 };
        let mut people = Vec::new();
        for session in 0..sessions {
            people.push(Role { session, works: Works::Follows });
            for _ in 0..chance.within(0, 4 / sessions as u64 - 1) {
                let works = match chance.within(0, 9) {
                    0..=3 => Works::Follows,
                    4 => Works::FollowsFromEnd,
                    5..=7 => Works::Strict,
                    _ => Works::Posts,
                };
                people.push(Role { session, works });
            }
        }
        let busy_until = chance.within(800, 2_800);
        let mut faults = Vec::new();
        for _ in 0..chance.within(1, 5) {
            let at = chance.within(200, busy_until);
            let fault = match chance.within(0, 99) {
                0..=24 => Fault::Crash { down: chance.within(0, 1_500), silent: chance.percent(25) },
                25..=31 => Fault::Stop,
                32..=61 => Fault::Cut,
                62..=69 => Fault::Lose,
                _ => {
                    let client = usize::try_from(chance.within(0, people.len() as u64 - 1)).unwrap();
                    Fault::Block { client, time: chance.within(100, 4_000) }
                }
            };
            faults.push((at, fault));
        }
        faults.sort_by_key(|(at, _)| *at);
        let long = chance.percent(3);
        let failing = if chance.percent(15) { 3 } else { 0 };
        Self { seed, sessions, people, busy_until, faults, long, failing }
    }
}
