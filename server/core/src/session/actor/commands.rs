//! What a session does when it is asked.
#![warn(clippy::wildcard_enum_match_arm)]

use std::sync::Arc;

use serde_json::{Map, Value};
use tns_protocol::approval::{AuditDecision, AutonomyLevel};
use tns_protocol::{AgentId, DocumentId, ErrorCode, ToolCallId};

use super::{Actor, answer_event, reply, turns::OpenedAgent};
use crate::agent::{Agent, MAX_AGENTS, NewAgent};
use crate::approval::broker::Settled;
use crate::engine::{Engine, OpenError, Pricing};
use crate::event::{Answer, DurableEvent, LiveEvent, Refusal, TeamUpdated};
use crate::session::client_tools::ClientToolDef;
use crate::session::port::Outgoing;
use crate::session::{
    AgentChange, ConnectionId, JoinKind, KbSearchCommand, ReplyTo, SessionCommand, SessionSnapshot,
    SubscriberRef,
};
use crate::store::{Collection, Condition, KnowledgeQuery, NewDocument, SessionState};

/// What is said of an agent whose model has no price.
const UNPRICED: &str =
    "no price is known for this model, so its cost is not counted; price it under [prices] in the config";

impl Actor {
    pub(super) async fn on_command(&mut self, command: SessionCommand) {
        match command {
            SessionCommand::Join(connection, subscriber, kind) => {
                self.on_join(connection, subscriber, kind).await;
            }
            SessionCommand::Rename(title, to) => self.on_rename(title, to).await,
            SessionCommand::Delete(reason, to) => self.on_delete(reason, to).await,
            SessionCommand::Hello(to) => self.on_hello(to),
            SessionCommand::Resume(after, epoch, to) => self.on_resume(after, epoch.as_deref(), to),
            SessionCommand::QueueList(to) => self.on_queue_list(to).await,
            SessionCommand::QueueRemove(id, to) => self.on_queue_remove(&id, to).await,
            SessionCommand::QueueEdit(id, text, to) => self.on_queue_edit(&id, text, to).await,
            SessionCommand::RulesList(to) => self.reply(to, Answer::Grants(self.state.grants.clone())),
            SessionCommand::RulesRemove(rule, by, to) => self.on_rules_remove(&rule, by, to).await,
            SessionCommand::UpdateAgent(change, to) => self.on_update_agent(change, to),
            SessionCommand::Leave(connection) => self.on_leave(connection),
            SessionCommand::Chat(chat, to) => self.on_chat(chat, to).await,
            SessionCommand::AddAgent(new, to) => self.on_add_agent(new, to),
            SessionCommand::RemoveAgent(agent, to) => self.on_remove_agent(&agent, to).await,
            SessionCommand::Decide(decide, to) => self.on_decide(decide, to).await,
            SessionCommand::Cancel(agent, to) => {
                self.on_cancel(agent.as_ref()).await;
                self.reply(to, Answer::Done);
            }
            SessionCommand::RegisterTools(connection, tools, to) => {
                self.on_register_tools(connection, tools, to)
            }
            SessionCommand::ToolResult(connection, call, result, to) => {
                self.on_tool_result(connection, &call, result, to);
            }
            SessionCommand::Compact(agent, to) => self.on_compact(agent.as_ref(), to),
            SessionCommand::SetAutonomy(level, to) => self.on_set_autonomy(level, to).await,
            SessionCommand::KbAdd(collection, content, metadata, to) => {
                self.on_kb_add(collection, content, metadata, to).await;
            }
            SessionCommand::KbRemove(document, to) => self.on_kb_remove(document, to).await,
            SessionCommand::KbSearch(search, to) => self.on_kb_search(search, to),
            SessionCommand::KbList(to) => self.on_kb_list(to),
            // The asker may have given up.
            SessionCommand::Inspect(to) => drop(to.send(self.snapshot())),
        }
    }

    async fn on_join(&mut self, connection: ConnectionId, subscriber: SubscriberRef, kind: JoinKind) {
        if kind == JoinKind::Pending {
            let waiting: Vec<_> = self.broker.iter().map(|pending| pending.published.clone()).collect();
            subscriber.0.deliver(&waiting);
        }
        self.connections.insert(connection, subscriber.0);
        self.ends_at = None;
        self.set_approval_deadline();
        // Messages that waited when the server was stopped wait until somebody is there.
        if kind != JoinKind::Watches {
            self.start_next_turn().await;
        }
    }

