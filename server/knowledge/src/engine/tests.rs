//! The engine over a store in memory: what is found, what is not, and what survives a damaged index.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Map, Value, json};
use tns_protocol::DocumentId;
use tns_server_core::store::{Document, DocumentChange, DocumentInfo, SessionKey};
use tokio::task::JoinSet;

use super::*;
use crate::MAX_HITS;

/// Documents in memory; like a real store it keeps only a document's last change.
#[derive(Default)]
pub(super) struct FakeStore {
    changes: Mutex<Vec<DocumentChange>>,
    pages: AtomicUsize,
    fails: Mutex<bool>,
    /// Pages after which it fails.
    fails_after: Mutex<Option<usize>>,
}

impl FakeStore {
    fn change(&self, collection: &Collection, id: &DocumentId, document: Option<Document>) {
        let mut changes = self.changes.lock().unwrap();
        let gseq = changes.last().map_or(0, |last| last.gseq) + 2;
        let collection = collection.as_text();
        changes.retain(|change| change.collection != collection || change.id != *id);
        changes.push(DocumentChange { gseq, collection, id: id.clone(), document });
    }

    pub(super) fn add(&self, collection: &Collection, content: &str) -> DocumentId {
        self.add_with(collection, content, Map::new())
    }

    fn add_with(&self, collection: &Collection, content: &str, metadata: Map<String, Value>) -> DocumentId {
        let id = collection.document_id(content);
        let document = Document { id: id.clone(), content: content.to_owned(), metadata };
        self.change(collection, &id, Some(document));
        id
    }

    fn remove(&self, collection: &Collection, id: &DocumentId) {
        self.change(collection, id, None);
    }

    fn check(&self) -> Result<(), StoreError> {
        if *self.fails.lock().unwrap() { Err(StoreError::Failed("no\ndisk".into())) } else { Ok(()) }
    }
}

#[async_trait]
impl DocumentStore for FakeStore {
    async fn documents(&self, _: &Collection) -> Result<Vec<DocumentInfo>, StoreError> {
        Err(StoreError::Failed("a search does not list documents".into()))
    }

    async fn document_counts(&self, _: &[Collection]) -> Result<BTreeMap<String, u64>, StoreError> {
        Err(StoreError::Failed("a search does not count documents".into()))
    }

    async fn document_changes(&self, after: u64, limit: usize) -> Result<Vec<DocumentChange>, StoreError> {
        self.check()?;
        let page = self.pages.fetch_add(1, Ordering::Relaxed);
        if self.fails_after.lock().unwrap().is_some_and(|pages| page >= pages) {
            return Err(StoreError::Failed("it was stopped".into()));
        }
        let changes = self.changes.lock().unwrap();
        Ok(changes.iter().filter(|change| change.gseq > after).take(limit).cloned().collect())
    }

    async fn document_head(&self) -> Result<u64, StoreError> {
        self.check()?;
        Ok(self.changes.lock().unwrap().last().map_or(0, |last| last.gseq))
    }
}

pub(super) fn session(key: i64) -> Collection {
    Collection::Session(SessionKey(key))
}

pub(super) fn ask(text: &str) -> KnowledgeQuery {
    KnowledgeQuery { collections: vec![session(1)], text: text.to_owned(), limit: 10, threshold: 0.0 }
}

fn in_memory() -> (Arc<FakeStore>, KnowledgeEngine) {
    let store = Arc::new(FakeStore::default());
    let engine = KnowledgeEngine::open(None, Arc::clone(&store) as Arc<dyn DocumentStore>);
    (store, engine)
}

fn on_disk(dir: &Path, store: &Arc<FakeStore>) -> KnowledgeEngine {
    KnowledgeEngine::open(Some(dir), Arc::clone(store) as Arc<dyn DocumentStore>)
}

async fn contents(engine: &KnowledgeEngine, text: &str) -> Vec<String> {
    let hits = engine.search(ask(text)).await.unwrap();
    assert!(hits.iter().all(|hit| hit.score > 0.0 && hit.score < 1.0), "{hits:?}");
    hits.into_iter().map(|hit| hit.content).collect()
}

