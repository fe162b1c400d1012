//! Lists that are kept for a day per key. Errors and empty lists are not kept; of several who ask at the
//! same time one asks the provider. A key is kept as part of a digest only.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use secrecy::ExposeSecret;
use sha2::{Digest as _, Sha256};
use tns_server_core::engine::EngineError;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::config::Access;
use crate::provider::Provider;

/// How long a list is kept.
const KEPT: Duration = Duration::from_secs(24 * 3600);
/// Most lists that are kept; more → the oldest is forgotten.
const MAX_LISTS: usize = 64;

/// Whose list: provider, address and key, told apart but not told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Digest([u8; 32]);

impl Digest {
    /// Returns the digest; `None` where there is no key.
    pub(super) fn of(provider: &Provider, access: &Access) -> Option<Self> {
        let key = access.key.as_ref()?;
        let address = access.base_url.as_deref().or(provider.base_url).unwrap_or_default();
        let mut hash = Sha256::new();
        for part in [provider.id, address, key.expose_secret()] {
            // With the lengths, no two sets of parts give the same bytes.
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Some(Self(hash.finalize().into()))
    }
}

/// Lists by whose they are.
#[derive(Debug)]
pub(super) struct Cache<T> {
    lists: Mutex<HashMap<Digest, Entry<T>>>,
}

#[derive(Debug)]
struct Entry<T> {
    since: Instant,
    list: Arc<OnceCell<Vec<T>>>,
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self { lists: Mutex::default() }
    }
}

impl<T: Clone> Cache<T> {
    /// Returns the kept list, or asks for it and keeps it.
    ///
    /// # Errors
    /// Those of `ask`; the next call asks again.
    pub(super) async fn get_or_ask<F>(
        &self,
        digest: Digest,
        ask: impl FnOnce() -> F,
    ) -> Result<Vec<T>, EngineError>
    where
        F: Future<Output = Result<Vec<T>, EngineError>>,
    {
        let list = self.entry(digest);
        let found = list.get_or_try_init(ask).await?.clone();
        if found.is_empty() {
            self.forget(digest, &list);
        }
        Ok(found)
    }

    fn entry(&self, digest: Digest) -> Arc<OnceCell<Vec<T>>> {
        let now = Instant::now();
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        lists.retain(|_, entry| now - entry.since < KEPT);
        if !lists.contains_key(&digest) && lists.len() >= MAX_LISTS {
            let oldest = lists.iter().min_by_key(|(_, entry)| entry.since).map(|(digest, _)| *digest);
            if let Some(oldest) = oldest {
                lists.remove(&oldest);
            }
        }
        let entry = lists.entry(digest).or_insert_with(|| Entry { since: now, list: Arc::default() });
        if !entry.list.initialized() {
            // The day begins with the answer, and no answer has come yet.
            entry.since = now;
        }
        Arc::clone(&entry.list)
    }

    fn forget(&self, digest: Digest, list: &Arc<OnceCell<Vec<T>>>) {
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        if lists.get(&digest).is_some_and(|entry| Arc::ptr_eq(&entry.list, list)) {
            lists.remove(&digest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tns_server_core::engine::EngineErrorKind;

    use super::*;
    use crate::origin::Key;
    use crate::provider::PROVIDERS;

    fn digest(key: &str, address: &str) -> Digest {
        let access =
            Access { key: Some(Key::of_test(key)), base_url: Some(address.into()), ..Access::default() };
        Digest::of(&PROVIDERS[0], &access).unwrap()
    }

    /// Counts how often it is asked.
    struct Asked<'a> {
        cache: &'a Cache<u32>,
        times: Cell<u32>,
    }

    impl Asked<'_> {
        async fn get(&self, digest: Digest, answer: Result<Vec<u32>, EngineError>) -> (usize, u32) {
            let got = self.cache.get_or_ask(digest, || {
                self.times.set(self.times.get() + 1);
                async { answer }
            });
            (got.await.map_or(0, |list| list.len()), self.times.get())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_is_asked_for_once_a_day_and_key() {
        let asked = Asked { cache: &Cache::default(), times: Cell::new(0) };
        let own = digest("k", "http://h");
        assert_eq!(asked.get(own, Ok(vec![1])).await, (1, 1));
        tokio::time::advance(KEPT - Duration::from_secs(1)).await;
        assert_eq!(asked.get(own, Ok(vec![1, 2])).await, (1, 1));
        for other in [digest("k2", "http://h"), digest("k", "http://h2")] {
            assert_eq!(asked.get(other, Ok(vec![1, 2])).await.0, 2);
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(asked.get(own, Ok(vec![1, 2])).await, (2, 4));
    }

    #[tokio::test(start_paused = true)]
    async fn neither_an_error_nor_an_empty_list_is_kept() {
        let asked = Asked { cache: &Cache::default(), times: Cell::new(0) };
        let error = EngineError { kind: EngineErrorKind::Unavailable, message: "x".into() };
        assert_eq!(asked.get(digest("k", "h"), Err(error)).await, (0, 1));
        assert_eq!(asked.get(digest("k", "h"), Ok(Vec::new())).await, (0, 2));
        assert_eq!(asked.get(digest("k", "h"), Ok(vec![1])).await, (1, 3));
        assert_eq!(asked.get(digest("k", "h"), Ok(Vec::new())).await, (1, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn of_too_many_lists_the_oldest_is_forgotten() {
        let asked = Asked { cache: &Cache::default(), times: Cell::new(0) };
        for number in 0..=MAX_LISTS {
            asked.get(digest(&number.to_string(), "h"), Ok(vec![1])).await;
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let before = asked.times.get();
        assert_eq!(asked.get(digest("1", "h"), Ok(vec![1])).await.1, before);
        assert_eq!(asked.get(digest("0", "h"), Ok(vec![1])).await.1, before + 1);
    }

    #[test]
    fn a_digest_shows_no_key_and_mixes_nothing_up() {
        assert_ne!(digest("ab", "c"), digest("b", "ca"));
        assert!(!format!("{:?}", digest("canary", "h")).contains("canary"));
        assert_eq!(Digest::of(&PROVIDERS[0], &Access::default()), None);
    }
}
