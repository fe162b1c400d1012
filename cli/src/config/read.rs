//! Reads the text of a config file: pure. Everything in it is known and has the right type, or the first
//! fault is told with its line. No message holds a value, which may be a key in the wrong place.

use std::collections::BTreeMap;
use std::ops::Range;

use secrecy::SecretString;
use tns_server::{ModelPrice, PROVIDERS, Price, ProviderOverrides, Titles};
use toml_edit::{Document, Item, TableLike};

use super::known::{did_you_mean, nearest_provider, priced, provider_id};

/// Longest key of a provider, in bytes; the longest in use have a few hundred.
pub(crate) const MAX_KEY_BYTES: usize = 8 << 10;

/// What a config file says.
#[derive(Debug, Default)]
pub(crate) struct Values {
    pub(crate) provider: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) overrides: Option<ProviderOverrides>,
    /// US dollars.
    pub(crate) spend_daily: Option<f64>,
    /// US dollars.
    pub(crate) spend_session: Option<f64>,
    /// Estimated tokens.
    pub(crate) compact_at: Option<u64>,
    pub(crate) titles: Option<Titles>,
    pub(crate) keys: BTreeMap<&'static str, SecretString>,
    pub(crate) base_urls: BTreeMap<&'static str, String>,
    pub(crate) prices: Vec<ModelPrice>,
}

/// What is wrong with a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The line, from 1.
    pub(crate) line: usize,
    /// What is wrong there, and what to do.
    pub(crate) text: String,
}

/// Reads the text of a file.
pub(crate) fn read(text: &str) -> Result<Values, Fault> {
    // The parser's own long message would show the line, key and all.
    let document = Document::parse(text).map_err(|error| Fault {
        line: line_of(text, error.span()),
        text: error.message().split_whitespace().collect::<Vec<_>>().join(" "),
    })?;
    let mut values = Values::default();
    let read = Entries { text, table: document.as_table(), path: String::new() }.each(|entry| {
        match entry.name.as_str() {
            "provider" => values.provider = Some(entry.provider()?.to_owned()),
            "model" => values.model = Some(entry.word()?),
            "agents" => entry.table()?.each(|entry| match entry.name.as_str() {
                "agents.provider_overrides" => {
                    values.overrides = Some(parse_overrides(&entry.word()?).map_err(|why| entry.wrong(why))?);
                    Ok(())
                }
                _ => Err(entry.unknown()),
            })?,
            "spend" => entry.table()?.each(|entry| {
                match entry.name.as_str() {
                    "spend.daily" => values.spend_daily = Some(entry.dollars()?),
                    "spend.session" => values.spend_session = Some(entry.dollars()?),
                    _ => return Err(entry.unknown()),
                }
                Ok(())
            })?,
            "history" => entry.table()?.each(|entry| match entry.name.as_str() {
                "history.compact_at" => {
                    let tokens = entry.item.as_integer().and_then(|tokens| u64::try_from(tokens).ok());
                    let checked = tokens.map_or(Err(COMPACT_AT_RANGE), check_compact_at);
                    values.compact_at = Some(checked.map_err(|why| entry.wrong(why))?);
                    Ok(())
                }
                _ => Err(entry.unknown()),
            })?,
            "sessions" => entry.table()?.each(|entry| match entry.name.as_str() {
                "sessions.titles" => {
                    values.titles = Some(parse_titles(&entry.word()?).map_err(|why| entry.wrong(why))?);
                    Ok(())
                }
                _ => Err(entry.unknown()),
            })?,
            "providers" => entry.table()?.each(|entry| provider(&entry, &mut values))?,
            "prices" => entry.table()?.each(|entry| {
                values.prices.push(price(&entry)?);
                Ok(())
            })?,
            _ => return Err(entry.unknown()),
        }
        Ok(())
    });
    read.map(|()| values)
}

/// Reads what may be asked of providers' overrides.
pub(super) fn parse_overrides(text: &str) -> Result<ProviderOverrides, &'static str> {
    match text {
        "configured" => Ok(ProviderOverrides::Configured),
        "ollama-only" => Ok(ProviderOverrides::OllamaOnly),
        _ => Err("must be \"configured\" or \"ollama-only\""),
    }
}

/// Reads who names sessions.
pub(super) fn parse_titles(text: &str) -> Result<Titles, &'static str> {
    match text {
        "model" => Ok(Titles::Model),
        "first-message" => Ok(Titles::FirstMessage),
        _ => Err("must be \"model\" or \"first-message\""),
    }
}

/// What is wrong with a length at which history is summarised.
const COMPACT_AT_RANGE: &str = "must be a whole number of tokens, 1000 or more";
/// Below this many tokens hardly more than the tools on offer fits into a request.
const LEAST_COMPACT_AT: u64 = 1_000;

/// Reads at how many tokens history is summarised.
pub(super) fn parse_compact_at(text: &str) -> Result<u64, &'static str> {
    text.parse().map_or(Err(COMPACT_AT_RANGE), check_compact_at)
}

fn check_compact_at(tokens: u64) -> Result<u64, &'static str> {
    if tokens >= LEAST_COMPACT_AT { Ok(tokens) } else { Err(COMPACT_AT_RANGE) }
}

/// Checks an amount of US dollars.
pub(super) fn check_dollars(amount: f64) -> Result<f64, &'static str> {
    if amount.is_finite() && amount >= 0.0 {
        Ok(amount)
    } else {
        Err("must be a number of US dollars, 0 or more")
    }
}

