//! `tns models`: the model files of this machine, which the provider `local` runs; and a pull into Ollama.

mod archive;
mod download;
mod ollama;
mod place;
mod pull;
mod source;
mod web;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Subcommand;
use serde::Serialize;
use tns_server::{ModelFile, ModelFiles, ModelName};

use crate::data_dir::DataDir;
use crate::exit::{Exit, Stop};
use crate::{Context, logging, server};

/// Get, list and remove local models
///
/// They are GGUF files in the data folder. `--provider local --model NAME` answers with one, in a tns that
/// was built with `--features local-llm`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Get a model and print its name
    ///
    /// NAME or NAME:TAG comes from Ollama's registry, hf.co/OWNER/REPOSITORY/FILE.gguf from Hugging Face. A URL may
    /// lead to a zip archive or a wheel with one model in it. What broke off goes on where it ended.
    ///
    /// With --ollama, NAME is one that `ollama pull` takes. The server is that of PROVIDER_BASE_URL_OLLAMA, else
    /// of the config file, else the one at 127.0.0.1:11434.
    Pull(pull::Args),
    /// List the models: name, size, network, longest conversation in tokens
    List,
    /// Remove a model
    Rm {
        /// The model's name
        #[arg(value_name = "NAME")]
        name: String,
    },
}

/// A model as `--json` prints it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    name: String,
    path: PathBuf,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    architecture: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<u64>,
    /// Why it can't be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// What `list --json` prints.
#[derive(Debug, Serialize)]
struct List {
    models: Vec<Listed>,
}

/// What `rm --json` prints.
#[derive(Debug, Serialize)]
struct Removed {
    name: String,
}

pub(crate) fn run(args: Args, context: &Context) -> anyhow::Result<()> {
    logging::start(context, logging::Unasked::Nothing)?;
    let data = DataDir::open(context.globals.data_dir.as_deref())?;
    let files = ModelFiles::of(data.path());
    match args.action {
        Action::Pull(args) => server::block_on(pull::run(args, context, &files)),
        Action::List => list(context, &files),
        Action::Rm { name } => remove(context, &files, &name),
    }
}

fn list(context: &Context, files: &ModelFiles) -> anyhow::Result<()> {
    let models = files.list().with_context(|| format!("read {}", files.dir().display()))?;
    let models: Vec<Listed> = models.into_iter().map(|file| listed(file, files)).collect();
    if context.out.json {
        return context.out.json(&List { models });
    }
    if models.is_empty() {
        context.out.note("there are none; `tns models pull NAME` gets one");
    }
    let mut text = String::new();
    for model in models {
        let (size, name) = (size(model.bytes), model.name);
        let about = match (model.problem, model.architecture, model.context) {
            (Some(problem), ..) => problem,
            (None, Some(architecture), Some(tokens)) => format!("{architecture}\t{tokens}"),
            (None, architecture, _) => architecture.unwrap_or_default(),
        };
        // Writing into a String can't fail.
        let _ = writeln!(text, "{name}\t{size}\t{about}");
    }
    context.out.data(&text)
}

fn listed(file: ModelFile, files: &ModelFiles) -> Listed {
    let path = files.path(&file.name);
    let (header, problem) = match file.header {
        Ok(header) => (Some(header), None),
        Err(error) => (None, Some(error.to_string())),
    };
    Listed {
        name: file.name.to_string(),
        path,
        bytes: file.bytes,
        context: header.as_ref().and_then(|header| header.context),
        parameters: header.as_ref().map(|header| header.parameters),
        architecture: header.map(|header| header.architecture),
        problem,
    }
}

fn remove(context: &Context, files: &ModelFiles, name: &str) -> anyhow::Result<()> {
    let name = ModelName::parse(name).map_err(|error| Stop::usage(error.to_string()))?;
    let path = files.path(&name);
    if !path.is_file() {
        return Err(Stop::new(Exit::NotFound, format!("there is no local model {name}")).into());
    }
    fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
    if context.out.json {
        return context.out.json(&Removed { name: name.to_string() });
    }
    context.out.note(&format!("removed {name}"));
    Ok(())
}

/// Returns a number of bytes for people.
fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{}.{} {name}", bytes / unit, bytes % unit * 10 / unit),
        None => format!("{bytes} B"),
    }
}

/// Returns a path's last part for a message.
fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        for (bytes, text) in [(0, "0 B"), (1_023, "1023 B"), (98_362_432, "93.8 MiB"), (5 << 29, "2.5 GiB")] {
            assert_eq!(size(bytes), text);
        }
    }
}
