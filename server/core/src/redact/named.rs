//! Secrets that a name gives away: `KEY=value`, `"password": "value"`, `--token value`, a member of an object.

use std::ops::Range;

use super::{begins_word, run};

/// How much a name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Names {
    /// Its value is a secret whatever it looks like, such as a password.
    Always,
    /// Its value is one where it looks random, such as a key or a token.
    IfRandom,
}

/// Shortest random value that counts behind a name of small letters.
const LEAST_RANDOM: usize = 12;
/// The same behind a name in capitals, as the environment has them.
const LEAST_RANDOM_IN_CAPITALS: usize = 8;
/// Shortest password that counts in an assignment.
const LEAST_PASSWORD: usize = 3;
/// The same in prose, where it needs a digit or a sign as well.
const LEAST_PASSWORD_IN_PROSE: usize = 6;
/// Least entropy of a random value, in bits a character.
const LEAST_ENTROPY: f64 = 2.8;

const ALWAYS: [&str; 6] = ["password", "passwd", "pwd", "passphrase", "pass", "passwort"];
const HEADERS: [&str; 3] = ["authorization", "cookie", "set-cookie"];
const IF_RANDOM: [&str; 9] =
    ["key", "apikey", "token", "secret", "credential", "credentials", "auth", "bearer", "pat"];
/// Ends of names that are written in one word.
const ENDINGS: [&str; 5] = ["password", "secret", "token", "apikey", "accesskey"];
/// Names of keys that anybody may have.
const HARMLESS: [&str; 6] = ["public", "primary", "foreign", "partition", "sort", "cache"];

/// Returns what a name says of its value.
pub(super) fn of_name(name: &str) -> Option<Names> {
    let lower = name.to_ascii_lowercase();
    if HEADERS.contains(&lower.as_str()) {
        return Some(Names::Always);
    }
    let words = words_of(name);
    let last = words.last()?.as_str();
    // `pass` alone is what tests do.
    if (ALWAYS.contains(&last) && name != "pass") || last.ends_with("password") {
        return Some(Names::Always);
    }
    let says = IF_RANDOM.contains(&last) || ENDINGS.iter().any(|ending| last.ends_with(ending));
    let harmless = words.iter().any(|word| HARMLESS.contains(&word.as_str()));
    (says && !harmless).then_some(Names::IfRandom)
}

