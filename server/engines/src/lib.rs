//! Engines: one per provider's chat model, all behind `tns_server_core::engine::Engine`.
//!
//! [`EngineConfig`] holds what the operator set, [`EngineRegistry`] opens engines from it, [`PROVIDERS`]
//! lists who serves models. Two engines exist: Chat Completions, which most model servers speak
//! (`compatible`), and `offline`, which needs no model. A step of a remote engine is one async stream:
//! it builds the request, sends it and decodes the answer with a pure decoder while it is polled, so
//! that dropping it cancels the call. `sse` frames events, `retry` decides about another try, `http`
//! holds connections and keys, `render` words what a model reads beside the conversation.
//!
//! Deliberately absent: a loop over tools (the core's), files and processes (the tools'), the process's
//! environment (read once by whoever starts the server).

mod call_id;
mod choose;
mod compatible;
mod config;
mod http;
mod offline;
mod provider;
mod registry;
mod render;
mod retry;
mod sse;
#[cfg(test)]
mod stand_in;

pub use choose::DefaultEngine;
pub use config::{EngineConfig, LocalServer, ProviderOverrides};
pub use provider::{PROVIDERS, Provider};
pub use registry::EngineRegistry;
pub use retry::Patience;
