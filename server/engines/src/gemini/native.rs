//! The parts of an answer that must go back as they came: those with a thought signature, which newer
//! models demand of a turn's calls, and calls with the provider's own ids. Pure; it keeps the
//! provider's JSON text and never writes a signature of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tns_server_core::message::{ModelMessage, Native, Part};

use super::PROVIDER;
use super::event;
use super::name::{from_wire, to_wire};
use crate::step::reply::are_usable;

/// What is kept of one answer. Signatures are of no use to another model, hence its name.
#[derive(Serialize, Deserialize)]
struct Kept<'a> {
    model: String,
    #[serde(borrow)]
    parts: Vec<&'a RawValue>,
}

/// Collects the parts of an answer while it comes.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    parts: Vec<Block>,
    /// Something in it can't be said in our own words.
    is_needed: bool,
}

#[derive(Debug)]
enum Block {
    /// Unsigned text, however many events brought it.
    Text(String),
    AsItCame(Box<RawValue>),
}

#[derive(Serialize)]
struct TextPart<'a> {
    text: &'a str,
}

impl Blocks {
    /// Adds a part and returns how many bytes are kept of one that goes back as it came. Unsigned reasoning is left out: nothing is
    /// ever read from it again.
    ///
    /// # Errors
    /// When it can't be written as JSON.
    pub(super) fn add(&mut self, raw: &RawValue, part: &event::Part<'_>) -> serde_json::Result<usize> {
        let signed = part.thought_signature.as_deref().is_some_and(|signature| !signature.is_empty());
        if signed || part.function_call.is_some() {
            self.is_needed |= signed || part.function_call.as_ref().is_some_and(|call| call.id.is_some());
            let kept = sendable(raw, part)?;
            let bytes = kept.get().len();
            self.parts.push(Block::AsItCame(kept));
            return Ok(bytes);
        }
        let text = part.text.as_deref().unwrap_or_default();
        if part.thought == Some(true) || text.is_empty() {
            return Ok(0);
        }
        match self.parts.last_mut() {
            Some(Block::Text(last)) => last.push_str(text),
            _ => self.parts.push(Block::Text(text.to_owned())),
        }
        // The reply counts it.
        Ok(0)
    }

    /// Returns what to keep of the answer of `model`, where anything must be.
    ///
    /// # Errors
    /// When it can't be written as JSON.
    pub(super) fn into_native(self, model: &str) -> serde_json::Result<Option<Native>> {
        if !self.is_needed {
            return Ok(None);
        }
        // Blank text is refused when it goes back.
        let is_blank = |block: &Block| matches!(block, Block::Text(text) if text.trim().is_empty());
        let parts = self.parts.into_iter().filter(|block| !is_blank(block)).map(|block| match block {
            Block::Text(text) => serde_json::value::to_raw_value(&TextPart { text: &text }),
            Block::AsItCame(raw) => Ok(raw),
        });
        let parts = parts.collect::<serde_json::Result<Vec<_>>>()?;
        let kept = Kept { model: model.to_owned(), parts: parts.iter().map(AsRef::as_ref).collect() };
        let blocks = Arc::from(serde_json::value::to_raw_value(&kept)?);
        Ok(Some(Native { provider: PROVIDER.to_owned(), blocks }))
    }
}

/// Returns a part as it came, but a call whose arguments are no JSON object with none: it would be refused
/// whenever it goes back.
fn sendable(raw: &RawValue, part: &event::Part<'_>) -> serde_json::Result<Box<RawValue>> {
    let Some(call) = &part.function_call else { return Ok(raw.to_owned()) };
    let args = call.args.map_or("", RawValue::get);
    // Null is read as none, and refused all the same.
    if are_usable(args) && (!args.is_empty() || !raw.get().contains("\"args\"")) {
        return Ok(raw.to_owned());
    }
    type Fields = BTreeMap<String, Box<RawValue>>;
    let mut fields: Fields = serde_json::from_str(raw.get())?;
    let mut call: Fields =
        fields.get("functionCall").map_or(Ok(Fields::new()), |call| serde_json::from_str(call.get()))?;
    call.insert("args".to_owned(), RawValue::from_string("{}".to_owned())?);
    fields.insert("functionCall".to_owned(), serde_json::value::to_raw_value(&call)?);
    serde_json::value::to_raw_value(&fields)
}

/// A model's turn as it came.
#[derive(Debug)]
pub(super) struct Replay<'a> {
    pub(super) parts: Vec<&'a RawValue>,
    /// The provider's ids of its calls, in order.
    pub(super) ids: Vec<Option<String>>,
}

/// Returns the kept parts of a turn, if they are this model's and say exactly what the turn says.
pub(super) fn replay<'a>(message: &'a ModelMessage, model: &str) -> Option<Replay<'a>> {
    let mut replay = Replay { parts: Vec::new(), ids: Vec::new() };
    let (mut text, mut names) = (String::new(), Vec::new());
    for native in &message.native {
        let kept =
            (native.provider == PROVIDER).then(|| serde_json::from_str::<Kept<'a>>(native.blocks.get()));
        let kept = kept?.ok().filter(|kept| kept.model == model)?;
        for raw in kept.parts {
            let part: event::Part<'_> = serde_json::from_str(raw.get()).ok()?;
            if let Some(call) = part.function_call {
                names.push(from_wire(call.name.as_deref().unwrap_or_default()).to_owned());
                replay.ids.push(call.id);
            } else if part.thought != Some(true) {
                text.push_str(part.text.as_deref().unwrap_or_default());
            }
            replay.parts.push(raw);
        }
    }
    let same = !replay.parts.is_empty() && is_same(&text, &said(message)) && names == called(message);
    same.then_some(replay)
}

/// Whether two texts say the same. Blank pieces are not kept, so that spaces don't count.
fn is_same(one: &str, other: &str) -> bool {
    one.split_whitespace().flat_map(str::chars).eq(other.split_whitespace().flat_map(str::chars))
}

fn said(message: &ModelMessage) -> String {
    let texts = message.parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.as_str()),
        Part::Image(_) | Part::ToolCall(_) | Part::ToolResult(_) | Part::Note(_) => None,
    });
    texts.collect()
}

fn called(message: &ModelMessage) -> Vec<String> {
    let names = message.parts.iter().filter_map(|part| match part {
        // As a name stands after its way over the wire.
        Part::ToolCall(call) => Some(from_wire(&to_wire(&call.name)).to_owned()),
        Part::Text(_) | Part::Image(_) | Part::ToolResult(_) | Part::Note(_) => None,
    });
    names.collect()
}
