//! One question to a provider outside of a step, such as which models it has: a request that takes a
//! moment and an answer that is one JSON value. It must not know any provider's wire, and tries once.

use std::time::Duration;

use reqwest::{RequestBuilder, Response};
use serde::de::DeserializeOwned;
use tns_server_core::engine::{EngineError, EngineErrorKind};
use tokio::time::timeout;

use crate::config::base_url_variable;
use crate::http::{self, Endpoint};
use crate::refusal::{self, Said, usual_kind};

/// Most bytes of an answer; OpenRouter's list of models is the longest known, near 1 MiB.
const MAX_ANSWER_BYTES: usize = 4 << 20;

/// How long an answer may take; a server that is loading a model answers late.
pub(crate) const ASK_LIMIT: Duration = Duration::from_secs(10);

/// A question.
#[derive(Debug)]
pub(crate) struct Question {
    /// With its headers.
    pub(crate) request: RequestBuilder,
    /// From the request to the end of the answer.
    pub(crate) limit: Duration,
    /// What a refusal means.
    pub(crate) kind: fn(Option<u16>, &Said) -> EngineErrorKind,
    /// What an answer of another form does; reads after "PROVIDER at ADDRESS".
    pub(crate) otherwise: &'static str,
}

impl Question {
    /// Makes a question to be answered within [`ASK_LIMIT`] and refused in the usual way.
    pub(crate) fn new(request: RequestBuilder, otherwise: &'static str) -> Self {
        Self { request, limit: ASK_LIMIT, kind: usual_kind, otherwise }
    }
}

/// Asks, and reads the answer.
///
/// # Errors
/// [`EngineError`] when the provider can't be reached, is silent, refuses, or answers something else.
pub(crate) async fn ask<T: DeserializeOwned>(
    endpoint: &Endpoint,
    question: Question,
) -> Result<T, EngineError> {
    let limit = question.limit;
    let answered = timeout(limit, answer(endpoint, question)).await;
    answered.unwrap_or_else(|_| Err(endpoint.silent(limit, EngineErrorKind::Unavailable)))
}

async fn answer<T: DeserializeOwned>(endpoint: &Endpoint, question: Question) -> Result<T, EngineError> {
    let Question { request, kind, otherwise, .. } = question;
    let response = request.send().await.map_err(|error| endpoint.unreachable(&error).error)?;
    let status = response.status();
    if !status.is_success() {
        let body = http::read_error(response).await;
        return Err(refusal::refused(endpoint, "", Some(status.as_u16()), &body, kind));
    }
    let body = whole(endpoint, response).await?;
    serde_json::from_slice(&body).map_err(|_| {
        let (provider, variable) = (endpoint.provider, base_url_variable(endpoint.provider));
        unreadable(format!("{provider} at {} {otherwise}; check {variable}", endpoint.address()))
    })
}

/// Reads a body to its end. A broken connection is an outage, not an answer of another form.
async fn whole(endpoint: &Endpoint, mut response: Response) -> Result<Vec<u8>, EngineError> {
    let mut body = Vec::new();
    while let Some(bytes) = response.chunk().await.map_err(|error| endpoint.unreachable(&error).error)? {
        if body.len() + bytes.len() > MAX_ANSWER_BYTES {
            let (provider, megabytes) = (endpoint.provider, MAX_ANSWER_BYTES >> 20);
            let address = endpoint.address();
            return Err(unreadable(format!(
                "{provider} at {address} answers with more than {megabytes} MiB"
            )));
        }
        body.extend_from_slice(&bytes);
    }
    Ok(body)
}

fn unreadable(message: String) -> EngineError {
    EngineError { kind: EngineErrorKind::Provider, message }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::http::Http;
    use crate::origin::Key;
    use crate::retry::Patience;
    use crate::stand_in::{Reply, StandIn, Then};

    async fn asked(reply: Reply, limit: Duration) -> Result<Value, EngineError> {
        let server = StandIn::start([reply]).await;
        let endpoint = Endpoint::new("openai", &server.base_url(), Some(Key::of_test("k"))).unwrap();
        let request = Http::new(Patience::default()).client(&endpoint).await.unwrap().get(endpoint.url("/x"));
        ask(&endpoint, Question { limit, ..Question::new(request, "says no list") }).await
    }

    #[tokio::test]
    async fn an_answer_is_read_whole_up_to_its_limit() {
        let body = |bytes: usize| Reply::whole("200 OK", &format!("\"{}\"", "x".repeat(bytes - 2)));
        assert!(asked(body(MAX_ANSWER_BYTES), ASK_LIMIT).await.is_ok());
        let error = asked(body(MAX_ANSWER_BYTES + 1), ASK_LIMIT).await.unwrap_err();
        assert_eq!(error.kind, EngineErrorKind::Provider);
        assert!(error.message.ends_with("answers with more than 4 MiB"), "{error}");
    }

    #[tokio::test]
    async fn what_is_no_answer_is_told_apart_from_an_outage() {
        let error = asked(Reply::whole("200 OK", "<html>"), ASK_LIMIT).await.unwrap_err();
        assert_eq!(error.kind, EngineErrorKind::Provider);
        assert!(error.message.ends_with("says no list; check PROVIDER_BASE_URL_OPENAI"), "{error}");
        // Less than was promised.
        let cut = "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{\"data\":";
        let cut = Reply { writes: vec![cut.into()], then: Then::Close };
        assert_eq!(asked(cut, ASK_LIMIT).await.unwrap_err().kind, EngineErrorKind::Unavailable);
        let silent = Reply { writes: Vec::new(), then: Then::Hold };
        let error = asked(silent, Duration::from_millis(50)).await.unwrap_err();
        assert_eq!(error.kind, EngineErrorKind::Unavailable);
    }
}
