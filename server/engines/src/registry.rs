//! Opens engines: the named provider's where a client may name it, else the default. It must not
//! know how a provider is talked to.

use std::sync::Arc;

use async_trait::async_trait;
use tns_server_core::engine::{Engine, EngineChoice, Engines, OpenError, Pricing};
use tokio::sync::OnceCell;

use crate::choose::{self, DefaultEngine, Found};
use crate::config::{Access, EngineConfig, ProviderOverrides, base_url_variable, key_variable};
use crate::http::Http;
use crate::local;
use crate::prices::ModelPrice;
use crate::provider::{Asker, Opening, PROVIDERS, Provider};

/// The server's engines. All share their HTTP connections; each agent gets its own instance.
#[derive(Debug)]
pub struct EngineRegistry {
    config: EngineConfig,
    http: Arc<Http>,
    prices: Arc<[ModelPrice]>,
    local: Arc<local::Library>,
    /// Chosen once, so that what a server says of its engine at the start stays true.
    default: OnceCell<Chosen>,
}

/// The default engine, to be opened again for each agent.
#[derive(Debug)]
struct Chosen {
    provider: &'static Provider,
    access: Access,
    model: String,
    reason: String,
    pricing: Pricing,
}

impl EngineRegistry {
    /// Makes a registry. Opens no connection.
    pub fn new(config: EngineConfig) -> Self {
        let http = Arc::new(Http::new(config.patience));
        let prices = config.prices.clone().into();
        let local = Arc::new(local::Library::new(&config.local_models()));
        Self { config, http, prices, local, default: OnceCell::new() }
    }

    /// Chooses the default engine; the first answer holds for as long as the registry lives.
    ///
    /// # Errors
    /// [`OpenError`] when what the operator named or configured can't be opened; the next call tries again.
    pub async fn choose(&self) -> Result<DefaultEngine, OpenError> {
        let chosen = self.default.get_or_try_init(|| self.find_default()).await?;
        Ok(DefaultEngine {
            provider: chosen.provider.id.to_owned(),
            model: chosen.model.clone(),
            reason: chosen.reason.clone(),
            pricing: chosen.pricing,
        })
    }

    async fn find_default(&self) -> Result<Chosen, OpenError> {
        let Found { provider, access, model, reason } = choose::find(&self.config, &self.http).await?;
        if self.config.provider().is_some() {
            self.check_configured(provider)?;
        }
        // Opened once, since some providers are asked which models they have.
        let engine = self.open_with(provider, access.clone(), model, Asker::Operator).await?;
        let pricing = engine.pricing();
        Ok(Chosen { provider, access, model: engine.model().to_owned(), reason, pricing })
    }

    async fn open_with(
        &self,
        provider: &'static Provider,
        access: Access,
        model: Option<String>,
        asker: Asker,
    ) -> Result<Arc<dyn Engine>, OpenError> {
        let (http, prices, local) =
            (Arc::clone(&self.http), Arc::clone(&self.prices), Arc::clone(&self.local));
        (provider.open)(Opening { provider, access, model, asker, http, prices, local }).await
    }

    fn check_configured(&self, provider: &Provider) -> Result<(), OpenError> {
        // One without a text engine says so itself, set up or not.
        let is_usable = provider.needs_no_setup || !provider.writes_text();
        if is_usable || self.config.configured_by(provider).is_some() {
            return Ok(());
        }
        Err(OpenError(not_set_up(provider)))
    }
}

/// Returns the line about a provider that is not set up.
pub(crate) fn not_set_up(provider: &Provider) -> String {
    let (id, address) = (provider.id, base_url_variable(provider.id));
    match provider.base_url {
        Some(_) => format!("{id} is not set up here: set {} (or {address})", key_variable(id)),
        None => format!("{id} is not set up here: set {address}"),
    }
}

#[async_trait]
impl Engines for EngineRegistry {
    async fn open(&self, choice: &EngineChoice) -> Result<Arc<dyn Engine>, OpenError> {
        let model = named(choice.model.as_deref()).map(str::to_owned);
        let Some(id) = named(choice.provider.as_deref()) else {
            let chosen = self.default.get_or_try_init(|| self.find_default()).await?;
            let model = model.unwrap_or_else(|| chosen.model.clone());
            let access = chosen.access.clone();
            return self.open_with(chosen.provider, access, Some(model), Asker::Client).await;
        };
        if self.config.overrides == ProviderOverrides::OllamaOnly && id != "ollama" {
            return Err(OpenError(format!(
                "this server lets an agent name no provider but ollama; leave {id} out for its default"
            )));
        }
        let provider = find(id)?;
        self.config.look_for_key(provider).await;
        self.check_configured(provider)?;
        self.open_with(provider, self.config.access(provider), model, Asker::Client).await
    }
}

/// Returns the provider with this id.
///
/// # Errors
/// [`OpenError`] that names those that an agent can be opened on.
pub(crate) fn find(id: &str) -> Result<&'static Provider, OpenError> {
    Provider::find(id).ok_or_else(|| OpenError(unknown(id, Provider::writes_text)))
}

/// Returns the line about an unknown provider, with those there are that `fit`.
pub(crate) fn unknown(id: &str, fit: fn(&Provider) -> bool) -> String {
    let known: Vec<_> =
        PROVIDERS.iter().filter(|provider| fit(provider)).map(|provider| provider.id).collect();
    let asked = crate::http::one_line(id, 64);
    format!("there is no provider {asked}; there are {}", known.join(", "))
}

/// Returns a name that is not blank.
pub(crate) fn named(name: Option<&str>) -> Option<&str> {
    name.map(str::trim).filter(|name| !name.is_empty())
}
