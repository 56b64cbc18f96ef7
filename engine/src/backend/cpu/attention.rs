//! Attention: softmax(query · keyᵀ) · value, one query at a time, so that scores never take more than a row.
//!
//! Backward computes each row of scores again from the saved logarithm of its sum, as flash attention does (Dao, Fu,
//! Ermon, Rudra, Ré: "FlashAttention", 2022): once for the query's gradient, by queries, and once each for key and value,
//! by keys. So no two threads write the same row.

use std::ops::Range;

use rayon::prelude::*;

use super::nest::Nest;
use super::number::{Float, Real, with_float};
use crate::backend::kind::Mask;
use crate::backend::{AttentionSize, View};
use crate::error::Result;
use crate::layout::Layout;
use crate::storage::Reading;

/// See [`crate::backend::attention`].
pub fn attention(out: View<'_>, statistics: View<'_>, inputs: [View<'_>; 3], size: AttentionSize) -> Result<()> {
    with_float!("attention", out.dtype, T => attention_as::<T>(out, statistics, inputs, size))
}

/// A tensor of `[batch, heads, length, width]` being read, by rows of its last axis.
struct Rows<'a, T> {
    memory: Reading<'a, T>,
    layout: &'a Layout,
}

impl<'a, T: Float> Rows<'a, T> {
    fn read(view: View<'a>) -> Result<Self> {
        Ok(Self { memory: view.storage.read("attention")?, layout: view.layout })
    }

    fn row(&self, batch: usize, head: usize, place: usize) -> &[T] {
        let strides = self.layout.strides();
        let first = self.layout.offset() + batch * strides[0] + head * strides[1] + place * strides[2];
        &self.memory[first..first + self.layout.shape()[3]]
    }
}

/// Numbers of `[batch, heads, length]` being read.
struct Numbers<'a, R> {
    memory: Reading<'a, R>,
    layout: &'a Layout,
}

impl<'a, R: Real> Numbers<'a, R> {
    fn read(view: View<'a>) -> Result<Self> {
        Ok(Self { memory: view.storage.read("attention")?, layout: view.layout })
    }

    fn get(&self, batch: usize, head: usize, place: usize) -> R {
        let strides = self.layout.strides();
        self.memory[self.layout.offset() + batch * strides[0] + head * strides[1] + place * strides[2]]
    }
}

/// The sum of products, in eight partial sums that a processor can keep side by side.
fn dot<T: Float>(left: &[T], right: &[T]) -> T::Real {
    let mut sums = [T::Real::ZERO; 8];
    let (left_eights, right_eights) = (left.chunks_exact(8), right.chunks_exact(8));
    let rest = left_eights.remainder().iter().zip(right_eights.remainder());
    let mut total = T::Real::ZERO;
    rest.for_each(|(l, r)| total += l.load() * r.load());
    for (left, right) in left_eights.zip(right_eights) {
        for ((sum, l), r) in sums.iter_mut().zip(left).zip(right) {
            *sum += l.load() * r.load();
        }
    }
    sums.into_iter().for_each(|sum| total += sum);
    total
}

fn add_scaled<T: Float>(sums: &mut [T::Real], factor: T::Real, row: &[T]) {
    for (sum, value) in sums.iter_mut().zip(row) {
        *sum += factor * value.load();
    }
}

fn store<T: Float>(row: &mut [T], sums: &[T::Real]) {
    for (place, &sum) in row.iter_mut().zip(sums) {
        *place = T::store(sum);
    }
}

impl AttentionSize {
    /// How many of `keys` keys the query at `place` sees.
    fn seen(&self, place: usize, keys: usize) -> usize {
        match self.mask {
            Mask::None => keys,
            Mask::Causal => keys.min(place + 1),
        }
    }

    /// Which of `queries` queries see the key at `place`.
    fn seers(&self, place: usize, queries: usize) -> Range<usize> {
        match self.mask {
            Mask::None => 0..queries,
            Mask::Causal => place.min(queries)..queries,
        }
    }
}

