//! What model calls used: added with the step that used it, read by day or by session.

use std::ops::RangeInclusive;

use rusqlite::{Connection, params};
use tns_protocol::Day;
use tns_server_core::store::SessionKey;
use tns_server_core::usage::{Money, UsageRow};

use super::error::Fault;
use super::writer::{Work, Write};
use super::{signed, unsigned};

/// Adds what a session elsewhere used.
pub(super) struct AddUsage(pub(super) UsageRow);

impl Work for AddUsage {
    type Output = ();

    fn run(&self, write: &mut Write<'_>) -> Result<(), Fault> {
        add(write.connection, None, &self.0)
    }
}

/// Adds what a step used. Rows without a session are not joined: no two of them are known to be the same.
pub(super) fn add(connection: &Connection, session: Option<SessionKey>, row: &UsageRow) -> Result<(), Fault> {
    connection
        .prepare_cached(
            "INSERT INTO usage (day, session_pk, provider, model, steps, input, cached_input, output,
             cost_nanos, unpriced_steps) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
             ON CONFLICT (day, session_pk, provider, model) DO UPDATE SET steps = steps + ?5,
             input = input + ?6, cached_input = cached_input + ?7, output = output + ?8,
             cost_nanos = cost_nanos + ?9, unpriced_steps = unpriced_steps + ?10",
        )?
        .execute(params![
            row.day.number(),
            session.map(|session| session.0),
            row.provider,
            row.model,
            signed(row.steps),
            signed(row.input),
            signed(row.cached_input),
            signed(row.output),
            signed(row.cost.0),
            signed(row.unpriced_steps),
        ])?;
    Ok(())
}

/// Sums up days over all sessions, by day, provider and model.
pub(super) fn days(connection: &Connection, days: &RangeInclusive<Day>) -> Result<Vec<UsageRow>, Fault> {
    let mut statement = connection.prepare_cached(
        "SELECT day, provider, model, sum(steps), sum(input), sum(cached_input), sum(output),
         sum(cost_nanos), sum(unpriced_steps) FROM usage WHERE day BETWEEN ?1 AND ?2
         GROUP BY day, provider, model ORDER BY day, provider, model",
    )?;
    let rows = statement.query_map([days.start().number(), days.end().number()], |row| {
        let count = |column| row.get(column).map(unsigned);
        Ok(UsageRow {
            day: Day::from_number(row.get(0)?),
            provider: row.get(1)?,
            model: row.get(2)?,
            steps: count(3)?,
            input: count(4)?,
            cached_input: count(5)?,
            output: count(6)?,
            cost: Money(count(7)?),
            unpriced_steps: count(8)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Returns what a session has cost.
pub(super) fn of_session(connection: &Connection, session: SessionKey) -> Result<Money, Fault> {
    let sum: i64 = connection
        .prepare_cached("SELECT coalesce(sum(cost_nanos), 0) FROM usage WHERE session_pk = ?1")?
        .query_row([session.0], |row| row.get(0))?;
    Ok(Money(unsigned(sum)))
}
