//! The table of choices, and what `open` allows. Local servers are stand-ins on free ports.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tns_server_core::engine::{EngineChoice, Engines};

use super::*;
use crate::config::{FileChoice, FileSettings, ProviderOverrides};
use crate::key_store::{KeyStore, StoredKeys};
use crate::registry::EngineRegistry;
use crate::stand_in::{Reply, StandIn, nobody};

fn models(names: &[&str]) -> Reply {
    let data: Vec<_> = names.iter().map(|name| json!({"id": name})).collect();
    Reply::whole("200 OK", &json!({"object": "list", "data": data}).to_string())
}

fn tags(names: &[&str]) -> Reply {
    let models: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
    Reply::whole("200 OK", &json!({ "models": models }).to_string())
}

fn shown() -> Reply {
    Reply::whole("200 OK", &json!({"capabilities": ["completion", "tools"]}).to_string())
}

fn local(provider: &'static str, base_url: String) -> LocalServer {
    LocalServer { name: "Local", provider, base_url }
}

fn config(variables: &[(&str, &str)]) -> EngineConfig {
    let set =
        |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    EngineConfig { local_servers: Vec::new(), ..EngineConfig::from_env(set) }
}

fn choice(provider: &str, model: &str) -> EngineChoice {
    EngineChoice { provider: Some(provider.into()), model: Some(model.into()) }
}

async fn chosen(config: EngineConfig) -> Result<(String, String, String), String> {
    let chosen = EngineRegistry::new(config).choose().await;
    chosen.map(|chosen| (chosen.provider, chosen.model, chosen.reason)).map_err(|OpenError(message)| message)
}

async fn opened(config: EngineConfig, choice: &EngineChoice) -> Result<(String, String), String> {
    let opened = EngineRegistry::new(config).open(choice).await;
    opened
        .map(|engine| (engine.provider().to_owned(), engine.model().to_owned()))
        .map_err(|OpenError(message)| message)
}

#[tokio::test]
async fn the_first_that_is_named_or_configured_wins() {
    const KEY: (&str, &str) = ("OPENAI_API_KEY", "k");
    const BASE: (&str, &str) = ("PROVIDER_BASE_URL_OPENAI_COMPATIBLE", "http://127.0.0.1:1/v1");
    let offline_reason = "no provider is set up and no model server answers on this machine";
    for (variables, flag, expected) in [
        (vec![], ("", ""), ("offline", "offline", offline_reason)),
        (vec![KEY], ("", ""), ("openai", "gpt-6.2-sol", "OPENAI_API_KEY is set")),
        (vec![KEY, BASE], ("", ""), ("openai", "gpt-6.2-sol", "OPENAI_API_KEY is set")),
        (
            vec![BASE, ("TNS_MODEL", "m")],
            ("", ""),
            ("openai-compatible", "m", "PROVIDER_BASE_URL_OPENAI_COMPATIBLE is set"),
        ),
        (vec![KEY], ("", "gpt-5.5"), ("openai", "gpt-5.5", "OPENAI_API_KEY is set")),
        (vec![KEY, ("TNS_PROVIDER", "offline")], ("", ""), ("offline", "offline", "named by TNS_PROVIDER")),
        (
            vec![KEY, BASE, ("TNS_PROVIDER", "openai"), ("TNS_MODEL", "x")],
            ("openai-compatible", "m"),
            ("openai-compatible", "m", "named by --provider"),
        ),
        // A model of the configured provider is none of the flag's.
        (
            vec![KEY, ("TNS_PROVIDER", "openai"), ("TNS_MODEL", "x")],
            ("offline", ""),
            ("offline", "offline", "named by --provider"),
        ),
        (vec![KEY, ("TNS_MODEL", "x")], ("openai", ""), ("openai", "x", "named by --provider")),
        (
            vec![("PROVIDER_BASE_URL_OPENAI", "http://127.0.0.1:1/v1")],
            ("", ""),
            ("openai", "gpt-6.2-sol", "PROVIDER_BASE_URL_OPENAI is set"),
        ),
        // It has voices only.
        (vec![("ELEVENLABS_API_KEY", "k")], ("", ""), ("offline", "offline", offline_reason)),
    ] {
        let config = EngineConfig { flag: choice(flag.0, flag.1), ..config(&variables) };
        let (provider, model, reason) = chosen(config).await.unwrap();
        assert_eq!((provider.as_str(), model.as_str(), reason.as_str()), expected, "{variables:?} {flag:?}");
    }
}

