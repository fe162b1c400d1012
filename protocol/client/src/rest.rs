//! The REST calls of a server, one method each. Answers are bounded; a refusal keeps the server's words.

mod sessions;
mod transfer;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::{Method, Response, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tns_protocol::knowledge::{KbListResult, KbRemoved};
use tns_protocol::provider::{KeyCheck, ModelList, ProviderList, ValidateKey, VoiceList};
use tns_protocol::rest::{
    AuditList, ErrorBody, Health, KbAddRequest, KbAddResponse, SearchRequest, SearchResponse, ServerInfo,
};
use tns_protocol::usage::UsageReport;
use tns_protocol::{Day, DocumentId, SessionId};

pub use transfer::{Download, ExportFormat, ImportTarget};

use crate::ClientError;
use crate::address::{Address, SharedAddress};
use crate::connection::plain;

/// Time for one call, answer included; indexing a large document is the longest.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for the connection alone.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest answer that is read, in bytes. More → [`ClientError::Protocol`].
const MAX_ANSWER_BYTES: usize = 32 << 20;

/// The REST face of one server. Cheap to clone; nothing is set up before the first call.
#[derive(Debug, Clone)]
pub struct Rest {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    address: SharedAddress,
    http: OnceLock<reqwest::Client>,
}

impl Rest {
    /// Names the server at `http://host:port`.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`] when the text is no such address.
    pub fn new(url: &str) -> Result<Self, ClientError> {
        Address::parse(url).map(|address| Self::at(SharedAddress::new(address)))
    }

    pub(crate) fn at(address: SharedAddress) -> Self {
        Self { inner: Arc::new(Inner { address, http: OnceLock::new() }) }
    }

    /// Returns the server's address, without a trailing slash. That of a client's calls follows it to where
    /// it finds the server again.
    pub fn url(&self) -> String {
        self.inner.address.get().as_str().to_owned()
    }

    /// GET `/health`: an unhealthy server answers too.
    ///
    /// # Errors
    /// Each call: [`ClientError::Unreachable`] when nobody answers, [`ClientError::Refused`] with the
    /// server's code, [`ClientError::Protocol`] when the answer is none of this protocol's.
    pub async fn health(&self) -> Result<Health, ClientError> {
        let response = self.call(Method::GET, self.url_of(&["health"], &[]), None).await?;
        match response.status() {
            StatusCode::SERVICE_UNAVAILABLE => parse(&read_body(response).await?),
            _ => answer(response).await,
        }
    }

    /// GET `/api/info`.
    ///
    /// # Errors
    /// As [`Self::health`].
    pub async fn info(&self) -> Result<ServerInfo, ClientError> {
        self.get(&["api", "info"], &[]).await
    }

    /// GET `/api/audit`: a session's decisions, oldest first.
    ///
    /// # Errors
    /// As [`Self::session`].
    pub async fn audit(&self, id: &SessionId) -> Result<AuditList, ClientError> {
        self.get(&["api", "audit"], &[("sessionId", id.as_str())]).await
    }

    /// POST `/api/kb`: stores a document.
    ///
    /// # Errors
    /// As [`Self::health`]; `INVALID_MESSAGE` for blank content, `PAYLOAD_TOO_LARGE` above the limit.
    pub async fn kb_add(&self, body: KbAddRequest) -> Result<KbAddResponse, ClientError> {
        self.post(&["api", "kb"], &body).await
    }

    /// POST `/api/kb/search`: best passages first; no hit is an empty list.
    ///
    /// # Errors
    /// As [`Self::health`]; `INVALID_MESSAGE` for a blank query.
    pub async fn kb_search(&self, body: SearchRequest) -> Result<SearchResponse, ClientError> {
        self.post(&["api", "kb", "search"], &body).await
    }

    /// GET `/api/kb`: every document that the session sees, oldest first.
    ///
    /// # Errors
    /// As [`Self::session`].
    pub async fn kb_list(&self, session: &SessionId) -> Result<KbListResult, ClientError> {
        self.get(&["api", "kb"], &[("sessionId", session.as_str())]).await
    }

    /// DELETE `/api/kb/{documentId}`: an unknown document is `found: false`.
    ///
    /// # Errors
    /// As [`Self::session`].
    pub async fn kb_remove(
        &self,
        session: &SessionId,
        document: &DocumentId,
    ) -> Result<KbRemoved, ClientError> {
        let url = self.url_of(&["api", "kb", document.as_str()], &[("sessionId", session.as_str())]);
        answer(self.call(Method::DELETE, url, None).await?).await
    }

    /// GET `/api/providers`: every provider, set up or not.
    ///
    /// # Errors
    /// As [`Self::health`].
    pub async fn providers(&self) -> Result<ProviderList, ClientError> {
        self.get(&["api", "providers"], &[]).await
    }

    /// POST `/api/providers/{id}/validate`: checks a key, or the one that is set up.
    ///
    /// # Errors
    /// As [`Self::health`]; `NOT_FOUND` for an unknown provider, `INVALID_MESSAGE` (409) for one that is
    /// not set up; `BAD_KEY`, `NO_CREDIT`, `RATE_LIMITED`, `PROVIDER_UNAVAILABLE`, `PROVIDER_ERROR`.
    pub async fn validate_key(&self, provider: &str, body: ValidateKey) -> Result<KeyCheck, ClientError> {
        self.post(&["api", "providers", provider, "validate"], &body).await
    }

