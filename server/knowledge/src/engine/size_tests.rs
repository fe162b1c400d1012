//! Large documents of any content: each is taken in with work that grows with its length only.

use std::iter::repeat_with;

use tantivy::tokenizer::TokenStream;

use super::tests::{FakeStore, ask, session};
use super::*;
use crate::chunk::{Limits, chunks};
use crate::segment::count::segmented_bytes;
use crate::words::{Side, analyzer};

/// Length of a large document, in bytes. The greatest that the server takes has sixteen times that; the work grows
/// with the length only, which a test here counts.
const LARGE: usize = 512 * 1024;

/// Repeatable numbers without a pattern (xorshift).
fn numbers() -> impl FnMut() -> usize {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize
    }
}

fn filled(bytes: usize, piece: impl FnMut() -> String) -> String {
    let mut text = String::with_capacity(bytes);
    for piece in repeat_with(piece) {
        if text.len() + piece.len() > bytes {
            break;
        }
        text.push_str(&piece);
    }
    text
}

fn one_of(alphabet: &str, number: usize) -> String {
    let characters: Vec<char> = alphabet.chars().collect();
    characters[number % characters.len()].to_string()
}

/// Texts of a kind that is hard on something, each nearly `bytes` long.
fn hard_texts(bytes: usize) -> Vec<(&'static str, String)> {
    let mut number = numbers();
    let base64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let script = |n: usize| format!("var a{}=function(b){{return b.getItem{}()+{n}}};", n % 977, n % 31);
    let han = |n: usize| char::from_u32(0x4E00 + n as u32 % 5_000).unwrap().to_string();
    let emoji = |n: usize| ["👩‍🔬", "👨‍👩‍👧‍👦", "🇸🇪", "👍🏽", "🏳️‍🌈"][n % 5].to_owned();
    vec![
        ("base64 in one line", filled(bytes, || one_of(base64, number()))),
        ("one letter", "a".repeat(bytes)),
        ("a minified script", filled(bytes, || script(number()))),
        ("han without spaces", filled(bytes, || han(number()))),
        ("joined emoji", filled(bytes, || emoji(number()))),
        ("short lines", filled(bytes, || format!("{}\n", one_of(base64, number())))),
        ("letters with marks", filled(bytes, || format!("e{}", "\u{301}".repeat(number() % 5)))),
        ("nothing but marks", "\u{301}".repeat(bytes / 2)),
        ("halves of flags", "🇸".repeat(bytes / 4)),
        ("headings", filled(bytes, || format!("# {}\nx\n\n", number()))),
        ("rules", "---\n".repeat(bytes / 4)),
        ("blank lines", "x\n\n".repeat(bytes / 3)),
    ]
}

/// Returns how many bytes are segmented to make the terms of a text.
fn work(text: &str) -> usize {
    segmented_bytes(|| {
        let mut analyzer = analyzer(Side::Document);
        for chunk in chunks(text, Limits::DEFAULT) {
            let mut stream = analyzer.token_stream(chunk.text);
            while stream.advance() {}
        }
    })
}

#[test]
fn the_work_for_a_text_grows_with_its_length_only() {
    const LENGTH: usize = 64 * 1024;
    for ((name, text), (_, longer)) in hard_texts(LENGTH).into_iter().zip(hard_texts(4 * LENGTH)) {
        let (once, four_times) = (work(&text), work(&longer));
        assert!(once <= 8 * LENGTH, "{name}: {once}");
        assert!(four_times <= 4 * once + LENGTH, "{name}: {once}, then {four_times}");
    }
}

#[tokio::test]
async fn large_documents_are_taken_in_and_hide_no_other() {
    for (name, text) in hard_texts(LARGE) {
        assert!(text.len() > LARGE - 100, "{name}");
        let store = Arc::new(FakeStore::default());
        store.add(&session(1), "a needle before");
        store.add(&session(1), &format!("{text}\n\nthimble"));
        store.add(&session(1), "a needle behind");
        let engine = KnowledgeEngine::open(None, Arc::clone(&store) as Arc<dyn DocumentStore>);
        assert_eq!(engine.search(ask("needle")).await.unwrap().len(), 2, "{name}");
        let hits = engine.search(ask("thimble")).await.unwrap();
        assert_eq!(hits.len(), 1, "{name}");
        assert!(hits[0].content.ends_with("thimble"), "{name}");
    }
}
