//! Anthropic's part of the catalogue (`GET {base}/v1/models`), as documented in November 2026 at
//! <https://platform.claude.com/docs/en/api/models>. It has no voices. A list is shown to an account
//! without credit too.

use futures_util::FutureExt;
use serde::Deserialize;
use tns_protocol::provider::{ModelInfo, ModelKind};
use tns_server_core::engine::EngineError;

use super::{API_KEY, API_VERSION, VERSION, endpoint, kind};
use crate::ask::{Question, ask};
use crate::catalogue::pages::{self, Page};
use crate::catalogue::{Asked, Asking, CreditCheck, SmallestStep, Source, Voices, model, no_address};
use crate::http::{Endpoint, Http};

pub(crate) static CATALOGUE: Source = Source {
    models,
    voices: Voices::None,
    credit: CreditCheck::Step(SmallestStep { models: &["claude-haiku-5-5", "claude-haiku-4-5"], tokens: 1 }),
    preferred: &[],
};

/// Models of a page: the most that may be asked for.
const PAGE: &str = "1000";

#[derive(Deserialize)]
struct Listed {
    data: Vec<Model>,
    #[serde(default)]
    has_more: bool,
    last_id: Option<String>,
}

#[derive(Deserialize)]
struct Model {
    id: String,
    display_name: Option<String>,
    max_input_tokens: Option<u64>,
    capabilities: Option<Capabilities>,
}

#[derive(Deserialize)]
struct Capabilities {
    image_input: Option<Supported>,
}

#[derive(Deserialize)]
struct Supported {
    supported: bool,
}

fn models(asking: Asking) -> Asked<Vec<ModelInfo>> {
    async move {
        let endpoint = endpoint(asking.provider, &asking.access).map_err(no_address)?;
        let listed = pages::all(endpoint.provider, |after| page(&asking.http, &endpoint, after)).await?;
        Ok(listed.into_iter().map(info).collect())
    }
    .boxed()
}

async fn page(http: &Http, endpoint: &Endpoint, after: Option<String>) -> Result<Page<Model>, EngineError> {
    let mut url = endpoint.url("/models");
    url.query_pairs_mut().append_pair("limit", PAGE).extend_pairs(after.map(|after| ("after_id", after)));
    let mut request = http.client(endpoint).await?.get(url).header(VERSION, API_VERSION);
    if let Some(key) = endpoint.secret_header("")? {
        request = request.header(API_KEY, key);
    }
    let otherwise = "answers /v1/models with something other than a list of models";
    let listed: Listed = ask(endpoint, Question { kind, ..Question::new(request, otherwise) }).await?;
    let last = listed.last_id.or_else(|| listed.data.last().map(|model| model.id.clone()));
    Ok(Page { next: last.filter(|_| listed.has_more), items: listed.data })
}

fn info(listed: Model) -> ModelInfo {
    let images = listed.capabilities.and_then(|can| can.image_input).map(|images| images.supported);
    ModelInfo {
        name: listed.display_name,
        context_window: listed.max_input_tokens.filter(|tokens| *tokens > 0),
        accepts_images: images,
        ..model(&listed.id, ModelKind::Text)
    }
}
