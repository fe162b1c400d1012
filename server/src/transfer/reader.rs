//! Reads a JSON Lines file a line at a time, and says of a damaged one which line is wrong and why.

use std::fmt;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tns_protocol::Timestamp;
use tns_server_core::store::{ImportedEvent, Score};

use super::file::{Entry, FORMAT, Header, VERSION};
use super::lines::MAX_LINE_BYTES;

/// Most characters of what a parser says of a line; it may quote what it stumbled over.
const MAX_REASON_CHARS: usize = 200;

/// What is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    line: u64,
    what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}; nothing was taken in", self.line, self.what)
    }
}

/// What a line holds.
#[derive(Debug)]
pub(crate) enum Item {
    Header(Box<Header>),
    Event(Box<ImportedEvent>, Option<Score>),
}

/// Reads the lines of a file in their order.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// Lines that were read.
    lines: u64,
    /// The number of events that the first line names.
    events: u64,
}

impl Reader {
    /// Returns what is wrong with the line that was read last.
    pub(crate) fn fault(&self, what: impl Into<String>) -> Fault {
        Fault { line: self.lines, what: what.into() }
    }

    /// Returns what is wrong with a file that holds nothing.
    pub(crate) fn empty() -> Fault {
        Fault { line: 1, what: "the file is empty".into() }
    }

    /// Returns what is wrong with a next line that is too long to be read.
    pub(crate) fn too_long(&mut self) -> Fault {
        self.lines += 1;
        self.fault(format!("it has more than {MAX_LINE_BYTES} bytes"))
    }

    /// Reads the next line.
    pub(crate) fn line(&mut self, line: &[u8]) -> Result<Item, Fault> {
        self.lines += 1;
        if line.trim_ascii().is_empty() {
            return Err(self.fault("it is empty"));
        }
        if line.contains(&0) {
            return Err(self.fault("it holds NUL bytes, as an interrupted write leaves them"));
        }
        if self.lines == 1 { self.header(line) } else { self.event(line) }
    }

    fn header(&mut self, line: &[u8]) -> Result<Item, Fault> {
        #[derive(Deserialize)]
        struct Named {
            format: String,
            version: u32,
        }
        // Looked at alone first: the rest of a newer header may be anything.
        let named: Named = self
            .json(line)
            .map_err(|fault| self.fault(format!("it does not begin a session's export ({})", fault.what)))?;
        if named.format != FORMAT {
            return Err(self.fault(format!("its format is {:?}, not {FORMAT:?}", cut(&named.format))));
        }
        if named.version != VERSION {
            let version = named.version;
            return Err(self.fault(format!(
                "it is written in version {version} of the format, and this server reads version {VERSION}"
            )));
        }
        let header: Header = self.json(line)?;
        self.events = header.events;
        Ok(Item::Header(Box::new(header)))
    }

    fn event(&mut self, line: &[u8]) -> Result<Item, Fault> {
        let expected = self.lines - 1;
        if expected > self.events {
            return Err(
                self.fault(format!("it is one more than the {} events that line 1 names", self.events))
            );
        }
        let entry: Entry = self.json(line)?;
        if entry.seq != expected {
            return Err(self.fault(format!("its event has the place {}, not {expected}", entry.seq)));
        }
        let Entry { at, turn, feedback, event, .. } = entry;
        let event = ImportedEvent { at: Timestamp::from_micros(at), turn, event };
        Ok(Item::Event(Box::new(event), feedback))
    }

    fn json<T: DeserializeOwned>(&self, line: &[u8]) -> Result<T, Fault> {
        serde_json::from_slice(line).map_err(|error| {
            let text = error.to_string();
            // Its line is always the first; its column is of use.
            let what = match text.split_once(" at line 1 column ") {
                Some((reason, column)) => format!("{} at column {column}", cut(reason)),
                None => cut(&text),
            };
            self.fault(what)
        })
    }

