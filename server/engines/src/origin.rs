//! Where a value came from, so that a choice can be explained and a wrong key be found. No IO here.

use std::fmt;
use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};

/// What sets a value, weakest first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Nobody: it is the program's own.
    Default,
    /// The system keyring.
    Keyring,
    /// A config file, by its path as it is shown to people.
    File(Arc<str>),
    /// An environment variable, by its name.
    Variable(String),
    /// An option of the command line.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("the default"),
            Self::Keyring => f.write_str("the system keyring"),
            Self::File(path) => f.write_str(path),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(option) => f.write_str(option),
        }
    }
}

impl Origin {
    /// Names the place where a setting can be changed: the variable or the option itself, `key` in a file.
    pub fn place(&self, key: &str) -> String {
        match self {
            Self::Default | Self::Variable(_) | Self::Flag(_) => self.to_string(),
            Self::Keyring => format!("{key} in the system keyring"),
            Self::File(path) => format!("{key} in {path}"),
        }
    }
}

/// A value and what set it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// What set it.
    pub origin: Origin,
}

impl<T> Sourced<T> {
    /// Makes another value of it, from the same source.
    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> Sourced<U> {
        Sourced { value: make(self.value), origin: self.origin }
    }
}

/// A provider's key, which no text shows, and what set it.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    secret: SecretString,
    pub(crate) origin: Origin,
}

impl Key {
    pub(crate) fn new(secret: SecretString, origin: Origin) -> Self {
        Self { secret, origin }
    }

    /// Makes a key as a variable would set it.
    #[cfg(test)]
    pub(crate) fn of_test(secret: &str) -> Self {
        Self::new(secret.into(), Origin::Variable("OPENAI_API_KEY".into()))
    }
}

impl ExposeSecret<str> for Key {
    fn expose_secret(&self) -> &str {
        self.secret.expose_secret()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stronger_source_sorts_behind_a_weaker_one_and_each_names_its_place() {
        let sources = [
            (Origin::Default, "the default"),
            (Origin::Keyring, "model in the system keyring"),
            (Origin::File("~/c.toml".into()), "model in ~/c.toml"),
            (Origin::Variable("TNS_MODEL".into()), "TNS_MODEL"),
            (Origin::Flag("--model"), "--model"),
        ];
        assert!(sources.is_sorted_by(|weak, strong| weak.0 < strong.0));
        for (origin, place) in sources {
            assert_eq!(origin.place("model"), place);
        }
    }

    #[test]
    fn a_key_is_not_in_its_debug_text() {
        let key = Key::new("test-key-123".into(), Origin::Keyring);
        assert_eq!(key.expose_secret(), "test-key-123");
        assert!(!format!("{key:?}").contains("test-key-123"));
    }
}
