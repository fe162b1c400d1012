//! `file_read`: the text of a file, whole or by lines. It never changes anything.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::json;
use tns_server_core::tool::{
    Args, MAX_OUTPUT_BYTES, Rating, Tool, ToolOutcome, ToolRun, ToolSpec, Workspace,
};
use tokio_util::sync::CancellationToken;

use crate::guard::{Bounds, OwnFolder};
use crate::{args, blocking, blocking_rating, guard, output};
use tns_server_core::visible;

/// Largest file that is read whole, in bytes; of a larger one lines may be asked for.
const MAX_WHOLE_BYTES: u64 = MAX_OUTPUT_BYTES as u64;

/// How far into a file lines are looked for, in bytes.
const MAX_SCAN_BYTES: u64 = 256 << 20;

/// How much of a file is looked at to tell text from other data, in bytes.
const SNIFF_BYTES: usize = 8 << 10;

/// Reads a file.
pub(crate) struct FileRead {
    spec: Arc<ToolSpec>,
    own: OwnFolder,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReadArgs {
    path: String,
    start_line: Option<u64>,
    end_line: Option<u64>,
}

impl FileRead {
    pub(crate) fn new(own: OwnFolder) -> Self {
        let properties = json!({
            "path": {"type": "string", "minLength": 1, "maxLength": guard::MAX_PATH_BYTES,
                "description": "The file, relative to the workspace root or absolute."},
            "startLine": {"type": "integer", "minimum": 1, "description": "First line to return, from 1."},
            "endLine": {"type": "integer", "minimum": 1, "description": "Last line to return, included."},
        });
        Self {
            spec: Arc::new(ToolSpec {
                name: "file_read".to_owned(),
                description: "Returns the text of a file exactly as it is, without line numbers. \
                    Give startLine and endLine to read a part of a long file. Binary files are refused."
                    .to_owned(),
                schema: args::closed_object(properties, &["path"]),
            }),
            own,
        }
    }
}

#[async_trait]
impl Tool for FileRead {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    async fn rate(&self, args: &Args, workspace: &Workspace) -> Rating {
        match args::parse::<ReadArgs>(args) {
            Ok(args) => {
                let bounds = self.own.bounds(workspace);
                blocking_rating("file_read", move || rate_reading("read", &args.path, &bounds)).await
            }
            Err(problem) => args::unreadable("file_read", problem),
        }
    }

