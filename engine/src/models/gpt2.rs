//! GPT-2, a decoder with learned position embeddings (Radford et al., 2019).

use super::language::{LanguageModel, adapted, check_heads, check_tokens, through};
use crate::nn::{
    Child, Dropout, Embedding, Filling, Init, LayerNorm, LinearFilling, LoraOptions, Module, Projection, Sequence,
};
use crate::ops::AttentionOptions;
use crate::{Error, Result, Tensor};

/// Sizes of a GPT-2 model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gpt2Size {
    /// Vocabulary size.
    pub vocabulary: usize,
    /// Maximum sequence length in tokens, which is the number of learned position embeddings.
    pub positions: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Hidden size.
    pub width: usize,
    /// Number of attention heads, which must divide the hidden size.
    pub heads: usize,
    /// Dropout probability after the embedding and after the attention and MLP of each block. There is no dropout of
    /// attention weights, because they are never materialized.
    pub dropout: f64,
}

impl Gpt2Size {
    /// The smallest published model, with 124,439,808 parameters.
    pub const SMALLEST_PUBLISHED: Self =
        Self { vocabulary: 50257, positions: 1024, layers: 12, width: 768, heads: 12, dropout: 0.0 };

    /// A small model that trains quickly on a CPU.
    pub const SMALL: Self = Self { vocabulary: 96, positions: 64, layers: 3, width: 48, heads: 4, dropout: 0.0 };
}

const EPSILON: f64 = 1e-5;
const DEVIATION: f64 = 0.02;

/// GPT-2 with the parameters of Hugging Face's `GPT2LMHeadModel`. Weights of linear layers have shape
/// `[outputs, inputs]`. The head shares the weight of the token embedding.
#[derive(Debug)]
pub struct Gpt2 {
    wte: Child<Embedding>,
    wpe: Child<Embedding>,
    drop: Dropout,
    h: Child<Sequence<Block>>,
    ln_f: Child<LayerNorm>,
    size: Gpt2Size,
}

#[derive(Debug)]
struct Block {
    ln_1: Child<LayerNorm>,
    attn: Child<Attention>,
    ln_2: Child<LayerNorm>,
    mlp: Child<Mlp>,
}

#[derive(Debug)]
struct Attention {
    c_attn: Child<Projection>,
    c_proj: Child<Projection>,
    drop: Dropout,
    heads: usize,
}

#[derive(Debug)]
struct Mlp {
    c_fc: Child<Projection>,
    c_proj: Child<Projection>,
    drop: Dropout,
}

impl Gpt2 {
    /// Names of the layers that [`LoraOptions`] supports. `c_proj` is the last layer of both attention and MLP.
    pub const LORA_TARGETS: &'static [&'static str] = &["c_attn", "c_proj", "c_fc"];

    /// Creates a model of these sizes, initialized as in Hugging Face's model. With `lora`, everything is frozen except
    /// the LoRA adapters.
    ///
    /// # Errors
    /// Fails if the number of heads does not divide the hidden size, if the settings of `lora` are invalid, or if
    /// memory cannot be allocated.
    pub fn new(init: &mut Init, size: Gpt2Size, lora: Option<&LoraOptions>) -> Result<Self> {
        check_heads("gpt2", [size.width, size.heads], false)?;
        adapted(init, lora, Self::LORA_TARGETS, |init| Self::filled(init, size, lora))
    }

    fn filled(init: &mut Init, size: Gpt2Size, lora: Option<&LoraOptions>) -> Result<Self> {
        let filling = Filling::Normal { deviation: DEVIATION };
        let table = |rows| move |init: &mut Init| Embedding::filled(init, [rows, size.width], filling);
        let blocks = |init: &mut Init| Sequence::new(size.layers, init, |_, init| Block::new(init, size, lora));
        Ok(Self {
            wte: Child::new("wte", init, table(size.vocabulary))?,
            wpe: Child::new("wpe", init, table(size.positions))?,
            drop: Dropout::new(init, size.dropout),
            h: Child::new("h", init, blocks)?,
            ln_f: Child::new("ln_f", init, |init| LayerNorm::new(init, size.width, EPSILON))?,
            size,
        })
    }

    fn embed(&self, tokens: &Tensor) -> Result<Tensor> {
        check_tokens("gpt2", tokens)?;
        let length = tokens.shape()[1];
        if length > self.size.positions {
            let what = format!("sequence of {length} tokens, but the model has {} positions", self.size.positions);
            return Err(Error::Setting { op: "gpt2", what });
        }
        let embedded = self.wte.forward(tokens)?;
        let positions = self.size.positions;
        self.wpe.run([embedded], move |wpe, [embedded]| {
            // The whole table is used without a view, because a view's gradient would be a second tensor of its size.
            let positions =
                if length == positions { wpe.weight().clone() } else { wpe.weight().narrow(0, 0, length)? };
            embedded.into_add(&positions)
        })
    }
}

