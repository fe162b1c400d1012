//! Which server a command talks to: the one at `--server`, the one that holds the data folder, or its own.
//!
//! One process at a time holds the folder's lock and serves it; the others find its address in `server.json`.
//! A command's own server stays until its last client has left.

mod again;
mod discovery;
mod lock;

use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tns_client::{Client, ClientConfig, ClientError, Events, Reconnect, Rest};
use tns_server::{EngineChoice, ExecHelper, RunningServer, Server, ServerConfig, StartError, StoreError};
use tokio::time::Instant;

use crate::Context;
use crate::args::Globals;
use crate::config::Config;
use crate::data_dir::DataDir;
use crate::exit::{Exit, Stop};
use crate::server::again::{Again, Other};
use crate::server::discovery::{Discovery, Published};
use crate::server::lock::Lock;
use crate::signals::Signals;
use crate::workspace::Folder;

/// Time that the holder of the lock has to say where it listens, or to let go: one that stops takes up to
/// five seconds for the turns that still run.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(6);
/// Pause between two looks; the holder of the lock starts within a few of them.
const DISCOVERY_PAUSE: Duration = Duration::from_millis(20);
/// Time that the server has to see that a command's own connection is closed.
const LEAVING: Duration = Duration::from_millis(200);
/// Threads that serve and wait; one session's turn keeps about one of them busy.
const WORKER_THREADS: usize = 2;

/// What a command's own server is told, should it start one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Launch {
    /// Whose models new agents use.
    pub(crate) provider: Option<String>,
    /// Which model new agents use.
    pub(crate) model: Option<String>,
    /// Which engine it must have.
    pub(crate) engine: EngineNeed,
}

/// Which engine a command needs of its own server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum EngineNeed {
    /// The one that is named or set up.
    #[default]
    Chosen,
    /// Any: the command may be about why the chosen one can't be opened.
    Any,
}

/// The provider of a server whose chosen one can't be opened.
const ANY_PROVIDER: &str = "offline";

/// The server that a command uses.
pub(crate) struct Attached {
    /// Its address.
    pub(crate) url: String,
    /// It was started by this command, as [`Launch`] says.
    pub(crate) launched: bool,
    /// How it is found again; absent where only one address is meant, or where it is this process's own.
    again: Option<Arc<Again>>,
}

/// What a server is to the program that it runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The program's purpose: `tns serve`, which its owner starts and stops.
    StandsAlone,
    /// It serves beside a command, and stays until its last client leaves.
    Beside,
}

impl Attached {
    /// Returns the REST calls.
    ///
    /// # Errors
    /// When the address is none.
    pub(crate) fn rest(&self) -> anyhow::Result<Rest> {
        Ok(Rest::new(&self.url)?)
    }

    /// Opens the chat socket. One that is lost is opened again at the server that has the data folder then.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub(crate) async fn connect(&self, reconnect: Reconnect) -> anyhow::Result<(Client, Events)> {
        self.open(ClientConfig::new(&self.url, reconnect)).await
    }

    /// The same to look at sessions, so that nothing begins in one.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub(crate) async fn watch(&self, reconnect: Reconnect) -> anyhow::Result<(Client, Events)> {
        self.open(ClientConfig { watch: true, ..ClientConfig::new(&self.url, reconnect) }).await
    }

    async fn open(&self, config: ClientConfig) -> anyhow::Result<(Client, Events)> {
        let rediscover = self.again.as_ref().map(Again::rediscover);
        Ok(Client::connect(ClientConfig { rediscover, ..config }).await?)
    }
}

/// Starts the runtime, finds or starts a server, and runs `work`, which minds the signals itself.
///
/// # Errors
/// [`Exit::Unreachable`] when there is no server to be had; the error of `work`.
pub(crate) fn with<T>(
    context: &Context,
    launch: Launch,
    work: impl AsyncFnOnce(&Attached, &mut Signals) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    block_on(async {
        let mut signals = Signals::listen()?;
        let (attached, owned) = attach(context, launch).await?;
        let result = work(&attached, &mut signals).await;
        let begun = attached.again.as_ref().and_then(|again| again.take_owned());
        if let Some(owned) = owned.or(begun) {
            owned.outlive_clients(context, &mut signals).await;
        }
        result
    })
}

