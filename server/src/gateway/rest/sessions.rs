//! Sessions, their logs and their audit over HTTP. A read never makes a session.

use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Deserialize;
use tns_protocol::approval::AuditDecision;
use tns_protocol::rest::{
    AuditList, CreateSession, EventList, MessageList, MessageRole, SessionDetail, SessionList,
    SessionSummary, StoredMessage,
};
use tns_protocol::session::{Feedback, FeedbackScore, FeedbackStored};
use tns_protocol::{ErrorCode, Seq, SessionId, Timestamp};
use tns_server_core::event::{DurableEvent, EventKind};
use tns_server_core::session::SessionHandle;
use tns_server_core::session::registry::SessionStart;
use tns_server_core::store::{
    AuditQuery, EventQuery, LOCAL_PRINCIPAL, MAX_PAGE_EVENTS, MAX_PAGE_SESSIONS, Score, SessionCursor,
    SessionKey, StoredEvent,
};
use tns_server_core::text_of;
use uuid::Uuid;

use super::{Body, Params, Path, session};
use crate::gateway::dispatch::checked_title;
use crate::gateway::error::ApiError;
use crate::gateway::{Gateway, stream, translate};

/// Sessions or audit entries of one page when the request names no limit.
const DEFAULT_LIMIT: usize = 100;
/// Most audit entries of one answer.
const MAX_AUDIT_ENTRIES: usize = 1_000;

const MESSAGES: &[EventKind] =
    &[EventKind::UserMessage, EventKind::AssistantMessage, EventKind::ToolFinished];

fn limit(asked: Option<usize>, default: usize, most: usize) -> Result<usize, ApiError> {
    match asked.unwrap_or(default) {
        limit if (1..=most).contains(&limit) => Ok(limit),
        _ => Err(ApiError::invalid(format!("limit must be 1 to {most}"))),
    }
}

/// POST `/api/sessions`: 201, or 200 for a session that was there.
pub(in crate::gateway) async fn create(
    State(gateway): State<Arc<Gateway>>,
    Body(request): Body<CreateSession>,
) -> Result<(StatusCode, Json<SessionDetail>), ApiError> {
    let id = match request.id {
        Some(id) => id,
        None => new_session_id()?,
    };
    let title = checked_title(request.title).map_err(ApiError::invalid)?;
    if request.budget.is_some_and(|budget| !budget.is_finite() || budget < 0.0) {
        return Err(ApiError::invalid("budget must be an amount of dollars, 0 or more"));
    }
    let workspace = match request.workspace {
        Some(folder) => folder_of(PathBuf::from(folder)).await?,
        None => gateway.roots[0].clone(),
    };
    gateway.check_room()?;
    let start = SessionStart { title, workspace, temporary: request.temp, budget: request.budget };
    let (handle, made) = gateway.registry.find_or_create(LOCAL_PRINCIPAL, &id, &start).await?;
    let code = if made { StatusCode::CREATED } else { StatusCode::OK };
    Ok((code, Json(detail(&handle).await?)))
}

/// A local client may name any folder: it can read and write there anyway.
pub(super) async fn folder_of(folder: PathBuf) -> Result<PathBuf, ApiError> {
    let shown = folder.display().to_string();
    if !folder.is_absolute() {
        return Err(ApiError::invalid(format!("workspace must be an absolute path, not {shown:?}")));
    }
    let invalid = |reason: String| ApiError::invalid(format!("workspace {shown:?}: {reason}"));
    let folder = tokio::fs::canonicalize(&folder).await.map_err(|error| invalid(error.to_string()))?;
    let is_folder = tokio::fs::metadata(&folder).await.is_ok_and(|metadata| metadata.is_dir());
    if is_folder { Ok(folder) } else { Err(invalid("not a folder".to_owned())) }
}

pub(super) async fn detail(handle: &SessionHandle) -> Result<SessionDetail, ApiError> {
    let snapshot = handle.inspect().await?;
    let thinking = |id| snapshot.thinking.as_ref() == Some(id);
    Ok(SessionDetail {
        id: handle.identity().id.clone(),
        title: snapshot.title,
        temp: handle.is_temporary(),
        created_at: snapshot.created_at,
        updated_at: snapshot.updated_at,
        head_seq: snapshot.head_seq,
        autonomy: snapshot.autonomy,
        workspace: shown(handle.identity().workspace.root()),
        supports_image_input: snapshot.accepts_images,
        supports_image_output: false,
        agents: snapshot
            .agents
            .iter()
            .map(|agent| translate::agent_info(agent, &snapshot.tools, thinking(&agent.id)))
            .collect(),
        pending_approvals: snapshot.pending.iter().map(translate::approval_request).collect(),
        running: snapshot.thinking.is_some(),
    })
}

