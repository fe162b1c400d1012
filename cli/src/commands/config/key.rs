//! `tns config key`: puts a provider's key where only its owner finds it. It comes from standard input, so
//! that it stands in no history and in no list of processes.

use std::io::{self, IsTerminal, Read};

use anyhow::Context as _;
use clap::Subcommand;
use secrecy::SecretString;
use secrecy::zeroize::Zeroizing;
use tns_server::{PROVIDERS, key_variable};

use crate::config::{MAX_KEY_BYTES, Place, check_key, edit, keyring, provider_id};
use crate::exit::{Exit, Stop};
use crate::keyring::Trouble;
use crate::{Context, terminal};

/// What `tns config key` is asked for.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Store a provider's key, read from standard input, in the system keyring
    Set(Target),
    /// Remove a provider's key from the system keyring
    Rm(Target),
}

#[derive(Debug, clap::Args)]
struct Target {
    /// The provider, such as openai
    #[arg(value_name = "ID")]
    provider: String,
    /// Use the config file, for its owner only, instead of the keyring
    #[arg(long)]
    file: bool,
}

pub(crate) fn run(args: Args, context: &Context) -> anyhow::Result<()> {
    match args.action {
        Action::Set(target) => set(&target, context),
        Action::Rm(target) => remove(&target, context),
    }
}

/// Returns the id of a provider that could use a key.
fn id(name: &str) -> Result<&'static str, Stop> {
    let takes_key = |id: &&str| PROVIDERS.iter().any(|row| row.id == *id && row.takes_key());
    provider_id(name).filter(takes_key).ok_or_else(|| {
        Stop::usage(format!("{name} is no provider that takes a key; there are {}", super::takers()))
    })
}

fn set(target: &Target, context: &Context) -> anyhow::Result<()> {
    let provider = id(&target.provider)?;
    let place = Place::find(context.globals.config.as_deref())?;
    let key = read(provider, context)?;
    let stored = if target.file {
        place.rewrite(|text| edit::with_key(text, provider, &key))?;
        format!("{} (mode 600)", place.shown)
    } else {
        keyring().keep(provider, key).map_err(|trouble| refused(&trouble, provider))?;
        "the system keyring".to_owned()
    };
    context.out.note(&format!("the key of {provider} is in {stored}"));
    let variable = key_variable(provider);
    if std::env::var_os(&variable).is_some_and(|value| !value.is_empty()) {
        context.out.warn(&format!("{variable} is set and comes first"));
    } else if !target.file && in_file(&place, provider) {
        context.out.warn(&format!("another key of {provider} is in {} and comes first", place.shown));
    }
    Ok(())
}

fn remove(target: &Target, context: &Context) -> anyhow::Result<()> {
    let provider = id(&target.provider)?;
    let place = Place::find(context.globals.config.as_deref())?;
    let (removed, from) = if target.file {
        let mut removed = false;
        if in_file(&place, provider) {
            place.rewrite(|text| {
                let without = edit::without_key(text, provider)?;
                removed = without.is_some();
                Ok(without.unwrap_or_else(|| text.to_owned()))
            })?;
        }
        (removed, place.shown.clone())
    } else {
        let removed = match keyring().remove(provider) {
            Err(Trouble::Absent) => false,
            removed => removed.map_err(|trouble| refused(&trouble, provider))?,
        };
        (removed, "the system keyring".to_owned())
    };
    if !removed {
        let elsewhere =
            if !target.file && in_file(&place, provider) { "; the config file has one: --file" } else { "" };
        return Err(
            Stop::new(Exit::NotFound, format!("there is no key of {provider} in {from}{elsewhere}")).into()
        );
    }
    context.out.note(&format!("the key of {provider} is gone from {from}"));
    Ok(())
}

/// Whether the config file, if it can be read, holds a provider's key.
fn in_file(place: &Place, provider: &str) -> bool {
    let unnamed = Place { named: false, ..place.clone() };
    matches!(unnamed.read(), Ok(Some(values)) if values.keys.contains_key(provider))
}

fn refused(trouble: &Trouble, provider: &str) -> Stop {
    Stop::new(Exit::Failed, format!("{}; {}", trouble.describe(), trouble.fix(provider)))
}

/// Reads the key from standard input: a line that is not shown on a terminal, else all of it.
fn read(provider: &str, context: &Context) -> anyhow::Result<SecretString> {
    let text = if io::stdin().is_terminal() {
        let ask = || context.out.ask(&format!("key of {provider} (not shown): "));
        let line = terminal::hidden_line(MAX_KEY_BYTES, ask);
        context.out.ask("\n");
        match line.context("read the key")? {
            Some(line) => line,
            None => return Err(Stop::silent(Exit::Interrupted).into()),
        }
    } else {
        let mut text = Zeroizing::new(String::with_capacity(MAX_KEY_BYTES + 2));
        let limit = MAX_KEY_BYTES as u64 + 2;
        io::stdin().lock().take(limit).read_to_string(&mut text).context("read the key")?;
        text
    };
    let key = check_key(&text).map_err(|why| Stop::usage(format!("the key {why}")))?;
    Ok(key.into())
}
