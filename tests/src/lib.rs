//! What the tests share: a real server with a scripted engine, a bare socket that sends and expects
//! JSON, plain HTTP, local model servers, and the suite that every store passes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "this crate is test code")]

pub mod downloads;
pub mod event_stream;
pub mod http;
pub mod provider;
pub mod relay;
pub mod secret_service;
pub mod socket;
pub mod standin;
pub mod store_suite;
pub mod troubled_store;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use tns_client::Rest;
use tns_protocol::SessionId;
use tns_server::{
    EngineLabel, ExecHelper, Parts, Pricing, RunningServer, Server, ServerConfig, Titles, TurnLimits,
};
use tns_server_core::engine::{Engines, StepRequest};
use tns_server_core::memory::MemoryStore;
use tns_server_core::message::{Note, Part, ToolResult};
use tns_server_core::scripted::{SCRIPTED, Script, ScriptedEngines};
use tns_server_core::store::{DocumentStore, Store};
use tns_server_engines::{Catalogue, EngineConfig};
use tns_server_knowledge::KnowledgeEngine;
use tokio::net::TcpSocket;

pub use socket::Socket;

/// How a test's server is set up. Servers of one set-up share its store and its folder.
#[derive(Clone)]
pub struct Setup {
    /// What its engine plays.
    pub script: Script,
    /// What it stores in, to look at or to start another server over.
    pub store: Arc<MemoryStore>,
    /// The folder that its tools work in, removed with the last one who holds it.
    pub workspace: Arc<TempDir>,
    /// FULL_AUTO may be set.
    pub unsandboxed: bool,
    /// What a turn may use.
    pub limits: TurnLimits,
    /// Who writes titles.
    pub titles: Titles,
    /// Most dollars of a day, and of a session.
    pub spend: (Option<f64>, Option<f64>),
    /// Sessions that nobody used for so long are erased.
    pub retention: Option<Duration>,
    /// Providers that may be named beside the default.
    pub known_providers: &'static [&'static str],
    /// What can be known of providers; none is set up by default.
    pub catalogue: Arc<Catalogue>,
    /// The program that runs shell commands.
    pub exec_helper: PathBuf,
}

/// An address of this machine where nothing listens, held so that nothing else comes to listen there.
pub struct Nobody(TcpSocket);

impl Nobody {
    /// Takes a free port.
    pub fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        Self(socket)
    }

    /// Returns where nobody answers.
    pub fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }
}

impl Default for Nobody {
    fn default() -> Self {
        Self::new()
    }
}

impl Setup {
    /// Makes a set-up whose engine plays `script`.
    pub fn new(exec_helper: &str, script: Script) -> Self {
        Self {
            script,
            store: Arc::new(MemoryStore::new()),
            workspace: Arc::new(TempDir::new().unwrap()),
            unsandboxed: true,
            limits: TurnLimits::default(),
            // A model's title is a call of its own.
            titles: Titles::FirstMessage,
            spend: (None, None),
            retention: None,
            known_providers: &["ollama"],
            catalogue: Arc::new(Catalogue::new(EngineConfig::from_env(|_| None))),
            exec_helper: PathBuf::from(exec_helper),
        }
    }
}

/// A real server on a free port of loopback.
pub struct TestServer {
    running: Option<RunningServer>,
    url: String,
    workspace: Arc<TempDir>,
}

impl TestServer {
    /// Starts a server with a scripted engine.
    pub async fn start(setup: &Setup) -> Self {
        Self::start_over(setup, setup.store.clone(), setup.store.clone()).await
    }

    /// Starts a server with a scripted engine over a given store.
    pub async fn start_over(setup: &Setup, store: Arc<dyn Store>, documents: Arc<dyn DocumentStore>) -> Self {
        let engines = Arc::new(ScriptedEngines::new(setup.script.clone(), setup.known_providers));
        Self::start_parts(setup, store, documents, engines, SCRIPTED).await
    }

    /// Starts a server with given engines; `provider` is the default one's name.
    pub async fn start_engines(setup: &Setup, engines: Arc<dyn Engines>, provider: &str) -> Self {
        Self::start_parts(setup, setup.store.clone(), setup.store.clone(), engines, provider).await
    }

    /// Starts a server with given engines over a given store.
    pub async fn start_parts(
        setup: &Setup,
        store: Arc<dyn Store>,
        documents: Arc<dyn DocumentStore>,
        engines: Arc<dyn Engines>,
        provider: &str,
    ) -> Self {
        let parts = Parts {
            store,
            knowledge: Arc::new(KnowledgeEngine::open(None, documents.clone())),
            documents,
            engines,
            engine: EngineLabel {
                provider: provider.into(),
                model: "script".into(),
                reason: "a test".into(),
                pricing: Pricing::Free,
            },
            catalogue: setup.catalogue.clone(),
            tools: Vec::new(),
        };
        let workspace = setup.workspace.clone();
        let helper = ExecHelper { program: setup.exec_helper.clone(), args: Vec::new() };
        let mut config = ServerConfig::new(workspace.path().into(), workspace.path().into(), helper);
        config.unsandboxed = setup.unsandboxed;
        config.limits = setup.limits.clone();
        config.titles = setup.titles;
        (config.spend_daily, config.spend_session) = setup.spend;
        config.retention = setup.retention;
        let running = Server::start_with(config, parts).await.unwrap();
        Self { url: running.url().to_owned(), running: Some(running), workspace }
    }

    /// Returns where it listens: `http://HOST:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns `HOST:PORT`.
    pub fn address(&self) -> &str {
        self.url.strip_prefix("http://").unwrap()
    }

    /// Returns the folder that its tools work in.
    pub fn workspace(&self) -> &Path {
        self.workspace.path()
    }

    /// Returns the running server.
    pub fn running(&self) -> &RunningServer {
        self.running.as_ref().unwrap()
    }

    /// Opens a bare `/chat` socket.
    pub async fn socket(&self) -> Socket {
        Socket::connect(self.address()).await
    }

    /// Opens a socket that has said hello in a session, so that it is sent every event.
    pub async fn extended(&self, session: &str) -> Socket {
        let mut socket = self.socket().await;
        socket.send(session, "hello", json!({ "ext": ["events.1"] })).await;
        socket.expect("welcome").await;
        socket
    }

    /// Returns the REST calls.
    pub fn rest(&self) -> Rest {
        Rest::new(&self.url).unwrap()
    }

    /// Stops it in order.
    pub async fn stop(mut self) {
        self.running.take().unwrap().shutdown().await;
    }
}

/// Makes a session id.
pub fn session(id: &str) -> SessionId {
    SessionId::parse(id).unwrap()
}

/// Returns the tool results that a model was shown, oldest first.
pub fn results(request: &StepRequest) -> Vec<&ToolResult> {
    let parts = request.messages.iter().flat_map(|message| &message.parts);
    parts
        .filter_map(|part| match part {
            Part::ToolResult(result) => Some(result),
            Part::Text(_) | Part::Image(_) | Part::ToolCall(_) | Part::Note(_) => None,
        })
        .collect()
}

/// Returns the notes that a model was shown, oldest first.
pub fn notes(request: &StepRequest) -> Vec<&Note> {
    let parts = request.messages.iter().flat_map(|message| &message.parts);
    parts
        .filter_map(|part| match part {
            Part::Note(note) => Some(note),
            Part::Text(_) | Part::Image(_) | Part::ToolCall(_) | Part::ToolResult(_) => None,
        })
        .collect()
}
