//! Which file a model's name means. A client names models by name only; a path comes from the operator's
//! flag or config, and is known under the name of its file from then on.

use std::path::{Path, PathBuf};

use tns_server_core::engine::OpenError;

use crate::config::LocalModels;
use crate::http::one_line;
use crate::model_files::ModelName;
use crate::provider::Asker;

/// Most characters of a name in a message.
const SHOWN: usize = 64;

/// A model file that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// What the model is called.
    pub(super) name: String,
    pub(super) path: PathBuf,
}

/// Finds the file of a model; without a name, the only one there is.
///
/// # Errors
/// [`OpenError`] that names the models there are.
pub(super) fn find(models: &LocalModels, asked: Option<&str>, asker: Asker) -> Result<Found, OpenError> {
    let Some(asked) = asked else { return only(models) };
    let from_operator = operators(models);
    if asker == Asker::Operator && is_path(asked) {
        return operators_file(asked);
    }
    // The default is opened again by its name, and must stay the operator's file.
    let bare = asked.strip_suffix(".gguf").unwrap_or(asked);
    if let Some(found) = from_operator.filter(|found| found.name == bare) {
        return Ok(found);
    }
    let name = ModelName::parse(asked).map_err(|error| {
        let asked = one_line(asked, SHOWN);
        OpenError(format!("{asked} names no local model: {error}; {}", told(models)))
    })?;
    let path = models.files.as_ref().map(|files| files.path(&name)).filter(|path| path.is_file());
    match path {
        Some(path) => Ok(Found { name: name.to_string(), path }),
        None => Err(OpenError(format!("there is no local model {name}; {}", told(models)))),
    }
}

/// Whether the operator means a file rather than a name.
fn is_path(asked: &str) -> bool {
    asked.contains('/')
}

/// Returns the file that the operator's flag or config names, where it names one.
fn operators(models: &LocalModels) -> Option<Found> {
    models.named.as_deref().filter(|named| is_path(named)).and_then(|named| operators_file(named).ok())
}

fn operators_file(asked: &str) -> Result<Found, OpenError> {
    let path = Path::new(asked);
    let shown = one_line(asked, 200);
    if !path.is_absolute() {
        return Err(OpenError(format!("the model file {shown} must be named by its whole path, from / on")));
    }
    if !path.is_file() {
        return Err(OpenError(format!("the model file {shown} is not there")));
    }
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("model");
    Ok(Found { name: stem.to_owned(), path: path.to_owned() })
}

/// Returns the only model there is.
fn only(models: &LocalModels) -> Result<Found, OpenError> {
    let names = names(models);
    match (names.as_slice(), &models.files) {
        ([name], Some(files)) => Ok(Found { name: name.to_string(), path: files.path(name) }),
        ([], _) | (_, None) => Err(OpenError(told(models))),
        _ => Err(OpenError(format!("choose a local model with --model: {}", told(models)))),
    }
}

/// Says which models there are.
fn told(models: &LocalModels) -> String {
    let names = names(models);
    if names.is_empty() {
        return "there is no local model: get one with `tns models pull NAME`".to_owned();
    }
    let names: Vec<&str> = names.iter().map(ModelName::as_str).collect();
    format!("there are {}", one_line(&names.join(", "), 1_000))
}

fn names(models: &LocalModels) -> Vec<ModelName> {
    models.files.as_ref().and_then(|files| files.names().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::model_files::ModelFiles;

    fn folder(names: &[&str]) -> (tempfile::TempDir, LocalModels) {
        let data = tempfile::tempdir().unwrap();
        let files = ModelFiles::of(data.path());
        fs::create_dir(files.dir()).unwrap();
        for name in names {
            fs::write(files.dir().join(format!("{name}.gguf")), "").unwrap();
        }
        (data, LocalModels { files: Some(files), ..LocalModels::default() })
    }

    fn refused(models: &LocalModels, asked: Option<&str>, asker: Asker) -> String {
        find(models, asked, asker).unwrap_err().0
    }

    #[test]
    fn the_only_model_is_the_default_and_several_are_listed() {
        let (_data, none) = folder(&[]);
        assert_eq!(
            refused(&none, None, Asker::Operator),
            "there is no local model: get one with `tns models pull NAME`"
        );
        let (_data, one) = folder(&["smol"]);
        assert_eq!(find(&one, None, Asker::Client).unwrap().name, "smol");
        let (_data, two) = folder(&["smol", "qwen"]);
        assert_eq!(
            refused(&two, None, Asker::Client),
            "choose a local model with --model: there are qwen, smol"
        );
        assert_eq!(
            refused(&two, Some("lama"), Asker::Client),
            "there is no local model lama; there are qwen, smol"
        );
        assert_eq!(find(&two, Some("qwen.gguf"), Asker::Client).unwrap().name, "qwen");
    }

    #[test]
    fn only_the_operator_names_a_path_and_others_name_its_file() {
        let (data, mut models) = folder(&["smol"]);
        let outside = data.path().join("big.gguf");
        fs::write(&outside, "").unwrap();
        let path = outside.to_str().unwrap();
        let found = find(&models, Some(path), Asker::Operator).unwrap();
        assert_eq!(found, Found { name: "big".into(), path: outside.clone() });
        models.named = Some(path.to_owned());
        assert_eq!(find(&models, Some("big"), Asker::Client).unwrap(), found);
        fs::write(models.files.as_ref().unwrap().dir().join("big.gguf"), "").unwrap();
        assert_eq!(find(&models, Some("big"), Asker::Client).unwrap(), found);
        for sent in [path, "../big", "big.gguf/", "models/../../big", "/etc/passwd"] {
            let line = refused(&models, Some(sent), Asker::Client);
            assert!(line.contains("names no local model"), "{line}");
        }
        models.named = None;
        assert_ne!(find(&models, Some("big"), Asker::Client).unwrap(), found);
        assert!(refused(&models, Some("./big.gguf"), Asker::Operator).contains("whole path"));
        assert!(refused(&models, Some("/none/x.gguf"), Asker::Operator).ends_with("is not there"));
    }
}
