//! Secrets that are known by their form alone: private keys, tokens with a prefix, passwords in addresses,
//! credentials of a header.

use std::ops::Range;

use super::named::{is_placeholder, looks_random};
use super::{begins_word, is_token, run};

/// A token's prefix, and how many characters at least follow it.
struct Prefix {
    text: &'static str,
    least: usize,
    /// Which characters follow.
    takes: fn(u8) -> bool,
    /// The prefix is also the beginning of plain words, so that what follows must look random.
    plain: bool,
    /// Not one character more follows.
    exact: bool,
}

const fn prefix(text: &'static str, least: usize) -> Prefix {
    Prefix { text, least, takes: is_token, plain: false, exact: false }
}

fn is_upper_or_digit(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}

fn is_dotted(byte: u8) -> bool {
    is_token(byte) || byte == b'.'
}

/// The longer of two that begin alike stands first.
const PREFIXES: &[Prefix] = &[
    // Providers of models and voices.
    prefix("sk-ant-", 16),
    prefix("sk-proj-", 16),
    prefix("sk-svcacct-", 16),
    prefix("sk-admin-", 16),
    prefix("sk-or-v1-", 16),
    Prefix { text: "sk-", least: 20, takes: is_token, plain: true, exact: false },
    prefix("AIza", 30),
    prefix("gsk_", 20),
    prefix("xai-", 20),
    prefix("pplx-", 20),
    prefix("hf_", 20),
    prefix("r8_", 20),
    prefix("nvapi-", 20),
    prefix("tgp_v1_", 20),
    prefix("csk-", 20),
    prefix("fw_", 20),
    // Where code, packages and machines live.
    prefix("github_pat_", 20),
    prefix("ghp_", 30),
    prefix("gho_", 30),
    prefix("ghu_", 30),
    prefix("ghs_", 30),
    prefix("ghr_", 30),
    prefix("glpat-", 16),
    prefix("npm_", 30),
    prefix("pypi-", 30),
    prefix("dckr_pat_", 16),
    Prefix { text: "AKIA", least: 16, takes: is_upper_or_digit, plain: false, exact: true },
    Prefix { text: "ASIA", least: 16, takes: is_upper_or_digit, plain: false, exact: true },
    prefix("dop_v1_", 30),
    Prefix { text: "hvs.", least: 20, takes: is_token, plain: false, exact: false },
    prefix("AGE-SECRET-KEY-1", 40),
    Prefix { text: "ya29.", least: 20, takes: is_dotted, plain: false, exact: false },
    prefix("GOCSPX-", 20),
    // Services.
    prefix("xoxb-", 16),
    prefix("xoxp-", 16),
    prefix("xoxa-", 16),
    prefix("xoxr-", 16),
    prefix("xoxs-", 16),
    prefix("xapp-", 16),
    prefix("sk_live_", 16),
    prefix("sk_test_", 16),
    prefix("rk_live_", 16),
    prefix("whsec_", 16),
    Prefix { text: "sk_", least: 32, takes: is_token, plain: true, exact: false },
    Prefix { text: "SG.", least: 40, takes: is_dotted, plain: false, exact: false },
    prefix("shpat_", 30),
    prefix("lin_api_", 20),
    prefix("ntn_", 30),
    prefix("sntrys_", 30),
];

/// Finds tokens that have a known prefix, and those of three parts (JWT).
pub(super) fn tokens(text: &str, found: &mut Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if !bytes[at].is_ascii_alphanumeric() || !begins_word(text, at) {
            at += 1;
            continue;
        }
        match token_at(text, at) {
            Some(end) => {
                found.push(at..end);
                at = end;
            }
            None => at += 1,
        }
    }
}

/// Returns where the token that begins here ends.
fn token_at(text: &str, at: usize) -> Option<usize> {
    let rest = &text.as_bytes()[at..];
    if rest.starts_with(b"eyJ") {
        return three_parts(text, at);
    }
    let prefix = PREFIXES.iter().find(|prefix| rest.starts_with(prefix.text.as_bytes()))?;
    let begin = at + prefix.text.len();
    let length = run(text, begin, prefix.takes);
    let end = begin + length;
    let long_enough = if prefix.exact { length == prefix.least } else { length >= prefix.least };
    let ends = !text.as_bytes().get(end).is_some_and(|next| is_token(*next));
    let fits = long_enough && ends && (!prefix.plain || has_random_part(&text[begin..end]));
    fits.then_some(end)
}

/// Whether one of the parts between dashes is long, and mixes letters and digits.
fn has_random_part(text: &str) -> bool {
    text.split(['-', '_']).any(|part| {
        part.len() >= 16
            && part.bytes().any(|byte| byte.is_ascii_digit())
            && part.bytes().any(|byte| byte.is_ascii_alphabetic())
    })
}

/// Least characters of each part of a token of three parts.
const LEAST_PART: usize = 10;

