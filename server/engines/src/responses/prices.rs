//! OpenAI's list prices, standard tier: <https://developers.openai.com/api/docs/pricing>, November 2026.
//! Cache writes are those that last half an hour; where no price for them is published, they cost what
//! input costs.

use crate::prices::{LongInput, Price};

const fn price(model: &'static str, input: f64, cached_input: f64, cache_write: f64, output: f64) -> Price {
    Price { model, input, cached_input, cache_write, output, long: None }
}

/// Models with a window of a million tokens cost more beyond this input.
const LONG: Option<LongInput> = Some(LongInput { above: 272_000, input_factor: 2.0, output_factor: 1.5 });

pub(super) const PRICES: [Price; 12] = [
    Price { long: LONG, ..price("gpt-6.2-sol", 2.0, 0.1, 2.5, 10.0) },
    Price { long: LONG, ..price("gpt-6.1-sol", 2.0, 0.1, 2.5, 10.0) },
    Price { long: LONG, ..price("gpt-6.1-terra", 1.0, 0.05, 1.25, 5.0) },
    Price { long: LONG, ..price("gpt-6-astra", 10.0, 1.0, 12.5, 50.0) },
    Price { long: LONG, ..price("gpt-6-sol", 2.0, 0.2, 2.5, 10.0) },
    Price { long: LONG, ..price("gpt-6-luna", 0.1, 0.01, 0.125, 0.5) },
    Price { long: LONG, ..price("gpt-5.5", 5.0, 0.5, 5.0, 30.0) },
    Price { long: LONG, ..price("gpt-5.4", 2.5, 0.25, 2.5, 15.0) },
    price("gpt-5.4-mini", 0.75, 0.075, 0.75, 4.5),
    price("gpt-5.4-nano", 0.2, 0.02, 0.2, 1.25),
    price("gpt-5.2", 1.75, 0.175, 1.75, 14.0),
    price("gpt-5.1", 1.25, 0.125, 1.25, 10.0),
];
