//! OpenAI Responses (`POST {base}/responses`), as documented in November 2026 at
//! <https://developers.openai.com/api/reference/resources/responses>. Nothing is stored at the provider:
//! each request carries the whole conversation, reasoning as encrypted items. The request is built in
//! `request`, the answer decoded in `decoder`.
//!
//! A server that speaks only Chat Completions is no `openai`, whatever it serves: it belongs to
//! `openai-compatible` and `PROVIDER_BASE_URL_OPENAI_COMPATIBLE`.

use std::sync::Arc;

use futures_util::FutureExt;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue};
use tns_server_core::engine::{Engine, EngineError, OpenError, StepRequest};

use crate::compatible;
use crate::provider::{Opened, Opening, Provider};
use crate::step::{Decoder, RemoteEngine, Target, Wire, WireRequest, unwritable};

pub(crate) mod catalogue;
mod decoder;
mod event;
mod native;
mod request;

use decoder::StreamDecoder;

/// The provider's id, also of the items that go back to it.
pub(crate) const PROVIDER: &str = "openai";

/// OpenAI Responses.
#[derive(Debug)]
struct Responses;

/// OpenAI's own service, or a gateway to it.
pub(crate) fn open(opening: Opening) -> Opened {
    async move {
        let Provider { id, default_model, .. } = *opening.provider;
        let endpoint = compatible::endpoint(opening.provider, &opening.access)?;
        let model = opening.model.or_else(|| default_model.map(str::to_owned));
        let model = model.ok_or_else(|| OpenError(format!("name a model of {id} with --model")))?;
        let target = Target { endpoint, model, accepts_images: true, own_prices: opening.prices };
        let engine: Arc<dyn Engine> = Arc::new(RemoteEngine::new(target, opening.http, Responses));
        Ok(engine)
    }
    .boxed()
}

impl Wire for Responses {
    fn request(&self, target: &Target, step: &StepRequest) -> Result<WireRequest, EngineError> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(bearer) = target.endpoint.bearer()? {
            headers.insert(AUTHORIZATION, bearer);
        }
        let body = request::build(step, &target.model);
        Ok(WireRequest {
            url: target.endpoint.url("/responses"),
            headers,
            body: body.map_err(|error| unwritable(&error))?.into(),
        })
    }

    fn decoder(&self, target: &Target) -> Box<dyn Decoder> {
        decoder(&target.model)
    }
}

/// Makes the decoder of an answer; `model` is the one that was asked for.
pub(crate) fn decoder(model: &str) -> Box<dyn Decoder> {
    Box::new(StreamDecoder::new(model))
}

#[cfg(test)]
mod tests;
