//! The store beside bare SQLite: appends, pages of a log, and lists and full text over a large corpus.
//! The bare side has the same file settings and one table with the same index, and nothing else.

mod corpus;

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use rusqlite::{Connection, params};
use tempfile::TempDir;
use tns_protocol::SessionId;
use tns_server_core::store::{
    Append, EventQuery, LOCAL_PRINCIPAL, MAX_PAGE_EVENTS, NewSession, SearchQuery, SessionCursor, SessionKey,
    SessionState, Store,
};
use tns_server_store::SqliteStore;

use crate::report::{Must, Report, median};
use corpus::Corpus;

/// How many times bare SQLite's time an append or a page may take.
const BESIDE_SQLITE: f64 = 2.0;
/// How long a list or a search may take at the 99th percentile, in milliseconds.
const MAX_MILLIS: f64 = 100.0;
/// Appends of one round, in one session.
const ALONE: usize = 50;
/// Sessions that append at once, and appends of each in one round.
const TOGETHER: usize = 100;
const EACH: usize = 5;
/// Events of the log that is read in pages.
const LOG: usize = 20_000;
/// Events of one append when a log or the corpus is made.
const BATCH: usize = 200;
/// Sessions of the corpus that are made at once.
const AT_ONCE: usize = 8;
/// Lists, and searches of each kind.
const QUERIES: usize = 200;

/// Measures everything.
pub(crate) async fn measure(
    sessions: usize,
    events: usize,
    rounds: usize,
    report: &mut Report,
) -> Result<()> {
    ensure!(sessions > 0 && events >= sessions, "a corpus has sessions, and events in each");
    let folder = TempDir::new()?;
    {
        let store = tns_server_store::open(&folder.path().join("tns.db"))?;
        let bare = bare(&folder.path().join("bare.db"))?;
        appends(&store, &bare, rounds, report).await?;
        pages(&store, &bare, rounds, report).await?;
    }
    large(folder.path(), sessions, events, report).await
}

async fn make(store: &SqliteStore, id: &str, title: Option<String>) -> Result<SessionKey> {
    let new = NewSession {
        principal: LOCAL_PRINCIPAL.into(),
        id: SessionId::parse(id)?,
        title,
        workspace: "/work".into(),
        state: SessionState::default(),
    };
    Ok(store.create_session(new).await?.0.key)
}

/// Opens bare SQLite with the store's settings for durability.
fn bare(path: &Path) -> Result<Connection> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 250;
         CREATE TABLE events (gseq INTEGER PRIMARY KEY, session INTEGER NOT NULL, seq INTEGER NOT NULL,
                              at INTEGER NOT NULL, body TEXT NOT NULL) STRICT;
         CREATE UNIQUE INDEX events_by_seq ON events (session, seq);",
    )?;
    Ok(connection)
}

fn bare_insert(connection: &Connection, session: usize, seq: usize, body: &str) -> Result<()> {
    let sql = "INSERT INTO events (session, seq, at, body) VALUES (?1, ?2, 0, ?3)";
    connection.prepare_cached(sql)?.execute(params![session as i64, seq as i64, body])?;
    Ok(())
}

