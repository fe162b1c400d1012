//! The head of a GGUF file: what it says of its model, and that its weights are all there. It reads no
//! weights, believes no declared size, and needs no library for models.
//! Format: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

/// Most bytes before the weights; the largest vocabularies take a tenth of it.
const MAX_HEAD: u64 = 128 << 20;
/// Most entries of the metadata.
const MAX_ENTRIES: u64 = 4_096;
/// Most items of all lists together; the largest vocabularies have a quarter of it.
const MAX_ITEMS: u64 = 4 << 20;
/// Most tensors.
const MAX_TENSORS: u64 = 65_536;
/// Longest key or name of a tensor, in bytes.
const MAX_NAME: u64 = 1_024;
/// Longest text that is kept, in bytes: a model's chat template.
const MAX_TEXT: u64 = 1 << 20;
/// Most dimensions of a tensor.
const MAX_DIMENSIONS: u32 = 4;
/// Where weights begin when the file does not say: a multiple of it.
const DEFAULT_ALIGNMENT: u64 = 32;

/// For each way to store weights, by its number: weights a block, and bytes a block.
const STORED: [(u32, u64, u64); 15] = [
    (0, 1, 4),
    (1, 1, 2),
    (2, 32, 18),
    (3, 32, 20),
    (6, 32, 22),
    (7, 32, 24),
    (8, 32, 34),
    (9, 32, 36),
    (10, 256, 84),
    (11, 256, 110),
    (12, 256, 144),
    (13, 256, 176),
    (14, 256, 210),
    (15, 256, 292),
    (30, 1, 2),
];

/// Why a file is no model that can be used.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// It can't be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Another kind of file.
    #[error("it is no GGUF file")]
    Foreign,
    /// It ends too soon.
    #[error("it is cut short: {0} bytes are missing or more; get it again")]
    Cut(u64),
    /// It does not hold together.
    #[error("it is damaged or not made for this: {0}")]
    Damaged(String),
}

/// What a GGUF file says of its model.
#[derive(Debug, Clone, PartialEq)]
pub struct GgufHeader {
    /// The kind of network, such as `llama` or `qwen3`.
    pub architecture: String,
    /// The model's own name.
    pub name: Option<String>,
    /// Most tokens of a conversation, as the file says.
    pub context: Option<u64>,
    /// How many weights there are.
    pub parameters: u64,
    /// The size of the file, in bytes.
    pub bytes: u64,
    entries: BTreeMap<String, Entry>,
    tensors: BTreeMap<String, Tensor>,
}

/// A single value of the metadata; lists are only counted.
#[derive(Debug, Clone, PartialEq)]
enum Entry {
    Whole(i128),
    Real(f64),
    Flag(bool),
    Text(String),
    List(u64),
}

/// A block of weights.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tensor {
    elements: u64,
    stored: u32,
}

impl GgufHeader {
    /// Reads the head of a file.
    ///
    /// # Errors
    /// [`GgufError`] when the file is no whole GGUF file. Its size is known to fit what it declares
    /// when this succeeds.
    pub fn read(path: &Path) -> Result<Self, GgufError> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(GgufError::Foreign);
        }
        read(BufReader::new(file), metadata.len())
    }

    /// Whether the file brings a chat template.
    pub fn has_template(&self) -> bool {
        self.entries.contains_key("tokenizer.chat_template")
    }

    /// Returns a whole number of the model's own settings, such as `block_count`.
    pub(crate) fn number(&self, key: &str) -> Option<u64> {
        match self.entries.get(&format!("{}.{key}", self.architecture)) {
            Some(Entry::Whole(value)) => u64::try_from(*value).ok(),
            Some(Entry::Real(_) | Entry::Flag(_) | Entry::Text(_) | Entry::List(_)) | None => None,
        }
    }

    /// Returns a number with a fraction, by its whole key.
    #[cfg(feature = "local-llm")]
    pub(crate) fn real(&self, key: &str) -> Option<f64> {
        match self.entries.get(key) {
            Some(Entry::Real(value)) if value.is_finite() => Some(*value),
            Some(Entry::Real(_) | Entry::Whole(_) | Entry::Flag(_) | Entry::Text(_) | Entry::List(_))
            | None => None,
        }
    }

    /// Returns a whole number, by its whole key.
    #[cfg(feature = "local-llm")]
    pub(crate) fn whole(&self, key: &str) -> Option<usize> {
        match self.entries.get(key) {
            Some(Entry::Whole(value)) => usize::try_from(*value).ok(),
            Some(Entry::Real(_) | Entry::Flag(_) | Entry::Text(_) | Entry::List(_)) | None => None,
        }
    }

    /// Returns how many weights a tensor has.
    #[cfg(feature = "local-llm")]
    pub(crate) fn elements(&self, tensor: &str) -> Option<u64> {
        self.tensors.get(tensor).map(|tensor| tensor.elements)
    }

    /// Returns the number of a way to store weights that is not known here, where a tensor has one.
    #[cfg(feature = "local-llm")]
    pub(crate) fn unknown_storage(&self) -> Option<u32> {
        self.tensors.values().map(|tensor| tensor.stored).find(|stored| block(*stored).is_none())
    }
}

