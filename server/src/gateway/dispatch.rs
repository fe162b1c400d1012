//! A client's event → a command. Checks what the wire types can't, then asks the session.
#![warn(clippy::wildcard_enum_match_arm)]

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use tns_protocol::agent::AgentUpdate;
use tns_protocol::approval::{AutonomyLevel, Decision};
use tns_protocol::chat::{Chat, ContentPart, Origin};
use tns_protocol::knowledge::{DEFAULT_SEARCH_LIMIT, MAX_SEARCH_LIMIT};
use tns_protocol::log::{EXTENSION, Hello, HistoryGet};
use tns_protocol::session::{Feedback, MAX_TITLE_CHARS, SessionFork, SessionList};
use tns_protocol::tool::{ClientToolDef, McpResult};
use tns_protocol::{
    ClientFrame, ClientMessage, ErrorCode, RequestId, ServerFrame, SessionId, Timestamp, check_label,
    encode_server,
};
use tns_server_core::agent::{AgentRole, NewAgent};
use tns_server_core::engine::EngineChoice;
use tns_server_core::event::{MessageContext, MessageOrigin};
use tns_server_core::message::{Image, Part};
use tns_server_core::session::registry::{RegistryError, SessionStart};
use tns_server_core::session::{
    AgentChange, ChatCommand, ConnectionId, DecideCommand, JoinKind, KbSearchCommand, ReplyTo, SendError,
    SessionCommand, SessionHandle, SessionIdentity, SubscriberRef, client_tools,
};
use tns_server_core::store::LOCAL_PRINCIPAL;

use super::Gateway;
use super::error::ApiError;
use super::outbox::Outbox;
use super::translate;

mod log;

/// Why a session ends that somebody deleted.
pub(crate) const DELETED: &str = "deleted";

/// One connection's way to its sessions.
pub(crate) struct Dispatcher {
    gateway: Arc<Gateway>,
    outbox: Arc<Outbox>,
    connection: ConnectionId,
    joined: HashMap<SessionId, SessionHandle>,
    /// Its client said that it only looks.
    watches: bool,
}

/// Why an event was refused.
pub(crate) type Refused = (ErrorCode, String);

impl Dispatcher {
    pub(crate) fn new(gateway: Arc<Gateway>, outbox: Arc<Outbox>) -> Self {
        let connection = gateway.connection_id();
        Self { gateway, outbox, connection, joined: HashMap::new(), watches: false }
    }

    /// Asks the event's session. A refusal is answered to this connection.
    pub(crate) async fn dispatch(&mut self, frame: ClientFrame) {
        let ClientFrame { session_id, req_id, message } = frame;
        let request = message.type_name().to_owned();
        if let Err((code, text)) = self.ask(&session_id, req_id.clone(), message).await {
            self.refuse(Some(session_id), req_id, Some(&request), code, &text);
        }
    }

    async fn ask(
        &mut self,
        id: &SessionId,
        re: Option<RequestId>,
        message: ClientMessage,
    ) -> Result<(), Refused> {
        if message.is_extension() && !self.outbox.is_extended() && !matches!(message, ClientMessage::Hello(_))
        {
            let message = format!("{} belongs to {EXTENSION}: send hello first", message.type_name());
            return Err(invalid(message));
        }
        let creates = !matches!(
            message,
            ClientMessage::ToolApprove(_)
                | ClientMessage::McpResult(_)
                | ClientMessage::Cancel(_)
                | ClientMessage::SessionRename(_)
                | ClientMessage::SessionDelete(_)
                | ClientMessage::QueueList(_)
                | ClientMessage::QueueRemove(_)
                | ClientMessage::QueueEdit(_)
                | ClientMessage::AgentUpdate(_)
                | ClientMessage::Compact(_)
                | ClientMessage::RulesList(_)
                | ClientMessage::RulesRemove(_)
        );
        let resumes = matches!(message, ClientMessage::Resume(_));
        let kind = if resumes { JoinKind::Resumes } else { JoinKind::Pending };
        match asked(message, self.connection)? {
            Asked::Session(make) => {
                let handle = self.session(id, creates, kind).await?;
                let command = make(self.reply_to(re), handle.identity());
                handle.try_send(command).map_err(|error| self.not_sent(id, error))
            }
            Asked::Hello(hello) => self.hello(id, re, hello).await,
            Asked::History(get) => self.history(id, re, get).await,
            Asked::List(list) => self.list(id, re, list).await,
            Asked::Fork(fork) => self.fork(id, re, fork).await,
            Asked::Feedback(feedback) => self.feedback(id, re, feedback).await,
            Asked::Nothing => Ok(()),
        }
    }

