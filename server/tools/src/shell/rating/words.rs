//! A shell line as plain words, exactly as bash would split it, or not at all.
//!
//! Taken: words of printable ASCII, and quotes whose content stands for itself. Anything with a meaning of
//! its own to bash (expansion, list, redirect, glob, comment, assignment, escape) makes the line opaque.

use tns_server_core::visible::is_hidden;

/// What a line is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Lexed {
    /// Its words with quotes removed; at least one.
    Words(Vec<String>),
    /// It holds more than plain words; the reason is one sentence.
    Opaque(&'static str),
}

/// Splits a line.
pub(super) fn lex(command: &str) -> Lexed {
    if command.chars().any(is_hidden) {
        return Lexed::Opaque("it holds hidden or control characters");
    }
    if !command.is_ascii() {
        return Lexed::Opaque("it holds characters beyond ASCII");
    }
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut bytes = command.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b' ' | b'\t' => words.extend(word.take()),
            b'\n' => return Lexed::Opaque("it has more than one line"),
            quote @ (b'\'' | b'"') => {
                let word = word.get_or_insert_default();
                loop {
                    match bytes.next() {
                        Some(byte) if byte == quote => break,
                        Some(b'\n') => return Lexed::Opaque("it has more than one line"),
                        Some(b'$' | b'`' | b'\\') if quote == b'"' => {
                            return Lexed::Opaque("quoted text in it is expanded by the shell");
                        }
                        Some(byte) => word.push(char::from(byte)),
                        None => return Lexed::Opaque("a quote in it is not closed"),
                    }
                }
            }
            b'=' if words.is_empty() => return Lexed::Opaque("it sets a variable"),
            _ if stands_for_itself(byte) => word.get_or_insert_default().push(char::from(byte)),
            _ => return Lexed::Opaque("it is more than one plain command"),
        }
    }
    words.extend(word);
    if words.is_empty() { Lexed::Opaque("it is empty") } else { Lexed::Words(words) }
}

/// Whether an unquoted byte has no meaning to bash, wherever it stands in a word.
fn stands_for_itself(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_./,:+@%=^".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &str) -> Option<Vec<String>> {
        match lex(command) {
            Lexed::Words(words) => Some(words),
            Lexed::Opaque(_) => None,
        }
    }

    #[test]
    fn plain_and_quoted_words_are_split_as_bash_does() {
        assert_eq!(words("ls  -la\tsrc").unwrap(), ["ls", "-la", "src"]);
        assert_eq!(words("grep 'a $(b) c' \"x y\"z ''").unwrap(), ["grep", "a $(b) c", "x yz", ""]);
        assert_eq!(words("cat '.e'\"nv\"").unwrap(), ["cat", ".env"]);
        assert_eq!(words("grep --include=a.rs x").unwrap(), ["grep", "--include=a.rs", "x"]);
    }

    #[test]
    fn whatever_the_shell_would_interpret_is_opaque() {
        for command in [
            "",
            "  ",
            "ls;id",
            "ls&",
            "a|b",
            "ls>f",
            "ls<f",
            "(ls)",
            "{ls,a}",
            "ls *",
            "ls ?",
            "ls [a]",
            "$x",
            "ls ~",
            "ls \\a",
            "ls #x",
            "!ls",
            "`ls`",
            "\"$x\"",
            "\"`x`\"",
            "\"\\x\"",
            "'open",
            "\"open",
            "A=1 ls",
            "ls\nid",
            "'a\nb'",
            "ls\rid",
            "ls\u{a0}x",
            "ls é",
            "ls '\u{200b}'",
            "l's'\u{0}",
        ] {
            assert_eq!(words(command), None, "{command:?}");
        }
    }
}
