//! Llama, a decoder with grouped-query attention, RMS norms and gated MLPs (Touvron et al., 2023; Grattafiori et al.,
//! 2024).

use super::language::{LanguageModel, adapted, check_groups, check_heads, check_tokens, through, without_bias};
use crate::nn::{Child, Embedding, Filling, Init, Linear, LoraOptions, Module, Projection, RmsNorm, Sequence};
use crate::ops::{AttentionOptions, RotaryOptions};
use crate::{Result, Tensor};

/// Sizes of a Llama model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LlamaSize {
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
    /// Base of the rotary embeddings.
    pub rotary_base: f64,
}

impl LlamaSize {
    /// Llama-3-8B, with 8,030,261,248 parameters.
    pub const LLAMA_3_8B: Self = Self {
        vocabulary: 128_256,
        layers: 32,
        width: 4096,
        heads: 32,
        key_heads: 8,
        hidden: 14336,
        rotary_base: 500_000.0,
    };

    /// A small model that trains quickly on a CPU.
    pub const SMALL: Self =
        Self { vocabulary: 96, layers: 3, width: 48, heads: 4, key_heads: 2, hidden: 128, rotary_base: 500_000.0 };
}

const EPSILON: f64 = 1e-5;
const DEVIATION: f64 = 0.02;

/// Llama with the parameters of Hugging Face's `LlamaForCausalLM`. The head has a separate weight.
#[derive(Debug)]
pub struct Llama {
    embed_tokens: Child<Embedding>,
    layers: Child<Sequence<Block>>,
    norm: Child<RmsNorm>,
    lm_head: Child<Linear>,
}

#[derive(Debug)]
struct Block {
    input_layernorm: Child<RmsNorm>,
    self_attn: Child<Attention>,
    post_attention_layernorm: Child<RmsNorm>,
    mlp: Child<Mlp>,
}

#[derive(Debug)]
struct Attention {
    q_proj: Child<Projection>,
    k_proj: Child<Projection>,
    v_proj: Child<Projection>,
    o_proj: Child<Projection>,
    head_width: usize,
    rotary: RotaryOptions,
}

#[derive(Debug)]
struct Mlp {
    gate_proj: Child<Projection>,
    up_proj: Child<Projection>,
    down_proj: Child<Projection>,
}

impl Llama {
    /// Names of the layers that [`LoraOptions`] supports.
    pub const LORA_TARGETS: &'static [&'static str] =
        &["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];

    /// Creates a model of these sizes, with weight matrices from a normal distribution with standard deviation 0.02.
    /// With `lora`, everything is frozen except the LoRA adapters.
    ///
    /// # Errors
    /// Fails if the numbers of heads do not match the hidden size, if the settings of `lora` are invalid, or if memory
    /// cannot be allocated.
    pub fn new(init: &mut Init, size: LlamaSize, lora: Option<&LoraOptions>) -> Result<Self> {
        check_heads("llama", [size.width, size.heads], true)?;
        check_groups("llama", [size.heads, size.key_heads])?;
        adapted(init, lora, Self::LORA_TARGETS, |init| Self::filled(init, size, lora))
    }

    fn filled(init: &mut Init, size: LlamaSize, lora: Option<&LoraOptions>) -> Result<Self> {
        let LlamaSize { vocabulary, layers, width, .. } = size;
        let filling = Filling::Normal { deviation: DEVIATION };
        let table = |init: &mut Init| Embedding::filled(init, [vocabulary, width], filling);
        let blocks = |init: &mut Init| Sequence::new(layers, init, |_, init| Block::new(init, size, lora));
        let head = |init: &mut Init| Linear::filled(init, [width, vocabulary], without_bias(DEVIATION));
        Ok(Self {
            embed_tokens: Child::new("embed_tokens", init, table)?,
            layers: Child::new("layers", init, blocks)?,
            norm: Child::new("norm", init, |init| RmsNorm::new(init, width, EPSILON))?,
            lm_head: Child::new("lm_head", init, head)?,
        })
    }
}

impl LanguageModel for Llama {
    fn hidden(&self, tokens: &Tensor) -> Result<Tensor> {
        check_tokens("llama", tokens)?;
        let embedded = self.embed_tokens.forward(tokens)?;
        self.norm.forward(&through(&self.layers, embedded)?)
    }

