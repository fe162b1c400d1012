//! The `/chat` face: one WebSocket connection with a read loop, a bounded outbox and a write loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use serde::Deserialize;
use tns_protocol::{ErrorCode, MAX_MESSAGE_BYTES, MAX_SMALL_MESSAGE_BYTES, decode_client, message_limit};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::Gateway;
use super::dispatch::Dispatcher;
use super::error::ApiError;
use super::outbox::{Backlog, Outbox, Outgoing};
// Pings can't tell that a peer takes nothing: they wait behind what it does not take.
use super::translate;

/// Read buffer of a connection. The library's own default of 128 KiB would be most of an idle one.
const READ_BUFFER: usize = 4 << 10;
/// How much is gathered before it is written to the socket.
const WRITE_BUFFER: usize = 16 << 10;
/// Most bytes of unwritten frames; above it writing fails and the connection is dropped.
const MAX_WRITE_BUFFER: usize = 64 << 20;
/// Largest frame and message that the transport takes, so that one over the limit can be answered.
const TRANSPORT_BYTES: usize = MAX_MESSAGE_BYTES + (1 << 20);
/// Silence after which a ping is sent, and after it how long an answer may take.
const PING_AFTER: Duration = Duration::from_secs(30);
/// How long the peer may take to answer a close.
const CLOSE_WAIT: Duration = Duration::from_secs(2);
/// The same when the server stops, which waits for it.
const STOP_WAIT: Duration = Duration::from_millis(250);
/// Messages a second that a connection may send, and how many at once. Over it: `LIMIT`, then close.
const MESSAGES_PER_SECOND: f64 = 50.0;
/// Messages that may come at once.
const MESSAGE_BURST: f64 = 200.0;
/// Most `/chat` connections of one principal. More → 503.
pub(crate) const MAX_CONNECTIONS: usize = 1_024;

/// Answers the upgrade to `/chat`.
pub(super) async fn upgrade(
    State(gateway): State<Arc<Gateway>>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(rejection) => {
            let message = format!("this path is a WebSocket: {}", rejection.body_text());
            return ApiError::new(rejection.status(), ErrorCode::InvalidMessage, message).into_response();
        }
    };
    // Counted before it looks: whoever stops an unused server sees this one, or is seen.
    let counted = Counted::new(gateway.clone());
    let refused = |message: String| {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Limit, message).into_response()
    };
    if *gateway.connections.borrow() > MAX_CONNECTIONS {
        return refused(format!("{MAX_CONNECTIONS} connections are open already"));
    }
    if gateway.draining.load(Ordering::SeqCst) {
        return refused("the server is stopping".to_owned());
    }
    upgrade
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(WRITE_BUFFER)
        .max_write_buffer_size(MAX_WRITE_BUFFER)
        .max_frame_size(TRANSPORT_BYTES)
        .max_message_size(TRANSPORT_BYTES)
        .on_upgrade(|socket| Box::pin(serve(socket, gateway, counted)))
}

/// Counts a connection while it lives.
pub(super) struct Counted(Arc<Gateway>);

impl Counted {
    pub(super) fn new(gateway: Arc<Gateway>) -> Self {
        gateway.connections.send_modify(|count| *count += 1);
        Self(gateway)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.send_modify(|count| *count -= 1);
    }
}

async fn serve(socket: WebSocket, gateway: Arc<Gateway>, _counted: Counted) {
    let stopping = gateway.closing.clone();
    let outbox = Arc::new(Outbox::default());
    let mut dispatcher = Dispatcher::new(gateway, outbox.clone());
    let seen = Seen::new();
    let (mut sink, mut stream) = socket.split();
    let closing = {
        let read = read_loop(&mut stream, &mut dispatcher, &outbox, &seen);
        let write = write_loop(&mut sink, &outbox, &seen);
        tokio::pin!(read, write);
        tokio::select! {
            biased;
            // The peer has closed, or its frames can't be read: what waits is still written.
            () = &mut read => {
                outbox.close(close_code::NORMAL, "");
                timeout(CLOSE_WAIT, &mut write).await.unwrap_or(Closing::Gone)
            }
            closing = &mut write => closing,
            () = stopping.cancelled() => {
                outbox.close(close_code::AWAY, "the server stops");
                timeout(CLOSE_WAIT, &mut write).await.unwrap_or(Closing::Gone)
            }
        }
    };
    dispatcher.leave().await;
    if closing == Closing::Sent {
        // The peer answers the close; what else it sends is not read any more.
        let drain = async { while let Some(Ok(_)) = stream.next().await {} };
        // A peer that does not answer in time is dropped.
        let _ = timeout(if stopping.is_cancelled() { STOP_WAIT } else { CLOSE_WAIT }, drain).await;
    }
}