impl LanguageModel for Gpt2 {
    fn hidden(&self, tokens: &Tensor) -> Result<Tensor> {
        let embedded = self.drop.forward(&self.embed(tokens)?)?;
        self.ln_f.forward(&through(&self.h, embedded)?)
    }

    fn head_weight(&self) -> &Tensor {
        self.wte.weight()
    }
}

impl Module for Gpt2 {
    fn forward(&self, tokens: &Tensor) -> Result<Tensor> {
        self.hidden(tokens)?.linear(self.head_weight(), None)
    }

    crate::visit_fields!(wte, wpe, drop, h, ln_f);
}

/// Returns a linear layer's initial values. `layers` is the number of blocks if the layer's output is added to the
/// residual stream.
fn filling(layers: Option<usize>) -> LinearFilling {
    let halves = layers.map_or(1.0, |layers| 2.0 * layers as f64);
    let weight = Filling::Normal { deviation: DEVIATION / halves.sqrt() };
    LinearFilling { weight, bias: Some(Filling::Zeros) }
}

impl Block {
    fn new(init: &mut Init, size: Gpt2Size, lora: Option<&LoraOptions>) -> Result<Self> {
        let norm = |init: &mut Init| LayerNorm::new(init, size.width, EPSILON);
        Ok(Self {
            ln_1: Child::new("ln_1", init, norm)?,
            attn: Child::new("attn", init, |init| Attention::new(init, size, lora))?,
            ln_2: Child::new("ln_2", init, norm)?,
            mlp: Child::new("mlp", init, |init| Mlp::new(init, size, lora))?,
        })
    }
}

impl Module for Block {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let normed = self.ln_1.forward(input)?;
        let attended = self.attn.forward_into(normed)?.into_add(input)?;
        let normed = self.ln_2.forward(&attended)?;
        self.mlp.forward_into(normed)?.into_add(&attended)
    }

    crate::visit_fields!(ln_1, attn, ln_2, mlp);
}

impl Attention {
    fn new(init: &mut Init, size: Gpt2Size, lora: Option<&LoraOptions>) -> Result<Self> {
        let Gpt2Size { layers, width, heads, dropout, .. } = size;
        Ok(Self {
            c_attn: Projection::named("c_attn", init, [width, 3 * width], filling(None), lora)?,
            c_proj: Projection::named("c_proj", init, [width, width], filling(Some(layers)), lora)?,
            drop: Dropout::new(init, dropout),
            heads,
        })
    }
}

impl Module for Attention {
    fn forward_into(&self, input: Tensor) -> Result<Tensor> {
        let packed = self.c_attn.forward(&input)?;
        drop(input);
        let mixed = packed.attention_packed(self.heads, self.heads, AttentionOptions::causal())?;
        drop(packed);
        self.drop.forward(&self.c_proj.forward(&mixed)?)
    }

    crate::visit_fields!(c_attn, c_proj, drop);
}

impl Mlp {
    fn new(init: &mut Init, size: Gpt2Size, lora: Option<&LoraOptions>) -> Result<Self> {
        let Gpt2Size { layers, width, dropout, .. } = size;
        Ok(Self {
            c_fc: Projection::named("c_fc", init, [width, 4 * width], filling(None), lora)?,
            c_proj: Projection::named("c_proj", init, [4 * width, width], filling(Some(layers)), lora)?,
            drop: Dropout::new(init, dropout),
        })
    }
}

impl Module for Mlp {
    fn forward_into(&self, input: Tensor) -> Result<Tensor> {
        let spread = self.c_fc.forward(&input)?;
        drop(input);
        let bent = spread.gelu()?;
        drop(spread);
        self.drop.forward(&self.c_proj.forward(&bent)?)
    }

    crate::visit_fields!(c_fc, c_proj, drop);
}
