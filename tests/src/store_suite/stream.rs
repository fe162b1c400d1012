//! The events of all sessions, in the store's order.

use tns_server_core::store::{
    LOCAL_PRINCIPAL, MAX_PAGE_BYTES, MAX_PAGE_EVENTS, SessionKey, StreamEvent, StreamPage,
};

use super::{AnyStore, line, make, new_session, plain, stored};

async fn page(store: &impl AnyStore, after: u64, principal: Option<&str>, limit: usize) -> StreamPage {
    store.events_since(after, principal, limit).await.unwrap()
}

/// Reads all pages from a place on.
async fn all(
    store: &impl AnyStore,
    mut after: u64,
    principal: Option<&str>,
    limit: usize,
) -> Vec<StreamEvent> {
    let mut events = Vec::new();
    loop {
        let page = page(store, after, principal, limit).await;
        assert!(page.events.len() <= limit);
        assert!(page.next >= after && (page.next > after || !page.more), "{page:?}");
        events.extend(page.events);
        after = page.next;
        if !page.more {
            return events;
        }
    }
}

async fn two_principals(store: &impl AnyStore) -> (SessionKey, SessionKey) {
    let mine = make(store, "mine").await.key;
    let (yours, _) = store.create_session(new_session("you", "yours")).await.unwrap();
    for (session, text) in [(mine, "a"), (yours.key, "b"), (yours.key, "c"), (mine, "d"), (yours.key, "e")] {
        stored(store, plain(session, vec![line(text)])).await;
    }
    (mine, yours.key)
}

/// Whatever the size of the pages, and from any place.
pub async fn the_stream_has_every_event_once_in_order(store: &impl AnyStore) {
    two_principals(store).await;
    let whole = all(store, 0, None, 100).await;
    let told: Vec<_> =
        whole.iter().map(|e| (e.principal.as_str(), e.session.as_str(), e.event.place.seq)).collect();
    let (mine, yours) = ((LOCAL_PRINCIPAL, "mine"), ("you", "yours"));
    let expected: Vec<_> = [(mine, 1), (yours, 1), (yours, 2), (mine, 2), (yours, 3)]
        .map(|((principal, session), seq)| (principal, session, seq))
        .to_vec();
    assert_eq!(told, expected);
    assert_eq!(whole[3].event.event, line("d").event);
    assert!(whole.windows(2).all(|pair| pair[0].event.place.gseq < pair[1].event.place.gseq));
    for limit in 1..=6 {
        assert_eq!(all(store, 0, None, limit).await, whole, "in pages of {limit}");
    }
    for from in 0..whole.len() {
        assert_eq!(all(store, whole[from].event.place.gseq, None, 2).await, whole[from + 1..]);
    }
    assert_eq!(page(store, u64::MAX, None, 10).await.events, []);
}

/// Others' events are passed over, not counted.
pub async fn the_stream_of_a_principal_has_only_its_own(store: &impl AnyStore) {
    two_principals(store).await;
    let seqs = |events: Vec<StreamEvent>| events.iter().map(|e| e.event.place.seq).collect::<Vec<_>>();
    for limit in 1..=3 {
        assert_eq!(seqs(all(store, 0, Some("you"), limit).await), [1, 2, 3]);
        assert_eq!(seqs(all(store, 0, Some(LOCAL_PRINCIPAL), limit).await), [1, 2]);
        assert_eq!(all(store, 0, Some("them"), limit).await, []);
    }
}

/// As a page of one log is.
pub async fn a_page_of_the_stream_is_bounded(store: &impl AnyStore) {
    let session = make(store, "s").await.key;
    stored(store, plain(session, vec![line("x"); MAX_PAGE_EVENTS + 1])).await;
    let first = page(store, 0, None, usize::MAX).await;
    assert_eq!((first.events.len(), first.more), (MAX_PAGE_EVENTS, true));
    let rest = page(store, first.next, None, usize::MAX).await;
    assert_eq!((rest.events.len(), rest.more), (1, false));

    let large = [MAX_PAGE_BYTES * 2 / 5, MAX_PAGE_BYTES * 2 / 5, MAX_PAGE_BYTES + 1, 1];
    stored(store, plain(session, large.map(|size| line("x".repeat(size))).to_vec())).await;
    let mut after = rest.next;
    let mut counts = Vec::new();
    loop {
        let page = page(store, after, None, usize::MAX).await;
        counts.push(page.events.len());
        after = page.next;
        if !page.more {
            break;
        }
    }
    assert_eq!(counts, [2, 1, 1]);
}

/// Following from there misses nothing that is stored later.
pub async fn the_head_lies_behind_every_event(store: &impl AnyStore) {
    assert_eq!(store.head_gseq().await, Ok(0));
    let session = make(store, "s").await.key;
    let last = stored(store, plain(session, vec![line("a"), line("b")])).await[1].gseq;
    let head = store.head_gseq().await.unwrap();
    assert!(head >= last);
    assert_eq!(page(store, head, None, 10).await.events, []);
    let next = stored(store, plain(session, vec![line("c")])).await[0].gseq;
    let events = page(store, head, None, 10).await.events;
    assert_eq!(events.iter().map(|e| e.event.place.gseq).collect::<Vec<_>>(), [next]);
}

/// It is one, whatever is stored or deleted.
pub async fn the_epoch_stays(store: &impl AnyStore) {
    let epoch = store.epoch();
    assert!(!epoch.is_empty());
    let session = make(store, "s").await.key;
    stored(store, plain(session, vec![line("a")])).await;
    store.delete_session(session).await.unwrap();
    assert_eq!(store.epoch(), epoch);
}
