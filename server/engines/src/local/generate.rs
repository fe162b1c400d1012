//! The loop of a step: read the prompt, then write token by token. It runs on a blocking thread and ends
//! within a token, or a batch of the prompt, once nobody listens. What it read is kept for the next step.

use std::time::Instant;

use tns_server_core::engine::{
    EngineError, EngineErrorKind, StepEvent, StepOutcome, StepRequest, StepStop, StepUsage,
};
use tokio::sync::mpsc;

use super::answer::Answer;
use super::conversation;
use super::library::Loaded;
use super::vocabulary::{Characters, Piece};
use super::weights::Weights;
use crate::call_id::new_call_id;
use crate::step::{Events, StreamFault};

/// Most tokens of an answer where the step does not say: a small model that repeats itself must end.
pub(super) const DEFAULT_MAX_OUTPUT: u32 = 4_096;
/// Bytes of the prompt's end in which a thought may be begun.
const PROMPT_END: usize = 32;

/// Why a loop ended before the answer did.
#[derive(Debug)]
pub(super) enum Ended {
    /// Nobody listens.
    Unheard,
    Failed(EngineError),
}

/// The end of a channel that a step's events go into.
pub(super) type Ear = mpsc::Sender<Result<StepEvent, EngineError>>;

/// What is remembered of the last step: the network after its prompt, and after its answer.
#[derive(Debug, Default)]
pub(super) struct Kept {
    prompt: Option<Read>,
    whole: Option<Read>,
}

/// Tokens, and the network that has read them.
#[derive(Debug)]
struct Read {
    tokens: Vec<u32>,
    weights: Weights,
}

impl Kept {
    /// Takes the most that the prompt begins with; at least one token of it is left to read.
    fn take(&mut self, prompt: &[u32]) -> Option<Weights> {
        let fits = |read: &Read| read.tokens.len() < prompt.len() && prompt.starts_with(&read.tokens);
        // What was written behind the prompt goes with it, used or not: both may share their memory.
        let whole = self.whole.take().filter(fits);
        match whole {
            Some(read) => Some(read.weights),
            None => self.prompt.as_ref().filter(|read| fits(read)).map(|read| read.weights.clone()),
        }
    }
}

/// Runs a step.
///
/// # Errors
/// [`Ended`]; what is kept is good for the next step in any case.
pub(super) fn run(
    loaded: &Loaded,
    kept: &mut Kept,
    step: &StepRequest,
    seed: u64,
    ear: &Ear,
) -> Result<(), Ended> {
    let text = conversation::prompt(step, &loaded.template, &loaded.vocabulary)
        .map_err(|error| loaded.failed(&format!("its chat template refuses this conversation: {error}")))?;
    let prompt = loaded.vocabulary.encode(&text).map_err(|error| loaded.failed(&error))?;
    let room = loaded.context.saturating_sub(prompt.len());
    if room == 0 {
        return Err(Ended::Failed(EngineError {
            kind: EngineErrorKind::ContextOverflow,
            message: format!(
                "the conversation is too long for {}: {} tokens, of which it takes {}",
                loaded.name,
                prompt.len(),
                loaded.context
            ),
        }));
    }
    let asked = step.max_output_tokens.unwrap_or(DEFAULT_MAX_OUTPUT).max(1);
    let limit = usize::try_from(asked).unwrap_or(room).min(room);
    let weights = kept.take(&prompt).unwrap_or_else(|| loaded.weights.clone());
    let (asked_for, cached) = (prompt.len(), weights.fed());
    let begun = Instant::now();
    let (weights, next) = read(loaded, kept, weights, &prompt, ear)?;
    let read_in = begun.elapsed();

    let end = text.len() - text.len().min(PROMPT_END);
    let end = text.get(end..).unwrap_or_default().trim_end();
    let mut writer = Writer {
        loaded,
        ear,
        answer: Answer::new(step.tools.iter().map(|tool| tool.name.clone()), end.ends_with("<think>")),
        characters: Characters::default(),
        events: Events::new(),
    };
    let mut chooser = loaded.advice.chooser(step.temperature, seed);
    let mut whole = Read { tokens: prompt, weights };
    let mut next = next;
    let mut written = 0;
    let stop = loop {
        let token = chooser.sample(&next).map_err(|error| loaded.failed(&error.to_string()))?;
        written += 1;
        if loaded.vocabulary.ends(token) {
            break StepStop::End;
        }
        writer.token(token)?;
        if written == limit {
            break StepStop::MaxTokens;
        }
        next = feed(loaded, &mut whole.weights, &[token], ear)?;
        whole.tokens.push(token);
    };
    let usage = StepUsage {
        input: u64::try_from(asked_for).unwrap_or(0),
        cached_input: u64::try_from(cached).unwrap_or(0),
        cache_written: 0,
        output: u64::try_from(written).unwrap_or(0),
        cost: Some(0.0),
    };
    let written_in = begun.elapsed() - read_in;
    tracing::debug!(
        model = loaded.name,
        input = asked_for,
        cached,
        ?read_in,
        output = written,
        ?written_in,
        "answered"
    );
    if whole.weights.can_go_on() {
        kept.whole = Some(whole);
    }
    writer.finish(stop, usage)
}