/// How the write loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closing {
    /// A close frame was sent.
    Sent,
    /// The peer is gone, or does not answer.
    Gone,
}

async fn read_loop(
    stream: &mut SplitStream<WebSocket>,
    dispatcher: &mut Dispatcher,
    outbox: &Outbox,
    seen: &Seen,
) {
    let mut bucket = Bucket::full();
    while let Some(message) = stream.next().await {
        seen.now();
        let text = match message {
            Ok(Message::Text(text)) => text,
            Ok(Message::Binary(_)) => {
                let message = "binary frames are not taken; send JSON in a text frame";
                dispatcher.refuse(None, None, None, ErrorCode::InvalidJson, message);
                continue;
            }
            // Pings are answered by the library.
            Ok(Message::Ping(_) | Message::Pong(_)) => continue,
            Ok(Message::Close(_)) => return,
            Err(error) => return outbox.close(close_code_of(&error), "the frame can't be read"),
        };
        if text.as_str() == "ping" {
            continue;
        }
        if !bucket.take() {
            let message = "too many messages: 50 a second, 200 at once";
            dispatcher.refuse(None, None, None, ErrorCode::Limit, message);
            return outbox.close(close_code::POLICY, "too many messages");
        }
        if let Some(limit) = oversized(&text) {
            let message = format!("the message is larger than its limit of {limit} bytes");
            dispatcher.refuse(None, None, None, ErrorCode::PayloadTooLarge, &message);
            return outbox.close(close_code::SIZE, "the message is too large");
        }
        match decode_client(&text) {
            Ok(frame) => {
                drop(text);
                // Boxed: it is large, and most of a connection's life nothing is dispatched.
                Box::pin(dispatcher.dispatch(frame)).await;
            }
            Err(error) => {
                dispatcher.refuse(
                    error.session_id,
                    error.re,
                    error.ref_type.as_deref(),
                    error.code,
                    &error.message,
                );
            }
        }
    }
}

/// Returns the limit of a message that is over it.
fn oversized(text: &str) -> Option<usize> {
    #[derive(Deserialize)]
    struct Type<'a> {
        #[serde(borrow)]
        r#type: std::borrow::Cow<'a, str>,
    }
    if text.len() <= MAX_SMALL_MESSAGE_BYTES {
        return None;
    }
    let limit = match serde_json::from_str::<Type<'_>>(text) {
        Ok(named) => message_limit(&named.r#type),
        Err(_) => MAX_SMALL_MESSAGE_BYTES,
    };
    (text.len() > limit).then_some(limit)
}

async fn write_loop(sink: &mut SplitSink<WebSocket, Message>, outbox: &Outbox, seen: &Seen) -> Closing {
    let mut pings = interval(PING_AFTER);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pings.reset();
    loop {
        let outgoing = tokio::select! {
            // First, or a busy outbox would put off for ever what tells that the peer is gone.
            biased;
            _ = pings.tick() => {
                if seen.silent_for() >= PING_AFTER * 2 {
                    return Closing::Gone;
                }
                if seen.silent_for() >= PING_AFTER && sink.send(Message::Ping(bytes::Bytes::new())).await.is_err() {
                    return Closing::Gone;
                }
                continue;
            }
            outgoing = outbox.next() => outgoing,
        };
        match outgoing {
            Outgoing::Frames(frames) => {
                let frames = frames.into_iter().map(|frame| frame.text).collect();
                if write(sink, frames, outbox).await.is_err() {
                    return Closing::Gone;
                }
            }
            Outgoing::Backlog(backlog) => {
                if replay(sink, backlog, outbox).await.is_err() {
                    return Closing::Gone;
                }
            }
            Outgoing::Lagged(session, head) => {
                let frame = Utf8Bytes::from(translate::lagged(&session, head));
                if write(sink, vec![frame], outbox).await.is_err() {
                    return Closing::Gone;
                }
            }
            Outgoing::Close(close) => {
                let sent = timeout(CLOSE_WAIT, sink.send(Message::Close(Some(close)))).await;
                return if matches!(sent, Ok(Ok(()))) { Closing::Sent } else { Closing::Gone };
            }
        }
    }
}

