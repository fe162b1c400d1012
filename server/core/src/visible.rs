//! Text for people's eyes: what can't be seen, or looks like something else, becomes a visible escape.
//! Nothing is cut, and the bytes that run are never changed by it.

/// A rendered text and what was done to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visible {
    /// The text with `\u{…}` for each hidden or misleading character and `⏎` before each line break.
    pub text: String,
    /// How many characters were escaped; line breaks don't count.
    pub escaped: usize,
    /// How many line breaks it holds.
    pub line_breaks: usize,
}

/// The mark before a line break.
const LINE_MARK: char = '⏎';

/// Renders a text.
pub fn render(text: &str) -> Visible {
    let mut out = Visible { text: String::with_capacity(text.len()), escaped: 0, line_breaks: 0 };
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end =
            if in_word(first) { rest.find(|c| !in_word(c)).unwrap_or(rest.len()) } else { first.len_utf8() };
        let (run, tail) = rest.split_at(end);
        let mixed = run.chars().any(|c| c.is_ascii_alphabetic()) && run.chars().any(is_lookalike);
        for c in run.chars() {
            push(&mut out, c, mixed);
        }
        rest = tail;
    }
    out
}

/// Renders a name or other text that stands on one line: a line break is escaped too.
pub fn one_line(text: &str) -> String {
    render(text).text.replace("⏎\n", "\\u{A}")
}

fn push(out: &mut Visible, c: char, mixed: bool) {
    if c == '\n' {
        out.line_breaks += 1;
        out.text.push(LINE_MARK);
        out.text.push('\n');
    } else if is_hidden(c) || c == LINE_MARK || (mixed && is_lookalike(c)) {
        out.escaped += 1;
        out.text.push_str(&format!("\\u{{{:X}}}", u32::from(c)));
    } else {
        out.text.push(c);
    }
}

fn in_word(c: char) -> bool {
    c.is_alphanumeric() || c == '-' || c == '_'
}

/// Whether a character shows nothing, moves the cursor, reorders its neighbours, or passes for a space.
///
/// `\n` and `\t` don't count. Ranges: Unicode's `Default_Ignorable_Code_Point`, `Bidi_Control`, controls and
/// white space other than U+0020, plus the blank braille pattern.
pub fn is_hidden(c: char) -> bool {
    if c.is_control() {
        return c != '\n' && c != '\t';
    }
    matches!(u32::from(c),
        0xA0 | 0xAD | 0x34F | 0x61C | 0x115F | 0x1160 | 0x1680 | 0x17B4 | 0x17B5
        | 0x180B..=0x180F | 0x2000..=0x200F | 0x2028..=0x202F | 0x205F..=0x206F | 0x2800
        | 0x3000 | 0x3164 | 0xFE00..=0xFE0F | 0xFEFF | 0xFFA0 | 0xFFF0..=0xFFFB
        | 0x1BCA0..=0x1BCA3 | 0x1D173..=0x1D17A | 0xE0000..=0xE0FFF)
}

/// Whether a letter belongs to a script whose letters pass for Latin ones: Greek, Cyrillic, Armenian,
/// Cherokee, letter-like, mathematical and full-width forms.
fn is_lookalike(c: char) -> bool {
    matches!(u32::from(c),
        0x370..=0x52F | 0x531..=0x58F | 0x13A0..=0x13FF | 0x1C80..=0x1C8F | 0x1F00..=0x1FFF | 0x2100..=0x214F
        | 0x2DE0..=0x2DFF | 0xA640..=0xA69F | 0xAB70..=0xABBF | 0xFF01..=0xFF5E | 0x1D400..=0x1D7FF)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hidden_and_reordering_characters_become_escapes() {
        let shown = render("echo \u{202E}gnp.x \u{2066}a\u{2069} b\u{200B}c \u{1b}[2K\rls\u{8} d\u{E0041}");
        assert_eq!(
            shown.text,
            "echo \\u{202E}gnp.x \\u{2066}a\\u{2069} b\\u{200B}c \\u{1B}[2K\\u{D}ls\\u{8} d\\u{E0041}"
        );
        assert_eq!(shown.escaped, 8);
    }

    #[test]
    fn a_letter_that_passes_for_a_latin_one_inside_a_latin_word_is_escaped() {
        assert_eq!(render("curl https://ex\u{430}mple.com").text, "curl https://ex\\u{430}mple.com");
    }

    #[test]
    fn ordinary_writing_of_any_language_is_untouched() {
        for text in ["grep -n 日本語 src", "echo مرحبا", "cat résumé.txt", "cat привет.md", "echo Ωμέγα 👍"]
        {
            assert_eq!(render(text), Visible { text: text.to_owned(), escaped: 0, line_breaks: 0 });
        }
    }

    #[test]
    fn line_breaks_are_marked_and_kept() {
        let shown = render("ls\ntouch x\r\n");
        assert_eq!(shown.text, "ls⏎\ntouch x\\u{D}⏎\n");
        assert_eq!(shown.line_breaks, 2);
        assert_eq!(render("a⏎b").text, "a\\u{23CE}b");
        assert_eq!(one_line("a\nb"), "a\\u{A}b");
    }

    proptest! {
        #[test]
        fn no_hidden_character_survives(text in any::<String>()) {
            let shown = render(&text);
            prop_assert!(!shown.text.chars().any(is_hidden));
            prop_assert_eq!(shown.text.matches('\n').count(), text.matches('\n').count());
        }
    }
}
