//! Stores of every earlier schema come forward whole, or stay as they are.

use std::path::{Path, PathBuf};

use rusqlite::types::Value;
use rusqlite::{Connection, params};
use tempfile::TempDir;
use tns_protocol::SessionId;
use tns_server_core::store::{
    Collection, DocumentStore as _, EventQuery, LOCAL_PRINCIPAL, SearchQuery, SessionKey, Store as _,
    StoreError,
};

use super::super::error::failed;
use super::{KNOWN, MIGRATIONS, migrate, migrate_with};

/// An event of every kind as the first schema's program wrote it. Never edited: this is what lies on disks.
const EVENTS: &[(&str, &str)] = &[
    (
        "user_message",
        r#"{"user_message":{"id":"m-1","agent":"helper-00000000","parts":[{"text":"wo ist die Größe?"}],"client_message_id":"c-1","context":{"origin":"event","description":"a mail","source_id":null,"metadata":{"k":1}},"queued":true}}"#,
    ),
    ("queue_started", r#"{"queue_started":"m-1"}"#),
    (
        "assistant_message",
        r#"{"assistant_message":{"id":"m-2","agent":"helper-00000000","parts":[{"text":"Ich suche."},{"tool_call":{"id":"t-1","name":"shell","args":{"command":"ls"}}}],"model":"m","native":{"provider":"anthropic","blocks":[ {"a":1} ]},"notes":[{"text":"the team"}],"status":"complete"}}"#,
    ),
    (
        "approval_requested",
        r#"{"approval_requested":{"call":"t-1","agent":"helper-00000000","tool":"shell","args":{"command":"ls"},"class":"EXEC","reasons":["r"],"summary":"ls","diff":null}}"#,
    ),
    ("approval_resolved", r#"{"approval_resolved":{"call":"t-1","decision":"approved","by":"local"}}"#),
    (
        "audited",
        r#"{"audited":{"call":"t-1","agent":"helper-00000000","tool":"shell","class":"EXEC","reasons":[],"decision":"approved","by":"local","at":"2026-01-02T03:04:05.006Z","summary":"ls","args_digest":""}}"#,
    ),
    (
        "tool_started",
        r#"{"tool_started":{"call":"t-1","agent":"helper-00000000","tool":"shell","args":{"command":"ls"},"class":"EXEC"}}"#,
    ),
    (
        "tool_finished",
        r#"{"tool_finished":{"agent":"helper-00000000","result":{"call":"t-1","name":"shell","output":"a\nb","is_error":false},"ran":true,"duration_ms":3,"truncated":false}}"#,
    ),
    ("team_updated", r#"{"team_updated":{"agents":[],"tools":["shell"]}}"#),
    ("autonomy_changed", r#"{"autonomy_changed":"MANUAL"}"#),
    ("kb_added", r#"{"kb_added":"doc-1"}"#),
    ("kb_removed", r#"{"kb_removed":"doc-2"}"#),
    ("done", r#"{"done":{"usage":{"tokens":3,"cost":0.5},"stop":"end"}}"#),
    ("interrupted", r#"{"interrupted":{"usage":{"tokens":0,"cost":0.0},"reason":"cancelled"}}"#),
    ("turn_failed", r#"{"turn_failed":{"code":"SERVER_RESTARTED","message":"it was restarted"}}"#),
];

/// A store that the program of an earlier schema left.
struct Old {
    folder: TempDir,
    steps: usize,
}

impl Old {
    fn new(steps: usize) -> Self {
        let old = Self { folder: TempDir::new().unwrap(), steps };
        let connection = old.connect();
        connection.pragma_update(None, "journal_mode", "WAL").unwrap();
        for step in &MIGRATIONS[..steps] {
            connection.execute_batch(step.sql).unwrap();
        }
        connection.execute_batch(&format!("PRAGMA user_version = {steps}")).unwrap();
        fill(&connection);
        if steps >= 2 {
            connection
                .execute("INSERT INTO usage VALUES (20000, 1, 'p', 'm', 1, 2, 3, 4, 5, 0)", [])
                .unwrap();
        }
        if steps >= 3 {
            // An index that is filled from the third event on, with the terms of its time.
            connection
                .execute_batch(
                    "INSERT INTO search (rowid, terms) VALUES (3, 'ich suche'), (-1, 'uber grossen');
                     UPDATE meta SET value = '3' WHERE key = 'search_from';",
                )
                .unwrap();
        }
        old
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("tns.db")
    }

    fn connect(&self) -> Connection {
        Connection::open(self.file()).unwrap()
    }
}

/// Every earlier schema that has rows.
fn olds() -> impl Iterator<Item = Old> {
    (1..KNOWN).map(Old::new)
}

fn fill(connection: &Connection) {
    let session =
        "INSERT INTO sessions (pk, principal, session_id, title, workspace, epoch, created_at, updated_at,
        head_seq) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 1000, 2000, ?7)";
    let state =
        "INSERT INTO session_states (session_pk, has_open_turns, version, body) VALUES (?1, ?2, 1, ?3)";
    let open =
        r#"{"autonomy":"MANUAL","open_turns":[{"id":"m-1","agent":"helper-00000000","waiting":true}]}"#;
    let event = "INSERT INTO events (gseq, session_pk, seq, at, turn_id, kind, client_message_id, decided_at,
        decision, body_version, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 1, ?10)";
    connection.execute("INSERT INTO meta (key, value) VALUES ('epoch', 'the-epoch')", []).unwrap();
    let count = EVENTS.len() as i64;
    // The second session was deleted by hand long ago: its key must stay unused.
    for (pk, principal, title) in [(1, LOCAL_PRINCIPAL, Some("Über Größen")), (3, "you", None)] {
        let workspace = b"/srv/\xff".as_slice();
        connection
            .execute(session, params![pk, principal, "s", title, workspace, format!("e-{pk}"), count])
            .unwrap();
        connection.execute(state, params![pk, pk == 1, if pk == 1 { open } else { "{}" }]).unwrap();
        for (number, (kind, body)) in EVENTS.iter().enumerate() {
            let seq = number as i64 + 1;
            let client = (*kind == "user_message").then_some("c-1");
            let decided = (*kind == "audited").then_some((1_767_323_045_006_000_i64, "approved"));
            connection
                .execute(
                    event,
                    params![
                        pk * 1000 + seq,
                        pk,
                        seq,
                        1500 + seq,
                        "m-1",
                        kind,
                        client,
                        decided.map(|(at, _)| at),
                        decided.map(|(_, decision)| decision),
                        body
                    ],
                )
                .unwrap();
        }
    }
    let document =
        "INSERT INTO documents (gseq, collection, document_id, content_length, preview, metadata, content)
        VALUES (?1, 'session:1', ?2, ?3, ?4, ?5, ?4)";
    connection.execute(document, params![10, "doc-1", 5, "words", r#"{"title":"t"}"#]).unwrap();
    connection.execute(document, params![11, "doc-2", None::<i64>, None::<&str>, None::<&str>]).unwrap();
}

/// All rows of the tables that a schema has, the index's own apart.
fn rows(connection: &Connection) -> Vec<(String, Vec<Vec<Value>>)> {
    let names: Vec<String> = connection
        .prepare(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'search%' ORDER BY name",
        )
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let read = |name: &String| {
        let mut statement = connection.prepare(&format!("SELECT * FROM {name} ORDER BY 1, 2")).unwrap();
        let columns = statement.column_count();
        let rows = statement.query_map([], |row| (0..columns).map(|at| row.get(at)).collect()).unwrap();
        rows.map(Result::unwrap).collect()
    };
    names.iter().map(|name| (name.clone(), read(name))).collect()
}

fn version(connection: &Connection) -> i64 {
    connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

/// Rows of the older tables that are there afterwards, the facts about the store apart, which gain some.
fn kept(connection: &Connection, before: &[(String, Vec<Vec<Value>>)]) {
    let after = rows(connection);
    for (name, rows) in before {
        let now = &after.iter().find(|(other, _)| other == name).unwrap().1;
        if name == "meta" {
            // How far the index is belongs to the index.
            let is_of_index =
                |row: &&Vec<Value>| matches!(&row[0], Value::Text(key) if key.starts_with("search_"));
            assert!(rows.iter().filter(|row| !is_of_index(row)).all(|row| now.contains(row)), "{now:?}");
        } else {
            assert_eq!(now, rows, "{name}");
        }
    }
}

async fn reads_whole(path: &Path) {
    let store = crate::open(path).unwrap();
    assert_eq!(store.epoch(), "the-epoch");
    let id = SessionId::parse("s").unwrap();
    for (principal, key) in [(LOCAL_PRINCIPAL, 1), ("you", 3)] {
        let session = store.find_session(principal, &id).await.unwrap().unwrap();
        assert_eq!((session.key, session.head_seq), (SessionKey(key), EVENTS.len() as u64));
        let events = store.events(session.key, EventQuery::default()).await.unwrap().events;
        let kinds: Vec<_> = events.iter().map(|row| row.event.kind().as_str()).collect();
        assert_eq!(kinds, EVENTS.iter().map(|(kind, _)| *kind).collect::<Vec<_>>());
    }
    assert_eq!(store.sessions_with_open_turns().await.unwrap().len(), 1);
    let documents = store.documents(&Collection::Session(SessionKey(1))).await.unwrap();
    assert_eq!(documents.len(), 1);
    let search = async |text: &str| {
        let query =
            SearchQuery { principal: LOCAL_PRINCIPAL.into(), text: text.into(), limit: 9, after: None };
        store.search(query).await.unwrap()
    };
    while !search("x").await.complete {
        tokio::task::yield_now().await;
    }
    // The title has "Größen", which goes on where "Größe" ends.
    for (text, expected) in
        [("grosse", vec![None, Some(1)]), ("grossen", vec![None]), ("suche", vec![Some(3)])]
    {
        let hits = search(text).await.hits;
        let mut seqs: Vec<_> = hits.iter().map(|hit| hit.seq).collect();
        seqs.sort();
        assert_eq!(seqs, expected, "{text}");
    }
}

#[tokio::test]
async fn a_store_of_every_earlier_schema_comes_forward_whole() {
    for old in olds() {
        let before = rows(&old.connect());
        assert!(before.len() >= 5, "{before:?}");
        reads_whole(&old.file()).await;
        let connection = old.connect();
        assert_eq!(version(&connection), KNOWN as i64);
        kept(&connection, &before);
        let whole: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(whole, "ok", "from schema {}", old.steps);
    }
}

#[tokio::test]
async fn a_migration_that_fails_at_any_statement_changes_nothing() {
    for old in olds() {
        let before = rows(&old.connect());
        let statements = statements(&Old::new(old.steps));
        assert!(statements > 3);
        for failing in 0..statements {
            let mut left = failing;
            let refused = migrate_with(&mut old.connect(), &mut || match left {
                0 => Err(failed("the storage failed").into()),
                _ => {
                    left -= 1;
                    Ok(())
                }
            });
            assert!(refused.is_err(), "statement {failing}");
            let connection = old.connect();
            assert_eq!((version(&connection), rows(&connection)), (old.steps as i64, before.clone()));
        }
        reads_whole(&old.file()).await;
        kept(&old.connect(), &before);
    }
}

/// What a killed process leaves is what its files hold at that moment.
#[tokio::test]
async fn a_migration_that_is_killed_at_any_statement_is_done_by_the_next_start() {
    for steps in 1..KNOWN {
        let statements = statements(&Old::new(steps));
        for killed in 0..statements {
            let (old, left) = (Old::new(steps), TempDir::new().unwrap());
            let before = rows(&old.connect());
            let mut number = 0;
            // A small cache, so that the transaction is partly in the files before it is committed.
            let mut connection = old.connect();
            connection.pragma_update(None, "cache_size", 1).unwrap();
            migrate_with(&mut connection, &mut || {
                if number == killed {
                    for name in ["tns.db", "tns.db-wal"] {
                        let from = old.folder.path().join(name);
                        if from.exists() {
                            std::fs::copy(from, left.path().join(name)).unwrap();
                        }
                    }
                }
                number += 1;
                Ok(())
            })
            .unwrap();
            let path = left.path().join("tns.db");
            let connection = Connection::open(&path).unwrap();
            assert_eq!((version(&connection), rows(&connection)), (steps as i64, before.clone()));
            drop(connection);
            reads_whole(&path).await;
            kept(&Connection::open(&path).unwrap(), &before);
        }
    }
}

/// Counts the statements that bring a store forward.
fn statements(old: &Old) -> usize {
    let mut count = 0;
    migrate_with(&mut old.connect(), &mut || {
        count += 1;
        Ok(())
    })
    .unwrap();
    count
}

#[test]
fn a_store_of_this_schema_is_left_alone() {
    let old = Old::new(1);
    migrate(&mut old.connect()).unwrap();
    let before = rows(&old.connect());
    let mut asked = 0;
    migrate_with(&mut old.connect(), &mut || {
        asked += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!((asked, rows(&old.connect())), (0, before));
}

#[test]
fn a_store_that_another_process_holds_is_not_brought_forward() {
    let old = Old::new(1);
    let before = rows(&old.connect());
    let stranger = old.connect();
    stranger.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut connection = old.connect();
    connection.busy_timeout(std::time::Duration::from_millis(20)).unwrap();
    assert_eq!(migrate(&mut connection).map_err(StoreError::from), Err(StoreError::Busy));
    stranger.execute_batch("ROLLBACK").unwrap();
    assert_eq!((version(&connection), rows(&connection)), (1, before));
}
