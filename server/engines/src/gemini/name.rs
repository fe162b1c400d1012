//! Names of tools as Gemini takes them: a letter or `_` first, then letters, digits, `_.:-`, at most
//! 128. Our tools may begin with a digit or `-`; `_.`, which no tool's name holds, then stands before it.

use std::borrow::Cow;

/// Most characters of a name.
const MAX_NAME: usize = 128;

/// Stands before a name that begins with what Gemini refuses.
const MARK: &str = "_.";

/// Returns a name as it is sent; a model may have called what was never offered.
pub(super) fn to_wire(name: &str) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':' | '-');
    let begins_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if begins_well && name.len() <= MAX_NAME && name.chars().all(fits) {
        return Cow::Borrowed(name);
    }
    let mark = if begins_well { "" } else { MARK };
    let name = name.chars().take(MAX_NAME - mark.len()).map(|c| if fits(c) { c } else { '_' });
    Cow::Owned(mark.chars().chain(name).collect())
}

/// Returns a name as the tool has it.
pub(super) fn from_wire(name: &str) -> &str {
    name.strip_prefix(MARK).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_a_tool_survives_the_way_there_and_back() {
        for name in ["echo", "_", "mcp_a-b", "3d-view", "-x", "0", &"9".repeat(64)] {
            let sent = to_wire(name);
            assert!(sent.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'), "{sent}");
            assert_eq!(from_wire(&sent), name);
        }
    }

    #[test]
    fn a_name_that_was_never_offered_is_made_to_fit() {
        assert_eq!(to_wire("a.b:c/ü"), "a.b:c__");
        assert_eq!(to_wire(""), "_.");
        for name in ["x".repeat(128), "x".repeat(129), "ü".repeat(200)] {
            assert_eq!(to_wire(&name).len(), 128);
        }
    }
}
