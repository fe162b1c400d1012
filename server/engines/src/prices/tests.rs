//! The list as it is shipped, and what tokens cost by it.

use super::*;
use crate::provider::PROVIDERS;

fn usage(input: u64, cached_input: u64, cache_written: u64, output: u64) -> StepUsage {
    StepUsage { input, cached_input, cache_written, output, cost: None }
}

fn date(year: u32, month: u32, day: u32) -> Day {
    format!("{year}-{month:02}-{day:02}").parse().unwrap()
}

fn rounded(dollars: f64) -> f64 {
    (dollars * 1e9).round() / 1e9
}

fn dollars(provider: &str, model: &str, day: Day, usage: &StepUsage) -> Option<f64> {
    listed(provider, model, day).map(|price| rounded(price.cost(usage)))
}

fn list() -> List {
    toml::from_str(LIST).unwrap()
}

#[test]
fn the_list_is_whole_and_each_provider_says_where_and_when_it_was_read() {
    let list = list();
    assert_eq!(list.keys().map(String::as_str).collect::<Vec<_>>(), ["anthropic", "gemini", "openai"]);
    for (provider, listed) in list {
        assert!(PROVIDERS.iter().any(|row| row.id == provider), "{provider}");
        assert!(listed.source.starts_with("https://"), "{provider}: {}", listed.source);
        assert!(listed.read >= date(2026, 11, 30), "{provider}: {}", listed.read);
        for (place, row) in listed.models.iter().enumerate() {
            let price = row.price();
            assert_eq!(price.check(), Ok(()), "{provider} {}", row.name);
            for figure in [price.input, price.cached_input(), price.cache_write(), price.output] {
                assert!(figure > 0.0, "{provider} {}", row.name);
            }
            assert!(price.long.is_none_or(|long| long.input_factor > 1.0), "{provider} {}", row.name);
            // A row that holds for ever hides those behind it.
            let hidden = listed.models[..place]
                .iter()
                .any(|row_before| row_before.until.is_none() && is_version_of(&row.name, &row_before.name));
            assert!(!hidden, "{provider} {}", row.name);
        }
    }
}

#[test]
fn the_default_model_of_each_paid_provider_is_priced() {
    for provider in PROVIDERS.iter().filter(|row| !row.needs_no_setup) {
        let Some(model) = provider.default_model else { continue };
        let prices = Prices::new(provider.id, Arc::new([]), false);
        assert_eq!(prices.pricing(model), Pricing::Known, "{} {model}", provider.id);
    }
}

#[test]
fn each_kind_of_token_has_its_price() {
    let day = date(2026, 11, 30);
    let sol = |usage| dollars("openai", "gpt-6.2-sol", day, &usage);
    assert_eq!(sol(usage(1000, 0, 0, 0)), Some(0.002));
    assert_eq!(sol(usage(1000, 1000, 0, 0)), Some(0.000_1));
    assert_eq!(sol(usage(1000, 0, 1000, 0)), Some(0.002_5));
    assert_eq!(sol(usage(1000, 400, 100, 100)), Some(0.002_29));
    assert_eq!(dollars("anthropic", "claude-opus-5-5", day, &usage(3010, 2000, 1000, 100)), Some(0.007_44));
    // Without a price of its own, what is written to a cache costs what is new.
    assert_eq!(dollars("openai", "gpt-5.4", day, &usage(1000, 0, 1000, 0)), Some(0.002_5));
}

#[test]
fn long_input_makes_the_whole_request_dearer() {
    let day = date(2027, 6, 1);
    let pro = |input, output| dollars("gemini", "gemini-2.5-pro", day, &usage(input, 0, 0, output));
    assert_eq!(pro(200_000, 1000), Some(0.26));
    assert_eq!(pro(200_001, 1000), Some(0.515_002_5));
    assert_eq!(dollars("gemini", "gemini-3.5-flash", day, &usage(400_000, 0, 0, 0)), Some(0.6));
    let haiku = |input| dollars("anthropic", "claude-haiku-5-5", day, &usage(input, 0, 0, 0));
    assert_eq!(haiku(100_000), Some(0.01));
    assert_eq!(haiku(100_001), Some(0.050_000_5));
}

#[test]
fn a_price_that_ends_holds_until_its_day() {
    let flash = |day| dollars("gemini", "gemini-3.8-flash", day, &usage(1_000_000, 500_000, 0, 100_000));
    assert_eq!(flash(date(2026, 12, 31)), Some(0.7875));
    assert_eq!(flash(date(2027, 1, 1)), Some(1.575));
    let argon = |day| dollars("gemini", "gemini-4-argon", day, &usage(1_000_000, 0, 0, 1_000_000));
    assert_eq!(argon(date(2026, 11, 30)), Some(12.0));
    assert_eq!(argon(date(2026, 12, 1)), Some(24.0));
}

