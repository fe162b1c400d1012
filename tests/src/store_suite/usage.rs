//! What model calls used: added with their steps, summed up by day and by session.

use tns_protocol::{AgentId, Day, MessageId};
use tns_server_core::engine::StepUsage;
use tns_server_core::event::{AssistantMessage, DurableEvent, MessageStatus};
use tns_server_core::store::NewEvent;
use tns_server_core::usage::{Money, UsageRow};

use super::{AnyStore, line, make, plain, stored};

const DAY: Day = Day::from_number(20_787);
const NEXT: Day = Day::from_number(20_788);

fn step(day: Option<Day>, (provider, model): (&str, &str), usage: Option<StepUsage>) -> NewEvent {
    NewEvent {
        turn: None,
        event: DurableEvent::AssistantMessage(AssistantMessage {
            id: MessageId::parse("m-1").unwrap(),
            agent: AgentId::parse("helper-00000000").unwrap(),
            parts: Vec::new(),
            model: model.into(),
            native: None,
            notes: Vec::new(),
            status: MessageStatus::Complete,
            response: None,
            usage,
            provider: Some(provider.into()),
            counted_on: day,
        }),
    }
}

fn used(input: u64, output: u64, cost: Option<f64>) -> Option<StepUsage> {
    Some(StepUsage { input, cached_input: input / 2, cache_written: 0, output, cost })
}

fn row(day: Day, (provider, model): (&str, &str), steps: u64, tokens: [u64; 3], cost: f64) -> UsageRow {
    let [input, cached_input, output] = tokens;
    let (provider, model) = (provider.to_owned(), model.to_owned());
    let cost = Money::from_dollars(cost);
    UsageRow { day, provider, model, steps, input, cached_input, output, cost, unpriced_steps: 0 }
}

/// Steps of all sessions come together by day, provider and model; the days asked for are the first and the last.
pub async fn usage_is_summed_up_by_day_provider_and_model(store: &impl AnyStore) {
    let (one, two) = (make(store, "one").await, make(store, "two").await);
    let (a, b) = (("maker", "a"), ("maker", "b"));
    stored(store, plain(one.key, vec![step(Some(DAY), a, used(10, 1, Some(0.5))), line("x")])).await;
    stored(store, plain(two.key, vec![step(Some(DAY), a, used(20, 2, Some(0.25)))])).await;
    stored(store, plain(one.key, vec![step(Some(DAY), b, used(4, 4, Some(1.0)))])).await;
    let late = [step(Some(NEXT), a, used(2, 3, Some(0.1))), step(Some(NEXT), a, used(2, 3, None))];
    stored(store, plain(one.key, late.into())).await;
    stored(store, plain(one.key, vec![step(Some(DAY), a, None)])).await;

    let of_day = [row(DAY, a, 2, [30, 15, 3], 0.75), row(DAY, b, 1, [4, 2, 4], 1.0)];
    let of_next = UsageRow { unpriced_steps: 1, ..row(NEXT, a, 2, [4, 2, 6], 0.1) };
    assert_eq!(store.usage(DAY..=DAY).await.unwrap(), of_day);
    assert_eq!(store.usage(NEXT..=NEXT).await.unwrap(), std::slice::from_ref(&of_next));
    assert_eq!(store.usage(DAY..=NEXT).await.unwrap(), [&of_day[..], &[of_next]].concat());
    let before = Day::from_number(DAY.number() - 1);
    assert_eq!(store.usage(before..=before).await, Ok(vec![]));
    assert_eq!(store.session_cost(one.key).await, Ok(Money::from_dollars(1.6)));
    assert_eq!(store.session_cost(two.key).await, Ok(Money::from_dollars(0.25)));
}

/// A step that names no day counts on the day on which it is stored.
pub async fn a_step_without_a_day_counts_on_the_day_it_is_stored(store: &impl AnyStore) {
    let session = make(store, "one").await;
    let before = Day::today();
    stored(store, plain(session.key, vec![step(None, ("maker", "a"), used(1, 1, Some(0.5)))])).await;
    let rows = store.usage(before..=Day::today()).await.unwrap();
    assert_eq!((rows.len(), rows[0].cost), (1, Money::from_dollars(0.5)));
}

/// What sessions elsewhere used is in the day, and no session's.
pub async fn usage_of_sessions_elsewhere_is_added(store: &impl AnyStore) {
    let session = make(store, "one").await;
    let a = ("maker", "a");
    stored(store, plain(session.key, vec![step(Some(DAY), a, used(2, 1, Some(0.5)))])).await;
    for _ in 0..2 {
        store.add_usage(row(DAY, a, 1, [2, 1, 1], 0.5)).await.unwrap();
    }
    assert_eq!(store.usage(DAY..=DAY).await.unwrap(), [row(DAY, a, 3, [6, 3, 3], 1.5)]);
    assert_eq!(store.session_cost(session.key).await, Ok(Money::from_dollars(0.5)));
}

/// Whatever a provider tells, sums stay sums.
pub async fn absurd_counters_do_not_break_the_sums(store: &impl AnyStore) {
    let session = make(store, "one").await;
    let absurd = Some(StepUsage {
        input: u64::MAX,
        cached_input: u64::MAX,
        cache_written: u64::MAX,
        output: u64::MAX,
        cost: Some(f64::MAX),
    });
    let events = (0..100).map(|_| step(Some(DAY), ("maker", "a"), absurd)).collect();
    stored(store, plain(session.key, events)).await;
    let rows = store.usage(DAY..=DAY).await.unwrap();
    assert_eq!((rows[0].steps, rows[0].input), (100, 100 << 40));
    assert_eq!(store.session_cost(session.key).await, Ok(Money::from_dollars(1e8)));
}

/// An append that changes nothing counts nothing.
pub async fn usage_is_not_counted_where_nothing_is_stored(store: &impl AnyStore) {
    let unknown = tns_server_core::store::SessionKey(99);
    let lost = plain(unknown, vec![step(Some(DAY), ("maker", "a"), used(1, 1, Some(0.5)))]);
    assert!(store.append(lost).await.is_err());
    assert_eq!(store.usage(DAY..=DAY).await, Ok(vec![]));
    assert_eq!(store.session_cost(unknown).await, Ok(Money::ZERO));
}

/// What was spent stays spent: the day keeps the sums, and nobody's name with them.
pub async fn usage_of_a_deleted_session_stays_in_the_day(store: &impl AnyStore) {
    let (gone, too, stays) = (make(store, "a").await, make(store, "b").await, make(store, "c").await);
    for session in [gone.key, too.key, stays.key, gone.key] {
        stored(store, plain(session, vec![step(Some(DAY), ("maker", "a"), used(2, 1, Some(0.5)))])).await;
    }
    let before = store.usage(DAY..=DAY).await.unwrap();
    assert_eq!((before[0].steps, before[0].cost), (4, Money::from_dollars(2.0)));
    for session in [gone.key, too.key] {
        assert_eq!(store.delete_session(session).await, Ok(true));
        assert_eq!(store.session_cost(session).await, Ok(Money::ZERO));
    }
    assert_eq!(store.usage(DAY..=DAY).await.unwrap(), before);
    assert_eq!(store.session_cost(stays.key).await, Ok(Money::from_dollars(0.5)));
}
