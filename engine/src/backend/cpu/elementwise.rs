//! Elementwise operations.

use bytemuck::Pod;
use rayon::prelude::*;

use super::ELEMENTS_PER_TASK;
use super::functions::{Exp, Function, Gelu, GeluGrad, GeluTanh, GeluTanhGrad, Sigmoid, Silu, SiluGrad, Stored, Tanh};
use super::number::{Castable, Float, Real, with_bytes, with_element, with_float};
use super::wide::wide;
use crate::backend::{Binary, Nest, Ternary, Unary, View};
use crate::{Layout, Result};

pub(crate) fn fill(out: View<'_>, value: f64) -> Result<()> {
    with_element!(out.dtype, T => write_all(out, <T as Castable>::narrow(value)))
}

fn write_all<T: Pod + Send + Sync>(out: View<'_>, value: T) -> Result<()> {
    let nest = Nest::new([out.layout]);
    let mut memory = out.storage.write::<T>("fill")?;
    run(&mut memory, &nest, &|row, _, stride| match stride {
        1 => row.fill(value),
        _ => row.iter_mut().step_by(stride).for_each(|element| *element = value),
    });
    Ok(())
}

pub(crate) fn copy(out: View<'_>, input: View<'_>) -> Result<()> {
    with_bytes!(out.dtype, T => convert(out, input, &|(value,): (T,)| value))
}

/// Does nothing if `input` is `None`, because the elements are already in `out`.
pub(super) fn copy_if(out: View<'_>, input: Option<View<'_>>) -> Result<()> {
    input.map_or(Ok(()), |input| copy(out, input))
}

pub(crate) fn to_host<T: Pod>(input: View<'_>) -> Result<Vec<T>> {
    let memory = input.storage.read::<T>("to_vec")?;
    let mut numbers = vec![T::zeroed(); input.layout.elements()];
    let order = Layout::contiguous(*input.layout.shape());
    Nest::new([&order, input.layout]).each(|[to, from]| numbers[to] = memory[from]);
    Ok(numbers)
}

pub(super) fn convert<I: Pod + Send + Sync, O: Pod + Send + Sync>(
    out: View<'_>,
    input: View<'_>,
    f: &impl Function<(I,), O>,
) -> Result<()> {
    let nest = Nest::new([out.layout, input.layout]);
    let stride_in = nest.inner_strides()[1];
    let from = input.storage.read::<I>("copy")?;
    let mut memory = out.storage.write::<O>("copy")?;
    run(&mut memory, &nest, &|row, [_, start], stride| match (stride, stride_in) {
        (1, 1) => map_row(row, &from[start..], f),
        (1, 0) => row.fill(f.of((from[start],))),
        _ => {
            let places = row.iter_mut().step_by(stride).enumerate();
            places.for_each(|(i, element)| *element = f.of((from[start + i * stride_in],)));
        }
    });
    Ok(())
}

/// The body of an innermost loop, which receives its output, the offset of each operand, and the output's stride. It is
/// a trait object, because otherwise the code of loops and threads would be compiled for every function and type.
type Row<'a, T, const N: usize> = dyn Fn(&mut [T], [usize; N], usize) + Sync + 'a;

/// Calls `row(output, offsets, stride)` for each innermost loop. Its output elements are `stride` elements apart. Loops
/// run on several threads if the output is contiguous or consists of disjoint parts.
fn run<T: Send, const N: usize>(memory: &mut [T], nest: &Nest<N>, row: &Row<'_, T, N>) {
    let elements = nest.elements();
    let stride = nest.inner_strides()[0].max(1);
    let first = nest.offsets()[0];
    if nest.writes_contiguously() {
        memory[first..first + elements].par_chunks_mut(ELEMENTS_PER_TASK).enumerate().for_each(|(chunk, part)| {
            let start = chunk * ELEMENTS_PER_TASK;
            nest.rows(start, start + part.len(), |offsets, length| {
                let place = offsets[0] - first - start;
                row(&mut part[place..place + length], offsets, 1);
            });
        });
    } else if let Some([parts, distance]) = nest.parts() {
        let elements_per_part = elements / parts;
        let parts_per_task = (ELEMENTS_PER_TASK / elements_per_part).max(1);
        let tasks = memory[first..].par_chunks_mut(distance * parts_per_task).take(parts.div_ceil(parts_per_task));
        tasks.enumerate().for_each(|(task, memory)| {
            let start = task * parts_per_task * elements_per_part;
            nest.rows(start, (start + parts_per_task * elements_per_part).min(elements), |offsets, length| {
                let place = offsets[0] - first - task * distance * parts_per_task;
                row(&mut memory[place..=place + (length - 1) * stride], offsets, stride);
            });
        });
    } else {
        nest.rows(0, elements, |offsets, length| {
            row(&mut memory[offsets[0]..=offsets[0] + (length - 1) * stride], offsets, stride);
        });
    }
}

