//! One question over the chat socket and its answer, for what has no REST call.

use std::collections::VecDeque;
use std::time::Duration;

use tns_client::{Client, ClientEvent, Events};
use tns_protocol::approval::ToolApproveRequest;
use tns_protocol::log::ActiveResponse;
use tns_protocol::{ClientMessage, ClientMessageId, RequestId, ServerFrame, ServerMessage, SessionId};
use tokio::time::Instant;

use crate::exit::{Exit, Stop};

/// Time for an answer; a provider that loads a model first is the slowest to check.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Things kept while an answer is awaited. More → the question fails.
const MAX_PASSED_OVER: usize = 16_384;
/// Time that a lost server has to be back, for one that is started anew by somebody. Then the command fails.
const LOST_TIMEOUT: Duration = Duration::from_secs(60);

/// What comes over a line.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// The server sent a frame; of a joined session each durable event comes once, in order.
    Frame(Box<ServerFrame>),
    /// The log was read to its end.
    CaughtUp {
        /// The reply that is being written.
        active: Option<ActiveResponse>,
        /// The calls that wait for an answer.
        pending: Vec<ToolApproveRequest>,
    },
    /// The connection is lost, and tried again.
    Lost(String),
    /// The server can't say what was missed until now.
    Plain,
    /// The session's events so far are of a log that is gone.
    Resync(String),
    /// A message is given up.
    Unsent(ClientMessageId, String),
}

/// The two halves of a connection, and what came while an answer was awaited.
pub(crate) struct Line {
    pub(crate) client: Client,
    events: Events,
    passed_over: VecDeque<Arrival>,
    /// Until when the connection must be back, and what happened to it.
    lost: Option<(Instant, String)>,
}

impl Line {
    pub(crate) fn new((client, events): (Client, Events)) -> Self {
        Self { client, events, passed_over: VecDeque::new(), lost: None }
    }

    /// Waits for what comes next, across lost connections if the client tries again. Cancel safe.
    ///
    /// # Errors
    /// [`Exit::Unreachable`] when the connection is lost for good.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Arrival> {
        if let Some(arrival) = self.passed_over.pop_front() {
            return Ok(arrival);
        }
        loop {
            let event = match &self.lost {
                None => self.events.next().await,
                Some((until, reason)) => match tokio::time::timeout_at(*until, self.events.next()).await {
                    Ok(event) => event,
                    Err(_) => return Err(lost(reason).into()),
                },
            };
            if let Some(arrival) = self.arrived(event)? {
                return Ok(arrival);
            }
        }
    }

    /// Returns what is here already. An end is told by [`Self::next`].
    pub(crate) fn try_next(&mut self) -> Option<Arrival> {
        if let Some(arrival) = self.passed_over.pop_front() {
            return Some(arrival);
        }
        while let Some(event) = self.events.try_next() {
            match self.arrived(Some(event)) {
                Ok(Some(arrival)) => return Some(arrival),
                Ok(None) => {}
                // Nothing comes after it, so `next` finds the end.
                Err(error) => {
                    tracing::debug!(%error, "the connection has ended");
                    return None;
                }
            }
        }
        None
    }

    fn arrived(&mut self, event: Option<ClientEvent>) -> anyhow::Result<Option<Arrival>> {
        Ok(match event {
            Some(ClientEvent::Frame(frame)) => Some(Arrival::Frame(frame)),
            Some(ClientEvent::CaughtUp { active, pending, .. }) => {
                Some(Arrival::CaughtUp { active, pending })
            }
            Some(ClientEvent::Plain { .. }) => Some(Arrival::Plain),
            Some(ClientEvent::Resync { reason, .. }) => Some(Arrival::Resync(reason)),
            Some(ClientEvent::Unsent { message, reason, .. }) => Some(Arrival::Unsent(message, reason)),
            Some(ClientEvent::Joined { .. }) => None,
            Some(ClientEvent::Reconnected) => {
                self.lost = None;
                None
            }
            Some(ClientEvent::Disconnected { reason, .. }) => {
                let known = self.lost.take().map(|(until, _)| until);
                let until = known.unwrap_or_else(|| Instant::now() + LOST_TIMEOUT);
                self.lost = Some((until, reason.clone()));
                known.is_none().then_some(Arrival::Lost(reason))
            }
            Some(ClientEvent::Closed { reason }) => {
                // Told again by every later call.
                self.lost = Some((Instant::now(), reason.clone()));
                return Err(lost(&reason).into());
            }
            None => {
                let reason = self.lost.as_ref().map_or("it has ended", |(_, reason)| reason);
                return Err(lost(reason).into());
            }
        })
    }

    /// Sends `message` and waits for the frame that `accept` takes. What else comes is kept for later.
    ///
    /// # Errors
    /// The server's refusal with its words; [`Exit::Unreachable`] when no answer comes.
    pub(crate) async fn exchange<T>(
        &mut self,
        session: &SessionId,
        message: ClientMessage,
        mut accept: impl FnMut(&ServerFrame) -> Option<T>,
    ) -> anyhow::Result<T> {
        let id = RequestId::parse(uuid::Uuid::now_v7().to_string())?;
        let asked = message.type_name().to_owned();
        self.client.request(session, id.clone(), message).await?;
        let answer = async {
            loop {
                let event = self.events.next().await;
                let arrival = self.arrived(event)?;
                if let Some((_, reason)) = &self.lost {
                    // The question may be lost with it.
                    return Err(lost(reason).into());
                }
                let frame = match arrival {
                    Some(Arrival::Frame(frame)) => frame,
                    Some(other) => {
                        self.passed_over.push_back(other);
                        continue;
                    }
                    None => continue,
                };
                if let ServerMessage::ErrorEvent(error) = &frame.message
                    && frame.re.as_ref() == Some(&id)
                {
                    return Err(Stop::refused(error.code, error.message.clone()).into());
                }
                if let Some(answer) = accept(&frame) {
                    return Ok(answer);
                }
                if self.passed_over.len() == MAX_PASSED_OVER {
                    return Err(lost("the session is too busy to be asked").into());
                }
                self.passed_over.push_back(Arrival::Frame(frame));
            }
        };
        match tokio::time::timeout(ANSWER_TIMEOUT, answer).await {
            Ok(result) => result,
            Err(_) => {
                let seconds = ANSWER_TIMEOUT.as_secs();
                let message = format!("the server did not answer {asked} within {seconds} seconds");
                Err(Stop::new(Exit::Unreachable, message).into())
            }
        }
    }
}

fn lost(reason: &str) -> Stop {
    Stop::new(Exit::Unreachable, format!("the connection to the server is lost: {reason}"))
}
