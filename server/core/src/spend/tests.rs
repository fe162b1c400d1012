//! Limits at their edges, with a clock that the test moves. No engine is called.

use std::sync::atomic::{AtomicI64, Ordering};

use proptest::prelude::*;
use tns_protocol::{AgentId, MessageId, SessionId};

use super::*;
use crate::engine::StepStream;
use crate::event::{AssistantMessage, DurableEvent, MessageStatus};
use crate::memory::MemoryStore;
use crate::message::{Note, Part};
use crate::store::{Append, LOCAL_PRINCIPAL, NewEvent, NewSession, SessionKey, SessionState};

const DAY_MICROS: i64 = 86_400_000_000;
/// One second before 2026-11-30 begins.
const LATE: i64 = 20_787 * DAY_MICROS - 1_000_000;

/// An engine that is never called: one dollar a million tokens.
struct Priced(Pricing);

impl Engine for Priced {
    fn provider(&self) -> &str {
        "maker"
    }

    fn model(&self) -> &str {
        "m-1"
    }

    fn pricing(&self) -> Pricing {
        self.0
    }

    fn estimate(&self, input: u64, output: u64) -> f64 {
        (input + output) as f64 / 1e6
    }

    fn step(&self, _: StepRequest) -> StepStream {
        unreachable!("no step runs here")
    }
}

fn request() -> StepRequest {
    StepRequest {
        system: "".into(),
        tools: Arc::new([]),
        messages: Vec::new(),
        effort: None,
        max_output_tokens: None,
        temperature: None,
    }
}

/// What an empty request is held for.
const HELD: f64 = ESTIMATED_OUTPUT as f64 / 1e6;

struct Bench {
    store: MemoryStore,
    session: SessionKey,
    now: Arc<AtomicI64>,
}

impl Bench {
    async fn new() -> Self {
        let store = MemoryStore::new();
        let new = NewSession {
            principal: LOCAL_PRINCIPAL.to_owned(),
            id: SessionId::parse("s").unwrap(),
            title: None,
            workspace: "/work".into(),
            state: SessionState::default(),
        };
        let session = store.create_session(new).await.unwrap().0.key;
        Self { store, session, now: Arc::new(AtomicI64::new(LATE)) }
    }

    async fn ledger(&self, daily: Option<f64>, session: Option<f64>) -> Arc<Ledger> {
        let now = self.now.clone();
        let clock: Clock = Arc::new(move || Timestamp::from_micros(now.load(Ordering::Relaxed)));
        Ledger::open(&self.store, SpendLimits { daily, session }, clock).await.unwrap()
    }

    /// Stores a step that was counted on this day.
    async fn store_step(&self, usage: StepUsage, day: Day) {
        let step = AssistantMessage {
            id: MessageId::parse("m").unwrap(),
            agent: AgentId::parse("a").unwrap(),
            parts: Vec::new(),
            model: "m-1".to_owned(),
            native: None,
            notes: Vec::new(),
            status: MessageStatus::Complete,
            response: None,
            usage: Some(usage),
            provider: Some("maker".to_owned()),
            counted_on: Some(day),
        };
        let events = vec![NewEvent { turn: None, event: DurableEvent::AssistantMessage(step) }];
        self.store.append(Append::new(self.session, events)).await.unwrap();
    }
}

fn priced(cost: f64) -> StepUsage {
    StepUsage { input: 10, output: 5, cost: Some(cost), ..StepUsage::default() }
}

fn admit(ledger: &Arc<Ledger>, pricing: Pricing, session: SessionSpend) -> Result<Hold, SpendRefusal> {
    let (engine, request) = (Priced(pricing), request());
    ledger.admit(StepToCome { engine: &engine, request: &request, session })
}

fn known(ledger: &Arc<Ledger>) -> Result<Hold, SpendRefusal> {
    admit(ledger, Pricing::Known, SessionSpend::default())
}

fn refusal(result: Result<Hold, SpendRefusal>) -> Option<SpendRefusal> {
    result.err()
}

