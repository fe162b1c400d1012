//! Rows that can't be read: they hide nothing else, and nothing is made in their place.

use rusqlite::params;
use tns_server_core::store::{
    Append, AuditQuery, Collection, DocumentStore as _, LOCAL_PRINCIPAL, Store as _, StoreError,
};

use super::{Folder, adding, audited, find, first, line, log, make, new_session, open_turn, plain, stored};

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
