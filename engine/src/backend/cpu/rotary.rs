//! Rotary embeddings, which rotate pairs of elements of a head by angles that grow with the position.

use rayon::prelude::*;

use super::number::{Float, Real, with_float};
use crate::Result;
use crate::backend::{Rotation, View};

pub(crate) fn rotary(heads: View<'_>, rotation: Rotation) -> Result<()> {
    with_float!("rotary", heads.dtype, T => turn::<T>(heads, rotation))
}

fn turn<T: Float>(view: View<'_>, rotation: Rotation) -> Result<()> {
    if view.layout.elements() == 0 {
        return Ok(());
    }
    let [_, places, heads, width] = [0, 1, 2, 3].map(|axis| view.layout.shape()[axis]);
    let half = width / 2;
    // Angles in double precision: positions of many thousands leave few fractional digits in single precision.
    let frequencies: Vec<f64> = (0..half).map(|i| rotation.base.powf(-2.0 * i as f64 / width as f64)).collect();
    let head_distance = view.layout.strides()[2];
    let mut memory = view.storage.write::<T>("rotary")?;
    let groups = memory[view.layout.offset()..view.layout.end()].par_chunks_mut(group_distance(view));
    groups.enumerate().for_each_init(
        || Vec::with_capacity(half),
        |turns: &mut Vec<(T::Real, T::Real)>, (index, group)| {
            let position = (rotation.first + index % places) as f64;
            turns.clear();
            turns.extend(frequencies.iter().map(|frequency| {
                let (sin, cos) = (position * frequency).sin_cos();
                (T::Real::of(cos), T::Real::of(if rotation.back { -sin } else { sin }))
            }));
            for head in 0..heads {
                let (left, right) = group[head * head_distance..][..width].split_at_mut(half);
                for ((x, y), &(cos, sin)) in left.iter_mut().zip(right).zip(&*turns) {
                    let (a, b) = (x.load(), y.load());
                    *x = T::store(a * cos - b * sin);
                    *y = T::store(b * cos + a * sin);
                }
            }
        },
    );
    Ok(())
}

/// Returns the stride between groups of heads, one per position, in memory ordered by batch, position, head and width.
fn group_distance(view: View<'_>) -> usize {
    let (shape, strides) = (view.layout.shape(), view.layout.strides());
    let group = (shape[2] - 1) * strides[2] + shape[3];
    let distance = match (shape[0], shape[1]) {
        (1, 1) => group,
        (_, 1) => strides[0],
        _ => strides[1],
    };
    let in_order = distance >= group && (shape[0] == 1 || strides[0] == shape[1] * distance) && strides[3] == 1;
    assert!(in_order, "the axes of the tensor are not batch, position, head, width");
    distance
}
