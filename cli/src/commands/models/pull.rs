//! `tns models pull`: finds out where a model is, gets it, checks it, and puts it in its place.

use std::cell::Cell;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tns_server::{GgufHeader, ModelFiles, ModelName};

use super::download::{self, Got, Wanted};
use super::place::{self, Part};
use super::source::{self, Places, Registered, Source};
use super::web::Web;
use super::{archive, file_name, ollama, size};
use crate::Context;
use crate::exit::{Exit, Stop};

/// How often progress is told.
pub(super) const TELL: Duration = Duration::from_millis(200);
/// Longest manifest, in bytes.
const MAX_MANIFEST: usize = 1 << 20;
/// Bytes copied at a time.
const BLOCK: usize = 1 << 20;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A name such as smollm2:135m, hf.co/OWNER/REPOSITORY/FILE.gguf, a URL, or a file
    #[arg(value_name = "NAME|URL|FILE")]
    source: String,
    /// What to call it; after its source when absent
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The checksum that what is got must have
    #[arg(long, value_name = "HEX")]
    sha256: Option<String>,
    /// Have the Ollama server that is set up pull NAME, for --provider ollama, in place of a file for local
    #[arg(long, conflicts_with_all = ["name", "sha256"])]
    ollama: bool,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Pulled<'a> {
    name: &'a str,
    path: PathBuf,
    bytes: u64,
    /// Of what was got: for an archive, the archive's.
    sha256: &'a str,
    architecture: &'a str,
}

pub(super) async fn run(args: Args, context: &Context, files: &ModelFiles) -> anyhow::Result<()> {
    if args.ollama {
        return ollama::run(&args.source, context).await;
    }
    let sha256 = match args.sha256.as_deref() {
        Some(text) => {
            Some(source::digest(text).ok_or_else(|| Stop::usage("--sha256 wants 64 hexadecimal digits"))?)
        }
        None => None,
    };
    let chosen = match args.name.as_deref() {
        Some(name) => {
            Some(ModelName::parse(name).map_err(|error| Stop::usage(format!("--name {name}: {error}")))?)
        }
        None => None,
    };
    let source = Source::read(&args.source, &Places::from_env(|name| std::env::var(name).ok()))?;
    let name = match &chosen {
        Some(name) => name.clone(),
        None => source.name()?,
    };
    place::check_free(files, &name)?;
    let part = Part::open(files, &name)?;
    let got = match source {
        Source::File(path) => match copied(path, &part, sha256).await {
            Ok(got) => got,
            Err(error) => {
                part.discard();
                return Err(error);
            }
        },
        Source::Url { url, linked } => {
            let wanted = Wanted { url, sha256, bytes: None, linked };
            downloaded(context, &Web::default(), wanted, &part).await?
        }
        Source::Registry(registered) => {
            let web = Web::default();
            let blob = registered.blob(&manifest(&web, &registered, &args.source).await?)?;
            if sha256.is_some_and(|sha256| sha256 != blob.sha256) {
                return Err(Stop::new(
                    Exit::Failed,
                    format!("the registry has another file: {}", blob.sha256),
                )
                .into());
            }
            let wanted =
                Wanted { url: blob.url, sha256: Some(blob.sha256), bytes: Some(blob.bytes), linked: false };
            downloaded(context, &web, wanted, &part).await?
        }
    };
    let files = files.clone();
    let settled = tokio::task::spawn_blocking(move || settle(part, &files, name, chosen.is_some()));
    let (name, path, header) = settled.await.context("look at the model")??;
    tell(context, &name, path, &got, &header)
}

fn tell(
    context: &Context,
    name: &ModelName,
    path: PathBuf,
    got: &Got,
    header: &GgufHeader,
) -> anyhow::Result<()> {
    if context.out.json {
        let (name, architecture) = (name.as_str(), header.architecture.as_str());
        return context.out.json(&Pulled {
            name,
            path,
            bytes: header.bytes,
            sha256: &got.sha256,
            architecture,
        });
    }
    context.out.data(&format!("{name}\n"))?;
    context.out.note(&format!("{}; answer with it: --provider local --model {name}", size(header.bytes)));
    if !tns_server::RUNS_LOCAL_MODELS {
        context.out.note("this tns can't run it: build one with --features local-llm");
    }
    Ok(())
}

