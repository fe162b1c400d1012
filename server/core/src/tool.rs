//! The seam to tools: what a call would do ([`Tool::rate`]) and doing it ([`Tool::run`]).

mod live;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value};
use tns_protocol::ToolCallId;
use tns_protocol::approval::RiskClass;
use tokio_util::sync::CancellationToken;

pub use live::{LiveOutput, LivePieces, MAX_PIECE_BYTES};

/// Arguments of a call.
pub type Args = Map<String, Value>;

/// A tool as a model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// 1 to 64 of `[A-Za-z0-9_-]`.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema (2020-12) of its arguments; its root is an object.
    pub schema: Value,
}

/// What a call would do, found without doing it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rating {
    /// The class of the worst part.
    pub class: RiskClass,
    /// Why, one plain sentence each.
    pub reasons: Vec<String>,
    /// What would run, rendered from the exact bytes: hidden characters are visible escapes.
    pub summary: String,
    /// What would change in files, as a unified diff.
    pub diff: Option<String>,
    /// What an `always` may cover where its class allows a part of the tool: for a shell line its
    /// program and sub-command, such as `cargo test`. `None` where it can't be named.
    pub key: Option<String>,
    /// For a client's tool: the digest of its name, description and schema.
    pub pin: Option<String>,
}

impl Rating {
    /// Returns a rating with a class, one reason and a summary, and nothing else.
    pub fn new(class: RiskClass, reason: impl Into<String>, summary: impl Into<String>) -> Self {
        Self {
            class,
            reasons: vec![reason.into()],
            summary: summary.into(),
            diff: None,
            key: None,
            pin: None,
        }
    }
}

/// The folder that a session's tools work in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace {
    root: PathBuf,
    trusted: bool,
}

impl Workspace {
    /// Makes a workspace of a folder; `root` is absolute and canonical.
    pub fn new(root: PathBuf) -> Self {
        Self { root, trusted: false }
    }

    /// Returns the same workspace with the operator's trust.
    pub fn trusted(self) -> Self {
        Self { trusted: true, ..self }
    }

    /// Returns the folder: absolute and canonical.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether the operator trusts what is in it.
    pub fn is_trusted(&self) -> bool {
        self.trusted
    }
}

/// One approved run of a tool.
#[derive(Debug)]
pub struct ToolRun {
    /// The arguments, valid against the tool's schema.
    pub args: Args,
    /// Where to work.
    pub workspace: Arc<Workspace>,
    /// Fires when the run must end; what it started is gone within 500 ms.
    pub cancel: CancellationToken,
    /// How long the run may take.
    pub limit: Duration,
    /// The call that is run.
    pub call: ToolCallId,
    /// For what people may see before the outcome, which has it all.
    pub live: LiveOutput,
}

/// What a run gave back. A failure is a result that the model reads, never a panic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutcome {
    /// The output, at most [`MAX_OUTPUT_BYTES`]; the caller cuts it for the model.
    pub output: String,
    /// The tool failed.
    pub is_error: bool,
}

/// Most bytes of output that a tool may give back.
pub const MAX_OUTPUT_BYTES: usize = 10 << 20;

impl ToolOutcome {
    /// Returns a success.
    pub fn ok(output: impl Into<String>) -> Self {
        Self { output: output.into(), is_error: false }
    }

    /// Returns a failure; `message` says what is wrong and what to do.
    pub fn error(message: impl Into<String>) -> Self {
        Self { output: message.into(), is_error: true }
    }
}

/// Something an agent can do.
#[async_trait]
pub trait Tool: Send + Sync + 'static {
    /// Returns the tool as a model sees it.
    fn spec(&self) -> &Arc<ToolSpec>;

    /// How long a run may take; `None` is the session's default.
    fn limit(&self) -> Option<Duration> {
        None
    }

    /// Rates a call without doing it. `args` are valid against the schema.
    async fn rate(&self, args: &Args, workspace: &Workspace) -> Rating;

    /// Runs a call. Paths are checked again here, where they are opened.
    async fn run(&self, run: ToolRun) -> ToolOutcome;
}

/// Checks arguments against a JSON Schema. A trait, since the validator is a heavy dependency.
pub trait ArgumentCheck: Send + Sync + 'static {
    /// Checks `args` against `schema`.
    ///
    /// # Errors
    /// The first problem in one line, for the model.
    fn check(&self, schema: &Value, args: &Args) -> Result<(), String>;
}
