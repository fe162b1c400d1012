//! What model calls used, by day, provider and model: figures without a word of what was said.
//!
//! A store adds a step's usage in the transaction that stores the step, and keeps it when a session is erased.

use serde::{Deserialize, Serialize};
use tns_protocol::{Day, Timestamp};

use crate::engine::StepUsage;
use crate::event::{Compacted, DurableEvent, Renamed};

/// Most tokens of one kind that a step counts for, and most dollars: a provider may tell anything, and sums must
/// stay within a store's integers.
const MAX_STEP_TOKENS: u64 = 1 << 40;
const MAX_STEP_DOLLARS: f64 = 1e6;
const NANOS_PER_DOLLAR: f64 = 1e9;

/// An amount of money in whole billionths of a US dollar, so that sums are exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Money(pub u64);

impl Money {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// Rounds dollars. What is no amount (less than 0, no number) is nothing; the most is what 64 bits hold.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast of a float ends at the bounds of the integer, and no number is 0"
    )]
    pub fn from_dollars(dollars: f64) -> Self {
        Self((dollars * NANOS_PER_DOLLAR).round() as u64)
    }

    /// Returns it in dollars.
    #[expect(clippy::cast_precision_loss, reason = "dollars are for people; sums are made of the integers")]
    pub fn dollars(self) -> f64 {
        self.0 as f64 / NANOS_PER_DOLLAR
    }

    /// Adds; ends at the most that it holds.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Takes away; ends at nothing.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Returns what a step counts for: 0 where its price is not known.
    pub fn of_step(usage: &StepUsage) -> Self {
        Self::from_dollars(usage.cost.unwrap_or_default().min(MAX_STEP_DOLLARS))
    }
}

/// What the steps of one model used on one day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageRow {
    /// The day in UTC.
    pub day: Day,
    /// Whose model.
    pub provider: String,
    /// The model that answered.
    pub model: String,
    /// Steps.
    pub steps: u64,
    /// All input tokens, cached ones included.
    pub input: u64,
    /// Of these, read from the provider's cache.
    pub cached_input: u64,
    /// All output tokens.
    pub output: u64,
    /// What the priced steps cost.
    pub cost: Money,
    /// Steps whose cost is not known.
    pub unpriced_steps: u64,
}

impl UsageRow {
    /// Returns what an event adds, if it is a step that was counted. `at` is when it is stored.
    pub fn of(event: &DurableEvent, at: Timestamp) -> Option<Self> {
        let (provider, model, usage, counted_on) = match event {
            DurableEvent::AssistantMessage(step) => {
                (step.provider.as_deref(), &step.model, step.usage.as_ref()?, step.counted_on)
            }
            DurableEvent::Compacted(Compacted { step: Some(step), .. })
            | DurableEvent::Renamed(Renamed { step: Some(step), .. }) => {
                (Some(step.provider.as_str()), &step.model, &step.usage, step.counted_on)
            }
            _ => return None,
        };
        Some(Self {
            day: counted_on.unwrap_or(Day::of(at)),
            provider: provider.unwrap_or_default().to_owned(),
            model: model.clone(),
            steps: 1,
            input: usage.input.min(MAX_STEP_TOKENS),
            cached_input: usage.cached_input.min(MAX_STEP_TOKENS),
            output: usage.output.min(MAX_STEP_TOKENS),
            cost: Money::of_step(usage),
            unpriced_steps: u64::from(usage.cost.is_none()),
        })
    }

    /// Adds the figures of another row.
    pub fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.input += other.input;
        self.cached_input += other.cached_input;
        self.output += other.output;
        self.cost = self.cost.plus(other.cost);
        self.unpriced_steps += other.unpriced_steps;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_exact_in_sums_and_never_less_than_nothing() {
        let cent = Money::from_dollars(0.01);
        let sum = (0..100).fold(Money::ZERO, |sum, _| sum.plus(cent));
        assert_eq!(sum, Money::from_dollars(1.0));
        assert_eq!(sum.dollars(), 1.0);
        assert_eq!(cent.minus(sum), Money::ZERO);
        for nothing in [-1.0, f64::NAN, 0.0] {
            assert_eq!(Money::from_dollars(nothing), Money::ZERO, "{nothing}");
        }
        assert_eq!(Money::from_dollars(f64::INFINITY), Money(u64::MAX));
    }

    #[test]
    fn a_step_counts_for_no_more_than_its_most() {
        let usage = StepUsage { cost: Some(f64::INFINITY), ..StepUsage::default() };
        assert_eq!(Money::of_step(&usage), Money::from_dollars(MAX_STEP_DOLLARS));
        assert_eq!(Money::of_step(&StepUsage::default()), Money::ZERO);
    }
}
