//! What is done to a session over HTTP: said, stopped, answered, named, copied, rated, erased, found.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;
use tns_protocol::approval::Decision;
use tns_protocol::chat::{Cancel, Chat};
use tns_protocol::rest::{
    Accepted, ApprovalAnswer, ForkSession, Found, FoundIn, RenameSession, Renamed, SearchList, SessionDetail,
};
use tns_protocol::session::{Feedback, FeedbackStored};
use tns_protocol::{ClientMessageId, ErrorCode, ToolCallId};
use tns_server_core::event::Answer;
use tns_server_core::session::{DecideCommand, SessionCommand};
use tns_server_core::store::{
    LOCAL_PRINCIPAL, MAX_PAGE_HITS, SearchCursor, SearchHit, SearchQuery, SearchSource,
};

use super::sessions::{detail, fork, rate};
use super::{Body, Params, Path, session};
use crate::gateway::Gateway;
use crate::gateway::dispatch::{DELETED, chat_command, checked_title};
use crate::gateway::error::ApiError;
use crate::gateway::translate::id_used;

/// Hits of one page when the request names no limit.
const DEFAULT_HITS: usize = 20;
/// The header that makes a message's resend idempotent, as `clientMessageId` does in its body.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

type Shared = State<Arc<Gateway>>;

/// PATCH `/api/sessions/{id}`: names the session; null takes the title away.
pub(in crate::gateway) async fn rename(
    State(gateway): Shared,
    Path(id): Path<String>,
    Body(request): Body<RenameSession>,
) -> Result<Json<Renamed>, ApiError> {
    let title = checked_title(request.title).map_err(ApiError::invalid)?;
    let handle = session(&gateway, &id).await?;
    done(handle.ask(|to| SessionCommand::Rename(title, to)).await?)?;
    let now = handle.inspect().await?;
    Ok(Json(Renamed { title: now.title, updated_at: now.updated_at }))
}

/// DELETE `/api/sessions/{id}`: 204; ends what runs and erases everything of it.
pub(in crate::gateway) async fn remove(
    State(gateway): Shared,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let handle = session(&gateway, &id).await?;
    done(handle.ask(|to| SessionCommand::Delete(DELETED.to_owned(), to)).await?)?;
    Ok(StatusCode::NO_CONTENT)
}

/// POST `/api/sessions/{id}/fork`: 201 with the new session.
pub(in crate::gateway) async fn copy(
    State(gateway): Shared,
    Path(id): Path<String>,
    Body(request): Body<ForkSession>,
) -> Result<(StatusCode, Json<SessionDetail>), ApiError> {
    let from = session(&gateway, &id).await?;
    let forked = fork(&gateway, &from, request.at_seq, request.id, request.title).await?;
    Ok((StatusCode::CREATED, Json(detail(&forked).await?)))
}

/// POST `/api/sessions/{id}/messages`: 202 when the message is stored; its reply comes as events.
pub(in crate::gateway) async fn say(
    State(gateway): Shared,
    Path(id): Path<String>,
    headers: HeaderMap,
    Body(chat): Body<Chat>,
) -> Result<(StatusCode, Json<Accepted>), ApiError> {
    let key = headers.get(IDEMPOTENCY_KEY).map(|value| {
        let text = value.to_str().unwrap_or_default();
        ClientMessageId::parse(text)
            .map_err(|_| ApiError::invalid("Idempotency-Key must be 1 to 128 of A-Z a-z 0-9 . _ : @ -"))
    });
    let client_message_id = key.transpose()?.or(chat.client_message_id.clone());
    let chat = chat_command(Chat { client_message_id, ..chat }).map_err(|(_, why)| ApiError::invalid(why))?;
    let handle = session(&gateway, &id).await?;
    match handle.ask(|to| SessionCommand::Chat(chat, to)).await? {
        Answer::Accepted { message, seq } => {
            Ok((StatusCode::ACCEPTED, Json(Accepted { message_id: message, seq })))
        }
        answer => Err(refused(answer)),
    }
}

/// POST `/api/sessions/{id}/interrupt`: stops what runs; nothing running is no error.
pub(in crate::gateway) async fn interrupt(
    State(gateway): Shared,
    Path(id): Path<String>,
    Body(cancel): Body<Cancel>,
) -> Result<StatusCode, ApiError> {
    let handle = session(&gateway, &id).await?;
    done(handle.ask(|to| SessionCommand::Cancel(cancel.agent_id, to)).await?)?;
    Ok(StatusCode::ACCEPTED)
}

