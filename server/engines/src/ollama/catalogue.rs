//! Ollama's part of the catalogue: what is installed (`GET /api/tags`), and what each model is able to do
//! (`POST /api/show`). It has no voices. A server of one's own is free; a key is one of its service in the
//! cloud.

use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use tns_protocol::provider::{ModelInfo, ModelKind};
use tns_server_core::engine::EngineError;

use super::abilities::Shown;
use super::endpoint;
use super::models::{self, Model};
use crate::ask::ASK_LIMIT;
use crate::catalogue::{Asked, Asking, CreditCheck, SmallestStep, Source, Voices, model, no_address};

pub(crate) static CATALOGUE: Source = Source {
    models: list,
    voices: Voices::None,
    credit: CreditCheck::Step(SmallestStep { models: &[], tokens: 1 }),
    preferred: &[],
};

/// Most models that are asked about one by one; of more, those used last. The rest goes by its name.
const MAX_SHOWN: usize = 100;
/// Questions at a time; each reads a model's file.
const SIDE_BY_SIDE: usize = 4;

fn list(asking: Asking) -> Asked<Vec<ModelInfo>> {
    async move {
        let endpoint = endpoint(asking.provider, &asking.access).map_err(no_address)?;
        let installed = models::list(&asking.http, &endpoint, ASK_LIMIT).await?;
        let shown = installed.into_iter().enumerate().map(|(at, model)| {
            let (http, endpoint) = (asking.http.clone(), endpoint.clone());
            async move {
                let shown = match at {
                    0..MAX_SHOWN => models::shown(&http, &endpoint, &model.name).await?,
                    _ => Shown::default(),
                };
                Ok::<_, EngineError>(info(&model, &shown))
            }
        });
        let told: Vec<Option<ModelInfo>> = stream::iter(shown).buffered(SIDE_BY_SIDE).try_collect().await?;
        Ok(told.into_iter().flatten().collect())
    }
    .boxed()
}

/// Returns what is known of a model; `None` where it neither writes nor embeds.
fn info(installed: &Model, shown: &Shown) -> Option<ModelInfo> {
    let writes = shown.can("completion").unwrap_or_else(|| installed.writes());
    let embeds = shown.can("embedding").unwrap_or(!writes);
    let kind = match (writes, embeds) {
        (true, _) => ModelKind::Text,
        (false, true) => ModelKind::Embedding,
        (false, false) => return None,
    };
    Some(ModelInfo {
        context_window: shown.context_window(),
        accepts_images: shown.can("vision").filter(|_| writes),
        ..model(&installed.name, kind)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn told(name: &str, shown: Value) -> Option<(ModelKind, Option<u64>, Option<bool>)> {
        let installed: Model = serde_json::from_value(json!({ "name": name })).unwrap();
        let info = info(&installed, &serde_json::from_value(shown).unwrap())?;
        Some((info.kind, info.context_window, info.accepts_images))
    }

    #[test]
    fn what_ollama_tells_counts_before_the_name() {
        let window = json!({ "general.architecture": "qwen3", "qwen3.context_length": 40_960 });
        for (name, shown, expected) in [
            (
                "qwen3:4b",
                json!({ "capabilities": ["completion", "vision"], "model_info": window }),
                Some((ModelKind::Text, Some(40_960), Some(true))),
            ),
            (
                "embed-writer",
                json!({ "capabilities": ["completion"] }),
                Some((ModelKind::Text, None, Some(false))),
            ),
            ("bge-m3", json!({ "capabilities": ["embedding"] }), Some((ModelKind::Embedding, None, None))),
            ("painter", json!({ "capabilities": ["image"] }), None),
            ("nomic-embed-text", json!({}), Some((ModelKind::Embedding, None, None))),
            ("llama3", json!({}), Some((ModelKind::Text, None, None))),
        ] {
            assert_eq!(told(name, shown), expected, "{name}");
        }
    }
}
