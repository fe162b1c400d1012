//! A session's name and its end: renaming, erasing, and what becomes of a temporary one.

use super::{Actor, Closing, Lifetime};
use crate::event::{Answer, DurableEvent};
use crate::session::ReplyTo;
use crate::session::port::Outgoing;
use crate::store::StoreError;

impl Actor {
    pub(super) async fn on_rename(&mut self, title: Option<String>, to: ReplyTo) {
        if title == self.title {
            return self.reply(to, Answer::Done);
        }
        let events = vec![Outgoing::durable(DurableEvent::Renamed(title.clone()))];
        match self.commit_titled(None, events, None, Some(title), None).await {
            Ok(_) => self.reply(to, Answer::Done),
            Err(error) => self.refuse_for_store(to, "session_rename", &error),
        }
    }

    /// Takes no more commands, ends what runs, then erases the session.
    pub(super) async fn on_delete(&mut self, reason: String, to: ReplyTo) {
        self.closing = Some(Closing { reason, asked: vec![to] });
        self.on_cancel(None).await;
    }

    /// Erases the session; `false`: the store could not, and the session goes on.
    pub(super) async fn erase(&mut self) -> bool {
        let Some(Closing { reason, asked }) = self.closing.take() else { return false };
        let closed = self.close_log(reason).await;
        for to in asked {
            match &closed {
                Ok(()) => self.reply(to, Answer::Done),
                Err(error) => self.refuse_for_store(to, "session_delete", error),
            }
        }
        closed.is_ok()
    }

    async fn close_log(&mut self, reason: String) -> Result<(), StoreError> {
        // Who is connected learns that it ends before it is gone.
        let events = vec![Outgoing::durable(DurableEvent::Closing(reason))];
        self.commit(None, events, None, None).await?;
        self.deps.store.delete_session(self.identity.key).await.map(drop)
    }

    /// Nobody is there any more: a temporary session is gone for good.
    pub(super) async fn forget(&mut self) {
        if self.lifetime == Lifetime::Temporary
            && let Err(error) = self.deps.store.delete_session(self.identity.key).await
        {
            tracing::warn!(session = %self.identity.id, %error, "a temporary session stays in memory");
        }
    }
}
