//! The provider catalogue against stand-ins as strict as the providers: key checks, models, voices, what is
//! kept for a day, and the same over REST. What a real provider would refuse is a complaint there.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tns_protocol::provider::{Credit, ModelKind, ValidateKey};
use tns_server_core::engine::EngineErrorKind;
use tns_server_core::scripted::Script;
use tns_server_engines::{Catalogue, CatalogueError, EngineConfig};
use tns_tests::standin::{
    BAD_KEY, BROKE_KEY, BUSY_KEY, GOOD_KEY, OUTAGE_KEY, PROVIDERS, SLOW_KEY, SPENT_KEY, Standin,
    VOICE_PROVIDER,
};
use tns_tests::{TestServer, http};

use crate::setup;

/// Must show up nowhere but in the header that it is sent in.
const CANARY: &str = "canary-c41e77";
/// How long lists are kept.
const DAY: Duration = Duration::from_secs(24 * 3600);

fn providers() -> impl Iterator<Item = &'static str> {
    PROVIDERS.map(|(provider, _)| provider).into_iter().chain([VOICE_PROVIDER])
}

fn catalogue(variables: &[(String, String)]) -> Catalogue {
    let mut config = EngineConfig::from_env(|asked| {
        variables.iter().find(|(name, _)| name == asked).map(|(_, value)| value.clone())
    });
    config.patience.shortest_pause = Duration::from_millis(1);
    config.patience.longest_pause = Duration::from_millis(1);
    Catalogue::new(config)
}

/// The catalogue of one provider, whose key is of this sort.
pub(crate) fn with_key(standin: &Standin, provider: &str, key: &str) -> Catalogue {
    catalogue(&standin.variables(provider, &format!("{key}-{CANARY}")))
}

fn kind_of(error: &CatalogueError) -> EngineErrorKind {
    match error {
        CatalogueError::Provider(error) => error.kind,
        other => panic!("{other:?}"),
    }
}

/// Checks that no request was wrong and that the key went over in its header only.
fn assert_clean(standin: &Standin, shown: &str) {
    assert_eq!(standin.complaints(), [] as [String; 0]);
    assert!(!shown.contains(CANARY), "{shown}");
    for request in standin.requests().into_iter().chain(standin.lists()) {
        assert!(request.key.as_deref().is_some_and(|key| key.ends_with(CANARY)), "{request:?}");
        assert!(!format!("{} {}", request.path, request.body).contains(CANARY), "{request:?}");
    }
}

#[tokio::test]
async fn a_good_key_is_told_with_what_it_is_for_and_costs_next_to_nothing() {
    for provider in providers() {
        let standin = Standin::start().await;
        let catalogue = with_key(&standin, provider, GOOD_KEY);
        let check = catalogue.validate(provider, None).await.unwrap();
        let kinds: Vec<&str> = check.kinds.iter().map(|kind| kind.as_str()).collect();
        let expected: &[&str] = match provider {
            "anthropic" => &["text"],
            "openai" | "gemini" => &["text", "realtime", "stt", "tts", "embedding"],
            "elevenlabs" => &["stt", "tts"],
            _ => &["text", "embedding"],
        };
        assert_eq!((&kinds[..], check.credit), (expected, Credit::Ok), "{provider}");
        assert_clean(&standin, &format!("{check:?} {catalogue:?}"));
        // One smallest step, but where the account tells by itself.
        let body = match &standin.requests()[..] {
            [] if provider == VOICE_PROVIDER => continue,
            [paid] => paid.body.clone(),
            more => panic!("{provider}: {more:?}"),
        };
        let (place, model, most) = match provider {
            "anthropic" => (&body["max_tokens"], "claude-haiku-5-5", 1),
            "openai" => (&body["max_output_tokens"], "gpt-6-luna", 16),
            "gemini" => (&body["generationConfig"]["maxOutputTokens"], "", 1),
            "ollama" => (&body["options"]["num_predict"], "qwen3:4b", 1),
            _ => (&body["max_tokens"], "local-model", 1),
        };
        assert_eq!(place, &json!(most), "{provider}: {body}");
        assert!(model.is_empty() || body["model"] == model, "{provider}: {body}");
    }
}

