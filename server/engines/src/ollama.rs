//! Ollama's own API: `/api/chat`, whose answer comes as lines of JSON. The request is built in
//! `request`, the answer decoded in `decoder`; `models` asks which models there are, `abilities` tells
//! what one can do, `thought` keeps its reasoning, `pull` gets a model into the server. Wire format: <https://docs.ollama.com/api>.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue};
use tns_server_core::engine::{Engine, EngineError, EngineErrorKind, OpenError, StepRequest};

use crate::ask::ASK_LIMIT;
use crate::config::Access;
use crate::http::Endpoint;
use crate::provider::{Opened, Opening, Provider};
use crate::refusal::{Said, usual_kind};
use crate::step::{Decoder, RemoteEngine, Target, Wire, WireRequest};

mod abilities;
pub(crate) mod catalogue;
mod context;
mod decoder;
mod line;
pub(crate) mod models;
pub(crate) mod pull;
mod request;
mod thought;

use abilities::Abilities;
use context::Room;
use decoder::LineDecoder;

/// The provider's id.
pub(crate) const PROVIDER: &str = "ollama";

/// The command that gets a model into Ollama, in messages; the model's name follows.
const PULL: &str = "tns models pull --ollama";

/// Where Ollama speaks another provider's format; addresses are often given with it.
const COMPATIBLE_PATH: &str = "/v1";

/// Ollama's wire, with what the model can do.
#[derive(Debug)]
struct Ollama {
    abilities: Abilities,
    address: String,
    model: String,
    /// A request did not fit into the context that it asked for: its length was guessed too low. The next ones ask
    /// for all that the model reads.
    all: AtomicBool,
}

/// An Ollama server. The model is checked here, since Ollama would only say so mid-reply.
pub(crate) fn open(opening: Opening) -> Opened {
    async move {
        let endpoint = endpoint(opening.provider, &opening.access)?;
        let refused = |error: EngineError| OpenError(error.message);
        let listed = models::list(&opening.http, &endpoint, ASK_LIMIT).await.map_err(refused)?;
        let model = match &opening.model {
            Some(asked) => models::find(&listed, asked)?,
            None => models::first(&listed).map(str::to_owned).ok_or_else(|| {
                let address = endpoint.address();
                OpenError(format!("ollama at {address} has no model: get one with `{PULL} NAME`"))
            })?,
        };
        let shown = models::shown(&opening.http, &endpoint, &model).await.map_err(refused)?;
        let mut abilities = Abilities::of(&shown);
        let of_model = shown.context_window();
        abilities.room = match is_elsewhere(&model) {
            true => Room::elsewhere(of_model),
            false => abilities.room.as_operator_says(of_model, opening.access.context_length),
        };
        if !abilities.tools {
            tracing::warn!(model, "this model takes no tools; its agent only talks");
        }
        let (address, all) = (endpoint.address(), AtomicBool::new(false));
        let accepts_images = abilities.pictures;
        let wire = Ollama { abilities, address, model: model.clone(), all };
        let target = Target { endpoint, model, accepts_images, own_prices: opening.prices };
        Ok(Arc::new(RemoteEngine::new(target, opening.http, wire)) as Arc<dyn Engine>)
    }
    .boxed()
}

/// Whether this Ollama only passes a model's requests on.
fn is_elsewhere(model: &str) -> bool {
    model.ends_with("-cloud") || model.ends_with(":cloud")
}

fn endpoint(provider: &'static Provider, access: &Access) -> Result<Endpoint, OpenError> {
    let base = access.base_url.as_deref().or(provider.base_url).unwrap_or_default();
    Endpoint::new(provider.id, own_base(base), access.key.clone())
}

/// Returns the address of Ollama's own API.
pub(crate) fn own_base(base: &str) -> &str {
    let base = base.trim().trim_end_matches('/');
    base.strip_suffix(COMPATIBLE_PATH).unwrap_or(base)
}

impl Wire for Ollama {
    fn request(&self, target: &Target, step: &StepRequest) -> Result<WireRequest, EngineError> {
        let window = self.abilities.room.window().filter(|_| self.all.load(Ordering::Relaxed));
        let body = request::build(step, &target.model, &self.abilities, |needed| {
            context::never_less(&self.address, &self.model, window.unwrap_or(needed))
        })?;
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/x-ndjson"));
        if let Some(bearer) = target.endpoint.bearer()? {
            headers.insert(AUTHORIZATION, bearer);
        }
        Ok(WireRequest { url: target.endpoint.url("/api/chat"), headers, body: body.into() })
    }

    fn context_window(&self) -> Option<u64> {
        self.abilities.room.window()
    }

    /// A model of this machine.
    fn is_free(&self, target: &Target) -> bool {
        target.endpoint.is_loopback()
    }

    fn decoder(&self, target: &Target) -> Box<dyn Decoder> {
        decoder(&target.model)
    }

    fn kind(&self, status: Option<u16>, said: &Said) -> EngineErrorKind {
        let words = said.message.to_ascii_lowercase();
        if words.contains("context length") || words.contains("context size") {
            self.all.store(true, Ordering::Relaxed);
            return EngineErrorKind::ContextOverflow;
        }
        // Comes as a failure of the server, but would come again.
        if words.contains("system memory") || words.contains("out of memory") {
            self.all.store(false, Ordering::Relaxed);
            context::forget(&self.address, &self.model);
            return EngineErrorKind::Provider;
        }
        usual_kind(status, said)
    }
}

/// Makes the decoder of an answer; `model` is the one that was asked for.
pub(crate) fn decoder(model: &str) -> Box<dyn Decoder> {
    Box::new(LineDecoder::new(model))
}

#[cfg(test)]
mod tests;