#[tokio::test]
async fn nothing_is_made_before_there_is_a_document_and_a_word() {
    let dir = tempfile::tempdir().unwrap();
    let index = dir.path().join("index");
    let store = Arc::new(FakeStore::default());
    let engine = on_disk(&index, &store);
    assert_eq!(contents(&engine, "anything").await, Vec::<String>::new());
    store.add(&session(1), "alpha");
    assert_eq!(contents(&engine, "?!").await, Vec::<String>::new());
    assert!(!index.exists());
    assert_eq!(store.pages.load(Ordering::Relaxed), 0);
    assert_eq!(contents(&engine, "alpha").await, ["alpha"]);
    assert!(index.exists());
}

#[tokio::test]
async fn a_hit_says_where_and_carries_the_documents_metadata() {
    let (store, engine) = in_memory();
    let metadata = json!({"source": "guide.md"}).as_object().unwrap().clone();
    let id = store.add_with(&session(1), "# Guide\n\n## Fuel\nFill in kerosene.\n\n## Oil\nNever.", metadata);
    let hits = engine.search(ask("kerosene")).await.unwrap();
    let hit = Hit {
        document: id,
        content: "# Guide\n\n## Fuel\nFill in kerosene.".into(),
        score: hits[0].score,
        metadata:
            json!({"source": "guide.md", "startLine": 1, "endLine": 4, "headingPath": ["Guide", "Fuel"]})
                .as_object()
                .unwrap()
                .clone(),
    };
    assert_eq!(hits, [hit]);
}

#[tokio::test]
async fn a_passage_is_found_by_the_headings_above_it() {
    let (store, engine) = in_memory();
    store.add(
        &session(1),
        &format!("# Zeppelin\n\n{}\n\nLanding needs a mast.", "Filler text here. ".repeat(60)),
    );
    let hits = engine.search(ask("zeppelin landing")).await.unwrap();
    assert_eq!(hits[0].content, "Landing needs a mast.");
}

#[tokio::test]
async fn documents_come_go_and_change() {
    let (store, engine) = in_memory();
    let first = store.add(&session(1), "the old line");
    assert_eq!(contents(&engine, "line").await, ["the old line"]);
    store.add(&session(1), "the new line");
    store.remove(&session(1), &first);
    assert_eq!(contents(&engine, "line").await, ["the new line"]);
    store.change(
        &session(1),
        &session(1).document_id("the new line"),
        Some(Document { id: first, content: "a third line".into(), metadata: Map::new() }),
    );
    assert_eq!(contents(&engine, "line").await, ["a third line"]);
    store.add(&session(1), "a third line");
    store.add(&session(1), "a third line");
    assert_eq!(contents(&engine, "line").await, ["a third line"], "one text is shown once");
}

#[tokio::test]
async fn only_the_named_collections_are_searched() {
    let (store, engine) = in_memory();
    let user = Collection::User("local".into());
    let in_session = store.add(&session(1), "a red apple");
    let in_user = store.add(&user, "a red apple tree");
    store.add(&session(12), "a red apple pie");
    let ids = |hits: Vec<Hit>| hits.into_iter().map(|hit| hit.document).collect::<Vec<_>>();
    let alone = ids(engine.search(ask("apple")).await.unwrap());
    assert_eq!(alone, std::slice::from_ref(&in_session));
    let both = KnowledgeQuery { collections: vec![session(1), user], ..ask("apple") };
    assert_eq!(ids(engine.search(both).await.unwrap()), [in_session, in_user]);
    let none = KnowledgeQuery { collections: vec![], ..ask("apple") };
    assert_eq!(engine.search(none).await.unwrap(), []);
}

