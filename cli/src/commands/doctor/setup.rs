//! What the user set up: the config file, the keys, the engine that follows from both.

use tns_server::{
    Catalogue, CatalogueError, EngineChoice, EngineErrorKind, Origin, PROVIDERS, base_url_variable,
    choose_engine, key_variable,
};

use super::Check;
use crate::Context;
use crate::config::{Config, Place, keyring};
use crate::exit::Stop;

const FILE: &str = "config file";
const KEYRING: &str = "keyring";
const ENGINE: &str = "engine";

/// Checks the settings. Where the file can't be used, the rest is checked without it.
pub(super) async fn check(context: &Context, online: bool, checks: &mut Vec<Check>) {
    let place = match Place::find(context.globals.config.as_deref()) {
        Ok(place) => place,
        Err(stop) => return checks.push(failed(FILE, &stop)),
    };
    let shown = &place.shown;
    let (file, config) = match place.read() {
        Ok(Some(_)) => {
            let file = Check::ok(FILE, format!("{shown} is well-formed and private"));
            (file, Config::load(&context.globals, EngineChoice::default()))
        }
        Ok(None) => {
            let file = Check::ok(FILE, format!("{shown} is not there; the defaults hold"));
            (file, Config::load(&context.globals, EngineChoice::default()))
        }
        Err(stop) => (failed(FILE, &stop), Config::without_file(place)),
    };
    checks.push(file);
    let config = match config {
        Ok(config) => config,
        Err(stop) => return checks.push(failed("environment", &stop)),
    };
    check_keys(&config, checks).await;
    if online {
        check_online(&config, checks).await;
    }
    let label = choose_engine(&config.engines).await;
    checks.push(match label {
        Ok(label) => {
            let what = format!("{}, model {}: {}", label.provider, label.model, label.reason);
            if label.provider == "offline" && config.engines.provider().is_none() {
                Check::warn(ENGINE, what, "set a provider's key, or start Ollama, for answers of a model")
            } else {
                Check::ok(ENGINE, what)
            }
        }
        Err(error) => Check::fail(
            ENGINE,
            error.to_string(),
            "or name another with TNS_PROVIDER, or none for the default",
        ),
    });
}

async fn check_keys(config: &Config, checks: &mut Vec<Check>) {
    config.engines.look_for_keys().await;
    let before = checks.len();
    let mut held = 0;
    for provider in PROVIDERS.iter().filter(|provider| provider.takes_key()) {
        let Some(origin) = config.key(provider) else { continue };
        let name = format!("key of {}", provider.id);
        held += usize::from(origin == Origin::Keyring);
        let place = origin.place(&format!("providers.{}.api_key", provider.id));
        checks.push(if config.engines.base_url(provider).is_some() {
            Check::ok(name, format!("set: {place}"))
        } else {
            let fix = format!("set {} too", base_url_variable(provider.id));
            Check::warn(name, format!("set ({place}), but no address to send it to"), fix)
        });
    }
    let announced = keyring().is_announced();
    if checks.len() == before {
        checks.push(Check::ok("keys", "none is set"));
    }
    checks.push(match config.engines.key_store_trouble() {
        Some(trouble) => {
            let example = key_variable("openai");
            Check::warn(KEYRING, trouble, format!("unlock it, or set keys by variables such as {example}"))
        }
        None if !announced => {
            Check::ok(KEYRING, "this session has none; keys come from variables or the file")
        }
        None => Check::ok(KEYRING, format!("asked; it holds {held} of the keys above")),
    });
}

/// Asks each provider that has a key, and an address to send it to, whether it takes it.
async fn check_online(config: &Config, checks: &mut Vec<Check>) {
    let catalogue = Catalogue::new(config.engines.clone());
    for provider in PROVIDERS.iter().filter(|provider| config.key(provider).is_some()) {
        if config.engines.base_url(provider).is_none() {
            continue;
        }
        let name = format!("{} online", provider.id);
        let fix = format!("`tns providers show {}` tells where to get a key", provider.id);
        checks.push(match catalogue.validate(provider.id, None).await {
            Ok(check) => Check::ok(name, format!("it takes the key; credit: {}", check.credit.as_str())),
            // The key may be well: who is asked is not.
            Err(CatalogueError::Provider(error))
                if matches!(error.kind, EngineErrorKind::Unavailable | EngineErrorKind::RateLimited) =>
            {
                Check::warn(name, error.to_string(), "try again later")
            }
            Err(error) => Check::fail(name, error.to_string(), fix),
        });
    }
}

/// Tells a fault whose words say already what mends it.
fn failed(name: &str, stop: &Stop) -> Check {
    let text = stop.to_string();
    match text.split_once("; ") {
        Some((detail, fix)) => Check::fail(name, detail, fix),
        None => Check::fail(name, text, "mend that and run tns doctor again"),
    }
}