#[tokio::test]
async fn a_bad_key_an_empty_account_a_limit_and_an_outage_are_told_apart() {
    for provider in providers() {
        for (key, kind) in [
            (BAD_KEY, EngineErrorKind::BadKey),
            (BROKE_KEY, EngineErrorKind::NoCredit),
            (SLOW_KEY, EngineErrorKind::RateLimited),
            (OUTAGE_KEY, EngineErrorKind::Unavailable),
        ] {
            let standin = Standin::start().await;
            let catalogue = with_key(&standin, provider, key);
            let error = catalogue.validate(provider, None).await.unwrap_err();
            assert_eq!(kind_of(&error), kind, "{provider} {key}: {error}");
            assert!(!error.to_string().contains('\n'), "{error}");
            assert_clean(&standin, &format!("{error:?} {error} {catalogue:?}"));
        }
    }
}

#[tokio::test]
async fn elevenlabs_says_a_used_up_plan_and_a_busy_service_with_other_statuses() {
    for (key, kind, words) in [
        (SPENT_KEY, EngineErrorKind::NoCredit, "no credit"),
        (BUSY_KEY, EngineErrorKind::RateLimited, "heavy traffic"),
        (SLOW_KEY, EngineErrorKind::RateLimited, "concurrent requests"),
        (BROKE_KEY, EngineErrorKind::NoCredit, "all 30000 characters"),
    ] {
        let standin = Standin::start().await;
        let error = with_key(&standin, VOICE_PROVIDER, key).validate(VOICE_PROVIDER, None).await.unwrap_err();
        assert_eq!(kind_of(&error), kind, "{key}: {error}");
        assert!(error.to_string().contains(words), "{key}: {error}");
    }
}

#[tokio::test]
async fn where_nobody_listens_is_an_outage() {
    let held = tns_tests::Nobody::new();
    let nobody = held.address();
    for provider in providers() {
        let name = provider.to_ascii_uppercase().replace('-', "_");
        let address = (format!("PROVIDER_BASE_URL_{name}"), format!("http://{nobody}"));
        let catalogue = catalogue(&[address, (format!("{name}_API_KEY"), CANARY.to_owned())]);
        let error = catalogue.validate(provider, None).await.unwrap_err();
        assert_eq!(kind_of(&error), EngineErrorKind::Unavailable, "{provider}: {error}");
        assert!(error.to_string().starts_with(&format!("can't reach {provider} at {nobody}")), "{error}");
        assert_eq!(kind_of(&catalogue.models(provider).await.unwrap_err()), EngineErrorKind::Unavailable);
        assert!(!format!("{error:?} {catalogue:?}").contains(CANARY));
    }
}

/// Returns a provider's models as lines.
async fn lines(standin: &Standin, provider: &str) -> Vec<String> {
    let catalogue = with_key(standin, provider, GOOD_KEY);
    let models = catalogue.models(provider).await.unwrap();
    for kind in ModelKind::ALL {
        let of_kind = || models.iter().filter(|model| model.kind == kind);
        let recommended = of_kind().filter(|model| model.recommended).count();
        assert_eq!(recommended, usize::from(of_kind().next().is_some()), "{provider} {kind:?}");
    }
    assert!(models.is_sorted_by_key(|model| model.kind), "{provider}");
    assert_clean(standin, &serde_json::to_string(&models).unwrap());
    let shown = models.iter().map(|model| {
        let star = if model.recommended { "*" } else { "" };
        let window = model.context_window.map(|window| format!(" {window}")).unwrap_or_default();
        let sees = match model.accepts_images {
            Some(true) => " sees",
            Some(false) => " blind",
            None => "",
        };
        format!("{} {}{star}{window}{sees}", model.kind.as_str(), model.id)
    });
    shown.collect()
}