/// Writes what a resume asked for: the log a page at a time, then where it goes over to live events.
async fn replay(
    sink: &mut SplitSink<WebSocket, Message>,
    backlog: Backlog,
    outbox: &Outbox,
) -> Result<(), axum::Error> {
    let Backlog { session, re, point } = backlog;
    let mut after = point.after;
    while after < point.head_seq {
        match point.page(after).await {
            Ok(page) => {
                let rows = page.events;
                let last = rows.last().map_or(point.head_seq, |row| row.place.seq);
                let more = last < point.head_seq;
                let frame = translate::history_sync(&session, re.clone(), after, &rows, more);
                after = last;
                // Let go before the socket is waited for.
                drop(rows);
                write(sink, vec![frame.into()], outbox).await?;
            }
            Err(error) => {
                // What follows would leave a gap; the client may ask again.
                outbox.lag(&session, point.head_seq);
                let failed = translate::error(error.code(), &error.to_string(), Some("resume"));
                let frame = translate::to_one(&session, re, failed);
                return write(sink, vec![frame.into()], outbox).await;
            }
        }
    }
    write(sink, vec![translate::resume_end(&session, re, &point).into()], outbox).await
}

/// Writes everything that has already come in one go. A peer that takes nothing ends the connection below this.
async fn write(
    sink: &mut SplitSink<WebSocket, Message>,
    frames: Vec<Utf8Bytes>,
    outbox: &Outbox,
) -> Result<(), axum::Error> {
    let writing = async {
        for frame in frames {
            sink.feed(Message::Text(frame)).await?;
        }
        sink.flush().await
    };
    tokio::select! {
        biased;
        written = writing => written,
        // A peer that reads nothing: its outbox overflowed meanwhile, and it may take the close or not.
        () = outbox.closing(CLOSE_WAIT) => Err(axum::Error::new("the peer does not read")),
    }
}

/// When the peer was last heard.
struct Seen {
    began: Instant,
    after: AtomicU64,
}

impl Seen {
    fn new() -> Self {
        Self { began: Instant::now(), after: AtomicU64::new(0) }
    }

    fn now(&self) {
        let after = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.after.store(after, Ordering::Relaxed);
    }

    fn silent_for(&self) -> Duration {
        self.began.elapsed().saturating_sub(Duration::from_millis(self.after.load(Ordering::Relaxed)))
    }
}

/// A token bucket for messages.
struct Bucket {
    level: f64,
    filled: Instant,
}

impl Bucket {
    fn full() -> Self {
        Self { level: MESSAGE_BURST, filled: Instant::now() }
    }

    fn take(&mut self) -> bool {
        let now = Instant::now();
        let gained = now.duration_since(self.filled).as_secs_f64() * MESSAGES_PER_SECOND;
        self.level = (self.level + gained).min(MESSAGE_BURST);
        self.filled = now;
        if self.level < 1.0 {
            return false;
        }
        self.level -= 1.0;
        true
    }
}

/// Returns the close code for a frame that can't be read: 1009 over the transport's size, 1007 for text
/// that is not UTF-8, else 1002.
fn close_code_of(error: &axum::Error) -> u16 {
    use axum::extract::ws::close_code::{INVALID, PROTOCOL, SIZE};
    use std::error::Error as _;
    let text = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    if text.contains("Space limit") || text.contains("too long") {
        SIZE
    } else if text.contains("UTF-8") {
        INVALID
    } else {
        PROTOCOL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_taken_and_then_fifty_a_second() {
        let mut bucket = Bucket::full();
        assert_eq!((0..300).filter(|_| bucket.take()).count(), 200);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!((0..300).filter(|_| bucket.take()).count(), 50);
    }

    #[test]
    fn each_type_has_its_limit() {
        let frame = |type_name: &str, bytes: usize| {
            let head = format!(r#"{{"v":1,"type":"{type_name}","x":""#);
            let fill = "x".repeat(bytes - head.len() - 2);
            format!("{head}{fill}\"}}")
        };
        assert_eq!(oversized(&frame("cancel", MAX_SMALL_MESSAGE_BYTES)), None);
        assert_eq!(oversized(&frame("cancel", MAX_SMALL_MESSAGE_BYTES + 1)), Some(MAX_SMALL_MESSAGE_BYTES));
        for large in ["chat", "kb_add", "mcp_result"] {
            assert_eq!(oversized(&frame(large, MAX_MESSAGE_BYTES)), None);
            assert_eq!(oversized(&frame(large, MAX_MESSAGE_BYTES + 1)), Some(MAX_MESSAGE_BYTES));
        }
    }
}
