//! A file server on loopback that does what real ones do to a download: it breaks off, forgets ranges,
//! changes the file in between, sends on to elsewhere, and notes what it was asked.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// What is behind a path.
#[derive(Debug, Clone, Default)]
pub struct Served {
    /// The file's bytes.
    pub bytes: Vec<u8>,
    /// Its ETag, with its quotes.
    pub tag: Option<String>,
    /// Whether a part of it can be asked for.
    pub ranges: bool,
    /// How many bytes each of the next answers sends before it breaks off.
    pub breaks: VecDeque<usize>,
    /// An answer that breaks keeps the connection open and sends nothing more.
    pub stalls: bool,
    /// Another status than 200, with no file.
    pub status: Option<u16>,
    /// Sends on to there.
    pub location: Option<String>,
    /// More headers.
    pub headers: Vec<(String, String)>,
}

/// A request as it came: its path, and its `Range` and `If-Range`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The path.
    pub path: String,
    /// `Range`, if there was one.
    pub range: Option<String>,
    /// `If-Range`, if there was one.
    pub if_range: Option<String>,
}

#[derive(Debug, Default)]
struct State {
    served: HashMap<String, Served>,
    asked: Vec<Asked>,
}

/// The server; it ends with its handle.
#[derive(Debug)]
pub struct Downloads {
    url: String,
    state: Arc<Mutex<State>>,
    _tasks: JoinSet<()>,
}

impl Downloads {
    /// Starts a server with nothing on it.
    ///
    /// # Panics
    /// When loopback has no free port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State::default()));
        let mut tasks = JoinSet::new();
        let shared = Arc::clone(&state);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Self { url, state, _tasks: tasks }
    }

    /// Returns the address of a path.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    /// Puts something behind a path, in place of what was there.
    ///
    /// # Panics
    /// When a request panicked.
    pub fn put(&self, path: &str, served: Served) {
        self.state.lock().unwrap().served.insert(path.to_owned(), served);
    }

    /// Returns the requests so far.
    ///
    /// # Panics
    /// When a request panicked.
    pub fn asked(&self) -> Vec<Asked> {
        self.state.lock().unwrap().asked.clone()
    }
}

/// Answers one request, and closes.
async fn serve(stream: TcpStream, state: Arc<Mutex<State>>) {
    let mut stream = BufReader::new(stream);
    let Some((path, headers)) = read_request(&mut stream).await else { return };
    let header = |name: &str| headers.get(name).cloned();
    let asked = Asked { path, range: header("range"), if_range: header("if-range") };
    let Some((served, breaks)) = look_up(&state, &asked) else {
        let _ = stream
            .write_all(b"HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            .await;
        return;
    };
    let (head, body) = answer(&served, &asked);
    let sent = &body[..breaks.unwrap_or(body.len()).min(body.len())];
    let _ = stream.write_all(head.as_bytes()).await;
    let _ = stream.write_all(sent).await;
    let _ = stream.flush().await;
    if breaks.is_some() && served.stalls {
        std::future::pending::<()>().await;
    }
}

/// Notes a request; returns what is behind its path, and where this answer breaks off.
fn look_up(state: &Mutex<State>, asked: &Asked) -> Option<(Served, Option<usize>)> {
    let mut state = state.lock().unwrap();
    state.asked.push(asked.clone());
    let served = state.served.get_mut(&asked.path)?;
    let breaks = served.breaks.pop_front();
    Some((served.clone(), breaks))
}

async fn read_request(stream: &mut BufReader<TcpStream>) -> Option<(String, HashMap<String, String>)> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    let path = line.split(' ').nth(1)?.split('?').next()?.to_owned();
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim().split_once(':') else { return Some((path, headers)) };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
}

/// Returns the head of an answer, and the body that it announces.
fn answer<'a>(served: &'a Served, asked: &Asked) -> (String, &'a [u8]) {
    // Said, so that no client asks again on a connection that is about to be gone.
    let mut headers = "Connection: close\r\n".to_owned();
    headers.extend(served.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")));
    if let Some(tag) = &served.tag {
        headers.push_str(&format!("ETag: {tag}\r\n"));
    }
    if let Some(location) = &served.location {
        let head =
            format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\n{headers}Content-Length: 0\r\n\r\n");
        return (head, b"");
    }
    if let Some(status) = served.status {
        return (format!("HTTP/1.1 {status} So\r\n{headers}Content-Length: 0\r\n\r\n"), b"");
    }
    let whole = served.bytes.len();
    // A part is only of use while the file is the one that the client knows.
    let same = asked.if_range.is_none() || asked.if_range == served.tag;
    let first = asked
        .range
        .as_deref()
        .and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
    match first {
        Some(first) if served.ranges && same && first < whole => {
            let body = &served.bytes[first..];
            let range = format!("Content-Range: bytes {first}-{}/{whole}\r\n", whole - 1);
            let length = body.len();
            (
                format!("HTTP/1.1 206 Partial Content\r\n{range}{headers}Content-Length: {length}\r\n\r\n"),
                body,
            )
        }
        Some(first) if served.ranges && same && first >= whole => {
            (format!("HTTP/1.1 416 Range Not Satisfiable\r\n{headers}Content-Length: 0\r\n\r\n"), b"")
        }
        _ => (format!("HTTP/1.1 200 OK\r\n{headers}Content-Length: {whole}\r\n\r\n"), &served.bytes),
    }
}
