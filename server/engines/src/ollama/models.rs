//! The models of an Ollama server: which there are (`GET /api/tags`), which to take, and what one is
//! able to do.

use std::time::Duration;

use reqwest::RequestBuilder;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tns_server_core::engine::{EngineError, EngineErrorKind, OpenError};

use super::PULL;
use super::abilities::Shown;
use crate::ask::{ASK_LIMIT, Question, ask};
use crate::http::{Endpoint, Http, one_line};

/// Most models that a message names.
const MAX_NAMED: usize = 8;

#[derive(Deserialize)]
struct Tags {
    models: Vec<Model>,
}

/// An installed model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Model {
    /// With its tag, such as `qwen3:4b`.
    pub(crate) name: String,
    details: Details,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
struct Details {
    family: Option<String>,
}

impl Model {
    /// Whether it writes text; those that only embed are mostly BERTs.
    pub(super) fn writes(&self) -> bool {
        let family = self.details.family.as_deref().unwrap_or_default();
        !self.name.to_ascii_lowercase().contains("embed") && !family.contains("bert")
    }
}

/// Lists the installed models, the one that changed last first.
///
/// # Errors
/// [`EngineError`] when the server can't be reached, refuses, or answers something else.
pub(crate) async fn list(
    http: &Http,
    endpoint: &Endpoint,
    limit: Duration,
) -> Result<Vec<Model>, EngineError> {
    let request = http.client(endpoint).await?.get(endpoint.url("/api/tags"));
    let listed: Tags = ask_ollama(endpoint, request, limit).await?;
    Ok(listed.models.into_iter().filter(|model| !model.name.trim().is_empty()).collect())
}

/// Returns the first model that writes text.
pub(crate) fn first(listed: &[Model]) -> Option<&str> {
    listed.iter().find(|model| model.writes()).map(|model| model.name.as_str())
}

/// Returns the listed name of a model that is asked for; without a tag `latest` is meant.
///
/// # Errors
/// [`OpenError`] that names the models there are.
pub(super) fn find(listed: &[Model], asked: &str) -> Result<String, OpenError> {
    let latest = format!("{asked}:latest");
    let found = |name: &str| listed.iter().find(|model| model.name == name);
    if let Some(model) = found(asked).or_else(|| found(&latest)) {
        return Ok(model.name.clone());
    }
    let asked = one_line(asked, 64);
    let named = listed.iter().take(MAX_NAMED).map(|model| one_line(&model.name, 64));
    let mut there = named.collect::<Vec<_>>().join(", ");
    if listed.len() > MAX_NAMED {
        there.push_str(", …");
    }
    Err(OpenError(if listed.is_empty() {
        format!("ollama has no model {asked}, nor any other: get it with `{PULL} {asked}`")
    } else {
        format!("ollama has no model {asked}; it has {there}: take one, or get it with `{PULL} {asked}`")
    }))
}

/// Returns what Ollama tells of a model. A server that does not tell is no error.
///
/// # Errors
/// [`EngineError`] when the server can't be reached.
pub(super) async fn shown(http: &Http, endpoint: &Endpoint, model: &str) -> Result<Shown, EngineError> {
    let body = json!({ "model": model }).to_string();
    let request = http.client(endpoint).await?.post(endpoint.url("/api/show"));
    let request = request.header(CONTENT_TYPE, "application/json").body(body);
    match ask_ollama(endpoint, request, ASK_LIMIT).await {
        Ok(shown) => Ok(shown),
        Err(error) if error.kind == EngineErrorKind::Provider => {
            tracing::warn!(model, %error, "ollama does not tell what a model can do");
            Ok(Shown::default())
        }
        Err(error) => Err(error),
    }
}

/// Asks with the key, where there is one.
async fn ask_ollama<T: DeserializeOwned>(
    endpoint: &Endpoint,
    mut request: RequestBuilder,
    limit: Duration,
) -> Result<T, EngineError> {
    if let Some(bearer) = endpoint.bearer()? {
        request = request.header(AUTHORIZATION, bearer);
    }
    let otherwise = "answers as something other than Ollama";
    ask(endpoint, Question { limit, ..Question::new(request, otherwise) }).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(names: &[&str]) -> Vec<Model> {
        names.iter().map(|&name| Model { name: name.to_owned(), ..Model::default() }).collect()
    }

    #[test]
    fn models_that_only_embed_are_not_chosen() {
        let bert = Details { family: Some("nomic-bert".into()) };
        let mut models = vec![Model { name: "all-minilm:latest".into(), details: bert }];
        models.extend(listed(&["mxbai-Embed-large:latest", "qwen3:4b"]));
        assert_eq!(first(&models), Some("qwen3:4b"));
        assert_eq!(first(&models[..2]), None);
    }

    #[test]
    fn an_unknown_model_is_refused_with_those_there_are() {
        let models = listed(&["qwen3:4b", "llama3.2:latest"]);
        assert_eq!(find(&models, "qwen3:4b"), Ok("qwen3:4b".into()));
        assert_eq!(find(&models, "llama3.2"), Ok("llama3.2:latest".into()));
        let OpenError(message) = find(&models, "qwen3").unwrap_err();
        assert_eq!(
            message,
            "ollama has no model qwen3; it has qwen3:4b, llama3.2:latest: take one, or get it with `tns models pull \
             --ollama qwen3`"
        );
        let OpenError(message) = find(&[], "x").unwrap_err();
        assert_eq!(message, "ollama has no model x, nor any other: get it with `tns models pull --ollama x`");
        let OpenError(message) = find(&listed(&["m"; MAX_NAMED + 1]), "x").unwrap_err();
        assert_eq!(message.matches("m, ").count(), MAX_NAMED, "{message}");
    }
}
