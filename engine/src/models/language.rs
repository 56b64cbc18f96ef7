//! Code shared by models that predict the next token.

use crate::error::{Error, Result};
use crate::nn::{Child, Filling, LinearFilling, Module, Sequence};
use crate::tensor::Tensor;

/// A model from tokens `[batch, length]` (I64) to logits `[batch, length, vocabulary]`, the last step of which is one
/// product: so that a loss may take that step itself, and never hold all logits.
pub trait LanguageModel: Module {
    /// What the head is applied to: `[batch, length, width]`.
    fn hidden(&self, tokens: &Tensor) -> Result<Tensor>;

    /// The head, `[vocabulary, width]`.
    fn head_weight(&self) -> &Tensor;
}

/// The bell curve for a linear layer's weight, and no bias.
pub(super) fn without_bias(deviation: f64) -> LinearFilling {
    LinearFilling { weight: Filling::Normal { deviation }, bias: None }
}

/// What blocks one after another make of `embedded`, which is consumed: nobody holds it while later blocks run.
pub(super) fn through<B: Module>(blocks: &Child<Sequence<B>>, embedded: Tensor) -> Result<Tensor> {
    blocks
        .run([embedded], |blocks, [embedded]| blocks.iter().try_fold(embedded, |tokens, block| block.forward(&tokens)))
}

/// Fails unless `tokens` is `[batch, length]`.
pub(super) fn check_tokens(op: &'static str, tokens: &Tensor) -> Result<()> {
    if tokens.rank() == 2 {
        return Ok(());
    }
    Err(Error::shape(op, tokens.shape(), "expected tokens of shape [batch, length]"))
}

/// Fails unless `heads` share `width` evenly; for rotary embeddings, which turn pairs, in even parts.
pub(super) fn check_heads(op: &'static str, [width, heads]: [usize; 2], rotated: bool) -> Result<()> {
    let parts = if rotated { 2 } else { 1 };
    if heads > 0 && width.is_multiple_of(heads.saturating_mul(parts)) {
        return Ok(());
    }
    let even = if rotated { " in parts of an even width" } else { "" };
    let what = format!("{heads} heads cannot share a width of {width} evenly{even}; give another number of heads");
    Err(Error::Setting { op, what })
}

/// Fails unless `heads` can share `key_heads` in groups.
pub(super) fn check_groups(op: &'static str, [heads, key_heads]: [usize; 2]) -> Result<()> {
    if key_heads > 0 && heads.is_multiple_of(key_heads) {
        return Ok(());
    }
    let what = format!("{heads} heads cannot share {key_heads} key heads evenly; give a divisor");
    Err(Error::Setting { op, what })
}
