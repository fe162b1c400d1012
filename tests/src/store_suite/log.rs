//! The log: places, contents, pages.

use std::collections::BTreeMap;

use tns_protocol::Timestamp;
use tns_server_core::event::EventKind;
use tns_server_core::store::{
    EventPage, EventQuery, MAX_PAGE_BYTES, MAX_PAGE_EVENTS, SessionKey, StoredEvent, Take,
};

use super::{AnyStore, everything, line, make, plain, stored, user, whole_log};

fn seqs(page: &EventPage) -> Vec<u64> {
    page.events.iter().map(|event| event.place.seq).collect()
}

async fn filled(store: &impl AnyStore, events: usize) -> SessionKey {
    let session = make(store, "s").await.key;
    stored(store, plain(session, (0..events).map(|number| line(number.to_string())).collect())).await;
    session
}

/// `seq` counts in its session, `gseq` rises over the store, and the time is that of storing.
pub async fn places_have_no_gap_and_rise_over_all_sessions(store: &impl AnyStore) {
    let (one, two) = (make(store, "one").await.key, make(store, "two").await.key);
    let before = Timestamp::now();
    let mut places = Vec::new();
    for (session, events) in [(one, 2), (two, 1), (one, 1), (two, 3)] {
        places.extend(stored(store, plain(session, vec![line("x"); events])).await);
    }
    let after = Timestamp::now();
    assert_eq!(places.iter().map(|place| place.seq).collect::<Vec<_>>(), [1, 2, 1, 3, 2, 3, 4]);
    assert!(places.windows(2).all(|pair| pair[0].gseq < pair[1].gseq), "{places:?}");
    assert!(places.iter().all(|place| (before..=after).contains(&place.at)), "{places:?}");
}

/// What is read is what was written, under the place that was given back.
pub async fn events_come_back_as_they_were_stored(store: &impl AnyStore) {
    let session = make(store, "s").await.key;
    let events = vec![user("m-1", Some("c-1")), line("läuft · 職"), line("")];
    let places = stored(store, plain(session, events.clone())).await;
    let expected: Vec<_> = events
        .into_iter()
        .zip(places)
        .map(|(new, place)| StoredEvent { place, turn: new.turn, event: new.event })
        .collect();
    let page = store.events(session, everything()).await.unwrap();
    assert_eq!(page, EventPage { events: expected, more: false, head_seq: 3, feedback: BTreeMap::new() });
}

/// A page that ends exactly at the last event has no more.
pub async fn a_page_ends_at_its_limit(store: &impl AnyStore) {
    let session = filled(store, 3).await;
    for (limit, expected, more) in [(1, vec![1], true), (2, vec![1, 2], true), (3, vec![1, 2, 3], false)] {
        let page = store.events(session, EventQuery { limit, ..everything() }).await.unwrap();
        assert_eq!((seqs(&page), page.more, page.head_seq), (expected, more, 3), "limit {limit}");
    }
}

/// A higher limit than the largest is the largest.
pub async fn a_page_has_at_most_so_many_events(store: &impl AnyStore) {
    let session = filled(store, MAX_PAGE_EVENTS).await;
    let query = EventQuery { limit: MAX_PAGE_EVENTS + 1, ..everything() };
    let page = store.events(session, query.clone()).await.unwrap();
    assert_eq!((page.events.len(), page.more), (MAX_PAGE_EVENTS, false));

    stored(store, plain(session, vec![line("one too many")])).await;
    let page = store.events(session, query.clone()).await.unwrap();
    assert_eq!((page.events.len(), page.more), (MAX_PAGE_EVENTS, true));
    let last = page.events[MAX_PAGE_EVENTS - 1].place.seq;
    let rest = store.events(session, EventQuery { after: last, ..query }).await.unwrap();
    assert_eq!((seqs(&rest), rest.more), (vec![last + 1], false));
}

/// Bodies of two fifths of a page: two fit.
pub async fn a_page_has_at_most_so_many_bytes(store: &impl AnyStore) {
    let session = make(store, "s").await.key;
    let large = line("x".repeat(MAX_PAGE_BYTES * 2 / 5));
    stored(store, plain(session, vec![large; 4])).await;
    for (after, expected, more) in [(0, vec![1, 2], true), (1, vec![2, 3], true), (2, vec![3, 4], false)] {
        let page = store.events(session, EventQuery { after, ..everything() }).await.unwrap();
        assert_eq!((seqs(&page), page.more), (expected, more), "after {after}");
    }
}

/// Or a reader would never get past it.
pub async fn a_page_holds_an_event_that_is_larger_than_a_page(store: &impl AnyStore) {
    let session = make(store, "s").await.key;
    let large = line("x".repeat(MAX_PAGE_BYTES + 1));
    stored(store, plain(session, vec![line("small"), large.clone(), line("small")])).await;
    for (after, expected, more) in [(0, vec![1], true), (1, vec![2], true), (2, vec![3], false)] {
        let page = store.events(session, EventQuery { after, ..everything() }).await.unwrap();
        assert_eq!((seqs(&page), page.more), (expected, more), "after {after}");
    }
    let page = store.events(session, EventQuery { after: 1, limit: 1, ..everything() }).await.unwrap();
    assert_eq!(page.events[0].event, large.event);
}

