//! The table of providers: one row each. Adding one is its module and its row here; nothing else
//! in the product names a provider.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tns_server_core::engine::{Engine, OpenError};

use crate::config::Access;
use crate::http::Http;
use crate::{anthropic, compatible, gemini, offline, ollama, responses};

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
    pub(crate) open: fn(Opening) -> Opened,
}

/// Every provider, in the order in which the default is looked for.
pub static PROVIDERS: &[Provider] = &[
    Provider {
        id: anthropic::PROVIDER,
        base_url: Some("https://api.anthropic.com"),
        needs_no_setup: false,
        // Anthropic's own advice for most work, November 2026.
        default_model: Some("claude-opus-5-5"),
        open: anthropic::open,
    },
    Provider {
        id: responses::PROVIDER,
        base_url: Some("https://api.openai.com/v1"),
        needs_no_setup: false,
        // OpenAI's own advice for everyday work and agents, November 2026.
        default_model: Some("gpt-6.2-sol"),
        open: responses::open,
    },
    Provider {
        id: gemini::PROVIDER,
        base_url: Some("https://generativelanguage.googleapis.com"),
        needs_no_setup: false,
        // The newest stable model that every key may use, November 2026.
        default_model: Some("gemini-3.8-flash"),
        open: gemini::open,
    },
    Provider {
        id: ollama::PROVIDER,
        base_url: Some("http://127.0.0.1:11434"),
        needs_no_setup: true,
        default_model: None,
        open: ollama::open,
    },
    Provider {
        id: "openai-compatible",
        base_url: None,
        needs_no_setup: false,
        default_model: None,
        open: compatible::open,
    },
    Provider {
        id: offline::PROVIDER,
        base_url: None,
        needs_no_setup: true,
        default_model: Some(offline::MODEL),
        open: offline::open,
    },
];

/// What a provider's constructor is given.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) provider: &'static Provider,
    pub(crate) access: Access,
    /// The model that was asked for.
    pub(crate) model: Option<String>,
    pub(crate) http: Arc<Http>,
}

/// An engine being opened.
pub(crate) type Opened = BoxFuture<'static, Result<Arc<dyn Engine>, OpenError>>;

impl Provider {
    /// Returns the provider with this id.
    pub fn find(id: &str) -> Option<&'static Self> {
        PROVIDERS.iter().find(|provider| provider.id == id)
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
    fn only_a_provider_with_an_address_or_none_at_all_works_without_setup() {
        for provider in PROVIDERS.iter().filter(|provider| provider.needs_no_setup) {
            assert!(provider.base_url.is_some() || provider.id == offline::PROVIDER);
        }
    }
}
