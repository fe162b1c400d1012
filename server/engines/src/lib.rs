//! Engines: one per provider's chat model, all behind `tns_server_core::engine::Engine`.
//!
//! [`EngineConfig`] holds what the operator set, [`EngineRegistry`] opens engines from it, [`Catalogue`]
//! tells what its keys can be used for and which models and voices there are, [`PROVIDERS`] lists who
//! serves models. Five wires exist: `anthropic` (Messages), `responses` (OpenAI's own service),
//! `gemini`, `ollama`, and `compatible` (Chat Completions, which most other model servers speak); the
//! engine `offline` needs no model. A step of a remote engine is one async stream: `step` builds the
//! request with the provider's wire, sends it and decodes the answer while it is polled, so that dropping
//! it cancels the call. How a wire is written stands in `step`. `sse` frames events, `retry` decides about
//! another try, `refusal` reads errors, `ask` puts one question outside of a step, `http` holds
//! connections and keys, `render` words what a model reads beside the conversation, `prices` says what
//! tokens cost, [`decode`] plays bytes to a decoder without a network.
//!
//! Deliberately absent: a loop over tools (the core's), files and processes (the tools'), the process's
//! environment, config files and keyrings (read by whoever starts the server).

mod anthropic;
mod ask;
mod call_id;
mod catalogue;
mod choose;
mod compatible;
mod config;
pub mod decode;
mod elevenlabs;
mod gemini;
mod gguf;
mod http;
mod key_store;
mod local;
mod model_files;
mod offline;
mod ollama;
mod origin;
mod prices;
mod provider;
mod refusal;
mod registry;
mod render;
mod responses;
mod retry;
mod sse;
#[cfg(test)]
mod stand_in;
mod step;

/// Whether this build can run local models.
pub const RUNS_LOCAL_MODELS: bool = cfg!(feature = "local-llm");

pub use catalogue::{Catalogue, CatalogueError};
pub use choose::DefaultEngine;
pub use config::{
    EngineConfig, FileChoice, FileSettings, LocalModels, LocalServer, ProviderOverrides, base_url_variable,
    key_variable,
};
pub use gguf::{GgufError, GgufHeader};
pub use key_store::{KeyStore, StoredKeys};
pub use model_files::{InvalidModelName, ModelFile, ModelFiles, ModelName};
pub use ollama::pull::{LayerBytes, PullError, PullStatus, pull as pull_into_ollama};
pub use origin::{Origin, Sourced};
pub use prices::{LongInput, ModelPrice, Price};
pub use provider::{About, PROVIDERS, Provider};
pub use registry::EngineRegistry;
pub use retry::Patience;
