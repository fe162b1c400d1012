//! Words, pieces, lines and ranks, without a store.

use tns_protocol::Timestamp;

use super::{Candidate, Question, index_terms, rank};

fn marked(question: &str, text: &str) -> Option<String> {
    let found = Question::parse(question).find_in(text)?;
    let mut shown = found.snippet.clone();
    for mark in found.marks.iter().rev() {
        shown.insert(mark.end, ']');
        shown.insert(mark.start, '[');
    }
    Some(shown)
}

#[test]
fn terms_have_no_case_no_accents_and_no_width() {
    assert_eq!(
        index_terms("Größe der STRASSE, ＧＰＵ café foo_bar x2"),
        "grosse der strasse gpu cafe foo bar x2"
    );
    assert_eq!(index_terms("屋頂上 a ガ"), "屋頂 頂上 上 a ガ");
    assert_eq!(index_terms("ｶﾞ"), "ガ");
    assert_eq!(index_terms("… <<< \u{E000}\u{E001} \u{7}"), "");
    assert_eq!(index_terms(&"a".repeat(1000)).len(), 64);
}

#[test]
fn a_question_finds_whole_words_pieces_and_the_beginning_of_the_last_word() {
    for (question, text, expected) in [
        ("größe", "Die GRÖSSE zählt", Some("Die [GRÖSSE] zählt")),
        ("grosse", "Größe", Some("[Größe]")),
        ("conf", "a configured thing", Some("a [configured] thing")),
        ("conf thing", "a configured thing", None),
        ("thing conf", "a configured thing", Some("a [configured] [thing]")),
        ("c", "configured", None),
        ("c", "in C or D", Some("in [C] or D")),
        ("foo_bar", "call foo_bar()", Some("call [foo_bar]()")),
        ("foo_bar", "bar foo", None),
        ("foo bar", "bar foo", Some("[bar] [foo]")),
        ("曬太陽", "小貓在屋頂上曬太陽", Some("小貓在屋頂上[曬太陽]")),
        ("陽太", "小貓在屋頂上曬太陽", None),
        ("頂", "小貓在屋頂上曬太陽", Some("小貓在屋[頂]上曬太陽")),
        ("陽", "小貓在屋頂上曬太陽", Some("小貓在屋頂上曬太[陽]")),
        ("窓辺", "新しいGPUを窓辺に置いた", Some("新しいGPUを[窓辺]に置いた")),
        ("ＧＰＵ", "新しいGPUを窓辺に置いた", Some("新しい[GPU]を窓辺に置いた")),
        ("검색", "지식베이스를 검색한다", Some("지식베이스를 [검색]한다")),
        ("หลังคา", "แมวนอนบนหลังคา", Some("แมวนอนบน[หลังคา]")),
        ("しいGPUを窓", "新しいGPUを窓辺に置いた", Some("新[しいGPUを窓]辺に置いた")),
        ("天気", "新しいGPUを窓辺に置いた", None),
    ] {
        assert_eq!(marked(question, text).as_deref(), expected, "{question} in {text}");
    }
}

#[test]
fn what_has_no_words_asks_for_nothing() {
    for question in ["", " ", "<<<", "(", "\"", "*", "''", "- + :", "\u{E000}"] {
        assert!(Question::parse(question).is_empty(), "{question:?}");
    }
    let long = Question::parse(&"a ".repeat(100_000));
    assert_eq!(long.terms().count(), 1);
    let words: String = (0..100).map(|number| format!("w{number} ")).collect();
    assert_eq!(Question::parse(&words).terms().count(), 16);
}

#[test]
fn a_line_is_cut_at_characters_and_has_no_control_characters() {
    let text = format!("{}\n\u{1b}[31m needle\t\tin{}", "é".repeat(500), " 職".repeat(500));
    let found = Question::parse("needle").find_in(&text).unwrap();
    assert!(found.snippet.starts_with('…') && found.snippet.ends_with('…'));
    assert!(found.snippet.contains(" [31m needle in "), "{}", found.snippet);
    assert_eq!(found.marks.iter().map(|mark| &found.snippet[mark.clone()]).collect::<Vec<_>>(), ["needle"]);
    assert!(found.snippet.chars().count() <= 162);
}

#[test]
fn a_short_text_with_the_word_often_comes_first_and_age_weakens() {
    const DAY: i64 = 24 * 60 * 60 * 1_000_000;
    let question = Question::parse("word");
    let candidate = |name, days: i64, text: &str| Candidate {
        item: name,
        at: Timestamp::from_micros((1000 - days) * DAY),
        found: question.find_in(text).unwrap(),
    };
    let filler = "and so on ".repeat(50);
    let ranked = rank(vec![
        candidate("long", 0, &format!("word {filler}")),
        candidate("short", 0, "a word"),
        candidate("old", 900, "a word"),
        candidate("often", 0, "word word"),
    ]);
    let names: Vec<_> = ranked.iter().map(|ranked| ranked.candidate.item).collect();
    assert_eq!(names, ["often", "short", "old", "long"]);
    assert!(ranked.iter().all(|ranked| ranked.score.is_finite() && ranked.score > 0.0));
}

#[test]
fn what_may_not_be_in_a_stored_text_is_not_found_in_it() {
    let long = "a".repeat(200);
    for text in ["foo_bar\n\"Baz\" \t x2", "Größe café ＧＰＵ", "小貓在屋頂上曬太陽", "K ℡ ﬁn", "", &long]
    {
        let stored = serde_json::to_string(&[text]).unwrap();
        for question in [
            "foo_bar",
            "BAZ",
            "baz ",
            "nbaz",
            "x",
            "x2",
            "grosse",
            "cafe",
            "gpu",
            "曬太陽",
            "頂",
            "k",
            "tel",
            "fin",
            "q",
            &long,
        ] {
            let question = Question::parse(question);
            let (has, found) = (question.has_terms_in(text), question.find_in(text).is_some());
            assert!(question.may_be_in(&stored) || !has, "{question:?} in {text}");
            assert!(has || !found, "{question:?} in {text}");
        }
    }
    let stored = serde_json::to_string("one Two").unwrap();
    for (question, may) in
        [("two on", true), ("three", false), ("two thre", false), ("tw ", true), ("größe", false)]
    {
        assert_eq!(Question::parse(question).may_be_in(&stored), may, "{question}");
    }
}
