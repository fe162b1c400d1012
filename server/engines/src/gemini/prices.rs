//! List prices of the Gemini API: text, standard tier, <https://ai.google.dev/gemini-api/docs/pricing>
//! as of October 2026. Newer models begin with lower prices that end on a day that is known.

use jiff::civil::{Date, date};
use tns_server_core::engine::StepUsage;

use crate::prices::{LongInput, Price, Tokens, cost as cost_of};

/// Pro models up to 3.1 charge requests of more than 200,000 input tokens more.
const LONG: Option<LongInput> = Some(LongInput { above: 200_000, input_factor: 2.0, output_factor: 1.5 });

const fn price(model: &'static str, input: f64, cached_input: f64, output: f64) -> Price {
    // Caches are written by themselves, at no price of their own.
    Price { model, input, cached_input, cache_write: input, output, long: None }
}

const fn price_by_length(model: &'static str, input: f64, cached_input: f64, output: f64) -> Price {
    Price { long: LONG, ..price(model, input, cached_input, output) }
}

const PRICES: [Price; 11] = [
    price("gemini-4-argon", 4.0, 0.2, 20.0),
    price("gemini-3.8-flash", 1.5, 0.15, 7.5),
    price("gemini-3.7-flash", 1.5, 0.15, 7.5),
    price("gemini-3.6-flash", 1.5, 0.15, 7.5),
    price("gemini-3.5-flash", 1.5, 0.15, 9.0),
    price("gemini-3.5-flash-lite", 0.3, 0.03, 2.5),
    price("gemini-3.1-flash-lite", 0.25, 0.025, 1.5),
    price_by_length("gemini-3.1-pro-preview", 2.0, 0.2, 12.0),
    price_by_length("gemini-2.5-pro", 1.25, 0.125, 10.0),
    price("gemini-2.5-flash", 0.3, 0.03, 2.5),
    price("gemini-2.5-flash-lite", 0.1, 0.01, 0.4),
];

/// Prices until a day, which is the first on which they no longer hold.
const INTRODUCTORY: [(Date, &[Price]); 2] = [
    (date(2026, 12, 1), &[price("gemini-4-argon", 2.0, 0.1, 10.0)]),
    (
        date(2027, 1, 1),
        &[
            price("gemini-3.8-flash", 0.75, 0.075, 3.75),
            price("gemini-3.7-flash", 0.75, 0.075, 3.75),
            price("gemini-3.6-flash", 0.75, 0.075, 3.75),
        ],
    ),
];

/// Returns what a step of `today` cost, where the model's price is known.
pub(super) fn cost(model: &str, usage: &StepUsage, today: Date) -> Option<f64> {
    let tokens = Tokens {
        input: usage.input,
        cached_input: usage.cached_input,
        cache_written: 0,
        output: usage.output,
    };
    let mut introductory = INTRODUCTORY.iter().filter(|(until, _)| today < *until);
    introductory
        .find_map(|(_, prices)| cost_of(prices, model, tokens))
        .or_else(|| cost_of(&PRICES, model, tokens))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dollars(model: &str, day: Date, input: u64, cached_input: u64, output: u64) -> Option<f64> {
        let usage = StepUsage { input, cached_input, output, cost: None };
        cost(model, &usage, day).map(|dollars| (dollars * 1e6).round() / 1e6)
    }

    #[test]
    fn introductory_prices_end_on_their_day() {
        let flash = |day| dollars("gemini-3.8-flash", day, 1_000_000, 500_000, 100_000);
        assert_eq!(flash(date(2026, 12, 31)), Some(0.7875));
        assert_eq!(flash(date(2027, 1, 1)), Some(1.575));
        let argon = |day| dollars("gemini-4-argon", day, 1_000_000, 0, 1_000_000);
        assert_eq!(argon(date(2026, 11, 30)), Some(12.0));
        assert_eq!(argon(date(2026, 12, 1)), Some(24.0));
    }

    #[test]
    fn long_input_costs_more_where_the_model_says_so() {
        let day = date(2027, 6, 1);
        assert_eq!(dollars("gemini-2.5-pro", day, 200_000, 0, 1000), Some(0.26));
        assert_eq!(dollars("gemini-2.5-pro", day, 200_001, 0, 1000), Some(0.515_003));
        assert_eq!(dollars("gemini-3.5-flash", day, 400_000, 0, 0), Some(0.6));
        assert_eq!(dollars("gemini-3.5-flash-lite", day, 1_000_000, 0, 0), Some(0.3));
        assert_eq!(dollars("gemma-4-31b-it", day, 1, 0, 1), None);
    }
}
