//! What the screen wants of the server, done beside the loop: sending in order, reading what is stored. Each
//! outcome comes back as a message; the loop never waits for the network.

use std::time::Duration;

use tns_client::{Client, ClientError, Cursor, Rest};
use tns_protocol::rest::SessionDetail;
use tns_protocol::{ClientMessage, ErrorCode, Seq, SessionId, decode_server};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::model::{History, Msg};

/// Messages that wait to be sent. Full → the newest is refused and the screen says so.
const OUTBOX: usize = 64;
/// Outcomes that wait for the loop. Full → the tasks wait.
const OUTCOMES: usize = 16;
/// Most stored events that are read at once; earlier ones are left out, and the screen says so.
const MAX_EVENTS: u64 = 4_000;
/// Most pages of one reading. A session that grows faster than it is read → the rest is told when it is joined.
const MAX_PAGES: usize = 64;

/// Time for the messages that are queued when the screen is left.
const FINISH_TIMEOUT: Duration = Duration::from_secs(1);

/// What is handed to the connection, in order.
#[derive(Debug, Clone)]
enum Outgoing {
    Message(Box<ClientMessage>),
    Join(Cursor),
}

/// The tasks beside the loop; they end with it.
pub(crate) struct Work {
    rest: Rest,
    session: SessionId,
    outbox: mpsc::Sender<Outgoing>,
    outcomes: mpsc::Receiver<Msg>,
    report: mpsc::Sender<Msg>,
    sender: JoinSet<()>,
    readings: JoinSet<()>,
}

impl Work {
    /// Starts the task that sends.
    pub(crate) fn new(client: Client, session: SessionId) -> Self {
        let (outbox, queue) = mpsc::channel(OUTBOX);
        let (report, outcomes) = mpsc::channel(OUTCOMES);
        let rest = client.rest().clone();
        let mut sender = JoinSet::new();
        sender.spawn(send_all(client, session.clone(), queue, report.clone()));
        Self { rest, session, outbox, outcomes, report, sender, readings: JoinSet::new() }
    }

    /// Waits for an outcome.
    pub(crate) async fn next(&mut self) -> Option<Msg> {
        self.outcomes.recv().await
    }

    /// Queues a message; what can't be queued comes back as a failure to show.
    pub(crate) fn send(&self, message: ClientMessage) -> Result<(), Msg> {
        self.queue(Outgoing::Message(Box::new(message)))
    }

    /// Queues the joining of the session, before whatever is sent later.
    pub(crate) fn join(&self, from: Cursor) -> Result<(), Msg> {
        self.queue(Outgoing::Join(from))
    }

    fn queue(&self, outgoing: Outgoing) -> Result<(), Msg> {
        self.outbox.try_send(outgoing).map_err(|error| {
            let (outgoing, reason) = match error {
                mpsc::error::TrySendError::Full(outgoing) => (outgoing, "too much waits to be sent already"),
                mpsc::error::TrySendError::Closed(outgoing) => (outgoing, "the connection is closed"),
            };
            failed(&outgoing, reason)
        })
    }

    /// Reads the newest stored events.
    pub(crate) fn load(&mut self) {
        // Readings that are over leave nothing behind.
        while self.readings.try_join_next().is_some() {}
        let (rest, session, report) = (self.rest.clone(), self.session.clone(), self.report.clone());
        self.readings.spawn(async move {
            let loaded = read(&rest, &session).await;
            let outcome = loaded.map(Box::new).map_err(|error| error.to_string());
            // The loop has ended: nobody waits for the outcome.
            let _ = report.send(Msg::Loaded(outcome)).await;
        });
    }

    /// Hands what was queued to the connection; what can't be handed over within a second is given up.
    pub(crate) async fn finish(self) {
        let Self { outbox, outcomes, mut sender, .. } = self;
        drop((outbox, outcomes));
        if tokio::time::timeout(FINISH_TIMEOUT, sender.join_next()).await.is_err() {
            tracing::debug!("messages were left unsent");
        }
    }
}

async fn send_all(
    client: Client,
    session: SessionId,
    mut queue: mpsc::Receiver<Outgoing>,
    report: mpsc::Sender<Msg>,
) {
    while let Some(outgoing) = queue.recv().await {
        let sent = match outgoing.clone() {
            Outgoing::Message(message) => client.send(&session, *message).await,
            Outgoing::Join(from) => client.join(&session, from).await,
        };
        if let Err(error) = sent
            && report.send(failed(&outgoing, &error.to_string())).await.is_err()
        {
            return;
        }
    }
}

fn failed(outgoing: &Outgoing, reason: &str) -> Msg {
    let message = match outgoing {
        Outgoing::Message(message) => match message.as_ref() {
            ClientMessage::Chat(chat) => chat.client_message_id.clone(),
            _ => None,
        },
        Outgoing::Join(_) => None,
    };
    Msg::SendFailed { message, reason: reason.to_owned() }
}

/// Reads the session as it stands and its events, page by page.
async fn read(rest: &Rest, session: &SessionId) -> Result<History, ClientError> {
    let Some(detail) = detail(rest, session).await? else { return Ok(History::default()) };
    let (mut after, cut) = first_event(detail.head_seq);
    let mut history = History { detail: Some(detail), head: after, cut, events: Vec::new() };
    for _ in 0..MAX_PAGES {
        let page = rest.events(session, after).await?;
        for event in page.events {
            let frame = decode_server(&event.to_string())
                .map_err(|error| ClientError::Protocol(format!("a stored event is none: {error}")))?;
            after = frame.seq.unwrap_or(after).max(after);
            history.events.push(frame);
        }
        if !page.more || history.head == after {
            history.head = after;
            break;
        }
        history.head = after;
    }
    Ok(history)
}

/// A session that no one has written to does not exist yet: that is no error.
async fn detail(rest: &Rest, session: &SessionId) -> Result<Option<SessionDetail>, ClientError> {
    match rest.session(session).await {
        Ok(detail) => Ok(Some(detail)),
        Err(ClientError::Refused { code: ErrorCode::SessionNotFound | ErrorCode::NotFound, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Where to begin, and whether earlier events are left out.
fn first_event(head: Seq) -> (Seq, bool) {
    let earliest = head.saturating_sub(MAX_EVENTS);
    (earliest, earliest > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_is_bounded_to_the_newest_events() {
        assert_eq!(first_event(0), (0, false));
        assert_eq!(first_event(MAX_EVENTS), (0, false));
        assert_eq!(first_event(MAX_EVENTS + 1), (1, true));
    }
}