#[tokio::test]
async fn anthropics_models_are_read_page_by_page() {
    let standin = Standin::start().await;
    assert_eq!(
        lines(&standin, "anthropic").await,
        [
            "text claude-opus-5-5* 1000000 sees",
            "text claude-haiku-5-5 1000000 sees",
            "text claude-sonnet-5-5 1000000 sees",
            "text claude-fable-5-1 1000000 sees",
            "text claude-opus-4-5-20251101 200000 sees",
            "text claude-haiku-4-5-20251001 200000 blind",
        ]
    );
    let paths: Vec<String> = standin.lists().into_iter().map(|request| request.path).collect();
    assert_eq!(paths, ["/v1/models?limit=1000", "/v1/models?limit=1000&after_id=claude-fable-5-1"]);
}

#[tokio::test]
async fn openais_models_go_by_their_ids_the_newest_first() {
    let standin = Standin::start().await;
    assert_eq!(
        lines(&standin, "openai").await,
        [
            "text gpt-6.2-sol* 1050000 sees",
            "text o3 200000 sees",
            "text gpt-5.4-mini 400000 sees",
            "text gpt-6-luna 1050000 sees",
            "realtime gpt-realtime-2.1* 128000 sees",
            "realtime gpt-live-1 blind",
            "stt gpt-transcribe*",
            "stt whisper-1",
            "tts gpt-4o-mini-tts*",
            "tts tts-1-hd",
            "embedding text-embedding-3-small*",
            "embedding text-embedding-3-large",
        ]
    );
}

#[tokio::test]
async fn geminis_models_go_by_their_methods_and_are_read_page_by_page() {
    let standin = Standin::start().await;
    assert_eq!(
        lines(&standin, "gemini").await,
        [
            "text gemini-3.8-flash* 1048576 sees",
            "text gemini-3.5-flash-lite 1048576 sees",
            "text gemini-4-argon 1048576 sees",
            "text gemma-4-31b-it 131072 blind",
            "realtime gemini-3.8-live* 131072 sees",
            "stt gemini-3.5-transcribe* 131072",
            "tts gemini-3.8-flash-tts* 8192",
            "embedding gemini-embedding-2* 8192",
        ]
    );
    let paths: Vec<String> = standin.lists().into_iter().map(|request| request.path).collect();
    let path = |mark: &str| format!("/v1beta/models?pageSize=1000{mark}");
    assert_eq!(paths, [path(""), path("&pageToken=at%3D4"), path("&pageToken=at%3D8")]);
}

#[tokio::test]
async fn models_of_ones_own_servers_are_told_by_them() {
    let standin = Standin::start().await;
    assert_eq!(
        lines(&standin, "ollama").await,
        [
            "text qwen3:4b* 40960 blind",
            "text gemma4:latest 131072 sees",
            "embedding nomic-embed-text:latest* 2048",
        ]
    );
    assert_eq!(
        lines(&standin, "openai-compatible").await,
        ["text local-model* 32768", "embedding nomic-embed-text-v1.5* 2048"]
    );
}

#[tokio::test]
async fn elevenlabs_has_models_in_both_directions_and_lists_its_voices_page_by_page() {
    let standin = Standin::start().await;
    assert_eq!(
        lines(&standin, VOICE_PROVIDER).await,
        [
            "stt scribe_v2*",
            "stt scribe_v2_realtime",
            "stt scribe_v1",
            "tts eleven_flash_v2_5*",
            "tts eleven_v3",
            "tts eleven_multilingual_v2",
        ]
    );
    let before = standin.lists().len();
    let catalogue = with_key(&standin, VOICE_PROVIDER, GOOD_KEY);
    let voices = catalogue.voices(VOICE_PROVIDER).await.unwrap();
    let names: Vec<&str> = voices.iter().map(|voice| voice.name.as_str()).collect();
    assert_eq!(names, ["Rachel", "Adam", "Bella", "Josh", "Elli", "Sam"]);
    assert_eq!(
        serde_json::to_value(&voices[..2]).unwrap(),
        json!([
            { "id": "voice0", "name": "Rachel", "kinds": ["tts"], "description": "Calm and clear",
              "previewUrl": "https://example.org/Rachel.mp3" },
            { "id": "voice1", "name": "Adam", "kinds": ["tts"], "description": "american, female",
              "previewUrl": "https://example.org/Adam.mp3" },
        ])
    );
    let paths: Vec<String> = standin.lists().into_iter().skip(before).map(|request| request.path).collect();
    assert_eq!(paths, ["/v2/voices?page_size=100", "/v2/voices?page_size=100&next_page_token=tok-4"]);
    assert_clean(&standin, &format!("{voices:?} {catalogue:?}"));
}

