//! The largest and smallest elements along an axis, and their indices.

use std::cmp::Ordering;

use super::number::{Float, Real, with_float};
use crate::Result;
use crate::backend::{Extremum, Nest, View};

const OP: &str = "extremes";

pub(crate) fn extremes(
    places: View<'_>,
    found: Option<View<'_>>,
    input: View<'_>,
    axis: usize,
    extremum: Extremum,
) -> Result<()> {
    if places.layout.elements() == 0 {
        return Ok(());
    }
    with_float!(OP, input.dtype, T => {
        let values = input.storage.read::<T>(OP)?;
        let mut indices = places.storage.write::<i64>(OP)?;
        let mut memory = found.map(|found| found.storage.write::<T>(OP)).transpose()?;
        let out = found.unwrap_or(places).layout;
        let [places, out, input] = [places.layout, out, input.layout];
        let strides = [places, out, input].map(|layout| layout.strides()[axis]);
        let (count, length) = (places.shape()[axis], input.shape()[axis]);
        let mut ranked = Vec::new();
        let first = [places, out, input].map(|layout| layout.select(axis, 0));
        Nest::new(first.each_ref()).each(|[at_place, at_found, at]| {
            let value = |index: usize| values[at + index * strides[2]].load();
            rank(&mut ranked, [count, length], |&left, &right| {
                order(value(left), value(right), extremum).then(left.cmp(&right))
            });
            for (position, &index) in ranked.iter().enumerate() {
                indices[at_place + position * strides[0]] = index as i64;
                if let Some(memory) = &mut memory {
                    memory[at_found + position * strides[1]] = values[at + index * strides[2]];
                }
            }
        });
        Ok(())
    })
}

/// Fills `ranked` with the first `count` of `length` indices, in order.
fn rank(ranked: &mut Vec<usize>, [count, length]: [usize; 2], order: impl Fn(&usize, &usize) -> Ordering) {
    ranked.clear();
    if count == 1 {
        ranked.extend((0..length).min_by(order));
        return;
    }
    ranked.extend(0..length);
    if count < length {
        ranked.select_nth_unstable_by(count, &order);
        ranked.truncate(count);
    }
    ranked.sort_unstable_by(order);
}

fn order<R: Real>(left: R, right: R, extremum: Extremum) -> Ordering {
    match (left.is_nan(), right.is_nan()) {
        (false, false) => {
            let ascending = left.partial_cmp(&right).unwrap_or(Ordering::Equal);
            if extremum == Extremum::Largest { ascending.reverse() } else { ascending }
        }
        (left, right) => right.cmp(&left),
    }
}