/// As [`with`], for work that a signal may cut at any point.
///
/// # Errors
/// As [`with`], and [`Exit::Interrupted`].
pub(crate) fn with_interruptible<T>(
    context: &Context,
    work: impl AsyncFnOnce(&Attached) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    interruptible(context, Launch::default(), work)
}

/// As [`with_interruptible`], with a say in the command's own server.
///
/// # Errors
/// As [`with_interruptible`].
pub(crate) fn interruptible<T>(
    context: &Context,
    launch: Launch,
    work: impl AsyncFnOnce(&Attached) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    with(context, launch, async |attached, signals| {
        let work = pin!(work(attached));
        tokio::select! {
            result = work => result,
            () = signals.next() => Err(Stop::silent(Exit::Interrupted).into()),
        }
    })
}

/// Runs a command's asynchronous part to its end.
///
/// # Errors
/// When the runtime can't be built; the error of `work`.
pub(crate) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .enable_all()
        .build()
        .context("start the runtime")?;
    // Boxed: a command's state is large and stands on the main thread's stack otherwise.
    let result = runtime.block_on(Box::pin(work));
    // A blocking call that hangs in the system must not keep the program from ending.
    runtime.shutdown_background();
    result
}

async fn attach(context: &Context, launch: Launch) -> anyhow::Result<(Attached, Option<Owned>)> {
    if let Some(url) = &context.globals.server {
        check_address(url)?;
        return Ok((Attached { url: url.clone(), launched: false, again: None }, None));
    }
    let dir = DataDir::open(context.globals.data_dir.as_deref())?;
    match find(&dir).await? {
        Found::Free(lock) => {
            let need = launch.engine;
            let config = in_process(&context.globals, &dir, launch)?;
            let owned = match Owned::start(&dir, lock, config, Kind::Beside).await {
                Err(error) if need == EngineNeed::Any && crate::exit::of(&error) == Exit::Usage => {
                    let launch = Launch { provider: Some(ANY_PROVIDER.into()), ..Launch::default() };
                    return Box::pin(attach(context, launch)).await;
                }
                started => started?,
            };
            let attached = Attached { url: owned.url().to_owned(), launched: true, again: None };
            Ok((attached, Some(owned)))
        }
        Found::Served { url, other } => {
            note_other_limits(context, &url).await?;
            let again = Some(Again::new(dir, context.globals.clone(), launch, other));
            Ok((Attached { url, launched: false, again }, None))
        }
    }
}

/// Says so where this command's spending limits are not those of the server that it joins.
async fn note_other_limits(context: &Context, url: &str) -> anyhow::Result<()> {
    let wanted = Config::load(&context.globals, EngineChoice::default())?.limits();
    if wanted == (None, None) {
        return Ok(());
    }
    // A server that does not tell is one that keeps its own.
    let told = Rest::new(url)?.usage(None, None).await.ok();
    let holds = told.is_some_and(|report| (report.limits.daily, report.limits.session) == wanted);
    if !holds {
        context.out.warn(
            "another command's server is used, and the spending limits set here do not hold there; stop it first \
             where they should",
        );
    }
    Ok(())
}

/// Tells a wrong --server from a server that is not there.
fn check_address(url: &str) -> Result<(), Stop> {
    match Rest::new(url) {
        Ok(_) => Ok(()),
        Err(ClientError::Unreachable(why)) => Err(Stop::usage(format!("--server {why}"))),
        Err(error) => Err(Stop::usage(format!("--server {url}: {error}"))),
    }
}

/// Who has a data folder.
enum Found {
    /// Nobody had it: this process has it now.
    Free(Lock),
    /// A server that takes connections, and is kept from leaving.
    Served { url: String, other: Other },
}

