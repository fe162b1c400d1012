//! `tns providers`: who serves models, whether their keys work, which models and voices they have. A key
//! that is to be checked is read from a pipe and told to the server alone.

mod check;
mod table;

use std::io::{self, IsTerminal, Read};

use anyhow::Context as _;
use clap::Subcommand;
use tns_client::{ClientError, Rest};
use tns_protocol::provider::{ModelInfo, ModelKind, ProviderInfo, VoiceInfo};

use crate::commands::providers::table::table;
use crate::exit::{Exit, Stop};
use crate::server::{EngineNeed, Launch};
use crate::{Context, logging, server};

/// Longest key that is read, in bytes, newline included; the server takes fewer.
const MAX_KEY_BYTES: u64 = 8 << 10;
/// The status of a provider that is not set up.
const NOT_SET_UP: u16 = 409;

/// List providers, check their keys, and show their models and voices
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the providers: id, state, kinds of models, what it is
    List,
    /// Show one provider, and where to get a key
    Show {
        /// The provider's id
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Check keys: tells a bad key, an empty account and an outage apart
    ///
    /// Where a provider is paid by the token, a check pays for the smallest step there is, of its cheapest
    /// model: far less than a hundredth of a cent.
    Check {
        /// The providers' ids; all that are set up when absent
        #[arg(value_name = "ID")]
        ids: Vec<String>,
        /// Check the key on standard input instead of the one that is set up
        #[arg(long, requires = "ids")]
        key_stdin: bool,
    },
    /// List a provider's models: kind, id, tokens read at once, whether it sees pictures
    ///
    /// A star marks the one to take of each kind. Lists are kept for a day.
    Models {
        /// The provider's id
        #[arg(value_name = "ID")]
        id: String,
    },
    /// List a provider's voices: id, kinds of models, name, description
    Voices {
        /// The provider's id
        #[arg(value_name = "ID")]
        id: String,
    },
}

pub(crate) fn run(args: Args, context: &Context) -> anyhow::Result<()> {
    logging::start(context, logging::Unasked::Nothing)?;
    let key = match &args.action {
        Action::Check { ids, key_stdin: true } => Some(read_key(ids)?),
        _ => None,
    };
    let launch = Launch { engine: EngineNeed::Any, ..Launch::default() };
    server::interruptible(context, launch, async |attached| {
        let rest = attached.rest()?;
        match args.action {
            Action::List => list(context, &rest).await,
            Action::Show { id } => show(context, &rest, &id).await,
            Action::Check { ids, .. } => check::check(context, &rest, ids, key).await,
            Action::Models { id } => models(context, &rest, &id).await,
            Action::Voices { id } => voices(context, &rest, &id).await,
        }
    })
}

/// Reads the key that a pipe holds.
fn read_key(ids: &[String]) -> anyhow::Result<String> {
    let [id] = ids else {
        return Err(Stop::usage("--key-stdin checks one key: name one provider").into());
    };
    if io::stdin().is_terminal() {
        // It would be shown while it is typed.
        let example = format!("tns providers check {id} --key-stdin < key.txt");
        return Err(Stop::usage(format!("--key-stdin reads a pipe or a file, such as `{example}`")).into());
    }
    let mut key = String::new();
    io::stdin().lock().take(MAX_KEY_BYTES).read_to_string(&mut key).context("read the key")?;
    match key.trim() {
        "" => Err(Stop::usage("there is no key on standard input").into()),
        key => Ok(key.to_owned()),
    }
}

/// Makes wrong configuration of a provider that is not set up.
fn told(error: ClientError) -> anyhow::Error {
    match error {
        ClientError::Refused { status: NOT_SET_UP, message, .. } => Stop::usage(message).into(),
        error => error.into(),
    }
}

async fn list(context: &Context, rest: &Rest) -> anyhow::Result<()> {
    let list = rest.providers().await.context("list the providers")?;
    if context.out.json {
        return context.out.json(&list);
    }
    let rows = list.providers.iter().map(|provider| {
        [provider.id.clone(), state(provider), kinds(&provider.kinds), provider.blurb.clone()]
    });
    context.out.data(&table(rows))
}

async fn show(context: &Context, rest: &Rest, id: &str) -> anyhow::Result<()> {
    let providers = rest.providers().await.context("list the providers")?.providers;
    let Some(provider) = providers.iter().find(|provider| provider.id == id) else {
        let known: Vec<&str> = providers.iter().map(|provider| provider.id.as_str()).collect();
        let message = format!("there is no provider {id}; there are {}", known.join(", "));
        return Err(Stop::new(Exit::NotFound, message).into());
    };
    if context.out.json {
        return context.out.json(provider);
    }
    context.out.data(&table(facts(provider)))
}

