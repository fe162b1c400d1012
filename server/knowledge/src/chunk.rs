//! Text → chunks with their lines and headings. Pure; it never changes a text, a chunk is a slice of it.
//!
//! Paragraphs of one section are gathered up to the target size. A paragraph over the maximum is cut, best at the
//! end of a line, a sentence or a word, and the cut pieces overlap a little, so that a passage at a seam is found.

use std::ops::Range;

use crate::segment::characters;

/// Longest line in characters that counts as a heading.
const MAX_HEADING_CHARS: usize = 200;
/// Most headings of a text that count as such; later ones are plain text. Each may start a chunk of a few
/// characters, so without an end a document of nothing but headings would give a million chunks.
const MAX_HEADINGS: usize = 10_000;

/// Sizes in characters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Paragraphs are gathered, and long ones cut, to about this size.
    target: usize,
    /// No chunk is longer.
    max: usize,
    /// How much of the piece before a cut is repeated after it; less than half of `target`.
    overlap: usize,
}

impl Limits {
    /// The sizes in use: a passage that is read at a glance and fits several times into a model's note.
    pub(crate) const DEFAULT: Self = Self { target: 800, max: 2_000, overlap: 80 };
}

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunk<'a> {
    /// What it says.
    pub(crate) text: &'a str,
    /// Where it starts in the text, in bytes.
    pub(crate) start: usize,
    /// How many bytes at its start are the end of the chunk before it.
    pub(crate) overlap: usize,
    /// Its first line, from 1.
    pub(crate) start_line: u64,
    /// Its last line, from 1.
    pub(crate) end_line: u64,
    /// The headings it stands under, outermost first.
    pub(crate) headings: Vec<Heading<'a>>,
}

/// A heading of Markdown: `## Title`, or a line underlined with `===` or `---`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Heading<'a> {
    /// 1 is the outermost.
    pub(crate) level: usize,
    /// Its text.
    pub(crate) title: &'a str,
    /// Where its line starts, in bytes.
    pub(crate) start: usize,
}

/// Cuts a text. A text without anything visible gives no chunk.
pub(crate) fn chunks(text: &str, limits: Limits) -> Vec<Chunk<'_>> {
    let mut gathering = Gathering { text, limits, lines: line_starts(text), open: None, chunks: Vec::new() };
    let mut path: Vec<Heading<'_>> = Vec::new();
    let mut headings = 0;
    for mut block in blocks(text) {
        headings += usize::from(block.heading.is_some());
        block.heading = block.heading.filter(|_| headings <= MAX_HEADINGS);
        if let Some(heading) = block.heading {
            gathering.close_section();
            path.retain(|outer| outer.level < heading.level);
            path.push(heading);
        }
        gathering.add(&block, &path);
    }
    gathering.close();
    gathering.chunks
}

/// A paragraph or a heading: lines without a blank one between them.
struct Block<'a> {
    range: Range<usize>,
    /// It has more than one line.
    is_long: bool,
    heading: Option<Heading<'a>>,
}

/// Splits a text into blocks. A heading stands at the start of a paragraph and outside of fenced code.
fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    let mut is_open = false;
    let mut fence: Option<&str> = None;
    let mut offset = text.len() - text.trim_start_matches('\u{feff}').len();
    for line in text[offset..].split_inclusive('\n') {
        let (start, end) = (offset, offset + line.trim_end().len());
        offset += line.len();
        if is_blank(line) {
            is_open = false;
            continue;
        }
        let marker = ["```", "~~~"].into_iter().find(|marker| line.trim_start().starts_with(marker));
        let is_code = fence.is_some() || marker.is_some();
        if marker.is_some() && (fence.is_none() || fence == marker) {
            fence = if fence.is_none() { marker } else { None };
        }
        match blocks.last_mut().filter(|_| is_open) {
            Some(paragraph) => {
                let heading = if is_code || paragraph.is_long {
                    None
                } else {
                    underlined(&text[paragraph.range.clone()], line)
                };
                paragraph.is_long = true;
                paragraph.range.end = end;
                if let Some((level, title)) = heading {
                    paragraph.heading = Some(Heading { level, title, start: paragraph.range.start });
                    is_open = false;
                }
            }
            None => {
                let heading = if is_code { None } else { marked(line) };
                is_open = heading.is_none();
                let heading = heading.map(|(level, title)| Heading { level, title, start });
                blocks.push(Block { range: start..end, is_long: false, heading });
            }
        }
    }
    blocks
}

/// Reads `## Title`.
fn marked(line: &str) -> Option<(usize, &str)> {
    let line = line.trim_end();
    let rest = line.trim_start_matches('#');
    let level = line.len() - rest.len();
    let title = rest.trim().trim_end_matches('#').trim_end();
    let is_heading = (1..=6).contains(&level) && rest.starts_with([' ', '\t']) && !title.is_empty();
    (is_heading && is_short(title)).then_some((level, title))
}

/// Reads the underline of a paragraph that has one line.
fn underlined<'a>(paragraph: &'a str, line: &str) -> Option<(usize, &'a str)> {
    let line = line.trim();
    let level = match line.as_bytes().first() {
        Some(b'=') => 1,
        Some(b'-') => 2,
        _ => return None,
    };
    let is_rule = line.len() >= 3 && line.bytes().all(|byte| byte == line.as_bytes()[0]);
    let title = paragraph.trim();
    let has_words = title.contains(char::is_alphanumeric);
    (is_rule && has_words && is_short(title)).then_some((level, title))
}

fn is_short(title: &str) -> bool {
    title.chars().nth(MAX_HEADING_CHARS).is_none()
}