wide! {
    fn map_row[I: Copy, O, F: Function<(I,), O>](out: &mut [O], from: &[I], f: &F) {
        for (element, &value) in out.iter_mut().zip(from) {
            *element = f.of((value,));
        }
    }

    fn change_row[T: Copy, F: Function<(T,), T>](out: &mut [T], f: &F) {
        for element in out {
            *element = f.of((*element,));
        }
    }

    fn zip_row[T: Copy, F: Function<(T, T), T>](out: &mut [T], left: &[T], right: &[T], f: &F) {
        for ((element, &left), &right) in out.iter_mut().zip(left).zip(right) {
            *element = f.of((left, right));
        }
    }

    fn change_row_by[T: Copy, F: Function<(T, T), T>](out: &mut [T], right: &[T], f: &F) {
        for (element, &right) in out.iter_mut().zip(right) {
            *element = f.of((*element, right));
        }
    }

    fn merge_row[T: Copy, F: Function<(T, T, T), T>](out: &mut [T], left: &[T], right: &[T], f: &F) {
        for ((element, &left), &right) in out.iter_mut().zip(left).zip(right) {
            *element = f.of((*element, left, right));
        }
    }
}

pub(crate) fn unary(out: View<'_>, function: Unary, input: Option<View<'_>>) -> Result<()> {
    with_float!("unary", out.dtype, T => unary_as::<T>(out, function, input))
}

fn unary_as<T: Float>(out: View<'_>, function: Unary, input: Option<View<'_>>) -> Result<()> {
    let zero = T::Real::ZERO;
    match function {
        Unary::Affine { scale, shift } => {
            let (scale, shift) = (T::Real::of(scale), T::Real::of(shift));
            map::<T>(out, input, |x| scale * x + shift)
        }
        Unary::Exp => map::<T>(out, input, Exp),
        Unary::Log => map::<T>(out, input, Real::ln),
        Unary::Sqrt => map::<T>(out, input, Real::sqrt),
        Unary::AffineSqrt { scale, shift } => {
            let (scale, shift) = (T::Real::of(scale), T::Real::of(shift));
            map::<T>(out, input, move |x: T::Real| scale * x.sqrt() + shift)
        }
        Unary::Square => map::<T>(out, input, |x| x * x),
        Unary::Tanh => map::<T>(out, input, Tanh),
        Unary::Sin => map::<T>(out, input, Real::sin),
        Unary::Cos => map::<T>(out, input, Real::cos),
        Unary::Sigmoid => map::<T>(out, input, Sigmoid),
        Unary::Silu => map::<T>(out, input, Silu),
        Unary::Relu => map::<T>(out, input, |x| if x <= zero { zero } else { x }),
        Unary::Gelu => map::<T>(out, input, Gelu),
        Unary::GeluTanh => map::<T>(out, input, GeluTanh),
    }
}

pub(super) fn map<T: Float>(out: View<'_>, input: Option<View<'_>>, f: impl Function<T::Real, T::Real>) -> Result<()> {
    let f = Stored::<T, _>::new(f);
    if let Some(input) = input {
        return convert(out, input, &f);
    }
    let nest = Nest::new([out.layout]);
    let mut memory = out.storage.write::<T>("unary")?;
    run(&mut memory, &nest, &|row, _, stride| match stride {
        1 => change_row(row, &f),
        _ => row.iter_mut().step_by(stride).for_each(|element| *element = f.of((*element,))),
    });
    Ok(())
}

pub(crate) fn binary(out: View<'_>, function: Binary, left: Option<View<'_>>, right: View<'_>) -> Result<()> {
    with_float!("binary", out.dtype, T => binary_as::<T>(out, function, left, right))
}

fn binary_as<T: Float>(out: View<'_>, function: Binary, left: Option<View<'_>>, right: View<'_>) -> Result<()> {
    let (zero, one, two) = (T::Real::ZERO, T::Real::ONE, T::Real::of(2.0));
    match function {
        Binary::Add => zip::<T>(out, left, right, |(l, r)| l + r),
        Binary::Sub => zip::<T>(out, left, right, |(l, r)| l - r),
        Binary::Mul => zip::<T>(out, left, right, |(l, r)| l * r),
        Binary::Div => zip::<T>(out, left, right, |(l, r)| l / r),
        Binary::AddScaled(scale) => {
            let scale = T::Real::of(scale);
            zip::<T>(out, left, right, |(l, r)| l + scale * r)
        }
        Binary::Lerp(weight) => {
            let weight = T::Real::of(weight);
            zip::<T>(out, left, right, |(l, r)| l + weight * (r - l))
        }
        Binary::NegMul => zip::<T>(out, left, right, |(l, r): (T::Real, T::Real)| -(l * r)),
        Binary::SquareGrad => zip::<T>(out, left, right, |(g, x)| two * g * x),
        Binary::SqrtGrad => zip::<T>(out, left, right, |(g, y)| g / (two * y)),
        Binary::TanhGrad => zip::<T>(out, left, right, |(g, y)| g * (one - y * y)),
        Binary::SinGrad => zip::<T>(out, left, right, |(g, x): (T::Real, T::Real)| g * x.cos()),
        Binary::CosGrad => zip::<T>(out, left, right, |(g, x): (T::Real, T::Real)| -(g * x.sin())),
        Binary::SigmoidGrad => zip::<T>(out, left, right, |(g, y)| g * y * (one - y)),
        Binary::SiluGrad => zip::<T>(out, left, right, SiluGrad),
        Binary::ReluGrad => zip::<T>(out, left, right, |(g, x)| if x <= zero { zero } else { g }),
        Binary::GeluGrad => zip::<T>(out, left, right, GeluGrad),
        Binary::GeluTanhGrad => zip::<T>(out, left, right, GeluTanhGrad),
    }
}

