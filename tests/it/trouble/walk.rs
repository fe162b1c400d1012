//! A client that uses everything a server offers, and asks again for what was refused: once, at most.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tns_server_engines::{EngineConfig, EngineRegistry};
use tns_tests::event_stream::EventStream;
use tns_tests::http::{self, Answer};
use tns_tests::troubled_store::TroubledStore;
use tns_tests::{Setup, Socket, TestServer};

/// Tries of the same thing: the second one must work.
const TRIES: usize = 2;

/// A walk through a server.
pub(super) struct Walk<'a> {
    server: &'a TestServer,
    socket: Socket,
    /// The session that is talked to.
    session: &'static str,
    /// Every durable event that was shown, by session.
    pub(super) shown: BTreeMap<String, Vec<Value>>,
    /// How each turn ended, as far as was shown.
    ends: BTreeMap<String, String>,
    /// The call that waits for approval.
    waits: Option<Value>,
    /// Codes of all errors.
    pub(super) errors: Vec<String>,
    messages: usize,
}

/// Starts a server whose engine answers by what is said, not by a script: a message that is sent again is
/// answered as the first one.
pub(super) async fn serve(setup: &Setup, store: Arc<TroubledStore>) -> TestServer {
    let config = EngineConfig::from_env(|name| (name == "TNS_PROVIDER").then(|| "offline".to_owned()));
    let engines = Arc::new(EngineRegistry::new(config));
    TestServer::start_parts(setup, store.clone(), store, engines, "offline").await
}

impl<'a> Walk<'a> {
    pub(super) async fn begin(server: &'a TestServer) -> Self {
        Self {
            server,
            socket: server.socket().await,
            session: "s",
            shown: BTreeMap::new(),
            ends: BTreeMap::new(),
            waits: None,
            errors: Vec::new(),
            messages: 0,
        }
    }

    /// Uses everything.
    pub(super) async fn all(&mut self) {
        self.ask("hello", json!({ "ext": ["events.1"] }), "welcome").await;
        self.documents().await;
        self.roster().await;
        self.ask("set_autonomy", json!({ "level": "SUPERVISED" }), "autonomy_changed").await;
        self.say("hello").await;
        self.say("!touch made").await;
        self.until_done("a message waits", async |walk| walk.queue().await).await;
        self.until_done("a call is cancelled", async |walk| walk.cancel().await).await;
        self.log().await;
        self.sessions().await;
        self.streams().await;
        self.health().await;
    }

    async fn documents(&mut self) {
        let added = self.ask("kb_add", json!({ "content": "a wombat digs" }), "kb_added").await;
        self.ask("kb_add", json!({ "content": "a numbat eats" }), "kb_added").await;
        self.ask("kb_list", json!({}), "kb_list_result").await;
        let found = self.ask("kb_search", json!({ "query": "wombat" }), "kb_search_result").await;
        assert_eq!(found["results"][0]["documentId"], added["documentId"]);
        self.ask("kb_remove", json!({ "documentId": added["documentId"] }), "kb_removed").await;
        self.rest("GET", "/api/kb?sessionId=s", None).await;
        let search = json!({ "sessionId": "s", "query": "numbat" });
        assert_eq!(self.rest("POST", "/api/kb/search", Some(search)).await.json()["count"], 1);
    }

    async fn roster(&mut self) {
        let team = self.ask("agent_add", json!({ "role": "reviewer" }), "team_update").await;
        let agent = &team["agents"][1]["agentId"];
        self.ask("agent_update", json!({ "agentId": agent, "name": "Ada" }), "team_update").await;
        let team = self.ask("agent_remove", json!({ "agentId": agent }), "team_update").await;
        assert_eq!(team["agents"].as_array().unwrap().len(), 1);
    }

    /// One message asks, two wait; one of these is edited, the other is taken out. `false`: the first turn ended
    /// too soon for that.
    async fn queue(&mut self) -> bool {
        let first = self.post("!touch queued").await;
        if !self.asks(&first).await {
            return false;
        }
        let (second, third) = (self.post("hello").await, self.post("hello again").await);
        self.ask("queue_list", json!({}), "queue_list_result").await;
        self.ask("queue_edit", json!({ "messageId": second, "message": "hi" }), "queue_update").await;
        self.ask("queue_remove", json!({ "messageId": third }), "queue_update").await;
        for turn in [&third, &first, &second] {
            self.follow(turn).await;
        }
        true
    }

