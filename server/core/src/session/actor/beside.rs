//! Work of an agent that is no turn: a summary that somebody asked for, and a title that nobody did. Like a turn it
//! runs alone, so that a session never calls two models at once.

use std::sync::Arc;

use tns_protocol::{AgentId, ErrorCode, MessageId, Timestamp};

use super::turns::{MESSAGES, NO_AGENT};
use super::{Actor, Running, Work};
use crate::agent::Agent;
use crate::event::{Answer, DurableEvent, LiveEvent, Renamed};
use crate::session::port::{Outgoing, Titled};
use crate::session::{ReplyTo, Titles};
use crate::store::{EventQuery, SessionState, TitleOf};
use crate::text_of;
use crate::turn::driver::TurnTask;
use crate::usage::UsageRow;

/// Messages among which the user's first one is looked for.
const MAX_LOOKED_AT: usize = 32;

impl Actor {
    /// Returns the agent of this id; `None`: the first one.
    pub(super) fn agent(&self, id: Option<&AgentId>) -> Option<&Agent> {
        match id {
            Some(id) => self.state.agents.iter().find(|agent| agent.id == *id),
            None => self.state.agents.first(),
        }
    }

    /// Returns what an agent works on, as far as people see it.
    pub(super) fn working(&self) -> Option<&Running> {
        self.running.as_ref().filter(|running| running.work != Work::Title)
    }

    /// Returns the turn that runs.
    pub(super) fn running_turn(&self) -> Option<MessageId> {
        self.running.as_ref()?.turn.clone()
    }

    /// Returns the reply that is being written.
    pub(super) fn running_reply(&self) -> Option<&MessageId> {
        let running = self.running.as_ref().filter(|running| running.work == Work::Reply)?;
        Some(&running.reply.response)
    }

    /// Ends what only goes on while nothing else does.
    pub(super) fn stand_back(&mut self) {
        if self.running.as_ref().is_some_and(|running| running.work == Work::Title) {
            self.drop_running();
        }
    }

    pub(super) fn on_compact(&mut self, agent: Option<&AgentId>, to: ReplyTo) {
        let Some(agent) = self.agent(agent).cloned().map(Arc::new) else {
            return self.refuse(to, "compact", ErrorCode::AgentNotFound, NO_AGENT);
        };
        self.stand_back();
        if self.running.is_some() || self.state.open_turns.iter().any(|turn| turn.waiting) {
            let message = "a reply is being written; wait until it is done, or cancel it";
            return self.refuse(to, "compact", ErrorCode::Limit, message);
        }
        let task = self.task(&agent, None);
        self.set_to_work(None, Work::Compaction, task, TurnTask::compact);
        self.reply(to, Answer::Done);
    }

    pub(super) async fn on_compacted(&mut self) {
        let Some(running) = self.running.take() else { return };
        let idle = LiveEvent::AgentState { agent: running.agent, thinking: false, detail: None };
        // Live events need no store.
        drop(self.commit(None, vec![Outgoing::Live(idle)], None, None).await);
        self.start_next_turn().await;
    }

    /// Has the model name a conversation that has its first message's title: after its second turn, so that a question
    /// that is asked once costs one call.
    pub(super) async fn ask_for_title(&mut self, ended: &MessageId, agent: Arc<Agent>) {
        let wanted = self.deps.titles == Titles::Model
            && self.state.title == TitleOf::FirstMessage
            && !self.asked_for_title
            && self.running.is_none()
            && self.retry_at.is_none()
            && self.closing.is_none()
            && !self.shutdown.is_cancelled()
            && self.engines.get(&agent.id).is_some_and(|engine| engine.is_model());
        if !wanted {
            return;
        }
        let store = self.deps.store.clone();
        let first = EventQuery { limit: MAX_LOOKED_AT, kinds: Some(MESSAGES), ..EventQuery::default() };
        let page = match store.events(self.identity.key, first).await {
            Ok(page) => page,
            // The next turn's end asks again.
            Err(error) => return tracing::warn!(session = %self.identity.id, %error, "no title is asked for"),
        };
        let first = page.events.into_iter().find_map(|row| match row.event {
            DurableEvent::UserMessage(message) if message.is_users() => Some(message),
            _ => None,
        });
        let Some(first) = first.filter(|first| first.id != *ended) else { return };
        self.asked_for_title = true;
        let task = self.task(&agent, None);
        let words = text_of(&first.parts);
        self.set_to_work(None, Work::Title, task, |task| task.title(words));
    }

    pub(super) async fn on_titled(&mut self, titled: Titled) {
        self.running = None;
        let Titled { title, step } = titled;
        // A person may have named it meanwhile.
        let title = title.filter(|_| self.state.title == TitleOf::FirstMessage);
        if title.is_none() {
            // Nothing changes, but something was used.
            let used = DurableEvent::Renamed(Renamed { title: None, step });
            if let Some(row) = UsageRow::of(&used, Timestamp::now())
                && let Err(error) = self.deps.store.add_usage(row).await
            {
                tracing::error!(session = %self.identity.id, %error, "what a title used is not added up");
            }
        } else {
            let next = SessionState { title: TitleOf::Settled, ..self.state.clone() };
            let renamed = Renamed { title: title.clone(), step };
            let events = vec![Outgoing::durable(DurableEvent::Renamed(renamed))];
            if let Err(error) = self.commit_titled(None, events, Some(next), Some(title), None).await {
                tracing::warn!(session = %self.identity.id, %error, "a title is not stored");
            }
        }
        self.start_next_turn().await;
    }
}