pub(super) fn zip<T: Float>(
    out: View<'_>,
    left: Option<View<'_>>,
    right: View<'_>,
    f: impl Function<(T::Real, T::Real), T::Real>,
) -> Result<()> {
    let f = Stored::<T, _>::new(f);
    let r = right.storage.read::<T>("binary")?;
    let Some(left) = left else {
        let nest = Nest::new([out.layout, right.layout]);
        let stride_right = nest.inner_strides()[1];
        let mut memory = out.storage.write::<T>("binary")?;
        run(&mut memory, &nest, &|row, [_, start], stride| match (stride, stride_right) {
            (1, 1) => change_row_by(row, &r[start..], &f),
            (1, 0) => {
                let right = r[start];
                change_row(row, &|(element,)| f.of((element, right)));
            }
            _ => row
                .iter_mut()
                .step_by(stride)
                .enumerate()
                .for_each(|(i, element)| *element = f.of((*element, r[start + i * stride_right]))),
        });
        return Ok(());
    };
    let nest = Nest::new([out.layout, left.layout, right.layout]);
    let [_, stride_left, stride_right] = nest.inner_strides();
    let l = left.storage.read::<T>("binary")?;
    let mut memory = out.storage.write::<T>("binary")?;
    run(&mut memory, &nest, &|row, [_, at_left, at_right], stride| match (stride, stride_left, stride_right) {
        (1, 1, 1) => zip_row(row, &l[at_left..], &r[at_right..], &f),
        (1, 1, 0) => {
            let right = r[at_right];
            map_row(row, &l[at_left..], &|(left,)| f.of((left, right)));
        }
        (1, 0, 1) => {
            let left = l[at_left];
            map_row(row, &r[at_right..], &|(right,)| f.of((left, right)));
        }
        _ => row.iter_mut().step_by(stride).enumerate().for_each(|(i, element)| {
            *element = f.of((l[at_left + i * stride_left], r[at_right + i * stride_right]));
        }),
    });
    Ok(())
}

pub(crate) fn ternary(out: View<'_>, function: Ternary, left: View<'_>, right: View<'_>) -> Result<()> {
    with_float!("ternary", out.dtype, T => ternary_as::<T>(out, function, left, right))
}

fn ternary_as<T: Float>(out: View<'_>, function: Ternary, left: View<'_>, right: View<'_>) -> Result<()> {
    match function {
        Ternary::AddMul { keep, scale } => {
            let (keep, scale) = (T::Real::of(keep), T::Real::of(scale));
            merge::<T>(out, left, right, |(o, l, r)| keep * o + scale * l * r)
        }
        Ternary::AddDiv(scale) => {
            let scale = T::Real::of(scale);
            merge::<T>(out, left, right, |(o, l, r)| o + scale * l / r)
        }
    }
}

fn merge<T: Float>(
    out: View<'_>,
    left: View<'_>,
    right: View<'_>,
    f: impl Function<(T::Real, T::Real, T::Real), T::Real>,
) -> Result<()> {
    let nest = Nest::new([out.layout, left.layout, right.layout]);
    let [_, stride_left, stride_right] = nest.inner_strides();
    let (l, r) = (left.storage.read::<T>("ternary")?, right.storage.read::<T>("ternary")?);
    let mut memory = out.storage.write::<T>("ternary")?;
    let f = Stored::<T, _>::new(f);
    run(&mut memory, &nest, &|row, [_, at_left, at_right], stride| match (stride, stride_left, stride_right) {
        (1, 1, 1) => merge_row(row, &l[at_left..], &r[at_right..], &f),
        _ => row.iter_mut().step_by(stride).enumerate().for_each(|(i, o)| {
            *o = f.of((*o, l[at_left + i * stride_left], r[at_right + i * stride_right]));
        }),
    });
    Ok(())
}
