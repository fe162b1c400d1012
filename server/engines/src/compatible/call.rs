//! One streamed request from the first try to the last event. All of it happens while [`Call::next`]
//! is polled, so dropping a call closes its connection.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reqwest::Response;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use tns_server_core::engine::{EngineError, EngineErrorKind, StepEvent, StepRequest};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::decoder::{Progress, StreamDecoder, StreamFault};
use super::{Connection, Events, failure, prices};
use crate::call_id::new_call_id;
use crate::http;
use crate::retry::{self, Failure, Next, Retry};

/// How long the end of a stream may take after its end mark. Reading to the end lets the next step
/// reuse the connection; a server that holds it open must not hold the reply up.
const DRAIN: Duration = Duration::from_millis(10);

/// Most bytes of a whole (not streamed) answer.
const MAX_WHOLE_ANSWER: usize = 8 << 20;

/// One call: its phase, and what is decoded but not yet asked for.
pub(super) struct Call {
    connection: Arc<Connection>,
    phase: Phase,
    events: Events,
}

enum Phase {
    /// Not polled yet.
    New(StepRequest),
    /// A try, after a pause.
    Trying {
        body: Bytes,
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
    decoder: StreamDecoder,
    /// When the first event must be there; `None` once it is.
    first_token: Option<Instant>,
}

impl Call {
    pub(super) fn new(connection: Arc<Connection>, request: StepRequest) -> Self {
        Self { connection, phase: Phase::New(request), events: Events::new() }
    }

    /// Returns the next event. Events that are already decoded come without waiting.
    pub(super) async fn next(&mut self) -> Option<Result<StepEvent, EngineError>> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(Ok(event));
            }
            let step = match &mut self.phase {
                Phase::Reading(reading) => read(&self.connection, reading, &mut self.events).await,
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
        let (body, tried) = match mem::replace(&mut self.phase, Phase::Over) {
            Phase::New(request) => (self.connection.body(&request)?, 0),
            Phase::Trying { body, tried, pause } => {
                sleep(pause).await;
                (body, tried)
            }
            Phase::Reading(_) | Phase::Failed(_) | Phase::Over => return Ok(Progress::Done),
        };
        let patience = &self.connection.http.patience;
        let first_token = Instant::now() + patience.first_token;
        match send(&self.connection, body.clone(), first_token).await {
            Ok(response) => return self.answered(response, first_token).await,
            Err(failure) => match retry::next(failure, tried, patience, retry::jitter()) {
                Next::GiveUp(error) => return Err(error),
                Next::Wait { delay, reason } => {
                    tracing::warn!(provider = self.connection.endpoint.provider, retry_in = ?delay, "call failed");
                    self.events.push_back(StepEvent::Waiting { delay, reason });
                    self.phase = Phase::Trying { body, tried: tried + 1, pause: delay };
                }
            },
        }
        Ok(Progress::More)
    }

    async fn answered(&mut self, response: Response, first_token: Instant) -> Result<Progress, EngineError> {
        let kind =
            response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let mut decoder = StreamDecoder::default();
        if kind.starts_with("text/html") {
            return Err(failure::web_page(&self.connection.endpoint));
        }
        if kind.starts_with("application/json") {
            // Some servers answer whole although a stream was asked for.
            let read = http::read_body(response, MAX_WHOLE_ANSWER);
            let body = timeout_at(first_token, read).await.map_err(|_| first_token_late(&self.connection))?;
            let whole = decoder.whole(&String::from_utf8_lossy(&body), &mut self.events);
            return whole
                .map_err(|fault| fault_error(&self.connection, fault))
                .and_then(|()| finish(&self.connection, &mut decoder, &mut self.events));
        }
        self.phase = Phase::Reading(Box::new(Reading { response, decoder, first_token: Some(first_token) }));
        Ok(Progress::More)
    }
}

