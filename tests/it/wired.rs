//! A server whose default engine talks to the stand-in of a provider, and a client of it. What it sends is
//! checked at its end: no request may be wrong, and the key is in its header and nowhere else.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tns_server_core::engine::EngineChoice;
use tns_server_core::scripted::Script;
use tns_server_engines::{EngineConfig, EngineRegistry};
use tns_tests::socket::text;
use tns_tests::standin::Standin;
use tns_tests::{Setup, Socket, TestServer, session};

use crate::setup;

/// Must show up nowhere but in the header that it is sent in.
const CANARY: &str = "canary-5f2c91d0";

/// The server, its provider and its client.
pub(crate) struct Wired {
    pub(crate) provider: &'static str,
    pub(crate) standin: Standin,
    pub(crate) server: TestServer,
    pub(crate) socket: Socket,
    events: Vec<Value>,
}

/// Returns engines that talk to a stand-in, with short pauses of their own.
pub(crate) fn engines(standin: &Standin, (provider, model): (&str, &str), key: &str) -> EngineRegistry {
    let variables = standin.variables(provider, &format!("{key}-{CANARY}"));
    let mut config = EngineConfig::from_env(|asked| {
        variables.iter().find(|(name, _)| name == asked).map(|(_, value)| value.clone())
    });
    config.flag = EngineChoice { provider: Some(provider.into()), model: Some(model.into()) };
    config.local_servers = Vec::new();
    config.patience.shortest_pause = Duration::from_millis(1);
    config.patience.longest_pause = Duration::from_millis(1);
    EngineRegistry::new(config)
}

impl Wired {
    /// Starts a server at FULL_AUTO.
    pub(crate) async fn start(row: (&'static str, &str), key: &str) -> Self {
        Self::start_over(&setup(Script::new()), row, key).await
    }

    /// Starts a server over a given set-up.
    pub(crate) async fn start_over(setup: &Setup, row: (&'static str, &str), key: &str) -> Self {
        let standin = Standin::start().await;
        let engines = Arc::new(engines(&standin, row, key));
        let server = TestServer::start_engines(setup, engines, row.0).await;
        let mut socket = server.socket().await;
        socket.send("s", "set_autonomy", json!({ "level": "FULL_AUTO" })).await;
        Self { provider: row.0, standin, server, socket, events: Vec::new() }
    }

    /// Chats and returns the events up to the first of this type.
    pub(crate) async fn chat(&mut self, words: &str, until: &str) -> Vec<Value> {
        self.socket.chat("s", words).await;
        self.until(until).await
    }

    /// Returns the events up to the first of this type; an error that is not waited for fails the test.
    pub(crate) async fn until(&mut self, type_name: &str) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let event = self.socket.next().await;
            let found = event["type"] == type_name;
            let failed = event["type"] == "error" && !found;
            assert!(!failed, "{}: {event}; {:?}", self.provider, self.standin.complaints());
            events.push(event);
            if found {
                self.events.extend(events.clone());
                return events;
            }
        }
    }

    /// Waits until the provider was asked so many times.
    pub(crate) async fn asked(&mut self, times: usize) {
        while self.standin.requests().len() < times {
            self.socket.settle("s").await;
        }
    }

    /// Chats and expects this reply.
    pub(crate) async fn expect_reply(&mut self, words: &str, reply: &str) {
        assert_eq!(text(&self.chat(words, "done").await), reply, "{}", self.provider);
    }

    /// Cancels, and waits until the turn is over.
    pub(crate) async fn cancel(&mut self) -> Vec<Value> {
        self.socket.send("s", "cancel", json!({})).await;
        let events = self.until("done").await;
        assert_eq!(events.last().unwrap()["cancelled"], true, "{}: {events:?}", self.provider);
        events
    }

    /// Returns the body of the last request.
    pub(crate) fn last_request(&self) -> Value {
        self.standin.requests().pop().unwrap().body
    }

    /// Checks that no request was wrong and that nobody was shown the key.
    pub(crate) async fn end(mut self) {
        assert_eq!(self.standin.complaints(), [] as [String; 0]);
        let rest = self.server.rest();
        self.events.extend(rest.events(&session("s"), 0).await.unwrap().events);
        self.events.push(serde_json::to_value(rest.messages(&session("s"), 0, None).await.unwrap()).unwrap());
        self.events.push(serde_json::to_value(rest.info().await.unwrap()).unwrap());
        let shown = json!(self.events).to_string();
        assert!(!shown.contains(CANARY), "{}: {shown}", self.provider);
        for request in self.standin.requests() {
            assert!(request.key.as_deref().is_some_and(|key| key.ends_with(CANARY)), "{}", self.provider);
            assert!(!format!("{} {}", request.path, request.body).contains(CANARY), "{}", self.provider);
        }
        self.server.stop().await;
    }
}
