//! What the user set, from every source: defaults < keyring < config file < environment < options. Read once
//! for a command that starts a server or tells of its settings; each value knows what set it. Files of the
//! folder that the command is run in are never read for this.

pub(crate) mod edit;
mod file;
mod known;
mod read;

use std::collections::HashMap;

use tns_server::{
    EngineChoice, EngineConfig, FileChoice, FileSettings, ModelFiles, Origin, PROVIDERS, Provider,
    ProviderOverrides, ServerConfig, Sourced, Titles, TurnLimits,
};

pub(crate) use file::Place;
pub(crate) use known::{Named, did_you_mean, provider_id};
pub(crate) use read::{MAX_KEY_BYTES, check_key};

use crate::args::Globals;
use crate::exit::Stop;
use crate::keyring::Keyring;
use known::{COMPACT_AT_VARIABLE, DAILY_VARIABLE, OVERRIDES_VARIABLE, SESSION_VARIABLE, TITLES_VARIABLE};
use read::Values;

/// What the user set.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// The file, whether or not it is there.
    pub(crate) place: Place,
    /// It is there.
    pub(crate) has_file: bool,
    /// Keys, addresses, prices, and the choice of the engine.
    pub(crate) engines: EngineConfig,
    overrides: Sourced<ProviderOverrides>,
    spend_daily: Option<Sourced<f64>>,
    spend_session: Option<Sourced<f64>>,
    compact_at: Sourced<u64>,
    titles: Sourced<Titles>,
}

impl Config {
    /// Reads the file and the environment; `flag` is what options of the command name.
    ///
    /// # Errors
    /// A [`Stop`] that names the file and the line, or the variable, that is wrong.
    pub(crate) fn load(globals: &Globals, flag: EngineChoice) -> Result<Self, Stop> {
        let place = Place::find(globals.config.as_deref())?;
        let values = place.read()?;
        let environment = environment();
        let mut config = Self::merge(place, values, |name| environment.get(name).cloned(), flag)?;
        config.engines.key_store = keyring().store();
        let data = crate::data_dir::place(globals.data_dir.as_deref());
        config.engines.local.files = data.ok().map(|data| ModelFiles::of(&data));
        Ok(config)
    }

    /// Reads the environment alone, for who looks at what is wrong with the file.
    ///
    /// # Errors
    /// A [`Stop`] that names the variable that is wrong.
    pub(crate) fn without_file(place: Place) -> Result<Self, Stop> {
        let environment = environment();
        let read = |name: &str| environment.get(name).cloned();
        let mut config = Self::merge(place, None, read, EngineChoice::default())?;
        config.engines.key_store = keyring().store();
        Ok(config)
    }

    /// Puts the sources above each other.
    fn merge(
        place: Place,
        values: Option<Values>,
        variable: impl Fn(&str) -> Option<String>,
        flag: EngineChoice,
    ) -> Result<Self, Stop> {
        let has_file = values.is_some();
        let values = values.unwrap_or_default();
        let file = Origin::File(place.shown.as_str().into());
        let set = |name: &str| {
            let text = variable(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
            text.map(|value| Sourced { value, origin: Origin::Variable(name.to_owned()) })
        };
        let from_file = |value| Sourced { value, origin: file.clone() };
        let below = file.clone();
        let overrides = pick(
            set(OVERRIDES_VARIABLE),
            OVERRIDES_VARIABLE,
            read::parse_overrides,
            (values.overrides, &below),
        )?;
        let overrides =
            overrides.unwrap_or(Sourced { value: ProviderOverrides::default(), origin: Origin::Default });
        let titles =
            pick(set(TITLES_VARIABLE), TITLES_VARIABLE, read::parse_titles, (values.titles, &below))?;
        let compact_at = set(COMPACT_AT_VARIABLE);
        let compact_at =
            pick(compact_at, COMPACT_AT_VARIABLE, read::parse_compact_at, (values.compact_at, &below))?;
        let dollars = |name: &'static str, below: Option<f64>| -> Result<Option<Sourced<f64>>, Stop> {
            let Some(Sourced { value, origin }) = set(name) else { return Ok(below.map(from_file)) };
            let amount =
                value.parse().map_err(|_| wrong(name, "must be an amount of dollars, such as 5 or 0.25"))?;
            let value = read::check_dollars(amount).map_err(|why| wrong(name, why))?;
            Ok(Some(Sourced { value, origin }))
        };
        let spend_daily = dollars(DAILY_VARIABLE, values.spend_daily)?;
        let spend_session = dollars(SESSION_VARIABLE, values.spend_session)?;
        let choice = EngineChoice { provider: values.provider, model: values.model };
        let mut engines = EngineConfig::from_env(&variable).above(FileSettings {
            choice: FileChoice { path: place.shown.as_str().into(), choice },
            keys: values.keys,
            base_urls: values.base_urls,
        });
        engines.flag = flag;
        engines.overrides = overrides.value;
        engines.prices = values.prices;
        let titles = titles.unwrap_or(Sourced { value: Titles::default(), origin: Origin::Default });
        let tokens = TurnLimits::default().compact_at;
        let compact_at = compact_at.unwrap_or(Sourced { value: tokens, origin: Origin::Default });
        Ok(Self { place, has_file, engines, overrides, spend_daily, spend_session, compact_at, titles })
    }