#[tokio::test]
async fn a_step_is_let_in_below_the_limit_and_not_at_it() {
    let bench = Bench::new().await;
    let ledger = bench.ledger(Some(1.0), None).await;
    known(&ledger).unwrap().settle(&priced(0.999_999_999));
    known(&ledger).unwrap().settle(&priced(0.000_000_001));
    assert_eq!(ledger.today().1, Money::from_dollars(1.0));
    assert_eq!(refusal(known(&ledger)), Some(SpendRefusal::Daily));
}

#[tokio::test]
async fn the_last_step_may_go_over_and_then_none_is_let_in() {
    let bench = Bench::new().await;
    let ledger = bench.ledger(Some(1.0), None).await;
    known(&ledger).unwrap().settle(&priced(5.0));
    assert_eq!(refusal(known(&ledger)), Some(SpendRefusal::Daily));
}

#[tokio::test]
async fn nothing_at_all_is_a_limit() {
    let bench = Bench::new().await;
    let ledger = bench.ledger(Some(0.0), None).await;
    assert_eq!(refusal(known(&ledger)), Some(SpendRefusal::Daily));
    assert!(admit(&ledger, Pricing::Free, SessionSpend::default()).is_ok());
}

#[tokio::test]
async fn a_model_without_a_price_works_only_without_a_limit() {
    let bench = Bench::new().await;
    let unpriced = |ledger: &Arc<Ledger>, budget| {
        refusal(admit(ledger, Pricing::Unknown, SessionSpend { budget, ..SessionSpend::default() }))
    };
    let refused = SpendRefusal::Unpriced { provider: "maker".into(), model: "m-1".into() };
    assert!(refused.to_string().contains("[prices]"));
    let told = Some(refused);
    assert_eq!(unpriced(&bench.ledger(Some(9.0), None).await, None), told);
    assert_eq!(unpriced(&bench.ledger(None, Some(9.0)).await, None), told);
    let unlimited = bench.ledger(None, None).await;
    assert_eq!(unpriced(&unlimited, Some(9.0)), told);
    assert_eq!(unpriced(&unlimited, None), None);
}

#[tokio::test]
async fn free_models_work_though_every_limit_is_reached() {
    let bench = Bench::new().await;
    let ledger = bench.ledger(Some(1.0), Some(1.0)).await;
    known(&ledger).unwrap().settle(&priced(2.0));
    let spent = SessionSpend { spent: Money::from_dollars(2.0), budget: Some(1.0) };
    assert!(admit(&ledger, Pricing::Free, spent).is_ok());
}

#[tokio::test]
async fn a_session_has_its_own_limit_and_its_budget() {
    let bench = Bench::new().await;
    let ledger = bench.ledger(None, Some(1.0)).await;
    let of = |spent, budget| {
        let session = SessionSpend { spent: Money::from_dollars(spent), budget };
        refusal(admit(&ledger, Pricing::Known, session))
    };
    assert_eq!(of(0.999_999_999, None), None);
    assert_eq!(of(1.0, None), Some(SpendRefusal::Session));
    assert_eq!(of(0.5, Some(0.500_000_001)), None);
    assert_eq!(of(0.5, Some(0.5)), Some(SpendRefusal::Budget));
    assert_eq!(of(1.0, Some(2.0)), Some(SpendRefusal::Session));
}

#[tokio::test]
async fn steps_that_run_side_by_side_see_each_other() {
    let bench = Bench::new().await;
    // Room for two estimates and a bit: the third goes over with its estimate, the fourth is not let in.
    let ledger = bench.ledger(Some(2.5 * HELD), None).await;
    let running: Vec<Hold> = (0..3).map(|_| known(&ledger).unwrap()).collect();
    assert_eq!(refusal(known(&ledger)), Some(SpendRefusal::Daily));
    // What was held is let go when a step ends, here for less than was held.
    for hold in running {
        hold.settle(&priced(HELD / 4.0));
    }
    assert_eq!(ledger.today().1, Money::from_dollars(HELD / 4.0 * 3.0));
    assert!(known(&ledger).is_ok());
}

#[tokio::test]
async fn a_step_that_came_to_nothing_holds_nothing() {
    let bench = Bench::new().await;
    let ledger = bench.ledger(Some(HELD), None).await;
    drop(known(&ledger).unwrap());
    assert!(known(&ledger).is_ok());
    assert_eq!(ledger.today().1, Money::ZERO);
}