#[tokio::test]
async fn lists_are_asked_for_once_a_day_and_key() {
    for provider in providers() {
        let standin = Standin::start().await;
        let catalogue = with_key(&standin, provider, GOOD_KEY);
        let models = catalogue.models(provider).await.unwrap();
        let once = standin.lists().len();
        assert!(once > 0, "{provider}");
        assert_eq!(catalogue.models(provider).await.unwrap(), models);
        assert_eq!(standin.lists().len(), once, "{provider}");
        // Real sockets need real time, so that only the day itself is skipped.
        tokio::time::pause();
        tokio::time::advance(DAY).await;
        tokio::time::resume();
        assert_eq!(catalogue.models(provider).await.unwrap(), models);
        assert_eq!(standin.lists().len(), 2 * once, "{provider}");
        // A check asks, whatever is kept.
        catalogue.validate(provider, None).await.unwrap();
        assert!(standin.lists().len() > 2 * once, "{provider}");
    }
}

#[tokio::test]
async fn voices_that_are_listed_are_asked_for_once_a_day() {
    let standin = Standin::start().await;
    let catalogue = with_key(&standin, VOICE_PROVIDER, GOOD_KEY);
    for _ in 0..2 {
        catalogue.voices(VOICE_PROVIDER).await.unwrap();
        assert_eq!(standin.lists().len(), 2);
    }
    tokio::time::pause();
    tokio::time::advance(DAY).await;
    tokio::time::resume();
    catalogue.voices(VOICE_PROVIDER).await.unwrap();
    assert_eq!(standin.lists().len(), 4);
}

/// A server whose providers are stood in for, each with a key of its own sort.
async fn server(standin: &Standin, keys: &[(&str, &str)]) -> TestServer {
    let variables: Vec<_> = keys
        .iter()
        .flat_map(|(provider, key)| standin.variables(provider, &format!("{key}-{CANARY}")))
        .collect();
    let mut setup = setup(Script::new());
    setup.catalogue = Arc::new(catalogue(&variables));
    TestServer::start(&setup).await
}

