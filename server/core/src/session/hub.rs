//! What is told of all sessions of a server at once: that something was stored, and what is only shown.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::watch;

use crate::event::{DurableEvent, Event, Published, Subscriber};

/// Tells readers of the whole server what happens. What is stored they read from the store, in its order.
#[derive(Clone)]
pub struct Hub {
    commits: watch::Sender<u64>,
    followers: Arc<Mutex<Vec<Weak<dyn Subscriber>>>>,
}

impl Default for Hub {
    fn default() -> Self {
        Self { commits: watch::Sender::new(0), followers: Arc::default() }
    }
}

impl Hub {
    /// Returns a counter that changes whenever something was stored.
    pub fn commits(&self) -> watch::Receiver<u64> {
        self.commits.subscribe()
    }

    /// Sends a subscriber what it can't read from the store, of every session, while somebody holds it: what is
    /// only shown, and the last event of a session, which is erased with it.
    pub fn follow(&self, subscriber: &Arc<dyn Subscriber>) {
        let mut followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        followers.retain(|follower| follower.strong_count() > 0);
        followers.push(Arc::downgrade(subscriber));
    }

    pub(crate) fn announce(&self, events: &[Arc<Published>]) {
        if events.iter().any(|event| matches!(event.event, Event::Durable(_))) {
            self.commits.send_modify(|count| *count += 1);
        }
        let followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        if followers.is_empty() {
            return;
        }
        let shown: Vec<Arc<Published>> =
            events.iter().filter(|event| is_gone_from_the_store(event)).cloned().collect();
        for follower in followers.iter().filter_map(Weak::upgrade) {
            follower.deliver(&shown);
        }
    }
}

fn is_gone_from_the_store(event: &Published) -> bool {
    match &event.event {
        Event::Live(_) => true,
        Event::Durable(event) => matches!(**event, DurableEvent::Closing(_)),
        Event::Answer(_) => false,
    }
}
