//! What people think of messages: beside the log, read with it.

use std::collections::BTreeMap;

use tns_protocol::MessageId;
use tns_server_core::store::{EventQuery, Score, SessionKey, Take};

use super::{AnyStore, everything, line, make, plain, replies, says, stored, whole_log};

fn id(text: &str) -> MessageId {
    MessageId::parse(text).unwrap()
}

async fn feedback(store: &impl AnyStore, session: SessionKey) -> BTreeMap<u64, Score> {
    store.events(session, everything()).await.unwrap().feedback
}

/// By the message's place, on the pages that have it; the log itself does not change.
pub async fn a_score_is_read_with_its_message(store: &impl AnyStore) {
    let (session, other) = (make(store, "s").await.key, make(store, "other").await.key);
    for session in [session, other] {
        let events = vec![says("m-1", "a"), replies("m-2", "b"), line("x"), replies("m-3", "c")];
        stored(store, plain(session, events)).await;
    }
    let before = whole_log(store, session).await;
    assert_eq!(store.rate(session, &id("m-2"), Some(Score::Down)).await, Ok(true));
    assert_eq!(store.rate(session, &id("m-1"), Some(Score::Up)).await, Ok(true));
    assert_eq!(feedback(store, session).await, BTreeMap::from([(1, Score::Up), (2, Score::Down)]));
    assert_eq!(feedback(store, other).await, BTreeMap::new());
    assert_eq!(whole_log(store, session).await, before);

    for (query, expected) in [
        (EventQuery { limit: 1, ..everything() }, vec![1]),
        (EventQuery { after: 1, limit: 1, ..everything() }, vec![2]),
        (EventQuery { after: 2, ..everything() }, vec![]),
        (EventQuery { limit: 3, take: Take::Last, ..everything() }, vec![2]),
    ] {
        let page = store.events(session, query.clone()).await.unwrap();
        assert_eq!(page.feedback.into_keys().collect::<Vec<_>>(), expected, "{query:?}");
    }
}

/// The last word counts, and none is nothing.
pub async fn a_score_changes_and_goes(store: &impl AnyStore) {
    let session = make(store, "s").await.key;
    stored(store, plain(session, vec![replies("m-1", "a")])).await;
    for (score, expected) in [
        (None, None),
        (Some(Score::Up), Some(Score::Up)),
        (Some(Score::Down), Some(Score::Down)),
        (Some(Score::Down), Some(Score::Down)),
        (None, None),
    ] {
        assert_eq!(store.rate(session, &id("m-1"), score).await, Ok(true));
        assert_eq!(feedback(store, session).await.get(&1).copied(), expected);
    }
}

/// An id that merely occurs in another message's text is not its id.
pub async fn what_is_no_message_has_no_score(store: &impl AnyStore) {
    let session = make(store, "s").await.key;
    stored(store, plain(session, vec![says("m-1", "about m-2"), line("m-2")])).await;
    assert_eq!(store.rate(session, &id("m-2"), Some(Score::Up)).await, Ok(false));
    assert_eq!(feedback(store, session).await, BTreeMap::new());
}
