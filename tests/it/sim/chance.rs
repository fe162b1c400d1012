//! Chance from a seed: SplitMix64. The same seed gives the same numbers, on every machine.

use std::sync::{Arc, Mutex};

/// A source of numbers. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Chance(Arc<Mutex<u64>>);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(seed)))
    }

    /// Makes a source of its own for something, so that what draws from one does not shift the other.
    pub(super) fn split(&self) -> Self {
        Self::new(self.next())
    }

    pub(super) fn next(&self) -> u64 {
        let mut state = self.0.lock().unwrap();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from `low` to `high`, both included.
    pub(super) fn within(&self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// Whether something of this likelihood happens.
    pub(super) fn percent(&self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    /// A number in 0..1.
    pub(super) fn fraction(&self) -> f64 {
        let bits = u32::try_from(self.next() >> 32).unwrap();
        f64::from(bits) / (f64::from(u32::MAX) + 1.0)
    }

    pub(super) fn pick<'a, T>(&self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() {
            return None;
        }
        from.get(usize::try_from(self.within(0, from.len() as u64 - 1)).unwrap())
    }
}
