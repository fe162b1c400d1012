//! Reads a JSON Lines file a line at a time, and says of a damaged one which line is wrong and why.

use std::fmt;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tns_protocol::Timestamp;
use tns_server_core::store::{ImportedEvent, Score};

use super::file::{Entry, FORMAT, Header, VERSION};
use super::lines::MAX_LINE_BYTES;

/// What some editors begin a text file with.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
/// How files begin that hold an export in another form, and what is to be done.
const OTHER_FORMS: &[(&[u8], &str)] = &[
    (&[0x1f, 0x8b], "the file is packed with gzip; unpack it first"),
    (b"PK\x03\x04", "the file is a zip archive; unpack it first"),
    (&[0x28, 0xb5, 0x2f, 0xfd], "the file is packed with zstd; unpack it first"),
    (b"\xfd7zXZ\0", "the file is packed with xz; unpack it first"),
    (&[0xff, 0xfe], "the file is UTF-16 text; write it as UTF-8 first"),
    (&[0xfe, 0xff], "the file is UTF-16 text; write it as UTF-8 first"),
];
/// Most blank lines at the end of a file.
const MAX_BLANK_LINES: u64 = 1_000;
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
    /// The first blank line; nothing but blank ones may follow it.
    blank: Option<u64>,
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

    /// Reads the next line; `None`: it is blank, as the end of a file may be.
    pub(crate) fn line(&mut self, line: &[u8]) -> Result<Option<Item>, Fault> {
        self.lines += 1;
        let line = match self.lines {
            1 => line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line),
            _ => line,
        };
        let is_blank = line.trim_ascii().is_empty();
        if is_blank && self.lines - *self.blank.get_or_insert(self.lines) < MAX_BLANK_LINES {
            return Ok(None);
        }
        if let Some(line) = self.blank {
            return Err(Fault { line, what: "it is empty, and not the end of the file".into() });
        }
        if self.lines == 1
            && let Some((_, what)) = OTHER_FORMS.iter().find(|(begin, _)| line.starts_with(begin))
        {
            return Err(self.fault(*what));
        }
        if line.contains(&0) {
            return Err(self.fault("it holds NUL bytes, as an interrupted write leaves them"));
        }
        if self.lines == 1 { self.header(line) } else { self.event(line) }.map(Some)
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
        let lines = self.blank.map_or(self.lines, |blank| blank - 1);
        let Some(read) = lines.checked_sub(1) else { return Err(Self::empty()) };
        if read < self.events {
            let what = format!("the file ends after {read} of {} events; it was cut", self.events);
            return Err(Fault { line: lines, what });
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
    fn a_byte_order_mark_and_blank_lines_at_the_end_are_passed_over() {
        let marked = format!("\u{feff}{HEADER}");
        assert_eq!(read(&[&marked, ONE, TWO, "", "\r", "  "]), Ok(6));
        let mut endless = vec![HEADER, ONE, TWO];
        endless.resize(2_000, "");
        assert!(read(&endless).unwrap_err().starts_with("line 4: it is empty"));
    }

    #[test]
    fn a_file_in_another_form_is_told_what_to_do_with_it() {
        for (begin, what) in OTHER_FORMS {
            let bytes = [begin, &b"\0\x08"[..]].concat();
            let fault = Reader::default().line(&bytes).unwrap_err();
            assert_eq!(fault.to_string(), format!("line 1: {what}; nothing was taken in"));
        }
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
            (&[HEADER, "", ONE, TWO], 2, "it is empty"),
            (&["", HEADER, ONE, TWO], 1, "it is empty"),
            (&["\u{feff}", " "], 1, "the file is empty"),
            (&[HEADER, ONE, "", "\r"], 2, "after 1 of 2 events"),
            (&["PK\u{3}\u{4}\u{14}\0"], 1, "a zip archive; unpack it first"),
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
