//! What a model reads and writes, in one form for every provider.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tns_protocol::{DocumentId, ToolCallId};
use uuid::Uuid;

/// A piece of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Words.
    Text(String),
    /// A picture.
    Image(Image),
    /// The model wants a tool to run.
    ToolCall(ToolCall),
    /// What a tool gave back.
    ToolResult(ToolResult),
    /// Something that only the model sees.
    Note(Note),
}

/// A picture, as base64 of its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Its media type, such as `image/png`.
    pub mime: String,
    /// Its bytes in base64.
    pub data: Arc<str>,
}

/// A model's call of a tool. `args` is always an object, so a stored call can always be sent back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Our id, unique in the session.
    pub id: ToolCallId,
    /// The provider's own id, sent back to it; absent where it gives none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// The tool's name as offered.
    pub name: String,
    /// The arguments; empty where the model's were no JSON object.
    pub args: Map<String, Value>,
    /// Why the model's arguments can't be used; such a call never runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// What a tool gave back, as the model reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The call it answers.
    pub call: ToolCallId,
    /// The provider's own id of that call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// The tool's name as offered.
    pub name: String,
    /// The output, already cut to size. Raw: wrapping happens when a request is built.
    pub output: String,
    /// The tool failed, or did not run.
    pub is_error: bool,
    /// Where the output came from, when that is outside the user's trust; the model is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untrusted_source: Option<String>,
}

/// Something that only the model sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Note {
    /// The best passages of the knowledge base for the message that follows, best first.
    Knowledge(Vec<Passage>),
    /// A plain statement, such as a change of the team.
    Text(String),
}

/// A passage of a document, numbered so that a reply can cite it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passage {
    /// Its number in the note: `[1]`, `[2]`, …
    pub number: u32,
    /// The document.
    pub document: DocumentId,
    /// Where it stands, such as `notes.md:12`.
    pub source: String,
    /// Its words.
    pub text: String,
}

/// Who speaks to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelRole {
    /// The user, notes and tool results.
    User,
    /// The model.
    Assistant,
}

/// One turn of a model request. Roles alternate, the first is the user's, and no turn is empty.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelMessage {
    /// Who speaks.
    pub role: ModelRole,
    /// What is said; for an assistant: text and tool calls.
    pub parts: Vec<Part>,
    /// The provider's own blocks of an assistant's step; replayed only to that provider.
    pub native: Vec<Native>,
}

/// A provider's own blocks for one step, kept to the byte and replayed only to that provider.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Native {
    /// Whose blocks.
    pub provider: String,
    /// The blocks as JSON text.
    pub blocks: Arc<RawValue>,
}

impl PartialEq for Native {
    fn eq(&self, other: &Self) -> bool {
        self.provider == other.provider && self.blocks.get() == other.blocks.get()
    }
}

/// Makes the id of a tool call: unique in every session.
pub fn new_call_id() -> ToolCallId {
    match ToolCallId::parse(format!("call-{}", Uuid::now_v7().simple())) {
        Ok(id) => id,
        Err(_) => unreachable!("a UUID is a valid id"),
    }
}
