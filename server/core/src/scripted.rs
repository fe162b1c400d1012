//! An engine that plays a script: text, tool calls, pauses and failures. For tests and demonstrations.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use serde_json::{Map, Value};
use tokio::sync::Semaphore;

use crate::engine::{
    Engine, EngineChoice, EngineError, EngineErrorKind, Engines, OpenError, Pricing, StepEvent, StepOutcome,
    StepRequest, StepStop, StepStream, StepUsage,
};
use crate::message::{Part, ToolCall, new_call_id};

/// The provider id of scripted engines.
pub const SCRIPTED: &str = "scripted";

/// One beat of a scripted step.
#[derive(Debug, Clone)]
pub enum Beat {
    /// Write a piece of text.
    Text(String),
    /// Think a piece of reasoning.
    Reasoning(String),
    /// Call a tool.
    Call(String, Map<String, Value>),
    /// Call a tool with arguments that are no JSON object, for the reason given.
    BrokenCall(String, String),
    /// Wait so long.
    Pause(Duration),
    /// Wait until the test lets one waiting step go on.
    Gate(Gate),
    /// Tell what the step used so far; the last word counts at its end.
    Used(StepUsage),
    /// Fail.
    Fail(EngineErrorKind, String),
}

/// Holds steps back until a test lets them go.
#[derive(Debug, Clone)]
pub struct Gate(Arc<Semaphore>);

impl Gate {
    /// Makes a gate that is shut.
    pub fn new() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    /// Lets one waiting step go on.
    pub fn open(&self) {
        self.0.add_permits(1);
    }