async fn appends(store: &SqliteStore, bare: &Connection, rounds: usize, report: &mut Report) -> Result<()> {
    let mut corpus = Corpus::new();
    let mut keys = Vec::with_capacity(TOGETHER);
    for number in 0..TOGETHER {
        keys.push(make(store, &format!("append-{number}"), None).await?);
    }
    let first = *keys.first().context("a session")?;
    let (mut alone, mut together) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
    for round in 0..=rounds {
        let events: Vec<_> = (0..ALONE.max(TOGETHER * EACH)).map(|_| corpus.reply()).collect();
        let bodies =
            events.iter().map(|new| serde_json::to_string(&new.event)).collect::<Result<Vec<_>, _>>()?;

        let began = Instant::now();
        for event in &events[..ALONE] {
            store.append(Append::new(first, vec![event.clone()])).await?;
        }
        let ours = began.elapsed().as_secs_f64();
        let began = Instant::now();
        for (number, body) in bodies[..ALONE].iter().enumerate() {
            bare_insert(bare, 0, round * ALONE + number, body)?;
        }
        let theirs = began.elapsed().as_secs_f64();
        let began = Instant::now();
        let each = keys.iter().zip(events.chunks(EACH)).map(async |(key, events)| -> Result<()> {
            for event in events {
                store.append(Append::new(*key, vec![event.clone()])).await?;
            }
            Ok(())
        });
        try_join_all(each).await?;
        let ours_together = began.elapsed().as_secs_f64();
        let began = Instant::now();
        for (number, bodies) in bodies[..TOGETHER * EACH].chunks(TOGETHER).enumerate() {
            let transaction = bare.unchecked_transaction()?;
            for (session, body) in bodies.iter().enumerate() {
                bare_insert(&transaction, session + 1, round * EACH + number, body)?;
            }
            transaction.commit()?;
        }
        // The first round warms up.
        if round > 0 {
            alone.0.push(ours);
            alone.1.push(theirs);
            together.0.push(ours_together);
            together.1.push(began.elapsed().as_secs_f64());
        }
    }
    for (what, count, (ours, theirs)) in [
        ("appends/s, one session", ALONE, alone),
        ("appends/s, 100 sessions at once", TOGETHER * EACH, together),
    ] {
        let (ours, theirs) = (median(&ours), median(&theirs));
        let rate = |seconds: f64| format!("{:.0}", count as f64 / seconds);
        let beside = format!("bare SQLite {}", rate(theirs));
        report.ratio(what, rate(ours), beside, ours / theirs, Some(Must::AtMost(BESIDE_SQLITE)));
    }
    Ok(())
}

async fn pages(store: &SqliteStore, bare: &Connection, rounds: usize, report: &mut Report) -> Result<()> {
    let mut corpus = Corpus::new();
    let key = make(store, "pages", None).await?;
    let mut bytes = 0;
    let transaction = bare.unchecked_transaction()?;
    for batch in 0..LOG / BATCH {
        let events: Vec<_> = (0..BATCH).map(|_| corpus.reply()).collect();
        for (number, event) in events.iter().enumerate() {
            let body = serde_json::to_string(&event.event)?;
            bytes += body.len();
            bare_insert(&transaction, TOGETHER + 1, batch * BATCH + number, &body)?;
        }
        store.append(Append::new(key, events)).await?;
    }
    transaction.commit()?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let began = Instant::now();
        let (mut after, mut read) = (0, 0);
        loop {
            let page = store.events(key, EventQuery { after, ..EventQuery::default() }).await?;
            read += page.events.len();
            after = page.events.last().map_or(after, |event| event.place.seq);
            if !page.more {
                break;
            }
        }
        let one = began.elapsed().as_secs_f64();
        let began = Instant::now();
        let two = bare_pages(bare)?;
        ensure!(read == LOG && two == LOG, "{read} and {two} events were read");
        if round > 0 {
            ours.push(one);
            theirs.push(began.elapsed().as_secs_f64());
        }
    }
    let (ours, theirs) = (median(&ours), median(&theirs));
    let rate = |seconds: f64| format!("{:.0}", bytes as f64 / seconds / 1e6);
    let beside = format!("bare SQLite with the same decoding {}", rate(theirs));
    let must = Some(Must::AtMost(BESIDE_SQLITE));
    report.ratio("pages of a log, MB/s", rate(ours), beside, ours / theirs, must);
    Ok(())
}

/// Reads the log in pages as long as the store's, and makes events of the bodies.
fn bare_pages(bare: &Connection) -> Result<usize> {
    let sql = "SELECT seq, gseq, at, body FROM events WHERE session = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3";
    let (mut after, mut read) = (-1, 0);
    loop {
        let mut statement = bare.prepare_cached(sql)?;
        let mut rows = statement.query(params![(TOGETHER + 1) as i64, after, MAX_PAGE_EVENTS as i64])?;
        let mut page = Vec::new();
        while let Some(row) = rows.next()? {
            after = row.get(0)?;
            let event: tns_server_core::event::DurableEvent =
                serde_json::from_str(row.get_ref(3)?.as_str()?)?;
            page.push(event);
        }
        if page.is_empty() {
            return Ok(read);
        }
        read += page.len();
    }
}

