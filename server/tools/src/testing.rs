//! A workspace in a temporary folder, with a folder beside it, for this crate's tests.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tns_protocol::ToolCallId;
use tns_protocol::approval::RiskClass;
use tns_server_core::tool::{Args, ArgumentCheck, LiveOutput, Rating, Tool, ToolOutcome, ToolRun, Workspace};
use tokio_util::sync::CancellationToken;

use crate::SchemaCheck;

/// Time limit of a run in tests: far above what any takes.
const LIMIT: Duration = Duration::from_secs(20);

/// `ws` is the workspace; `ws-evil` beside it holds `secret.txt` with the text `outside`.
pub(crate) struct Bench {
    dir: TempDir,
    pub(crate) workspace: Arc<Workspace>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        std::fs::create_dir(top.join("ws")).unwrap();
        std::fs::create_dir(top.join("ws-evil")).unwrap();
        std::fs::write(top.join("ws-evil/secret.txt"), "outside").unwrap();
        Self { dir, workspace: Arc::new(Workspace::new(top.join("ws"))) }
    }

    /// Returns a path beneath the workspace.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.workspace.root().join(name)
    }

    /// Returns a path beside the workspace.
    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("ws-evil").join(name)
    }

    /// Writes a file beneath the workspace, with its folders.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// Makes a symbolic link beneath the workspace.
    pub(crate) fn link(&self, name: &str, target: impl AsRef<std::path::Path>) {
        std::os::unix::fs::symlink(target, self.path(name)).unwrap();
    }

    pub(crate) async fn rate(&self, tool: &dyn Tool, args: Value) -> Rating {
        tool.rate(&checked(tool, args), &self.workspace).await
    }

    pub(crate) async fn class(&self, tool: &dyn Tool, args: Value) -> RiskClass {
        self.rate(tool, args).await.class
    }

    pub(crate) async fn run(&self, tool: &dyn Tool, args: Value) -> ToolOutcome {
        tool.run(self.call(tool, args, CancellationToken::new())).await
    }

    pub(crate) fn call(&self, tool: &dyn Tool, args: Value, cancel: CancellationToken) -> ToolRun {
        let args = checked(tool, args);
        ToolRun {
            args,
            workspace: Arc::clone(&self.workspace),
            cancel,
            limit: LIMIT,
            call: ToolCallId::parse("call-1").unwrap(),
            live: LiveOutput::default(),
        }
    }
}

fn checked(tool: &dyn Tool, args: Value) -> Args {
    let Value::Object(args) = args else { panic!("arguments are an object") };
    SchemaCheck.check(&tool.spec().schema, &args).unwrap();
    args
}
