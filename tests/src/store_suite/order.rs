//! The order of writes: settled by the calls, whoever waits for what.

use futures_util::future::join_all;
use tns_protocol::ClientMessageId;
use tns_server_core::event::DurableEvent;
use tns_server_core::store::{Appended, Condition, SessionKey, StoredEvent};

use super::{AnyStore, find, line, make, only_if, plain, stored, user, whole_log};

fn texts(log: &[StoredEvent]) -> Vec<String> {
    let text = |stored: &StoredEvent| match &stored.event {
        DurableEvent::TurnFailed(failed) => failed.message.clone(),
        other => panic!("{other:?} is no line"),
    };
    log.iter().map(text).collect()
}

/// Though the futures are polled the other way round.
pub async fn appends_are_stored_in_the_order_of_their_calls(store: &impl AnyStore) {
    let session = make(store, "s").await.key;
    let expected: Vec<_> = (0..20).map(|number| number.to_string()).collect();
    let mut futures: Vec<_> =
        expected.iter().map(|text| store.append(plain(session, vec![line(text)]))).collect();
    while let Some(last) = futures.pop() {
        let Appended::Stored(places) = last.await.unwrap() else { panic!("it changed nothing") };
        assert_eq!(places[0].seq, futures.len() as u64 + 1);
    }
    assert_eq!(texts(&whole_log(store, session).await), expected);
}

/// Nobody waits for it, and it is there.
pub async fn an_append_is_done_though_its_future_is_dropped(store: &impl AnyStore) {
    let session = make(store, "s").await.key;
    drop(store.append(plain(session, vec![line("dropped")])));
    let places = stored(store, plain(session, vec![line("kept")])).await;
    assert_eq!(places[0].seq, 2);
    assert_eq!(texts(&whole_log(store, session).await), ["dropped", "kept"]);
}

/// Each thread's appends keep their order in each session, and every `gseq` is given once.
pub async fn appends_from_many_threads_are_all_stored_once(store: &impl AnyStore) {
    const THREADS: usize = 4;
    const EACH: usize = 50;
    let mut sessions: Vec<SessionKey> = Vec::new();
    for number in 0..5 {
        sessions.push(make(store, &format!("s{number}")).await.key);
    }
    let of_thread = |thread: usize| -> Vec<_> {
        let event = |number: usize| line(format!("{thread}/{number:02}"));
        let session = |number: usize| sessions[number % sessions.len()];
        (0..EACH).map(|number| store.append(plain(session(number), vec![event(number)]))).collect()
    };
    let futures: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || of_thread(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    for answer in join_all(futures).await {
        assert!(matches!(answer.unwrap(), Appended::Stored(places) if places.len() == 1));
    }

    let mut gseqs = Vec::new();
    for session in sessions.iter().copied() {
        let log = whole_log(store, session).await;
        let expected: Vec<_> = (1..=(THREADS * EACH / sessions.len()) as u64).collect();
        assert_eq!(log.iter().map(|event| event.place.seq).collect::<Vec<_>>(), expected);
        for thread in 0..THREADS {
            let mine: Vec<_> =
                texts(&log).into_iter().filter(|text| text.starts_with(&format!("{thread}/"))).collect();
            assert!(mine.is_sorted(), "{mine:?}");
        }
        assert!(log.windows(2).all(|pair| pair[0].place.gseq < pair[1].place.gseq));
        gseqs.extend(log.iter().map(|event| event.place.gseq));
    }
    gseqs.sort_unstable();
    gseqs.dedup();
    assert_eq!(gseqs.len(), THREADS * EACH);
}

/// The sender's id counts in its session only; the repeat leaves no trace, though it waits in the same queue.
pub async fn a_repeated_message_is_stored_once(store: &impl AnyStore) {
    let (one, two) = (make(store, "one").await.key, make(store, "two").await.key);
    let condition = || Condition::NewMessage(ClientMessageId::parse("c-1").unwrap());
    let first = store.append(only_if(one, vec![user("m-1", Some("c-1"))], condition()));
    let again = store.append(only_if(one, vec![user("m-2", Some("c-1")), line("more")], condition()));
    let elsewhere = store.append(only_if(two, vec![user("m-3", Some("c-1"))], condition()));
    assert!(matches!(first.await.unwrap(), Appended::Stored(_)));
    assert_eq!(again.await, Ok(Appended::Unchanged));
    assert!(matches!(elsewhere.await.unwrap(), Appended::Stored(_)));

    let record = find(store, "one").await.unwrap();
    let log = whole_log(store, one).await;
    assert_eq!((record.head_seq, record.updated_at, log.len()), (1, log[0].place.at, 1));
    assert_eq!(stored(store, plain(one, vec![line("next")])).await[0].seq, 2);
}

/// Those before and behind it in the queue are stored.
pub async fn an_append_that_fails_leaves_the_others(store: &impl AnyStore) {
    let session = make(store, "s").await.key;
    let answers = join_all([
        store.append(plain(session, vec![line("before")])),
        store.append(plain(SessionKey(i64::MAX), vec![line("nowhere")])),
        store.append(plain(session, vec![line("behind")])),
    ])
    .await;
    assert_eq!(answers.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(texts(&whole_log(store, session).await), ["before", "behind"]);
}
