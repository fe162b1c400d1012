//! The table of providers: one row each. Adding one is its module (with a [`Source`] for the catalogue)
//! and its row here; nothing else in the product names a provider.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tns_protocol::provider::ModelKind::{self, Embedding, Realtime, Stt, Text, Tts};
use tns_server_core::engine::{Engine, OpenError};

use crate::catalogue::{self, Source};
use crate::config::Access;
use crate::http::Http;
use crate::prices::ModelPrice;
use crate::{
    RUNS_LOCAL_MODELS, anthropic, compatible, elevenlabs, gemini, local, offline, ollama, responses,
};

/// A provider that engines can be opened for.
#[derive(Debug)]
pub struct Provider {
    /// Its id, as flags, config and the protocol name it.
    pub id: &'static str,
    /// Its address where none is set; `None`: one must be set.
    pub base_url: Option<&'static str>,
    /// It can be named although nothing is set for it.
    pub needs_no_setup: bool,
    /// The model where none is named; `None`: the first that the provider lists.
    pub default_model: Option<&'static str>,
    /// What people are told of it.
    pub about: About,
    pub(crate) open: fn(Opening) -> Opened,
    pub(crate) catalogue: &'static Source,
}

/// What people are told of a provider.
#[derive(Debug)]
pub struct About {
    /// Its name.
    pub name: &'static str,
    /// What it is, in one line.
    pub blurb: &'static str,
    /// The kinds of models that it offers, in order. Agents are opened on `Text` alone.
    pub kinds: &'static [ModelKind],
    /// The page where one gets a key.
    pub key_page: Option<&'static str>,
    /// How its keys begin.
    pub key_prefix: Option<&'static str>,
}

/// Every provider, in the order in which the default is looked for.
pub static PROVIDERS: &[Provider] = &[
    Provider {
        id: anthropic::PROVIDER,
        base_url: Some("https://api.anthropic.com"),
        needs_no_setup: false,
        // Anthropic's own advice for most work, November 2026.
        default_model: Some("claude-opus-5-5"),
        about: About {
            name: "Anthropic",
            blurb: "The Claude models",
            kinds: &[Text],
            key_page: Some("https://platform.claude.com/settings/keys"),
            key_prefix: Some("sk-ant-"),
        },
        open: anthropic::open,
        catalogue: &anthropic::catalogue::CATALOGUE,
    },
    Provider {
        id: responses::PROVIDER,
        base_url: Some("https://api.openai.com/v1"),
        needs_no_setup: false,
        // OpenAI's own advice for everyday work and agents, November 2026.
        default_model: Some("gpt-6.2-sol"),
        about: About {
            name: "OpenAI",
            blurb: "The GPT models; voice, speech and embeddings",
            kinds: &[Text, Realtime, Stt, Tts, Embedding],
            key_page: Some("https://platform.openai.com/api-keys"),
            key_prefix: Some("sk-"),
        },
        open: responses::open,
        catalogue: &responses::catalogue::CATALOGUE,
    },
    Provider {
        id: gemini::PROVIDER,
        base_url: Some("https://generativelanguage.googleapis.com"),
        needs_no_setup: false,
        // The newest stable model that every key may use, November 2026.
        default_model: Some("gemini-3.8-flash"),
        about: About {
            name: "Google Gemini",
            blurb: "The Gemini models; voice, speech and embeddings",
            kinds: &[Text, Realtime, Stt, Tts, Embedding],
            key_page: Some("https://aistudio.google.com/apikey"),
            key_prefix: None,
        },
        open: gemini::open,
        catalogue: &gemini::catalogue::CATALOGUE,
    },
    Provider {
        id: ollama::PROVIDER,
        base_url: Some("http://127.0.0.1:11434"),
        needs_no_setup: true,
        default_model: None,
        about: About {
            name: "Ollama",
            blurb: "Open models on this machine, without a key",
            kinds: &[Text, Embedding],
            key_page: Some("https://ollama.com/settings/keys"),
            key_prefix: None,
        },
        open: ollama::open,
        catalogue: &ollama::catalogue::CATALOGUE,
    },
    Provider {
        id: "openai-compatible",
        base_url: None,
        needs_no_setup: false,
        default_model: None,
        about: About {
            name: "OpenAI-compatible",
            blurb: "Any server of Chat Completions: vLLM, LM Studio, llama.cpp, Groq, OpenRouter",
            kinds: &[Text, Stt, Tts, Embedding],
            key_page: None,
            key_prefix: None,
        },
        open: compatible::open,
        catalogue: &compatible::catalogue::CATALOGUE,
    },
    Provider {
        id: local::PROVIDER,
        base_url: None,
        needs_no_setup: true,
        default_model: None,
        about: About { name: "Local", blurb: local::BLURB, kinds: &[Text], key_page: None, key_prefix: None },
        open: local::open,
        catalogue: &local::CATALOGUE,
    },
    Provider {
        id: offline::PROVIDER,
        base_url: None,
        needs_no_setup: true,
        default_model: Some(offline::MODEL),
        about: About {
            name: "Offline",
            blurb: "No model: quotes your documents and runs what you tell it to",
            kinds: &[Text],
            key_page: None,
            key_prefix: None,
        },
        open: offline::open,
        catalogue: &catalogue::EMBEDDED,
    },
    Provider {
        id: elevenlabs::PROVIDER,
        base_url: Some("https://api.elevenlabs.io"),
        needs_no_setup: false,
        default_model: None,
        about: About {
            name: "ElevenLabs",
            blurb: "Voices and speech in both directions; no text",
            kinds: &[Stt, Tts],
            key_page: Some("https://elevenlabs.io/app/settings/api-keys"),
            key_prefix: Some("sk_"),
        },
        open: elevenlabs::open,
        catalogue: &elevenlabs::catalogue::CATALOGUE,
    },
];

