//! Small random networks of every kind for this crate's tests, written as real files.

use std::fs::File;
use std::path::Path;

use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};

use super::weights::{KINDS, Kind};

/// Tokens of a conversation.
pub(super) const CONTEXT: u32 = 256;
/// Weights a token.
const WIDTH: usize = 64;
const HEADS: usize = 4;
const SHARED: usize = 2;
const HEAD: usize = 16;
const INNER: usize = 96;
const LAYERS: usize = 2;
/// Ends a turn; the last token.
pub(super) const END: &str = "<|im_end|>";

/// A file to be written.
pub(super) struct Tiny {
    metadata: Vec<(String, Value)>,
    tensors: Vec<(String, QTensor)>,
}

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

fn texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> Value {
    Value::Array(texts.into_iter().map(text).collect())
}

/// Returns every byte as a bytewise vocabulary writes it, some words, and what drives ChatML.
fn tokens() -> (Vec<String>, Vec<Value>) {
    let shown = |byte: u8| match byte {
        b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => char::from(byte),
        0..=b' ' => char::from_u32(0x100 + u32::from(byte)).unwrap(),
        0x7f..=0xa0 => char::from_u32(0x121 + u32::from(byte - 0x7f)).unwrap(),
        0xad => char::from_u32(0x143).unwrap(),
    };
    let mut tokens: Vec<String> = (0..=u8::MAX).map(|byte| shown(byte).to_string()).collect();
    tokens
        .extend(["he", "Ġt", "Ġthe", "<tool_call>", "</tool_call>", "<|im_start|>", END].map(str::to_owned));
    let kinds = (0..tokens.len()).map(|at| match tokens.len() - at {
        1 | 2 => 3,
        3 | 4 => 4,
        _ => 1,
    });
    let kinds = kinds.map(Value::I32).collect();
    (tokens, kinds)
}

/// Numbers that look like chance and are always the same.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 40) as f32 / (1 << 24) as f32 - 0.5) * 0.6
    }

    fn tensor(&mut self, rows: usize, columns: usize) -> QTensor {
        let numbers: Vec<f32> = (0..rows * columns).map(|_| self.next()).collect();
        stored(numbers, (rows, columns))
    }
}

fn stored(numbers: Vec<f32>, shape: impl Into<candle_core::Shape>) -> QTensor {
    QTensor::quantize(&Tensor::from_vec(numbers, shape, &Device::Cpu).unwrap(), GgmlDType::F32).unwrap()
}

fn ones(count: usize) -> QTensor {
    stored((0..count).map(|at| 1.0 + at as f32 / 100.0).collect(), count)
}

impl Tiny {
    /// Makes a network that never ends its turn by itself.
    pub(super) fn new(kind: Kind) -> Self {
        let (tokens, kinds) = tokens();
        let architecture = KINDS.iter().find(|(_, known)| *known == kind).unwrap().0;
        let mut metadata = vec![("general.architecture".to_owned(), text(architecture))];
        for (key, value) in [
            ("block_count", LAYERS),
            ("context_length", CONTEXT as usize),
            ("embedding_length", WIDTH),
            ("feed_forward_length", INNER),
            ("attention.head_count", HEADS),
            ("attention.head_count_kv", SHARED),
            ("attention.key_length", HEAD),
            ("attention.value_length", HEAD),
            ("attention.sliding_window", 512),
            ("rope.dimension_count", HEAD),
        ] {
            metadata.push((format!("{architecture}.{key}"), Value::U32(u32::try_from(value).unwrap())));
        }
        for (key, value) in [("attention.layer_norm_rms_epsilon", 1e-5), ("rope.freq_base", 10_000.0)] {
            metadata.push((format!("{architecture}.{key}"), Value::F32(value)));
        }
        let end = u32::try_from(tokens.len() - 1).unwrap();
        for (key, value) in [
            ("model", text("gpt2")),
            ("pre", text("smollm")),
            ("tokens", texts(tokens.iter().map(String::as_str))),
            ("token_type", Value::Array(kinds)),
            ("merges", texts(["h e", "Ġ t", "Ġt he"])),
            ("eos_token_id", Value::U32(end)),
            ("bos_token_id", Value::U32(end - 1)),
        ] {
            metadata.push((format!("tokenizer.ggml.{key}"), value));
        }
        Self { metadata, tensors: tensors(kind, tokens.len()) }
    }

    /// Sets an entry of the metadata.
    pub(super) fn set(mut self, key: &str, value: Value) -> Self {
        self.metadata.retain(|(known, _)| known != key);
        self.metadata.push((key.to_owned(), value));
        self
    }

    /// Brings a chat template along.
    pub(super) fn with_template(self, template: &str) -> Self {
        self.set("tokenizer.chat_template", text(template))
    }

    pub(super) fn write(&self, path: &Path) {
        let metadata: Vec<_> = self.metadata.iter().map(|(key, value)| (key.as_str(), value)).collect();
        let tensors: Vec<_> = self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        gguf_file::write(&mut File::create(path).unwrap(), &metadata, &tensors).unwrap();
    }
}

fn tensors(kind: Kind, tokens: usize) -> Vec<(String, QTensor)> {
    let mut chance = Chance(7);
    let mut tensors = vec![
        ("token_embd.weight".to_owned(), chance.tensor(tokens, WIDTH)),
        ("output_norm.weight".to_owned(), ones(WIDTH)),
    ];
    // The tokens that drive the model weigh nothing, so that one of the others is always likelier.
    let mut output: Vec<f32> = (0..tokens * WIDTH).map(|_| chance.next()).collect();
    output[(tokens - 2) * WIDTH..].fill(0.0);
    tensors.push(("output.weight".to_owned(), stored(output, (tokens, WIDTH))));
    for layer in 0..LAYERS {
        let mut add = |name: &str, tensor| tensors.push((format!("blk.{layer}.{name}"), tensor));
        for norm in ["attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm"] {
            add(&format!("{norm}.weight"), ones(WIDTH));
        }
        if kind == Kind::Phi3 {
            add("attn_qkv.weight", chance.tensor((HEADS + 2 * SHARED) * HEAD, WIDTH));
            add("ffn_up.weight", chance.tensor(2 * INNER, WIDTH));
        } else {
            for (name, heads) in [("q", HEADS), ("k", SHARED), ("v", SHARED)] {
                add(&format!("attn_{name}.weight"), chance.tensor(heads * HEAD, WIDTH));
                if kind == Kind::Qwen2 {
                    add(&format!("attn_{name}.bias"), ones(heads * HEAD));
                }
            }
            add("attn_q_norm.weight", ones(HEAD));
            add("attn_k_norm.weight", ones(HEAD));
            add("ffn_gate.weight", chance.tensor(INNER, WIDTH));
            add("ffn_up.weight", chance.tensor(INNER, WIDTH));
        }
        add("attn_output.weight", chance.tensor(WIDTH, HEADS * HEAD));
        add("ffn_down.weight", chance.tensor(WIDTH, INNER));
    }
    tensors
}