#[tokio::test]
async fn a_new_day_begins_at_nothing_and_a_step_counts_on_the_day_it_ends() {
    let bench = Bench::new().await;
    let ledger = bench.ledger(Some(1.0), None).await;
    assert_eq!(known(&ledger).unwrap().settle(&priced(1.0)).to_string(), "2026-11-29");
    assert_eq!(refusal(known(&ledger)), Some(SpendRefusal::Daily));
    bench.now.store(LATE + 999_999, Ordering::Relaxed);
    assert_eq!(refusal(known(&ledger)), Some(SpendRefusal::Daily));
    bench.now.store(LATE + 1_000_000, Ordering::Relaxed);
    let over_midnight = known(&ledger).unwrap();
    assert_eq!(over_midnight.settle(&priced(1.0)).to_string(), "2026-11-30");
    assert_eq!(refusal(known(&ledger)), Some(SpendRefusal::Daily));
    // A clock that goes back opens no old day.
    bench.now.store(LATE, Ordering::Relaxed);
    assert_eq!(refusal(known(&ledger)), Some(SpendRefusal::Daily));
    assert_eq!(ledger.today().0.to_string(), "2026-11-30");
}

#[tokio::test]
async fn a_server_that_starts_again_goes_on_from_what_is_stored() {
    let bench = Bench::new().await;
    let today = Day::of(Timestamp::from_micros(LATE));
    bench.store_step(priced(0.75), today).await;
    bench.store_step(priced(9.0), Day::from_number(today.number() - 1)).await;
    let ledger = bench.ledger(Some(1.0), None).await;
    assert_eq!(ledger.today(), (today, Money::from_dollars(0.75)));
    known(&ledger).unwrap().settle(&priced(0.25));
    assert_eq!(refusal(known(&ledger)), Some(SpendRefusal::Daily));
    assert_eq!(bench.store.session_cost(bench.session).await, Ok(Money::from_dollars(9.75)));
}

#[test]
fn an_estimate_counts_all_that_is_sent() {
    let mut request = request();
    assert_eq!(tokens::of_request(&request), 0);
    request.system = "x".repeat(40).into();
    let parts = vec![Part::Text("y".repeat(400)), Part::Note(Note::Text("z".repeat(4)))];
    request.messages = vec![crate::message::ModelMessage {
        role: crate::message::ModelRole::User,
        parts,
        native: Vec::new(),
    }];
    assert_eq!(tokens::of_request(&request), 111);
}

/// What may happen to a ledger and the store behind it.
#[derive(Debug, Clone)]
enum Happening {
    /// A step ends with this cost; `None`: its price is not known.
    Step(Option<u32>),
    /// A step is given up.
    GivenUp,
    /// Time passes, in hours.
    Hours(u8),
    /// The server starts again.
    Restart,
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => proptest::option::weighted(0.9, 0_u32..2_000_000).prop_map(Happening::Step),
        1 => Just(Happening::GivenUp),
        2 => (0_u8..30).prop_map(Happening::Hours),
        1 => Just(Happening::Restart),
    ]
}

proptest! {
    #[test]
    fn the_ledger_has_the_sum_of_the_days_stored_steps(all in proptest::collection::vec(happening(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let bench = Bench::new().await;
            let mut ledger = bench.ledger(None, None).await;
            for happening in all {
                match happening {
                    Happening::Step(micros) => {
                        let cost = micros.map(|micros| f64::from(micros) / 1e6);
                        let usage = StepUsage { cost, ..priced(0.0) };
                        let day = known(&ledger).unwrap().settle(&usage);
                        bench.store_step(usage, day).await;
                    }
                    Happening::GivenUp => drop(known(&ledger).unwrap()),
                    Happening::Hours(hours) => {
                        bench.now.fetch_add(i64::from(hours) * 3_600_000_000, Ordering::Relaxed);
                    }
                    Happening::Restart => ledger = bench.ledger(None, None).await,
                }
                let (day, spent) = ledger.today();
                let rows = bench.store.usage(day..=day).await.unwrap();
                let stored = rows.iter().fold(Money::ZERO, |sum, row| sum.plus(row.cost));
                assert_eq!(spent, stored);
                assert_eq!(ledger.state().held, Money::ZERO);
            }
        });
    }
}