/// Takes a name apart at signs and where small letters end, in small letters.
fn words_of(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let (mut word, mut small) = (String::new(), false);
    for c in name.chars() {
        let breaks = !c.is_ascii_alphanumeric() || (c.is_ascii_uppercase() && small);
        if breaks && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if c.is_ascii_alphanumeric() {
            word.push(c.to_ascii_lowercase());
        }
        small = c.is_ascii_lowercase();
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// Whether a value is a secret where its name stands by itself, as of a member of an object.
pub(super) fn is_secret(name: &str, value: &str) -> bool {
    let value = value.trim();
    match of_name(name) {
        Some(Names::Always) => !value.is_empty() && !is_placeholder(value),
        Some(Names::IfRandom) => !is_placeholder(value) && looks_random(value, least_random(name)),
        None => false,
    }
}

fn least_random(name: &str) -> usize {
    match name.bytes().any(|byte| byte.is_ascii_lowercase()) {
        true => LEAST_RANDOM,
        false => LEAST_RANDOM_IN_CAPITALS,
    }
}

/// Whether a value only stands for one: a variable, a call, a path, a mark, nothing.
pub(super) fn is_placeholder(value: &str) -> bool {
    const WORDS: [&str; 9] =
        ["null", "none", "nil", "true", "false", "undefined", "required", "optional", "string"];
    const READS: [&str; 6] = ["process.env", "os.environ", "os.getenv", "env.", "env::", "std::env"];
    let Some(first) = value.chars().next() else { return true };
    "$<[{%*".contains(first)
        || (value.len() > 2 && value.chars().all(|c| c == first))
        || value.contains('(')
        || ["/", "./", "~/"].iter().any(|path| value.starts_with(path))
        || READS.iter().any(|read| value.starts_with(read))
        || WORDS.iter().any(|word| word.eq_ignore_ascii_case(value))
}

/// Whether a value looks as if no person had chosen it.
pub(super) fn looks_random(value: &str, least: usize) -> bool {
    let takes = |byte: u8| byte.is_ascii_graphic() && !b"\"'`<>()[]{}|\\,;".contains(&byte);
    let letters = value.bytes().filter(u8::is_ascii_alphabetic).count();
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    value.len() >= least
        && value.bytes().all(takes)
        && letters >= 4
        && digits >= 1
        && !value.starts_with(['/', '.', '~'])
        && !value.contains("://")
        && !is_wordy(value)
        && entropy(value) >= LEAST_ENTROPY
}

/// Whether a value is made of plain words and numbers with signs between them.
fn is_wordy(value: &str) -> bool {
    value.split(|c: char| !c.is_ascii_alphanumeric()).all(|part| {
        let letters = part.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = part.len() - letters.len();
        // `v2` and `step3` are words; a long number behind one is not.
        let word = letters.bytes().all(|byte| byte.is_ascii_alphabetic()) && !is_mixed(letters);
        part.bytes().all(|byte| byte.is_ascii_digit()) || (word && number <= 4)
    })
}

/// Whether capitals stand behind small letters more often than in a name.
fn is_mixed(letters: &str) -> bool {
    let bytes = letters.as_bytes();
    let turns = bytes.windows(2).filter(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase());
    turns.count() > 2
}

/// Returns the bits of information of a character, taken from how often each occurs.
fn entropy(text: &str) -> f64 {
    let mut counts = [0_u32; 256];
    text.bytes().for_each(|byte| counts[usize::from(byte)] += 1);
    let total = text.len() as f64;
    let shares = counts.iter().filter(|count| **count > 0).map(|count| f64::from(*count) / total);
    -shares.map(|share| share * share.log2()).sum::<f64>()
}

/// How a value stands behind its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stands {
    /// In quotes, or right behind `=`: nothing but a value stands so.
    Alone,
    /// In a text.
    InProse,
}

/// Finds the values of names that give them away.
pub(super) fn assignments(text: &str, found: &mut Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if !(bytes[at].is_ascii_alphabetic() || bytes[at] == b'_') || !begins_name(text, at) {
            at += 1;
            continue;
        }
        let length = run(text, at, |byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
        let name = &text[at..at + length];
        at += length;
        let Some(says) = of_name(name) else { continue };
        let flag = text[..at - length].ends_with("--");
        let Some((value, stands)) = value_behind(text, at, flag) else { continue };
        if counts(name, says, &text[value.clone()], stands) {
            at = value.end;
            found.push(value);
        }
    }
}

/// A name may follow the dashes of a flag, too.
fn begins_name(text: &str, at: usize) -> bool {
    begins_word(text, at) || text[..at].ends_with('-')
}

fn counts(name: &str, says: Names, value: &str, stands: Stands) -> bool {
    if is_placeholder(value) {
        return false;
    }
    let is_sign =
        |byte: u8| byte.is_ascii_digit() || (byte.is_ascii_punctuation() && !b".-_,:".contains(&byte));
    match (says, stands) {
        (Names::IfRandom, _) => looks_random(value, least_random(name)),
        (Names::Always, Stands::Alone) => value.len() >= LEAST_PASSWORD,
        (Names::Always, Stands::InProse) => {
            value.len() >= LEAST_PASSWORD_IN_PROSE
                && value.bytes().any(is_sign)
                && value.bytes().any(|byte| byte.is_ascii_alphabetic())
        }
    }
}

/// Returns the value that is given to the name that ends here.
fn value_behind(text: &str, name_end: usize, flag: bool) -> Option<(Range<usize>, Stands)> {
    let byte = |at: usize| text.as_bytes().get(at).copied();
    let mut at = name_end;
    // The quote that ends the name, escaped where it is JSON in text.
    at += usize::from(byte(at) == Some(b'\\') && byte(at + 1) == Some(b'"'));
    at += usize::from(matches!(byte(at), Some(b'"' | b'\'')));
    let spaces = run(text, at, |byte| byte == b' ' || byte == b'\t');
    at += spaces;
    let assigns = match (byte(at)?, byte(at + 1)) {
        (b'=', Some(b'=')) | (b':', Some(b':')) => return None,
        (b':', Some(b'=')) | (b'=', Some(b'>')) => {
            at += 2;
            true
        }
        (b'=', _) => {
            at += 1;
            spaces == 0
        }
        (b':', Some(b'/')) => return None,
        (b':', _) => {
            at += 1;
            false
        }
        _ if flag && spaces > 0 => true,
        _ => return None,
    };
    let spaces = run(text, at, |byte| byte == b' ' || byte == b'\t');
    at += spaces;
    let escaped = byte(at) == Some(b'\\') && matches!(byte(at + 1), Some(b'"' | b'\''));
    at += usize::from(escaped);
    if let Some(quote @ (b'"' | b'\'' | b'`')) = byte(at) {
        at += 1;
        let length = run(text, at, |byte| byte != quote && byte != b'\n' && !(escaped && byte == b'\\'));
        return Some((at..at + length, Stands::Alone));
    }
    let length = run(text, at, |byte| byte > b' ' && !b"\"'`,;&)}]<>|\\".contains(&byte));
    let value = text[at..at + length].trim_end_matches(['.', '!', '?', ':']);
    let alone = assigns && (spaces == 0 || flag);
    Some((at..at + value.len(), if alone { Stands::Alone } else { Stands::InProse }))
}