fn facts(provider: &ProviderInfo) -> Vec<[String; 2]> {
    let mut facts = vec![
        ("provider", provider.id.clone()),
        ("name", provider.name.clone()),
        ("about", provider.blurb.clone()),
        ("offers", kinds(&provider.kinds)),
        ("state", state(provider)),
    ];
    if let Some(page) = &provider.key_page {
        let begins = provider.key_prefix.as_ref().map(|prefix| format!(" (they begin with {prefix})"));
        facts.push(("keys", format!("{page}{}", begins.unwrap_or_default())));
    }
    let set = [&provider.key_variable, &provider.base_url_variable];
    facts.extend(set.into_iter().flatten().map(|variable| ("set by", variable.clone())));
    facts.extend(provider.default_model.iter().map(|model| ("model", model.clone())));
    facts.into_iter().map(|(name, value)| [name.to_owned(), value]).collect()
}

async fn models(context: &Context, rest: &Rest, id: &str) -> anyhow::Result<()> {
    let list = rest.provider_models(id).await.map_err(told)?;
    if context.out.json {
        return context.out.json(&list);
    }
    if list.models.is_empty() {
        context.out.note(&format!("{id} lists no model"));
    }
    context.out.data(&table(list.models.iter().map(model_row)))
}

fn model_row(model: &ModelInfo) -> [String; 5] {
    let sees = match model.accepts_images {
        Some(true) => "pictures",
        Some(false) => "-",
        None => "?",
    };
    [
        model.kind.as_str().to_owned(),
        if model.recommended { "*".to_owned() } else { String::new() },
        model.id.clone(),
        model.context_window.map_or_else(|| "?".to_owned(), |tokens| tokens.to_string()),
        sees.to_owned(),
    ]
}

async fn voices(context: &Context, rest: &Rest, id: &str) -> anyhow::Result<()> {
    let list = rest.provider_voices(id).await.map_err(told)?;
    if context.out.json {
        return context.out.json(&list);
    }
    if list.voices.is_empty() {
        context.out.note(&format!("{id} has no voices"));
    }
    context.out.data(&table(list.voices.iter().map(voice_row)))
}

fn voice_row(voice: &VoiceInfo) -> [String; 5] {
    [
        if voice.recommended { "*".to_owned() } else { String::new() },
        voice.id.clone(),
        kinds(&voice.kinds),
        voice.name.clone(),
        voice.description.clone().unwrap_or_default(),
    ]
}

fn state(provider: &ProviderInfo) -> String {
    match &provider.configured_by {
        Some(setting) => format!("set up by {setting}"),
        None if provider.configured => "needs no set-up".to_owned(),
        // Nothing could set it up.
        None if provider.key_variable.is_none() && provider.base_url_variable.is_none() => {
            "not in this build".to_owned()
        }
        None => "not set up".to_owned(),
    }
}

fn kinds(kinds: &[ModelKind]) -> String {
    kinds.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider() -> ProviderInfo {
        ProviderInfo {
            id: "openai".into(),
            name: "OpenAI".into(),
            blurb: "The GPT models".into(),
            kinds: vec![ModelKind::Text, ModelKind::Tts],
            configured: true,
            configured_by: Some("OPENAI_API_KEY".into()),
            key_variable: Some("OPENAI_API_KEY".into()),
            base_url_variable: Some("PROVIDER_BASE_URL_OPENAI".into()),
            key_page: Some("https://platform.openai.com/api-keys".into()),
            key_prefix: Some("sk-".into()),
            default_model: Some("gpt-6.2-sol".into()),
        }
    }

    #[test]
    fn a_provider_is_shown_with_what_makes_it_usable() {
        insta::assert_snapshot!(table(facts(&provider())), @r"
        provider  openai
        name      OpenAI
        about     The GPT models
        offers    text,tts
        state     set up by OPENAI_API_KEY
        keys      https://platform.openai.com/api-keys (they begin with sk-)
        set by    OPENAI_API_KEY
        set by    PROVIDER_BASE_URL_OPENAI
        model     gpt-6.2-sol
        ");
        let bare = ProviderInfo { configured_by: None, ..provider() };
        assert_eq!(state(&bare), "needs no set-up");
        let unset = ProviderInfo { configured: false, ..bare };
        assert_eq!(state(&unset), "not set up");
        let absent = ProviderInfo { key_variable: None, base_url_variable: None, ..unset };
        assert_eq!(state(&absent), "not in this build");
    }

    #[test]
    fn models_stand_in_columns_and_the_one_to_take_is_marked() {
        let model = |id: &str, kind, recommended, context_window, accepts_images| ModelInfo {
            id: id.into(),
            name: None,
            kind,
            recommended,
            context_window,
            accepts_images,
        };
        let rows = [
            model("gpt-6.2-sol", ModelKind::Text, true, Some(1_050_000), Some(true)),
            model("gpt-4", ModelKind::Text, false, None, Some(false)),
            model("text-embedding-3-small", ModelKind::Embedding, true, None, None),
        ];
        insta::assert_snapshot!(table(rows.iter().map(model_row)), @r"
        text       *  gpt-6.2-sol             1050000  pictures
        text          gpt-4                   ?        -
        embedding  *  text-embedding-3-small  ?        ?
        ");
    }
}