#[tokio::test]
async fn scripts_without_spaces_are_found_inside_a_run() {
    let (store, engine) = in_memory();
    let documents = [
        "小貓在屋頂上曬太陽",
        "新しいGPUを窓辺に置いた",
        "지식베이스를 검색한다",
        "แมวนอนบนหลังคา",
        "Größe der Straße",
    ];
    for document in documents {
        store.add(&session(1), document);
    }
    for n in 0..10 {
        store.add(&session(1), &format!("An unrelated English text with the number {n}"));
    }
    let expected = [
        ("屋頂", 0),
        ("曬太陽", 0),
        ("貓", 0),
        ("窓辺", 1),
        ("GPU", 1),
        ("ＧＰＵ", 1),
        ("검색", 2),
        ("หลังคา", 3),
        ("größe", 4),
        ("GRÖSSE", 4),
        ("strasse", 4),
    ];
    for (question, document) in expected {
        assert_eq!(
            contents(&engine, question).await.first().map(String::as_str),
            Some(documents[document]),
            "{question}"
        );
    }
    assert_eq!(contents(&engine, "天気").await, Vec::<String>::new());
}

#[tokio::test]
async fn a_question_is_never_read_as_a_query_language() {
    let (store, engine) = in_memory();
    let documents =
        ["mini-jack plug for C++ kits", "Value {0} failed: {1}", "the of and", "plain C for everyone"];
    for document in documents {
        store.add(&session(1), document);
    }
    for (question, document) in
        [("C++", 0), ("mini-jack plug\"\"", 0), ("Value {0} failed: {1}", 1), ("c", 3)]
    {
        assert_eq!(
            contents(&engine, question).await.first().map(String::as_str),
            Some(documents[document]),
            "{question}"
        );
    }
    let many = "a ".repeat(100_000);
    for question in
        ["<<<", "-foo", "AND", "(", "\"", "*", "title:*", "$next", "''", "  ", "", "the of and", "\0", &many]
    {
        assert_eq!(contents(&engine, question).await, Vec::<String>::new(), "{question:.20}");
    }
    assert_eq!(contents(&engine, "note:https://e.example/x").await, Vec::<String>::new());
    let in_letters = |n: u32| n.to_string().bytes().map(|digit| char::from(digit + 60)).collect::<String>();
    let distinct: String = (0..100_000).map(|n| in_letters(n) + "x ").collect();
    assert_eq!(contents(&engine, &format!("plug {distinct}")).await, [documents[0]]);
}

#[tokio::test]
async fn blank_documents_are_never_found() {
    let (store, engine) = in_memory();
    store.add(&session(1), "");
    store.add(&session(1), " \n\n\u{feff}");
    assert_eq!(contents(&engine, "anything").await, Vec::<String>::new());
}

#[tokio::test]
async fn limit_and_threshold_hold() {
    let (store, engine) = in_memory();
    let mut ids: Vec<DocumentId> =
        (0..MAX_HITS + 60).map(|n| store.add(&session(1), &format!("apple {n:b}"))).collect();
    ids.sort();
    let limited = KnowledgeQuery { limit: 3, ..ask("apple") };
    let hits = engine.search(limited).await.unwrap();
    assert_eq!(
        hits.iter().map(|hit| &hit.document).collect::<Vec<_>>(),
        ids[..3].iter().collect::<Vec<_>>(),
        "ties go by id"
    );
    let all = KnowledgeQuery { limit: usize::MAX, ..ask("apple") };
    assert_eq!(engine.search(all).await.unwrap().len(), MAX_HITS);
    let none = KnowledgeQuery { limit: 0, ..ask("apple") };
    assert_eq!(engine.search(none).await.unwrap(), []);
    let half = KnowledgeQuery { threshold: 0.3, ..ask("apple zebra yak xylophone wolf") };
    assert_eq!(engine.search(half).await.unwrap(), [], "one of five words is not enough");
    let most = KnowledgeQuery { threshold: 0.5, ..ask("apple 1010") };
    assert_eq!(engine.search(most).await.unwrap()[0].content, "apple 1010");
}

