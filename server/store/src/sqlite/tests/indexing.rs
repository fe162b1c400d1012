//! The index of messages beside the log: behind it, catching up, made later than it, and broken.

use std::time::Duration;

use rusqlite::Connection;
use tns_protocol::Seq;
use tns_server_core::search::MAX_CANDIDATES;
use tns_server_core::store::{
    Append, Appended, LOCAL_PRINCIPAL, SearchCursor, SearchPage, SearchQuery, SessionKey, Store as _,
    StoreError,
};

use super::super::index::{self, Covered, MAX_BEHIND};
use super::{Folder, Options, SqliteStore, adding, line, make, plain, replies, says, stored};

/// So long that no test sees the end of it.
const NEVER: Duration = Duration::from_secs(3_600);

async fn search_after(store: &SqliteStore, text: &str, after: Option<SearchCursor>) -> SearchPage {
    let query = SearchQuery { principal: LOCAL_PRINCIPAL.into(), text: text.into(), limit: 50, after };
    store.search(query).await.unwrap()
}

async fn search_for(store: &SqliteStore, text: &str) -> SearchPage {
    search_after(store, text, None).await
}

/// The places of all hits, over all pages.
async fn all_of(store: &SqliteStore, text: &str) -> Vec<Seq> {
    let mut page = search_for(store, text).await;
    let mut seqs = Vec::new();
    loop {
        assert!(page.complete);
        seqs.extend(page.hits.iter().filter_map(|hit| hit.seq));
        let Some(after) = page.next else { return seqs };
        page = search_after(store, text, Some(after)).await;
    }
}

fn covered(folder: &Folder) -> Covered {
    Covered::read(&folder.stranger()).unwrap()
}

/// Lets the next event come after a place, as if others had been there before.
fn begin_after(folder: &Folder, gseq: u64) {
    drop(folder.open());
    let sql = "INSERT INTO meta (key, value) VALUES ('last_gseq', ?1)";
    folder.stranger().execute(sql, [gseq.to_string()]).unwrap();
}

