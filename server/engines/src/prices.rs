//! What a step costs at list prices, in US dollars. Tables stand beside each provider's wire; a model
//! that is in none has no known price.

/// The list price of a model, in US dollars for a million tokens, standard tier.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Price {
    pub(crate) model: &'static str,
    pub(crate) input: f64,
    /// Input that is read from the provider's cache.
    pub(crate) cached_input: f64,
    /// Input that is written to it.
    pub(crate) cache_write: f64,
    pub(crate) output: f64,
    /// What a long request costs, where that differs.
    pub(crate) long: Option<LongInput>,
}

/// Dearer tokens of requests with much input.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LongInput {
    /// Input tokens beyond which the whole request costs more.
    pub(crate) above: u64,
    pub(crate) input_factor: f64,
    pub(crate) output_factor: f64,
}

/// The tokens of a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tokens {
    /// All input, the next two included.
    pub(crate) input: u64,
    pub(crate) cached_input: u64,
    pub(crate) cache_written: u64,
    /// All output, reasoning included.
    pub(crate) output: u64,
}

/// Returns what a step cost, where the model's price is known.
pub(crate) fn cost(prices: &[Price], model: &str, tokens: Tokens) -> Option<f64> {
    let price = prices.iter().find(|price| is_version_of(model, price.model))?;
    let long = price.long.filter(|long| tokens.input > long.above);
    let (input_factor, output_factor) =
        long.map_or((1.0, 1.0), |long| (long.input_factor, long.output_factor));
    let cached = tokens.cached_input.min(tokens.input);
    let written = tokens.cache_written.min(tokens.input - cached);
    let fresh = tokens.input - cached - written;
    let input =
        count(fresh) * price.input + count(cached) * price.cached_input + count(written) * price.cache_write;
    Some((input * input_factor + count(tokens.output) * price.output * output_factor) / 1e6)
}

/// Whether `model` is `name`, or a dated version of it such as `name-2026-03-05` or `name-20260305`.
fn is_version_of(model: &str, name: &str) -> bool {
    model.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with("-20"))
}

#[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
fn count(tokens: u64) -> f64 {
    tokens as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: LongInput = LongInput { above: 1000, input_factor: 2.0, output_factor: 1.5 };
    const PRICES: [Price; 1] = [Price {
        model: "m-1",
        input: 2.0,
        cached_input: 0.2,
        cache_write: 2.5,
        output: 10.0,
        long: Some(LONG),
    }];

    fn dollars(model: &str, input: u64, cached_input: u64, cache_written: u64, output: u64) -> Option<f64> {
        let tokens = Tokens { input, cached_input, cache_written, output };
        cost(&PRICES, model, tokens).map(|dollars| (dollars * 1e9).round() / 1e9)
    }

    #[test]
    fn each_kind_of_token_has_its_price() {
        assert_eq!(dollars("m-1", 1000, 0, 0, 0), Some(0.002));
        assert_eq!(dollars("m-1", 1000, 1000, 0, 0), Some(0.0002));
        assert_eq!(dollars("m-1", 1000, 0, 1000, 0), Some(0.0025));
        assert_eq!(dollars("m-1", 1000, 500, 100, 10), Some(0.001_25));
    }

    #[test]
    fn long_input_makes_the_whole_request_dearer() {
        assert_eq!(dollars("m-1", 1000, 0, 0, 1000), Some(0.012));
        assert_eq!(dollars("m-1", 1001, 0, 0, 1000), Some(0.019_004));
    }

    #[test]
    fn dated_versions_cost_the_same_and_other_models_are_unknown() {
        assert_eq!(dollars("m-1-2026-03-05", 1000, 0, 0, 0), Some(0.002));
        assert_eq!(dollars("m-1-20260305", 1000, 0, 0, 0), Some(0.002));
        assert_eq!(dollars("m-1-mini", 1, 0, 0, 0), None);
        assert_eq!(dollars("m", 1, 0, 0, 0), None);
    }

    #[test]
    fn more_cached_than_there_was_is_no_negative_price() {
        assert_eq!(dollars("m-1", 10, 1000, 1000, 0), Some(0.000_002));
    }
}
