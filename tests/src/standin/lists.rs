//! What providers tell beside answers: lists of models and voices, in pages where the provider has them,
//! and the account. An account without credit is shown its lists, as with the real ones.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::Value;

use super::wire::{Trouble, Wire};
use super::{
    BROKE_KEY, GOOD_KEY, OUTAGE_KEY, Recorded, SLOW_KEY, Shared, anthropic, chat, elevenlabs, gemini, is_key,
    ollama, responses,
};

/// Most items of a page, whatever is asked for, so that every list that can be has several pages. The real
/// ones keep to what is asked.
pub(super) const MAX_PAGE: usize = 4;

/// The query of a request.
pub(super) type Params = HashMap<String, String>;

/// Whether a request costs something, so that an account without credit is refused it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Price {
    Free,
    Paid,
}

/// Returns the routes of everything that is told.
pub(super) fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/v1/models", get(models))
        .route("/openai/v1/models", told(&responses::Responses, |_| Ok(responses::models())))
        .route("/v1beta/models", told(&gemini::Gemini, gemini::models))
        .route("/api/tags", told(&ollama::Ollama, |_| Ok(ollama::models())))
        .route("/api/show", post(shown))
        .route("/api/pull", post(pulled))
        .route("/v1/user/subscription", get(elevenlabs::subscription))
        .route("/v2/voices", get(elevenlabs::voices))
}

fn told(
    wire: &'static dyn Wire,
    list: fn(&Params) -> Result<Value, String>,
) -> axum::routing::MethodRouter<Arc<Shared>> {
    get(
        move |State(shared): State<Arc<Shared>>,
              headers: HeaderMap,
              uri: Uri,
              Query(params): Query<Params>| {
            async move { listed(&shared, wire, &headers, &uri, &params, list) }
        },
    )
}

/// Lists models for whichever of the three providers at this path is asked.
async fn models(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    uri: Uri,
    Query(params): Query<Params>,
) -> Response {
    if headers.contains_key(elevenlabs::KEY_HEADER) {
        elevenlabs::answer(&shared, &headers, &uri, elevenlabs::models)
    } else if headers.contains_key("anthropic-version") {
        listed(&shared, &anthropic::Messages, &headers, &uri, &params, anthropic::models)
    } else {
        listed(&shared, &chat::ChatCompletions, &headers, &uri, &params, |_| Ok(chat::models()))
    }
}

async fn shown(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    uri: Uri,
    Query(params): Query<Params>,
    body: Bytes,
) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    listed(&shared, &ollama::Ollama, &headers, &uri, &params, |_| ollama::shown(&body))
}

/// Pulls a model into Ollama, as far as its name lets it.
async fn pulled(State(shared): State<Arc<Shared>>, headers: HeaderMap, uri: Uri, body: Bytes) -> Response {
    let wire = &ollama::Ollama;
    let key = wire.key(&headers);
    shared.note(wire.provider(), &uri, key.clone());
    if let Some(trouble) = objection(wire.wants_key(), key.as_deref(), Price::Free) {
        return super::refuse(wire, trouble);
    }
    let pull =
        serde_json::from_slice(&body).map_err(|error| error.to_string()).and_then(|body| ollama::pull(&body));
    match pull {
        Ok(pull) => super::pull_stream(wire, pull),
        Err(why) => {
            shared.complaints.lock().unwrap().push(format!("{}: {why}", wire.provider()));
            super::refuse(wire, Trouble::Malformed(&why))
        }
    }
}

fn listed(
    shared: &Shared,
    wire: &dyn Wire,
    headers: &HeaderMap,
    uri: &Uri,
    params: &Params,
    list: impl FnOnce(&Params) -> Result<Value, String>,
) -> Response {
    let key = wire.key(headers);
    shared.note(wire.provider(), uri, key.clone());
    // A provider that wants no key shows its lists to everybody, whatever key comes.
    if wire.wants_key()
        && let Some(trouble) = objection(true, key.as_deref(), Price::Free)
    {
        return super::refuse(wire, trouble);
    }
    let listed = match params.contains_key("key") {
        true => Err("a key stands in the URL".to_owned()),
        false => list(params),
    };
    match listed {
        Ok(list) => Json(list).into_response(),
        Err(why) => {
            shared.complaints.lock().unwrap().push(format!("{}: {why}", wire.provider()));
            super::refuse(wire, Trouble::Malformed(&why))
        }
    }
}

/// Returns why a request with this key is refused, if it is.
pub(super) fn objection(wants_key: bool, key: Option<&str>, price: Price) -> Option<Trouble<'_>> {
    match key {
        None => wants_key.then_some(Trouble::BadKey("")),
        Some(key) if is_key(key, GOOD_KEY) => None,
        Some(key) if is_key(key, BROKE_KEY) => (price == Price::Paid).then_some(Trouble::NoCredit),
        Some(key) if is_key(key, OUTAGE_KEY) => Some(Trouble::Broken),
        Some(key) if is_key(key, SLOW_KEY) => Some(Trouble::RateLimited(None)),
        Some(key) => Some(Trouble::BadKey(key)),
    }
}

impl Shared {
    /// Notes a question that is no request for an answer.
    pub(super) fn note(&self, provider: &'static str, uri: &Uri, key: Option<String>) {
        let path = uri.path_and_query().map(ToString::to_string).unwrap_or_default();
        self.lists.lock().unwrap().push(Recorded { provider, path, key, body: Value::Null });
    }
}

/// Returns a page of a list, and the mark of the next one: the place where it begins.
///
/// # Errors
/// What is wrong with the size or the mark.
pub(super) fn page(
    items: &[Value],
    size: Option<&String>,
    sizes: std::ops::RangeInclusive<usize>,
    from: usize,
) -> Result<(Vec<Value>, Option<usize>), String> {
    let size = match size.map(|size| size.parse::<usize>()) {
        None => MAX_PAGE,
        Some(Ok(size)) if sizes.contains(&size) => size.min(MAX_PAGE),
        Some(_) => return Err(format!("the size of a page must be {sizes:?}")),
    };
    let page = items.get(from..).ok_or("there is no such page")?;
    let next = (page.len() > size).then_some(from + size);
    Ok((page.iter().take(size).cloned().collect(), next))
}

/// Returns the status of an error.
pub(super) fn status(number: u16) -> StatusCode {
    StatusCode::from_u16(number).unwrap()
}
