//! The client crate against a real server, over a line that breaks and with a consumer that is too slow.

use tns_client::{Client, ClientConfig, ClientEvent, Cursor, Events, Network, Reconnect, Stream};
use tns_protocol::chat::Chat;
use tns_protocol::{ClientMessageId, Seq, ServerFrame, ServerMessage};
use tns_server_core::scripted::{Beat, Gate, Script};
use tns_tests::TestServer;
use tns_tests::relay::Relay;
use tokio::net::TcpSocket;

use crate::{say, setup, start};

fn named(name: &str) -> Chat {
    Chat { message: name.into(), client_message_id: ClientMessageId::parse(name).ok(), ..Chat::default() }
}

async fn connect(url: &str) -> (Client, Events) {
    Client::connect(ClientConfig::new(url, Reconnect::Backoff)).await.unwrap()
}

/// Connects with a small buffer for what comes.
async fn dial_narrow(address: String) -> std::io::Result<Box<dyn Stream>> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(64 << 10)?;
    let address = address.parse().map_err(std::io::Error::other)?;
    Ok(Box::new(socket.connect(address).await?))
}

/// Waits for a durable event that `wanted` takes; `log` collects all of them.
async fn until(events: &mut Events, log: &mut Vec<ServerFrame>, wanted: impl Fn(&ServerMessage) -> bool) {
    loop {
        let event = events.next().await.expect("the connection lasts");
        if let ClientEvent::Frame(frame) = event
            && frame.seq.is_some()
        {
            let found = wanted(&frame.message);
            log.push(*frame);
            if found {
                return;
            }
        }
    }
}

fn places(log: &[ServerFrame]) -> Vec<Seq> {
    log.iter().filter_map(|frame| frame.seq).collect()
}

#[tokio::test]
async fn over_a_line_that_breaks_the_log_comes_once_and_each_message_is_answered_once() {
    let server = start(Script::new()).await;
    let relay = Relay::start(server.address()).await;
    let (client, mut events) = connect(&relay.url()).await;
    let id = tns_tests::session("s");
    client.join(&id, Cursor::default()).await.unwrap();
    let mut log = Vec::new();
    for n in 0..20 {
        client.send(&id, named(&format!("m{n}"))).await.unwrap();
        // The message is on its way, somewhere.
        if n % 6 == 5 {
            tokio::task::yield_now().await;
            relay.cut();
            relay.mend();
        }
        until(&mut events, &mut log, |message| matches!(message, ServerMessage::Done(_))).await;
    }
    let head = server.rest().session(&id).await.unwrap().head_seq;
    assert_eq!(places(&log), (1..=head).collect::<Vec<_>>());
    let asked: Vec<_> = log
        .iter()
        .filter_map(|frame| match &frame.message {
            ServerMessage::UserMessage(message) => Some(message.message.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(asked, (0..20).map(|n| format!("m{n}")).collect::<Vec<_>>());
    client.close().await;
    server.stop().await;
}

#[tokio::test]
async fn a_server_that_restarts_over_its_store_is_followed_without_a_gap() {
    let gate = Gate::new();
    let setup = setup(Script::new().text("one").step([say("half"), Beat::Gate(gate)]).text("three"));
    let server = TestServer::start(&setup).await;
    let relay = Relay::start(server.address()).await;
    let (client, mut events) = connect(&relay.url()).await;
    let id = tns_tests::session("s");
    client.join(&id, Cursor::default()).await.unwrap();
    let mut log = Vec::new();
    client.send(&id, named("a")).await.unwrap();
    until(&mut events, &mut log, |message| matches!(message, ServerMessage::Done(_))).await;
    client.send(&id, named("b")).await.unwrap();
    until(&mut events, &mut log, |message| matches!(message, ServerMessage::UserMessage(_))).await;
    relay.cut();
    server.stop().await;
    let server = TestServer::start(&setup).await;
    relay.lead_to(server.address());
    relay.mend();
    let ends = |message: &ServerMessage| {
        matches!(message, ServerMessage::ErrorEvent(_) | ServerMessage::Interrupted(_))
    };
    until(&mut events, &mut log, ends).await;
    client.send(&id, named("c")).await.unwrap();
    until(&mut events, &mut log, |message| matches!(message, ServerMessage::Done(_))).await;
    let head = server.rest().session(&id).await.unwrap().head_seq;
    assert_eq!(places(&log), (1..=head).collect::<Vec<_>>());
    server.stop().await;
}

#[tokio::test]
async fn a_consumer_that_is_too_slow_misses_no_stored_event() {
    let server = start(Script::new()).await;
    // Else the system may keep all of it for a client that reads nothing.
    let network = Network::new(dial_narrow, || 0.5);
    let config = ClientConfig { network, ..ClientConfig::new(server.url(), Reconnect::Backoff) };
    let (client, mut events) = Client::connect(config).await.unwrap();
    let id = tns_tests::session("s");
    client.join(&id, Cursor::default()).await.unwrap();
    // Far more than an outbox, the system's buffers and the client's own take.
    let long = "x".repeat(2 << 20);
    let mut writer = server.socket().await;
    writer.join("s").await;
    for _ in 0..10 {
        writer.chat("s", &long).await;
        writer.expect("done").await;
    }
    let head = server.rest().session(&id).await.unwrap().head_seq;
    let (mut seen, mut caught_up) = (Vec::new(), 0);
    // Once when it joined, and once after it had lagged.
    while seen.last() != Some(&head) || caught_up < 2 {
        match events.next().await.expect("the connection lasts") {
            ClientEvent::Frame(frame) => seen.extend(frame.seq),
            ClientEvent::CaughtUp { .. } => caught_up += 1,
            other => assert!(matches!(other, ClientEvent::Joined { .. }), "{other:?}"),
        }
    }
    assert_eq!(seen, (1..=head).collect::<Vec<_>>());
    server.stop().await;
}

#[tokio::test]
async fn who_joins_in_the_middle_of_a_reply_has_its_text_and_then_the_rest() {
    let gate = Gate::new();
    let server = start(Script::new().step([say("one "), Beat::Gate(gate.clone()), say("two")])).await;
    let mut writer = server.socket().await;
    writer.chat("s", "go").await;
    writer.expect("token").await;
    let (client, mut events) = connect(server.url()).await;
    client.join(&tns_tests::session("s"), Cursor::default()).await.unwrap();
    let active = loop {
        if let Some(ClientEvent::CaughtUp { active, pending, .. }) = events.next().await {
            assert_eq!(pending, []);
            break active.unwrap();
        }
    };
    assert_eq!((active.text_so_far.as_str(), active.index), ("one ", 4));
    gate.open();
    loop {
        if let Some(ClientEvent::Frame(frame)) = events.next().await
            && let ServerMessage::Token(token) = frame.message
        {
            assert_eq!(token.content, "two");
            break;
        }
    }
    client.close().await;
    server.stop().await;
}