#[tokio::test]
async fn one_long_document_does_not_hide_the_others() {
    let (store, engine) = in_memory();
    store.add(&session(1), &(0..400).map(|n| format!("# Part {n}\napple apple\n\n")).collect::<String>());
    let other =
        store.add(&session(1), "once upon a time somebody ate an apple under a tree on a hill by the sea");
    let hits = engine.search(ask("apple")).await.unwrap();
    assert_eq!(hits.len(), 2);
    assert_eq!(hits[1].document, other);
}

#[tokio::test]
async fn an_index_is_kept_and_caught_up_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(FakeStore::default());
    store.add(&session(1), "alpha one");
    assert_eq!(contents(&on_disk(dir.path(), &store), "alpha").await.len(), 1);
    store.add(&session(1), "alpha two");
    store.pages.store(0, Ordering::Relaxed);
    let engine = on_disk(dir.path(), &store);
    assert_eq!(contents(&engine, "alpha").await.len(), 2);
    assert_eq!(store.pages.load(Ordering::Relaxed), 3, "one look at the mark, one page, one empty page");
    assert_eq!(contents(&engine, "alpha").await.len(), 2);
    assert_eq!(store.pages.load(Ordering::Relaxed), 3, "nothing new is not read again");
}

/// Breaks catching up off after some pages and returns how many of the documents a new engine need not read again.
async fn kept_after_a_break(contents: &[String], pages: usize) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(FakeStore::default());
    for content in contents {
        store.add(&session(1), content);
    }
    *store.fails_after.lock().unwrap() = Some(pages);
    on_disk(dir.path(), &store).search(ask("alpha")).await.unwrap_err();
    *store.fails_after.lock().unwrap() = None;
    let mark = Catalog::open(&Place::Folder(dir.path().to_owned())).unwrap().mark().cloned();
    let engine = on_disk(dir.path(), &store);
    let all = KnowledgeQuery { limit: MAX_HITS, ..ask("alpha") };
    assert_eq!(engine.search(all).await.unwrap().len(), contents.len().min(MAX_HITS));
    let changes = store.changes.lock().unwrap();
    changes.iter().filter(|change| mark.as_ref().is_some_and(|mark| change.gseq <= mark.gseq)).count()
}

#[tokio::test]
async fn what_was_read_in_before_a_break_is_kept_by_bytes() {
    let large = COMMIT_BYTES / 4;
    let sized = |bytes: usize| -> Vec<String> {
        let text = |n: usize| format!("alpha {n} ");
        (0..PAGE_CHANGES).map(|n| text(n) + &"-".repeat(bytes - text(n).len())).collect()
    };
    assert_eq!(kept_after_a_break(&sized(large), 1).await, 8, "two batches of four");
    assert_eq!(kept_after_a_break(&sized(large - 1), 1).await, 5, "one byte less is one document more");
    assert_eq!(kept_after_a_break(&sized(100), 1).await, 0, "too little for a commit of its own");
}

#[tokio::test]
async fn what_was_read_in_before_a_break_is_kept_by_changes() {
    let small: Vec<String> = (0..COMMIT_CHANGES + PAGE_CHANGES).map(|n| format!("alpha {n}")).collect();
    let pages = COMMIT_CHANGES / PAGE_CHANGES;
    assert_eq!(kept_after_a_break(&small, pages).await, COMMIT_CHANGES);
    assert_eq!(kept_after_a_break(&small, pages - 1).await, 0);
}

#[tokio::test]
async fn an_index_ahead_of_the_store_or_of_another_store_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let old = Arc::new(FakeStore::default());
    for n in 0..3 {
        old.add(&session(1), &format!("alpha {n}"));
    }
    assert_eq!(contents(&on_disk(dir.path(), &old), "alpha").await.len(), 3);
    let restored = Arc::new(FakeStore::default());
    restored.add(&session(1), "alpha restored");
    assert_eq!(contents(&on_disk(dir.path(), &restored), "alpha").await, ["alpha restored"]);
    let other = Arc::new(FakeStore::default());
    other.add(&session(1), "alpha other");
    assert_eq!(contents(&on_disk(dir.path(), &other), "alpha").await, ["alpha other"]);
}

