//! Anthropic's list prices: <https://platform.claude.com/docs/en/about-claude/pricing>, November 2026.
//! Cache writes are those that last five minutes, which are the ones that requests ask for.

use crate::prices::{LongInput, Price};

const fn price(model: &'static str, input: f64, cached_input: f64, cache_write: f64, output: f64) -> Price {
    Price { model, input, cached_input, cache_write, output, long: None }
}

/// Prompts beyond this cost five times as much with Haiku 5.5.
const LONG_HAIKU: LongInput = LongInput { above: 100_000, input_factor: 5.0, output_factor: 5.0 };

pub(super) const PRICES: [Price; 13] = [
    price("claude-fable-5-1", 10.0, 0.25, 12.5, 50.0),
    price("claude-opus-5-5", 4.0, 0.2, 5.0, 20.0),
    price("claude-sonnet-5-5", 2.0, 0.1, 2.5, 10.0),
    Price { long: Some(LONG_HAIKU), ..price("claude-haiku-5-5", 0.1, 0.01, 0.125, 0.5) },
    price("claude-opus-5", 5.0, 0.5, 6.25, 25.0),
    price("claude-sonnet-5", 2.0, 0.2, 2.5, 10.0),
    price("claude-opus-4-8", 5.0, 0.5, 6.25, 25.0),
    price("claude-opus-4-7", 5.0, 0.5, 6.25, 25.0),
    price("claude-opus-4-6", 5.0, 0.5, 6.25, 25.0),
    price("claude-opus-4-5", 5.0, 0.5, 6.25, 25.0),
    price("claude-sonnet-4-6", 3.0, 0.3, 3.75, 15.0),
    price("claude-sonnet-4-5", 3.0, 0.3, 3.75, 15.0),
    price("claude-haiku-4-5", 1.0, 0.1, 1.25, 5.0),
];