/// Reads the prompt from where the network stands; returns what may come next.
fn read(
    loaded: &Loaded,
    kept: &mut Kept,
    mut weights: Weights,
    prompt: &[u32],
    ear: &Ear,
) -> Result<(Weights, candle_core::Tensor), Ended> {
    let (last, before) = match prompt.split_last() {
        Some(split) => split,
        None => return Err(loaded.failed("its chat template makes nothing of this conversation")),
    };
    while weights.fed() < before.len() {
        let waiting = &before[weights.fed()..];
        let batch = weights.batch(waiting.len());
        feed(loaded, &mut weights, &waiting[..batch], ear)?;
    }
    // The next prompt begins with this one, but for its last token it may be the same.
    if weights.can_go_on() {
        kept.prompt = Some(Read { tokens: before.to_vec(), weights: weights.clone() });
    }
    let next = feed(loaded, &mut weights, &[*last], ear)?;
    Ok((weights, next))
}

/// Feeds tokens, while somebody listens.
fn feed(
    loaded: &Loaded,
    weights: &mut Weights,
    tokens: &[u32],
    ear: &Ear,
) -> Result<candle_core::Tensor, Ended> {
    if ear.is_closed() {
        return Err(Ended::Unheard);
    }
    weights.feed(tokens, &|| !ear.is_closed()).map_err(|error| match ear.is_closed() {
        true => Ended::Unheard,
        false => loaded.failed(&error.to_string()),
    })
}

/// What turns tokens into events.
struct Writer<'a> {
    loaded: &'a Loaded,
    ear: &'a Ear,
    answer: Answer,
    characters: Characters,
    events: Events,
}

impl Writer<'_> {
    fn token(&mut self, token: u32) -> Result<(), Ended> {
        let text = match self.loaded.vocabulary.piece(token) {
            Some(Piece::Bytes(bytes)) => self.characters.push(bytes),
            // Tags of calls are such tokens with some models; the answer knows which.
            Some(Piece::Control(name)) => format!("{}{name}", self.characters.end()),
            None => String::new(),
        };
        let pushed = self.answer.push(&text, &mut self.events);
        pushed.map_err(|fault| self.loaded.stumbled(&fault))?;
        self.send()
    }

    fn finish(mut self, stop: StepStop, usage: StepUsage) -> Result<(), Ended> {
        let failed = |fault: StreamFault| self.loaded.stumbled(&fault);
        let cut = self.characters.end();
        self.answer.push(cut, &mut self.events).map_err(failed)?;
        self.answer.end(&mut self.events).map_err(failed)?;
        self.send()?;
        let stop = if self.answer.has_calls() && stop == StepStop::End { StepStop::ToolUse } else { stop };
        let parts = self.answer.into_parts(&mut new_call_id).map_err(failed)?;
        let outcome = StepOutcome { parts, model: self.loaded.name.clone(), stop, usage, native: None };
        self.ear.blocking_send(Ok(StepEvent::Finished(outcome))).map_err(|_| Ended::Unheard)
    }

    fn send(&mut self) -> Result<(), Ended> {
        for event in self.events.drain(..) {
            self.ear.blocking_send(Ok(event)).map_err(|_| Ended::Unheard)?;
        }
        if self.ear.is_closed() { Err(Ended::Unheard) } else { Ok(()) }
    }
}