fn shown(path: &FsPath) -> String {
    path.display().to_string()
}

/// GET `/api/sessions/{id}`.
pub(in crate::gateway) async fn show(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
) -> Result<Json<SessionDetail>, ApiError> {
    Ok(Json(detail(&session(&gateway, &id).await?).await?))
}

/// Which page of sessions.
#[derive(Debug, Deserialize, JsonSchema)]
pub(in crate::gateway) struct ListParams {
    /// A `nextCursor` of an earlier answer.
    cursor: Option<String>,
    /// Most sessions: 1 to 500, 100 when absent.
    limit: Option<usize>,
}

/// GET `/api/sessions?cursor=&limit=`: the one whose log grew last first.
pub(in crate::gateway) async fn list(
    State(gateway): State<Arc<Gateway>>,
    Params(params): Params<ListParams>,
) -> Result<Json<SessionList>, ApiError> {
    page(&gateway, params.cursor.as_deref(), params.limit).await.map(Json)
}

/// Reads a page of sessions.
pub(in crate::gateway) async fn page(
    gateway: &Gateway,
    cursor: Option<&str>,
    most: Option<usize>,
) -> Result<SessionList, ApiError> {
    let limit = limit(most, DEFAULT_LIMIT, MAX_PAGE_SESSIONS)?;
    let after = cursor.map(parse_cursor).transpose()?;
    let page = gateway.deps.store.list_sessions(LOCAL_PRINCIPAL, after, limit).await?;
    let next_cursor = page.next.map(|next| format!("{}.{}", next.updated_at.as_micros(), next.key.0));
    let summaries = page.sessions.into_iter().map(|record| SessionSummary {
        id: record.id,
        title: record.title,
        created_at: record.created_at,
        updated_at: record.updated_at,
        head_seq: record.head_seq,
        workspace: shown(&record.workspace),
    });
    Ok(SessionList { sessions: summaries.collect(), next_cursor })
}

fn parse_cursor(text: &str) -> Result<SessionCursor, ApiError> {
    let parsed = text.split_once('.').and_then(|(at, key)| {
        Some(SessionCursor {
            updated_at: Timestamp::from_micros(at.parse().ok()?),
            key: SessionKey(key.parse().ok()?),
        })
    });
    parsed.ok_or_else(|| ApiError::invalid("cursor must be a nextCursor of this list"))
}

/// Makes a session that begins with a part of another one.
pub(in crate::gateway) async fn fork(
    gateway: &Gateway,
    from: &SessionHandle,
    at_seq: Seq,
    id: Option<SessionId>,
    title: Option<String>,
) -> Result<SessionHandle, ApiError> {
    let id = match id {
        Some(id) => id,
        None => new_session_id()?,
    };
    let title = match checked_title(title).map_err(ApiError::invalid)? {
        Some(title) => Some(title),
        None => from.inspect().await?.title,
    };
    Ok(gateway.registry.fork(from, at_seq, id, title).await?)
}

/// Keeps what somebody thinks of a message.
pub(in crate::gateway) async fn rate(
    handle: &SessionHandle,
    feedback: Feedback,
) -> Result<FeedbackStored, ApiError> {
    let Feedback { message_id, score } = feedback;
    let kept = match score {
        FeedbackScore::Up => Some(Score::Up),
        FeedbackScore::Down => Some(Score::Down),
        FeedbackScore::None => None,
    };
    if !handle.log().store.rate(handle.log().session, &message_id, kept).await? {
        let message = format!("no message {message_id} in this session");
        return Err(ApiError::new(StatusCode::NOT_FOUND, ErrorCode::NotFound, message));
    }
    Ok(FeedbackStored { message_id, score })
}

pub(super) fn new_session_id() -> Result<SessionId, ApiError> {
    SessionId::parse(Uuid::now_v7().to_string()).map_err(|error| ApiError::invalid(error.to_string()))
}

/// Which part of a log.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::gateway) struct MessageParams {
    /// Only messages after this place.
    after_seq: Option<u64>,
    /// Only messages before this place.
    before_seq: Option<u64>,
    /// Most messages: 1 to 500, as many as a page holds when absent.
    limit: Option<usize>,
}

/// GET `/api/sessions/{id}/messages?afterSeq=&beforeSeq=&limit=`: oldest first.
pub(in crate::gateway) async fn messages(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    Params(params): Params<MessageParams>,
) -> Result<Json<MessageList>, ApiError> {
    let handle = session(&gateway, &id).await?;
    let query = EventQuery {
        after: params.after_seq.unwrap_or(0),
        before: params.before_seq,
        limit: limit(params.limit, MAX_PAGE_EVENTS, MAX_PAGE_EVENTS)?,
        kinds: Some(MESSAGES),
        ..EventQuery::default()
    };
    let page = handle.log().store.events(handle.log().session, query).await?;
    let messages = page.events.iter().filter_map(|row| {
        let feedback = page.feedback.get(&row.place.seq).map(|score| match score {
            Score::Up => FeedbackScore::Up,
            Score::Down => FeedbackScore::Down,
        });
        Some(StoredMessage { feedback, ..stored_message(row)? })
    });
    let messages = messages.collect();
    Ok(Json(MessageList { messages, head_seq: page.head_seq, more: page.more }))
}

