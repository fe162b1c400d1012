//! Anthropic Messages (`POST {base}/v1/messages`), as documented in November 2026 at
//! <https://platform.claude.com/docs/en/api/messages>. The request is built in `request`, the answer
//! decoded in `decoder`, what differs between models stands in `model`.

use std::sync::Arc;

use futures_util::FutureExt;
use reqwest::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue};
use tns_server_core::engine::{Engine, EngineError, EngineErrorKind, OpenError, StepRequest};

use crate::config::Access;
use crate::http::Endpoint;
use crate::provider::{Opened, Opening, Provider};
use crate::refusal::{self, Said};
use crate::step::{Decoder, RemoteEngine, Target, Wire, WireRequest, unwritable};

pub(crate) mod catalogue;
mod decoder;
mod event;
mod model;
mod request;

use decoder::StreamDecoder;
use model::Thinking;

/// The provider's id, also of the blocks that go back to it.
pub(crate) const PROVIDER: &str = "anthropic";

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const VERSION: HeaderName = HeaderName::from_static("anthropic-version");
const BETA: HeaderName = HeaderName::from_static("anthropic-beta");

/// The version of the API; it has been the only one since 2023.
const API_VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");
/// Lets a request say what happens to thoughts whose conversation was changed.
const THINKING_BINDING: HeaderValue = HeaderValue::from_static("thinking-binding-controls-2026-08-01");

/// Anthropic Messages.
#[derive(Debug)]
struct Messages;

/// Anthropic's own service, or a gateway to it.
pub(crate) fn open(opening: Opening) -> Opened {
    async move {
        let Provider { id, default_model, .. } = *opening.provider;
        let endpoint = endpoint(opening.provider, &opening.access)?;
        let model = opening.model.or_else(|| default_model.map(str::to_owned));
        let model = model.ok_or_else(|| OpenError(format!("name a model of {id} with --model")))?;
        let target = Target { endpoint, model, accepts_images: true, own_prices: opening.prices };
        let engine: Arc<dyn Engine> = Arc::new(RemoteEngine::new(target, opening.http, Messages));
        Ok(engine)
    }
    .boxed()
}

fn endpoint(provider: &'static Provider, access: &Access) -> Result<Endpoint, OpenError> {
    let base = access.base_url.as_deref().or(provider.base_url).unwrap_or_default();
    Ok(Endpoint::new(provider.id, base, access.key.clone())?.with_version("/v1"))
}

impl Wire for Messages {
    fn request(&self, target: &Target, step: &StepRequest) -> Result<WireRequest, EngineError> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        headers.insert(VERSION, API_VERSION);
        if let Some(key) = target.endpoint.secret_header("")? {
            headers.insert(API_KEY, key);
        }
        let thinking = Thinking::of(&target.model, step.temperature);
        if thinking.is_some_and(|thinking| thinking.is_bound) {
            headers.insert(BETA, THINKING_BINDING);
        }
        let body = request::build(step, &target.model, thinking);
        Ok(WireRequest {
            url: target.endpoint.url("/messages"),
            headers,
            body: body.map_err(|error| unwritable(&error))?.into(),
        })
    }

    fn decoder(&self, target: &Target) -> Box<dyn Decoder> {
        decoder(&target.model)
    }

    fn kind(&self, status: Option<u16>, said: &Said) -> EngineErrorKind {
        kind(status, said)
    }
}

/// Returns what a refusal means, where Anthropic's words differ from the usual ones.
fn kind(status: Option<u16>, said: &Said) -> EngineErrorKind {
    let words = said.message.to_ascii_lowercase();
    // A spend limit that the operator set, which comes as a 400 or 429.
    if words.contains("usage limits") && words.contains("regain access") {
        return EngineErrorKind::NoCredit;
    }
    if words.contains("exceed context limit") || words.contains("exceeds the context limit") {
        return EngineErrorKind::ContextOverflow;
    }
    if said.tags.contains("timeout_error") {
        return EngineErrorKind::Unavailable;
    }
    refusal::usual_kind(status, said)
}

/// Makes the decoder of an answer; `model` is the one that was asked for.
pub(crate) fn decoder(model: &str) -> Box<dyn Decoder> {
    Box::new(StreamDecoder::new(model))
}

#[cfg(test)]
mod tests;
