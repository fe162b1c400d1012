//! Sessions that come from elsewhere: whole or not at all.

use tns_protocol::{ClientMessageId, Timestamp};
use tns_server_core::store::{
    Appended, Condition, EventQuery, ImportKey, ImportedEvent, LOCAL_PRINCIPAL, NewImport, NewSession,
    SessionKey, SessionState, StoreError, StoredEvent,
};

use super::{
    AnyStore, everything, find, line, make, new_session, only_if, plain, replies, says, stored, user,
    whole_log,
};

pub(super) fn new_import(id: &str) -> NewImport {
    let NewSession { principal, id, title, workspace, .. } = new_session(LOCAL_PRINCIPAL, id);
    NewImport { principal, id, title, workspace, created_at: Timestamp::from_micros(1_000_000) }
}

async fn begin(store: &impl AnyStore, id: &str) -> ImportKey {
    store.begin_import(new_import(id)).await.unwrap().unwrap()
}

fn exported(event: StoredEvent) -> ImportedEvent {
    ImportedEvent { at: event.place.at, turn: event.turn, event: event.event }
}

fn at(micros: i64, text: &str) -> ImportedEvent {
    ImportedEvent { at: Timestamp::from_micros(micros), turn: None, event: line(text).event }
}

/// In pages of any size; what comes back has the same places, times and turns, and goes on from there.
pub async fn an_import_equals_its_export(store: &impl AnyStore) {
    let source = make(store, "source").await.key;
    let events = vec![user("m-1", Some("c-1")), replies("m-2", "läuft"), line("x"), says("m-3", "職")];
    stored(store, plain(source, events)).await;
    stored(store, plain(source, vec![line("later")])).await;
    let expected = whole_log(store, source).await;

    for size in 1..=6 {
        let id = format!("import-{size}");
        let import = begin(store, &id).await;
        let mut after = 0;
        loop {
            let page = store.events(source, EventQuery { after, limit: size, ..everything() }).await.unwrap();
            after = page.events.last().unwrap().place.seq;
            let events = page.events.into_iter().map(exported).collect();
            store.import_events(import, events).await.unwrap();
            if !page.more {
                break;
            }
        }
        let record = store.finish_import(import, SessionState::default()).await.unwrap().unwrap();
        assert_eq!((record.head_seq, record.created_at), (5, Timestamp::from_micros(1_000_000)));
        assert_eq!(find(store, &id).await, Some(record.clone()));
        let log = whole_log(store, record.key).await;
        let told = |log: &[StoredEvent]| -> Vec<_> {
            log.iter().map(|row| (row.place.seq, row.place.at, row.turn.clone(), row.event.clone())).collect()
        };
        assert_eq!(told(&log), told(&expected), "in pages of {size}");
        let condition = Condition::NewMessage(ClientMessageId::parse("c-1").unwrap());
        let repeat = only_if(record.key, vec![user("m-9", Some("c-1"))], condition);
        assert_eq!(store.append(repeat).await, Ok(Appended::Unchanged));
        assert_eq!(stored(store, plain(record.key, vec![line("next")])).await[0].seq, 6);
    }
}

