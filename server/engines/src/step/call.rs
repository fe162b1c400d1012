//! One streamed request from the first try to the last event. All of it happens while [`Call::next`]
//! is polled, so dropping a call closes its connection.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Response;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use tns_server_core::engine::{EngineError, EngineErrorKind, StepEvent, StepRequest, StepUsage};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::{Decoder, Events, Line, Progress, StreamFault, WireRequest};
use crate::call_id::new_call_id;
use crate::http;
use crate::refusal::{self, Said};
use crate::retry::{self, Failure, Next, Retry};

/// How long the end of a stream may take after its end mark. Reading to the end lets the next step
/// reuse the connection; a server that holds it open must not hold the reply up.
const DRAIN: Duration = Duration::from_millis(10);

/// How long what may still come is waited for once a reply is whole but for an end mark, such as its usage:
/// some servers send no mark and leave the connection open.
const LINGER: Duration = Duration::from_secs(2);

/// Most bytes of a whole (not streamed) answer.
const MAX_WHOLE_ANSWER: usize = 8 << 20;

/// One call: its phase, and what is decoded but not yet asked for.
pub(super) struct Call {
    line: Arc<Line>,
    phase: Phase,
    events: Events,
    /// The step, while the provider may refuse its own blocks in it.
    step: Option<StepRequest>,
    /// What tries that came to nothing used, as far as the provider told.
    spent: Option<StepUsage>,
}

enum Phase {
    /// Not polled yet.
    New(StepRequest),
    /// A try, after a pause.
    Trying {
        request: WireRequest,
        tried: u32,
        pause: Duration,
    },
    /// The answer arrives.
    Reading(Box<Reading>),
    /// The error is still to be given out.
    Failed(EngineError),
    Over,
}

struct Reading {
    response: Response,
    decoder: Box<dyn Decoder>,
    /// When the first event must be there; `None` once it is.
    first_token: Option<Instant>,
    /// When the answer counts as ended; `None` while it is not whole.
    ends_by: Option<Instant>,
    /// A word of the answer, or a call, was shown.
    shown: bool,
    /// What was sent, for another try.
    request: WireRequest,
    tried: u32,
    /// What was told of tokens, to tell of changes only.
    told: StepUsage,
}

impl Call {
    pub(super) fn new(line: Arc<Line>, request: StepRequest) -> Self {
        Self { line, phase: Phase::New(request), events: Events::new(), step: None, spent: None }
    }

