//! A TCP relay on loopback that can be cut, mended and pointed elsewhere: what a bad line is to a client. It
//! names the server where a request names the relay, as the server takes requests under its own name only.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A relay; its connections end with it.
pub struct Relay {
    address: String,
    target: Arc<Mutex<String>>,
    line: watch::Sender<Line>,
    _tasks: JoinSet<()>,
}

/// The state of the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Line {
    open: bool,
    /// Counts the cuts.
    cuts: u64,
}

impl Relay {
    /// Starts a relay to `HOST:PORT` on a free port.
    pub async fn start(target: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let target = Arc::new(Mutex::new(target.to_owned()));
        let (line, watched) = watch::channel(Line { open: true, cuts: 0 });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, target.clone(), watched));
        Self { address, target, line, _tasks: tasks }
    }

    /// Returns where it listens: `http://HOST:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ends every connection, and refuses new ones until it is mended.
    pub fn cut(&self) {
        self.line.send_modify(|line| *line = Line { open: false, cuts: line.cuts + 1 });
    }

    /// Takes connections again.
    pub fn mend(&self) {
        self.line.send_modify(|line| line.open = true);
    }

    /// Leads new connections to another `HOST:PORT`.
    pub fn lead_to(&self, target: &str) {
        *self.target.lock().unwrap() = target.to_owned();
    }
}

async fn accept(listener: TcpListener, target: Arc<Mutex<String>>, line: watch::Receiver<Line>) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        while connections.try_join_next().is_some() {}
        let now = *line.borrow();
        if now.open {
            let target = target.lock().unwrap().clone();
            connections.spawn(relay(stream, target, now.cuts, line.clone()));
        }
    }
}

async fn relay(mut near: TcpStream, target: String, cuts: u64, mut line: watch::Receiver<Line>) {
    let Ok(mut far) = TcpStream::connect(&target).await else { return };
    drop((near.set_nodelay(true), far.set_nodelay(true)));
    let here = near.local_addr().unwrap().to_string();
    let ((mut from_near, mut to_near), (mut from_far, to_far)) = (near.split(), far.split());
    tokio::select! {
        () = forward(&mut from_near, to_far, &here, &target) => {}
        copied = copy(&mut from_far, &mut to_near) => drop(copied),
        cut = line.wait_for(|line| line.cuts != cuts) => drop(cut),
    }
}

/// Passes on what a client sends. A request's head comes in one piece; what a socket carries is masked.
async fn forward(from: &mut ReadHalf<'_>, mut to: WriteHalf<'_>, here: &str, there: &str) {
    let mut chunk = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut chunk).await {
        let sent = &chunk[..count];
        let named = sent.windows(here.len()).position(|window| window == here.as_bytes());
        let sent = match named {
            Some(at) => [&sent[..at], there.as_bytes(), &sent[at + here.len()..]].concat(),
            None => sent.to_vec(),
        };
        if to.write_all(&sent).await.is_err() {
            return;
        }
    }
}
