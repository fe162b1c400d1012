//! What is loaded: one copy of each file's weights, for as long as an agent uses it, and one step at a time
//! among all of them. Steps queue in the order in which they come: two at once would each take more than
//! twice as long, since every one can use all the cores it is given.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::SystemTime;

use jiff::Timestamp;
use rayon::{ThreadPool, ThreadPoolBuilder};
use tns_server_core::engine::{EngineError, EngineErrorKind};
use tokio::sync::Semaphore;

use super::file::Found;
use super::generate::Ended;
use super::memory;
use super::sampling::Advice;
use super::template::Template;
use super::vocabulary::Vocabulary;
use super::weights::{Kind, Weights};
use crate::config::LocalModels;
use crate::gguf::GgufHeader;
use crate::http::one_line;
use crate::step::StreamFault;

/// Steps that compute at a time.
const AT_A_TIME: usize = 1;
/// Most characters of the library's own words in a message.
const DETAIL: usize = 200;

/// The models of a server.
pub(crate) struct Library {
    pub(super) models: LocalModels,
    pub(super) turn: Arc<Semaphore>,
    shelves: Mutex<HashMap<Edition, Weak<Shelf>>>,
    threads: OnceLock<Option<ThreadPool>>,
}

/// A file as it is at one time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Edition {
    path: PathBuf,
    bytes: u64,
    changed: Option<SystemTime>,
}

/// The place of one model: empty until a step needs it.
pub(super) struct Shelf {
    pub(super) found: Found,
    kind: Kind,
    header: GgufHeader,
    loaded: Mutex<Option<Arc<Loaded>>>,
}

/// A model that is ready to run.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) name: String,
    pub(super) weights: Weights,
    pub(super) vocabulary: Vocabulary,
    pub(super) template: Template,
    pub(super) advice: Advice,
    /// Most tokens of a conversation.
    pub(super) context: usize,
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library").field("models", &self.models).finish_non_exhaustive()
    }
}

impl Library {
    pub(crate) fn new(models: &LocalModels) -> Self {
        Self {
            models: models.clone(),
            turn: Arc::new(Semaphore::new(AT_A_TIME)),
            shelves: Mutex::default(),
            threads: OnceLock::new(),
        }
    }

    /// Returns the place of a model, the same for everybody who uses its file.
    pub(super) fn shelf(&self, found: Found, kind: Kind, header: GgufHeader) -> Arc<Shelf> {
        let changed = std::fs::metadata(&found.path).and_then(|metadata| metadata.modified()).ok();
        let edition = Edition { path: found.path.clone(), bytes: header.bytes, changed };
        let mut shelves = self.shelves.lock().unwrap_or_else(PoisonError::into_inner);
        shelves.retain(|_, shelf| shelf.strong_count() > 0);
        if let Some(shelf) = shelves.get(&edition).and_then(Weak::upgrade) {
            return shelf;
        }
        let shelf = Arc::new(Shelf { found, kind, header, loaded: Mutex::default() });
        shelves.insert(edition, Arc::downgrade(&shelf));
        shelf
    }

    /// Runs work on the threads of models: all cores but one, so that the server stays awake.
    pub(super) fn compute<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let pool = self.threads.get_or_init(|| {
            let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
            let pool = ThreadPoolBuilder::new().num_threads(cores.saturating_sub(1).max(1));
            pool.thread_name(|number| format!("model-{number}")).build().ok()
        });
        match pool {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }
}

impl Shelf {
    /// Returns the model, and loads it when nobody did.
    ///
    /// # Errors
    /// [`EngineError`] when it does not fit into memory or is not made for this.
    pub(super) fn load(&self) -> Result<Arc<Loaded>, EngineError> {
        // Whoever panicked while loading left it empty.
        let mut place = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = &*place {
            return Ok(Arc::clone(loaded));
        }
        memory::check(&self.found.name, self.kind.memory(&self.header), memory::available())
            .map_err(provider)?;
        let loaded = Arc::new(self.read()?);
        *place = Some(Arc::clone(&loaded));
        Ok(loaded)
    }

    /// Returns how many tokens a conversation with the model may have.
    pub(super) fn context(&self) -> usize {
        Kind::context(&self.header)
    }

    fn read(&self) -> Result<Loaded, EngineError> {
        let name = &self.found.name;
        let unusable = |why: &str| {
            provider(format!("the model file of {name} can't be used: {}", one_line(first_line(why), DETAIL)))
        };
        let context = self.context();
        let (weights, metadata) = Weights::load(&self.found.path, self.kind, context)
            .map_err(|error| unusable(&error.to_string()))?;
        let vocabulary = Vocabulary::read(&metadata).map_err(|error| unusable(&error))?;
        let source = metadata.get("tokenizer.chat_template").and_then(|value| value.to_string().ok());
        let template = match source {
            Some(source) => {
                Template::new(source, &vocabulary.begin_name, &vocabulary.end_name, Timestamp::now)
                    .map_err(|error| unusable(&format!("its chat template can't be read: {error}")))?
            }
            None => {
                tracing::warn!(model = name, "the file brings no chat template; ChatML is used");
                Template::chatml(Timestamp::now).map_err(|error| unusable(&error))?
            }
        };
        if self.kind == Kind::Llama && self.header.elements("rope_freqs.weight").is_some() {
            tracing::warn!(
                model = name,
                "made for long texts in a way that is not known here; fine for short ones"
            );
        }
        if self.kind == Kind::Gemma3 {
            tracing::warn!(
                model = name,
                "Gemma looks back at all of a long text here, which it was not made for"
            );
        }
        let advice = Advice::of(self.kind, &self.header);
        Ok(Loaded { name: name.clone(), weights, vocabulary, template, advice, context })
    }
}

impl Loaded {
    /// Returns the end of a step that the model's own parts could not do.
    pub(super) fn failed(&self, why: &str) -> Ended {
        Ended::Failed(provider(format!("{}: {}", self.name, one_line(first_line(why), DETAIL))))
    }

    /// Returns the end of a step whose answer goes beyond a limit.
    pub(super) fn stumbled(&self, fault: &StreamFault) -> Ended {
        let why = match fault {
            StreamFault::TooLarge(what) => format!("it wrote {what}"),
            StreamFault::Unreadable(why) | StreamFault::Slip(why) | StreamFault::Refused(why) => why.clone(),
            StreamFault::Incomplete => "it stopped in the middle".to_owned(),
        };
        self.failed(&why)
    }
}

/// Returns an error that another try would meet again.
pub(super) fn provider(message: String) -> EngineError {
    EngineError { kind: EngineErrorKind::Provider, message }
}

/// Returns the first line; the library puts its stack behind it.
fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