/// Both ends are left out, and what lies beyond them is not `more`.
pub async fn a_page_stays_in_its_range(store: &impl AnyStore) {
    let session = filled(store, 6).await;
    for (after, before, limit, expected, more) in [
        (1, Some(5), 10, vec![2, 3, 4], false),
        (1, Some(5), 2, vec![2, 3], true),
        (4, None, 10, vec![5, 6], false),
        (6, None, 10, vec![], false),
        (u64::MAX, None, 10, vec![], false),
        (2, Some(3), 10, vec![], false),
        (0, Some(u64::MAX), 10, vec![1, 2, 3, 4, 5, 6], false),
    ] {
        let query = EventQuery { after, before, limit, ..EventQuery::default() };
        let page = store.events(session, query.clone()).await.unwrap();
        assert_eq!((seqs(&page), page.more, page.head_seq), (expected, more, 6), "{query:?}");
    }
}

/// Other kinds neither fill a page nor count as `more`.
pub async fn a_page_holds_only_the_kinds_asked_for(store: &impl AnyStore) {
    let session = make(store, "s").await.key;
    let events = vec![user("m-1", None), line("a"), user("m-2", None), line("b"), line("c")];
    stored(store, plain(session, events)).await;
    const USERS: &[EventKind] = &[EventKind::UserMessage];
    const BOTH: &[EventKind] = &[EventKind::TurnFailed, EventKind::UserMessage];
    const NONE: &[EventKind] = &[];
    for (kinds, limit, expected, more) in [
        (USERS, 1, vec![1], true),
        (USERS, 2, vec![1, 3], false),
        (BOTH, 5, vec![1, 2, 3, 4, 5], false),
        (&[EventKind::Done], 5, vec![], false),
        (NONE, 5, vec![], false),
    ] {
        let query = EventQuery { limit, kinds: Some(kinds), ..everything() };
        let page = store.events(session, query.clone()).await.unwrap();
        assert_eq!((seqs(&page), page.more, page.head_seq), (expected, more, 5), "{query:?}");
    }
    assert_eq!(whole_log(store, session).await.len(), 5);
}

/// The last ones that fit, in their order; `more` means before them.
pub async fn a_page_from_the_end_is_ascending(store: &impl AnyStore) {
    let session = filled(store, 6).await;
    for (after, before, limit, expected, more) in [
        (0, None, 2, vec![5, 6], true),
        (0, Some(5), 2, vec![3, 4], true),
        (0, Some(3), 2, vec![1, 2], false),
        (2, Some(5), 2, vec![3, 4], false),
        (2, Some(6), 2, vec![4, 5], true),
        (0, Some(1), 2, vec![], false),
        (0, None, 6, vec![1, 2, 3, 4, 5, 6], false),
    ] {
        let query = EventQuery { after, before, limit, take: Take::Last, ..everything() };
        let page = store.events(session, query.clone()).await.unwrap();
        assert_eq!((seqs(&page), page.more, page.head_seq), (expected, more, 6), "{query:?}");
    }
    const USERS: &[EventKind] = &[EventKind::UserMessage];
    stored(store, plain(session, vec![user("m-1", None), line("x"), user("m-2", None), line("y")])).await;
    let query = EventQuery { limit: 1, kinds: Some(USERS), take: Take::Last, ..everything() };
    let page = store.events(session, query).await.unwrap();
    assert_eq!((seqs(&page), page.more), (vec![9], true));
}

/// Also where bytes, not events, fill the pages.
pub async fn a_log_is_read_backwards_whole(store: &impl AnyStore) {
    let session = make(store, "s").await.key;
    let sizes = [10, MAX_PAGE_BYTES * 2 / 5, MAX_PAGE_BYTES + 1, 10, MAX_PAGE_BYTES * 3 / 5, 10];
    stored(store, plain(session, sizes.map(|size| line("x".repeat(size))).to_vec())).await;
    let (mut before, mut pages) = (None, Vec::new());
    loop {
        let page =
            store.events(session, EventQuery { before, take: Take::Last, ..everything() }).await.unwrap();
        pages.push(seqs(&page));
        before = page.events.first().map(|event| event.place.seq);
        if !page.more {
            break;
        }
    }
    assert_eq!(pages, [vec![4, 5, 6], vec![3], vec![1, 2]]);
}

/// The head of an empty log is 0.
pub async fn an_empty_log_has_an_empty_page(store: &impl AnyStore) {
    let session = make(store, "s").await.key;
    let page = store.events(session, everything()).await.unwrap();
    assert_eq!(page, EventPage { events: vec![], more: false, head_seq: 0, feedback: BTreeMap::new() });
}

/// A key that the store never gave is told, not taken for an empty log.
pub async fn an_unknown_session_is_an_error(store: &impl AnyStore) {
    let nobody = SessionKey(i64::MAX);
    store.events(nobody, everything()).await.unwrap_err();
    store.append(plain(nobody, vec![line("lost")])).await.unwrap_err();
}
