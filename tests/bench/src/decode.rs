//! The decoders alone: a long reply of every wire, in pieces as a network brings them, beside a floor that
//! splits lines and reads the text out of the same bytes. The floor makes no events, keeps no reply, checks
//! no limit and survives no odd server.

use std::borrow::Cow;
use std::hint::black_box;
use std::time::Instant;

use anyhow::{Result, ensure};
use serde::Deserialize;
use tns_server_engines::decode::{WireFormat, stream};
use tns_tests::standin::{Plan, events};

use crate::report::{Must, Report, median};

/// Tokens of the reply.
const TOKENS: usize = 20_000;
/// Bytes of a piece: what a segment of TCP over Ethernet carries.
const PIECE: usize = 1_448;
/// What the tokens are, in turn: words, line ends, quotes to escape, characters of several bytes.
const WORDS: [&str; 12] =
    ["The", " answer", " is", " in", " `", "notes", ".md", "`:", "\n\n", " \"quoted\"", " 東京", " und"];

/// Measures the decoder of each wire.
pub(crate) fn measure(rounds: usize, report: &mut Report) -> Result<()> {
    let text: Vec<&str> = (0..TOKENS).map(|at| WORDS[at % WORDS.len()]).collect();
    let plan = Plan::text(&text);
    let length = text.concat().len();
    for format in WireFormat::ALL {
        let all = events(format.provider(), &plan, false);
        let (count, body) = (all.len(), all.concat().into_bytes());
        let (mut ours, mut floor) = (Vec::new(), Vec::new());
        for round in 0..=rounds {
            let began = Instant::now();
            let decoded = stream(format, "m", black_box(&body).chunks(PIECE));
            let took = began.elapsed().as_secs_f64();
            ensure!(black_box(&decoded).is_ok(), "{}: {decoded:?}", format.provider());
            let began = Instant::now();
            let read = bare(format, black_box(&body))?;
            let bare_took = began.elapsed().as_secs_f64();
            ensure!(read == length, "the floor read {read} of {length} bytes of {}", format.provider());
            if round > 0 {
                ours.push(took);
                floor.push(bare_took);
            }
        }
        let (ours, floor) = (median(&ours), median(&floor));
        let rate = |seconds: f64| format!("{:.0}", body.len() as f64 / seconds / 1e6);
        report.ratio(
            &format!("decode {}, MB/s (million events/s)", format.provider()),
            format!("{} ({:.2})", rate(ours), count as f64 / ours / 1e6),
            format!("split and read {}", rate(floor)),
            floor / ours,
            Some(Must::AtLeast(0.4)),
        );
    }
    Ok(())
}

/// Reads the text of a body and returns its length.
fn bare(format: WireFormat, body: &[u8]) -> Result<usize> {
    let mut length = 0;
    let mut line = Vec::new();
    for piece in body.chunks(PIECE) {
        let mut rest = piece;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            line.extend_from_slice(&rest[..end]);
            rest = &rest[end + 1..];
            if let Some(json) = json(format, &line) {
                length += said(format, json)?;
            }
            line.clear();
        }
        line.extend_from_slice(rest);
    }
    Ok(length)
}

fn json(format: WireFormat, line: &[u8]) -> Option<&[u8]> {
    let json = if format == WireFormat::Ollama { line } else { line.strip_prefix(b"data: ")? };
    json.starts_with(b"{").then_some(json)
}

fn said(format: WireFormat, json: &[u8]) -> Result<usize> {
    Ok(match format {
        WireFormat::Messages => {
            let event: Message<'_> = serde_json::from_slice(json)?;
            event.delta.and_then(|delta| delta.text).map_or(0, |text| text.len())
        }
        WireFormat::Responses => {
            let event: Response<'_> = serde_json::from_slice(json)?;
            event.delta.map_or(0, |text| text.len())
        }
        WireFormat::ChatCompletions => {
            let event: Chunk<'_> = serde_json::from_slice(json)?;
            let texts = event.choices.iter().filter_map(|choice| choice.delta.content.as_ref());
            texts.map(|text| text.len()).sum()
        }
        WireFormat::Gemini => {
            let event: Candidates<'_> = serde_json::from_slice(json)?;
            let parts = event.candidates.iter().flat_map(|candidate| &candidate.content.parts);
            parts.map(|part| part.text.len()).sum()
        }
        WireFormat::Ollama => {
            let event: Line<'_> = serde_json::from_slice(json)?;
            event.message.content.len()
        }
    })
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    delta: Option<MessageDelta<'a>>,
}

#[derive(Deserialize)]
struct MessageDelta<'a> {
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Response<'a> {
    #[serde(borrow, default)]
    delta: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: Vec<Choice<'a>>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    delta: ChunkDelta<'a>,
}

#[derive(Deserialize)]
struct ChunkDelta<'a> {
    #[serde(borrow, default)]
    content: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Candidates<'a> {
    #[serde(borrow)]
    candidates: Vec<Candidate<'a>>,
}

#[derive(Deserialize)]
struct Candidate<'a> {
    #[serde(borrow)]
    content: Content<'a>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow)]
    parts: Vec<Part<'a>>,
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow)]
    text: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    message: LineMessage<'a>,
}

#[derive(Deserialize)]
struct LineMessage<'a> {
    #[serde(borrow)]
    content: Cow<'a, str>,
}
