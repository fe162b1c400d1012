//! `tns kb`: the documents that answers are looked up in.

mod origin;
mod sources;

use std::fmt::Write as _;

use anyhow::Context as _;
use clap::{Subcommand, ValueEnum};
use serde::Serialize;
use tns_client::{ClientError, Rest};
use tns_protocol::knowledge::{DocumentInfo, SearchHit};
use tns_protocol::rest::{KbAddRequest, KbScope, SearchRequest};
use tns_protocol::{DocumentId, ErrorCode, SessionId};

use crate::commands::kb::origin::Origin;
use crate::commands::kb::sources::Source;
use crate::exit::{Exit, Stop};
use crate::{Context, logging, server, workspace};

/// Add, search, list and remove documents of the knowledge base
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Add documents and print their ids, one a line
    ///
    /// A file that was added before and has changed since takes the place of its older document.
    Add(Add),
    /// Search, best passages first; no hit is no failure
    Search(Search),
    /// List the documents: id, length, source, beginning
    List,
    /// Remove documents
    Rm {
        /// The documents' ids
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
}

#[derive(Debug, clap::Args)]
struct Add {
    /// Files, folders, patterns such as 'docs/**/*.md', or - for standard input
    #[arg(value_name = "PATH", required_unless_present = "text")]
    paths: Vec<String>,
    /// Add this text itself
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    /// Whose searches find it
    #[arg(long, value_enum, default_value = "project")]
    scope: Scope,
}

/// Whose searches find a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scope {
    /// This session's
    Session,
    /// Every session's of this folder
    Project,
    /// All of yours
    User,
}

#[derive(Debug, clap::Args)]
struct Search {
    /// The question, or words
    #[arg(value_name = "QUERY", required = true)]
    query: Vec<String>,
    /// Print at most this many passages
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=50))]
    limit: Option<u32>,
    /// Leave out passages that fit worse than this, from 0 to 1
    #[arg(long, value_name = "SCORE", value_parser = parse_score)]
    threshold: Option<f64>,
}

fn parse_score(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(score) if (0.0..=1.0).contains(&score) => Ok(score),
        Ok(_) | Err(_) => Err("must be a number from 0 to 1".into()),
    }
}

/// One line of `add --json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Added {
    document_id: DocumentId,
    duplicate: bool,
    source: Option<String>,
    /// The file's older documents, which were removed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    replaced: Vec<DocumentId>,
}

/// What `add --json` prints.
#[derive(Serialize, Default)]
struct AddReport {
    documents: Vec<Added>,
    failed: Vec<Failed>,
}

/// What was not added.
#[derive(Serialize)]
struct Failed {
    source: Option<String>,
    message: String,
}

/// What `rm --json` prints.
#[derive(Serialize)]
struct Removed {
    removed: Vec<DocumentId>,
    unknown: Vec<String>,
}

pub(crate) fn run(args: Args, context: &Context) -> anyhow::Result<()> {
    logging::start(context, logging::Unasked::Nothing)?;
    match args.action {
        Action::Add(args) => {
            let sources = sources::gather(&args.paths, args.text)?;
            server::with_interruptible(context, async |attached| {
                let rest = attached.rest()?;
                let session = workspace::session(context, &rest).await?;
                add(context, &rest, &session.id, args.scope, sources).await
            })
        }
        Action::Search(args) => {
            let query = args.query.join(" ");
            if query.trim().is_empty() {
                return Err(Stop::usage("the query is blank; give a question or words").into());
            }
            server::with_interruptible(context, async |attached| {
                let rest = attached.rest()?;
                let session_id = workspace::session(context, &rest).await?.id;
                let request =
                    SearchRequest { session_id, query, limit: args.limit, threshold: args.threshold };
                let found = rest.kb_search(request).await.context("search the knowledge base")?;
                if context.out.json {
                    context.out.json(&found)
                } else {
                    context.out.data(&hits(&found.results))
                }
            })
        }
        Action::List => server::with_interruptible(context, async |attached| {
            let rest = attached.rest()?;
            let session = workspace::session(context, &rest).await?;
            let list = rest.kb_list(&session.id).await.context("list the documents")?;
            if context.out.json {
                return context.out.json(&list);
            }
            context.out.data(&documents(&list.documents))
        }),
        Action::Rm { ids } => server::with_interruptible(context, async |attached| {
            let rest = attached.rest()?;
            let session = workspace::session(context, &rest).await?;
            remove(context, &rest, &session.id, ids).await
        }),
    }
}

