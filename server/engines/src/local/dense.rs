//! The network of Llama, Mistral, SmolLM and Qwen 2: layers of attention and a gated step. The library has
//! both too, but not so that two agents can share the weights, nor with Llama 3's long rope or more than
//! 4,096 tokens; its own are what the tests compare this with.

use std::io::{Read, Seek};

use candle_core::quantized::QMatMul;
use candle_core::quantized::gguf_file::Content;
use candle_core::{D, DType, Device, Module, Result, Tensor, bail};
use candle_nn::kv_cache::KvCache;
use candle_nn::ops::{silu, softmax_last_dim};
use candle_nn::rotary_emb::{rope, rope_i};
use candle_transformers::quantized_nn::RmsNorm;
use candle_transformers::utils::build_causal_mask;

/// Tokens from which on a batch is faster with weights that are unpacked for it: packed ones are unpacked anew
/// for every token.
const UNPACKED_FROM: usize = 8;
/// Tokens by which what a layer remembers grows: fewer copies for more of them.
const GROWTH: usize = 256;

/// A network with what it remembers. A clone shares the weights.
#[derive(Debug, Clone)]
pub(super) struct Dense {
    embeddings: Tensor,
    layers: Vec<Layer>,
    norm: RmsNorm,
    output: QMatMul,
    turns: Turns,
    shape: Shape,
    hidden: Tensor,
}

/// How wide everything is.
#[derive(Debug, Clone, Copy)]
struct Shape {
    heads: usize,
    /// Heads that are remembered; each serves several.
    shared: usize,
    head: usize,
    /// Neighbours are turned together, as Llama does; else halves, as Qwen does.
    neighbours: bool,
}

/// How far a token's place turns it: a row of cosines and of sines for each place.
#[derive(Debug, Clone)]
struct Turns {
    cos: Tensor,
    sin: Tensor,
}

#[derive(Debug, Clone)]
struct Layer {
    before: RmsNorm,
    q: Projection,
    k: Projection,
    v: Projection,
    out: QMatMul,
    between: RmsNorm,
    gate: QMatMul,
    up: QMatMul,
    down: QMatMul,
    memory: KvCache,
}

/// A matrix, with what is added to its products where the family has that.
#[derive(Debug, Clone)]
struct Projection {
    matrix: QMatMul,
    bias: Option<Tensor>,
}

/// Reads parts of a file by their names.
struct Source<'a, R> {
    content: &'a Content,
    file: &'a mut R,
    architecture: String,
}

impl<R: Read + Seek> Source<'_, R> {
    fn number(&self, key: &str) -> Result<usize> {
        match self.content.metadata.get(&format!("{}.{key}", self.architecture)) {
            Some(value) => usize::try_from(value.to_u64()?).map_err(candle_core::Error::wrap),
            None => bail!("it does not say its {key}"),
        }
    }

    fn real(&self, key: &str) -> Result<f32> {
        match self.content.metadata.get(&format!("{}.{key}", self.architecture)) {
            Some(value) => value.to_f32(),
            None => bail!("it does not say its {key}"),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.content.tensor_infos.contains_key(name)
    }

    fn matrix(&mut self, name: &str) -> Result<QMatMul> {
        QMatMul::from_qtensor(self.content.tensor(self.file, name, &Device::Cpu)?)
    }

    fn plain(&mut self, name: &str) -> Result<Tensor> {
        self.content.tensor(self.file, name, &Device::Cpu)?.dequantize(&Device::Cpu)
    }

    fn norm(&mut self, name: &str, least: f64) -> Result<RmsNorm> {
        RmsNorm::from_qtensor(self.content.tensor(self.file, name, &Device::Cpu)?, least)
    }

    fn projection(&mut self, name: &str, rows: usize, width: usize) -> Result<Projection> {
        let found = self.content.tensor_infos.get(&format!("{name}.weight")).map(|found| found.shape.dims());
        if found.is_some_and(|found| found != [rows, width]) {
            bail!("{name} is {found:?} and not [{rows}, {width}]");
        }
        let bias = format!("{name}.bias");
        let bias = if self.has(&bias) { Some(self.plain(&bias)?) } else { None };
        Ok(Projection { matrix: self.matrix(&format!("{name}.weight"))?, bias })
    }
}

