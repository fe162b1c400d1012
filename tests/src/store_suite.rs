//! What every store must do, as one behaviour a function; each backend runs all of them.
//! Nothing here knows a backend: what only one of them can show is tested beside it.
#![expect(clippy::unwrap_used, reason = "these are tests: a step that fails is the finding")]

pub mod audit;
pub mod documents;
pub mod log;
pub mod order;
pub mod sessions;

use std::path::PathBuf;

use tns_protocol::{ClientMessageId, DocumentId, ErrorCode, MessageId, SessionId, Timestamp};
use tns_server_core::event::{DurableEvent, TurnFailed, UserMessage};
use tns_server_core::message::Part;
use tns_server_core::store::{
    Append, Appended, Condition, DocumentStore, EventQuery, LOCAL_PRINCIPAL, NewEvent, NewSession, Place,
    SessionKey, SessionRecord, SessionState, Store, StoredEvent,
};

/// A store that the suite can try.
pub trait AnyStore: Store + DocumentStore {}

impl<S: Store + DocumentStore> AnyStore for S {}

/// Makes a test of each behaviour. The argument is an expression that gives an empty store, and
/// something to be kept while the store is used, such as its folder: `(store, kept)`.
#[macro_export]
macro_rules! store_suite {
    ($make:expr) => {
        $crate::store_suite_tests! { $make;
            audit::records_come_oldest_first_and_the_newest_are_kept
            audit::records_are_found_by_session_time_and_decision
            documents::a_document_is_stored_with_its_event
            documents::a_known_document_changes_nothing
            documents::an_unknown_document_is_not_removed
            documents::a_list_is_oldest_first_and_shows_whole_characters
            documents::a_document_that_comes_back_is_the_newest
            documents::changes_hold_the_last_one_of_each_document_in_order
            documents::documents_and_events_share_one_order
            documents::counts_leave_out_empty_collections
            documents::collections_are_apart
            log::places_have_no_gap_and_rise_over_all_sessions
            log::events_come_back_as_they_were_stored
            log::a_page_ends_at_its_limit
            log::a_page_has_at_most_so_many_events
            log::a_page_has_at_most_so_many_bytes
            log::a_page_holds_an_event_that_is_larger_than_a_page
            log::a_page_stays_in_its_range
            log::a_page_holds_only_the_kinds_asked_for
            log::an_empty_log_has_an_empty_page
            log::an_unknown_session_is_an_error
            order::appends_are_stored_in_the_order_of_their_calls
            order::an_append_is_done_though_its_future_is_dropped
            order::appends_from_many_threads_are_all_stored_once
            order::a_repeated_message_is_stored_once
            order::an_append_that_fails_leaves_the_others
            sessions::a_session_is_found_as_it_was_made
            sessions::a_second_session_of_the_same_id_is_the_first
            sessions::a_read_makes_no_session
            sessions::a_workspace_need_not_be_unicode
            sessions::principals_are_apart
            sessions::the_list_is_by_last_growth_and_pages_are_whole
            sessions::a_state_is_stored_with_its_events
            sessions::a_state_is_kept_where_an_append_brings_none
            sessions::sessions_with_open_turns_are_found
            sessions::a_good_store_passes_its_check
        }
    };
}

/// Makes the tests that `store_suite!` lists.
#[doc(hidden)]
#[macro_export]
macro_rules! store_suite_tests {
    ($make:expr; $($module:ident :: $name:ident)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                let (store, _kept) = $make;
                $crate::store_suite::$module::$name(&store).await;
            }
        )*
    };
}

const WORKSPACE: &str = "/home/me/project";

fn new_session(principal: &str, id: &str) -> NewSession {
    NewSession {
        principal: principal.into(),
        id: SessionId::parse(id).unwrap(),
        title: Some(format!("about {id}")),
        workspace: PathBuf::from(WORKSPACE),
        state: SessionState::default(),
    }
}

async fn make(store: &impl AnyStore, id: &str) -> SessionRecord {
    let (record, made) = store.create_session(new_session(LOCAL_PRINCIPAL, id)).await.unwrap();
    assert!(made);
    record
}

async fn find(store: &impl AnyStore, id: &str) -> Option<SessionRecord> {
    store.find_session(LOCAL_PRINCIPAL, &SessionId::parse(id).unwrap()).await.unwrap()
}

/// An event that carries a text and nothing else.
fn line(text: impl Into<String>) -> NewEvent {
    NewEvent {
        turn: None,
        event: DurableEvent::TurnFailed(TurnFailed { code: ErrorCode::Internal, message: text.into() }),
    }
}

fn user(id: &str, client: Option<&str>) -> NewEvent {
    let id = MessageId::parse(id).unwrap();
    let message = UserMessage {
        id: id.clone(),
        agent: tns_protocol::AgentId::parse("helper-00000000").unwrap(),
        parts: vec![Part::Text("hello".into())],
        client_message_id: client.map(|client| ClientMessageId::parse(client).unwrap()),
        context: None,
        queued: false,
    };
    NewEvent { turn: Some(id), event: DurableEvent::UserMessage(message) }
}

fn kb_added(id: &DocumentId) -> NewEvent {
    NewEvent { turn: None, event: DurableEvent::KbAdded(id.clone()) }
}

fn plain(session: SessionKey, events: Vec<NewEvent>) -> Append {
    Append::new(session, events)
}

fn only_if(session: SessionKey, events: Vec<NewEvent>, condition: Condition) -> Append {
    Append { condition: Some(condition), ..Append::new(session, events) }
}

async fn stored(store: &impl AnyStore, append: Append) -> Vec<Place> {
    match store.append(append).await.unwrap() {
        Appended::Stored(places) => places,
        Appended::Unchanged => panic!("the append changed nothing"),
    }
}

fn everything() -> EventQuery {
    EventQuery { limit: usize::MAX, ..EventQuery::default() }
}

async fn whole_log(store: &impl AnyStore, session: SessionKey) -> Vec<StoredEvent> {
    let page = store.events(session, everything()).await.unwrap();
    assert!(!page.more);
    page.events
}

/// Waits until the clock shows a later time than `time`: less than a microsecond.
fn wait_past(time: Timestamp) {
    while Timestamp::now() <= time {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    /// A behaviour that nobody runs would go unnoticed.
    #[test]
    fn the_list_names_every_behaviour() {
        let list = include_str!("store_suite.rs");
        for (module, source) in [
            ("audit", include_str!("store_suite/audit.rs")),
            ("documents", include_str!("store_suite/documents.rs")),
            ("log", include_str!("store_suite/log.rs")),
            ("order", include_str!("store_suite/order.rs")),
            ("sessions", include_str!("store_suite/sessions.rs")),
        ] {
            let names: Vec<_> = source
                .lines()
                .filter_map(|line| line.strip_prefix("pub async fn ")?.split('(').next())
                .collect();
            assert!(!names.is_empty(), "{module}");
            for name in names {
                assert!(list.contains(&format!("{module}::{name}\n")), "{module}::{name}");
            }
        }
    }
}