/// Looks until the folder is free or its server answers.
async fn find(dir: &DataDir) -> anyhow::Result<Found> {
    let deadline = Instant::now() + DISCOVERY_TIMEOUT;
    loop {
        if let Some(lock) = Lock::take(dir)? {
            return Ok(Found::Free(lock));
        }
        let found = Discovery::read(dir);
        if let Some(found) = &found
            && found.answers().await
        {
            let config = ClientConfig::new(&found.url, Reconnect::Never);
            // A server that is just stopping refuses, and soon lets go of the lock.
            if let Ok(Ok(presence)) = tokio::time::timeout_at(deadline, Client::connect(config)).await {
                let kind = if found.stands_alone { Kind::StandsAlone } else { Kind::Beside };
                let other = Other { kind, _presence: presence };
                return Ok(Found::Served { url: found.url.clone(), other });
            }
        }
        if Instant::now() >= deadline {
            return Err(unanswered(dir, found.as_ref()).into());
        }
        tokio::time::sleep(DISCOVERY_PAUSE).await;
    }
}

fn unanswered(dir: &DataDir, found: Option<&Discovery>) -> Stop {
    let path = dir.path().display();
    let message = match found {
        Some(found) => format!(
            "process {} holds the data folder {path} but does not answer at {}; stop it, or choose another folder with --data-dir",
            found.pid, found.url
        ),
        None => match Lock::holder(dir) {
            Some(pid) => format!(
                "process {pid} holds the data folder {path} but does not say where it listens; stop it, or choose another folder with --data-dir"
            ),
            None => format!(
                "another process holds the data folder {path} but does not say where it listens; choose another folder with --data-dir"
            ),
        },
    };
    Stop::new(Exit::Unreachable, message)
}

fn in_process(globals: &Globals, dir: &DataDir, launch: Launch) -> anyhow::Result<ServerConfig> {
    let flag = EngineChoice { provider: launch.provider, model: launch.model };
    let settings = Config::load(globals, flag)?;
    let root = Folder::current()?.path().to_owned();
    // A free port, and no idle time-out: it ends with its last client, not with the clock.
    let config = ServerConfig::new(dir.path().to_owned(), root, exec_helper()?);
    Ok(settings.apply(config))
}

/// Who has a data folder, as one who only looks can tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    /// Its process, where its files say so.
    pub(crate) pid: Option<u32>,
    /// Its address, where its files say so.
    pub(crate) url: Option<String>,
    /// Somebody takes connections there.
    pub(crate) answers: bool,
}

impl Holder {
    /// Looks who has the folder; `None`: nobody. Changes nothing in it.
    pub(crate) async fn of(folder: &Path) -> Option<Self> {
        if !lock::is_held(folder) {
            return None;
        }
        let found = Discovery::read_in(folder);
        let answers = match &found {
            Some(found) => found.answers().await,
            None => false,
        };
        let pid = found.as_ref().map(|found| found.pid).or_else(|| Lock::holder_in(folder));
        Some(Self { pid, url: found.map(|found| found.url), answers })
    }
}

/// Returns how the server starts this program again to confine a tool.
///
/// # Errors
/// When the program's own file can't be found.
pub(crate) fn exec_helper() -> anyhow::Result<ExecHelper> {
    let program = std::env::current_exe().context("find the tns program itself")?;
    Ok(ExecHelper { program, args: vec![crate::EXEC_HELPER.into()] })
}

/// The server's database in the data folder, named where it can't be used.
const DATABASE: &str = "tns.db";

/// A server that did not start, told as it stands.
fn not_started(dir: &DataDir, error: &StartError) -> Stop {
    let exit = match error {
        StartError::NotLoopback(_) | StartError::Folder(..) | StartError::Engine(_) => Exit::Usage,
        StartError::PortTaken(_) | StartError::Listen(..) | StartError::Store(_) => Exit::Unreachable,
    };
    let message = match error {
        // Damaged, or another program's.
        StartError::Store(store @ (StoreError::Failed(_) | StoreError::Damaged(_))) => format!(
            "{store}; its file is {}: move it away to begin with an empty one, or choose another folder with --data-dir",
            dir.file(DATABASE).display()
        ),
        _ => error.to_string(),
    };
    Stop::new(exit, message)
}

/// A server of this process, with the lock and the address that others find.
pub(crate) struct Owned {
    running: RunningServer,
    published: Published,
    /// Let go last: the next holder finds the folder at rest.
    lock: Lock,
}

