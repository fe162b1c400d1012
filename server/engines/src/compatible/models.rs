//! The models that a server lists (`GET {base}/models`), and which of them to take.

use std::time::Duration;

use reqwest::header::AUTHORIZATION;
use serde::Deserialize;
use tns_server_core::engine::{EngineError, EngineErrorKind, OpenError};
use tokio::time::timeout;

use crate::config::base_url_variable;
use crate::http::{self, Endpoint, Http};
use crate::refusal;

/// How long a list of models may take; a server that is loading one answers late.
pub(crate) const LIST_LIMIT: Duration = Duration::from_secs(10);
/// Most bytes of a list; OpenRouter's is the longest known, near 1 MiB.
const MAX_LIST_BYTES: usize = 4 << 20;

/// Parts of names of models that take pictures. The format has no way to ask a server.
const TAKES_PICTURES: [&str; 9] =
    ["-vl", "vision", "llava", "gemma3", "gemma-3", "pixtral", "minicpm-v", "gpt-4o", "gpt-5"];

#[derive(Deserialize)]
struct ModelList {
    data: Vec<Model>,
}

#[derive(Deserialize)]
struct Model {
    id: String,
}

/// Lists a server's models in its own order.
///
/// # Errors
/// [`EngineError`] when it can't be reached, refuses, or answers something else.
pub(crate) async fn list(
    http: &Http,
    endpoint: &Endpoint,
    limit: Duration,
) -> Result<Vec<String>, EngineError> {
    let listed = timeout(limit, fetch(http, endpoint)).await;
    listed.unwrap_or_else(|_| Err(endpoint.silent(limit, EngineErrorKind::Unavailable)))
}

async fn fetch(http: &Http, endpoint: &Endpoint) -> Result<Vec<String>, EngineError> {
    let mut request = http.client(endpoint).await?.get(endpoint.url("/models"));
    if let Some(bearer) = endpoint.bearer()? {
        request = request.header(AUTHORIZATION, bearer);
    }
    let response = request.send().await.map_err(|error| endpoint.unreachable(&error).error)?;
    let status = response.status();
    if !status.is_success() {
        let body = http::read_error(response).await;
        return Err(refusal::refused(endpoint, "", Some(status.as_u16()), &body, refusal::usual_kind));
    }
    let body = http::read_body(response, MAX_LIST_BYTES).await;
    let listed: ModelList = serde_json::from_slice(&body).map_err(|_| EngineError {
        kind: EngineErrorKind::Provider,
        message: format!(
            "{} at {} answers /models with something other than a list of models; check {}",
            endpoint.provider,
            endpoint.address(),
            base_url_variable(endpoint.provider)
        ),
    })?;
    Ok(listed.data.into_iter().map(|model| model.id).filter(|id| !id.trim().is_empty()).collect())
}

/// Returns the first model that is not for embeddings.
pub(crate) fn first_chat_model(listed: &[String]) -> Option<&str> {
    listed.iter().map(String::as_str).find(|model| !model.to_ascii_lowercase().contains("embed"))
}

/// Returns the error of a server without models.
pub(super) fn none_listed(endpoint: &Endpoint) -> OpenError {
    OpenError(format!(
        "{} at {} lists no model: name one with --model",
        endpoint.provider,
        endpoint.address()
    ))
}

/// Whether a model's name says that it takes pictures.
pub(super) fn names_pictures(model: &str) -> bool {
    let model = model.to_ascii_lowercase();
    TAKES_PICTURES.iter().any(|part| model.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn embedding_models_are_not_chosen() {
        assert_eq!(first_chat_model(&listed(&["text-Embedding-nomic", "qwen3:4b"])), Some("qwen3:4b"));
        assert_eq!(first_chat_model(&listed(&["nomic-embed-text"])), None);
    }

    #[test]
    fn pictures_go_by_the_name() {
        assert!(names_pictures("Qwen2.5-VL-7B") && names_pictures("llava:13b"));
        assert!(!names_pictures("qwen3:4b"));
    }
}