    /// Returns the next event. Events that are already decoded come without waiting.
    pub(super) async fn next(&mut self) -> Option<Result<StepEvent, EngineError>> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(Ok(with_earlier(event, self.spent)));
            }
            let step = match &mut self.phase {
                Phase::Reading(reading) => match read(&self.line, reading, &mut self.events).await {
                    Ok(progress) => Ok(progress),
                    Err(failure) => self.stumbled(failure),
                },
                Phase::Failed(_) => {
                    let Phase::Failed(error) = mem::replace(&mut self.phase, Phase::Over) else {
                        return None;
                    };
                    return Some(Err(error));
                }
                Phase::Over => return None,
                // Rare, and large: kept out of the future that is made for every event.
                Phase::New(_) | Phase::Trying { .. } => Box::pin(self.begin()).await,
            };
            match step {
                Ok(Progress::More) => {}
                Ok(Progress::Done) => self.phase = Phase::Over,
                // What was decoded before the fault is shown before it.
                Err(error) => self.phase = Phase::Failed(error),
            }
        }
    }

    async fn begin(&mut self) -> Result<Progress, EngineError> {
        let (request, tried) = match mem::replace(&mut self.phase, Phase::Over) {
            Phase::New(step) => {
                let request = written(&self.line, &step)?;
                self.step = step.messages.iter().any(|message| !message.native.is_empty()).then_some(step);
                (request, 0)
            }
            Phase::Trying { request, tried, pause } => {
                sleep(pause).await;
                (request, tried)
            }
            Phase::Reading(_) | Phase::Failed(_) | Phase::Over => return Ok(Progress::Done),
        };
        let first_token = Instant::now() + self.line.http.patience.first_token;
        match send(&self.line, request.clone(), first_token).await {
            Ok(response) => self.answered(response, first_token, request, tried).await,
            Err(failure) => self.failed(failure, request, tried),
        }
    }

    /// Plans another try, if one makes sense.
    fn failed(
        &mut self,
        failure: Failure,
        request: WireRequest,
        tried: u32,
    ) -> Result<Progress, EngineError> {
        let provider = self.line.target.endpoint.provider;
        if failure.retry == Retry::WithoutBlocks
            && let Some(mut step) = self.step.take()
        {
            tracing::warn!(provider, reason = failure.error.message, "own blocks refused, left out");
            step.messages.iter_mut().for_each(|message| message.native.clear());
            let request = written(&self.line, &step)?;
            self.phase = Phase::Trying { request, tried, pause: Duration::ZERO };
            return Ok(Progress::More);
        }
        match retry::next(failure, tried, &self.line.http.patience, retry::jitter()) {
            Next::GiveUp(error) => Err(error),
            Next::Wait { delay, reason } => {
                tracing::warn!(provider, retry_in = ?delay, "call failed");
                self.events.push_back(StepEvent::Waiting { delay, reason });
                self.phase = Phase::Trying { request, tried: tried + 1, pause: delay };
                Ok(Progress::More)
            }
        }
    }

    /// The same for an answer that is being read.
    fn stumbled(&mut self, failure: Failure) -> Result<Progress, EngineError> {
        match mem::replace(&mut self.phase, Phase::Over) {
            Phase::Reading(reading) => {
                self.spent = used(&self.line, &reading, self.spent);
                self.failed(failure, reading.request, reading.tried)
            }
            Phase::New(_) | Phase::Trying { .. } | Phase::Failed(_) | Phase::Over => Err(failure.error),
        }
    }

    async fn answered(
        &mut self,
        response: Response,
        first_token: Instant,
        request: WireRequest,
        tried: u32,
    ) -> Result<Progress, EngineError> {
        let kind =
            response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let mut decoder = self.line.wire.decoder(&self.line.target);
        if kind.starts_with("text/html") {
            return Err(refusal::web_page(&self.line.target.endpoint));
        }
        if kind.starts_with("application/json") {
            // Some servers answer whole although a stream was asked for.
            let read = http::read_body(response, MAX_WHOLE_ANSWER);
            let body = timeout_at(first_token, read).await.map_err(|_| first_token_late(&self.line))?;
            let whole = decoder.whole(&String::from_utf8_lossy(&body), &mut self.events);
            return whole
                .map_err(|fault| fault_error(&self.line, fault))
                .and_then(|()| finish(&self.line, &mut *decoder, &mut self.events));
        }
        let first_token = Some(first_token);
        let reading = Reading {
            response,
            decoder,
            first_token,
            ends_by: None,
            shown: false,
            request,
            tried,
            told: StepUsage::default(),
        };
        self.phase = Phase::Reading(Box::new(reading));
        Ok(Progress::More)
    }
}

fn written(line: &Line, step: &StepRequest) -> Result<WireRequest, EngineError> {
    let mut request = line.wire.request(&line.target, step)?;
    request.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(request)
}

/// Sends one request and returns its answer's head.
async fn send(line: &Line, request: WireRequest, first_token: Instant) -> Result<Response, Failure> {
    let endpoint = &line.target.endpoint;
    let client = line.http.client(endpoint).await?;
    let WireRequest { url, headers, body } = request;
    let sent = client.post(url).headers(headers).body(body).send();
    let response = match timeout_at(first_token, sent).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => return Err(endpoint.unreachable(&error)),
        Err(_) => return Err(first_token_late(line).into()),
    };
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let pause = http::asked_pause(response.headers());
    let body = timeout_at(first_token, http::read_error(response)).await.unwrap_or_default();
    let mut refuses_blocks = false;
    let kind = |status, said: &Said| {
        refuses_blocks = line.wire.refuses_blocks(said);
        line.wire.kind(status, said)
    };
    let error = refusal::refused(endpoint, &line.target.model, Some(status.as_u16()), &body, kind);
    let retry = match error.kind {
        _ if refuses_blocks => Retry::WithoutBlocks,
        EngineErrorKind::RateLimited | EngineErrorKind::Unavailable => {
            pause.or_else(|| refusal::asked_pause(&body)).map_or(Retry::Soon, Retry::After)
        }
        _ => Retry::Never,
    };
    Err(Failure { error, retry })
}

