//! The provider catalogue over HTTP. A key that is to be checked comes in a body; nothing here logs it,
//! stores it or answers with it.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request, State};
use axum::http::StatusCode;
use secrecy::SecretString;
use tns_protocol::ErrorCode;
use tns_protocol::provider::{KeyCheck, ModelList, ProviderList, ValidateKey, VoiceList};
use tns_server_engines::CatalogueError;

use super::{Path, in_time};
use crate::gateway::Gateway;
use crate::gateway::error::ApiError;

/// Largest body with a key, in bytes: four times the longest key.
const MAX_KEY_BODY: usize = 16 << 10;

/// The key of a body `{"key": "…"}`; none in an empty body or object.
pub(in crate::gateway) struct GivenKey(Option<SecretString>);

impl<S: Send + Sync> FromRequest<S> for GivenKey {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let body = in_time(Bytes::from_request(request, state)).await?;
        // No reader's own words: they quote what they stumble over, which may be the key.
        let body = body.map_err(|rejection| too_large(rejection.status()))?;
        if body.len() > MAX_KEY_BODY {
            return Err(too_large(StatusCode::PAYLOAD_TOO_LARGE));
        }
        let body = body.trim_ascii();
        if body.is_empty() {
            return Ok(Self(None));
        }
        let other =
            || ApiError::invalid(r#"the body must be {"key": "…"}, or {} to check the key that is set up"#);
        // A list would be read as well, field by field.
        if !body.starts_with(b"{") {
            return Err(other());
        }
        let ValidateKey { key } = serde_json::from_slice(body).map_err(|_| other())?;
        Ok(Self(key.map(SecretString::from)))
    }
}

fn too_large(status: StatusCode) -> ApiError {
    match status {
        StatusCode::PAYLOAD_TOO_LARGE => {
            let message = format!("the body must be at most {MAX_KEY_BODY} bytes");
            ApiError::new(status, ErrorCode::PayloadTooLarge, message)
        }
        _ => ApiError::new(status, ErrorCode::InvalidMessage, "the body could not be read; send it again"),
    }
}

/// GET `/api/providers`.
pub(in crate::gateway) async fn list(State(gateway): State<Arc<Gateway>>) -> Json<ProviderList> {
    Json(ProviderList { providers: gateway.catalogue.providers().await })
}

/// POST `/api/providers/{id}/validate`: 200 for a key that works.
pub(in crate::gateway) async fn validate(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    GivenKey(key): GivenKey,
) -> Result<Json<KeyCheck>, ApiError> {
    Ok(Json(gateway.catalogue.validate(&id, key).await?))
}

/// GET `/api/providers/{id}/models`.
pub(in crate::gateway) async fn models(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
) -> Result<Json<ModelList>, ApiError> {
    let models = gateway.catalogue.models(&id).await?;
    Ok(Json(ModelList { provider: id, models }))
}

/// GET `/api/providers/{id}/voices`.
pub(in crate::gateway) async fn voices(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
) -> Result<Json<VoiceList>, ApiError> {
    let voices = gateway.catalogue.voices(&id).await?;
    Ok(Json(VoiceList { provider: id, voices }))
}

impl From<CatalogueError> for ApiError {
    fn from(error: CatalogueError) -> Self {
        let message = error.to_string();
        match error {
            CatalogueError::Unknown(_) => Self::new(StatusCode::NOT_FOUND, ErrorCode::NotFound, message),
            CatalogueError::NotSetUp(_) => {
                Self::new(StatusCode::CONFLICT, ErrorCode::InvalidMessage, message)
            }
            CatalogueError::NoSuchKey(_) => Self::invalid(message),
            CatalogueError::Provider(error) => Self::of_code(error.kind.code(), message),
        }
    }
}