/// Adds what can be added; one bad document keeps no other out.
async fn add(
    context: &Context,
    rest: &Rest,
    session: &SessionId,
    scope: Scope,
    sources: Vec<Source>,
) -> anyhow::Result<()> {
    let mut report = AddReport::default();
    let total = sources.len();
    // As it stood before: what this command adds is no older document.
    let known = match sources.iter().any(|source| source.file().is_some()) {
        true => rest.kb_list(session).await.context("list the documents")?.documents,
        false => Vec::new(),
    };
    for source in sources {
        let (name, searched_for) = (source.name(), source.was_searched_for());
        let origin = Origin::new(name.clone(), source.file(), scope);
        // Standard input may stay silent for ever, and a signal must still end the command.
        let read = tokio::task::spawn_blocking(move || source.read()).await.context("read the document")?;
        let content = match read {
            Ok(content) => content,
            Err(message) if searched_for => {
                context.out.note(&format!("left out {}: {message}", name.as_deref().unwrap_or("-")));
                continue;
            }
            Err(message) => {
                report.fail(context, name, message);
                continue;
            }
        };
        let request = KbAddRequest {
            session_id: session.clone(),
            content,
            metadata: origin.metadata(),
            scope: scope.on_the_wire(),
        };
        match rest.kb_add(request).await {
            Ok(added) => {
                if added.duplicate {
                    context.out.note(&format!("{} is there already", name.as_deref().unwrap_or("the text")));
                }
                if !context.out.json {
                    context.out.data(&format!("{}\n", added.document_id))?;
                }
                let replaced = remove_older(rest, session, origin.older(&known, &added.document_id)).await?;
                if !replaced.is_empty() {
                    let older: Vec<&str> = replaced.iter().map(DocumentId::as_str).collect();
                    let name = name.as_deref().unwrap_or("the text");
                    context.out.note(&format!("{name} has changed: removed {}", older.join(", ")));
                }
                report.documents.push(Added {
                    document_id: added.document_id,
                    duplicate: added.duplicate,
                    source: name,
                    replaced,
                });
            }
            // This document's own fault: the next may be fine.
            Err(ClientError::Refused {
                code: ErrorCode::InvalidMessage | ErrorCode::PayloadTooLarge,
                message,
                ..
            }) => report.fail(context, name, message),
            Err(error) => return Err(error).context("add to the knowledge base"),
        }
    }
    if context.out.json {
        context.out.json(&report)?;
    }
    match report.failed.len() {
        0 if report.documents.is_empty() => {
            Err(Stop::new(Exit::Failed, "nothing was added: no text was found").into())
        }
        0 => Ok(()),
        // It was told why, and there was no other.
        1 if total == 1 => Err(Stop::silent(Exit::Failed).into()),
        failed => Err(Stop::new(Exit::Failed, format!("not added: {failed} of {total} documents")).into()),
    }
}

/// Removes what a file said before, and returns what was there to remove.
async fn remove_older(
    rest: &Rest,
    session: &SessionId,
    older: impl Iterator<Item = &DocumentId>,
) -> anyhow::Result<Vec<DocumentId>> {
    let mut removed = Vec::new();
    for document in older {
        if rest.kb_remove(session, document).await.context("remove the older document")?.found {
            removed.push(document.clone());
        }
    }
    Ok(removed)
}

impl AddReport {
    fn fail(&mut self, context: &Context, source: Option<String>, message: String) {
        context.out.error(&format!("{}: {message}", source.as_deref().unwrap_or("--text")));
        self.failed.push(Failed { source, message });
    }
}

impl Scope {
    fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Project => "project",
            Self::User => "user",
        }
    }

    fn on_the_wire(self) -> KbScope {
        match self {
            Self::Session => KbScope::Session,
            Self::Project => KbScope::Project,
            Self::User => KbScope::User,
        }
    }
}

async fn remove(context: &Context, rest: &Rest, session: &SessionId, ids: Vec<String>) -> anyhow::Result<()> {
    let mut report = Removed { removed: Vec::new(), unknown: Vec::new() };
    for id in ids {
        // An id that can't be one names no document either.
        let Ok(document) = DocumentId::parse(id.as_str()) else {
            report.unknown.push(id);
            continue;
        };
        if rest.kb_remove(session, &document).await.context("remove the document")?.found {
            if !context.out.json {
                context.out.data(&format!("{document}\n"))?;
            }
            report.removed.push(document);
        } else {
            report.unknown.push(id);
        }
    }
    if context.out.json {
        context.out.json(&report)?;
    }
    match report.unknown.as_slice() {
        [] => Ok(()),
        unknown => {
            Err(Stop::new(Exit::NotFound, format!("there is no document {}", unknown.join(", "))).into())
        }
    }
}

fn source_of(metadata: &serde_json::Map<String, serde_json::Value>) -> &str {
    metadata.get("source").and_then(serde_json::Value::as_str).unwrap_or("-")
}

fn hits(hits: &[SearchHit]) -> String {
    let mut text = String::new();
    for hit in hits {
        // Writing into a String can't fail.
        let _ = writeln!(text, "{:.3}\t{}\t{}", hit.score, hit.document_id, source_of(&hit.metadata));
        for line in hit.content.trim_end().lines() {
            let _ = writeln!(text, "    {line}");
        }
    }
    text
}

fn documents(documents: &[DocumentInfo]) -> String {
    let mut text = String::new();
    for document in documents {
        let preview: Vec<&str> = document.preview.split_whitespace().collect();
        let DocumentInfo { document_id, content_length, metadata, .. } = document;
        // Writing into a String can't fail.
        let _ =
            writeln!(text, "{document_id}\t{content_length}\t{}\t{}", source_of(metadata), preview.join(" "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata() -> serde_json::Map<String, serde_json::Value> {
        [("source".to_owned(), "a.md".into())].into_iter().collect()
    }

    #[test]
    fn hits_show_score_source_and_the_passage_indented() {
        let hit = SearchHit {
            document_id: DocumentId::parse("d").unwrap(),
            content: "one\ntwo\n".into(),
            score: 0.5,
            metadata: metadata(),
        };
        assert_eq!(hits(&[hit]), "0.500\td\ta.md\n    one\n    two\n");
        assert_eq!(hits(&[]), "");
    }

    #[test]
    fn a_document_is_one_line_whatever_it_begins_with() {
        let document = DocumentInfo {
            document_id: DocumentId::parse("d").unwrap(),
            preview: "# A\n\n  b\tc".into(),
            content_length: 9,
            metadata: metadata(),
        };
        assert_eq!(documents(&[document]), "d\t9\ta.md\t# A b c\n");
    }

    #[test]
    fn scores_lie_between_none_and_one() {
        assert_eq!(parse_score("0"), Ok(0.0));
        assert_eq!(parse_score("1.0"), Ok(1.0));
        for text in ["-0.1", "1.1", "NaN", "x", ""] {
            assert!(parse_score(text).is_err(), "{text}");
        }
    }
}
