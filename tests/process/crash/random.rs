//! Moments that are chosen at random, and again where a run is repeated.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Set to repeat a failed run.
pub(super) const SEED_VARIABLE: &str = "TNS_TEST_SEED";

/// A small generator of random numbers (SplitMix64, Steele, Lea and Flood 2014).
pub(super) struct Random(u64);

impl Random {
    /// Begins with the seed of the environment, or with one that it chooses. Prints it: whoever captures what a
    /// test prints shows it with a failure.
    #[expect(clippy::print_stdout, reason = "the runner shows it with a failure")]
    pub(super) fn seeded() -> Self {
        let seed = std::env::var(SEED_VARIABLE).ok().map(|seed| seed.parse().unwrap());
        let seed = seed.unwrap_or_else(|| RandomState::new().hash_one("seed"));
        println!("{SEED_VARIABLE}={seed}");
        Self(seed)
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % limit
    }

    /// Returns the moments of `count` kills within `length`, in any order: one in each of `count` equal parts of
    /// it, so that no part is left out.
    pub(super) fn moments(&mut self, count: usize, length: Duration) -> Vec<Duration> {
        let part = (length / u32::try_from(count).unwrap()).max(Duration::from_micros(1));
        let micros = u64::try_from(part.as_micros()).unwrap();
        let within = |at: u32, random: &mut Self| part * at + Duration::from_micros(random.below(micros));
        let mut moments: Vec<Duration> = (0..).take(count).map(|at| within(at, self)).collect();
        for last in (1..moments.len()).rev() {
            let other = usize::try_from(self.below(last as u64 + 1)).unwrap();
            moments.swap(last, other);
        }
        moments
    }
}
