//! Keys that are kept outside the environment and the config file, as in a system keyring. They are asked
//! for once, when a key is needed first. How a keyring is talked to is the business of whoever gives it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use secrecy::SecretString;
use tokio::sync::OnceCell;

/// A place that may hold keys.
#[derive(Clone)]
pub struct KeyStore {
    find: Arc<Find>,
    found: Arc<OnceCell<StoredKeys>>,
}

/// Looks for the keys of these providers. May block, for a bounded time.
type Find = dyn Fn(&[&'static str]) -> StoredKeys + Send + Sync;

/// What a store gave.
#[derive(Debug, Clone, Default)]
pub struct StoredKeys {
    /// Keys by provider.
    pub keys: BTreeMap<&'static str, SecretString>,
    /// Why there may be more, in words for people: it is locked, or did not answer.
    pub trouble: Option<String>,
}

impl KeyStore {
    /// Makes a store that is asked through `find`, on a thread that may block.
    pub fn new(find: impl Fn(&[&'static str]) -> StoredKeys + Send + Sync + 'static) -> Self {
        Self { find: Arc::new(find), found: Arc::new(OnceCell::new()) }
    }

    /// Asks for the keys of these providers; the first answer holds.
    pub(crate) async fn ask(&self, providers: Vec<&'static str>) -> &StoredKeys {
        self.found
            .get_or_init(|| async {
                let find = Arc::clone(&self.find);
                let found = tokio::task::spawn_blocking(move || find(&providers)).await;
                found.unwrap_or_else(|error| {
                    tracing::error!(%error, "looking for keys stopped unexpectedly");
                    StoredKeys {
                        trouble: Some("the system keyring can't be asked".into()),
                        ..StoredKeys::default()
                    }
                })
            })
            .await
    }

    /// Returns what was found, if it was asked.
    pub(crate) fn found(&self) -> Option<&StoredKeys> {
        self.found.get()
    }
}

impl fmt::Debug for KeyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyStore").field("found", &self.found.get()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn it_is_asked_once_and_shows_no_key() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&asked);
        let store = KeyStore::new(move |providers| {
            counter.fetch_add(1, Ordering::Relaxed);
            let keys = providers.iter().map(|id| (*id, "test-key-123".into())).collect();
            StoredKeys { keys, trouble: None }
        });
        assert!(store.found().is_none());
        let both = tokio::join!(store.ask(vec!["openai"]), store.ask(vec!["gemini"]));
        assert_eq!(both.0.keys.keys().collect::<Vec<_>>(), [&"openai"]);
        assert_eq!((both.1.keys.len(), asked.load(Ordering::Relaxed)), (1, 1));
        assert!(!format!("{store:?}").contains("test-key-123"));
    }

    #[tokio::test]
    async fn a_store_that_fails_gives_no_key_and_says_so() {
        let store = KeyStore::new(|_| panic!("a defect"));
        assert!(store.ask(vec!["openai"]).await.trouble.is_some());
    }
}
