//! Documents: written with the event that announces them, listed, counted, followed.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};
use tns_protocol::DocumentId;
use tns_server_core::event::DurableEvent;
use tns_server_core::store::{
    Append, Appended, Collection, Condition, Document, DocumentChange, DocumentInfo, NewDocument, NewEvent,
    SessionKey, SessionState,
};

use super::{AnyStore, find, kb_added, line, make, only_if, plain, stored, whole_log};

fn metadata(title: &str) -> Map<String, Value> {
    Map::from_iter([("title".into(), json!(title)), ("depth".into(), json!([1, {"a": null}]))])
}

fn document(collection: &Collection, content: &str) -> NewDocument {
    NewDocument {
        collection: collection.clone(),
        id: collection.document_id(content),
        content: content.into(),
        metadata: metadata(content),
    }
}

fn adding(session: SessionKey, collection: &Collection, content: &str) -> Append {
    let new = document(collection, content);
    only_if(session, vec![kb_added(&new.id)], Condition::NewDocument(new))
}

fn removing(session: SessionKey, collection: &Collection, id: &DocumentId) -> Append {
    let event = NewEvent { turn: None, event: DurableEvent::KbRemoved(id.clone()) };
    only_if(session, vec![event], Condition::RemoveDocument(collection.clone(), id.clone()))
}

async fn previews(store: &impl AnyStore, collection: &Collection) -> Vec<String> {
    store.documents(collection).await.unwrap().into_iter().map(|info| info.preview).collect()
}

/// Both are there, and the head of the changes is its place.
pub async fn a_document_is_stored_with_its_event(store: &impl AnyStore) {
    assert_eq!(store.document_head().await, Ok(0));
    let session = make(store, "s").await.key;
    let collection = Collection::Session(session);
    let new = document(&collection, "words");
    stored(store, adding(session, &collection, "words")).await;

    assert_eq!(whole_log(store, session).await[0].event, kb_added(&new.id).event);
    let info = DocumentInfo {
        id: new.id.clone(),
        preview: "words".into(),
        content_length: 5,
        metadata: metadata("words"),
    };
    assert_eq!(store.documents(&collection).await, Ok(vec![info]));
    let head = store.document_head().await.unwrap();
    let change = DocumentChange {
        gseq: head,
        collection: collection.as_text(),
        id: new.id.clone(),
        document: Some(Document { id: new.id, content: new.content, metadata: new.metadata }),
    };
    assert!(head > 0);
    assert_eq!(store.document_changes(0, 10).await, Ok(vec![change]));
}

/// Neither the log, nor the state, nor the head of the changes moves.
pub async fn a_known_document_changes_nothing(store: &impl AnyStore) {
    let session = make(store, "s").await.key;
    let collection = Collection::User("me".into());
    stored(store, adding(session, &collection, "words")).await;
    let before = (find(store, "s").await, store.document_head().await, store.documents(&collection).await);

    let state =
        SessionState { autonomy: tns_protocol::approval::AutonomyLevel::Manual, ..Default::default() };
    let again = Append { state: Some(state), ..adding(session, &collection, "words") };
    assert_eq!(store.append(again).await, Ok(Appended::Unchanged));
    let after = (find(store, "s").await, store.document_head().await, store.documents(&collection).await);
    assert_eq!(after, before);
    assert_eq!(whole_log(store, session).await.len(), 1);
}

/// Not before it came, not a second time, and not from another collection.
pub async fn an_unknown_document_is_not_removed(store: &impl AnyStore) {
    let session = make(store, "s").await.key;
    let (mine, yours) = (Collection::User("me".into()), Collection::User("you".into()));
    let id = mine.document_id("words");
    assert_eq!(store.append(removing(session, &mine, &id)).await, Ok(Appended::Unchanged));
    stored(store, adding(session, &mine, "words")).await;
    assert_eq!(store.append(removing(session, &yours, &id)).await, Ok(Appended::Unchanged));
    stored(store, removing(session, &mine, &id)).await;
    let head = store.document_head().await;
    assert_eq!(store.append(removing(session, &mine, &id)).await, Ok(Appended::Unchanged));
    assert_eq!(store.document_head().await, head);
    assert_eq!(store.documents(&mine).await, Ok(vec![]));
    assert_eq!(whole_log(store, session).await.len(), 2);
}

/// A preview has 100 characters, however many bytes they have.
pub async fn a_list_is_oldest_first_and_shows_whole_characters(store: &impl AnyStore) {
    let session = make(store, "s").await.key;
    let collection = Collection::Session(session);
    let contents = ["職é🦀".repeat(40), "職".repeat(100), "ä".repeat(101), "b".into()];
    for content in &contents {
        stored(store, adding(session, &collection, content)).await;
    }
    let expected: Vec<_> = contents
        .iter()
        .map(|content| DocumentInfo {
            id: collection.document_id(content),
            preview: content.chars().take(100).collect(),
            content_length: content.chars().count() as u64,
            metadata: metadata(content),
        })
        .collect();
    assert_eq!(expected[0].content_length, 120);
    assert_eq!(store.documents(&collection).await, Ok(expected));
}

