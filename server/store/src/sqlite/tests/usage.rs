//! Sums of usage in a file: begun in a store of the first format, and kept over a restart.

use tns_protocol::{AgentId, Day, MessageId};
use tns_server_core::engine::StepUsage;
use tns_server_core::event::{AssistantMessage, DurableEvent, MessageStatus};
use tns_server_core::store::{NewEvent, Store as _};
use tns_server_core::usage::Money;

use super::{Folder, find, line, plain, stored};

const DAY: Day = Day::from_number(20_787);

fn step(cost: f64) -> NewEvent {
    NewEvent {
        turn: None,
        event: DurableEvent::AssistantMessage(AssistantMessage {
            id: MessageId::parse("m-1").unwrap(),
            agent: AgentId::parse("helper-00000000").unwrap(),
            parts: Vec::new(),
            model: "m".into(),
            native: None,
            notes: Vec::new(),
            status: MessageStatus::Complete,
            response: None,
            usage: Some(StepUsage { input: 3, output: 2, cost: Some(cost), ..StepUsage::default() }),
            provider: Some("maker".into()),
            counted_on: Some(DAY),
        }),
    }
}

#[tokio::test]
async fn a_store_of_the_first_format_is_brought_forward_with_all_it_holds() {
    let folder = Folder::new();
    let first = include_str!("../../migrations/0001_first.sql");
    let old = folder.stranger();
    old.execute_batch(first).unwrap();
    old.execute_batch(
        "PRAGMA user_version = 1; INSERT INTO meta VALUES ('epoch', 'old');
         INSERT INTO sessions (session_id, workspace, epoch, created_at, updated_at) VALUES ('s', x'2f', 'e', 1, 1);
         INSERT INTO session_states VALUES (1, 0, 1, '{}');",
    )
    .unwrap();
    drop(old);
    let store = folder.open();
    assert_eq!(store.epoch(), "old");
    let session = find(&store, "s").await.unwrap().unwrap().key;
    stored(&store, plain(session, vec![line("a"), step(0.25)])).await;
    drop(store);
    assert_eq!(folder.open().session_cost(session).await, Ok(Money::from_dollars(0.25)));
}
