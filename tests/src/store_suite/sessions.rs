//! Sessions: made once, found by their principal, listed by growth, with the state that holds now.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use tns_protocol::approval::AutonomyLevel;
use tns_protocol::{AgentId, ClientMessageId, MessageId, SessionId, Timestamp};
use tns_server_core::store::{
    Append, Appended, Condition, LOCAL_PRINCIPAL, NewSession, OpenTurn, SessionKey, SessionRecord,
    SessionState,
};

use super::{AnyStore, find, line, make, new_session, plain, stored, user, wait_past};

fn waiting_state() -> SessionState {
    let turn = OpenTurn {
        id: MessageId::parse("m-1").unwrap(),
        agent: AgentId::parse("helper-00000000").unwrap(),
        waiting: true,
    };
    SessionState { autonomy: AutonomyLevel::Manual, open_turns: vec![turn], ..SessionState::default() }
}

/// The record given back and the one found later hold what was asked for.
pub async fn a_session_is_found_as_it_was_made(store: &impl AnyStore) {
    let before = Timestamp::now();
    let new = NewSession { state: waiting_state(), ..new_session(LOCAL_PRINCIPAL, "s") };
    let (record, made) = store.create_session(new.clone()).await.unwrap();
    assert!(made);
    assert!(!record.epoch.is_empty());
    assert!(before <= record.created_at && record.created_at <= Timestamp::now());
    let expected = SessionRecord {
        key: record.key,
        principal: new.principal,
        id: new.id,
        title: new.title,
        workspace: new.workspace,
        epoch: record.epoch.clone(),
        created_at: record.created_at,
        updated_at: record.created_at,
        head_seq: 0,
        state: new.state,
    };
    assert_eq!(record, expected);
    assert_eq!(find(store, "s").await, Some(expected));
}

/// Nothing of the second request is taken over.
pub async fn a_second_session_of_the_same_id_is_the_first(store: &impl AnyStore) {
    let first = make(store, "s").await;
    stored(store, plain(first.key, vec![line("one")])).await;
    let first = find(store, "s").await.unwrap();
    let other = NewSession {
        title: Some("another".into()),
        workspace: PathBuf::from("/elsewhere"),
        state: waiting_state(),
        ..new_session(LOCAL_PRINCIPAL, "s")
    };
    assert_eq!(store.create_session(other).await, Ok((first.clone(), false)));
    assert_eq!(find(store, "s").await, Some(first));
}

/// Looking for a session leaves nothing behind.
pub async fn a_read_makes_no_session(store: &impl AnyStore) {
    assert_eq!(find(store, "s").await, None);
    let page = store.list_sessions(LOCAL_PRINCIPAL, None, 10).await.unwrap();
    assert_eq!((page.sessions, page.next), (vec![], None));
    make(store, "s").await;
}

/// A path is bytes.
pub async fn a_workspace_need_not_be_unicode(store: &impl AnyStore) {
    let workspace = PathBuf::from(OsStr::from_bytes(b"/srv/\xff\xfe"));
    let new = NewSession { workspace: workspace.clone(), ..new_session(LOCAL_PRINCIPAL, "s") };
    store.create_session(new).await.unwrap();
    assert_eq!(find(store, "s").await.unwrap().workspace, workspace);
}

/// The same id of two principals is two sessions, and neither sees the other's.
pub async fn principals_are_apart(store: &impl AnyStore) {
    let (mine, made) = store.create_session(new_session("me", "s")).await.unwrap();
    assert!(made);
    let (yours, made) = store.create_session(new_session("you", "s")).await.unwrap();
    assert!(made);
    assert_ne!(mine.key, yours.key);
    stored(store, plain(yours.key, vec![line("yours")])).await;

    let id = SessionId::parse("s").unwrap();
    assert_eq!(store.find_session("me", &id).await, Ok(Some(mine.clone())));
    assert_eq!(store.find_session("them", &id).await, Ok(None));
    assert_eq!(store.list_sessions("me", None, 10).await.unwrap().sessions, vec![mine]);
    assert_eq!(store.list_sessions("them", None, 10).await.unwrap().sessions, vec![]);
}