impl Dense {
    /// Reads the network of a file, for conversations of up to `context` tokens.
    ///
    /// # Errors
    /// What is missing or does not fit together.
    pub(super) fn load<R: Read + Seek>(
        content: &Content,
        file: &mut R,
        context: usize,
        neighbours: bool,
    ) -> Result<Self> {
        let architecture = match content.metadata.get("general.architecture") {
            Some(name) => name.to_string()?.clone(),
            None => bail!("it does not say which network it holds"),
        };
        let mut source = Source { content, file, architecture };
        let width = source.number("embedding_length")?;
        let heads = source.number("attention.head_count")?;
        let shared = source.number("attention.head_count_kv")?;
        let head = source.number("attention.key_length").unwrap_or(width / heads.max(1));
        if source.number("rope.dimension_count").unwrap_or(head) != head || !head.is_multiple_of(2) {
            bail!("only a part of each head is turned, which is not known here");
        }
        if source.number("expert_count").unwrap_or(0) > 1 {
            bail!("it is made of experts, which are not known here");
        }
        let shape = Shape { heads, shared, head, neighbours };
        let least = f64::from(source.real("attention.layer_norm_rms_epsilon")?);
        let turns = Turns::make(&mut source, shape, context)?;
        let mut layers = Vec::new();
        for layer in 0..source.number("block_count")? {
            let name = |part: &str| format!("blk.{layer}.{part}");
            layers.push(Layer {
                before: source.norm(&name("attn_norm.weight"), least)?,
                q: source.projection(&name("attn_q"), heads * head, width)?,
                k: source.projection(&name("attn_k"), shared * head, width)?,
                v: source.projection(&name("attn_v"), shared * head, width)?,
                out: source.matrix(&name("attn_output.weight"))?,
                between: source.norm(&name("ffn_norm.weight"), least)?,
                gate: source.matrix(&name("ffn_gate.weight"))?,
                up: source.matrix(&name("ffn_up.weight"))?,
                down: source.matrix(&name("ffn_down.weight"))?,
                memory: KvCache::new(2, GROWTH),
            });
        }
        let embeddings = source.plain("token_embd.weight")?;
        if embeddings.rank() != 2 || embeddings.dim(1)? != width {
            bail!("its tokens are not {width} wide");
        }
        // Many small models use one table for what comes in and what goes out.
        let output = if source.has("output.weight") { "output.weight" } else { "token_embd.weight" };
        Ok(Self {
            embeddings,
            layers,
            norm: source.norm("output_norm.weight", least)?,
            output: source.matrix(output)?,
            turns,
            shape,
            hidden: Tensor::new(f32::NEG_INFINITY, &Device::Cpu)?,
        })
    }

    /// Feeds tokens behind the `at` that it remembers; returns a weight for each token that may come next.
    ///
    /// # Errors
    /// The library's words; also when nobody is `heard` any more, and then it must not be fed further.
    pub(super) fn feed(&mut self, tokens: &Tensor, at: usize, heard: &dyn Fn() -> bool) -> Result<Tensor> {
        let count = tokens.elem_count();
        let width = self.embeddings.dim(D::Minus1)?;
        let mut x = self.embeddings.index_select(&tokens.flatten_all()?, 0)?.reshape((1, count, width))?;
        let mask = if count == 1 {
            None
        } else {
            let mask = build_causal_mask(count, at, &Device::Cpu)?;
            Some(mask.broadcast_as((1, self.shape.heads, count, at + count))?)
        };
        for layer in &mut self.layers {
            if !heard() {
                bail!("nobody listens");
            }
            x = layer.attend(&x, at, mask.as_ref(), &self.turns, self.shape, &self.hidden)?;
            let y = layer.between.forward(&x)?;
            let gated = (silu(&product(&layer.gate, &y)?)? * product(&layer.up, &y)?)?;
            x = (x + product(&layer.down, &gated)?)?;
        }
        let last = self.norm.forward(&x.narrow(1, count - 1, 1)?.contiguous()?)?;
        self.output.forward(&last)
    }
}

