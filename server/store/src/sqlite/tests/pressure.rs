//! Many writers, a full disk, a store that another process holds.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tns_server_core::store::{Appended, AuditQuery, Store as _, StoreError};

use super::super::writer::WRITE_QUEUE;
use super::{Folder, Options, audited, find, line, log, make, plain, stored};

const LOCK: &str = "BEGIN IMMEDIATE";
const UNLOCK: &str = "ROLLBACK";

#[tokio::test]
async fn writes_that_wait_share_a_commit() {
    let folder = Folder::new();
    let store = folder.open();
    let session = make(&store, "s").await;
    let stranger = folder.stranger();
    stranger.execute_batch(LOCK).unwrap();
    let before = store.shared.commits.load(Ordering::Relaxed);
    let futures: Vec<_> =
        (0..100).map(|number| store.append(plain(session, vec![line(number.to_string())]))).collect();
    stranger.execute_batch(UNLOCK).unwrap();
    for (future, seq) in futures.into_iter().zip(1..) {
        let Appended::Stored(places) = future.await.unwrap() else { panic!("it changed nothing") };
        assert_eq!(places[0].seq, seq);
    }
    assert_eq!(store.shared.commits.load(Ordering::Relaxed) - before, 1);
}

#[tokio::test]
async fn a_full_queue_is_busy_and_what_it_took_is_written() {
    let folder = Folder::new();
    let store = folder.open();
    let session = make(&store, "s").await;
    let stranger = folder.stranger();
    stranger.execute_batch(LOCK).unwrap();
    // The thread holds one more than the queue, from some moment on.
    let futures: Vec<_> =
        (0..WRITE_QUEUE + 2).map(|_| store.append(plain(session, vec![line("x")]))).collect();
    stranger.execute_batch(UNLOCK).unwrap();
    let mut taken = 0;
    for future in futures {
        match future.await {
            Ok(_) => taken += 1,
            Err(error) => assert_eq!(error, StoreError::Busy),
        }
    }
    assert!((WRITE_QUEUE..=WRITE_QUEUE + 1).contains(&taken), "{taken}");
    assert_eq!(find(&store, "s").await.unwrap().unwrap().head_seq, taken as u64);
}

#[tokio::test]
async fn a_locked_store_is_busy_after_a_bounded_wait_and_readable_meanwhile() {
    const WAIT: Duration = Duration::from_millis(300);
    const WRITES: u32 = 20;
    let folder = Folder::new();
    let store = folder.open_with(&Options { busy_timeout: WAIT, ..Options::default() });
    let session = make(&store, "s").await;
    stored(&store, plain(session, vec![line("before")])).await;
    let stranger = folder.stranger();
    stranger.execute_batch(LOCK).unwrap();

    let start = Instant::now();
    let futures: Vec<_> = (0..WRITES).map(|_| store.append(plain(session, vec![line("x")]))).collect();
    assert_eq!(log(&store, session).await.len(), 1);
    for future in futures {
        assert_eq!(future.await, Err(StoreError::Busy));
    }
    // Each waits from its call on, not from the end of the wait before it.
    let waited = start.elapsed();
    assert!(waited >= WAIT && waited < WAIT * WRITES / 2, "{waited:?}");
    assert_eq!(store.check().await, Err(StoreError::Busy));

    stranger.execute_batch(UNLOCK).unwrap();
    assert_eq!(store.check().await, Ok(()));
    assert_eq!(stored(&store, plain(session, vec![line("after")])).await[0].seq, 2);
}

#[tokio::test]
async fn a_full_disk_is_told_and_the_store_goes_on() {
    let folder = Folder::new();
    // 256 KiB.
    let store = folder.open_with(&Options { max_pages: Some(64), ..Options::default() });
    let session = make(&store, "s").await;
    stored(&store, plain(session, vec![line("before")])).await;
    let before = find(&store, "s").await;
    for _ in 0..3 {
        let large = store.append(plain(session, vec![line("small"), line("x".repeat(1 << 20))]));
        assert_eq!(large.await, Err(StoreError::Full));
        assert_eq!(find(&store, "s").await, before);
    }
    assert_eq!(stored(&store, plain(session, vec![line("after")])).await[0].seq, 2);
    assert_eq!(log(&store, session).await.len(), 2);
    assert_eq!(store.check().await, Ok(()));
}

#[tokio::test]
async fn audit_records_are_found_without_reading_the_log() {
    let folder = Folder::new();
    let store = folder.open();
    let session = make(&store, "s").await;
    stored(&store, plain(session, vec![line("a"), audited("t-1")])).await;
    let found = store.audit(AuditQuery { limit: 1, ..AuditQuery::default() }).await.unwrap();
    assert_eq!(found.len(), 1);
    let stranger = folder.stranger();
    let sql = format!("EXPLAIN QUERY PLAN {}", super::super::log::AUDIT_SQL);
    let mut statement = stranger.prepare(&sql).unwrap();
    let plan: Vec<String> = statement
        .query_map(rusqlite::params![None::<i64>, None::<i64>, None::<&str>], |row| row.get("detail"))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let expected = ["SCAN e USING INDEX events_audited", "SEARCH s USING INTEGER PRIMARY KEY (rowid=?)"];
    assert_eq!(plan, expected);
}
