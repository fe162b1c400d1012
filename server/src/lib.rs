//! The server: builds store, engines, tools, knowledge and sessions, and puts the faces before them.
//!
//! The composition root. Whoever starts it gives it everything through [`ServerConfig`] and holds a
//! [`RunningServer`]; any program can, so that one command works without a server running. It prints
//! nothing and reads no environment. The lock on the data folder is the caller's.

mod config;
mod gateway;
mod retention;
mod transfer;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tns_protocol::Timestamp;
use tns_server_core::engine::Engines;
use tns_server_core::memory::MemoryStore;
use tns_server_core::recovery;
use tns_server_core::session::SessionDeps;
use tns_server_core::session::hub::Hub;
use tns_server_core::spend::{Ledger, SpendLimits};
use tns_server_core::store::{DocumentStore, Knowledge, Store};
use tns_server_core::tool::Tool;
use tns_server_engines::{DefaultEngine, EngineRegistry};
use tns_server_knowledge::KnowledgeEngine;
use tns_server_tools::{SchemaCheck, ToolsConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use config::{DEFAULT_PORT, ServerConfig};
pub use gateway::EngineLabel;
use gateway::{Acceptor, Door, Gateway, Peer};
pub use tns_server_core::engine::{EngineChoice, EngineErrorKind, OpenError, Pricing};
pub use tns_server_core::session::Titles;
pub use tns_server_core::store::StoreError;
pub use tns_server_core::turn::TurnLimits;
pub use tns_server_engines::{
    Catalogue, CatalogueError, EngineConfig, FileChoice, FileSettings, GgufError, GgufHeader,
    InvalidModelName, KeyStore, LayerBytes, ModelFile, ModelFiles, ModelName, ModelPrice, Origin, PROVIDERS,
    Price, Provider, ProviderOverrides, PullError, PullStatus, RUNS_LOCAL_MODELS, Sourced, StoredKeys,
    base_url_variable, key_variable, pull_into_ollama,
};
pub use tns_server_store::{Inspection, Pages};
pub use tns_server_tools::{DEFAULT_SHELL_LIMIT, ExecHelper, exec_helper};

/// The database's name in the data folder.
const DATABASE: &str = "tns.db";
/// The knowledge index's name in the data folder; a cache.
const INDEX: &str = "index";
/// How long running turns may go on after the server was told to stop.
const DRAIN: Duration = Duration::from_secs(3);
/// How long what is left may take after that.
const LAST_CALL: Duration = Duration::from_millis(1_500);
/// Free ports that are tried until one is free on both loopback addresses.
const PORT_TRIES: usize = 8;

/// Returns the page that describes the REST face, as `/api/openapi.json` gives it.
pub fn openapi() -> serde_json::Value {
    gateway::openapi()
}

/// A server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is not a loopback one.
    #[error(
        "{0} is not a loopback address: this server has no tokens yet, so it serves only this machine; use 127.0.0.1"
    )]
    NotLoopback(IpAddr),
    /// Another program has the port.
    #[error(
        "port {0} is taken; choose another with --port, or 0 for a free one; if a tns server has it, use it with \
         --server http://127.0.0.1:{0}"
    )]
    PortTaken(u16),
    /// Listening failed.
    #[error("listen on {0}: {1}")]
    Listen(SocketAddr, io::Error),
    /// A root or the data folder is not there.
    #[error("folder {0}: {1}")]
    Folder(PathBuf, io::Error),
    /// The store could not be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The named engine can't be opened.
    #[error(transparent)]
    Engine(#[from] OpenError),
}

/// A server that may be started.
#[derive(Debug)]
pub struct Server;

/// A server that runs. Dropping it stops it at once, as a crash would: nothing stored is lost.
pub struct RunningServer {
    gateway: Arc<Gateway>,
    acceptor: Acceptor,
    url: String,
    idle_timeout: Option<Duration>,
    /// The accept loops.
    tasks: JoinSet<()>,
}

/// The parts behind a server's faces. Tests put scripted engines in.
pub struct Parts {
    /// Where logs are kept.
    pub store: Arc<dyn Store>,
    /// Where documents are read.
    pub documents: Arc<dyn DocumentStore>,
    /// What finds passages.
    pub knowledge: Arc<dyn Knowledge>,
    /// What makes engines.
    pub engines: Arc<dyn Engines>,
    /// The engine of new agents.
    pub engine: EngineLabel,
    /// What can be known of providers.
    pub catalogue: Arc<Catalogue>,
    /// Offered to agents beside the built-in tools.
    pub tools: Vec<Arc<dyn Tool>>,
}

