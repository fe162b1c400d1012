//! Finding the data folder's server again after it was lost: another one that has taken the folder over, or
//! one of this process, which then outlives its last client as any other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tns_client::{Client, Events, Rediscover};

use crate::args::Globals;
use crate::data_dir::DataDir;
use crate::server::discovery::Discovery;
use crate::server::{Found, Kind, Launch, Owned, find, in_process};

/// A server of another process that is used here.
pub(crate) struct Other {
    pub(super) kind: Kind,
    /// A command's own server stays as long as this connection, which says nothing.
    pub(super) _presence: (Client, Events),
}

/// Who serves the data folder, as far as this process uses it.
pub(crate) struct Again {
    dir: DataDir,
    globals: Globals,
    launch: Launch,
    used: Mutex<Used>,
    /// One search at a time: two of them would be in each other's way at the lock.
    searching: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Used {
    other: Option<Other>,
    owned: Option<Owned>,
}

impl Again {
    pub(super) fn new(dir: DataDir, globals: Globals, launch: Launch, other: Other) -> Arc<Self> {
        let used = Mutex::new(Used { other: Some(other), owned: None });
        Arc::new(Self { dir, globals, launch, used, searching: tokio::sync::Mutex::new(()) })
    }

    /// Makes the search that a client asks when nobody answers.
    pub(super) fn rediscover(self: &Arc<Self>) -> Rediscover {
        let again = Arc::clone(self);
        Rediscover::new(move || {
            let again = Arc::clone(&again);
            async move {
                match again.search().await {
                    Ok(url) => url,
                    Err(error) => {
                        tracing::debug!(%error, "no other server was found");
                        None
                    }
                }
            }
        })
    }

    /// Returns the server that was begun here, if there is one.
    pub(super) fn take_owned(&self) -> Option<Owned> {
        self.lock().owned.take()
    }

    async fn search(&self) -> anyhow::Result<Option<String>> {
        let _one = self.searching.lock().await;
        if let Some(owned) = &self.lock().owned {
            return Ok(Some(owned.url().to_owned()));
        }
        let stood_alone = self.lock().other.as_ref().is_some_and(|other| other.kind == Kind::StandsAlone);
        if stood_alone && Discovery::read(&self.dir).is_none_or(|found| found.stands_alone) {
            // Whoever started it starts it again; a lock that was taken here would be in its way.
            return self.moved().await;
        }
        match find(&self.dir).await? {
            Found::Served { url, other } => {
                self.lock().other = Some(other);
                Ok(Some(url))
            }
            Found::Free(lock) => {
                let config = in_process(&self.globals, &self.dir, self.launch.clone())?;
                let owned = Owned::start(&self.dir, lock, config, Kind::Beside).await?;
                let url = owned.url().to_owned();
                let mut used = self.lock();
                used.owned = Some(owned);
                used.other = None;
                Ok(Some(url))
            }
        }
    }

    /// Looks where a program of its own listens now, without touching the lock.
    async fn moved(&self) -> anyhow::Result<Option<String>> {
        match Discovery::read(&self.dir) {
            Some(found) if found.answers().await => Ok(Some(found.url)),
            Some(_) | None => Ok(None),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