/// Checks a provider's key, as far as that can be done without the provider.
pub(crate) fn check_key(key: &str) -> Result<&str, &'static str> {
    let key = key.trim();
    if key.is_empty() {
        return Err("must not be empty");
    }
    if key.len() > MAX_KEY_BYTES {
        return Err("is longer than any key");
    }
    if key.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err("holds characters that no key has");
    }
    Ok(key)
}

fn provider(entry: &Entry<'_>, values: &mut Values) -> Result<(), Fault> {
    let id = entry.known_provider(entry.key)?;
    let takes_key = PROVIDERS.iter().any(|row| row.id == id && row.takes_key());
    if !takes_key {
        return Err(entry.wrong("can't be set up: it needs neither a key nor an address"));
    }
    entry.table()?.each(|entry| {
        match entry.key {
            "api_key" => {
                let key = entry.word()?;
                let key = check_key(&key).map_err(|why| entry.wrong(why))?;
                values.keys.insert(id, key.into());
            }
            "base_url" => {
                let url = entry.word()?;
                let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
                if rest.is_none_or(|rest| rest.is_empty() || rest.contains(char::is_whitespace)) {
                    return Err(entry.wrong("must be an http address such as http://127.0.0.1:8000/v1"));
                }
                values.base_urls.insert(id, url);
            }
            _ => return Err(entry.unknown()),
        }
        Ok(())
    })
}

fn price(entry: &Entry<'_>) -> Result<ModelPrice, Fault> {
    let form = "must be named after a provider and its model, as in [prices.\"openai/gpt-5\"]";
    let (provider, model) = priced(entry.key).ok_or_else(|| entry.wrong(form))?;
    let provider = entry.known_provider(provider)?.to_owned();
    let (mut input, mut cached_input, mut output) = (None, None, None);
    entry.table()?.each(|entry| {
        let place = match entry.key {
            "input" => &mut input,
            "cached_input" => &mut cached_input,
            "output" => &mut output,
            _ => return Err(entry.unknown()),
        };
        *place = Some(entry.dollars()?);
        Ok(())
    })?;
    match (input, output) {
        (Some(input), Some(output)) => {
            let price = Price { input, cached_input, cache_write: None, output, long: None };
            price.check().map_err(|why| entry.wrong(&why))?;
            Ok(ModelPrice { provider, model: model.to_owned(), price })
        }
        _ => Err(entry.wrong("needs both input and output")),
    }
}

/// The entries of a table.
struct Entries<'a> {
    text: &'a str,
    table: &'a dyn TableLike,
    /// The names of the tables around it, with a dot behind each.
    path: String,
}

impl<'a> Entries<'a> {
    fn each(self, mut read: impl FnMut(Entry<'a>) -> Result<(), Fault>) -> Result<(), Fault> {
        for (key, item) in self.table.iter() {
            let span = self.table.key(key).and_then(toml_edit::Key::span).or_else(|| item.span());
            let name = format!("{}{key}", self.path);
            read(Entry { text: self.text, key, name, item, span })?;
        }
        Ok(())
    }
}

/// One entry of a table.
struct Entry<'a> {
    text: &'a str,
    key: &'a str,
    /// Its whole name.
    name: String,
    item: &'a Item,
    span: Option<Range<usize>>,
}

impl<'a> Entry<'a> {
    fn fault(&self, text: String) -> Fault {
        Fault { line: line_of(self.text, self.span.clone()), text }
    }

    fn unknown(&self) -> Fault {
        self.fault(format!("there is no key {}{}", self.name, did_you_mean(&self.name)))
    }

    fn wrong(&self, why: &str) -> Fault {
        self.fault(format!("{} {why}", self.name))
    }

    fn table(&self) -> Result<Entries<'a>, Fault> {
        match self.item.as_table_like() {
            Some(table) => Ok(Entries { text: self.text, table, path: format!("{}.", self.name) }),
            None => Err(self.wrong(&format!("must be a table, not {}", kind(self.item)))),
        }
    }

    /// Returns text that is not blank.
    fn word(&self) -> Result<String, Fault> {
        let Some(text) = self.item.as_str() else {
            return Err(self.wrong(&format!("must be text in quotes, not {}", kind(self.item))));
        };
        match text.trim() {
            "" => Err(self.wrong("must not be empty; leave it out instead")),
            text => Ok(text.to_owned()),
        }
    }

    fn dollars(&self) -> Result<f64, Fault> {
        #[expect(clippy::cast_precision_loss, reason = "amounts of money are far below 2^52")]
        let number = self.item.as_float().or_else(|| self.item.as_integer().map(|whole| whole as f64));
        let Some(number) = number else {
            return Err(self.wrong(&format!("must be a number of US dollars, not {}", kind(self.item))));
        };
        check_dollars(number).map_err(|why| self.wrong(why))
    }

    fn provider(&self) -> Result<&'static str, Fault> {
        self.known_provider(&self.word()?)
    }

    fn known_provider(&self, name: &str) -> Result<&'static str, Fault> {
        provider_id(name).ok_or_else(|| {
            // A name is short; a key in its place is not shown.
            self.wrong(&format!("names no provider; did you mean {}?", nearest_provider(name)))
        })
    }
}

fn kind(item: &Item) -> &'static str {
    match item.type_name() {
        "string" => "text",
        "integer" | "float" => "a number",
        "boolean" => "true or false",
        "array" => "a list",
        "table" | "inline table" => "a table",
        "array of tables" => "a list of tables",
        _ => "that",
    }
}

/// Returns the line of a place in the text, from 1.
fn line_of(text: &str, span: Option<Range<usize>>) -> usize {
    let at = span.map_or(0, |span| span.start.min(text.len()));
    text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests;
