//! `tns sessions export` and `import`: sessions as files, a piece at a time whatever their size.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::ValueEnum;
use futures_util::stream;
use serde::Serialize;
use tns_client::{Download, ExportFormat, ImportTarget, Rest};
use tns_protocol::SessionId;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::named;
use crate::Context;
use crate::args::parse_session;
use crate::exit::Stop;

/// Bytes of a file that are sent at once.
const PIECE: usize = 64 << 10;
/// For the owner only: a session holds what its tools read.
const FILE_MODE: u32 = 0o600;
/// What stands for standard input.
const STDIN: &str = "-";

/// Write a session to a file, or to standard output
///
/// As JSON Lines it is the log itself, with what only the model was shown: import makes the same session of it.
/// As Markdown it is a page for people. Documents are left out of both.
#[derive(Debug, clap::Args)]
pub(super) struct Export {
    /// The session's id
    #[arg(value_name = "ID")]
    id: String,
    /// How it is written
    #[arg(long, value_enum, default_value = "jsonl")]
    format: Format,
    /// Take out what looks like a secret: keys, tokens, passwords
    ///
    /// What a model's provider signed goes whole, so that the model has no more than its words of it later.
    #[arg(long)]
    redact: bool,
    /// Write to this file; one that is there is replaced when the whole of it is written
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// How a session is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// The log itself
    Jsonl,
    /// A page for people
    Markdown,
}

/// Make a session of an export in JSON Lines, and print its id
///
/// It has the id that it had, or a new one where that is taken; no session is ever changed by it. A damaged file is
/// refused as a whole.
#[derive(Debug, clap::Args)]
pub(super) struct Import {
    /// The file, or - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Give it this id
    #[arg(long = "as", value_name = "ID", value_parser = parse_session)]
    id: Option<SessionId>,
    /// Give it a new id, whether its own is taken or not
    #[arg(long, conflicts_with = "id")]
    new: bool,
    /// Let its tools work in this folder instead of the one it had
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
}

/// What `export --json` prints.
#[derive(Serialize)]
struct Written<'a> {
    id: &'a SessionId,
    file: &'a Path,
    bytes: u64,
}

pub(super) async fn export(context: &Context, rest: &Rest, args: Export) -> anyhow::Result<()> {
    let id = named(&args.id)?;
    if context.out.json && args.output.is_none() {
        return Err(
            Stop::usage("--json tells about a file: name one with -o FILE, or leave --json out").into()
        );
    }
    let format = match args.format {
        Format::Jsonl => ExportFormat::Jsonl,
        Format::Markdown => ExportFormat::Markdown,
    };
    let download = rest.export_session(&id, format, args.redact).await.context("export the session")?;
    let Some(file) = &args.output else { return to_stdout(context, download).await };
    let bytes = to_file(file, download).await.with_context(|| format!("write {}", file.display()))?;
    if context.out.json {
        return context.out.json(&Written { id: &id, file, bytes });
    }
    context.out.note(&format!("{}: {bytes} bytes", file.display()));
    Ok(())
}

/// Writes whole lines, so that no character is cut in two.
async fn to_stdout(context: &Context, mut download: Download) -> anyhow::Result<()> {
    let mut begun: Vec<u8> = Vec::new();
    while let Some(chunk) = download.chunk().await.context("export the session")? {
        begun.extend(chunk);
        if let Some(end) = begun.iter().rposition(|byte| *byte == b'\n') {
            let rest = begun.split_off(end + 1);
            let lines = std::mem::replace(&mut begun, rest);
            context.out.data(&String::from_utf8(lines).context("read the export")?)?;
        }
    }
    context.out.data(&String::from_utf8(begun).context("read the export")?)
}

/// Writes beside the file, and puts that in its place when it is whole. Returns its size.
async fn to_file(file: &Path, mut download: Download) -> anyhow::Result<u64> {
    let draft = Draft::open(file)?;
    let mut bytes = 0;
    while let Some(chunk) = download.chunk().await.context("export the session")? {
        (&draft.file).write_all(&chunk)?;
        bytes += chunk.len() as u64;
    }
    draft.settle(file)?;
    Ok(bytes)
}

/// A file that is being written. One that does not get to its place is removed.
struct Draft {
    path: PathBuf,
    file: File,
}

impl Draft {
    fn open(target: &Path) -> io::Result<Self> {
        let mut name = std::ffi::OsString::from(".");
        name.push(target.file_name().ok_or(io::ErrorKind::InvalidInput)?);
        name.push(format!(".{}", std::process::id()));
        let path = target.with_file_name(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&path)?;
        Ok(Self { path, file })
    }

    fn settle(self, target: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.path, target)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // Nothing is there any more when it was put in its place.
        let _ = fs::remove_file(&self.path);
    }
}

pub(super) async fn import(context: &Context, rest: &Rest, args: Import) -> anyhow::Result<()> {
    let shown = args.file.display().to_string();
    let from: Box<dyn AsyncRead + Send + Unpin> = match args.file.as_os_str() == STDIN {
        true => Box::new(tokio::io::stdin()),
        false => {
            let file = tokio::fs::File::open(&args.file).await.with_context(|| format!("read {shown}"))?;
            let is_folder = file.metadata().await.with_context(|| format!("read {shown}"))?.is_dir();
            if is_folder {
                return Err(Stop::usage(format!("{shown} is a folder; name an exported file")).into());
            }
            Box::new(file)
        }
    };
    let workspace = args.workspace.map(|folder| {
        fs::canonicalize(&folder).with_context(|| format!("find the folder {}", folder.display()))
    });
    let workspace = workspace.transpose()?.map(|folder| folder.display().to_string());
    let target = ImportTarget { id: args.id, fresh: args.new, workspace };
    let pieces = stream::unfold(from, |mut from| async move {
        let mut piece = vec![0; PIECE];
        match from.read(&mut piece).await {
            Ok(0) => None,
            Ok(read) => {
                piece.truncate(read);
                Some((Ok(piece), from))
            }
            Err(error) => Some((Err(error), from)),
        }
    });
    let made = rest.import_session(pieces, &target).await.with_context(|| format!("import {shown}"))?;
    context.out.note(&format!("{} events; its tools work in {}", made.head_seq, made.workspace));
    if context.out.json {
        return context.out.json(&made);
    }
    context.out.data(&format!("{}\n", made.id))
}
