//! The tokens of a file: text to tokens, tokens to bytes, and which of them drive the model rather than
//! say something. Those never come out of a text that somebody sends.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use candle_core::quantized::gguf_file::Value;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::unicode::NFC;
use tokenizers::normalizers::{Prepend, Replace, Sequence as Normalizers};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::SplitDelimiterBehavior;
use tokenizers::{AddedToken, NormalizerWrapper, Tokenizer};

/// Tokens that end a turn in one family or another, where a file does not name them all.
const ENDS: [&str; 11] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|end|>",
    "<|return|>",
    "<end_of_turn>",
    "<eos>",
    "</s>",
    "<|END_OF_TURN_TOKEN|>",
];
/// How pieces of words are split from each other by Llama 3 and those after it.
const LLAMA3_WORDS: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The same for Qwen, which reads numbers digit by digit.
const QWEN_WORDS: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// What stands for a space in SentencePiece.
const SPACE: char = '▁';
/// Longest token that merges are made for, in characters.
const MAX_MERGED: usize = 128;

/// A vocabulary can't be used.
pub(super) type Unusable = String;

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// Bytes of text; a character may be spread over several.
    Bytes(Box<[u8]>),
    /// It drives the model; its name.
    Control(Box<str>),
}

/// The tokens of a model.
#[derive(Debug)]
pub(super) struct Vocabulary {
    tokenizer: Tokenizer,
    pieces: Vec<Piece>,
    ends: HashSet<u32>,
    /// Begins every text, where the model wants one.
    begin: Option<u32>,
    /// The names of tokens that drive the model, and how long they are, in bytes.
    controls: HashSet<Box<str>>,
    lengths: Vec<usize>,
    /// As chat templates call them.
    pub(super) begin_name: String,
    pub(super) end_name: String,
}

/// The kinds of token, as files number them.
const UNKNOWN: i64 = 2;
const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;
const UNUSED: i64 = 5;
const BYTE: i64 = 6;

/// The lists of a file that make up its vocabulary.
struct Lists<'a> {
    metadata: &'a HashMap<String, Value>,
    tokens: Vec<&'a str>,
    kinds: Vec<i64>,
}

impl Vocabulary {
    /// Reads a vocabulary from a file's metadata.
    ///
    /// # Errors
    /// Why it can't be used, in a few words.
    pub(super) fn read(metadata: &HashMap<String, Value>) -> Result<Self, Unusable> {
        let lists = Lists::read(metadata)?;
        let (mut tokenizer, bytewise) = match lists.text("model").unwrap_or_default() {
            "gpt2" => (lists.bytewise()?, true),
            "llama" => (lists.sentence_pieces()?, false),
            other => return Err(format!("its tokens are of the kind {other}, which is not known here")),
        };
        let mut controls = HashSet::new();
        let mut added = Vec::new();
        let mut pieces = Vec::with_capacity(lists.tokens.len());
        let alphabet = bytewise.then(alphabet);
        for (token, kind) in lists.tokens.iter().zip(lists.kinds.iter().copied()) {
            if matches!(kind, UNKNOWN | CONTROL | USER_DEFINED | UNUSED) && !token.is_empty() {
                added.push(AddedToken::from((*token).to_owned(), kind != USER_DEFINED));
            }
            pieces.push(match kind {
                CONTROL | UNUSED | UNKNOWN => {
                    controls.insert(Box::<str>::from(*token));
                    Piece::Control(Box::from(*token))
                }
                USER_DEFINED if bytewise => Piece::Bytes(token.as_bytes().into()),
                _ => Piece::Bytes(bytes_of(token, kind, alphabet.as_ref())),
            });
        }
        tokenizer.add_special_tokens(added).map_err(|error| error.to_string())?;
        let id = |key: &str| lists.id(key);
        let ends = ["eos_token_id", "eot_token_id", "eom_token_id"].iter().filter_map(|key| id(key));
        let named = lists.tokens.iter().zip(0..).filter(|(token, _)| ENDS.contains(token)).map(|(_, id)| id);
        let ends = ends.chain(named).collect();
        let name = |id: Option<u32>| -> String {
            let token = id.and_then(|id| lists.tokens.get(usize::try_from(id).ok()?));
            token.map_or_else(String::new, |token| (*token).to_owned())
        };
        let begin = id("bos_token_id");
        let wants_begin = lists.flag("add_bos_token").unwrap_or(!bytewise);
        let mut lengths: Vec<usize> = controls.iter().map(|name| name.len()).collect();
        lengths.sort_unstable();
        lengths.dedup();
        Ok(Self {
            begin_name: name(begin),
            end_name: name(id("eos_token_id")),
            begin: begin.filter(|_| wants_begin),
            tokenizer,
            pieces,
            ends,
            controls,
            lengths,
        })
    }

    /// Returns the tokens of a rendered prompt. Names of tokens in it become those tokens.
    ///
    /// # Errors
    /// The library's words.
    pub(super) fn encode(&self, prompt: &str) -> Result<Vec<u32>, Unusable> {
        let encoded = self.tokenizer.encode_fast(prompt, false).map_err(|error| error.to_string())?;
        let tokens = encoded.get_ids();
        match self.begin {
            Some(begin) if tokens.first() != Some(&begin) => Ok([&[begin], tokens].concat()),
            Some(_) | None => Ok(tokens.to_vec()),
        }
    }

