//! The provider catalogue: who serves models, what a key can be used for, which models and voices there
//! are. Lists are kept for a day per key; whether a key works is asked anew each time.
//!
//! What a provider adds is one [`Source`], in its own module: how its models are listed, where its
//! voices come from, how its credit is told. Sorting, recommending, keeping and limits are done here.
//! No text made here holds a key, and none is kept but as part of a digest.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use secrecy::{ExposeSecret, SecretString};
use tns_protocol::provider::{KeyCheck, ModelInfo, ModelKind, ProviderInfo, VoiceInfo};
use tns_server_core::engine::{EngineError, EngineErrorKind, OpenError};
use tokio::time::timeout;

use crate::config::{Access, EngineConfig, LocalModels, base_url_variable, key_variable};
use crate::http::Http;
use crate::origin::{Key, Origin};
use crate::provider::{PROVIDERS, Provider};
use crate::registry;
use crate::retry::Patience;

mod cache;
mod credit;
mod order;
pub(crate) mod pages;

use cache::{Cache, Digest};
pub(crate) use credit::{CreditCheck, SmallestStep};

/// How long an answer of the catalogue may take in all. Clients wait a minute.
const CALL_LIMIT: Duration = Duration::from_secs(45);
/// The longest pause that a provider may ask for while a person waits for the catalogue.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Longest key that is looked at, in bytes; the longest known are below 300.
const MAX_KEY_BYTES: usize = 4096;

/// The catalogue of one configuration.
#[derive(Debug)]
pub struct Catalogue {
    config: EngineConfig,
    http: Arc<Http>,
    models: Cache<ModelInfo>,
    voices: Cache<VoiceInfo>,
}

/// Why the catalogue has no answer. The text is one line for people and holds no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CatalogueError {
    /// There is no such provider.
    #[error("{0}")]
    Unknown(String),
    /// The provider is not set up here.
    #[error("{0}")]
    NotSetUp(String),
    /// The given key can't be one of this provider.
    #[error("{0}")]
    NoSuchKey(String),
    /// The provider refused, failed or could not be reached.
    #[error(transparent)]
    Provider(#[from] EngineError),
}

/// What a provider's module adds to the catalogue.
#[derive(Debug)]
pub(crate) struct Source {
    /// Lists the models in the provider's order; nothing is recommended yet.
    pub(crate) models: fn(Asking) -> Asked<Vec<ModelInfo>>,
    pub(crate) voices: Voices,
    pub(crate) credit: CreditCheck,
    /// Models to recommend after the provider's default one, best first. Of a kind of which none is
    /// listed, the first that is listed is recommended.
    pub(crate) preferred: &'static [&'static str],
}

/// Where a provider's voices come from.
#[derive(Debug)]
pub(crate) enum Voices {
    /// It has none.
    None,
    /// It has these, and no way to ask.
    Fixed(fn() -> Vec<VoiceInfo>),
    /// It lists them.
    Listed(fn(Asking) -> Asked<Vec<VoiceInfo>>),
}

/// Whom a source asks, with which key.
#[derive(Debug, Clone)]
pub(crate) struct Asking {
    pub(crate) provider: &'static Provider,
    pub(crate) access: Access,
    pub(crate) http: Arc<Http>,
    pub(crate) local: LocalModels,
}

/// An answer being asked for.
pub(crate) type Asked<T> = BoxFuture<'static, Result<T, EngineError>>;

/// The source of a provider that runs in this process: its default model, and nothing to pay.
pub(crate) static EMBEDDED: Source = Source {
    models: |asking| {
        let models = asking.provider.default_model.map(|id| model(id, ModelKind::Text));
        async move { Ok(models.into_iter().collect()) }.boxed()
    },
    voices: Voices::None,
    credit: CreditCheck::Free,
    preferred: &[],
};