/// Reads once and decodes what came.
async fn read(line: &Line, reading: &mut Reading, events: &mut Events) -> Result<Progress, Failure> {
    let patience = &line.http.patience;
    let silence = if reading.decoder.thinks_silently() { patience.thinking } else { patience.silence };
    if reading.decoder.could_end() && reading.ends_by.is_none() {
        reading.ends_by = Some(Instant::now() + LINGER);
    }
    let deadline = reading.ends_by.or(reading.first_token).unwrap_or_else(|| Instant::now() + silence);
    let bytes = match timeout_at(deadline, reading.response.chunk()).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(_)) => None,
        Err(_) if reading.ends_by.is_some() => None,
        Err(_) if reading.first_token.is_some() => return Err(first_token_late(line).into()),
        Err(_) => return Err(line.target.endpoint.silent(silence, EngineErrorKind::StreamIncomplete).into()),
    };
    let decoded = match &bytes {
        Some(bytes) => reading.decoder.push(bytes, events),
        None => reading.decoder.end(events).map(|()| Progress::Done),
    };
    if !events.is_empty() || reading.decoder.thinks_silently() {
        reading.first_token = None;
    }
    let begins = |event: &StepEvent| matches!(event, StepEvent::Text(_) | StepEvent::ToolStart { .. });
    reading.shown |= events.iter().any(begins);
    let shown = reading.shown;
    tell_usage(line, reading, events);
    let failed = |fault| {
        let retry = if matches!(fault, StreamFault::Slip(_)) && !shown { Retry::Soon } else { Retry::Never };
        Failure { error: fault_error(line, fault), retry }
    };
    match decoded.map_err(failed)? {
        Progress::More => Ok(Progress::More),
        Progress::Done => {
            if bytes.is_some() {
                // The outcome is known already, so an error here changes nothing.
                let _ =
                    timeout(DRAIN, async { while let Ok(Some(_)) = reading.response.chunk().await {} }).await;
            }
            Ok(finish(line, &mut *reading.decoder, events)?)
        }
    }
}

/// Returns what all tries used so far; `None`: nobody told anything.
fn used(line: &Line, reading: &Reading, earlier: Option<StepUsage>) -> Option<StepUsage> {
    if reading.told == StepUsage::default() {
        return earlier;
    }
    let told = StepUsage { cost: line.cost(&line.target.model, &reading.told), ..reading.told };
    Some(earlier.map_or(told, |earlier| earlier.plus(told)))
}

/// Adds what earlier tries used to what an event tells of this one.
fn with_earlier(event: StepEvent, earlier: Option<StepUsage>) -> StepEvent {
    match (event, earlier) {
        (StepEvent::Usage(usage), Some(earlier)) => StepEvent::Usage(earlier.plus(usage)),
        (StepEvent::Finished(mut outcome), Some(earlier)) => {
            outcome.usage = earlier.plus(outcome.usage);
            StepEvent::Finished(outcome)
        }
        (event, _) => event,
    }
}

/// Tells what the provider told of tokens, where that is news: a step that is cut is counted as far as that.
fn tell_usage(line: &Line, reading: &mut Reading, events: &mut Events) {
    let usage = reading.decoder.usage();
    if usage != reading.told {
        reading.told = usage;
        let cost = line.cost(&line.target.model, &usage);
        events.push_back(StepEvent::Usage(StepUsage { cost, ..usage }));
    }
}

fn finish(line: &Line, decoder: &mut dyn Decoder, events: &mut Events) -> Result<Progress, EngineError> {
    let mut outcome = decoder.finish(&mut new_call_id).map_err(|fault| fault_error(line, fault))?;
    outcome.usage.cost = line.cost(&outcome.model, &outcome.usage);
    events.push_back(StepEvent::Finished(outcome));
    Ok(Progress::Done)
}

fn refused(line: &Line, status: Option<u16>, body: &str) -> EngineError {
    let kind = |status, said: &_| line.wire.kind(status, said);
    refusal::refused(&line.target.endpoint, &line.target.model, status, body, kind)
}

fn first_token_late(line: &Line) -> EngineError {
    line.target.endpoint.silent(line.http.patience.first_token, EngineErrorKind::Unavailable)
}

fn fault_error(line: &Line, fault: StreamFault) -> EngineError {
    let endpoint = &line.target.endpoint;
    let (kind, message) = match fault {
        StreamFault::Refused(body) => return refused(line, None, &body),
        StreamFault::Incomplete => {
            (EngineErrorKind::StreamIncomplete, "broke the reply off before its end".to_owned())
        }
        StreamFault::Unreadable(why) => {
            (EngineErrorKind::Provider, format!("sent an event that can't be read ({why})"))
        }
        StreamFault::TooLarge(what) => {
            (EngineErrorKind::Provider, format!("sent {what}; the reply was stopped"))
        }
        StreamFault::Slip(why) => {
            let why = endpoint.detail(&why);
            (EngineErrorKind::Provider, format!("gave the reply up ({why}); try again"))
        }
    };
    EngineError { kind, message: format!("{} at {} {message}", endpoint.provider, endpoint.address()) }
}
