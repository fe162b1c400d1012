//! The local models' part of the catalogue: the files there are, and how long a conversation each takes.

use futures_util::FutureExt;
use tns_protocol::provider::{ModelInfo, ModelKind};
use tns_server_core::engine::{EngineError, EngineErrorKind};

use crate::catalogue::{Asked, Asking, CreditCheck, Source, Voices, model};
use crate::model_files::ModelFile;

pub(crate) static CATALOGUE: Source =
    Source { models: list, voices: Voices::None, credit: CreditCheck::Free, preferred: &[] };

fn list(asking: Asking) -> Asked<Vec<ModelInfo>> {
    async move {
        let Some(files) = asking.local.files else { return Ok(Vec::new()) };
        let read = tokio::task::spawn_blocking(move || files.list());
        let listed = read.await.ok().and_then(Result::ok).ok_or_else(|| EngineError {
            kind: EngineErrorKind::Unavailable,
            message: "the folder of local models can't be read".to_owned(),
        })?;
        Ok(listed.into_iter().filter_map(info).collect())
    }
    .boxed()
}

/// Returns what is known of a model; nothing of a file that is none.
fn info(file: ModelFile) -> Option<ModelInfo> {
    let header = file.header.ok()?;
    let info = model(file.name.as_str(), ModelKind::Text);
    Some(ModelInfo { name: header.name, context_window: header.context, accepts_images: Some(false), ..info })
}
