//! Event streams over HTTP (`text/event-stream`): one session's events, or those of the whole server.
//!
//! A durable event has an `id` line with its place, a live one has none, so that `Last-Event-ID` resumes
//! exactly behind the last durable event. A reader that is too slow loses nothing: it goes on from the log.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, stream};
use schemars::JsonSchema;
use serde::Deserialize;
use tns_protocol::rest::StreamOpened;
use tns_protocol::{ErrorCode, Seq};
use tns_server_core::event::Subscriber;
use tns_server_core::session::{
    ConnectionId, JoinKind, ReplyTo, SessionCommand, SessionHandle, SubscriberRef,
};
use tns_server_core::store::{LOCAL_PRINCIPAL, MAX_PAGE_EVENTS, StoreError, StreamPage};
use tokio::sync::watch;

use super::error::ApiError;
use super::outbox::{Backlog, Frame, Outbox, Outgoing};
use super::rest::tools::NamedStream;
use super::translate::{self, Face};
use super::ws::{Counted, MAX_CONNECTIONS};
use super::{Gateway, rest};

/// Silence after which a comment is sent, so that nobody on the way takes the stream for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long a stream waits before it reads the log again after the store failed.
const RETRY: Duration = Duration::from_secs(1);
/// The type of the last event of a session.
const LAST: &str = "session_closing";
/// The type of the first event of a stream whose client may run tools. It is of the stream, not of the session.
const OPENED: &str = "stream";

/// Which events are streamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taking {
    /// What is stored.
    Durable,
    /// Also what is only shown.
    Online,
}

/// Whether the reader's client may run tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientTools {
    /// It may: the first event names the stream, and its calls come as `mcp_call`.
    MayRun,
    None,
}

/// Returns the place behind which a stream begins: the header's, else the parameter's, else the beginning.
///
/// # Errors
/// A header that is no number.
pub(crate) fn begins_after(headers: &HeaderMap, parameter: Option<u64>) -> Result<u64, ApiError> {
    match headers.get("last-event-id") {
        None => Ok(parameter.unwrap_or(0)),
        Some(value) => value
            .to_str()
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .ok_or_else(|| ApiError::invalid("Last-Event-ID must be the id of an event of this stream")),
    }
}

/// Streams the events of a session after a place.
///
/// # Errors
/// When the place is beyond the log's end, or the session can't be asked.
pub(crate) async fn of_session(
    gateway: &Arc<Gateway>,
    handle: SessionHandle,
    after: Seq,
    taking: Taking,
    tools: ClientTools,
) -> Result<Response, ApiError> {
    check_room(gateway)?;
    let head_seq = handle.inspect().await?.head_seq;
    if after > head_seq {
        return Err(ApiError::invalid(format!("the log ends at {head_seq}, before {after}; read it from 0")));
    }
    let mut reader = SessionReader::join(gateway, handle, after, taking).await?;
    if tools == ClientTools::MayRun {
        reader.name()?;
    }
    let closing = gateway.closing.clone();
    let events = stream::unfold(reader, move |mut reader| {
        let closing = closing.clone();
        async move {
            let event = tokio::select! {
                event = reader.next() => event?,
                () = closing.cancelled() => return None,
            };
            Some((Ok::<_, Infallible>(event), reader))
        }
    });
    Ok(answer(events))
}

/// Refuses one more reader where there are too many.
fn check_room(gateway: &Gateway) -> Result<(), ApiError> {
    if *gateway.connections.borrow() < MAX_CONNECTIONS {
        return Ok(());
    }
    let message = format!("{MAX_CONNECTIONS} connections are open already");
    Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Limit, message))
}

