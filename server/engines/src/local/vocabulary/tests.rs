//! Vocabularies of both kinds, and text out of bytes.

use super::*;

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

fn list(texts: &[&str]) -> Value {
    Value::Array(texts.iter().map(|word| text(word)).collect())
}

fn metadata(entries: Vec<(&str, Value)>) -> HashMap<String, Value> {
    entries.into_iter().map(|(key, value)| (format!("tokenizer.ggml.{key}"), value)).collect()
}

fn kinds(kinds: &[i32]) -> Value {
    Value::Array(kinds.iter().map(|kind| Value::I32(*kind)).collect())
}

/// A SentencePiece vocabulary: `<unk>`, `<s>`, `</s>`, two bytes of `é`, words.
fn pieces(prefix: bool) -> Vocabulary {
    let tokens = ["<unk>", "<s>", "</s>", "<0xC3>", "<0xA9>", "▁", "a", "b", "ab", "▁ab", "▁a", "<|user|>"];
    let scores = [0.0, 0.0, 0.0, 0.0, 0.0, -5.0, -6.0, -7.0, -1.0, -2.0, -3.0, 0.0];
    let metadata = metadata(vec![
        ("model", text("llama")),
        ("tokens", list(&tokens)),
        ("token_type", kinds(&[2, 3, 3, 6, 6, 1, 1, 1, 1, 1, 1, 4])),
        ("scores", Value::Array(scores.map(Value::F32).to_vec())),
        ("unknown_token_id", Value::U32(0)),
        ("bos_token_id", Value::U32(1)),
        ("eos_token_id", Value::U32(2)),
        ("add_space_prefix", Value::Bool(prefix)),
    ]);
    Vocabulary::read(&metadata).unwrap()
}

fn said(vocabulary: &Vocabulary, tokens: &[u32]) -> String {
    let mut characters = Characters::default();
    let mut text = String::new();
    for token in tokens {
        match vocabulary.piece(*token).unwrap() {
            Piece::Bytes(bytes) => text.push_str(&characters.push(bytes)),
            Piece::Control(name) => text.push_str(name),
        }
    }
    text + characters.end()
}

#[test]
fn pieces_are_merged_by_their_scores_and_what_is_no_piece_is_bytes() {
    let vocabulary = pieces(false);
    for (text, tokens) in [
        ("ab", vec![1, 8]),
        ("ab ab", vec![1, 8, 9]),
        ("aab", vec![1, 6, 8]),
        ("é", vec![1, 3, 4]),
        ("<s>ab", vec![1, 8]),
        ("a<|user|>b", vec![1, 6, 11, 7]),
    ] {
        assert_eq!(vocabulary.encode(text).unwrap(), tokens, "{text}");
    }
    assert_eq!(pieces(true).encode("ab").unwrap(), [1, 9]);
    assert_eq!(said(&vocabulary, &[8, 9, 3, 4]), "ab abé");
    assert_eq!((vocabulary.ends(2), vocabulary.ends(8)), (true, false));
    assert_eq!((vocabulary.begin_name.as_str(), vocabulary.end_name.as_str()), ("<s>", "</s>"));
}

#[test]
fn names_of_driving_tokens_in_a_text_drive_nothing() {
    let vocabulary = pieces(false);
    for (text, safe) in [
        ("a </s> b", "a <\u{200b}/s> b"),
        ("</s></s>", "<\u{200b}/s><\u{200b}/s>"),
        ("<<s>", "<<\u{200b}s>"),
        ("a < b, <s, é<p>", "a < b, <s, é<p>"),
        ("", ""),
    ] {
        assert_eq!(vocabulary.defused(text), safe);
        let tokens = vocabulary.encode(&format!("x{safe}")).unwrap();
        assert!(!tokens[1..].iter().any(|token| matches!(token, 1 | 2)), "{text}");
    }
}

#[test]
fn lists_that_do_not_hold_together_are_refused() {
    let good = || {
        metadata(vec![
            ("model", text("gpt2")),
            ("tokens", list(&["a", "b", "ab"])),
            ("token_type", kinds(&[1, 1, 1])),
            ("merges", list(&["a b"])),
        ])
    };
    assert_eq!(Vocabulary::read(&good()).unwrap().encode("ab").unwrap(), [2]);
    for (key, value) in [
        ("tokens", Value::U32(1)),
        ("tokens", list(&[])),
        ("tokens", list(&["a"])),
        ("token_type", kinds(&[1])),
        ("merges", list(&["a z"])),
        ("model", text("t5")),
    ] {
        let mut bad = good();
        bad.insert(format!("tokenizer.ggml.{key}"), value);
        assert!(Vocabulary::read(&bad).is_err(), "{key}");
    }
    // A number that names no token is none.
    let mut far = good();
    far.insert("tokenizer.ggml.eos_token_id".to_owned(), Value::U32(u32::MAX));
    assert!(!Vocabulary::read(&far).unwrap().ends(u32::MAX));
}

#[test]
fn a_bytewise_alphabet_has_every_byte_once() {
    let alphabet = alphabet();
    let bytes: HashSet<u8> = alphabet.values().copied().collect();
    assert_eq!((alphabet.len(), bytes.len()), (256, 256));
    for (c, byte) in [('Ġ', b' '), ('Ċ', b'\n'), ('!', b'!'), ('é', 0xe9), ('Ń', 0xad)] {
        assert_eq!(alphabet[&c], byte);
    }
}

#[test]
fn a_character_is_never_cut() {
    let text = "aé東😀";
    for size in 1..=text.len() {
        let mut characters = Characters::default();
        let told: Vec<String> = text.as_bytes().chunks(size).map(|bytes| characters.push(bytes)).collect();
        assert_eq!((told.concat().as_str(), characters.end()), (text, ""), "{size}");
    }
    let mut characters = Characters::default();
    assert_eq!(characters.push(b"a\xffb\xe6\x9d"), "a\u{fffd}b");
    assert_eq!(characters.push(b"c"), "\u{fffd}c");
    assert_eq!(characters.push(b"\xf0\x9f"), "");
    assert_eq!((characters.end(), characters.end()), ("\u{fffd}", ""));
}
