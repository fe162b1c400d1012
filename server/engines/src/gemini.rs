//! Google's Gemini API: `streamGenerateContent` over server-sent events. The request is built in
//! `request` (a tool's schema in `schema`, its name in `name`), the answer decoded in `decoder`, and
//! what must go back as it came is kept in `native`. Wire format: <https://ai.google.dev/api>.

use std::sync::Arc;

use futures_util::FutureExt;
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue};
use tns_server_core::engine::{Engine, EngineError, EngineErrorKind, OpenError, StepRequest};

use crate::config::Access;
use crate::http::{Endpoint, one_line};
use crate::provider::{Opened, Opening, Provider};
use crate::refusal::{Said, usual_kind};
use crate::step::{Decoder, RemoteEngine, Target, Wire, WireRequest, unwritable};

pub(crate) mod catalogue;
mod decoder;
mod event;
mod name;
mod native;
mod request;
mod schema;

use decoder::StreamDecoder;

/// The provider's id.
pub(crate) const PROVIDER: &str = "gemini";

/// The version of the API that has the newest models.
const VERSION_PATH: &str = "/v1beta";

/// The header that carries the key. It could stand in the URL too, where logs would show it.
const KEY_HEADER: &str = "x-goog-api-key";

/// Gemini's wire.
#[derive(Debug)]
struct Gemini;

/// Google's own service, or what stands at the address that the operator set.
pub(crate) fn open(opening: Opening) -> Opened {
    async move {
        let provider = opening.provider;
        let asked = opening.model.as_deref().or(provider.default_model).unwrap_or_default();
        let model = model_name(asked)?;
        let endpoint = endpoint(provider, &opening.access)?;
        let accepts_images = takes_pictures(&model);
        let target = Target { endpoint, model, accepts_images, own_prices: opening.prices };
        Ok(Arc::new(RemoteEngine::new(target, opening.http, Gemini)) as Arc<dyn Engine>)
    }
    .boxed()
}

fn endpoint(provider: &'static Provider, access: &Access) -> Result<Endpoint, OpenError> {
    let base = access.base_url.as_deref().or(provider.base_url).unwrap_or_default();
    let base = base.trim().trim_end_matches('/');
    let base = base.strip_suffix(VERSION_PATH).unwrap_or(base);
    Endpoint::new(provider.id, base, access.key.clone())
}

/// Whether a model takes pictures: Google's other families, such as Gemma, are not sent any.
fn takes_pictures(model: &str) -> bool {
    model.starts_with("gemini-")
}

/// Returns a model's name as it stands in a URL; `models/` may stand before it, as the API lists it.
fn model_name(asked: &str) -> Result<String, OpenError> {
    let name = asked.strip_prefix("models/").unwrap_or(asked);
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(fits) {
        return Ok(name.to_owned());
    }
    Err(OpenError(format!("{} is no name of a gemini model; one is gemini-3.8-flash", one_line(asked, 64))))
}

impl Wire for Gemini {
    fn request(&self, target: &Target, step: &StepRequest) -> Result<WireRequest, EngineError> {
        let body = request::build(step, &target.model, target.accepts_images);
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(key) = target.endpoint.secret_header("")? {
            headers.insert(KEY_HEADER, key);
        }
        let path = format!("{VERSION_PATH}/models/{}:streamGenerateContent", target.model);
        let mut url = target.endpoint.url(&path);
        url.query_pairs_mut().append_pair("alt", "sse");
        Ok(WireRequest { url, headers, body: body.map_err(|error| unwritable(&error))?.into() })
    }

    fn decoder(&self, target: &Target) -> Box<dyn Decoder> {
        decoder(&target.model)
    }

    fn kind(&self, status: Option<u16>, said: &Said) -> EngineErrorKind {
        kind(status, said)
    }

    fn refuses_blocks(&self, said: &Said) -> bool {
        let words = said.message.to_ascii_lowercase();
        ["thought signature", "thought_signature"].iter().any(|name| words.contains(name))
    }
}

/// Returns what a refusal means, where Google's words differ from the usual ones
/// (<https://ai.google.dev/gemini-api/docs/troubleshooting>).
fn kind(status: Option<u16>, said: &Said) -> EngineErrorKind {
    let words = said.message.to_ascii_lowercase();
    if words.contains("location is not supported") {
        // Comes with the status of an account without billing.
        return EngineErrorKind::BadKey;
    }
    if said.tags.contains("failed_precondition") || words.contains("credits are depleted") {
        return EngineErrorKind::NoCredit;
    }
    if words.contains("token count") && words.contains("exceeds the maximum") {
        return EngineErrorKind::ContextOverflow;
    }
    if said.tags.contains("unauthenticated") {
        return EngineErrorKind::BadKey;
    }
    if ["deadline_exceeded", "internal"].iter().any(|tag| said.tags.contains(tag)) {
        return EngineErrorKind::Unavailable;
    }
    usual_kind(status, said)
}

/// Makes the decoder of an answer; `model` is the one that was asked for.
pub(crate) fn decoder(model: &str) -> Box<dyn Decoder> {
    Box::new(StreamDecoder::new(model))
}

#[cfg(test)]
mod tests;
