//! What stands for models, tools and the knowledge base in a run: all seeded, none with a thread.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use tns_protocol::ToolCallId;
use tns_protocol::approval::RiskClass;
use tns_server_core::engine::{
    Engine, EngineChoice, EngineErrorKind, Engines, OpenError, Pricing, StepRequest, StepStream,
};
use tns_server_core::scripted::{Beat, SCRIPTED, Script, ScriptedEngine, call};
use tns_server_core::store::{Hit, Knowledge, KnowledgeError, KnowledgeQuery};
use tns_server_core::tool::{Args, Rating, Tool, ToolOutcome, ToolRun, ToolSpec, Workspace};
use tokio::time::sleep;

use super::chance::Chance;

/// The tool that runs unasked.
const LOOK: &str = "sim_look";
/// The tool that a person is asked for.
const CHANGE: &str = "sim_change";
/// Long steps in a row, the pieces of each, and their characters: what is stored of them fills the queue of a
/// reader who does not read, though no event alone does.
const LONG_STEPS: u64 = 4;
const LONG_PIECES: u64 = 5;
const LONG_PIECE: usize = 125_000;

/// What the model will say in a run. Clones share it, so it outlives a server.
#[derive(Clone)]
pub(super) struct Brain {
    chance: Chance,
    steps: Arc<Mutex<u64>>,
    /// All text is of ASCII, in which places are bytes: long texts are compared soon.
    plain: bool,
    /// So many of the next steps are long.
    long_left: Arc<Mutex<u64>>,
    /// How often each call ran.
    pub(super) runs: Arc<Mutex<BTreeMap<ToolCallId, u32>>>,
}

impl Brain {
    pub(super) fn new(chance: Chance, plain: bool) -> Self {
        Self { chance, steps: Arc::default(), plain, long_left: Arc::default(), runs: Arc::default() }
    }

    /// Makes the next steps long enough to fill the queue of whoever does not read.
    pub(super) fn be_long(&self) {
        *self.long_left.lock().unwrap() = LONG_STEPS;
    }

    fn beats(&self, may_call: bool) -> Vec<Beat> {
        let chance = &self.chance;
        let step = {
            let mut steps = self.steps.lock().unwrap();
            *steps += 1;
            *steps
        };
        let mut beats = Vec::new();
        let long = {
            let mut left = self.long_left.lock().unwrap();
            let long = *left > 0;
            *left = left.saturating_sub(1);
            long
        };
        for piece in 0..if long { LONG_PIECES } else { chance.within(1, 7) } {
            if chance.percent(60) {
                beats.push(Beat::Pause(Duration::from_millis(chance.within(1, 120))));
            }
            // A character of several bytes: places in a text are counted in characters.
            let dot = if self.plain { '.' } else { '·' };
            beats.push(Beat::Text(match long {
                true => format!("{step}.{piece} {}", "x".repeat(LONG_PIECE)),
                false => format!("{step}{dot}{piece} "),
            }));
        }
        if long && may_call {
            // The next one follows at once: nobody is asked.
            beats.push(call(LOOK, json!({ "n": step, "ms": 1 })));
        } else if chance.percent(4) {
            beats.push(Beat::Fail(EngineErrorKind::Unavailable, "the model is away".to_owned()));
        } else if may_call && chance.percent(45) {
            for _ in 0..chance.within(1, 2) {
                let tool = if chance.percent(60) { CHANGE } else { LOOK };
                beats.push(call(tool, json!({ "n": step, "ms": chance.within(0, 150) })));
            }
        }
        beats
    }

    pub(super) fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let tool = |name: &str, class| -> Arc<dyn Tool> {
            let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
            let (name, description) = (name.to_owned(), "Works for a while.".to_owned());
            let spec = Arc::new(ToolSpec { name, description, schema });
            Arc::new(CountedTool { spec, class, runs: self.runs.clone() })
        };
        vec![tool(LOOK, RiskClass::ReadOnly), tool(CHANGE, RiskClass::Write)]
    }
}

#[async_trait]
impl Engines for Brain {
    async fn open(&self, _: &EngineChoice) -> Result<Arc<dyn Engine>, OpenError> {
        Ok(Arc::new(self.clone()))
    }
}

impl Engine for Brain {
    fn provider(&self) -> &str {
        SCRIPTED
    }

    fn model(&self) -> &str {
        "sim"
    }

    fn pricing(&self) -> Pricing {
        Pricing::Free
    }

    fn step(&self, request: StepRequest) -> StepStream {
        let beats = self.beats(!request.tools.is_empty());
        ScriptedEngine::new("sim", Script::new().step(beats)).step(request)
    }
}

/// A tool that takes the time that it is told, and counts.
struct CountedTool {
    spec: Arc<ToolSpec>,
    class: RiskClass,
    runs: Arc<Mutex<BTreeMap<ToolCallId, u32>>>,
}

#[async_trait]
impl Tool for CountedTool {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    async fn rate(&self, _: &Args, _: &Workspace) -> Rating {
        Rating::new(self.class, "It is a test.", self.spec.name.clone())
    }

    async fn run(&self, run: ToolRun) -> ToolOutcome {
        *self.runs.lock().unwrap().entry(run.call).or_default() += 1;
        let time = run.args.get("ms").and_then(Value::as_u64).unwrap_or_default();
        tokio::select! {
            biased;
            () = run.cancel.cancelled() => ToolOutcome::error("stopped"),
            () = sleep(Duration::from_millis(time)) => ToolOutcome::ok(format!("it took {time} ms")),
        }
    }
}

/// A knowledge base that knows nothing.
pub(super) struct Nothing;

#[async_trait]
impl Knowledge for Nothing {
    async fn search(&self, _: KnowledgeQuery) -> Result<Vec<Hit>, KnowledgeError> {
        Ok(Vec::new())
    }

    async fn check(&self) -> Result<(), KnowledgeError> {
        Ok(())
    }
}
