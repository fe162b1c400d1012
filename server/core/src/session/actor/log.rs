//! What a session says of its log: where it stands, where a client goes on live, and what waits in it.

use std::sync::Arc;

use tns_protocol::{ErrorCode, MessageId, Seq};

use super::Actor;
use crate::event::{
    Answer, DurableEvent, EventKind, Log, QueueEdited, ResumePoint, TurnInterrupted, UserMessage,
};
use crate::history;
use crate::message::Part;
use crate::session::ReplyTo;
use crate::session::port::Outgoing;
use crate::store::{SessionState, StoreError};
use crate::text_of;

/// What a waiting message is made of.
const WAITING: &[EventKind] = &[EventKind::UserMessage, EventKind::QueueEdited];

impl Actor {
    pub(super) fn on_hello(&self, to: ReplyTo) {
        self.reply(to, Answer::Greeting { epoch: self.epoch.clone(), head_seq: self.head_seq });
    }

    /// Says where the log ends now. What is announced after this is delivered after it, so that a reader of
    /// the log up to here misses nothing and is sent nothing twice.
    pub(super) fn on_resume(&self, after: Seq, epoch: Option<&str>, to: ReplyTo) {
        let head_seq = self.head_seq;
        let reason = if epoch.is_some_and(|epoch| epoch != self.epoch) {
            "the server's store was made anew".to_owned()
        } else if after > head_seq {
            format!("the log ends at {head_seq}, before {after}")
        } else {
            let active = self.running_reply().and(self.running.as_ref()).map(|running| running.reply.clone());
            let pending = self.broker.iter().map(|pending| pending.request.clone()).collect();
            let log = Log { store: Arc::clone(&self.deps.store), session: self.identity.key };
            let point = ResumePoint { log, after, head_seq, active, pending };
            return self.reply(to, Answer::Resume(Box::new(point)));
        };
        self.reply(to, Answer::ResyncRequired { reason, epoch: self.epoch.clone(), head_seq });
    }

    pub(super) async fn on_queue_list(&self, to: ReplyTo) {
        let mut queue = Vec::new();
        for turn in self.state.open_turns.iter().filter(|turn| turn.waiting) {
            match self.waiting_message(&turn.id).await {
                Ok(Some(message)) => queue.push((turn.id.clone(), text_of(&message.parts))),
                Ok(None) => {}
                Err(error) => return self.refuse_for_store(to, "queue_list", &error),
            }
        }
        self.reply(to, Answer::Queue(queue));
    }

    pub(super) async fn on_queue_remove(&mut self, id: &MessageId, to: ReplyTo) {
        if !self.waits(id) {
            return self.refuse_not_waiting(id, to, "queue_remove");
        }
        let mut next = self.state.clone();
        next.open_turns.retain(|turn| turn.id != *id);
        let removed = TurnInterrupted {
            usage: Default::default(),
            reason: "taken out of the queue".to_owned(),
            response: None,
        };
        let events = vec![
            Outgoing::durable(DurableEvent::QueueRemoved(id.clone())),
            Outgoing::durable(DurableEvent::Interrupted(removed)),
        ];
        self.change_queue(id, events, next, to, "queue_remove").await;
    }

    pub(super) async fn on_queue_edit(&mut self, id: &MessageId, text: String, to: ReplyTo) {
        if !self.waits(id) {
            return self.refuse_not_waiting(id, to, "queue_edit");
        }
        let message = match self.waiting_message(id).await {
            Ok(Some(message)) => message,
            Ok(None) => return self.refuse_not_waiting(id, to, "queue_edit"),
            Err(error) => return self.refuse_for_store(to, "queue_edit", &error),
        };
        // Pictures stay; the words are replaced.
        let others = message.parts.into_iter().filter(|part| !matches!(part, Part::Text(_)));
        let parts = std::iter::once(Part::Text(text)).chain(others).collect();
        let edited = QueueEdited { id: id.clone(), parts };
        let events = vec![Outgoing::durable(DurableEvent::QueueEdited(edited))];
        let next = self.state.clone();
        self.change_queue(id, events, next, to, "queue_edit").await;
    }

    async fn change_queue(
        &mut self,
        turn: &MessageId,
        events: Vec<Outgoing>,
        next: SessionState,
        to: ReplyTo,
        request: &'static str,
    ) {
        match self.commit(Some(turn), events, Some(next), None).await {
            Ok(_) => self.reply(to, Answer::Done),
            Err(error) => self.refuse_for_store(to, request, &error),
        }
    }

    fn waits(&self, id: &MessageId) -> bool {
        self.state.open_turns.iter().any(|turn| turn.waiting && turn.id == *id)
    }

    fn refuse_not_waiting(&self, id: &MessageId, to: ReplyTo, request: &'static str) {
        let message = format!("no message {id} waits: its turn has begun, or it was taken out");
        self.refuse(to, request, ErrorCode::NotFound, message);
    }

    /// Reads a stored message as it holds now, with its edits.
    pub(super) async fn waiting_message(&self, id: &MessageId) -> Result<Option<UserMessage>, StoreError> {
        let mut found: Option<UserMessage> = None;
        let store = Arc::clone(&self.deps.store);
        history::visit(store.as_ref(), self.identity.key, WAITING, |row| match row.event {
            DurableEvent::UserMessage(message) if message.id == *id => found = Some(message),
            DurableEvent::QueueEdited(edited) if edited.id == *id => {
                if let Some(message) = &mut found {
                    message.parts = edited.parts;
                }
            }
            _ => {}
        })
        .await?;
        Ok(found)
    }
}
