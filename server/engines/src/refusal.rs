//! What a refusal means, read from its body first and its status second: a 429 may be an empty
//! account, a 400 a conversation that is too long. Every text is one line that says what to do. The
//! usual table fits most providers; a wire that differs decides first (`Wire::kind`).

use std::time::Duration;

use serde_json::Value;
use tns_server_core::engine::{EngineError, EngineErrorKind};

use crate::config::base_url_variable;
use crate::http::Endpoint;

/// What a body says, whatever its form.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    /// Code, type, status and the reasons among Google's details, in lower case.
    pub(crate) tags: String,
    /// The provider's words, as they came; not fit to be shown as they are.
    pub(crate) message: String,
    /// A status that stands in the body.
    status: Option<u16>,
}

/// Returns the error for a refused request, or for an error in place of a reply (`status` is `None`).
/// `kind` says what it means; [`usual_kind`] fits most providers.
pub(crate) fn refused(
    endpoint: &Endpoint,
    model: &str,
    status: Option<u16>,
    body: &str,
    kind: impl FnOnce(Option<u16>, &Said) -> EngineErrorKind,
) -> EngineError {
    let said = Said::read(body);
    let status = status.or(said.status);
    let kind = kind(status, &said);
    let detail = match endpoint.detail(&said.message) {
        detail if detail.is_empty() => "it gave no reason".to_owned(),
        detail => detail,
    };
    let provider = endpoint.provider;
    let number = status.map(|status| format!(" (HTTP {status})")).unwrap_or_default();
    let message = match kind {
        EngineErrorKind::BadKey if !endpoint.has_key() => {
            format!("{provider} wants a key: set {}", endpoint.key_place())
        }
        // The provider's own words would show parts of the key.
        EngineErrorKind::BadKey if status == Some(401) => {
            format!("{provider} refused the key: check {}", endpoint.key_place())
        }
        EngineErrorKind::BadKey => {
            format!("{provider} refused access{number}: {detail}; check {}", endpoint.key_place())
        }
        EngineErrorKind::NoCredit => format!("the {provider} account has no credit: {detail}"),
        EngineErrorKind::RateLimited => format!("{provider} asks to slow down: {detail}"),
        EngineErrorKind::Unavailable => format!("{provider} is down or overloaded{number}: {detail}"),
        EngineErrorKind::ContextOverflow => format!("the conversation is too long for {model}: {detail}"),
        EngineErrorKind::Provider | EngineErrorKind::StreamIncomplete => match status {
            Some(300..400) => format!(
                "{provider} at {} points elsewhere{number}, and a key is never sent on: check {}",
                endpoint.address(),
                base_url_variable(provider)
            ),
            Some(404) => format!(
                "{provider} at {} has no such model or path{number}: {detail}; check the model and {}",
                endpoint.address(),
                base_url_variable(provider)
            ),
            _ => format!("{provider} answered with an error{number}: {detail}"),
        },
    };
    EngineError { kind, message }
}

/// Returns the error for an address that serves web pages.
pub(crate) fn web_page(endpoint: &Endpoint) -> EngineError {
    let message = format!(
        "{} at {} answers with a web page; check {}, which often ends in /v1",
        endpoint.provider,
        endpoint.address(),
        base_url_variable(endpoint.provider)
    );
    EngineError { kind: EngineErrorKind::Provider, message }
}

/// Returns the pause that a body asks for: Google's `retryDelay`, such as `2s`.
pub(crate) fn asked_pause(body: &str) -> Option<Duration> {
    let value: Value = serde_json::from_str(body).ok()?;
    let details = first(&value).get("error")?.get("details")?.as_array()?;
    let delay = details.iter().find_map(|detail| detail.get("retryDelay")?.as_str())?;
    Duration::try_from_secs_f64(delay.strip_suffix('s')?.parse().ok()?).ok()
}

/// Returns what a refusal means with most providers.
pub(crate) fn usual_kind(status: Option<u16>, said: &Said) -> EngineErrorKind {
    let tagged = |parts: &[&str]| parts.iter().any(|part| said.tags.contains(part));
    let words = said.message.to_ascii_lowercase();
    let says = |parts: &[&str]| parts.iter().any(|part| words.contains(part));
    if status == Some(402)
        || tagged(&["insufficient_quota", "billing", "credit", "insufficient_balance"])
        || says(&["credit balance", "insufficient balance", "insufficient credits"])
    {
        return EngineErrorKind::NoCredit;
    }
    if status == Some(401) || tagged(&["invalid_api_key", "authentication_error", "api_key_invalid"]) {
        return EngineErrorKind::BadKey;
    }
    if status == Some(413)
        || tagged(&["context_length", "context_size", "context_window"])
        || says(&[
            "maximum context length",
            "context window",
            "context size",
            "prompt is too long",
            "input is too long",
        ])
    {
        return EngineErrorKind::ContextOverflow;
    }
    if status == Some(429) || tagged(&["rate_limit", "resource_exhausted", "too_many_requests"]) {
        return EngineErrorKind::RateLimited;
    }
    if status == Some(408)
        || status.is_some_and(|status| status >= 500)
        || tagged(&["overloaded", "server_error", "unavailable", "api_error", "slow_down"])
    {
        return EngineErrorKind::Unavailable;
    }
    if status == Some(403) || tagged(&["permission"]) {
        return EngineErrorKind::BadKey;
    }
    EngineErrorKind::Provider
}

impl Said {
    /// Reads `{"error": {…}}`, `{"error": "…"}`, `{"detail": {…}}`, the bare object, Google's list of one, or
    /// plain text.
    fn read(body: &str) -> Self {
        let Ok(value) = serde_json::from_str::<Value>(body) else {
            // A proxy's page says nothing to people.
            let page = body.trim_start().starts_with('<');
            let message = if page { String::new() } else { body.trim().to_owned() };
            return Self { message, ..Self::default() };
        };
        let outer = first(&value);
        let error = match (outer.get("error"), outer.get("detail")) {
            (Some(Value::Null) | None, Some(detail @ Value::Object(_))) => detail,
            (Some(Value::Null) | None, _) => outer,
            (Some(error), _) => error,
        };
        let text = |name: &str| error.get(name).or_else(|| outer.get(name)).and_then(words);
        let message =
            error.as_str().map(str::to_owned).or_else(|| text("message")).or_else(|| text("detail"));
        let reasons = error.get("details").and_then(Value::as_array).into_iter().flatten();
        let reasons = reasons.filter_map(|detail| detail.get("reason")?.as_str().map(str::to_owned));
        let tags = ["code", "type", "status"].into_iter().filter_map(text).chain(reasons);
        let tags = tags.collect::<Vec<_>>().join(" ");
        let number = error.get("code").or_else(|| error.get("status"));
        Self {
            tags: tags.to_ascii_lowercase(),
            message: message.unwrap_or_default(),
            status: number
                .and_then(Value::as_u64)
                .and_then(|code| u16::try_from(code).ok())
                .filter(|code| (400..600).contains(code)),
        }
    }
}

fn first(value: &Value) -> &Value {
    value.as_array().and_then(|list| list.first()).unwrap_or(value)
}

fn words(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Null => None,
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => Some(value.to_string()),
    }
}

#[cfg(test)]
mod tests;