#[test]
fn dated_versions_cost_the_same_and_other_models_are_unknown() {
    let day = date(2026, 11, 30);
    let price = |model: &str| dollars("openai", model, day, &usage(1000, 0, 0, 0));
    assert_eq!(price("gpt-5.4-2026-03-05"), Some(0.002_5));
    assert_eq!(price("gpt-5.4-20260305"), Some(0.002_5));
    assert_eq!(price("gpt-5.4-mini"), Some(0.000_75));
    for model in ["gpt-5.4-max", "gpt-5", "claude-opus-5-5", ""] {
        assert_eq!(price(model), None, "{model}");
    }
}

#[test]
fn more_cached_than_there_was_is_no_negative_price() {
    let day = date(2026, 11, 30);
    assert_eq!(dollars("openai", "gpt-6.2-sol", day, &usage(10, 1000, 1000, 0)), Some(0.000_001));
}

fn own(provider: &str, model: &str, input: f64) -> ModelPrice {
    let price = Price { input, cached_input: None, cache_write: None, output: 0.0, long: None };
    ModelPrice { provider: provider.to_owned(), model: model.to_owned(), price }
}

#[test]
fn the_operators_price_beats_the_list_and_holds_for_its_provider_only() {
    let own: Arc<[ModelPrice]> =
        Arc::new([own("openai", "gpt-6.2-sol", 7.0), own("openai-compatible", "m", 1.0)]);
    let million = usage(1_000_000, 0, 0, 0);
    let prices = |provider| Prices::new(provider, own.clone(), false);
    assert_eq!(prices("openai").cost("gpt-6.2-sol", "gpt-6.2-sol", &million), Some(7.0));
    assert_eq!(prices("openai-compatible").cost("m", "m", &million), Some(1.0));
    assert_eq!(prices("openai").cost("m", "m", &million), None);
    assert_eq!(prices("openai").pricing("m"), Pricing::Unknown);
    // A server may answer under a longer name than the one that was asked for.
    assert_eq!(prices("openai-compatible").cost("m", "maker/m-instruct", &million), Some(1.0));
}

#[test]
fn a_free_engine_costs_nothing_unless_the_operator_prices_it() {
    let own: Arc<[ModelPrice]> = Arc::new([own("ollama", "big", 1.0)]);
    let prices = Prices::new("ollama", own, true);
    assert_eq!((prices.pricing("small"), prices.pricing("big")), (Pricing::Free, Pricing::Known));
    assert_eq!(prices.cost("small", "small", &usage(5, 0, 0, 5)), Some(0.0));
    assert_eq!(prices.cost("big", "big", &usage(1_000_000, 0, 0, 0)), Some(1.0));
}

#[test]
fn a_step_of_which_no_tokens_were_told_has_no_known_cost() {
    let cost =
        |provider, model, free, usage| Prices::new(provider, Arc::new([]), free).cost(model, model, &usage);
    assert_eq!(cost("openai", "gpt-6.2-sol", false, usage(0, 0, 0, 0)), None);
    assert!(cost("openai", "gpt-6.2-sol", false, usage(0, 0, 0, 1)).is_some());
    assert_eq!(cost("ollama", "small", true, usage(0, 0, 0, 0)), Some(0.0));
}

#[test]
fn a_price_that_can_not_be_counted_with_is_refused() {
    let price =
        |input, cached_input, output| Price { input, cached_input, cache_write: None, output, long: None };
    for good in [price(0.0, None, 0.0), price(1.0, Some(1.0), 2.0)] {
        assert_eq!(good.check(), Ok(()));
    }
    for bad in [price(-1.0, None, 0.0), price(1.0, None, f64::NAN), price(f64::INFINITY, None, 1.0)] {
        assert!(bad.check().unwrap_err().contains("give dollars"), "{bad:?}");
    }
    assert!(price(1.0, Some(1.1), 2.0).check().unwrap_err().contains("cached_input"));
}

#[test]
fn a_table_of_a_config_file_is_read_and_a_wrong_word_in_it_is_told() {
    let price: Price = toml::from_str("input = 1.5\noutput = 6").unwrap();
    assert_eq!((price.input, price.cached_input, price.output), (1.5, None, 6.0));
    assert!(toml::from_str::<Price>("input = 1.5\noutputs = 6").unwrap_err().to_string().contains("outputs"));
}
