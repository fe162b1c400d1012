//! One question over the chat socket and its answer, for what has no REST call.

use std::collections::VecDeque;
use std::time::Duration;

use tns_client::{Client, ClientEvent, Events};
use tns_protocol::{ClientMessage, RequestId, ServerFrame, ServerMessage, SessionId};

use crate::exit::{Exit, Stop};

/// Time for an answer; a provider that loads a model first is the slowest to check.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Frames kept while an answer is awaited. More → the question fails.
const MAX_PASSED_OVER: usize = 16_384;

/// The two halves of a connection, and frames that came while an answer was awaited.
pub(crate) struct Line {
    pub(crate) client: Client,
    events: Events,
    passed_over: VecDeque<ServerFrame>,
}

impl Line {
    pub(crate) fn new((client, events): (Client, Events)) -> Self {
        Self { client, events, passed_over: VecDeque::new() }
    }

    /// Waits for the next frame. Cancel safe.
    ///
    /// # Errors
    /// [`Exit::Unreachable`] when the connection is lost.
    pub(crate) async fn next(&mut self) -> anyhow::Result<ServerFrame> {
        match self.passed_over.pop_front() {
            Some(frame) => Ok(frame),
            None => self.arrived().await,
        }
    }

    /// Returns a frame that is here already.
    pub(crate) fn try_next(&mut self) -> Option<ServerFrame> {
        if let Some(frame) = self.passed_over.pop_front() {
            return Some(frame);
        }
        match self.events.try_next() {
            Some(ClientEvent::Frame(frame)) => Some(*frame),
            // Told by `next`, which sees the end of the events too.
            Some(
                ClientEvent::Disconnected { .. } | ClientEvent::Reconnected | ClientEvent::Closed { .. },
            )
            | None => None,
        }
    }

    async fn arrived(&mut self) -> anyhow::Result<ServerFrame> {
        loop {
            match self.events.next().await {
                Some(ClientEvent::Frame(frame)) => return Ok(*frame),
                Some(ClientEvent::Reconnected) => {}
                Some(ClientEvent::Disconnected { reason, .. } | ClientEvent::Closed { reason }) => {
                    return Err(lost(&reason).into());
                }
                None => return Err(lost("it has ended").into()),
            }
        }
    }

    /// Sends `message` and waits for the frame that `accept` takes. Other frames are kept for later.
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
                let frame = self.arrived().await?;
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
                self.passed_over.push_back(frame);
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
