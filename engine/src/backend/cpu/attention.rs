//! Attention, softmax(query · keyᵀ) · value, computed head by head, so that only the scores of a tile of queries are in
//! memory.
//!
//! Forward saves the log-sum-exp of each row of scores, from which backward recomputes the scores, as in FlashAttention
//! (Dao, Fu, Ermon, Rudra, Ré: "FlashAttention", 2022). Threads compute the heads of one example of the batch into host
//! buffers, which are then stored.

use rayon::prelude::*;

use super::elementwise::fill;
use super::matmul::{Matrix, Product, multiply};
use super::number::{Float, Real, with_float};
use super::rows;
use crate::Result;
use crate::backend::kind::Mask;
use crate::backend::{AttentionSize, Nest, View};
use crate::storage::Reading;

const OP: &str = "attention";

/// Number of queries per tile.
const QUERIES: usize = 64;

/// A tensor `[batch, heads, positions, width]`. The width is 1 if the tensor has no such axis.
struct Heads<'a, T> {
    memory: Reading<'a, T>,
    view: View<'a>,
}

/// Returns the offset of each row of `[batch, head]`, and the row length. Rows are contiguous.
fn head_rows(view: View<'_>, [batch, head]: [usize; 2]) -> (impl Iterator<Item = usize>, usize) {
    let (shape, strides) = (view.layout.shape(), view.layout.strides());
    let width = shape.get(3).copied().unwrap_or(1);
    assert!(width <= 1 || strides[3] == 1, "the elements of a row are not contiguous");
    let (first, stride) = (view.layout.offset() + batch * strides[0] + head * strides[1], strides[2]);
    ((0..shape[2]).map(move |position| first + position * stride), width)
}

impl<'a, T: Float> Heads<'a, T> {
    fn read(view: View<'a>) -> Result<Self> {
        Ok(Self { memory: view.storage.read::<T>(OP)?, view })
    }

    fn head(&self, head: [usize; 2]) -> Vec<T::Real> {
        let (rows, width) = head_rows(self.view, head);
        rows.flat_map(|row| &self.memory[row..row + width]).map(|element| element.load()).collect()
    }
}

fn store<T: Float>(out: View<'_>, head: [usize; 2], elements: &[T::Real]) -> Result<()> {
    let mut memory = out.storage.write::<T>(OP)?;
    let (rows, width) = head_rows(out, head);
    for (row, elements) in rows.zip(elements.chunks(width.max(1))) {
        rows::store(&mut memory[row..row + width], elements, T::Real::ONE);
    }
    Ok(())
}

fn matrix<R>(elements: &[R], width: usize) -> Matrix<'_, R> {
    Matrix { numbers: elements, strides: [width, 1] }
}

impl AttentionSize {
    /// Returns the number of keys, out of `keys`, that the query at `position` attends to.
    fn seen(&self, position: usize, keys: usize) -> usize {
        match self.mask {
            Mask::None => keys,
            Mask::Causal => keys.min(position + 1),
        }
    }
}

