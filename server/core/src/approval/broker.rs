//! Calls that wait for a person: one broker a session, keyed by call id, whichever agent asked.

use std::sync::Arc;

use tns_protocol::ToolCallId;
use tokio::sync::oneshot;

use super::ApprovalRequest;
use crate::event::Published;
use crate::tool::Args;

/// How a waiting call was settled.
#[derive(Debug, Clone, PartialEq)]
pub enum Settled {
    /// Run it.
    Approved {
        /// With these arguments instead.
        edited: Option<Args>,
        /// Who approved.
        by: String,
    },
    /// Don't run it.
    Rejected {
        /// What the model reads.
        reason: String,
    },
    /// The turn was cancelled.
    Cancelled,
}

/// A call that waits, and who waits for it.
#[derive(Debug)]
pub struct Pending {
    /// What was asked.
    pub request: ApprovalRequest,
    /// The request as it was published, for connections that join later.
    pub published: Arc<Published>,
    reply: oneshot::Sender<Settled>,
}

impl Pending {
    /// Tells the waiting turn. A turn that is gone doesn't mind.
    pub fn settle(self, settled: Settled) {
        drop(self.reply.send(settled));
    }
}

/// The waiting calls of a session, oldest first: at most [`crate::turn::state::MAX_CALLS_AT_ONCE`].
#[derive(Debug, Default)]
pub struct Broker {
    pending: Vec<Pending>,
}

impl Broker {
    /// Adds a call that was published.
    pub fn add(
        &mut self,
        request: ApprovalRequest,
        published: Arc<Published>,
        reply: oneshot::Sender<Settled>,
    ) {
        self.pending.push(Pending { request, published, reply });
    }

    /// Returns the waiting call with this id.
    pub fn find(&self, call: &ToolCallId) -> Option<&Pending> {
        self.pending.iter().find(|pending| pending.request.call == *call)
    }

    /// Takes the waiting call with this id: the first answer wins, a second one finds nothing.
    pub fn take(&mut self, call: &ToolCallId) -> Option<Pending> {
        let at = self.pending.iter().position(|pending| pending.request.call == *call)?;
        Some(self.pending.remove(at))
    }

    /// Takes every waiting call.
    pub fn take_all(&mut self) -> Vec<Pending> {
        std::mem::take(&mut self.pending)
    }

    /// Returns the waiting calls, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Pending> {
        self.pending.iter()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }
}
