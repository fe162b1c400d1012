//! Forks: the same beginning, then two lives.

use std::path::Path;

use tns_protocol::approval::{AuditDecision, AutonomyLevel, RiskClass};
use tns_protocol::{AgentId, ClientMessageId, MessageId, Timestamp, ToolCallId};
use tns_server_core::approval::AuditRecord;
use tns_server_core::event::DurableEvent;
use tns_server_core::store::{
    Appended, AuditQuery, Collection, Condition, Document, LOCAL_PRINCIPAL, NewEvent, NewSession, Score,
    SessionKey, SessionRecord, SessionState, StoreError, StoredEvent,
};

use super::{
    AnyStore, adding, everything, find, kb_added, line, make, new_session, only_if, plain, replies, says,
    stored, user, whole_log,
};

async fn fork(store: &impl AnyStore, from: SessionKey, at: u64, id: &str) -> SessionRecord {
    let (record, made) = store.fork_session(from, at, new_session(LOCAL_PRINCIPAL, id)).await.unwrap();
    assert!(made);
    record
}

/// What a copy has of an event: all but its place in the store.
fn copied(log: &[StoredEvent]) -> Vec<(u64, Timestamp, Option<MessageId>, DurableEvent)> {
    log.iter().map(|row| (row.place.seq, row.place.at, row.turn.clone(), row.event.clone())).collect()
}

/// With times, turns and scores, under the state, title and folder that were given.
pub async fn a_fork_is_a_copy_up_to_its_place(store: &impl AnyStore) {
    let source = make(store, "source").await;
    let events = vec![user("m-1", None), replies("m-2", "yes"), line("a"), says("m-3", "and?"), line("b")];
    stored(store, plain(source.key, events)).await;
    for message in ["m-2", "m-3"] {
        store.rate(source.key, &MessageId::parse(message).unwrap(), Some(Score::Up)).await.unwrap();
    }
    let before = whole_log(store, source.key).await;

    for (at, scored) in [(0, vec![]), (1, vec![]), (3, vec![2]), (5, vec![2, 4])] {
        let state = SessionState { autonomy: AutonomyLevel::Manual, ..SessionState::default() };
        let new = NewSession {
            title: Some("a fork".into()),
            workspace: Path::new("/elsewhere").to_owned(),
            state: state.clone(),
            ..new_session(LOCAL_PRINCIPAL, &format!("fork-{at}"))
        };
        let (record, made) = store.fork_session(source.key, at, new.clone()).await.unwrap();
        assert!(made);
        assert_eq!(
            (&record.title, &record.workspace, &record.state, record.head_seq),
            (&new.title, &new.workspace, &state, at)
        );
        assert_ne!((record.key, &record.epoch), (source.key, &source.epoch));
        assert_eq!(find(store, &format!("fork-{at}")).await, Some(record.clone()));
        let log = whole_log(store, record.key).await;
        assert_eq!(copied(&log), copied(&before[..at as usize]));
        assert!(log.windows(2).all(|pair| pair[0].place.gseq < pair[1].place.gseq));
        assert!(log.iter().all(|row| row.place.gseq > before[4].place.gseq));
        let page = store.events(record.key, everything()).await.unwrap();
        assert_eq!(page.feedback.into_keys().collect::<Vec<_>>(), scored);
    }
    assert_eq!(whole_log(store, source.key).await, before);
}

/// Neither sees what the other stores; a fork can be forked, and its source can go.
pub async fn a_fork_and_its_source_grow_apart(store: &impl AnyStore) {
    let source = make(store, "source").await.key;
    stored(store, plain(source, vec![line("a"), line("b")])).await;
    let one = fork(store, source, 1, "one").await.key;
    assert_eq!(stored(store, plain(one, vec![line("mine")])).await[0].seq, 2);
    assert_eq!(stored(store, plain(source, vec![line("yours")])).await[0].seq, 3);
    let two = fork(store, one, 2, "two").await.key;
    store.delete_session(source).await.unwrap();
    let expected = [line("a").event, line("mine").event];
    for session in [one, two] {
        let events: Vec<_> = whole_log(store, session).await.into_iter().map(|row| row.event).collect();
        assert_eq!(events, expected);
    }
}

/// And nothing is made.
pub async fn a_fork_beyond_the_log_is_refused(store: &impl AnyStore) {
    let source = make(store, "source").await.key;
    stored(store, plain(source, vec![line("a")])).await;
    let refused = store.fork_session(source, 2, new_session(LOCAL_PRINCIPAL, "fork")).await;
    assert!(matches!(refused, Err(StoreError::Failed(_))), "{refused:?}");
    assert_eq!(find(store, "fork").await, None);
}

