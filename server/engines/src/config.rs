//! What the operator set: keys, addresses, the wished-for provider and model, each with what set it.
//! Filled once by whoever starts the server; nothing deeper in this crate reads the environment or a file.

use std::collections::BTreeMap;
use std::sync::Arc;

use secrecy::SecretString;
use tns_server_core::engine::EngineChoice;

use crate::key_store::KeyStore;
use crate::model_files::ModelFiles;
use crate::origin::{Key, Origin, Sourced};
use crate::prices::ModelPrice;
use crate::provider::{PROVIDERS, Provider};
use crate::registry::named;
use crate::retry::Patience;

/// What engines are made from.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Named on the command line; beats everything else.
    pub flag: EngineChoice,
    /// Named by `TNS_PROVIDER` and `TNS_MODEL`.
    pub configured: EngineChoice,
    /// Named by a config file.
    pub file: FileChoice,
    /// Which providers a client may name for its agents.
    pub overrides: ProviderOverrides,
    /// Model servers of this machine that are looked for when nothing is named or configured.
    pub local_servers: Vec<LocalServer>,
    /// The model files of this machine.
    pub local: LocalModels,
    /// How long engines wait.
    pub patience: Patience,
    /// Prices of the operator's own, each checked with [`Price::check`]; the first that fits holds, before the list.
    ///
    /// [`Price::check`]: crate::Price::check
    pub prices: Vec<ModelPrice>,
    /// Where keys may be that neither the environment nor a config file holds.
    pub key_store: Option<KeyStore>,
    pub(crate) access: BTreeMap<&'static str, Access>,
}

/// The provider and the model that a config file names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileChoice {
    /// The file, as it is shown to people.
    pub path: Arc<str>,
    /// What it names.
    pub choice: EngineChoice,
}

/// What a config file sets, besides the rest of [`EngineConfig`].
#[derive(Debug, Clone, Default)]
pub struct FileSettings {
    /// What it names.
    pub choice: FileChoice,
    /// Keys by provider.
    pub keys: BTreeMap<&'static str, SecretString>,
    /// Addresses by provider.
    pub base_urls: BTreeMap<&'static str, String>,
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

/// The model files that engines of this process may run.
#[derive(Debug, Clone, Default)]
pub struct LocalModels {
    /// The folder of models; absent: there is none.
    pub files: Option<ModelFiles>,
    /// Makes answers repeatable, where they are drawn by chance.
    pub seed: Option<u64>,
    /// The model that the operator named, which may be a file's whole path.
    #[cfg_attr(not(feature = "local-llm"), expect(dead_code, reason = "only local models read it"))]
    pub(crate) named: Option<String>,
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
    pub(crate) key: Option<Key>,
    pub(crate) base_url: Option<String>,
    /// What set the address; the default where it is the provider's own.
    pub(crate) base_url_origin: Option<Origin>,
    /// How many tokens its models are given to read, where requests say so.
    pub(crate) context_length: Option<u64>,
}

impl EngineConfig {
    /// Reads `TNS_PROVIDER`, `TNS_MODEL` and, for every provider, `<ID>_API_KEY` and
    /// `PROVIDER_BASE_URL_<ID>` through `variable`. Blank values count as unset.
    pub fn from_env(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).map(|v| v.trim().to_owned()).filter(|v| !v.is_empty());
        let access = PROVIDERS.iter().map(|provider| {
            let variable = key_variable(provider.id);
            let key = set(&variable).map(|key| Key::new(key.into(), Origin::Variable(variable)));
            let variable = base_url_variable(provider.id);
            let base_url = set(&variable);
            let base_url_origin = base_url.is_some().then_some(Origin::Variable(variable));
            // Ollama's own variable; what it was started with can't be asked for.
            let context_length = (provider.id == crate::ollama::PROVIDER)
                .then(|| set(CONTEXT_VARIABLE)?.parse().ok().filter(|tokens| *tokens > 0))
                .flatten();
            (provider.id, Access { key, base_url, base_url_origin, context_length })
        });
        Self {
            flag: EngineChoice::default(),
            configured: EngineChoice { provider: set(PROVIDER_VARIABLE), model: set(MODEL_VARIABLE) },
            file: FileChoice::default(),
            overrides: ProviderOverrides::default(),
            local_servers: LOCAL_SERVERS
                .map(|(name, provider, base_url)| LocalServer {
                    name,
                    provider,
                    base_url: base_url.to_owned(),
                })
                .into(),
            local: LocalModels {
                seed: set("TNS_LOCAL_SEED").and_then(|seed| seed.parse().ok()),
                ..LocalModels::default()
            },
            patience: Patience::default(),
            prices: Vec::new(),
            key_store: None,
            access: access.collect(),
        }
    }

    /// Puts what a config file sets below what the environment set.
    pub fn above(mut self, file: FileSettings) -> Self {
        let origin = Origin::File(Arc::clone(&file.choice.path));
        for (provider, key) in file.keys {
            let access = self.access.entry(provider).or_default();
            access.key.get_or_insert_with(|| Key::new(key, origin.clone()));
        }
        for (provider, base_url) in file.base_urls {
            let access = self.access.entry(provider).or_default();
            if access.base_url.is_none() {
                access.base_url = Some(base_url);
                access.base_url_origin = Some(origin.clone());
            }
        }
        self.file = file.choice;
        self
    }

    /// Returns the model files, with the model that the operator named.
    pub(crate) fn local_models(&self) -> LocalModels {
        LocalModels { named: self.model().map(|model| model.value.to_owned()), ..self.local.clone() }
    }