fn stored_message(row: &StoredEvent) -> Option<StoredMessage> {
    let (role, agent_id, content, tool, failed) = match &row.event {
        DurableEvent::UserMessage(message) => (MessageRole::User, None, text_of(&message.parts), None, false),
        DurableEvent::AssistantMessage(step) if step.parts.is_empty() => return None,
        DurableEvent::AssistantMessage(step) => {
            let cut = step.status.is_cut();
            (MessageRole::Assistant, Some(step.agent.to_string()), text_of(&step.parts), None, cut)
        }
        DurableEvent::ToolFinished(finished) => {
            let result = &finished.result;
            let agent = Some(finished.agent.to_string());
            (MessageRole::Tool, agent, result.output.clone(), Some(result.name.clone()), result.is_error)
        }
        _ => return None,
    };
    Some(StoredMessage {
        seq: row.place.seq,
        turn_id: row.turn.clone()?,
        message_id: row.message().cloned(),
        feedback: None,
        role,
        agent_id,
        content,
        tool,
        failed,
        created_at: row.place.at,
    })
}

/// Which events.
#[derive(Debug, Deserialize, JsonSchema)]
pub(in crate::gateway) struct EventParams {
    /// The place behind which the stream or page begins; a `Last-Event-ID` header beats it.
    after: Option<u64>,
    /// 0: one page of stored events as JSON instead of a stream.
    live: Option<u8>,
    /// 1: also what is only shown.
    online: Option<u8>,
    /// 1: the client may run tools; the first event, `stream`, tells the name to register them under.
    tools: Option<u8>,
}

/// GET `/api/sessions/{id}/events?after=N`: the durable events after a place as a stream, then those that come;
/// with `online=1` also what is only shown, with `tools=1` for a client that runs tools. With `live=0` one page of
/// them as JSON.
pub(in crate::gateway) async fn events(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    Params(params): Params<EventParams>,
) -> Result<Response, ApiError> {
    let handle = session(&gateway, &id).await?;
    if params.live != Some(0) {
        let after = stream::begins_after(&headers, params.after)?;
        let tools =
            if params.tools == Some(1) { stream::ClientTools::MayRun } else { stream::ClientTools::None };
        return stream::of_session(&gateway, handle, after, stream::taking(params.online), tools).await;
    }
    let query = EventQuery { after: params.after.unwrap_or(0), ..EventQuery::default() };
    let page = handle.log().store.events(handle.log().session, query).await?;
    let frames = page.events.iter().filter_map(|row| {
        let text = translate::stored(&handle.identity().id, row)?;
        serde_json::from_str(&text).ok()
    });
    let list = EventList { events: frames.collect(), head_seq: page.head_seq, more: page.more };
    Ok(Json(list).into_response())
}

/// Which audit entries.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::gateway) struct AuditParams {
    /// Only this session's; the whole server's when absent.
    session_id: Option<String>,
    /// Most entries: 1 to 1,000, 100 when absent.
    limit: Option<usize>,
    /// Only those at or after this time.
    since: Option<Timestamp>,
    /// Only those decided so.
    decision: Option<AuditDecision>,
}

/// GET `/api/audit?sessionId=&limit=&since=&decision=`: the newest ones, oldest first.
pub(in crate::gateway) async fn audit(
    State(gateway): State<Arc<Gateway>>,
    Params(params): Params<AuditParams>,
) -> Result<Json<AuditList>, ApiError> {
    let handle = match &params.session_id {
        Some(id) => Some(session(&gateway, id).await?),
        None => None,
    };
    let query = AuditQuery {
        session: handle.as_ref().map(|handle| handle.identity().key),
        since: params.since,
        decision: params.decision,
        limit: limit(params.limit, DEFAULT_LIMIT, MAX_AUDIT_ENTRIES)?,
    };
    let store = handle.as_ref().map_or(&gateway.deps.store, |handle| &handle.log().store);
    let found = store.audit(query).await?;
    let entries: Vec<_> = found.iter().map(|(_, record)| translate::audit_entry(record)).collect();
    let session_id = handle.map(|handle| handle.identity().id.clone());
    Ok(Json(AuditList { session_id, count: entries.len() as u64, entries }))
}
