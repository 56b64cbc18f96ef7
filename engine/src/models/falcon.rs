//! Falcon, a decoder with multi-query attention, whose attention and MLP run in parallel (Almazrouei et al., 2023).

use super::language::{LanguageModel, adapted, check_groups, check_heads, check_tokens, through, without_bias};
use crate::nn::{Child, Embedding, Filling, Init, LayerNorm, LoraOptions, Module, Projection, Sequence};
use crate::ops::{AttentionOptions, RotaryOptions};
use crate::{Result, Tensor};

/// Sizes of a Falcon model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FalconSize {
    /// Vocabulary size.
    pub vocabulary: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Hidden size.
    pub width: usize,
    /// Number of query heads, which must divide the hidden size into heads of an even width.
    pub heads: usize,
    /// Number of key and value heads, which must divide the number of query heads.
    pub key_heads: usize,
    /// Hidden size of the MLP.
    pub hidden: usize,
}

impl FalconSize {
    /// Falcon-7B, with 6,921,720,704 parameters.
    pub const FALCON_7B: Self =
        Self { vocabulary: 65024, layers: 32, width: 4544, heads: 71, key_heads: 1, hidden: 4 * 4544 };

    /// A small model that trains quickly on a CPU.
    pub const SMALL: Self = Self { vocabulary: 96, layers: 3, width: 48, heads: 3, key_heads: 1, hidden: 192 };
}

const EPSILON: f64 = 1e-5;
const DEVIATION: f64 = 0.02;

/// Falcon with the parameters of Hugging Face's `FalconForCausalLM`. The head shares the weight of the token embedding.
#[derive(Debug)]
pub struct Falcon {
    word_embeddings: Child<Embedding>,
    h: Child<Sequence<Block>>,
    ln_f: Child<LayerNorm>,
}

/// `x + attention(norm(x)) + mlp(norm(x))`.
#[derive(Debug)]
struct Block {
    input_layernorm: Child<LayerNorm>,
    self_attention: Child<Attention>,
    mlp: Child<Mlp>,
}

/// Attention whose queries, keys and values are computed by one product and stay in one buffer. Queries and keys are
/// rotated in place.
#[derive(Debug)]
struct Attention {
    query_key_value: Child<Projection>,
    dense: Child<Projection>,
    heads: usize,
    key_heads: usize,
}

#[derive(Debug)]
struct Mlp {
    dense_h_to_4h: Child<Projection>,
    dense_4h_to_h: Child<Projection>,
}

impl Falcon {
    /// Names of the layers that [`LoraOptions`] supports.
    pub const LORA_TARGETS: &'static [&'static str] = &["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"];

    /// Creates a model of these sizes, with weight matrices from a normal distribution with standard deviation 0.02.
    /// With `lora`, everything is frozen except the LoRA adapters.
    ///
    /// # Errors
    /// Fails if the numbers of heads do not match the hidden size, if the settings of `lora` are invalid, or if memory
    /// cannot be allocated.
    pub fn new(init: &mut Init, size: FalconSize, lora: Option<&LoraOptions>) -> Result<Self> {
        check_heads("falcon", [size.width, size.heads], true)?;
        check_groups("falcon", [size.heads, size.key_heads])?;
        adapted(init, lora, Self::LORA_TARGETS, |init| Self::filled(init, size, lora))
    }

    fn filled(init: &mut Init, size: FalconSize, lora: Option<&LoraOptions>) -> Result<Self> {
        let FalconSize { vocabulary, layers, width, .. } = size;
        let filling = Filling::Normal { deviation: DEVIATION };
        let table = |init: &mut Init| Embedding::filled(init, [vocabulary, width], filling);
        let blocks = |init: &mut Init| Sequence::new(layers, init, |_, init| Block::new(init, size, lora));
        Ok(Self {
            word_embeddings: Child::new("word_embeddings", init, table)?,
            h: Child::new("h", init, blocks)?,
            ln_f: Child::new("ln_f", init, |init| LayerNorm::new(init, width, EPSILON))?,
        })
    }
}

impl LanguageModel for Falcon {
    fn hidden(&self, tokens: &Tensor) -> Result<Tensor> {
        check_tokens("falcon", tokens)?;
        let embedded = self.word_embeddings.forward(tokens)?;
        self.ln_f.forward(&through(&self.h, embedded)?)
    }

    fn head_weight(&self) -> &Tensor {
        self.word_embeddings.weight()
    }
}

impl Module for Falcon {
    fn forward(&self, tokens: &Tensor) -> Result<Tensor> {
        self.hidden(tokens)?.linear(self.head_weight(), None)
    }

    crate::visit_fields!(word_embeddings, h, ln_f);
}

impl Block {
    fn new(init: &mut Init, size: FalconSize, lora: Option<&LoraOptions>) -> Result<Self> {
        let norm = |init: &mut Init| LayerNorm::new(init, size.width, EPSILON);
        Ok(Self {
            input_layernorm: Child::new("input_layernorm", init, norm)?,
            self_attention: Child::new("self_attention", init, |init| Attention::new(init, size, lora))?,
            mlp: Child::new("mlp", init, |init| Mlp::new(init, size, lora))?,
        })
    }
}

impl Module for Block {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let normed = self.input_layernorm.forward(input)?;
        let attended = self.self_attention.forward(&normed)?;
        let sum = self.mlp.forward_into(normed)?.into_add(&attended)?;
        drop(attended);
        sum.into_add(input)
    }

    crate::visit_fields!(input_layernorm, self_attention, mlp);
}

impl Attention {
    fn new(init: &mut Init, size: FalconSize, lora: Option<&LoraOptions>) -> Result<Self> {
        let FalconSize { width, heads, key_heads, .. } = size;
        let filling = without_bias(DEVIATION);
        let packed = [width, width / heads * (heads + 2 * key_heads)];
        Ok(Self {
            query_key_value: Projection::named("query_key_value", init, packed, filling, lora)?,
            dense: Projection::named("dense", init, [width, width], filling, lora)?,
            heads,
            key_heads,
        })
    }
}

impl Module for Attention {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let packed = self.query_key_value.forward(input)?;
        let [turning, slots] = [self.heads + self.key_heads, self.heads + 2 * self.key_heads];
        let rotated = packed.into_rotary_packed(turning, slots, RotaryOptions::default())?;
        let mixed = rotated.attention_packed(self.heads, self.key_heads, AttentionOptions::causal())?;
        drop(rotated);
        self.dense.forward(&mixed)
    }

    crate::visit_fields!(query_key_value, dense);
}

impl Mlp {
    fn new(init: &mut Init, size: FalconSize, lora: Option<&LoraOptions>) -> Result<Self> {
        let FalconSize { width, hidden, .. } = size;
        let filling = without_bias(DEVIATION);
        Ok(Self {
            dense_h_to_4h: Projection::named("dense_h_to_4h", init, [width, hidden], filling, lora)?,
            dense_4h_to_h: Projection::named("dense_4h_to_h", init, [hidden, width], filling, lora)?,
        })
    }
}

impl Module for Mlp {
    fn forward_into(&self, input: Tensor) -> Result<Tensor> {
        let spread = self.dense_h_to_4h.forward(&input)?;
        drop(input);
        let bent = spread.gelu()?;
        drop(spread);
        self.dense_4h_to_h.forward(&bent)
    }

    crate::visit_fields!(dense_h_to_4h, dense_4h_to_h);
}