/// Makes the file what it was before there was an index, but for the schema's number.
fn forget_index(connection: &Connection) {
    connection
        .execute_batch(
            "DROP TABLE search; DELETE FROM meta WHERE key LIKE 'search_%';
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

    let store = folder.open_following();
    stored(&store, plain(session, vec![says("needle latest")])).await;
    assert_eq!(search_for(&store, "latest").await.hits.len(), 1);
    while !search_for(&store, "needle").await.complete {
        tokio::task::yield_now().await;
    }
    for word in ["w0", "w199", "w399"] {
        assert_eq!(search_for(&store, &format!("{word} ")).await.hits.len(), 1, "{word}");
    }
    folder.indexed().await;
    assert_eq!(folder.rows_with("needle"), 801);
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
    assert!(index::fill(&connection).unwrap());
    drop(connection);

    let store = folder.open_with(&Options { quiet: NEVER, ..Options::default() });
    stored(&store, plain(session, vec![says("needle")])).await;
    assert_eq!(store.delete_session(session).await, Ok(true));
    drop(store);
    folder.stranger().execute("INSERT INTO search (search) VALUES ('integrity-check')", []).unwrap();
    let terms: i64 = folder
        .stranger()
        .query_row("SELECT count(*) FROM search WHERE search MATCH '\"0001needle\"'", [], |row| row.get(0))
        .unwrap();
    assert_eq!(terms, 0);
}

#[tokio::test]
async fn what_the_index_does_not_have_yet_is_found_as_well_as_what_it_has() {
    let folder = Folder::new();
    // So that the log goes over the border of two blocks.
    begin_after(&folder, 32_700);
    let store = folder.open_with(&Options { quiet: NEVER, ..Options::default() });
    let session = make(&store, "s").await;
    for number in 0..60 {
        let words = format!("needle w{number} foo_bar {}", "Größe ".repeat(number % 7));
        stored(&store, plain(session, vec![says(&words), line("needle"), replies(&words)])).await;
    }
    let behind = covered(&folder);
    assert_eq!((behind.to, folder.rows_with("needle")), (32_700, 0));
    let questions = ["needle", "need", "grosse ", "w7 ", "foo_bar", "bar foo", "w5 needle gr", "nothing"];
    let mut before = Vec::new();
    for question in questions {
        before.push(all_of(&store, question).await);
    }
    assert_eq!(before.iter().map(Vec::len).collect::<Vec<_>>(), [120, 120, 102, 2, 120, 120, 2, 0]);
    drop(store);

    let store = folder.open_following();
    stored(&store, plain(session, vec![line("x")])).await;
    folder.indexed().await;
    assert_eq!(folder.rows_with("needle"), 120);
    for (question, before) in questions.into_iter().zip(before) {
        assert_eq!(all_of(&store, question).await, before, "{question}");
    }
}

#[tokio::test]
async fn the_index_is_never_further_behind_than_it_may_be() {
    let folder = Folder::new();
    let store = folder.open_with(&Options { quiet: NEVER, ..Options::default() });
    let session = make(&store, "s").await;
    stored(&store, plain(session, vec![says("oldest")])).await;
    let mut last = 1;
    let most = usize::try_from(MAX_BEHIND).unwrap();
    for events in [most - 1, 1, 300] {
        stored(&store, plain(session, vec![replies("needle"); events])).await;
        last += events as u64;
        let to = covered(&folder).to;
        assert!(last - to <= MAX_BEHIND, "{last} {to}");
        assert_eq!(to > 0, last > MAX_BEHIND, "{last} {to}");
        assert_eq!(search_for(&store, "oldest").await.hits.len(), 1, "{last}");
        assert!(search_for(&store, "needle").await.complete);
    }
    let newest = (last + 1 - MAX_CANDIDATES as u64)..=last;
    assert!(all_of(&store, "needle").await.iter().all(|seq| newest.contains(seq)));
}

/// Spoils what the index keeps of itself, so that nothing can be read from it or written into it.
fn damage(folder: &Folder) {
    let spoilt = "UPDATE search_data SET block = x'ffffffffffffffffffffff' WHERE id < 100";
    assert_ne!(folder.stranger().execute(spoilt, []).unwrap(), 0);
}

#[tokio::test]
async fn a_damaged_index_holds_up_no_append_and_no_title_and_is_made_anew() {
    let folder = Folder::new();
    let store = folder.open_following();
    let session = make(&store, "s").await;
    stored(&store, plain(session, vec![says("needle one")])).await;
    folder.indexed().await;
    drop(store);
    damage(&folder);

    let store = folder.open_with(&Options { quiet: NEVER, ..Options::default() });
    let titled =
        Append { title: Some(Some("all about it".into())), ..plain(session, vec![says("needle two")]) };
    stored(&store, titled).await;
    let many = vec![replies("hay"); usize::try_from(MAX_BEHIND).unwrap()];
    let last = stored(&store, plain(session, many)).await.last().unwrap().seq;
    let query = SearchQuery { principal: LOCAL_PRINCIPAL.into(), text: "one ".into(), limit: 9, after: None };
    assert!(matches!(store.search(query).await, Err(StoreError::Damaged(_))));
    drop(store);

    let store = folder.open_following();
    assert_eq!(stored(&store, plain(session, vec![says("needle three")])).await[0].seq, last + 1);
    folder.indexed().await;
    assert_eq!((folder.rows_with("needle"), folder.rows_with("hay") as u64), (3, MAX_BEHIND));
    assert_eq!(all_of(&store, "needle ").await.len(), 3);
    let about = search_for(&store, "about").await.hits;
    assert_eq!(about.iter().map(|hit| hit.seq).collect::<Vec<_>>(), [None]);
}

#[tokio::test]
async fn a_session_is_erased_from_a_damaged_index_too() {
    let folder = Folder::new();
    let store = folder.open_following();
    let (gone, kept) = (make(&store, "gone").await, make(&store, "kept").await);
    for session in [gone, kept] {
        stored(&store, plain(session, vec![says("needle")])).await;
    }
    folder.indexed().await;
    drop(store);
    damage(&folder);

    let store = folder.open_with(&Options { quiet: NEVER, ..Options::default() });
    assert_eq!(store.delete_session(gone).await, Ok(true));
    folder.indexed().await;
    assert_eq!(folder.rows_with("needle"), 1);
    stored(&store, plain(kept, vec![says("needle")])).await;
    assert_eq!(all_of(&store, "needle").await.len(), 2);
}

#[tokio::test]
async fn a_place_that_the_index_went_over_is_not_given_again() {
    let folder = Folder::new();
    let store = folder.open_following();
    let session = make(&store, "s").await;
    stored(&store, adding(session, "harbour")).await;
    // The same document again takes a place and keeps none.
    for _ in 0..3 {
        assert_eq!(store.append(adding(session, "harbour")).await, Ok(Appended::Unchanged));
    }
    let last = stored(&store, plain(session, vec![says("one")])).await[0].gseq;
    for _ in 0..3 {
        assert_eq!(store.append(adding(session, "harbour")).await, Ok(Appended::Unchanged));
    }
    while covered(&folder).to <= last {
        tokio::task::yield_now().await;
    }
    drop(store);
    let store = folder.open_with(&Options { quiet: NEVER, ..Options::default() });
    let place = stored(&store, plain(session, vec![says("two")])).await[0].gseq;
    assert!(place > covered(&folder).to);
    assert_eq!(all_of(&store, "two").await.len(), 1);
}

#[tokio::test]
async fn an_erased_title_is_in_no_index_that_was_made_anew() {
    let folder = Folder::new();
    let store = folder.open_following();
    let session = make(&store, "s").await;
    let titled = Append { title: Some(Some("zqtitle".into())), ..plain(session, vec![says("x")]) };
    stored(&store, titled).await;
    folder.indexed().await;
    drop(store);
    damage(&folder);
    let store = folder.open_with(&Options { quiet: NEVER, ..Options::default() });
    assert_eq!(store.delete_session(session).await, Ok(true));
    drop(store);
    let term = "\"0000zqtitle\"";
    let rows: i64 = folder
        .stranger()
        .query_row("SELECT count(*) FROM search WHERE search MATCH ?1", [term], |row| row.get(0))
        .unwrap();
    assert_eq!(rows, 0);
}

#[tokio::test]
async fn damage_that_only_a_search_meets_is_mended_after_the_next_write() {
    let folder = Folder::new();
    let store = folder.open_following();
    let session = make(&store, "s").await;
    for number in 0..50 {
        stored(&store, plain(session, vec![says(&format!("needle w{number}"))])).await;
    }
    folder.indexed().await;
    drop(store);
    // A part of the index that nothing writes into again.
    let spoilt = "UPDATE search_data SET block = x'ffffffff' WHERE id = (SELECT min(id) FROM search_data WHERE id > 100)";
    assert_eq!(folder.stranger().execute(spoilt, []).unwrap(), 1);

    let store = folder.open_following();
    let query =
        SearchQuery { principal: LOCAL_PRINCIPAL.into(), text: "needle ".into(), limit: 9, after: None };
    let met = store.search(query).await;
    assert!(matches!(met, Err(StoreError::Damaged(_))), "{met:?}");
    stored(&store, plain(session, vec![says("needle")])).await;
    folder.indexed().await;
    assert_eq!(folder.rows_with("needle"), 51);
    assert_eq!(all_of(&store, "needle ").await.len(), 51);
}

#[tokio::test]
async fn what_has_the_words_apart_counts_alike_before_and_after_it_is_in_the_index() {
    let folder = Folder::new();
    let store = folder.open_with(&Options { quiet: NEVER, ..Options::default() });
    let session = make(&store, "s").await;
    stored(&store, plain(session, vec![says("foo_bar")])).await;
    stored(&store, plain(session, vec![says("bar foo"); MAX_CANDIDATES - 1])).await;
    assert_eq!(all_of(&store, "foo_bar").await, [1]);
    stored(&store, plain(session, vec![says("bar foo")])).await;
    assert_eq!(all_of(&store, "foo_bar").await, [] as [Seq; 0]);
    drop(store);
    let store = folder.open_following();
    folder.indexed().await;
    assert_eq!(all_of(&store, "foo_bar").await, [] as [Seq; 0]);
}
