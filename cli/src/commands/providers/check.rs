//! `tns providers check`: asks for each provider whether its key works, and says in one line what is wrong.

use anyhow::Context as _;
use serde::Serialize;
use tns_client::{ClientError, Rest};
use tns_protocol::ErrorCode;
use tns_protocol::provider::{Credit, KeyCheck, ModelKind, ValidateKey};

use super::{kinds, told};
use crate::Context;
use crate::exit::{Exit, Stop};

/// What `check --json` prints.
#[derive(Serialize, Default)]
struct Report {
    checks: Vec<Checked>,
}

/// One provider of a [`Report`].
#[derive(Serialize)]
struct Checked {
    provider: String,
    ok: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kinds: Vec<ModelKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    credit: Option<Credit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<ErrorCode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

/// Checks these providers, or all that are set up; `key` is one to check in place of the one set up.
pub(super) async fn check(
    context: &Context,
    rest: &Rest,
    ids: Vec<String>,
    key: Option<String>,
) -> anyhow::Result<()> {
    let ids = if ids.is_empty() { set_up(rest).await? } else { ids };
    let mut report = Report::default();
    let mut cut = None;
    for id in ids {
        let checked = match rest.validate_key(&id, ValidateKey { key: key.clone() }).await {
            Ok(check) => works(check),
            Err(ClientError::Refused { code, message, .. }) if Exit::of_code(code) == Exit::Provider => {
                fails(id, code, message)
            }
            Err(error) => {
                cut = Some(told(error));
                break;
            }
        };
        checked.tell(context)?;
        report.checks.push(checked);
    }
    // What was checked before is told all the same.
    if context.out.json && (cut.is_none() || !report.checks.is_empty()) {
        context.out.json(&report)?;
    }
    if let Some(error) = cut {
        return Err(error);
    }
    match report.checks.iter().all(|checked| checked.ok) {
        true => Ok(()),
        // Each was told why.
        false => Err(Stop::silent(Exit::Provider).into()),
    }
}

async fn set_up(rest: &Rest) -> anyhow::Result<Vec<String>> {
    let providers = rest.providers().await.context("list the providers")?.providers;
    let set_up = providers.into_iter().filter(|provider| provider.configured_by.is_some());
    let ids: Vec<String> = set_up.map(|provider| provider.id).collect();
    if ids.is_empty() {
        let message = "no provider is set up, so there is no key to check; `tns providers show ID` says where to get one";
        return Err(Stop::usage(message).into());
    }
    Ok(ids)
}

fn works(check: KeyCheck) -> Checked {
    let KeyCheck { provider, kinds, credit } = check;
    Checked { provider, ok: true, kinds, credit: Some(credit), code: None, message: None }
}

fn fails(provider: String, code: ErrorCode, message: String) -> Checked {
    let (code, message) = (Some(code), Some(message));
    Checked { provider, ok: false, kinds: Vec::new(), credit: None, code, message }
}

impl Checked {
    /// A key that works is an answer, one that doesn't is told as what went wrong.
    fn tell(&self, context: &Context) -> anyhow::Result<()> {
        match &self.message {
            Some(message) => {
                context.out.error(&format!("{}: {}: {message}", self.provider, self.trouble()));
                Ok(())
            }
            None if context.out.json => Ok(()),
            None => context.out.data(&self.line()),
        }
    }

    fn line(&self) -> String {
        let credit = match self.credit {
            Some(Credit::Ok) => "has credit",
            Some(Credit::Free) => "nothing to pay",
            Some(Credit::Unknown) | None => "credit not known",
        };
        format!("{}: ok: {}; {credit}\n", self.provider, kinds(&self.kinds))
    }

    fn trouble(&self) -> &'static str {
        match self.code {
            Some(ErrorCode::BadKey) => "bad key",
            Some(ErrorCode::NoCredit) => "no credit",
            Some(ErrorCode::RateLimited) => "rate limit",
            Some(ErrorCode::ProviderUnavailable) => "outage",
            Some(_) | None => "error",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trouble_has_a_word_of_its_own() {
        for (code, word) in [
            (ErrorCode::BadKey, "bad key"),
            (ErrorCode::NoCredit, "no credit"),
            (ErrorCode::RateLimited, "rate limit"),
            (ErrorCode::ProviderUnavailable, "outage"),
            (ErrorCode::ProviderError, "error"),
        ] {
            assert_eq!(fails("p".into(), code, "m".into()).trouble(), word);
        }
    }

    #[test]
    fn a_key_that_works_is_one_line() {
        let check = |credit| {
            let kinds = vec![ModelKind::Stt, ModelKind::Tts];
            works(KeyCheck { provider: "elevenlabs".into(), kinds, credit }).line()
        };
        assert_eq!(check(Credit::Ok), "elevenlabs: ok: stt,tts; has credit\n");
        assert_eq!(check(Credit::Free), "elevenlabs: ok: stt,tts; nothing to pay\n");
        assert_eq!(check(Credit::Unknown), "elevenlabs: ok: stt,tts; credit not known\n");
    }
}
