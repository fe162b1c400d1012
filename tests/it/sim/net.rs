//! A network between the two hosts of a run, the server's and the clients': TCP connections that are slow, held
//! up, cut in the middle of a frame, or lost without a word.
//!
//! Each host has a clock of its own that stands while the other runs, so times are the network's: milliseconds
//! since the run began.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::chance::Chance;
use super::trace::Trace;

/// Bytes that are on their way in one direction before the writer waits.
const WINDOW: usize = 64 << 10;
/// Longest way of a piece, in milliseconds.
const SLOWEST: u64 = 12;
/// Pause before a host that does not answer is asked again.
const KNOCK_AGAIN: Duration = Duration::from_secs(1);
/// When what is lost arrives.
const NEVER: u64 = u64::MAX;

/// A clock of a host against the network's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    began: Instant,
    at: u64,
}

impl Clock {
    /// Takes the clock of the runtime that this is called in, which begins at `at`.
    pub(super) fn starting(at: u64) -> Self {
        Self { began: Instant::now(), at }
    }

    pub(super) fn now(&self) -> u64 {
        self.at + u64::try_from(self.began.elapsed().as_millis()).unwrap()
    }

    /// Returns a time of the network's on this clock.
    pub(super) fn instant(&self, at: u64) -> Instant {
        self.began + Duration::from_millis(at - self.at)
    }
}

/// The ends of a connection, and the directions: the index is who reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Client = 0,
    Server = 1,
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// The network. Clones share it.
#[derive(Clone)]
pub(super) struct Net(Arc<Mutex<Inner>>);

struct Inner {
    chance: Chance,
    trace: Trace,
    links: BTreeMap<u64, Link>,
    opened: u64,
    /// Until when nothing goes to and from each client.
    blocked: BTreeMap<usize, u64>,
    server: ServerHost,
    /// The time outside of both hosts.
    now: u64,
    /// Grows with each piece that is sent or taken.
    traffic: u64,
}

/// What is at the server's address.
enum ServerHost {
    Listens {
        clock: Clock,
        waiting: VecDeque<End>,
        waker: Option<Waker>,
    },
    /// No program listens: the host refuses.
    Refuses,
    /// The host is gone, and says nothing.
    Gone,
}

struct Link {
    client: usize,
    /// By who reads.
    pipes: [Pipe; 2],
    /// Who let go of its end.
    left: [bool; 2],
    /// The way is lost: nothing arrives any more, and nobody is told.
    lost: bool,
}

#[derive(Default)]
struct Pipe {
    pieces: VecDeque<(u64, Vec<u8>)>,
    bytes: usize,
    /// When the last piece arrives; a later one never comes earlier.
    last: u64,
    /// What comes after the pieces, and when.
    end: Option<(u64, io::Result<()>)>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Pipe {
    fn wake(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }

    fn end(&mut self, at: u64, how: io::Result<()>) {
        self.end = Some((at.max(self.last), how));
        self.wake();
    }

    fn is_reset(&self) -> bool {
        matches!(self.end, Some((_, Err(_))))
    }
}

fn reset() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

impl fmt::Debug for Net {
    /// Names the connections on which something goes on.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.lock();
        let busy = inner.links.iter().map(|(id, link)| {
            let bytes = (link.pipes[0].bytes, link.pipes[1].bytes);
            format!("{id}: client {}, lost {}, left {:?}, bytes {bytes:?}", link.client, link.lost, link.left)
        });
        f.debug_list().entries(busy).finish()
    }
}

impl Net {
    pub(super) fn new(chance: Chance, trace: Trace) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            chance,
            trace,
            links: BTreeMap::new(),
            opened: 0,
            blocked: BTreeMap::new(),
            server: ServerHost::Refuses,
            now: 0,
            traffic: 0,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    /// Sets the time outside of both hosts; returns how much went over the network until now.
    pub(super) fn tick(&self, now: u64) -> u64 {
        let mut inner = self.lock();
        inner.now = now;
        inner.traffic
    }

    /// A server listens from now on.
    pub(super) fn listen(&self, clock: Clock) {
        self.lock().server = ServerHost::Listens { clock, waiting: VecDeque::new(), waker: None };
    }

