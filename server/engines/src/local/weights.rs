//! The network of a file, behind one `feed`. What each kind of network of the library needs to be fed
//! rightly stands here and nowhere else.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use candle_core::quantized::gguf_file::{Content, Value};
use candle_core::{Device, Result, Tensor};
use candle_transformers::models::{quantized_gemma3, quantized_phi3, quantized_qwen3};

use super::dense::Dense;
use crate::gguf::GgufHeader;

/// Most tokens of a conversation, whatever a file says: the memory of a step grows with it, and tables are
/// made for all of it.
pub(super) const MAX_CONTEXT: usize = 32_768;
/// Most tokens that are fed at once, so that a cancel is soon seen.
const BATCH: usize = 32;
/// The same for the own networks, which see it in every layer.
const DENSE_BATCH: usize = 128;
/// Most tokens of Gemma's first batch: what its narrowest layers look back at.
const GEMMA_FIRST: usize = 512;
/// Tokens that the library's tables for Gemma are made for, in every layer.
const GEMMA_TABLE: u64 = quantized_gemma3::MAX_SEQ_LEN as u64;
/// Tokens that the library's Qwen 3 has a second store for from the start, in every layer.
const QWEN3_STORE: u64 = 4_096;
/// Bytes of a number that is computed with.
const WIDTH: u64 = 4;

/// The kinds of network that can be run, as files name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Llama,
    Qwen2,
    Qwen3,
    Gemma3,
    Phi3,
}

/// Every kind with its name.
pub(super) const KINDS: [(&str, Kind); 5] = [
    ("llama", Kind::Llama),
    ("qwen2", Kind::Qwen2),
    ("qwen3", Kind::Qwen3),
    ("gemma3", Kind::Gemma3),
    ("phi3", Kind::Phi3),
];

impl Kind {
    /// Returns the kind that a file names.
    pub(super) fn of(header: &GgufHeader) -> Option<Self> {
        KINDS.iter().find(|(name, _)| *name == header.architecture).map(|(_, kind)| *kind)
    }

    /// Returns how many tokens a conversation may have.
    pub(super) fn context(header: &GgufHeader) -> usize {
        let says = header.context.and_then(|context| usize::try_from(context).ok());
        says.unwrap_or(MAX_CONTEXT).min(MAX_CONTEXT)
    }