    fn on_leave(&mut self, connection: ConnectionId) {
        self.connections.remove(&connection);
        if self.connections.is_empty() {
            self.ends_at = self.lifetime.first_end();
        }
        self.client_tools.leave(connection);
        self.publish_settings();
        self.set_approval_deadline();
    }

    fn on_add_agent(&mut self, new: NewAgent, to: ReplyTo) {
        if self.state.agents.len() + self.opening >= MAX_AGENTS {
            let message = format!("a session takes at most {MAX_AGENTS} agents; remove one first");
            return self.refuse(to, "agent_add", ErrorCode::Limit, message);
        }
        self.opening += 1;
        let engines = self.deps.engines.clone();
        self.tasks.spawn(async move {
            let engine = engines.open(&new.engine).await;
            Some(OpenedAgent::Added { new, engine, to })
        });
    }

    fn on_update_agent(&mut self, change: AgentChange, to: ReplyTo) {
        if !self.state.agents.iter().any(|agent| agent.id == change.id) {
            return self.refuse_no_agent(&change.id, to, "agent_update");
        }
        self.opening += 1;
        let engines = self.deps.engines.clone();
        self.tasks.spawn(async move {
            let engine = match &change.engine {
                Some(choice) => engines.open(choice).await.map(Some),
                None => Ok(None),
            };
            Some(OpenedAgent::Updated { change, engine, to })
        });
    }

    pub(super) async fn on_agent_opened(&mut self, opened: OpenedAgent) {
        self.opening -= 1;
        match opened {
            OpenedAgent::Added { new, engine, to } => self.add_agent(new, engine, to).await,
            OpenedAgent::Updated { change, engine, to } => self.update_agent(change, engine, to).await,
        }
    }

    async fn update_agent(
        &mut self,
        change: AgentChange,
        engine: Result<Option<Arc<dyn Engine>>, OpenError>,
        to: ReplyTo,
    ) {
        let engine = match engine {
            Ok(engine) => engine,
            Err(error) => {
                return self.refuse(to, "agent_update", ErrorCode::AgentAddFailed, error.to_string());
            }
        };
        let mut next = self.state.clone();
        // It may have been removed meanwhile.
        let Some(agent) = next.agents.iter_mut().find(|agent| agent.id == change.id) else {
            return self.refuse_no_agent(&change.id, to, "agent_update");
        };
        if let (Some(engine), Some(choice)) = (&engine, change.engine) {
            agent.provider = engine.provider().to_owned();
            agent.model = engine.model().to_owned();
            agent.engine = choice;
        }
        if let Some(name) = change.name {
            agent.name = name;
        }
        agent.goal = change.goal.or(agent.goal.take());
        let idle = self.working().is_none_or(|running| running.agent.id != change.id);
        let detail = engine.as_ref().and_then(|engine| self.unpriced(engine.as_ref()));
        let state = LiveEvent::AgentState { agent: agent.clone().into(), thinking: !idle, detail };
        let events = vec![Outgoing::Live(state), self.team_updated(&next)];
        match self.commit(None, events, Some(next), None).await {
            Ok(_) => {
                if let Some(engine) = engine {
                    self.engines.insert(change.id, engine);
                }
                self.reply(to, Answer::Done);
            }
            Err(error) => self.refuse_for_store(to, "agent_update", &error),
        }
    }

    async fn add_agent(&mut self, new: NewAgent, engine: Result<Arc<dyn Engine>, OpenError>, to: ReplyTo) {
        let engine = match engine {
            Ok(engine) => engine,
            Err(error) => return self.refuse(to, "agent_add", ErrorCode::AgentAddFailed, error.to_string()),
        };
        let agent = Agent::new(&new, engine.as_ref(), &self.state.agents, self.identity.workspace.root());
        let mut next = self.state.clone();
        next.agents.push(agent.clone());
        let id = agent.id.clone();
        let detail = self.unpriced(engine.as_ref());
        let idle = LiveEvent::AgentState { agent: agent.into(), thinking: false, detail };
        let events = vec![Outgoing::Live(idle), self.team_updated(&next)];
        match self.commit(None, events, Some(next), None).await {
            Ok(_) => {
                self.engines.insert(id, engine);
                self.reply(to, Answer::Done);
            }
            Err(error) => self.refuse_for_store(to, "agent_add", &error),
        }
    }

