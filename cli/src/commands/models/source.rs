//! Where a model comes from: what the user wrote, and what it means. Pure; nothing in it reaches out.

use std::path::{Path, PathBuf};

use reqwest::Url;
use serde::Deserialize;
use tns_server::ModelName;

use crate::exit::{Exit, Stop};

/// Ollama's registry, where no other is set.
const REGISTRY: &str = "https://registry.ollama.ai";
/// Hugging Face, where no other is set.
const HUB: &str = "https://huggingface.co";
/// Whose models have a name alone.
const LIBRARY: &str = "library";
/// The tag where none is named.
const TAG: &str = "latest";
/// The layer that holds the weights.
const MODEL_LAYER: &str = "application/vnd.ollama.image.model";
/// Longest part of a name.
const MAX_PART: usize = 128;
/// Endings that are no part of a model's name.
const ENDS: [&str; 3] = [".gguf", ".zip", ".whl"];

/// Where to look, as the environment sets it.
#[derive(Debug, Clone)]
pub(super) struct Places {
    pub(super) registry: String,
    pub(super) hub: String,
}

impl Places {
    /// Reads `TNS_MODELS_REGISTRY` and `HF_ENDPOINT`.
    pub(super) fn from_env(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str, usual: &str| {
            let value = variable(name).map(|value| value.trim().trim_end_matches('/').to_owned());
            value.filter(|value| !value.is_empty()).unwrap_or_else(|| usual.to_owned())
        };
        Self { registry: set("TNS_MODELS_REGISTRY", REGISTRY), hub: set("HF_ENDPOINT", HUB) }
    }
}

/// Where a model comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// A file of this machine.
    File(PathBuf),
    /// A file behind an address; `linked`: its answer may tell the digest.
    Url { url: Url, linked: bool },
    /// A model of a registry.
    Registry(Registered),
}

/// A model of a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Registered {
    base: Url,
    owner: String,
    name: String,
    tag: String,
    /// The name as it was written, without an owner.
    called: String,
}

/// The weights of a registered model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Blob {
    pub(super) url: Url,
    pub(super) sha256: String,
    pub(super) bytes: u64,
}

impl Source {
    /// Reads what the user wrote.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(text: &str, places: &Places) -> Result<Self, Stop> {
        if text.contains("://") {
            return Ok(Self::Url { url: address(text)?, linked: false });
        }
        if let Some(rest) = text.strip_prefix("hf.co/").or_else(|| text.strip_prefix("huggingface.co/")) {
            return Ok(Self::Url { url: on_hub(rest, &places.hub)?, linked: true });
        }
        if Path::new(text).is_file() {
            return Ok(Self::File(text.into()));
        }
        if text.starts_with(['/', '.', '~']) || text.ends_with(".gguf") {
            return Err(Stop::new(Exit::NotFound, format!("there is no file {text}")));
        }
        registered(text, &places.registry).map(Self::Registry)
    }

    /// Returns the name that the model gets where the user gives none.
    ///
    /// # Errors
    /// When it would be none that models have.
    pub(super) fn name(&self) -> Result<ModelName, Stop> {
        let text = match self {
            Self::File(path) => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            Self::Url { url, .. } => {
                url.path_segments().and_then(|mut parts| parts.next_back()).unwrap_or_default().to_owned()
            }
            Self::Registry(registered) => registered.called.clone(),
        };
        named(&text)
    }
}

/// Returns the name of a model after its file.
///
/// # Errors
/// When it would be none that models have.
pub(super) fn named(file: &str) -> Result<ModelName, Stop> {
    let name = ENDS.iter().find_map(|end| file.strip_suffix(end)).unwrap_or(file);
    ModelName::parse(name).map_err(|error| Stop::usage(format!("give it a name with --name: {error}")))
}

fn address(text: &str) -> Result<Url, Stop> {
    match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(url),
        Ok(_) | Err(_) => Err(Stop::usage(format!("{text} is no http or https address"))),
    }
}

fn is_part(part: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !part.is_empty() && part.len() <= MAX_PART && part.bytes().all(fits) && !part.starts_with('.')
}

fn on_hub(rest: &str, hub: &str) -> Result<Url, Stop> {
    let parts: Vec<&str> = rest.split('/').collect();
    match parts.as_slice() {
        [owner, repository, file @ ..] if !file.is_empty() && parts.iter().all(|part| is_part(part)) => {
            address(&format!("{hub}/{owner}/{repository}/resolve/main/{}", file.join("/")))
        }
        _ => Err(Stop::usage(format!(
            "hf.co/{rest} names no file; write hf.co/OWNER/REPOSITORY/FILE.gguf, as the list of the repository's \
             files shows it"
        ))),
    }
}

fn registered(text: &str, base: &str) -> Result<Registered, Stop> {
    let (path, tag) = text.split_once(':').unwrap_or((text, TAG));
    let (owner, name) = path.split_once('/').unwrap_or((LIBRARY, path));
    if ![owner, name, tag].iter().all(|part| is_part(part)) {
        return Err(Stop::usage(format!(
            "{text} is neither a file nor an address nor the name of a model, such as smollm2:135m"
        )));
    }
    let called = text.rsplit('/').next().unwrap_or(text).to_owned();
    let [owner, name, tag] = [owner, name, tag].map(str::to_owned);
    Ok(Registered { base: address(base)?, owner, name, tag, called })
}

/// What of a manifest is needed.
#[derive(Debug, Deserialize)]
struct Manifest {
    #[serde(default)]
    layers: Vec<Layer>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Layer {
    media_type: String,
    digest: String,
    size: u64,
}

impl Registered {
    /// Returns where the manifest is.
    pub(super) fn manifest(&self) -> Url {
        self.below(&["manifests", &self.tag])
    }

