//! The layers, as a person sees them.

use tns_server::{ModelPrice, Price};

use super::*;

fn place() -> Place {
    Place {
        path: "/h/.config/tns/config.toml".into(),
        shown: "~/.config/tns/config.toml".into(),
        named: false,
    }
}

fn merge(file: &str, variables: &[(&str, &str)], flag: EngineChoice) -> Result<Config, Stop> {
    let values = if file.is_empty() { None } else { Some(read::read(file).unwrap()) };
    let variable =
        |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    Config::merge(place(), values, variable, flag)
}

/// Returns the value of a setting and its origin, in words.
fn shown(config: &Config, name: &str) -> Option<(String, String)> {
    let entry = config.entries().into_iter().find(|entry| entry.name == name)?;
    let Sourced { value, origin } = entry.value?;
    let value = match value {
        Shown::Text(text) => text,
        Shown::Number(number) => number.to_string(),
        Shown::Secret => "set".into(),
    };
    Some((value, origin.to_string()))
}

#[test]
fn of_every_two_sources_the_stronger_one_holds_and_is_named() {
    const FILE: &str = "provider = \"openai\"\nmodel = \"file\"\n[agents]\nprovider_overrides = \"ollama-only\"\n\
                        [history]\ncompact_at = 2000\n[sessions]\ntitles = \"first-message\"\n[spend]\ndaily = 1\nsession = 1\n[providers.openai]\napi_key = \"file\"\nbase_url = \"http://file\"\n";
    const VARIABLES: &[(&str, &str)] = &[
        ("TNS_PROVIDER", "openai"),
        ("TNS_MODEL", "variable"),
        ("TNS_PROVIDER_OVERRIDES", "configured"),
        ("TNS_DAILY_CAP", "2"),
        ("TNS_COMPACT_AT", "3000"),
        ("TNS_TITLES", "model"),
        ("TNS_SESSION_CAP", " 2 "),
        ("OPENAI_API_KEY", "variable"),
        ("PROVIDER_BASE_URL_OPENAI", "http://variable"),
    ];
    let flag = || EngineChoice { provider: Some("openai".into()), model: Some("flag".into()) };
    let file = "~/.config/tns/config.toml";
    // For each setting: by default, by the file, by a variable, by an option.
    type Sources = [Option<(&'static str, &'static str)>; 4];
    let table: &[(&str, Sources)] = &[
        (
            "provider",
            [None, Some(("openai", file)), Some(("openai", "TNS_PROVIDER")), Some(("openai", "--provider"))],
        ),
        ("model", [None, Some(("file", file)), Some(("variable", "TNS_MODEL")), Some(("flag", "--model"))]),
        (
            "agents.provider_overrides",
            [
                Some(("configured", "the default")),
                Some(("ollama-only", file)),
                Some(("configured", "TNS_PROVIDER_OVERRIDES")),
                None,
            ],
        ),
        (
            "history.compact_at",
            [Some(("100000", "the default")), Some(("2000", file)), Some(("3000", "TNS_COMPACT_AT")), None],
        ),
        (
            "sessions.titles",
            [
                Some(("model", "the default")),
                Some(("first-message", file)),
                Some(("model", "TNS_TITLES")),
                None,
            ],
        ),
        ("spend.daily", [None, Some(("1", file)), Some(("2", "TNS_DAILY_CAP")), None]),
        ("spend.session", [None, Some(("1", file)), Some(("2", "TNS_SESSION_CAP")), None]),
        ("providers.openai.api_key", [None, Some(("set", file)), Some(("set", "OPENAI_API_KEY")), None]),
        (
            "providers.openai.base_url",
            [
                Some(("https://api.openai.com/v1", "the default")),
                Some(("http://file", file)),
                Some(("http://variable", "PROVIDER_BASE_URL_OPENAI")),
                None,
            ],
        ),
    ];
    for sources in 0..8_u8 {
        let by = |source: usize| source == 0 || sources & (1 << (source - 1)) != 0;
        let config = merge(
            if by(1) { FILE } else { "" },
            if by(2) { VARIABLES } else { &[] },
            if by(3) { flag() } else { EngineChoice::default() },
        );
        let config = config.unwrap();
        assert_eq!(config.has_file, by(1));
        for (name, values) in table {
            let strongest = (0..4).rev().filter(|source| by(*source)).find_map(|source| values[source]);
            let expected = strongest.map(|(value, origin)| (value.to_owned(), origin.to_owned()));
            assert_eq!(shown(&config, name), expected, "{name} by {sources:03b}");
        }
    }
}

#[test]
fn what_a_server_is_told_is_what_is_shown() {
    let file = "[spend]\ndaily = 5\n[agents]\nprovider_overrides = \"ollama-only\"\n[prices.\"openai/m\"]\ninput = 1\noutput = 2\n";
    let config = merge(file, &[], EngineChoice::default()).unwrap();
    assert_eq!(shown(&config, "prices.openai/m.output").unwrap().0, "2");
    let helper = tns_server::ExecHelper { program: "/x".into(), args: Vec::new() };
    let told = config.apply(ServerConfig::new("/d".into(), "/r".into(), helper));
    assert_eq!((told.spend_daily, told.spend_session), (Some(5.0), None));
    assert_eq!(told.engines.overrides, ProviderOverrides::OllamaOnly);
    let price = Price { input: 1.0, cached_input: None, cache_write: None, output: 2.0, long: None };
    let price = ModelPrice { provider: "openai".into(), model: "m".into(), price };
    assert_eq!(told.engines.prices, [price]);
}

#[test]
fn a_wrong_variable_is_named() {
    for (name, value) in
        [("TNS_DAILY_CAP", "much"), ("TNS_SESSION_CAP", "-1"), ("TNS_PROVIDER_OVERRIDES", "all")]
    {
        let stop = merge("", &[(name, value)], EngineChoice::default()).unwrap_err();
        assert!(stop.to_string().starts_with(&format!("{name} must be ")), "{stop}");
        assert!(merge("", &[(name, " ")], EngineChoice::default()).is_ok());
    }
}

#[test]
fn an_address_is_shown_without_what_may_be_a_key() {
    for (url, safe) in [
        ("https://api.example.org/v1", "https://api.example.org/v1"),
        ("https://user:secret@h:1/v1?key=secret#secret", "https://***@h:1/v1?***"),
        ("http://h?secret", "http://h?***"),
        ("secret@h/a@b", "***@h/a@b"),
    ] {
        assert_eq!(without_secrets(url), safe);
    }
}

#[test]
fn nothing_that_is_shown_holds_a_key() {
    let config = merge(
        "[providers.openai]\napi_key = \"canary-1\"\n",
        &[("GEMINI_API_KEY", "canary-2"), ("PROVIDER_BASE_URL_OLLAMA", "http://u:canary-3@h/?k=canary-4")],
        EngineChoice::default(),
    );
    let config = config.unwrap();
    let shown = format!("{:?}{:?}", config.entries(), config.place);
    assert!(!shown.contains("canary"), "{shown}");
    let debug = format!("{config:?}");
    assert!(!debug.contains("canary-1") && !debug.contains("canary-2"), "{debug}");
}
