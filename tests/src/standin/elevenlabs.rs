//! ElevenLabs: models, voices and the account (<https://elevenlabs.io/docs/api-reference>). Its errors have
//! a form of their own, and one status for a bad key and a plan that is used up.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::lists::{self, Params, Price};
use super::wire::Trouble;
use super::{BUSY_KEY, SPENT_KEY, Shared, VOICE_PROVIDER, is_key};

/// The header of the key.
pub(super) const KEY_HEADER: &str = "xi-api-key";

/// Returns the models, which all speak or change voices; those that listen are not listed.
pub(super) fn models(_key: &str) -> Result<Value, String> {
    let model = |id: &str, name: &str, speaks: bool, alpha: bool| {
        json!({ "model_id": id, "name": name, "can_be_finetuned": false, "can_do_text_to_speech": speaks,
            "can_do_voice_conversion": !speaks, "can_use_style": true, "can_use_speaker_boost": true,
            "serves_pro_voices": false, "token_cost_factor": 1.0, "description": "", "requires_alpha_access": alpha,
            "maximum_text_length_per_request": 10_000,
            "languages": [{ "language_id": "en", "name": "English" }] })
    };
    Ok(json!([
        model("eleven_v3", "Eleven v3", true, false),
        model("eleven_multilingual_v2", "Eleven Multilingual v2", true, false),
        model("eleven_flash_v2_5", "Eleven Flash v2.5", true, false),
        model("eleven_english_sts_v2", "Eleven English v2", false, false),
        model("eleven_next", "Eleven Next", true, true),
    ]))
}

/// GET `/v1/user/subscription`.
pub(super) async fn subscription(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    answer(&shared, &headers, &uri, |key| {
        let is_broke = is_key(key, super::BROKE_KEY);
        Ok(json!({ "tier": "starter", "character_count": if is_broke { 30_000 } else { 120 },
            "character_limit": 30_000, "can_extend_character_limit": false,
            "allowed_to_extend_character_limit": false, "next_character_count_reset_unix": 1_800_000_000,
            "voice_limit": 10, "status": "active", "currency": "usd" }))
    })
}

/// GET `/v2/voices`, in pages.
pub(super) async fn voices(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    uri: Uri,
    Query(params): Query<Params>,
) -> Response {
    answer(&shared, &headers, &uri, |_| {
        let names = ["Rachel", "Adam", "Bella", "Josh", "Elli", "Sam"];
        let all: Vec<Value> = names
            .iter()
            .enumerate()
            .map(|(at, name)| {
                json!({ "voice_id": format!("voice{at}"), "name": name, "category": "premade",
                    "description": if at == 0 { "Calm and clear" } else { "" },
                    "labels": { "accent": "american", "gender": "female" },
                    "preview_url": format!("https://example.org/{name}.mp3") })
            })
            .collect();
        let from = match params.get("next_page_token") {
            Some(token) => {
                token.strip_prefix("tok-").and_then(|at| at.parse().ok()).ok_or("no such token")?
            }
            None => 0,
        };
        let (voices, next) = lists::page(&all, params.get("page_size"), 1..=100, from)?;
        Ok(json!({ "voices": voices, "has_more": next.is_some(), "total_count": all.len(),
            "next_page_token": next.map(|at| format!("tok-{at}")) }))
    })
}

/// Answers, or refuses, a request with this key.
pub(super) fn answer(
    shared: &Shared,
    headers: &HeaderMap,
    uri: &Uri,
    tell: impl FnOnce(&str) -> Result<Value, String>,
) -> Response {
    let key = headers.get(KEY_HEADER).and_then(|key| key.to_str().ok()).map(str::to_owned);
    shared.note(VOICE_PROVIDER, uri, key.clone());
    let key = key.unwrap_or_default();
    let (number, body) = if is_key(&key, SPENT_KEY) {
        error(401, "quota_exceeded", "This request exceeds your quota. You have 0 credits remaining.")
    } else if is_key(&key, BUSY_KEY) {
        error(429, "system_busy", "The system is experiencing heavy traffic, please try again.")
    } else if let Some(trouble) = lists::objection(true, Some(&key), Price::Free) {
        refusal(trouble)
    } else {
        match tell(&key) {
            Ok(told) => return Json(told).into_response(),
            Err(why) => {
                shared.complaints.lock().unwrap().push(format!("{VOICE_PROVIDER}: {why}"));
                refusal(Trouble::Malformed(&why))
            }
        }
    };
    (lists::status(number), Json(body)).into_response()
}

fn refusal(trouble: Trouble<'_>) -> (u16, Value) {
    match trouble {
        Trouble::BadKey(_) => error(401, "invalid_api_key", "Invalid API key"),
        Trouble::NoCredit => error(401, "quota_exceeded", "You have 0 credits remaining."),
        Trouble::Malformed(why) => error(400, "invalid_request", why),
        Trouble::RateLimited(_) => {
            error(429, "too_many_concurrent_requests", "Your plan allows 3 concurrent requests.")
        }
        Trouble::Overloaded => error(429, "system_busy", "The system is experiencing heavy traffic."),
        Trouble::TooLong => error(400, "max_character_limit_exceeded", "The text is too long."),
        Trouble::Broken => (500, json!({ "detail": "Internal Server Error" })),
    }
}

fn error(number: u16, status: &str, message: &str) -> (u16, Value) {
    (number, json!({ "detail": { "status": status, "message": message } }))
}
