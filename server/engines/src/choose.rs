//! Chooses the default engine and says why: a flag, then `TNS_PROVIDER`, then the config file, then the
//! first provider with a key or an address, then a model server on this machine, then `offline`. Looking
//! for local servers is the only IO; a port where nothing listens costs no time.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tns_server_core::engine::{OpenError, Pricing};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::config::{Access, EngineConfig, LocalServer};
use crate::http::{Endpoint, Http};
use crate::origin::Sourced;
use crate::provider::{PROVIDERS, Provider};
use crate::registry::find as find_provider;
use crate::{compatible, offline, ollama};

/// How long the search for local model servers may take in all; they are asked side by side.
const LOCAL_SEARCH: Duration = Duration::from_millis(300);

/// The engine that agents get which name none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultEngine {
    /// Whose model.
    pub provider: String,
    /// Which model.
    pub model: String,
    /// Why this one, in a line for people.
    pub reason: String,
    /// Whether its steps can be counted in dollars.
    pub pricing: Pricing,
}

/// What was found to open.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) provider: &'static Provider,
    pub(crate) access: Access,
    pub(crate) model: Option<String>,
    pub(crate) reason: String,
}

/// Finds the default. The keyring is asked only where no stronger source settles the choice before.
///
/// # Errors
/// [`OpenError`] when the provider that the operator named does not exist.
pub(crate) async fn find(config: &EngineConfig, http: &Arc<Http>) -> Result<Found, OpenError> {
    let model = config.model().map(|model| model.value.to_owned());
    if let Some(Sourced { value: id, origin }) = config.provider() {
        let provider = find_provider(id)?;
        config.look_for_key(provider).await;
        return Ok(found(config, provider, model, format!("named by {}", origin.place("provider"))));
    }
    for provider in PROVIDERS.iter().filter(|provider| provider.writes_text()) {
        if config.configured_by(provider).is_none() {
            config.look_for_key(provider).await;
        }
        if let Some(place) = config.configured_by(provider) {
            return Ok(found(config, provider, model, format!("{place} is set")));
        }
    }
    if let Some(local) = find_local(config, http).await {
        // Found by its address; the rest of what is set for it holds.
        let access = Access { base_url: local.access.base_url, ..config.access(local.provider) };
        return Ok(Found { model: model.or(local.model), access, ..local });
    }
    let mut reason = "no provider is set up and no model server answers on this machine".to_owned();
    if let Some(trouble) = config.key_store_trouble() {
        reason = format!("{reason}; {trouble}");
    }
    // A model that was asked for and that nobody serves is an error there, never silently another one.
    Ok(found(config, find_provider(offline::PROVIDER)?, model, reason))
}

fn found(config: &EngineConfig, provider: &'static Provider, model: Option<String>, reason: String) -> Found {
    Found { provider, access: config.access(provider), model, reason }
}

/// Asks the local servers side by side; the first in order that has a model wins.
async fn find_local(config: &EngineConfig, http: &Arc<Http>) -> Option<Found> {
    let asked: Vec<_> = config
        .local_servers
        .iter()
        .map(|server| timeout(LOCAL_SEARCH, ask_local(server.clone(), Arc::clone(http))))
        .collect();
    let side_by_side = asked.len().max(1);
    let answers = stream::iter(asked).buffered(side_by_side).filter_map(async |answer| answer.ok().flatten());
    std::pin::pin!(answers).next().await
}

async fn ask_local(server: LocalServer, http: Arc<Http>) -> Option<Found> {
    let provider = Provider::find(server.provider)?;
    let is_ollama = provider.id == ollama::PROVIDER;
    let base = if is_ollama { ollama::own_base(&server.base_url) } else { &server.base_url };
    let endpoint = Endpoint::new(provider.id, base, None).ok()?;
    if !endpoint.is_loopback() {
        return None;
    }
    // A refused connection is the usual answer, and comes before any HTTP client is built.
    drop(TcpStream::connect(endpoint.address()).await.ok()?);
    let model = if is_ollama {
        let listed = ollama::models::list(&http, &endpoint, LOCAL_SEARCH).await.ok()?;
        ollama::models::first(&listed)?.to_owned()
    } else {
        let listed = compatible::models::list(&http, &endpoint, LOCAL_SEARCH).await.ok()?;
        compatible::models::first_chat_model(&listed)?.to_owned()
    };
    let access = Access { base_url: Some(server.base_url), ..Access::default() };
    let reason = format!("{} answers at {}", server.name, endpoint.address());
    Some(Found { provider, access, model: Some(model), reason })
}

#[cfg(test)]
mod tests;
