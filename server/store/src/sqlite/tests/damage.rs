//! Rows and pages that can't be read: they hide nothing else, and nothing is made in their place.

use std::os::unix::fs::FileExt as _;

use rusqlite::params;
use tns_server_core::store::{
    Append, AuditQuery, Collection, DocumentStore as _, LOCAL_PRINCIPAL, SessionKey, Store as _, StoreError,
};

use super::{
    Folder, SqliteStore, adding, audited, find, first, line, log, make, new_session, open_turn, plain, stored,
};

#[tokio::test]
async fn a_torn_event_hides_no_other() {
    let folder = Folder::new();
    let store = folder.open();
    let session = make(&store, "s").await;
    stored(&store, plain(session, ["a", "b", "c", "d", "e"].map(line).to_vec())).await;
    let expected = log(&store, session).await;
    let tear = "UPDATE events SET body = substr(body, 1, 9) WHERE seq = ?1";
    let newer = "UPDATE events SET body_version = 2 WHERE seq = ?1";
    let binary = "UPDATE events SET body = CAST(x'7bff7d' AS TEXT) WHERE seq = ?1";
    for (damage, seq) in [(tear, 2), (newer, 4), (binary, 5)] {
        assert_eq!(folder.stranger().execute(damage, [seq]).unwrap(), 1);
    }

    let page = store.events(session, first(usize::MAX)).await.unwrap();
    assert_eq!(page.events, [expected[0].clone(), expected[2].clone()]);
    assert_eq!((page.more, page.head_seq), (false, 5));
    // What follows can't be read, so there is no more.
    let page = store.events(session, first(2)).await.unwrap();
    assert_eq!((page.events.len(), page.more), (2, false));
    assert_eq!(stored(&store, plain(session, vec![line("f")])).await[0].seq, 6);
    assert!(store.events(session, first(2)).await.unwrap().more);
}

#[tokio::test]
async fn a_torn_audit_record_hides_no_other() {
    let folder = Folder::new();
    let store = folder.open();
    let session = make(&store, "s").await;
    stored(&store, plain(session, ["t-1", "t-2", "t-3", "t-4"].map(audited).to_vec())).await;
    let stranger = folder.stranger();
    stranger.execute("UPDATE events SET body = '{' WHERE seq = 3", []).unwrap();
    let other = serde_json::to_string(&line("x").event).unwrap();
    stranger.execute("UPDATE events SET body = ?1 WHERE seq = 4", [other]).unwrap();
    let found = store.audit(AuditQuery { limit: 2, ..AuditQuery::default() }).await.unwrap();
    let calls: Vec<_> = found.iter().map(|(_, record)| record.call.as_str()).collect();
    assert_eq!(calls, ["t-1", "t-2"]);
}

#[tokio::test]
async fn a_torn_state_is_an_error_of_its_session_only() {
    let folder = Folder::new();
    let store = folder.open();
    let (torn, whole) = (make(&store, "torn").await, make(&store, "whole").await);
    for session in [torn, whole] {
        stored(&store, Append { state: Some(open_turn()), ..plain(session, vec![line("a")]) }).await;
    }
    let whole = find(&store, "whole").await.unwrap().unwrap();
    let update = "UPDATE session_states SET body = ?2, version = ?3 WHERE session_pk = ?1";
    for (body, version) in [("{\"autonomy\":", 1), ("{}", 2)] {
        folder.stranger().execute(update, params![torn.0, body, version]).unwrap();
        let Err(StoreError::Failed(line)) = find(&store, "torn").await else { panic!("it was read") };
        assert!(line.starts_with("session torn can't be read: "), "{line}");
        assert_eq!(store.create_session(new_session("torn")).await, Err(StoreError::Failed(line)));
        let page = store.list_sessions(LOCAL_PRINCIPAL, None, 10).await.unwrap();
        assert_eq!(page.sessions, std::slice::from_ref(&whole));
        assert_eq!(store.sessions_with_open_turns().await, Ok(vec![whole.clone()]));
        assert_eq!(log(&store, torn).await.len(), 1);
    }
}