async fn large(folder: &Path, sessions: usize, events: usize, report: &mut Report) -> Result<()> {
    let path = folder.join("large.db");
    let store = tns_server_store::open(&path)?;
    let began = Instant::now();
    fill(&store, sessions, events).await?;
    let seconds = began.elapsed().as_secs_f64();
    report.figure(
        &format!("corpus of {sessions} sessions, {events} events"),
        format!("made in {seconds:.0} s"),
    );
    lists(&store, sessions, report).await?;
    searches(&store, report).await?;
    drop(store);
    let whole = std::fs::metadata(&path)?.len() as f64;
    let index: f64 =
        Connection::open(&path)?
            .query_row("SELECT total(length(block)) FROM search_data", [], |row| row.get(0))?;
    let figure = format!("{:.0} MB of {:.0} MB ({:.1} %)", index / 1e6, whole / 1e6, 100.0 * index / whole);
    report.figure("index in the file", figure);
    Ok(())
}

async fn fill(store: &SqliteStore, sessions: usize, events: usize) -> Result<()> {
    let mut corpus = Corpus::new();
    let of_session = events / sessions;
    let numbers: Vec<usize> = (0..sessions).collect();
    for numbers in numbers.chunks(AT_ONCE) {
        let mut made = Vec::with_capacity(numbers.len());
        for number in numbers {
            let title = corpus.title();
            let extra = if *number == 0 { events % sessions } else { 0 };
            made.push((*number, title, corpus.log(of_session + extra)));
        }
        let each = made.into_iter().map(async |(number, title, mut log)| -> Result<()> {
            let key = make(store, &format!("s-{number}"), Some(title)).await?;
            while !log.is_empty() {
                let rest = log.split_off(log.len().min(BATCH));
                store.append(Append::new(key, log)).await?;
                log = rest;
            }
            Ok(())
        });
        try_join_all(each).await?;
    }
    Ok(())
}

async fn lists(store: &SqliteStore, sessions: usize, report: &mut Report) -> Result<()> {
    let (mut cursor, mut millis): (Option<SessionCursor>, Vec<f64>) = (None, Vec::new());
    for _ in 0..QUERIES {
        let began = Instant::now();
        let page = store.list_sessions(LOCAL_PRINCIPAL, cursor, 50).await?;
        millis.push(began.elapsed().as_secs_f64() * 1e3);
        ensure!(page.sessions.len() == 50.min(sessions), "a page has {} sessions", page.sessions.len());
        cursor = page.next;
    }
    tell("list of 50 sessions, p99 ms", millis, report);
    Ok(())
}

async fn searches(store: &SqliteStore, report: &mut Report) -> Result<()> {
    let corpus = Corpus::new();
    let mut all = Vec::new();
    for (what, words) in [
        ("one common word", &[0][..]),
        ("one word", &[2_000]),
        ("one rare word", &[40_000]),
        ("two common words", &[1, 20]),
        ("a common and a rare word", &[3, 20_000]),
    ] {
        let mut millis = Vec::with_capacity(QUERIES);
        for number in 0..QUERIES {
            let mut text =
                words.iter().map(|rank| corpus.word(rank + number % 10)).collect::<Vec<_>>().join(" ");
            // Every other question ends in the beginning of a word.
            match number % 4 {
                0 | 2 => text.push(' '),
                1 => text.truncate(text.len() - 1),
                _ => {}
            }
            let query = SearchQuery { principal: LOCAL_PRINCIPAL.into(), text, limit: 20, after: None };
            let began = Instant::now();
            store.search(query).await?;
            millis.push(began.elapsed().as_secs_f64() * 1e3);
        }
        all.extend_from_slice(&millis);
        tell(&format!("search, {what}, p99 ms"), millis, report);
    }
    tell("search, all of these, p99 ms", all, report);
    Ok(())
}

fn tell(what: &str, mut millis: Vec<f64>, report: &mut Report) {
    millis.sort_by(f64::total_cmp);
    let p99 = millis.get((millis.len() * 99).div_ceil(100).saturating_sub(1)).copied().unwrap_or(f64::NAN);
    let figure = format!("{p99:.1} (median {:.1})", median(&millis));
    report.ratio(what, figure, format!("{MAX_MILLIS}"), p99 / MAX_MILLIS, Some(Must::AtMost(1.0)));
}