/// And then its events come at the end of the stream, so that a follower gets them.
pub async fn an_import_is_unseen_until_it_is_finished(store: &impl AnyStore) {
    let other = make(store, "other").await.key;
    let import = begin(store, "s").await;
    store.import_events(import, vec![at(1, "a"), at(2, "b")]).await.unwrap();
    let last = stored(store, plain(other, vec![line("x")])).await[0].gseq;
    assert_eq!(find(store, "s").await, None);
    assert_eq!(store.list_sessions(LOCAL_PRINCIPAL, None, 10).await.unwrap().sessions.len(), 1);
    assert_eq!(store.events_since(0, None, 10).await.unwrap().events.len(), 1);
    assert_eq!(store.sessions_idle_since(Timestamp::from_micros(i64::MAX), 9).await.unwrap().len(), 1);
    assert!(store.events(SessionKey(import.0 + 100), everything()).await.is_err());

    store.finish_import(import, SessionState::default()).await.unwrap().unwrap();
    let stream = store.events_since(last, None, 10).await.unwrap().events;
    assert_eq!(stream.iter().map(|event| event.event.place.seq).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(store.finish_import(import, SessionState::default()).await, Err(StoreError::NoSession));
    assert_eq!(store.import_events(import, vec![at(3, "c")]).await, Err(StoreError::NoSession));
}

/// Which a log of this store never has; it is taken in all the same, and the id counts.
pub async fn a_log_that_has_a_senders_id_twice_is_taken_in(store: &impl AnyStore) {
    let import = begin(store, "s").await;
    let event =
        |id| ImportedEvent { at: Timestamp::from_micros(1), turn: None, event: user(id, Some("c-1")).event };
    store.import_events(import, vec![event("m-1"), event("m-2")]).await.unwrap();
    let made = store.finish_import(import, SessionState::default()).await.unwrap().unwrap();
    assert_eq!(whole_log(store, made.key).await.len(), 2);
    let condition = Condition::NewMessage(ClientMessageId::parse("c-1").unwrap());
    let repeat = only_if(made.key, vec![user("m-3", Some("c-1"))], condition);
    assert_eq!(store.append(repeat).await, Ok(Appended::Unchanged));
}

/// Nothing of the session that has it changes.
pub async fn an_import_of_a_taken_id_does_not_begin(store: &impl AnyStore) {
    let made = make(store, "s").await;
    assert_eq!(store.begin_import(new_import("s")).await, Ok(None));
    assert_eq!(find(store, "s").await, Some(made));
}

/// The session that was made stays as it is.
pub async fn an_import_whose_id_was_taken_meanwhile_is_thrown_away(store: &impl AnyStore) {
    let import = begin(store, "s").await;
    store.import_events(import, vec![at(1, "a")]).await.unwrap();
    let made = make(store, "s").await;
    assert_eq!(store.finish_import(import, SessionState::default()).await, Ok(None));
    assert_eq!(find(store, "s").await, Some(made));
    assert_eq!(store.import_events(import, vec![]).await, Err(StoreError::NoSession));
}

/// Two at once don't mix, and one goes without a trace.
pub async fn an_abandoned_import_leaves_nothing(store: &impl AnyStore) {
    let (one, two) = (begin(store, "one").await, begin(store, "two").await);
    for (import, text) in [(one, "1"), (two, "2"), (one, "1"), (two, "2")] {
        store.import_events(import, vec![at(1, text)]).await.unwrap();
    }
    store.abandon_import(one).await.unwrap();
    store.abandon_import(one).await.unwrap();
    assert_eq!(store.finish_import(one, SessionState::default()).await, Err(StoreError::NoSession));
    let made = store.finish_import(two, SessionState::default()).await.unwrap().unwrap();
    let events: Vec<_> = whole_log(store, made.key).await.into_iter().map(|row| row.event).collect();
    assert_eq!(events, [line("2").event, line("2").event]);
    assert_eq!(find(store, "one").await, None);
    assert_eq!(stored(store, plain(made.key, vec![line("x")])).await[0].seq, 3);
}

/// Its events are old, but it came now: keeping times must not let retention take it.
pub async fn an_import_is_not_idle(store: &impl AnyStore) {
    let before = Timestamp::now();
    let import = begin(store, "s").await;
    store.import_events(import, vec![at(1, "a")]).await.unwrap();
    let made = store.finish_import(import, SessionState::default()).await.unwrap().unwrap();
    assert!(made.updated_at >= before);
    assert_eq!(store.sessions_idle_since(before, 9).await, Ok(vec![]));
    assert_eq!(whole_log(store, made.key).await[0].place.at, Timestamp::from_micros(1));
}
