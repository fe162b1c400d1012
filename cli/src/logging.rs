//! Logs, on standard error, only when somebody asked: `-v`, or `TNS_LOG` with directives of its own.

use tracing_subscriber::EnvFilter;

use crate::Context;

/// How much is logged when nobody asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unasked {
    /// Nothing, and nothing is set up.
    Nothing,
    /// Warnings: for a server, which runs unwatched.
    Warnings,
}

/// Sets the logs up.
///
/// # Errors
/// When `TNS_LOG` is not a list of directives.
pub(crate) fn start(context: &Context, unasked: Unasked) -> anyhow::Result<()> {
    let asked = std::env::var("TNS_LOG").ok().filter(|directives| !directives.is_empty());
    let directives = match (asked, context.globals.verbose, unasked) {
        (Some(directives), ..) => directives,
        (None, 0, Unasked::Nothing) => return Ok(()),
        (None, 0, Unasked::Warnings) => "warn".into(),
        (None, 1, _) => "warn,tns=info".into(),
        (None, 2, _) => "info,tns=debug".into(),
        (None, 3.., _) => "debug,tns=trace".into(),
    };
    let filter = EnvFilter::try_new(&directives).map_err(|_| {
        crate::exit::Stop::usage(format!("TNS_LOG={directives} must be directives such as info or tns=debug"))
    })?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(context.out.colors_on_stderr())
        .init();
    Ok(())
}
