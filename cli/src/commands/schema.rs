//! `tns schema`: the protocol, for programs that speak it.

use anyhow::Context as _;

use crate::Context;

/// Print the JSON Schema of every event of the protocol
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print the OpenAPI page of the calls over HTTP instead
    #[arg(long)]
    openapi: bool,
}

pub(crate) fn run(args: Args, context: &Context) -> anyhow::Result<()> {
    let schema = if args.openapi { tns_server::openapi() } else { tns_protocol::schema() };
    let mut text = serde_json::to_string_pretty(&schema).context("write the schema")?;
    text.push('\n');
    context.out.json_text(&text)
}
