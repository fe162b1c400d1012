//! A simulated network with the real server and the real client library on it: thousands of seeds, each a run
//! of crashes, cuts, half-open connections, partitions and slow readers, held against the wire's invariants E1 to E9.
//!
//! A run is one thread and two paused clocks, and the same seed gives the same run. The `turmoil` crate does not do
//! here: its hosts go on in ticks of one length, so a minute of silence at a millisecond each costs seconds and not
//! nothing; it cuts no single connection and none inside a write, and what a partition drops is never sent again.
//! A seed that fails says so:
//! `TNS_SIM_SEED=n cargo test --workspace --test it -- sim::one_seed --ignored --nocapture` runs it alone and prints what
//! happened.

mod brain;
mod chance;
mod check;
mod net;
mod people;
mod store;
mod told;
mod trace;
mod world;

use people::Counts;
use world::{Plan, run};

/// Names the one seed that [`one_seed`] runs.
const SEED: &str = "TNS_SIM_SEED";
/// Seeds of each test below; together they are two thousand.
const SEEDS: u64 = 125;

/// Runs a share of the seeds; each must leave a history without a fault.
#[expect(clippy::print_stdout, reason = "what a share of the seeds met is shown with its result")]
fn seeds(share: u64) {
    let mut counts = Counts::default();
    for seed in share * SEEDS..(share + 1) * SEEDS {
        let outcome = run(&Plan::of(seed), false);
        assert!(
            outcome.faults.is_empty(),
            "seed {seed}: {:#?}\nrun it alone: {SEED}={seed} cargo test --workspace --test it -- sim::one_seed --ignored --nocapture",
            outcome.faults
        );
        counts.add(&outcome.counts);
    }
    println!("{SEEDS} seeds: {:#?}", counts.0);
    for what in ["crashes", "cuts", "half-open", "partitions", "resumes", "resends", "answers"] {
        assert!(counts.0.get(what).is_some_and(|count| *count > 0), "no seed had {what}");
    }
}

macro_rules! shares {
    ($($name:ident = $share:literal),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                seeds($share);
            }
        )*
    };
}

shares! {
    seeds_00 = 0,
    seeds_01 = 1,
    seeds_02 = 2,
    seeds_03 = 3,
    seeds_04 = 4,
    seeds_05 = 5,
    seeds_06 = 6,
    seeds_07 = 7,
    seeds_08 = 8,
    seeds_09 = 9,
    seeds_10 = 10,
    seeds_11 = 11,
    seeds_12 = 12,
    seeds_13 = 13,
    seeds_14 = 14,
    seeds_15 = 15,
}

/// E6: who does not read costs the others nothing, though much more is written than its queue holds.
#[test]
fn a_reader_that_never_reads_slows_nobody() {
    let mut lagged = 0;
    for seed in 0..8 {
        let outcome = run(&Plan::with_a_sleeper(seed), false);
        assert!(outcome.faults.is_empty(), "seed {seed}: {:#?}", outcome.faults);
        let seconds = outcome.counts.0["simulated seconds"];
        // A server that waited for the sleeper would wait a minute for each event.
        assert!(seconds < 180, "seed {seed}: quiet after {seconds} s");
        lagged += outcome.counts.0.get("lagged").unwrap_or(&0);
    }
    println!("{lagged} times somebody lagged and resumed");
    assert!(lagged > 0, "nobody's queue was full");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..24 {
        let (first, second) = (run(&Plan::of(seed), true), run(&Plan::of(seed), true));
        let (one, other) = (first.trace.lines(), second.trace.lines());
        let differs = one.iter().zip(&other).position(|(one, other)| one != other);
        assert_eq!(differs.map(|at| (&one[at], &other[at])), None, "seed {seed}");
        assert_eq!((one.len(), first.trace.digest()), (other.len(), second.trace.digest()), "seed {seed}");
        assert_eq!(first.counts, second.counts, "seed {seed}");
    }
}

#[test]
#[ignore = "runs the one seed that TNS_SIM_SEED names"]
fn one_seed() {
    let seed = std::env::var(SEED).expect("TNS_SIM_SEED names a seed");
    let plan = Plan::of(seed.parse().expect("a seed is a number"));
    let outcome = run(&plan, true);
    println!("{plan:#?}");
    outcome.trace.lines().iter().for_each(|line| println!("{line}"));
    println!("{:#?}", outcome.counts);
    assert!(outcome.faults.is_empty(), "{:#?}", outcome.faults);
}