#[tokio::test]
async fn a_damaged_index_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(FakeStore::default());
    store.add(&session(1), "alpha");
    assert_eq!(contents(&on_disk(dir.path(), &store), "alpha").await, ["alpha"]);
    let files: Vec<_> =
        fs::read_dir(dir.path().join("v2")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(files.len() > 3, "{files:?}");
    for file in files {
        for damage in ["cut", "overwritten", "gone", "a lock of a killed process"] {
            let path = dir.path().join("v2").join(&file);
            let Ok(bytes) = fs::read(&path) else { continue };
            match damage {
                "cut" => fs::write(&path, &bytes[..bytes.len() / 2]).unwrap(),
                "overwritten" => {
                    fs::write(&path, bytes.iter().map(|byte| byte ^ 0x5a).collect::<Vec<_>>()).unwrap()
                }
                "gone" => fs::remove_file(&path).unwrap(),
                _ => fs::write(dir.path().join("v2/.tantivy-writer.lock"), "").unwrap(),
            }
            store.add(&session(1), "beta");
            let engine = on_disk(dir.path(), &store);
            assert_eq!(contents(&engine, "alpha").await, ["alpha"], "{file:?} {damage}");
            assert_eq!(contents(&engine, "beta").await, ["beta"], "{file:?} {damage}");
        }
    }
}

#[tokio::test]
async fn a_folder_that_can_not_be_used_is_an_error_and_not_fatal() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(FakeStore::default());
    store.add(&session(1), "alpha");
    let path = dir.path().join("index");
    fs::write(&path, "a file where the folder should be").unwrap();
    let engine = on_disk(&path, &store);
    let error = engine.search(ask("alpha")).await.unwrap_err();
    assert!(error.to_string().starts_with("failed to update the index: "), "{error}");
    assert_eq!(engine.check().await, Err(error));
    fs::remove_file(&path).unwrap();
    assert_eq!(contents(&engine, "alpha").await, ["alpha"]);
    assert_eq!(engine.check().await, Ok(()));
}

#[tokio::test]
async fn a_store_that_fails_is_told_in_one_line_and_loses_nothing() {
    let (store, engine) = in_memory();
    store.add(&session(1), "alpha");
    assert_eq!(contents(&engine, "alpha").await, ["alpha"]);
    *store.fails.lock().unwrap() = true;
    let error = KnowledgeError::Store(StoreError::Failed("no disk".into()));
    assert_eq!(engine.search(ask("alpha")).await, Err(error.clone()));
    assert_eq!(engine.check().await, Err(error));
    *store.fails.lock().unwrap() = false;
    // Before anybody searches again.
    assert_eq!(engine.check().await, Ok(()));
    assert_eq!(contents(&engine, "alpha").await, ["alpha"]);
}

#[tokio::test]
async fn searches_while_documents_are_added_find_all_that_was_stored_before() {
    let (store, engine) = in_memory();
    let engine = Arc::new(engine);
    let mut searches = JoinSet::new();
    for n in 0..20 {
        for m in 0..5 {
            store.add(&session(1), &format!("alpha {n} {m}"));
        }
        let engine = Arc::clone(&engine);
        searches.spawn(async move {
            let hits = engine.search(KnowledgeQuery { limit: MAX_HITS, ..ask("alpha") }).await.unwrap();
            assert!(hits.len() >= (n + 1) * 5, "{} of {}", hits.len(), (n + 1) * 5);
        });
        tokio::task::yield_now().await;
    }
    while let Some(done) = searches.join_next().await {
        done.unwrap();
    }
}

#[tokio::test]
async fn a_search_that_is_given_up_does_not_stop_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(FakeStore::default());
    for n in 0..200 {
        store.add(&session(1), &format!("alpha {n}"));
    }
    let engine = on_disk(dir.path(), &store);
    let given_up = tokio::time::timeout(std::time::Duration::ZERO, engine.search(ask("alpha"))).await;
    assert!(given_up.is_err());
    assert_eq!(contents(&engine, "alpha 7").await.first().map(String::as_str), Some("alpha 7"));
}