    /// Finds the weights in a manifest.
    ///
    /// # Errors
    /// When it names none, or more than one file.
    pub(super) fn blob(&self, manifest: &str) -> Result<Blob, Stop> {
        let strange = |what: &str| Stop::new(Exit::Failed, format!("the manifest of {} {what}", self.called));
        let manifest: Manifest = serde_json::from_str(manifest).map_err(|_| strange("can't be read"))?;
        let mut layers = manifest.layers.into_iter().filter(|layer| layer.media_type == MODEL_LAYER);
        let (Some(layer), None) = (layers.next(), layers.next()) else {
            return Err(strange("does not name one file of weights, which is what can be used here"));
        };
        let sha256 = layer.digest.strip_prefix("sha256:").and_then(digest);
        let sha256 = sha256.ok_or_else(|| strange("names its file by no sha256"))?;
        let url = self.below(&["blobs", &format!("sha256:{sha256}")]);
        Ok(Blob { url, sha256, bytes: layer.size })
    }

    fn below(&self, parts: &[&str]) -> Url {
        let mut url = self.base.clone();
        let path = [&["v2", &self.owner, &self.name], parts].concat().join("/");
        url.set_path(&format!("{}/{path}", self.base.path().trim_end_matches('/')));
        url
    }
}

/// Reads a sha256 as it is mostly written: 64 hexadecimal digits.
pub(super) fn digest(text: &str) -> Option<String> {
    let text = text.trim().trim_matches('"');
    (text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> Places {
        Places::from_env(|_| None)
    }

    fn read(text: &str) -> Result<Source, Stop> {
        Source::read(text, &places())
    }

    #[test]
    fn names_are_looked_up_in_the_registry() {
        for (text, path, called) in [
            ("smollm2", "/v2/library/smollm2/manifests/latest", "smollm2"),
            ("smollm2:135m", "/v2/library/smollm2/manifests/135m", "smollm2:135m"),
            ("someone/m.1:q4_0", "/v2/someone/m.1/manifests/q4_0", "m.1:q4_0"),
        ] {
            let Ok(Source::Registry(registered)) = read(text) else { panic!("{text}") };
            assert_eq!(registered.manifest().as_str(), format!("https://registry.ollama.ai{path}"));
            assert_eq!(Source::Registry(registered).name().unwrap().as_str(), called);
        }
    }

    #[test]
    fn the_places_can_be_set() {
        let places = Places::from_env(|name| match name {
            "TNS_MODELS_REGISTRY" => Some("http://127.0.0.1:1/a/ ".into()),
            _ => Some(String::new()),
        });
        let Ok(Source::Registry(registered)) = Source::read("m", &places) else { panic!() };
        assert_eq!(registered.manifest().as_str(), "http://127.0.0.1:1/a/v2/library/m/manifests/latest");
        assert_eq!(places.hub, HUB);
    }

    #[test]
    fn files_of_the_hub_have_their_address() {
        let Ok(Source::Url { url, linked: true }) = read("hf.co/org/repo-GGUF/model-Q4_K_M.gguf") else {
            panic!()
        };
        assert_eq!(url.as_str(), "https://huggingface.co/org/repo-GGUF/resolve/main/model-Q4_K_M.gguf");
        let Ok(Source::Url { url, .. }) = read("huggingface.co/org/repo/sub/m.gguf") else { panic!() };
        assert_eq!(url.path(), "/org/repo/resolve/main/sub/m.gguf");
        for bad in ["hf.co/org/repo", "hf.co/org/../x.gguf", "hf.co//repo/x.gguf", "hf.co/o/r/a b.gguf"] {
            assert!(read(bad).unwrap_err().to_string().contains("names no file"), "{bad}");
        }
    }

    #[test]
    fn what_is_none_of_these_is_refused() {
        for bad in ["", "a/b/c", "ftp://h/x.gguf", "http://", "a:b:c", "-x/..", "a b", "file:///etc/passwd"] {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert!(read("./no.gguf").unwrap_err().to_string().contains("no file ./no.gguf"));
        let Ok(source) = read("https://h/files/llm_x-0.1-py3-none-any.whl?download=1") else { panic!() };
        assert_eq!(source.name().unwrap().as_str(), "llm_x-0.1-py3-none-any");
        let Ok(source) = read("https://h/a%20b.gguf") else { panic!() };
        assert!(source.name().unwrap_err().to_string().starts_with("give it a name with --name"));
    }

    #[test]
    fn a_manifest_names_one_file_by_its_digest() {
        let Ok(Source::Registry(registered)) = read("m:1") else { panic!() };
        let hex = "AB".repeat(32);
        let layer = |kind: &str, digest: &str| {
            format!(
                "{{\"mediaType\":\"application/vnd.ollama.image.{kind}\",\"digest\":\"{digest}\",\"size\":7}}"
            )
        };
        let manifest =
            |layers: &[String]| format!("{{\"schemaVersion\":2,\"layers\":[{}]}}", layers.join(","));
        let good = layer("model", &format!("sha256:{hex}"));
        let blob = registered.blob(&manifest(&[layer("license", "x"), good.clone()])).unwrap();
        let hex = hex.to_ascii_lowercase();
        let url = format!("https://registry.ollama.ai/v2/library/m/blobs/sha256:{hex}");
        assert_eq!(blob, Blob { url: Url::parse(&url).unwrap(), sha256: hex, bytes: 7 });
        for bad in [
            "<html>".to_owned(),
            manifest(&[]),
            manifest(&[layer("tensor", "x")]),
            manifest(&[good.clone(), good]),
            manifest(&[layer("model", "sha256:../../x")]),
            manifest(&[layer("model", "md5:00")]),
        ] {
            assert!(registered.blob(&bad).is_err(), "{bad}");
        }
    }
}
