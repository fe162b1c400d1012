//! Opening: new, again, by whom it was written, with which modes.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use tns_server_core::store::{DocumentStore as _, SessionRecord, Store as _, StoreError};

use super::super::migrate::KNOWN;
use super::{Folder, Options, SqliteStore, adding, find, line, log, make, open_turn, plain, stored};

#[tokio::test]
async fn a_store_that_is_opened_again_has_everything() {
    let folder = Folder::new();
    let store = folder.open();
    let session = make(&store, "s").await;
    let mut places = stored(&store, plain(session, vec![line("a"), line("b")])).await;
    let with_state = tns_server_core::store::Append { state: Some(open_turn()), ..adding(session, "words") };
    places.extend(stored(&store, with_state).await);
    let before = (
        store.epoch(),
        find(&store, "s").await,
        log(&store, session).await,
        store.document_changes(0, 10).await,
        store.document_head().await,
        store.sessions_with_open_turns().await,
    );
    drop(store);

    let store = folder.open();
    let after = (
        store.epoch(),
        find(&store, "s").await,
        log(&store, session).await,
        store.document_changes(0, 10).await,
        store.document_head().await,
        store.sessions_with_open_turns().await,
    );
    assert_eq!(after, before);
    let next = stored(&store, plain(session, vec![line("c")])).await[0];
    assert_eq!(next.seq, 4);
    assert!(next.gseq > places[2].gseq);
}

#[tokio::test]
async fn what_was_handed_over_is_written_before_the_store_closes() {
    let folder = Folder::new();
    let store = folder.open();
    let session = make(&store, "s").await;
    for number in 0..100 {
        drop(store.append(plain(session, vec![line(number.to_string())])));
    }
    drop(store);
    assert_eq!(log(&folder.open(), session).await.len(), 100);
}

#[tokio::test]
async fn an_empty_file_becomes_a_store_with_an_epoch_of_its_own() {
    let (one, two) = (Folder::new(), Folder::new());
    std::fs::write(one.file(), "").unwrap();
    let (one, two) = (one.open(), two.open());
    assert_eq!(one.check().await, Ok(()));
    assert_ne!(one.epoch(), two.epoch());
    assert_eq!(find(&one, "s").await, Ok(None));
}

#[test]
fn opening_an_existing_store_writes_nothing() {
    let folder = Folder::new();
    drop(folder.open());
    let before = std::fs::read(folder.file()).unwrap();
    let store = folder.open();
    let log = std::fs::metadata(folder.companion("wal")).map_or(0, |file| file.len());
    assert_eq!(log, 0);
    drop(store);
    assert_eq!(std::fs::read(folder.file()).unwrap(), before);
}

#[test]
fn a_newer_store_is_refused_and_left_as_it_is() {
    let folder = Folder::new();
    drop(folder.open());
    let (known, newer) = (KNOWN, KNOWN + 1);
    folder.stranger().execute_batch(&format!("PRAGMA user_version = {newer}")).unwrap();
    let before = std::fs::read(folder.file()).unwrap();
    let Err(StoreError::Newer(line)) = crate::open(&folder.file()) else { panic!("it was opened") };
    assert_eq!(
        line,
        format!(
            "the data folder was written by a newer version of tns (format {newer}, this one knows {known}); \
             install that version again, or choose another data folder"
        )
    );
    assert_eq!(std::fs::read(folder.file()).unwrap(), before);
}

#[test]
fn a_database_of_another_program_is_refused_and_left_as_it_is() {
    let folder = Folder::new();
    folder.stranger().execute_batch("CREATE TABLE theirs (a)").unwrap();
    let before = std::fs::read(folder.file()).unwrap();
    let error = crate::open(&folder.file()).unwrap_err();
    assert_eq!(error, StoreError::Failed("the database file belongs to another program".into()));
    assert_eq!(std::fs::read(folder.file()).unwrap(), before);
}

#[test]
fn a_file_that_is_no_database_is_refused_and_left_as_it_is() {
    let folder = Folder::new();
    let text = "not a database ".repeat(1000);
    std::fs::write(folder.file(), &text).unwrap();
    let error = crate::open(&folder.file()).unwrap_err();
    assert_eq!(error, StoreError::Damaged("file is not a database".into()));
    assert_eq!(std::fs::read_to_string(folder.file()).unwrap(), text);
}

#[test]
fn a_file_of_nul_bytes_is_refused_and_left_as_it_is() {
    let folder = Folder::new();
    for length in [1, 100, 4096, 3 * 4096 + 17] {
        let nothing = vec![0; length];
        std::fs::write(folder.file(), &nothing).unwrap();
        let error = crate::open(&folder.file()).unwrap_err();
        assert_eq!(error, StoreError::Damaged("file is not a database".into()), "{length}");
        assert_eq!(std::fs::read(folder.file()).unwrap(), nothing);
    }
}

#[test]
fn a_store_that_another_process_keeps_to_itself_is_busy() {
    let folder = Folder::new();
    drop(folder.open());
    let stranger = folder.stranger();
    stranger.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; COMMIT").unwrap();
    let options = Options { busy_timeout: Duration::from_millis(20), ..Options::default() };
    assert_eq!(SqliteStore::open(&folder.file(), &options).unwrap_err(), StoreError::Busy);
    drop(stranger);
    SqliteStore::open(&folder.file(), &options).unwrap();
}

#[tokio::test]
async fn a_store_that_may_not_be_written_is_told_and_left_as_it_is() {
    let folder = Folder::new();
    let store = folder.open();
    make(&store, "s").await;
    drop(store);
    let before = std::fs::read(folder.file()).unwrap();
    std::fs::set_permissions(folder.file(), Permissions::from_mode(0o400)).unwrap();
    // Who may write everything is not told of it by the system.
    let mighty = std::fs::OpenOptions::new().write(true).open(folder.file()).is_ok();
    match crate::open(&folder.file()) {
        Ok(store) => assert!(mighty && find(&store, "s").await.unwrap().is_some()),
        Err(StoreError::ReadOnly(line)) => assert!(!mighty && line.contains("tns.db"), "{line}"),
        Err(other) => panic!("{other:?}"),
    }
    assert_eq!(std::fs::read(folder.file()).unwrap(), before);
}

#[tokio::test]
async fn a_restored_store_has_another_epoch_and_so_have_its_sessions() {
    let folder = Folder::new();
    let store = folder.open();
    let session = make(&store, "s").await;
    stored(&store, plain(session, vec![line("a")])).await;
    let (epoch, record) = (store.epoch(), find(&store, "s").await.unwrap().unwrap());
    drop(store);

    let renewed = crate::renew_epoch(&folder.file()).unwrap();
    let store = folder.open();
    assert_eq!(store.epoch(), renewed);
    assert_ne!(renewed, epoch);
    let restored = find(&store, "s").await.unwrap().unwrap();
    assert_ne!(restored.epoch, record.epoch);
    assert_eq!(restored, SessionRecord { epoch: restored.epoch.clone(), ..record });
    assert_eq!(log(&store, session).await.len(), 1);
}

#[test]
fn a_folder_that_is_missing_is_named() {
    let folder = Folder::new();
    let path = folder.0.path().join("missing/tns.db");
    let StoreError::Failed(line) = crate::open(&path).unwrap_err() else { panic!("another error") };
    assert!(line.contains("missing/tns.db"), "{line}");
}

#[tokio::test]
async fn only_the_owner_can_read_the_files() {
    let folder = Folder::new();
    let store = folder.open();
    make(&store, "s").await;
    for path in [folder.file(), folder.companion("wal"), folder.companion("shm")] {
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", path.display());
    }
}
