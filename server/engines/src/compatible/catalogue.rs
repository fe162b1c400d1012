//! The part of the catalogue that servers of this format share (`GET {base}/models`). What a model is for
//! goes by its name; windows and pictures as far as a server tells. Voices have no common list. A server
//! without a key is one's own; with one, somebody is paid.

use futures_util::FutureExt;
use tns_protocol::provider::ModelInfo;

use super::{endpoint, models};
use crate::ask::ASK_LIMIT;
use crate::catalogue::{Asked, Asking, CreditCheck, SmallestStep, Source, Voices, model, no_address};

pub(crate) static CATALOGUE: Source = Source {
    models: list,
    voices: Voices::None,
    credit: CreditCheck::Step(SmallestStep { models: &[], tokens: 1 }),
    preferred: &[],
};

fn list(asking: Asking) -> Asked<Vec<ModelInfo>> {
    async move {
        let endpoint = endpoint(asking.provider, &asking.access).map_err(no_address)?;
        let listed = models::list(&asking.http, &endpoint, ASK_LIMIT).await?;
        Ok(listed.iter().filter_map(info).collect())
    }
    .boxed()
}

fn info(listed: &models::Model) -> Option<ModelInfo> {
    let kind = models::kind_of(&listed.id)?;
    Some(ModelInfo {
        name: listed.name().map(str::to_owned),
        context_window: listed.context_window(),
        accepts_images: listed.takes_pictures(),
        ..model(&listed.id, kind)
    })
}
