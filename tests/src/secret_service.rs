//! A stand-in for the session bus with a keyring on it: it speaks as much D-Bus as keeping a key takes, written
//! apart from the product's own so that both must agree with the specification. It can be locked, silent or
//! absent.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

const COLLECTION: &str = "/org/freedesktop/secrets/collection/login";

/// How the keyring behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    /// It gives and takes.
    Open,
    /// It would ask for a password first.
    Locked,
    /// Its bus takes connections and says nothing.
    Silent,
    /// The bus is there, and no keyring on it.
    Absent,
}

/// A running stand-in; it ends with this value.
pub struct SecretService {
    dir: TempDir,
    shared: Arc<Mutex<Shared>>,
    _tasks: JoinSet<()>,
}

struct Shared {
    mood: Mood,
    /// Keys by provider.
    keys: BTreeMap<String, String>,
    /// The methods that were called, in order.
    calls: Vec<String>,
}

impl SecretService {
    /// Starts it on a socket of its own.
    pub fn start(mood: Mood) -> Self {
        let dir = TempDir::new().unwrap();
        let listener = UnixListener::bind(dir.path().join("bus")).unwrap();
        let shared = Arc::new(Mutex::new(Shared { mood, keys: BTreeMap::new(), calls: Vec::new() }));
        let mut tasks = JoinSet::new();
        let state = shared.clone();
        tasks.spawn(async move {
            let mut clients = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                clients.spawn(serve(stream, state.clone()));
            }
        });
        Self { dir, shared, _tasks: tasks }
    }

    /// Returns its address, as `DBUS_SESSION_BUS_ADDRESS` holds it.
    pub fn address(&self) -> String {
        format!("unix:path={}", self.socket().display())
    }

    /// Returns its socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("bus")
    }

    /// Puts a key in, as another program would.
    pub fn put(&self, provider: &str, key: &str) {
        self.shared.lock().unwrap().keys.insert(provider.into(), key.into());
    }

    /// Returns a provider's key.
    pub fn get(&self, provider: &str) -> Option<String> {
        self.shared.lock().unwrap().keys.get(provider).cloned()
    }

    /// Makes it behave otherwise from now on.
    pub fn turn(&self, mood: Mood) {
        self.shared.lock().unwrap().mood = mood;
    }

    /// Returns the methods that were called so far.
    pub fn calls(&self) -> Vec<String> {
        self.shared.lock().unwrap().calls.clone()
    }
}

/// Serves one client until it hangs up.
async fn serve(mut stream: UnixStream, shared: Arc<Mutex<Shared>>) {
    if shared.lock().unwrap().mood == Mood::Silent {
        // Held open: whoever waits for a word waits for ever.
        return std::future::pending().await;
    }
    let mut line = Vec::new();
    for answer in ["OK 0123456789abcdef\r\n", ""] {
        line.clear();
        while !line.ends_with(b"\r\n") {
            let Ok(byte) = stream.read_u8().await else { return };
            line.push(byte);
        }
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
    assert_eq!(line, b"BEGIN\r\n");
    while let Some(call) = Call::read(&mut stream).await {
        let reply = answer(&call, &mut shared.lock().unwrap());
        if stream.write_all(&reply.message(call.serial)).await.is_err() {
            return;
        }
    }
}

/// A call as it came.
struct Call {
    serial: u32,
    path: String,
    member: String,
    body: Vec<u8>,
}

impl Call {
    async fn read(stream: &mut UnixStream) -> Option<Self> {
        let mut head = [0; 16];
        stream.read_exact(&mut head).await.ok()?;
        let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
        assert_eq!((head[0], head[1], head[3]), (b'l', 1, 1), "a call, little-endian, of version 1");
        let length = number(12) as usize;
        let mut fields = vec![0; length.next_multiple_of(8)];
        stream.read_exact(&mut fields).await.ok()?;
        let mut body = vec![0; number(4) as usize];
        stream.read_exact(&mut body).await.ok()?;
        fields.truncate(length);
        let mut cut = Cut { bytes: &fields, at: 0 };
        let (mut path, mut member) = (String::new(), String::new());
        while cut.at < length {
            cut.align(8);
            let code = cut.byte();
            let value = match cut.signature().as_str() {
                "g" => cut.signature(),
                "s" | "o" => cut.string(),
                other => panic!("a field of type {other}"),
            };
            match code {
                1 => path = value,
                3 => member = value,
                _ => {}
            }
        }
        Some(Self { serial: number(8), path, member, body })
    }
}

/// Reads a body from its start to its end; panics where it is not what it must be.
struct Cut<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cut<'_> {
    fn align(&mut self, to: usize) {
        self.at = self.at.next_multiple_of(to);
    }

    fn byte(&mut self) -> u8 {
        self.at += 1;
        self.bytes[self.at - 1]
    }

    fn number(&mut self) -> u32 {
        self.align(4);
        self.at += 4;
        u32::from_le_bytes(self.bytes[self.at - 4..self.at].try_into().unwrap())
    }

    fn blob(&mut self) -> Vec<u8> {
        let length = self.number() as usize;
        self.at += length;
        self.bytes[self.at - length..self.at].to_vec()
    }

    fn string(&mut self) -> String {
        let text = String::from_utf8(self.blob()).unwrap();
        assert_eq!(self.byte(), 0);
        text
    }

    fn signature(&mut self) -> String {
        let length = usize::from(self.byte());
        let text = String::from_utf8(self.bytes[self.at..self.at + length].to_vec()).unwrap();
        self.at += length + 1;
        text
    }

    /// Reads pairs of strings and returns the user among them.
    fn user(&mut self) -> String {
        let end = self.number() as usize;
        self.align(8);
        let end = self.at + end;
        let mut pairs = BTreeMap::new();
        while self.at < end {
            self.align(8);
            pairs.insert(self.string(), self.string());
        }
        assert_eq!(pairs["service"], "tns");
        pairs["username"].clone()
    }
}

