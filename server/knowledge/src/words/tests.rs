//! What terms texts and questions give.

use proptest::prelude::*;

use super::*;

fn terms(side: Side, text: &str) -> Vec<String> {
    let mut analyzer = analyzer(side);
    let mut stream = analyzer.token_stream(text);
    let mut terms = Vec::new();
    stream.process(&mut |token| terms.push(token.text.clone()));
    terms
}

fn document(text: &str) -> Vec<String> {
    terms(Side::Document, text)
}

#[test]
fn stop_words_are_sorted_for_the_search() {
    assert!(STOP_WORDS.is_sorted());
}

#[test]
fn english_endings_and_empty_words_go() {
    assert_eq!(document("The servers are running on the Server's port"), ["server", "run", "server", "port"]);
    assert_eq!(document("we don't and they’ll not"), Vec::<String>::new());
}

#[test]
fn words_of_code_are_kept_whole_and_in_parts() {
    assert_eq!(document("parseHTTPHeader"), ["parsehttphead", "pars", "http", "header"]);
    assert_eq!(document("max_open_files"), ["maxopenfil", "max", "open", "file"]);
    assert_eq!(document("utf8"), ["utf8", "utf", "8"]);
    assert_eq!(document("__init__"), ["init"]);
    assert_eq!(document("GPUs"), ["gpu"]);
    assert_eq!(document("idleGPUs"), ["idlegpus", "idl", "gpu"]);
    assert_eq!(document("___"), Vec::<String>::new());
}

#[test]
fn both_spellings_of_a_name_of_code_share_the_whole_word() {
    assert!(document("getUserName").iter().any(|term| document("get_user_name").first() == Some(term)));
}

#[test]
fn symbols_of_languages_stay_with_their_word() {
    assert_eq!(document("C++ kits, C#, notepad++"), ["c++", "kit", "c#", "notepad++", "notepad"]);
    assert_eq!(document("issue#12 a++b x+++"), ["issu", "12", "b", "x"]);
}

#[test]
fn scripts_without_spaces_give_pairs_and_in_documents_single_characters() {
    assert_eq!(document("屋頂上"), ["屋", "頂", "屋頂", "上", "頂上"]);
    assert_eq!(question_terms("屋頂上"), ["屋頂", "頂上"]);
    assert_eq!(question_terms("猫"), ["猫"]);
    assert_eq!(question_terms("新しいGPUを"), ["新し", "しい", "gpu", "を"]);
    assert_eq!(question_terms("검색"), ["검색"]);
}

#[test]
fn marks_stay_with_their_letter_in_pairs() {
    assert_eq!(question_terms("หลังคา"), ["หลั", "ลัง", "งค", "คา"]);
}

#[test]
fn widths_cases_and_compositions_are_folded() {
    assert_eq!(document("ＧＰＵ"), ["gpu"]);
    assert_eq!(document("GRÖSSE"), document("größe"));
    assert_eq!(document("e\u{301}te\u{301}"), document("ÉTÉ"));
    assert_eq!(document("ΟΔΟΣ"), document("οδος"));
}

#[test]
fn symbols_alone_are_no_words() {
    for text in ["<<<", "(", "\"", "*", "''", "   ", "\u{feff}", "🙂", "the of and", "-", "__"] {
        assert_eq!(question_terms(text), Vec::<String>::new(), "{text:?}");
    }
}

#[test]
fn a_long_word_is_its_beginning() {
    assert_eq!(document(&"a".repeat(MAX_WORD_BYTES)), ["a".repeat(MAX_WORD_BYTES)]);
    assert_eq!(document(&"a".repeat(MAX_WORD_BYTES + 1)), ["a".repeat(MAX_WORD_BYTES)]);
}

#[test]
fn a_word_that_looks_like_encoded_data_is_kept_whole_only() {
    assert_eq!(document("9f86d081884c7d659a2feaa0c55ad015"), ["9f86d081884c7d659a2feaa0c55ad015"]);
    assert_eq!(document("dGhlIHF1aWNrIGJyb3duIGZveA"), ["dghlihf1awnrigjyb3duigzvea"]);
    let at_the_limit = "a1b2".repeat(MAX_RAGGED_BYTES / 4);
    assert!(document(&at_the_limit).len() > 1);
    assert_eq!(document(&format!("{at_the_limit}c")), [format!("{at_the_limit}c")]);
    for name in [
        "any_text_gives_short_terms_and_a_question_finds_it",
        "isAToUtf8StringWithLimit",
        "a_b_c_parseTheHeader",
    ] {
        assert!(document(name).len() > 2, "{name}");
    }
}

#[test]
fn a_question_has_an_end() {
    let many = (0..MAX_QUESTION_TERMS + 1).map(|n| format!("x{n:x}y ")).collect::<String>();
    assert_eq!(question_terms(&many).len(), MAX_QUESTION_TERMS);
    let late = format!("{}needle", " ".repeat(MAX_QUESTION_BYTES - "needle".len()));
    assert_eq!(question_terms(&late), ["needl"]);
    assert_eq!(question_terms(&format!(" {late}")), ["needl"], "a cut word keeps its beginning");
    assert_eq!(question_terms(&format!("{}needle", " ".repeat(MAX_QUESTION_BYTES))), Vec::<String>::new());
}

proptest! {
    #[test]
    fn any_text_gives_short_terms_and_a_question_finds_its_own_text(text in "\\PC{0,60}") {
        let own = document(&text);
        prop_assert!(own.iter().all(|term| !term.is_empty() && term.len() <= MAX_WORD_BYTES * 4));
        for term in question_terms(&text) {
            prop_assert!(own.contains(&term), "{term:?} of {text:?}");
        }
    }
}
