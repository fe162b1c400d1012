//! ElevenLabs' part of the catalogue: models that speak (`GET /v1/models`) and those that listen, which it
//! does not list; voices (`GET /v2/voices`); credit (`GET /v1/user/subscription`).

use futures_util::FutureExt;
use reqwest::Url;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tns_protocol::provider::{Credit, ModelInfo, ModelKind, VoiceInfo};
use tns_server_core::engine::{EngineError, EngineErrorKind};

use super::{KEY_HEADER, endpoint, kind};
use crate::ask::{Question, ask};
use crate::catalogue::pages::{self, Page};
use crate::catalogue::{Asked, Asking, CreditCheck, Source, Voices, model, no_address, voice};
use crate::http::{Endpoint, Http};

pub(crate) static CATALOGUE: Source = Source {
    models,
    voices: Voices::Listed(voices),
    credit: CreditCheck::Told(credit),
    // The one for conversations: it speaks soonest.
    preferred: &["eleven_flash_v2_5", "scribe_v2"],
};

/// The models that listen (<https://elevenlabs.io/docs/overview/models>).
const LISTENING: [&str; 3] = ["scribe_v2", "scribe_v2_realtime", "scribe_v1"];

/// Voices of a page: the most that may be asked for.
const PAGE: &str = "100";

#[derive(Deserialize)]
struct Model {
    model_id: String,
    name: Option<String>,
    #[serde(default)]
    can_do_text_to_speech: bool,
    #[serde(default)]
    requires_alpha_access: bool,
}

#[derive(Deserialize)]
struct Subscription {
    character_count: u64,
    character_limit: u64,
    /// More may be bought, and the account's owner allows it.
    #[serde(default)]
    can_extend_character_limit: bool,
    #[serde(default)]
    allowed_to_extend_character_limit: bool,
}

#[derive(Deserialize)]
struct Listed {
    voices: Vec<Voice>,
    #[serde(default)]
    has_more: bool,
    next_page_token: Option<String>,
}

#[derive(Deserialize)]
struct Voice {
    voice_id: String,
    name: Option<String>,
    description: Option<String>,
    preview_url: Option<String>,
    labels: Option<Map<String, Value>>,
}

fn models(asking: Asking) -> Asked<Vec<ModelInfo>> {
    async move {
        let endpoint = endpoint(asking.provider, &asking.access).map_err(no_address)?;
        let listed: Vec<Model> = get(&asking.http, &endpoint, endpoint.url("/v1/models")).await?;
        let speaking = listed.into_iter().filter(|m| m.can_do_text_to_speech && !m.requires_alpha_access);
        let speaking =
            speaking.map(|listed| ModelInfo { name: listed.name, ..model(&listed.model_id, ModelKind::Tts) });
        Ok(speaking.chain(LISTENING.map(|id| model(id, ModelKind::Stt))).collect())
    }
    .boxed()
}

fn voices(asking: Asking) -> Asked<Vec<VoiceInfo>> {
    async move {
        let endpoint = endpoint(asking.provider, &asking.access).map_err(no_address)?;
        let listed = pages::all(endpoint.provider, |token| page(&asking.http, &endpoint, token)).await?;
        Ok(listed.into_iter().map(info).collect())
    }
    .boxed()
}

async fn page(http: &Http, endpoint: &Endpoint, token: Option<String>) -> Result<Page<Voice>, EngineError> {
    let mut url = endpoint.url("/v2/voices");
    let mark = token.map(|token| ("next_page_token", token));
    url.query_pairs_mut().append_pair("page_size", PAGE).extend_pairs(mark);
    let listed: Listed = get(http, endpoint, url).await?;
    Ok(Page { items: listed.voices, next: listed.next_page_token.filter(|_| listed.has_more) })
}

fn info(listed: Voice) -> VoiceInfo {
    let labels = listed.labels.unwrap_or_default();
    let labels: Vec<&str> =
        labels.values().filter_map(Value::as_str).filter(|word| !word.is_empty()).collect();
    let said = listed.description.filter(|words| !words.trim().is_empty());
    let bare = voice(&listed.voice_id, &[ModelKind::Tts]);
    VoiceInfo {
        name: listed.name.unwrap_or_else(|| listed.voice_id.clone()),
        description: said.or_else(|| (!labels.is_empty()).then(|| labels.join(", "))),
        preview_url: listed.preview_url,
        ..bare
    }
}

fn credit(asking: Asking) -> Asked<Credit> {
    async move {
        let endpoint = endpoint(asking.provider, &asking.access).map_err(no_address)?;
        let url = endpoint.url("/v1/user/subscription");
        let account: Subscription = match get(&asking.http, &endpoint, url).await {
            Ok(account) => account,
            // A key that may speak but not look at the account.
            Err(error) if error.kind == EngineErrorKind::Provider => return Ok(Credit::Unknown),
            Err(error) => return Err(error),
        };
        let grows = account.can_extend_character_limit && account.allowed_to_extend_character_limit;
        if account.character_count < account.character_limit || grows {
            return Ok(Credit::Ok);
        }
        let (id, limit) = (endpoint.provider, account.character_limit);
        let message = format!("the {id} account has no credit: all {limit} characters of the plan are used");
        Err(EngineError { kind: EngineErrorKind::NoCredit, message })
    }
    .boxed()
}

async fn get<T: DeserializeOwned>(http: &Http, endpoint: &Endpoint, url: Url) -> Result<T, EngineError> {
    let mut request = http.client(endpoint).await?.get(url);
    if let Some(key) = endpoint.secret_header("")? {
        request = request.header(KEY_HEADER, key);
    }
    ask(endpoint, Question { kind, ..Question::new(request, "answers as something other than ElevenLabs") })
        .await
}
