//! Erased text: gone from the bytes of the files, not only from answers.

use std::path::Path;

use tns_protocol::Timestamp;
use tns_server_core::store::{Append, ImportedEvent, LOCAL_PRINCIPAL, SearchQuery, SessionState, Store as _};

use super::{Folder, adding, find, line, make, new_import, plain, replies, says, stored};

/// Whether a file holds these bytes anywhere. One that is not there holds nothing.
fn holds(path: &Path, needle: &str) -> bool {
    let bytes = std::fs::read(path).unwrap_or_default();
    bytes.windows(needle.len()).any(|window| window.eq_ignore_ascii_case(needle.as_bytes()))
}

fn found_in(folder: &Folder, needle: &str) -> Vec<&'static str> {
    let files = [("db", folder.file()), ("wal", folder.companion("wal"))];
    files.into_iter().filter(|(_, path)| holds(path, needle)).map(|(name, _)| name).collect()
}

/// A word that nothing else has; its beginning is asked for too, since an index may keep words in parts.
const CANARY: &str = "zqcanaryxv";
const CANARY_HEAD: &str = "zqcana";

#[tokio::test]
async fn nothing_of_a_deleted_session_stays_in_the_files() {
    let folder = Folder::new();
    let store = folder.open_following();
    let (gone, kept) = (make(&store, "gone").await, make(&store, "kept").await);
    // Others' words around them, on the same pages and in the same parts of the index.
    for number in 0..50 {
        let words = format!("zqbefore{number} zqd{number} filler zr{number}");
        stored(&store, plain(kept, vec![says(&words), replies(&words)])).await;
        let words = format!("{CANARY} {CANARY}{number} filler {}", "text ".repeat(number * 30));
        stored(&store, plain(gone, vec![says(&words), line(CANARY), replies(&words)])).await;
    }
    let state = SessionState::default();
    let titled = Append {
        title: Some(Some(format!("about {CANARY}"))),
        state: Some(state),
        ..plain(gone, vec![says(&format!("{CANARY} {}", "long ".repeat(20_000)))])
    };
    stored(&store, titled).await;
    stored(&store, adding(gone, &format!("{CANARY} {}", "document ".repeat(3_000)))).await;
    folder.indexed().await;
    assert!(!found_in(&folder, CANARY).is_empty());
    assert_eq!(folder.rows_with(CANARY), 101);

    assert_eq!(store.delete_session(gone).await, Ok(true));
    assert_eq!(found_in(&folder, CANARY_HEAD), Vec::<&str>::new());
    let kept_before = store.events(kept, super::first(500)).await.unwrap();
    assert_eq!(kept_before.events.len(), 100);
    let query =
        SearchQuery { principal: LOCAL_PRINCIPAL.into(), text: "zqbefore7".into(), limit: 10, after: None };
    assert_eq!(store.search(query).await.unwrap().hits.len(), 2);
    let whole: String = folder.stranger().query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!((whole.as_str(), folder.rows_with(CANARY)), ("ok", 0));
}

#[tokio::test]
async fn a_replaced_title_does_not_stay_in_the_files() {
    let folder = Folder::new();
    let store = folder.open();
    let session = make(&store, "s").await;
    for title in [Some(format!("about {CANARY}")), None] {
        stored(&store, Append { title: Some(title), ..plain(session, vec![line("x")]) }).await;
    }
    drop(store);
    assert_eq!(found_in(&folder, CANARY_HEAD), Vec::<&str>::new());
}

#[tokio::test]
async fn text_that_a_reader_kept_in_the_log_file_is_emptied_later() {
    let folder = Folder::new();
    let store = folder.open();
    let session = make(&store, "s").await;
    stored(&store, plain(session, vec![says(CANARY)])).await;
    let stranger = folder.stranger();
    stranger.execute_batch("BEGIN; SELECT count(*) FROM events;").unwrap();
    assert_eq!(store.delete_session(session).await, Ok(true));
    assert_eq!(found_in(&folder, CANARY), ["wal"]);
    stranger.execute_batch("COMMIT").unwrap();
    drop(stranger);
    // It tries again by itself; the end of the store does it at the latest.
    drop(store);
    assert_eq!(found_in(&folder, CANARY_HEAD), Vec::<&str>::new());
}

#[tokio::test]
async fn an_import_that_was_not_finished_is_erased_by_the_next_start() {
    let folder = Folder::new();
    let store = folder.open();
    let import = store.begin_import(new_import("s")).await.unwrap().unwrap();
    let event = |number: i64| ImportedEvent {
        at: Timestamp::from_micros(number),
        turn: None,
        event: says(&format!("{CANARY} {number}")).event,
    };
    for page in 0..4 {
        store.import_events(import, (page * 300..(page + 1) * 300).map(event).collect()).await.unwrap();
    }
    drop(store);
    assert_eq!(found_in(&folder, CANARY), ["db"]);

    let store = folder.open();
    assert_eq!(find(&store, "s").await, Ok(None));
    assert!(store.finish_import(import, SessionState::default()).await.is_err());
    until(|| count(&folder, "imports") == 0).await;
    assert_eq!(count(&folder, "import_events"), 0);
    drop(store);
    assert_eq!(found_in(&folder, CANARY_HEAD), Vec::<&str>::new());
}

fn count(folder: &Folder, table: &str) -> i64 {
    folder.stranger().query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}

/// Gives the store's threads their turn until it is so; a test that never ends is stopped from outside.
async fn until(mut so: impl FnMut() -> bool) {
    while !so() {
        tokio::task::yield_now().await;
    }
}