    async fn pass(&self) {
        // The semaphore is never closed.
        if let Ok(permit) = self.0.acquire().await {
            permit.forget();
        }
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

/// The steps that scripted engines play, in order; one script is shared by all of a server's agents.
/// When it is used up, each further step says `(end of script)`.
#[derive(Debug, Clone, Default)]
pub struct Script {
    inner: Arc<Mutex<ScriptState>>,
}

#[derive(Debug, Default)]
struct ScriptState {
    steps: VecDeque<Vec<Beat>>,
    requests: Vec<StepRequest>,
}

impl Script {
    /// Makes an empty script.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a step.
    #[must_use]
    pub fn step(self, beats: impl IntoIterator<Item = Beat>) -> Self {
        self.lock().steps.push_back(beats.into_iter().collect());
        self
    }

    /// Adds a step that writes one text.
    #[must_use]
    pub fn text(self, text: &str) -> Self {
        self.step([Beat::Text(text.to_owned())])
    }

    /// Adds a step that calls one tool; `args` must be a JSON object.
    #[must_use]
    pub fn call(self, tool: &str, args: Value) -> Self {
        self.step([call(tool, args)])
    }

    /// Returns the requests so far.
    pub fn requests(&self) -> Vec<StepRequest> {
        self.lock().requests.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ScriptState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self, request: StepRequest) -> Vec<Beat> {
        let mut state = self.lock();
        state.requests.push(request);
        state.steps.pop_front().unwrap_or_else(|| vec![Beat::Text("(end of script)".to_owned())])
    }
}

/// Makes a beat that calls a tool; anything but a JSON object is taken as no arguments.
pub fn call(tool: &str, args: Value) -> Beat {
    let args = match args {
        Value::Object(args) => args,
        _ => Map::new(),
    };
    Beat::Call(tool.to_owned(), args)
}

/// An engine that plays a script.
#[derive(Debug)]
pub struct ScriptedEngine {
    model: String,
    script: Script,
    pricing: Pricing,
    estimate: f64,
}

impl ScriptedEngine {
    /// Makes an engine of this model name.
    pub fn new(model: &str, script: Script) -> Self {
        Self { model: model.to_owned(), script, pricing: Pricing::Free, estimate: 0.0 }
    }
}

impl Engine for ScriptedEngine {
    fn provider(&self) -> &str {
        SCRIPTED
    }

    fn model(&self) -> &str {
        &self.model
    }

    fn pricing(&self) -> Pricing {
        self.pricing
    }

    fn estimate(&self, _: u64, _: u64) -> f64 {
        self.estimate
    }

    fn step(&self, request: StepRequest) -> StepStream {
        let script = self.script.clone();
        let model = self.model.clone();
        stream::once(async move { play(script.next(request), model) }).flatten().boxed()
    }
}

/// A step's words count as tokens, one each.
fn play(beats: Vec<Beat>, model: String) -> BoxStream<'static, Result<StepEvent, EngineError>> {
    let state = (VecDeque::from(beats), Vec::<Part>::new(), Some(model), None);
    stream::unfold(state, |(mut beats, mut parts, mut model, mut used)| async move {
        loop {
            let event = match beats.pop_front() {
                Some(Beat::Pause(pause)) => {
                    tokio::time::sleep(pause).await;
                    continue;
                }
                Some(Beat::Gate(gate)) => {
                    gate.pass().await;
                    continue;
                }
                Some(Beat::Text(text)) => {
                    match parts.last_mut() {
                        Some(Part::Text(before)) => before.push_str(&text),
                        _ => parts.push(Part::Text(text.clone())),
                    }
                    Ok(StepEvent::Text(text))
                }
                Some(Beat::Reasoning(text)) => Ok(StepEvent::Reasoning(text)),
                Some(Beat::Call(name, args)) => {
                    parts.push(Part::ToolCall(tool_call(&name, args, None)));
                    Ok(StepEvent::ToolStart { name })
                }
                Some(Beat::BrokenCall(name, problem)) => {
                    parts.push(Part::ToolCall(tool_call(&name, Map::new(), Some(problem))));
                    Ok(StepEvent::ToolStart { name })
                }
                Some(Beat::Used(usage)) => {
                    used = Some(usage);
                    Ok(StepEvent::Usage(usage))
                }
                Some(Beat::Fail(kind, message)) => {
                    beats.clear();
                    model = None;
                    Err(EngineError { kind, message })
                }
                None => {
                    let outcome = outcome(std::mem::take(&mut parts), model.take()?);
                    let usage = used.unwrap_or(outcome.usage);
                    Ok(StepEvent::Finished(StepOutcome { usage, ..outcome }))
                }
            };
            return Some((event, (beats, parts, model, used)));
        }
    })
    .boxed()
}

fn outcome(parts: Vec<Part>, model: String) -> StepOutcome {
    let words = parts.iter().map(|part| match part {
        Part::Text(text) => text.split_whitespace().count() as u64,
        Part::Image(_) | Part::ToolCall(_) | Part::ToolResult(_) | Part::Note(_) => 1,
    });
    let usage = StepUsage { input: 1, output: words.sum(), cost: Some(0.0), ..StepUsage::default() };
    let calls = parts.iter().any(|part| matches!(part, Part::ToolCall(_)));
    let stop = if calls { StepStop::ToolUse } else { StepStop::End };
    StepOutcome { parts, model, stop, usage, native: None }
}

fn tool_call(name: &str, args: Map<String, Value>, problem: Option<String>) -> ToolCall {
    ToolCall { id: new_call_id(), provider_id: None, name: name.to_owned(), args, problem }
}

/// Makes scripted engines, whatever is asked for.
#[derive(Debug, Clone)]
pub struct ScriptedEngines {
    script: Script,
    /// Providers that may be named beside the default.
    known: Vec<String>,
    pricing: Pricing,
    estimate: f64,
}

impl ScriptedEngines {
    /// Makes engines that all play `script`; `known` providers may be named.
    pub fn new(script: Script, known: &[&str]) -> Self {
        let known = known.iter().map(|name| (*name).to_owned()).collect();
        Self { script, known, pricing: Pricing::Free, estimate: 0.0 }
    }

    /// Makes the engines say this of their price, and that each step is likely to cost `estimate` dollars.
    #[must_use]
    pub fn priced(self, pricing: Pricing, estimate: f64) -> Self {
        Self { pricing, estimate, ..self }
    }
}

#[async_trait]
impl Engines for ScriptedEngines {
    async fn open(&self, choice: &EngineChoice) -> Result<Arc<dyn Engine>, OpenError> {
        if let Some(provider) = choice.provider.as_deref().filter(|name| !name.trim().is_empty())
            && provider != SCRIPTED
            && !self.known.iter().any(|known| known == provider)
        {
            return Err(OpenError(format!("provider {provider:?} is not set up on this server")));
        }
        let model = choice.model.clone().unwrap_or_else(|| "script".to_owned());
        let (pricing, estimate) = (self.pricing, self.estimate);
        Ok(Arc::new(ScriptedEngine { pricing, estimate, ..ScriptedEngine::new(&model, self.script.clone()) }))
    }
}