/// As it is when a session is made: a repeated request changes nothing.
pub async fn a_fork_of_a_taken_id_gives_the_session_that_has_it(store: &impl AnyStore) {
    let source = make(store, "source").await.key;
    stored(store, plain(source, vec![line("a")])).await;
    let first = fork(store, source, 1, "fork").await;
    let again = store.fork_session(source, 0, new_session(LOCAL_PRINCIPAL, "fork")).await;
    assert_eq!(again, Ok((first.clone(), false)));
    assert_eq!(find(store, "fork").await, Some(first));
}

/// The log shows that message, so sending it again is a repeat.
pub async fn the_senders_ids_of_a_fork_count(store: &impl AnyStore) {
    let source = make(store, "source").await.key;
    stored(store, plain(source, vec![user("m-1", Some("c-1")), user("m-2", Some("c-2"))])).await;
    let key = fork(store, source, 1, "fork").await.key;
    let again = |id: &str| {
        let condition = Condition::NewMessage(ClientMessageId::parse(id).unwrap());
        store.append(only_if(key, vec![user("m-9", Some(id))], condition))
    };
    assert_eq!(again("c-1").await, Ok(Appended::Unchanged));
    assert!(matches!(again("c-2").await, Ok(Appended::Stored(_))));
}

/// The copied events are history; the decisions were the source's.
pub async fn a_fork_decided_nothing(store: &impl AnyStore) {
    let source = make(store, "source").await.key;
    let record = AuditRecord {
        call: ToolCallId::parse("t-1").unwrap(),
        agent: AgentId::parse("helper-00000000").unwrap(),
        tool: "shell".into(),
        class: RiskClass::Exec,
        reasons: vec![],
        decision: AuditDecision::Approved,
        by: "local".into(),
        at: Timestamp::from_micros(1_000),
        summary: "make".into(),
        args_digest: String::new(),
    };
    let audited = NewEvent { turn: None, event: DurableEvent::Audited(record) };
    stored(store, plain(source, vec![audited.clone()])).await;
    let key = fork(store, source, 1, "fork").await.key;
    assert_eq!(whole_log(store, key).await[0].event, audited.event);
    let all = AuditQuery { limit: 9, ..AuditQuery::default() };
    assert_eq!(store.audit(all.clone()).await.unwrap().len(), 1);
    let own = AuditQuery { session: Some(key), ..all };
    assert_eq!(store.audit(own.clone()).await, Ok(vec![]));
    stored(store, plain(key, vec![audited])).await;
    assert_eq!(store.audit(own).await.unwrap().len(), 1);
}

/// So that adding the same words again finds them there, and the log names what can be removed. Also over two forks.
pub async fn documents_added_by_then_are_copied_under_new_names(store: &impl AnyStore) {
    let source = make(store, "source").await.key;
    let own = Collection::Session(source);
    let shared = Collection::User("me".into());
    stored(store, adding(source, &own, "early")).await;
    stored(store, adding(source, &shared, "shared")).await;
    stored(store, adding(source, &own, "late")).await;

    let first = fork(store, source, 3, "first").await.key;
    let second = fork(store, first, 2, "second").await.key;
    for (key, expected, length) in [(first, vec!["early", "late"], 3), (second, vec!["early"], 2)] {
        let collection = Collection::Session(key);
        let documents = store.documents(&collection).await.unwrap();
        let names: Vec<_> = documents.iter().map(|info| (info.preview.as_str(), info.id.clone())).collect();
        let wanted: Vec<_> = expected.iter().map(|text| (*text, collection.document_id(text))).collect();
        assert_eq!(names, wanted);
        let log: Vec<_> = whole_log(store, key).await.into_iter().map(|row| row.event).collect();
        let events = [
            kb_added(&collection.document_id("early")).event,
            kb_added(&shared.document_id("shared")).event,
            kb_added(&collection.document_id("late")).event,
        ];
        assert_eq!(log, events[..length]);
        assert_eq!(store.append(adding(key, &collection, "early")).await, Ok(Appended::Unchanged));
    }
    let changes = store.document_changes(0, 100).await.unwrap();
    let copy =
        changes.iter().find(|change| change.collection == Collection::Session(second).as_text()).unwrap();
    let expected = Document {
        id: Collection::Session(second).document_id("early"),
        content: "early".into(),
        metadata: serde_json::Map::new(),
    };
    assert_eq!(copy.document, Some(expected));
}
