//! Looking a store over: what it says, and that it changes nothing.

use std::fs;
use std::time::Duration;

use tns_server_core::store::StoreError;

use super::{Folder, line, make, plain, stored};
use crate::{Inspection, Pages, inspect};

/// Longer than any check of a small file takes.
const AMPLE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_store_that_is_used_is_looked_over_beside_it() {
    let folder = Folder::new();
    let store = folder.open();
    let session = make(&store, "s").await;
    stored(&store, plain(session, vec![line("a")])).await;
    let newest = inspect(&folder.file(), AMPLE).unwrap().newest;
    let expected = Inspection { format: newest, newest, pages: Pages::Whole };
    assert_eq!(inspect(&folder.file(), AMPLE), Ok(expected.clone()));
    stored(&store, plain(session, vec![line("b")])).await;
    drop(store);
    let before = fs::read(folder.file()).unwrap();
    assert_eq!(inspect(&folder.file(), AMPLE), Ok(expected));
    assert_eq!(fs::read(folder.file()).unwrap(), before);
}

#[test]
fn a_file_that_is_no_store_or_is_not_there_is_told_and_left_alone() {
    let folder = Folder::new();
    let missing = inspect(&folder.file(), AMPLE).unwrap_err();
    assert!(missing.to_string().contains("tns.db: No such file"), "{missing}");
    assert!(!folder.file().exists());
    let text = "no database ".repeat(1_000);
    fs::write(folder.file(), &text).unwrap();
    assert!(matches!(inspect(&folder.file(), AMPLE), Err(StoreError::Failed(_) | StoreError::Damaged(_))));
    assert_eq!(fs::read_to_string(folder.file()).unwrap(), text);
}

#[tokio::test]
async fn torn_pages_are_found() {
    let folder = Folder::new();
    let store = folder.open();
    let session = make(&store, "s").await;
    for _ in 0..20 {
        stored(&store, plain(session, vec![line("word ".repeat(500))])).await;
    }
    drop(store);
    let mut bytes = fs::read(folder.file()).unwrap();
    let (first, rest) = (4096, bytes.len());
    bytes[first..rest].fill(0xA5);
    fs::write(folder.file(), bytes).unwrap();
    let found = inspect(&folder.file(), AMPLE);
    let torn = matches!(
        &found,
        Ok(Inspection { pages: Pages::Damaged(_), .. }) | Err(StoreError::Failed(_) | StoreError::Damaged(_))
    );
    assert!(torn, "{found:?}");
}

#[tokio::test]
async fn a_store_of_a_newer_program_is_named_and_one_without_time_is_not_called_whole() {
    let folder = Folder::new();
    drop(folder.open());
    let found = inspect(&folder.file(), Duration::ZERO).unwrap();
    assert!(!matches!(found.pages, Pages::Damaged(_)), "{found:?}");
    folder.stranger().execute_batch("PRAGMA user_version = 999").unwrap();
    assert!(matches!(inspect(&folder.file(), AMPLE), Err(StoreError::Newer(_))));
}