    /// What asks is cancelled, and what waits behind it begins. `false`: the turn ended too soon for that.
    async fn cancel(&mut self) -> bool {
        let first = self.post("!touch cancelled").await;
        if !self.asks(&first).await {
            return false;
        }
        let second = self.post("hello").await;
        self.socket.send("s", "cancel", json!({})).await;
        let end = self.end(&first).await;
        assert!(end == "interrupted" || end == "error", "{end}");
        self.follow(&second).await;
        assert!(!self.server.workspace().join("cancelled").exists());
        true
    }

    async fn log(&mut self) {
        self.ask("history_get", json!({}), "history_sync").await;
        self.ask("resume", json!({ "lastSeq": 0 }), "resumed").await;
        self.ask("session_rename", json!({ "title": "a name" }), "session_updated").await;
        let messages = self.rest("GET", "/api/sessions/s/messages", None).await.json();
        let message = &messages["messages"][0]["messageId"];
        let up = json!({ "messageId": message, "score": "up" });
        self.ask("feedback", up.clone(), "feedback_stored").await;
        self.rest("POST", "/api/sessions/s/feedback", Some(up)).await;
        self.rest("GET", "/api/sessions/s/events?live=0", None).await;
        self.rest("GET", "/api/audit?sessionId=s", None).await;
        self.rest("GET", "/api/audit", None).await;
        self.rest("GET", "/api/usage", None).await;
    }

    async fn sessions(&mut self) {
        self.ask("session_list", json!({}), "session_list_result").await;
        self.rest("GET", "/api/sessions", None).await;
        self.rest("GET", "/api/sessions/search?q=hello", None).await;
        let head = self.rest("GET", "/api/sessions/s", None).await.json()["headSeq"].clone();
        self.ask("session_fork", json!({ "atSeq": head }), "session_forked").await;
        let fork = json!({ "atSeq": head, "id": "fork" });
        self.rest("POST", "/api/sessions/s/fork", Some(fork)).await;
        self.rest("DELETE", "/api/sessions/fork", None).await;
        self.transfer().await;
        // A limit asks what was spent; what a temporary session used is added up elsewhere.
        for (session, new) in [
            ("limited", json!({ "id": "limited", "budget": 5.0 })),
            ("temporary", json!({ "id": "temporary", "temp": true })),
        ] {
            self.rest("POST", "/api/sessions", Some(new)).await;
            self.session = session;
            self.say("hello").await;
        }
        self.session = "s";
    }

    /// A session goes out and comes in again, and a file that is cut does not.
    async fn transfer(&mut self) {
        let address = self.server.address();
        // HTTP/1.0, so that the body comes as it is.
        let export = format!("GET /api/sessions/s/export HTTP/1.0\r\nHost: {address}\r\n\r\n");
        let file =
            self.until_taken("export", async || http::send(address, export.as_bytes()).await).await.body;
        let import = async |file: &str, id: &str| {
            let request = format!(
                "POST /api/sessions/import?id={id} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
                 Content-Type: application/jsonl\r\nContent-Length: {}\r\n\r\n{file}",
                file.len()
            );
            http::send(address, request.as_bytes()).await
        };
        self.until_taken("import", async || import(&file, "taken").await).await;
        let cut = &file[..file.len() - 2];
        let (status, code) = import(cut, "cut").await.refusal();
        if status != 400 {
            self.errors.push(code);
        }
    }

    /// Both kinds of streams, to the last event.
    async fn streams(&mut self) {
        self.ask("set_autonomy", json!({ "level": "MANUAL" }), "autonomy_changed").await;
        for path in ["/api/sessions/s/events", "/api/events"] {
            let mut tries = 0;
            let mut stream = loop {
                match EventStream::try_open(self.server.address(), path, None).await {
                    Ok(stream) => break stream,
                    Err(refusal) => self.errors.push(refusal["error"]["code"].as_str().unwrap().to_owned()),
                }
                tries += 1;
                assert!(tries < TRIES, "{path}: {:?}", self.errors);
            };
            while stream.until("autonomy_changed").await.last().unwrap().data["level"] != "MANUAL" {}
        }
    }

