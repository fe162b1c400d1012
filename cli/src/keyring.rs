//! The system keyring, as the desktop's Secret Service keeps it: a provider's key is the entry with service
//! `tns` and the provider's id as user. It is asked only where the session announces a bus, on a thread of its
//! own, and never for longer than a limit, so that no start waits for it. It never asks the user anything.
//!
//! The few messages that this takes are written here: libraries for it cost 24 to 86 CPU seconds to build, and
//! one deadline must hold over connecting, greeting and asking.

mod address;
mod bus;
mod secrets;
mod wire;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use secrecy::SecretString;
use tns_server::{KeyStore, StoredKeys, key_variable};

use address::Address;
use bus::{Bus, Fault};
use secrets::{Changed, Entry, Secrets};

/// Longest that looking for keys may take, all providers together: what a start may lose to it.
pub(crate) const LOOK_LIMIT: Duration = Duration::from_millis(300);
/// Longest that storing or removing a key may take; the service may have to start first.
const CHANGE_LIMIT: Duration = Duration::from_secs(10);
/// The thread sends one answer and never waits for its reader, who may be gone.
const ANSWERS: usize = 1;

/// Why the keyring gave nothing, or less than it may hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// This session has none.
    Absent,
    /// It would ask for a password first; with the providers whose keys it holds, where that is known.
    Locked(Vec<&'static str>),
    /// It did not answer within this time.
    Late(Duration),
    /// Something else, in its words.
    Failed(String),
}

impl Trouble {
    /// Returns it in words for people.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Absent => "this session has no system keyring".to_owned(),
            Self::Locked(providers) if providers.is_empty() => "the system keyring is locked".to_owned(),
            Self::Locked(providers) => {
                format!("the system keyring is locked and holds a key for {}", providers.join(", "))
            }
            Self::Late(limit) => format!("the system keyring did not answer within {} ms", limit.as_millis()),
            Self::Failed(why) => format!("the system keyring can't be asked: {why}"),
        }
    }

    /// Returns what a person can do about it.
    pub(crate) fn fix(&self, provider: &str) -> String {
        let instead =
            format!("set {}, or store the key in the config file with --file", key_variable(provider));
        match self {
            Self::Locked(_) => format!("unlock it, or {instead}"),
            Self::Late(_) => format!("try again, or {instead}"),
            Self::Absent | Self::Failed(_) => instead,
        }
    }
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    /// Keys by provider.
    pub(crate) keys: BTreeMap<&'static str, SecretString>,
    /// Why there may be more.
    pub(crate) trouble: Option<Trouble>,
}

/// The keyring of this session, if it has one.
#[derive(Debug, Clone)]
pub(crate) struct Keyring {
    addresses: Vec<Address>,
}

impl Keyring {
    /// Reads from the environment whether there is one. Asks nobody.
    pub(crate) fn announced(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        Self { addresses: address::announced(variable) }
    }

    /// Whether the session announces a bus to ask.
    pub(crate) fn is_announced(&self) -> bool {
        !self.addresses.is_empty()
    }

    /// Returns it as the server takes it: asked when the first key is needed. None where none is announced.
    pub(crate) fn store(&self) -> Option<KeyStore> {
        let keyring = self.is_announced().then(|| self.clone())?;
        Some(KeyStore::new(move |providers| {
            let Looked { keys, trouble } = keyring.look(providers);
            // That there is no service on the bus is no trouble: nothing can be in it.
            let trouble = trouble.filter(|trouble| *trouble != Trouble::Absent);
            StoredKeys { keys, trouble: trouble.as_ref().map(Trouble::describe) }
        }))
    }

    /// Looks for the keys of these providers, for at most [`LOOK_LIMIT`].
    pub(crate) fn look(&self, providers: &[&'static str]) -> Looked {
        let providers = providers.to_vec();
        let looked = self.within(LOOK_LIMIT, move |mut secrets| {
            let mut looked = Looked::default();
            let mut locked = Vec::new();
            for provider in providers {
                match secrets.find(provider)? {
                    Entry::Absent => {}
                    Entry::Locked => locked.push(provider),
                    Entry::Key(key) => drop(looked.keys.insert(provider, key)),
                }
            }
            looked.trouble = (!locked.is_empty()).then_some(Trouble::Locked(locked));
            Ok(looked)
        });
        let looked = looked.unwrap_or_else(|trouble| Looked { trouble: Some(trouble), ..Looked::default() });
        if let Some(trouble) = &looked.trouble {
            tracing::debug!(trouble = trouble.describe(), "the keyring gave less than it may hold");
        }
        looked
    }

    /// Keeps a provider's key, in place of one that is there.
    ///
    /// # Errors
    /// Why it could not be kept.
    pub(crate) fn keep(&self, provider: &'static str, key: SecretString) -> Result<(), Trouble> {
        let kept = self.within(CHANGE_LIMIT, move |mut secrets| secrets.keep(provider, &key))?;
        match kept {
            Changed::Done | Changed::Nothing => Ok(()),
            Changed::Locked => Err(Trouble::Locked(Vec::new())),
        }
    }

    /// Removes a provider's key, and says whether there was one.
    ///
    /// # Errors
    /// Why it could not be removed.
    pub(crate) fn remove(&self, provider: &'static str) -> Result<bool, Trouble> {
        match self.within(CHANGE_LIMIT, move |mut secrets| secrets.remove(provider))? {
            Changed::Done => Ok(true),
            Changed::Nothing => Ok(false),
            Changed::Locked => Err(Trouble::Locked(vec![provider])),
        }
    }

    /// Runs `work` on a thread and waits for it no longer than `limit`; a connection that hangs in the system
    /// ends with the program.
    fn within<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce(Secrets) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Trouble> {
        if !self.is_announced() {
            return Err(Trouble::Absent);
        }
        let addresses = self.addresses.clone();
        let deadline = Instant::now() + limit;
        let (sender, receiver) = sync_channel(ANSWERS);
        let asked = thread::Builder::new().name("tns-keyring".into()).spawn(move || {
            let answer = Bus::connect(&addresses, deadline).and_then(Secrets::open).and_then(work);
            // Nobody waits any more where the limit came first.
            let _ = sender.send(answer);
        });
        asked.map_err(|error| Trouble::Failed(error.to_string()))?;
        match receiver.recv_timeout(limit) {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(Fault::Late)) | Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                Err(Trouble::Late(limit))
            }
            Ok(Err(Fault::Refused(name))) => Err(refused(&name)),
            Ok(Err(Fault::Broken(why))) => Err(Trouble::Failed(why)),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
                Err(Trouble::Failed("it stopped unexpectedly".into()))
            }
        }
    }
}

fn refused(error: &str) -> Trouble {
    match error {
        // Nobody on the bus is a keyring, nor can one be started.
        "org.freedesktop.DBus.Error.ServiceUnknown" | "org.freedesktop.DBus.Error.NameHasNoOwner" => {
            Trouble::Absent
        }
        "org.freedesktop.Secret.Error.IsLocked" => Trouble::Locked(Vec::new()),
        _ => Trouble::Failed(error.to_owned()),
    }
}

#[cfg(test)]
mod tests;
