//! Attention, softmax(query · keyᵀ) · value, without a matrix of scores in memory.

use highwater_recorder::{Category, scope};

use crate::autograd::{Gradient, InputGradients, Operation, Saved};
use crate::backend::kind::Mask;
use crate::backend::{self, AttentionSize};
use crate::{Error, Result, Shape, Tensor};

/// The options of attention.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AttentionOptions {
    /// The keys that each query attends to.
    pub mask: Mask,
    /// The factor of the scores, or 1 / √width if `None`.
    pub scale: Option<f64>,
}

impl AttentionOptions {
    /// Returns options for causal attention, in which each query attends to the keys at its own and earlier positions.
    pub fn causal() -> Self {
        Self { mask: Mask::Causal, scale: None }
    }

    fn size(&self, width: usize) -> AttentionSize {
        AttentionSize { scale: self.scale.unwrap_or(1.0 / (width as f64).sqrt()), mask: self.mask }
    }
}

impl Tensor {
    /// Returns the attention of `query` `[batch, heads, length, width]` to `key` and `value` `[batch, key heads, keys,
    /// width]`. If there are fewer key heads than heads, groups of heads share them (Ainslie et al.: "GQA", 2023). The
    /// result has the query's shape and is stored as `[batch, length, heads, width]`. Scores are computed in tiles, and
    /// the whole matrix of scores is never stored (Dao et al.: "FlashAttention", 2022). Saves the inputs, the result,
    /// and one number per row.
    /// # Errors
    /// Fails if the shapes or data types do not match, if the backend does not support the width, or if memory runs
    /// out.
    pub fn attention(query: &Self, key: &Self, value: &Self, options: AttentionOptions) -> Result<Self> {
        let operation = Operation::begin("attention", &[query, key, value]);
        check(query, key, value)?;
        let inputs = [query.with_rows()?, key.with_rows()?, value.with_rows()?];
        let size = options.size(query.shape()[3]);
        let (out, log_sums) = forward(&inputs, size)?;
        let result = out.detach();
        Ok(operation.record(out, &[query, key, value], |_| Attention {
            inputs: inputs.each_ref().map(Saved::new),
            result: Saved::new(&result),
            log_sums: Saved::new(&log_sums),
            size,
        }))
    }

    /// Returns the attention within one tensor `[batch, length, (heads + 2 · key heads) · width]` that contains query,
    /// key and value one after another, as computed by one linear layer. The result is
    /// `[batch, length, heads · width]`. The three gradients are written into one buffer, whereas separate views would
    /// need three.
    ///
    /// # Errors
    /// See [`Self::attention`].
    pub fn attention_packed(&self, heads: usize, key_heads: usize, options: AttentionOptions) -> Result<Self> {
        let op = "attention";
        let operation = Operation::begin(op, &[self]);
        let slots = heads + 2 * key_heads;
        let fits = self.rank() == 3 && slots > 0 && self.shape()[2].is_multiple_of(slots);
        if !fits {
            let need = "expected [batch, length, (heads + 2 · key heads) · width]";
            return Err(Error::shape(op, self.shape(), need));
        }
        let packed = self.with_rows()?;
        let inputs = unpack(&packed, [heads, key_heads])?;
        check(&inputs[0], &inputs[1], &inputs[2])?;
        let size = options.size(inputs[0].shape()[3]);
        let (out, log_sums) = forward(&inputs, size)?;
        drop(inputs);
        let shape = Shape::from([self.shape()[0], self.shape()[1], self.shape()[2] / slots * heads]);
        let result = out.detach();
        let joined = out.with_layout(out.layout().transpose(1, 2)).reshaped(&shape)?;
        drop(out);
        Ok(operation.record(joined, &[self], |_| Packed {
            packed: Saved::new(&packed),
            heads: [heads, key_heads],
            result: Saved::new(&result),
            log_sums: Saved::new(&log_sums),
            size,
        }))
    }

    /// Returns this tensor without history, or a copy if the elements of a row are not contiguous.
    fn with_rows(&self) -> Result<Self> {
        let has_rows = self.layout().strides().last() == Some(&1) || self.shape().last() == Some(&1);
        if has_rows { Ok(self.detach()) } else { self.copied() }
    }
}

/// Returns views of query, key and value `[batch, heads, length, width]` in one tensor.
fn unpack(packed: &Tensor, [heads, key_heads]: [usize; 2]) -> Result<[Tensor; 3]> {
    let (batch, length) = (packed.shape()[0], packed.shape()[1]);
    let slots = heads + 2 * key_heads;
    let by_heads = Shape::from([batch, length, slots, packed.shape()[2] / slots]);
    let layout = packed.layout().reshape(&by_heads).expect("the last axis is not contiguous");
    let transposed = layout.transpose(1, 2);
    let part =
        |start, count| -> Result<Tensor> { Ok(packed.with_layout(transposed.narrow("attention", 1, start, count)?)) };
    Ok([part(0, heads)?, part(heads, key_heads)?, part(heads + key_heads, key_heads)?])
}