    /// Words why a session was not asked. One that was erased is forgotten: the next event may make it anew.
    fn not_sent(&mut self, id: &SessionId, error: SendError) -> Refused {
        if error == SendError::Closed && !self.gateway.is_draining() {
            self.joined.remove(id);
            return (ErrorCode::SessionNotFound, format!("session {id} was deleted"));
        }
        (error.code(), error.to_string())
    }

    fn reply_to(&self, re: Option<RequestId>) -> ReplyTo {
        ReplyTo::Connection { id: self.connection, re }
    }

    /// Returns the session, joined; makes a missing one if the event may.
    async fn session(
        &mut self,
        id: &SessionId,
        creates: bool,
        kind: JoinKind,
    ) -> Result<SessionHandle, Refused> {
        // One that was erased meanwhile is looked for anew.
        if let Some(handle) = self.joined.get(id).filter(|handle| !handle.is_closed()) {
            return Ok(handle.clone());
        }
        let registry = &self.gateway.registry;
        let handle = if creates {
            self.gateway.check_room().map_err(ApiError::into_refusal)?;
            let workspace = self.gateway.roots[0].clone();
            let start = SessionStart { title: None, workspace, temporary: false, budget: None };
            registry.find_or_create(LOCAL_PRINCIPAL, id, &start).await.map(|(handle, _)| Some(handle))
        } else {
            registry.find(LOCAL_PRINCIPAL, id).await
        };
        let handle = handle.map_err(|error| (registry_code(&error), error.to_string()))?;
        let Some(handle) = handle else {
            return Err((ErrorCode::SessionNotFound, format!("no session {id}")));
        };
        let kind = if self.watches { JoinKind::Watches } else { kind };
        let join = SessionCommand::Join(self.connection, SubscriberRef(self.outbox.clone()), kind);
        handle.send(join).await.map_err(|error| (error.code(), error.to_string()))?;
        self.joined.insert(id.clone(), handle.clone());
        Ok(handle)
    }

    /// Leaves every session.
    pub(crate) async fn leave(self) {
        for handle in self.joined.into_values() {
            // A session that is gone needs no goodbye.
            let _ = handle.send(SessionCommand::Leave(self.connection)).await;
        }
    }

    /// Answers an error to this connection.
    pub(crate) fn refuse(
        &self,
        session_id: Option<SessionId>,
        re: Option<RequestId>,
        request: Option<&str>,
        code: ErrorCode,
        message: &str,
    ) {
        self.outbox.push(encode_server(&ServerFrame {
            session_id,
            date: Some(Timestamp::now()),
            seq: None,
            turn_id: None,
            re,
            message: translate::error(code, message, request),
        }));
    }
}

fn registry_code(error: &RegistryError) -> ErrorCode {
    match error {
        RegistryError::Store(error) => error.code(),
        RegistryError::Engine(_) => ErrorCode::ProviderUnavailable,
        RegistryError::OpenTurn { .. }
        | RegistryError::BeyondLog { .. }
        | RegistryError::Exists(_)
        | RegistryError::NotTakenIn(_) => ErrorCode::InvalidMessage,
    }
}

fn invalid(message: impl Into<String>) -> Refused {
    (ErrorCode::InvalidMessage, message.into())
}

type MakeCommand = Box<dyn FnOnce(ReplyTo, &SessionIdentity) -> SessionCommand + Send>;

/// Who is asked.
enum Asked {
    /// The session's task; its command is made once the session is known.
    Session(MakeCommand),
    Hello(Hello),
    History(HistoryGet),
    List(SessionList),
    Fork(SessionFork),
    Feedback(Feedback),
    /// What is asked for holds already.
    Nothing,
}

