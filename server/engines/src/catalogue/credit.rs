//! Tells whether an account has credit: by what the provider says of it, or by the smallest step that
//! can be paid for, through the provider's own engine.

use std::sync::Arc;

use futures_util::StreamExt;
use tns_protocol::provider::{Credit, ModelInfo, ModelKind};
use tns_server_core::engine::{EngineError, EngineErrorKind, StepEvent, StepRequest};
use tns_server_core::message::{ModelMessage, ModelRole, Part};

use super::{Asked, Asking, no_address};
use crate::local::Library;
use crate::provider::{Asker, Opening};

/// How a provider's credit is told.
#[derive(Debug)]
pub(crate) enum CreditCheck {
    /// Nothing is paid for.
    Free,
    /// By a step that is paid for, where there is a key.
    Step(SmallestStep),
    /// The provider tells.
    Told(fn(Asking) -> Asked<Credit>),
}

/// The smallest step that a provider takes.
#[derive(Debug)]
pub(crate) struct SmallestStep {
    /// The cheapest models, cheapest first; where none is listed, the recommended one is used.
    pub(crate) models: &'static [&'static str],
    /// The fewest output tokens that may be asked for.
    pub(crate) tokens: u32,
}

/// Returns what is known of the account's credit.
///
/// # Errors
/// [`EngineError`] with [`EngineErrorKind::NoCredit`] when there is none; other kinds when the provider
/// refuses the key here, asks to slow down, or fails.
pub(super) async fn check(asking: Asking, models: &[ModelInfo]) -> Result<Credit, EngineError> {
    match &asking.provider.catalogue.credit {
        CreditCheck::Free => Ok(Credit::Free),
        // Nobody is charged.
        CreditCheck::Step(_) if asking.access.key.is_none() => Ok(Credit::Free),
        CreditCheck::Step(step) => match cheapest(step, models) {
            Some(model) => pay(asking.clone(), model, step.tokens).await,
            None => Ok(Credit::Unknown),
        },
        CreditCheck::Told(tell) => tell(asking.clone()).await,
    }
}

fn cheapest(step: &SmallestStep, models: &[ModelInfo]) -> Option<String> {
    let listed = |id: &&&str| models.iter().any(|model| model.id == ***id);
    let known = step.models.iter().find(listed).map(|id| (*id).to_owned());
    known.or_else(|| {
        let text = models.iter().find(|model| model.kind == ModelKind::Text && model.recommended);
        text.map(|model| model.id.clone())
    })
}

/// Begins a step and leaves it with the first sign that it is paid for.
async fn pay(asking: Asking, model: String, tokens: u32) -> Result<Credit, EngineError> {
    let Asking { provider, access, http, local } = asking;
    let local = Arc::new(Library::new(&local));
    let prices = [].into();
    let opening = Opening { provider, access, model: Some(model), asker: Asker::Client, http, prices, local };
    let engine = (provider.open)(opening).await.map_err(no_address)?;
    let greeting =
        ModelMessage { role: ModelRole::User, parts: vec![Part::Text("Hi".into())], native: Vec::new() };
    let mut events = engine.step(StepRequest {
        system: "".into(),
        tools: [].into(),
        messages: vec![greeting],
        effort: None,
        max_output_tokens: Some(tokens),
        temperature: None,
    });
    loop {
        match events.next().await {
            Some(Ok(StepEvent::Waiting { .. } | StepEvent::Usage(_))) => {}
            Some(Ok(_)) => return Ok(Credit::Ok),
            Some(Err(error)) if is_about_the_step(error.kind) => {
                tracing::debug!(provider = provider.id, %error, "a smallest step told nothing of the credit");
                return Ok(Credit::Unknown);
            }
            Some(Err(error)) => return Err(error),
            None => return Ok(Credit::Unknown),
        }
    }
}

/// Whether an error is about this step alone and tells nothing of the account.
fn is_about_the_step(kind: EngineErrorKind) -> bool {
    match kind {
        EngineErrorKind::Provider | EngineErrorKind::ContextOverflow | EngineErrorKind::StreamIncomplete => {
            true
        }
        EngineErrorKind::BadKey
        | EngineErrorKind::NoCredit
        | EngineErrorKind::RateLimited
        | EngineErrorKind::Unavailable => false,
    }
}
