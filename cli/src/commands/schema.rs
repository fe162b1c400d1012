//! `tns schema`: the protocol, for programs that speak it.

use anyhow::Context as _;

use crate::Context;

/// Print the JSON Schema of every event of the protocol
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(Args {}: Args, context: &Context) -> anyhow::Result<()> {
    let mut text = serde_json::to_string_pretty(&tns_protocol::schema()).context("write the schema")?;
    text.push('\n');
    context.out.json_text(&text)
}
