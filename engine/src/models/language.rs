//! The trait of language models, and the code that they share.

use crate::nn::{Child, Filling, Init, LinearFilling, LoraOptions, Module, Sequence};
use crate::{Error, Result, Tensor};

/// A model that maps tokens `[batch, length]` (I64) to logits `[batch, length, vocabulary]`, with a matrix product as
/// its last operation. A loss function may therefore compute the logits itself, without ever materializing all of them.
pub trait LanguageModel: Module {
    /// Computes the input of the head, `[batch, length, width]`.
    ///
    /// # Errors
    /// Fails if `tokens` does not have the expected shape or dtype, or if memory cannot be allocated.
    fn hidden(&self, tokens: &Tensor) -> Result<Tensor>;

    /// Returns the weight of the head, `[vocabulary, width]`.
    fn head_weight(&self) -> &Tensor;
}

pub(super) fn without_bias(deviation: f64) -> LinearFilling {
    LinearFilling { weight: Filling::Normal { deviation }, bias: None }
}

/// Creates a model with `fill`. If `lora` is given, freezes everything except the adapters of its layers. The target
/// layers of `lora` must be among `targets`.
pub(super) fn adapted<M>(
    init: &mut Init,
    lora: Option<&LoraOptions>,
    targets: &[&str],
    fill: impl FnOnce(&mut Init) -> Result<M>,
) -> Result<M> {
    let Some(options) = lora else { return fill(init) };
    options.check(targets)?;
    init.frozen(fill)
}

/// Applies the blocks to `embedded` in order. Consumes `embedded`, so that it is not live while later blocks run.
pub(super) fn through<B: Module>(blocks: &Child<Sequence<B>>, embedded: Tensor) -> Result<Tensor> {
    blocks
        .run([embedded], |blocks, [embedded]| blocks.iter().try_fold(embedded, |tokens, block| block.forward(&tokens)))
}

pub(super) fn check_tokens(op: &'static str, tokens: &Tensor) -> Result<()> {
    if tokens.rank() == 2 {
        return Ok(());
    }
    Err(Error::shape(op, tokens.shape(), "expected tokens of shape [batch, length]"))
}

/// Rotary embeddings, which rotate pairs, also need an even width per head.
pub(super) fn check_heads(op: &'static str, [width, heads]: [usize; 2], rotated: bool) -> Result<()> {
    let parts = if rotated { 2 } else { 1 };
    if heads > 0 && width.is_multiple_of(heads.saturating_mul(parts)) {
        return Ok(());
    }
    let even = if rotated { " in parts of an even width" } else { "" };
    let what = format!("{heads} heads cannot evenly split a hidden size of {width}{even}; give another number of them");
    Err(Error::Setting { op, what })
}

pub(super) fn check_groups(op: &'static str, [heads, key_heads]: [usize; 2]) -> Result<()> {
    if key_heads > 0 && heads.is_multiple_of(key_heads) {
        return Ok(());
    }
    let what = format!("the number of heads, {heads}, must be a multiple of the number of key heads, {key_heads}");
    Err(Error::Setting { op, what })
}