/// POST `/api/sessions/{id}/approvals/{toolCallId}`: 204 when this is the answer that counts.
pub(in crate::gateway) async fn decide(
    State(gateway): Shared,
    Path((id, call)): Path<(String, String)>,
    Body(answer): Body<ApprovalAnswer>,
) -> Result<StatusCode, ApiError> {
    let Some(decision) = Decision::parse(&answer.decision) else {
        let message = "decision must be approve, reject or always; the call goes on waiting";
        return Err(ApiError::new(StatusCode::BAD_REQUEST, ErrorCode::InvalidDecision, message));
    };
    let call = ToolCallId::parse(call).map_err(|error| ApiError::invalid(error.to_string()))?;
    let decide = DecideCommand {
        call,
        decision,
        reason: answer.reason,
        edited_args: answer.edited_args,
        by: LOCAL_PRINCIPAL.to_owned(),
    };
    let handle = session(&gateway, &id).await?;
    done(handle.ask(|to| SessionCommand::Decide(decide, to)).await?)?;
    Ok(StatusCode::NO_CONTENT)
}

/// POST `/api/sessions/{id}/feedback`: keeps what somebody thinks of a message.
pub(in crate::gateway) async fn feedback(
    State(gateway): Shared,
    Path(id): Path<String>,
    Body(feedback): Body<Feedback>,
) -> Result<Json<FeedbackStored>, ApiError> {
    let handle = session(&gateway, &id).await?;
    rate(&handle, feedback).await.map(Json)
}

/// Which hits.
#[derive(Debug, Deserialize, JsonSchema)]
pub(in crate::gateway) struct FindParams {
    /// The words; blank is refused.
    q: String,
    /// Most hits: 1 to 50, 20 when absent.
    limit: Option<usize>,
    /// A `nextCursor` of an earlier answer.
    cursor: Option<String>,
}

/// GET `/api/sessions/search?q=&limit=&cursor=`: messages and titles that have all words, best first.
pub(in crate::gateway) async fn find(
    State(gateway): Shared,
    Params(params): Params<FindParams>,
) -> Result<Json<SearchList>, ApiError> {
    if params.q.trim().is_empty() {
        return Err(ApiError::invalid("q must not be blank"));
    }
    let limit = params.limit.unwrap_or(DEFAULT_HITS);
    if !(1..=MAX_PAGE_HITS).contains(&limit) {
        return Err(ApiError::invalid(format!("limit must be 1 to {MAX_PAGE_HITS}")));
    }
    let after = params.cursor.as_deref().map(parse_cursor).transpose()?;
    let query = SearchQuery { principal: LOCAL_PRINCIPAL.to_owned(), text: params.q, limit, after };
    let page = gateway.deps.store.search(query).await?;
    Ok(Json(SearchList {
        results: page.hits.into_iter().map(found).collect(),
        next_cursor: page.next.map(|next| format!("{}.{}", next.head, next.offset)),
        complete: page.complete,
    }))
}

fn parse_cursor(text: &str) -> Result<SearchCursor, ApiError> {
    let parsed = text.split_once('.').and_then(|(head, offset)| {
        Some(SearchCursor { head: head.parse().ok()?, offset: offset.parse().ok()? })
    });
    parsed.ok_or_else(|| ApiError::invalid("cursor must be a nextCursor of this search"))
}

fn found(hit: SearchHit) -> Found {
    Found {
        session_id: hit.session,
        title: hit.title,
        found_in: match hit.source {
            SearchSource::Title => FoundIn::Title,
            SearchSource::User => FoundIn::User,
            SearchSource::Assistant => FoundIn::Assistant,
        },
        seq: hit.seq,
        date: hit.at,
        snippet: hit.snippet,
        score: hit.score,
    }
}

/// Makes a refusal the answer.
pub(super) fn done(answer: Answer) -> Result<(), ApiError> {
    match answer {
        Answer::Refused(refusal) => Err(refusal.into()),
        _ => Ok(()),
    }
}

fn refused(answer: Answer) -> ApiError {
    match answer {
        Answer::Refused(refusal) => refusal.into(),
        Answer::IdUsed(id) => {
            let message = id_used(&id);
            ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::InvalidMessage, message)
        }
        // It is stored all the same, so a resend is safe.
        _ => {
            let message = "the message is stored, but its place can't be told now; ask again";
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::StorageBusy, message)
        }
    }
}
