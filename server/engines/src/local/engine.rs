//! The face of a local model to the core: finds its file, and runs each step on a blocking thread while
//! its events are asked for.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::{FutureExt, StreamExt, stream};
use tns_server_core::engine::{Engine, EngineError, OpenError, Pricing, StepEvent, StepRequest, StepStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::PROVIDER;
use super::file;
use super::generate::{self, Ear, Ended, Kept};
use super::library::{Library, Shelf, provider};
use super::weights::{KINDS, Kind};
use crate::gguf::GgufHeader;
use crate::provider::{Opened, Opening};

/// Events that wait for whoever asks for them; full → the model waits.
const EVENTS: usize = 64;

/// An agent's engine: the model is shared, what it remembers of the conversation is the agent's own.
struct LocalEngine {
    name: String,
    shared: Arc<Shared>,
}

/// What a step takes along to its thread.
struct Shared {
    library: Arc<Library>,
    shelf: Arc<Shelf>,
    /// Taken by a running step: a second one of the same agent begins from nothing.
    kept: Mutex<Option<Kept>>,
    seed: Option<u64>,
}

/// Opens a model: its file is checked, and loaded when the first step comes.
pub(crate) fn open(opening: Opening) -> Opened {
    async move {
        let Opening { model, asker, local: library, .. } = opening;
        let opened = tokio::task::spawn_blocking(move || -> Result<Arc<dyn Engine>, OpenError> {
            let found = file::find(&library.models, model.as_deref(), asker)?;
            let refused =
                |why: String| OpenError(format!("the model file of {} can't be used: {why}", found.name));
            let header = GgufHeader::read(&found.path).map_err(|error| refused(error.to_string()))?;
            let kind = Kind::of(&header).ok_or_else(|| {
                let known = KINDS.map(|(name, _)| name).join(", ");
                let kind = crate::http::one_line(&header.architecture, 64);
                refused(format!("it holds a network of the kind {kind}; those that can be run are {known}"))
            })?;
            kind.check(&header)
                .map_err(|why| refused(format!("it is damaged or not made for this: {why}")))?;
            if let Some(stored) = header.unknown_storage() {
                return Err(refused(format!(
                    "its weights are stored in the unknown way {stored}; get it as Q4_K_M or Q8_0"
                )));
            }
            let name = found.name.clone();
            let shelf = library.shelf(found, kind, header);
            let seed = library.models.seed;
            let shared = Arc::new(Shared { library, shelf, kept: Mutex::default(), seed });
            Ok(Arc::new(LocalEngine { name, shared }))
        });
        match opened.await {
            Ok(opened) => opened,
            Err(_) => Err(OpenError("the model file could not be looked at; try again".to_owned())),
        }
    }
    .boxed()
}

impl Engine for LocalEngine {
    fn provider(&self) -> &str {
        PROVIDER
    }

    fn model(&self) -> &str {
        &self.name
    }

    fn context_window(&self) -> Option<u64> {
        u64::try_from(self.shared.shelf.context()).ok()
    }

    fn pricing(&self) -> Pricing {
        Pricing::Free
    }

    fn step(&self, request: StepRequest) -> StepStream {
        let shared = Arc::clone(&self.shared);
        stream::once(async move {
            // Whoever is dropped while waiting leaves the queue.
            let turn = Arc::clone(&shared.library.turn).acquire_owned().await;
            let (ear, events) = mpsc::channel(EVENTS);
            let name = shared.shelf.found.name.clone();
            let task = tokio::task::spawn_blocking(move || {
                run(&shared, &request, &ear);
                // Held until here: a step that nobody listens to still computes for a moment.
                drop(turn);
            });
            stream::unfold(Running { events, task: Some(task), name }, |mut running| async move {
                let event = running.next().await?;
                Some((event, running))
            })
        })
        .flatten()
        .boxed()
    }
}

/// Runs a step on this thread and the model's own.
fn run(shared: &Shared, request: &StepRequest, ear: &Ear) {
    let mut kept = lock(&shared.kept).take().unwrap_or_default();
    let ended = shared.library.compute(|| {
        let loaded = shared.shelf.load().map_err(Ended::Failed)?;
        let seed = shared.seed.unwrap_or_else(|| Uuid::new_v4().as_u64_pair().0);
        generate::run(&loaded, &mut kept, request, seed, ear)
    });
    *lock(&shared.kept) = Some(kept);
    match ended {
        Ok(()) | Err(Ended::Unheard) => {}
        // Nobody may listen any more.
        Err(Ended::Failed(error)) => drop(ear.blocking_send(Err(error))),
    }
}

fn lock<T>(place: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A step that runs. Dropping it closes the channel, which the loop sees at its next token.
struct Running {
    events: mpsc::Receiver<Result<StepEvent, EngineError>>,
    task: Option<JoinHandle<()>>,
    name: String,
}

impl Running {
    async fn next(&mut self) -> Option<Result<StepEvent, EngineError>> {
        if let Some(event) = self.events.recv().await {
            return Some(event);
        }
        match self.task.take()?.await {
            Ok(()) => None,
            Err(error) => {
                tracing::error!(model = self.name, %error, "a local model failed inside its library");
                Some(Err(provider(format!(
                    "the model {} failed while it ran; its file may be damaged or not made for this",
                    self.name
                ))))
            }
        }
    }
}