#[tokio::test]
async fn a_provider_without_text_can_be_no_agents_set_up_or_not() {
    for variables in [&[] as &[_], &[("ELEVENLABS_API_KEY", "k")]] {
        let words = "elevenlabs speaks and listens but writes no text";
        let error = opened(config(variables), &choice("elevenlabs", "eleven_v3")).await.unwrap_err();
        assert!(error.starts_with(words), "{error}");
        let named = EngineConfig { flag: choice("elevenlabs", ""), ..config(variables) };
        let error = chosen(named).await.unwrap_err();
        assert!(error.starts_with(words), "{error}");
    }
}

#[tokio::test]
async fn a_local_server_is_found_in_order_and_only_where_nothing_is_named() {
    let second = StandIn::start([models(&["second"]), models(&["second"])]).await;
    let third = StandIn::start([models(&["third"]), models(&["third"])]).await;
    let closed = format!("http://{}/v1", nobody().await);
    let servers = || {
        vec![
            local("ollama", closed.clone()),
            local("openai-compatible", second.base_url()),
            local("openai-compatible", third.base_url()),
        ]
    };
    let (provider, model, reason) =
        chosen(EngineConfig { local_servers: servers(), ..config(&[]) }).await.unwrap();
    assert_eq!((provider.as_str(), model.as_str()), ("openai-compatible", "second"));
    assert!(reason.starts_with("Local answers at 127.0.0.1:"), "{reason}");

    let before = second.connections();
    let named = config(&[("TNS_PROVIDER", "offline")]);
    assert_eq!(chosen(EngineConfig { local_servers: servers(), ..named }).await.unwrap().0, "offline");
    assert_eq!(second.connections(), before);
}

#[tokio::test]
async fn a_server_that_lists_no_chat_model_or_is_something_else_is_passed_over() {
    let something_else = StandIn::start([Reply::whole("200 OK", "<html>")]).await;
    let embeddings = StandIn::start([models(&["text-embedding-x"])]).await;
    let chat = StandIn::start([tags(&["qwen3:4b"]), tags(&["qwen3:4b"]), shown()]).await;
    let local_servers = vec![
        local("openai-compatible", something_else.base_url()),
        local("openai-compatible", embeddings.base_url()),
        local("ollama", chat.base_url()),
    ];
    let (provider, model, _) = chosen(EngineConfig { local_servers, ..config(&[]) }).await.unwrap();
    assert_eq!((provider.as_str(), model.as_str()), ("ollama", "qwen3:4b"));
}

