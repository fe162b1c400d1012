//! A model's reasoning before its calls, kept so that it reads it again with their results: without it,
//! models that think while they use tools begin anew at each step. Pure.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tns_server_core::message::{ModelMessage, Native};

use super::PROVIDER;

#[derive(Serialize, Deserialize)]
struct Kept {
    thinking: String,
}

/// Returns what to keep of a step's reasoning, where there was any.
///
/// # Errors
/// When it can't be written as JSON.
pub(super) fn keep(thinking: &str) -> serde_json::Result<Option<Native>> {
    if thinking.is_empty() {
        return Ok(None);
    }
    let blocks = serde_json::value::to_raw_value(&Kept { thinking: thinking.to_owned() })?;
    Ok(Some(Native { provider: PROVIDER.to_owned(), blocks: Arc::from(blocks) }))
}

/// Returns the reasoning that was kept of a model's turn.
pub(super) fn kept(message: &ModelMessage) -> Option<String> {
    let own = message.native.iter().filter(|native| native.provider == PROVIDER);
    let thoughts: String = own
        .filter_map(|native| serde_json::from_str::<Kept>(native.blocks.get()).ok())
        .map(|kept| kept.thinking)
        .collect();
    (!thoughts.is_empty()).then_some(thoughts)
}
