//! All sessions of a server: finds, makes and loads them, one task each.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tns_protocol::approval::AutonomyLevel;
use tns_protocol::{Seq, SessionId};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::actor::{Actor, Lifetime};
use super::fork::{self, Fold};
use super::{Letter, MAILBOX, SessionCommand, SessionDeps, SessionHandle, SessionIdentity};
use crate::agent::{Agent, NewAgent};
use crate::engine::{EngineChoice, OpenError};
use crate::event::{Answer, Log};
use crate::history::{self, Range};
use crate::store::{NewSession, SessionRecord, SessionState, StoreError};
use crate::tool::Workspace;

/// Role of the agent that a new session begins with.
const FIRST_AGENT_ROLE: &str = "assistant";
/// Sessions that left their place in the map; more → the map is swept.
const SWEEP_EVERY: usize = 256;

/// All sessions of a server.
pub struct Registry {
    deps: SessionDeps,
    /// What temporary sessions share, made with the first of them.
    temporary: OnceLock<SessionDeps>,
    places: Mutex<Places>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
    turns: Arc<AtomicUsize>,
}

type Key = (String, SessionId);
/// The lock is held while a session is loaded, so that two connections never load it twice.
pub(super) type Place = Arc<tokio::sync::Mutex<Option<WeakHandle>>>;

#[derive(Default)]
struct Places {
    map: HashMap<Key, Place>,
    since_sweep: usize,
}

/// Finds a session's handle again while it lives.
#[derive(Clone)]
pub(crate) struct WeakHandle {
    commands: mpsc::WeakSender<Letter>,
    identity: Arc<SessionIdentity>,
    log: Log,
    lifetime: Lifetime,
}

impl WeakHandle {
    pub(crate) fn upgrade(&self) -> Option<SessionHandle> {
        let commands = self.commands.upgrade()?;
        // A session that was deleted takes no more, though somebody may hold a handle.
        let open = !commands.is_closed();
        let (identity, log, lifetime) = (self.identity.clone(), self.log.clone(), self.lifetime);
        open.then_some(SessionHandle { commands, identity, log, lifetime })
    }
}

/// What ties a session's task to its registry.
pub(crate) struct Ends {
    /// Fires when the server stops.
    pub(crate) shutdown: CancellationToken,
    /// Counts the turns that run.
    pub(crate) turns: Arc<AtomicUsize>,
    /// How long the session is kept.
    pub(crate) lifetime: Lifetime,
}

/// What a new session begins with.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionStart {
    /// Its title.
    pub title: Option<String>,
    /// Where its tools work: absolute and canonical.
    pub workspace: PathBuf,
    /// It lives in memory only, is in no list, and is gone a minute after its last client left.
    pub temporary: bool,
    /// Most that it may spend, in US dollars.
    pub budget: Option<f64>,
}

/// A session could not be found, made or loaded.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The store's reason.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The default engine can't be opened.
    #[error(transparent)]
    Engine(#[from] OpenError),
    /// A fork must begin where no turn runs or waits.
    #[error("a turn has not ended at {at_seq}; {}", places(*.before, *.after))]
    OpenTurn {
        /// The place that was named.
        at_seq: Seq,
        /// The nearest place before, at which every turn has ended.
        before: Option<Seq>,
        /// The nearest place behind, at which every turn has ended.
        after: Option<Seq>,
    },
    /// The log ends before the place.
    #[error("the log ends at {head_seq}, before {at_seq}")]
    BeyondLog {
        /// The place that was named.
        at_seq: Seq,
        /// The log's last place.
        head_seq: Seq,
    },
    /// Another session has the id.
    #[error("there is a session {0} already; name another")]
    Exists(SessionId),
    /// An event that no session may have; the text says why.
    #[error("{0}")]
    NotTakenIn(String),
}

impl Registry {
    /// Makes a registry without sessions.
    pub fn new(deps: SessionDeps) -> Self {
        Self {
            deps,
            temporary: OnceLock::new(),
            places: Mutex::default(),
            tasks: TaskTracker::new(),
            shutdown: CancellationToken::new(),
            turns: Arc::default(),
        }
    }

