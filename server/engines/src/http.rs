//! HTTP for every engine: pooled clients, a provider's address and key, what a broken connection
//! means. It must not know any provider's wire, and no text that it makes holds a key or a whole URL.

use std::error::Error as _;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, Url};
use rustls::crypto::{CryptoProvider, ring};
use secrecy::ExposeSecret;
use tns_server_core::engine::{EngineError, EngineErrorKind, OpenError};

use crate::config::{base_url_variable, key_place, key_variable};
use crate::origin::Key;
use crate::retry::{Failure, Patience, Retry, parse_retry_after};

/// Most bytes of an error's body that are read.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// Most characters of a provider's own words in one of our messages.
const MAX_DETAIL_CHARS: usize = 300;

/// The HTTP clients of all engines of one registry. Each pools its connections and is built when it
/// is first needed: only https pays for loading the system's certificates.
#[derive(Debug)]
pub(crate) struct Http {
    pub(crate) patience: Patience,
    loopback: OnceLock<Client>,
    plain: OnceLock<Client>,
    tls: OnceLock<Client>,
}

/// What a client is for.
#[derive(Debug, Clone, Copy)]
enum Route {
    /// This machine: neither certificates nor a proxy.
    Loopback,
    /// http elsewhere: no certificates.
    Plain,
    /// https.
    Tls,
}

impl Http {
    pub(crate) fn new(patience: Patience) -> Self {
        Self { patience, loopback: OnceLock::new(), plain: OnceLock::new(), tls: OnceLock::new() }
    }

    /// Returns the client for a provider's address.
    pub(crate) async fn client(&self, endpoint: &Endpoint) -> Result<Client, EngineError> {
        let (route, cell) = match endpoint.base.scheme() {
            "https" => (Route::Tls, &self.tls),
            _ if endpoint.is_loopback() => (Route::Loopback, &self.loopback),
            _ => (Route::Plain, &self.plain),
        };
        if let Some(client) = cell.get() {
            return Ok(client.clone());
        }
        let connect = self.patience.connect;
        let built = match route {
            // Reads certificate files.
            Route::Tls => tokio::task::spawn_blocking(move || build(route, connect)).await.ok(),
            Route::Loopback | Route::Plain => Some(build(route, connect)),
        };
        match built {
            Some(Ok(client)) => Ok(cell.get_or_init(|| client).clone()),
            Some(Err(error)) => Err(no_client(&root_cause(&error))),
            None => Err(no_client("the task that builds it was stopped")),
        }
    }
}

fn no_client(why: &str) -> EngineError {
    EngineError {
        kind: EngineErrorKind::Unavailable,
        message: format!("no HTTP client could be set up: {why}"),
    }
}

fn build(route: Route, connect: Duration) -> reqwest::Result<Client> {
    if CryptoProvider::get_default().is_none() {
        // An error says that another thread was first, with the same provider.
        let _ = ring::default_provider().install_default();
    }
    // A redirect could carry the key to another host.
    let builder = Client::builder()
        .connect_timeout(connect)
        .redirect(reqwest::redirect::Policy::none())
        .tcp_nodelay(true)
        .user_agent(concat!("tns/", env!("CARGO_PKG_VERSION")));
    match route {
        Route::Loopback => builder.no_proxy().tls_certs_only([]).build(),
        Route::Plain => builder.tls_certs_only([]).build(),
        Route::Tls => builder.build(),
    }
}

/// Where a provider is reached, and with which key.
#[derive(Clone)]
pub(crate) struct Endpoint {
    /// The provider's id.
    pub(crate) provider: &'static str,
    base: Url,
    key: Option<Key>,
}

/// Shows neither the key nor the whole URL, which may hold one too.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({} at {})", self.provider, self.address())
    }
}

impl Endpoint {
    /// Checks a base URL.
    ///
    /// # Errors
    /// [`OpenError`] when it is no http or https address.
    pub(crate) fn new(provider: &'static str, base: &str, key: Option<Key>) -> Result<Self, OpenError> {
        match Url::parse(base.trim()) {
            Ok(base) if matches!(base.scheme(), "http" | "https") && base.has_host() => {
                Ok(Self { provider, base, key })
            }
            _ => Err(OpenError(format!(
                "{} is no http address; set it to one such as http://127.0.0.1:8000/v1",
                base_url_variable(provider)
            ))),
        }
    }

