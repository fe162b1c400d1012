//! The catalogue against a local stand-in: keys, limits, what is kept. How each provider answers is
//! tested against strict stand-ins, in `tests/it/catalogue.rs`.

use serde_json::json;
use tns_protocol::provider::Credit;

use super::*;
use crate::stand_in::{Reply, StandIn};
use crate::step::fixtures::quick;

const CANARY: &str = "canary-77aa01";

fn catalogue(variables: &[(&str, &str)]) -> Catalogue {
    let set =
        |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    Catalogue::new(EngineConfig { patience: quick(), ..EngineConfig::from_env(set) })
}

fn listed(ids: &[&str]) -> Reply {
    let models: Vec<_> = ids.iter().map(|id| json!({ "id": id })).collect();
    Reply::whole("200 OK", &json!({ "data": models }).to_string())
}

fn key(text: &str) -> Option<SecretString> {
    Some(SecretString::from(text))
}

#[tokio::test]
async fn a_given_key_is_checked_in_place_of_the_one_that_is_set_up_and_shown_nowhere() {
    let refused = json!({ "error": { "type": "authentication_error", "message": format!("bad {CANARY}") } });
    let server = StandIn::start([Reply::whole("401 Unauthorized", &refused.to_string())]).await;
    let catalogue =
        catalogue(&[("ANTHROPIC_API_KEY", "own"), ("PROVIDER_BASE_URL_ANTHROPIC", &server.base_url())]);
    let error = catalogue.validate("anthropic", key(&format!(" {CANARY}\n"))).await.unwrap_err();
    assert_eq!(error.to_string(), "anthropic refused the key: check the given key");
    assert!(server.heard()[0].contains(&format!("x-api-key: {CANARY}\r\n")));
    assert!(!format!("{error:?} {catalogue:?}").contains("canary"));
}

#[tokio::test]
async fn what_can_be_no_key_is_refused_without_asking() {
    let catalogue = catalogue(&[]);
    let check = async |id: &str, text: &str| catalogue.validate(id, key(text)).await.unwrap_err();
    for text in ["", " \n", &"k".repeat(MAX_KEY_BYTES + 1)] {
        let error = check("anthropic", text).await;
        assert_eq!(error, CatalogueError::NoSuchKey("a key has 1 to 4096 characters".into()));
    }
    let error = check("offline", "k").await;
    assert_eq!(error, CatalogueError::NoSuchKey("offline takes no key".into()));
    let error = check("openai-compatible", "k").await;
    let words = "openai-compatible is not set up here: set PROVIDER_BASE_URL_OPENAI_COMPATIBLE";
    assert_eq!(error, CatalogueError::NotSetUp(words.into()));
    let CatalogueError::Unknown(error) = check("nobody", "k").await else { panic!() };
    assert!(error.starts_with("there is no provider nobody; there are anthropic, "), "{error}");
}

#[tokio::test]
async fn the_longest_key_is_asked_with() {
    let server = StandIn::start([Reply::whole("401 Unauthorized", "{}")]).await;
    let catalogue = catalogue(&[("PROVIDER_BASE_URL_ANTHROPIC", &server.base_url())]);
    let error = catalogue.validate("anthropic", key(&"k".repeat(MAX_KEY_BYTES))).await.unwrap_err();
    assert!(matches!(&error, CatalogueError::Provider(e) if e.kind == EngineErrorKind::BadKey), "{error:?}");
}

#[tokio::test]
async fn what_is_not_set_up_says_how_to() {
    let catalogue = catalogue(&[]);
    let words = "openai is not set up here: set OPENAI_API_KEY (or PROVIDER_BASE_URL_OPENAI)";
    let not_set_up = CatalogueError::NotSetUp(words.into());
    assert_eq!(catalogue.models("openai").await, Err(not_set_up.clone()));
    assert_eq!(catalogue.validate("openai", None).await, Err(not_set_up));
    assert!(matches!(catalogue.voices("elevenlabs").await, Err(CatalogueError::NotSetUp(_))));
    // The same for everybody.
    assert_eq!(catalogue.voices("openai").await.unwrap().len(), 13);
    assert_eq!(catalogue.voices("gemini").await.unwrap().len(), 30);
    assert_eq!(catalogue.voices("anthropic").await, Ok(Vec::new()));
    let offline = catalogue.validate("offline", None).await.unwrap();
    assert_eq!((offline.kinds, offline.credit), (vec![ModelKind::Text], Credit::Free));
    let [model] = &catalogue.models("offline").await.unwrap()[..] else { panic!() };
    assert!(model.id == "offline" && model.recommended);
}

