//! Variables, layers, and what is asked of a keyring when.

use secrecy::ExposeSecret;

use super::*;
use crate::key_store::StoredKeys;

#[test]
fn variables_are_named_after_the_provider() {
    assert_eq!(key_variable("openai-compatible"), "OPENAI_COMPATIBLE_API_KEY");
    assert_eq!(base_url_variable("openai-compatible"), "PROVIDER_BASE_URL_OPENAI_COMPATIBLE");
}

#[test]
fn blank_values_count_as_unset_and_keys_are_not_printed() {
    let config = EngineConfig::from_env(|name| match name {
        "OPENAI_API_KEY" => Some(" test-key-123\n".into()),
        "TNS_PROVIDER" | "PROVIDER_BASE_URL_OLLAMA" => Some("  ".into()),
        _ => None,
    });
    let configured: Vec<_> = PROVIDERS.iter().filter_map(|row| config.configured_by(row)).collect();
    assert_eq!(configured, ["OPENAI_API_KEY"]);
    assert_eq!(config.configured, EngineChoice::default());
    assert!(!format!("{config:?}").contains("test-key-123"));
}

#[test]
fn a_key_without_an_address_configures_nothing() {
    let with = |name: &'static str| {
        let config = EngineConfig::from_env(|asked| (asked == name).then(|| "x".to_owned()));
        PROVIDERS.iter().filter_map(|row| config.configured_by(row)).collect::<Vec<_>>()
    };
    assert!(with("OPENAI_COMPATIBLE_API_KEY").is_empty());
    assert_eq!(with("PROVIDER_BASE_URL_OPENAI_COMPATIBLE"), ["PROVIDER_BASE_URL_OPENAI_COMPATIBLE"]);
}

/// Sources of one value, weakest first.
const SOURCES: [&str; 4] = ["keyring", "file", "variable", "flag"];

/// Makes a configuration in which each of these sources sets everything that it can, to its own name.
fn set_by(sources: &[&str]) -> EngineConfig {
    let by = |source: &str| sources.contains(&source);
    let choice = |source: &str| EngineChoice {
        provider: by(source).then(|| "openai".into()),
        model: by(source).then(|| source.to_owned()),
    };
    let mut config = EngineConfig::from_env(|name| match name {
        "TNS_PROVIDER" if by("variable") => Some("openai".into()),
        "TNS_MODEL" | "OPENAI_API_KEY" | "PROVIDER_BASE_URL_OPENAI" if by("variable") => {
            Some("variable".into())
        }
        _ => None,
    });
    if by("file") {
        config = config.above(FileSettings {
            choice: FileChoice { path: "~/c.toml".into(), choice: choice("file") },
            keys: BTreeMap::from([("openai", "file".into())]),
            base_urls: BTreeMap::from([("openai", "file".into())]),
        });
    }
    if by("keyring") {
        config.key_store = Some(KeyStore::new(|asked| StoredKeys {
            keys: asked.iter().map(|id| (*id, "keyring".into())).collect(),
            trouble: None,
        }));
    }
    config.flag = choice("flag");
    config
}

#[tokio::test]
async fn of_every_two_sources_the_stronger_one_holds() {
    let openai = Provider::find("openai").unwrap();
    for (at, weak) in SOURCES.iter().enumerate() {
        for strong in &SOURCES[at..] {
            let config = set_by(&[weak, strong]);
            config.look_for_keys().await;
            let expected = |able: &[&str]| {
                [*strong, *weak].into_iter().find(|source| able.contains(source)).map(str::to_owned)
            };
            let access = config.access(openai);
            let key = access.key.as_ref().map(|key| key.expose_secret().to_owned());
            assert_eq!(key, expected(&["keyring", "file", "variable"]), "{weak} {strong}");
            assert_eq!(access.base_url, expected(&["file", "variable"]), "{weak} {strong}");
            let model = config.model();
            assert_eq!(
                model.as_ref().map(|model| model.value.to_owned()),
                expected(&["file", "variable", "flag"])
            );
            // Each value names the source that set it.
            let origin_of = |source: &str| match source {
                "keyring" => Origin::Keyring,
                "file" => Origin::File("~/c.toml".into()),
                "variable" => Origin::Variable("OPENAI_API_KEY".into()),
                _ => Origin::Flag("--model"),
            };
            assert_eq!(config.key_origin(openai), key.map(|source| origin_of(&source)));
            let named = model.map(|model| (model.value.to_owned(), model.origin));
            if let Some((value, origin)) = named {
                let expected = match origin_of(&value) {
                    Origin::Variable(_) => Origin::Variable("TNS_MODEL".into()),
                    other => other,
                };
                assert_eq!(origin, expected);
            }
        }
    }
}

#[test]
fn without_any_source_the_address_is_the_providers_own() {
    let config = set_by(&[]);
    let openai = Provider::find("openai").unwrap();
    assert_eq!(config.key_origin(openai), None);
    let address = config.base_url(openai).unwrap();
    assert_eq!((address.value.as_str(), address.origin), ("https://api.openai.com/v1", Origin::Default));
    assert_eq!(config.base_url(Provider::find("openai-compatible").unwrap()), None);
}

#[test]
fn a_model_belongs_to_the_provider_that_is_named_with_it_or_below_it() {
    let choice = |provider: &str, model: &str| EngineChoice {
        provider: Some(provider.into()),
        model: Some(model.into()),
    };
    for (flag, variable, file, expected) in [
        (("", ""), ("", ""), ("openai", "f"), Some("f")),
        (("", ""), ("gemini", ""), ("openai", "f"), None),
        (("", ""), ("openai", ""), ("openai", "f"), Some("f")),
        (("", ""), ("gemini", "v"), ("openai", "f"), Some("v")),
        (("", ""), ("", "v"), ("openai", "f"), Some("v")),
        (("gemini", ""), ("", "v"), ("openai", "f"), None),
        (("openai", ""), ("", "v"), ("openai", "f"), Some("v")),
        (("openai", ""), ("gemini", "v"), ("openai", "f"), Some("f")),
        (("gemini", "m"), ("", "v"), ("openai", "f"), Some("m")),
        (("gemini", ""), ("", "v"), ("", "f"), Some("v")),
        (("", "m"), ("", ""), ("openai", ""), Some("m")),
    ] {
        let mut config = EngineConfig::from_env(|_| None);
        config.flag = choice(flag.0, flag.1);
        config.configured = choice(variable.0, variable.1);
        config.file.choice = choice(file.0, file.1);
        let model = config.model().map(|model| model.value);
        assert_eq!(model, expected, "{flag:?} {variable:?} {file:?}");
    }
}
