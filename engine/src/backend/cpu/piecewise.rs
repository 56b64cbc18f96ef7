//! Piecewise linear functions, with two bits per element for the slopes.

use rayon::prelude::*;

use super::ELEMENTS_PER_TASK;
use super::elements::{read, write};
use super::elementwise::copy_if;
use super::number::{Float, Real, with_float};
use crate::Result;
use crate::backend::{Nest, Piecewise, Side, View};

/// Number of slopes per byte.
const A_BYTE: usize = 4;

// Meaning of the two bits.
/// Slope −1, or, with two operands, slope 1 for both because one of them is NaN.
const ODD: u8 = 0;
const FLAT: u8 = 1;
const HALF: u8 = 2;
const RISES: u8 = 3;

pub(crate) fn piecewise(
    out: View<'_>,
    slopes: Option<View<'_>>,
    function: Piecewise,
    left: View<'_>,
    right: Option<View<'_>>,
) -> Result<()> {
    with_float!("piecewise", out.dtype, T => {
        type R = <T as Float>::Real;
        let zero = R::ZERO;
        match function {
            Piecewise::Abs => run::<T>(out, slopes, left, None, |x, _| {
                let slope = if x > zero { RISES } else if x < zero { ODD } else { FLAT };
                (if x < zero { -x } else { x + zero }, slope)
            }),
            Piecewise::Clamp { low, high } => {
                let (low, high) = (R::of(low), R::of(high));
                run::<T>(out, slopes, left, None, |x, _| {
                    let slope = if x > low && x < high { RISES } else { FLAT };
                    let raised = if x < low { low } else { x };
                    (if raised > high { high } else { raised }, slope)
                })
            }
            Piecewise::Maximum => run::<T>(out, slopes, left, right, |l, r| {
                (l.largest(r), shares(l, r))
            }),
            Piecewise::Minimum => run::<T>(out, slopes, left, right, |l, r| {
                (-(-l).largest(-r), shares(-l, -r))
            }),
        }
    })
}

/// Returns the bits for the slopes of a maximum.
fn shares<R: Real>(left: R, right: R) -> u8 {
    match left.partial_cmp(&right) {
        Some(std::cmp::Ordering::Greater) => RISES,
        Some(std::cmp::Ordering::Less) => FLAT,
        Some(std::cmp::Ordering::Equal) => HALF,
        None => ODD,
    }
}

/// The left operand replaces a missing right operand.
fn run<T: Float>(
    out: View<'_>,
    slopes: Option<View<'_>>,
    left: View<'_>,
    right: Option<View<'_>>,
    f: impl Fn(T::Real, T::Real) -> (T::Real, u8) + Sync,
) -> Result<()> {
    let op = "piecewise";
    let right = right.unwrap_or(left);
    let (l, r) = (left.storage.read::<T>(op)?, right.storage.read::<T>(op)?);
    let mut memory = write::<T>(out, op)?;
    let nest = Nest::new([out.layout, left.layout, right.layout]);
    let [_, stride_left, stride_right] = nest.inner_strides();
    let fill = |task: usize, values: &mut [T], mut bytes: Option<&mut [u8]>| {
        let start = task * ELEMENTS_PER_TASK;
        let mut place = 0;
        nest.rows(start, start + values.len(), |[_, at_left, at_right], length| {
            for i in 0..length {
                let (value, slope) = f(l[at_left + i * stride_left].load(), r[at_right + i * stride_right].load());
                values[place] = T::store(value);
                if let Some(bytes) = &mut bytes {
                    let byte = &mut bytes[place / A_BYTE];
                    let bits = slope << (2 * (place % A_BYTE));
                    *byte = if place.is_multiple_of(A_BYTE) { bits } else { *byte | bits };
                }
                place += 1;
            }
        });
    };
    match slopes {
        Some(slopes) => {
            let mut bytes = write::<u8>(slopes, op)?;
            let bytes = bytes.par_chunks_mut(ELEMENTS_PER_TASK / A_BYTE);
            let tasks = memory.par_chunks_mut(ELEMENTS_PER_TASK).zip(bytes).enumerate();
            tasks.for_each(|(task, (values, bytes))| fill(task, values, Some(bytes)));
        }
        None => {
            memory.par_chunks_mut(ELEMENTS_PER_TASK).enumerate().for_each(|(task, values)| fill(task, values, None));
        }
    }
    Ok(())
}

pub(crate) fn piecewise_backward(out: View<'_>, grad: Option<View<'_>>, slopes: View<'_>, side: Side) -> Result<()> {
    copy_if(out, grad)?;
    let op = "piecewise";
    let bytes = read::<u8>(slopes, op)?;
    with_float!(op, out.dtype, T => {
        type R = <T as Float>::Real;
        let (zero, half) = (R::ZERO, R::of(0.5));
        let mut memory = write::<T>(out, op)?;
        let tasks = memory.par_chunks_mut(ELEMENTS_PER_TASK);
        tasks.zip(bytes.par_chunks(ELEMENTS_PER_TASK / A_BYTE)).for_each(|(values, bytes)| {
            for (place, value) in values.iter_mut().enumerate() {
                let slope = (bytes[place / A_BYTE] >> (2 * (place % A_BYTE))) & 3;
                *value = match (slope, side) {
                    (RISES, Side::Only | Side::Left) | (FLAT, Side::Right) | (ODD, Side::Left | Side::Right) => continue,
                    (HALF, _) => T::store(half * value.load()),
                    (ODD, Side::Only) => T::store(-value.load()),
                    _ => T::store(zero),
                };
            }
        });
        Ok(())
    })
}
