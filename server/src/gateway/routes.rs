//! Every route of the server, once: the router and the page that describes it are both made of this table.

mod page;
mod route;

use std::sync::Arc;

use axum::routing::MethodRouter;
use serde_json::Value;
use tns_protocol::approval::RulesListResult;
use tns_protocol::chat::{Cancel, Chat};
use tns_protocol::knowledge::{KbListResult, KbRemoved};
use tns_protocol::provider::{KeyCheck, ModelList, ProviderList, ValidateKey, VoiceList};
use tns_protocol::rest::{
    Accepted, ApprovalAnswer, AuditList, CreateSession, EXPORT_TYPES, ErrorBody, EventList, ForkSession,
    Health, KbAddRequest, KbAddResponse, Liveness, MessageList, RegisterTools, RenameSession, Renamed,
    SearchList, SearchRequest, SearchResponse, ServerInfo, SessionDetail, SessionList, ToolAnswer,
};
use tns_protocol::session::{Feedback, FeedbackStored};
use tns_protocol::usage::UsageReport;

use super::{Gateway, rest, stream, ws};
pub(crate) use page::page;
use route::{Content, Route, Verb, json};

const EVENTS: Content = Content::Text("text/event-stream");

/// Returns every route.
fn table() -> Vec<Route> {
    let mut table = of_server();
    table.extend(of_knowledge());
    table.extend(of_sessions());
    table.extend(of_one_session());
    table
}

/// Returns every route's path and handler.
pub(super) fn handlers() -> impl Iterator<Item = (&'static str, MethodRouter<Arc<Gateway>>)> {
    table().into_iter().map(|route| (route.path, route.handler))
}

fn of_server() -> Vec<Route> {
    use rest::{health, providers, sessions, usage};
    vec![
        Route::get(
            "/chat",
            ws::upgrade,
            "Opens the WebSocket of the chat protocol; /api/schema describes its events",
        )
        .answers(101, Content::Nothing),
        Route::get("/health", health::health, "Says how the server and its parts are")
            .answers(200, json::<Health>())
            .answers(503, json::<Health>()),
        Route::get("/health/live", health::live, "Says that the server runs")
            .answers(200, json::<Liveness>()),
        Route::get("/health/ready", health::ready, "Says whether the server takes requests")
            .answers(200, json::<Liveness>())
            .answers(503, json::<Liveness>()),
        Route::get("/api/info", health::info, "Says what the server is and which limits it has")
            .answers(200, json::<ServerInfo>()),
        Route::get("/api/schema", health::schema, "Gives the JSON Schema of every event")
            .answers(200, json::<Value>()),
        Route::get("/api/openapi.json", health::openapi, "Gives this page").answers(200, json::<Value>()),
        Route::get(
            "/api/audit",
            sessions::audit,
            "Lists the decisions about tool calls, the newest, oldest first",
        )
        .query::<sessions::AuditParams>()
        .answers(200, json::<AuditList>()),
        Route::get("/api/events", stream::all, "Streams the durable events of all sessions")
            .query::<stream::StreamParams>()
            .answers(200, EVENTS),
        Route::get("/api/usage", usage::usage, "Sums up what model calls used and cost")
            .query::<usage::UsageParams>()
            .answers(200, json::<UsageReport>()),
        Route::get("/api/providers", providers::list, "Lists the providers of models")
            .answers(200, json::<ProviderList>()),
        Route::get("/api/providers/{id}/models", providers::models, "Lists a provider's models, by kind")
            .answers(200, json::<ModelList>()),
        Route::post(
            "/api/providers/{id}/validate",
            providers::validate,
            "Checks a key, or the one that is set up",
        )
        .may_take(json::<ValidateKey>())
        .answers(200, json::<KeyCheck>()),
        Route::get("/api/providers/{id}/voices", providers::voices, "Lists a provider's voices")
            .answers(200, json::<VoiceList>()),
    ]
}

fn of_knowledge() -> Vec<Route> {
    use rest::kb;
    const INDEX: &str = "Not offered by this server: it has no directory index";
    vec![
        Route::get("/api/kb", kb::list, "Lists the documents that a session sees, oldest first")
            .query::<kb::OfSession>()
            .answers(200, json::<KbListResult>()),
        Route::post("/api/kb", kb::add, "Stores a document; one that is there already is 200")
            .takes(json::<KbAddRequest>())
            .answers(201, json::<KbAddResponse>())
            .answers(200, json::<KbAddResponse>()),
        Route::post("/api/kb/search", kb::search, "Finds passages, best first")
            .takes(json::<SearchRequest>())
            .answers(200, json::<SearchResponse>()),
        Route::delete("/api/kb/{document}", kb::remove, "Removes a document; an unknown one is found: false")
            .query::<kb::OfSession>()
            .answers(200, json::<KbRemoved>()),
        Route::any("/api/index", &[Verb::Post, Verb::Delete], rest::not_offered, INDEX)
            .answers(501, json::<ErrorBody>()),
        Route::any("/api/index/status", &[Verb::Get], rest::not_offered, INDEX)
            .answers(501, json::<ErrorBody>()),
        Route::any("/api/search", &[Verb::Post], rest::not_offered, INDEX).answers(501, json::<ErrorBody>()),
    ]
}