/// Multiplies a batch with a matrix.
fn product(matrix: &QMatMul, batch: &Tensor) -> Result<Tensor> {
    let (one, count, _) = batch.dims3()?;
    match matrix {
        QMatMul::QTensor(packed) if count >= UNPACKED_FROM => {
            let plain = packed.dequantize(&Device::Cpu)?;
            let rows = plain.dim(0)?;
            batch.flatten_to(1)?.matmul(&plain.t()?)?.reshape((one, count, rows))
        }
        QMatMul::QTensor(_) | QMatMul::Tensor(_) | QMatMul::TensorF16(_) => matrix.forward(batch),
    }
}

impl Layer {
    fn attend(
        &mut self,
        x: &Tensor,
        at: usize,
        mask: Option<&Tensor>,
        turns: &Turns,
        shape: Shape,
        hidden: &Tensor,
    ) -> Result<Tensor> {
        let (_, count, _) = x.dims3()?;
        let Shape { heads, shared, head, .. } = shape;
        let y = self.before.forward(x)?;
        let split = |projection: &Projection, heads: usize| -> Result<Tensor> {
            let product = product(&projection.matrix, &y)?;
            let product = match &projection.bias {
                Some(bias) => product.broadcast_add(bias)?,
                None => product,
            };
            product.reshape((1, count, heads, head))?.transpose(1, 2)?.contiguous()
        };
        let q = turns.turn(&split(&self.q, heads)?, at, shape.neighbours)?;
        let k = turns.turn(&split(&self.k, shared)?, at, shape.neighbours)?;
        let v = split(&self.v, shared)?;
        if at == 0 {
            self.memory.reset();
        }
        let (k, v) = self.memory.append(&k, &v)?;
        // The heads that share a memory are looked up in it together, so that it is never repeated.
        let together = heads / shared * count;
        let q = q.reshape((1, shared, together, head))?;
        let looked = (q.matmul(&k.transpose(2, 3)?)? / (head as f64).sqrt())?;
        let looked = looked.reshape((1, heads, count, at + count))?;
        let looked = match mask {
            Some(mask) => mask.where_cond(&hidden.broadcast_as(looked.shape())?, &looked)?,
            None => looked,
        };
        let looked = softmax_last_dim(&looked)?.reshape((1, shared, together, at + count))?;
        let found = looked.matmul(&v.contiguous()?)?.reshape((1, heads, count, head))?;
        let found = found.transpose(1, 2)?.reshape((1, count, heads * head))?;
        x + product(&self.out, &found)?
    }
}

impl Turns {
    fn make<R: Read + Seek>(source: &mut Source<'_, R>, shape: Shape, context: usize) -> Result<Self> {
        let base = source.real("rope.freq_base").unwrap_or(10_000.0);
        let half = shape.head / 2;
        let mut speeds: Vec<f32> =
            (0..half).map(|pair| base.powf(-2.0 * pair as f32 / shape.head as f32)).collect();
        // Llama 3.1 and later turn their slow pairs slower still.
        if source.has("rope_freqs.weight") {
            let slower: Vec<f32> = source.plain("rope_freqs.weight")?.flatten_all()?.to_vec1()?;
            if slower.len() != half {
                bail!("its rope has {} pairs of {half}", slower.len());
            }
            speeds.iter_mut().zip(slower).for_each(|(speed, slower)| *speed /= slower);
        }
        let places = Tensor::arange(0, u32::try_from(context).unwrap_or(u32::MAX), &Device::Cpu)?;
        let places = places.to_dtype(DType::F32)?.reshape((context, 1))?;
        let angles = places.matmul(&Tensor::from_vec(speeds, (1, half), &Device::Cpu)?)?;
        Ok(Self { cos: angles.cos()?, sin: angles.sin()? })
    }

    fn turn(&self, x: &Tensor, at: usize, neighbours: bool) -> Result<Tensor> {
        let count = x.dim(2)?;
        let (cos, sin) = (self.cos.narrow(0, at, count)?, self.sin.narrow(0, at, count)?);
        if neighbours { rope_i(x, &cos, &sin) } else { rope(x, &cos, &sin) }
    }
}