    async fn health(&mut self) {
        for path in ["/health", "/health/ready"] {
            let mut said = Vec::new();
            while said.last().is_none_or(|said| said != "UP") {
                assert!(said.len() < TRIES, "{path}: {said:?}");
                let health = http::get(self.server.address(), path).await.json();
                said.push(health["status"].as_str().unwrap().to_owned());
            }
            self.errors.extend(said.into_iter().filter(|said| said != "UP"));
        }
    }

    /// Repeats what could not be tried because of a turn that ended too soon.
    async fn until_done(&mut self, what: &str, mut step: impl AsyncFnMut(&mut Self) -> bool) {
        for _ in 0..TRIES {
            if step(self).await {
                return;
            }
        }
        panic!("not even the second time: {what}; {:?}", self.errors);
    }

    async fn next(&mut self) -> Value {
        let event = self.socket.next().await;
        let type_name = event["type"].as_str().unwrap();
        if event["seq"].is_u64() {
            let session = event["sessionId"].as_str().unwrap().to_owned();
            self.shown.entry(session).or_default().push(event.clone());
        }
        match type_name {
            "tool_approve_request" => self.waits = Some(event["toolCallId"].clone()),
            "tool_approval_resolved" => self.waits = None,
            "error" => self.errors.push(event["code"].as_str().unwrap().to_owned()),
            _ => {}
        }
        if let Some(turn) = event["turnId"].as_str()
            && matches!(type_name, "done" | "interrupted" | "error")
        {
            // It may be told before it can be stored.
            self.ends.entry(turn.to_owned()).or_insert(type_name.to_owned());
            self.waits = None;
        }
        event
    }

    /// Asks the session, once more where it was refused, and returns the answer.
    async fn ask(&mut self, type_name: &str, fields: Value, answer: &str) -> Value {
        for _ in 0..TRIES {
            self.socket.send(self.session, type_name, fields.clone()).await;
            loop {
                let event = self.next().await;
                if event["type"] == answer {
                    return event;
                }
                if event["type"] == "error" && event["refType"] == type_name {
                    break;
                }
            }
        }
        panic!("{type_name} was refused twice: {:?}", self.errors);
    }

    /// Calls, once more where it was refused.
    async fn rest(&mut self, method: &str, path: &str, body: Option<Value>) -> Answer {
        let address = self.server.address();
        self.until_taken(path, async || http::call(address, method, path, body.as_ref()).await).await
    }

    /// Calls, once more where it was refused.
    async fn until_taken(&mut self, what: &str, call: impl AsyncFn() -> Answer) -> Answer {
        for _ in 0..TRIES {
            let answer = call().await;
            if answer.status < 400 {
                return answer;
            }
            self.errors.push(answer.refusal().1);
        }
        panic!("{what} was refused twice: {:?}", self.errors);
    }

    /// Sends a message, under the same id where it was refused. Returns its turn.
    async fn post(&mut self, message: &str) -> String {
        self.messages += 1;
        let fields = json!({ "message": message, "clientMessageId": format!("m-{}", self.messages) });
        let stored = self.ask("chat", fields, "user_message").await;
        assert_eq!(stored["message"], message);
        stored["messageId"].as_str().unwrap().to_owned()
    }

    /// Says something until it is answered.
    async fn say(&mut self, message: &str) {
        self.until_done(message, async |walk| {
            let turn = walk.post(message).await;
            walk.follow(&turn).await == "done"
        })
        .await;
    }

    /// Waits until a turn asks; `false`: it ended first.
    async fn asks(&mut self, turn: &str) -> bool {
        while self.waits.is_none() && !self.ends.contains_key(turn) {
            self.next().await;
        }
        self.waits.is_some()
    }

    async fn end(&mut self, turn: &str) -> String {
        while !self.ends.contains_key(turn) {
            self.next().await;
        }
        self.ends[turn].clone()
    }

    /// Approves what is asked until the turn ends; says how it did.
    async fn follow(&mut self, turn: &str) -> String {
        while !self.ends.contains_key(turn) {
            match self.waits.clone() {
                Some(call) => {
                    let approve = json!({ "toolCallId": call, "decision": "approve" });
                    self.ask("tool_approve", approve, "tool_approval_resolved").await;
                }
                None => drop(self.next().await),
            }
        }
        self.ends[turn].clone()
    }
}