    /// Waits for a client.
    pub(super) async fn accept(&self) -> End {
        poll_fn(|context| match &mut self.lock().server {
            ServerHost::Listens { waiting, waker, .. } => match waiting.pop_front() {
                Some(end) => Poll::Ready(end),
                None => {
                    *waker = Some(context.waker().clone());
                    Poll::Pending
                }
            },
            ServerHost::Refuses | ServerHost::Gone => Poll::Pending,
        })
        .await
    }

    /// The server's program ends: its host closes what it had, and refuses. Call it before the program's tasks
    /// are dropped: a runtime drops them in an order that depends on what else the process ran.
    pub(super) fn refuse(&self) {
        let mut inner = self.lock();
        let links: Vec<u64> = inner.links.keys().copied().collect();
        links.into_iter().for_each(|id| inner.leave(id, Side::Server));
        let before = std::mem::replace(&mut inner.server, ServerHost::Refuses);
        drop(inner);
        drop(before);
    }

    /// The server's host is gone from one moment to the next: nobody is told. Call it before its program's tasks
    /// are dropped.
    pub(super) fn vanish(&self) {
        let mut inner = self.lock();
        for link in inner.links.values_mut().filter(|link| !link.left[Side::Server as usize]) {
            link.left[Side::Server as usize] = true;
            // What it had sent is still on its way; what comes is not taken.
            let taken = &mut link.pipes[Side::Server as usize];
            taken.pieces.clear();
            taken.bytes = 0;
            taken.wake();
        }
        let before = std::mem::replace(&mut inner.server, ServerHost::Gone);
        drop(inner);
        drop(before);
    }

    /// Opens a connection to the server for a client.
    pub(super) async fn connect(&self, client: usize, clock: Clock) -> io::Result<End> {
        loop {
            let way = {
                let inner = self.lock();
                let blocked = inner.blocked.get(&client).copied().unwrap_or(0);
                inner.chance.within(1, SLOWEST) + blocked.saturating_sub(clock.now())
            };
            sleep(Duration::from_millis(way)).await;
            if let Some(answer) = self.knock(client, clock) {
                return answer;
            }
            sleep(KNOCK_AGAIN).await;
        }
    }

    /// Asks the server's host for a connection; `None`: nobody answers.
    fn knock(&self, client: usize, clock: Clock) -> Option<io::Result<End>> {
        let mut inner = self.lock();
        if inner.blocked.get(&client).is_some_and(|until| *until > clock.now()) {
            return None;
        }
        let id = inner.opened;
        let (waker, server) = match &mut inner.server {
            ServerHost::Listens { clock, waker, .. } => (waker.take(), *clock),
            ServerHost::Refuses => return Some(Err(io::ErrorKind::ConnectionRefused.into())),
            ServerHost::Gone => return None,
        };
        inner.opened += 1;
        inner.traffic += 1;
        inner.trace.add(clock.now(), format_args!("net: client {client} opens {id}"));
        let link = Link { client, pipes: Default::default(), left: [false; 2], lost: false };
        inner.links.insert(id, link);
        let theirs = End::new(self.clone(), id, Side::Server, server);
        if let ServerHost::Listens { waiting, .. } = &mut inner.server {
            waiting.push_back(theirs);
        }
        drop(inner);
        waker.into_iter().for_each(Waker::wake);
        Some(Ok(End::new(self.clone(), id, Side::Client, clock)))
    }

    /// Returns the connections that both ends hold.
    pub(super) fn open(&self) -> Vec<u64> {
        let inner = self.lock();
        let open = inner.links.iter().filter(|(_, link)| link.left == [false; 2] && !link.lost);
        open.map(|(id, _)| *id).collect()
    }

    /// Whether everything was read that was sent, and everybody has noticed which connections are no more.
    /// What some clients never read does not count.
    pub(super) fn is_idle(&self, but_for: &[usize]) -> bool {
        let inner = self.lock();
        let mut links = inner.links.values().filter(|link| !but_for.contains(&link.client));
        links.all(|link| {
            let unread = link.pipes.iter().any(|pipe| !pipe.pieces.is_empty() || pipe.end.is_some());
            !link.lost && link.left == [false; 2] && !unread
        })
    }