    async fn run(&self, run: ToolRun) -> ToolOutcome {
        let args = match args::parse::<ReadArgs>(&run.args) {
            Ok(args) => args,
            Err(problem) => return ToolOutcome::error(problem),
        };
        let cancel = run.cancel.child_token();
        let _stop = cancel.clone().drop_guard();
        let bounds = self.own.bounds(&run.workspace);
        blocking(move || {
            let shown = visible::one_line(&args.path);
            match read(&args, &bounds, &cancel) {
                Ok(text) => ToolOutcome::ok(text),
                Err(problem) => ToolOutcome::error(format!("can't read {shown}: {problem}")),
            }
        })
        .await
    }
}

/// Rates a call that reads one place; `verb` says how in the summary. It waits for the disk.
pub(crate) fn rate_reading(verb: &str, path: &str, bounds: &Bounds) -> Rating {
    let summary = format!("{verb} {}", visible::one_line(path));
    let mut rating = match guard::place(path, bounds.root()) {
        Ok(place) => {
            let verdict = bounds.rate_read(&place);
            Rating::new(verdict.class, verdict.reason, summary)
        }
        Err(problem) => Rating::new(
            tns_protocol::approval::RiskClass::ReadOnly,
            format!("nothing is read: {problem}"),
            summary,
        ),
    };
    if visible::render(path).escaped > 0 {
        rating.reasons.push("the path holds hidden or misleading characters, shown as escapes".to_owned());
    }
    rating
}

fn read(args: &ReadArgs, bounds: &Bounds, cancel: &CancellationToken) -> Result<String, String> {
    let place = guard::place(&args.path, bounds.root())?;
    let file = guard::open_file(&place, bounds)?;
    let size = file.metadata().map_err(|error| guard::problem(&error))?.len();
    let mut reader = BufReader::with_capacity(SNIFF_BYTES, file);
    let start = reader.fill_buf().map_err(|error| guard::problem(&error))?;
    if let Some(kind) = binary_kind(start) {
        return Err(format!("it is not text but {kind} of {size} bytes"));
    }
    let bytes = match (args.start_line, args.end_line) {
        (None, None) => read_whole(reader, size)?,
        (first, last) => read_lines(reader, first.unwrap_or(1), last.unwrap_or(u64::MAX), cancel)?,
    };
    Ok(match String::from_utf8(bytes) {
        Ok(text) => output::cap(text),
        Err(error) => output::cap(format!(
            "{}\n[note: not valid UTF-8; each invalid byte is shown as \u{FFFD}]",
            String::from_utf8_lossy(error.as_bytes())
        )),
    })
}

fn read_whole(reader: BufReader<File>, size: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    reader.take(MAX_WHOLE_BYTES + 1).read_to_end(&mut bytes).map_err(|error| guard::problem(&error))?;
    if bytes.len() as u64 > MAX_WHOLE_BYTES {
        let size = size.max(bytes.len() as u64);
        return Err(format!(
            "it has {size} bytes, over the limit of {MAX_WHOLE_BYTES}; give startLine and endLine"
        ));
    }
    Ok(bytes)
}

/// Reads lines `first` to `last` with their line breaks.
fn read_lines(
    mut reader: impl BufRead,
    first: u64,
    last: u64,
    cancel: &CancellationToken,
) -> Result<Vec<u8>, String> {
    if last < first {
        return Err(format!("endLine {last} is before startLine {first}"));
    }
    let mut wanted = Vec::new();
    let (mut line, mut scanned, mut open_line) = (1_u64, 0_u64, false);
    while line <= last {
        if cancel.is_cancelled() {
            return Err("it was cancelled".to_owned());
        }
        let chunk = reader.fill_buf().map_err(|error| guard::problem(&error))?;
        if chunk.is_empty() {
            break;
        }
        let (end, ends_line) = match chunk.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (chunk.len(), false),
        };
        if line >= first {
            wanted.extend_from_slice(&chunk[..end]);
        }
        reader.consume(end);
        scanned += end as u64;
        if wanted.len() as u64 > MAX_WHOLE_BYTES {
            return Err(format!("these lines have more than {MAX_WHOLE_BYTES} bytes; ask for fewer"));
        }
        if scanned > MAX_SCAN_BYTES {
            return Err(format!("line {first} is not within the first {MAX_SCAN_BYTES} bytes"));
        }
        line += u64::from(ends_line);
        open_line = !ends_line;
    }
    let lines = if open_line { line } else { line - 1 };
    if lines < first {
        return Err(format!("it has only {lines} lines"));
    }
    Ok(wanted)
}

/// Names what data is, if it is not text.
fn binary_kind(start: &[u8]) -> Option<&'static str> {
    const MAGIC: &[(&[u8], &str)] = &[
        (b"\x89PNG", "a PNG image"),
        (b"\xFF\xD8\xFF", "a JPEG image"),
        (b"GIF8", "a GIF image"),
        (b"%PDF-", "a PDF document"),
        (b"PK\x03\x04", "a ZIP archive"),
        (b"\x1F\x8B", "gzip data"),
        (b"\x28\xB5\x2F\xFD", "zstd data"),
        (b"\x7FELF", "an ELF program"),
        (b"SQLite format 3\0", "an SQLite database"),
        (b"\xFF\xFE", "UTF-16 text"),
        (b"\xFE\xFF", "UTF-16 text"),
    ];
    let named = MAGIC.iter().find(|(magic, _)| start.starts_with(magic)).map(|(_, kind)| *kind);
    named.or_else(|| start.contains(&0).then_some("binary data"))
}

#[cfg(test)]
mod tests {
    use tns_protocol::approval::RiskClass;

    use super::*;
    use crate::testing::Bench;

    #[tokio::test]
    async fn a_whole_file_is_returned_exactly() {
        let (bench, tool) = (Bench::new(), FileRead::new(OwnFolder::default()));
        let text = "  12\tfn main\r\n\u{1b}[2K no newline";
        bench.file("a.txt", text);
        assert_eq!(bench.run(&tool, json!({"path": "a.txt"})).await, ToolOutcome::ok(text));
        bench.file("empty", "");
        assert_eq!(bench.run(&tool, json!({"path": "empty"})).await, ToolOutcome::ok(""));
        let part = bench.run(&tool, json!({"path": "a.txt", "startLine": 2, "endLine": 2})).await;
        assert_eq!(part, ToolOutcome::ok("\u{1b}[2K no newline"));
    }

