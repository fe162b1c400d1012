//! The title that a session gets from its first message. Pure.

use crate::visible::is_hidden;

/// Most characters of such a title.
const MAX_CHARS: usize = 60;
/// A title that is cut ends at a word, unless that would cost more than so many characters.
const MAX_CUT: usize = 20;

/// Makes a title of a message: its first line with words, cut at a word. `None`: it has no words.
pub(super) fn of_message(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.chars().any(char::is_alphanumeric))?;
    let shown: String = line.chars().map(|c| if is_hidden(c) { ' ' } else { c }).collect();
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    let words = words.trim_start_matches(['#', '>', '-', '*', ' ']);
    if words.chars().count() <= MAX_CHARS {
        return Some(words.to_owned());
    }
    let cut: String = words.chars().take(MAX_CHARS - 1).collect();
    let at_word = cut.rfind(' ').filter(|at| cut[*at..].chars().count() <= MAX_CUT);
    Some(format!("{}…", cut[..at_word.unwrap_or(cut.len())].trim_end_matches([' ', ',', ';', ':'])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_the_first_line_with_words() {
        for (message, title) in [
            ("why does the build fail?", Some("why does the build fail?")),
            ("\n---\n# Plan  for\tMay\nmore", Some("Plan for May")),
            ("!ls -la", Some("!ls -la")),
            ("tidy \u{202e}up\u{200b}now", Some("tidy up now")),
            ("?!\n…", None),
            ("", None),
        ] {
            assert_eq!(of_message(message).as_deref(), title, "{message:?}");
        }
    }

    #[test]
    fn a_long_line_is_cut_at_a_word_or_within_one_that_is_too_long() {
        let title = of_message(&"seven77 ".repeat(20)).unwrap();
        assert_eq!(title, format!("{}seven77…", "seven77 ".repeat(6)));
        let title = of_message(&"日".repeat(100)).unwrap();
        assert_eq!(title, format!("{}…", "日".repeat(59)));
        assert_eq!(of_message(&"x".repeat(60)).unwrap().chars().count(), 60);
    }
}
