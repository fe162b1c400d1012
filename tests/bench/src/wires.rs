//! The server between a provider and a client, on every wire: what it adds to the first token and to each
//! one after it, beside a bare HTTP client that sends the same request to the same stand-in, in turn.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use tns_tests::standin::{GOOD_KEY, PROVIDERS, Plan, Recorded, Standin};

use crate::report::{Report, median};
use crate::server::Running;
use crate::socket::Socket;

/// Tokens of a reply.
const TOKENS: usize = 2_000;
/// A token; no event has it but those of text.
const TOKEN: &str = "tok ";

/// When the parts of a reply came, in seconds: the first token after the request, and each of the others.
struct Times {
    first: f64,
    each: f64,
}

/// Measures each wire.
pub(crate) async fn measure(tns: &Path, rounds: usize, report: &mut Report) -> Result<()> {
    let client = reqwest::Client::builder().tls_certs_only([]).no_proxy().tcp_nodelay(true).build()?;
    let plan = Plan::text(&[TOKEN; TOKENS]);
    for (provider, model) in PROVIDERS {
        let standin = Standin::start().await;
        let mut variables = standin.variables(provider, GOOD_KEY).to_vec();
        variables.push(("TNS_PROVIDER".to_owned(), provider.to_owned()));
        variables.push(("TNS_MODEL".to_owned(), model.to_owned()));
        let server = Running::start_with(tns, &["serve", "--port", "0"], &variables)?;
        let mut socket = Socket::connect(server.port).await?;
        let (mut ours, mut bare) = (Vec::new(), Vec::new());
        for round in 0..=rounds * 3 {
            standin.plan([plan.clone()]);
            let reply = socket.chat(&format!("wire-{round}"), "hi").await?;
            ensure!(reply.tokens == TOKENS, "{} of {TOKENS} tokens came", reply.tokens);
            let asked = standin.requests().pop().context("the stand-in was asked")?;
            standin.plan([plan.clone()]);
            let theirs = ask(&client, &standin, &asked).await?;
            if round > 0 {
                let first = (reply.first - reply.sent).as_secs_f64();
                let each = (reply.last - reply.first).as_secs_f64() / TOKENS as f64;
                ours.push(Times { first, each });
                bare.push(theirs);
            }
        }
        ensure!(standin.complaints().is_empty(), "{:?}", standin.complaints());
        let figure =
            |times: &[Times], of: fn(&Times) -> f64| median(&times.iter().map(of).collect::<Vec<_>>());
        let (first, floor) = (figure(&ours, |times| times.first), figure(&bare, |times| times.first));
        report.ratio(
            &format!("{provider}: first token, ms (as ms over a bare client)"),
            format!("{:.2}", first * 1e3),
            format!("bare {:.2}", floor * 1e3),
            (first - floor) * 1e3,
            None,
        );
        let (each, floor) = (figure(&ours, |times| times.each), figure(&bare, |times| times.each));
        report.ratio(
            &format!("{provider}: each further token, µs"),
            format!("{:.2}", each * 1e6),
            format!("bare {:.2}", floor * 1e6),
            each / floor,
            None,
        );
    }
    Ok(())
}

/// Sends a request again as it was sent, and reads its answer to the end.
async fn ask(client: &reqwest::Client, standin: &Standin, asked: &Recorded) -> Result<Times> {
    let key = asked.key.as_deref().unwrap_or_default();
    let body = asked.body.to_string();
    let sent = Instant::now();
    let request = client
        .post(format!("http://{}{}", standin.address(), asked.path))
        .header("content-type", "application/json")
        .header("anthropic-version", "2023-06-01")
        .header("authorization", format!("Bearer {key}"))
        .header("x-api-key", key)
        .header("x-goog-api-key", key);
    let mut answer = request.body(body).send().await?.error_for_status()?;
    let (mut first, mut last, mut tokens) = (None, sent, 0);
    // Enough of the last piece to see a token that two pieces share.
    let mut held: Vec<u8> = Vec::new();
    while let Some(bytes) = answer.chunk().await? {
        held.extend_from_slice(&bytes);
        let found = memchr::memmem::find_iter(&held, TOKEN).count();
        if found > 0 {
            last = Instant::now();
            first.get_or_insert(last);
            tokens += found;
        }
        let end = memchr::memmem::rfind(&held, TOKEN.as_bytes()).map_or(0, |at| at + TOKEN.len());
        held.drain(..end.max(held.len().saturating_sub(TOKEN.len() - 1)));
    }
    ensure!(tokens >= TOKENS, "{tokens} of {TOKENS} tokens came");
    let first = first.context("a first token")?;
    Ok(Times { first: (first - sent).as_secs_f64(), each: (last - first).as_secs_f64() / TOKENS as f64 })
}