impl Catalogue {
    /// Makes the catalogue of a configuration. Opens no connection.
    pub fn new(config: EngineConfig) -> Self {
        // A person waits: what engines bear with is too long here.
        let patience = Patience {
            first_token: config.patience.first_token.min(CALL_LIMIT),
            longest_asked_pause: config.patience.longest_asked_pause.min(LONGEST_PAUSE),
            ..config.patience
        };
        let http = Arc::new(Http::new(patience));
        Self { config, http, models: Cache::default(), voices: Cache::default() }
    }

    /// Returns every provider, in the order in which the default is looked for.
    pub async fn providers(&self) -> Vec<ProviderInfo> {
        self.config.look_for_keys().await;
        PROVIDERS.iter().map(|provider| self.info(provider)).collect()
    }

    /// Checks a key, or the one that is set up, and returns what it can be used for. Asks each time.
    ///
    /// Lists of models are free, and most providers show them to an account without credit. So with a
    /// key of a provider that is paid by the token, one step of the smallest size is paid for: at most
    /// 16 tokens out of the cheapest model that the key may use, far below a hundredth of a cent.
    ///
    /// # Errors
    /// [`CatalogueError`]; a bad key, an empty account and an outage are told apart by
    /// [`EngineError::kind`].
    pub async fn validate(&self, id: &str, key: Option<SecretString>) -> Result<KeyCheck, CatalogueError> {
        let provider = find(id)?;
        let (access, is_given) = match key {
            Some(key) => (self.given(provider, &key)?, true),
            None => (self.configured(provider).await?, false),
        };
        let asking = self.asking(provider, access);
        let checked = within_limit(provider, async {
            let models = list(asking.clone()).await?;
            let credit = credit::check(asking, &models).await?;
            Ok(KeyCheck { provider: provider.id.to_owned(), kinds: order::kinds(&models), credit })
        });
        checked.await.map_err(|mut error| {
            if is_given {
                // The variable holds another key, or none.
                error.message = error.message.replace(&key_variable(provider.id), "the given key");
            }
            error.into()
        })
    }

    /// Returns the models of a provider that is set up: by kind, one of each kind recommended and first.
    /// Kept for a day where there is a key.
    ///
    /// # Errors
    /// As [`Self::validate`].
    pub async fn models(&self, id: &str) -> Result<Vec<ModelInfo>, CatalogueError> {
        let provider = find(id)?;
        let access = self.configured(provider).await?;
        Ok(self.models_with(provider, access).await?)
    }

    /// Returns the voices of a provider, in its own order; none where it has none. Kept for a day where
    /// they are listed. A list that is the same for everybody needs no set-up.
    ///
    /// # Errors
    /// As [`Self::validate`].
    pub async fn voices(&self, id: &str) -> Result<Vec<VoiceInfo>, CatalogueError> {
        let provider = find(id)?;
        let listed = match provider.catalogue.voices {
            Voices::None => return Ok(Vec::new()),
            Voices::Fixed(voices) => return Ok(voices()),
            Voices::Listed(listed) => listed,
        };
        let asking = self.asking(provider, self.configured(provider).await?);
        let ask = || within_limit(provider, listed(asking.clone()));
        match Digest::of(provider, &asking.access) {
            Some(digest) => Ok(self.voices.get_or_ask(digest, ask).await?),
            None => Ok(ask().await?),
        }
    }

    async fn models_with(
        &self,
        provider: &'static Provider,
        access: Access,
    ) -> Result<Vec<ModelInfo>, EngineError> {
        let digest = Digest::of(provider, &access);
        let ask = || within_limit(provider, list(self.asking(provider, access)));
        match digest {
            Some(digest) => self.models.get_or_ask(digest, ask).await,
            // Without a key it is a server of one's own, whose models change when one pulls another.
            None => ask().await,
        }
    }

    fn asking(&self, provider: &'static Provider, access: Access) -> Asking {
        Asking { provider, access, http: Arc::clone(&self.http), local: self.config.local_models() }
    }

