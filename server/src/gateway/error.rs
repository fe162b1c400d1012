//! Errors of the REST face: a status and `{"error": {"code", "message"}}`.

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tns_protocol::ErrorCode;
use tns_protocol::rest::{ErrorBody, ErrorDetail};
use tns_server_core::event::Refusal;
use tns_server_core::session::SendError;
use tns_server_core::session::registry::RegistryError;
use tns_server_core::store::StoreError;

/// A request that can't be done.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    code: ErrorCode,
    message: String,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, code: ErrorCode, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, ErrorCode::InvalidMessage, message)
    }

    /// Makes an error with the status that goes with its code.
    pub(crate) fn of_code(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::new(status(code), code, message)
    }

    pub(crate) fn no_session(id: &str) -> Self {
        let message = format!("no session {id:?}; `tns sessions list` shows them");
        Self::new(StatusCode::NOT_FOUND, ErrorCode::SessionNotFound, message)
    }

    /// Returns the error as `/chat` answers it.
    pub(crate) fn into_refusal(self) -> (ErrorCode, String) {
        (self.code, self.message)
    }

    #[cfg(test)]
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = ErrorBody { error: ErrorDetail { code: self.code, message: self.message } };
        (self.status, Json(body)).into_response()
    }
}

/// Returns the status that goes with a code.
fn status(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::InvalidMessage | ErrorCode::InvalidDecision | ErrorCode::InvalidAutonomyLevel => {
            StatusCode::BAD_REQUEST
        }
        ErrorCode::AgentNotFound
        | ErrorCode::UnknownToolCall
        | ErrorCode::SessionNotFound
        | ErrorCode::NotFound => StatusCode::NOT_FOUND,
        ErrorCode::Forbidden => StatusCode::FORBIDDEN,
        // A 401 is about the client itself, which the provider's key is not.
        ErrorCode::BadKey => StatusCode::UNPROCESSABLE_ENTITY,
        ErrorCode::NoCredit => StatusCode::PAYMENT_REQUIRED,
        ErrorCode::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        ErrorCode::ProviderUnavailable | ErrorCode::ProviderError => StatusCode::BAD_GATEWAY,
        ErrorCode::StorageFull => StatusCode::INSUFFICIENT_STORAGE,
        ErrorCode::StorageBusy => StatusCode::SERVICE_UNAVAILABLE,
        ErrorCode::QueueFull | ErrorCode::Limit => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        Self::new(status(error.code()), error.code(), error.to_string())
    }
}

impl From<RegistryError> for ApiError {
    fn from(error: RegistryError) -> Self {
        match error {
            RegistryError::Store(error) => error.into(),
            RegistryError::OpenTurn { .. }
            | RegistryError::BeyondLog { .. }
            | RegistryError::NotTakenIn(_) => Self::invalid(error.to_string()),
            RegistryError::Exists(_) => {
                Self::new(StatusCode::CONFLICT, ErrorCode::InvalidMessage, error.to_string())
            }
            RegistryError::Engine(error) => {
                Self::new(StatusCode::BAD_GATEWAY, ErrorCode::ProviderUnavailable, error.to_string())
            }
        }
    }
}

impl From<SendError> for ApiError {
    fn from(error: SendError) -> Self {
        let status = match error {
            SendError::Full => status(error.code()),
            SendError::Closed => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error.code(), error.to_string())
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        Self::new(status(refusal.code), refusal.code, refusal.message)
    }
}

impl From<JsonRejection> for ApiError {
    fn from(rejection: JsonRejection) -> Self {
        let code = match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => ErrorCode::PayloadTooLarge,
            _ => ErrorCode::InvalidMessage,
        };
        Self::new(rejection.status(), code, rejection.body_text())
    }
}

impl From<QueryRejection> for ApiError {
    fn from(rejection: QueryRejection) -> Self {
        // The reader's own preface says nothing to a person.
        let text = rejection.body_text();
        Self::invalid(text.rsplit("query string: ").next().unwrap_or(&text))
    }
}