    fn head_weight(&self) -> &Tensor {
        self.lm_head.weight()
    }
}

impl Module for Llama {
    fn forward(&self, tokens: &Tensor) -> Result<Tensor> {
        self.lm_head.forward(&self.hidden(tokens)?)
    }

    crate::visit_fields!(embed_tokens, layers, norm, lm_head);
}

impl Block {
    fn new(init: &mut Init, size: LlamaSize, lora: Option<&LoraOptions>) -> Result<Self> {
        let norm = |init: &mut Init| RmsNorm::new(init, size.width, EPSILON);
        Ok(Self {
            input_layernorm: Child::new("input_layernorm", init, norm)?,
            self_attn: Child::new("self_attn", init, |init| Attention::new(init, size, lora))?,
            post_attention_layernorm: Child::new("post_attention_layernorm", init, norm)?,
            mlp: Child::new("mlp", init, |init| Mlp::new(init, size, lora))?,
        })
    }
}

impl Module for Block {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let normed = self.input_layernorm.forward(input)?;
        let attended = self.self_attn.forward_into(normed)?.into_add(input)?;
        let normed = self.post_attention_layernorm.forward(&attended)?;
        self.mlp.forward_into(normed)?.into_add(&attended)
    }

    crate::visit_fields!(input_layernorm, self_attn, post_attention_layernorm, mlp);
}

impl Attention {
    fn new(init: &mut Init, size: LlamaSize, lora: Option<&LoraOptions>) -> Result<Self> {
        let LlamaSize { width, heads, key_heads, rotary_base, .. } = size;
        let filling = without_bias(DEVIATION);
        let keys = width / heads * key_heads;
        Ok(Self {
            q_proj: Projection::named("q_proj", init, [width, width], filling, lora)?,
            k_proj: Projection::named("k_proj", init, [width, keys], filling, lora)?,
            v_proj: Projection::named("v_proj", init, [width, keys], filling, lora)?,
            o_proj: Projection::named("o_proj", init, [width, width], filling, lora)?,
            head_width: width / heads,
            rotary: RotaryOptions { base: rotary_base, ..RotaryOptions::default() },
        })
    }

    /// Applies `layer` to the input and reshapes the output to `[batch, length, heads, width]`. The memory of the
    /// output is not shared.
    fn by_head(&self, layer: &Child<Projection>, input: &Tensor) -> Result<Tensor> {
        let projected = layer.forward(input)?;
        let [batch, length, all] = [0, 1, 2].map(|axis| projected.shape()[axis]);
        projected.reshape([batch, length, all / self.head_width, self.head_width])
    }
}

impl Module for Attention {
    fn forward_into(&self, input: Tensor) -> Result<Tensor> {
        let query = self.by_head(&self.q_proj, &input)?.into_rotary(self.rotary)?.transpose(1, 2)?;
        let key = self.by_head(&self.k_proj, &input)?.into_rotary(self.rotary)?.transpose(1, 2)?;
        let value = self.by_head(&self.v_proj, &input)?.transpose(1, 2)?;
        let shape = *input.shape();
        drop(input);
        let mixed = Tensor::attention(&query, &key, &value, AttentionOptions::causal())?.transpose(1, 2)?;
        drop((query, key, value));
        self.o_proj.forward(&mixed.reshape(shape)?)
    }

    crate::visit_fields!(q_proj, k_proj, v_proj, o_proj);
}

impl Mlp {
    fn new(init: &mut Init, size: LlamaSize, lora: Option<&LoraOptions>) -> Result<Self> {
        let LlamaSize { width, hidden, .. } = size;
        let filling = without_bias(DEVIATION);
        Ok(Self {
            gate_proj: Projection::named("gate_proj", init, [width, hidden], filling, lora)?,
            up_proj: Projection::named("up_proj", init, [width, hidden], filling, lora)?,
            down_proj: Projection::named("down_proj", init, [hidden, width], filling, lora)?,
        })
    }
}

impl Module for Mlp {
    fn forward_into(&self, input: Tensor) -> Result<Tensor> {
        let (gate, up) = (self.gate_proj.forward(&input)?, self.up_proj.forward(&input)?);
        drop(input);
        let gated = Tensor::swiglu(&gate, &up)?;
        drop((gate, up));
        self.down_proj.forward(&gated)
    }

    crate::visit_fields!(gate_proj, up_proj, down_proj);
}
