//! Calls whose tool writes while it runs, with the test in the place of the session.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use serde_json::json;
use tns_protocol::AgentId;
use tns_protocol::approval::RiskClass;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::event::DurableEvent;
use crate::message::ToolCall;
use crate::session::port::{Settings, TurnPort, TurnReport};
use crate::tool::{
    Args, ArgumentCheck, LiveOutput, MAX_PIECE_BYTES, Rating, Tool, ToolOutcome, ToolRun, ToolSpec, Workspace,
};
use crate::turn::TurnLimits;
use crate::turn::calls::{self, Approved};
use crate::turn::state::FinishedCall;

type Talk = Box<dyn Fn(LiveOutput) -> BoxFuture<'static, ToolOutcome> + Send + Sync>;

/// A tool that does what the test says.
struct Talker {
    spec: Arc<ToolSpec>,
    talk: Talk,
}

#[async_trait]
impl Tool for Talker {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    async fn rate(&self, _args: &Args, _workspace: &Workspace) -> Rating {
        Rating::new(RiskClass::ReadOnly, "it talks", "talk")
    }

    async fn run(&self, run: ToolRun) -> ToolOutcome {
        (self.talk)(run.live).await
    }
}

struct AnyArguments;

impl ArgumentCheck for AnyArguments {
    fn check(&self, _schema: &serde_json::Value, _args: &Args) -> Result<(), String> {
        Ok(())
    }
}

/// A turn with one call that may run, and its session's end of the line.
struct Bench {
    context: CallContext,
    reports: mpsc::Receiver<TurnReport>,
    approved: Option<Approved>,
    /// A tool that waits for a permit of it goes on when the test gives one.
    gate: Arc<Semaphore>,
}

