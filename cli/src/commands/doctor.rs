//! `tns doctor`: looks at everything that the program needs and says what to do where something is wrong. It
//! changes nothing, and whatever is broken is a finding, never an end.

mod folder;
mod machine;
mod setup;

use std::fmt::Write as _;

use serde::Serialize;
use tns_server::DEFAULT_PORT;

use crate::exit::{Exit, Stop};
use crate::{Context, logging, server};

/// Check the set-up and tell what to mend
///
/// One line for each thing that was looked at: ok, warn or fail, and what mends it. Exits with 1 if one of
/// them fails.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The port that a server would take
    #[arg(long, default_value_t = DEFAULT_PORT)]
    port: u16,
    /// Ask each provider that is set up whether its key works
    ///
    /// Where a provider is paid by the token, this pays for the smallest step there is.
    #[arg(long)]
    online: bool,
}

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Ok,
    /// It works, and not as well as it could.
    Warn,
    Fail,
}

/// What was found about one thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Check {
    name: String,
    status: Status,
    /// How it is, in a line.
    detail: String,
    /// What mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

impl Check {
    fn ok(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { name: name.into(), status: Status::Ok, detail: detail.into(), fix: None }
    }

    fn warn(name: impl Into<String>, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { status: Status::Warn, fix: Some(fix.into()), ..Self::ok(name, detail) }
    }

    fn fail(name: impl Into<String>, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { status: Status::Fail, fix: Some(fix.into()), ..Self::ok(name, detail) }
    }
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    ok: bool,
    version: &'static str,
    checks: &'a [Check],
}

pub(crate) fn run(args: Args, context: &Context) -> anyhow::Result<()> {
    logging::start(context, logging::Unasked::Nothing)?;
    let mut checks = Vec::new();
    server::block_on(async {
        setup::check(context, args.online, &mut checks).await;
        folder::check(context, args.port, &mut checks).await;
        Ok(())
    })?;
    machine::check(&mut checks);
    let ok = checks.iter().all(|check| check.status != Status::Fail);
    if context.out.json {
        let version = env!("CARGO_PKG_VERSION");
        context.out.json(&Report { ok, version, checks: &checks })?;
    } else {
        context.out.data(&lines(&checks))?;
    }
    // What is wrong was told already.
    if ok { Ok(()) } else { Err(Stop::silent(Exit::Failed).into()) }
}

fn lines(checks: &[Check]) -> String {
    let width = checks.iter().map(|check| check.name.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for Check { name, status, detail, fix } in checks {
        let status = match status {
            Status::Ok => "ok  ",
            Status::Warn => "warn",
            Status::Fail => "FAIL",
        };
        let fix = fix.as_ref().map_or_else(String::new, |fix| format!("; {fix}"));
        // Writing into a String can't fail.
        let _ = writeln!(text, "{status}  {name:width$}  {detail}{fix}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_check_with_what_mends_it() {
        let checks = [
            Check::ok("a", "is well"),
            Check::warn("long", "is slow", "wait"),
            Check::fail("b", "is gone", "make it"),
        ];
        assert_eq!(
            lines(&checks),
            "ok    a     is well\nwarn  long  is slow; wait\nFAIL  b     is gone; make it\n"
        );
        let json = serde_json::to_value(&checks[0]).unwrap();
        assert_eq!(json, serde_json::json!({ "name": "a", "status": "ok", "detail": "is well" }));
    }
}