    /// Checks that the file is whole, when its last line was read.
    pub(crate) fn end(&self) -> Result<(), Fault> {
        let read = self.lines.saturating_sub(1);
        if self.lines == 0 {
            return Err(Self::empty());
        }
        if read < self.events {
            let events = self.events;
            return Err(self.fault(format!("the file ends after {read} of {events} events; it was cut")));
        }
        Ok(())
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_REASON_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = r#"{"format":"tns-session","version":1,"id":"s","workspace":"/w","createdAt":1,"events":2,"agents":[]}"#;
    const ONE: &str = r#"{"seq":1,"at":5,"event":{"autonomy_changed":"MANUAL"}}"#;
    const TWO: &str = r#"{"seq":2,"at":6,"event":{"renamed":"a\u2028b"}}"#;

    /// Reads a file to its end, or to what is wrong with it.
    fn read(lines: &[&str]) -> Result<usize, String> {
        let mut reader = Reader::default();
        for line in lines {
            reader.line(line.as_bytes()).map_err(|fault| fault.to_string())?;
        }
        reader.end().map_err(|fault| fault.to_string())?;
        Ok(lines.len())
    }

    #[test]
    fn a_whole_file_is_read_and_a_carriage_return_ends_no_text() {
        assert_eq!(read(&[HEADER, ONE, TWO]), Ok(3));
        let lines = [HEADER, ONE, TWO].map(|line| format!("{line}\r"));
        assert_eq!(read(&[&lines[0], &lines[1], &lines[2]]), Ok(3));
        let raw = TWO.replace("\\u2028", "\u{2028}");
        assert_eq!(read(&[HEADER, ONE, &raw]), Ok(3));
    }

    #[test]
    fn a_damaged_file_is_named_with_its_line_and_what_is_wrong() {
        let glued = format!("{ONE}{TWO}");
        let nul = "\0".repeat(300);
        let newer = HEADER.replace("\"version\":1", "\"version\":2");
        let other = HEADER.replace("tns-session", "chat");
        for (lines, line, what) in [
            (&[][..], 1, "the file is empty"),
            (&["not JSON"], 1, "does not begin a session's export"),
            (&[ONE], 1, "does not begin a session's export"),
            (&[&newer], 1, "version 2"),
            (&[&other], 1, "\"chat\""),
            (&[HEADER], 1, "after 0 of 2 events"),
            (&[HEADER, ONE], 2, "after 1 of 2 events"),
            (&[HEADER, ONE, &TWO[..30]], 3, "EOF while parsing"),
            (&[HEADER, &nul, TWO], 2, "NUL bytes"),
            (&[HEADER, &glued], 2, "trailing characters at column"),
            (&[HEADER, "{}"], 2, "missing field `seq`"),
            (&[HEADER, ""], 2, "it is empty"),
            (&[HEADER, "[]"], 2, "at column"),
            (&[HEADER, r#"{"seq":1,"at":5,"event":{"hologram":1}}"#], 2, "unknown variant `hologram`"),
            (&[HEADER, TWO], 2, "place 2, not 1"),
            (&[HEADER, ONE, ONE], 3, "place 1, not 2"),
            (&[HEADER, ONE, TWO, TWO], 4, "one more than the 2 events"),
        ] {
            let fault = read(lines).unwrap_err();
            assert!(fault.starts_with(&format!("line {line}: ")) && fault.contains(what), "{what}: {fault}");
            assert!(fault.ends_with("; nothing was taken in") && !fault.contains('\n'), "{fault}");
        }
    }

    #[test]
    fn what_a_parser_quotes_is_cut() {
        let long = format!(r#"{{"seq":1,"at":5,"event":{{"{}":1}}}}"#, "職".repeat(9_000));
        let fault = read(&[HEADER, &long]).unwrap_err();
        assert!(fault.chars().count() < MAX_REASON_CHARS + 80, "{fault}");
    }
}
