//! `tns sessions search`: where something was said.

use std::fmt::Write as _;

use anyhow::Context as _;
use tns_client::Rest;
use tns_protocol::rest::{Found, FoundIn, SearchList};

use crate::Context;
use crate::exit::Stop;

/// Hits that are printed when no number is given.
const DEFAULT_LIMIT: usize = 20;
/// Longest query, in bytes: it stands in an address, where a byte may take three.
const MAX_QUERY_BYTES: usize = 2 << 10;
/// Hits asked for at once.
const PAGE: u32 = 50;

/// Find messages and titles that have all words, best first; no hit is no failure
///
/// One line each: session, place in its log (- for a title), time, title, and the words around the first match.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The words
    #[arg(value_name = "QUERY", required = true)]
    query: Vec<String>,
    /// Print at most this many
    #[arg(long, value_name = "N", default_value_t = DEFAULT_LIMIT)]
    limit: usize,
}

pub(super) async fn run(context: &Context, rest: &Rest, args: Args) -> anyhow::Result<()> {
    let query = args.query.join(" ");
    if query.trim().is_empty() {
        return Err(Stop::usage("the query is blank; give some words").into());
    }
    if query.len() > MAX_QUERY_BYTES {
        let text = format!("the query has more than {MAX_QUERY_BYTES} bytes; give some words");
        return Err(Stop::usage(text).into());
    }
    let mut found = SearchList { results: Vec::new(), next_cursor: None, complete: true };
    while found.results.len() < args.limit {
        let page = rest.search_sessions(&query, found.next_cursor.as_deref(), Some(PAGE)).await;
        let page = page.context("search the sessions")?;
        found.complete = page.complete;
        found.next_cursor = page.next_cursor.filter(|_| !page.results.is_empty());
        found.results.extend(page.results);
        if found.next_cursor.is_none() {
            break;
        }
    }
    found.results.truncate(args.limit);
    // It belongs to the server's pages, not to what is printed.
    found.next_cursor = None;
    if !found.complete {
        context.out.note("messages are still being added to the index; search again later");
    }
    if context.out.json {
        return context.out.json(&found);
    }
    context.out.data(&lines(&found.results))
}

fn lines(hits: &[Found]) -> String {
    let mut text = String::new();
    for Found { session_id, title, found_in, seq, date, snippet, .. } in hits {
        let seq = match (found_in, seq) {
            (FoundIn::User | FoundIn::Assistant, Some(seq)) => seq.to_string(),
            (FoundIn::Title, _) | (_, None) => "-".to_owned(),
        };
        let title = title.as_deref().unwrap_or("-");
        // Writing into a String can't fail.
        let _ = writeln!(text, "{session_id}\t{seq}\t{date}\t{title}\t{snippet}");
    }
    text
}

#[cfg(test)]
mod tests {
    use tns_protocol::{SessionId, Timestamp};

    use super::*;

    #[test]
    fn a_hit_is_one_line_with_its_place() {
        let hit = |found_in, seq| Found {
            session_id: SessionId::parse("s").unwrap(),
            title: Some("Boats".into()),
            found_in,
            seq,
            date: Timestamp::from_micros(0),
            snippet: "… quiet harbour".into(),
            score: 1.0,
        };
        let text = lines(&[hit(FoundIn::Title, None), hit(FoundIn::User, Some(7))]);
        insta::assert_snapshot!(text, @r"
        s	-	1970-01-01T00:00:00.000Z	Boats	… quiet harbour
        s	7	1970-01-01T00:00:00.000Z	Boats	… quiet harbour
        ");
    }
}
