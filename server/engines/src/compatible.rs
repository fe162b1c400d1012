//! Chat Completions against any base URL: vLLM, LM Studio, llama.cpp, Groq, OpenRouter, Mistral and
//! whatever else speaks it. The request is built in `request`, the answer decoded in `decoder`.

use std::sync::Arc;

use futures_util::FutureExt;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue};
use tns_server_core::engine::{Engine, EngineError, OpenError, StepRequest};

use crate::ask::ASK_LIMIT;
use crate::config::Access;
use crate::http::Endpoint;
use crate::provider::{Opened, Opening, Provider};
use crate::step::{Decoder, RemoteEngine, Target, Wire, WireRequest, unwritable};

pub(crate) mod catalogue;
mod chunk;
mod decoder;
pub(crate) mod models;
mod request;

use decoder::StreamDecoder;

/// Chat Completions.
#[derive(Debug)]
struct ChatCompletions;

/// A server that speaks the format, at an address that the operator set.
pub(crate) fn open(opening: Opening) -> Opened {
    async move {
        let endpoint = endpoint(opening.provider, &opening.access)?;
        let model = match opening.model {
            Some(model) => model,
            None => {
                let listed = models::list(&opening.http, &endpoint, ASK_LIMIT).await;
                let listed = listed.map_err(|error| OpenError(error.message))?;
                let first = models::first_chat_model(&listed).map(str::to_owned);
                first.ok_or_else(|| models::none_listed(&endpoint))?
            }
        };
        let accepts_images = models::names_pictures(&model);
        let target = Target { endpoint, model, accepts_images, own_prices: opening.prices };
        let engine: Arc<dyn Engine> = Arc::new(RemoteEngine::new(target, opening.http, ChatCompletions));
        Ok(engine)
    }
    .boxed()
}

/// Returns where a server is reached; also OpenAI's, whose list of models has this form.
pub(crate) fn endpoint(provider: &'static Provider, access: &Access) -> Result<Endpoint, OpenError> {
    let base = access.base_url.as_deref().or(provider.base_url).unwrap_or_default();
    Endpoint::new(provider.id, base, access.key.clone())
}

impl Wire for ChatCompletions {
    fn request(&self, target: &Target, step: &StepRequest) -> Result<WireRequest, EngineError> {
        let body = request::build(step, &target.model, target.accepts_images);
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(bearer) = target.endpoint.bearer()? {
            headers.insert(AUTHORIZATION, bearer);
        }
        Ok(WireRequest {
            url: target.endpoint.url("/chat/completions"),
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
