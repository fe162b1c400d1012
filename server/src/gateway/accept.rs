//! Takes connections: a cap, a time limit for headers, who is at the other end, and an orderly stop.
//!
//! Our own loop, since `axum::serve` sets no timer, without which hyper's header limit does nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use super::patient::Patient;
use super::peer::{self, Peer};

/// Most connections, `/chat` and REST together. More → 503 and closed.
const MAX_CONNECTIONS: usize = 12_000;
/// How long a client may take to send a request's headers.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// Pause after the system refused a new connection, such as for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Said to a connection over the cap, before its request is read.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: 79\r\n\r\n{\"error\":{\"code\":\"LIMIT\",\"message\":\"too many connections are open; try again\"}}";

/// Takes a server's connections: those on its listeners, and those that it is handed.
#[derive(Clone)]
pub(crate) struct Acceptor {
    router: Router,
    room: Arc<Semaphore>,
    connections: TaskTracker,
    stop: CancellationToken,
}

impl Acceptor {
    pub(crate) fn new(router: Router) -> Self {
        Self {
            router,
            room: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            connections: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }

    /// Takes connections until it is told to stop.
    pub(crate) async fn run(self, listener: TcpListener) {
        loop {
            let taken = tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                taken = listener.accept() => taken,
            };
            match taken {
                Ok((stream, peer)) => self.take_tcp(stream, peer),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be taken");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn take_tcp(&self, stream: TcpStream, peer: SocketAddr) {
        // The peer may be gone already.
        let Ok(local) = stream.local_addr() else { return };
        // Tokens are small; waiting to fill a packet would hold them back.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "no TCP_NODELAY");
        }
        self.take(stream, async move {
            tokio::task::spawn_blocking(move || peer::identify(local, peer)).await.ok()
        });
    }

    /// Serves a connection, of whatever kind. Nothing of it is read before its `peer` is known; without one it
    /// is dropped.
    pub(crate) fn take<S, P>(&self, mut stream: S, peer: P)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        P: Future<Output = Option<Peer>> + Send + 'static,
    {
        let Ok(room) = self.room.clone().try_acquire_owned() else {
            // Best effort: the client may be gone.
            self.connections.spawn(async move {
                let _ = stream.write_all(FULL).await;
            });
            return;
        };
        let router = self.router.clone();
        let stop = self.stop.clone();
        self.connections.spawn(async move {
            if let Some(peer) = peer.await {
                serve(stream, peer, router, stop).await;
            }
            drop(room);
        });
    }

    /// Stops taking connections and waits until the open ones are done; dropping the future gives up.
    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        self.connections.close();
        self.connections.wait().await;
    }
}

/// Answers the requests of a connection until it ends, or its peer takes nothing any more.
async fn serve<S>(stream: S, peer: Peer, router: Router, stop: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        router.clone().oneshot(request.map(Body::new))
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .serve_connection(TokioIo::new(Patient::new(stream)), service)
        .with_upgrades();
    tokio::pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = &mut connection => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended badly");
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::response::sse::{Event, Sse};
    use axum::routing::get;
    use futures_util::stream;
    use tokio::io::duplex;
    use tokio::time::Instant;

    use super::super::patient::STALLED;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_reader_of_events_that_stops_reading_is_let_go() {
        let held = Arc::new(());
        let of_stream = held.clone();
        let endless = move || async move {
            let event = move |held: Arc<()>| async move {
                Some((Ok::<_, Infallible>(Event::default().data("x".repeat(1 << 10))), held))
            };
            Sse::new(stream::unfold(of_stream, event))
        };
        let (near, mut far) = duplex(1 << 12);
        far.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
        let began = Instant::now();
        serve(near, Peer::Own, Router::new().route("/", get(endless)), CancellationToken::new()).await;
        assert_eq!(began.elapsed(), STALLED);
        assert_eq!(Arc::strong_count(&held), 1, "the stream is gone with its connection");
    }

    #[test]
    fn the_canned_refusal_states_its_own_length() {
        let text = std::str::from_utf8(FULL).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())));
        assert!(serde_json::from_str::<tns_protocol::rest::ErrorBody>(body).is_ok());
    }
}
