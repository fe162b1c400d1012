//! Rules about calls over HTTP: which hold in a session, and taking one back.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use tns_protocol::RuleId;
use tns_protocol::approval::RulesListResult;
use tns_server_core::session::SessionCommand;
use tns_server_core::store::LOCAL_PRINCIPAL;

use super::actions::done;
use super::{Path, session};
use crate::gateway::error::ApiError;
use crate::gateway::{Gateway, translate};

/// GET `/api/sessions/{id}/rules`: oldest first.
pub(in crate::gateway) async fn list(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
) -> Result<Json<RulesListResult>, ApiError> {
    let grants = session(&gateway, &id).await?.inspect().await?.grants;
    Ok(Json(RulesListResult { rules: grants.iter().map(translate::rule).collect() }))
}

/// DELETE `/api/sessions/{id}/rules/{ruleId}`: 204; what the rule covered asks again.
pub(in crate::gateway) async fn remove(
    State(gateway): State<Arc<Gateway>>,
    Path((id, rule)): Path<(String, String)>,
) -> Result<StatusCode, ApiError> {
    let rule = RuleId::parse(rule).map_err(|error| ApiError::invalid(error.to_string()))?;
    let handle = session(&gateway, &id).await?;
    let by = LOCAL_PRINCIPAL.to_owned();
    done(handle.ask(|to| SessionCommand::RulesRemove(rule, by, to)).await?)?;
    Ok(StatusCode::NO_CONTENT)
}
