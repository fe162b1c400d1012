//! What model calls used and cost, over HTTP.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Deserialize;
use tns_protocol::Day;
use tns_protocol::usage::{ModelUsage, SpendReport, UsageFigures, UsageReport};
use tns_server_core::spend::Ledger;
use tns_server_core::usage::{Money, UsageRow};

use super::Params;
use crate::gateway::Gateway;
use crate::gateway::error::ApiError;

/// Most days of one answer: a leap year.
const MAX_DAYS: i64 = 366;

/// Which days: one, or from one to another.
#[derive(Debug, Deserialize, JsonSchema)]
pub(in crate::gateway) struct UsageParams {
    /// One day: YYYY-MM-DD; today when nothing is named.
    #[schemars(with = "Option<Day>")]
    day: Option<String>,
    /// The first of several days.
    #[schemars(with = "Option<Day>")]
    from: Option<String>,
    /// The last of them.
    #[schemars(with = "Option<Day>")]
    to: Option<String>,
}

/// GET `/api/usage?day=` or `?from=&to=`; today where no day is named.
pub(in crate::gateway) async fn usage(
    State(gateway): State<Arc<Gateway>>,
    Params(params): Params<UsageParams>,
) -> Result<Json<UsageReport>, ApiError> {
    let ledger = &gateway.deps.ledger;
    let (from, to) = days(&params, ledger.today().0)?;
    let rows = gateway.deps.store.usage(from..=to).await?;
    let mut total = UsageFigures::default();
    let mut cost = Money::ZERO;
    let mut models: BTreeMap<(String, String), UsageRow> = BTreeMap::new();
    for row in rows {
        cost = cost.plus(row.cost);
        add(&mut total, &row);
        let key = (row.provider.clone(), row.model.clone());
        models.entry(key).and_modify(|sum| sum.add(&row)).or_insert(row);
    }
    // Summed up in whole units, told in dollars.
    total.cost = cost.dollars();
    let models = models.into_values().map(model).collect();
    Ok(Json(UsageReport { from, to, total, models, limits: limits(ledger) }))
}

fn days(params: &UsageParams, today: Day) -> Result<(Day, Day), ApiError> {
    let read = |name: &str, text: &Option<String>| match text {
        Some(text) => text.parse::<Day>().map(Some).map_err(|why| ApiError::invalid(format!("{name} {why}"))),
        None => Ok(None),
    };
    let (day, from, to) = (read("day", &params.day)?, read("from", &params.from)?, read("to", &params.to)?);
    let (from, to): (Day, Day) = match (day, from, to) {
        (Some(day), None, None) => (day, day),
        (Some(_), _, _) => return Err(ApiError::invalid("name a day, or from and to, not both")),
        (None, from, to) => (from.or(to).unwrap_or(today), to.unwrap_or(today)),
    };
    if from > to {
        return Err(ApiError::invalid("from must not be after to"));
    }
    if to.number() - from.number() >= MAX_DAYS {
        return Err(ApiError::invalid(format!("at most {MAX_DAYS} days at once")));
    }
    Ok((from, to))
}

fn add(total: &mut UsageFigures, row: &UsageRow) {
    total.steps += row.steps;
    total.input_tokens += row.input;
    total.cached_input_tokens += row.cached_input;
    total.output_tokens += row.output;
    total.unpriced_steps += row.unpriced_steps;
}

fn model(row: UsageRow) -> ModelUsage {
    let mut figures = UsageFigures { cost: row.cost.dollars(), ..UsageFigures::default() };
    add(&mut figures, &row);
    ModelUsage { provider: row.provider, model: row.model, figures }
}

fn limits(ledger: &Ledger) -> SpendReport {
    let limits = ledger.limits();
    let spent = ledger.today().1;
    SpendReport {
        daily: limits.daily,
        session: limits.session,
        spent_today: spent.dollars(),
        left_today: limits.daily.map(|daily| Money::from_dollars(daily).minus(spent).dollars()),
    }
}
