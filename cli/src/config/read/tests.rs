//! What a file may say, and how what it may not is told.

use secrecy::ExposeSecret;

use super::*;

const CANARY: &str = "sk-canary-7b1f";

fn fault(text: &str) -> (usize, String) {
    let Fault { line, text } = read(text).unwrap_err();
    (line, text)
}

#[test]
fn every_known_key_is_read() {
    let values = read(
        "provider = \"openai\"\nmodel = 'gpt-5' # mine\n\n[agents]\nprovider_overrides = \"ollama-only\"\n\n\
         [spend]\ndaily = 5\nsession = 0.5\n\n[providers.openai]\napi_key = \" k-1 \"\n\n\
         [providers.openai-compatible]\nbase_url = \"http://127.0.0.1:8000/v1\"\n\n\
         [prices.\"openai/gpt-5.5\"]\ninput = 2\ncached_input = 0.2\noutput = 10.0\n",
    )
    .unwrap();
    assert_eq!((values.provider.as_deref(), values.model.as_deref()), (Some("openai"), Some("gpt-5")));
    assert_eq!(values.overrides, Some(ProviderOverrides::OllamaOnly));
    assert_eq!((values.spend_daily, values.spend_session), (Some(5.0), Some(0.5)));
    assert_eq!(values.keys["openai"].expose_secret(), "k-1");
    assert_eq!(values.base_urls["openai-compatible"], "http://127.0.0.1:8000/v1");
    let price = Price { input: 2.0, cached_input: Some(0.2), cache_write: None, output: 10.0, long: None };
    let price = ModelPrice { provider: "openai".into(), model: "gpt-5.5".into(), price };
    assert_eq!(values.prices, [price]);
    assert!(!format!("{values:?}").contains("k-1"));
    assert!(read("").unwrap().keys.is_empty());
    assert_eq!(read("providers.openai.api_key = 'k'").unwrap().keys.len(), 1);
}

#[test]
fn an_unknown_key_is_told_with_its_line_and_the_nearest() {
    for (text, line, words) in [
        ("provder = \"openai\"", 1, "there is no key provder; did you mean provider?"),
        ("# one\n\ndaily = 1", 3, "there is no key daily; did you mean spend.daily?"),
        ("[spend]\ndayly = 1", 2, "there is no key spend.dayly; did you mean spend.daily?"),
        ("[spent]\ndaily = 1", 1, "there is no key spent; did you mean spend?"),
        (
            "[providers.openai]\n\nkey = \"x\"",
            3,
            "there is no key providers.openai.key; did you mean providers.openai.api_key?",
        ),
        (
            "[providers.antropic]\napi_key = \"x\"",
            1,
            "providers.antropic names no provider; did you mean anthropic?",
        ),
        ("provider = \"oponai\"", 1, "provider names no provider; did you mean openai?"),
        (
            "[prices.\"openai/m\"]\ninput = 1\nout = 2",
            3,
            "there is no key prices.openai/m.out; did you mean prices.openai/m.output?",
        ),
    ] {
        let (found, told) = fault(text);
        assert_eq!(found, line, "{text}: {told}");
        assert_eq!(told, words);
    }
}

#[test]
fn a_wrong_type_or_value_is_told_with_its_line() {
    for (text, line, words) in [
        ("\nmodel = 5", 2, "model must be text in quotes, not a number"),
        ("model = \" \"", 1, "model must not be empty; leave it out instead"),
        ("spend = 5", 1, "spend must be a table, not a number"),
        ("[spend]\ndaily = \"5\"", 2, "spend.daily must be a number of US dollars, not text"),
        ("[spend]\ndaily = -1", 2, "spend.daily must be a number of US dollars, 0 or more"),
        ("[spend]\ndaily = nan", 2, "spend.daily must be a number of US dollars, 0 or more"),
        ("[spend]\ndaily = inf", 2, "spend.daily must be a number of US dollars, 0 or more"),
        ("[spend]\nsession = true", 2, "spend.session must be a number of US dollars, not true or false"),
        ("[[providers]]\n", 1, "providers must be a table, not a list of tables"),
        ("[providers]\nopenai = []", 2, "providers.openai must be a table, not a list"),
        (
            "[providers.offline]\n",
            1,
            "providers.offline can't be set up: it needs neither a key nor an address",
        ),
        (
            "[agents]\nprovider_overrides = \"none\"",
            2,
            "agents.provider_overrides must be \"configured\" or \"ollama-only\"",
        ),
        (
            "[providers.openai]\nbase_url = \"127.0.0.1:8000\"",
            2,
            "providers.openai.base_url must be an http address such as http://127.0.0.1:8000/v1",
        ),
        ("[prices.\"openai/m\"]\ninput = 1", 1, "prices.openai/m needs both input and output"),
        (
            "[prices.openai]\ninput = 1",
            1,
            "prices.openai must be named after a provider and its model, as in [prices.\"openai/gpt-5\"]",
        ),
    ] {
        assert_eq!(fault(text), (line, words.to_owned()), "{text}");
    }
}

#[test]
fn no_fault_shows_a_key() {
    for text in [
        format!("[providers.openai]\napi_key = {CANARY}\n"),
        format!("[providers.openai]\napi_key = \"{CANARY}\n"),
        format!("[providers.openai]\napi_key = \"{CANARY}\"\napi_key = \"{CANARY}\"\n"),
        format!("[providers.openai]\napi_key = \"{CANARY} {CANARY}\"\n"),
        format!("[providers.openai]\napi_key = [\"{CANARY}\"]\n"),
        format!("[providers.openai]\nbase_url = \"{CANARY}\"\n"),
        format!("[providers]\nopenai = \"{CANARY}\"\n"),
        format!("[spend]\ndaily = \"{CANARY}\"\n"),
        format!("provider = \"{CANARY}\"\n"),
        format!("[agents]\nprovider_overrides = \"{CANARY}\"\n"),
        format!("[providers.openai]\napi_key = \"\\{CANARY}\"\n"),
        format!("api_key \"{CANARY}\"\n"),
    ] {
        let fault = read(&text).unwrap_err();
        assert!(!format!("{fault:?}").contains("canary"), "{text}: {fault:?}");
    }
}

#[test]
fn a_key_of_the_greatest_length_is_taken_and_a_longer_one_is_not() {
    assert!(check_key(&"k".repeat(MAX_KEY_BYTES)).is_ok());
    assert!(check_key(&"k".repeat(MAX_KEY_BYTES + 1)).is_err());
    for wrong in ["", " \n", "a b", "a\u{1b}[m", "a\nb"] {
        assert!(check_key(wrong).is_err(), "{wrong:?}");
    }
}