impl Bench {
    async fn new<F>(talk: impl Fn(LiveOutput, Arc<Semaphore>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ToolOutcome> + Send + 'static,
    {
        let (_, settings) = watch::channel(Arc::new(Settings::default()));
        let (port, reports) = TurnPort::new(settings);
        let context = CallContext {
            agent: AgentId::parse("assistant-0a1b2c3d").unwrap(),
            workspace: Arc::new(Workspace::new("/".into())),
            arguments: Arc::new(AnyArguments),
            limits: TurnLimits::default(),
            port,
            cancel: CancellationToken::new(),
        };
        let gate = Arc::new(Semaphore::new(0));
        let held = gate.clone();
        let spec = ToolSpec { name: "talk".into(), description: String::new(), schema: json!({}) };
        let tool =
            Talker { spec: Arc::new(spec), talk: Box::new(move |live| Box::pin(talk(live, held.clone()))) };
        let call = ToolCall {
            id: ToolCallId::parse("call-1").unwrap(),
            provider_id: None,
            name: "talk".into(),
            args: Args::new(),
            problem: None,
        };
        let approved = calls::authorize(&context, call, Some(Arc::new(tool))).await.ok();
        Self { context, reports, approved, gate }
    }

    /// Runs the call beside what its session does.
    async fn run<T>(
        mut self,
        session: impl AsyncFnOnce(&mut mpsc::Receiver<TurnReport>, &CallContext, &Semaphore) -> T,
    ) -> (FinishedCall, T, mpsc::Receiver<TurnReport>) {
        let approved = self.approved.take().unwrap();
        let running = calls::run(&self.context, approved, CancellationToken::new());
        let (finished, seen) = tokio::join!(running, session(&mut self.reports, &self.context, &self.gate));
        (finished, seen, self.reports)
    }
}

/// Stores the start of the call.
async fn store_start(reports: &mut mpsc::Receiver<TurnReport>) {
    let Some(TurnReport::Emit { events, stored: Some(stored) }) = reports.recv().await else {
        panic!("the start of the call comes first");
    };
    let is_start = |event: &Outgoing| matches!(event, Outgoing::Durable(event) if matches!(**event, DurableEvent::ToolStarted(_)));
    assert!(events.iter().any(is_start), "{events:?}");
    stored.send(true).unwrap();
}

/// Returns the piece that a report shows; an empty report shows none.
fn piece(report: TurnReport) -> Option<String> {
    let TurnReport::Emit { mut events, stored: None } = report else { panic!("not a piece") };
    match events.pop()? {
        Outgoing::Live(LiveEvent::ToolOutput { text, .. }) => Some(text),
        other => panic!("{other:?}"),
    }
}

async fn next_piece(reports: &mut mpsc::Receiver<TurnReport>) -> String {
    piece(reports.recv().await.unwrap()).unwrap()
}

fn rest(reports: &mut mpsc::Receiver<TurnReport>) -> Vec<String> {
    std::iter::from_fn(|| reports.try_recv().ok()).filter_map(piece).collect()
}

#[tokio::test(start_paused = true)]
async fn pieces_are_shown_in_order_between_the_start_and_the_result() {
    let bench = Bench::new(|live, gate| async move {
        live.write("one\n");
        drop(gate.acquire().await);
        live.write("tw");
        live.write("o\n");
        ToolOutcome::ok("one\ntwo\n")
    });
    let session = async |reports: &mut _, _: &_, gate: &Semaphore| {
        store_start(reports).await;
        let first = next_piece(reports).await;
        gate.add_permits(1);
        first
    };
    let (finished, first, mut reports) = bench.await.run(session).await;
    assert_eq!(finished.result.output, "one\ntwo\n");
    assert_eq!((first.as_str(), rest(&mut reports)), ("one\n", vec!["two\n".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn what_comes_quickly_is_joined_and_the_first_piece_does_not_wait() {
    let bench = Bench::new(|live, _| async move {
        for _ in 0..100 {
            live.write("x");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        ToolOutcome::ok("")
    });
    let began = Instant::now();
    let session = async |reports: &mut _, _: &_, _: &_| {
        store_start(reports).await;
        let mut pieces = Vec::new();
        while pieces.concat() != "x".repeat(100) {
            pieces.push(next_piece(reports).await);
            assert!(began.elapsed() >= BETWEEN_PIECES * (pieces.len() as u32 - 1));
        }
        pieces
    };
    let (finished, pieces, mut reports) = bench.await.run(session).await;
    assert_eq!(pieces[0], "x");
    assert_eq!(finished.duration_ms, 1_000);
    assert_eq!(rest(&mut reports), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_session_that_takes_nothing_does_not_hold_up_the_tool() {
    let done = Arc::new(Semaphore::new(0));
    let told = done.clone();
    let bench = Bench::new(move |live, gate| {
        let told = told.clone();
        async move {
            drop(gate.acquire().await);
            for _ in 0..1_000 {
                live.write("x".repeat(1_000));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            live.write("end");
            told.add_permits(1);
            ToolOutcome::ok("all of it")
        }
    });
    let session = async |reports: &mut _, context: &CallContext, gate: &Semaphore| {
        store_start(reports).await;
        // Until no more reports fit.
        while tokio::time::timeout(Duration::from_millis(1), context.port.emit(Vec::new())).await.is_ok() {}
        gate.add_permits(1);
        drop(done.acquire().await);
        let mut pieces = Vec::new();
        while pieces.last().is_none_or(|piece: &String| !piece.ends_with("end")) {
            pieces.extend(piece(reports.recv().await.unwrap()));
        }
        pieces
    };
    let (finished, pieces, mut reports) = bench.await.run(session).await;
    assert_eq!(finished.result.output, "all of it");
    let left_out = 1_000_003 - MAX_PIECE_BYTES;
    let note = format!("\n[… {left_out} bytes of output left out here …]\n");
    assert_eq!(pieces, [format!("{note}{}end", "x".repeat(MAX_PIECE_BYTES - 3))]);
    assert_eq!(rest(&mut reports), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn what_a_tool_writes_after_its_end_is_not_shown() {
    let kept: Arc<Mutex<Option<LiveOutput>>> = Arc::default();
    let keeps = kept.clone();
    let bench = Bench::new(move |live, _| {
        live.write("so far");
        keeps.lock().unwrap().replace(live);
        // It is over its time, and does not even hear that.
        std::future::pending()
    });
    let session = async |reports: &mut _, _: &_, _: &_| {
        store_start(reports).await;
        next_piece(reports).await
    };
    let (finished, shown, mut reports) = bench.await.run(session).await;
    assert_eq!((shown.as_str(), finished.result.is_error), ("so far", true));
    kept.lock().unwrap().take().unwrap().write("late");
    assert_eq!(rest(&mut reports), Vec::<String>::new());
}
