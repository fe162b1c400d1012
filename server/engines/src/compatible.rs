//! Chat Completions against any base URL: OpenAI's own, Ollama's `/v1`, and whatever else speaks it
//! (vLLM, LM Studio, llama.cpp, Groq, OpenRouter, Mistral). One step is one streamed request; the
//! request is built in `request`, the answer decoded in `stream`, refusals read in `failure`.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use tns_server_core::engine::{
    Engine, EngineError, EngineErrorKind, OpenError, StepEvent, StepRequest, StepStream,
};

use crate::http::{Endpoint, Http};
use crate::provider::{Opened, Opening, Provider};

mod call;
mod chunk;
mod decoder;
mod failure;
pub(crate) mod models;
mod prices;
mod request;

use call::Call;
use request::Dialect;

/// An engine that speaks Chat Completions.
#[derive(Debug)]
struct Compatible {
    connection: Arc<Connection>,
}

/// What every step of one engine shares.
#[derive(Debug)]
struct Connection {
    endpoint: Endpoint,
    http: Arc<Http>,
    model: String,
    dialect: Dialect,
    accepts_images: bool,
}

/// OpenAI's own service.
pub(crate) fn open_openai(opening: Opening) -> Opened {
    async move {
        let model = opening.model.clone().or_else(|| opening.provider.default_model.map(str::to_owned));
        let endpoint = endpoint(&opening)?;
        open(opening, endpoint, model, Dialect::OpenAi).await
    }
    .boxed()
}

/// A server that speaks the format, at an address that the operator set.
pub(crate) fn open_compatible(opening: Opening) -> Opened {
    async move {
        let endpoint = endpoint(&opening)?;
        let model = opening.model.clone();
        open(opening, endpoint, model, Dialect::Plain).await
    }
    .boxed()
}

/// Ollama's compatible face. The model is checked here, since Ollama would only say so mid-reply.
pub(crate) fn open_ollama(opening: Opening) -> Opened {
    async move {
        // Ollama's address is usually given without the path of this face.
        let endpoint = endpoint(&opening)?.with_default_path("/v1");
        let model = match &opening.model {
            None => None,
            Some(asked) => {
                let listed = list(&opening, &endpoint).await?;
                Some(models::find_ollama(&listed, asked)?)
            }
        };
        open(opening, endpoint, model, Dialect::Plain).await
    }
    .boxed()
}

fn endpoint(opening: &Opening) -> Result<Endpoint, OpenError> {
    let Provider { id, base_url, .. } = *opening.provider;
    let base = opening.access.base_url.as_deref().or(base_url).unwrap_or_default();
    Endpoint::new(id, base, opening.access.key.clone())
}

async fn list(opening: &Opening, endpoint: &Endpoint) -> Result<Vec<String>, OpenError> {
    let limit = models::LIST_LIMIT;
    models::list(&opening.http, endpoint, limit).await.map_err(|error| OpenError(error.message))
}

async fn open(
    opening: Opening,
    endpoint: Endpoint,
    model: Option<String>,
    dialect: Dialect,
) -> Result<Arc<dyn Engine>, OpenError> {
    let model = match model {
        Some(model) => model,
        None => {
            let listed = list(&opening, &endpoint).await?;
            let first = models::first_chat_model(&listed).map(str::to_owned);
            first.ok_or_else(|| models::none_listed(&endpoint))?
        }
    };
    let accepts_images = dialect == Dialect::OpenAi || models::names_pictures(&model);
    let connection = Connection { endpoint, http: opening.http, model, dialect, accepts_images };
    Ok(Arc::new(Compatible { connection: Arc::new(connection) }))
}

impl Engine for Compatible {
    fn provider(&self) -> &str {
        self.connection.endpoint.provider
    }

    fn model(&self) -> &str {
        &self.connection.model
    }

    fn accepts_images(&self) -> bool {
        self.connection.accepts_images
    }

    fn step(&self, request: StepRequest) -> StepStream {
        let call = Box::new(Call::new(Arc::clone(&self.connection), request));
        stream::unfold(call, |mut call| async move {
            let event = call.next().await?;
            Some((event, call))
        })
        .boxed()
    }
}

impl Connection {
    /// Returns the body of a request.
    fn body(&self, request: &StepRequest) -> Result<Bytes, EngineError> {
        let body = request::build(request, &self.model, self.dialect, self.accepts_images);
        body.map(Bytes::from).map_err(|error| EngineError {
            kind: EngineErrorKind::Provider,
            message: format!("the request can't be written as JSON: {error}"),
        })
    }
}

/// Events that are decoded and not yet asked for.
type Events = VecDeque<StepEvent>;

#[cfg(test)]
mod tests;
