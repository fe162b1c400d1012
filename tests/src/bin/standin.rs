//! Stand-ins for model providers, to try `tns` against without a key or a network: prints the variables
//! that point it here, then runs until it is killed. Other keys stand for other accounts: bad, broke, outage,
//! slow.

use std::io::Write;

use tns_tests::standin::{GOOD_KEY, PROVIDERS, Standin, VOICE_PROVIDER};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let standin = Standin::start().await;
    let mut out = std::io::stdout();
    for provider in PROVIDERS.map(|(provider, _)| provider).into_iter().chain([VOICE_PROVIDER]) {
        for (name, value) in standin.variables(provider, GOOD_KEY) {
            writeln!(out, "{name}={value}")?;
        }
    }
    out.flush()?;
    std::future::pending().await
}