    /// Cuts a connection: both ends are told, and what was on its way arrives up to any byte of it.
    pub(super) fn cut(&self, id: u64) {
        let mut inner = self.lock();
        let (now, chance) = (inner.now, inner.chance.clone());
        let Some(link) = inner.links.get_mut(&id) else { return };
        for pipe in &mut link.pipes {
            let mut keeps = usize::try_from(chance.within(0, pipe.bytes as u64)).unwrap();
            for (_, piece) in &mut pipe.pieces {
                piece.truncate(keeps);
                keeps -= piece.len();
            }
            pipe.pieces.retain(|(_, piece)| !piece.is_empty());
            pipe.bytes = pipe.pieces.iter().map(|(_, piece)| piece.len()).sum();
            pipe.end(now, Err(reset()));
        }
    }

    /// Loses a connection: nothing arrives any more, and neither end is told.
    pub(super) fn lose(&self, id: u64) {
        let mut inner = self.lock();
        let now = inner.now;
        let Some(link) = inner.links.get_mut(&id) else { return };
        link.lost = true;
        for pipe in &mut link.pipes {
            pipe.pieces.iter_mut().filter(|(at, _)| *at > now).for_each(|(at, _)| *at = NEVER);
            pipe.last = NEVER;
            pipe.end = None;
        }
    }

    /// Loses all connections of a client.
    pub(super) fn lose_client(&self, client: usize) {
        let links: Vec<u64> = {
            let inner = self.lock();
            inner.links.iter().filter(|(_, link)| link.client == client).map(|(id, _)| *id).collect()
        };
        links.into_iter().for_each(|id| self.lose(id));
    }

    /// Holds up everything to and from a client until a time.
    pub(super) fn block(&self, client: usize, until: u64) {
        let mut inner = self.lock();
        let now = inner.now;
        inner.blocked.insert(client, until);
        for link in inner.links.values_mut().filter(|link| link.client == client && !link.lost) {
            for pipe in &mut link.pipes {
                pipe.pieces.iter_mut().filter(|(at, _)| *at > now).for_each(|(at, _)| *at = until.max(*at));
                if let Some((at, _)) = &mut pipe.end {
                    *at = until.max(*at);
                }
                pipe.last = pipe.last.max(until);
            }
        }
    }
}

/// One end of a connection.
pub(super) struct End {
    net: Net,
    link: u64,
    side: Side,
    clock: Clock,
    waits: Option<Pin<Box<Sleep>>>,
}

impl End {
    fn new(net: Net, link: u64, side: Side, clock: Clock) -> Self {
        Self { net, link, side, clock, waits: None }
    }
}

/// What a reader finds.
enum Found {
    /// It was given something.
    Taken,
    /// Nothing more comes.
    Ended(io::Result<()>),
    /// Something is on its way.
    Arrives(u64),
    /// Nothing is.
    Nothing,
}

impl Inner {
    /// An end is let go: the other one is told, unless the way is lost or its host vanished before.
    fn leave(&mut self, id: u64, side: Side) {
        let Some(link) = self.links.get_mut(&id) else { return };
        if std::mem::replace(&mut link.left[side as usize], true) || link.lost {
            return;
        }
        let own = &mut link.pipes[side as usize];
        let unread = std::mem::take(&mut own.bytes) > 0;
        own.pieces.clear();
        own.writer.take().into_iter().for_each(Waker::wake);
        let pipe = &mut link.pipes[side.other() as usize];
        if pipe.end.is_none() {
            let at = self.now + self.chance.within(1, SLOWEST);
            pipe.end(at, if unread { Err(reset()) } else { Ok(()) });
        }
    }

