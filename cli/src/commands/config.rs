//! `tns config`: what is set, what set it, and where keys are kept. No key is ever shown, nor a part of one.

mod key;

use anyhow::Context as _;
use clap::Subcommand;
use serde::Serialize;
use tns_server::{EngineChoice, Origin, PROVIDERS};

use crate::config::{Config, Entry, Named, Place, Shown, did_you_mean};
use crate::exit::Stop;
use crate::{Context, logging, server};

/// Show the settings and what set them, and store keys
///
/// Settings come from the config file, then from the environment, then from options; the later one wins.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print where the config file is
    Path,
    /// List every setting, its value and what set it
    Show,
    /// Tell what a setting does, its value, and what sets it
    Explain {
        /// The setting, such as provider or providers.openai.api_key
        #[arg(value_name = "KEY")]
        name: String,
    },
    /// Store a provider's key, or remove it
    Key(key::Args),
}

/// A setting as JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Setting<'a> {
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<serde_json::Value>,
    /// A key has no value to show, only this.
    set: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<Source<'a>>,
}

/// What set a value, as JSON.
#[derive(Serialize)]
struct Source<'a> {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
}

impl<'a> Source<'a> {
    fn of(origin: &'a Origin) -> Self {
        let (kind, name) = match origin {
            Origin::Default => ("default", None),
            Origin::Keyring => ("keyring", None),
            Origin::File(path) => ("file", Some(&**path)),
            Origin::Variable(name) => ("variable", Some(name.as_str())),
            Origin::Flag(option) => ("flag", Some(*option)),
        };
        Self { kind, name }
    }
}

impl<'a> Setting<'a> {
    fn of(entry: &'a Entry) -> Self {
        let value = entry.value.as_ref().and_then(|value| match &value.value {
            Shown::Text(text) => Some(text.as_str().into()),
            Shown::Number(number) => Some((*number).into()),
            Shown::Secret => None,
        });
        let origin = entry.value.as_ref().map(|value| Source::of(&value.origin));
        Self { key: &entry.name, value, set: origin.is_some(), origin }
    }
}

pub(crate) fn run(args: Args, context: &Context) -> anyhow::Result<()> {
    logging::start(context, logging::Unasked::Nothing)?;
    match args.action {
        Action::Path => path(context),
        Action::Show => show(context),
        Action::Explain { name } => explain(&name, context),
        Action::Key(args) => key::run(args, context),
    }
}

fn path(context: &Context) -> anyhow::Result<()> {
    let place = Place::find(context.globals.config.as_deref())?;
    let path = place.path.to_str().context("show a path that is not UTF-8")?;
    if context.out.json {
        return context.out.json(&serde_json::json!({ "path": path, "exists": place.path.exists() }));
    }
    context.out.data(&format!("{path}\n"))
}

fn load(context: &Context) -> anyhow::Result<Config> {
    let config = Config::load(&context.globals, EngineChoice::default())?;
    server::block_on(async {
        config.engines.look_for_keys().await;
        Ok(())
    })?;
    if let Some(trouble) = config.engines.key_store_trouble() {
        context.out.note(trouble);
    }
    Ok(config)
}

fn show(context: &Context) -> anyhow::Result<()> {
    let config = load(context)?;
    let entries = config.entries();
    if context.out.json {
        let values: Vec<Setting<'_>> = entries.iter().map(Setting::of).collect();
        let (path, exists) = (&config.place.path, config.has_file);
        return context.out.json(&serde_json::json!({
            "path": path.to_string_lossy(), "exists": exists, "values": values,
        }));
    }
    let there = if config.has_file { "" } else { " (not there)" };
    context.out.note(&format!("config file {}{there}", config.place.shown));
    context.out.data(&table(&entries))
}

fn table(entries: &[Entry]) -> String {
    let rows: Vec<[String; 3]> = entries
        .iter()
        .map(|entry| match &entry.value {
            Some(value) => [entry.name.clone(), text(&value.value), value.origin.to_string()],
            None => [entry.name.clone(), "-".into(), "not set".into()],
        })
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (names, values) = (width(0), width(1));
    rows.iter().map(|[name, value, origin]| format!("{name:names$}  {value:values$}  {origin}\n")).collect()
}

fn text(value: &Shown) -> String {
    match value {
        Shown::Text(text) => text.clone(),
        Shown::Number(number) => number.to_string(),
        Shown::Secret => "set".into(),
    }
}

fn explain(name: &str, context: &Context) -> anyhow::Result<()> {
    let named = Named::find(name)
        .ok_or_else(|| Stop::usage(format!("there is no key {name}{}", did_you_mean(name))))?;
    let entry = load(context)?.entries().into_iter().find(|entry| entry.name == named.name);
    let entry = entry.unwrap_or(Entry { name: named.name.clone(), value: None });
    let (variable, flag) = (named.variable(), named.flag());
    if context.out.json {
        let mut setting = serde_json::to_value(Setting::of(&entry)).context("write the answer as JSON")?;
        setting["meaning"] = named.known.meaning.into();
        setting["variable"] = variable.into();
        setting["flag"] = flag.into();
        return context.out.json(&setting);
    }
    let value = match &entry.value {
        Some(value) => format!("{} ({})", text(&value.value), value.origin),
        None => "not set".into(),
    };
    let mut sources = vec![format!("{} in the config file", named.name)];
    sources.extend(variable);
    sources.extend(flag.map(str::to_owned));
    if named.is_secret() {
        sources.insert(0, "the system keyring".into());
    }
    let sources = sources.join(" < ");
    context.out.data(&format!(
        "{}: {}\nvalue: {value}\nset by, weakest first: {sources}\n",
        named.name, named.known.meaning
    ))
}

/// Returns the ids of the providers that could use a key, as a person reads them.
fn takers() -> String {
    let ids: Vec<_> = PROVIDERS.iter().filter(|row| row.takes_key()).map(|row| row.id).collect();
    ids.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_that_could_use_a_key_are_named() {
        let listed = takers();
        assert!(listed.contains("openai") && !listed.contains("offline"), "{listed}");
    }

    #[test]
    fn columns_stand_below_each_other() {
        let entry = |name: &str, value| Entry {
            name: name.into(),
            value: Some(tns_server::Sourced { value, origin: Origin::Variable("V".into()) }),
        };
        let entries = [entry("a", Shown::Secret), entry("long", Shown::Number(1.5))];
        assert_eq!(table(&entries), "a     set  V\nlong  1.5  V\n");
    }
}