    /// Finds a session; never makes one.
    ///
    /// # Errors
    /// The store's reason.
    pub async fn find(
        &self,
        principal: &str,
        id: &SessionId,
    ) -> Result<Option<SessionHandle>, RegistryError> {
        let place = self.place(principal, id);
        let mut place = place.lock().await;
        if let Some(handle) = place.as_ref().and_then(WeakHandle::upgrade) {
            return Ok(Some(handle));
        }
        let Some(record) = self.deps.store.find_session(principal, id).await? else { return Ok(None) };
        Ok(Some(self.launch(&mut place, record, Lifetime::Kept)))
    }

    /// Finds a session or makes it; the flag says whether it was made.
    ///
    /// # Errors
    /// The store's reason, or that the default engine can't be opened.
    pub async fn find_or_create(
        &self,
        principal: &str,
        id: &SessionId,
        start: &SessionStart,
    ) -> Result<(SessionHandle, bool), RegistryError> {
        let place = self.place(principal, id);
        let mut place = place.lock().await;
        if let Some(handle) = place.as_ref().and_then(WeakHandle::upgrade) {
            return Ok((handle, false));
        }
        if let Some(record) = self.deps.store.find_session(principal, id).await? {
            return Ok((self.launch(&mut place, record, Lifetime::Kept), false));
        }
        let state = SessionState { budget: start.budget, ..self.first_state(&start.workspace).await? };
        let new = NewSession {
            principal: principal.to_owned(),
            id: id.clone(),
            title: start.title.clone(),
            workspace: start.workspace.clone(),
            state,
        };
        let lifetime = if start.temporary { Lifetime::Temporary } else { Lifetime::Kept };
        let (record, made) = self.deps_of(lifetime).store.create_session(new).await?;
        Ok((self.launch(&mut place, record, lifetime), made))
    }

    /// Erases a session that nobody has a handle of; `false`: it is in use.
    ///
    /// # Errors
    /// The store's reason.
    pub async fn erase_unused(&self, record: SessionRecord, reason: &str) -> Result<bool, RegistryError> {
        let place = self.place(&record.principal, &record.id);
        // Held to the end, so that nobody comes in between.
        let mut place = place.lock().await;
        if is_alive(place.as_ref()) {
            return Ok(false);
        }
        // Somebody may have used it and left since it was listed.
        let now = self.deps.store.find_session(&record.principal, &record.id).await?;
        if now.is_none_or(|now| (now.key, now.updated_at) != (record.key, record.updated_at)) {
            return Ok(false);
        }
        let handle = self.launch(&mut place, record, Lifetime::Kept);
        match handle.ask(|to| SessionCommand::Delete(reason.to_owned(), to)).await {
            Ok(Answer::Refused(refusal)) => Err(StoreError::Failed(refusal.message).into()),
            Ok(_) => Ok(true),
            // The server stops.
            Err(_) => Ok(false),
        }
    }

    pub(super) fn deps_of(&self, lifetime: Lifetime) -> &SessionDeps {
        match lifetime {
            Lifetime::Kept => &self.deps,
            Lifetime::Temporary => self.temporary.get_or_init(|| (self.deps.temporary)(&self.deps)),
        }
    }

    /// Makes a session that begins with the events up to `at_seq` of another.
    ///
    /// # Errors
    /// The store's reason, or that the place does not end a turn, or that the id is taken.
    pub async fn fork(
        &self,
        from: &SessionHandle,
        at_seq: Seq,
        id: SessionId,
        title: Option<String>,
    ) -> Result<SessionHandle, RegistryError> {
        let log = from.log();
        let principal = from.identity().principal.clone();
        let Some(record) = log.store.find_session(&principal, &from.identity().id).await? else {
            return Err(StoreError::NoSession.into());
        };
        if at_seq > record.head_seq {
            return Err(RegistryError::BeyondLog { at_seq, head_seq: record.head_seq });
        }
        let mut fold = Fold::default();
        let until = Range { after: 0, before: Some(at_seq + 1) };
        let rows = history::load(log.store.as_ref(), log.session, fork::KINDS, until).await?;
        rows.iter().for_each(|row| fold.read(row));
        let Some(state) = fold.state(&record.state) else {
            return Err(open_turn(log, fold, at_seq).await?);
        };
        let new = NewSession {
            principal: principal.clone(),
            id: id.clone(),
            title,
            workspace: record.workspace.clone(),
            state,
        };
        let place = self.place(&principal, &id);
        let mut place = place.lock().await;
        // A kept and a temporary session have stores of their own, and share their names.
        let is_kept = self.deps.store.find_session(&principal, &id).await?.is_some();
        if is_kept || is_alive(place.as_ref()) {
            return Err(RegistryError::Exists(id));
        }
        match log.store.fork_session(log.session, at_seq, new).await? {
            (record, true) => Ok(self.launch(&mut place, record, from.lifetime)),
            (_, false) => Err(RegistryError::Exists(id)),
        }
    }

