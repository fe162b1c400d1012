//! One streamed step over HTTP, the same for every remote provider: send, try again, wait, decode,
//! stop when dropped. It must not know any provider's wire; that is a [`Wire`].
//!
//! How a wire is written. `<name>.rs` holds its constructor (a row of `PROVIDERS` names it) and its
//! [`Wire`]; `<name>/request.rs` builds the body, `<name>/decoder.rs` reads the answer, and
//! `<name>/event.rs` or the like holds the wire's own types. All of it is pure: the only IO is in
//! `step::call`. The parts of a wire are exactly these:
//!
//! - [`Wire::request`]: URL, headers and body of a step. The key goes into a header, never the URL
//!   ([`Endpoint::secret_header`]). The same step gives the same bytes, so that prompt caches match.
//!   `outgoing` and `crate::render` hold what is alike on most wires, `replay` says which of a
//!   provider's own blocks go back.
//! - [`Wire::decoder`]: a fresh [`Decoder`] for each try. Bytes come in cut anywhere; the events that
//!   go out must not depend on the cuts. `framing` reads `text/event-stream`; `reply` gathers text and
//!   calls within the product's limits, and reads a call's arguments. Tests play bodies through
//!   `playback`, which cuts them at every byte.
//! - [`Wire::kind`]: what a refusal means, where the usual table does not fit. Refusals with a status
//!   and errors inside a stream ([`StreamFault::Refused`]) are read alike, and worded in `refusal`.
//!
//! Rules that every wire keeps. Counters of usage are the provider's last word, never a sum of
//! reports. A stream without its end mark is [`StreamFault::Incomplete`], and its calls never run. A
//! call's arguments that are no JSON object make a call with a `problem`, never a default. Blocks that
//! must go back as they came ride in [`Native`], as the provider's JSON text, and are sent to no other
//! provider. No request holds an empty text, or a turn without content.
//!
//! A retry happens only before the answer begins: nothing that was shown is ever said again. Only a
//! [`StreamFault::Slip`] is tried again within a stream, and only while no more than reasoning came.
//!
//! [`Native`]: tns_server_core::message::Native

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use reqwest::Url;
use reqwest::header::HeaderMap;
use tns_protocol::{InvalidId, ToolCallId};
use tns_server_core::engine::{
    Engine, EngineError, EngineErrorKind, Pricing, StepEvent, StepOutcome, StepRequest, StepStream, StepUsage,
};

use crate::http::{Endpoint, Http};
use crate::prices::{ModelPrice, Prices};
use crate::refusal::{self, Said};
use crate::sse::EventTooLong;

mod call;
#[cfg(test)]
pub(crate) mod fixtures;
pub(crate) mod framing;
pub(crate) mod outgoing;
pub(crate) mod playback;
pub(crate) mod replay;
pub(crate) mod reply;

use call::Call;

/// What one provider's API adds to a step; everything else is shared.
pub(crate) trait Wire: fmt::Debug + Send + Sync + 'static {
    /// Builds the request of a step; `content-type: application/json` is added.
    ///
    /// # Errors
    /// A value that can't be written, or a key that no header holds.
    fn request(&self, target: &Target, step: &StepRequest) -> Result<WireRequest, EngineError>;

    /// Makes the decoder of one answer.
    fn decoder(&self, target: &Target) -> Box<dyn Decoder>;

    /// Returns what a refusal means; `status` is `None` for one inside a stream that names none.
    fn kind(&self, status: Option<u16>, said: &Said) -> EngineErrorKind {
        refusal::usual_kind(status, said)
    }

    /// Returns how many tokens the model takes in one request, where that is known.
    fn context_window(&self) -> Option<u64> {
        None
    }

    /// Whether models at this address cost nothing, unless the operator prices them.
    fn is_free(&self, target: &Target) -> bool {
        let _ = target;
        false
    }

    /// Whether a refusal is about the provider's own blocks in the history, such as blocks that another
    /// key's account was given. The step is then sent once more, without any.
    fn refuses_blocks(&self, said: &Said) -> bool {
        let _ = said;
        false
    }
}

/// Decodes one answer: bytes in, events out, the whole reply at the end. Pure.
pub(crate) trait Decoder: Send {
    /// Decodes bytes as they come; [`Progress::Done`] at the end mark.
    ///
    /// # Errors
    /// [`StreamFault`]; `events` holds what came before it.
    fn push(&mut self, bytes: &[u8], events: &mut Events) -> Result<Progress, StreamFault>;

    /// The connection ended without [`Progress::Done`].
    ///
    /// # Errors
    /// [`StreamFault::Incomplete`] unless the answer is known to be whole.
    fn end(&mut self, events: &mut Events) -> Result<(), StreamFault>;

