//! Attention, softmax(query · keyᵀ) · value, tiled over queries and keys, so that only one tile of scores is in memory.
//!
//! Forward tracks the maximum score and the sum of exponentials of each row while it iterates over the keys. Backward
//! recomputes each tile of scores from the saved log-sum-exp. Both follow FlashAttention (Dao, Fu, Ermon, Rudra, Ré:
//! "FlashAttention", 2022). A thread's scratch is a few tiles, and in backward the gradients of one head.
#![expect(unsafe_code, reason = "threads write rows that lie between one another")]

use std::ops::Range;

use rayon::prelude::*;

use super::ELEMENTS_A_TASK;
use super::matmul::{Matrix, Product, multiply};
use super::number::{Float, Real, with_float};
use super::rows;
use super::softmax::part_mut;
use super::strips::{Strips, StripsMut};
use crate::backend::kind::Mask;
use crate::backend::{AttentionSize, View};
use crate::error::Result;

/// Queries and keys per tile.
const QUERIES: usize = 64;
const KEYS: usize = 128;

/// Multiplications per task: fewer are not worth a second thread.
const MULTIPLICATIONS_A_TASK: usize = 1 << 18;

/// Splits `whole` into ranges of `length`.
fn tiles(whole: Range<usize>, length: usize) -> impl Iterator<Item = Range<usize>> {
    let end = whole.end;
    whole.step_by(length).map(move |first| first..end.min(first + length))
}

/// Resizes `numbers` to `count` zeros.
fn zeros<R: Real>(numbers: &mut Vec<R>, count: usize) -> &mut [R] {
    numbers.clear();
    numbers.resize(count, R::ZERO);
    numbers
}

impl AttentionSize {
    /// Returns the number of keys, out of `keys`, that the query at `place` attends to.
    fn seen(&self, place: usize, keys: usize) -> usize {
        match self.mask {
            Mask::None => keys,
            Mask::Causal => keys.min(place + 1),
        }
    }

    /// Returns the first query that attends to the key at `place`.
    fn first_seer(&self, place: usize) -> usize {
        match self.mask {
            Mask::None => 0,
            Mask::Causal => place,
        }
    }

    /// Returns the number of keys of a tile that the query at `place` attends to.
    fn seen_of(&self, place: usize, keys: &Range<usize>) -> usize {
        self.seen(place, keys.end).saturating_sub(keys.start)
    }
}

