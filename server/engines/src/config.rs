//! What the operator set: keys, addresses, the wished-for provider and model. Filled once from the
//! environment by whoever starts the server; nothing deeper in this crate reads the environment.

use std::collections::BTreeMap;

use secrecy::SecretString;
use tns_server_core::engine::EngineChoice;

use crate::prices::ModelPrice;
use crate::provider::{PROVIDERS, Provider};
use crate::retry::Patience;

/// What engines are made from.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Named on the command line; beats everything else.
    pub flag: EngineChoice,
    /// Named by `TNS_PROVIDER` and `TNS_MODEL`, or by a config file.
    pub configured: EngineChoice,
    /// Which providers a client may name for its agents.
    pub overrides: ProviderOverrides,
    /// Model servers of this machine that are looked for when nothing is named or configured.
    pub local_servers: Vec<LocalServer>,
    /// How long engines wait.
    pub patience: Patience,
    /// Prices of the operator's own, each checked with [`Price::check`]; the first that fits holds, before the list.
    ///
    /// [`Price::check`]: crate::Price::check
    pub prices: Vec<ModelPrice>,
    pub(crate) access: BTreeMap<&'static str, Access>,
}

/// Which providers a client may name for its agents. The default is the operator's, and always allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProviderOverrides {
    /// Any that is configured here.
    #[default]
    Configured,
    /// Only `ollama`, so that no client spends the operator's money.
    OllamaOnly,
}

/// A model server that may run on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalServer {
    /// Its name for people.
    pub name: &'static str,
    /// The provider whose engine talks to it.
    pub provider: &'static str,
    /// Its base URL; on loopback.
    pub base_url: String,
}

/// The usual local servers at their default ports, in the order of preference.
const LOCAL_SERVERS: [(&str, &str, &str); 3] = [
    ("Ollama", "ollama", "http://127.0.0.1:11434"),
    ("LM Studio", "openai-compatible", "http://127.0.0.1:1234/v1"),
    ("llama.cpp", "openai-compatible", "http://127.0.0.1:8080/v1"),
];

/// How a provider is reached, where the operator set it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Access {
    pub(crate) key: Option<SecretString>,
    pub(crate) base_url: Option<String>,
}

impl EngineConfig {
    /// Reads `TNS_PROVIDER`, `TNS_MODEL` and, for every provider, `<ID>_API_KEY` and
    /// `PROVIDER_BASE_URL_<ID>` through `variable`. Blank values count as unset.
    pub fn from_env(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).map(|v| v.trim().to_owned()).filter(|v| !v.is_empty());
        let access = PROVIDERS.iter().map(|provider| {
            let key = set(&key_variable(provider.id)).map(SecretString::from);
            (provider.id, Access { key, base_url: set(&base_url_variable(provider.id)) })
        });
        Self {
            flag: EngineChoice::default(),
            configured: EngineChoice { provider: set("TNS_PROVIDER"), model: set("TNS_MODEL") },
            overrides: ProviderOverrides::default(),
            local_servers: LOCAL_SERVERS
                .map(|(name, provider, base_url)| LocalServer {
                    name,
                    provider,
                    base_url: base_url.to_owned(),
                })
                .into(),
            patience: Patience::default(),
            prices: Vec::new(),
            access: access.collect(),
        }
    }

    pub(crate) fn access(&self, provider: &Provider) -> Access {
        self.access.get(provider.id).cloned().unwrap_or_default()
    }

    /// Returns the variable that makes the provider usable, where one is set.
    pub(crate) fn configured_by(&self, provider: &Provider) -> Option<String> {
        let access = self.access.get(provider.id)?;
        if access.base_url.is_some() {
            return Some(base_url_variable(provider.id));
        }
        // A key without an address to send it to is of no use.
        (access.key.is_some() && provider.base_url.is_some()).then(|| key_variable(provider.id))
    }
}

/// Returns the variable that holds a provider's key, such as `OPENAI_API_KEY`.
pub(crate) fn key_variable(provider: &str) -> String {
    format!("{}_API_KEY", variable_part(provider))
}

/// Returns the variable that holds a provider's address, such as `PROVIDER_BASE_URL_OPENAI`.
pub(crate) fn base_url_variable(provider: &str) -> String {
    format!("PROVIDER_BASE_URL_{}", variable_part(provider))
}

fn variable_part(provider: &str) -> String {
    provider.to_ascii_uppercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_named_after_the_provider() {
        assert_eq!(key_variable("openai-compatible"), "OPENAI_COMPATIBLE_API_KEY");
        assert_eq!(base_url_variable("openai-compatible"), "PROVIDER_BASE_URL_OPENAI_COMPATIBLE");
    }

    #[test]
    fn blank_values_count_as_unset_and_keys_are_not_printed() {
        let config = EngineConfig::from_env(|name| match name {
            "OPENAI_API_KEY" => Some(" test-key-123\n".into()),
            "TNS_PROVIDER" | "PROVIDER_BASE_URL_OLLAMA" => Some("  ".into()),
            _ => None,
        });
        let configured: Vec<_> = PROVIDERS.iter().filter_map(|row| config.configured_by(row)).collect();
        assert_eq!(configured, ["OPENAI_API_KEY"]);
        assert_eq!(config.configured, EngineChoice::default());
        assert!(!format!("{config:?}").contains("test-key-123"));
    }

    #[test]
    fn a_key_without_an_address_configures_nothing() {
        let with = |name: &'static str| {
            let config = EngineConfig::from_env(|asked| (asked == name).then(|| "x".to_owned()));
            PROVIDERS.iter().filter_map(|row| config.configured_by(row)).collect::<Vec<_>>()
        };
        assert!(with("OPENAI_COMPATIBLE_API_KEY").is_empty());
        assert_eq!(with("PROVIDER_BASE_URL_OPENAI_COMPATIBLE"), ["PROVIDER_BASE_URL_OPENAI_COMPATIBLE"]);
    }
}
