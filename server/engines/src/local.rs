//! A model in this process: a GGUF file of the data folder, no server to install. Built with the feature
//! `local-llm`; without it, opening the provider says how to build it.
//!
//! `file` finds the file behind a name; `weights`, `vocabulary`, `template` and `sampling` are what a file
//! becomes; `conversation` makes a prompt of a step, `answer` reads what the model writes; `generate` is
//! the loop between them, on a blocking thread; `library` holds what is loaded, once a file; `engine` is
//! the face to the core. It must not run two loops at a time, or name a path that a client sent.

#[cfg(feature = "local-llm")]
mod answer;
mod catalogue;
#[cfg(feature = "local-llm")]
mod conversation;
#[cfg(feature = "local-llm")]
mod dense;
#[cfg(feature = "local-llm")]
mod engine;
#[cfg(feature = "local-llm")]
mod file;
#[cfg(feature = "local-llm")]
mod generate;
#[cfg(feature = "local-llm")]
mod library;
#[cfg(feature = "local-llm")]
mod memory;
#[cfg(feature = "local-llm")]
mod sampling;
#[cfg(feature = "local-llm")]
mod template;
#[cfg(test)]
#[cfg(feature = "local-llm")]
mod tests;
#[cfg(test)]
#[cfg(feature = "local-llm")]
mod tiny;
#[cfg(feature = "local-llm")]
mod vocabulary;
#[cfg(feature = "local-llm")]
mod weights;

pub(crate) use catalogue::CATALOGUE;
#[cfg(feature = "local-llm")]
pub(crate) use engine::open;
#[cfg(feature = "local-llm")]
pub(crate) use library::Library;

#[cfg(not(feature = "local-llm"))]
pub(crate) use absent::{Library, open};

use crate::RUNS_LOCAL_MODELS;

/// The provider's id.
pub(crate) const PROVIDER: &str = "local";

/// What the provider is, or how to get it, in one line.
pub(crate) const BLURB: &str = if RUNS_LOCAL_MODELS {
    "A model file in tns itself; no server, no key"
} else {
    "This build has no local models: `cargo install --path cli --features local-llm` builds one that has"
};

/// What stands in where the feature is not built.
#[cfg(not(feature = "local-llm"))]
mod absent {
    use futures_util::FutureExt;
    use tns_server_core::engine::OpenError;

    use crate::config::LocalModels;
    use crate::provider::{Opened, Opening};

    /// No model is ever loaded.
    #[derive(Debug)]
    pub(crate) struct Library;

    impl Library {
        pub(crate) fn new(_: &LocalModels) -> Self {
            Self
        }
    }

    pub(crate) fn open(_: Opening) -> Opened {
        let refused = OpenError(
            "this build of tns holds no models itself: build it with `cargo install --path cli --features \
             local-llm`, or start Ollama"
                .to_owned(),
        );
        async move { Err(refused) }.boxed()
    }
}