    async fn on_remove_agent(&mut self, agent: &AgentId, to: ReplyTo) {
        if !self.state.agents.iter().any(|other| other.id == *agent) {
            return self.refuse_no_agent(agent, to, "agent_remove");
        }
        if self.state.agents.len() == 1 {
            let message = "a session keeps at least one agent; add another first";
            return self.refuse(to, "agent_remove", ErrorCode::AgentRemoveFailed, message);
        }
        self.on_cancel(Some(agent)).await;
        let mut next = self.state.clone();
        next.agents.retain(|other| other.id != *agent);
        // What waits for the agent is answered by the first one.
        let heir = next.agents[0].id.clone();
        for turn in next.open_turns.iter_mut().filter(|turn| turn.waiting && turn.agent == *agent) {
            turn.agent = heir.clone();
        }
        let events = vec![self.team_updated(&next)];
        match self.commit(None, events, Some(next), None).await {
            Ok(_) => {
                self.engines.remove(agent);
                self.reply(to, Answer::Done);
            }
            Err(error) => self.refuse_for_store(to, "agent_remove", &error),
        }
    }

    fn refuse_no_agent(&self, agent: &AgentId, to: ReplyTo, request: &'static str) {
        let message = format!("no agent {agent} in this session");
        self.refuse(to, request, ErrorCode::AgentNotFound, message);
    }

    /// Says that a model which was just chosen has no price.
    fn unpriced(&self, engine: &dyn Engine) -> Option<String> {
        if engine.pricing() != Pricing::Unknown {
            return None;
        }
        let (provider, model) = (engine.provider(), engine.model());
        tracing::warn!(session = %self.identity.id, provider, model, "an agent's model has no known price");
        Some(UNPRICED.to_owned())
    }

    pub(super) fn team_updated(&self, next: &SessionState) -> Outgoing {
        let team = TeamUpdated { agents: next.agents.clone(), tools: self.tool_names() };
        Outgoing::durable(DurableEvent::TeamUpdated(team))
    }

    pub(super) async fn on_approval_timeout(&mut self) {
        let reason = "Nobody was there to approve the call in time.".to_owned();
        self.settle_all(AuditDecision::Timeout, "server", &Settled::Rejected { reason }).await;
    }

    /// While nobody is connected, what waits is rejected after a while; else it may have no limit.
    pub(super) fn set_approval_deadline(&mut self) {
        let limit = match (self.broker.is_empty(), self.connections.is_empty()) {
            (true, _) => None,
            (false, true) => Some(self.deps.limits.unattended_approval),
            (false, false) => self.deps.limits.approval,
        };
        self.approval_deadline = limit.map(|limit| tokio::time::Instant::now() + limit);
    }

    fn on_register_tools(&mut self, connection: ConnectionId, tools: Vec<ClientToolDef>, to: ReplyTo) {
        match self.client_tools.register(connection, tools) {
            Ok(()) => {
                self.publish_settings();
                self.reply(to, Answer::Done);
            }
            Err(refusal) => self.reply(to, Answer::Refused(refusal)),
        }
    }

    fn on_tool_result(
        &mut self,
        connection: ConnectionId,
        call: &ToolCallId,
        result: Result<String, String>,
        to: ReplyTo,
    ) {
        if self.client_tools.answer(connection, call, result) {
            return self.reply(to, Answer::Done);
        }
        let message = format!("no call {call} waits for this connection's answer");
        self.refuse(to, "mcp_result", ErrorCode::UnknownToolCall, message);
    }

    async fn on_set_autonomy(&mut self, level: AutonomyLevel, to: ReplyTo) {
        if level == AutonomyLevel::FullAuto && !self.deps.unsandboxed {
            let message = "FULL_AUTO needs a sandbox for tools, and this server has none; \
                           start it with --dangerously-unsandboxed to allow it all the same";
            return self.refuse(to, "set_autonomy", ErrorCode::Forbidden, message);
        }
        let next = SessionState { autonomy: level, ..self.state.clone() };
        let events = vec![Outgoing::durable(DurableEvent::AutonomyChanged(level))];
        match self.commit(None, events, Some(next), None).await {
            Ok(_) => self.reply(to, Answer::Done),
            Err(error) => self.refuse_for_store(to, "set_autonomy", &error),
        }
    }