fn answer(events: impl Stream<Item = Result<Event, Infallible>> + Send + 'static) -> Response {
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

/// Makes a frame an event of the stream; `id` is a durable event's place.
fn event(text: &str, id: Option<u64>) -> Event {
    let event = Event::default().event(type_of(text)).data(text);
    match id {
        Some(id) => event.id(id.to_string()),
        None => event,
    }
}

/// Returns the type of a frame of ours, which stands in front.
fn type_of(frame: &str) -> &str {
    let rest = frame.strip_prefix(r#"{"v":1,"type":""#).unwrap_or_default();
    rest.split_once('"').map_or("message", |(name, _)| name)
}

/// Reads one session's events: the log up to where it goes over to live events, then those.
struct SessionReader {
    gateway: Arc<Gateway>,
    handle: SessionHandle,
    connection: ConnectionId,
    outbox: Arc<Outbox>,
    /// The last place that was given out.
    last: Seq,
    /// Up to here everything was read, though not all could be given out.
    skip_to: Seq,
    /// The log is being read up to here.
    backlog: Option<Backlog>,
    ready: VecDeque<Frame>,
    over: bool,
    /// The name under which its client registers tools, and the first event that tells it.
    named: Option<NamedStream>,
    opening: Option<Event>,
    _counted: Counted,
}

impl SessionReader {
    async fn join(
        gateway: &Arc<Gateway>,
        handle: SessionHandle,
        after: Seq,
        taking: Taking,
    ) -> Result<Self, ApiError> {
        let outbox = Arc::new(Outbox::new(Face::Log, taking == Taking::Online));
        let reader = Self {
            gateway: gateway.clone(),
            connection: gateway.connection_id(),
            outbox: outbox.clone(),
            last: after,
            skip_to: 0,
            backlog: None,
            ready: VecDeque::new(),
            over: false,
            named: None,
            opening: None,
            _counted: Counted::new(gateway.clone()),
            handle,
        };
        let join = SessionCommand::Join(reader.connection, SubscriberRef(outbox), JoinKind::Watches);
        reader.handle.send(join).await?;
        reader.resume().await?;
        Ok(reader)
    }

    /// Gives the stream a name, which its first event tells.
    fn name(&mut self) -> Result<(), ApiError> {
        let named = NamedStream::new(&self.gateway, &self.handle.identity().id, self.connection);
        let opened = StreamOpened { stream: named.name().to_owned() };
        let event = Event::default().event(OPENED).json_data(opened);
        let event = event.map_err(|error| ApiError::of_code(ErrorCode::Internal, error.to_string()))?;
        (self.named, self.opening) = (Some(named), Some(event));
        Ok(())
    }

    /// Asks to go on behind the last place.
    async fn resume(&self) -> Result<(), tns_server_core::session::SendError> {
        let to = ReplyTo::Connection { id: self.connection, re: None };
        self.handle.send(SessionCommand::Resume(self.last, None, to)).await
    }

    async fn next(&mut self) -> Option<Event> {
        if let Some(opening) = self.opening.take() {
            return Some(opening);
        }
        loop {
            if let Some(frame) = self.ready.pop_front() {
                self.last = frame.seq.unwrap_or(self.last);
                self.over = type_of(&frame.text) == LAST;
                return Some(event(&frame.text, frame.seq));
            }
            if self.over {
                return None;
            }
            match self.backlog.take() {
                Some(backlog) if self.last.max(self.skip_to) < backlog.point.head_seq => {
                    self.read(backlog).await?;
                }
                Some(_) | None => self.wait().await?,
            }
        }
    }

    async fn read(&mut self, backlog: Backlog) -> Option<()> {
        match backlog.point.page(self.last).await {
            Ok(page) => {
                if !page.more {
                    // The last ones may be such that they can't be read; they are passed over for good.
                    self.skip_to = backlog.point.head_seq;
                }
                self.ready.extend(page.events.iter().filter_map(|row| {
                    let text = translate::stored(&self.handle.identity().id, row)?;
                    Some(Frame { text: text.into(), seq: Some(row.place.seq) })
                }));
                self.backlog = Some(backlog);
                Some(())
            }
            Err(error) => {
                tracing::warn!(session = %self.handle.identity().id, %error, "the log can't be streamed now");
                tokio::time::sleep(RETRY).await;
                self.resume().await.ok()
            }
        }
    }

    async fn wait(&mut self) -> Option<()> {
        match self.outbox.next().await {
            Outgoing::Frames(frames) => self.ready.extend(frames),
            Outgoing::Backlog(backlog) => self.backlog = Some(backlog),
            Outgoing::Lagged(..) => self.resume().await.ok()?,
            Outgoing::Close(_) => return None,
        }
        Some(())
    }
}

impl Drop for SessionReader {
    fn drop(&mut self) {
        // Nobody registers tools for it any more.
        self.named = None;
        let leave = SessionCommand::Leave(self.connection);
        let handle = self.handle.clone();
        // The mailbox may be full at this moment; a reader that is gone must leave all the same.
        self.gateway.goodbyes.spawn(async move { handle.send(leave).await });
    }
}

/// Streams the durable events of all of a principal's sessions after a place of the store, in the store's order.
/// What is only shown keeps its own order beside them, and may come a moment later than what followed it.
pub(crate) fn of_server(gateway: &Arc<Gateway>, after: u64, taking: Taking) -> Response {
    let outbox = Arc::new(Outbox::new(Face::Log, taking == Taking::Online));
    gateway.deps.hub.follow(&(outbox.clone() as Arc<dyn Subscriber>));
    let reader = ServerReader {
        commits: gateway.deps.hub.commits(),
        behind: true,
        outbox,
        after,
        ready: VecDeque::new(),
        _counted: Counted::new(gateway.clone()),
        gateway: gateway.clone(),
    };
    let closing = gateway.closing.clone();
    answer(stream::unfold(reader, move |mut reader| {
        let closing = closing.clone();
        async move {
            let event = tokio::select! {
                event = reader.next() => event?,
                () = closing.cancelled() => return None,
            };
            Some((Ok::<_, Infallible>(event), reader))
        }
    }))
}

/// Reads the events of all sessions, in the order of the store.
struct ServerReader {
    gateway: Arc<Gateway>,
    /// Changes whenever something was stored.
    commits: watch::Receiver<u64>,
    /// The store holds more than was read.
    behind: bool,
    /// Where comes in what the store does not hold: what is only shown, and the last event of an erased session.
    outbox: Arc<Outbox>,
    after: u64,
    ready: VecDeque<Event>,
    _counted: Counted,
}

impl ServerReader {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.behind {
                // Seen before the store is read: what is stored after that wakes the next wait.
                self.commits.borrow_and_update();
                match self.read().await {
                    Ok(more) => self.behind = more,
                    Err(error) => {
                        tracing::warn!(%error, "the store's events can't be streamed now");
                        tokio::time::sleep(RETRY).await;
                        self.behind = true;
                    }
                }
                continue;
            }
            tokio::select! {
                changed = self.commits.changed() => {
                    changed.ok()?;
                    self.behind = true;
                }
                outgoing = self.outbox.next() => match outgoing {
                    Outgoing::Frames(frames) => {
                        self.ready.extend(frames.iter().map(|frame| event(&frame.text, None)));
                    }
                    // Here nothing resumes: what was lost was only shown, or was a session's last word.
                    Outgoing::Lagged(session, _) => self.outbox.forgive(&session),
                    Outgoing::Backlog(_) => {}
                    Outgoing::Close(_) => return None,
                },
            }
        }
    }

    async fn read(&mut self) -> Result<bool, StoreError> {
        let store = &self.gateway.deps.store;
        let StreamPage { events, next, more } =
            store.events_since(self.after, Some(LOCAL_PRINCIPAL), MAX_PAGE_EVENTS).await?;
        self.ready.extend(events.iter().filter_map(|row| {
            let text = translate::stored(&row.session, &row.event)?;
            Some(event(&text, Some(row.event.place.gseq)))
        }));
        self.after = next;
        Ok(more)
    }
}