    fn read(&mut self, id: u64, side: Side, now: u64, buffer: &mut ReadBuf<'_>) -> Found {
        let Some(link) = self.links.get_mut(&id) else { return Found::Ended(Err(reset())) };
        let pipe = &mut link.pipes[side as usize];
        let found = match (pipe.pieces.front_mut(), &pipe.end) {
            (Some((at, piece)), _) if *at <= now => {
                let taken = piece.len().min(buffer.remaining());
                buffer.put_slice(&piece[..taken]);
                piece.drain(..taken);
                if piece.is_empty() {
                    pipe.pieces.pop_front();
                }
                pipe.bytes -= taken;
                Found::Taken
            }
            (None, Some((at, how))) if *at <= now => {
                Found::Ended(if how.is_ok() { Ok(()) } else { Err(reset()) })
            }
            (Some((NEVER, _)), _) | (None, None) => Found::Nothing,
            (Some((at, _)), _) => Found::Arrives(*at),
            (None, Some((at, _))) => Found::Arrives(*at),
        };
        if matches!(found, Found::Taken) {
            pipe.writer.take().into_iter().for_each(Waker::wake);
            self.traffic += 1;
        }
        found
    }
}

impl AsyncRead for End {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let (now, net) = (self.clock.now(), self.net.clone());
            let mut inner = net.lock();
            let found = inner.read(self.link, self.side, now, buffer);
            if let (Found::Arrives(_) | Found::Nothing, Some(link)) =
                (&found, inner.links.get_mut(&self.link))
            {
                link.pipes[self.side as usize].reader = Some(context.waker().clone());
            }
            drop(inner);
            let arrives = match found {
                Found::Taken => return Poll::Ready(Ok(())),
                Found::Ended(how) => return Poll::Ready(how),
                Found::Nothing => return Poll::Pending,
                Found::Arrives(at) => self.clock.instant(at),
            };
            let waits = self.waits.get_or_insert_with(|| Box::pin(sleep_until(arrives)));
            if waits.deadline() != arrives {
                waits.as_mut().reset(arrives);
            }
            ready!(waits.as_mut().poll(context));
        }
    }
}

impl AsyncWrite for End {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let now = self.clock.now();
        let mut inner = self.net.lock();
        let (chance, trace) = (inner.chance.clone(), inner.trace.clone());
        let is_gone = matches!(inner.server, ServerHost::Gone);
        let Inner { links, blocked, traffic, .. } = &mut *inner;
        let Some(link) = links.get_mut(&self.link) else { return Poll::Ready(Err(reset())) };
        let blocked = blocked.get(&link.client).copied().unwrap_or(0);
        *traffic += 1;
        if link.pipes[self.side as usize].is_reset() || link.pipes[self.side.other() as usize].is_reset() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let way = chance.within(1, SLOWEST);
        if link.left[self.side.other() as usize] && !link.lost {
            // Nobody takes it; the other host says so, if it is there.
            if !(is_gone && self.side == Side::Client) {
                link.pipes[self.side as usize].end((now + way).max(blocked), Err(reset()));
            }
            return Poll::Ready(Ok(bytes.len()));
        }
        let pipe = &mut link.pipes[self.side.other() as usize];
        let room = WINDOW.saturating_sub(pipe.bytes);
        if room == 0 {
            pipe.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        let mut taken = bytes.len().min(room);
        if taken > 1 && chance.percent(10) {
            // A frame arrives in two pieces.
            taken = usize::try_from(chance.within(1, taken as u64 - 1)).unwrap();
        }
        let arrives = if link.lost { NEVER } else { (now + way).max(pipe.last).max(blocked) };
        pipe.last = arrives;
        pipe.bytes += taken;
        pipe.pieces.push_back((arrives, bytes[..taken].to_vec()));
        pipe.reader.take().into_iter().for_each(Waker::wake);
        trace.add(now, format_args!("net: {} {:?} writes {taken}", self.link, self.side));
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let now = self.clock.now();
        let mut inner = self.net.lock();
        let chance = inner.chance.clone();
        if let Some(link) = inner.links.get_mut(&self.link)
            && !link.lost
        {
            let pipe = &mut link.pipes[self.side.other() as usize];
            if pipe.end.is_none() {
                pipe.end(now + chance.within(1, SLOWEST), Ok(()));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let mut inner = self.net.lock();
        inner.leave(self.link, self.side);
        if inner.links.get(&self.link).is_some_and(|link| link.left == [true; 2]) {
            inner.links.remove(&self.link);
        }
    }
}
