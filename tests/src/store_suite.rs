//! What every store must do, as one behaviour a function; each backend runs all of them.
//! Nothing here knows a backend: what only one of them can show is tested beside it.
#![expect(clippy::unwrap_used, reason = "these are tests: a step that fails is the finding")]

pub mod audit;
pub mod delete;
pub mod documents;
pub mod feedback;
pub mod fork;
pub mod import;
pub mod log;
pub mod order;
pub mod search;
pub mod sessions;
pub mod stream;
pub mod usage;

use std::path::PathBuf;

use tns_protocol::{ClientMessageId, DocumentId, ErrorCode, MessageId, SessionId, Timestamp};
use tns_server_core::event::{AssistantMessage, DurableEvent, MessageStatus, TurnFailed, UserMessage};
use tns_server_core::message::Part;
use tns_server_core::store::{
    Append, Appended, Collection, Condition, DocumentStore, EventQuery, LOCAL_PRINCIPAL, NewDocument,
    NewEvent, NewSession, Place, SessionKey, SessionRecord, SessionState, Store, StoredEvent,
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
            delete::nothing_is_left_of_a_deleted_session
            delete::a_deleted_key_is_not_given_again
            delete::what_follows_a_deletion_is_told
            delete::documents_of_a_deleted_session_are_removals
            delete::places_are_not_given_again_after_a_deletion
            documents::a_document_is_stored_with_its_event
            documents::a_known_document_changes_nothing
            documents::an_unknown_document_is_not_removed
            documents::a_list_is_oldest_first_and_shows_whole_characters
            documents::a_document_that_comes_back_is_the_newest
            documents::changes_hold_the_last_one_of_each_document_in_order
            documents::documents_and_events_share_one_order
            documents::counts_leave_out_empty_collections
            documents::collections_are_apart
            feedback::a_score_is_read_with_its_message
            feedback::a_score_changes_and_goes
            feedback::what_is_no_message_has_no_score
            fork::a_fork_is_a_copy_up_to_its_place
            fork::a_fork_and_its_source_grow_apart
            fork::a_fork_beyond_the_log_is_refused
            fork::a_fork_of_a_taken_id_gives_the_session_that_has_it
            fork::the_senders_ids_of_a_fork_count
            fork::a_fork_decided_nothing
            fork::documents_added_by_then_are_copied_under_new_names
            import::an_import_equals_its_export
            import::a_log_that_has_a_senders_id_twice_is_taken_in
            import::an_import_is_unseen_until_it_is_finished
            import::an_import_of_a_taken_id_does_not_begin
            import::an_import_whose_id_was_taken_meanwhile_is_thrown_away
            import::an_abandoned_import_leaves_nothing
            import::an_import_is_not_idle
            log::places_have_no_gap_and_rise_over_all_sessions
            log::events_come_back_as_they_were_stored
            log::a_page_ends_at_its_limit
            log::a_page_has_at_most_so_many_events
            log::a_page_has_at_most_so_many_bytes
            log::a_page_holds_an_event_that_is_larger_than_a_page
            log::a_page_stays_in_its_range
            log::a_page_holds_only_the_kinds_asked_for
            log::a_page_from_the_end_is_ascending
            log::a_log_is_read_backwards_whole
            log::an_empty_log_has_an_empty_page
            log::an_unknown_session_is_an_error
            order::appends_are_stored_in_the_order_of_their_calls
            order::an_append_is_done_though_its_future_is_dropped
            order::appends_from_many_threads_are_all_stored_once
            order::a_repeated_message_is_stored_once
            order::an_append_that_fails_leaves_the_others
            search::messages_and_titles_are_found_with_their_places
            search::words_are_found_in_any_case_script_and_width
            search::no_question_is_syntax
            search::only_ones_own_sessions_are_searched
            search::all_words_must_occur
            search::a_renamed_session_is_found_by_its_new_title_only
            search::a_deleted_session_is_not_found
            search::forks_and_imports_are_found
            search::pages_of_hits_are_one_ranking
            search::outputs_of_tools_and_other_events_are_not_found
            search::an_append_that_changed_nothing_is_not_found
            sessions::a_session_is_found_as_it_was_made
            sessions::a_second_session_of_the_same_id_is_the_first
            sessions::a_read_makes_no_session
            sessions::a_workspace_need_not_be_unicode
            sessions::principals_are_apart
            sessions::the_list_is_by_last_growth_and_pages_are_whole
            sessions::a_state_is_stored_with_its_events
            sessions::a_state_is_kept_where_an_append_brings_none
            sessions::sessions_with_open_turns_are_found
            sessions::a_title_changes_with_its_event
            sessions::idle_sessions_are_found_longest_idle_first
            sessions::a_good_store_passes_its_check
            stream::the_stream_has_every_event_once_in_order
            stream::the_stream_of_a_principal_has_only_its_own
            stream::a_page_of_the_stream_is_bounded
            stream::the_head_lies_behind_every_event
            stream::the_epoch_stays
            usage::usage_is_summed_up_by_day_provider_and_model
            usage::a_step_without_a_day_counts_on_the_day_it_is_stored
            usage::usage_of_sessions_elsewhere_is_added
            usage::absurd_counters_do_not_break_the_sums
            usage::usage_is_not_counted_where_nothing_is_stored
            usage::usage_of_a_deleted_session_stays_in_the_day
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

/// A person's message with these words.
fn says(id: &str, text: impl Into<String>) -> NewEvent {
    let event = user(id, None);
    let DurableEvent::UserMessage(message) = event.event else { panic!("it is a message") };
    let message = UserMessage { parts: vec![Part::Text(text.into())], ..message };
    NewEvent { event: DurableEvent::UserMessage(message), ..event }
}

/// A step of a reply with these words.
fn replies(id: &str, text: impl Into<String>) -> NewEvent {
    let message = AssistantMessage {
        id: MessageId::parse(id).unwrap(),
        agent: tns_protocol::AgentId::parse("helper-00000000").unwrap(),
        parts: vec![Part::Text(text.into())],
        model: "m".into(),
        native: None,
        notes: Vec::new(),
        status: MessageStatus::Complete,
        response: None,
        usage: None,
        provider: None,
        counted_on: None,
    };
    NewEvent { turn: None, event: DurableEvent::AssistantMessage(message) }
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
        during: None,
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

/// A document of this collection that an event announces.
fn adding(session: SessionKey, collection: &Collection, content: &str) -> Append {
    let new = NewDocument {
        collection: collection.clone(),
        id: collection.document_id(content),
        content: content.into(),
        metadata: serde_json::Map::new(),
    };
    only_if(session, vec![kb_added(&new.id)], Condition::NewDocument(new))
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
            ("delete", include_str!("store_suite/delete.rs")),
            ("documents", include_str!("store_suite/documents.rs")),
            ("feedback", include_str!("store_suite/feedback.rs")),
            ("fork", include_str!("store_suite/fork.rs")),
            ("import", include_str!("store_suite/import.rs")),
            ("log", include_str!("store_suite/log.rs")),
            ("order", include_str!("store_suite/order.rs")),
            ("search", include_str!("store_suite/search.rs")),
            ("sessions", include_str!("store_suite/sessions.rs")),
            ("stream", include_str!("store_suite/stream.rs")),
            ("usage", include_str!("store_suite/usage.rs")),
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
