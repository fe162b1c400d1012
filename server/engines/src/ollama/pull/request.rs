//! Asks an Ollama server for a pull, and hears it to its end. It tries once: Ollama keeps what came, and the
//! next pull goes on from there.

use std::time::Duration;

use reqwest::Response;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use serde_json::json;
use tns_server_core::engine::{EngineError, EngineErrorKind};
use tokio::time::timeout;

use super::{PullDecoder, PullStatus};
use crate::config::{EngineConfig, base_url_variable};
use crate::http::{self, Endpoint, Http, one_line};
use crate::ollama::{PROVIDER, endpoint};
use crate::provider::Provider;
use crate::refusal::{self, usual_kind};
use crate::step::{Progress, StreamFault};

/// How long Ollama may tell nothing. It is silent while it computes the digest of a file, which takes minutes
/// where that has a hundred gigabytes.
const SILENCE: Duration = Duration::from_secs(600);
/// Most characters of a model's name in a message.
const MAX_NAME_CHARS: usize = 64;
/// Where Ollama's models are listed.
const LIBRARY: &str = "https://ollama.com/library";

/// Why a model was not pulled. The text is one line for people and holds no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PullError {
    /// The address that is set is none, or the key is no header.
    #[error("{0}")]
    Setting(String),
    /// Nobody answers at the address.
    #[error("{0}")]
    Unreachable(String),
    /// Ollama refused, as with a model that it does not know, or something other than Ollama answered.
    #[error("{0}")]
    Refused(String),
    /// It broke off before the model was there. Another pull goes on where it ended.
    #[error("{0}")]
    Incomplete(String),
}

/// Has the Ollama server that is set up pull a model, and gives each status to `tell` as it comes. Dropping
/// the future ends the pull; the server keeps what came.
///
/// # Errors
/// [`PullError`].
pub async fn pull(config: &EngineConfig, model: &str, tell: impl FnMut(PullStatus)) -> Result<(), PullError> {
    let provider = Provider::find(PROVIDER)
        .ok_or_else(|| PullError::Setting(format!("this build has no provider {PROVIDER}")))?;
    config.look_for_key(provider).await;
    let endpoint =
        endpoint(provider, &config.access(provider)).map_err(|error| PullError::Setting(error.0))?;
    let pull = Pull { endpoint, model, silence: SILENCE };
    pull.run(&Http::new(config.patience), tell).await
}

/// A pull of one model.
struct Pull<'a> {
    endpoint: Endpoint,
    model: &'a str,
    silence: Duration,
}

impl Pull<'_> {
    async fn run(&self, http: &Http, mut tell: impl FnMut(PullStatus)) -> Result<(), PullError> {
        let setting = |error: EngineError| PullError::Setting(error.message);
        let body = json!({ "model": self.model, "stream": true }).to_string();
        let client = http.client(&self.endpoint).await.map_err(setting)?;
        let mut request = client
            .post(self.endpoint.url("/api/pull"))
            .header(ACCEPT, HeaderValue::from_static("application/x-ndjson"))
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .body(body);
        if let Some(bearer) = self.endpoint.bearer().map_err(setting)? {
            request = request.header(AUTHORIZATION, bearer);
        }
        let response = match timeout(self.silence, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                return Err(PullError::Unreachable(self.endpoint.unreachable(&error).error.message));
            }
            Err(_) => {
                let silent = self.endpoint.silent(self.silence, EngineErrorKind::Unavailable);
                return Err(PullError::Unreachable(silent.message));
            }
        };
        let status = response.status();
        if !status.is_success() {
            return Err(self.refused(Some(status.as_u16()), &http::read_error(response).await));
        }
        self.hear(response, &mut tell).await
    }

    async fn hear(&self, mut response: Response, tell: &mut impl FnMut(PullStatus)) -> Result<(), PullError> {
        let mut decoder = PullDecoder::new();
        loop {
            let bytes = match timeout(self.silence, response.chunk()).await {
                Ok(Ok(Some(bytes))) => bytes,
                Ok(Ok(None)) => return decoder.end(tell).map_err(|fault| self.failed(fault)),
                Ok(Err(_)) => return Err(self.failed(StreamFault::Incomplete)),
                Err(_) => {
                    let seconds = self.silence.as_secs_f64().ceil();
                    return Err(self.incomplete(&format!("told nothing for {seconds} s")));
                }
            };
            if decoder.push(&bytes, tell).map_err(|fault| self.failed(fault))? == Progress::Done {
                return Ok(());
            }
        }
    }

    fn server(&self) -> String {
        format!("{PROVIDER} at {}", self.endpoint.address())
    }

    fn incomplete(&self, what: &str) -> PullError {
        let (server, model) = (self.server(), one_line(self.model, MAX_NAME_CHARS));
        PullError::Incomplete(format!(
            "{server} {what} before {model} was there; run the same again, and it goes on from what came"
        ))
    }

    fn failed(&self, fault: StreamFault) -> PullError {
        match fault {
            StreamFault::Refused(body) => self.refused(None, &body),
            StreamFault::Incomplete => self.incomplete("broke off"),
            StreamFault::Unreadable(_) | StreamFault::Slip(_) => PullError::Refused(format!(
                "{} answers as something other than Ollama; check {}",
                self.server(),
                base_url_variable(PROVIDER)
            )),
            StreamFault::TooLarge(what) => PullError::Refused(format!("{} sends {what}", self.server())),
        }
    }

    /// Returns what a refusal means. Ollama tells of a model that nobody has in the words of its registry.
    fn refused(&self, status: Option<u16>, body: &str) -> PullError {
        let (model, mut unknown) = (one_line(self.model, MAX_NAME_CHARS), false);
        let error = refusal::refused(&self.endpoint, &model, status, body, |status, said| {
            unknown = said.message.contains("manifest") && said.message.contains("file does not exist");
            usual_kind(status, said)
        });
        PullError::Refused(match unknown {
            true => format!("there is no model {model} to pull: {LIBRARY} lists those there are"),
            false => error.message,
        })
    }
}

#[cfg(test)]
mod tests;
