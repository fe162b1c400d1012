//! One socket: opening it, the read loop and the write loop. It knows nothing of trying again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{FutureExt, SinkExt, StreamExt};
use tns_protocol::rest::ErrorBody;
use tns_protocol::{ErrorCode, decode_server};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Bytes, Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use tokio_util::sync::CancellationToken;

use crate::ClientError;
use crate::address::Address;
use crate::cursor::Fault;
use crate::events::Batch;
use crate::network::{Counted, Heard, Network};
use crate::sessions::{Outgoing, Sessions};

/// Bytes read from the socket at once: many token frames, and little memory for each connection.
const READ_BUFFER_BYTES: usize = 4 << 10;
/// Largest message taken from a server; its own limit for what it stores is half of this.
const MAX_INCOMING_BYTES: usize = 16 << 20;
/// Time for the name, the connection and the handshake together.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for the server's goodbye after ours.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Silence after which the server is asked for a sign of life, and after that how long it may take to give one.
/// Else the connection is lost, though nobody said so: a machine is gone, or the way to it.
const PING_AFTER: Duration = Duration::from_secs(30);
/// Most events of one batch. More that have arrived → the next batch.
const BATCH_EVENTS: usize = 64;
/// Text after which a batch is handed over, in bytes; one frame may exceed it.
const BATCH_BYTES: usize = 256 << 10;

/// Frames that are taken from the queue for one flush; the rest waits for the next.
const MAX_AT_ONCE: usize = 64;

pub(crate) type Socket = WebSocketStream<Counted>;

/// The client's ends of the channels, which outlive any one socket.
pub(crate) struct Link {
    /// What is to be written.
    pub(crate) queue: mpsc::Receiver<Outgoing>,
    /// The sessions that are followed.
    pub(crate) followed: Arc<Followed>,
    /// Where events go.
    pub(crate) events: mpsc::Sender<Batch>,
    /// The client wants to end.
    pub(crate) closing: CancellationToken,
}

/// The sessions, shared by the client's calls and the two loops of its socket.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    sessions: Mutex<Sessions>,
    /// There may be more to write than before.
    wake: Notify,
    /// The server is to be asked for a sign of life.
    ping: Notify,
}

