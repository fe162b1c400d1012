//! Chunks hold the whole text, keep to their limits and know their lines.

use proptest::prelude::*;

use unicode_segmentation::UnicodeSegmentation;

use super::*;

const SMALL: Limits = Limits { target: 40, max: 60, overlap: 8 };

fn texts<'a>(chunks: &[Chunk<'a>]) -> Vec<&'a str> {
    chunks.iter().map(|chunk| chunk.text).collect()
}

/// Joins what the chunks add to each other.
fn joined(chunks: &[Chunk<'_>]) -> String {
    chunks.iter().map(|chunk| &chunk.text[chunk.overlap..]).collect()
}

fn visible(text: &str) -> String {
    text.chars().filter(|c| !is_blank(c.encode_utf8(&mut [0; 4]))).collect()
}

#[test]
fn nothing_visible_gives_no_chunk() {
    for text in ["", "\n\n\n", " \t\r\n \u{feff}\n", "\u{feff}", "\0\0"] {
        assert_eq!(chunks(text, Limits::DEFAULT), [], "{text:?}");
    }
}

#[test]
fn a_mark_of_byte_order_is_no_text() {
    assert_eq!(texts(&chunks("\u{feff}alpha", Limits::DEFAULT)), ["alpha"]);
}

#[test]
fn short_paragraphs_share_a_chunk_and_long_ones_do_not() {
    let text = "one two\n\nthree four\n\nfive six seven eight nine ten eleven";
    assert_eq!(
        texts(&chunks(text, SMALL)),
        ["one two\n\nthree four", "five six seven eight nine ten eleven"]
    );
}

#[test]
fn headings_start_chunks_and_give_a_path() {
    let text = "# Guide\n\n## Setup\nRun it.\n\nUsage\n-----\nUse it.\n\n# End\nBye.";
    let chunks = chunks(text, Limits::DEFAULT);
    let paths: Vec<Vec<&str>> =
        chunks.iter().map(|chunk| chunk.headings.iter().map(|heading| heading.title).collect()).collect();
    assert_eq!(texts(&chunks), ["# Guide\n\n## Setup\nRun it.", "Usage\n-----\nUse it.", "# End\nBye."]);
    assert_eq!(paths, [vec!["Guide", "Setup"], vec!["Guide", "Usage"], vec!["End"]]);
    let lines: Vec<_> = chunks.iter().map(|chunk| (chunk.start_line, chunk.end_line)).collect();
    assert_eq!(lines, [(1, 4), (6, 8), (10, 11)]);
}

#[test]
fn headings_without_a_body_are_one_chunk() {
    assert_eq!(texts(&chunks("# One\n\n# Two\n", Limits::DEFAULT)), ["# One\n\n# Two"]);
}

#[test]
fn comments_in_code_are_no_headings() {
    let text = "Intro\n\n```sh\n# not a heading\n\n# nor this\n```\n\nx = 1\n# nor this one\n\n#hashtag\n\n#!/bin/sh";
    let chunks = chunks(text, Limits::DEFAULT);
    assert_eq!(chunks.len(), 1);
    assert_eq!(chunks[0].headings, []);
}

#[test]
fn headings_end_somewhere() {
    let headings = |n: usize| chunks(&"# h\nx\n\n".repeat(n), Limits::DEFAULT).len();
    assert_eq!(headings(MAX_HEADINGS), MAX_HEADINGS);
    assert_eq!(headings(MAX_HEADINGS + 1), MAX_HEADINGS);
    assert!(headings(2 * MAX_HEADINGS) < MAX_HEADINGS + MAX_HEADINGS / 50);
}

#[test]
fn only_a_paragraph_of_one_line_is_underlined() {
    let count = |text: &str| chunks(text, Limits::DEFAULT)[0].headings.len();
    assert_eq!(count("Title\n---\n"), 1);
    assert_eq!(count("one\ntwo\n---\n"), 0);
    assert_eq!(count("---\n---\n---\n"), 0);
}

#[test]
fn a_long_line_is_no_heading() {
    let title = "t".repeat(MAX_HEADING_CHARS);
    assert_eq!(chunks(&format!("# {title}\nx"), Limits::DEFAULT)[0].headings.len(), 1);
    assert_eq!(chunks(&format!("# {title}t\nx"), Limits::DEFAULT)[0].headings.len(), 0);
}

#[test]
fn a_paragraph_at_the_limit_is_whole_and_one_over_it_is_two() {
    let limits = Limits { target: 1_000, max: 1_000, overlap: 100 };
    assert_eq!(chunks(&"a".repeat(1_000), limits).len(), 1);
    let over = "a".repeat(1_001);
    let two = chunks(&over, limits);
    assert_eq!(
        two.iter().map(|chunk| (chunk.text.len(), chunk.overlap)).collect::<Vec<_>>(),
        [(1_000, 0), (101, 100)]
    );
    assert_eq!(chunks(&"a".repeat(2_000), Limits::DEFAULT).len(), 1);
    assert!(chunks(&"a".repeat(2_001), Limits::DEFAULT).len() > 1);
}

#[test]
fn cuts_prefer_lines_then_sentences_then_words() {
    let cut = |text: &str| cut_length(text, SMALL).map(|length| text[..length].to_owned());
    let tail = "x".repeat(60);
    assert_eq!(
        cut(&format!("aaaa bbbb cccc. dddd eeee\nffff. gggg {tail}")),
        Some("aaaa bbbb cccc. dddd eeee\n".into())
    );
    assert_eq!(cut(&format!("aaaa bbbb cccc dddd. eeee ffff {tail}")), Some("aaaa bbbb cccc dddd. ".into()));
    assert_eq!(cut(&format!("aaaa bbbb cccc dddd eeee {tail}")), Some("aaaa bbbb cccc dddd eeee ".into()));
}

#[test]
fn pieces_of_a_paragraph_overlap_by_whole_words() {
    let text = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda";
    let chunks = chunks(text, SMALL);
    assert_eq!(texts(&chunks), ["alpha beta gamma delta epsilon zeta eta ", "eta theta iota kappa lambda"]);
    assert_eq!(joined(&chunks), text);
}

#[test]
fn enormous_lines_are_cut_without_loss() {
    let script = "var a=function(b){return b+1};".repeat(35_000);
    for text in
        [&"a".repeat(200_000), &script, &"界".repeat(5_000), &"👩‍🔬".repeat(3_000), &"| cell ".repeat(1_300)]
    {
        let chunks = chunks(text, Limits::DEFAULT);
        assert!(chunks.iter().all(|chunk| chunk.text.chars().count() <= Limits::DEFAULT.max));
        assert_eq!(joined(&chunks), text.trim_end());
        let mut ends =
            text.grapheme_indices(true).map(|(at, _)| at).collect::<std::collections::HashSet<_>>();
        ends.insert(text.len());
        ends.insert(text.trim_end().len());
        assert!(chunks.iter().all(|c| ends.contains(&c.start) && ends.contains(&(c.start + c.text.len()))));
    }
}

#[test]
fn one_character_with_thousands_of_marks_is_cut() {
    let text = format!("before {}after", "e".to_owned() + &"\u{301}".repeat(5_000));
    let chunks = chunks(&text, Limits::DEFAULT);
    assert!(chunks.iter().all(|chunk| chunk.text.chars().count() <= Limits::DEFAULT.max));
    assert_eq!(joined(&chunks), text);
}

proptest! {
    #[test]
    fn chunks_hold_everything_within_the_limit_and_know_their_lines(
        text in "([a-z界é👩‍🔬🇸🇪́#=.`-]{1,12}|[ ]{1,3}|\r?\n|\n\n|# ){0,120}",
    ) {
        let chunks = chunks(&text, SMALL);
        prop_assert_eq!(visible(&joined(&chunks)), visible(&text));
        for chunk in &chunks {
            prop_assert!(chunk.text.chars().count() <= SMALL.max);
            prop_assert!(!is_blank(chunk.text));
            prop_assert_eq!(&text[chunk.start..chunk.start + chunk.text.len()], chunk.text);
            let line = 1 + text[..chunk.start].matches('\n').count() as u64;
            prop_assert_eq!(chunk.start_line, line);
            let breaks = chunk.text.bytes().rev().skip(1).filter(|byte| *byte == b'\n').count() as u64;
            prop_assert_eq!(chunk.end_line, line + breaks);
        }
        for pair in chunks.windows(2) {
            let end = pair[0].start + pair[0].text.len();
            let new = pair[1].start + pair[1].overlap;
            prop_assert!(end <= new && is_blank(&text[end..new]));
        }
    }
}