    /// Refuses sizes that a network can't have; the library would divide by them or allocate them.
    pub(super) fn check(self, header: &GgufHeader) -> std::result::Result<(), String> {
        let known = |key: &str, most: u64| match header.number(key) {
            Some(number) if (1..=most).contains(&number) => Ok(number),
            Some(number) => Err(format!("{key} is {number}")),
            None => Err(format!("it does not say its {key}")),
        };
        known("block_count", 1_024)?;
        known("context_length", u64::from(u32::MAX))?;
        let width = known("embedding_length", 1 << 20)?;
        let heads = known("attention.head_count", 4_096)?;
        let shared = known("attention.head_count_kv", heads)?;
        if !heads.is_multiple_of(shared) {
            return Err(format!("{heads} heads share {shared}"));
        }
        match self {
            Self::Llama | Self::Qwen2 => {
                if header.number("attention.key_length").unwrap_or(width / heads) > 4_096 {
                    return Err("its heads are too wide".to_owned());
                }
            }
            Self::Phi3 => {
                let rope = known("rope.dimension_count", width / heads)?;
                if !width.is_multiple_of(heads) || !rope.is_multiple_of(2) {
                    return Err(format!("{width} weights a token for {heads} heads"));
                }
            }
            Self::Qwen3 | Self::Gemma3 => {
                known("attention.key_length", 4_096)?;
            }
        }
        if header.number("attention.sliding_window_type") == Some(0) {
            return Err("its sliding_window_type is 0".to_owned());
        }
        match header.number("expert_count") {
            Some(experts) if experts > 256 => Err(format!("{experts} experts")),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns how much memory the model takes, in bytes: the file, and what the library unpacks of it.
    pub(super) fn memory(self, header: &GgufHeader) -> u64 {
        let number = |key| header.number(key).unwrap_or(0);
        let layers = number("block_count");
        let unpacked = header.elements("token_embd.weight").unwrap_or(0).saturating_mul(WIDTH);
        let key = number("attention.key_length").saturating_mul(WIDTH);
        let more = match self {
            Self::Llama | Self::Qwen2 | Self::Phi3 => 0,
            Self::Gemma3 => layers.saturating_mul(GEMMA_TABLE).saturating_mul(key),
            // For the conversation and for what is kept of it.
            Self::Qwen3 => [layers, 2, QWEN3_STORE, 2, number("attention.head_count_kv")]
                .into_iter()
                .fold(key, u64::saturating_mul),
        };
        header.bytes.saturating_add(unpacked).saturating_add(more)
    }
}

/// A network with what it remembers of a conversation. A clone shares the weights and remembers by itself,
/// as long as only one of two clones is fed further from the same place.
#[derive(Debug, Clone)]
pub(super) struct Weights {
    network: Network,
    /// Tokens that it remembers.
    fed: usize,
    /// The last token was fed alone.
    alone: bool,
}

#[derive(Debug, Clone)]
enum Network {
    Dense(Dense),
    Qwen3(quantized_qwen3::ModelWeights),
    Gemma3(quantized_gemma3::ModelWeights),
    Phi3(quantized_phi3::ModelWeights),
}

impl Weights {
    /// Reads a file's weights; returns its metadata with them.
    ///
    /// # Errors
    /// The library's words.
    pub(super) fn load(
        path: &Path,
        kind: Kind,
        context: usize,
    ) -> Result<(Self, std::collections::HashMap<String, Value>)> {
        let mut file = BufReader::new(File::open(path)?);
        let mut content = Content::read(&mut file)?;
        let metadata = content.metadata.clone();
        // Tables are made for as many tokens as this says.
        if let Some(architecture) = metadata.get("general.architecture") {
            let key = format!("{}.context_length", architecture.to_string()?);
            content.metadata.insert(key, Value::U32(u32::try_from(context).unwrap_or(u32::MAX)));
        }
        let (file, cpu) = (&mut file, &Device::Cpu);
        let network = match kind {
            Kind::Llama | Kind::Qwen2 => {
                Network::Dense(Dense::load(&content, file, context, kind == Kind::Llama)?)
            }
            Kind::Qwen3 => Network::Qwen3(quantized_qwen3::ModelWeights::from_gguf(content, file, cpu)?),
            Kind::Gemma3 => Network::Gemma3(quantized_gemma3::ModelWeights::from_gguf(content, file, cpu)?),
            Kind::Phi3 => Network::Phi3(quantized_phi3::ModelWeights::from_gguf(false, content, file, cpu)?),
        };
        Ok((Self { network, fed: 0, alone: false }, metadata))
    }

    /// Returns how many tokens it remembers.
    pub(super) fn fed(&self) -> usize {
        self.fed
    }

    /// Returns how many of `waiting` tokens may be fed at once now; at least one.
    pub(super) fn batch(&self, waiting: usize) -> usize {
        match self.network {
            Network::Dense(_) => waiting.min(DENSE_BATCH),
            Network::Phi3(_) => waiting.min(BATCH),
            // Its layers forget what came before a later batch.
            Network::Gemma3(_) if self.fed > 0 => 1,
            Network::Gemma3(_) => waiting.min(GEMMA_FIRST),
            // A batch forgets tokens that were fed alone, so that none may be left over for the end.
            Network::Qwen3(_) if self.alone => 1,
            Network::Qwen3(_) if waiting == BATCH + 1 => BATCH - 1,
            Network::Qwen3(_) => waiting.min(BATCH),
        }
        .max(1)
    }

    /// Whether a conversation can go on from here with any tokens.
    pub(super) fn can_go_on(&self) -> bool {
        !(self.alone && matches!(self.network, Network::Qwen3(_)))
    }

    /// Feeds the next tokens and returns what may come after them: a weight for each token there is.
    ///
    /// # Errors
    /// The library's words; also when nobody is `heard` any more. It must not be fed further then.
    pub(super) fn feed(&mut self, tokens: &[u32], heard: &dyn Fn() -> bool) -> Result<Tensor> {
        let input = Tensor::new(tokens, &Device::Cpu)?.unsqueeze(0)?;
        let at = self.fed;
        let next = match &mut self.network {
            Network::Dense(network) => network.feed(&input, at, heard),
            Network::Qwen3(network) => network.forward(&input, at),
            Network::Gemma3(network) => network.forward(&input, at),
            Network::Phi3(network) => network.forward(&input, at),
        }?;
        self.fed += tokens.len();
        self.alone = tokens.len() == 1;
        next.flatten_all()
    }
}