fn is_blank(text: &str) -> bool {
    text.chars().all(|c| c.is_whitespace() || c.is_control() || matches!(c, '\u{feff}' | '\u{200b}'))
}

/// The chunks made so far and the one that still grows.
struct Gathering<'a> {
    text: &'a str,
    limits: Limits,
    lines: Vec<usize>,
    open: Option<Open<'a>>,
    chunks: Vec<Chunk<'a>>,
}

/// A chunk that still grows.
struct Open<'a> {
    range: Range<usize>,
    chars: usize,
    /// It holds more than headings.
    has_body: bool,
    headings: Vec<Heading<'a>>,
}

impl<'a> Gathering<'a> {
    /// Adds a block to the open chunk if it fits, else to a new one. Headings stay with what follows them.
    fn add(&mut self, block: &Block<'_>, path: &[Heading<'a>]) {
        let has_body = block.heading.is_none();
        if let Some(open) = &mut self.open {
            let chars = open.chars + self.text[open.range.end..block.range.end].chars().count();
            if chars <= if open.has_body { self.limits.target } else { self.limits.max } {
                open.range.end = block.range.end;
                open.chars = chars;
                open.has_body |= has_body;
                open.headings = path.to_vec();
                return;
            }
        }
        let start = match self.open.take() {
            Some(open) if !open.has_body && has_body => open.range.start,
            open => {
                self.open = open;
                self.close();
                block.range.start
            }
        };
        let range = start..block.range.end;
        let chars = self.text[range.clone()].chars().count();
        if chars <= self.limits.max {
            self.open = Some(Open { range, chars, has_body, headings: path.to_vec() });
        } else {
            self.cut(range, path);
        }
    }

    /// Ends the open chunk before a heading, unless it holds nothing but headings.
    fn close_section(&mut self) {
        if self.open.as_ref().is_some_and(|open| open.has_body) {
            self.close();
        }
    }

    fn close(&mut self) {
        if let Some(open) = self.open.take() {
            self.push(open.range, 0, &open.headings);
        }
    }

    /// Cuts a paragraph that is too long into overlapping pieces.
    fn cut(&mut self, range: Range<usize>, path: &[Heading<'a>]) {
        let (mut start, mut overlap) = (range.start, 0);
        while let Some(length) = cut_length(&self.text[start..range.end], self.limits) {
            self.push(start..start + length, overlap, path);
            overlap = overlap_length(&self.text[start..start + length], self.limits);
            start += length - overlap;
        }
        self.push(start..range.end, overlap, path);
    }

    fn push(&mut self, range: Range<usize>, overlap: usize, path: &[Heading<'a>]) {
        let text = &self.text[range.clone()];
        if is_blank(text) {
            return;
        }
        let line_of = |at: usize| self.lines.partition_point(|start| *start <= at) as u64;
        self.chunks.push(Chunk {
            text,
            start: range.start,
            overlap,
            start_line: line_of(range.start),
            end_line: line_of(range.end - 1),
            headings: path.to_vec(),
        });
    }
}

fn line_starts(text: &str) -> Vec<usize> {
    let after_breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
    std::iter::once(0).chain(after_breaks).collect()
}

/// Returns where to cut, in bytes; `None`: what is left is small enough.
fn cut_length(rest: &str, limits: Limits) -> Option<usize> {
    // A last piece may be a quarter longer, so that none is much smaller than the others.
    let last = (limits.target + limits.target / 4).min(limits.max);
    rest.char_indices().nth(last)?;
    // One character more than a chunk can take: what is cut off here is not looked at.
    let near = rest.char_indices().nth(limits.max + 1).map_or(rest, |(end, _)| &rest[..end]);
    let mut best = None;
    let mut chars = 0;
    let mut before = "";
    for (start, grapheme) in characters(near) {
        let end = start + grapheme.len();
        chars += grapheme.chars().count();
        if chars > limits.target {
            // A character with so many marks that it is a piece of its own, or must be cut itself.
            let whole = (chars <= limits.max).then_some(end);
            let inside = near.char_indices().nth(limits.target).map(|(at, _)| at);
            return best.map(|(_, end)| end).or(whole).or(inside);
        }
        let place = if chars * 2 < limits.target { 0 } else { place_after(before, grapheme) };
        if best.is_none_or(|(best, _)| place >= best) {
            best = Some((place, end));
        }
        before = grapheme;
    }
    None
}

/// Says how good a cut after this character is.
fn place_after(before: &str, grapheme: &str) -> u8 {
    let is_space = grapheme.starts_with(char::is_whitespace);
    if grapheme.contains('\n') {
        3
    } else if matches!(grapheme, "。" | "！" | "？")
        || is_space && matches!(before, "." | "!" | "?" | ";" | ":")
    {
        2
    } else {
        u8::from(is_space)
    }
}

/// Returns how much of the end of a piece is repeated, in bytes: whole characters, whole words where there are any.
fn overlap_length(piece: &str, limits: Limits) -> usize {
    if piece.chars().nth(limits.target / 2).is_none() {
        return 0;
    }
    let mut chars = 0;
    let mut start = piece.len();
    for (at, grapheme) in characters(piece).rev() {
        chars += grapheme.chars().count();
        if chars > limits.overlap {
            break;
        }
        start = at;
    }
    let (before, tail) = piece.split_at(start);
    if !before.ends_with(char::is_whitespace)
        && let Some((_, from_word)) = tail.split_once(char::is_whitespace)
        && !is_blank(from_word)
    {
        return from_word.len();
    }
    tail.len()
}

#[cfg(test)]
mod tests;
