//! How the writing thread keeps the index of messages: told of titles in each group, following in quiet moments,
//! made anew where it is damaged. Whatever becomes of it, the log goes on.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tns_server_core::store::StoreError;

use super::super::error::Fault;
use super::super::index::{self, MAX_BEHIND};
use super::{Chores, Owner};

/// How soon a damaged index is made anew once more: damage that comes back at once is not chased.
const RENEW_AGAIN: Duration = Duration::from_secs(60);
/// Most steps that the index follows within a group; the rest comes between groups.
const MAX_STEPS: usize = 4;

impl Owner {
    /// Lets the index follow by one step; one that is damaged is made anew.
    pub(super) fn follow_in_quiet(&mut self) {
        let head = self.numbers.last_gseq;
        let mut followed = Ok(self.indexed);
        if !self.index_damaged {
            followed = self.alone(|connection| index::follow(connection, head));
            self.index_damaged = followed.as_ref().is_err_and(Fault::is_of_index);
        }
        if self.index_damaged {
            return self.renew_index(head);
        }
        // Another process that held the store for a moment is no trouble of the index.
        let stuck = |fault: &Fault| !matches!(fault.told(), StoreError::Busy);
        self.index_stuck = followed.as_ref().is_err_and(stuck);
        self.follow_at = self.follow_at.filter(|_| followed.as_ref().is_ok_and(|reached| *reached < head));
        self.indexed = followed.unwrap_or(self.indexed);
    }

    fn renew_index(&mut self, head: u64) {
        let now = Instant::now();
        let again = self.renewed.map(|tried| tried + RENEW_AGAIN).filter(|again| *again > now);
        if again.is_some() {
            self.follow_at = again;
            return;
        }
        self.renewed = Some(now);
        if self.alone(|connection| index::renew(connection, head)).is_err() {
            self.follow_at = Some(now + RENEW_AGAIN);
            return;
        }
        self.shared.index_damaged.store(false, Ordering::Relaxed);
        (self.index_damaged, self.index_stuck, self.indexed) = (false, false, head);
        self.follow_at = None;
        self.chores = Chores::Waiting;
    }

    /// Sets when the index follows what was just written.
    pub(super) fn plan_to_follow(&mut self) {
        if self.index_damaged && self.follow_at.is_some() {
            return;
        }
        let behind = self.behind(self.indexed);
        if self.index_damaged || behind > 0 {
            let far = behind > MAX_BEHIND && !self.index_stuck;
            self.follow_at = Some(Instant::now() + if far { Duration::ZERO } else { self.quiet });
        }
    }

    /// Tells the index of titles, and lets it follow where it would be too far behind; returns how far it is. One that
    /// is damaged, or can't follow, holds up nothing else: a search says so.
    pub(super) fn tell_index(&mut self) -> Result<u64, StoreError> {
        if self.shared.index_damaged.swap(false, Ordering::Relaxed) && !self.index_damaged {
            self.index_damaged = true;
            index::mark_damaged(&self.connection)?;
        }
        let far = self.behind(self.indexed) > MAX_BEHIND && !self.index_stuck;
        if self.index_damaged || (self.titles.is_empty() && !far) {
            return Ok(self.indexed);
        }
        self.step("SAVEPOINT told")?;
        let told = self.write_index(far);
        if let Err(fault) = &told
            && !matches!(fault.told(), StoreError::Full | StoreError::Busy)
            && !self.connection.is_autocommit()
        {
            tracing::error!(error = %fault.told(), "the index of messages can't be written");
            self.step("ROLLBACK TO told")?;
            self.index_stuck = true;
            if fault.is_of_index() {
                self.index_damaged = true;
                index::mark_damaged(&self.connection)?;
            } else {
                // The log can't be read where the index should follow; titles need none of it.
                index::write(&self.connection, &self.titles)?;
            }
        } else if told.is_err() {
            return Ok(told?);
        }
        self.step("RELEASE told")?;
        Ok(told.unwrap_or(self.indexed))
    }

    fn write_index(&self, far: bool) -> Result<u64, Fault> {
        let mut indexed = self.indexed;
        index::write(&self.connection, &self.titles)?;
        for _ in 0..MAX_STEPS {
            if far && self.behind(indexed) > MAX_BEHIND {
                indexed = index::follow(&self.connection, self.numbers.last_gseq)?;
            }
        }
        index::flush(&self.connection)?;
        Ok(indexed)
    }

    /// Returns how many places an index that is this far is behind.
    fn behind(&self, indexed: u64) -> u64 {
        self.numbers.last_gseq.saturating_sub(indexed)
    }
}