    #[tokio::test]
    async fn binary_files_are_refused_and_broken_text_is_marked() {
        let (bench, tool) = (Bench::new(), FileRead::new(OwnFolder::default()));
        bench.file("x.png", b"\x89PNG\r\n\x1a\n");
        let outcome = bench.run(&tool, json!({"path": "x.png"})).await;
        assert_eq!(
            outcome,
            ToolOutcome::error("can't read x.png: it is not text but a PNG image of 8 bytes")
        );
        bench.file("latin1", b"caf\xe9");
        let outcome = bench.run(&tool, json!({"path": "latin1"})).await;
        assert!(outcome.output.starts_with("caf\u{FFFD}\n[note: not valid UTF-8"), "{}", outcome.output);
    }

    #[tokio::test]
    async fn a_file_at_the_limit_is_read_and_a_larger_one_by_lines_only() {
        let (bench, tool) = (Bench::new(), FileRead::new(OwnFolder::default()));
        let mut text = "x".repeat(MAX_WHOLE_BYTES as usize - 1) + "\n";
        bench.file("big", &text);
        assert_eq!(bench.run(&tool, json!({"path": "big"})).await, ToolOutcome::ok(text.clone()));
        text.push('y');
        bench.file("big", &text);
        let outcome = bench.run(&tool, json!({"path": "big"})).await;
        assert!(
            outcome.is_error && outcome.output.contains("give startLine and endLine"),
            "{}",
            outcome.output
        );
        let outcome = bench.run(&tool, json!({"path": "big", "startLine": 2})).await;
        assert_eq!(outcome, ToolOutcome::ok("y"));
    }

    #[tokio::test]
    async fn reading_is_rated_by_where_it_leads() {
        let (bench, tool) = (Bench::new(), FileRead::new(OwnFolder::default()));
        bench.file(".env", "");
        for (path, class) in [
            ("README.md", RiskClass::ReadOnly),
            (".env", RiskClass::Sensitive),
            ("keys/server.pem", RiskClass::Sensitive),
            ("../ws-evil/secret.txt", RiskClass::Sensitive),
            ("/etc/hostname", RiskClass::Sensitive),
        ] {
            let rating = bench.rate(&tool, json!({"path": path})).await;
            assert_eq!(rating.class, class, "{path}");
            assert_eq!(rating.summary, format!("read {path}"));
        }
        let approved = bench.run(&tool, json!({"path": "../ws-evil/secret.txt"})).await;
        assert_eq!(approved, ToolOutcome::ok("outside"));
    }

    fn lines(text: &str, first: u64, last: u64) -> Result<String, String> {
        let bytes =
            read_lines(BufReader::with_capacity(3, text.as_bytes()), first, last, &CancellationToken::new())?;
        Ok(String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn line_ranges_are_exact_whatever_the_chunks() {
        let text = "one\ntwo\r\nthree\nfour";
        assert_eq!(lines(text, 1, 1).unwrap(), "one\n");
        assert_eq!(lines(text, 2, 3).unwrap(), "two\r\nthree\n");
        assert_eq!(lines(text, 4, 4).unwrap(), "four");
        assert_eq!(lines(text, 1, u64::MAX).unwrap(), text);
        assert_eq!(lines(text, 3, 99).unwrap(), "three\nfour");
    }

    #[test]
    fn a_range_beyond_the_end_says_how_many_lines_there_are() {
        assert_eq!(lines("one\ntwo\n", 3, 4).unwrap_err(), "it has only 2 lines");
        assert_eq!(lines("", 1, 1).unwrap_err(), "it has only 0 lines");
        assert_eq!(lines("a", 2, 1).unwrap_err(), "endLine 1 is before startLine 2");
    }

    #[test]
    fn data_is_told_from_text() {
        assert_eq!(binary_kind(b"\x89PNG\r\n\x1a\n"), Some("a PNG image"));
        assert_eq!(binary_kind(b"a\0b"), Some("binary data"));
        assert_eq!(binary_kind("naïve\ttext\n".as_bytes()), None);
        assert_eq!(binary_kind(b""), None);
    }
}
