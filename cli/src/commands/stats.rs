//! `tns stats`: what model calls used and cost, and what may still be spent.

use std::fmt::Write as _;

use anyhow::Context as _;
use tns_protocol::Day;
use tns_protocol::usage::{UsageFigures, UsageReport};

use crate::exit::Stop;
use crate::{Context, logging, server};

/// Show what model calls used and cost
///
/// Of all sessions, by provider and model, on one day (UTC): today, unless other days are named. Steps whose
/// cost is not known, for want of a price or because nobody told their tokens, are counted as unpriced.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Show this day, as YYYY-MM-DD
    #[arg(long, value_name = "DAY", conflicts_with_all = ["from", "to"])]
    day: Option<Day>,
    /// Show the days from this one on
    #[arg(long, value_name = "DAY")]
    from: Option<Day>,
    /// Show the days up to this one
    #[arg(long, value_name = "DAY")]
    to: Option<Day>,
}

pub(crate) fn run(args: Args, context: &Context) -> anyhow::Result<()> {
    if let (Some(from), Some(to)) = (args.from, args.to)
        && from > to
    {
        return Err(Stop::usage(format!("--from {from} is after --to {to}")).into());
    }
    logging::start(context, logging::Unasked::Nothing)?;
    server::with_interruptible(context, async |attached| {
        let (from, to) = (args.day.or(args.from), args.day.or(args.to));
        let report = attached.rest()?.usage(from, to).await.context("read what was used")?;
        if context.out.json {
            return context.out.json(&report);
        }
        context.out.data(&table(&report))
    })
}

fn table(report: &UsageReport) -> String {
    let mut text = String::new();
    // Writing into a String can't fail.
    let mut line = |name: &str, figures: &UsageFigures| {
        let UsageFigures { steps, input_tokens, cached_input_tokens, output_tokens, cost, unpriced_steps } =
            figures;
        let unpriced =
            if *unpriced_steps > 0 { format!("\t{unpriced_steps} unpriced") } else { String::new() };
        let _ = writeln!(
            text,
            "{name}\t{steps} steps\t{input_tokens} in ({cached_input_tokens} cached)\t{output_tokens} out\t\
             ${cost:.4}{unpriced}"
        );
    };
    for model in &report.models {
        line(&format!("{} {}", model.provider, model.model), &model.figures);
    }
    let days = if report.from == report.to {
        report.from.to_string()
    } else {
        format!("{} to {}", report.from, report.to)
    };
    line(&format!("total {days}"), &report.total);
    let limits = &report.limits;
    if let (Some(daily), Some(left)) = (limits.daily, limits.left_today) {
        let _ = writeln!(
            text,
            "limit of a day {}\t${:.4} spent today\t${left:.4} left",
            dollars(daily),
            limits.spent_today
        );
    }
    if let Some(session) = limits.session {
        let _ = writeln!(text, "limit of a session {}", dollars(session));
    }
    text
}

/// Writes an amount in cents, and smaller where cents would hide it.
fn dollars(amount: f64) -> String {
    let cents = amount * 100.0;
    if (cents - cents.round()).abs() < 1e-6 { format!("${amount:.2}") } else { format!("${amount}") }
}

#[cfg(test)]
mod tests {
    use tns_protocol::usage::{ModelUsage, SpendReport};

    use super::*;

    #[test]
    fn each_model_is_one_line_and_limits_stand_below() {
        let figures = UsageFigures {
            steps: 2,
            input_tokens: 30,
            cached_input_tokens: 10,
            output_tokens: 12,
            cost: 0.123_45,
            unpriced_steps: 0,
        };
        let day = Day::from_number(20_787);
        let mut report = UsageReport {
            from: day,
            to: day,
            total: UsageFigures { unpriced_steps: 1, ..figures },
            models: vec![ModelUsage { provider: "openai".into(), model: "m".into(), figures }],
            limits: SpendReport {
                daily: Some(5.0),
                session: Some(1.0),
                spent_today: 0.5,
                left_today: Some(4.5),
            },
        };
        assert_eq!(
            table(&report),
            "openai m\t2 steps\t30 in (10 cached)\t12 out\t$0.1235\n\
             total 2026-11-30\t2 steps\t30 in (10 cached)\t12 out\t$0.1235\t1 unpriced\n\
             limit of a day $5.00\t$0.5000 spent today\t$4.5000 left\nlimit of a session $1.00\n"
        );
        report.limits = SpendReport { daily: None, session: None, spent_today: 0.0, left_today: None };
        report.models.clear();
        report.from = Day::from_number(20_786);
        let total =
            "total 2026-11-29 to 2026-11-30\t2 steps\t30 in (10 cached)\t12 out\t$0.1235\t1 unpriced\n";
        assert_eq!(table(&report), total);
    }
}