impl Followed {
    /// Makes an empty table; `watch`: of a client that only looks.
    pub(crate) fn new(watch: bool) -> Self {
        Self { sessions: Mutex::new(Sessions::new(watch)), ..Self::default() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a socket's loops ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// This side is done: nobody listens any more, or the client said goodbye.
    Finished,
    /// The connection broke or the server left; another may work.
    Lost(String),
    /// The server sends what this client can't read; another connection won't help.
    Unreadable(String),
}

/// Connects and shakes hands.
pub(crate) async fn open(network: &Network, address: &Address) -> Result<Socket, ClientError> {
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        .max_message_size(Some(MAX_INCOMING_BYTES))
        .max_frame_size(Some(MAX_INCOMING_BYTES));
    let opening = async {
        let stream = network.dial(address.host_and_port()).await?;
        client_async_with_config(address.chat(), stream, Some(config)).await
    };
    // Boxed: the handshake's state is large and lives for a moment only.
    match timeout(OPEN_TIMEOUT, Box::pin(opening)).await {
        Ok(Ok((socket, _))) => Ok(socket),
        Ok(Err(error)) => Err(refusal(address, error)),
        Err(_) => Err(ClientError::Unreachable(format!(
            "{} did not answer within {} seconds",
            address.as_str(),
            OPEN_TIMEOUT.as_secs()
        ))),
    }
}

/// Turns a failed handshake into the error that a caller can act on.
fn refusal(address: &Address, error: Error) -> ClientError {
    match error {
        Error::Http(response) => {
            let status = response.status().as_u16();
            let body = response.body().as_deref().unwrap_or_default();
            match serde_json::from_slice::<ErrorBody>(body) {
                Ok(ErrorBody { error }) => {
                    ClientError::Refused { status, code: error.code, message: error.message }
                }
                Err(_) if status == 503 => ClientError::Refused {
                    status,
                    code: ErrorCode::Limit,
                    message: format!("{} takes no more connections now", address.as_str()),
                },
                Err(_) => ClientError::Protocol(format!(
                    "{} answered {status} where a tns server has its chat",
                    address.as_str()
                )),
            }
        }
        Error::Io(error) => ClientError::Unreachable(format!("{}: {}", address.as_str(), plain(&error))),
        other => ClientError::Protocol(format!("{}: {other}", address.as_str())),
    }
}

/// An I/O error without the number that the system gives it.
pub(crate) fn plain(error: &dyn std::error::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((words, _)) => words.to_lowercase(),
        None => text,
    }
}

/// Reads and writes until one side ends.
pub(crate) async fn run(socket: Socket, link: &mut Link) -> End {
    let heard = socket.get_ref().heard();
    let (mut sink, mut stream) = socket.split();
    let end = tokio::select! {
        biased;
        end = read_loop(&mut stream, &heard, &link.events, &link.followed) => end,
        end = write_loop(&mut sink, &mut link.queue, &link.followed, &link.closing) => end,
    };
    if end == End::Finished {
        // The socket is dropped next; a server that doesn't answer in time sees that instead.
        let goodbye = async {
            if sink.close().await.is_ok() {
                while let Some(Ok(_)) = stream.next().await {}
            }
        };
        if timeout(CLOSE_TIMEOUT, goodbye).await.is_err() {
            tracing::debug!("the server did not answer the goodbye");
        }
    }
    end
}

/// Hands over what arrives, as many frames at once as are there. Pings are answered by reading on.
async fn read_loop(
    stream: &mut SplitStream<Socket>,
    heard: &Heard,
    events: &mpsc::Sender<Batch>,
    followed: &Followed,
) -> End {
    loop {
        let (batch, end) = read_batch(stream, heard, followed).await;
        // A frame may have asked for something, or have let go of what waits.
        followed.wake.notify_one();
        if !batch.is_empty() && events.send(batch).await.is_err() {
            return End::Finished;
        }
        if let Some(end) = end {
            return end;
        }
    }
}

/// Waits for one message and takes those that have arrived behind it.
async fn read_batch(
    stream: &mut SplitStream<Socket>,
    heard: &Heard,
    followed: &Followed,
) -> (Batch, Option<End>) {
    let mut batch = Batch::new();
    let mut bytes = 0;
    let mut arrived = match hear(stream, heard, followed).await {
        Ok(arrived) => Some(arrived),
        Err(end) => return (batch, Some(end)),
    };
    while let Some(message) = arrived {
        match message {
            Some(Ok(Message::Text(text))) => {
                bytes += text.len();
                if let Err(end) = take(&text, followed, &mut batch) {
                    return (batch, Some(end));
                }
            }
            Some(Ok(Message::Binary(_))) => {
                return (batch, Some(End::Unreadable("the server sent a binary frame".into())));
            }
            Some(Ok(Message::Close(frame))) => {
                let reason = match frame {
                    Some(frame) if !frame.reason.is_empty() => {
                        format!("the server closed the connection: {} ({})", frame.reason, frame.code)
                    }
                    Some(frame) => format!("the server closed the connection ({})", frame.code),
                    None => "the server closed the connection".into(),
                };
                return (batch, Some(End::Lost(reason)));
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
            Some(Err(Error::Capacity(error))) => {
                return (batch, Some(End::Unreadable(format!("the server sent too much at once: {error}"))));
            }
            Some(Err(error)) => return (batch, Some(End::Lost(lost(&error)))),
            None => return (batch, Some(End::Lost("the connection ended".into()))),
        }
        if batch.len() >= BATCH_EVENTS || bytes >= BATCH_BYTES {
            break;
        }
        arrived = stream.next().now_or_never();
    }
    (batch, None)
}

/// Waits for a message. In silence the server is pinged, and must then be heard. Time that the consumer takes is
/// no silence, and neither is a long message that is on its way.
async fn hear(
    stream: &mut SplitStream<Socket>,
    heard: &Heard,
    followed: &Followed,
) -> Result<Option<Result<Message, Error>>, End> {
    let mut pinged = false;
    loop {
        let before = heard.bytes();
        if let Ok(arrived) = timeout(PING_AFTER, stream.next()).await {
            return Ok(arrived);
        }
        if heard.bytes() != before {
            pinged = false;
        } else if std::mem::replace(&mut pinged, true) {
            let seconds = (PING_AFTER * 2).as_secs();
            return Err(End::Lost(format!("nothing came from the server for {seconds} seconds")));
        } else {
            followed.ping.notify_one();
        }
    }
}

fn take(text: &str, followed: &Followed, batch: &mut Batch) -> Result<(), End> {
    let frame = decode_server(text)
        .map_err(|error| End::Unreadable(format!("the server sent a wrong frame: {error}")))?;
    let taken = followed.lock().take(frame, batch);
    taken.map_err(|Fault(fault)| End::Lost(format!("the server breaks its log: {fault}")))
}

/// Writes what is asked for, then what is queued, as much as there is for one flush.
async fn write_loop(
    sink: &mut SplitSink<Socket, Message>,
    queue: &mut mpsc::Receiver<Outgoing>,
    followed: &Followed,
    closing: &CancellationToken,
) -> End {
    loop {
        let requests = followed.lock().requests();
        if let Err(error) = write(sink, requests).await {
            return End::Lost(lost(&error));
        }
        let waits = followed.lock().holds_back();
        let next = tokio::select! {
            // This crate's own requests come first.
            biased;
            () = followed.wake.notified() => continue,
            () = followed.ping.notified() => {
                match sink.send(Message::Ping(Bytes::new())).await {
                    Ok(()) => continue,
                    Err(error) => return End::Lost(lost(&error)),
                }
            }
            next = queue.recv(), if !waits => next,
            () = closing.cancelled() => queue.try_recv().ok(),
        };
        let Some(next) = next else { return End::Finished };
        let mut frames = followed.lock().outgoing(next);
        while frames.len() < MAX_AT_ONCE {
            if followed.lock().holds_back() {
                break;
            }
            let Ok(next) = queue.try_recv() else { break };
            frames.extend(followed.lock().outgoing(next));
        }
        if let Err(error) = write(sink, frames).await {
            return End::Lost(lost(&error));
        }
    }
}

async fn write(sink: &mut SplitSink<Socket, Message>, frames: Vec<String>) -> Result<(), Error> {
    if frames.is_empty() {
        return Ok(());
    }
    for frame in frames {
        sink.feed(Message::text(frame)).await?;
    }
    sink.flush().await
}

fn lost(error: &Error) -> String {
    match error {
        Error::Io(error) => plain(error),
        Error::ConnectionClosed | Error::AlreadyClosed => "the connection ended".into(),
        // A server that is killed does not finish its side of the protocol.
        Error::Protocol(_) => "the server left without a goodbye".into(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