/// What a provider's constructor is given.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) provider: &'static Provider,
    pub(crate) access: Access,
    /// The model that was asked for.
    pub(crate) model: Option<String>,
    /// Who asked for it.
    #[cfg_attr(not(feature = "local-llm"), expect(dead_code, reason = "only local models read it"))]
    pub(crate) asker: Asker,
    pub(crate) http: Arc<Http>,
    /// What the operator set for models.
    pub(crate) prices: Arc<[ModelPrice]>,
    /// The models of this process.
    #[cfg_attr(not(feature = "local-llm"), expect(dead_code, reason = "only local models read it"))]
    pub(crate) local: Arc<local::Library>,
}

/// Who names a model: what a client names is never taken as a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asker {
    /// By a flag, the environment or a config file.
    Operator,
    /// Over the wire.
    Client,
}

/// An engine being opened.
pub(crate) type Opened = BoxFuture<'static, Result<Arc<dyn Engine>, OpenError>>;

impl Provider {
    /// Returns the provider with this id.
    pub fn find(id: &str) -> Option<&'static Self> {
        PROVIDERS.iter().find(|provider| provider.id == id)
    }

    /// Whether an agent can be opened on it.
    pub fn writes_text(&self) -> bool {
        self.about.kinds.contains(&ModelKind::Text)
    }

    /// Whether this build has it.
    pub(crate) fn is_built(&self) -> bool {
        self.id != local::PROVIDER || RUNS_LOCAL_MODELS
    }

    /// Whether it runs in this process: it has neither an address nor a key.
    pub(crate) fn is_embedded(&self) -> bool {
        self.needs_no_setup && self.base_url.is_none()
    }

    /// Whether it could use a key: an engine inside this program has nobody to show one to.
    pub fn takes_key(&self) -> bool {
        !self.is_embedded()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_fit_variables() {
        for (place, provider) in PROVIDERS.iter().enumerate() {
            assert!(provider.id.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'));
            assert_eq!(PROVIDERS.iter().position(|other| other.id == provider.id), Some(place));
        }
    }

    #[test]
    fn every_row_tells_what_people_need() {
        for provider in PROVIDERS {
            let About { name, blurb, kinds, key_page, key_prefix } = &provider.about;
            assert!(!name.is_empty() && !blurb.is_empty() && !blurb.contains('\n'), "{name}");
            assert!(!kinds.is_empty() && kinds.is_sorted(), "{name}");
            assert!(key_page.is_none_or(|page| page.starts_with("https://")), "{name}");
            // Where there is one address, one gets a key somewhere.
            assert!(key_page.is_some() || provider.base_url.is_none(), "{name}");
            assert!(key_prefix.is_none() || key_page.is_some(), "{name}");
            assert!(provider.default_model.is_none() || provider.writes_text(), "{name}");
        }
    }

    #[test]
    fn only_a_provider_with_an_address_or_none_at_all_works_without_setup() {
        for provider in PROVIDERS.iter().filter(|provider| provider.needs_no_setup) {
            let within = [local::PROVIDER, offline::PROVIDER].contains(&provider.id);
            assert!(provider.base_url.is_some() || within);
        }
    }
}