    /// Returns the endpoint with a version such as `/v1` at the end of its path, unless it is there.
    pub(crate) fn with_version(mut self, version: &str) -> Self {
        let path = self.base.path().trim_end_matches('/').to_owned();
        if !path.ends_with(version) {
            self.base.set_path(&format!("{path}{version}"));
        }
        self
    }

    /// Returns the base URL with `path` appended; a query of the base stays.
    pub(crate) fn url(&self, path: &str) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("{}{path}", self.base.path().trim_end_matches('/')));
        url
    }

    /// Returns `host:port`, the only form in which an address is shown.
    pub(crate) fn address(&self) -> String {
        let host = self.base.host_str().unwrap_or_default();
        match self.base.port_or_known_default() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        }
    }

    /// Names where the key is set, or where it could be.
    pub(crate) fn key_place(&self) -> String {
        match &self.key {
            Some(key) => key_place(self.provider, &key.origin),
            None => key_variable(self.provider),
        }
    }

    pub(crate) fn has_key(&self) -> bool {
        self.key.is_some()
    }

    /// Whether the address is this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        let host = self.base.host_str().unwrap_or_default().trim_matches(['[', ']']);
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }

    /// Returns the key as a bearer header that HTTP libraries do not print.
    ///
    /// # Errors
    /// A key with bytes that no header holds.
    pub(crate) fn bearer(&self) -> Result<Option<HeaderValue>, EngineError> {
        self.secret_header("Bearer ")
    }

    /// Returns the key after `prefix` as a header value that HTTP libraries do not print.
    ///
    /// # Errors
    /// A key with bytes that no header holds.
    pub(crate) fn secret_header(&self, prefix: &str) -> Result<Option<HeaderValue>, EngineError> {
        let Some(key) = &self.key else { return Ok(None) };
        let mut value = HeaderValue::from_str(&format!("{prefix}{}", key.expose_secret())).map_err(|_| {
            let message = format!("{} holds characters that no key has", self.key_place());
            EngineError { kind: EngineErrorKind::BadKey, message }
        })?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// Returns a provider's own words as one short line without the key, which some providers echo.
    pub(crate) fn detail(&self, words: &str) -> String {
        let mut line = words.to_owned();
        if let Some(key) = self.key.as_ref().map(ExposeSecret::expose_secret).filter(|key| !key.is_empty()) {
            line = line.replace(key, "***");
        }
        one_line(&line, MAX_DETAIL_CHARS)
    }

    /// Returns what a request that got no answer means.
    pub(crate) fn unreachable(&self, error: &reqwest::Error) -> Failure {
        let cause = self.detail(&root_cause(error));
        let (provider, address) = (self.provider, self.address());
        let message = if error.is_connect() && self.is_loopback() {
            format!("can't reach {provider} at {address} ({cause}); is it running?")
        } else if error.is_connect() {
            format!("can't reach {provider} at {address} ({cause})")
        } else {
            format!("the connection to {provider} at {address} broke ({cause})")
        };
        // Nothing on this machine starts to listen within a second; beyond it, networks hiccup.
        let retry = if error.is_connect() && self.is_loopback() { Retry::Never } else { Retry::Soon };
        Failure { error: EngineError { kind: EngineErrorKind::Unavailable, message }, retry }
    }

    /// Returns what silence means.
    pub(crate) fn silent(&self, limit: Duration, kind: EngineErrorKind) -> EngineError {
        let message = format!(
            "{} at {} sent nothing for {} s",
            self.provider,
            self.address(),
            limit.as_secs_f64().ceil()
        );
        EngineError { kind, message }
    }
}

/// Returns text as one line of at most `limit` characters, without control characters.
pub(crate) fn one_line(text: &str, limit: usize) -> String {
    let mut line = String::new();
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    match line.char_indices().nth(limit) {
        Some((cut, _)) => format!("{}…", &line[..cut]),
        None => line,
    }
}

