//! The REST face: health, information, sessions, knowledge, providers. JSON in, JSON out, errors too.

pub(super) mod actions;
pub(super) mod health;
pub(super) mod kb;
pub(super) mod providers;
pub(super) mod rules;
pub(super) mod sessions;
pub(super) mod tools;
pub(super) mod transfer;
pub(super) mod usage;

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{self, FromRequest, FromRequestParts, Query, Request, State};
use axum::http::{StatusCode, request::Parts};
use axum::middleware::Next;
use axum::response::Response;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tns_protocol::{ErrorCode, SessionId};
use tns_server_core::session::SessionHandle;
use tns_server_core::store::LOCAL_PRINCIPAL;
use tokio::time::timeout;

use super::Gateway;
use super::error::ApiError;

/// How long a client may take to send a request's body.
const BODY_TIME: Duration = Duration::from_secs(60);

/// A request's JSON body, whose faults are answered as JSON.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let read = in_time(Json::<Box<RawValue>>::from_request(request, state)).await?;
        let Json(body) = read.map_err(ApiError::from)?;
        let unfit =
            |what: String| ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::InvalidMessage, what);
        // A list would be read as well, field by field.
        if !body.get().trim_start().starts_with('{') {
            return Err(unfit("the body must be a JSON object".to_owned()));
        }
        serde_json::from_str(body.get()).map(Self).map_err(|error| unfit(format!("the body: {error}")))
    }
}

/// Gives the reading of a body its time.
async fn in_time<T>(read: impl Future<Output = T>) -> Result<T, ApiError> {
    timeout(BODY_TIME, read).await.map_err(|_| {
        let message = format!("the body did not come within {} s", BODY_TIME.as_secs());
        ApiError::new(StatusCode::REQUEST_TIMEOUT, ErrorCode::Limit, message)
    })
}

/// The named parts of a request's path, whose faults are answered as JSON.
pub(super) struct Path<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        extract::Path::from_request_parts(parts, state).await.map(|extract::Path(named)| Self(named)).map_err(
            |rejection| ApiError::invalid(format!("the path can't be read: {}", rejection.body_text())),
        )
    }
}

/// A request's query, whose faults are answered as JSON.
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        Query::from_request_parts(parts, state)
            .await
            .map(|Query(params)| Self(params))
            .map_err(ApiError::from)
    }
}

/// Finds a session by the text of its id; never makes one.
async fn session(gateway: &Gateway, id: &str) -> Result<SessionHandle, ApiError> {
    let parsed = SessionId::parse(id).map_err(|error| ApiError::invalid(error.to_string()))?;
    gateway.registry.find(LOCAL_PRINCIPAL, &parsed).await?.ok_or_else(|| ApiError::no_session(id))
}

/// Notes every call but those of `/health*`, so that the server does not stop as idle meanwhile.
pub(super) async fn note_activity(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
    next: Next,
) -> Response {
    if !request.uri().path().starts_with("/health") {
        gateway.touch();
    }
    next.run(request).await
}

pub(super) async fn not_found() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, ErrorCode::NotFound, "no such path")
}

pub(super) async fn method_not_allowed() -> ApiError {
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, ErrorCode::NotFound, "the path does not take this method")
}

pub(super) async fn not_offered() -> ApiError {
    let message = "this server has no directory index; add documents with POST /api/kb";
    ApiError::new(StatusCode::NOT_IMPLEMENTED, ErrorCode::NotImplemented, message)
}
