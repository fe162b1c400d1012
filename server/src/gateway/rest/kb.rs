//! The knowledge base over HTTP, for scripts.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use tns_protocol::knowledge::{KbListResult, KbRemoved};
use tns_protocol::rest::{KbAddRequest, KbAddResponse, KbScope, SearchRequest, SearchResponse};
use tns_protocol::{DocumentId, ErrorCode};
use tns_server_core::event::{Answer, Refusal};
use tns_server_core::session::SessionCommand;

use super::{Body, Params, Path, session};
use crate::gateway::dispatch::search_command;
use crate::gateway::error::ApiError;
use crate::gateway::{Gateway, translate};

/// Which session's collections are meant.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::gateway) struct OfSession {
    /// The session.
    session_id: String,
}

/// An answer that does not fit its request: a bug.
fn unexpected(answer: Answer) -> ApiError {
    match answer {
        Answer::Refused(refusal) => refusal.into(),
        other => {
            tracing::error!(?other, "an answer does not fit its request");
            let message = "the server failed; its log says more".to_owned();
            Refusal { code: ErrorCode::Internal, message, request: "kb" }.into()
        }
    }
}

/// POST `/api/kb`: 201, or 200 for a document that was there.
pub(in crate::gateway) async fn add(
    State(gateway): State<Arc<Gateway>>,
    Body(request): Body<KbAddRequest>,
) -> Result<(StatusCode, Json<KbAddResponse>), ApiError> {
    if request.content.trim().is_empty() {
        return Err(ApiError::invalid("content must not be blank"));
    }
    let handle = session(&gateway, request.session_id.as_str()).await?;
    if handle.is_temporary() && request.scope != KbScope::Session {
        return Err(ApiError::invalid(
            "a temporary session keeps documents for itself only: scope must be session",
        ));
    }
    let collection = match request.scope {
        KbScope::Session => handle.identity().own_collection(),
        KbScope::Project => handle.identity().project_collection(),
        KbScope::User => handle.identity().user_collection(),
    };
    let metadata = request.metadata.unwrap_or_default();
    let add = |to| SessionCommand::KbAdd(collection, request.content, metadata, to);
    match handle.ask(add).await? {
        Answer::KbAdded { document, duplicate } => {
            let code = if duplicate { StatusCode::OK } else { StatusCode::CREATED };
            Ok((code, Json(KbAddResponse { document_id: document, duplicate })))
        }
        other => Err(unexpected(other)),
    }
}

/// GET `/api/kb?sessionId=`.
pub(in crate::gateway) async fn list(
    State(gateway): State<Arc<Gateway>>,
    Params(of): Params<OfSession>,
) -> Result<Json<KbListResult>, ApiError> {
    let handle = session(&gateway, &of.session_id).await?;
    match handle.ask(SessionCommand::KbList).await? {
        Answer::KbDocuments(documents) => Ok(Json(translate::kb_list(&documents))),
        other => Err(unexpected(other)),
    }
}

/// DELETE `/api/kb/{documentId}?sessionId=`: 200 with `found`.
pub(in crate::gateway) async fn remove(
    State(gateway): State<Arc<Gateway>>,
    Path(document): Path<String>,
    Params(of): Params<OfSession>,
) -> Result<Json<KbRemoved>, ApiError> {
    let document = DocumentId::parse(document).map_err(|error| ApiError::invalid(error.to_string()))?;
    let handle = session(&gateway, &of.session_id).await?;
    match handle.ask(|to| SessionCommand::KbRemove(document, to)).await? {
        Answer::KbRemoved { document, found } => Ok(Json(KbRemoved { document_id: document, found })),
        other => Err(unexpected(other)),
    }
}

/// POST `/api/kb/search`.
pub(in crate::gateway) async fn search(
    State(gateway): State<Arc<Gateway>>,
    Body(request): Body<SearchRequest>,
) -> Result<Json<SearchResponse>, ApiError> {
    let search =
        search_command(request.query, request.limit, request.threshold).map_err(ApiError::invalid)?;
    let handle = session(&gateway, request.session_id.as_str()).await?;
    match handle.ask(|to| SessionCommand::KbSearch(search, to)).await? {
        Answer::KbHits(hits) => {
            let results: Vec<_> = hits.iter().map(translate::search_hit).collect();
            Ok(Json(SearchResponse { count: results.len() as u64, results }))
        }
        other => Err(unexpected(other)),
    }
}
