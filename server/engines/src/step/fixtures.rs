//! Conversations and engines for this crate's tests.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::Value;
use serde_json::value::RawValue;
use tns_protocol::ToolCallId;
use tns_server_core::engine::{Engine, EngineChoice, EngineError, Engines, StepEvent, StepRequest};
use tns_server_core::message::{ModelMessage, ModelRole, Native, Part, ToolCall, ToolResult};
use tns_server_core::tool::ToolSpec;

use crate::config::{EngineConfig, base_url_variable, key_variable};
use crate::registry::EngineRegistry;
use crate::retry::Patience;

/// The key of every engine that [`engine`] opens.
pub(crate) const KEY: &str = "test-key-123";

pub(crate) fn user(parts: Vec<Part>) -> ModelMessage {
    ModelMessage { role: ModelRole::User, parts, native: Vec::new() }
}

pub(crate) fn model(parts: Vec<Part>) -> ModelMessage {
    ModelMessage { role: ModelRole::Assistant, parts, native: Vec::new() }
}

pub(crate) fn text(words: &str) -> Part {
    Part::Text(words.into())
}

/// A call `echo`; our own id is `ours-ID`.
pub(crate) fn call(id: &str, args: &Value) -> Part {
    Part::ToolCall(ToolCall {
        id: ToolCallId::parse(format!("ours-{id}")).unwrap(),
        provider_id: Some(id.into()),
        name: "echo".into(),
        args: args.as_object().unwrap().clone(),
        problem: None,
    })
}

/// The result of [`call`].
pub(crate) fn result(id: &str, output: &str, is_error: bool) -> Part {
    Part::ToolResult(ToolResult {
        call: ToolCallId::parse(format!("ours-{id}")).unwrap(),
        provider_id: Some(id.into()),
        name: "echo".into(),
        output: output.into(),
        is_error,
        untrusted_source: None,
    })
}

pub(crate) fn native(provider: &str, blocks: &str) -> Native {
    let blocks = RawValue::from_string(blocks.to_owned()).unwrap();
    Native { provider: provider.into(), blocks: Arc::from(blocks) }
}

pub(crate) fn echo(schema: Value) -> Arc<ToolSpec> {
    Arc::new(ToolSpec { name: "echo".into(), description: "Says it again.".into(), schema })
}

/// A step with a conversation and nothing else.
pub(crate) fn step(messages: Vec<ModelMessage>) -> StepRequest {
    StepRequest {
        system: "".into(),
        tools: Arc::from([]),
        messages,
        effort: None,
        max_output_tokens: None,
        temperature: None,
    }
}

/// Short pauses between tries; the rest as the product has it.
pub(crate) fn quick() -> Patience {
    Patience {
        shortest_pause: Duration::from_millis(1),
        longest_pause: Duration::from_millis(2),
        ..Patience::default()
    }
}

/// Opens a provider's engine at an address, with a key and short pauses.
pub(crate) async fn engine(provider: &str, base_url: &str, model: Option<&str>) -> Arc<dyn Engine> {
    engine_with(provider, base_url, model, quick()).await
}

/// The same with other patience.
pub(crate) async fn engine_with(
    provider: &str,
    base_url: &str,
    model: Option<&str>,
    patience: Patience,
) -> Arc<dyn Engine> {
    let config = EngineConfig::from_env(|name| match name {
        _ if name == base_url_variable(provider) => Some(base_url.to_owned()),
        _ if name == key_variable(provider) => Some(KEY.to_owned()),
        _ => None,
    });
    let registry = EngineRegistry::new(EngineConfig { patience, ..config });
    let choice = EngineChoice { provider: Some(provider.into()), model: model.map(Into::into) };
    registry.open(&choice).await.unwrap()
}

/// Runs a step to its end. What it tells of tokens on the way is left out: when that comes depends on how the
/// answer is cut.
pub(crate) async fn run(engine: &dyn Engine, step: StepRequest) -> Vec<Result<StepEvent, EngineError>> {
    let mut events: Vec<_> = engine.step(step).collect().await;
    events.retain(|event| !matches!(event, Ok(StepEvent::Usage(_))));
    events
}
