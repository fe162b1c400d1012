//! A series of kills in one phase, over one data folder: what a server left is the next one's beginning.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use tns_tests::provider::{ModelServer, Reply};
use tokio::time::{Instant, timeout_at};

use super::check::{
    Waiting, check_database, check_documents, check_effects, check_folder, check_log, check_seen,
    check_state, log,
};
use super::client::{Client, Seen};
use super::phase::{Phase, Work};
use super::random::Random;
use crate::binary::{Home, Serving};

/// Kills in each phase.
pub(super) const KILLS: usize = 30;
/// Kills that share a session, so that recovery works on what recovery wrote.
const KILLS_PER_SESSION: usize = 3;
/// Runs of the work that are not cut, to learn how long it takes. The first one warms up.
const WHOLE: usize = 3;

/// The servers of a series.
struct Series {
    phase: Phase,
    home: Home,
    model: ModelServer,
    /// Files of the calls that had begun.
    started: BTreeSet<String>,
    /// Turns that a kill cut.
    cut: usize,
    /// Trials whose work a kill cut.
    unfinished: usize,
    /// Durable events that were seen before the kill.
    acknowledged: usize,
}

/// Kills servers at moments over the whole length of the phase's work.
#[expect(clippy::print_stdout, reason = "the runner shows it with a failure")]
pub(super) async fn run(phase: Phase) {
    let mut random = Random::seeded();
    let model = ModelServer::start([] as [Reply; 0]).await;
    let home = Home::with_model(&model);
    let mut series =
        Series { phase, home, model, started: BTreeSet::new(), cut: 0, unfinished: 0, acknowledged: 0 };
    let server = series.serve().await;
    let length = series.length(&server).await;
    let mut server = Some(server);
    let mut seen = Seen::default();
    for (trial, moment) in random.moments(KILLS, length).into_iter().enumerate() {
        if trial % KILLS_PER_SESSION == 0 {
            seen = Seen::default();
        }
        let session = format!("s{}", trial / KILLS_PER_SESSION);
        let begun = server.take().unwrap();
        server = Some(series.kill_in(begun, Work { phase, trial }, &session, moment, &mut seen).await);
    }
    let Series { home, started, cut, unfinished, acknowledged, .. } = series;
    println!(
        "{phase:?}, {length:?} long: {unfinished} of {KILLS} were cut, with {cut} turns; {acknowledged} events \
         had been seen, {} calls had begun",
        started.len()
    );
    check_folder(&home, &started);
    // Else the moments are chosen badly.
    assert!(unfinished > 0 && acknowledged > 0);
    assert_eq!((cut > 0, !started.is_empty()), (phase.has_turns(), phase.has_tools()));
}

impl Series {
    async fn serve(&self) -> Serving {
        self.home.serve(&["--dangerously-unsandboxed"]).await
    }

    /// Returns how long the work takes when nothing cuts it.
    async fn length(&mut self, server: &Serving) -> Duration {
        let mut seen = Seen::default();
        let mut took = Duration::ZERO;
        for trial in KILLS..KILLS + WHOLE {
            let work = Work { phase: self.phase, trial };
            let mut client = self.begin(server, work, "whole", &mut seen).await;
            let began = Instant::now();
            work.run(&mut client).await;
            took = began.elapsed();
        }
        let stored = log(server, "whole").await;
        check_log(&stored, Waiting::Over);
        check_seen(&stored, &seen);
        self.check(server, "whole", &stored).await;
        assert!(!stored.iter().any(|event| event["type"] == "error"), "{stored:?}");
        took
    }

    async fn begin<'a>(
        &self,
        server: &Serving,
        work: Work,
        session: &'a str,
        seen: &'a mut Seen,
    ) -> Client<'a> {
        let mut client = Client::join(server, session, seen).await;
        client.send("set_autonomy", json!({ "level": work.phase.autonomy() })).await;
        client.expect("autonomy_changed").await;
        self.model.script(work.replies());
        client
    }

    /// Kills the server after `moment` of the work, starts another, and looks at what is there. Returns it.
    async fn kill_in(
        &mut self,
        server: Serving,
        work: Work,
        session: &str,
        moment: Duration,
        seen: &mut Seen,
    ) -> Serving {
        let lost = restarted(&log(&server, session).await);
        let mut client = self.begin(&server, work, session, seen).await;
        let known = client.known();
        let finished = timeout_at(Instant::now() + moment, work.run(&mut client)).await.is_ok();
        server.kill().await;
        client.drain().await;
        self.unfinished += usize::from(!finished);
        self.acknowledged += seen.events.len() - known;
        self.model.script([] as [Reply; 0]);
        check_database(&self.home);

        let server = self.serve().await;
        let before = log(&server, session).await;
        check_log(&before, Waiting::Allowed);
        check_seen(&before, seen);
        self.check(&server, session, &before).await;
        self.cut += restarted(&before) - lost;
        self.go_on(&server, work, session, seen).await;
        let after = log(&server, session).await;
        assert_eq!(after[..before.len()], before);
        check_log(&after, Waiting::Over);
        check_seen(&after, seen);
        server
    }

    async fn check(&mut self, server: &Serving, session: &str, log: &[Value]) {
        check_state(server, session, log).await;
        check_documents(server, session, log).await;
        self.started.extend(check_effects(&self.home, log));
    }

    /// Does what a client does that does not know how far its message came: says it again. Then says one more
    /// thing and waits for its answer: everything that waited has had its turn by then.
    async fn go_on(&self, server: &Serving, work: Work, session: &str, seen: &mut Seen) {
        let mut client = Client::join(server, session, seen).await;
        if work.phase.has_turns() {
            client.say(&work.message_id(1), "work").await;
        }
        let id = work.message_id(0);
        client.say(&id, "and now?").await;
        let turn = loop {
            let event = client.expect("user_message").await;
            if event["clientMessageId"] == id.as_str() {
                break event["messageId"].clone();
            }
        };
        while client.expect("done").await["turnId"] != turn {}
    }
}

/// Counts the turns that a kill cut.
fn restarted(log: &[Value]) -> usize {
    log.iter().filter(|event| event["code"] == "SERVER_RESTARTED").count()
}
