//! What model calls used and cost, as the REST face tells it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::day::Day;

/// GET `/api/usage`: what was used on the days asked for, of all sessions, erased ones included.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageReport {
    /// The first day, in UTC.
    pub from: Day,
    /// The last day.
    pub to: Day,
    /// All of it.
    pub total: UsageFigures,
    /// By provider and model, in the order of these.
    pub models: Vec<ModelUsage>,
    /// What may be spent.
    pub limits: SpendReport,
}

/// The sum of some steps.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageFigures {
    /// Model calls.
    pub steps: u64,
    /// All input tokens, cached ones included.
    pub input_tokens: u64,
    /// Of these, read from the provider's cache.
    pub cached_input_tokens: u64,
    /// All output tokens, reasoning included.
    pub output_tokens: u64,
    /// US dollars; what the steps with a known price cost.
    pub cost: f64,
    /// Steps whose cost is not known.
    pub unpriced_steps: u64,
}

/// What one model used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelUsage {
    /// Whose model.
    pub provider: String,
    /// The model.
    pub model: String,
    /// What it used.
    #[serde(flatten)]
    pub figures: UsageFigures,
}

/// What may be spent, in US dollars; absent: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpendReport {
    /// Of the whole server, a day in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daily: Option<f64>,
    /// Of each session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<f64>,
    /// What was spent today.
    pub spent_today: f64,
    /// What is left of `daily` today; 0 when more was spent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_today: Option<f64>,
}