#[tokio::test]
async fn over_rest_every_trouble_has_its_status_and_code_and_no_answer_holds_a_key() {
    let standin = Standin::start().await;
    let keys = [
        ("anthropic", BAD_KEY),
        ("openai", BROKE_KEY),
        ("gemini", OUTAGE_KEY),
        ("openai-compatible", SLOW_KEY),
        ("elevenlabs", GOOD_KEY),
    ];
    let server = server(&standin, &keys).await;
    let mut shown = Vec::new();
    for (method, path, status, code) in [
        ("POST", "anthropic/validate", 422, "BAD_KEY"),
        ("POST", "openai/validate", 402, "NO_CREDIT"),
        ("POST", "gemini/validate", 502, "PROVIDER_UNAVAILABLE"),
        ("POST", "openai-compatible/validate", 429, "RATE_LIMITED"),
        ("GET", "anthropic/models", 422, "BAD_KEY"),
        ("GET", "gemini/models", 502, "PROVIDER_UNAVAILABLE"),
        ("GET", "nobody/models", 404, "NOT_FOUND"),
        ("GET", "nobody/voices", 404, "NOT_FOUND"),
        ("POST", "nobody/validate", 404, "NOT_FOUND"),
        ("GET", "nobody", 404, "NOT_FOUND"),
        ("GET", "openai/validate", 405, "NOT_FOUND"),
        ("POST", "openai/models", 405, "NOT_FOUND"),
        ("DELETE", "openai/voices", 405, "NOT_FOUND"),
    ] {
        let answer = http::call(server.address(), method, &format!("/api/providers/{path}"), None).await;
        assert_eq!(answer.refusal(), (status, code.to_owned()), "{path}: {answer:?}");
        shown.push(answer.body);
    }
    for path in ["", "/openai/models", "/elevenlabs/voices", "/anthropic/voices"] {
        let answer = http::get(server.address(), &format!("/api/providers{path}")).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        shown.push(answer.body);
    }
    let rest = server.rest();
    let listed = rest.providers().await.unwrap().providers;
    let set_up: Vec<_> = listed.iter().filter_map(|provider| provider.configured_by.as_deref()).collect();
    assert_eq!(set_up.len(), keys.len(), "{set_up:?}");
    let check = rest.validate_key("elevenlabs", ValidateKey::default()).await.unwrap();
    assert_eq!((check.kinds, check.credit), (vec![ModelKind::Stt, ModelKind::Tts], Credit::Ok));
    assert_eq!(rest.provider_models("elevenlabs").await.unwrap().models.len(), 6);
    assert_eq!(rest.provider_voices("elevenlabs").await.unwrap().voices.len(), 6);
    assert_clean(&standin, &shown.concat());
    server.stop().await;
}

#[tokio::test]
async fn a_key_in_a_body_is_checked_and_never_comes_back() {
    let standin = Standin::start().await;
    let variables = standin.variables("anthropic", "");
    let mut own = setup(Script::new());
    own.catalogue = Arc::new(catalogue(&variables[..1]));
    let server = TestServer::start(&own).await;
    let path = "/api/providers/anthropic/validate";
    let mut shown = vec![format!("{:?}", own.catalogue)];
    for (key, status) in [(GOOD_KEY, 200), (BAD_KEY, 422), (BROKE_KEY, 402)] {
        let body = json!({ "key": format!("{key}-{CANARY}") });
        let answer = http::call(server.address(), "POST", path, Some(&body)).await;
        assert_eq!(answer.status, status, "{answer:?}");
        shown.push(answer.body);
    }
    assert_clean(&standin, "");
    let asked = standin.lists().len();
    // What can be no key, and no body, is refused without its words.
    for body in [
        json!({ "key": "" }),
        json!({ "key": format!("{CANARY}{}", "k".repeat(4096)) }),
        json!(CANARY),
        json!([CANARY]),
        json!({ "key": [CANARY] }),
        json!({ "key": { CANARY: 1 } }),
    ] {
        let answer = http::call(server.address(), "POST", path, Some(&body)).await;
        assert_eq!(answer.refusal(), (400, "INVALID_MESSAGE".to_owned()), "{body}");
        shown.push(answer.body);
    }
    let large = json!({ "key": CANARY, "more": "x".repeat(16 << 10) });
    let answer = http::call(server.address(), "POST", path, Some(&large)).await;
    assert_eq!(answer.refusal(), (413, "PAYLOAD_TOO_LARGE".to_owned()));
    shown.push(answer.body);
    let other = "/api/providers/openai-compatible/validate";
    let answer = http::call(server.address(), "POST", other, Some(&json!({ "key": CANARY }))).await;
    assert_eq!(answer.refusal(), (409, "INVALID_MESSAGE".to_owned()));
    shown.push(answer.body);
    assert_eq!(standin.lists().len(), asked);
    assert!(!shown.concat().contains(CANARY), "{shown:?}");
    let info: Value = serde_json::to_value(server.rest().info().await.unwrap()).unwrap();
    assert!(!info.to_string().contains(CANARY));
    server.stop().await;
}