/// How far apart the groups of heads of one place are, in memory of the order batch, place, head, width.
fn group_distance(layout: &Layout) -> usize {
    let (shape, strides) = (layout.shape(), layout.strides());
    let group = (shape[1] - 1) * strides[1] + shape[3];
    let distance = match (shape[0], shape[2]) {
        (1, 1) => group,
        (_, 1) => strides[0],
        _ => strides[2],
    };
    let in_order =
        distance >= group && (shape[0] == 1 || strides[0] == shape[2] * distance) && (shape[3] == 1 || strides[3] == 1);
    assert!(in_order, "attention writes tensors in the order batch, place, head, width");
    distance
}

fn attention_as<T: Float>(
    out: View<'_>,
    statistics: View<'_>,
    inputs: [View<'_>; 3],
    size: AttentionSize,
) -> Result<()> {
    let [query, key, value] = [Rows::<T>::read(inputs[0])?, Rows::<T>::read(inputs[1])?, Rows::<T>::read(inputs[2])?];
    if out.layout.elements() == 0 {
        return Ok(());
    }
    let [_, heads, places, width] = [0, 1, 2, 3].map(|axis| out.layout.shape()[axis]);
    let keys = key.layout.shape()[2];
    let heads_a_key = heads / key.layout.shape()[1].max(1);
    let scale = T::Real::of(size.scale);
    let head_distance = out.layout.strides()[1];
    let mut log_sums = statistics.storage.write::<T::Real>("attention")?;
    let mut memory = out.storage.write::<T>("attention")?;
    let groups = memory[out.layout.offset()..out.layout.end()].par_chunks_mut(group_distance(out.layout));
    let log_sums = log_sums[statistics.layout.offset()..].par_chunks_mut(heads);
    groups.zip(log_sums).enumerate().for_each_init(
        || (Vec::new(), vec![T::Real::ZERO; width]),
        |(scores, sums), (index, (group, log_sums))| {
            let (batch, place) = (index / places, index % places);
            for head in 0..heads {
                let row = query.row(batch, head, place);
                scores.clear();
                scores.extend(
                    (0..size.seen(place, keys)).map(|at| scale * dot(row, key.row(batch, head / heads_a_key, at))),
                );
                let largest = scores.iter().fold(T::Real::LEAST, |largest, &score| largest.largest(score));
                let mut total = T::Real::ZERO;
                sums.fill(T::Real::ZERO);
                for (at, &score) in scores.iter().enumerate() {
                    let weight = (score - largest).exp();
                    total += weight;
                    add_scaled(sums, weight, value.row(batch, head / heads_a_key, at));
                }
                if !scores.is_empty() {
                    sums.iter_mut().for_each(|sum| *sum = *sum / total);
                }
                store(&mut group[head * head_distance..][..width], sums);
                log_sums[head] = largest + total.ln();
            }
        },
    );
    Ok(())
}

/// See [`crate::backend::attention_delta`].
pub fn attention_delta(out: View<'_>, grad: View<'_>, result: View<'_>) -> Result<()> {
    with_float!("attention", grad.dtype, T => {
        let (grads, results) = (Rows::<T>::read(grad)?, Rows::<T>::read(result)?);
        let mut memory = out.storage.write::<<T as Float>::Real>("attention")?;
        let shape = *out.layout.shape();
        Nest::new([out.layout]).each(|[at]| {
            let [batch, head, place] = index_of(out.layout, at, &shape);
            memory[at] = dot(grads.row(batch, head, place), results.row(batch, head, place));
        });
        Ok(())
    })
}

/// The index of the element at `at` in a layout of `[batch, heads, length]` whose memory is in the order batch, length,
/// head.
fn index_of(layout: &Layout, at: usize, shape: &[usize]) -> [usize; 3] {
    let place = at - layout.offset();
    [place / (shape[1] * shape[2]), place % shape[1], place / shape[1] % shape[2]]
}

/// See [`crate::backend::attention_backward`].
pub fn attention_backward(
    query_grad: View<'_>,
    other_grads: [View<'_>; 2],
    known: [View<'_>; 3],
    inputs: [View<'_>; 3],
    size: AttentionSize,
) -> Result<()> {
    with_float!("attention", query_grad.dtype, T => {
        let backward = Backward::<T> {
            grad: Rows::read(known[0])?,
            log_sums: Numbers::read(known[1])?,
            deltas: Numbers::read(known[2])?,
            query: Rows::read(inputs[0])?,
            key: Rows::read(inputs[1])?,
            value: Rows::read(inputs[2])?,
            size,
        };
        let queries = inputs[0].layout.shape()[2];
        let keys = inputs[1].layout.shape()[2];
        let heads_a_key = inputs[0].layout.shape()[1] / inputs[1].layout.shape()[1].max(1);
        write_rows::<T>(query_grad, |[batch, head, place], sums| {
            for at in 0..size.seen(place, keys) {
                let (_, slope) = backward.weight_and_slope([batch, head, place], head / heads_a_key, at);
                add_scaled(sums, slope, backward.key.row(batch, head / heads_a_key, at));
            }
        })?;
        let heads = |key_head: usize| key_head * heads_a_key..(key_head + 1) * heads_a_key;
        write_rows::<T>(other_grads[0], |[batch, key_head, at], sums| {
            for (head, place) in heads(key_head).flat_map(|head| size.seers(at, queries).map(move |place| (head, place))) {
                let (_, slope) = backward.weight_and_slope([batch, head, place], key_head, at);
                add_scaled(sums, slope, backward.query.row(batch, head, place));
            }
        })?;
        write_rows::<T>(other_grads[1], |[batch, key_head, at], sums| {
            for (head, place) in heads(key_head).flat_map(|head| size.seers(at, queries).map(move |place| (head, place))) {
                let weight = backward.weight([batch, head, place], key_head, at);
                add_scaled(sums, weight, backward.grad.row(batch, head, place));
            }
        })
    })
}

/// What attention's backward reads.
struct Backward<'a, T: Float> {
    grad: Rows<'a, T>,
    log_sums: Numbers<'a, T::Real>,
    deltas: Numbers<'a, T::Real>,
    query: Rows<'a, T>,
    key: Rows<'a, T>,
    value: Rows<'a, T>,
    size: AttentionSize,
}

impl<T: Float> Backward<'_, T> {
    /// The share of its attention that a query gives to the key at `at`.
    fn weight(&self, [batch, head, place]: [usize; 3], key_head: usize, at: usize) -> T::Real {
        let score = dot(self.query.row(batch, head, place), self.key.row(batch, key_head, at));
        (T::Real::of(self.size.scale) * score - self.log_sums.get(batch, head, place)).exp()
    }

    /// The same, and the derivative with respect to the product of query and key.
    fn weight_and_slope(&self, query: [usize; 3], key_head: usize, at: usize) -> (T::Real, T::Real) {
        let [batch, head, place] = query;
        let weight = self.weight(query, key_head, at);
        let grad = dot(self.grad.row(batch, head, place), self.value.row(batch, key_head, at));
        (weight, T::Real::of(self.size.scale) * weight * (grad - self.deltas.get(batch, head, place)))
    }
}

/// Writes every row of `out`: `fill([batch, head, place], sums)` adds to sums that start at 0.
fn write_rows<T: Float>(out: View<'_>, fill: impl Fn([usize; 3], &mut [T::Real]) + Sync) -> Result<()> {
    if out.layout.elements() == 0 {
        return Ok(());
    }
    let [_, heads, places, width] = [0, 1, 2, 3].map(|axis| out.layout.shape()[axis]);
    let head_distance = out.layout.strides()[1];
    let mut memory = out.storage.write::<T>("attention")?;
    let groups = memory[out.layout.offset()..out.layout.end()].par_chunks_mut(group_distance(out.layout));
    groups.enumerate().for_each_init(
        || vec![T::Real::ZERO; width],
        |sums, (index, group)| {
            for head in 0..heads {
                sums.fill(T::Real::ZERO);
                fill([index / places, head, index % places], sums);
                store(&mut group[head * head_distance..][..width], sums);
            }
        },
    );
    Ok(())
}