impl Server {
    /// Opens the data folder, ends turns that a crash left open, chooses the engine and listens.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left running.
    pub async fn start(config: ServerConfig) -> Result<RunningServer, StartError> {
        let listeners = listen(&config).await?;
        let database = config.data_dir.join(DATABASE);
        let opening = tokio::task::spawn_blocking(move || tns_server_store::open(&database));
        let (engines, engine, catalogue) = engines(&config).await?;
        let store = opening.await.map_err(|error| StoreError::Failed(error.to_string()))??;
        let store = Arc::new(store);
        let knowledge = KnowledgeEngine::open(Some(&config.data_dir.join(INDEX)), store.clone());
        let knowledge = Arc::new(knowledge);
        let tools = Vec::new();
        let parts =
            Parts { store: store.clone(), documents: store, knowledge, engines, engine, catalogue, tools };
        let data_dir = canonical(&config.data_dir).await?;
        Self::serve_on(listeners, config, parts, Some(data_dir)).await
    }

    /// Starts a server over given parts; the data folder is not used.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left running.
    pub async fn start_with(config: ServerConfig, parts: Parts) -> Result<RunningServer, StartError> {
        let listeners = listen(&config).await?;
        Self::serve_on(listeners, config, parts, None).await
    }

    /// Starts a server over given parts that listens nowhere: it serves what [`RunningServer::serve_own`] is
    /// handed. It goes by the configuration's address, which clients name and nobody binds; the data folder is
    /// not used.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left running.
    pub async fn start_unbound(config: ServerConfig, parts: Parts) -> Result<RunningServer, StartError> {
        let address = SocketAddr::new(config.bind, config.port);
        Self::serve(address, config, parts, None).await
    }

    async fn serve_on(
        listeners: Vec<TcpListener>,
        config: ServerConfig,
        parts: Parts,
        data_dir: Option<PathBuf>,
    ) -> Result<RunningServer, StartError> {
        let address = listeners[0]
            .local_addr()
            .map_err(|error| StartError::Listen(SocketAddr::new(config.bind, config.port), error))?;
        let mut running = Self::serve(address, config, parts, data_dir).await?;
        for listener in listeners {
            running.tasks.spawn(running.acceptor.clone().run(listener));
        }
        Ok(running)
    }

    async fn serve(
        address: SocketAddr,
        config: ServerConfig,
        parts: Parts,
        data_dir: Option<PathBuf>,
    ) -> Result<RunningServer, StartError> {
        let ended = recovery::end_open_turns(parts.store.as_ref()).await?;
        if ended > 0 {
            tracing::warn!(turns = ended, "turns that a crash left open were ended");
        }
        let spend = SpendLimits { daily: config.spend_daily, session: config.spend_session };
        let ledger = Ledger::open(parts.store.as_ref(), spend, Arc::new(Timestamp::now)).await?;
        let mut roots = Vec::with_capacity(config.roots.len());
        for root in &config.roots {
            roots.push(canonical(root).await?);
        }
        let tools = ToolsConfig {
            shell_limit: config.shell_limit,
            control_port: Some(address.port()),
            data_dir,
            ..ToolsConfig::new(config.exec_helper)
        };
        let mut tools: Vec<Arc<dyn Tool>> = tns_server_tools::builtin(tools);
        tools.extend(parts.tools);
        let deps = SessionDeps {
            store: parts.store,
            documents: parts.documents,
            knowledge: parts.knowledge,
            engines: parts.engines,
            tools: tools.into(),
            arguments: Arc::new(SchemaCheck),
            limits: config.limits,
            titles: config.titles,
            ledger,
            lasting: None,
            unsandboxed: config.unsandboxed,
            hub: Hub::default(),
            temporary,
        };
        let gateway = Arc::new(Gateway::new(deps, roots, parts.engine, parts.catalogue));
        let acceptor = Acceptor::new(gateway::router(gateway.clone(), Door::new(address.port())));
        let mut tasks = JoinSet::new();
        if let Some(keep) = config.retention {
            tasks.spawn(retention::run(gateway.clone(), keep));
        }
        Ok(RunningServer {
            gateway,
            acceptor,
            url: format!("http://{address}"),
            idle_timeout: config.idle_timeout,
            tasks,
        })
    }
}

impl RunningServer {
    /// Returns where the server listens: `http://HOST:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Serves a connection whose other end is a program of the server's own user. Whoever hands it over answers
    /// for that; on the server's own listeners the kernel is asked.
    pub fn serve_own<S>(&self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        self.acceptor.take(stream, std::future::ready(Some(Peer::Own)));
    }

    /// Returns the engine of new agents.
    pub fn engine(&self) -> &EngineLabel {
        &self.gateway.engine
    }

    /// Returns the number of `/chat` connections, now and as it changes.
    pub fn connections(&self) -> watch::Receiver<usize> {
        self.gateway.connections.subscribe()
    }

    /// Waits until nothing happened for the idle time-out; without one, for ever.
    pub async fn idle(&self) {
        let Some(limit) = self.idle_timeout else { return std::future::pending().await };
        loop {
            let idle = self.gateway.idle_for();
            if idle >= limit {
                return;
            }
            tokio::time::sleep(limit - idle).await;
        }
    }