pub(crate) fn attention(out: View<'_>, statistics: View<'_>, inputs: [View<'_>; 3], size: AttentionSize) -> Result<()> {
    with_float!("attention", out.dtype, T => attention_as::<T>(out, statistics, inputs, size))
}

fn attention_as<T>(out: View<'_>, statistics: View<'_>, inputs: [View<'_>; 3], size: AttentionSize) -> Result<()>
where
    T: Float,
    T::Real: Product<Real = T::Real>,
{
    let [query, key, value] = [Strips::<T>::read(inputs[0])?, Strips::read(inputs[1])?, Strips::read(inputs[2])?];
    if out.layout.elements() == 0 {
        return Ok(());
    }
    let [batches, heads, places, width] = [0, 1, 2, 3].map(|axis| out.layout.shape()[axis]);
    let heads_a_key = heads / key.heads().max(1);
    let mut log_sums = statistics.storage.write::<T::Real>("attention")?;
    let mut memory = out.storage.write::<T>("attention")?;
    let [log_sums] = StripsMut::share(&mut log_sums, [statistics.layout]);
    let [out] = StripsMut::share(&mut memory, [out.layout]);
    let tiles_a_head = places.div_ceil(QUERIES);
    let task = |scratch: &mut Forward<T::Real>, index: usize| {
        let (head, first) = (index / tiles_a_head, index % tiles_a_head * QUERIES);
        let (batch, head) = (head / heads, head % heads);
        let queries = first..places.min(first + QUERIES);
        scratch.mix([&query, &key, &value], [batch, head, head / heads_a_key], &queries, size);
        for (row, place) in queries.enumerate() {
            let (sum, mixed) = (scratch.sums[row], &scratch.mixed[row * width..][..width]);
            let share = if key.places() == 0 { T::Real::ZERO } else { T::Real::ONE / sum };
            // SAFETY: each task has its own tile of queries.
            let (out, log_sum) = unsafe { (out.row([batch, head, place]), log_sums.row([batch, head, place])) };
            rows::store(out, mixed, share);
            log_sum.fill(scratch.largest[row] + sum.ln());
        }
    };
    let tasks = (0..batches * heads * tiles_a_head).into_par_iter();
    tasks.with_min_len(at_least(QUERIES * key.places() * width)).for_each_init(Forward::default, task);
    Ok(())
}

/// Returns the minimum number of work items, of `multiplications` each, per task.
fn at_least(multiplications: usize) -> usize {
    (MULTIPLICATIONS_A_TASK / multiplications.max(1)).max(1)
}

/// A thread's scratch: widened tiles, scores, and for each row the maximum score, the sum of exponentials and the
/// accumulated values.
#[derive(Default)]
struct Forward<R> {
    tiles: [Vec<R>; 3],
    scores: Vec<R>,
    largest: Vec<R>,
    sums: Vec<R>,
    mixed: Vec<R>,
}

impl<R: Product<Real = R> + Real> Forward<R> {
    /// Computes the weighted sum of values for a tile of queries.
    fn mix<T: Float<Real = R>>(
        &mut self,
        [query, key, value]: [&Strips<'_, T>; 3],
        [batch, head, key_head]: [usize; 3],
        queries: &Range<usize>,
        size: AttentionSize,
    ) {
        let [of_query, of_key, of_value] = &mut self.tiles;
        let (count, width) = (queries.len(), query.width());
        let query = query.tile([batch, head], queries, of_query);
        let (largest, sums) = (zeros(&mut self.largest, count), zeros(&mut self.sums, count));
        largest.fill(R::LEAST);
        let mixed = zeros(&mut self.mixed, count * width);
        for keys in tiles(0..size.seen(queries.end - 1, key.places()), KEYS) {
            self.scores.resize(QUERIES * KEYS, R::ZERO);
            let scores = &mut self.scores[..count * keys.len()];
            let key = key.tile([batch, key_head], &keys, of_key);
            multiply([count, width, keys.len()], [R::of(size.scale), R::ZERO], query, key.transposed(), scores);
            for (row, place) in queries.clone().enumerate() {
                let scores = &mut scores[row * keys.len()..][..keys.len()];
                let (scores, hidden) = scores.split_at_mut(size.seen_of(place, &keys));
                hidden.fill(R::ZERO);
                let former = largest[row];
                largest[row] = former.largest(rows::largest(scores));
                if former != largest[row] {
                    let share = (former - largest[row]).exp();
                    sums[row] = sums[row] * share;
                    rows::scale(&mut mixed[row * width..][..width], share);
                }
                rows::exponents(scores, largest[row]);
                sums[row] += rows::sum_of(scores);
            }
            let weights = Matrix { numbers: scores, strides: [keys.len(), 1] };
            let value = value.tile([batch, key_head], &keys, of_value);
            multiply([count, keys.len(), width], [R::ONE; 2], weights, value, mixed);
        }
    }
}

pub(crate) fn attention_delta(out: View<'_>, grad: View<'_>, result: View<'_>) -> Result<()> {
    with_float!("attention", grad.dtype, T => {
        let (grads, results) = (Strips::<T>::read(grad)?, Strips::<T>::read(result)?);
        let [heads, places] = [out.layout.shape()[1], out.layout.shape()[2]];
        let mut memory = out.storage.write::<<T as Float>::Real>("attention")?;
        let in_order = out.layout.transpose(1, 2).is_contiguous();
        assert!(in_order, "numbers of rows are in the order batch, place, head");
        let rows_a_task = (ELEMENTS_A_TASK / grads.width().max(1)).max(1);
        part_mut(&mut memory, out).par_chunks_mut(rows_a_task).enumerate().for_each(|(task, deltas)| {
            for (index, delta) in (task * rows_a_task..).zip(deltas) {
                let place = [index / (heads * places), index % heads, index / heads % places];
                *delta = rows::dot(grads.row(place), results.row(place));
            }
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
        return outs.into_iter().try_for_each(|out| super::elementwise::fill(out, 0.0));
    }
    with_float!("attention", query_grad.dtype, T => {
        let backward = Backward::<T> {
            grad: Strips::read(known[0])?,
            log_sums: Strips::read(known[1])?,
            deltas: Strips::read(known[2])?,
            query: Strips::read(inputs[0])?,
            key: Strips::read(inputs[1])?,
            value: Strips::read(inputs[2])?,
            size,
        };
        let mut first = outs[0].storage.write::<T>("attention")?;
        if outs.iter().all(|out| std::ptr::eq(out.storage, outs[0].storage)) {
            backward.run(&StripsMut::share(&mut first, outs.map(|out| out.layout)));
            return Ok(());
        }
        let mut others = [outs[1].storage.write::<T>("attention")?, outs[2].storage.write::<T>("attention")?];
        let [second, third] = &mut others;
        let [query] = StripsMut::share(&mut first, [outs[0].layout]);
        let [key] = StripsMut::share(second, [outs[1].layout]);
        let [value] = StripsMut::share(third, [outs[2].layout]);
        backward.run(&[query, key, value]);
        Ok(())
    })
}

/// The inputs of attention's backward.
struct Backward<'a, T: Float> {
    grad: Strips<'a, T>,
    log_sums: Strips<'a, T::Real>,
    deltas: Strips<'a, T::Real>,
    query: Strips<'a, T>,
    key: Strips<'a, T>,
    value: Strips<'a, T>,
    size: AttentionSize,
}

/// A thread's scratch: widened tiles of query, key, value and the result's gradient; weights; the gradients of scores;
/// and the gradients of one head's query, key and value.
#[derive(Default)]
struct Gradients<R> {
    tiles: [Vec<R>; 4],
    weights: Vec<R>,
    slopes: Vec<R>,
    query: Vec<R>,
    key: Vec<R>,
    value: Vec<R>,
}

impl<T: Float> Backward<'_, T>
where
    T::Real: Product<Real = T::Real> + Float<Real = T::Real>,
{
    /// Writes the gradients of query, key and value, with one task per head of keys, so that no two write the same row.
    fn run(&self, outs: &[StripsMut<'_, T>; 3]) {
        let [batches, heads] = [self.key.batches(), self.key.heads()];
        let heads_a_key = self.query.heads() / heads.max(1);
        let width = self.key.width();
        let write = |out: &StripsMut<'_, T>, [batch, head]: [usize; 2], numbers: &[T::Real]| {
            for (place, numbers) in numbers.chunks(width.max(1)).enumerate() {
                // SAFETY: each task has its own head of keys, and the heads of queries that attend to it.
                let row = unsafe { out.row([batch, head, place]) };
                rows::store(row, numbers, T::Real::ONE);
            }
        };
        let task = |scratch: &mut Gradients<T::Real>, index: usize| {
            let (batch, key_head) = (index / heads, index % heads);
            zeros(&mut scratch.key, self.key.places() * width);
            zeros(&mut scratch.value, self.key.places() * width);
            for head in key_head * heads_a_key..(key_head + 1) * heads_a_key {
                zeros(&mut scratch.query, self.query.places() * width);
                self.add_head([batch, head, key_head], scratch);
                write(&outs[0], [batch, head], &scratch.query);
            }
            write(&outs[1], [batch, key_head], &scratch.key);
            write(&outs[2], [batch, key_head], &scratch.value);
        };
        let work = self.query.places() * self.key.places() * width * heads_a_key;
        (0..batches * heads).into_par_iter().with_min_len(at_least(work)).for_each_init(Gradients::default, task);
    }

    /// Accumulates the gradients that come through one head of queries.
    fn add_head(&self, [batch, head, key_head]: [usize; 3], scratch: &mut Gradients<T::Real>) {
        let (zero, one, scale) = (T::Real::ZERO, T::Real::ONE, T::Real::of(self.size.scale));
        let (width, queries) = (self.query.width(), self.query.places());
        let Gradients { tiles: [of_query, of_key, of_value, of_grad], weights, slopes, .. } = scratch;
        weights.resize(QUERIES * KEYS, zero);
        slopes.resize(QUERIES * KEYS, zero);
        for keys in tiles(0..self.key.places(), KEYS) {
            let key = self.key.tile([batch, key_head], &keys, of_key);
            let value = self.value.tile([batch, key_head], &keys, of_value);
            let first = self.size.first_seer(keys.start) / QUERIES * QUERIES;
            for queries in tiles(first.min(queries)..queries, QUERIES) {
                let query = self.query.tile([batch, head], &queries, of_query);
                let grad = self.grad.tile([batch, head], &queries, of_grad);
                // The last query of the tile attends to the most keys.
                let (count, seen) = (queries.len(), self.size.seen_of(queries.end - 1, &keys));
                let (weights, slopes) = (&mut weights[..count * seen], &mut slopes[..count * seen]);
                multiply([count, width, seen], [scale, zero], query, key.transposed(), weights);
                multiply([count, width, seen], [scale, zero], grad, value.transposed(), slopes);
                for (row, place) in queries.clone().enumerate() {
                    let (log_sum, delta) =
                        (self.log_sums.row([batch, head, place])[0], self.deltas.row([batch, head, place])[0]);
                    let seen_here = self.size.seen_of(place, &keys);
                    let (weights, hidden) = weights[row * seen..][..seen].split_at_mut(seen_here);
                    hidden.fill(zero);
                    rows::exponents(weights, log_sum);
                    let (slopes, hidden) = slopes[row * seen..][..seen].split_at_mut(seen_here);
                    hidden.fill(zero);
                    rows::slopes(slopes, weights, scale * delta);
                }
                let transposed = |numbers| Matrix { numbers, strides: [1, seen] };
                let place = keys.start * width;
                multiply([seen, count, width], [one; 2], transposed(weights), grad, &mut scratch.value[place..]);
                multiply([seen, count, width], [one; 2], transposed(slopes), query, &mut scratch.key[place..]);
                let slopes = Matrix { numbers: slopes, strides: [seen, 1] };
                multiply([count, seen, width], [one; 2], slopes, key, &mut scratch.query[queries.start * width..]);
            }
        }
    }
}
