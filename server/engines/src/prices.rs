//! What a step costs, in US dollars: the operator's own prices, then the list in `prices.toml`. It must not
//! know any provider's wire: a decoder counts tokens, and what they cost is settled here.
//!
//! A model in neither has no known price. That is told, never taken for nothing: only an engine that says of
//! itself that its models are free ([`Pricing::Free`]) costs nothing without a price.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde::Deserialize;
use tns_protocol::Day;
use tns_server_core::engine::{Pricing, StepUsage};

/// The list, as it is shipped.
const LIST: &str = include_str!("../prices.toml");

/// The price of a model, in US dollars for a million tokens. `serde` reads it from a table of a config file.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Tokens that are new.
    pub input: f64,
    /// Tokens that are read from the provider's cache; absent: as `input`.
    #[serde(default)]
    pub cached_input: Option<f64>,
    /// Tokens that are written to it; absent: as `input`.
    #[serde(default)]
    pub cache_write: Option<f64>,
    /// What the model writes, reasoning included.
    pub output: f64,
    /// What a long request costs, where that differs.
    #[serde(default)]
    pub long: Option<LongInput>,
}

/// Dearer tokens of requests with much input.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LongInput {
    /// Input tokens beyond which the whole request costs more.
    pub above: u64,
    /// How many times as much input costs, cached or not.
    pub input_factor: f64,
    /// How many times as much output costs.
    pub output_factor: f64,
}

/// A price that the operator sets for a model; it beats the list.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelPrice {
    /// The provider's id, such as `openai-compatible`.
    pub provider: String,
    /// The model's name; stands for its dated versions too.
    pub model: String,
    /// What it costs.
    pub price: Price,
}

impl Price {
    /// Checks that it can be counted with: each figure is a number from 0 on, and what comes from a cache
    /// costs no more than what is new.
    ///
    /// # Errors
    /// What is wrong, as a fragment that reads after the model's name.
    pub fn check(&self) -> Result<(), String> {
        let factors = self.long.map_or([1.0; 2], |long| [long.input_factor, long.output_factor]);
        let figures = [self.input, self.cached_input(), self.cache_write(), self.output];
        for figure in figures.into_iter().chain(factors) {
            if !figure.is_finite() || figure < 0.0 {
                return Err(format!("has {figure} for a price; give dollars for a million tokens"));
            }
        }
        if self.cached_input() > self.input {
            return Err("has cached_input dearer than input".to_owned());
        }
        Ok(())
    }

    /// Returns what these tokens cost.
    pub(crate) fn cost(&self, usage: &StepUsage) -> f64 {
        let long = self.long.filter(|long| usage.input > long.above);
        let (input_factor, output_factor) =
            long.map_or((1.0, 1.0), |long| (long.input_factor, long.output_factor));
        // A provider may count anything: no part is larger than the whole.
        let cached = usage.cached_input.min(usage.input);
        let written = usage.cache_written.min(usage.input - cached);
        let fresh = usage.input - cached - written;
        let input = count(fresh) * self.input
            + count(cached) * self.cached_input()
            + count(written) * self.cache_write();
        (input * input_factor + count(usage.output) * self.output * output_factor) / 1e6
    }

    fn cached_input(&self) -> f64 {
        self.cached_input.unwrap_or(self.input)
    }

    fn cache_write(&self) -> f64 {
        self.cache_write.unwrap_or(self.input)
    }
}

/// The shipped list, by provider.
type List = BTreeMap<String, Listed>;

/// One provider's list prices.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    #[cfg_attr(not(test), expect(dead_code, reason = "for whoever reads the file; a test checks it"))]
    source: String,
    #[cfg_attr(not(test), expect(dead_code, reason = "for whoever reads the file; a test checks it"))]
    read: Day,
    models: Vec<Row>,
}

/// A row of the list. The first that fits and still holds is the price.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    until: Option<Day>,
    input: f64,
    cached_input: f64,
    cache_write: Option<f64>,
    output: f64,
    long: Option<LongInput>,
}

impl Row {
    fn price(&self) -> Price {
        Price {
            input: self.input,
            cached_input: Some(self.cached_input),
            cache_write: self.cache_write,
            output: self.output,
            long: self.long,
        }
    }
}

/// Parsed when it is first asked for. A test parses it, so a program has it.
static PRICES: LazyLock<List> = LazyLock::new(|| {
    toml::from_str(LIST).unwrap_or_else(|error| {
        tracing::error!(%error, "the list of prices can't be read; every model counts as unpriced");
        List::new()
    })
});

/// What one engine's models cost.
#[derive(Debug, Clone)]
pub(crate) struct Prices {
    provider: &'static str,
    own: Arc<[ModelPrice]>,
    /// Its models cost nothing where the operator sets no price.
    free: bool,
}

impl Prices {
    pub(crate) fn new(provider: &'static str, own: Arc<[ModelPrice]>, free: bool) -> Self {
        Self { provider, own, free }
    }

    /// Says whether this model's steps can be counted in dollars.
    pub(crate) fn pricing(&self, model: &str) -> Pricing {
        match self.find(model, Day::today()) {
            Some(_) => Pricing::Known,
            None if self.free => Pricing::Free,
            None => Pricing::Unknown,
        }
    }

    /// Returns what tokens cost. A model that answers under a name without a price costs what the one that
    /// was asked for does: a limit that counted on that price must not lose sight of the step. Where nothing was
    /// told of tokens, the cost is not known: no step is without any.
    pub(crate) fn cost(&self, asked: &str, answered: &str, usage: &StepUsage) -> Option<f64> {
        let today = Day::today();
        let told = usage.input > 0 || usage.output > 0;
        match self.find(answered, today).or_else(|| self.find(asked, today)) {
            Some(price) => told.then(|| price.cost(usage)),
            None => self.free.then_some(0.0),
        }
    }

    fn find(&self, model: &str, today: Day) -> Option<Price> {
        let own =
            self.own.iter().find(|own| own.provider == self.provider && is_version_of(model, &own.model));
        own.map(|own| own.price).or_else(|| listed(self.provider, model, today))
    }
}

fn listed(provider: &str, model: &str, today: Day) -> Option<Price> {
    let holds = |row: &&Row| is_version_of(model, &row.name) && row.until.is_none_or(|until| today < until);
    PRICES.get(provider)?.models.iter().find(holds).map(Row::price)
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
mod tests;