/// Returns the innermost cause of a failed request. The outer texts name the URL.
fn root_cause(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(io) = inner.downcast_ref::<io::Error>()
            && io.kind() == io::ErrorKind::ConnectionRefused
        {
            return "connection refused".to_owned();
        }
        match inner.source() {
            Some(deeper) => cause = Some(deeper),
            None => return inner.to_string(),
        }
    }
    "no cause given".to_owned()
}

/// Reads a body of at most `limit` bytes; what is longer is cut. A broken connection ends it.
pub(crate) async fn read_body(mut response: Response, limit: usize) -> Vec<u8> {
    let mut body = Vec::new();
    while body.len() < limit {
        let Ok(Some(bytes)) = response.chunk().await else { break };
        let bytes: Bytes = bytes;
        body.extend_from_slice(&bytes[..bytes.len().min(limit - body.len())]);
    }
    body
}

/// Reads the body of an error.
pub(crate) async fn read_error(response: Response) -> String {
    String::from_utf8_lossy(&read_body(response, MAX_ERROR_BYTES).await).into_owned()
}

/// Returns the pause that the headers of a refusal ask for. `retry-after-ms` is OpenAI's.
pub(crate) fn asked_pause(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let millis =
        headers.get("retry-after-ms").and_then(|value| value.to_str().ok()?.trim().parse::<u64>().ok());
    millis
        .map(Duration::from_millis)
        .or_else(|| parse_retry_after(text(RETRY_AFTER)?, jiff::Timestamp::now()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(base: &str) -> Endpoint {
        Endpoint::new("openai", base, Some(Key::of_test("test-key-123"))).unwrap()
    }

    #[test]
    fn paths_are_appended_whatever_the_base_ends_with() {
        for (base, url) in [
            ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1/models"),
            (" http://127.0.0.1:8000/v1/ ", "http://127.0.0.1:8000/v1/models"),
            ("https://example.org", "https://example.org/models"),
            ("https://example.org/a?api-version=1", "https://example.org/a/models?api-version=1"),
        ] {
            assert_eq!(endpoint(base).url("/models").as_str(), url);
        }
        let with_version = |base: &str| endpoint(base).with_version("/v1").url("/x").path().to_owned();
        for (base, path) in [("", "/v1/x"), ("/", "/v1/x"), ("/v1/", "/v1/x"), ("/gate", "/gate/v1/x")] {
            assert_eq!(with_version(&format!("http://localhost:1{base}")), path);
        }
    }

    #[test]
    fn what_is_no_http_address_is_refused_without_showing_it() {
        for bad in ["", "127.0.0.1:8000", "ftp://secret@host/", "file:///etc/passwd"] {
            let OpenError(message) = Endpoint::new("openai-compatible", bad, None).unwrap_err();
            assert!(message.starts_with("PROVIDER_BASE_URL_OPENAI_COMPATIBLE is no http address"));
            assert!(!message.contains("secret"));
        }
    }

    #[test]
    fn loopback_is_told_from_other_hosts() {
        for base in ["http://127.0.0.1:1", "http://127.9.9.9", "http://[::1]:1", "http://localhost"] {
            assert!(endpoint(base).is_loopback(), "{base}");
        }
        for base in ["http://10.0.0.1", "http://localhost.example.org", "http://[::2]"] {
            assert!(!endpoint(base).is_loopback(), "{base}");
        }
    }

    #[test]
    fn neither_details_nor_debug_text_hold_the_key() {
        let endpoint = endpoint("https://user:test-key-123@example.org/v1?key=test-key-123");
        assert_eq!(endpoint.detail("bad key\n test-key-123\u{1b}[31m"), "bad key *** [31m");
        assert_eq!(format!("{endpoint:?}"), "Endpoint(openai at example.org:443)");
        assert_eq!(format!("{:?}", endpoint.bearer().unwrap().unwrap()), "Sensitive");
    }

    #[test]
    fn long_words_are_cut_at_a_character() {
        assert_eq!(one_line("職職職", 3), "職職職");
        assert_eq!(one_line("職職職職", 3), "職職職…");
    }
}
