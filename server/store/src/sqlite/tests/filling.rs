//! A store that was made before there was an index: it is filled by and by, the newest first.

use rusqlite::Connection;
use tns_server_core::store::{LOCAL_PRINCIPAL, SearchPage, SearchQuery, SessionKey, Store as _};

use super::super::search;
use super::{Folder, SqliteStore, line, make, plain, replies, says, stored};

async fn search_for(store: &SqliteStore, text: &str) -> SearchPage {
    let query = SearchQuery { principal: LOCAL_PRINCIPAL.into(), text: text.into(), limit: 50, after: None };
    store.search(query).await.unwrap()
}

/// Makes the file what it was before there was an index, but for the schema's number.
fn forget_index(connection: &Connection) {
    connection
        .execute_batch(
            "DROP TABLE search; DELETE FROM meta WHERE key = 'search_from';
             DROP TABLE feedback; DROP TABLE import_events; DROP TABLE imports;",
        )
        .unwrap();
    let first = super::super::migrate::BEFORE_SEARCH;
    connection.execute_batch(&format!("PRAGMA user_version = {first}")).unwrap();
}

async fn written(folder: &Folder, messages: usize) -> SessionKey {
    let store = folder.open();
    let session = make(&store, "s").await;
    for number in 0..messages {
        let events = vec![says(&format!("needle w{number}")), line("x"), replies("needle")];
        stored(&store, plain(session, events)).await;
    }
    session
}

#[tokio::test]
async fn a_store_without_an_index_gets_one_while_it_serves() {
    let folder = Folder::new();
    let session = written(&folder, 400).await;
    forget_index(&folder.stranger());

    let store = folder.open();
    stored(&store, plain(session, vec![says("needle latest")])).await;
    assert_eq!(search_for(&store, "latest").await.hits.len(), 1);
    while !search_for(&store, "needle").await.complete {
        tokio::task::yield_now().await;
    }
    for word in ["w0", "w199", "w399"] {
        assert_eq!(search_for(&store, &format!("{word} ")).await.hits.len(), 1, "{word}");
    }
    drop(store);
    let rows: i64 = folder
        .stranger()
        .query_row("SELECT count(*) FROM search WHERE search MATCH '\"needle\"'", [], |row| row.get(0))
        .unwrap();
    assert_eq!(rows, 801);
    folder.stranger().execute("INSERT INTO search (search) VALUES ('integrity-check')", []).unwrap();
}

#[tokio::test]
async fn a_session_that_is_half_in_the_index_is_erased_whole() {
    let folder = Folder::new();
    let session = written(&folder, 400).await;
    let stranger = folder.stranger();
    forget_index(&stranger);
    drop(stranger);
    // One step only, as if the store was closed after it.
    let mut connection = Connection::open(folder.file()).unwrap();
    super::super::migrate::migrate(&mut connection).unwrap();
    assert!(search::fill(&connection).unwrap());
    drop(connection);

    let store = folder.open();
    assert_eq!(store.delete_session(session).await, Ok(true));
    drop(store);
    let stranger = folder.stranger();
    let rows: i64 = stranger
        .query_row("SELECT count(*) FROM search WHERE search MATCH '\"needle\"'", [], |row| row.get(0))
        .unwrap();
    assert_eq!(rows, 0);
    stranger.execute("INSERT INTO search (search) VALUES ('integrity-check')", []).unwrap();
}
