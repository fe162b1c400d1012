//! Trying again after a loss: when, how often, and where. No other file knows of it.

use std::time::Duration;

use tokio::time::Instant;

use crate::address::SharedAddress;
use crate::config::{Reconnect, Rediscover};
use crate::connection::{self, End, Link, Socket};
use crate::events::ClientEvent;
use crate::network::Network;
use crate::{Address, ClientError};

/// The first wait.
const FIRST_DELAY: Duration = Duration::from_millis(250);
/// The longest wait; also how long a connection must live before the waits begin anew.
const LONGEST_DELAY: Duration = Duration::from_secs(8);

/// Where to connect again, and whether.
pub(crate) struct Again {
    pub(crate) address: SharedAddress,
    pub(crate) policy: Reconnect,
    pub(crate) rediscover: Option<Rediscover>,
    pub(crate) network: Network,
}

/// Runs the socket, and the ones after it, until the client is done or the policy gives up.
pub(crate) async fn keep(socket: Socket, mut link: Link, again: Again) {
    let mut backoff = Backoff::default();
    let mut socket = socket;
    loop {
        let opened = Instant::now();
        let reason = match connection::run(socket, &mut link).await {
            End::Finished => return,
            End::Unreadable(reason) => return close(&link, reason).await,
            End::Lost(reason) if again.policy == Reconnect::Never => return close(&link, reason).await,
            End::Lost(reason) => reason,
        };
        tracing::debug!(reason, "connection lost");
        if opened.elapsed() >= LONGEST_DELAY {
            backoff = Backoff::default();
        }
        let Some(next) = reopen(&mut link, &again, &mut backoff, reason).await else { return };
        socket = next;
        let mut batch = vec![ClientEvent::Reconnected];
        {
            let mut sessions = link.followed.lock();
            sessions.reconnected();
            batch.extend(sessions.missed());
        }
        if link.events.send(batch).await.is_err() {
            return;
        }
    }
}

/// Tries until a socket is open; `None` when the client is done or trying again is of no use.
async fn reopen(link: &mut Link, again: &Again, backoff: &mut Backoff, mut reason: String) -> Option<Socket> {
    loop {
        let retry_in = backoff.next(again.network.chance());
        link.events.send(vec![ClientEvent::Disconnected { reason, retry_in }]).await.ok()?;
        let attempt = async {
            tokio::time::sleep(retry_in).await;
            open(again).await
        };
        let opened = tokio::select! {
            biased;
            opened = attempt => opened,
            () = link.closing.cancelled() => return None,
            () = link.events.closed() => return None,
        };
        match opened {
            Ok(socket) => return Some(socket),
            Err(error @ ClientError::Refused { status: 400..=499, .. }) => {
                close(link, error.to_string()).await;
                return None;
            }
            Err(error) => reason = error.to_string(),
        }
    }
}

/// Connects; where nobody answers, asks where the server is now and connects there.
async fn open(again: &Again) -> Result<Socket, ClientError> {
    let before = again.address.get();
    let unreachable = match connection::open(&again.network, &before).await {
        // Another program may have the port by now.
        Err(error @ (ClientError::Unreachable(_) | ClientError::Protocol(_))) => error,
        opened => return opened,
    };
    let Some(rediscover) = &again.rediscover else { return Err(unreachable) };
    let Some(url) = rediscover.ask().await else { return Err(unreachable) };
    let found = Address::parse(&url)?;
    tracing::debug!(url, "the server is elsewhere now");
    let socket = connection::open(&again.network, &found).await?;
    again.address.set(found);
    Ok(socket)
}

async fn close(link: &Link, reason: String) {
    // Nobody listens any more: then nobody misses the reason.
    let _ = link.events.send(vec![ClientEvent::Closed { reason }]).await;
}

/// Doubling waits.
struct Backoff {
    step: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { step: FIRST_DELAY }
    }
}

impl Backoff {
    /// Returns the next wait: three quarters of the step and up to a quarter more, by `fraction` in 0..1, so
    /// that the clients of a restarted server don't all come at once.
    fn next(&mut self, fraction: f64) -> Duration {
        let step = self.step;
        self.step = (step * 2).min(LONGEST_DELAY);
        step.mul_f64(0.75 + 0.25 * fraction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_from_a_quarter_second_to_eight_seconds() {
        let mut backoff = Backoff::default();
        let waits: Vec<u128> = (0..8).map(|_| backoff.next(1.0).as_millis()).collect();
        assert_eq!(waits, [250, 500, 1000, 2000, 4000, 8000, 8000, 8000]);
        let mut backoff = Backoff::default();
        let waits: Vec<u128> = (0..3).map(|_| backoff.next(0.0).as_millis()).collect();
        assert_eq!(waits, [187, 375, 750]);
    }
}
