//! What the screen wants of the server, done beside the loop: sending in order, reading what is stored. Each
//! outcome comes back as a message; the loop never waits for the network.

use std::time::Duration;

use tns_client::{Client, ClientError, Rest};
use tns_protocol::rest::SessionDetail;
use tns_protocol::{ClientMessage, ErrorCode, Seq, SessionId, decode_server};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::model::{From, History, Msg};

/// Messages that wait to be sent. Full → the newest is refused and the screen says so.
const OUTBOX: usize = 64;
/// Outcomes that wait for the loop. Full → the tasks wait.
const OUTCOMES: usize = 16;
/// Most stored events that are read at once; earlier ones are left out, and the screen says so.
const MAX_EVENTS: u64 = 4_000;
/// Most pages of one reading. A session that grows faster than it is read → read again at the turn's end.
const MAX_PAGES: usize = 64;

/// Time for the messages that are queued when the screen is left.
const FINISH_TIMEOUT: Duration = Duration::from_secs(1);

/// The tasks beside the loop; they end with it.
pub(crate) struct Work {
    rest: Rest,
    session: SessionId,
    outbox: mpsc::Sender<ClientMessage>,
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
        self.outbox.try_send(message).map_err(|error| {
            let (message, reason) = match error {
                mpsc::error::TrySendError::Full(message) => (message, "too much waits to be sent already"),
                mpsc::error::TrySendError::Closed(message) => (message, "the connection is closed"),
            };
            failed(&message, reason)
        })
    }

    /// Reads the stored events.
    pub(crate) fn load(&mut self, from: From) {
        // Readings that are over leave nothing behind.
        while self.readings.try_join_next().is_some() {}
        let (rest, session, report) = (self.rest.clone(), self.session.clone(), self.report.clone());
        self.readings.spawn(async move {
            let loaded = read(&rest, &session, from).await;
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
    mut queue: mpsc::Receiver<ClientMessage>,
    report: mpsc::Sender<Msg>,
) {
    while let Some(message) = queue.recv().await {
        let failure = |error: ClientError| failed(&message, &error.to_string());
        if let Err(failure) = client.send(&session, message.clone()).await.map_err(failure)
            && report.send(failure).await.is_err()
        {
            return;
        }
    }
}

fn failed(message: &ClientMessage, reason: &str) -> Msg {
    let message = match message {
        ClientMessage::Chat(chat) => chat.client_message_id.clone(),
        _ => None,
    };
    Msg::SendFailed { message, reason: reason.to_owned() }
}

/// Reads the session as it stands and its events, page by page.
async fn read(rest: &Rest, session: &SessionId, from: From) -> Result<History, ClientError> {
    let Some(detail) = detail(rest, session).await? else { return Ok(History::default()) };
    let (mut after, cut) = first_event(from, detail.head_seq);
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
fn first_event(from: From, head: Seq) -> (Seq, bool) {
    let wanted = match from {
        From::Recent => 0,
        From::After(seq) => seq,
    };
    let earliest = head.saturating_sub(MAX_EVENTS);
    (wanted.max(earliest), wanted < earliest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_begins_where_the_screen_ends_and_is_bounded() {
        assert_eq!(first_event(From::Recent, 0), (0, false));
        assert_eq!(first_event(From::Recent, MAX_EVENTS), (0, false));
        assert_eq!(first_event(From::Recent, MAX_EVENTS + 1), (1, true));
        assert_eq!(first_event(From::After(7), 9), (7, false));
        assert_eq!(first_event(From::After(7), MAX_EVENTS + 9), (9, true));
    }
}
