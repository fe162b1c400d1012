//! The models that a server lists (`GET {base}/models`), and which of them to take.

use std::time::Duration;

use reqwest::header::AUTHORIZATION;
use serde::Deserialize;
use serde_json::{Map, Value};
use tns_protocol::provider::ModelKind;
use tns_server_core::engine::{EngineError, OpenError};

use crate::ask::{Question, ask};
use crate::http::{Endpoint, Http};

/// Parts of names of models that take pictures. The format has no way to ask a server.
const TAKES_PICTURES: [&str; 9] =
    ["-vl", "vision", "llava", "gemma3", "gemma-3", "pixtral", "minicpm-v", "gpt-4o", "gpt-5"];

#[derive(Deserialize)]
struct ModelList {
    data: Vec<Model>,
}

/// A listed model. Beyond its id, servers tell different things in different words.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub(crate) struct Model {
    pub(crate) id: String,
    #[serde(flatten)]
    told: Map<String, Value>,
}

impl Model {
    /// Returns when it was made, in seconds since 1970, where the server tells.
    pub(crate) fn created(&self) -> Option<u64> {
        self.told.get("created")?.as_u64()
    }

    /// Returns its name for people, where the server tells (OpenRouter, Mistral).
    pub(super) fn name(&self) -> Option<&str> {
        self.told.get("name")?.as_str().filter(|name| *name != self.id)
    }

    /// Returns the most tokens that it reads at once, where the server tells: OpenRouter, vLLM, Groq and
    /// Mistral at the top, llama.cpp one level down.
    pub(super) fn context_window(&self) -> Option<u64> {
        let named = ["context_length", "max_model_len", "context_window", "max_context_length"];
        let at_top = named.iter().find_map(|name| self.told.get(*name)?.as_u64());
        at_top.or_else(|| self.told.get("meta")?.get("n_ctx_train")?.as_u64()).filter(|tokens| *tokens > 0)
    }

    /// Returns whether it takes pictures: as the server tells (OpenRouter, Mistral), else where its name
    /// says so.
    pub(super) fn takes_pictures(&self) -> Option<bool> {
        let inputs = self.told.get("architecture").and_then(|told| told.get("input_modalities")?.as_array());
        let vision = self.told.get("capabilities").and_then(|told| told.get("vision")?.as_bool());
        let told = inputs.map(|inputs| inputs.iter().any(|input| input == "image")).or(vision);
        told.or_else(|| names_pictures(&self.id).then_some(true))
    }
}

/// Lists a server's models in its own order.
///
/// # Errors
/// [`EngineError`] when it can't be reached, refuses, or answers something else.
pub(crate) async fn list(
    http: &Http,
    endpoint: &Endpoint,
    limit: Duration,
) -> Result<Vec<Model>, EngineError> {
    let mut request = http.client(endpoint).await?.get(endpoint.url("/models"));
    if let Some(bearer) = endpoint.bearer()? {
        request = request.header(AUTHORIZATION, bearer);
    }
    let otherwise = "answers /models with something other than a list of models";
    let listed: ModelList = ask(endpoint, Question { limit, ..Question::new(request, otherwise) }).await?;
    Ok(listed.data.into_iter().filter(|model| !model.id.trim().is_empty()).collect())
}

/// Returns what a model is for, by its name; `None` is nothing that this product uses.
pub(super) fn kind_of(id: &str) -> Option<ModelKind> {
    let id = id.to_ascii_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| id.contains(part));
    if has(&["embed"]) {
        Some(ModelKind::Embedding)
    } else if has(&["rerank", "moderation"]) {
        None
    } else if has(&["whisper", "transcribe"]) {
        Some(ModelKind::Stt)
    } else if has(&["-tts", "tts-"]) {
        Some(ModelKind::Tts)
    } else {
        Some(ModelKind::Text)
    }
}

/// Returns the first model that writes text.
pub(crate) fn first_chat_model(listed: &[Model]) -> Option<&str> {
    let ids = listed.iter().map(|model| model.id.as_str());
    ids.into_iter().find(|id| kind_of(id) == Some(ModelKind::Text))
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
    use serde_json::json;

    use super::*;

    fn listed(models: Value) -> Vec<Model> {
        serde_json::from_value(models).unwrap()
    }

    #[test]
    fn only_models_that_write_text_are_chosen() {
        let models =
            json!([{ "id": "text-Embedding-nomic" }, { "id": "whisper-large-v3" }, { "id": "qwen3:4b" }]);
        assert_eq!(first_chat_model(&listed(models)), Some("qwen3:4b"));
        assert_eq!(first_chat_model(&listed(json!([{ "id": "nomic-embed-text" }]))), None);
        for (id, kind) in [
            ("tts-kokoro", Some(ModelKind::Tts)),
            ("Voxtral-Transcribe", Some(ModelKind::Stt)),
            ("bge-reranker-v2", None),
            ("llama-guard-4", Some(ModelKind::Text)),
        ] {
            assert_eq!(kind_of(id), kind, "{id}");
        }
    }

    #[test]
    fn what_servers_tell_is_read_whatever_they_call_it() {
        let models = listed(json!([
            { "id": "a/b", "name": "B", "context_length": 131_072, "created": 7,
              "architecture": { "input_modalities": ["text", "image"] } },
            { "id": "vllm", "max_model_len": 40_960, "name": "vllm" },
            { "id": "groq", "context_window": 8192, "architecture": { "input_modalities": ["text"] } },
            { "id": "mistral", "max_context_length": 32_768, "capabilities": { "vision": false } },
            { "id": "llama.cpp", "meta": { "n_ctx_train": 4096 }, "created": "then" },
            { "id": "gemma3:4b", "context_length": "long" },
        ]));
        let told: Vec<_> = models
            .iter()
            .map(|model| (model.name(), model.created(), model.context_window(), model.takes_pictures()))
            .collect();
        assert_eq!(
            told,
            [
                (Some("B"), Some(7), Some(131_072), Some(true)),
                (None, None, Some(40_960), None),
                (None, None, Some(8192), Some(false)),
                (None, None, Some(32_768), Some(false)),
                (None, None, Some(4096), None),
                (None, None, None, Some(true)),
            ]
        );
    }

    #[test]
    fn pictures_go_by_the_name() {
        assert!(names_pictures("Qwen2.5-VL-7B") && names_pictures("llava:13b"));
        assert!(!names_pictures("qwen3:4b"));
    }
}
