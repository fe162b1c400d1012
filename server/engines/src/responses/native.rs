//! The items of an answer that must go back as they came: reasoning, encrypted, and messages that say
//! what phase they are of. Pure; it never writes an item of its own.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use tns_server_core::message::Native;

use super::PROVIDER;
use super::event::Item;
use crate::step::replay::Said;
use crate::step::reply::are_usable;

/// What is kept of one answer. Reasoning of one model is of no use to another, hence its name.
#[derive(Serialize, Deserialize)]
struct Kept<'a> {
    #[serde(borrow)]
    model: Cow<'a, str>,
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

/// Returns what to keep of the finished items of an answer of `model`, where anything must be.
///
/// # Errors
/// When it can't be written as JSON.
pub(super) fn keep(items: &[Box<RawValue>], model: &str) -> serde_json::Result<Option<Native>> {
    let (mut kept, mut is_needed) = (Vec::new(), false);
    for raw in items {
        let item: Item = serde_json::from_str(raw.get())?;
        match item.kind.as_str() {
            // Without its content the provider would look for it in its store.
            "reasoning" if item.encrypted_content.is_none() => continue,
            "message" if item.text().trim().is_empty() => continue,
            _ => {}
        }
        is_needed |= !matches!(item.kind.as_str(), "message" | "function_call") || item.phase.is_some();
        kept.push((item.kind == "reasoning", sendable(raw, &item)?));
    }
    // Reasoning is refused where nothing follows that it led to.
    while kept.last().is_some_and(|(is_reasoning, _)| *is_reasoning) {
        kept.pop();
    }
    if !is_needed || kept.is_empty() {
        return Ok(None);
    }
    let kept =
        Kept { model: Cow::Borrowed(model), items: kept.iter().map(|(_, raw)| raw.as_ref()).collect() };
    let blocks = Arc::from(to_raw_value(&kept)?);
    Ok(Some(Native { provider: PROVIDER.to_owned(), blocks }))
}

/// Returns an item as it came, but a call whose arguments are no JSON object without them.
fn sendable(raw: &RawValue, item: &Item) -> serde_json::Result<Box<RawValue>> {
    let arguments = item.arguments.as_deref().unwrap_or_default();
    if item.kind != "function_call" || !arguments.trim().is_empty() && are_usable(arguments) {
        return Ok(raw.to_owned());
    }
    let mut fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(raw.get())?;
    fields.insert("arguments".to_owned(), to_raw_value("{}")?);
    to_raw_value(&fields)
}

/// Returns kept items, if they are of `model`.
pub(super) fn items<'a>(blocks: &'a RawValue, model: &str) -> Option<Vec<&'a RawValue>> {
    let kept: Kept<'a> = serde_json::from_str(blocks.get()).ok()?;
    (kept.model == model).then_some(kept.items)
}

/// Returns what kept items say.
pub(super) fn said(items: &[&RawValue]) -> Option<Vec<Said>> {
    let mut all = Vec::new();
    for raw in items {
        let item: Item = serde_json::from_str(raw.get()).ok()?;
        match item.kind.as_str() {
            "message" => all.push(Said::Text(item.text())),
            "function_call" => all.push(Said::Call(item.call_id?)),
            _ => {}
        }
    }
    Some(all)
}