    /// Returns the spending limits: of a day, of a session.
    pub(crate) fn limits(&self) -> (Option<f64>, Option<f64>) {
        let value = |limit: &Option<Sourced<f64>>| limit.as_ref().map(|limit| limit.value);
        (value(&self.spend_daily), value(&self.spend_session))
    }

    /// Fills in what a server is told.
    pub(crate) fn apply(self, config: ServerConfig) -> ServerConfig {
        ServerConfig {
            engines: self.engines,
            spend_daily: self.spend_daily.map(|limit| limit.value),
            spend_session: self.spend_session.map(|limit| limit.value),
            limits: TurnLimits { compact_at: self.compact_at.value, ..config.limits },
            titles: self.titles.value,
            ..config
        }
    }

    /// Returns every value that is set, and the settings that have a default or could be set, each under its
    /// name. The keyring's keys are among them where it was asked.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        let mut add = |name: String, value: Option<Sourced<Shown>>| entries.push(Entry { name, value });
        let text = |value: Sourced<&str>| value.map(|text| Shown::Text(text.to_owned()));
        add("provider".into(), self.engines.provider().map(text));
        add("model".into(), self.engines.model().map(text));
        let overrides = match self.overrides.value {
            ProviderOverrides::Configured => "configured",
            ProviderOverrides::OllamaOnly => "ollama-only",
        };
        let overrides = Sourced { value: overrides, origin: self.overrides.origin.clone() };
        add("agents.provider_overrides".into(), Some(text(overrides)));
        #[expect(clippy::cast_precision_loss, reason = "shown to people; far below 2^52")]
        let tokens = Sourced {
            value: Shown::Number(self.compact_at.value as f64),
            origin: self.compact_at.origin.clone(),
        };
        add("history.compact_at".into(), Some(tokens));
        let titles = match self.titles.value {
            Titles::Model => "model",
            Titles::FirstMessage => "first-message",
        };
        let titles = Sourced { value: titles, origin: self.titles.origin.clone() };
        add("sessions.titles".into(), Some(text(titles)));
        add("spend.daily".into(), self.spend_daily.clone().map(|limit| limit.map(Shown::Number)));
        add("spend.session".into(), self.spend_session.clone().map(|limit| limit.map(Shown::Number)));
        for provider in PROVIDERS.iter().filter(|provider| provider.takes_key()) {
            let key = self.key(provider).map(|origin| Sourced { value: Shown::Secret, origin });
            add(format!("providers.{}.api_key", provider.id), key);
            let address = self.engines.base_url(provider);
            let address = address.map(|address| address.map(|url| Shown::Text(without_secrets(&url))));
            add(format!("providers.{}.base_url", provider.id), address);
        }
        let file = Origin::File(self.place.shown.as_str().into());
        for price in &self.engines.prices {
            let amounts = [
                ("input", Some(price.price.input)),
                ("cached_input", price.price.cached_input),
                ("output", Some(price.price.output)),
            ];
            for (name, amount) in amounts {
                if let Some(amount) = amount {
                    let value = Sourced { value: Shown::Number(amount), origin: file.clone() };
                    add(format!("prices.{}/{}.{name}", price.provider, price.model), Some(value));
                }
            }
        }
        entries
    }

    /// Returns what set a provider's key, if it has one.
    pub(crate) fn key(&self, provider: &Provider) -> Option<Origin> {
        self.engines.key_origin(provider)
    }
}

/// Returns what a variable says, else what a file does.
///
/// # Errors
/// A [`Stop`] that names the variable that is wrong.
fn pick<T>(
    set: Option<Sourced<String>>,
    name: &str,
    parse: impl Fn(&str) -> Result<T, &'static str>,
    (value, file): (Option<T>, &Origin),
) -> Result<Option<Sourced<T>>, Stop> {
    match set {
        Some(Sourced { value, origin }) => {
            let value = parse(&value).map_err(|why| wrong(name, why))?;
            Ok(Some(Sourced { value, origin }))
        }
        None => Ok(value.map(|value| Sourced { value, origin: file.clone() })),
    }
}

/// A setting with its value, if it has one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    /// Its whole name.
    pub(crate) name: String,
    /// Its value and what set it.
    pub(crate) value: Option<Sourced<Shown>>,
}

/// A value as it may be shown.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Shown {
    Text(String),
    Number(f64),
    /// It is set, and more is nobody's business.
    Secret,
}

/// Returns the environment; what is not text can't be a setting.
fn environment() -> HashMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Returns the keyring of this session.
pub(crate) fn keyring() -> Keyring {
    Keyring::announced(|name| std::env::var_os(name))
}

fn wrong(variable: &str, why: &str) -> Stop {
    Stop::usage(format!("{variable} {why}"))
}

/// Returns an address without the user, the password and the query, each of which may hold a key.
pub(crate) fn without_secrets(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    let host = authority.rsplit_once('@').map_or(authority.to_owned(), |(_, host)| format!("***@{host}"));
    let path = match rest.find(['?', '#']) {
        Some(at) => format!("{}?***", &rest[..at]),
        None => rest.to_owned(),
    };
    if scheme.is_empty() { format!("{host}{path}") } else { format!("{scheme}://{host}{path}") }
}

#[cfg(test)]
mod tests;
