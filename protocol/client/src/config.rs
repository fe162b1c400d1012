//! How a client connects, and what it does when the connection is lost.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::network::Network;

/// What a client does when its connection is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reconnect {
    /// Ends with [`ClientEvent::Closed`](crate::ClientEvent::Closed).
    Never,
    /// Tries again, at first after a quarter of a second, later every eight seconds, until the client is dropped.
    Backoff,
}

/// Where to connect and how.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// The server's address: `http://host:port`.
    pub url: String,
    /// What to do when the connection is lost.
    pub reconnect: Reconnect,
    /// Asked where the server is now, each time that nobody answers at the address.
    pub rediscover: Option<Rediscover>,
    /// How the server is reached.
    pub network: Network,
    /// The client only looks at its sessions: no message that waits in one begins because it is there.
    pub watch: bool,
}

impl ClientConfig {
    /// Connects to one address, and to no other one.
    pub fn new(url: impl Into<String>, reconnect: Reconnect) -> Self {
        Self { url: url.into(), reconnect, rediscover: None, network: Network::default(), watch: false }
    }
}

type Answer = Pin<Box<dyn Future<Output = Option<String>> + Send>>;

/// Finds the server again where it may have moved. It may take its time; a client that is dropped meanwhile
/// drops the search too.
#[derive(Clone)]
pub struct Rediscover(Arc<dyn Fn() -> Answer + Send + Sync>);

impl Rediscover {
    /// Wraps a search, which returns the address, or `None` where there is no server now.
    pub fn new<F>(search: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Option<String>> + Send + 'static,
    {
        Self(Arc::new(move || Box::pin(search())))
    }

    pub(crate) async fn ask(&self) -> Option<String> {
        (self.0)().await
    }
}

impl fmt::Debug for Rediscover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rediscover")
    }
}