    /// Takes no more `/chat` connections if none is open, and says whether that is so. One that comes at the
    /// same moment is either counted or refused.
    pub fn close_if_unused(&self) -> bool {
        self.gateway.draining.store(true, Ordering::SeqCst);
        let unused = *self.gateway.connections.borrow() == 0;
        if !unused {
            self.gateway.draining.store(false, Ordering::SeqCst);
        }
        unused
    }

    /// Takes no new connections, lets running turns end for a short while, cancels the rest, and stores
    /// their ends. Takes at most five seconds.
    pub async fn shutdown(mut self) {
        self.gateway.draining.store(true, Ordering::Relaxed);
        let drained = async {
            while self.gateway.registry.turns() > 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        // A turn that is not done by then is cancelled.
        let _ = tokio::time::timeout(DRAIN, drained).await;
        let last = async {
            self.gateway.registry.shutdown().await;
            // Connections to `/chat` left the acceptor's sight when they were upgraded. What their turns said
            // at the end is still written to them.
            self.gateway.closing.cancel();
            let mut connections = self.gateway.connections.subscribe();
            // Let go at once: what is waited for holds the count's lock, which a connection that still comes needs.
            let closed = async { drop(connections.wait_for(|count| *count == 0).await) };
            tokio::join!(closed, self.acceptor.stop());
        };
        // A connection that does not close in time is dropped.
        let _ = tokio::time::timeout(LAST_CALL, last).await;
        self.tasks.abort_all();
    }
}

/// What temporary sessions share: the same, over a store in memory.
fn temporary(deps: &SessionDeps) -> SessionDeps {
    let store = Arc::new(MemoryStore::new());
    let knowledge = Arc::new(KnowledgeEngine::open(None, store.clone()));
    let lasting = Some(deps.store.clone());
    SessionDeps { store: store.clone(), documents: store, knowledge, lasting, ..deps.clone() }
}

async fn canonical(folder: &Path) -> Result<PathBuf, StartError> {
    tokio::fs::canonicalize(folder).await.map_err(|error| StartError::Folder(folder.to_owned(), error))
}

async fn engines(
    config: &ServerConfig,
) -> Result<(Arc<dyn Engines>, EngineLabel, Arc<Catalogue>), StartError> {
    let mut engines = config.engines.clone();
    engines.local.files = Some(ModelFiles::of(&config.data_dir));
    let catalogue = Catalogue::new(engines.clone());
    let registry = EngineRegistry::new(engines);
    let label = label(&registry).await?;
    Ok((Arc::new(registry), label, Arc::new(catalogue)))
}

async fn label(registry: &EngineRegistry) -> Result<EngineLabel, OpenError> {
    let DefaultEngine { provider, model, reason, pricing } = registry.choose().await?;
    Ok(EngineLabel { provider, model, reason, pricing })
}

/// Says which engine a server with this configuration would give new agents, without starting one.
///
/// # Errors
/// [`OpenError`] when what is named or configured can't be opened.
pub async fn choose_engine(config: &EngineConfig) -> Result<EngineLabel, OpenError> {
    label(&EngineRegistry::new(config.clone())).await
}

/// Looks over the store of a data folder for at most about `limit`, without changing it; a server may be
/// using it. `None`: there is none yet. Blocks.
///
/// # Errors
/// [`StoreError`] when it can't be opened.
pub fn inspect_store(data_dir: &Path, limit: Duration) -> Result<Option<Inspection>, StoreError> {
    let database = data_dir.join(DATABASE);
    match database.try_exists() {
        Ok(false) => Ok(None),
        Ok(true) | Err(_) => tns_server_store::inspect(&database, limit).map(Some),
    }
}

/// Listens on the bind address; for 127.0.0.1 also on ::1 of the same port, where there is one.
async fn listen(config: &ServerConfig) -> Result<Vec<TcpListener>, StartError> {
    if !config.bind.is_loopback() {
        return Err(StartError::NotLoopback(config.bind));
    }
    let address = SocketAddr::new(config.bind, config.port);
    let twin = config.bind == IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut tries = PORT_TRIES;
    loop {
        let listener = TcpListener::bind(address).await.map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => StartError::PortTaken(config.port),
            _ => StartError::Listen(address, error),
        })?;
        let port = listener.local_addr().map_err(|error| StartError::Listen(address, error))?.port();
        if !twin {
            return Ok(vec![listener]);
        }
        tries -= 1;
        match TcpListener::bind((Ipv6Addr::LOCALHOST, port)).await {
            Ok(other) => return Ok(vec![listener, other]),
            // Somebody else has the port there: with a free choice, choose again.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && config.port == 0 && tries > 0 => {}
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && config.port != 0 => {
                return Err(StartError::PortTaken(config.port));
            }
            // No IPv6 here.
            Err(_) => return Ok(vec![listener]),
        }
    }
}