#[tokio::test]
async fn a_torn_document_hides_no_other() {
    let folder = Folder::new();
    let store = folder.open();
    let session = make(&store, "s").await;
    for content in ["a", "b", "c"] {
        stored(&store, adding(session, content)).await;
    }
    folder.stranger().execute("UPDATE documents SET metadata = '[' WHERE content = 'b'", []).unwrap();
    let listed = store.documents(&Collection::Session(session)).await.unwrap();
    assert_eq!(listed.iter().map(|info| info.preview.as_str()).collect::<Vec<_>>(), ["a", "c"]);
    let changes = store.document_changes(0, 2).await.unwrap();
    let contents: Vec<_> = changes.into_iter().filter_map(|change| change.document).collect();
    assert_eq!(contents.iter().map(|document| document.content.as_str()).collect::<Vec<_>>(), ["a", "c"]);
}

/// Two sessions whose logs fill pages of their own.
async fn two_long_logs(store: &SqliteStore) -> [SessionKey; 2] {
    let sessions = [make(store, "one").await, make(store, "two").await];
    for session in sessions {
        stored(store, plain(session, vec![line("x".repeat(500)); 100])).await;
    }
    sessions
}

#[tokio::test]
async fn a_damaged_page_is_told_and_hides_no_other() {
    let folder = Folder::new();
    let store = folder.open();
    let [one, two] = two_long_logs(&store).await;
    drop(store);
    // A page in the middle of the first log.
    let page: i64 = folder
        .stranger()
        .query_row(
            "SELECT pageno FROM dbstat WHERE name = 'events' AND pagetype = 'leaf' ORDER BY path LIMIT 1 OFFSET 3",
            [],
            |row| row.get(0),
        )
        .unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(folder.file()).unwrap();
    file.write_all_at(&[0; 4096], (u64::try_from(page).unwrap() - 1) * 4096).unwrap();

    for _ in 0..2 {
        let store = folder.open();
        let Err(error @ StoreError::Damaged(_)) = store.events(one, first(500)).await else {
            panic!("it was read")
        };
        assert_eq!(error.to_string().lines().count(), 1);
        // What lies before and behind the page.
        assert!(store.events(one, first(10)).await.unwrap().more);
        let behind = tns_server_core::store::EventQuery { after: 60, ..first(500) };
        assert!(store.events(one, behind).await.unwrap().events.len() >= 40);
        assert!(log(&store, two).await.len() >= 100);
        stored(&store, plain(two, vec![line("more")])).await;
        stored(&store, plain(one, vec![line("more")])).await;
        assert_eq!(store.list_sessions(LOCAL_PRINCIPAL, None, 10).await.unwrap().sessions.len(), 2);
        assert_eq!(store.check().await, Ok(()));
    }
}

#[tokio::test]
async fn a_file_that_was_cut_is_told_and_left_as_it_is() {
    let folder = Folder::new();
    let store = folder.open();
    let [one, _] = two_long_logs(&store).await;
    drop(store);
    let whole = std::fs::read(folder.file()).unwrap();
    for length in [whole.len() / 2, whole.len() / 2 / 4096 * 4096, whole.len() - 4096, 4096, 100, 17] {
        std::fs::write(folder.file(), &whole[..length]).unwrap();
        let error = match crate::open(&folder.file()) {
            Ok(store) => store.events(one, first(500)).await.unwrap_err(),
            Err(error) => error,
        };
        assert!(matches!(error, StoreError::Damaged(_)), "cut to {length}: {error:?}");
        assert_eq!(error.to_string().lines().count(), 1);
        assert_eq!(std::fs::read(folder.file()).unwrap(), &whole[..length], "cut to {length}");
    }
    // The whole one is as good as before.
    std::fs::write(folder.file(), &whole).unwrap();
    assert_eq!(log(&folder.open(), one).await.len(), 100);
}