fn three_parts(text: &str, at: usize) -> Option<usize> {
    let mut end = at;
    for part in 0..3 {
        if part > 0 {
            if text.as_bytes().get(end) != Some(&b'.') {
                return None;
            }
            end += 1;
        }
        let length = run(text, end, is_token);
        if length < LEAST_PART {
            return None;
        }
        end += length;
    }
    Some(end)
}

const FRAME: &str = "-----";

/// Finds what stands in the frame of a private key; without its end, everything to the end of the text.
pub(super) fn private_keys(text: &str, found: &mut Vec<Range<usize>>) {
    let mut at = 0;
    while let Some(begin) = text[at..].find("-----BEGIN ").map(|place| at + place) {
        let label = begin + FRAME.len();
        let Some(close) = text[label..].find(FRAME).map(|place| label + place) else { return };
        at = close + FRAME.len();
        if !text[label..close].contains("PRIVATE KEY") {
            continue;
        }
        let end = text[at..].find("-----END").map_or(text.len(), |place| at + place);
        if !is_placeholder(text[at..end].trim()) {
            found.push(at..end);
        }
        at = end;
    }
}

/// Finds passwords in addresses such as `scheme://user:password@host`.
pub(super) fn addresses(text: &str, found: &mut Vec<Range<usize>>) {
    let mut at = 0;
    while let Some(place) = text[at..].find("://").map(|place| at + place) {
        at = place + 3;
        let named = text[..place].bytes().next_back().is_some_and(|byte| byte.is_ascii_alphanumeric());
        let length = run(text, at, |byte| byte > b' ' && !b"/?#\"'`<>\\".contains(&byte));
        let authority = &text[at..at + length];
        let Some((user, _)) = authority.rsplit_once('@') else { continue };
        if let Some(colon) = user.find(':').filter(|_| named)
            && !is_placeholder(&user[colon + 1..])
        {
            found.push(at + colon + 1..at + user.len());
        }
        at += length;
    }
}

/// Words that stand before the credential of a header.
const SCHEMES: [&str; 7] = ["bearer", "basic", "token", "digest", "apikey", "negotiate", "key"];
/// From this length on a word behind `Bearer` is a credential, whatever it looks like.
const LONG_CREDENTIAL: usize = 20;
/// From this length on it is one where it has a digit.
const SHORT_CREDENTIAL: usize = 8;

/// Finds what follows `Authorization:` and `Bearer`.
pub(super) fn credentials(text: &str, found: &mut Vec<Range<usize>>) {
    for word in words(text, "authorization") {
        if let Some(range) = header(text, word.end) {
            found.push(range);
        }
    }
    for word in words(text, "bearer") {
        let begin = word.end + run(text, word.end, |byte| byte == b' ');
        let length = run(text, begin, |byte| is_dotted(byte) || b"~+/=".contains(&byte));
        let credential = &text[begin..begin + length];
        let has_digit = credential.bytes().any(|byte| byte.is_ascii_digit());
        if begin > word.end && (length >= LONG_CREDENTIAL || (length >= SHORT_CREDENTIAL && has_digit)) {
            found.push(begin..begin + length);
        }
    }
}

/// Returns the credential of a header whose name ends here.
fn header(text: &str, name_end: usize) -> Option<Range<usize>> {
    let is_quote = |byte: u8| b"\"'\\".contains(&byte);
    let mut at = name_end + run(text, name_end, |byte| is_quote(byte) || byte == b' ');
    let separator = *text.as_bytes().get(at)?;
    if separator != b':' && separator != b'=' {
        return None;
    }
    at += 1;
    at += run(text, at, |byte| is_quote(byte) || byte == b' ');
    let ends_line = |byte: u8| byte == b'\n' || byte == b'\r';
    let word = run(text, at, |byte| byte > b' ' && !is_quote(byte));
    let scheme = &text[at..at + word];
    // Its parts are in quotes of their own.
    let quoted = scheme.eq_ignore_ascii_case("digest");
    let line = run(text, at, |byte| !ends_line(byte) && (quoted || !is_quote(byte)));
    let value = text[at..at + line].trim_end();
    let range = match SCHEMES.iter().any(|known| known.eq_ignore_ascii_case(scheme)) {
        true => {
            let begin = at + scheme.len() + run(text, at + scheme.len(), |byte| byte == b' ');
            begin..at + value.len()
        }
        // Without a scheme it may be prose.
        false if looks_random(scheme, SHORT_CREDENTIAL) => at..at + scheme.len(),
        false => return None,
    };
    let credential = text.get(range.clone())?;
    (!credential.is_empty() && !is_placeholder(credential)).then_some(range)
}

/// Returns where a word of ASCII letters stands in any case, alone or at the end of a longer name.
fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = Range<usize>> + 'a {
    let bytes = text.as_bytes();
    let ends = |end: usize| !bytes.get(end).is_some_and(|next| is_token(*next));
    (0..(bytes.len() + 1).saturating_sub(word.len())).filter_map(move |at| {
        let range = at..at + word.len();
        let same = bytes[range.clone()].eq_ignore_ascii_case(word.as_bytes());
        (same && ends(range.end)).then_some(range)
    })
}