    /// Whether a token ends the model's turn.
    pub(super) fn ends(&self, token: u32) -> bool {
        self.ends.contains(&token)
    }

    /// Returns what a token says; nothing for one that is not there.
    pub(super) fn piece(&self, token: u32) -> Option<&Piece> {
        self.pieces.get(usize::try_from(token).ok()?)
    }

    /// Returns text in which no name of a driving token stands: a character without width breaks each, so
    /// that no document or tool can close its own turn and speak as somebody else.
    pub(super) fn defused<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut safe = String::new();
        let mut copied = 0;
        for (at, first) in text.char_indices() {
            let rest = &text[at..];
            let is_name =
                |length: &usize| rest.get(..*length).is_some_and(|name| self.controls.contains(name));
            // Every name begins with a mark; letters are the usual case.
            if !first.is_alphanumeric() && !first.is_whitespace() && self.lengths.iter().any(is_name) {
                let behind = at + first.len_utf8();
                safe.push_str(&text[copied..behind]);
                safe.push('\u{200b}');
                copied = behind;
            }
        }
        if copied == 0 {
            return Cow::Borrowed(text);
        }
        safe.push_str(&text[copied..]);
        Cow::Owned(safe)
    }
}

impl<'a> Lists<'a> {
    fn read(metadata: &'a HashMap<String, Value>) -> Result<Self, Unusable> {
        let Some(Value::Array(tokens)) = metadata.get("tokenizer.ggml.tokens") else {
            return Err("it brings no tokens".to_owned());
        };
        let tokens: Vec<&str> = tokens.iter().filter_map(text_of).collect();
        let kinds: Vec<i64> = match metadata.get("tokenizer.ggml.token_type") {
            Some(Value::Array(kinds)) => kinds.iter().filter_map(whole).collect(),
            _ => vec![1; tokens.len()],
        };
        if tokens.is_empty() || kinds.len() != tokens.len() {
            return Err("its list of tokens does not hold together".to_owned());
        }
        Ok(Self { metadata, tokens, kinds })
    }

    fn value(&self, key: &str) -> Option<&'a Value> {
        self.metadata.get(&format!("tokenizer.ggml.{key}"))
    }

    fn text(&self, key: &str) -> Option<&'a str> {
        text_of(self.value(key)?)
    }

    fn flag(&self, key: &str) -> Option<bool> {
        self.value(key)?.to_bool().ok()
    }

    fn id(&self, key: &str) -> Option<u32> {
        let id = u32::try_from(whole(self.value(key)?)?).ok()?;
        usize::try_from(id).is_ok_and(|id| id < self.tokens.len()).then_some(id)
    }

    fn vocabulary(&self) -> impl Iterator<Item = (String, u32)> + '_ {
        self.tokens.iter().map(|token| (*token).to_owned()).zip(0..)
    }

    /// Makes a tokenizer that works on bytes, with the merges that the file lists.
    fn bytewise(&self) -> Result<Tokenizer, Unusable> {
        let Some(Value::Array(merges)) = self.value("merges") else {
            return Err("it brings no merges".to_owned());
        };
        let pairs = merges.iter().filter_map(text_of).filter_map(|merge| merge.split_once(' '));
        let pairs = pairs.map(|(left, right)| (left.to_owned(), right.to_owned())).collect();
        let pre = self.text("pre").unwrap_or_default();
        let llama3 = matches!(pre, "llama-bpe" | "llama3" | "llama-v3" | "smaug-bpe" | "falcon3");
        let model = BPE::builder().vocab_and_merges(self.vocabulary().collect::<Vocab>(), pairs);
        let model = model.ignore_merges(llama3).build().map_err(|error| error.to_string())?;
        let mut tokenizer = Tokenizer::new(model);
        let words = |words: &str| -> Result<PreTokenizerWrapper, Unusable> {
            let split =
                Split::new(SplitPattern::Regex(words.to_owned()), SplitDelimiterBehavior::Isolated, false)
                    .map_err(|error| error.to_string())?;
            Ok(Sequence::new(vec![split.into(), ByteLevel::new(false, false, false).into()]).into())
        };
        let split = match pre {
            _ if llama3 => words(LLAMA3_WORDS)?,
            "qwen2" | "deepseek-r1-qwen" => {
                tokenizer.with_normalizer(Some(NFC)).map_err(|error| error.to_string())?;
                words(QWEN_WORDS)?
            }
            "smollm" | "codeshell" | "refact" | "starcoder" | "command-r" => {
                Sequence::new(vec![Digits::new(true).into(), ByteLevel::new(false, false, true).into()])
                    .into()
            }
            other => {
                if !matches!(other, "" | "default" | "gpt-2" | "gpt2" | "mpt" | "olmo") {
                    tracing::warn!(words = other, "an unknown way to split words; GPT-2's is used");
                }
                ByteLevel::new(false, false, true).into()
            }
        };
        tokenizer.with_pre_tokenizer(Some(split));
        Ok(tokenizer)
    }

    /// Makes a tokenizer of SentencePiece's kind: the file gives each token a score, and two tokens are
    /// merged before others where what they make together has the higher one.
    fn sentence_pieces(&self) -> Result<Tokenizer, Unusable> {
        let Some(Value::Array(scores)) = self.value("scores") else {
            return Err("it brings no scores for its tokens".to_owned());
        };
        let known: HashSet<&str> = self.tokens.iter().copied().collect();
        let mut merges = Vec::new();
        for (token, score) in self.tokens.iter().zip(scores) {
            let score = score.to_f32().map_err(|error| error.to_string())?;
            if token.chars().nth(MAX_MERGED).is_some() {
                continue;
            }
            for (at, _) in token.char_indices().skip(1) {
                let (left, right) = token.split_at(at);
                if known.contains(left) && known.contains(right) {
                    merges.push((score, left, right));
                }
            }
        }
        merges.sort_by(|a, b| {
            b.0.total_cmp(&a.0).then_with(|| (b.1.len(), b.2.len()).cmp(&(a.1.len(), a.2.len())))
        });
        let merges = merges.into_iter().map(|(_, left, right)| (left.to_owned(), right.to_owned())).collect();
        let unknown = self.id("unknown_token_id").and_then(|id| self.tokens.get(usize::try_from(id).ok()?));
        let mut model = BPE::builder()
            .vocab_and_merges(self.vocabulary().collect::<Vocab>(), merges)
            .byte_fallback(true)
            .fuse_unk(true);
        if let Some(unknown) = unknown {
            model = model.unk_token((*unknown).to_owned());
        }
        let mut tokenizer = Tokenizer::new(model.build().map_err(|error| error.to_string())?);
        let space = SPACE.to_string();
        let mut steps: Vec<NormalizerWrapper> = Vec::new();
        if self.flag("add_space_prefix").unwrap_or(true) {
            steps.push(Prepend::new(space.clone()).into());
        }
        steps.push(Replace::new(" ", space).map_err(|error| error.to_string())?.into());
        tokenizer.with_normalizer(Some(Normalizers::new(steps))).map_err(|error| error.to_string())?;
        Ok(tokenizer)
    }
}

