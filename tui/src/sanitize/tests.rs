//! What the sanitiser lets through to a terminal.

use proptest::prelude::*;

use super::*;

fn block(text: &str) -> String {
    clean(Mode::Block, text).text
}

#[test]
fn escape_sequences_are_shown_and_not_sent() {
    for (input, shown) in [
        ("\u{1b}]52;c;cm0=\u{7}", "\\u{1B}]52;c;cm0=\\u{7}"),
        ("\u{1b}[2J", "\\u{1B}[2J"),
        ("\u{9b}2J", "\\u{9B}2J"),
        ("a\u{8}b\0c\u{7f}", "a\\u{8}b\\u{0}c\\u{7F}"),
        ("a\u{202E}gnp.x\u{2066}\u{2069}", "a\\u{202E}gnp.x\\u{2066}\\u{2069}"),
        ("sr\u{200B}c", "sr\\u{200B}c"),
        ("\u{E0041}\u{FEFF}\u{AD}", "\\u{E0041}\\u{FEFF}\\u{AD}"),
    ] {
        assert_eq!(block(input), shown);
    }
}

#[test]
fn a_sequence_cut_between_two_tokens_stays_harmless() {
    let (mut sanitizer, mut out) = (Sanitizer::new(Mode::Block), String::new());
    assert_eq!(sanitizer.push(&mut out, "x\u{1b}"), 0);
    assert_eq!(sanitizer.push(&mut out, "]52;c;cm0=\u{7}"), "x\\u{1B}".len());
    assert_eq!(out, "x\\u{1B}]52;c;cm0=\\u{7}");
}

#[test]
fn progress_lines_show_their_last_state() {
    assert_eq!(block("1/3\r2/3\r3/3\nok\n"), "3/3\nok\n");
    assert_eq!(block("line\r\nline2\r\n"), "line\nline2\n");
    assert_eq!(block("a\r\r\nb\r"), "a\nb");
    let (mut sanitizer, mut out) = (Sanitizer::new(Mode::Block), String::from(""));
    sanitizer.push(&mut out, "first\n10 %\r");
    assert_eq!(sanitizer.push(&mut out, "20 %"), "first\n".len());
    assert_eq!(out, "first\n20 %");
}

#[test]
fn what_is_to_be_approved_hides_nothing_behind_a_carriage_return() {
    let shown = clean(Mode::Exact, "rm -rf /\recho ok\u{1b}[2K\r\n");
    assert_eq!(shown.text, "rm -rf /\\u{D}echo ok\\u{1B}[2K\\u{D}\n");
    assert_eq!(shown.escaped, 3);
}

#[test]
fn tabs_are_spaces_and_one_line_stays_one_line() {
    assert_eq!(block("12\tfn main"), "12    fn main");
    assert_eq!(line("a\tb\nc"), "a\\u{9}b\\u{A}c");
    assert_eq!(clean(Mode::Draft, "a\tb\r\nc\rd").text, "a\tb\nc\nd");
}

#[test]
fn ordinary_writing_passes_unchanged() {
    for text in [
        "职员表 안녕하세요 ｶﾞ",
        "naïve e\u{301} café",
        "السلام عليكم",
        "می\u{200C}خواهم",
        "क्\u{200D}ष",
        "👩\u{200D}👩\u{200D}👧 ❤\u{FE0F} 1\u{FE0F}\u{20E3} 🇩🇪 👍🏽",
        "“quoted” 1\u{202F}000",
    ] {
        assert_eq!(clean(Mode::Exact, text), Clean { text: text.into(), escaped: 0 });
    }
}

#[test]
fn joiners_selectors_and_marks_out_of_place_are_shown() {
    assert_eq!(block("rm\u{200D}x"), "rm\\u{200D}x");
    assert_eq!(block("👩\u{200D}"), "👩\\u{200D}");
    assert_eq!(block("a\u{FE0F}"), "a\\u{FE0F}");
    assert_eq!(block("❤\u{FE0F}\u{FE01}"), "❤\u{FE0F}\\u{FE01}");
    assert_eq!(block("\u{301}x"), "\\u{301}x");
    let piled = format!("e{}", "\u{301}".repeat(MAX_MARKS + 1));
    assert_eq!(block(&piled), format!("e{}\\u{{301}}", "\u{301}".repeat(MAX_MARKS)));
}

/// Text as an attacker would write it: much of what is dangerous, some of what is ordinary.
fn hostile() -> impl Strategy<Value = String> {
    let dangerous = prop::sample::select(vec![
        '\u{1b}',
        '\r',
        '\n',
        '\t',
        '\u{8}',
        '\u{9b}',
        '\u{202E}',
        '\u{200B}',
        '\u{200D}',
        '\u{200C}',
        '\u{FE0F}',
        '\u{E0041}',
        '\u{301}',
        '👩',
        '职',
        'ن',
        'a',
        ' ',
        ']',
        '[',
    ]);
    prop::collection::vec(prop_oneof![3 => dangerous, 1 => any::<char>()], 0..60)
        .prop_map(|chars| chars.into_iter().collect())
}

proptest! {
    #[test]
    fn nothing_that_drives_a_terminal_comes_out(text in hostile()) {
        for mode in [Mode::Block, Mode::Exact, Mode::Line, Mode::Draft] {
            let out = clean(mode, &text).text;
            for c in out.chars() {
                let allowed = match mode {
                    Mode::Block | Mode::Exact => c == '\n',
                    Mode::Line => false,
                    Mode::Draft => matches!(c, '\n' | '\t'),
                };
                prop_assert!(allowed || !c.is_control(), "{c:?} in {out:?}");
                prop_assert!(!is_hidden(c) || allowed, "{c:?} in {out:?}");
            }
        }
    }

    #[test]
    fn pieces_give_what_the_whole_gives(text in hostile(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6)) {
        let chars: Vec<char> = text.chars().collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(chars.len() + 1)).collect();
        cuts.sort_unstable();
        cuts.push(chars.len());
        for mode in [Mode::Block, Mode::Exact, Mode::Line, Mode::Draft] {
            let (mut sanitizer, mut out, mut start) = (Sanitizer::new(mode), String::new(), 0);
            for &cut in &cuts {
                let before = out.clone();
                let piece: String = chars[start..cut].iter().collect();
                let unchanged = sanitizer.push(&mut out, &piece);
                prop_assert_eq!(&out[..unchanged], &before[..unchanged]);
                start = cut;
            }
            sanitizer.finish(&mut out);
            prop_assert_eq!(out, clean(mode, &text).text);
        }
    }

    #[test]
    fn clean_text_is_clean(text in hostile()) {
        let once = block(&text);
        prop_assert_eq!(block(&once), once);
    }
}
