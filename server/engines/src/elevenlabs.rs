//! ElevenLabs: speech in both directions, no text. It is in the catalogue; an agent can't be opened on it.
//! Its API: <https://elevenlabs.io/docs/api-reference>.

use futures_util::FutureExt;
use tns_server_core::engine::{EngineErrorKind, OpenError};

use crate::config::Access;
use crate::http::Endpoint;
use crate::provider::{Opened, Opening, Provider};
use crate::refusal::{Said, usual_kind};

pub(crate) mod catalogue;

/// The provider's id.
pub(crate) const PROVIDER: &str = "elevenlabs";

/// The version of most of the API; addresses are often given with it.
const VERSION_PATH: &str = "/v1";

/// The header that carries the key.
const KEY_HEADER: &str = "xi-api-key";

/// There is no text engine.
pub(crate) fn open(opening: Opening) -> Opened {
    let id = opening.provider.id;
    async move {
        Err(OpenError(format!(
            "{id} speaks and listens but writes no text: choose another provider for an agent, such as openai"
        )))
    }
    .boxed()
}

fn endpoint(provider: &'static Provider, access: &Access) -> Result<Endpoint, OpenError> {
    let base = access.base_url.as_deref().or(provider.base_url).unwrap_or_default();
    let base = base.trim().trim_end_matches('/');
    Endpoint::new(provider.id, base.strip_suffix(VERSION_PATH).unwrap_or(base), access.key.clone())
}

/// Returns what a refusal means. An empty account and a key that may not do this come with the status of
/// a bad key; a busy service and a plan's limit both ask to slow down, in words of their own.
fn kind(status: Option<u16>, said: &Said) -> EngineErrorKind {
    let tagged = |parts: &[&str]| parts.iter().any(|part| said.tags.contains(part));
    if tagged(&["quota_exceeded", "insufficient_credits", "payment_required"]) {
        return EngineErrorKind::NoCredit;
    }
    if tagged(&["missing_permissions"]) {
        return EngineErrorKind::Provider;
    }
    if tagged(&["too_many_concurrent_requests", "system_busy"]) {
        return EngineErrorKind::RateLimited;
    }
    usual_kind(status, said)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::Key;
    use crate::refusal::refused;

    #[test]
    fn the_body_says_what_a_status_means() {
        use EngineErrorKind::{BadKey, NoCredit, Provider, RateLimited, Unavailable};
        let endpoint = Endpoint::new(PROVIDER, "https://api.example.org", Some(Key::of_test("k"))).unwrap();
        for (status, detail, expected) in [
            (401, r#"{"status":"invalid_api_key","message":"Invalid API key"}"#, BadKey),
            (
                401,
                r#"{"type":"authentication_error","code":"invalid_api_key","message":"x","status":"invalid_api_key"}"#,
                BadKey,
            ),
            (401, r#"{"status":"quota_exceeded","message":"0 credits remaining"}"#, NoCredit),
            (401, r#"{"status":"missing_permissions","message":"missing user_read"}"#, Provider),
            (429, r#"{"status":"too_many_concurrent_requests","message":"x"}"#, RateLimited),
            (429, r#"{"status":"system_busy","message":"x"}"#, RateLimited),
            (500, r#""Internal Server Error""#, Unavailable),
        ] {
            let body = format!(r#"{{"detail":{detail}}}"#);
            assert_eq!(refused(&endpoint, "", Some(status), &body, kind).kind, expected, "{body}");
        }
    }
}
