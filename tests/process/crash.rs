//! `kill -9` of the server at any moment: what a client saw is there once, nothing ran twice, no turn hangs,
//! nothing of a tool survives, and the files are whole.
//!
//! A failed test has printed its seed; `TNS_TEST_SEED` repeats its moments.

mod check;
mod client;
mod moments;
mod phase;
mod random;
mod series;

use phase::Phase;

/// Makes a test of each phase, so that they run beside each other and each is short.
macro_rules! phases {
    ($($test:ident: $phase:ident,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                series::run(Phase::$phase).await;
            }
        )*

        const PHASES: &[Phase] = &[$(Phase::$phase,)*];
    };
}

phases! {
    nothing_is_lost_by_kills_while_a_reply_is_streamed: Streaming,
    nothing_is_lost_by_kills_while_tools_run: Tools,
    nothing_is_lost_by_kills_while_approvals_wait_and_are_answered: Approvals,
    nothing_is_lost_by_kills_while_documents_are_added: Documents,
    nothing_is_lost_by_kills_while_the_roster_changes: Agents,
    nothing_is_lost_by_kills_while_messages_wait: Queue,
    nothing_is_lost_by_kills_while_a_history_is_summarised: Compaction,
    nothing_is_lost_by_kills_while_much_happens_at_once: Mixed,
}

/// Kills of one run of the tests, at least.
const MIN_KILLS: usize = 200;
const _: () = assert!(PHASES.len() * series::KILLS >= MIN_KILLS);