/// Whatever the size of the pages, each session comes once and the one that grew last comes first.
pub async fn the_list_is_by_last_growth_and_pages_are_whole(store: &impl AnyStore) {
    let mut keys: Vec<SessionKey> = Vec::new();
    for number in 0..5 {
        let made = make(store, &format!("s{number}")).await;
        wait_past(made.updated_at);
        keys.push(made.key);
    }
    for grown in [1, 3] {
        let places = stored(store, plain(keys[grown], vec![line("more")])).await;
        wait_past(places[0].at);
    }
    let expected = [3, 1, 4, 2, 0].map(|number| keys[number]);

    for limit in 1..=6 {
        let (mut seen, mut cursor, mut pages) = (Vec::new(), None, 0);
        loop {
            let page = store.list_sessions(LOCAL_PRINCIPAL, cursor, limit).await.unwrap();
            assert!(page.sessions.len() <= limit);
            seen.extend(page.sessions.iter().map(|session| session.key));
            pages += 1;
            match page.next {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
        assert_eq!(seen, expected, "in pages of {limit}");
        assert_eq!(pages, expected.len().div_ceil(limit), "in pages of {limit}");
    }
}

/// The state, the head and the time of the record follow the log.
pub async fn a_state_is_stored_with_its_events(store: &impl AnyStore) {
    let made = make(store, "s").await;
    wait_past(made.updated_at);
    let append = Append { state: Some(waiting_state()), ..plain(made.key, vec![line("a"), line("b")]) };
    let places = stored(store, append).await;
    let expected =
        SessionRecord { head_seq: 2, updated_at: places[1].at, state: waiting_state(), ..made.clone() };
    assert!(expected.updated_at > made.updated_at);
    assert_eq!(find(store, "s").await, Some(expected));
}

/// No state in an append: the one before holds.
pub async fn a_state_is_kept_where_an_append_brings_none(store: &impl AnyStore) {
    let new = NewSession { state: waiting_state(), ..new_session(LOCAL_PRINCIPAL, "s") };
    let (made, _) = store.create_session(new).await.unwrap();
    stored(store, plain(made.key, vec![line("a")])).await;
    assert_eq!(find(store, "s").await.unwrap().state, waiting_state());
}

/// They are found over all principals, and no longer once their turns have ended.
pub async fn sessions_with_open_turns_are_found(store: &impl AnyStore) {
    let mine = make(store, "s").await;
    let (yours, _) =
        store.create_session(NewSession { state: waiting_state(), ..new_session("you", "s") }).await.unwrap();
    make(store, "idle").await;
    assert_eq!(store.sessions_with_open_turns().await, Ok(vec![yours.clone()]));

    let begins = Append { state: Some(waiting_state()), ..plain(mine.key, vec![line("begins")]) };
    stored(store, begins).await;
    let found = store.sessions_with_open_turns().await.unwrap();
    let mut keys: Vec<_> = found.iter().map(|session| session.key).collect();
    keys.sort();
    assert_eq!(keys, [mine.key, yours.key]);

    let ends = Append { state: Some(SessionState::default()), ..plain(yours.key, vec![line("ends")]) };
    stored(store, ends).await;
    let found = store.sessions_with_open_turns().await.unwrap();
    assert_eq!(found, vec![find(store, "s").await.unwrap()]);
}

/// One commit: whoever sees the event sees the title; an append that changes nothing changes no title.
pub async fn a_title_changes_with_its_event(store: &impl AnyStore) {
    let made = make(store, "s").await;
    wait_past(made.updated_at);
    let titled = |title: Option<&str>, events| Append {
        title: Some(title.map(str::to_owned)),
        ..plain(made.key, events)
    };
    let at = stored(store, titled(Some("new"), vec![line("renamed")])).await[0].at;
    let expected = SessionRecord { title: Some("new".into()), head_seq: 1, updated_at: at, ..made.clone() };
    assert_eq!(find(store, "s").await, Some(expected.clone()));

    let id = ClientMessageId::parse("c-1").unwrap();
    stored(store, plain(made.key, vec![user("m-1", Some("c-1"))])).await;
    let repeat = Append { condition: Some(Condition::NewMessage(id)), ..titled(Some("lost"), vec![]) };
    assert_eq!(store.append(repeat).await, Ok(Appended::Unchanged));
    assert_eq!(find(store, "s").await.unwrap().title, expected.title);

    stored(store, titled(None, vec![line("cleared")])).await;
    assert_eq!(find(store, "s").await.unwrap().title, None);
    stored(store, plain(made.key, vec![line("more")])).await;
    assert_eq!(find(store, "s").await.unwrap().title, None);
}

/// Of every principal; one that grew at the very time is not idle.
pub async fn idle_sessions_are_found_longest_idle_first(store: &impl AnyStore) {
    let first = make(store, "first").await;
    wait_past(first.updated_at);
    let (yours, _) = store.create_session(new_session("you", "yours")).await.unwrap();
    wait_past(yours.updated_at);
    let last = make(store, "last").await;
    wait_past(last.updated_at);
    let places = stored(store, plain(first.key, vec![line("grown")])).await;

    let ids = |found: Vec<SessionRecord>| found.into_iter().map(|s| s.id.to_string()).collect::<Vec<_>>();
    let idle = async |before, limit| ids(store.sessions_idle_since(before, limit).await.unwrap());
    assert_eq!(idle(places[0].at, 10).await, ["yours", "last"]);
    assert_eq!(idle(Timestamp::from_micros(i64::MAX), 10).await, ["yours", "last", "first"]);
    assert_eq!(idle(Timestamp::from_micros(i64::MAX), 1).await, ["yours"]);
    assert_eq!(idle(yours.updated_at, 10).await, Vec::<String>::new());
    let found = store.sessions_idle_since(places[0].at, 10).await.unwrap();
    assert_eq!(found, [yours, last]);
}

/// The check itself changes nothing.
pub async fn a_good_store_passes_its_check(store: &impl AnyStore) {
    let made = make(store, "s").await;
    assert_eq!(store.check().await, Ok(()));
    assert_eq!(find(store, "s").await, Some(made));
}
