//! How the server is and what it is.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tns_protocol::PROTOCOL_VERSION;
use tns_protocol::log::EXTENSION;
use tns_protocol::rest::{Health, HealthComponents, HealthStatus, Liveness, ServerInfo};

use crate::gateway::{Gateway, routes};

/// GET `/health`: 200, or 503 when a component is down.
pub(in crate::gateway) async fn health(State(gateway): State<Arc<Gateway>>) -> Response {
    let (store, knowledge) = tokio::join!(gateway.deps.store.check(), gateway.deps.knowledge.check());
    let of = |works: bool| if works { HealthStatus::Up } else { HealthStatus::Down };
    let components = HealthComponents {
        server: if gateway.draining.load(Ordering::Relaxed) {
            HealthStatus::Degraded
        } else {
            HealthStatus::Up
        },
        store: of(store.is_ok()),
        // The engine was opened when the server started; whether its provider answers shows in a reply.
        engine: HealthStatus::Up,
        knowledge: of(knowledge.is_ok()),
    };
    let all = [components.server, components.store, components.engine, components.knowledge];
    let status = if components.store == HealthStatus::Down {
        HealthStatus::Down
    } else if all.iter().all(|component| *component == HealthStatus::Up) {
        HealthStatus::Up
    } else {
        HealthStatus::Degraded
    };
    let code = if status == HealthStatus::Down { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    (code, Json(Health { status, components })).into_response()
}

/// GET `/health/live`: always 200.
pub(in crate::gateway) async fn live() -> Json<Liveness> {
    Json(Liveness { status: HealthStatus::Up })
}

/// GET `/health/ready`: 200, or 503 while the server starts or drains.
pub(in crate::gateway) async fn ready(State(gateway): State<Arc<Gateway>>) -> Response {
    let works = !gateway.draining.load(Ordering::Relaxed) && gateway.deps.store.check().await.is_ok();
    let (code, status) = if works {
        (StatusCode::OK, HealthStatus::Up)
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, HealthStatus::Down)
    };
    (code, Json(Liveness { status })).into_response()
}

/// GET `/api/info`.
pub(in crate::gateway) async fn info(State(gateway): State<Arc<Gateway>>) -> Json<ServerInfo> {
    Json(ServerInfo {
        name: "tns".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        protocol: PROTOCOL_VERSION,
        extensions: vec![EXTENSION.to_owned()],
        active_sessions: gateway.registry.active() as u64,
        uptime_seconds: gateway.started.elapsed().as_secs(),
        default_provider: gateway.engine.provider.clone(),
        default_model: gateway.engine.model.clone(),
        default_reason: gateway.engine.reason.clone(),
        workspaces: gateway.roots.iter().map(|root| root.display().to_string()).collect(),
        limits: Gateway::limits(),
    })
}

/// GET `/api/schema`: JSON Schema of every event.
pub(in crate::gateway) async fn schema() -> Json<Value> {
    Json(tns_protocol::schema())
}

/// GET `/api/openapi.json`: every route of this server.
pub(in crate::gateway) async fn openapi() -> Json<Value> {
    Json(routes::page())
}