fn text_of(value: &Value) -> Option<&str> {
    value.to_string().ok().map(String::as_str)
}

fn whole(value: &Value) -> Option<i64> {
    match value {
        Value::I32(value) => Some((*value).into()),
        Value::I64(value) => Some(*value),
        other => other.to_u64().ok().and_then(|value| value.try_into().ok()),
    }
}

/// Returns the bytes of a plain token.
fn bytes_of(token: &str, kind: i64, alphabet: Option<&HashMap<char, u8>>) -> Box<[u8]> {
    match alphabet {
        // A character that stands for no byte stands for itself.
        Some(alphabet) => token
            .chars()
            .flat_map(|c| match alphabet.get(&c) {
                Some(byte) => vec![*byte],
                None => c.to_string().into_bytes(),
            })
            .collect(),
        None if kind == BYTE => {
            let hex = token.strip_prefix("<0x").and_then(|hex| hex.strip_suffix('>'));
            hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()).into_iter().collect()
        }
        None => token.replace(SPACE, " ").into_bytes().into(),
    }
}

/// Returns which byte a character of a bytewise token stands for: visible bytes for themselves, the others
/// for the characters from U+0100 on, in their order.
fn alphabet() -> HashMap<char, u8> {
    let visible = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let hidden = (0..=u8::MAX).filter(|byte| !visible(*byte));
    let hidden = (0x100..).filter_map(char::from_u32).zip(hidden);
    (0..=u8::MAX).filter(|byte| visible(*byte)).map(|byte| (char::from(byte), byte)).chain(hidden).collect()
}

/// Text out of bytes that come in pieces.
#[derive(Debug, Default)]
pub(super) struct Characters {
    /// The begin of a character.
    begun: Vec<u8>,
}

impl Characters {
    /// Adds bytes and returns the whole characters so far; what is no text becomes U+FFFD.
    pub(super) fn push(&mut self, bytes: &[u8]) -> String {
        self.begun.extend_from_slice(bytes);
        let mut text = String::new();
        let mut at = 0;
        loop {
            let rest = &self.begun[at..];
            match std::str::from_utf8(rest) {
                Ok(whole) => {
                    text.push_str(whole);
                    at = self.begun.len();
                }
                Err(error) => {
                    let valid = error.valid_up_to();
                    text.push_str(&String::from_utf8_lossy(&rest[..valid]));
                    at += valid;
                    if let Some(bad) = error.error_len() {
                        text.push(char::REPLACEMENT_CHARACTER);
                        at += bad;
                        continue;
                    }
                }
            }
            break;
        }
        self.begun.drain(..at);
        text
    }

    /// Returns what stands for a character that never came whole.
    pub(super) fn end(&mut self) -> &'static str {
        if std::mem::take(&mut self.begun).is_empty() { "" } else { "\u{fffd}" }
    }
}

#[cfg(test)]
mod tests;