    fn info(&self, provider: &Provider) -> ProviderInfo {
        let configured_by = self.config.configured_by(provider);
        let is_remote = !provider.is_embedded();
        ProviderInfo {
            id: provider.id.to_owned(),
            name: provider.about.name.to_owned(),
            blurb: provider.about.blurb.to_owned(),
            kinds: provider.about.kinds.to_vec(),
            configured: provider.is_built() && (provider.needs_no_setup || configured_by.is_some()),
            configured_by,
            key_variable: is_remote.then(|| key_variable(provider.id)),
            base_url_variable: is_remote.then(|| base_url_variable(provider.id)),
            key_page: provider.about.key_page.map(str::to_owned),
            key_prefix: provider.about.key_prefix.map(str::to_owned),
            default_model: provider.default_model.map(str::to_owned),
        }
    }

    async fn configured(&self, provider: &Provider) -> Result<Access, CatalogueError> {
        self.config.look_for_key(provider).await;
        if provider.needs_no_setup || self.config.configured_by(provider).is_some() {
            return Ok(self.config.access(provider));
        }
        Err(CatalogueError::NotSetUp(registry::not_set_up(provider)))
    }

    /// Returns how a provider is reached with a key that was given.
    fn given(&self, provider: &Provider, key: &SecretString) -> Result<Access, CatalogueError> {
        let id = provider.id;
        let key = key.expose_secret().trim();
        if provider.is_embedded() {
            return Err(CatalogueError::NoSuchKey(format!("{id} takes no key")));
        }
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            return Err(CatalogueError::NoSuchKey(format!("a key has 1 to {MAX_KEY_BYTES} characters")));
        }
        let set = self.config.access(provider);
        if set.base_url.is_none() && provider.base_url.is_none() {
            return Err(CatalogueError::NotSetUp(registry::not_set_up(provider)));
        }
        // Refusals name the variable, in whose place `validate` puts what was given.
        let key = Key::new(key.into(), Origin::Variable(key_variable(id)));
        Ok(Access { key: Some(key), ..set })
    }
}

/// Lists a provider's models as they are shown.
async fn list(asking: Asking) -> Result<Vec<ModelInfo>, EngineError> {
    let provider = asking.provider;
    let listed = (provider.catalogue.models)(asking).await?;
    Ok(order::sorted(listed, provider.default_model.iter().chain(provider.catalogue.preferred)))
}

async fn within_limit<T>(
    provider: &Provider,
    work: impl Future<Output = Result<T, EngineError>>,
) -> Result<T, EngineError> {
    timeout(CALL_LIMIT, work).await.unwrap_or_else(|_| {
        let (id, seconds) = (provider.id, CALL_LIMIT.as_secs());
        let message = format!("{id} did not answer within {seconds} s; try again later");
        Err(EngineError { kind: EngineErrorKind::Unavailable, message })
    })
}

fn find(id: &str) -> Result<&'static Provider, CatalogueError> {
    Provider::find(id).ok_or_else(|| CatalogueError::Unknown(registry::unknown(id, |_| true)))
}

/// Makes a model of which nothing more is known.
pub(crate) fn model(id: &str, kind: ModelKind) -> ModelInfo {
    ModelInfo {
        id: id.to_owned(),
        name: None,
        kind,
        recommended: false,
        context_window: None,
        accepts_images: None,
    }
}

/// Makes a voice of which nothing more is known.
pub(crate) fn voice(id: &str, kinds: &[ModelKind]) -> VoiceInfo {
    VoiceInfo {
        id: id.to_owned(),
        name: id.to_owned(),
        kinds: kinds.to_vec(),
        description: None,
        preview_url: None,
        recommended: false,
    }
}

/// Makes the error of a source whose address can't be one.
pub(crate) fn no_address(error: OpenError) -> EngineError {
    EngineError { kind: EngineErrorKind::Provider, message: error.0 }
}

#[cfg(test)]
mod tests;