/// It was gone meanwhile, so it is no longer the oldest.
pub async fn a_document_that_comes_back_is_the_newest(store: &impl AnyStore) {
    let session = make(store, "s").await.key;
    let collection = Collection::Session(session);
    for content in ["first", "second"] {
        stored(store, adding(session, &collection, content)).await;
    }
    stored(store, removing(session, &collection, &collection.document_id("first"))).await;
    assert_eq!(previews(store, &collection).await, ["second"]);
    stored(store, adding(session, &collection, "first")).await;
    assert_eq!(previews(store, &collection).await, ["second", "first"]);
}

/// Whoever follows the changes learns of removals, in any size of steps.
pub async fn changes_hold_the_last_one_of_each_document_in_order(store: &impl AnyStore) {
    let session = make(store, "s").await.key;
    let (one, two) = (Collection::Session(session), Collection::User("me".into()));
    for (collection, content) in [(&one, "a"), (&two, "b"), (&one, "c"), (&two, "a")] {
        stored(store, adding(session, collection, content)).await;
    }
    stored(store, removing(session, &one, &one.document_id("a"))).await;
    stored(store, removing(session, &two, &two.document_id("b"))).await;
    stored(store, adding(session, &two, "b")).await;

    let changes = store.document_changes(0, 100).await.unwrap();
    let told: Vec<_> = changes
        .iter()
        .map(|change| (change.collection.clone(), change.document.as_ref().map(|d| d.content.as_str())))
        .collect();
    let (first, second) = (one.as_text(), two.as_text());
    let expected =
        vec![(first.clone(), Some("c")), (second.clone(), Some("a")), (first, None), (second, Some("b"))];
    assert_eq!(told, expected);
    assert_eq!(changes[2].id, one.document_id("a"));
    assert!(changes.windows(2).all(|pair| pair[0].gseq < pair[1].gseq));
    assert_eq!(store.document_head().await, Ok(changes[3].gseq));

    let mut steps = Vec::new();
    let mut after = 0;
    while let Some(change) = store.document_changes(after, 1).await.unwrap().pop() {
        after = change.gseq;
        steps.push(change);
    }
    assert_eq!(steps, changes);
    assert_eq!(store.document_changes(after, 100).await, Ok(vec![]));
}

/// A change lies between the events that were stored before and after it.
pub async fn documents_and_events_share_one_order(store: &impl AnyStore) {
    let session = make(store, "s").await.key;
    let collection = Collection::Session(session);
    let before = stored(store, plain(session, vec![line("before")])).await[0].gseq;
    let with = stored(store, adding(session, &collection, "words")).await[0].gseq;
    let change = store.document_head().await.unwrap();
    let after = stored(store, plain(session, vec![line("after")])).await[0].gseq;
    assert!(before < change && change < after && with < after, "{before} {change} {with} {after}");
    assert_eq!(store.document_head().await, Ok(change));
}

/// Also one whose documents are all removed.
pub async fn counts_leave_out_empty_collections(store: &impl AnyStore) {
    let session = make(store, "s").await.key;
    let collections = ["full", "emptied", "empty", "other"].map(|name| Collection::User(name.into()));
    let [full, emptied, empty, other] = &collections;
    for (collection, content) in [(full, "a"), (full, "b"), (emptied, "a"), (other, "a")] {
        stored(store, adding(session, collection, content)).await;
    }
    stored(store, removing(session, emptied, &emptied.document_id("a"))).await;
    let asked = [full.clone(), emptied.clone(), empty.clone()];
    assert_eq!(store.document_counts(&asked).await, Ok(BTreeMap::from([(full.as_text(), 2)])));
    assert_eq!(store.document_counts(&[]).await, Ok(BTreeMap::new()));
}

/// The same words in another collection are another document.
pub async fn collections_are_apart(store: &impl AnyStore) {
    let session = make(store, "s").await.key;
    let folder = Path::new("/work");
    let collections = [
        Collection::Session(session),
        Collection::project("me", folder),
        Collection::project("you", folder),
        Collection::User("me".into()),
    ];
    for collection in &collections {
        stored(store, adding(session, collection, "words")).await;
    }
    stored(store, removing(session, &collections[1], &collections[1].document_id("words"))).await;
    for (collection, expected) in collections.iter().zip([1, 0, 1, 1]) {
        assert_eq!(store.documents(collection).await.unwrap().len(), expected, "{collection:?}");
    }
}
