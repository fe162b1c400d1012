//! List prices of OpenAI's own service, in US dollars for a million tokens, standard tier, as published
//! in mid-2026. Requests beyond [`LONG_INPUT`] cost more. A model that is not here has no known price.

use tns_server_core::engine::StepUsage;

use crate::http::Endpoint;

struct Price {
    model: &'static str,
    input: f64,
    cached_input: f64,
    output: f64,
}

const fn price(model: &'static str, input: f64, cached_input: f64, output: f64) -> Price {
    Price { model, input, cached_input, output }
}

const PRICES: [Price; 6] = [
    price("gpt-5.5", 5.0, 0.5, 30.0),
    price("gpt-5.4", 2.5, 0.25, 15.0),
    price("gpt-5.4-mini", 0.75, 0.075, 4.5),
    price("gpt-5.4-nano", 0.2, 0.02, 1.25),
    price("gpt-5.2", 1.75, 0.175, 14.0),
    price("gpt-5.1", 1.25, 0.125, 10.0),
];

/// Input tokens from which input costs twice, and output one and a half times, as much.
const LONG_INPUT: u64 = 270_000;

/// Returns what a step cost, where that is known.
pub(super) fn cost(endpoint: &Endpoint, model: &str, usage: &StepUsage) -> Option<f64> {
    if endpoint.provider != "openai" {
        return None;
    }
    let price = PRICES.iter().find(|price| is_version_of(model, price.model))?;
    let (input_factor, output_factor) = if usage.input > LONG_INPUT { (2.0, 1.5) } else { (1.0, 1.0) };
    let cached = usage.cached_input.min(usage.input);
    let input =
        (tokens(usage.input - cached) * price.input + tokens(cached) * price.cached_input) * input_factor;
    Some((input + tokens(usage.output) * price.output * output_factor) / 1e6)
}

/// Whether `model` is `name`, or a dated version of it such as `gpt-5.4-2026-03-05`.
fn is_version_of(model: &str, name: &str) -> bool {
    model.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with("-20"))
}

#[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
fn tokens(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dollars(
        provider: &'static str,
        model: &str,
        input: u64,
        cached_input: u64,
        output: u64,
    ) -> Option<f64> {
        let endpoint = Endpoint::new(provider, "https://api.openai.com/v1", None).unwrap();
        let usage = StepUsage { input, cached_input, output, cost: None };
        cost(&endpoint, model, &usage).map(|dollars| (dollars * 1e6).round() / 1e6)
    }

    #[test]
    fn cached_input_costs_less_and_long_input_more() {
        assert_eq!(dollars("openai", "gpt-5.4", 1000, 0, 100), Some(0.004));
        assert_eq!(dollars("openai", "gpt-5.4-2026-03-05", 1000, 400, 100), Some(0.0031));
        assert_eq!(dollars("openai", "gpt-5.4-mini", 1000, 0, 100), Some(0.0012));
        assert_eq!(dollars("openai", "gpt-5.4", LONG_INPUT, 0, 0), Some(0.675));
        assert_eq!(dollars("openai", "gpt-5.4", LONG_INPUT + 1, 0, 1000), Some(1.372_505));
    }

    #[test]
    fn other_models_and_services_have_no_known_price() {
        assert_eq!(dollars("openai", "gpt-5.4-pro", 1, 0, 1), None);
        assert_eq!(dollars("openai-compatible", "gpt-5.4", 1, 0, 1), None);
    }
}