    /// GET `/api/providers/{id}/models`: by kind, the recommended one of each first.
    ///
    /// # Errors
    /// As [`Self::validate_key`].
    pub async fn provider_models(&self, provider: &str) -> Result<ModelList, ClientError> {
        self.get(&["api", "providers", provider, "models"], &[]).await
    }

    /// GET `/api/providers/{id}/voices`: empty for a provider without any.
    ///
    /// # Errors
    /// As [`Self::validate_key`].
    pub async fn provider_voices(&self, provider: &str) -> Result<VoiceList, ClientError> {
        self.get(&["api", "providers", provider, "voices"], &[]).await
    }

    /// GET `/api/usage`: what the days from `from` to `to` used; today where neither is given.
    ///
    /// # Errors
    /// As [`Self::health`]; `INVALID_MESSAGE` for days in the wrong order, or too many.
    pub async fn usage(&self, from: Option<Day>, to: Option<Day>) -> Result<UsageReport, ClientError> {
        let days = [("from", from), ("to", to)].map(|(name, day)| Some((name, day?.to_string())));
        let query: Vec<_> = days.iter().flatten().map(|(name, day)| (*name, day.as_str())).collect();
        self.get(&["api", "usage"], &query).await
    }

    fn url_of(&self, segments: &[&str], query: &[(&str, &str)]) -> Url {
        self.inner.address.get().rest(segments, query)
    }

    async fn get<T: DeserializeOwned>(
        &self,
        segments: &[&str],
        query: &[(&str, &str)],
    ) -> Result<T, ClientError> {
        answer(self.call(Method::GET, self.url_of(segments, query), None).await?).await
    }

    async fn post<T: DeserializeOwned>(
        &self,
        segments: &[&str],
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.send(Method::POST, segments, body).await
    }

    async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        segments: &[&str],
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body)
            .map_err(|error| ClientError::Protocol(format!("the request is no JSON: {error}")))?;
        answer(self.call(method, self.url_of(segments, &[]), Some(body)).await?).await
    }

    async fn call(&self, method: Method, url: Url, body: Option<Vec<u8>>) -> Result<Response, ClientError> {
        let mut request = self.http()?.request(method, url);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body);
        }
        request.send().await.map_err(|error| self.failed(&error))
    }

    /// Builds the HTTP client for the first call.
    fn http(&self) -> Result<&reqwest::Client, ClientError> {
        if let Some(http) = self.inner.http.get() {
            return Ok(http);
        }
        let built = build_http().map_err(|error| ClientError::Unreachable(error.to_string()))?;
        Ok(self.inner.http.get_or_init(|| built))
    }

    fn silent(&self) -> ClientError {
        let seconds = CALL_TIMEOUT.as_secs();
        ClientError::Unreachable(format!("{} did not answer within {seconds} seconds", self.url()))
    }

    fn failed(&self, error: &reqwest::Error) -> ClientError {
        if error.is_timeout() && !error.is_connect() {
            return self.silent();
        }
        ClientError::Unreachable(format!("{}: {}", self.url(), plain(root_cause(error))))
    }
}

/// Addresses are plain HTTP only, so the TLS settings that the HTTP crate insists on stay empty: reading the
/// system's certificates would cost the first byte of every command.
fn build_http() -> Result<reqwest::Client, Box<dyn std::error::Error>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let client = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(CALL_TIMEOUT)
        .build()?;
    Ok(client)
}

fn root_cause<'a>(error: &'a (dyn std::error::Error + 'static)) -> &'a (dyn std::error::Error + 'static) {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause
}

async fn answer<T: DeserializeOwned>(response: Response) -> Result<T, ClientError> {
    parse(&read_body(accepted(response).await?).await?)
}

/// Lets a success through, its body unread.
async fn accepted(response: Response) -> Result<Response, ClientError> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    match serde_json::from_slice::<ErrorBody>(&read_body(response).await?) {
        Ok(ErrorBody { error }) => {
            Err(ClientError::Refused { status: status.as_u16(), code: error.code, message: error.message })
        }
        Err(_) => Err(ClientError::Protocol(format!("it answered {} without a reason", status.as_u16()))),
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ClientError> {
    serde_json::from_slice(body)
        .map_err(|error| ClientError::Protocol(format!("its answer is wrong: {error}")))
}

async fn read_body(mut response: Response) -> Result<Vec<u8>, ClientError> {
    let mut body = Vec::new();
    loop {
        let chunk = response.chunk().await;
        match chunk.map_err(|error| ClientError::Unreachable(plain(root_cause(&error))))? {
            Some(chunk) if body.len() + chunk.len() > MAX_ANSWER_BYTES => {
                let megabytes = MAX_ANSWER_BYTES >> 20;
                return Err(ClientError::Protocol(format!("its answer is larger than {megabytes} MiB")));
            }
            Some(chunk) => body.extend_from_slice(&chunk),
            None => return Ok(body),
        }
    }
}

#[cfg(test)]
mod tests;