/// Returns weights and bytes of a block.
fn block(stored: u32) -> Option<(u64, u64)> {
    STORED.iter().find(|(number, ..)| *number == stored).map(|(_, weights, bytes)| (*weights, *bytes))
}

/// Reads the head of `size` bytes.
fn read(input: impl Read, size: u64) -> Result<GgufHeader, GgufError> {
    let mut head = Head { input: input.take(MAX_HEAD), at: 0, size, items: 0 };
    let mut magic = [0; 4];
    match head.fill(&mut magic) {
        Ok(()) if magic == *b"GGUF" => {}
        Ok(()) | Err(GgufError::Cut(_)) => return Err(GgufError::Foreign),
        Err(error) => return Err(error),
    }
    let version = head.u32()?;
    if !(2..=3).contains(&version) {
        return Err(damaged(format!("version {version} of the format")));
    }
    let tensor_count = head.count("tensors", MAX_TENSORS)?;
    let entry_count = head.count("entries", MAX_ENTRIES)?;
    let mut entries = BTreeMap::new();
    for _ in 0..entry_count {
        let key = head.text(MAX_NAME)?;
        let kind = head.u32()?;
        entries.insert(key, head.entry(kind)?);
    }
    let mut tensors = BTreeMap::new();
    let mut end = 0;
    let mut parameters = 0_u64;
    for _ in 0..tensor_count {
        let name = head.text(MAX_NAME)?;
        let (tensor, tensor_end) = head.tensor()?;
        end = end.max(tensor_end);
        parameters = parameters.saturating_add(tensor.elements);
        tensors.insert(name, tensor);
    }
    let alignment = match entries.get("general.alignment") {
        Some(Entry::Whole(value)) if (1..=1 << 20).contains(value) => u64::try_from(*value).unwrap_or(1),
        Some(_) => return Err(damaged("a strange alignment")),
        None => DEFAULT_ALIGNMENT,
    };
    let begin = head.at.div_ceil(alignment).saturating_mul(alignment);
    let needed = if end == 0 { head.at } else { begin.saturating_add(end) };
    if needed > size {
        return Err(GgufError::Cut(needed - size));
    }
    let text = |key: &str| match entries.get(key) {
        Some(Entry::Text(text)) => Some(text.clone()),
        Some(Entry::Whole(_) | Entry::Real(_) | Entry::Flag(_) | Entry::List(_)) | None => None,
    };
    let Some(architecture) = text("general.architecture") else {
        return Err(damaged("it does not say which network it holds"));
    };
    let mut header = GgufHeader {
        name: text("general.name"),
        architecture,
        context: None,
        parameters,
        bytes: size,
        entries,
        tensors,
    };
    header.context = header.number("context_length");
    Ok(header)
}

fn damaged(what: impl Into<String>) -> GgufError {
    GgufError::Damaged(what.into())
}

/// The part before the weights, while it is read.
struct Head<R> {
    input: R,
    /// Bytes read.
    at: u64,
    /// Bytes of the whole file.
    size: u64,
    /// Items of lists so far.
    items: u64,
}

