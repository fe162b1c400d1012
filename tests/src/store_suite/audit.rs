//! Audit records: found over the whole store, without reading whole logs.

use tns_protocol::approval::{AuditDecision, RiskClass};
use tns_protocol::{AgentId, SessionId, Timestamp, ToolCallId};
use tns_server_core::approval::AuditRecord;
use tns_server_core::event::DurableEvent;
use tns_server_core::store::{AuditQuery, NewEvent};

use super::{AnyStore, line, make, plain, stored};

fn record(call: &str, decision: AuditDecision, at: i64) -> AuditRecord {
    AuditRecord {
        call: ToolCallId::parse(call).unwrap(),
        agent: AgentId::parse("helper-00000000").unwrap(),
        tool: "shell".into(),
        class: RiskClass::Exec,
        reasons: vec!["runs code that the call does not show".into()],
        decision,
        by: "local".into(),
        // Whole milliseconds, as a stored record keeps its time.
        at: Timestamp::from_micros(at * 1_000),
        summary: "make".into(),
        args_digest: "00".repeat(32),
    }
}

fn audited(record: &AuditRecord) -> NewEvent {
    NewEvent { turn: None, event: DurableEvent::Audited(record.clone()) }
}

fn query(limit: usize) -> AuditQuery {
    AuditQuery { limit, ..AuditQuery::default() }
}

/// A limit keeps the newest; other events don't count.
pub async fn records_come_oldest_first_and_the_newest_are_kept(store: &impl AnyStore) {
    let (one, two) = (make(store, "one").await, make(store, "two").await);
    let records: Vec<_> = (1..=4).map(|n| record(&format!("t-{n}"), AuditDecision::Approved, n)).collect();
    stored(store, plain(one.key, vec![audited(&records[0]), line("a"), audited(&records[1])])).await;
    stored(store, plain(two.key, vec![line("b"), audited(&records[2])])).await;
    stored(store, plain(one.key, vec![audited(&records[3]), line("c")])).await;

    let all: Vec<(SessionId, AuditRecord)> =
        [&one, &one, &two, &one].iter().map(|session| session.id.clone()).zip(records).collect();
    for limit in 0..=5 {
        let expected = all[all.len() - limit.min(all.len())..].to_vec();
        assert_eq!(store.audit(query(limit)).await, Ok(expected), "limit {limit}");
    }
    assert_eq!(store.audit(query(usize::MAX)).await, Ok(all));
}

/// Each narrows what the others leave.
pub async fn records_are_found_by_session_time_and_decision(store: &impl AnyStore) {
    let (one, two) = (make(store, "one").await, make(store, "two").await);
    for (session, call, decision, at) in [
        (&one, "t-1", AuditDecision::Rejected, 10),
        (&two, "t-2", AuditDecision::Rejected, 20),
        (&one, "t-3", AuditDecision::AutoApproved, 30),
        (&one, "t-4", AuditDecision::Rejected, 40),
    ] {
        stored(store, plain(session.key, vec![audited(&record(call, decision, at))])).await;
    }
    let since = |millis: i64| Some(Timestamp::from_micros(millis * 1_000));
    let rejected = Some(AuditDecision::Rejected);
    let of_one = Some(one.key);
    for (session, since, decision, limit, expected) in [
        (of_one, None, None, 9, vec!["t-1", "t-3", "t-4"]),
        (None, since(20), None, 9, vec!["t-2", "t-3", "t-4"]),
        (None, since(21), None, 9, vec!["t-3", "t-4"]),
        (None, None, rejected, 9, vec!["t-1", "t-2", "t-4"]),
        (None, None, rejected, 2, vec!["t-2", "t-4"]),
        (of_one, since(20), rejected, 9, vec!["t-4"]),
        (Some(two.key), since(21), None, 9, vec![]),
        (None, None, Some(AuditDecision::Timeout), 9, vec![]),
    ] {
        let query = AuditQuery { session, since, decision, limit };
        let found = store.audit(query.clone()).await.unwrap();
        let calls: Vec<_> = found.iter().map(|(_, record)| record.call.as_str()).collect();
        assert_eq!(calls, expected, "{query:?}");
    }
}
