//! Every kind of write on a full disk and on a held store: told, nothing half done, works afterwards.

use std::time::Duration;

use tns_protocol::{MessageId, Timestamp};
use tns_server_core::store::{
    Append, ImportKey, ImportedEvent, LOCAL_PRINCIPAL, NewImport, NewSession, Score, SearchQuery, SessionKey,
    SessionState, Store as _, StoreError,
};

use super::{
    Folder, Options, SqliteStore, adding, find, first, line, make, new_import, new_session, plain, says,
    stored,
};

/// A store in which every write can be tried.
struct Tried {
    session: SessionKey,
    import: ImportKey,
}

/// What a write left, as far as anybody can see.
type Seen = (Vec<String>, usize, usize, u64);

impl Tried {
    async fn new(store: &SqliteStore) -> Self {
        let session = make(store, "s").await;
        stored(store, plain(session, vec![says("first words"), line("x")])).await;
        let import = store.begin_import(new_import("import")).await.unwrap().unwrap();
        Self { session, import }
    }

    /// Tries one of the writes with something large; `None`: there are no more.
    async fn write(&self, store: &SqliteStore, number: usize, large: &str) -> Option<Result<(), StoreError>> {
        let titled = |id: &str| NewSession { title: Some(large.into()), ..new_session(id) };
        let imported =
            || ImportedEvent { at: Timestamp::from_micros(1), turn: None, event: says(large).event };
        Some(match number {
            0 => store.append(plain(self.session, vec![says(large)])).await.map(drop),
            1 => store.create_session(titled("made")).await.map(drop),
            2 => store.fork_session(self.session, 1, titled("fork")).await.map(drop),
            3 => store.import_events(self.import, vec![imported()]).await,
            4 => store.append(adding(self.session, large)).await.map(drop),
            5 => {
                let title = Some(Some(large.to_owned()));
                store.append(Append { title, ..plain(self.session, vec![line("renamed")]) }).await.map(drop)
            }
            6 => {
                let new = NewImport { title: Some(large.to_owned()), ..new_import("other") };
                store.begin_import(new).await.map(drop)
            }
            _ => return None,
        })
    }

    /// Tries one of the writes that need no room.
    async fn small_write(&self, store: &SqliteStore, number: usize) -> Option<Result<(), StoreError>> {
        let message = MessageId::parse("m-1").unwrap();
        Some(match number {
            0 => store.rate(self.session, &message, Some(Score::Up)).await.map(drop),
            1 => store.fork_session(self.session, 2, new_session("copy")).await.map(drop),
            2 => store.finish_import(self.import, SessionState::default()).await.map(drop),
            3 => store.abandon_import(self.import).await,
            4 => store.delete_session(self.session).await.map(drop),
            _ => return None,
        })
    }

    async fn seen(&self, store: &SqliteStore) -> Seen {
        let sessions = store.list_sessions(LOCAL_PRINCIPAL, None, 10).await.unwrap().sessions;
        let query =
            SearchQuery { principal: LOCAL_PRINCIPAL.into(), text: "words".into(), limit: 50, after: None };
        (
            sessions.iter().map(|session| format!("{session:?}")).collect(),
            store.events_since(0, None, 100).await.unwrap().events.len(),
            store.search(query).await.unwrap().hits.len(),
            store.events(self.session, first(100)).await.unwrap().head_seq,
        )
    }
}

#[tokio::test]
async fn every_write_on_a_full_disk_is_told_and_undone() {
    let folder = Folder::new();
    // 400 KiB.
    let store = folder.open_with(&Options { max_pages: Some(100), ..Options::default() });
    let tried = Tried::new(&store).await;
    let before = tried.seen(&store).await;
    let large = "words that fill the disk ".repeat(40_000);
    let mut number = 0;
    while let Some(answer) = tried.write(&store, number, &large).await {
        assert_eq!(answer, Err(StoreError::Full), "write {number}");
        assert_eq!(tried.seen(&store).await, before, "write {number}");
        assert_eq!(store.check().await, Ok(()), "write {number}");
        number += 1;
    }
    assert_eq!(number, 7);
    let mut number = 0;
    while let Some(answer) = tried.write(&store, number, "a few words").await {
        assert_eq!(answer, Ok(()), "write {number}");
        number += 1;
    }
    let mut number = 0;
    while let Some(answer) = tried.small_write(&store, number).await {
        assert_eq!(answer, Ok(()), "small write {number}");
        number += 1;
    }
}

#[tokio::test]
async fn every_write_on_a_held_store_is_told_and_undone() {
    let folder = Folder::new();
    let options = Options { busy_timeout: Duration::from_millis(20), ..Options::default() };
    let store = folder.open_with(&options);
    let tried = Tried::new(&store).await;
    let before = tried.seen(&store).await;
    let stranger = folder.stranger();
    stranger.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut number = 0;
    while let Some(answer) = tried.write(&store, number, "a few words").await {
        assert_eq!(answer, Err(StoreError::Busy), "write {number}");
        number += 1;
    }
    let mut number = 0;
    while let Some(answer) = tried.small_write(&store, number).await {
        assert_eq!(answer, Err(StoreError::Busy), "small write {number}");
        number += 1;
    }
    // Reading goes on, and nothing changed.
    assert_eq!(tried.seen(&store).await, before);
    stranger.execute_batch("ROLLBACK").unwrap();
    assert_eq!(tried.seen(&store).await, before);
    let mut number = 0;
    while let Some(answer) = tried.small_write(&store, number).await {
        // The import was finished, so it can't be given up, which is no error.
        assert_eq!(answer, Ok(()), "small write {number}");
        number += 1;
    }
    assert_eq!(find(&store, "s").await, Ok(None));
    assert!(find(&store, "copy").await.unwrap().is_some() && find(&store, "import").await.unwrap().is_some());
}

/// Each statement of the writer fails once, in turn: the write is told, undone, and works the second time.
#[tokio::test]
async fn each_statement_of_a_write_that_fails_undoes_it_all() {
    let folder = Folder::new();
    let failing = super::super::writer::Failing::default();
    let store = folder.open_with(&Options { failing: failing.clone(), ..Options::default() });
    let tried = Tried::new(&store).await;
    for number in 0..7 {
        for statement in 0..4 {
            let before = tried.seen(&store).await;
            failing.fail_at(statement);
            let answer = tried.write(&store, number, &format!("words {number}")).await.unwrap();
            assert!(
                matches!(answer, Err(StoreError::Failed(_))),
                "write {number}, statement {statement}: {answer:?}"
            );
            assert_eq!(tried.seen(&store).await, before, "write {number}, statement {statement}");
        }
        assert_eq!(tried.write(&store, number, &format!("words {number}")).await, Some(Ok(())));
    }
    for number in [0, 1, 2, 4] {
        for statement in 0..4 {
            failing.fail_at(statement);
            let answer = tried.small_write(&store, number).await.unwrap();
            assert!(answer.is_err(), "small write {number}, statement {statement}");
        }
        assert_eq!(tried.small_write(&store, number).await, Some(Ok(())));
    }
    assert_eq!(store.check().await, Ok(()));
}
