//! The bytes of D-Bus messages, as far as asking a keyring needs them. Pure: nothing is sent here.
//!
//! <https://dbus.freedesktop.org/doc/dbus-specification.html>, "Marshaling" and "Message Format".

use secrecy::zeroize::Zeroizing;

/// Room for a message that holds a key, so that it is never copied about while it is written.
const ROOM: usize = 16 << 10;
/// Bytes of a message's fixed part, with the length of its fields.
pub(super) const HEAD_BYTES: usize = 16;
/// A call that wants an answer.
const METHOD_CALL: u8 = 1;

/// Writes values one after the other; what it held is wiped.
pub(super) struct Writer {
    bytes: Zeroizing<Vec<u8>>,
}

impl Writer {
    pub(super) fn new() -> Self {
        Self { bytes: Zeroizing::new(Vec::with_capacity(ROOM)) }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn align(&mut self, to: usize) -> &mut Self {
        while !self.bytes.len().is_multiple_of(to) {
            self.bytes.push(0);
        }
        self
    }

    pub(super) fn byte(&mut self, value: u8) -> &mut Self {
        self.bytes.push(value);
        self
    }

    pub(super) fn number(&mut self, value: u32) -> &mut Self {
        self.align(4).bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Writes a string or the path of an object.
    pub(super) fn string(&mut self, text: &str) -> &mut Self {
        self.number(length(text.len())).bytes.extend_from_slice(text.as_bytes());
        self.byte(0)
    }

    pub(super) fn signature(&mut self, text: &str) -> &mut Self {
        self.byte(u8::try_from(text.len()).unwrap_or(u8::MAX)).bytes.extend_from_slice(text.as_bytes());
        self.byte(0)
    }

    /// Writes an array of bytes.
    pub(super) fn blob(&mut self, blob: &[u8]) -> &mut Self {
        self.number(length(blob.len())).bytes.extend_from_slice(blob);
        self
    }

    /// Writes an array whose elements begin at multiples of `align`.
    pub(super) fn array(&mut self, align: usize, elements: impl FnOnce(&mut Self)) -> &mut Self {
        self.number(0);
        let place = self.bytes.len() - 4;
        self.align(align);
        let begin = self.bytes.len();
        elements(self);
        let size = length(self.bytes.len() - begin);
        self.bytes[place..place + 4].copy_from_slice(&size.to_le_bytes());
        self
    }

    /// Writes an array of pairs of strings.
    pub(super) fn pairs(&mut self, pairs: &[(&str, &str)]) -> &mut Self {
        self.array(8, |writer| {
            for (name, value) in pairs {
                writer.align(8).string(name).string(value);
            }
        })
    }
}

/// Messages are far below the protocol's own limit of 128 MiB.
fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// A call of a method.
pub(super) struct Call<'a> {
    pub(super) destination: &'a str,
    pub(super) path: &'a str,
    pub(super) interface: &'a str,
    pub(super) member: &'a str,
    /// The types of the arguments.
    pub(super) signature: &'a str,
    pub(super) arguments: Writer,
}

impl Call<'_> {
    /// Returns the whole message.
    pub(super) fn encode(&self, serial: u32) -> Writer {
        let mut message = Writer::new();
        message.byte(b'l').byte(METHOD_CALL).byte(0).byte(1);
        message.number(length(self.arguments.bytes.len())).number(serial);
        let texts = [
            (1, "o", self.path),
            (2, "s", self.interface),
            (3, "s", self.member),
            (6, "s", self.destination),
        ];
        message.array(8, |fields| {
            for (code, kind, text) in texts {
                fields.align(8).byte(code).signature(kind).string(text);
            }
            if !self.signature.is_empty() {
                fields.align(8).byte(8).signature("g").signature(self.signature);
            }
        });
        message.align(8).bytes.extend_from_slice(&self.arguments.bytes);
        message
    }
}

/// Reads values one after the other; `None`: they are not what was expected.
#[derive(Debug, Clone)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    little: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8], little: bool) -> Self {
        Self { bytes, at: 0, little }
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    pub(super) fn align(&mut self, to: usize) -> Option<&mut Self> {
        let end = self.at.next_multiple_of(to);
        (end <= self.bytes.len()).then_some(())?;
        self.at = end;
        Some(self)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(super) fn number(&mut self) -> Option<u32> {
        let bytes = self.align(4)?.take(4)?.try_into().ok()?;
        Some(if self.little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    }

    fn size(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok()
    }

    /// Reads a string or the path of an object.
    pub(super) fn string(&mut self) -> Option<&'a str> {
        let size = self.size()?;
        let text = std::str::from_utf8(self.take(size)?).ok()?;
        (self.byte()? == 0).then_some(text)
    }

    pub(super) fn signature(&mut self) -> Option<&'a str> {
        let size = usize::from(self.byte()?);
        let text = std::str::from_utf8(self.take(size)?).ok()?;
        (self.byte()? == 0).then_some(text)
    }

    pub(super) fn blob(&mut self) -> Option<&'a [u8]> {
        let size = self.size()?;
        self.take(size)
    }

    /// Reads an array of strings or of paths.
    pub(super) fn strings(&mut self) -> Option<Vec<&'a str>> {
        let size = self.size()?;
        let end = self.at.checked_add(size).filter(|end| *end <= self.bytes.len())?;
        let mut strings = Vec::new();
        while self.at < end {
            strings.push(self.string()?);
        }
        (self.at == end).then_some(strings)
    }

    /// Reads the value of a field of a header, of the kinds that occur there.
    fn field(&mut self) -> Option<Field<'a>> {
        match self.signature()? {
            "u" => self.number().map(Field::Number),
            "s" | "o" => self.string().map(Field::Text),
            "g" => self.signature().map(Field::Text),
            _ => None,
        }
    }
}