fn check(query: &Tensor, key: &Tensor, value: &Tensor) -> Result<()> {
    let op = "attention";
    query.check_operand(op, key)?;
    query.check_operand(op, value)?;
    query.check_float(op)?;
    if query.rank() != 4 || key.rank() != 4 {
        return Err(Error::shapes(op, query.shape(), key.shape(), "expected [batch, heads, length, width]"));
    }
    if key.shape() != value.shape() {
        return Err(Error::shapes(op, key.shape(), value.shape(), "key and value must have the same shape"));
    }
    let (q, k) = (query.shape(), key.shape());
    let fits = q[0] == k[0] && q[3] == k[3] && k[1] > 0 && q[1].is_multiple_of(k[1]);
    let need = "expected equal batch and width, and a number of query heads that is a multiple of the key heads";
    if fits { Ok(()) } else { Err(Error::shapes(op, q, k, need)) }
}

/// Allocates `[batch, heads, length, width]`, stored as `[batch, length, heads, width]`.
fn by_place(like: &Tensor, shape: &Shape) -> Result<Tensor> {
    let stored = Tensor::empty([shape[0], shape[2], shape[1], shape[3]], like.dtype(), like.device())?;
    Ok(stored.with_layout(stored.layout().transpose(1, 2)))
}

/// Allocates one number per row, `[batch, heads, length]`, stored as `[batch, length, heads]`.
fn row_numbers(query: &Tensor) -> Result<Tensor> {
    let shape = query.shape();
    let stored = Tensor::empty([shape[0], shape[2], shape[1]], query.dtype().statistics(), query.device())?;
    Ok(stored.with_layout(stored.layout().transpose(1, 2)))
}

fn forward([query, key, value]: &[Tensor; 3], size: AttentionSize) -> Result<(Tensor, Tensor)> {
    let out = by_place(query, query.shape())?;
    let log_sums = row_numbers(query)?;
    backend::attention(out.view(), log_sums.view(), [query.view(), key.view(), value.view()], size)?;
    Ok((out, log_sums))
}

/// Returns one number per query, `[batch, heads, length]`, which is the sum over its width of the result's gradient
/// times the result.
fn delta(grad: &Tensor, result: &Tensor) -> Result<Tensor> {
    let _category = scope::category(Category::Workspace);
    let delta = row_numbers(result)?;
    backend::attention_delta(delta.view(), grad.view(), result.view())?;
    Ok(delta)
}

struct Attention {
    inputs: [Saved; 3],
    result: Saved,
    log_sums: Saved,
    size: AttentionSize,
}

impl Gradient for Attention {
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        let op = "attention";
        let Self { inputs: [query, key, value], result, log_sums, size } = *self;
        let saved = [query.take(op)?, key.take(op)?, value.take(op)?];
        let grad = {
            let in_rows = grad.with_rows()?;
            drop(grad);
            in_rows
        };
        let result = result.take(op)?;
        let delta = delta(&grad, &result)?;
        // The result is no longer needed, and has the layout of the query's gradient.
        let reusable = result.is_free_to_write() && result.fills_storage() && result.dtype() == saved[0].dtype();
        let of_query = if reusable {
            result.storage().changed();
            result
        } else {
            drop(result);
            by_place(&grad, saved[0].shape())?
        };
        let grads = [of_query, by_place(&grad, saved[1].shape())?, by_place(&grad, saved[2].shape())?];
        let log_sums = log_sums.take(op)?;
        let known = [grad.view(), log_sums.view(), delta.view()];
        let [of_query, of_key, of_value] = grads.each_ref().map(Tensor::view);
        backend::attention_backward(of_query, [of_key, of_value], known, saved.each_ref().map(Tensor::view), size)?;
        drop((saved, grad, log_sums, delta));
        for (input, grad) in grads.into_iter().enumerate() {
            inputs.give(input, grad)?;
        }
        Ok(())
    }
}

struct Packed {
    packed: Saved,
    heads: [usize; 2],
    result: Saved,
    log_sums: Saved,
    size: AttentionSize,
}

impl Gradient for Packed {
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        let op = "attention";
        let packed = self.packed.take(op)?;
        let saved = unpack(&packed, self.heads)?;
        let grad = grad.into_order()?;
        let by_heads = Shape::from([grad.shape()[0], grad.shape()[1], self.heads[0], saved[0].shape()[3]]);
        let transposed = {
            let by_heads = grad.reshaped(&by_heads)?;
            by_heads.with_layout(by_heads.layout().transpose(1, 2))
        };
        drop(grad);
        // The result is freed before the gradients are allocated.
        let delta = delta(&transposed, &self.result.take(op)?)?;
        let log_sums = self.log_sums.take(op)?;
        let out = inputs.allocate(0, &packed)?;
        let grads = unpack(&out, self.heads)?;
        let known = [transposed.view(), log_sums.view(), delta.view()];
        let [of_query, of_key, of_value] = grads.each_ref().map(Tensor::view);
        let inputs_seen = saved.each_ref().map(Tensor::view);
        backend::attention_backward(of_query, [of_key, of_value], known, inputs_seen, self.size)?;
        drop((grads, saved, packed, transposed, log_sums, delta));
        inputs.give(0, out)
    }
}