    /// What is named, strongest first, with where its provider and its model are named.
    fn choices(&self) -> [(&EngineChoice, Origin, Origin); 3] {
        let file = Origin::File(Arc::clone(&self.file.path));
        let variable = |name: &str| Origin::Variable(name.to_owned());
        [
            (&self.flag, Origin::Flag("--provider"), Origin::Flag("--model")),
            (&self.configured, variable(PROVIDER_VARIABLE), variable(MODEL_VARIABLE)),
            (&self.file.choice, file.clone(), file),
        ]
    }

    /// Returns the provider that the operator names, if any.
    pub fn provider(&self) -> Option<Sourced<&str>> {
        self.choices().into_iter().find_map(|(choice, origin, _)| {
            named(choice.provider.as_deref()).map(|value| Sourced { value, origin })
        })
    }

    /// Returns the model that the operator names, if any. A model belongs to the provider that is named
    /// beside it or by a weaker source; where another provider is named above it, it names nothing.
    pub fn model(&self) -> Option<Sourced<&str>> {
        let wanted = self.provider();
        let choices = self.choices();
        let below = |from: usize| choices[from..].iter().find_map(|c| named(c.0.provider.as_deref()));
        choices.iter().enumerate().find_map(|(at, (choice, _, origin))| {
            let value = named(choice.model.as_deref())?;
            let fits = match (&wanted, below(at)) {
                (Some(wanted), Some(own)) => wanted.value == own,
                (None, _) | (_, None) => true,
            };
            fits.then(|| Sourced { value, origin: origin.clone() })
        })
    }

    /// Asks the keyring, once, unless this provider has a key already. Wanted before [`Self::access`] and
    /// [`Self::configured_by`] of a provider whose key may be there.
    pub(crate) async fn look_for_key(&self, provider: &Provider) {
        if provider.takes_key() && self.set_key(provider.id).is_none() {
            self.look_for_keys().await;
        }
    }

    /// Asks the keyring, once, for the keys of all providers that have none.
    pub async fn look_for_keys(&self) {
        if let Some(store) = &self.key_store {
            let without = PROVIDERS.iter().filter(|row| row.takes_key() && self.set_key(row.id).is_none());
            store.ask(without.map(|row| row.id).collect()).await;
        }
    }

    /// Returns why the keyring may hold more keys than it gave, if it was asked.
    pub fn key_store_trouble(&self) -> Option<&str> {
        self.key_store.as_ref()?.found()?.trouble.as_deref()
    }

    fn set_key(&self, provider: &str) -> Option<&Key> {
        self.access.get(provider)?.key.as_ref()
    }

    pub(crate) fn access(&self, provider: &Provider) -> Access {
        let mut access = self.access.get(provider.id).cloned().unwrap_or_default();
        let found = self.key_store.as_ref().and_then(KeyStore::found);
        if access.key.is_none()
            && let Some(key) = found.and_then(|found| found.keys.get(provider.id))
        {
            access.key = Some(Key::new(key.clone(), Origin::Keyring));
        }
        access
    }

    /// Returns what set the provider's key, if it has one.
    pub fn key_origin(&self, provider: &Provider) -> Option<Origin> {
        self.access(provider).key.map(|key| key.origin)
    }

    /// Returns the provider's address and what set it, if it has one.
    pub fn base_url(&self, provider: &Provider) -> Option<Sourced<String>> {
        let access = self.access(provider);
        match (access.base_url, access.base_url_origin) {
            (Some(value), Some(origin)) => Some(Sourced { value, origin }),
            _ => Some(Sourced { value: provider.base_url?.to_owned(), origin: Origin::Default }),
        }
    }

    /// Returns what makes the provider usable, where something does.
    pub(crate) fn configured_by(&self, provider: &Provider) -> Option<String> {
        let access = self.access(provider);
        let key = |name: &str| format!("providers.{}.{name}", provider.id);
        if let (Some(_), Some(origin)) = (&access.base_url, &access.base_url_origin) {
            return Some(origin.place(&key("base_url")));
        }
        // A key without an address to send it to is of no use.
        provider.base_url?;
        Some(key_place(provider.id, &access.key?.origin))
    }
}

/// Names the provider of new agents.
const PROVIDER_VARIABLE: &str = "TNS_PROVIDER";
/// How many tokens Ollama gives a model to read.
const CONTEXT_VARIABLE: &str = "OLLAMA_CONTEXT_LENGTH";
/// Names their model.
const MODEL_VARIABLE: &str = "TNS_MODEL";

/// Names the place of a provider's key.
pub(crate) fn key_place(provider: &str, origin: &Origin) -> String {
    match origin {
        Origin::Keyring => format!("the key of {provider} in the system keyring"),
        Origin::Default | Origin::File(_) | Origin::Variable(_) | Origin::Flag(_) => {
            origin.place(&format!("providers.{provider}.api_key"))
        }
    }
}

/// Returns the variable that holds a provider's key, such as `OPENAI_API_KEY`.
pub fn key_variable(provider: &str) -> String {
    format!("{}_API_KEY", variable_part(provider))
}

/// Returns the variable that holds a provider's address, such as `PROVIDER_BASE_URL_OPENAI`.
pub fn base_url_variable(provider: &str) -> String {
    format!("PROVIDER_BASE_URL_{}", variable_part(provider))
}

fn variable_part(provider: &str) -> String {
    provider.to_ascii_uppercase().replace('-', "_")
}

#[cfg(test)]
mod tests;