    async fn first_state(&self, workspace: &Path) -> Result<SessionState, RegistryError> {
        let engine = self.deps.engines.open(&EngineChoice::default()).await?;
        let new = NewAgent { role: FIRST_AGENT_ROLE.to_owned(), ..NewAgent::default() };
        let agent = Agent::new(&new, engine.as_ref(), &[], workspace);
        Ok(SessionState {
            autonomy: AutonomyLevel::default(),
            agents: vec![agent],
            ..SessionState::default()
        })
    }

    pub(super) fn place(&self, principal: &str, id: &SessionId) -> Place {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.since_sweep += 1;
        if places.since_sweep >= SWEEP_EVERY {
            places.since_sweep = 0;
            places.map.retain(|_, place| {
                let used = Arc::strong_count(place) > 1;
                used || place.try_lock().is_ok_and(|handle| is_alive(handle.as_ref()))
            });
        }
        places.map.entry((principal.to_owned(), id.clone())).or_default().clone()
    }

    pub(super) fn launch(
        &self,
        place: &mut Option<WeakHandle>,
        record: SessionRecord,
        lifetime: Lifetime,
    ) -> SessionHandle {
        let deps = self.deps_of(lifetime);
        let (commands, receiver) = mpsc::channel(MAILBOX);
        let identity = Arc::new(SessionIdentity {
            key: record.key,
            principal: record.principal.clone(),
            id: record.id.clone(),
            workspace: Arc::new(Workspace::new(record.workspace.clone())),
        });
        let log = Log { store: deps.store.clone(), session: record.key };
        *place = Some(WeakHandle {
            commands: commands.downgrade(),
            identity: identity.clone(),
            log: log.clone(),
            lifetime,
        });
        let ends = Ends { shutdown: self.shutdown.clone(), turns: self.turns.clone(), lifetime };
        let handle = SessionHandle { commands, identity, log, lifetime };
        let actor = Actor::new(deps.clone(), record, handle.identity.clone(), receiver, ends);
        self.tasks.spawn(actor.holding(handle.clone()).run());
        handle
    }

    /// Returns how many sessions are in memory.
    pub fn active(&self) -> usize {
        self.tasks.len()
    }

    /// Returns how many turns run.
    pub fn turns(&self) -> usize {
        self.turns.load(Ordering::Relaxed)
    }

    /// Cancels what runs and waits until every session has stored its last event.
    pub async fn shutdown(&self) {
        self.shutdown.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

pub(super) fn is_alive(handle: Option<&WeakHandle>) -> bool {
    handle.is_some_and(|handle| handle.upgrade().is_some())
}

/// Says of a place within a turn where a fork may begin instead; `fold` has read the log up to there.
async fn open_turn(log: &Log, mut fold: Fold, at_seq: Seq) -> Result<RegistryError, StoreError> {
    let before = fold.ended();
    let end = |row| {
        fold.read(&row);
        fold.ended().filter(|end| *end > at_seq)
    };
    let after = history::first(log.store.as_ref(), log.session, fork::KINDS, at_seq, end).await?;
    Ok(RegistryError::OpenTurn { at_seq, before, after })
}

fn places(before: Option<Seq>, after: Option<Seq>) -> String {
    match (before, after) {
        (Some(before), Some(after)) => format!("fork at the end of a turn: {before} or {after}"),
        (Some(place), None) | (None, Some(place)) => format!("fork at the end of a turn: {place}"),
        (None, None) => "no turn has ended yet, so wait for its end".to_owned(),
    }
}