impl Owned {
    /// Starts the server and publishes its address.
    ///
    /// # Errors
    /// What the server says; what the system says about the data folder.
    pub(crate) async fn start(
        dir: &DataDir,
        lock: Lock,
        config: ServerConfig,
        kind: Kind,
    ) -> anyhow::Result<Self> {
        Discovery::forget(dir)?;
        let running = Server::start(config).await.map_err(|error| not_started(dir, &error))?;
        match Discovery::of(running.url(), kind == Kind::StandsAlone).publish(dir) {
            Ok(published) => Ok(Self { running, published, lock }),
            Err(error) => {
                running.shutdown().await;
                Err(error)
            }
        }
    }

    /// Takes the data folder for a server of this process.
    ///
    /// # Errors
    /// [`Exit::Unreachable`] with the holder's address when another process has it.
    pub(crate) fn lock(dir: &DataDir) -> anyhow::Result<Lock> {
        if let Some(lock) = Lock::take(dir)? {
            return Ok(lock);
        }
        let path = dir.path().display();
        let message = match Discovery::read(dir) {
            Some(found) => format!(
                "process {} serves {path} already at {}; use it with --server {}, or choose another folder with --data-dir",
                found.pid, found.url, found.url
            ),
            None => format!("another process serves {path} already; choose another folder with --data-dir"),
        };
        Err(Stop::new(Exit::Unreachable, message).into())
    }

    /// Returns the server's address.
    pub(crate) fn url(&self) -> &str {
        self.running.url()
    }

    /// Returns the server.
    pub(crate) fn running(&self) -> &RunningServer {
        &self.running
    }

    /// Lets running turns end for up to five seconds, then stops. A signal stops at once.
    pub(crate) async fn drain(self, signals: &mut Signals) {
        // Nobody new finds the server from here on.
        drop(self.published);
        tokio::select! {
            () = self.running.shutdown() => {}
            () = signals.next() => {}
        }
        drop(self.lock);
    }

    /// Waits until no client is left, then stops. A signal ends the waiting.
    async fn outlive_clients(self, context: &Context, signals: &mut Signals) {
        let mut connections = self.running.connections();
        if tokio::time::timeout(LEAVING, connections.wait_for(|count| *count == 0)).await.is_err() {
            context
                .out
                .warn("other terminals use this server; it stops with the last of them, or with Ctrl-C");
        }
        while !self.running.close_if_unused() {
            tokio::select! {
                _ = connections.wait_for(|count| *count == 0) => {}
                () = signals.next() => break,
            }
        }
        drop(connections);
        self.drain(signals).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longest that a server takes to stop.
    const SHUTDOWN: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn a_folder_is_taken_as_soon_as_a_server_that_stops_lets_go_of_it() {
        let parent = tempfile::tempdir().unwrap();
        let dir = DataDir::open(Some(&parent.path().join("data"))).unwrap();
        let lock = Lock::take(&dir).unwrap().unwrap();
        let begun = Instant::now();
        let stopping = async {
            tokio::time::sleep(SHUTDOWN).await;
            drop(lock);
        };
        let (found, ()) = tokio::join!(find(&dir), stopping);
        assert!(matches!(found.unwrap(), Found::Free(_)));
        assert!(begun.elapsed() <= SHUTDOWN + 2 * DISCOVERY_PAUSE, "{:?}", begun.elapsed());
    }

    #[test]
    fn a_wrong_address_is_wrong_usage() {
        for url in ["garbage", "https://h", "http://h:1/chat"] {
            let stop = check_address(url).unwrap_err();
            assert!(stop.to_string().starts_with(&format!("--server {url} ")), "{stop}");
            assert_eq!(crate::exit::of(&stop.into()), Exit::Usage);
        }
        assert!(check_address("http://127.0.0.1:1").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_holder_that_says_nothing_is_named() {
        let parent = tempfile::tempdir().unwrap();
        let dir = DataDir::open(Some(&parent.path().join("data"))).unwrap();
        let _lock = Lock::take(&dir).unwrap().unwrap();
        let Err(error) = find(&dir).await else { panic!("the folder is held") };
        let holder = format!("process {}", std::process::id());
        assert!(error.to_string().contains(&holder), "{error}");
    }
}
