//! Erasing sessions: everything of one, nothing of another.

use tns_protocol::{MessageId, SessionId};
use tns_server_core::store::{
    AuditQuery, Collection, LOCAL_PRINCIPAL, Score, SearchQuery, SessionState, StoreError,
};

use super::{AnyStore, adding, everything, find, line, make, plain, says, stored, whole_log};

/// Neither by its id, nor in lists, nor in the stream, nor by words; the other session is whole.
pub async fn nothing_is_left_of_a_deleted_session(store: &impl AnyStore) {
    let (gone, kept) = (make(store, "gone").await.key, make(store, "kept").await.key);
    for session in [gone, kept] {
        stored(store, plain(session, vec![says("m-1", "needle"), line("more")])).await;
        store.rate(session, &MessageId::parse("m-1").unwrap(), Some(Score::Up)).await.unwrap();
    }
    let before = (find(store, "kept").await, whole_log(store, kept).await);

    assert_eq!(store.delete_session(gone).await, Ok(true));
    assert_eq!(find(store, "gone").await, None);
    let listed = store.list_sessions(LOCAL_PRINCIPAL, None, 10).await.unwrap().sessions;
    assert_eq!(listed.iter().map(|session| session.key).collect::<Vec<_>>(), [kept]);
    let stream = store.events_since(0, None, 100).await.unwrap().events;
    assert!(stream.iter().all(|event| event.session.as_str() == "kept"), "{stream:?}");
    assert_eq!(stream.len(), 2);
    let query =
        SearchQuery { principal: LOCAL_PRINCIPAL.into(), text: "needle".into(), limit: 10, after: None };
    let hits = store.search(query).await.unwrap().hits;
    assert_eq!(hits.iter().map(|hit| hit.key).collect::<Vec<_>>(), [kept]);
    assert_eq!(store.audit(AuditQuery { limit: 9, ..AuditQuery::default() }).await, Ok(vec![]));
    assert_eq!((find(store, "kept").await, whole_log(store, kept).await), before);
    let page = store.events(kept, everything()).await.unwrap();
    assert_eq!(page.feedback.len(), 1);
}

/// A session of the same id is another one, from its first event on.
pub async fn a_deleted_key_is_not_given_again(store: &impl AnyStore) {
    let first = make(store, "s").await;
    stored(store, plain(first.key, vec![line("old"); 3])).await;
    store.delete_session(first.key).await.unwrap();
    let second = make(store, "s").await;
    assert_ne!(second.key, first.key);
    assert_ne!(second.epoch, first.epoch);
    assert_eq!(second.head_seq, 0);
    assert_eq!(whole_log(store, second.key).await, []);
    assert_eq!(stored(store, plain(second.key, vec![line("new")])).await[0].seq, 1);
}

/// Whoever still holds the key hears that there is nothing.
pub async fn what_follows_a_deletion_is_told(store: &impl AnyStore) {
    let session = make(store, "s").await.key;
    stored(store, plain(session, vec![says("m-1", "a")])).await;
    let behind = (store.delete_session(session).await, store.delete_session(session).await);
    assert_eq!(behind, (Ok(true), Ok(false)));
    let gone = Err(StoreError::NoSession);
    assert_eq!(store.append(plain(session, vec![line("late")])).await.map(drop), gone);
    assert_eq!(store.events(session, everything()).await.map(drop), gone);
    assert_eq!(store.rate(session, &MessageId::parse("m-1").unwrap(), None).await.map(drop), gone);
    let new = super::new_session(LOCAL_PRINCIPAL, "fork");
    assert_eq!(store.fork_session(session, 0, new).await.map(drop), gone);
    assert_eq!(find(store, "fork").await, None);
}

/// Only the session's own; the folder's and the person's stay.
pub async fn documents_of_a_deleted_session_are_removals(store: &impl AnyStore) {
    let (gone, kept) = (make(store, "gone").await.key, make(store, "kept").await.key);
    let (own, other, shared) =
        (Collection::Session(gone), Collection::Session(kept), Collection::User("me".into()));
    for (session, collection, content) in
        [(gone, &own, "a"), (gone, &own, "b"), (kept, &other, "a"), (gone, &shared, "a")]
    {
        stored(store, adding(session, collection, content)).await;
    }
    let head = store.document_head().await.unwrap();
    store.delete_session(gone).await.unwrap();

    let changes = store.document_changes(head, 10).await.unwrap();
    let mut removed: Vec<_> = changes.iter().map(|change| change.id.clone()).collect();
    removed.sort();
    let mut expected = ["a", "b"].map(|content| own.document_id(content));
    expected.sort();
    assert_eq!(removed, expected);
    assert!(changes.iter().all(|change| change.document.is_none() && change.collection == own.as_text()));
    assert_eq!(store.document_head().await, Ok(changes[1].gseq));
    assert_eq!(store.documents(&own).await, Ok(vec![]));
    assert_eq!(store.documents(&other).await.unwrap().len(), 1);
    assert_eq!(store.documents(&shared).await.unwrap().len(), 1);
}

/// Though the last ones are free: a follower would take new events for old ones.
pub async fn places_are_not_given_again_after_a_deletion(store: &impl AnyStore) {
    let (kept, gone) = (make(store, "kept").await.key, make(store, "gone").await.key);
    let last = stored(store, plain(gone, vec![line("x"); 5])).await[4].gseq;
    store.delete_session(gone).await.unwrap();
    assert!(stored(store, plain(kept, vec![line("y")])).await[0].gseq > last);
    let id = SessionId::parse("gone").unwrap();
    assert_eq!(store.find_session(LOCAL_PRINCIPAL, &id).await, Ok(None));
    assert_eq!(find(store, "kept").await.unwrap().state, SessionState::default());
}