/// Sends one request and returns its answer's head.
async fn send(connection: &Connection, body: Bytes, first_token: Instant) -> Result<Response, Failure> {
    let endpoint = &connection.endpoint;
    let client = connection.http.client(endpoint).await?;
    let mut request = client
        .post(endpoint.url("/chat/completions"))
        .header(CONTENT_TYPE, "application/json")
        .header(ACCEPT, "text/event-stream")
        .body(body);
    if let Some(bearer) = endpoint.bearer()? {
        request = request.header(AUTHORIZATION, bearer);
    }
    let response = match timeout_at(first_token, request.send()).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => return Err(endpoint.unreachable(&error)),
        Err(_) => return Err(first_token_late(connection).into()),
    };
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let pause = http::asked_pause(response.headers());
    let body = timeout_at(first_token, http::read_error(response)).await.unwrap_or_default();
    let error = failure::refused(endpoint, &connection.model, Some(status.as_u16()), &body);
    let retry = match error.kind {
        EngineErrorKind::RateLimited | EngineErrorKind::Unavailable => {
            pause.or_else(|| failure::asked_pause(&body)).map_or(Retry::Soon, Retry::After)
        }
        _ => Retry::Never,
    };
    Err(Failure { error, retry })
}

/// Reads once and decodes what came.
async fn read(
    connection: &Connection,
    reading: &mut Reading,
    events: &mut Events,
) -> Result<Progress, EngineError> {
    let silence = connection.http.patience.silence;
    let deadline = reading.first_token.unwrap_or_else(|| Instant::now() + silence);
    let bytes = match timeout_at(deadline, reading.response.chunk()).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(_)) => None,
        Err(_) if reading.first_token.is_some() => return Err(first_token_late(connection)),
        Err(_) => return Err(connection.endpoint.silent(silence, EngineErrorKind::StreamIncomplete)),
    };
    let decoded = match &bytes {
        Some(bytes) => reading.decoder.push(bytes, events),
        None => reading.decoder.end(events).map(|()| Progress::Done),
    };
    if !events.is_empty() {
        reading.first_token = None;
    }
    match decoded.map_err(|fault| fault_error(connection, fault))? {
        Progress::More => Ok(Progress::More),
        Progress::Done => {
            if bytes.is_some() {
                // The outcome is known already, so an error here changes nothing.
                let _ =
                    timeout(DRAIN, async { while let Ok(Some(_)) = reading.response.chunk().await {} }).await;
            }
            finish(connection, &mut reading.decoder, events)
        }
    }
}

fn finish(
    connection: &Connection,
    decoder: &mut StreamDecoder,
    events: &mut Events,
) -> Result<Progress, EngineError> {
    let outcome = decoder.finish(&connection.model, new_call_id);
    let mut outcome = outcome.map_err(|fault| fault_error(connection, fault))?;
    outcome.usage.cost = prices::cost(&connection.endpoint, &outcome.model, &outcome.usage);
    events.push_back(StepEvent::Finished(outcome));
    Ok(Progress::Done)
}

fn first_token_late(connection: &Connection) -> EngineError {
    connection.endpoint.silent(connection.http.patience.first_token, EngineErrorKind::Unavailable)
}

fn fault_error(connection: &Connection, fault: StreamFault) -> EngineError {
    let endpoint = &connection.endpoint;
    let (kind, message) = match fault {
        StreamFault::Refused(body) => return failure::refused(endpoint, &connection.model, None, &body),
        StreamFault::Incomplete => {
            (EngineErrorKind::StreamIncomplete, "broke the reply off before its end".to_owned())
        }
        StreamFault::Unreadable(why) => {
            (EngineErrorKind::Provider, format!("sent an event that can't be read ({why})"))
        }
        StreamFault::TooLarge(what) => {
            (EngineErrorKind::Provider, format!("sent {what}; the reply was stopped"))
        }
    };
    EngineError { kind, message: format!("{} at {} {message}", endpoint.provider, endpoint.address()) }
}