/// An answer being written.
#[derive(Default)]
struct Reply {
    error: Option<&'static str>,
    signature: &'static str,
    body: Vec<u8>,
}

impl Reply {
    fn of(signature: &'static str) -> Self {
        Self { signature, ..Self::default() }
    }

    fn error(name: &'static str) -> Self {
        Self { error: Some(name), ..Self::default() }
    }

    fn blob(mut self, bytes: &[u8]) -> Self {
        put_number(&mut self.body, bytes.len());
        self.body.extend_from_slice(bytes);
        self
    }

    fn string(self, text: &str) -> Self {
        let mut reply = self.blob(text.as_bytes());
        reply.body.push(0);
        reply
    }

    fn paths(mut self, paths: &[String]) -> Self {
        put_number(&mut self.body, 0);
        let begin = self.body.len();
        for path in paths {
            self = self.string(path);
        }
        let size = u32::try_from(self.body.len() - begin).unwrap();
        self.body[begin - 4..begin].copy_from_slice(&size.to_le_bytes());
        self
    }

    fn message(&self, serial: u32) -> Vec<u8> {
        let mut fields = Vec::new();
        fields.extend_from_slice(&[5, 1, b'u', 0]);
        fields.extend_from_slice(&serial.to_le_bytes());
        if let Some(name) = self.error {
            fields.extend_from_slice(&[4, 1, b's', 0]);
            put_number(&mut fields, name.len());
            fields.extend_from_slice(name.as_bytes());
            fields.push(0);
        } else if !self.signature.is_empty() {
            fields.extend_from_slice(&[8, 1, b'g', 0, u8::try_from(self.signature.len()).unwrap()]);
            fields.extend_from_slice(self.signature.as_bytes());
            fields.push(0);
        }
        let mut message = vec![b'l', if self.error.is_some() { 3 } else { 2 }, 1, 1];
        put_number(&mut message, self.body.len());
        put_number(&mut message, 9);
        put_number(&mut message, fields.len());
        message.extend_from_slice(&fields);
        message.resize(message.len().next_multiple_of(8), 0);
        message.extend_from_slice(&self.body);
        message
    }
}

fn put_number(bytes: &mut Vec<u8>, number: usize) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes.extend_from_slice(&u32::try_from(number).unwrap().to_le_bytes());
}

fn item(provider: &str) -> String {
    format!("{COLLECTION}/{}", provider.replace('-', "_"))
}

fn answer(call: &Call, shared: &mut Shared) -> Reply {
    shared.calls.push(call.member.clone());
    let mut cut = Cut { bytes: &call.body, at: 0 };
    if call.member == "Hello" {
        return Reply::of("s").string(":1.1");
    }
    if shared.mood == Mood::Absent {
        return Reply::error("org.freedesktop.DBus.Error.ServiceUnknown");
    }
    let locked = shared.mood == Mood::Locked;
    let found = |shared: &Shared| shared.keys.keys().find(|provider| item(provider) == call.path).cloned();
    let prompt = if locked { "/org/freedesktop/secrets/prompt/1" } else { "/" };
    match call.member.as_str() {
        "OpenSession" => {
            assert_eq!((cut.string().as_str(), cut.signature().as_str()), ("plain", "s"));
            let mut reply = Reply::of("vo");
            reply.body.extend_from_slice(&[1, b's', 0]);
            reply.string("").string("/org/freedesktop/secrets/session/1")
        }
        "SearchItems" => {
            let user = cut.user();
            let paths: Vec<String> =
                shared.keys.contains_key(&user).then(|| item(&user)).into_iter().collect();
            let (open, shut) = if locked { (Vec::new(), paths) } else { (paths, Vec::new()) };
            Reply::of("aoao").paths(&open).paths(&shut)
        }
        "GetSecret" => match found(shared) {
            Some(provider) if !locked => {
                let key = shared.keys[&provider].clone();
                let reply = Reply::of("(oayays)").string("/org/freedesktop/secrets/session/1");
                reply.blob(&[]).blob(key.as_bytes()).string("text/plain")
            }
            _ => Reply::error("org.freedesktop.Secret.Error.IsLocked"),
        },
        "ReadAlias" => Reply::of("o").string(COLLECTION),
        "CreateItem" => {
            let end = cut.number() as usize;
            cut.align(8);
            let end = cut.at + end;
            let mut user = String::new();
            while cut.at < end {
                cut.align(8);
                let name = cut.string();
                match cut.signature().as_str() {
                    "s" => drop(cut.string()),
                    "a{ss}" => user = cut.user(),
                    other => panic!("{name} of type {other}"),
                }
            }
            cut.align(8);
            let (_session, parameters, secret) = (cut.string(), cut.blob(), cut.blob());
            assert!(parameters.is_empty());
            assert_eq!((cut.string().as_str(), cut.number()), ("text/plain", 1));
            if !locked {
                shared.keys.insert(user.clone(), String::from_utf8(secret).unwrap());
            }
            Reply::of("oo").string(&if locked { "/".to_owned() } else { item(&user) }).string(prompt)
        }
        "Delete" => {
            let provider = found(shared).expect("an item");
            shared.keys.remove(&provider);
            Reply::of("o").string("/")
        }
        "Dismiss" => Reply::of(""),
        other => panic!("nobody calls {other}"),
    }
}