#[tokio::test]
async fn every_row_says_whether_it_is_set_up_and_by_what() {
    let catalogue = catalogue(&[("OPENAI_API_KEY", CANARY)]);
    let providers = catalogue.providers().await;
    let openai = providers.iter().find(|provider| provider.id == "openai").unwrap();
    assert_eq!((openai.configured, openai.configured_by.as_deref()), (true, Some("OPENAI_API_KEY")));
    assert_eq!(openai.key_prefix.as_deref(), Some("sk-"));
    let state = |id| {
        let provider = providers.iter().find(|provider| provider.id == id).unwrap();
        (provider.configured, provider.key_variable.as_deref())
    };
    assert_eq!(state("ollama"), (true, Some("OLLAMA_API_KEY")));
    assert_eq!(state("offline"), (true, None));
    // A build without it has nothing to set up.
    let local = providers.iter().find(|provider| provider.id == "local").unwrap();
    assert_eq!(local.configured, crate::RUNS_LOCAL_MODELS);
    assert_eq!(local.blurb.contains("--features local-llm"), !crate::RUNS_LOCAL_MODELS, "{}", local.blurb);
    assert_eq!(state("elevenlabs"), (false, Some("ELEVENLABS_API_KEY")));
    assert!(!serde_json::to_string(&providers).unwrap().contains(CANARY));
}

#[tokio::test]
async fn another_key_or_address_has_a_list_of_its_own() {
    let server = StandIn::start([listed(&["a"]), listed(&["b"]), listed(&["c"])]).await;
    let catalogue = catalogue(&[]);
    let provider = Provider::find("openai-compatible").unwrap();
    let first = async |key: Option<&str>, address: &str| {
        let access =
            Access { key: key.map(Key::of_test), base_url: Some(address.into()), ..Access::default() };
        catalogue.models_with(provider, access).await.unwrap()[0].id.clone()
    };
    let address = server.base_url();
    for _ in 0..2 {
        assert_eq!(first(Some("one"), &address).await, "a");
        assert_eq!(first(Some("two"), &address).await, "b");
    }
    // Without a key it is asked each time.
    assert_eq!(first(None, &address).await, "c");
    assert_eq!(server.heard().len(), 3);
}

#[tokio::test]
async fn a_bad_answer_is_not_kept() {
    let server = StandIn::start([
        Reply::whole("200 OK", "<html>"),
        Reply::whole("500 Internal Server Error", ""),
        listed(&[]),
        listed(&["m"]),
    ])
    .await;
    let base = server.base_url();
    let catalogue =
        catalogue(&[("OPENAI_COMPATIBLE_API_KEY", "k"), ("PROVIDER_BASE_URL_OPENAI_COMPATIBLE", &base)]);
    let ask = async || catalogue.models("openai-compatible").await;
    assert!(matches!(ask().await, Err(CatalogueError::Provider(e)) if e.kind == EngineErrorKind::Provider));
    assert!(
        matches!(ask().await, Err(CatalogueError::Provider(e)) if e.kind == EngineErrorKind::Unavailable)
    );
    assert_eq!(ask().await, Ok(Vec::new()));
    for _ in 0..2 {
        assert_eq!(ask().await.unwrap().len(), 1);
    }
    assert_eq!(server.heard().len(), 4);
}

#[tokio::test]
async fn a_refused_step_that_is_no_fault_of_the_account_leaves_the_credit_unknown() {
    let missing = json!({ "error": { "code": "model_not_found", "message": "not yours" } }).to_string();
    let server = StandIn::start([listed(&["m"]), Reply::whole("404 Not Found", &missing)]).await;
    let base = server.base_url();
    let catalogue = catalogue(&[("PROVIDER_BASE_URL_OPENAI_COMPATIBLE", &base)]);
    let check = catalogue.validate("openai-compatible", key("k")).await.unwrap();
    assert_eq!((check.kinds, check.credit), (vec![ModelKind::Text], Credit::Unknown));
    assert!(server.heard()[1].contains("\"max_tokens\":1"), "{}", server.heard()[1]);
}

#[tokio::test]
async fn nothing_is_paid_for_without_a_key() {
    let server = StandIn::start([listed(&["m"])]).await;
    let catalogue = catalogue(&[("PROVIDER_BASE_URL_OPENAI_COMPATIBLE", &server.base_url())]);
    assert_eq!(catalogue.validate("openai-compatible", None).await.unwrap().credit, Credit::Free);
    assert_eq!(server.heard().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_takes_too_long_is_an_outage() {
    let error = within_limit::<()>(&PROVIDERS[0], std::future::pending()).await.unwrap_err();
    assert_eq!(error.kind, EngineErrorKind::Unavailable);
    assert_eq!(error.message, "anthropic did not answer within 45 s; try again later");
}
