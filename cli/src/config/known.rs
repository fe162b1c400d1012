//! Every key that a config file may hold: its name, its meaning, and what else sets it. Pure.

use tns_server::{PROVIDERS, base_url_variable, key_variable};

/// Stands for a provider's id in the name of a key.
const ID: &str = "<id>";
/// Stands for a provider and one of its models.
const PRICED: &str = "<provider>/<model>";

/// A key that a config file may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    /// Its name, with [`ID`] or [`PRICED`] where that stands for many.
    pub(crate) pattern: &'static str,
    /// What it sets.
    pub(crate) meaning: &'static str,
    /// The variable that sets it too; that of a provider's key and address follows from the provider.
    variable: Option<&'static str>,
    /// The option that sets it too.
    flag: Option<&'static str>,
}

/// All of them, in the order in which they are shown.
const KNOWN: &[Known] = &[
    Known {
        pattern: "provider",
        meaning: "whose models new agents use",
        variable: Some("TNS_PROVIDER"),
        flag: Some("--provider"),
    },
    Known {
        pattern: "model",
        meaning: "which model new agents use",
        variable: Some("TNS_MODEL"),
        flag: Some("--model"),
    },
    Known {
        pattern: "agents.provider_overrides",
        meaning: "which providers a client may name for its agents: configured, or ollama-only",
        variable: Some(OVERRIDES_VARIABLE),
        flag: None,
    },
    Known {
        pattern: "spend.daily",
        meaning: "most US dollars that models may cost a day",
        variable: Some(DAILY_VARIABLE),
        flag: None,
    },
    Known {
        pattern: "spend.session",
        meaning: "most US dollars that models may cost a session",
        variable: Some(SESSION_VARIABLE),
        flag: None,
    },
    Known {
        pattern: "history.compact_at",
        meaning: "estimated tokens of a request beyond which older history is summarised",
        variable: Some(COMPACT_AT_VARIABLE),
        flag: None,
    },
    Known {
        pattern: "sessions.titles",
        meaning: "who names a session that nobody named: model, or first-message",
        variable: Some(TITLES_VARIABLE),
        flag: None,
    },
    Known {
        pattern: "providers.<id>.api_key",
        meaning: "the key that the provider wants",
        variable: None,
        flag: None,
    },
    Known {
        pattern: "providers.<id>.base_url",
        meaning: "where the provider is reached",
        variable: None,
        flag: None,
    },
    Known {
        pattern: "prices.<provider>/<model>.input",
        meaning: "US dollars for a million tokens of input",
        variable: None,
        flag: None,
    },
    Known {
        pattern: "prices.<provider>/<model>.cached_input",
        meaning: "US dollars for a million tokens of input that the provider had kept",
        variable: None,
        flag: None,
    },
    Known {
        pattern: "prices.<provider>/<model>.output",
        meaning: "US dollars for a million tokens of output",
        variable: None,
        flag: None,
    },
];

pub(super) const OVERRIDES_VARIABLE: &str = "TNS_PROVIDER_OVERRIDES";
pub(super) const DAILY_VARIABLE: &str = "TNS_DAILY_CAP";
pub(super) const COMPACT_AT_VARIABLE: &str = "TNS_COMPACT_AT";
pub(super) const TITLES_VARIABLE: &str = "TNS_TITLES";
pub(super) const SESSION_VARIABLE: &str = "TNS_SESSION_CAP";

/// A key by the name that a person gave, such as `providers.openai.api_key`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    /// What it is.
    pub(crate) known: Known,
    /// Its whole name.
    pub(crate) name: String,
    /// Its provider, where its name holds one.
    pub(crate) provider: Option<&'static str>,
}

impl Named {
    /// Finds the key with this name.
    pub(crate) fn find(name: &str) -> Option<Self> {
        // A model's name may hold dots, and quotes around it are a matter of the file.
        let name: String = name.chars().filter(|c| *c != '"').collect();
        KNOWN.iter().find_map(|known| {
            let provider = match known.pattern.split_once(ID).or_else(|| known.pattern.split_once(PRICED)) {
                None => (known.pattern == name).then_some(None)?,
                Some((before, after)) => {
                    let inner = name.strip_prefix(before)?.strip_suffix(after)?;
                    let id = if known.pattern.contains(ID) { inner } else { priced(inner)?.0 };
                    Some(provider_id(id)?)
                }
            };
            Some(Self { known: *known, name: name.clone(), provider })
        })
    }

    /// Returns the variable that sets it too.
    pub(crate) fn variable(&self) -> Option<String> {
        match (self.known.variable, self.provider) {
            (Some(variable), _) => Some(variable.to_owned()),
            (None, Some(id)) if self.is_secret() => Some(key_variable(id)),
            (None, Some(id)) if self.name.ends_with(".base_url") => Some(base_url_variable(id)),
            (None, _) => None,
        }
    }