enum Field<'a> {
    Number(u32),
    Text(&'a str),
}

/// What a message begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) little: bool,
    pub(super) kind: Kind,
    /// Bytes of the arguments.
    pub(super) body: usize,
    /// Bytes of the fields, and of what fills them up to a multiple of eight.
    pub(super) fields: usize,
    fields_used: usize,
}

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Return,
    Error,
    /// A call or a signal: nothing that was asked for.
    Other,
}

impl Head {
    pub(super) fn parse(bytes: &[u8; HEAD_BYTES]) -> Option<Self> {
        let little = match bytes[0] {
            b'l' => true,
            b'B' => false,
            _ => return None,
        };
        let kind = match bytes[1] {
            2 => Kind::Return,
            3 => Kind::Error,
            _ => Kind::Other,
        };
        let mut reader = Reader::new(bytes, little);
        reader.take(4)?;
        let (body, _, fields_used) = (reader.size()?, reader.number()?, reader.size()?);
        Some(Self { little, kind, body, fields: fields_used.checked_next_multiple_of(8)?, fields_used })
    }

    /// Reads from the fields which call is answered, and the name of the error if it is one.
    pub(super) fn answers<'a>(&self, fields: &'a [u8]) -> Option<(u32, &'a str)> {
        let mut reader = Reader::new(fields.get(..self.fields_used)?, self.little);
        let (mut serial, mut error) = (0, "");
        while reader.at < reader.bytes.len() {
            let code = reader.align(8)?.byte()?;
            match (code, reader.field()?) {
                (4, Field::Text(name)) => error = name,
                (5, Field::Number(number)) => serial = number,
                _ => {}
            }
        }
        Some((serial, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_written_as_the_specification_shows_it() {
        let mut arguments = Writer::new();
        arguments.string("plain");
        let call =
            Call { destination: "d.d", path: "/p", interface: "i.i", member: "M", signature: "s", arguments };
        let message = call.encode(7);
        let bytes = message.bytes();
        assert_eq!(bytes[..4], [b'l', 1, 0, 1]);
        assert_eq!(bytes[4..8], 10_u32.to_le_bytes());
        assert_eq!(bytes[8..12], 7_u32.to_le_bytes());
        assert_eq!(bytes[16..24], [1, 1, b'o', 0, 2, 0, 0, 0]);
        let fields = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
        let body = (HEAD_BYTES + fields).next_multiple_of(8);
        assert_eq!(bytes[body..], *b"\x05\0\0\0plain\0");
    }

    #[test]
    fn values_are_read_as_they_were_written_and_alignment_counts() {
        let mut writer = Writer::new();
        writer.byte(1).string("a").pairs(&[("k", "v")]).blob(b"xy").number(9);
        let mut reader = Reader::new(writer.bytes(), true);
        assert_eq!((reader.byte(), reader.string()), (Some(1), Some("a")));
        assert_eq!(reader.size(), Some(14));
        reader.align(8).unwrap();
        assert_eq!((reader.string(), reader.string()), (Some("k"), Some("v")));
        assert_eq!((reader.blob(), reader.number()), (Some(&b"xy"[..]), Some(9)));
        assert_eq!(reader.byte(), None);
    }

    #[test]
    fn nothing_that_is_cut_or_lies_about_its_length_is_read() {
        let mut writer = Writer::new();
        writer.array(4, |array| {
            array.string("/a").string("/b").byte(0);
        });
        for end in 0..writer.bytes().len() {
            assert_eq!(Reader::new(&writer.bytes()[..end], true).strings(), None, "{end}");
        }
        assert_eq!(Reader::new(&[255, 255, 255, 255, 0], true).string(), None);
        assert_eq!(Reader::new(&[255, 255, 255, 255, 0], false).blob(), None);
        assert_eq!(Reader::new(b"\x01\0\0\0\xff\0", true).string(), None);
    }

    #[test]
    fn the_head_of_an_answer_says_what_it_answers() {
        let mut message = Writer::new();
        message.byte(b'l').byte(3).byte(0).byte(1).number(5).number(1);
        message.array(8, |fields| {
            fields.align(8).byte(5).signature("u").number(42);
            fields.align(8).byte(4).signature("s").string("e.e");
        });
        let bytes = message.bytes();
        let head = Head::parse(bytes[..HEAD_BYTES].try_into().unwrap()).unwrap();
        assert_eq!((head.kind, head.body, head.fields), (Kind::Error, 5, 24));
        message.align(8);
        assert_eq!(head.answers(&message.bytes()[HEAD_BYTES..]), Some((42, "e.e")));
        assert_eq!(Head::parse(&[0; HEAD_BYTES]), None);
    }
}