pub(crate) fn attention(out: View<'_>, statistics: View<'_>, inputs: [View<'_>; 3], size: AttentionSize) -> Result<()> {
    if out.layout.elements() == 0 {
        return Ok(());
    }
    with_float!(OP, out.dtype, T => {
        let [query, key, value] = [Heads::<T>::read(inputs[0])?, Heads::read(inputs[1])?, Heads::read(inputs[2])?];
        let [batches, heads, _, width] = [0, 1, 2, 3].map(|axis| out.layout.shape()[axis]);
        let heads_a_key = heads / inputs[1].layout.shape()[1].max(1);
        for batch in 0..batches {
            let mix_head = |head| {
                let shared = [batch, head / heads_a_key];
                mix([&query.head([batch, head]), &key.head(shared), &value.head(shared)], width, size)
            };
            let mixed: Vec<_> = (0..heads).into_par_iter().map(mix_head).collect();
            for (head, (mixed, log_sums)) in mixed.iter().enumerate() {
                store::<T>(out, [batch, head], mixed)?;
                store::<<T as Float>::Real>(statistics, [batch, head], log_sums)?;
            }
        }
        Ok(())
    })
}

/// Computes a head's weighted sums of values, and the log-sum-exp of each row of scores.
fn mix<R: Product<Real = R> + Real>(
    [query, key, value]: [&[R]; 3],
    width: usize,
    size: AttentionSize,
) -> (Vec<R>, Vec<R>) {
    let keys = key.len() / width;
    let (mut mixed, mut log_sums) = (vec![R::ZERO; query.len()], Vec::new());
    for (tile, (query, mixed)) in query.chunks(QUERIES * width).zip(mixed.chunks_mut(QUERIES * width)).enumerate() {
        let (first, count) = (tile * QUERIES, query.len() / width);
        let seen = size.seen(first + count - 1, keys);
        let mut scores = vec![R::ZERO; count * seen];
        let factors = [R::of(size.scale), R::ZERO];
        multiply([count, width, seen], factors, matrix(query, width), matrix(key, width).transposed(), &mut scores);
        for row in 0..count {
            let (scores, hidden) = scores[row * seen..][..seen].split_at_mut(size.seen(first + row, keys));
            hidden.fill(R::ZERO);
            let largest = rows::largest(scores);
            rows::exponents(scores, largest);
            let sum = rows::sum(scores);
            rows::scale(scores, R::ONE / sum);
            log_sums.push(largest + sum.ln());
        }
        let factors = [R::ONE, R::ZERO];
        multiply([count, seen, width], factors, matrix(&scores, seen), matrix(value, width), mixed);
    }
    (mixed, log_sums)
}

pub(crate) fn attention_delta(out: View<'_>, grad: View<'_>, result: View<'_>) -> Result<()> {
    with_float!(OP, grad.dtype, T => {
        let (grads, results) = (grad.storage.read::<T>(OP)?, result.storage.read::<T>(OP)?);
        let mut deltas = out.storage.write::<<T as Float>::Real>(OP)?;
        let width = grad.layout.shape()[3];
        let [grad, result] = [grad, result].map(|view| view.layout.select(3, 0));
        Nest::new([out.layout, &grad, &result]).each(|[delta, grad, result]| {
            deltas[delta] = rows::dot(&grads[grad..grad + width], &results[result..result + width]);
        });
        Ok(())
    })
}

pub(crate) fn attention_backward(
    query_grad: View<'_>,
    other_grads: [View<'_>; 2],
    known: [View<'_>; 3],
    inputs: [View<'_>; 3],
    size: AttentionSize,
) -> Result<()> {
    let outs = [query_grad, other_grads[0], other_grads[1]];
    if inputs.iter().any(|input| input.layout.elements() == 0) {
        return outs.into_iter().try_for_each(|out| fill(out, 0.0));
    }
    with_float!(OP, query_grad.dtype, T => {
        type R = <T as Float>::Real;
        let (grad, log_sums, deltas) = (Heads::<T>::read(known[0])?, Heads::<R>::read(known[1])?, Heads::<R>::read(known[2])?);
        let [query, key, value] = [Heads::<T>::read(inputs[0])?, Heads::read(inputs[1])?, Heads::read(inputs[2])?];
        let [batches, key_heads, _, width] = [0, 1, 2, 3].map(|axis| inputs[1].layout.shape()[axis]);
        let heads_a_key = inputs[0].layout.shape()[1] / key_heads;
        for batch in 0..batches {
            // One task per key head, because all query heads that attend to it add to the same gradients.
            let backward = |key_head| {
                let (key, value) = (key.head([batch, key_head]), value.head([batch, key_head]));
                let mut grads = [vec![R::ZERO; key.len()], vec![R::ZERO; value.len()]];
                let heads = (key_head * heads_a_key..(key_head + 1) * heads_a_key).map(|head| {
                    let [query, grad] = [&query, &grad].map(|heads| heads.head([batch, head]));
                    let [log_sums, deltas] = [&log_sums, &deltas].map(|heads| heads.head([batch, head]));
                    add_head([&query, &key, &value, &grad], [&log_sums, &deltas], &mut grads, width, size)
                });
                (heads.collect::<Vec<_>>(), grads)
            };
            let grads: Vec<_> = (0..key_heads).into_par_iter().map(backward).collect();
            for (key_head, (query_grads, [key_grad, value_grad])) in grads.iter().enumerate() {
                for (head, query_grad) in (key_head * heads_a_key..).zip(query_grads) {
                    store::<T>(outs[0], [batch, head], query_grad)?;
                }
                store::<T>(outs[1], [batch, key_head], key_grad)?;
                store::<T>(outs[2], [batch, key_head], value_grad)?;
            }
        }
        Ok(())
    })
}

/// Returns the gradient of a head's query, and accumulates that head's contribution to the gradients of key and value.
fn add_head<R: Product<Real = R> + Real>(
    [query, key, value, grad]: [&[R]; 4],
    [log_sums, deltas]: [&[R]; 2],
    [key_grad, value_grad]: &mut [Vec<R>; 2],
    width: usize,
    size: AttentionSize,
) -> Vec<R> {
    let (keys, scale) = (key.len() / width, R::of(size.scale));
    let mut query_grad = vec![R::ZERO; query.len()];
    let tiles = query.chunks(QUERIES * width).zip(grad.chunks(QUERIES * width));
    for (tile, ((query, grad), query_grad)) in tiles.zip(query_grad.chunks_mut(QUERIES * width)).enumerate() {
        let (first, count) = (tile * QUERIES, query.len() / width);
        let seen = size.seen(first + count - 1, keys);
        let [mut weights, mut slopes] = [(); 2].map(|()| vec![R::ZERO; count * seen]);
        let ([query, grad], [key, value]) =
            ([query, grad].map(|of| matrix(of, width)), [key, value].map(|of| matrix(of, width)));
        multiply([count, width, seen], [scale, R::ZERO], query, key.transposed(), &mut weights);
        multiply([count, width, seen], [scale, R::ZERO], grad, value.transposed(), &mut slopes);
        for row in 0..count {
            let own = size.seen(first + row, keys);
            let (weights, hidden) = weights[row * seen..][..seen].split_at_mut(own);
            hidden.fill(R::ZERO);
            rows::exponents(weights, log_sums[first + row]);
            let (slopes, hidden) = slopes[row * seen..][..seen].split_at_mut(own);
            hidden.fill(R::ZERO);
            rows::slopes(slopes, weights, scale * deltas[first + row]);
        }
        let (weights, slopes) = (matrix(&weights, seen), matrix(&slopes, seen));
        multiply([seen, count, width], [R::ONE; 2], weights.transposed(), grad, value_grad);
        multiply([seen, count, width], [R::ONE; 2], slopes.transposed(), query, key_grad);
        multiply([count, seen, width], [R::ONE, R::ZERO], slopes, key, query_grad);
    }
    query_grad
}