/// Which stream.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct StreamParams {
    /// The place in the store behind which the stream begins; a `Last-Event-ID` header beats it.
    after: Option<u64>,
    /// 1: also what is only shown.
    online: Option<u8>,
}

/// GET `/api/events?after=G&online=1`: the durable events of all sessions, by their place in the store.
pub(super) async fn all(
    axum::extract::State(gateway): axum::extract::State<Arc<Gateway>>,
    headers: HeaderMap,
    rest::Params(params): rest::Params<StreamParams>,
) -> Result<Response, ApiError> {
    check_room(&gateway)?;
    let after = begins_after(&headers, params.after)?;
    let head = gateway.deps.store.head_gseq().await?;
    if after > head {
        return Err(ApiError::invalid(format!("the store ends at {head}, before {after}; read it from 0")));
    }
    Ok(of_server(&gateway, after, taking(params.online)))
}

/// Reads the parameter `online`.
pub(crate) fn taking(online: Option<u8>) -> Taking {
    if online == Some(1) { Taking::Online } else { Taking::Durable }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_of_a_frame_is_read_from_its_front() {
        assert_eq!(type_of(r#"{"v":1,"type":"token","sessionId":"s"}"#), "token");
        assert_eq!(type_of("{}"), "message");
    }

    #[test]
    fn the_header_beats_the_parameter() {
        let mut headers = HeaderMap::new();
        assert_eq!(begins_after(&headers, None).unwrap(), 0);
        assert_eq!(begins_after(&headers, Some(7)).unwrap(), 7);
        headers.insert("last-event-id", "9".parse().unwrap());
        assert_eq!(begins_after(&headers, Some(7)).unwrap(), 9);
        headers.insert("last-event-id", "x".parse().unwrap());
        assert!(begins_after(&headers, Some(7)).is_err());
    }
}
