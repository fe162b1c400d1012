//! Tools that a client runs who reads events over HTTP: it registers them for its stream, is sent `mcp_call` there and
//! nowhere else, and posts the result. They leave with the stream.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::State;
use axum::http::StatusCode;
use tns_protocol::rest::{RegisterTools, ToolAnswer};
use tns_protocol::tool::McpResult;
use tns_protocol::{ErrorCode, SessionId, ToolCallId};
use tns_server_core::event::Answer;
use tns_server_core::session::{ConnectionId, SessionCommand};
use uuid::Uuid;

use super::actions::done;
use super::{Body, Path, session};
use crate::gateway::Gateway;
use crate::gateway::dispatch::{client_tool, tool_result};
use crate::gateway::error::ApiError;

/// The streams whose clients may run tools, by the name that only the stream is told.
#[derive(Debug, Default)]
pub(in crate::gateway) struct ToolStreams(Mutex<HashMap<String, (SessionId, ConnectionId)>>);

/// A stream's place among them, which it leaves when it is dropped.
pub(in crate::gateway) struct NamedStream {
    gateway: Arc<Gateway>,
    name: String,
}

impl NamedStream {
    /// Names a connection that reads a session's events.
    pub(in crate::gateway) fn new(
        gateway: &Arc<Gateway>,
        session: &SessionId,
        connection: ConnectionId,
    ) -> Self {
        let name = Uuid::new_v4().simple().to_string();
        gateway.tool_streams.lock().insert(name.clone(), (session.clone(), connection));
        Self { gateway: gateway.clone(), name }
    }

    pub(in crate::gateway) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for NamedStream {
    fn drop(&mut self) {
        self.gateway.tool_streams.lock().remove(&self.name);
    }
}

impl ToolStreams {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, (SessionId, ConnectionId)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the connections of a session's streams: of the named one, or of all.
    fn of(&self, session: &SessionId, name: Option<&str>) -> Vec<ConnectionId> {
        let streams = self.lock();
        let meant = streams
            .iter()
            .filter(|(known, (of, _))| of == session && name.is_none_or(|name| name == known.as_str()));
        meant.map(|(_, (_, connection))| *connection).collect()
    }
}

/// POST `/api/sessions/{id}/tools`: 204; replaces the tools of a stream, and an empty list takes them away.
pub(in crate::gateway) async fn register(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    Body(request): Body<RegisterTools>,
) -> Result<StatusCode, ApiError> {
    let handle = session(&gateway, &id).await?;
    let streams = gateway.tool_streams.of(&handle.identity().id, Some(&request.stream));
    let Some(connection) = streams.first().copied() else {
        let message = "no open stream of this session has this name; open one with …/events?tools=1";
        return Err(ApiError::new(StatusCode::NOT_FOUND, ErrorCode::NotFound, message));
    };
    let tools = request.tools.into_iter().map(client_tool).collect();
    done(handle.ask(|to| SessionCommand::RegisterTools(connection, tools, to)).await?)?;
    Ok(StatusCode::NO_CONTENT)
}

/// POST `/api/sessions/{id}/tools/{toolCallId}/result`: 204 when a stream of the session was asked for it.
pub(in crate::gateway) async fn answer(
    State(gateway): State<Arc<Gateway>>,
    Path((id, call)): Path<(String, String)>,
    Body(answer): Body<ToolAnswer>,
) -> Result<StatusCode, ApiError> {
    let tool_call_id = ToolCallId::parse(call).map_err(|error| ApiError::invalid(error.to_string()))?;
    if answer.result.is_none() && answer.error.is_none() {
        return Err(ApiError::invalid("give the tool's `result`, or the `error` that it ended with"));
    }
    let handle = session(&gateway, &id).await?;
    let (call, result) = tool_result(McpResult { tool_call_id, result: answer.result, error: answer.error });
    for connection in gateway.tool_streams.of(&handle.identity().id, answer.stream.as_deref()) {
        let (call, result) = (call.clone(), result.clone());
        match handle.ask(|to| SessionCommand::ToolResult(connection, call, result, to)).await? {
            // Another stream was asked, or none.
            Answer::Refused(refusal) if refusal.code == ErrorCode::UnknownToolCall => {}
            other => return done(other).map(|()| StatusCode::NO_CONTENT),
        }
    }
    let message = format!("no stream of this session was asked to run {call}, or it is answered already");
    Err(ApiError::of_code(ErrorCode::UnknownToolCall, message))
}
