//! Heads of files, byte by byte.

use super::*;

/// A head that is written piece by piece.
#[derive(Clone)]
struct Written(Vec<u8>);

impl Written {
    fn new(version: u32, tensors: u64, entries: u64) -> Self {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(version.to_le_bytes());
        bytes.extend(tensors.to_le_bytes());
        bytes.extend(entries.to_le_bytes());
        Self(bytes)
    }

    fn text(mut self, text: &str) -> Self {
        self.0.extend((text.len() as u64).to_le_bytes());
        self.0.extend(text.as_bytes());
        self
    }

    fn u32(mut self, number: u32) -> Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn u64(mut self, number: u64) -> Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn read(&self) -> Result<GgufHeader, GgufError> {
        read(&*self.0, self.0.len() as u64)
    }

    fn refused(&self) -> String {
        self.read().unwrap_err().to_string()
    }
}

/// A whole file: an entry of each kind, a list, and a tensor of four numbers.
fn whole() -> Written {
    let head = Written::new(3, 1, 5)
        .text("general.architecture")
        .u32(8)
        .text("llama")
        .text("general.name")
        .u32(8)
        .text("Tiny")
        .text("llama.context_length")
        .u32(4)
        .u32(2_048)
        .text("llama.rope.freq_base")
        .u32(6)
        .u32(1.5_f32.to_bits())
        .text("tokens")
        .u32(9)
        .u32(8)
        .u64(2)
        .text("a")
        .text("bc")
        .text("token_embd.weight")
        .u32(1)
        .u64(4)
        .u32(0)
        .u64(0);
    let data = head.0.len().next_multiple_of(32) + 16;
    let mut bytes = head.0;
    bytes.resize(data, 0);
    Written(bytes)
}

#[test]
fn a_head_says_what_the_model_is() {
    let header = whole().read().unwrap();
    assert_eq!((header.architecture.as_str(), header.name.as_deref()), ("llama", Some("Tiny")));
    assert_eq!((header.context, header.parameters), (Some(2_048), 4));
    assert_eq!(header.bytes, whole().0.len() as u64);
    assert!(!header.has_template());
}

#[test]
fn a_file_that_is_cut_anywhere_is_no_model() {
    let bytes = whole().0;
    for length in 0..bytes.len() {
        let error = read(&bytes[..length], length as u64).unwrap_err();
        match (length, error) {
            (0..4, GgufError::Foreign) | (4.., GgufError::Cut(1..)) => {}
            (_, error) => panic!("{length}: {error:?}"),
        }
    }
}

#[test]
fn nothing_is_allocated_for_a_declared_size() {
    let many = u64::MAX / 2;
    for (written, says) in [
        (Written::new(3, many, 0), "tensors, of which 65536 are the most"),
        (Written::new(3, 0, many), "entries, of which 4096 are the most"),
        (Written::new(3, 0, 1).u64(many), "a text of"),
        (Written::new(3, 0, 1).u64(1_000), "cut short: "),
        (Written::new(3, 0, 1).text("k").u32(8).u64(1 << 21), "a text of 2097152 bytes"),
        (Written::new(3, 0, 1).text("k").u32(9).u32(8).u64(many), "lists of"),
        (Written::new(3, 0, 1).text("k").u32(9).u32(8).u64(3).u64(many), "cut short"),
        (Written::new(3, 0, 1).text("k").u32(9).u32(12).u64(1 << 20), "cut short"),
        (Written::new(3, 0, 1).text("k").u32(9).u32(9).u64(1), "a list of the kind 9"),
        (Written::new(3, 0, 1).text("k").u32(13), "unknown kind 13"),
        (Written::new(3, 1, 0).text("t").u32(5), "5 dimensions"),
        (Written::new(3, 1, 0).text("t").u32(2).u64(many).u64(3).u32(0).u64(0), "an endless tensor"),
        (Written::new(3, 1, 0).text("t").u32(1).u64(8).u32(0).u64(u64::MAX), "an endless tensor"),
    ] {
        assert!(written.refused().contains(says), "{}", written.refused());
    }
}

#[test]
fn other_files_and_versions_are_told_apart() {
    for foreign in [&b"PK\x03\x04 and more"[..], b"<!doctype html>", b"", b"GGML"] {
        assert!(matches!(read(foreign, foreign.len() as u64), Err(GgufError::Foreign)));
    }
    for version in [0, 1, 4, 0x0300_0000] {
        assert!(Written::new(version, 0, 0).refused().contains("of the format"));
    }
    assert!(Written::new(3, 0, 0).refused().contains("does not say which network"));
    let strange = Written::new(3, 0, 1).text("general.alignment").u32(4).u32(0);
    assert!(strange.refused().contains("a strange alignment"));
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_read_to_an_end(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200), at in 0_usize..400) {
        let _ = read(&*[b"GGUF\x03\0\0\0".as_slice(), &bytes].concat(), bytes.len() as u64 + 8);
        let mut damaged = whole().0;
        let at = at % damaged.len();
        damaged.splice(at.., bytes);
        let _ = read(&*damaged, damaged.len() as u64);
    }
}