#[tokio::test]
async fn a_server_that_does_not_answer_costs_no_more_than_the_limit() {
    let mute = || Reply { writes: Vec::new(), then: crate::stand_in::Then::Hold };
    let silent = StandIn::start([mute(), mute(), mute()]).await;
    let local_servers =
        vec![local("ollama", silent.base_url()), local("openai-compatible", silent.base_url())];
    let begun = std::time::Instant::now();
    assert_eq!(chosen(EngineConfig { local_servers, ..config(&[]) }).await.unwrap().0, "offline");
    // Side by side: one limit, not two.
    assert!(begun.elapsed() < LOCAL_SEARCH * 2, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn what_is_not_set_up_is_refused_with_what_to_set() {
    for (asked, message) in [
        ("openai", "openai is not set up here: set OPENAI_API_KEY (or PROVIDER_BASE_URL_OPENAI)"),
        (
            "openai-compatible",
            "openai-compatible is not set up here: set PROVIDER_BASE_URL_OPENAI_COMPATIBLE",
        ),
        (
            "nope",
            "there is no provider nope; there are anthropic, openai, gemini, ollama, openai-compatible, local, offline",
        ),
    ] {
        assert_eq!(opened(config(&[]), &choice(asked, "m")).await, Err(message.into()));
        assert_eq!(chosen(config(&[("TNS_PROVIDER", asked)])).await, Err(message.into()));
    }
}

#[tokio::test]
async fn a_blank_provider_is_the_default_with_the_asked_model() {
    let set = || config(&[("OPENAI_API_KEY", "k")]);
    assert_eq!(opened(set(), &choice(" ", "")).await, Ok(("openai".into(), "gpt-6.2-sol".into())));
    assert_eq!(opened(set(), &choice("", "other")).await, Ok(("openai".into(), "other".into())));
    assert_eq!(opened(set(), &EngineChoice::default()).await, Ok(("openai".into(), "gpt-6.2-sol".into())));
    let message = opened(config(&[]), &choice("", "gpt-6.2-sol")).await.unwrap_err();
    assert!(message.starts_with("no model is set up, so there is no gpt-6.2-sol"), "{message}");
}

#[tokio::test]
async fn ollama_is_asked_for_its_models() {
    let answers = [tags(&["qwen3:4b", "llama3:latest"]), shown(), tags(&["qwen3:4b"]), shown(), tags(&["a"])];
    let stand_in = StandIn::start(answers).await;
    let base = stand_in.base_url();
    let at = || config(&[("PROVIDER_BASE_URL_OLLAMA", &base)]);
    assert_eq!(
        opened(at(), &choice("ollama", "llama3")).await,
        Ok(("ollama".into(), "llama3:latest".into()))
    );
    let first = EngineChoice { provider: Some("ollama".into()), model: None };
    assert_eq!(opened(at(), &first).await, Ok(("ollama".into(), "qwen3:4b".into())));
    let message = opened(at(), &choice("ollama", "b")).await.unwrap_err();
    assert!(message.contains("ollama has no model b; it has a"), "{message}");
    assert!(stand_in.heard()[0].starts_with("GET /api/tags "));

    let address = nobody().await;
    let away = config(&[("PROVIDER_BASE_URL_OLLAMA", &format!("http://{address}"))]);
    let message = opened(away, &choice("ollama", "b")).await.unwrap_err();
    assert_eq!(message, format!("can't reach ollama at {address} (connection refused); is it running?"));
}

#[tokio::test]
async fn a_compatible_server_without_a_named_model_gives_its_first() {
    let stand_in = StandIn::start([models(&["served"]), models(&[])]).await;
    let at = || config(&[("PROVIDER_BASE_URL_OPENAI_COMPATIBLE", &stand_in.base_url())]);
    assert_eq!(chosen(at()).await.unwrap().1, "served");
    let message = chosen(at()).await.unwrap_err();
    assert!(message.ends_with("lists no model: name one with --model"), "{message}");
}

#[tokio::test]
async fn a_restricted_server_lets_clients_name_only_ollama() {
    let restricted = || {
        let overrides = ProviderOverrides::OllamaOnly;
        EngineConfig { overrides, ..config(&[("OPENAI_API_KEY", "k")]) }
    };
    for named in ["openai", "offline", "nope"] {
        let message = opened(restricted(), &choice(named, "m")).await.unwrap_err();
        assert!(message.contains("no provider but ollama"), "{message}");
    }
    assert_eq!(opened(restricted(), &choice("", "m")).await, Ok(("openai".into(), "m".into())));
    let address = nobody().await.to_string();
    let base = format!("http://{address}");
    let config = config(&[("PROVIDER_BASE_URL_OLLAMA", &base)]);
    let config = EngineConfig { overrides: ProviderOverrides::OllamaOnly, ..config };
    assert!(opened(config, &choice("ollama", "m")).await.unwrap_err().contains(&address));
}

#[tokio::test]
async fn a_model_that_nobody_serves_is_an_error_and_not_another_model() {
    for (variables, flag) in [(vec![("TNS_MODEL", "m")], ""), (vec![], "m")] {
        let mut config = config(&variables);
        config.local_servers.clear();
        config.flag.model = Some(flag.to_owned());
        let error = chosen(config).await.unwrap_err();
        assert!(error.contains("no m"), "{error}");
    }
}

/// A file that holds a provider's key or address, and names what `choice` names.
fn file(choice: EngineChoice, key: Option<&'static str>, address: Option<&'static str>) -> FileSettings {
    FileSettings {
        choice: FileChoice { path: "~/.config/tns/config.toml".into(), choice },
        keys: key.map(|id| (id, "k".into())).into_iter().collect(),
        base_urls: address.map(|id| (id, "http://127.0.0.1:1/v1".to_owned())).into_iter().collect(),
    }
}

/// A keyring that holds the key of one provider, and counts how often it is asked.
fn keyring(holds: &'static str, trouble: Option<&'static str>) -> (KeyStore, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let store = KeyStore::new(move |providers| {
        counter.fetch_add(1, Ordering::Relaxed);
        let keys = providers.iter().filter(|id| **id == holds).map(|id| (*id, "k".into())).collect();
        StoredKeys { keys, trouble: trouble.map(str::to_owned) }
    });
    (store, asked)
}

#[tokio::test]
async fn the_reason_names_the_true_source() {
    let none = EngineChoice::default;
    for (variables, file, expected) in [
        (
            vec![],
            file(choice("openai", "m"), Some("openai"), None),
            ("openai", "m", "named by provider in ~/.config/tns/config.toml"),
        ),
        (
            vec![],
            file(none(), Some("openai"), None),
            ("openai", "gpt-6.2-sol", "providers.openai.api_key in ~/.config/tns/config.toml is set"),
        ),
        (
            vec![("TNS_MODEL", "m")],
            file(none(), None, Some("openai-compatible")),
            (
                "openai-compatible",
                "m",
                "providers.openai-compatible.base_url in ~/.config/tns/config.toml is set",
            ),
        ),
        (
            vec![("OPENAI_API_KEY", "k")],
            file(none(), Some("openai"), None),
            ("openai", "gpt-6.2-sol", "OPENAI_API_KEY is set"),
        ),
        (
            vec![("TNS_PROVIDER", "offline")],
            file(choice("openai", "m"), Some("openai"), None),
            ("offline", "offline", "named by TNS_PROVIDER"),
        ),
    ] {
        let config = config(&variables).above(file);
        let (provider, model, reason) = chosen(config).await.unwrap();
        assert_eq!((provider.as_str(), model.as_str(), reason.as_str()), expected, "{variables:?}");
    }
}

#[tokio::test]
async fn a_key_in_the_keyring_is_found_where_no_other_is_set() {
    let with = |variables: &[(&str, &str)]| {
        let (store, asked) = keyring("openai", None);
        (EngineConfig { key_store: Some(store), ..config(variables) }, asked)
    };
    let (config, asked) = with(&[]);
    let (provider, _, reason) = chosen(config).await.unwrap();
    assert_eq!(
        (provider.as_str(), reason.as_str()),
        ("openai", "the key of openai in the system keyring is set")
    );
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    let (config, asked) = with(&[("TNS_PROVIDER", "openai")]);
    assert_eq!(chosen(config).await.unwrap().2, "named by TNS_PROVIDER");
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    let (config, _) = with(&[("TNS_PROVIDER", "offline")]);
    assert_eq!(opened(config, &choice("openai", "m")).await, Ok(("openai".into(), "m".into())));
}

#[tokio::test]
async fn the_keyring_is_left_alone_where_no_key_is_wanted() {
    for variables in [
        [("TNS_PROVIDER", "offline"), ("", "")],
        [("ANTHROPIC_API_KEY", "k"), ("", "")],
        [("TNS_PROVIDER", "openai"), ("OPENAI_API_KEY", "k")],
    ] {
        let (store, asked) = keyring("openai", None);
        chosen(EngineConfig { key_store: Some(store), ..config(&variables) }).await.unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 0, "{variables:?}");
    }
}

#[tokio::test]
async fn a_keyring_that_may_hold_a_key_is_named_where_none_is_found() {
    let (store, _) = keyring("", Some("the system keyring is locked"));
    let (provider, _, reason) = chosen(EngineConfig { key_store: Some(store), ..config(&[]) }).await.unwrap();
    assert_eq!(provider, "offline");
    assert!(reason.ends_with("on this machine; the system keyring is locked"), "{reason}");
}