impl<R: Read> Head<R> {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), GgufError> {
        let wanted = bytes.len() as u64;
        match self.input.read_exact(bytes) {
            Ok(()) => {
                self.at += wanted;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                if self.size > MAX_HEAD {
                    return Err(damaged("its head is larger than 128 MiB"));
                }
                Err(GgufError::Cut((self.at + wanted).saturating_sub(self.size).max(1)))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn skip(&mut self, bytes: u64) -> Result<(), GgufError> {
        self.fits(bytes)?;
        let skipped = io::copy(&mut self.input.by_ref().take(bytes), &mut io::sink())?;
        self.at += skipped;
        if skipped < bytes { self.fill(&mut [0]) } else { Ok(()) }
    }

    /// Refuses a declared length before anything is allocated for it.
    fn fits(&self, bytes: u64) -> Result<(), GgufError> {
        let end = self.at.saturating_add(bytes);
        if end > self.size { Err(GgufError::Cut(end - self.size)) } else { Ok(()) }
    }

    fn u32(&mut self) -> Result<u32, GgufError> {
        let mut bytes = [0; 4];
        self.fill(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn u64(&mut self) -> Result<u64, GgufError> {
        let mut bytes = [0; 8];
        self.fill(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn count(&mut self, what: &str, limit: u64) -> Result<u64, GgufError> {
        match self.u64()? {
            count if count <= limit => Ok(count),
            count => Err(damaged(format!("{count} {what}, of which {limit} are the most"))),
        }
    }

    fn text(&mut self, limit: u64) -> Result<String, GgufError> {
        let length = self.u64()?;
        if length > limit {
            return Err(damaged(format!("a text of {length} bytes")));
        }
        self.fits(length)?;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        self.fill(&mut bytes)?;
        String::from_utf8(bytes).map_err(|_| damaged("a text that is none"))
    }

    fn entry(&mut self, kind: u32) -> Result<Entry, GgufError> {
        Ok(match kind {
            0 => Entry::Whole(self.bytes::<1>()?[0].into()),
            1 => Entry::Whole(i8::from_le_bytes(self.bytes()?).into()),
            2 => Entry::Whole(u16::from_le_bytes(self.bytes()?).into()),
            3 => Entry::Whole(i16::from_le_bytes(self.bytes()?).into()),
            4 => Entry::Whole(self.u32()?.into()),
            5 => Entry::Whole(i32::from_le_bytes(self.bytes()?).into()),
            6 => Entry::Real(f32::from_le_bytes(self.bytes()?).into()),
            7 => match self.bytes::<1>()? {
                [0] => Entry::Flag(false),
                [1] => Entry::Flag(true),
                _ => return Err(damaged("a flag that is neither yes nor no")),
            },
            8 => Entry::Text(self.text(MAX_TEXT)?),
            9 => self.list()?,
            10 => Entry::Whole(self.u64()?.into()),
            11 => Entry::Whole(i64::from_le_bytes(self.bytes()?).into()),
            12 => Entry::Real(f64::from_le_bytes(self.bytes()?)),
            other => return Err(damaged(format!("a value of the unknown kind {other}"))),
        })
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], GgufError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// Passes over a list.
    fn list(&mut self) -> Result<Entry, GgufError> {
        let kind = self.u32()?;
        let length = self.u64()?;
        self.items = self.items.saturating_add(length);
        if self.items > MAX_ITEMS {
            return Err(damaged(format!("lists of {} items", self.items)));
        }
        let width = match kind {
            0 | 1 | 7 => 1,
            2 | 3 => 2,
            4..=6 => 4,
            10..=12 => 8,
            8 => {
                for _ in 0..length {
                    let text = self.u64()?;
                    self.skip(text)?;
                }
                return Ok(Entry::List(length));
            }
            other => return Err(damaged(format!("a list of the kind {other}"))),
        };
        self.skip(length.saturating_mul(width))?;
        Ok(Entry::List(length))
    }

    /// Reads what is said of a tensor: itself, and where it ends among the weights.
    fn tensor(&mut self) -> Result<(Tensor, u64), GgufError> {
        let dimensions = self.u32()?;
        if dimensions > MAX_DIMENSIONS {
            return Err(damaged(format!("a tensor of {dimensions} dimensions")));
        }
        let mut elements = 1_u64;
        for _ in 0..dimensions {
            elements = elements.checked_mul(self.u64()?).ok_or_else(|| damaged("an endless tensor"))?;
        }
        let stored = self.u32()?;
        let offset = self.u64()?;
        // What is stored in an unknown way is as long as it is; that it is unknown is said where it is used.
        let bytes = match block(stored) {
            Some((weights, bytes)) => elements.div_ceil(weights).checked_mul(bytes),
            None => Some(0),
        };
        let end = bytes.and_then(|bytes| offset.checked_add(bytes));
        let end = end.ok_or_else(|| damaged("an endless tensor"))?;
        Ok((Tensor { elements, stored }, end))
    }
}

#[cfg(test)]
mod tests;
