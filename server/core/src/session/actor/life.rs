//! A session's name and its end: renaming, erasing, and what becomes of a temporary one.

use std::sync::Arc;

use tns_protocol::{ErrorCode, Timestamp};

use super::{Actor, Closing, Lifetime};
use crate::event::{Answer, DurableEvent, Event, Published, Renamed};
use crate::session::ReplyTo;
use crate::session::port::Outgoing;
use crate::store::{SessionState, TitleOf};

impl Actor {
    pub(super) async fn on_rename(&mut self, title: Option<String>, to: ReplyTo) {
        if title == self.title && self.state.title == TitleOf::Settled {
            return self.reply(to, Answer::Done);
        }
        let events = vec![Outgoing::durable(DurableEvent::Renamed(Renamed::to(title.clone())))];
        let next = SessionState { title: TitleOf::Settled, ..self.state.clone() };
        match self.commit_titled(None, events, Some(next), Some(title), None).await {
            Ok(_) => self.reply(to, Answer::Done),
            Err(error) => self.refuse_for_store(to, "session_rename", &error),
        }
    }

    /// Takes no more commands, ends what runs, then erases the session.
    pub(super) async fn on_delete(&mut self, reason: String, to: ReplyTo) {
        self.closing = Some(Closing { reason, to });
        self.on_cancel(None).await;
    }

    /// Erases the session; `false`: the store could not, and the session goes on.
    pub(super) async fn erase(&mut self) -> bool {
        let Some(Closing { reason, to }) = self.closing.take() else { return false };
        if let Err(error) = self.deps.store.delete_session(self.identity.key).await {
            self.refuse_for_store(to, "session_delete", &error);
            self.start_next_turn().await;
            return false;
        }
        // Behind the log's last event, though no log holds it: it is erased.
        let closing = Published {
            session: self.identity.id.clone(),
            at: Timestamp::now(),
            seq: Some(self.head_seq + 1),
            turn: None,
            re: None,
            event: Event::Durable(Box::new(DurableEvent::Closing(reason))),
            encoded: Default::default(),
        };
        self.announce(&[Arc::new(closing)]);
        self.reply(to, Answer::Done);
        // What came meanwhile is answered, not dropped.
        self.commands.close();
        while let Ok(letter) = self.commands.try_recv() {
            if let Some((to, request)) = letter.command.reply_to() {
                self.refuse(to, request, ErrorCode::SessionNotFound, "the session was deleted");
            }
        }
        true
    }

    /// Nobody is there any more: a temporary session is gone for good.
    pub(super) async fn forget(&mut self) {
        self.add_up(Vec::new()).await;
        if self.lifetime == Lifetime::Temporary
            && let Err(error) = self.deps.store.delete_session(self.identity.key).await
        {
            tracing::warn!(session = %self.identity.id, %error, "a temporary session stays in memory");
        }
    }
}