/// Checks an event and returns who is asked what.
fn asked(message: ClientMessage, connection: ConnectionId) -> Result<Asked, Refused> {
    let make: MakeCommand = match message {
        ClientMessage::Chat(chat) => {
            let chat = chat_command(chat)?;
            Box::new(|to, _| SessionCommand::Chat(chat, to))
        }
        ClientMessage::AgentAdd(add) => {
            let new = new_agent(add)?;
            Box::new(|to, _| SessionCommand::AddAgent(new, to))
        }
        ClientMessage::AgentRemove(remove) => {
            Box::new(|to, _| SessionCommand::RemoveAgent(remove.agent_id, to))
        }
        ClientMessage::ToolApprove(approve) => {
            let Some(decision) = Decision::parse(&approve.decision) else {
                let message = "decision must be approve, reject or always; the call goes on waiting";
                return Err((ErrorCode::InvalidDecision, message.into()));
            };
            let decide = DecideCommand {
                call: approve.tool_call_id,
                decision,
                reason: approve.reason,
                edited_args: approve.edited_args,
                by: LOCAL_PRINCIPAL.to_owned(),
            };
            Box::new(|to, _| SessionCommand::Decide(decide, to))
        }
        ClientMessage::Cancel(cancel) => Box::new(|to, _| SessionCommand::Cancel(cancel.agent_id, to)),
        ClientMessage::McpTools(tools) => {
            let tools = tools.tools.into_iter().map(client_tool).collect();
            Box::new(move |to, _| SessionCommand::RegisterTools(connection, tools, to))
        }
        ClientMessage::McpResult(result) => {
            let (call, result) = tool_result(result);
            Box::new(move |to, _| SessionCommand::ToolResult(connection, call, result, to))
        }
        ClientMessage::SetAutonomy(set) => {
            let Some(level) = AutonomyLevel::parse(&set.level) else {
                let message = "level must be FULL_AUTO, SUPERVISED, CAUTIOUS or MANUAL";
                return Err((ErrorCode::InvalidAutonomyLevel, message.into()));
            };
            Box::new(move |to, _| SessionCommand::SetAutonomy(level, to))
        }
        ClientMessage::KbAdd(add) => {
            if add.content.trim().is_empty() {
                return Err(invalid("content must not be blank"));
            }
            Box::new(|to, identity| {
                let metadata = add.metadata.unwrap_or_default();
                SessionCommand::KbAdd(identity.own_collection(), add.content, metadata, to)
            })
        }
        ClientMessage::KbSearch(search) => {
            let search = search_command(search.query, search.limit, search.threshold).map_err(invalid)?;
            Box::new(|to, _| SessionCommand::KbSearch(search, to))
        }
        ClientMessage::KbList(_) => Box::new(|to, _| SessionCommand::KbList(to)),
        ClientMessage::KbRemove(remove) => Box::new(|to, _| SessionCommand::KbRemove(remove.document_id, to)),
        ClientMessage::Resume(resume) => {
            Box::new(move |to, _| SessionCommand::Resume(resume.last_seq, resume.epoch, to))
        }
        ClientMessage::AgentUpdate(update) => {
            let change = agent_change(update)?;
            Box::new(|to, _| SessionCommand::UpdateAgent(change, to))
        }
        ClientMessage::Compact(compact) => Box::new(|to, _| SessionCommand::Compact(compact.agent_id, to)),
        ClientMessage::RulesList(_) => Box::new(|to, _| SessionCommand::RulesList(to)),
        ClientMessage::RulesRemove(remove) => {
            Box::new(|to, _| SessionCommand::RulesRemove(remove.rule_id, LOCAL_PRINCIPAL.to_owned(), to))
        }
        ClientMessage::QueueList(_) => Box::new(|to, _| SessionCommand::QueueList(to)),
        ClientMessage::QueueRemove(remove) => {
            Box::new(|to, _| SessionCommand::QueueRemove(remove.message_id, to))
        }
        ClientMessage::QueueEdit(edit) => {
            if edit.message.trim().is_empty() {
                return Err(invalid("message must not be blank; queue_remove takes it out"));
            }
            Box::new(|to, _| SessionCommand::QueueEdit(edit.message_id, edit.message, to))
        }
        ClientMessage::SetStrategy(set) if set.strategy == "SINGLE" => return Ok(Asked::Nothing),
        ClientMessage::SetStrategy(_) => return Err(invalid("strategy must be SINGLE")),
        ClientMessage::Hello(hello) => return Ok(Asked::Hello(hello)),
        ClientMessage::HistoryGet(get) => return Ok(Asked::History(get)),
        ClientMessage::SessionList(list) => return Ok(Asked::List(list)),
        ClientMessage::SessionRename(rename) => {
            let title = checked_title(rename.title).map_err(invalid)?;
            Box::new(|to, _| SessionCommand::Rename(title, to))
        }
        ClientMessage::SessionDelete(_) => Box::new(|to, _| SessionCommand::Delete(DELETED.to_owned(), to)),
        ClientMessage::SessionFork(fork) => return Ok(Asked::Fork(fork)),
        ClientMessage::Feedback(feedback) => return Ok(Asked::Feedback(feedback)),
        // `decode_client` lets no unknown type through.
        ClientMessage::Unknown(name) => {
            return Err((ErrorCode::UnknownType, format!("type {name:?} is not known")));
        }
    };
    Ok(Asked::Session(make))
}

