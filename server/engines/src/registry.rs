//! Opens engines: the named provider's where a client may name it, else the default. It must not
//! know how a provider is talked to.

use std::sync::Arc;

use async_trait::async_trait;
use tns_server_core::engine::{Engine, EngineChoice, Engines, OpenError};

use crate::choose::{self, DefaultEngine};
use crate::config::{EngineConfig, ProviderOverrides, base_url_variable, key_variable};
use crate::http::Http;
use crate::provider::{Opening, PROVIDERS, Provider};

/// The server's engines. All share their HTTP connections; each agent gets its own instance.
#[derive(Debug)]
pub struct EngineRegistry {
    config: EngineConfig,
    http: Arc<Http>,
}

impl EngineRegistry {
    /// Makes a registry. Opens no connection.
    pub fn new(config: EngineConfig) -> Self {
        let http = Arc::new(Http::new(config.patience));
        Self { config, http }
    }

    /// Finds the default engine. Where nothing is named or configured, local model servers are
    /// looked for each time, so one that was started meanwhile is found.
    ///
    /// # Errors
    /// [`OpenError`] when what the operator named or configured can't be opened.
    pub async fn choose(&self) -> Result<DefaultEngine, OpenError> {
        let (engine, reason) = self.open_default(None).await?;
        Ok(DefaultEngine { provider: engine.provider().to_owned(), model: engine.model().to_owned(), reason })
    }

    async fn open_default(&self, model: Option<String>) -> Result<(Arc<dyn Engine>, String), OpenError> {
        let found = choose::find(&self.config, &self.http).await?;
        if choose::is_named(&self.config) {
            self.check_configured(found.provider)?;
        }
        let opening = Opening {
            provider: found.provider,
            access: found.access,
            model: model.or(found.model),
            http: Arc::clone(&self.http),
        };
        Ok(((found.provider.open)(opening).await?, found.reason))
    }

    fn check_configured(&self, provider: &Provider) -> Result<(), OpenError> {
        if provider.needs_no_setup || self.config.configured_by(provider).is_some() {
            return Ok(());
        }
        let (id, address) = (provider.id, base_url_variable(provider.id));
        Err(OpenError(match provider.base_url {
            Some(_) => format!("{id} is not set up here: set {} (or {address})", key_variable(id)),
            None => format!("{id} is not set up here: set {address}"),
        }))
    }
}

#[async_trait]
impl Engines for EngineRegistry {
    async fn open(&self, choice: &EngineChoice) -> Result<Arc<dyn Engine>, OpenError> {
        let model = named(choice.model.as_deref()).map(str::to_owned);
        let Some(id) = named(choice.provider.as_deref()) else {
            return Ok(self.open_default(model).await?.0);
        };
        if self.config.overrides == ProviderOverrides::OllamaOnly && id != "ollama" {
            return Err(OpenError(format!(
                "this server lets an agent name no provider but ollama; leave {id} out for its default"
            )));
        }
        let provider = find(id)?;
        self.check_configured(provider)?;
        let opening =
            Opening { provider, access: self.config.access(provider), model, http: Arc::clone(&self.http) };
        (provider.open)(opening).await
    }
}

/// Returns the provider with this id.
///
/// # Errors
/// [`OpenError`] that names those there are.
pub(crate) fn find(id: &str) -> Result<&'static Provider, OpenError> {
    Provider::find(id).ok_or_else(|| {
        let known: Vec<_> = PROVIDERS.iter().map(|provider| provider.id).collect();
        let asked = crate::http::one_line(id, 64);
        OpenError(format!("there is no provider {asked}; there are {}", known.join(", ")))
    })
}

/// Returns a name that is not blank.
pub(crate) fn named(name: Option<&str>) -> Option<&str> {
    name.map(str::trim).filter(|name| !name.is_empty())
}