    async fn on_kb_add(
        &mut self,
        collection: Collection,
        content: String,
        metadata: Map<String, Value>,
        to: ReplyTo,
    ) {
        let document = collection.document_id(&content);
        let new = NewDocument { collection, id: document.clone(), content, metadata };
        let events = vec![Outgoing::durable(DurableEvent::KbAdded(document.clone()))];
        match self.commit(None, events, None, Some(Condition::NewDocument(new))).await {
            Ok(stored) => self.reply(to, Answer::KbAdded { document, duplicate: stored.is_none() }),
            Err(error) => self.refuse_for_store(to, "kb_add", &error),
        }
    }

    async fn on_kb_remove(&mut self, document: DocumentId, to: ReplyTo) {
        for collection in self.identity.collections() {
            let events = vec![Outgoing::durable(DurableEvent::KbRemoved(document.clone()))];
            let condition = Condition::RemoveDocument(collection, document.clone());
            match self.commit(None, events, None, Some(condition)).await {
                Ok(Some(_)) => return self.reply(to, Answer::KbRemoved { document, found: true }),
                Ok(None) => {}
                Err(error) => return self.refuse_for_store(to, "kb_remove", &error),
            }
        }
        self.reply(to, Answer::KbRemoved { document, found: false });
    }

    fn on_kb_search(&mut self, search: KbSearchCommand, to: ReplyTo) {
        let knowledge = self.deps.knowledge.clone();
        let query = KnowledgeQuery {
            collections: self.identity.collections(),
            text: search.query,
            limit: search.limit,
            threshold: search.threshold,
        };
        self.answer_beside(to, "kb_search", async move {
            let hits = knowledge.search(query).await;
            hits.map(Answer::KbHits).map_err(|error| (error.code(), error.to_string()))
        });
    }

    fn on_kb_list(&mut self, to: ReplyTo) {
        let documents = self.deps.documents.clone();
        let collections = self.identity.collections();
        self.answer_beside(to, "kb_list", async move {
            let mut all = Vec::new();
            for collection in &collections {
                let found = documents.documents(collection).await;
                all.extend(found.map_err(|error| (error.code(), error.to_string()))?);
            }
            Ok(Answer::KbDocuments(all))
        });
    }

    /// Answers from a task of its own, so that the session goes on meanwhile.
    fn answer_beside(
        &mut self,
        to: ReplyTo,
        request: &'static str,
        work: impl Future<Output = Result<Answer, (ErrorCode, String)>> + Send + 'static,
    ) {
        let identity = self.identity.clone();
        let subscriber = match &to {
            ReplyTo::Connection { id, .. } => self.connections.get(id).cloned(),
            ReplyTo::Caller(_) => None,
        };
        self.tasks.spawn(async move {
            let answer = work
                .await
                .unwrap_or_else(|(code, message)| Answer::Refused(Refusal { code, message, request }));
            match (to, subscriber) {
                (ReplyTo::Connection { re, .. }, Some(subscriber)) => {
                    subscriber.deliver(&[answer_event(&identity, re, answer)]);
                }
                (to, _) => reply(&Default::default(), &identity, to, answer),
            }
            None
        });
    }

    fn snapshot(&self) -> SessionSnapshot {
        let first = self.state.agents.first().and_then(|agent| self.engines.get(&agent.id));
        SessionSnapshot {
            title: self.title.clone(),
            created_at: self.created_at,
            updated_at: self.updated_at,
            head_seq: self.head_seq,
            autonomy: self.state.autonomy,
            agents: self.state.agents.clone(),
            thinking: self.working().map(|running| running.agent.id.clone()),
            tools: self.tool_names(),
            grants: self.state.grants.clone(),
            pending: self.broker.iter().map(|pending| pending.request.clone()).collect(),
            accepts_images: first.is_some_and(|engine| engine.accepts_images()),
        }
    }
}
