//! What a message asks for: one of three fixed commands, or something to look up. Pure text matching.

/// What the user wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Intent<'a> {
    /// `!COMMAND`
    Shell { command: &'a str },
    /// `read FILE`
    Read { path: &'a str },
    /// `write FILE: TEXT`
    Write { path: &'a str, content: &'a str },
    /// Hello, or what can you do.
    Greeting,
    /// Anything else.
    Question { file: Option<NamedFile<'a>> },
}

/// A file that a question names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NamedFile<'a> {
    pub(super) path: &'a str,
    /// The question is about the file itself, rather than naming something that looks like one.
    pub(super) is_asked_for: bool,
}

/// Names of files that have no extension.
const BARE_NAMES: [&str; 6] = ["README", "LICENSE", "CHANGELOG", "Makefile", "Dockerfile", "Justfile"];

/// Words before a name that make a question one about that file.
const BEFORE_FILE: [&str; 19] = [
    "in",
    "of",
    "from",
    "file",
    "read",
    "open",
    "show",
    "cat",
    "print",
    "quote",
    "search",
    "does",
    "is",
    "summarise",
    "summarize",
    "describe",
    "explain",
    "inside",
    "at",
];

/// Longest extension.
const MAX_EXTENSION: usize = 10;

const GREETINGS: [&str; 16] = [
    "hi",
    "hello",
    "hey",
    "hello there",
    "hi there",
    "good morning",
    "good evening",
    "good day",
    "hallo",
    "moin",
    "help",
    "what can you do",
    "who are you",
    "what are you",
    "what is this",
    "test",
];

/// Marks around a word that are not part of a file's name.
const MARKS: [char; 15] = ['"', '\'', '`', '“', '”', '‘', '’', '(', ')', '[', ']', '<', '>', '«', '»'];

pub(super) fn intent(text: &str) -> Intent<'_> {
    let text = text.trim();
    if let Some(command) = text.strip_prefix('!').map(str::trim).filter(|command| !command.is_empty()) {
        return Intent::Shell { command };
    }
    if let Some(path) = after_word(text, "read").and_then(single_path) {
        return Intent::Read { path };
    }
    if let Some((path, content)) = after_word(text, "write").and_then(|rest| rest.split_once(':'))
        && let Some(path) = single_path(path)
    {
        return Intent::Write { path, content: content.strip_prefix(' ').unwrap_or(content) };
    }
    let plain = text.trim_end_matches(|c: char| c.is_ascii_punctuation() || c.is_whitespace()).to_lowercase();
    if plain.is_empty() || GREETINGS.contains(&plain.as_str()) {
        return Intent::Greeting;
    }
    Intent::Question { file: named_file(text) }
}

fn after_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let (first, rest) = text.split_once(char::is_whitespace)?;
    first.eq_ignore_ascii_case(word).then(|| rest.trim_start())
}

/// Returns text that is one path: one word, or in quotes.
fn single_path(text: &str) -> Option<&str> {
    let text = text.trim();
    for quote in ['"', '\'', '`'] {
        if let Some(inner) = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            return Some(inner).filter(|inner| !inner.is_empty() && !inner.contains(quote));
        }
    }
    Some(text).filter(|text| !text.is_empty() && !text.contains(char::is_whitespace))
}

fn named_file(text: &str) -> Option<NamedFile<'_>> {
    let mut before = "";
    for word in text.split_whitespace() {
        let bare = word.trim_matches(|c| MARKS.contains(&c) || matches!(c, '?' | '!' | ',' | ';' | ':'));
        let bare = bare.trim_end_matches('.').trim_end_matches(|c| MARKS.contains(&c));
        if looks_like_file(bare) {
            let is_quoted = word.starts_with(|c| MARKS.contains(&c));
            let is_asked_for = before.is_empty()
                || is_quoted
                || bare.contains('/')
                || BEFORE_FILE.iter().any(|asks| asks.eq_ignore_ascii_case(before));
            return Some(NamedFile { path: bare, is_asked_for });
        }
        before = word;
    }
    None
}

/// Whether a word is a file's name: `notes.md`, `src/main.rs`, `.env`, `README`; not `3.5`, `e.g.`, a URL.
fn looks_like_file(word: &str) -> bool {
    if word.contains("://") || word.starts_with("www.") || word.contains('@') {
        return false;
    }
    let name = word.rsplit('/').next().unwrap_or(word);
    if BARE_NAMES.contains(&name) {
        return true;
    }
    let Some((stem, extension)) = name.rsplit_once('.') else { return false };
    let abbreviation = stem.chars().count() <= 1 && extension.len() == 1;
    let bare_letter = stem.is_empty() && extension.len() == 1;
    !(abbreviation || bare_letter)
        && (1..=MAX_EXTENSION).contains(&extension.len())
        && extension.starts_with(|c: char| c.is_ascii_alphabetic())
        && extension.chars().all(|c| c.is_ascii_alphanumeric())
        && stem.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '+'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_a_fixed_form() {
        assert_eq!(intent(" !ls -la \n"), Intent::Shell { command: "ls -la" });
        assert_eq!(intent("Read notes.md"), Intent::Read { path: "notes.md" });
        assert_eq!(intent("read \"my notes.md\""), Intent::Read { path: "my notes.md" });
        assert_eq!(
            intent("write a/b.txt: one\n two: 3"),
            Intent::Write { path: "a/b.txt", content: "one\n two: 3" }
        );
        assert_eq!(intent("write 'a b':x"), Intent::Write { path: "a b", content: "x" });
    }

    #[test]
    fn sentences_that_start_like_a_command_are_questions() {
        for text in ["read the manual to me", "write me a poem: about rust", "!", "read", "reading notes.md"]
        {
            let found = intent(text);
            assert!(matches!(found, Intent::Question { .. } | Intent::Greeting), "{text}: {found:?}");
        }
    }

    #[test]
    fn greetings_are_told_from_questions() {
        for text in ["hello", "Hi!", "  Hey ...", "what can you do?", "help", "?"] {
            assert_eq!(intent(text), Intent::Greeting, "{text}");
        }
        assert_eq!(intent("hello world program"), Intent::Question { file: None });
    }

    #[test]
    fn a_question_may_name_a_file() {
        for (text, path, is_asked_for) in [
            ("What is in README.md?", "README.md", true),
            ("what port does `config/app.toml` set", "config/app.toml", true),
            ("Summarise \"notes.txt\".", "notes.txt", true),
            ("which license, says LICENSE", "LICENSE", false),
            ("how fast are Node.js streams", "Node.js", false),
            ("what is in .env?", ".env", true),
            ("what's in lib.rs!?", "lib.rs", true),
        ] {
            let Intent::Question { file } = intent(text) else { panic!("{text}") };
            assert_eq!(file, Some(NamedFile { path, is_asked_for }), "{text}");
        }
    }

    #[test]
    fn numbers_abbreviations_and_addresses_are_no_files() {
        for text in [
            "is 3.5 more than 3",
            "e.g. this",
            "see https://a.b/c.md now",
            "mail a@b.org now",
            "wait ... what",
            "v1.2 or v1.3",
        ] {
            assert_eq!(intent(text), Intent::Question { file: None }, "{text}");
        }
    }
}
