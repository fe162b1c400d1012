//! What a client needs of the world around it: streams to a server, and chance. A program that brings its own
//! may let a client talk through anything, and have it do the same twice.

use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A connection to a server, of whatever kind.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

type Dialling = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

/// How a client's socket reaches the server, and what spreads its attempts. By default: TCP, and the system's
/// chance. REST calls do not go this way.
#[derive(Clone)]
pub struct Network {
    dial: Arc<dyn Fn(String) -> Dialling + Send + Sync>,
    chance: Arc<dyn Fn() -> f64 + Send + Sync>,
}

impl Network {
    /// Makes one of a way to connect to `HOST:PORT` and of a number in 0..1 for each wait.
    pub fn new<F>(
        dial: impl Fn(String) -> F + Send + Sync + 'static,
        chance: impl Fn() -> f64 + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = io::Result<Box<dyn Stream>>> + Send + 'static,
    {
        Self { dial: Arc::new(move |address| Box::pin(dial(address))), chance: Arc::new(chance) }
    }

    pub(crate) async fn dial(&self, address: String) -> io::Result<Counted> {
        Ok(Counted { stream: (self.dial)(address).await?, heard: Heard::default() })
    }

    pub(crate) fn chance(&self) -> f64 {
        (self.chance)()
    }
}

impl Default for Network {
    fn default() -> Self {
        Self::new(tcp, random_fraction)
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Network")
    }
}

/// How many bytes came so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Heard(Arc<AtomicU64>);

impl Heard {
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A stream that counts what comes.
pub(crate) struct Counted {
    stream: Box<dyn Stream>,
    heard: Heard,
}

impl Counted {
    pub(crate) fn heard(&self) -> Heard {
        self.heard.clone()
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let came = buffer.filled().len().saturating_sub(before) as u64;
        self.heard.0.fetch_add(came, Ordering::Relaxed);
        read
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

async fn tcp(address: String) -> io::Result<Box<dyn Stream>> {
    let stream = TcpStream::connect(address).await?;
    // What a person does is small; waiting to fill a packet would hold it back.
    stream.set_nodelay(true)?;
    Ok(Box::new(stream))
}

/// A number in 0..1 from the seed that the standard library draws for its hash maps.
fn random_fraction() -> f64 {
    let bits = u32::try_from(RandomState::new().build_hasher().finish() >> 32).unwrap_or(0);
    f64::from(bits) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_fractions_stay_in_range_and_differ() {
        let drawn: Vec<f64> = (0..64).map(|_| random_fraction()).collect();
        assert!(drawn.iter().all(|fraction| (0.0..1.0).contains(fraction)));
        assert!(drawn.iter().any(|fraction| *fraction != drawn[0]));
    }
}