    /// Decodes an answer that came whole, as `application/json`, although a stream was asked for.
    ///
    /// # Errors
    /// [`StreamFault`]; by default always, since only some servers do this with a reply.
    fn whole(&mut self, body: &str, events: &mut Events) -> Result<(), StreamFault> {
        let _ = events;
        Err(StreamFault::Refused(body.to_owned()))
    }

    /// Whether the model is known to think without a word of it, which may take minutes.
    fn thinks_silently(&self) -> bool {
        false
    }

    /// Whether the answer would be whole if the connection ended now, although no end mark came. Little is
    /// waited for then: some servers leave the connection open.
    fn could_end(&self) -> bool {
        false
    }

    /// Returns the tokens that the provider told of so far; all 0 before it told any. The cost is not its matter.
    fn usage(&self) -> StepUsage;

    /// Returns the whole reply after a good end. It must not settle the cost.
    ///
    /// # Errors
    /// [`StreamFault`] when no id can be made.
    fn finish(&mut self, new_id: &mut NewId<'_>) -> Result<StepOutcome, StreamFault>;
}

/// Makes the ids of a reply's tool calls.
pub(crate) type NewId<'a> = dyn FnMut() -> Result<ToolCallId, InvalidId> + 'a;

/// Events that are decoded and not yet asked for.
pub(crate) type Events = VecDeque<StepEvent>;

/// Whether a stream goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    More,
    Done,
}

/// Why a stream is of no further use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamFault {
    /// An error in place of the reply: its body.
    Refused(String),
    /// It ended before its end mark.
    Incomplete,
    /// An event is not what it should be.
    Unreadable(String),
    /// Something goes beyond its limit.
    TooLarge(&'static str),
    /// The model stumbled, such as over its own call; another try often goes well. The reason.
    Slip(String),
}

impl From<EventTooLong> for StreamFault {
    fn from(_: EventTooLong) -> Self {
        Self::TooLarge("an event of more than 8 MiB")
    }
}

/// Where a step goes.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) endpoint: Endpoint,
    /// The model's name as the provider takes it.
    pub(crate) model: String,
    pub(crate) accepts_images: bool,
    /// What the operator set for models.
    pub(crate) own_prices: Arc<[ModelPrice]>,
}

/// A request as it is sent, and sent again. Headers with a key are marked as sensitive.
#[derive(Clone)]
pub(crate) struct WireRequest {
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// An engine that talks to a provider over HTTP.
#[derive(Debug)]
pub(crate) struct RemoteEngine {
    line: Arc<Line>,
}

/// What every step of one engine shares.
#[derive(Debug)]
struct Line {
    target: Target,
    http: Arc<Http>,
    wire: Box<dyn Wire>,
    prices: Prices,
}

impl Line {
    /// Returns what tokens cost that this model answered with.
    fn cost(&self, answered: &str, usage: &StepUsage) -> Option<f64> {
        self.prices.cost(&self.target.model, answered, usage)
    }
}

impl RemoteEngine {
    /// Makes an engine; opens no connection.
    pub(crate) fn new(target: Target, http: Arc<Http>, wire: impl Wire) -> Self {
        let own = Arc::clone(&target.own_prices);
        let prices = Prices::new(target.endpoint.provider, own, wire.is_free(&target));
        Self { line: Arc::new(Line { target, http, wire: Box::new(wire), prices }) }
    }
}

impl Engine for RemoteEngine {
    fn provider(&self) -> &str {
        self.line.target.endpoint.provider
    }

    fn model(&self) -> &str {
        &self.line.target.model
    }

    fn accepts_images(&self) -> bool {
        self.line.target.accepts_images
    }

    fn context_window(&self) -> Option<u64> {
        self.line.wire.context_window()
    }

    fn pricing(&self) -> Pricing {
        self.line.prices.pricing(&self.line.target.model)
    }

    fn estimate(&self, input: u64, output: u64) -> f64 {
        let usage = StepUsage { input, output, ..StepUsage::default() };
        self.line.cost(&self.line.target.model, &usage).unwrap_or_default()
    }

    fn step(&self, request: StepRequest) -> StepStream {
        let call = Box::new(Call::new(Arc::clone(&self.line), request));
        stream::unfold(call, |mut call| async move {
            let event = call.next().await?;
            Some((event, call))
        })
        .boxed()
    }
}

/// Returns the error of a request that can't be written.
pub(crate) fn unwritable(error: &serde_json::Error) -> EngineError {
    EngineError {
        kind: EngineErrorKind::Provider,
        message: format!("the request can't be written as JSON: {error}"),
    }
}