    /// Returns the option that sets it too.
    pub(crate) fn flag(&self) -> Option<&'static str> {
        self.known.flag
    }

    /// Whether its value is never shown.
    pub(crate) fn is_secret(&self) -> bool {
        self.known.pattern.ends_with(".api_key")
    }
}

/// Returns the id of the provider that is called so.
pub(crate) fn provider_id(name: &str) -> Option<&'static str> {
    PROVIDERS.iter().map(|provider| provider.id).find(|id| *id == name)
}

/// Takes `<provider>/<model>` apart.
pub(super) fn priced(name: &str) -> Option<(&str, &str)> {
    name.split_once('/').filter(|(provider, model)| !provider.is_empty() && !model.is_empty())
}

/// Returns the sentence that leads from a name that is not known to the nearest that is.
pub(crate) fn did_you_mean(name: &str) -> String {
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let own = last(name);
    let nearest = candidates(name).into_iter().min_by_key(|known| {
        let shorter = own.len() > 2 && last(known).contains(&own);
        // The right name in a wrong table is nearer than another name in the right one.
        let whole = strsim::osa_distance(name, known);
        (!shorter, whole.min(strsim::osa_distance(&own, &last(known)) + 1))
    });
    nearest.map_or_else(String::new, |known| format!("; did you mean {known}?"))
}

/// Returns what could have been meant, with the provider or model that was named.
fn candidates(name: &str) -> Vec<String> {
    let inner = |prefix: &str| {
        let rest = name.strip_prefix(prefix)?;
        Some(rest.rsplit_once('.').map_or(rest, |(inner, _)| inner))
    };
    let known = |pattern: &str| {
        let ids: Vec<&str> = match inner("providers.").filter(|id| provider_id(id).is_some()) {
            Some(id) => vec![id],
            None => PROVIDERS.iter().filter(|row| row.takes_key()).map(|row| row.id).collect(),
        };
        if pattern.contains(ID) {
            return ids.iter().map(|id| pattern.replace(ID, id)).collect();
        }
        match inner("prices.") {
            Some(model) => vec![pattern.replace(PRICED, model)],
            None => vec![pattern.to_owned()],
        }
    };
    let all: Vec<String> = KNOWN.iter().flat_map(|row| known(row.pattern)).collect();
    let Some((table, _)) = name.rsplit_once('.') else {
        let tables = KNOWN.iter().filter_map(|row| row.pattern.split_once('.'));
        return tables.map(|(table, _)| table.to_owned()).chain(all).collect();
    };
    let beside = |known: &&String| known.rsplit_once('.').is_some_and(|(own, _)| own == table);
    let beside: Vec<String> = all.iter().filter(beside).cloned().collect();
    if beside.is_empty() { all } else { beside }
}

/// Returns the provider whose id is nearest to a name that is none.
pub(super) fn nearest_provider(name: &str) -> &'static str {
    let ids = PROVIDERS.iter().map(|provider| provider.id);
    ids.min_by_key(|id| strsim::osa_distance(name, id)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_by_its_whole_name() {
        let variable = |name: &str| Named::find(name).and_then(|named| named.variable());
        assert_eq!(variable("provider").as_deref(), Some("TNS_PROVIDER"));
        assert_eq!(
            variable("providers.openai-compatible.api_key").as_deref(),
            Some("OPENAI_COMPATIBLE_API_KEY")
        );
        assert_eq!(variable("providers.ollama.base_url").as_deref(), Some("PROVIDER_BASE_URL_OLLAMA"));
        assert_eq!(
            Named::find("prices.\"openai/gpt-5.5\".input").unwrap().name,
            "prices.openai/gpt-5.5.input"
        );
        assert_eq!(variable("prices.openai/gpt-5.5.input"), None);
        for unknown in
            ["", "providers", "providers.nope.api_key", "prices.openai.input", "spend", "spend.dayly"]
        {
            assert_eq!(Named::find(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn every_known_key_can_be_named() {
        for known in KNOWN {
            let name = known.pattern.replace(ID, "openai").replace(PRICED, "openai/m");
            assert_eq!(Named::find(&name).map(|named| named.known), Some(*known), "{name}");
        }
    }

    #[test]
    fn the_nearest_name_is_told() {
        for (name, nearest) in [
            ("provder", "provider"),
            ("Model", "model"),
            ("spend.dayly", "spend.daily"),
            ("daily", "spend.daily"),
            ("agents.overrides", "agents.provider_overrides"),
            ("providers.openai.apikey", "providers.openai.api_key"),
            ("providers.gemini.url", "providers.gemini.base_url"),
            ("prices.openai/m-1.5.inputs", "prices.openai/m-1.5.input"),
        ] {
            assert_eq!(did_you_mean(name), format!("; did you mean {nearest}?"), "{name}");
        }
        assert_eq!(nearest_provider("antropic"), "anthropic");
    }
}
