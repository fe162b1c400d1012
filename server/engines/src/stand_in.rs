//! A local HTTP server for this crate's tests: plays one scripted reply a request and keeps what it heard.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What happens to the connection after a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    Close,
    /// Nothing more comes, and the connection stays.
    Hold,
    /// The next request may use it.
    Serve,
}

/// One scripted reply: the bytes of each write.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) writes: Vec<Vec<u8>>,
    pub(crate) then: Then,
}

impl Reply {
    /// A stream of events that ends with the connection.
    pub(crate) fn stream(body: &str) -> Self {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
        Self { writes: vec![format!("{head}{body}").into_bytes()], then: Then::Close }
    }

    /// A whole answer; `head` is the status line and headers, one a line.
    pub(crate) fn whole(head: &str, body: &str) -> Self {
        let head = head.replace('\n', "\r\n");
        let answer = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        Self { writes: vec![answer.into_bytes()], then: Then::Serve }
    }

    pub(crate) fn then(self, then: Then) -> Self {
        Self { then, ..self }
    }
}

/// The server; it ends with the value.
#[derive(Debug)]
pub(crate) struct StandIn {
    address: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    replies: Mutex<VecDeque<Reply>>,
    heard: Mutex<Vec<String>>,
    connections: watch::Sender<usize>,
    left: watch::Sender<usize>,
}

impl StandIn {
    pub(crate) async fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            replies: Mutex::new(replies.into_iter().collect()),
            heard: Mutex::default(),
            connections: watch::Sender::new(0),
            left: watch::Sender::new(0),
        });
        let mut tasks = JoinSet::new();
        let served = Arc::clone(&shared);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                served.connections.send_modify(|count| *count += 1);
                connections.spawn(serve(socket, Arc::clone(&served)));
            }
        });
        Self { address, shared, _tasks: tasks }
    }

    /// The base URL, with a path as providers have it.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The requests so far: head and body.
    pub(crate) fn heard(&self) -> Vec<String> {
        self.shared.heard.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        *self.shared.connections.borrow()
    }

    /// Waits until a client closed a connection that was held open.
    pub(crate) async fn client_left(&self) {
        self.shared.left.subscribe().wait_for(|count| *count > 0).await.unwrap();
    }
}

/// Returns an address of this machine where nothing listens.
pub(crate) async fn nobody() -> SocketAddr {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((std::net::Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = socket.local_addr().unwrap();
    // Held as long as the process lives, so that no other test comes to listen there.
    std::mem::forget(socket);
    address
}

async fn serve(mut socket: TcpStream, shared: Arc<Shared>) {
    while let Some(request) = read_request(&mut socket).await {
        shared.heard.lock().unwrap().push(request);
        let reply = shared.replies.lock().unwrap().pop_front();
        let Some(reply) = reply else { return };
        for bytes in &reply.writes {
            if socket.write_all(bytes).await.is_err() {
                return;
            }
            socket.flush().await.unwrap();
        }
        match reply.then {
            Then::Close => return,
            Then::Serve => {}
            Then::Hold => {
                let _ = socket.read(&mut [0; 1]).await;
                shared.left.send_modify(|count| *count += 1);
                return;
            }
        }
    }
}

async fn read_request(socket: &mut TcpStream) -> Option<String> {
    let mut request = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&request);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
            });
            if body.len() >= length.unwrap_or_default() {
                return Some(text.into_owned());
            }
        }
        if socket.read_buf(&mut request).await.ok()? == 0 {
            return None;
        }
    }
}