fn of_sessions() -> Vec<Route> {
    use rest::{actions, sessions, transfer};
    vec![
        Route::get("/api/sessions", sessions::list, "Lists sessions, the one whose log grew last first")
            .query::<sessions::ListParams>()
            .answers(200, json::<SessionList>()),
        Route::post(
            "/api/sessions",
            sessions::create,
            "Makes a session; one that is there already is 200, unchanged",
        )
        .takes(json::<CreateSession>())
        .answers(201, json::<SessionDetail>())
        .answers(200, json::<SessionDetail>()),
        Route::get(
            "/api/sessions/search",
            actions::find,
            "Finds messages and titles that have all words, best first",
        )
        .query::<actions::FindParams>()
        .answers(200, json::<SearchList>()),
        Route::post("/api/sessions/import", transfer::import, "Makes a session of an export in JSON Lines")
            .query::<transfer::ImportParams>()
            .takes(Content::Text(EXPORT_TYPES[0]))
            .takes(Content::Text(EXPORT_TYPES[1]))
            .takes(Content::Text(EXPORT_TYPES[2]))
            .answers(201, json::<SessionDetail>()),
    ]
}

fn of_one_session() -> Vec<Route> {
    use rest::{actions, rules, sessions, tools, transfer};
    vec![
        Route::get("/api/sessions/{id}", sessions::show, "Shows a session")
            .answers(200, json::<SessionDetail>()),
        Route::patch("/api/sessions/{id}", actions::rename, "Names a session; null takes its title away")
            .takes(json::<RenameSession>())
            .answers(200, json::<Renamed>()),
        Route::delete("/api/sessions/{id}", actions::remove, "Ends what runs and erases the session")
            .answers(204, Content::Nothing),
        Route::get("/api/sessions/{id}/messages", sessions::messages, "Lists stored messages, oldest first")
            .query::<sessions::MessageParams>()
            .answers(200, json::<MessageList>()),
        Route::post("/api/sessions/{id}/messages", actions::say, "Says something; the reply comes as events")
            .takes(json::<Chat>())
            .answers(202, json::<Accepted>()),
        Route::post("/api/sessions/{id}/interrupt", actions::interrupt, "Stops what runs")
            .takes(json::<Cancel>())
            .answers(202, Content::Nothing),
        Route::post("/api/sessions/{id}/approvals/{call}", actions::decide, "Answers a call that waits")
            .takes(json::<ApprovalAnswer>())
            .answers(204, Content::Nothing),
        Route::get("/api/sessions/{id}/rules", rules::list, "Lists what runs unasked since an always")
            .answers(200, json::<RulesListResult>()),
        Route::delete(
            "/api/sessions/{id}/rules/{rule}",
            rules::remove,
            "Takes a rule back; what it covered asks again",
        )
        .answers(204, Content::Nothing),
        Route::post(
            "/api/sessions/{id}/tools",
            tools::register,
            "Replaces the tools that the client of a stream runs",
        )
        .takes(json::<RegisterTools>())
        .answers(204, Content::Nothing),
        Route::post(
            "/api/sessions/{id}/tools/{call}/result",
            tools::answer,
            "Gives the result of a client's tool",
        )
        .takes(json::<ToolAnswer>())
        .answers(204, Content::Nothing),
        Route::post(
            "/api/sessions/{id}/feedback",
            actions::feedback,
            "Keeps what somebody thinks of a message",
        )
        .takes(json::<Feedback>())
        .answers(200, json::<FeedbackStored>()),
        Route::post(
            "/api/sessions/{id}/fork",
            actions::copy,
            "Makes a session that begins with a part of this one",
        )
        .takes(json::<ForkSession>())
        .answers(201, json::<SessionDetail>()),
        Route::get("/api/sessions/{id}/export", transfer::export, "Gives the session as a file")
            .query::<transfer::ExportParams>()
            .answers(200, Content::Text(EXPORT_TYPES[0]))
            .answers(200, Content::Text("text/markdown; charset=utf-8")),
        Route::get(
            "/api/sessions/{id}/events",
            sessions::events,
            "Streams the session's events, or gives a page of them",
        )
        .query::<sessions::EventParams>()
        .answers(200, EVENTS)
        .answers(200, json::<EventList>()),
    ]
}