/// Checks a session's title. A blank one is none.
///
/// # Errors
/// One line that says what is wrong.
pub(crate) fn checked_title(title: Option<String>) -> Result<Option<String>, String> {
    let title = title.map(|title| title.trim().to_owned()).filter(|title| !title.is_empty());
    match title {
        Some(title) if title.chars().count() > MAX_TITLE_CHARS => {
            Err(format!("title must be at most {MAX_TITLE_CHARS} characters"))
        }
        Some(title) if title.chars().any(char::is_control) => {
            Err("title must have no control characters".to_owned())
        }
        title => Ok(title),
    }
}

/// Checks a search.
pub(crate) fn search_command(
    query: String,
    limit: Option<u32>,
    threshold: Option<f64>,
) -> Result<KbSearchCommand, String> {
    if query.trim().is_empty() {
        return Err("query must not be blank".into());
    }
    let limit = limit.unwrap_or(DEFAULT_SEARCH_LIMIT);
    if !(1..=MAX_SEARCH_LIMIT).contains(&limit) {
        return Err(format!("limit must be 1 to {MAX_SEARCH_LIMIT}"));
    }
    let threshold = threshold.unwrap_or(0.0);
    if !(0.0..=1.0).contains(&threshold) {
        return Err("threshold must be 0 to 1".into());
    }
    Ok(KbSearchCommand { query, limit: limit as usize, threshold })
}

pub(crate) fn chat_command(chat: Chat) -> Result<ChatCommand, Refused> {
    if chat.message.trim().is_empty() {
        return Err(invalid("message must not be blank"));
    }
    let mut parts = vec![Part::Text(chat.message)];
    for part in chat.content {
        match part {
            ContentPart::Text { text } if text.trim().is_empty() => {}
            ContentPart::Text { text } => parts.push(Part::Text(text)),
            ContentPart::Image { mime, data } => {
                let is_base64 = |b: u8| b.is_ascii_alphanumeric() || b"+/=".contains(&b);
                if !mime.starts_with("image/") || data.is_empty() || !data.bytes().all(is_base64) {
                    return Err(invalid("content: an image needs a mime of image/… and its bytes in base64"));
                }
                parts.push(Part::Image(Image { mime, data: data.into() }));
            }
        }
    }
    let context = chat.context.map(|context| MessageContext {
        origin: match context.origin {
            Origin::User => MessageOrigin::User,
            Origin::System => MessageOrigin::System,
            Origin::Event => MessageOrigin::Event,
        },
        description: context.description,
        source_id: context.source_id,
        metadata: context.metadata,
    });
    Ok(ChatCommand { parts, agent: chat.agent_id, client_message_id: chat.client_message_id, context })
}

fn new_agent(add: tns_protocol::agent::AgentAdd) -> Result<NewAgent, Refused> {
    let label =
        |field: &str, text: &str| check_label(text).map_err(|rule| invalid(format!("{field} {rule}")));
    label("role", &add.role)?;
    if let Some(name) = &add.name {
        label("name", name)?;
    }
    let roles = add.roles.unwrap_or_default();
    for role in &roles {
        label("roles: name", &role.name)?;
    }
    let named = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
    Ok(NewAgent {
        role: add.role,
        name: add.name,
        goal: named(add.goal),
        domain: named(add.domain),
        roles: roles
            .into_iter()
            .map(|role| AgentRole { name: role.name, goal: role.goal, domain: role.domain })
            .collect(),
        engine: EngineChoice { provider: named(add.provider), model: named(add.model) },
    })
}

fn agent_change(update: AgentUpdate) -> Result<AgentChange, Refused> {
    if let Some(name) = &update.name {
        check_label(name).map_err(|rule| invalid(format!("name {rule}")))?;
    }
    let named = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
    let choice = EngineChoice { provider: named(update.provider), model: named(update.model) };
    let engine = (choice != EngineChoice::default()).then_some(choice);
    Ok(AgentChange { id: update.agent_id, engine, name: update.name, goal: named(update.goal) })
}

pub(crate) fn client_tool(tool: ClientToolDef) -> client_tools::ClientToolDef {
    client_tools::ClientToolDef {
        server: tool.server,
        name: tool.name,
        description: tool.description.unwrap_or_default(),
        schema: tool.input_schema.unwrap_or(Value::Null),
    }
}

pub(crate) fn tool_result(result: McpResult) -> (tns_protocol::ToolCallId, Result<String, String>) {
    let text = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let outcome = match (result.result, result.error) {
        (_, Some(error)) => Err(text(error)),
        (Some(result), None) => Ok(text(result)),
        (None, None) => Err("The client answered with neither a result nor an error.".to_owned()),
    };
    (result.tool_call_id, outcome)
}