/// Puts what came in its place; a model out of an archive under its own name, unless the user chose one.
fn settle(
    part: Part,
    files: &ModelFiles,
    name: ModelName,
    chosen: bool,
) -> anyhow::Result<(ModelName, PathBuf, GgufHeader)> {
    if !archive::is_archive(&part.path).context("read the download")? {
        let header = part.settle(files, &name)?;
        return Ok((name.clone(), files.path(&name), header));
    }
    // An archive stands aside until its model is in its place: an interrupted unpacking starts from it again.
    let inner_name = ModelName::parse(&format!("{name}.unpacked")).unwrap_or_else(|_| name.clone());
    let mut inner = Part::open(files, &inner_name)?;
    let unpacked = archive::unpack(&part.path, &inner.path, &mut inner.file);
    let own = match unpacked {
        Ok(own) => own,
        Err(error) => {
            inner.discard();
            part.discard();
            return Err(error);
        }
    };
    let name = if chosen { name } else { own.unwrap_or(name) };
    let header = inner.settle(files, &name);
    part.discard();
    Ok((name.clone(), files.path(&name), header?))
}

async fn manifest(web: &Web, registered: &Registered, asked: &str) -> anyhow::Result<String> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/vnd.docker.distribution.manifest.v2+json"));
    let url = registered.manifest();
    let host = url.host_str().unwrap_or_default().to_owned();
    let answer = match web.get(&url, &headers).await {
        Ok(answer) => answer,
        Err(error) if error.is::<Stop>() => return Err(error),
        Err(_) => {
            return Err(
                Stop::new(Exit::Failed, format!("{host} can't be reached; is there a network?")).into()
            );
        }
    };
    let mut response = answer.response;
    match response.status().as_u16() {
        200 => {}
        404 => return Err(Stop::new(Exit::NotFound, format!("{host} has no model {asked}")).into()),
        _ => return Err(Stop::new(Exit::Failed, format!("{host} answers {}", response.status())).into()),
    }
    let mut text = Vec::new();
    while let Some(bytes) =
        response.chunk().await.map_err(|_| Stop::new(Exit::Failed, format!("{host} broke off")))?
    {
        text.extend_from_slice(&bytes);
        if text.len() > MAX_MANIFEST {
            return Err(Stop::new(Exit::Failed, format!("{host} answers with no manifest")).into());
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

async fn downloaded(context: &Context, web: &Web, wanted: Wanted, part: &Part) -> anyhow::Result<Got> {
    let (begun, told) = (Instant::now(), Cell::new(None::<Instant>));
    let progress = |at: u64, of: Option<u64>| {
        let now = Instant::now();
        if told.get().is_some_and(|told| now.duration_since(told) < TELL) {
            return;
        }
        told.set(Some(now));
        let seconds = now.duration_since(begun).as_secs_f64();
        let of = of.map(|of| format!(" of {}", size(of))).unwrap_or_default();
        context.out.progress(&format!("{}{of}, {seconds:.0} s", size(at)));
    };
    let file = part.file.try_clone().context("open the download")?;
    let got = download::get(web, wanted, &part.path, file, &progress).await;
    context.out.progress("");
    got
}

/// Copies a file, and computes its digest on the way.
async fn copied(path: PathBuf, part: &Part, sha256: Option<String>) -> anyhow::Result<Got> {
    let (to, file) = (part.path.clone(), part.file.try_clone().context("open the copy")?);
    tokio::task::spawn_blocking(move || {
        let archive = archive::is_archive(&path).with_context(|| format!("read {}", path.display()))?;
        if !archive {
            // Before hundreds of megabytes are copied.
            GgufHeader::read(&path).map_err(|error| {
                Stop::new(Exit::Failed, format!("{} can't be used: {error}", file_name(&path)))
            })?;
        }
        let got = copy(&path, &to, file)?;
        match sha256 {
            Some(wanted) if wanted != got.sha256 => Err(Stop::new(
                Exit::Failed,
                format!("{} has not the checksum {wanted} but {}", file_name(&path), got.sha256),
            )
            .into()),
            Some(_) | None => Ok(got),
        }
    })
    .await
    .context("copy the model")?
}

fn copy(from: &Path, to: &Path, mut file: File) -> anyhow::Result<Got> {
    let mut source = File::open(from).with_context(|| format!("open {}", from.display()))?;
    place::check_room(to, source.metadata().map_or(0, |metadata| metadata.len()))?;
    file.set_len(0).context("write the copy")?;
    let (mut sum, mut bytes, mut block) = (Sha256::new(), 0, vec![0; BLOCK]);
    loop {
        let read = source.read(&mut block).with_context(|| format!("read {}", from.display()))?;
        if read == 0 {
            break;
        }
        sum.update(&block[..read]);
        file.write_all(&block[..read]).context("write the copy")?;
        bytes += read as u64;
    }
    file.sync_all().context("write the copy")?;
    Ok(Got { sha256: download::hex(&sum.finalize()), bytes })
}
