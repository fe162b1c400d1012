//! Refusals as providers word them, and what they mean; no network.

use super::*;
use crate::origin::Key;

fn read(status: Option<u16>, body: &str) -> (EngineErrorKind, String) {
    let endpoint =
        Endpoint::new("openai", "https://api.example.org/v1", Some(Key::of_test("test-key-123"))).unwrap();
    let error = refused(&endpoint, "m", status, body, usual_kind);
    (error.kind, error.message)
}

#[test]
fn bodies_are_read_before_the_status() {
    use EngineErrorKind::{BadKey, ContextOverflow, NoCredit, Provider, RateLimited, Unavailable};
    let error = |code: &str, message: &str| {
        format!("{{\"error\":{{\"code\":\"{code}\",\"message\":\"{message}\"}}}}")
    };
    for (status, body, kind) in [
        (Some(401), error("invalid_api_key", "Incorrect API key"), BadKey),
        (Some(403), error("unsupported_country", "Country not supported"), BadKey),
        (Some(400), error("API_KEY_INVALID", "API key not valid"), BadKey),
        (
            Some(400),
            "{\"error\":{\"code\":400,\"status\":\"INVALID_ARGUMENT\",\"details\":[{\"@type\":\"x\"},{\"reason\":\"API_KEY_INVALID\"}]}}"
                .into(),
            BadKey,
        ),
        (Some(429), error("insufficient_quota", "You exceeded your quota"), NoCredit),
        (Some(429), error("credit_balance_exhausted", "No credit"), NoCredit),
        (Some(402), "{\"error\":{\"message\":\"Insufficient Balance\"}}".into(), NoCredit),
        (Some(429), error("rate_limit_exceeded", "Slow down"), RateLimited),
        (Some(429), String::new(), RateLimited),
        (Some(400), error("context_length_exceeded", "Too long"), ContextOverflow),
        (
            Some(400),
            "{\"error\":{\"type\":\"exceed_context_size_error\",\"code\":400,\"message\":\"x\"}}".into(),
            ContextOverflow,
        ),
        (
            Some(400),
            "{\"object\":\"error\",\"message\":\"This model's maximum context length is 4096\"}".into(),
            ContextOverflow,
        ),
        (Some(500), "<html>".into(), Unavailable),
        (Some(503), error("server_is_overloaded", "Busy"), Unavailable),
        (Some(529), String::new(), Unavailable),
        (Some(400), error("invalid_value", "Bad field"), Provider),
        (Some(404), error("model_not_found", "No such model"), Provider),
        (Some(307), String::new(), Provider),
        (
            None,
            "{\"error\":{\"message\":\"engine overloaded\",\"type\":\"server_error\",\"code\":500}}".into(),
            Unavailable,
        ),
        (None, "{\"error\":{\"message\":\"x\",\"code\":429}}".into(), RateLimited),
        (
            None,
            "[{\"error\":{\"code\":429,\"status\":\"RESOURCE_EXHAUSTED\",\"message\":\"x\"}}]".into(),
            RateLimited,
        ),
        (None, "{\"error\":\"model crashed\"}".into(), Provider),
    ] {
        assert_eq!(read(status, &body).0, kind, "{status:?} {body}");
    }
}

#[test]
fn messages_are_one_line_that_says_what_to_do() {
    for (status, body, message) in [
        (
            Some(401),
            "{\"error\":{\"message\":\"bad key test-****-123\"}}",
            "openai refused the key: check OPENAI_API_KEY",
        ),
        (
            Some(400),
            "{\"error\":{\"message\":\"wrong\\n field test-key-123\"}}",
            "openai answered with an error (HTTP 400): wrong field ***",
        ),
        (
            Some(502),
            "<html><body>Bad gateway</body></html>",
            "openai is down or overloaded (HTTP 502): it gave no reason",
        ),
        (None, "{\"error\":\"engine overloaded\"}", "openai answered with an error: engine overloaded"),
        (
            Some(302),
            "",
            "openai at api.example.org:443 points elsewhere (HTTP 302), and a key is never sent on: \
             check PROVIDER_BASE_URL_OPENAI",
        ),
        (
            Some(404),
            "{\"detail\":\"Not Found\"}",
            "openai at api.example.org:443 has no such model or path (HTTP 404): Not Found; \
             check the model and PROVIDER_BASE_URL_OPENAI",
        ),
        (Some(413), "too big", "the conversation is too long for m: too big"),
    ] {
        assert_eq!(read(status, body).1, message);
    }
    let keyless = Endpoint::new("openai-compatible", "http://127.0.0.1:1", None).unwrap();
    assert_eq!(
        refused(&keyless, "m", Some(401), "", usual_kind).message,
        "openai-compatible wants a key: set OPENAI_COMPATIBLE_API_KEY"
    );
}

#[test]
fn a_pause_may_stand_in_the_body() {
    let body = "{\"error\":{\"code\":429,\"details\":[{\"@type\":\"x\"},{\"retryDelay\":\"2.5s\"}]}}";
    assert_eq!(asked_pause(body), Some(Duration::from_millis(2500)));
    for other in ["", "{}", "{\"error\":{\"details\":[{\"retryDelay\":\"soon\"}]}}"] {
        assert_eq!(asked_pause(other), None);
    }
}
